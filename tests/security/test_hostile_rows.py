"""Single hostile values in sound rows of a shared database: each is one thing that a colleague tries with SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from socket import gethostname
from typing import Any

import pytest
import zstandard
from tests.postgresql_server import ENGINES
from tests.security.colleague import MARKUP
from tests.security.conftest import Fort
from tests.security.office import Office, OpenOffice, wait_for_end

from evaldesk.desk.runs.runs import WAITING
from evaldesk.model import Event, Transcript, TurnRecord
from evaldesk.store.tables.columns import PLAIN, ZSTD
from evaldesk.wire import to_json

DEEP = "[" * 100_000
DEPTH = 3_000


def _update(office: Office, table: str, **values: Any) -> None:
    """Change these columns in the rows of the hostile run, or in all rows of a table that is not about runs."""
    found = office.colleague.tables.tables[table]
    column = found.c.id if table == "run" else found.c.get("run_id")
    where = [] if column is None else [column == office.fort.run]
    with office.colleague.engine.begin() as connection:
        assert connection.execute(found.update().where(*where).values(**values)).rowcount


def _insert(office: Office, table: str, **values: Any) -> None:
    with office.colleague.engine.begin() as connection:
        connection.execute(office.colleague.tables.tables[table].insert().values(**values))


def _row(office: Office, table: str) -> dict[str, Any]:
    with office.colleague.engine.begin() as connection:
        return dict(connection.execute(office.colleague.tables.tables[table].select().limit(1)).one()._mapping)


def _transcript(office: Office, events: list[Event]) -> None:
    data = to_json(Transcript((TurnRecord("hi", tuple(events)),)))
    _update(office, "transcript", codec=PLAIN, data=data)


def shared_state_of_markup(office: Office) -> None:
    words = json.dumps({"loop_bound": f"{MARKUP}\x1b]0;x\x07::set-output", "changed_globals": [MARKUP, "\u202e"]})
    _update(office, "run", shared_state=words)


def shared_state_of_another_shape(office: Office) -> None:
    _update(office, "run", shared_state='{"loop_bound": 5}')


def shared_state_without_end(office: Office) -> None:
    _update(office, "run", shared_state=DEEP)


def a_chain_of_agents(office: Office) -> None:
    _transcript(
        office, [Event("agent_message", text="hi", author=f"a{at}", parent=f"a{at - 1}") for at in range(DEPTH)]
    )


def a_circle_of_agents(office: Office) -> None:
    _transcript(
        office, [Event("agent_message", text="hi", author=f"a{at}", parent=f"a{(at + 1) % 9}") for at in range(9)]
    )


def a_chain_of_tools(office: Office) -> None:
    _transcript(
        office, [Event("agent_message", text="hi", author=f"a{at}", within=f"a{at - 1}") for at in range(DEPTH)]
    )


def a_packed_bomb(office: Office) -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(b" " * (1 << 30))
    _update(office, "transcript", codec=ZSTD, data=bomb)


def a_packed_bomb_of_a_case(office: Office) -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(b" " * (1 << 30))
    _update(office, "case_snapshot", codec=ZSTD, data=bomb)


def a_transcript_without_end(office: Office) -> None:
    _update(office, "transcript", codec=PLAIN, data=DEEP.encode())


def places_without_end(office: Office) -> None:
    _update(office, "run", places=DEEP, stop=DEEP)


def an_import_of_an_endless_file(office: Office) -> None:
    values = {"status": "importing", "stage": "ready", "set_path": "/dev/zero", "leased_until": 1.0}
    _update(office, "import_record", owner=f"4194304 {gethostname()} 1@x", set_version="0" * 64, **values)


def an_import_of_a_file_of_mine(office: Office) -> None:
    values = {"status": "importing", "stage": "ready", "leased_until": 1.0, "set_version": "0" * 64}
    path = str(office.wires.folder / "secret.txt")
    _update(office, "import_record", owner=f"4194304 {gethostname()} 1@x", set_path=path, source=path, **values)


def media_of_a_page(office: Office) -> None:
    _update(office, "media", data=b"<!doctype html><script>alert(1)</script><x-hostile>")


def a_preset_of_hostile_choices(office: Office) -> None:
    fields = [["model", "openai/hostile"], ["criteria", "hostile:score"], ["isolation", "shared"], ["on", MARKUP]]
    _update(office, "preset", fields=json.dumps(fields))


def a_preset_without_end(office: Office) -> None:
    _update(office, "preset", fields=DEEP)


def a_queue_without_end(office: Office) -> None:
    _update(office, "queue", strata=DEEP)


def counts_beyond_all(office: Office) -> None:
    _update(office, "run", n=2**31 - 1, n_cases=2**31 - 1, n_trials=2**31 - 1, n_totalled=2**31 - 1)


def counts_below_nothing(office: Office) -> None:
    _update(office, "run", n=-(2**31), n_cases=-5, n_trials=-5, n_passed=-7)


def a_strip_of_many_letters(office: Office) -> None:
    _update(office, "run_case", strip="p" * 1_000_000)


def a_message_in_my_chat(office: Office) -> None:
    _insert(office, "open_turn", **_open_turn(office, f"4194304 {gethostname()} 1@x"))


def _open_turn(office: Office, owner: str) -> dict[str, Any]:
    row = {
        "session_id": office.fort.session,
        "turn_index": 99,
        "owner": owner,
        "message": "hostile",
        "leased_until": 1.0,
    }
    row |= {"model": "openai/hostile", "asked_by": "anna", "is_stopping": False, "media": "[]"}
    return row | {"started_at": _row(office, "session")["created_at"]}


def a_step_back_of_my_codebook(office: Office) -> None:
    rows = {
        "rows": [["run", {"id": 1}, {"agent_id": "hostile"}], ["mode; DROP TABLE run", {"id": 1}, None]],
        "uses": [],
    }
    _update(office, "codebook_step", before=json.dumps(rows))


ATTACKS = (
    shared_state_of_markup,
    shared_state_of_another_shape,
    shared_state_without_end,
    a_chain_of_agents,
    a_circle_of_agents,
    a_chain_of_tools,
    a_packed_bomb,
    a_packed_bomb_of_a_case,
    a_transcript_without_end,
    places_without_end,
    an_import_of_an_endless_file,
    an_import_of_a_file_of_mine,
    media_of_a_page,
    a_preset_of_hostile_choices,
    a_preset_without_end,
    a_queue_without_end,
    counts_beyond_all,
    counts_below_nothing,
    a_strip_of_many_letters,
    a_message_in_my_chat,
    a_step_back_of_my_codebook,
)


@pytest.fixture(params=ENGINES[-1:])
def office(request: pytest.FixtureRequest, open_office: OpenOffice) -> Iterator[Office]:
    """An office on PostgreSQL."""
    with open_office(request) as opened:
        yield opened


def test_shared_state_of_another_run_that_cannot_be_read_keeps_no_run_from_its_trials(office: Office) -> None:
    run_id, runs = office.own_run(shared_state=""), office.fort.desk.store.runs
    history_class = "0123456789abcdef"
    _update(office, "run", shared_state='{"loop_bound": 5}', history_class=history_class)
    run = office.colleague.tables.tables["run"]
    with office.colleague.engine.begin() as connection:
        connection.execute(run.update().where(run.c.id == run_id).values(history_class=history_class))

    assert runs.known_loop_bound(run_id) == ""


def _pages(fort: Fort) -> list[str]:
    run, session = f"/runs/{fort.run}", f"/sessions/{fort.session}"
    return [
        *("/runs", "/failures/1", "/queues/1?reader=sam", "/imports", "/runs/new?preset=1", run),
        *(f"{run}/cases/0/trials/0", f"{run}/cases/0/trials/0/timeline", f"/runs/new?like={fort.run}", session),
        fort.address(next(route for route in fort.routes() if route.path.startswith("/media/"))),
    ]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_hostile_value_runs_nothing_and_breaks_no_other_run(attack: Callable[[Office], None], office: Office) -> None:
    run_id = office.own_run()
    attack(office)

    office.look_around(1)
    for address in _pages(office.fort):
        answer = office.fort.get(address)
        assert answer.status_code < 500, (address, answer.text[-2000:])
        office.wires.check(answer.text if "html" in answer.headers.get("content-type", "") else "")
    office.fort.client.within(wait_for_end, office.fort.desk.runs, run_id)

    assert office.fort.desk.store.runs.summary(run_id).driver != WAITING
    office.wires.check()

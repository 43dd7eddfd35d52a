"""Whoever may write into a shared database writes hostile rows; on the machines of the others nothing happens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from tests.postgresql_server import ENGINES
from tests.security.colleague import (
    Tripwires,
    columns_of,
    hostile_agent,
    hostile_rows,
)
from tests.security.conftest import Fort
from tests.security.office import Office, OpenOffice, wait_for_end

from evaldesk.desk.agents import found_refs
from evaldesk.desk.runs import provenance
from evaldesk.desk.runs.provenance import Provenance
from evaldesk.desk.runs.runs import WAITING
from evaldesk.desk.store_copies import copy_store
from evaldesk.desk.trust import Trust
from evaldesk.errors import EvaldeskError, TrustError, UsageError
from evaldesk.model import AgentRef, Case, Container, Criterion, JsonObject, JsonValue, ModelOptions, Turn
from evaldesk.model.blame import BlamePlan
from evaldesk.model.decisive_turn import Count
from evaldesk.model.options import UserConfig
from evaldesk.model.run import ExecutorConfig, RunConfig
from evaldesk.settings import DatabaseUrl, Settings
from evaldesk.store import Store
from evaldesk.store.database import Starter


@pytest.fixture(params=ENGINES)
def office(request: pytest.FixtureRequest, open_office: OpenOffice) -> Iterator[Office]:
    """An office on each engine."""
    with open_office(request) as opened:
        yield opened


def test_a_pending_run_of_a_command_runs_nothing_and_its_page_asks(office: Office) -> None:
    run_id = office.hostile_run()

    office.look_around(8)
    page = office.page(run_id)

    office.wires.check(page)
    assert office.playing() == []
    assert "This run waits for you" in page
    assert "Waits for your consent." in page
    assert office.wires.command in page
    assert f"Play run {run_id} as shown" in page
    assert office.fort.desk.store.runs.summary(run_id).status == "pending"


def test_the_name_of_an_own_agent_is_no_way_to_a_command(office: Office) -> None:
    def as_command(config: RunConfig) -> RunConfig:
        return replace(config, agent=replace(config.agent, kind="command", target=office.wires.command))

    run_id = office.own_run(as_command)
    office.look_around()

    assert office.playing() == []
    assert "agent.kind" in office.page(run_id)


def test_a_run_of_what_this_workspace_has_is_taken_up_without_a_question(office: Office) -> None:
    run_id = office.own_run()

    assert office.fort.desk.runs.foreign(office.fort.desk.store.runs.summary(run_id)) is None
    assert "This run waits for you" not in office.page(run_id)
    office.look_around(1)
    office.fort.client.within(wait_for_end, office.fort.desk.runs, run_id)

    assert office.fort.desk.store.runs.summary(run_id).driver != WAITING


def test_a_click_plays_the_run_as_shown_and_is_remembered_for_no_other_row(office: Office) -> None:
    first, second = office.hostile_run(), office.hostile_run()
    digest = re.search(r'name="digest" value="(\w+)"', office.page(first))
    assert digest

    answer = office.fort.post(f"/runs/{first}/consent", digest=digest[1])

    runs = office.fort.desk.runs
    assert answer.status_code == 303
    assert runs.foreign(office.fort.desk.store.runs.summary(first)) is None
    assert runs.foreign(office.fort.desk.store.runs.summary(second)) is not None
    office.fort.client.within(wait_for_end, runs, first)


def test_a_row_that_changed_after_it_was_shown_is_refused(office: Office) -> None:
    run_id = office.hostile_run()
    shown = re.search(r'name="digest" value="(\w+)"', office.page(run_id))
    assert shown

    office.colleague.change_config(
        run_id, lambda config: replace(config, agent=replace(config.agent, target=f"{config.agent.target} twice"))
    )
    answer = office.fort.post(f"/runs/{run_id}/consent", digest=shown[1])

    assert answer.status_code == 403
    assert "has changed since it was shown" in answer.text
    office.wires.check(answer.text)


def test_a_row_that_changes_while_its_run_waits_for_its_turn_is_not_played(office: Office) -> None:
    run_id = office.own_run(status="stopped", driver="")
    runs = office.fort.desk.runs

    async def resume() -> None:
        for _ in range(office.fort.desk.settings.n_runs_at_once):
            await runs._players._slots.acquire()
        await runs.resume(run_id)
        office.colleague.change_config(run_id, lambda config: replace(config, agent=hostile_agent(office.wires)))
        for _ in range(office.fort.desk.settings.n_runs_at_once):
            runs._players._slots.release()
        await wait_for_end(runs, run_id)

    office.fort.client.within(resume)

    summary = office.fort.desk.store.runs.summary(run_id)
    assert (summary.status, summary.n_done) == ("failed", 0)
    assert "neither finds nor declares" in summary.reason
    office.wires.check()


def test_a_run_that_a_colleague_plays_at_this_moment_asks_nothing(office: Office) -> None:
    run_id = office.hostile_run(status="running", driver=f"1 elsewhere 1@{'0' * 8}", leased_until=4e9)

    page = office.page(run_id)

    assert "waits for you" not in page
    assert "consent" not in page


@pytest.mark.parametrize(
    "values",
    [
        {"config": '{"agent": 5}'},
        {"config": "no JSON"},
        {"status": "running", "driver": f"x {gethostname()} 1@x"},
        {"status": "running", "driver": f"{'9' * 30} {gethostname()} 1@x"},
        {"status": "running", "places": "[5]", "driver": "1 gone 1@x"},
    ],
    ids=["config of another shape", "config", "driver without a number", "driver with a large number", "places"],
)
def test_one_row_that_cannot_be_read_keeps_no_desk_from_the_others(office: Office, values: dict[str, str]) -> None:
    office.hostile_run(**values)
    run_id = office.own_run()

    office.look_around(1)
    office.fort.client.within(wait_for_end, office.fort.desk.runs, run_id)

    assert office.fort.desk.store.runs.summary(run_id).driver != WAITING
    office.wires.check()


def test_a_row_that_names_nobody_is_played_nowhere(office: Office) -> None:
    run_id = office.own_run(started_by="")

    office.look_around()
    page = office.page(run_id)
    answer = office.fort.post(f"/runs/{run_id}/consent", digest="0" * 32)

    assert office.playing() == []
    assert "This run is played nowhere" in page
    assert "as shown" not in page
    assert answer.status_code == 403


def test_a_lease_that_seems_lost_hands_over_no_command(office: Office) -> None:
    run_id = office.hostile_run(status="running", driver="4194304 gone 1@other", leased_until=1.0)

    office.look_around()

    assert office.playing() == []
    office.wires.check()
    assert office.fort.desk.store.runs.summary(run_id).status == "running"


def address(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, model_options=ModelOptions(base_url=wires.address, api_key_env="AWS_SECRET_ACCESS_KEY"))


def extra(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, model_options=ModelOptions(extra={"api_base": wires.address}))


def function(config: RunConfig, wires: Tripwires) -> RunConfig:
    options = {"function": "hostile:score", "root": str(wires.folder)}
    return replace(config, criteria=(Criterion("hostile:score", 0.5, options),))


def source(config: RunConfig, wires: Tripwires) -> RunConfig:
    options: JsonObject = {
        "function": "made:score",
        "source": f"import os; os.system({wires.command!r}); score = print",
    }
    return replace(config, criteria=(Criterion("made:score", 0.5, options),))


def judge(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, criteria=(Criterion("final_response_match_v2", 0.5, {"judge_model": "openai/hostile"}),))


def judge_address(config: RunConfig, wires: Tripwires) -> RunConfig:
    options: JsonObject = {"judge_model_options": {"judge_model_config": {"base_url": wires.address}}}
    return replace(config, criteria=(Criterion("final_response_match_v2", 0.5, options),))


def ray_host(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, executor=ExecutorConfig("cluster", "ray", {"address": f"127.0.0.1:{wires.port}"}))


def user_address(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, user=UserConfig("openai/u", ModelOptions(base_url=wires.address)))


def interpreter(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, agent=replace(config.agent, python=str(wires.folder / "python")))


def state_function(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, agent=replace(config.agent, make_deps="hostile:score"))


def model(config: RunConfig, wires: Tripwires) -> RunConfig:
    return replace(config, model="openai/hostile")


CHANGES = (
    address,
    extra,
    function,
    source,
    judge,
    judge_address,
    ray_host,
    user_address,
    interpreter,
    state_function,
    model,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_reaches_code_an_address_or_a_key_waits(
    change: Callable[[RunConfig, Tripwires], RunConfig], office: Office
) -> None:
    run_id = office.own_run(lambda config: change(config, office.wires))

    office.look_around()
    run = office.fort.desk.store.runs.summary(run_id)
    again = office.fort.desk.runs.own_part(run)

    assert office.playing() == []
    assert "This run waits for you" in office.page(run_id)
    with pytest.raises(TrustError, match=f"evaldesk run resume {run_id}"):
        office.fort.client.within(office.fort.desk.runs.offer, run_id)
    assert not office.fort.desk.runs.foreign(replace(run, config=again))  # what another run takes over
    office.wires.check()


def test_a_re_score_of_a_hostile_run_imports_nothing_of_it(office: Office) -> None:
    run_id = office.own_run(
        lambda config: function(ray_host(config, office.wires), office.wires), status="finished", driver=""
    )
    form = office.fort.get(f"/runs/{run_id}/scorings/new")

    answer = office.fort.post(f"/runs/{run_id}/scorings", metric="hostile:score", **{"hostile:score.threshold": "0.5"})

    assert answer.status_code in (303, 422)
    office.wires.check(form.text + answer.text)


def command_run(place: Path, wires: Tripwires) -> int:
    """A waiting run of a command in a database file that anna made."""
    with Store.open(place, starter=Starter("anna", "nowhere")) as store:
        config = RunConfig(hostile_agent(wires), "set")
        return store.runs.create(config, [Case("one", (Turn("Hello"),))], WAITING)


def test_the_rows_of_a_cloned_workspace_stay_those_of_others_after_the_answer(
    tmp_path: Path, wires: Tripwires, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "clone"
    settings = Settings(home, (home,))
    run_id = command_run(settings.database_file, wires)

    assert Trust(settings).give()
    trust = Trust(settings)  # that of the next process
    with trust.opened_store() as store:
        found = Provenance(settings, trust).foreign(store.runs.summary(run_id))

    assert trust.is_given
    assert found
    assert ("agent.kind", "command", "") in found.differences


def test_a_copy_of_a_foreign_database_is_foreign_in_a_folder_of_ones_own(
    tmp_path: Path, wires: Tripwires, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "home"
    home.mkdir()
    settings = Settings(home, (home,))
    Trust(settings).opened_store().close()
    foreign = tmp_path / "clone" / ".evaldesk" / "evaldesk.db"
    run_id = command_run(foreign, wires)

    copy_store(foreign, settings.database_file, lambda *_: None)
    trust = Trust(settings)
    with trust.opened_store() as store:
        found = Provenance(settings, trust).foreign(store.runs.summary(run_id))

    assert found
    assert not trust.is_database_ours


def test_a_run_that_this_person_started_elsewhere_goes_on_without_a_question(
    tmp_path: Path, wires: Tripwires, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consent is known to the next process, for that run of that database, and to nobody who has no home."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = Settings(tmp_path / "home", (), store=DatabaseUrl("db.example", "evals"))
    config = RunConfig(hostile_agent(wires), "set")
    Provenance(settings, Trust(settings)).add(7, config)

    with Store.open(tmp_path / "any.db", starter=Starter("anna", "here")) as store:
        run = store.runs.summary(store.runs.create(config, [Case("one", (Turn("Hello"),))], WAITING))
    moved = replace(config, evalset_id="moved", evalset_path="/elsewhere", note="typed later")
    changed = replace(config, agent=replace(config.agent, target="another"))
    other = replace(settings, store=DatabaseUrl("db.example", "others"))

    def waits(settings: Settings, **values: Any) -> bool:
        return Provenance(settings, Trust(settings)).foreign(replace(run, **values)) is not None

    assert not waits(settings, id=7)
    assert not waits(settings, id=7, config=moved)
    assert waits(settings, id=8)
    assert waits(settings, id=7, config=changed)
    assert waits(other, id=7)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another user"))
    assert waits(settings, id=7)


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """The fields of a configuration that hold no other fields, as paths, whether they have a value or not."""
    for field in fields(value):
        held = getattr(value, field.name)
        name = f"{path}.{field.name}" if path else field.name
        if is_dataclass(held) and not isinstance(held, type):
            yield from leaves(held, name)
        else:
            yield name


DATA = {"note", "n_asserted", "recording.folder"}
"""Paths beside those of `_DATA` that change nothing: the desk fills the last by itself."""


def changed_at(value: Any, path: str, new: object) -> Any:
    name, _, rest = path.partition(".")
    return replace(value, **{name: changed_at(getattr(value, name), rest, new) if rest else new})


@pytest.mark.parametrize("path", tuple(leaves(RunConfig(AgentRef("shop", ""), "set"))))
def test_a_field_of_a_run_that_is_not_known_as_data_waits_when_it_differs(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields are found by reflection: a later one is under this rule the day it is added."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agent.py").write_text("root_agent = None\n")
    settings = Settings(tmp_path, (tmp_path,), store=DatabaseUrl("db.example", "evals"))
    (ref,) = found_refs(settings)
    own = RunConfig(ref, "set")
    is_data = path.partition(".")[0] in provenance._DATA or path in DATA
    is_data |= path.removeprefix("model_options.") in provenance._DATA_OF_MODEL
    is_data |= path.removeprefix("user.options.") in provenance._DATA_OF_MODEL
    is_data |= path.removeprefix("user.") in provenance._DATA_OF_USER
    is_data |= path in ("recording.mode", "recording.tools")
    special: dict[str, object] = {"criteria": (Criterion("h", 1.0, {"function": "hostile:score"}),)}
    special |= dict.fromkeys(("agent.container", "agent.commands"), Container("hostile"))
    strange = special.get(path, "hostile")
    with suppress(UsageError):  # a value that is refused before anybody asks
        config = changed_at(own, path, {"base_url": "http://h"} if path.endswith("extra") else strange)
        found = Provenance(settings, Trust(settings))
        differences = [*found._differences(config)]

        assert not [*found._differences(own)]
        assert bool(differences) != is_data, path


def test_a_criterion_with_its_source_waits_also_under_the_name_of_a_declared_function(tmp_path: Path) -> None:
    settings = Settings(
        tmp_path, (tmp_path,), functions={"fair": "shop:fair"}, store=DatabaseUrl("db.example", "evals")
    )
    options: JsonObject = {"function": "shop:fair", "source": "import os\nos.abort()"}
    of_colleague = RunConfig(AgentRef("", ""), "set", criteria=(Criterion("fair", 0.5, options),))
    declared = replace(of_colleague, criteria=(Criterion("fair", 0.5, {"function": "shop:fair"}),))
    found = Provenance(settings, Trust(settings))

    names = [{name for name, *_ in found._differences(config)} for config in (of_colleague, declared)]

    assert "criteria" in " ".join(names[0])
    assert "criteria" not in " ".join(names[1])


UNKNOWN_FIELDS: tuple[tuple[str, JsonValue, str], ...] = (
    ("vertex_location", "evil.example/x?", "vertex_location"),
    ("vertex_credentials", "/etc/passwd", "vertex_credentials"),
    ("fallbacks", ["openai/dear"], "fallbacks.1"),
    ("custom_llm_provider", "openai", "custom_llm_provider"),
    ("n", 100, "n"),
    ("reasoning", {"base_url": "evil.example"}, "reasoning.base_url"),
)


@pytest.mark.parametrize(
    ("values", "waits"),
    [
        ({"isolation": "shared"}, "isolation"),
        ({"isolation": "process"}, "isolation"),
        ({"isolation": "sandbox"}, ""),
        ({"isolation": "container"}, ""),
        *(
            ({"model_options": ModelOptions(extra={name: value})}, f"model_options.extra.{waits}")
            for name, value, waits in UNKNOWN_FIELDS
        ),
        ({"model_options": ModelOptions(extra={"top_k": 3, "strange": 1})}, "model_options.extra.top_k"),
        ({"model_options": ModelOptions(extra={"top_k": 3, "min_p": 0.1, "seed": 7})}, ""),
        ({"model_options": ModelOptions(extra={"chat_template_kwargs": {"enable_thinking": False}})}, ""),
    ],
)
def test_a_stored_run_with_lower_walls_or_unknown_fields_of_a_model_call_waits(
    values: Mapping[str, Any], waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agent.py").write_text("root_agent = None\n")
    database = DatabaseUrl("db.example", "evals")
    settings = Settings(tmp_path, (tmp_path,), store=database, isolation="sandbox")
    (ref,) = found_refs(settings)
    stored = replace(RunConfig(ref, "set", isolation="sandbox"), **values)

    differences = [name for name, _, _ in Provenance(settings, Trust(settings))._differences(stored)]

    assert differences[:1] == ([waits] if waits else [])


PAGES = ("/", "/runs", "/search?q=e", "/failures/1", "/queues/1?reader=sam")
MORE_PAGES = (
    *("/labels", "/failures", "/queues", "/trash", "/gates", "/imports", "/evalsets", "/agents", "/sessions/new"),
    *("/runs/new", "/imports/records/1"),
)


def pages_of(fort: Fort) -> list[str]:
    """Pages with the rows of all tables; of a server, which CI plays, all of them."""
    run, session = f"/runs/{fort.run}", f"/sessions/{fort.session}"
    few = [*PAGES, run, f"{run}/cases/0/trials/0", session]
    if not fort.desk.settings.store:
        return few
    own = (f"{run}/exports", f"{run}/scorings/new", f"{run}/acceptance", f"/runs/new?like={fort.run}")
    return [
        *few,
        *MORE_PAGES,
        *own,
        f"/table?runs={fort.run},{fort.run - 1}",
        f"{session}/timeline",
        fort.conversation,
    ]


@pytest.mark.long
def test_hostile_values_in_every_column_do_nothing(office: Office) -> None:
    """Tables and columns are those that the database tells, so that later ones are written into, too."""
    n_written: dict[str, int] = {}
    by_table: dict[str, list[Any]] = {}
    for table, column in columns_of(office.colleague):
        by_table.setdefault(table.name, []).append(column)

    for name, columns in by_table.items():
        table = office.colleague.tables.tables[name]
        with hostile_rows(office.colleague, table, columns, office.wires) as n:
            n_written[name] = n
            with suppress(EvaldeskError):
                office.look_around(1)
            for address in pages_of(office.fort):
                office.wires.check(office.fort.get(address).text)

    assert office.playing() == []
    assert [name for name, n in n_written.items() if not n] == []


@pytest.mark.parametrize("values", [{"started_by": "anna"}, {"started_by": ""}], ids=["of another model", "of nobody"])
def test_a_search_of_a_run_that_would_wait_plays_no_fork(office: Office, values: dict[str, str]) -> None:
    model = "openai/of-anna" if values["started_by"] else None
    run_id = office.own_run(lambda config: replace(config, model=model), status="finished", driver="", **values)
    plan = BlamePlan(run_id, 0, 0, 1, Count(0, 1), "profile", 20, 60, runs_tools=True)
    blames = office.fort.desk.store.blames
    (blame_id,) = blames.create([plan])

    office.look_around(1)

    assert blames.get(blame_id).status == "planned"
    assert office.fort.desk.store.forks.of_run(run_id) == []


def test_a_search_of_a_run_that_would_be_played_goes_on(office: Office) -> None:
    run_id = office.own_run(status="finished", driver="")
    blames = office.fort.desk.store.blames
    (blame_id,) = blames.create([BlamePlan(run_id, 0, 0, 1, Count(0, 1), "profile", 4, 60)])

    async def search() -> None:
        await office.fort.desk._take_up_runs()
        async for _ in office.fort.desk.blames.watch(blame_id):
            pass

    office.fort.client.within(search)

    assert blames.get(blame_id).status != "planned"
    office.wires.check()

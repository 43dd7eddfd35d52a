"""A workspace whose database is on a server: played, listed, looked at, and trusted as its settings are."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.postgresql_server import empty_database

from evaldesk.cli import cli
from evaldesk.desk.runs.runs import WAITING, RunDesk
from evaldesk.desk.trust import Trust, question_words
from evaldesk.errors import EvaldeskError, TrustError
from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.settings import DatabaseUrl, Settings, read_settings
from evaldesk.store import Store
from evaldesk.store.store import HEAD, EngineFacts

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

pytestmark = pytest.mark.server


@pytest.fixture
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DatabaseUrl:
    """An empty database that the environment names."""
    found = empty_database(request)
    monkeypatch.setenv("EVALDESK_STORE", str(found))
    return found


def test_a_run_is_played_and_listed_from_the_server(url: DatabaseUrl, place: CommandFolder) -> None:
    place.eval(place.evalset("first", {"one": "one", "two": "other"}), "--note", "shared")

    listed = place.run("run", "list").output
    exported = place.run("run", "info", "1").output

    with Store.open(url) as store:
        (run,) = store.runs.list()
    assert (run.n_passed, run.n_failed, run.note) == (1, 1, "shared")
    assert "shared" in listed
    assert "1 of 2" in exported
    assert not list(place.folder.rglob("evaldesk.db*"))


def test_two_workspaces_share_what_is_in_the_database(url: DatabaseUrl, place: CommandFolder, tmp_path: Path) -> None:
    place.eval(place.evalset("first", {"one": "one"}), "--note", "from here")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    listed = CliRunner().invoke(cli, ["run", "list", "--workspace", str(elsewhere)])

    assert "from here" in listed.output


def test_the_doctor_names_the_database_without_its_password(
    url: DatabaseUrl, place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_STORE", str(url).replace("evaldesk@", "evaldesk:hidden-word@"))

    found = CliRunner().invoke(cli, ["doctor", "--workspace", str(place.folder)])

    assert f"{url}, 0 runs" in found.output
    assert re.search(rf"ok +engine +PostgreSQL \d+(\.\d+)?, tables of revision {HEAD}\n", found.output)
    assert "hidden-word" not in found.output


@pytest.mark.parametrize(("ahead_s", "words"), [(90.0, "90 s ahead of"), (-90.0, "90 s behind")])
def test_the_doctor_tells_a_clock_that_differs(
    url: DatabaseUrl, place: CommandFolder, monkeypatch: pytest.MonkeyPatch, ahead_s: float, words: str
) -> None:
    monkeypatch.setenv("EVALDESK_STORE", str(url))
    monkeypatch.setattr(Store, "engine", lambda _: EngineFacts("PostgreSQL 15.13", HEAD, ahead_s))

    found = CliRunner().invoke(cli, ["doctor", "--workspace", str(place.folder)])

    assert f"its clock is {words} this machine's" in found.output


def test_the_clock_of_the_database_is_compared_with_that_of_the_machine(
    url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr("evaldesk.store.store.time.time", lambda: now() - 3600)

    with Store.open(url) as store:
        assert 3500 < store.engine().ahead_s < 3700


def test_a_database_that_is_not_there_is_a_sentence(
    url: DatabaseUrl, place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_STORE", str(replace(url, database="nowhere")))

    found = CliRunner().invoke(cli, ["doctor", "--workspace", str(place.folder)])
    listed = place.run("run", "list")

    assert 'database "nowhere" does not exist' in found.output
    assert isinstance(listed.exception, EvaldeskError)
    assert 'database "nowhere" does not exist' in str(listed.exception)


def test_without_tables_nothing_is_made_by_a_question(
    url: DatabaseUrl, place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.store.postgresql.has_tables", lambda _: False)

    listed = place.run("run", "list")
    found = CliRunner().invoke(cli, ["doctor", "--workspace", str(place.folder)])

    assert f"{url} does not exist; start a desk or a run" in str(listed.exception)
    assert "none yet; the first run or chat makes it" in found.output


@pytest.mark.parametrize("words", [("run", "list"), ("run", "info", "1"), ("doctor",), ("trash", "list")], ids=" ".join)
def test_a_server_that_an_untrusted_file_names_is_not_spoken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")
    monkeypatch.setattr("evaldesk.store.postgresql._engine", _refuse)
    (tmp_path / "evaldesk.toml").write_text('[store]\nurl = "postgresql://foreign.example/evals"\n', "utf-8")

    result = CliRunner().invoke(cli, [*words, "--workspace", str(tmp_path)])

    said = f"{result.output} {result.exception}"
    assert "names the database postgresql://foreign.example/evals, and nobody has trusted it" in said


def test_nothing_of_a_desk_speaks_to_it_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.store.postgresql._engine", _refuse)
    (tmp_path / "evaldesk.toml").write_text('[store]\nurl = "postgresql://foreign.example/evals"\n', "utf-8")
    trust = Trust(read_settings(tmp_path, (tmp_path,), environment={}), environment={})

    with pytest.raises(
        TrustError,
        match="trust it with --trust of `evaldesk ui` or `evaldesk agents`, or for one command with EVALDESK_TRUST=1",
    ):
        trust.opened_store()

    assert (
        "database",
        "postgresql://foreign.example/evals, whose waiting runs of these agents would go on",
    ) in question_words(trust.question())


def test_runs_of_a_server_wait_for_the_answer_also_in_a_folder_of_ones_own(url: DatabaseUrl, tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    home = tmp_path / "home"
    home.mkdir()
    own = read_settings(home, (home,), environment={})
    Trust(own, environment).opened_store().close()
    shared = replace(own, store=url)

    before = Trust(shared, environment)
    before.opened_store().close()
    is_asked = (before.has_foreign_runs, before.is_restricted)
    with pytest.raises(TrustError, match="is not trusted"):
        before.check_runs()
    before.give()

    assert is_asked == (True, True)
    for settings, is_ours in ((own, True), (shared, False)):
        trust = Trust(settings, environment)
        trust.check_runs()
        assert trust.is_database_ours == is_ours


def _refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("it was spoken to")


@pytest.mark.anyio
@pytest.mark.parametrize("is_here", [True, False])
async def test_a_waiting_run_is_taken_up_where_its_agent_is(
    url: DatabaseUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    taken: list[int] = []

    async def take_up(_: object, summary: Any, *__: object) -> None:
        taken.append(summary.id)

    root = tmp_path if is_here else tmp_path / "another_machine"
    with Store.open(url) as store:
        agent = AgentRef("echo", "agent:root_agent", root=str(root))
        run_id = store.runs.create(RunConfig(agent, "set"), [Case("c", (Turn("Hi."),))], WAITING)
        desk = RunDesk(Settings(workspace=tmp_path, roots=(), store=url), store)
        monkeypatch.setattr(type(desk._players), "take_up", take_up)
        await desk._handle_requests(takes_up=True)
        await desk.close()

    assert taken == ([run_id] if is_here else [])

"""An eval set is its file: commands, desks of any folder and Python meet in one id, in either order."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations

from evaldesk import evaluate
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.trust import Trust
from evaldesk.desk.workspace import open_settings
from evaldesk.model import RunConfig
from evaldesk.store.evalsets.names import evalset_file_id
from evaldesk.store.migrations.versions import r0037_case_versions
from evaldesk.store.sqlite import writing_engine
from evaldesk.wire import from_json, to_json

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

CHECKOUT = Path(__file__).parents[2]
DESKS = {
    "ui": (),
    "ui agents": ("agents",),
    "ui agents evalsets": ("agents", "evalsets"),
    "ui agents/echo": ("agents/echo",),
}
SETS = {"in evalsets": "evalsets/greet.evalset.json", "beside the agent": "agents/echo/greet.evalset.json"}
SHELLS = ("eval", "eval of a link", "eval from another folder", "evaluate")


@pytest.fixture
def project(place: CommandFolder) -> CommandFolder:
    """A workspace with an agent and two eval sets of one name."""
    (place.folder / "agents").mkdir()
    shutil.move(place.agent, place.folder / "agents/echo")
    (place.folder / "evalsets").mkdir()
    for name in SETS.values():
        place.evalset(name.removesuffix(".evalset.json"), {"hi": "hi", "yes": "yes"})
    return place


def opened(project: CommandFolder, folders: tuple[str, ...]) -> Desk:
    settings = open_settings(tuple(str(project.folder / each) for each in folders), workspace=str(project.folder))
    trust = Trust(settings)
    trust.give()
    return Desk.open(settings, trust)


def play_in_shell(project: CommandFolder, shell: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent: Path | str = project.folder / "agents/echo"
    if shell == "evaluate":
        evaluate(
            str(agent), str(project.folder / path), workspace=project.folder, criteria={"response_match_score": 0.8}
        )
        return
    if shell == "eval of a link":
        path = "link.evalset.json"
        (project.folder / path).unlink(missing_ok=True)
        (project.folder / path).symlink_to(project.folder / "evalsets/greet.evalset.json")
    if shell == "eval from another folder":
        monkeypatch.chdir(project.folder / "agents")
        result = project.run(
            "eval", "echo", f"../{path}", "--workspace", "..", "--config-file-path", project.folder / "test_config.json"
        )
        monkeypatch.chdir(project.folder)
    else:
        result = project.run("eval", "agents/echo", path, "--config-file-path", project.folder / "test_config.json")
    assert result.exit_code == 0, result.output


def play_in_browser(desk: Desk, path: Path) -> None:
    async def play() -> None:
        await desk.agents.start()
        await desk.agents.wait_until_ready()
        plan = await desk.plan_run("echo", desk.evalsets.id_of(path), RunOptions())
        await desk.runs.run_to_end(plan, lambda _: None)

    asyncio.run(play())


def ids_of_runs(project: CommandFolder) -> set[str]:
    with closing(sqlite3.connect(project.folder / ".evaldesk/evaldesk.db")) as connection:
        return {row[0] for row in connection.execute("SELECT evalset_id FROM run")}


@pytest.mark.parametrize("shell", SHELLS)
def test_what_the_shell_played_is_known_to_a_desk_of_any_folder(
    project: CommandFolder, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = 0
    for path in SETS.values():
        if shell == "eval of a link" and path != SETS["in evalsets"]:
            continue
        play_in_shell(project, shell, path, monkeypatch)
        played += 1
        for folders in DESKS.values():
            desk = opened(project, folders)
            evalset_id = desk.evalsets.id_of(project.folder / path)
            if evalset_id:
                assert desk.evalsets.identity_of(project.folder / path) == evalset_id
                newest = desk.stored_runs.newest_of_evalsets()
                assert newest[evalset_id].id == played
                assert desk.evalsets.id_of_run(newest[evalset_id].config) == evalset_id
                assert desk.stored_runs.find_last_run("echo", evalset_id) is not None
            else:
                assert folders in {("agents",), ("agents/echo",)}, path
            desk.store.close()
    assert len(ids_of_runs(project)) == played


@pytest.mark.parametrize("folders", DESKS.values(), ids=DESKS)
@pytest.mark.parametrize("path", SETS.values(), ids=SETS)
def test_what_a_desk_played_is_known_to_the_shell(
    project: CommandFolder, folders: tuple[str, ...], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = opened(project, folders)
    play_in_browser(desk, project.folder / path)
    desk.store.close()

    for shell in ("eval", "eval from another folder", "evaluate"):
        play_in_shell(project, shell, path, monkeypatch)

    assert len(ids_of_runs(project)) == 1
    assert len(json.loads(project.run("run", "list", "--evalset", "greet", "--json").output)["items"]) == 4


def documented_sets() -> list[str]:
    """The eval sets that commands of the documentation name, each once, without the cases that are chosen."""
    found = dict[str, None]()
    for file in (CHECKOUT / "README.md", *sorted(CHECKOUT.glob("docs/*.md"))):
        for line in re.findall(r"evaldesk eval ([^\n`|]*)", file.read_text("utf-8")):
            words = shlex.split(line.partition(" #")[0])
            is_named = len(words) > 1 and not any(word.startswith("-") for word in words[:2]) and "..." not in words
            is_named &= words[0] != "run"  # a run file of Osmosis
            is_named = is_named and "@" not in words[1]  # a version of a set: test_set_versions
            found |= {words[1].partition(".json:")[0] + ".json" * (".json:" in words[1]): None} if is_named else {}
    return list(found)


def test_the_documentation_names_sets_in_several_ways() -> None:
    assert {"hello_world", "evalsets/hello_world.evalset.json", "shop.evalset.json"} <= set(documented_sets())


@pytest.mark.parametrize("is_browser_first", [False, True], ids=["shell, then browser", "browser, then shell"])
@pytest.mark.parametrize("name", documented_sets())
def test_each_documented_command_meets_the_desk_in_one_set(
    place: CommandFolder, name: str, *, is_browser_first: bool
) -> None:
    """The set is played as the command names it, and on a desk, in either order."""
    is_sample = "hello_world" in name
    if "/" in name:
        (place.folder / name).parent.mkdir(parents=True, exist_ok=True)
    if "/datasets/" in name:
        content = {"role": "user", "parts": [{"text": "hi"}]}
        dataset = {"eval_cases": [{"eval_case_id": "hi", "prompt": content, "reference": {"response": content}}]}
        (place.folder / name).write_text(json.dumps(dataset))
    elif (CHECKOUT / name).is_file():
        shutil.copy(CHECKOUT / name, place.folder / name)
    elif not is_sample:
        place.evalset(name.removesuffix(".evalset.json"), {"hi": "hi"})

    def in_shell() -> None:
        agent = "samples/hello_world" if is_sample else place.agent
        model = ("--model", "demo/scripted?mistakes=0") if is_sample else ()
        result = place.run("eval", agent, name, "--n", "1", *model)
        assert "Run " in result.output, result.output + repr(result.exception)

    async def in_browser() -> None:
        settings = open_settings((), workspace=str(place.folder), is_demo=is_sample)
        trust = Trust(settings)
        trust.give()
        desk = Desk.open(settings, trust)
        await desk.agents.start()
        await desk.agents.wait_until_ready()
        (file,) = (each for each in desk.evalsets.list() if each.name == PurePath(name).name.partition(".")[0])
        known = desk.stored_runs.newest_of_evalsets()
        assert (file.id in known) == (not is_browser_first)
        agent = "hello_world" if is_sample else place.agent.name
        options = RunOptions(n=1, model="demo/scripted?mistakes=0" if is_sample else None)
        await desk.runs.run_to_end(await desk.plan_run(agent, file.id, options), lambda _: None)
        desk.store.close()

    for is_browser in (is_browser_first, not is_browser_first):
        asyncio.run(in_browser()) if is_browser else in_shell()

    assert len(ids_of_runs(place)) == 1
    with place.store() as store:
        assert len(store.runs.list()) == 2


@pytest.mark.parametrize("is_edited", [False, True], ids=["renamed", "renamed and edited"])
@pytest.mark.parametrize("looks", ["desk", "shell"])
def test_runs_follow_a_file_that_another_program_renamed(
    project: CommandFolder, looks: str, monkeypatch: pytest.MonkeyPatch, *, is_edited: bool
) -> None:
    old, new = project.folder / SETS["in evalsets"], project.folder / "evalsets/hello.evalset.json"
    (project.folder / SETS["beside the agent"]).unlink()
    answers = {"hi": "hi", "yes": "yes", "no": "no"}
    project.evalset("evalsets/greet", answers)
    play_in_shell(project, "eval", SETS["in evalsets"], monkeypatch)
    (before,) = ids_of_runs(project)
    if is_edited:
        project.evalset("evalsets/greet", {**answers, "no": "never"})
    old.rename(new)

    if looks == "shell":
        project.run("eval", "agents/echo", new, "--config-file-path", project.folder / "test_config.json")
    desk = opened(project, ())
    (file,) = desk.evalsets.list()

    assert ids_of_runs(project) == {file.id} != {before}
    assert desk.evalsets.find_current_id(before) == file.id
    assert set(desk.stored_runs.last_verdicts(file.id)) == {"case_1", "case_2", "case_3"}
    desk.store.close()


@pytest.mark.parametrize("kept", ["evalsets/greet", "evalsets/other"], ids=["a copy", "two copies"])
def test_runs_stay_with_a_file_where_another_may_be_meant(
    project: CommandFolder, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.folder / SETS["in evalsets"]
    (project.folder / SETS["beside the agent"]).unlink()
    play_in_shell(project, "eval", SETS["in evalsets"], monkeypatch)
    (before,) = ids_of_runs(project)
    shutil.copy(path, project.folder / "evalsets/copy.evalset.json")
    if kept == "evalsets/other":
        path.rename(project.folder / "evalsets/other.evalset.json")

    desk = opened(project, ())
    desk.evalsets.list()
    desk.store.close()

    assert ids_of_runs(project) == {before}


def test_the_samples_of_a_demo_and_of_the_shell_are_one_set(place: CommandFolder) -> None:
    result = place.run("eval", "samples/hello_world", "hello_world", "--n", "1")
    desk = Desk.open(open_settings((), workspace=str(place.folder), is_demo=True))

    (file,) = (each for each in desk.evalsets.list() if each.name == "hello_world")
    desk.store.close()

    assert ids_of_runs(place) == {file.id}, (result.output, result.exception)


def test_a_migration_joins_what_was_split(project: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = SETS["in evalsets"]
    for name in (*SETS.values(), path):
        play_in_shell(project, "eval", name, monkeypatch)
    splits = {1: "greet", 2: "greet", 3: evalset_file_id("greet", "greet.evalset.json")}
    database = project.folder / ".evaldesk/evaldesk.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        for run_id, evalset_id in splits.items():
            stored = connection.execute("SELECT config FROM run WHERE id = ?", (run_id,)).fetchone()[0]
            config = from_json(stored, RunConfig)
            split = to_json(config).decode().replace(config.evalset_id, evalset_id)
            connection.execute("UPDATE run SET evalset_id = ?, config = ? WHERE id = ?", (evalset_id, split, run_id))
        connection.execute("DELETE FROM last_run WHERE evalset_id LIKE 'greet-%'")
        connection.execute("UPDATE run_case SET digest = 'of all bytes'")

    engine = writing_engine(database)
    with engine.begin() as bound, Operations.context(MigrationContext.configure(bound)):
        r0037_case_versions.upgrade()
    engine.dispose()

    desk = opened(project, ("agents",))
    ids = {name: desk.evalsets.identity_of(project.folder / place) for name, place in SETS.items()}
    runs = {evalset_id: [run.id for run in desk.store.runs.list(evalset_id=evalset_id)] for evalset_id in ids.values()}
    last = {evalset_id: desk.stored_runs.last_verdicts(evalset_id) for evalset_id in ids.values()}
    digests = [case.digest for run_id in splits for case in desk.store.runs.case_outcomes(run_id)]
    desk.store.close()

    assert runs == {ids["in evalsets"]: [3, 1], ids["beside the agent"]: [2]}
    assert [last[ids["in evalsets"]]["case_1"].run_id, last[ids["beside the agent"]]["case_1"].run_id] == [3, 2]
    assert digests[:2] == digests[2:4] == digests[4:]
    assert all(len(digest) == 64 for digest in digests)

"""An export of OpenAI Evals in several files: read together by its folder, by name, and in the browser."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from starlette.testclient import TestClient
from tests.agents.installed import skip_without
from tests.integrations.openai_evals.random_evals import random_eval, random_run, types_of_openai
from tests.integrations.openai_evals.test_large_exports import items, plain
from tests.integrations.openai_evals.test_openai_evals import EVAL, RUN, output

from evaldesk.desk.desk import Desk
from evaldesk.desk.imports import staging
from evaldesk.desk.imports.files import group_exports, read_path, read_together
from evaldesk.errors import FormatError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.integrations.openai_evals.exports import OpenAiEvals
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

    from evaldesk.engine import ChatPlayers


def files_of(objects: list[dict[str, Any]], chance: random.Random) -> dict[str, bytes]:
    """The objects in files of all the shapes that the API and scripts of guides write, in any order."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for each in objects:
        groups.setdefault(chance.randrange(4), []).append(each)
    files = {}
    for number, group in groups.items():
        shape = chance.choice(["lines", "list", "page", "page without its kind"])
        name = f"{'abcd'[number]}.{'jsonl' if shape == 'lines' else 'json'}"
        page = {"data": group, "has_more": False, "last_id": group[-1]["id"]}
        values = {"list": group, "page": {"object": "list", **page}, "page without its kind": page}
        lines = "".join(json.dumps(each) + "\n" for each in group)
        files[name] = lines.encode() if shape == "lines" else json.dumps(values[shape], indent=2).encode()
    return files


def written(folder: Path, files: dict[str, bytes]) -> list[Path]:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


def known(found: Imported) -> Any:
    """All that is read, in an order that does not depend on the files, and without the names of cases and files."""
    assert found.evalset
    queries = {case.id: json.dumps(case.extra["item"], sort_keys=True) for case in found.evalset.cases}
    runs = []
    for run in found.runs:
        items_of = [queries[case.id] for case in run.cases]
        results = sorted(
            (items_of[each.case_index], each.verdict, str(sorted((s.metric, s.value) for s in each.scores)))
            for each in run.results
        )
        runs.append((run.name, run.model, run.plan, sorted(run.criteria, key=str), run.summary, results))
    references = sorted((queries[case.id], str(case.turns)) for case in found.evalset.cases)
    return found.evalset.id, references, sorted(runs, key=str)


@pytest.mark.parametrize("seed", range(50))
def test_random_evals_say_the_same_in_one_file_and_in_many(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    own_eval = random_eval(chance)
    runs = [random_run(chance, own_eval, number) for number in range(chance.randint(1, 3))]
    objects = [own_eval, *(each for run in runs for each in run)]
    chance.shuffle(objects)
    files = files_of(objects, chance)
    paths = written(tmp_path / "export", files)

    whole = OpenAiEvals.read("".join(json.dumps(each) + "\n" for each in objects).encode(), source="all.jsonl")
    together = [read_together(group) for group in group_exports(paths)]
    source, data = OpenAiEvals.join([*files.items()])

    assert [known(each) for each in together] == [known(whole)]
    assert known(read_path(tmp_path / "export")) == known(whole)
    assert known(read_file(data, source)) == known(whole)
    for (run, *outputs), found in zip(runs, sorted(whole.runs, key=lambda each: each.name), strict=True):
        verdicts = [result.verdict for result in found.results]
        counts = run["result_counts"]
        assert [verdicts.count(word) for word in ("passed", "failed", "errored")] == [
            counts["passed"],
            counts["failed"],
            counts["errored"],
        ]
        assert len(outputs) == counts["total"] == len(verdicts)
        assert [value for value in found.summary if value.differs] == []
        assert len(found.summary) == 3 + len(own_eval["testing_criteria"])


def test_the_random_evals_are_as_the_types_of_the_openai_package_have_them() -> None:
    skip_without("openai")
    types = types_of_openai()
    for seed in range(50):
        chance = random.Random(seed)
        own_eval = random_eval(chance)

        for each in (own_eval, *random_run(chance, own_eval, 0)):
            types[each["object"]].model_validate(each)


OBJECTS = [EVAL, {**RUN, "result_counts": {"total": 3, "passed": 2, "failed": 1}}]
ITEMS = {"object": "list", "data": [output(1), output(2, "fail"), output(3)], "has_more": False, "last_id": "out_3"}
FILES = {
    "eval.json": json.dumps(EVAL, indent=2).encode(),
    "run.json": json.dumps(OBJECTS[1], indent=2).encode(),
    "items.json": json.dumps(ITEMS, indent=2).encode(),
}


def test_named_files_are_one_import_and_a_second_one_adds_nothing(place: CommandFolder) -> None:
    paths = written(place.folder, FILES)

    first = place.run("import", *paths)
    again = place.run("import", *reversed(paths))

    assert first.exit_code == 0, first.output
    assert "3 files read together" in first.output
    assert "The tool's own summary agrees: passed 2, failed 1" in first.output
    assert "Eval set tickets_v1." in first.output
    assert again.exit_code != 0
    assert "imported" in str(again.exception)
    with place.store() as store:
        assert store.runs.summary(1).counts.passed == 2
        assert len(store.runs.list()) == 1
    assert [path.name for path in place.folder.rglob("*.evalset.json")] == ["tickets_v1.evalset.json"]


def test_a_file_of_another_format_stays_an_import_of_its_own(
    place: CommandFolder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    paths = written(place.folder, FILES)
    case = {"eval_id": "one", "conversation": [{"user_content": {"parts": [{"text": "one"}]}}]}
    other_set = json.dumps({"eval_set_id": "other", "eval_cases": [case]}).encode()
    (other,) = written(tmp_path_factory.mktemp("elsewhere"), {"other.evalset.json": other_set})

    done = place.run("import", paths[0], other, *paths[1:])
    named = place.run("import", *paths, "--name", "support", "--again")

    assert done.exit_code == named.exit_code == 0, done.output + named.output
    assert "Eval set tickets_v1." in done.output
    assert "Eval set other." in done.output
    assert "Eval set support." in named.output


def test_of_a_folder_links_and_other_files_are_no_part_and_a_broken_file_is_named(tmp_path: Path) -> None:
    export = tmp_path / "export"
    written(export / "pages", FILES)
    written(tmp_path, {"elsewhere.json": json.dumps(output(9)).encode()})
    (export / "link.json").symlink_to(tmp_path / "elsewhere.json")
    written(export, {"notes.json": b'{"a": 1}', "graph.txt": b"x"})

    (run,) = read_path(export).runs
    refused = read_path(export).refused
    (export / "pages" / "more.jsonl").write_bytes(json.dumps(output(4)).encode() + b'\n{"object": ')

    assert len(run.results) == 3
    assert "2 files without objects of OpenAI Evals: graph.txt, notes.json." in refused
    with pytest.raises(FormatError, match=r"pages/more\.jsonl:2"):
        read_path(export)


def test_a_folder_without_objects_and_one_outcome_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "empty", {"notes.json": b'{"a": 1}'})
    written(tmp_path / "export", FILES)
    written(tmp_path / "bare", {"eval.json": FILES["eval.json"], "run.json": FILES["run.json"]})

    with pytest.raises(UsageError, match="a folder without results that a tool is known by"):
        read_path(tmp_path / "empty")
    with pytest.raises(FormatError, match="no outcome can be chosen"):
        read_path(tmp_path / "export", outcome="resolved")
    with pytest.raises(FormatError, match="the export has no rows, runs or output items; add the files of its runs"):
        read_path(tmp_path / "bare")


def test_a_large_file_is_read_value_by_value_beside_small_ones(tmp_path: Path) -> None:
    large = "".join(json.dumps(each) + "\n" for each in items(40, padding=40_000)).encode()
    written(tmp_path / "export", {"a.json": FILES["eval.json"], "b.json": json.dumps([RUN]).encode(), "c.jsonl": large})
    whole = b"".join([json.dumps(EVAL).encode(), b"\n", json.dumps(RUN).encode(), b"\n", large])

    found = read_path(tmp_path / "export")

    assert len(large) > 1024 * 1024
    assert plain(found)[:2] == plain(OpenAiEvals.read(whole, source="export.jsonl"))[:2]


def test_files_that_are_dropped_together_are_one_preview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    token = "a-token-of-enough-letters"
    with Store.open(settings.database) as store:
        desk = Desk(settings, store, cast("ChatPlayers", None))
        client = TestClient(
            create_app(desk, guard_settings(token, 8420)),
            base_url="http://127.0.0.1:8420",
            headers={"Cookie": f"evaldesk-8420={token}"},
            follow_redirects=False,
        )
        parts = [("file", (name, data)) for name, data in FILES.items()]

        address = client.post("/imports", files=parts).headers["location"]
        preview = client.get(address).text
        stored = client.post(address, data={"name": "tickets"})
        summary = store.runs.summary(1)
        page = client.get(stored.headers["location"])
        monkeypatch.setattr(staging, "MAX_SMALL", 100)
        refused = client.post("/imports", files=parts)

    assert "Tickets_v1.jsonl" in preview
    assert "The tool&#39;s own summary agrees: passed 2, failed 1" in preview
    assert (stored.status_code, page.status_code) == (303, 200)
    assert (summary.counts.passed, summary.counts.failed) == (2, 1)
    assert refused.status_code == 422
    assert "import their folder with" in refused.text

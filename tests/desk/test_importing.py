"""A desk that takes files of other tools in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest
from tests.islands import of_tools

from evaldesk.desk.criteria.criteria import read_criteria
from evaldesk.desk.evalsets.evalsets import EvalSetDesk, SetNameTakenError
from evaldesk.desk.evalsets.exporting import export_run, recorded_run
from evaldesk.desk.imports import uploads
from evaldesk.desk.imports.importing import AlreadyImportedError, ImportDesk
from evaldesk.desk.imports.staging import MAX_READ, proposed_name
from evaldesk.desk.runs.runs import check_playable
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import ConflictError, FormatError, NotFoundError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import names_for, read_file
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.settings import Settings
from evaldesk.store import Store

pytestmark = of_tools("openhands", "osmosis", "promptfoo")

SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
ROWS = b'{"user_prompt": "2 + 2?", "ground_truth": "4"}'


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "evaldesk.db"
    Store.open(path).close()
    return path


@pytest.fixture
def store(tmp_path: Path, migrated: Path) -> Iterator[Store]:
    database = tmp_path / ".evaldesk" / "evaldesk.db"
    database.parent.mkdir()
    copyfile(migrated, database)
    with Store.open(database) as opened:
        yield opened


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, (tmp_path,), environment={"OPENAI_API_KEY": "sk-very-secret-value-123"})


@pytest.fixture
def desk(settings: Settings, store: Store) -> ImportDesk:
    return ImportDesk(settings, store, EvalSetDesk(settings, store))


def sample(name: str) -> Imported:
    path = next(SAMPLES.glob(f"{name}.*"))
    return read_file(path.read_bytes(), path.name)


def test_a_staged_file_waits_until_it_is_taken_in(desk: ImportDesk, tmp_path: Path) -> None:
    staged = desk.staging.stage(ROWS, "Add numbers.jsonl")

    assert (staged.name, staged.title) == ("add_numbers", "Osmosis data set, JSON lines")
    assert not (tmp_path / "evalsets").exists()
    taken = desk.take_in(desk.staging.get_staged(staged.token).contents, source="x", name=staged.name)
    assert taken.evalset_id
    assert (tmp_path / "evalsets" / "add_numbers.evalset.json").is_file()


def test_uploads_wait_until_they_are_dropped_also_for_the_next_desk(
    desk: ImportDesk, settings: Settings, store: Store
) -> None:
    waiting = [desk.staging.stage(ROWS, f"{number}.jsonl") for number in range(3 * MAX_READ)]

    desk.staging.drop(waiting[1].token)
    later = ImportDesk(settings, store, EvalSetDesk(settings, store))

    kept = [waiting[0], *waiting[2:]]
    assert {each.token for each in later.staging.uploads()} == {each.token for each in kept}
    assert [later.staging.get_staged(each.token) for each in kept] == kept
    assert [desk.staging.get_staged(each.token) for each in kept] == kept
    with pytest.raises(NotFoundError, match="not here any more"):
        later.staging.get_staged(waiting[1].token)


def test_more_uploads_than_can_be_kept_are_refused_and_none_is_dropped(
    desk: ImportDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_WAITING", 2)
    waiting = [desk.staging.stage(ROWS, f"{number}.jsonl") for number in range(2)]

    with pytest.raises(UsageError, match="2 uploads wait already; import or discard one"):
        desk.staging.stage(ROWS, "2.jsonl")

    assert [each.source for each in desk.staging.uploads()] == [each.source for each in waiting]


@pytest.mark.parametrize("token", ["../../evaldesk", "0" * 24, "", "x"])
def test_a_token_that_was_not_given_leads_to_no_file(desk: ImportDesk, token: str) -> None:
    desk.staging.stage(ROWS, "a.jsonl")

    with pytest.raises(NotFoundError, match="not here any more"):
        desk.staging.get_staged(token)


def test_a_file_that_nobody_knows_is_not_staged(desk: ImportDesk) -> None:
    with pytest.raises(FormatError):
        desk.staging.stage(b"what is this", "x.txt")


def test_nothing_is_stored_when_a_run_cannot_be(desk: ImportDesk, store: Store, tmp_path: Path) -> None:
    rows, results = read_file(ROWS, "a.jsonl"), sample("adk-results")
    empty = replace(results.runs[0], results=())

    with pytest.raises(UsageError, match="no trial"):
        desk.take_in(replace(rows, runs=(*results.runs, empty)), source="x", name="a")

    assert store.runs.list() == []
    assert not (tmp_path / "evalsets").exists()


def test_a_taken_name_is_refused_before_anything_is_stored(desk: ImportDesk, store: Store) -> None:
    both = replace(read_file(ROWS, "a.jsonl"), runs=sample("adk-results").runs)
    desk.take_in(both, source="x", name="a")

    with pytest.raises(SetNameTakenError):
        desk.take_in(both, source="x", name="a", again=True)

    assert len(store.runs.list()) == 1


def test_the_runs_of_a_file_are_of_its_eval_set(desk: ImportDesk, store: Store) -> None:
    both = replace(read_file(ROWS, "a.jsonl"), runs=sample("adk-results").runs)

    taken = desk.take_in(both, source="x.json", name="a")

    config = store.runs.summary(taken.run_ids[0]).config
    assert config.evalset_id == taken.evalset_id
    assert config.evalset_path.endswith("a.evalset.json")


def test_the_page_of_an_imported_run_offers_no_repetition(desk: ImportDesk, store: Store) -> None:
    (run_id,) = desk.take_in(sample("osmosis-results"), source="results.json", name="").run_ids

    page = read_run(store.runs, run_id, RunQuery())

    assert (page.can_resume, page.can_retry, page.again_href) == (False, False, "")
    assert [line.metric for line in page.metrics] == ["rewards:exact", "rewards:partial"]
    assert page.conclusion is not None
    told = "Imported from results.json (Osmosis results). Verdicts and scores from the file"
    assert page.conclusion.reasons == (
        "every trial must pass: 3 of 6 trials passed (1 errored)",
        "1 of 6 trials errored (17 %), more than the tolerated 0",
    )
    assert page.reason[2].startswith(told)
    assert [fact.href for fact in page.facts if fact.name in ("Agent", "Eval set")] == ["", ""]


def test_the_page_of_an_imported_run_shows_only_figures_of_the_file(desk: ImportDesk, store: Store) -> None:
    run = sample("adk-results").runs[0]
    timed = replace(run, results=tuple(replace(result, usages=(), duration_ms=5) for result in run.results))
    bare = replace(run, results=tuple(replace(result, usages=(), duration_ms=0) for result in run.results))
    (run_id,) = desk.take_in(replace(sample("adk-results"), runs=(bare,)), source="r.json", name="").run_ids
    (timed_id,) = desk.take_in(replace(sample("adk-results"), runs=(timed,)), source="t.json", name="").run_ids

    page, other = (read_run(store.runs, each, RunQuery()) for each in (run_id, timed_id))

    assert page.figures == []
    assert [sort.text for sort in page.sorts] == ["Worst", "Flakiest", "File order"]
    assert [each.label for each in other.figures] == ["mean of a trial"]
    assert ["Cost" in [column.title for column in each.columns] for each in (page, other)] == [False, True]
    assert len(other.columns) == len(page.columns) + 2


def test_where_an_imported_run_comes_from_is_said_once(desk: ImportDesk, store: Store) -> None:
    (run_id,) = desk.take_in(sample("adk-results"), source="r.json", name="").run_ids

    page = read_run(store.runs, run_id, RunQuery())

    assert page.conclusion is not None
    assert page.conclusion.outcome == "failed"
    told = "\n".join((*page.reason, *page.conclusion.reasons))
    assert told.count("Imported from r.json") == 1


def test_a_scoring_of_an_imported_run_can_go_on(desk: ImportDesk, store: Store) -> None:
    imported = sample("osmosis-results")
    (run_id,) = desk.take_in(imported, source="results.json", name="").run_ids
    config = replace(store.runs.summary(run_id).config, source_run_id=run_id)
    again = store.runs.create(config, imported.runs[0].cases)
    store.runs.set_status(again, "stopped")

    page = read_run(store.runs, again, RunQuery())

    assert (page.can_resume, page.again_href) == (True, "")
    check_playable(store.runs.summary(again))
    with pytest.raises(ConflictError, match="was imported"):
        check_playable(store.runs.summary(run_id))


@pytest.mark.parametrize("prompts", ["keep", "off"])
def test_a_trace_keeps_its_prompts_without_secrets_unless_the_workspace_keeps_none(
    prompts: str, settings: Settings, store: Store
) -> None:
    desk = ImportDesk(replace(settings, prompts=prompts), store, EvalSetDesk(settings, store))
    secret = "sk-very-secret-value-123"
    asked = [{"role": "system", "parts": [{"type": "text", "content": f"The key is {secret}."}]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "Hello."}]}]
    said_of = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(said)}
    attributes = [{"key": key, "value": {"stringValue": text}} for key, text in said_of.items()]
    span: dict[str, object] = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "chat", "attributes": attributes}
    span |= {"startTimeUnixNano": "0", "endTimeUnixNano": "9"}
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    found = read_file(json.dumps(spans).encode(), "t.json")

    taken = desk.take_in(found, source="t.json", name="traced")

    kept = store.runs.prompts(taken.run_ids[0], (0, 0), 1)
    assert (kept is not None) == (prompts == "keep")
    assert secret not in str(kept)
    if kept:
        assert "The key is" in str(kept.messages(0))
        assert "Hello." in str(kept.part(kept.calls[0].answer))


def test_secrets_are_taken_out_of_what_is_stored(desk: ImportDesk, store: Store) -> None:
    run = {"row_index": 0, "run_index": 0, "success": False, "error": "401 for sk-very-secret-value-123"}
    data = json.dumps({"config": {"n_runs": 1, "eval_fns": ["f"]}, "runs": [run]}).encode()

    (run_id,) = desk.take_in(read_file(data, "r.json"), source="r.json", name="").run_ids

    assert "sk-very-secret-value-123" not in str(store.runs.trial(run_id, 0, 0))


def test_the_criteria_of_a_run_are_given_out_for_the_next_one(desk: ImportDesk, store: Store, tmp_path: Path) -> None:
    (run_id,) = desk.take_in(sample("adk-results"), source="x", name="").run_ids

    export = export_run(StoredRuns(store.runs), run_id, "criteria")

    (tmp_path / export.file_name).write_bytes(export.data)
    assert export.file_name.endswith(".test_config.json")
    assert read_criteria(tmp_path / export.file_name) == store.runs.summary(run_id).config.criteria


@pytest.mark.parametrize("name", [*names_for("run"), "csv"])
def test_every_run_can_be_given_out_in_every_format_of_runs(desk: ImportDesk, store: Store, name: str) -> None:
    for each in ("adk-results", "osmosis-results", "openhands"):
        (run_id,) = desk.take_in(sample(each), source="x", name="").run_ids

        export = export_run(StoredRuns(store.runs), run_id, name)

        assert export.data
        assert export.file_name.startswith(f"run_{run_id}_")
        if name in ("adk-results", "osmosis-results", "openhands"):
            again = read_file(export.data, export.file_name, name)
            assert len(again.runs[0].results) == len(recorded_run(StoredRuns(store.runs), run_id).results)


def test_a_stored_run_is_what_the_file_said(desk: ImportDesk, store: Store) -> None:
    imported = sample("adk-results")

    (run_id,) = desk.take_in(imported, source="x", name="").run_ids

    found = recorded_run(StoredRuns(store.runs), run_id)
    assert (tuple(found.cases), tuple(found.results), found.criteria) == (
        imported.runs[0].cases,
        imported.runs[0].results,
        imported.runs[0].criteria,
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [("calc.evalset.json", "calc"), ("My set (1).csv", "my_set_1"), ("../x/é.json", "imported"), (".json", "imported")],
)
def test_the_proposed_name_is_one_that_an_eval_set_may_have(source: str, name: str) -> None:
    assert proposed_name(source) == name


def test_cases_with_the_same_id_are_refused_or_renamed(desk: ImportDesk, tmp_path: Path) -> None:
    turn = {"user_content": {"parts": [{"text": "hi"}]}}
    cases = [{"eval_id": name, "conversation": [turn]} for name in ("greeting", "other", "greeting")]
    data = json.dumps({"eval_set_id": "set", "eval_cases": cases}).encode()
    imported = read_file(data, "set.evalset.json")

    with pytest.raises(UsageError, match=r'"greeting" \(cases 1 and 3\)'):
        desk.take_in(imported, source="set.evalset.json", name="set")
    desk.take_in(imported, source="set.evalset.json", name="set", renames=True)

    written = json.loads(next(tmp_path.rglob("set.evalset.json")).read_text())
    assert [case["eval_id"] for case in written["eval_cases"]] == ["greeting", "other", "greeting_2"]


def test_a_run_that_was_imported_is_named_and_not_stored_twice(desk: ImportDesk, store: Store) -> None:
    imported = sample("promptfoo")
    first = desk.take_in(imported, source="a", name="first")

    with pytest.raises(AlreadyImportedError, match=f"already imported as run {first.run_ids[0]}"):
        desk.take_in(imported, source="b", name="second")
    again = desk.take_in(imported, source="c", name="third", again=True)

    assert len(store.runs.list()) == 2
    assert again.run_ids != first.run_ids
    store.runs.delete(again.run_ids[0])
    store.runs.delete(first.run_ids[0])
    assert desk.take_in(imported, source="d", name="fourth").run_ids

"""The pages on which a file of another tool is taken in, and a run given out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from threading import Event
from typing import Any, cast

import pytest
from httpx2 import Response
from starlette.testclient import TestClient
from tests.islands import of_tools

from evaldesk.desk.desk import Desk
from evaldesk.engine import ChatPlayers
from evaldesk.formats.files import read_file
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.runs.imports import ImportStore
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

pytestmark = of_tools("openhands", "osmosis")

PORT = 8420
TOKEN = "a-token-of-enough-letters"
SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
RESULTS = SAMPLES / "adk-results.evalset_result.json"
EVALSET = json.dumps({"eval_set_id": "mine", "x": {"y": 1}, "eval_cases": []}).encode()


@dataclass
class Visitor:
    """A browser without a script, and the desk behind it."""

    client: TestClient
    desk: Desk
    folder: Path

    def look_into(self, data: bytes, name: str) -> str:
        """The address of the preview of a file."""
        answer = self.send(data, name)
        assert answer.status_code == 303, answer.text[:2000]
        return str(answer.headers["location"])

    def send(self, data: bytes, name: str) -> Response:
        return self.client.post("/imports", files={"file": (name, data)})

    def text(self, address: str) -> str:
        answer = self.client.get(address)
        assert answer.status_code == 200
        return str(answer.text)

    def yes(self, address: str, **fields: str) -> Response:
        return self.client.post(address, data=fields)

    @property
    def names(self) -> set[str]:
        return {each.name for each in self.desk.evalsets.list()}


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "evaldesk.db"
    Store.open(path).close()
    return path


@pytest.fixture
def visitor(tmp_path: Path, migrated: Path) -> Iterator[Visitor]:
    settings = Settings(workspace=tmp_path, roots=(tmp_path,))
    settings.state_folder.mkdir()
    copyfile(migrated, settings.database_file)
    store = Store.open(settings.database)
    desk = Desk(settings, store, cast("ChatPlayers", None))
    client = TestClient(
        create_app(desk, guard_settings(TOKEN, PORT)),
        base_url=f"http://127.0.0.1:{PORT}",
        headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
        follow_redirects=False,
    )
    yield Visitor(client, desk, tmp_path / "evalsets")
    store.close()


def test_an_empty_home_page_leads_from_openai_evals_to_the_form_until_there_is_an_eval_set(visitor: Visitor) -> None:
    line = re.search(r'<p class="small">From OpenAI Evals\?.*?href="([^"]+)".*?</p>', visitor.text("/"))
    assert line
    assert "evaldesk adopt openai-evals DIR" in line[0]
    assert '<input id="file" name="file" type="file" multiple' in visitor.text(line[1])

    visitor.yes(visitor.look_into(EVALSET, "mine.evalset.json"))

    assert "OpenAI Evals" not in visitor.text("/")


def test_a_file_is_shown_before_anything_is_stored(visitor: Visitor) -> None:
    address = visitor.look_into((SAMPLES / "osmosis-jsonl.jsonl").read_bytes(), "add.jsonl")

    text = visitor.text(address)

    assert "Osmosis data set, JSON lines. Nothing is stored yet." in text
    assert "3 cases with 3 turns." in text
    assert "In 3 cases: system_prompt" in text
    assert "What is 2 + 2?" in text
    assert "Import 3 cases" in text
    assert visitor.names == set()


def test_a_yes_makes_the_eval_set(visitor: Visitor) -> None:
    address = visitor.look_into((SAMPLES / "osmosis-csv.csv").read_bytes(), "add.csv")

    answer = visitor.yes(address, name="sums")

    assert answer.status_code == 303
    assert re.fullmatch(r"/evalsets/sums-[0-9a-f]{8}\?note=imported", answer.headers["location"])
    assert visitor.names == {"sums"}
    assert visitor.client.get(address).status_code == 404


def test_results_become_a_run_and_its_page_is_next(visitor: Visitor) -> None:
    address = visitor.look_into(RESULTS.read_bytes(), "dice.evalset_result.json")
    preview = visitor.text(address)

    answer = visitor.yes(address)

    assert "3 trials of 2 cases" in preview
    assert "Import 1 run" in preview
    assert 'name="name"' not in preview
    assert answer.headers["location"] == "/runs/1"
    page = visitor.text("/runs/1")
    assert "Imported from dice.evalset_result.json (ADK eval results)." in page
    assert "hallucinations_v1" in page
    assert "Run again" not in page
    assert visitor.client.get("/runs").status_code == 200
    trial = visitor.text("/runs/1/cases/0/trials/1")
    assert "Roll a die" in trial
    assert "Edit case" not in trial
    assert "Run again" not in trial


def test_a_run_that_was_imported_before_needs_a_tick(visitor: Visitor) -> None:
    visitor.yes(visitor.look_into(RESULTS.read_bytes(), "dice.evalset_result.json"))
    address = visitor.look_into(RESULTS.read_bytes(), "dice.evalset_result.json")

    refused = visitor.yes(address)
    again = visitor.yes(address, again="on")

    assert refused.status_code == 409
    assert "Already imported as run 1." in refused.text
    assert 'name="again"' in refused.text
    assert again.headers["location"] == "/runs/2"


def test_an_eval_set_that_was_imported_before_is_known_by_its_content(visitor: Visitor) -> None:
    visitor.yes(visitor.look_into(EVALSET, "calc.evalset.json"))
    address = visitor.look_into(EVALSET, "calc.evalset.json")

    refused = visitor.yes(address)
    asked = visitor.yes(address, again="on")
    both = visitor.yes(address, choice="both")

    assert refused.status_code == 409
    assert "Already imported as eval set calc." in refused.text
    assert 'name="again"' in refused.text
    assert "Replace calc" in asked.text
    assert both.status_code == 303
    assert visitor.names == {"calc", "calc_2"}


@pytest.mark.parametrize("action", ["resumption", "retries"])
def test_an_imported_run_is_not_played_again(visitor: Visitor, action: str) -> None:
    visitor.yes(visitor.look_into(RESULTS.read_bytes(), "r.evalset_result.json"))

    answer = visitor.yes(f"/runs/1/{action}")

    assert answer.status_code == 409
    assert "the agent that played it is not here" in answer.text


def test_what_is_refused_is_said(visitor: Visitor) -> None:
    data = b'{"user_prompt": "x", "ground_truth": "y", "$form": 1}'

    text = visitor.text(visitor.look_into(data, "add.jsonl"))

    assert "Left out: column &#39;$form&#39;" in text


def test_a_file_that_no_format_knows_comes_back_with_the_reason(visitor: Visitor) -> None:
    answer = visitor.send(b'{"eval_set_id": "x",\n "eval_cases": [{"eval_id": 7}]}', "x.json")

    assert answer.status_code == 422
    assert "x.json:2" in answer.text
    assert 'aria-invalid="true"' in answer.text
    rows = visitor.send(b'{"what": 1}', "y.json")
    mapping = visitor.client.get(f"{rows.headers['location']}/mapping").text
    assert "no format knows this file" in mapping
    assert "Columns of y.json" in mapping
    assert not visitor.folder.exists()


def test_no_file_is_a_problem_of_its_field(visitor: Visitor) -> None:
    answer = visitor.client.post("/imports", data={})

    assert answer.status_code == 422
    assert "Choose a file first" in answer.text


@pytest.mark.parametrize(("choice", "names"), [("both", {"calc", "calc_2"}), ("replace", {"calc"})])
def test_a_clash_of_names_is_answered_with_a_choice(visitor: Visitor, choice: str, names: set[str]) -> None:
    visitor.yes(visitor.look_into(EVALSET, "calc.evalset.json"))
    address = visitor.look_into(EVALSET.replace(b"mine", b"other"), "calc.evalset.json")

    asked = visitor.yes(address, name="calc")
    chosen = visitor.yes(address, name="calc", choice=choice)

    assert asked.status_code == 409
    assert "Replace calc" in asked.text
    assert "Contents" in asked.text
    assert chosen.status_code == 303
    assert visitor.names == names


def test_a_name_that_cannot_be_comes_back_with_what_was_typed(visitor: Visitor) -> None:
    address = visitor.look_into(EVALSET, "calc.evalset.json")

    answer = visitor.yes(address, name="a/b")

    assert answer.status_code == 422
    assert 'value="a/b"' in answer.text
    assert visitor.names == set()


def test_a_file_is_forgotten(visitor: Visitor) -> None:
    address = visitor.look_into(EVALSET, "calc.evalset.json")

    answer = visitor.yes(f"{address}/deletion")

    assert answer.headers["location"] == "/imports"
    assert visitor.yes(address, name="calc").status_code == 404
    assert visitor.yes(f"{address}/deletion").status_code == 404


def test_unknown_keys_go_through_in_and_out(visitor: Visitor) -> None:
    location = visitor.yes(visitor.look_into(EVALSET, "My set.evalset.json")).headers["location"]
    set_id = location.removeprefix("/evalsets/").partition("?")[0]

    given = visitor.client.get(f"/evalsets/{set_id}/file")

    assert given.headers["content-disposition"] == 'attachment; filename="my_set.evalset.json"'
    assert given.json() == {"eval_set_id": "mine", "x": {"y": 1}, "eval_cases": []}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adk-results", "application/json"),
        ("osmosis-results", "application/json"),
        ("openhands", "application/x-ndjson"),
        ("csv", "text/csv; charset=utf-8"),
    ],
)
def test_a_run_is_given_out(visitor: Visitor, name: str, kind: str) -> None:
    visitor.yes(visitor.look_into(RESULTS.read_bytes(), "dice.evalset_result.json"))

    answer = visitor.client.get(f"/runs/1/file?format={name}")

    assert f"/runs/1/file?format={name}" in visitor.text("/runs/1/exports")
    assert 'href="/runs/1/exports"' in visitor.text("/runs/1")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
    assert re.fullmatch(r'attachment; filename="run_1_dice\.[a-z_.]+"', answer.headers["content-disposition"])
    if name != "csv":
        assert len(read_file(answer.content, "out", name).runs[0].results) == 3


@pytest.mark.parametrize("name", ["../x", "os:system", "adk", "", "pickle"])
def test_a_run_has_a_format_of_the_table(visitor: Visitor, name: str) -> None:
    visitor.yes(visitor.look_into(RESULTS.read_bytes(), "dice.evalset_result.json"))

    assert visitor.client.get("/runs/1/file", params={"format": name}).status_code == 404


def test_an_export_says_which_formats_cannot_hold_the_set_and_why(visitor: Visitor) -> None:
    data = (SAMPLES / "adk-scenarios.scenarios.json").read_bytes()
    location = visitor.yes(visitor.look_into(data, "die.scenarios.json")).headers["location"]
    set_id = location.removeprefix("/evalsets/").partition("?")[0]

    text = visitor.text(f"/evalsets/{set_id}/exports")

    assert "ADK conversation scenarios" in text
    assert "is a scenario; a row of Osmosis holds one prompt" in text
    assert "format=osmosis-csv" not in text
    given = visitor.client.get(f"/evalsets/{set_id}/file?format=adk-scenarios")
    assert [each["starting_prompt"] for each in cast("dict[str, Any]", given.json())["scenarios"]][1] == "Hi"


def rows(*results: dict[str, Any]) -> bytes:
    lines = [{"instance_id": f"i{at}", "history": [], "test_result": result} for at, result in enumerate(results)]
    return "\n".join(map(json.dumps, lines)).encode()


def test_what_decides_is_shown_and_can_be_chosen(visitor: Visitor) -> None:
    address = visitor.look_into(rows({"resolved": True, "own": 0.5}, {"resolved": True, "own": 1}), "output.jsonl")
    first = visitor.text(address)

    answer = visitor.yes(f"{address}/outcome", outcome="own")
    second = visitor.text(answer.headers["location"])

    assert '<option value="resolved" selected>' in first
    assert "1 passed" in second
    assert "1 failed" in second


def test_a_choice_holds_without_a_second_look(visitor: Visitor) -> None:
    address = visitor.look_into(rows({"resolved": True, "own": False}), "output.jsonl")

    run = visitor.yes(address, outcome="own").headers["location"]

    assert visitor.desk.store.runs.summary(int(run.rpartition("/")[2])).n_failed == 1


def test_a_key_that_no_row_has_is_refused_and_nothing_is_stored(visitor: Visitor) -> None:
    address = visitor.look_into(rows({"resolved": True, "own": 0.5}), "output.jsonl")

    for answer in (visitor.yes(f"{address}/outcome", outcome="gone"), visitor.yes(address, outcome="gone")):
        assert answer.status_code == 422
        assert "no row says &#39;gone&#39; of its outcome" in answer.text
    assert visitor.desk.store.runs.list() == []


def test_a_run_may_come_with_its_metadata(visitor: Visitor) -> None:
    metadata = json.dumps({"agent_class": "A", "llm_config": {"model": "m/x"}, "dataset": "bench"}).encode()
    parts = [("file", ("metadata.json", metadata)), ("file", ("output.jsonl", rows({"resolved": True})))]

    address = visitor.client.post("/imports", files=parts).headers["location"]
    alone, others = visitor.send(metadata, "metadata.json"), [("file", (name, b"{}")) for name in ("a.json", "b.json")]

    assert "bench" in visitor.text(address)
    assert "m/x" in visitor.text(address)
    assert "choose the output.jsonl beside it" in alone.text
    assert "imported one by one" in visitor.client.post("/imports", files=others).text


@pytest.mark.parametrize(("results", "n"), [([{"resolved": True}], 1), ([], 2)], ids=["some", "all-errored"])
def test_a_run_may_come_with_its_errors(visitor: Visitor, results: list[dict[str, Any]], n: int) -> None:
    failed: list[dict[str, Any]] = [
        {"instance_id": name, "history": [], "test_result": {}, "error": "503"} for name in ("i0", "x", "x")
    ]
    errors = "".join(json.dumps(each) + "\n" for each in failed).encode()
    metadata = json.dumps({"agent_class": "A", "llm_config": {"model": "m/x"}, "dataset": "bench"}).encode()
    named = {"output_errors.jsonl": errors, "metadata.json": metadata, "output.jsonl": rows(*results)}

    address = visitor.client.post("/imports", files=[("file", each) for each in named.items()]).headers["location"]
    page = visitor.text(address)
    visitor.yes(address)
    summary = visitor.desk.store.runs.summary(1)

    assert f"{n} instance{'s' if n > 1 else ''} of output_errors.jsonl which output.jsonl leaves out" in page
    assert (summary.n_passed, summary.n_errored, summary.config.agent_model) == (len(results), n, "m/x")


@pytest.mark.parametrize("is_reversed", [False, True], ids=["errors-first", "metadata-first"])
def test_errors_come_with_the_metadata_of_their_run_in_any_order(visitor: Visitor, is_reversed: bool) -> None:
    failed = b'{"instance_id": "x", "history": [], "test_result": {}, "error": "503"}\n' * 2
    metadata = json.dumps({"agent_class": "A", "llm_config": {"model": "m/x"}, "dataset": "bench"}, indent=2).encode()
    files = [("file", ("output_errors.jsonl", failed)), ("file", ("metadata.json", metadata))]

    address = visitor.client.post("/imports", files=files[::-1] if is_reversed else files).headers["location"]
    visitor.yes(address)
    summary = visitor.desk.store.runs.summary(1)

    assert (summary.n_errored, summary.config.agent_model) == (1, "m/x")


def test_an_import_offers_to_rename_cases_with_the_same_id(visitor: Visitor) -> None:
    turn = {"user_content": {"parts": [{"text": "hi"}]}}
    cases = [{"eval_id": name, "conversation": [turn]} for name in ("greeting", "other", "greeting")]
    address = visitor.look_into(json.dumps({"eval_set_id": "mine", "eval_cases": cases}).encode(), "mine.evalset.json")

    assert "greeting&#34; (cases 1 and 3)" in visitor.text(address)
    refused = visitor.yes(address, name="mine")
    assert "mine.evalset.json: several cases have the same id" in refused.text
    renamed = visitor.yes(address, name="mine", renames="on")

    assert refused.status_code == 422
    assert renamed.status_code == 303
    (file,) = visitor.desk.evalsets.list()
    assert [case.id for case in visitor.desk.evalsets.evalset(file.id).cases] == ["greeting", "other", "greeting_2"]


ROWS_OF_RUN = b"\n".join(
    json.dumps({"instance_id": f"i{number}", "instruction": "Do.", "test_result": {"resolved": True}}).encode()
    for number in range(30)
)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Imports are large from the first row on, and go on from their second transaction when this is set."""
    goes_on = Event()
    real = ImportStore.add

    def add(*arguments: Any) -> Iterator[int]:
        for number, step in enumerate(real(*arguments)):
            yield step
            if number == 0:
                goes_on.wait(300)

    monkeypatch.setattr(ImportStore, "add", add)
    monkeypatch.setattr("evaldesk.web.routes.imports.N_AT_ONCE", 0)
    monkeypatch.setattr("evaldesk.store.runs.imports.MAX_ROWS", 20)
    yield goes_on
    goes_on.set()


def stored(visitor: Visitor) -> None:
    """Wait for the imports in the background."""
    visitor.desk.imports._worker.shutdown()


def test_a_large_import_is_watched_and_its_runs_appear_at_the_end(visitor: Visitor, held: Event) -> None:
    address = visitor.look_into(ROWS_OF_RUN, "rows.jsonl")

    record = visitor.yes(address).headers["location"]

    assert record == "/imports/records/1"
    text = visitor.text(record)
    assert "of 60 cases and trials are stored. They appear together at the end." in text
    assert "Cancel import" in text
    fragment = visitor.client.get(record, headers={"HX-Request": "true", "HX-Target": "div#progress"}).text
    assert "<progress" in fragment
    assert "<html" not in fragment
    assert "rows.jsonl" in visitor.text("/imports")
    assert visitor.client.get("/runs/1").status_code == 404
    held.set()
    stored(visitor)
    text = visitor.text(record)
    assert "60 cases and trials are stored." in text
    assert 'href="/runs/1"' in text
    assert "every 1s" not in text
    assert visitor.client.get("/runs/1").status_code == 200
    assert visitor.client.get(address).status_code == 404  # the upload is imported


@pytest.mark.long
def test_several_large_imports_wait_in_line_and_the_page_says_so(visitor: Visitor, held: Event) -> None:
    files = [ROWS_OF_RUN.replace(b"i1", f"x{number}".encode()) for number in range(6)]
    addresses = [visitor.look_into(data, f"rows_{number}.jsonl") for number, data in enumerate(files)]

    records = [visitor.yes(address).headers["location"] for address in addresses]

    assert "Waiting in line: 5 imports before this one." in visitor.text(records[-1])
    assert "Waiting in line: 1 import before this one." in visitor.text("/imports")
    held.set()
    stored(visitor)
    assert len(visitor.desk.store.runs.list()) == 6
    assert all("60 cases and trials are stored." in visitor.text(record) for record in records)


def test_a_cancelled_import_stores_nothing_and_its_upload_stays(visitor: Visitor, held: Event) -> None:
    address = visitor.look_into(ROWS_OF_RUN, "rows.jsonl")
    record = visitor.yes(address).headers["location"]

    answer = visitor.yes(f"{record}/cancellation")

    assert (answer.status_code, answer.headers["location"]) == (303, record)
    assert "Cancelled by a person. Nothing of this file is stored." in visitor.text(record)
    held.set()
    stored(visitor)
    assert visitor.desk.store.runs.list() == []
    assert "Nothing is stored yet." in visitor.text(address)
    assert "Cancelled by a person" in visitor.text(visitor.yes(f"{record}/cancellation").headers["location"])


def test_an_import_that_is_not_there_is_not_found(visitor: Visitor) -> None:
    assert visitor.client.get("/imports/records/7").status_code == 404
    assert visitor.yes("/imports/records/7/cancellation").status_code == 404


def test_an_import_of_what_is_being_imported_is_refused_and_said(visitor: Visitor, held: Event) -> None:
    visitor.yes(visitor.look_into(ROWS_OF_RUN, "rows.jsonl"))

    answer = visitor.yes(visitor.look_into(ROWS_OF_RUN, "rows.jsonl"))

    assert answer.status_code == 422
    assert "import 1 of the same content is under way" in answer.text


def test_uploads_that_wait_are_listed_and_none_is_dropped(visitor: Visitor) -> None:
    addresses = [visitor.look_into(ROWS_OF_RUN, f"rows_{number}.jsonl") for number in range(9)]

    visitor.client.post(f"{addresses[3]}/deletion")

    text = visitor.text("/imports")
    kept = [address for address in addresses if address != addresses[3]]
    assert "8 of at most 50" in text
    assert all(f'href="{address}"' in text for address in kept)
    assert all("Nothing is stored yet." in visitor.text(address) for address in kept)


def test_an_upload_beyond_the_bound_is_refused_with_the_way_out(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.desk.imports.uploads.MAX_WAITING", 1)
    visitor.look_into(ROWS_OF_RUN, "rows.jsonl")

    answer = visitor.send(ROWS_OF_RUN, "rows.jsonl")

    assert answer.status_code == 422
    assert "1 uploads wait already; import or discard one of them first" in answer.text

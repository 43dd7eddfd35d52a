"""A large file goes through the page: to the disk part by part, read while its page tells how much, then looked at."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.islands import of_tools
from tests.web.test_imports import PORT, TOKEN, Visitor, migrated, visitor

from evaldesk.desk.imports import staging, uploads
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.desk.imports.staging import Staging
from evaldesk.desk.imports.streamed import Watch
from evaldesk.errors import NotFoundError
from evaldesk.formats.files import load_format
from evaldesk.store.evalsets import large
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

pytestmark = of_tools("openhands", "osmosis")

__all__ = ["migrated", "visitor"]

ROW = {"instruction": "Do it. " * 30, "test_result": {"resolved": True}}
ROWS = b"".join(json.dumps({"instance_id": f"i{at}"} | ROW).encode() + b"\n" for at in range(60))
METADATA = json.dumps({"agent_class": "CodeAct", "llm_config": {"model": "m"}, "dataset": "swe"}, indent=1).encode()


@pytest.fixture(autouse=True)
def few_bytes_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_SMALL", 2_000)
    monkeypatch.setattr(staging, "MAX_SMALL", 2_000)
    monkeypatch.setattr(uploads, "LOOK_EVERY", 4_000)
    monkeypatch.setattr(large, "WHOLE", 2_000)


def left(visitor: Visitor) -> list[str]:
    return sorted(path.name for path in (visitor.desk.settings.state_folder / "uploads").glob("*"))


def read(desk: ImportDesk) -> None:
    """Wait until what is being read is read."""
    desk.staging._reader.submit(lambda: None).result()


@pytest.fixture
def held(visitor: Visitor) -> Iterator[Future[Any]]:
    """The reader is busy with something else until the test says so."""
    go_on = Event()
    yield visitor.desk.imports.staging._reader.submit(go_on.wait)
    go_on.set()


def test_a_large_file_waits_is_read_and_becomes_the_run_that_a_small_one_would(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = visitor.look_into(ROWS, "output.jsonl")
    first = visitor.text(address)
    read(visitor.desk.imports)
    preview = visitor.text(address)
    run = visitor.yes(address)
    monkeypatch.setattr(uploads, "MAX_SMALL", 2**20)
    again = visitor.yes(visitor.look_into(ROWS, "output.jsonl"))

    assert "MiB are read. A preview follows" in first or "Import 1 run" in first
    assert "60 trials of 60 cases" in preview
    assert "60 passed" in preview
    assert run.headers["location"] == "/runs/1"
    assert "Already imported as run 1." in again.text
    assert len(left(visitor)) == 1, "the second one waits"


def test_the_page_says_how_much_is_read_and_a_discard_ends_it(visitor: Visitor, held: Future[Any]) -> None:
    address = visitor.look_into(ROWS, "output.jsonl")
    page = visitor.text(address)
    part = visitor.client.get(address, headers={"HX-Request": "true", "HX-Target": "div#progress"}).text

    assert "0 of 1 MiB are read. A preview follows; nothing is stored before you confirm." in page
    assert '<noscript><meta http-equiv="refresh"' in page
    assert "<html" not in part
    assert f'action="{address}/deletion"' in part
    assert visitor.yes(address).status_code == 409, "it cannot be imported before it is read"
    visitor.client.post(f"{address}/deletion")
    assert left(visitor) == []
    assert visitor.client.get(address).status_code == 404


def test_a_discard_while_it_is_read_ends_the_reading(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = visitor.desk.imports
    n_read: list[int] = []
    real = staging._read_large

    def watched(path: Path, source: str, outcome: str, watch: Watch) -> Any:
        def dropped_at_once(n: int, n_total: int) -> None:
            n_read.append(n)
            if len(n_read) == 1:
                imports.staging.drop(token)
            watch(n, n_total)

        return real(path, source, outcome, dropped_at_once)

    monkeypatch.setattr(staging, "_read_large", watched)
    token = visitor.look_into(ROWS, "output.jsonl").rpartition("/")[2]
    imports.staging.reading(token)
    read(imports)

    assert len(n_read) == 1
    assert left(visitor) == []
    with pytest.raises(NotFoundError):
        imports.staging.reading(token)


def test_once_it_is_read_its_page_goes_on_to_the_preview(visitor: Visitor) -> None:
    address = visitor.look_into(ROWS, "output.jsonl")
    visitor.text(address)
    read(visitor.desk.imports)

    asked = visitor.client.get(address, headers={"HX-Request": "true", "HX-Target": "div#progress"})

    assert asked.headers["HX-Redirect"] == address


def test_a_fault_of_a_large_file_is_said_on_its_page(visitor: Visitor) -> None:
    address = visitor.look_into(ROWS + b"{broken\n" + ROWS, "output.jsonl")
    visitor.text(address)
    read(visitor.desk.imports)

    page = visitor.text(address)

    assert "output.jsonl:61:" in page
    assert "Nothing of this file is stored." in page
    assert "Discard" in page
    assert "/uploads/" not in page


def test_a_large_file_without_a_stream_is_read_by_a_process(visitor: Visitor) -> None:
    rows = [{"role": "user", "content": "What is 2 + 2? " * 200}, {"role": "assistant", "content": "4"}]
    address = visitor.look_into(json.dumps(rows).encode(), "chat.json")
    visitor.text(address)
    read(visitor.desk.imports)

    assert "OpenAI" in visitor.text(address)


def test_another_outcome_is_read_anew(visitor: Visitor) -> None:
    rows = b"".join(
        json.dumps({"instance_id": f"i{at}", **ROW, "test_result": {"resolved": True, "tidy": False}}).encode() + b"\n"
        for at in range(30)
    )
    address = visitor.look_into(rows, "output.jsonl")
    visitor.text(address)
    read(visitor.desk.imports)

    wrong = visitor.yes(f"{address}/outcome", outcome="nothing")
    chosen = visitor.yes(f"{address}/outcome", outcome="tidy")
    visitor.text(address)
    read(visitor.desk.imports)

    assert (wrong.status_code, "no row says" in wrong.text) == (422, True)
    assert chosen.headers["location"] == address
    assert "30 failed" in visitor.text(address)


def test_large_trials_come_with_their_metadata(visitor: Visitor) -> None:
    both = [("file", ("metadata.json", METADATA)), ("file", ("output.jsonl", ROWS))]
    sent = visitor.client.post("/imports", files=both)
    visitor.text(sent.headers["location"])
    read(visitor.desk.imports)

    page = visitor.text(sent.headers["location"])

    assert "CodeAct" in page
    assert "60 trials of 60 cases" in page


@pytest.mark.parametrize("n_rows", [0, 1, 60])
@pytest.mark.parametrize("length", [0, 10_000])
def test_large_trials_come_with_the_errors_that_they_leave_out(visitor: Visitor, n_rows: int, length: int) -> None:
    row = {"history": [], "test_result": {}, "error": "503", "instruction": "x" * length}
    errors = b"\n".join(json.dumps({"instance_id": name} | row).encode() for name in ("i0", "only here"))
    output = b"".join(ROWS.splitlines(keepends=True)[:n_rows])
    named = {"output_errors.jsonl": errors, "metadata.json": METADATA, "output.jsonl": output}
    sent = visitor.client.post("/imports", files=[("file", each) for each in named.items()])
    visitor.text(sent.headers["location"])
    read(visitor.desk.imports)

    page = visitor.text(sent.headers["location"])

    assert "of output_errors.jsonl which output.jsonl leaves out" in page
    assert f"{max(n_rows + 1, 2)} trials of {max(n_rows + 1, 2)} cases" in page


def test_errors_that_are_too_large_for_the_memory_are_refused_with_the_way_to_import_them(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MAX_RECORDED_BYTES", 2_000)
    named = {"output.jsonl": ROWS, "output_errors.jsonl": ROWS}

    answer = visitor.client.post("/imports", files=[("file", each) for each in named.items()])

    assert answer.status_code == 422
    assert "import their folder with `evaldesk import FOLDER`" in answer.text
    assert left(visitor) == []


@pytest.mark.parametrize("names", [("a.json", "b.json"), ("output.jsonl", "a.jsonl")])
def test_two_large_files_are_refused_and_none_is_left(visitor: Visitor, names: tuple[str, str]) -> None:
    answer = visitor.client.post("/imports", files=[("file", (name, ROWS)) for name in names])

    assert answer.status_code == 422
    assert left(visitor) == []


@pytest.mark.parametrize("is_told", [True, False])
def test_a_disk_without_room_is_said_and_nothing_is_left(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    kept = visitor.look_into(ROWS, "mine.jsonl")
    before = left(visitor)
    monkeypatch.setattr(uploads, "KEPT_FREE", 2**60)
    if not is_told:
        monkeypatch.setattr(Staging, "check_upload", lambda *_: None)

    answer = visitor.send(ROWS, "output.jsonl")

    assert answer.status_code == 507
    assert "the file has no room on the disk" in answer.text
    assert "free some space and try again" in answer.text
    assert left(visitor) == before
    visitor.text(kept)


def test_an_upload_beyond_the_bound_of_those_that_wait_drops_none(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_WAITING", 1)
    visitor.look_into(ROWS, "mine.jsonl")
    before = left(visitor)

    answer = visitor.send(ROWS, "output.jsonl")

    assert answer.status_code == 422
    assert "1 uploads wait already" in answer.text
    assert left(visitor) == before


def test_a_large_upload_waits_over_a_restart(visitor: Visitor) -> None:
    address = visitor.look_into(ROWS, "output.jsonl")
    desk = visitor.desk
    later = ImportDesk(desk.settings, desk.store, desk.evalsets)
    token = address.rpartition("/")[2]

    assert [(each.source, each.size) for each in later.staging.uploads()] == [("output.jsonl", len(ROWS))]
    assert later.staging.reading(token) is not None
    read(later)
    assert later.staging.reading(token) is None
    assert len(later.staging.get_staged(token).contents.runs[0].results) == 60
    later.close()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "nothing"])
def test_what_is_no_file_in_the_place_of_a_large_upload_is_not_read(visitor: Visitor, kind: str) -> None:
    address = visitor.look_into(ROWS, "output.jsonl")
    path = visitor.desk.settings.state_folder / "uploads" / f"{address.rpartition('/')[2]}.bytes"
    secret = visitor.folder.parent / "secret.jsonl"
    path.rename(secret)
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()

    assert visitor.client.get(address).status_code == 404
    assert "output.jsonl</a>" not in visitor.text("/imports")


def test_an_upload_that_is_broken_off_leaves_nothing(visitor: Visitor) -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="output.jsonl"\r\n\r\n'
    parts = [head, ROWS, ROWS]
    seen: list[list[str]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0)
        seen.append(left(visitor))
        return (
            {"type": "http.request", "body": parts.pop(0), "more_body": True} if parts else {"type": "http.disconnect"}
        )

    async def send(_: Any) -> None:
        pass

    headers = {"host": f"127.0.0.1:{PORT}", "cookie": f"evaldesk-{PORT}={TOKEN}"}
    headers |= {"content-type": "multipart/form-data; boundary=x"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/imports",
        "raw_path": b"/imports",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(create_app(visitor.desk, guard_settings(TOKEN, PORT))(scope, receive, send))

    assert any(name.endswith(".evaldesk-tmp") for names in seen for name in names), "it went to the disk as it came"
    assert left(visitor) == []
    assert visitor.desk.imports.staging.uploads() == []


def test_the_sample_of_this_file_is_streamed() -> None:
    assert hasattr(load_format("openhands"), "read_large")

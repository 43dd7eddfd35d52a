"""Large uploads are read in a process of their own, with the same result and the same errors."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from tests.islands import of_tools

from evaldesk.errors import FormatError
from evaldesk.formats import process as reading_apart
from evaldesk.formats.exchange import FORMATS
from evaldesk.formats.files import read_file
from evaldesk.formats.process import Answer, Request, answer_to, main, read_upload
from evaldesk.wire import from_json, to_json

SAMPLES = Path(__file__).parents[1] / "formats" / "exchange_samples"
PATHS = {path.name.partition(".")[0]: path for path in SAMPLES.iterdir() if path.is_file()}
BAD = b'{"instance_id": "i", "history": [7]}'


def apart(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    monkeypatch.setattr(reading_apart, "SMALL", -1)
    if command:
        monkeypatch.setattr(reading_apart, "COMMAND", (sys.executable, "-S", *command))


@pytest.mark.parametrize("name", list(FORMATS))
def test_what_a_process_says_of_a_file_is_what_was_read(name: str) -> None:
    data, source = PATHS[name].read_bytes(), PATHS[name].name
    said = to_json(answer_to(Request(source), data))

    assert from_json(said, Answer).imported == read_file(data, source)


@pytest.mark.long
def test_a_large_file_is_read_apart_and_its_error_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    path = PATHS["openhands"]
    apart(monkeypatch)

    assert read_upload(path.read_bytes(), path.name) == read_file(path.read_bytes(), path.name)
    with pytest.raises(FormatError) as caught:
        read_upload(path.read_bytes() + BAD, path.name)
    assert (caught.value.line, caught.value.path) == (4, "history[0]")


@pytest.mark.parametrize(
    "code", ["raise SystemExit(1)", "print('{')", "print('{}')"], ids=["dies", "babbles", "shrugs"]
)
def test_a_process_that_breaks_off_is_told_in_words(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    apart(monkeypatch, "-c", f"import sys; sys.stdin.buffer.read(); {code}")

    with pytest.raises(FormatError, match=r"big\.json: reading it broke off; `evaldesk import FILE`"):
        read_upload(b"[]", "big.json")


def test_a_file_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    apart(monkeypatch, "-c", "import time; time.sleep(600)")
    monkeypatch.setattr(reading_apart, "TIMEOUT_S", 0.05)

    with pytest.raises(FormatError, match=r"it was not read within 0\.05 s"):
        read_upload(b"[]", "big.json")


@pytest.mark.parametrize(("data", "source"), [(b"PK\x03\x04", "log.eval"), (b"PAR1", "rows.parquet")])
def test_a_small_packed_file_is_read_apart_too(monkeypatch: pytest.MonkeyPatch, data: bytes, source: str) -> None:
    monkeypatch.setattr(reading_apart, "COMMAND", (sys.executable, "-S", "-c", "raise SystemExit"))

    with pytest.raises(FormatError, match="reading it broke off"):
        read_upload(data, source)


@of_tools("openhands")
def test_the_process_reads_its_input_and_answers_on_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.nice", lambda _: 0)
    target, path = io.BytesIO(), PATHS["openhands"]

    main(io.BytesIO(to_json(Request("o.jsonl", "resolved")) + b"\n" + path.read_bytes()), target)

    imported = from_json(target.getvalue(), Answer).imported
    assert imported
    assert imported.outcome == "resolved"

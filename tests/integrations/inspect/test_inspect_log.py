"""Logs of Inspect, as JSON and as zip files, friendly and hostile."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.integrations.inspect.log import InspectLog
from evaldesk.model import Criterion, EarlierResult, RecordedPlan, ToolCall
from evaldesk.reading import zip_members

SAMPLE = Path(__file__).parents[2] / "formats/exchange_samples" / "inspect.json"
LOG: dict[str, Any] = json.loads(SAMPLE.read_bytes())


def _members() -> dict[str, bytes]:
    header = {key: value for key, value in LOG.items() if key != "samples"}
    members = {f"samples/a_epoch_{row['epoch']}.json": json.dumps(row).encode() for row in LOG["samples"]}
    return {"_journal/start.json": b"{}", **members, "header.json": json.dumps(header).encode()}


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _zstd_zip(members: dict[str, bytes]) -> bytes:
    """A zip file whose members are packed by method 93, written by hand: Python 3.11 cannot."""
    out, directory = b"", b""
    for name, data in members.items():
        packed, raw = zstandard.compress(data), name.encode()
        fields = struct.pack("<HHHHHIIIHH", 20, 0, 93, 0, 0, zlib.crc32(data), len(packed), len(data), len(raw), 0)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + raw
        out += b"PK\x03\x04" + fields + raw + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(out), 0)
    return out + directory + b"PK\x05\x06" + end


def _read(data: bytes) -> Imported:
    assert InspectLog.recognises(data, "x.eval")
    return InspectLog.read(data, source="x.eval")


@pytest.mark.parametrize(("total", "tokens_in"), [(120, 100), (190, 170)], ids=["part of the input", "beside it"])
def test_tokens_of_the_cache_are_counted_once(total: int, tokens_in: int) -> None:
    used = {"input_tokens": 100, "input_tokens_cache_read": 64, "input_tokens_cache_write": 6, "output_tokens": 20}
    row = {**LOG["samples"][0], "model_usage": {"m": {**used, "total_tokens": total}}}
    log = {**LOG, "samples": [row]}

    (usage,) = _read(json.dumps(log).encode()).runs[0].results[0].usages

    assert (usage.tokens_in, usage.tokens_cached, usage.tokens_out) == (tokens_in, 64, 20)


@pytest.mark.parametrize("pack", [_zip, _zstd_zip], ids=["deflate", "zstd"])
def test_a_zip_says_the_same_as_the_json(pack: Any) -> None:
    from_json, from_zip = _read(SAMPLE.read_bytes()), _read(pack(_members()))

    assert from_zip == from_json


def test_a_sample_is_a_case_and_each_epoch_a_trial_of_it() -> None:
    (run,) = _read(SAMPLE.read_bytes()).runs

    (case,), (first, second) = run.cases, run.results
    (turn,) = first.transcript.turns
    assert (case.id, case.turns[0].query, case.turns[0].expected.reference) == ("a", "What is 2 + 2?", "4")
    assert case.extra == {"metadata": {"level": 1}}
    assert run.criteria == (Criterion("match", 1.0), Criterion("grade.style"))
    assert (turn.query, turn.answer, turn.tool_calls) == (
        "What is 2 + 2?",
        "4",
        (ToolCall("add", {"x": 2, "y": 2}, "c1"),),
    )
    assert [score.value for score in first.scores] == [1.0, 0.5]
    assert (first.verdict, second.verdict) == ("passed", "failed")
    assert first.scores[0].reason == "compared"
    assert dict(turn.state_after) == {"n": 4}


@pytest.mark.parametrize(
    ("value", "verdict"),
    [("C", "passed"), ("I", "failed"), ("P", "failed"), ("N", "failed"), (True, "passed"), (0, "failed")],
    ids=str,
)
def test_a_sample_that_inspect_calls_correct_passes(value: object, verdict: str) -> None:
    log = {**LOG, "samples": [{**LOG["samples"][0], "scores": {"match": {"value": value}}}]}

    assert _read(json.dumps(log).encode()).runs[0].results[0].verdict == verdict


@pytest.mark.parametrize("value", [0.7, "good", [1, 0], None], ids=str)
def test_a_score_without_a_threshold_gives_no_verdict(value: object) -> None:
    log = {**LOG, "samples": [{**LOG["samples"][0], "scores": {"match": {"value": value}}}]}

    assert _read(json.dumps(log).encode()).runs[0].results[0].verdict == "unscored"


def test_a_sample_that_broke_is_an_error() -> None:
    log = {**LOG, "samples": [{**LOG["samples"][0], "error": {"message": "boom", "traceback": "at x"}}]}

    (result,) = _read(json.dumps(log).encode()).runs[0].results
    assert (result.verdict, result.error and result.error.trace) == ("errored", "at x")


def test_an_attempt_that_inspect_tried_again_is_beside_its_sample() -> None:
    log = {**LOG, "samples": [{**LOG["samples"][0], "error_retries": [{"message": "boom", "traceback": "at x"}]}]}

    (result,) = _read(json.dumps(log).encode()).runs[0].results

    assert result.earlier == (EarlierResult("errored", "boom"),)


def test_a_log_that_was_never_finished_is_read_from_its_journal() -> None:
    members = _members()
    start = {key: LOG[key] for key in ("version", "eval", "plan")}
    members["_journal/start.json"] = json.dumps(start).encode()
    del members["header.json"]

    found = _read(_zip(members))

    assert len(found.runs[0].results) == 2
    assert found.runs[0].plan == RecordedPlan(4, 2, "unfinished", "started")


def _damaged(data: bytes) -> bytes:
    at = data.index(b"samples/a_epoch_1.json") + 60
    return data[:at] + bytes(255 - byte for byte in data[at : at + 20]) + data[at + 20 :]


BOMB = {**_members(), "samples/bomb.json": b" " * (8 * 1024 * 1024)}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (_zip(_members())[:200], "not a complete zip file"),
        (_damaged(_zip(_members())), "damaged"),
        (_damaged(_zstd_zip(_members())), "damaged"),
        (_zip({**_members(), "samples/x.json": b"{"}), "x.eval!samples/x.json:1:2: this is not JSON"),
        (_zip({**_members(), "samples/x.json": b'{"id": 1, "id": 2}'}), "is there twice in one object"),
        (_zip(BOMB), "unpacks to more than"),
        (_zstd_zip(BOMB), "unpacks to more than"),
        (_zip(_members(), zipfile.ZIP_BZIP2), "packed by method 12; read are stored, deflate and zstd"),
    ],
    ids=["cut", "damaged", "damaged-zstd", "broken-json", "key-twice", "bomb", "zstd-bomb", "bzip2"],
)
def test_a_zip_with_other_contents_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(FormatError) as caught:
        InspectLog.read(data, source="x.eval")

    assert said in str(caught.value)


def test_members_are_bounded_together_and_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _zip(_members())
    monkeypatch.setattr(zip_members, "MAX_TOTAL_BYTES", 1500)
    with pytest.raises(FormatError, match=r"unpacks? to more than"):
        InspectLog.read(data, source="x.eval")

    monkeypatch.setattr(zip_members, "MAX_MEMBERS", 3)
    with pytest.raises(FormatError, match="more than 3 members"):
        InspectLog.read(data, source="x.eval")


@given(at=st.integers(0, 10_000), width=st.integers(0, 30), data=st.binary(max_size=30))
@settings(max_examples=50)
def test_every_damage_of_a_zip_is_an_error_of_our_own(at: int, width: int, data: bytes) -> None:
    for whole in (ZIPPED, ZSTD):
        start = at % len(whole)
        try:
            read_file(whole[:start] + data + whole[start + width :], "x.eval", "inspect")
        except FormatError:
            continue


ZIPPED, ZSTD = _zip(_members()), _zstd_zip(_members())

"""What holds for every format of `FORMATS`. A new format needs a small sample: exchange_samples/NAME.SUFFIX."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.errors import FormatError
from evaldesk.formats import EVALSET_FORMS
from evaldesk.formats.exchange import FORMATS, MARKS
from evaldesk.formats.files import load_format, names_for, read_file, recognised, suffix_of, write_file
from evaldesk.model import Case, EvalSet, Event, Turn, TurnRecord
from evaldesk.reading.sniffing import first_keys, peek
from evaldesk.transcripts.recorded import RecordedRun, recorded_trial

FOLDER = Path(__file__).parent / "exchange_samples"
SAMPLES = {path.name.partition(".")[0]: path for path in sorted(FOLDER.iterdir()) if path.is_file()}
ROOT = Path(__file__).resolve().parents[2]
ODD: tuple[Any, ...] = (None, True, -1, 1e300, 2**80, "", "x", [], ["x"], [{}], {}, {"x": 1})
MAX_CHANGES = 60

every_format = pytest.mark.parametrize("name", list(FORMATS))


def sample(name: str) -> tuple[bytes, str]:
    assert name in SAMPLES, f"put a small file of this format at tests/formats/exchange_samples/{name}.SUFFIX"
    return SAMPLES[name].read_bytes(), SAMPLES[name].name.removeprefix(f"{name}.").join(("file.", ""))


def exported(run: RecordedRun) -> RecordedRun:
    """The run as files have it: how models were asked is in none (decision 158)."""
    return replace(run, results=tuple(replace(result, prompts=None) for result in run.results))


@every_format
def test_a_format_describes_itself(name: str) -> None:
    found = load_format(name)

    assert found.title
    assert found.suffixes
    assert all(suffix.startswith(".") for suffix in found.suffixes)
    assert set(found.writes) <= {"evalset", "run"}


@every_format
def test_a_file_is_recognised_by_its_own_format_and_by_no_other(name: str) -> None:
    data, source = sample(name)

    found = [other for other in FORMATS if load_format(other).recognises(data, source)]

    assert found == [name]
    assert recognised(data, source) == name


def objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a JSON value, at any depth."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(inner)
    if isinstance(value, dict):
        yield value


OBJECTS = [each for path in SAMPLES.values() for each in objects_in(peek(path.read_bytes()).first)]
MEMBERS = sorted({key: value for each in OBJECTS for key, value in each.items()}.items())
FILES = st.one_of(
    st.dictionaries(st.sampled_from([key for key, _ in MEMBERS]), st.sampled_from(ODD), max_size=4),
    mixed := st.lists(st.sampled_from(MEMBERS), max_size=5).map(dict),
    st.lists(st.one_of(mixed, st.sampled_from(OBJECTS), st.sampled_from(ODD)), max_size=3),
    st.tuples(st.sampled_from(OBJECTS), mixed).map(lambda pair: {**pair[0], **pair[1]}),
)


SOURCES = {"document": "file.json", "lines": "file.txt", "named lines": "FILE.JSONL", "named table": "file.csv"}


@settings(max_examples=300)
@given(value=FILES, layout=st.sampled_from(sorted(SOURCES)))
def test_a_format_that_is_not_asked_for_want_of_a_mark_would_not_have_recognised_the_file(
    value: Any, layout: str
) -> None:
    lines = value if layout != "document" and isinstance(value, list) else [value]
    data = "\n".join(map(json.dumps, lines)).encode()
    source = {"document": "file.json", "lines": "file.txt", "named lines": "FILE.JSONL", "named table": "file.csv"}[
        layout
    ]

    asked = sorted(FORMATS, key=EVALSET_FORMS.__contains__)

    assert recognised(data, source) == next((n for n in asked if load_format(n).recognises(data, source)), None)


@every_format
def test_the_sample_of_a_format_has_one_of_its_marks(name: str) -> None:
    data, _ = sample(name)
    keys = first_keys(data)

    assert name not in MARKS or keys is None or keys & MARKS[name]


def test_an_eval_set_of_adk_is_recognised_without_the_modules_of_other_tools() -> None:
    program = (
        "import sys; from evaldesk.formats.files import recognised; "
        'print(recognised(b\'{"eval_set_id": "s", "eval_cases": []}\', \'s.json\'), '
        "[name for name in sys.modules if name.startswith('evaldesk.integrations.')])"
    )

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "adk []"


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in EVALSET_FORMS])
@pytest.mark.parametrize("path", sorted((ROOT / "evalsets").glob("*.json")), ids=lambda path: path.name)
def test_an_eval_set_of_adk_is_no_other_tools_file(name: str, path: Path) -> None:
    assert not load_format(name).recognises(path.read_bytes(), path.name)


@every_format
def test_a_file_is_read_with_words_about_it(name: str) -> None:
    data, source = sample(name)

    imported = read_file(data, source)

    assert imported.format == name
    assert imported.understood
    assert imported.evalset or imported.runs


@every_format
def test_the_trials_of_a_run_name_its_cases(name: str) -> None:
    data, source = sample(name)

    for run in read_file(data, source).runs:
        keys = [(result.case_index, result.trial_index) for result in run.results]
        assert len(set(keys)) == len(keys)
        assert all(0 <= case_index < len(run.cases) for case_index, _ in keys)
        assert {result.run_id for result in run.results} == {0}


@every_format
def test_the_words_of_the_user_are_an_event_of_their_turn(name: str) -> None:
    data, source = sample(name)

    for run in read_file(data, source).runs:
        for turn in (turn for result in run.results for turn in result.transcript.turns):
            said = [event.text for event in turn.events if event.kind == "user_message"]
            assert "\n\n".join(said).startswith(turn.query)


@every_format
def test_a_written_value_is_read_as_the_same(name: str) -> None:
    data, source = sample(name)
    imported = read_file(data, source)
    wanted = load_format(name).writes

    if "evalset" in wanted and imported.evalset:
        assert read_file(write_file(imported.evalset, name), source).evalset == imported.evalset
    if "run" in wanted and imported.runs:
        again = read_file(write_file(imported.runs[0], name), source).runs[0]
        assert exported(again) == exported(imported.runs[0])


@every_format
@given(data=st.binary(max_size=300), cut=st.integers(0, 3000), width=st.integers(0, 40))
@settings(max_examples=30)
def test_every_damage_of_bytes_is_an_error_of_our_own(name: str, data: bytes, cut: int, width: int) -> None:
    whole, source = sample(name)
    at = cut % (len(whole) + 1)

    for broken in (data, whole[:at] + data + whole[at + width :]):
        load_format(name).recognises(broken, source)
        with suppress(FormatError):
            load_format(name).read(broken, source=source)


@every_format
def test_every_value_in_every_place_is_refused_or_survives(name: str) -> None:
    data, source = sample(name)

    for changed in _changed(data):
        load_format(name).recognises(changed, source)
        with suppress(FormatError):
            for value in _held(changed, source, name):
                (again,) = _held(write_file(value, name), source, name)
                assert _held(write_file(again, name), source, name) == [again]


@every_format
def test_no_file_reaches_the_own_keys_of_evaldesk(name: str) -> None:
    data, source = sample(name)
    own = {"keys": 5, "raw": 7, "events": 1, "format": "adk-old", "style": 3}

    with suppress(FormatError):
        imported = read_file(_everywhere(data, own), source, name)
        for evalset in filter(None, [imported.evalset]):
            for form in EVALSET_FORMS:
                with suppress(FormatError):
                    write_file(evalset, form)
        for run in imported.runs:
            write_file(run, "adk-results")


def _everywhere(data: bytes, own: Any) -> bytes:
    """The file with a key `$form` in each of its objects."""
    seen = peek(data)
    if seen.document is None and seen.line is not None:
        return b"\n".join(_everywhere(line, own) for line in data.splitlines() if line.strip())
    return json.dumps(_marked(seen.document, own)).encode() if seen.document is not None else data


def _marked(value: Any, own: Any) -> Any:
    if isinstance(value, list):
        return [_marked(item, own) for item in value]
    return (
        {**{key: _marked(item, own) for key, item in value.items()}, "$form": own} if isinstance(value, dict) else value
    )


def _held(data: bytes, source: str, name: str) -> list[EvalSet | RecordedRun]:
    """What the file holds that its format also writes: an eval set, or its first run."""
    imported, writes = read_file(data, source, name), load_format(name).writes
    if imported.evalset and "evalset" in writes:
        return [imported.evalset]
    return list(imported.runs[:1]) if "run" in writes else []


@given(data=st.binary(max_size=200), name=st.sampled_from(sorted(path.name for path in SAMPLES.values())))
@settings(max_examples=40)
def test_an_unknown_file_is_refused_under_every_name(data: bytes, name: str) -> None:
    with suppress(FormatError):
        read_file(data, name)


def _changed(data: bytes) -> Iterator[bytes]:
    """The file with each of its values in turn replaced by each odd one, and taken out; none when it is not JSON."""
    seen = peek(data)
    is_lines = seen.document is None and seen.line is not None
    value = seen.line if is_lines else seen.document
    ending = b"\n" + data.partition(b"\n")[2] if is_lines else b""
    places = [(path, odd) for path in _paths(value) for odd in (*ODD, "GONE")]
    step = max(1, len(places) // MAX_CHANGES)
    for path, odd in places[::step]:
        yield json.dumps(_with(value, path, odd)).encode() + ending


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in children:
        yield from _paths(inner, (*path, key))


def _with(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) > 1:
        copy[path[0]] = _with(copy[path[0]], path[1:], odd)
    elif odd == "GONE":
        del copy[path[0]]
    else:
        copy[path[0]] = odd
    return copy


def test_a_run_of_a_row_with_metadata_alone_is_exported_without_an_empty_message() -> None:
    answer = Event("agent_message", text="It is 3.")
    turn = TurnRecord("", (Event("user_message", author="user", text=""), answer))
    case = Case("c", (Turn(""),), extra={"metadata": {"x": 1}})
    run = RecordedRun("r", "solver", (case,), (recorded_trial((turn,)),))

    for name in names_for("run"):
        data = write_file(run, name)
        texts = [value for each in values_in(data) for key, value in each.items() if key in MESSAGE_KEYS]
        assert "" not in texts, name
        again = read_file(data, f"r{suffix_of(name)}").runs[0]
        if name != "osmosis-results":  # it has no conversations
            assert (again.results[0].transcript.turns[0].query, again.results[0].transcript.turns[0].answer) == (
                "",
                "It is 3.",
            )


MESSAGE_KEYS = ("message", "content", "instruction", "text", "args")


def values_in(data: bytes) -> list[dict[str, Any]]:
    """All objects in a file of JSON or of lines, those inside of texts of JSON too."""
    found: list[dict[str, Any]] = []
    for value in map(json.loads, data.splitlines() if data.count(b"\n{") else [data]):
        for each in objects_in(value):
            found.append(each)
            texts = [text for text in each.values() if isinstance(text, str) and text.startswith(("[", "{"))]
            for inner in map(json.loads, texts):
                found += objects_in(inner)
    return found

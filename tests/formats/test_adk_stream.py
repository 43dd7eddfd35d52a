"""A set that is read case by case is the one that a whole reader reads, or fails with the same words and place."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.test_adk_wrong_files import WRONG

from evaldesk.errors import FormatError
from evaldesk.formats import read_evalset, write_evalset
from evaldesk.formats.adk.evalset import AdkStream
from evaldesk.model import EvalSet
from evaldesk.reading.json_stream import NotStreamedError, StreamedList
from evaldesk.reading.strict_json import parse_json

CHUNKS = (1, 3, 64, 1 << 20)
CASE = {"eval_id": "ä🎲", "conversation": [{"user_content": {"parts": [{"text": "Würfle \u2028 🎲"}]}}], "tags": ["t"]}
OTHER = {"evalId": "b", "x_own": None, "conversation": [{"userContent": {"parts": [{"text": "b"}], "role": None}}]}
GOOD: dict[str, str] = {
    "usual": json.dumps({"eval_set_id": "s", "eval_cases": [CASE, OTHER]}, indent=2),
    "compact": json.dumps({"eval_set_id": "s", "eval_cases": [CASE, OTHER]}),
    "raw_letters": json.dumps({"eval_set_id": "ß", "eval_cases": [CASE] * 3}, ensure_ascii=False, indent=4) + "\n",
    "camel": json.dumps({"evalSetId": "s", "name": None, "evalCases": [OTHER], "x_more": {"eval_cases": [1]}}),
    "cases_first": json.dumps({"eval_cases": [CASE], "description": "d", "eval_set_id": "s"}),
    "none": '{"eval_set_id": "s", "eval_cases": []}',
    "none_with_spaces": '{"eval_set_id": "s", "eval_cases": [ \n ]}',
    "windows": json.dumps({"eval_set_id": "s", "eval_cases": [CASE, OTHER]}, indent="\t").replace("\n", "\r\n"),
    "spaces": ' \n {"eval_set_id" : "s" ,\n "eval_cases" : [ '
    + json.dumps(CASE)
    + " ,\n "
    + json.dumps(OTHER)
    + " ] } \n",
    "escaped_key": '{"eval_set_id": "s", "eval\\u005fcases": [' + json.dumps(CASE) + "]}",
    "own_form": json.dumps({"eval_set_id": "s", "$form": {"x": 1}, "eval_cases": [{**CASE, "$form": 1}]}),
}
BASE = json.dumps({"eval_set_id": "s", "eval_cases": [CASE, OTHER, {**CASE, "eval_id": "c"}], "name": "n"}, indent=1)
FAULTS: dict[str, str] = {
    "comma_after_cases": BASE.replace('\n ],\n "name', ',\n ],\n "name'),
    "comma_in_case": BASE.replace('"b"\n', '"b",\n'),
    "comma_after_all": BASE.replace('"n"', '"n",\n'),
    "no_comma_between_cases": BASE.replace("},\n  {", "}\n  {", 1),
    "two_commas": BASE.replace("},\n  {", "},,\n  {", 1),
    "no_comma_between_keys": BASE.replace('"s",', '"s"'),
    "no_colon": BASE.replace('"eval_cases":', '"eval_cases"'),
    "no_quote": BASE.replace('"name"', "name"),
    "bare_word": BASE.replace("null", "nil"),
    "not_a_number": BASE.replace("null", "NaN"),
    "infinite": BASE.replace("null", "1e999"),
    "digits": BASE.replace("null", "1" * 5_000),
    "half_character": BASE.replace('"b"', '"\\ud800"'),
    "half_character_in_key": BASE.replace('"x_own"', '"\\udc00"'),
    "key_twice": BASE.replace('"x_own": null', '"x_own": null, "x_own": 1'),
    "set_key_twice": BASE.replace('"name"', '"eval_set_id"'),
    "cases_twice": BASE.replace('"name": "n"', '"eval_cases": []'),
    "cases_twice_spelled": BASE.replace('"name": "n"', '"evalCases": []'),
    "deep": BASE.replace("null", "[" * 70 + "]" * 70),
    "just_too_deep": BASE.replace("null", "[" * 62 + "]" * 62),
    "deep_in_set": BASE.replace('"n"', "[" * 64 + "]" * 64),
    "more_after_it": BASE + "\n{}",
    "cut_in_case": BASE[: BASE.index('"x_own"')],
    "cut_in_text": BASE[: BASE.index("rfle") + 3],
    "cut_between": BASE[: BASE.index(",\n  {") + 1],
    "cut_in_list": BASE[: BASE.index("[") + 1],
    "cut_after_key": BASE[: BASE.index(": [")],
    "cut_at_the_end": BASE[:-1],
    "only_a_brace": "{",
    "control_character": BASE.replace('"b"', '"a\tb"'),
    "wrong_bracket": BASE.replace("\n ],", "\n },"),
    "name_number": BASE.replace('"n"', "7"),
    "no_id": BASE.replace('"eval_set_id": "s",', ""),
    "near_key": BASE.replace('"name"', '"descripton"'),
    "item_text": BASE.replace('"eval_cases": [', '"eval_cases": ["x", '),
    "item_null": BASE.replace('"eval_cases": [', '"eval_cases": [null, '),
    "last_without_turns": BASE.replace('"eval_id": "c",', '"eval_id": "c", "x": {"conversation": 1},'),
}
BYTES: dict[str, bytes] = {
    "latin_1": BASE.encode().replace(b'"b"', b'"\xe4"'),
    "latin_1_in_first_line": b'{"eval_set_id": "\xff\xfe", "eval_cases": []}',
    "cut_in_a_letter": GOOD["raw_letters"].encode()[:-150] + "ä".encode()[:1],
    "utf_16": BASE.encode("utf-16"),
    "zeros": b"\0\0\0\0",
}


def whole(data: bytes) -> EvalSet | tuple[object, ...]:
    return _outcome(lambda: read_evalset(data, source="s.evalset.json"))


def streamed(data: bytes, chunk: int) -> EvalSet | tuple[object, ...]:
    def read() -> EvalSet:
        stream = AdkStream(io.BytesIO(data), "s.evalset.json", chunk=chunk)
        found = []
        for item, case in stream:
            assert data[item.start : item.start + item.length].decode() == item.text
            found.append(case)
        return replace(stream.evalset, cases=tuple(found))

    return _outcome(read)


def _outcome(read: Callable[[], EvalSet]) -> EvalSet | tuple[object, ...]:
    try:
        return read()
    except FormatError as error:
        return str(error), error.reason, error.source, error.path, error.line, error.column


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
@pytest.mark.parametrize("name", GOOD)
def test_a_good_set_is_the_same(name: str, mark: bytes, chunk: int) -> None:
    data = mark + GOOD[name].encode()

    found = streamed(data, chunk)

    assert found == whole(data)
    assert isinstance(found, EvalSet)
    assert write_evalset(found) == write_evalset(read_evalset(data, source=""))


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_alike(name: str, chunk: int) -> None:
    data = FAULTS[name].encode()

    found = streamed(data, chunk)

    assert found == whole(data)
    assert name == "last_without_turns" or isinstance(found, tuple)


LIST = '\ufeff[\n {"a": "ä", "n": [1, 2]},\n {"b": null},\n 3\n]\n'
FAULTS_OF_LIST = [
    *(LIST[:cut] for cut in range(2, len(LIST) - 2)),
    LIST + "x",
    LIST + "[]",
    LIST.replace("3\n]", "3,\n]"),
    LIST.replace("},\n {", "}\n {"),
    LIST.replace("},\n {", "},,\n {"),
    LIST.replace("null", "nil"),
    LIST.replace("null", "[" * 63 + "]" * 63),
    LIST.replace('"b"', '"\\ud800"'),
    LIST.replace('"n"', '"a"'),
    LIST.replace("3\n]", "3\n}"),
]


@pytest.mark.parametrize("chunk", [1, 7, 1_000])
def test_a_file_that_is_a_list_is_read_item_by_item_and_refused_alike(chunk: int) -> None:
    items = list(StreamedList(io.BytesIO(LIST.encode()), "a.json", chunk=chunk))

    assert [item.value for item in items] == [{"a": "ä", "n": [1, 2]}, {"b": None}, 3]
    assert [item.within for item in items] == [(0,), (1,), (2,)]
    for text in FAULTS_OF_LIST:
        with pytest.raises(FormatError) as whole:
            parse_json(text.encode(), source="a.json")
        with pytest.raises(FormatError) as streamed:
            list(StreamedList(io.BytesIO(text.encode()), "a.json", chunk=chunk))
        assert str(streamed.value) == str(whole.value)


def test_a_file_deeper_than_python_goes_is_refused_too() -> None:
    data = BASE.replace("null", "[" * 200_000 + "]" * 200_000).encode()

    with pytest.raises(FormatError, match="levels deep; at most 64 are read"):
        list(AdkStream(io.BytesIO(data), ""))


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", BYTES)
def test_bytes_that_are_no_utf_8_are_named_alike(name: str, chunk: int) -> None:
    assert streamed(BYTES[name], chunk) == whole(BYTES[name])


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named_alike(name: str, chunk: int) -> None:
    data = json.dumps(WRONG[name][0], indent=2).encode()
    if (
        name == "set_without_cases"
        or isinstance(WRONG[name][0].get("eval_cases", 1), dict)
        or name == "misspelled_cases"
    ):
        with pytest.raises(NotStreamedError):
            streamed(data, chunk)
        return

    assert streamed(data, chunk) == whole(data)


@pytest.mark.parametrize("text", ["[]", "7", '"x"', " ", "{}", '{"a": {"eval_cases": []}}', '{"eval_cases": 1}'])
def test_another_file_is_left_to_a_whole_reader(text: str) -> None:
    with pytest.raises((NotStreamedError, FormatError)):
        list(AdkStream(io.BytesIO(text.encode()), ""))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["x_a", "tags", "eval_id", "rubrics"]), JSON), max_size=4), st.data())
def test_any_set_is_read_or_refused_alike(extras: list[dict[str, Any]], data: st.DataObject) -> None:
    cases = [{"eval_id": str(index), "conversation": [], **extra} for index, extra in enumerate(extras)]
    text = json.dumps({"eval_set_id": "s", "eval_cases": cases}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    chunk = data.draw(st.integers(1, 50))
    expected = whole(text)

    found = streamed(text, chunk)

    assert isinstance(found, EvalSet) == isinstance(expected, EvalSet)
    assert found == expected or isinstance(expected, tuple)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(BASE.encode()) - 1), st.binary(max_size=3), st.integers(0, 3), st.integers(1, 60))
def test_a_damaged_file_is_refused_by_both_or_by_none(at: int, put: bytes, n_cut: int, chunk: int) -> None:
    raw = BASE.encode()
    data = raw[:at] + put + raw[at + n_cut :]
    expected = whole(data)
    try:
        found = streamed(data, chunk)
    except NotStreamedError:
        return

    assert isinstance(found, EvalSet) == isinstance(expected, EvalSet)
    assert found == expected or isinstance(expected, tuple)

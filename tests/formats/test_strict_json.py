"""What strict JSON refuses, what it keeps, and how it says where."""

from __future__ import annotations

import json

import pytest

from evaldesk.errors import FormatError
from evaldesk.reading import strict_json
from evaldesk.reading.json_places import find_place, path_text
from evaldesk.reading.json_text import to_text
from evaldesk.reading.strict_json import MAX_BYTES, MAX_DEPTH, Document, parse_json

REFUSED = {
    "empty": (b"", "the file is empty", None),
    "blank": (b" \n\t", "the file is empty", None),
    "utf16_mark": ('{"a": 1}'.encode("utf-16"), "UTF-16", None),
    "utf16_bare": ('{"a": 1}'.encode("utf-16-le"), "UTF-16", None),
    "utf32": ('{"a": 1}'.encode("utf-32"), "UTF-32", None),
    "latin1": ('{\n "a": "caf\u00e9"}'.encode("latin-1"), "byte 0xe9 is not UTF-8", (2, 11)),
    "bom_and_latin1": (b'\xef\xbb\xbf{"a": "\xe9"}', "byte 0xe9 is not UTF-8", (1, 8)),
    "duplicate_key": (b'{\n  "a": {"b": 1,\n "b": 2}}', 'the key "b" is there twice', (3, 2)),
    "duplicate_escaped": (b'{"a": 1, "\\u0061": 2}', 'the key "a" is there twice', (1, 10)),
    "nan": (b'{"a": [1,\n NaN]}', "NaN is not a JSON number", (2, 2)),
    "infinity": (b"[Infinity]", "Infinity is not a JSON number", (1, 2)),
    "minus_infinity": (b"[-Infinity]", "-Infinity is not a JSON number", (1, 2)),
    "overflow": (b'{"a":\n1e400}', "too large for a number", (2, 1)),
    "negative_overflow": (b"[-1e999]", "too large for a number", (1, 2)),
    "huge_integer": (b'{"a": ' + b"9" * 5000 + b"}", "an integer of 5000 digits", (1, 7)),
    "huge_negative_integer": (b'{"a": -' + b"9" * 4001 + b", x", "an integer of 4001 digits", (1, 7)),
    "lone_surrogate": (b'{"a":\n "x\\ud800y"}', "half a character, \\ud800 alone", (2, 2)),
    "lone_surrogate_in_key": (b'{"\\udc00": 1}', "half a character, \\udc00 alone", (1, 2)),
    "truncated": (b'{"a": [1,', "this is not JSON", (1, 10)),
    "trailing_text": (b'{"a": 1}\nx', "this is not JSON: extra data", (2, 1)),
    "comment": (b'{\n // no\n "a": 1}', "this is not JSON", (2, 2)),
    "control_character": (b'{"a": "x\ny"}', "this is not JSON: invalid control character", (1, 9)),
    "binary": (b"\x80\x81\x82", "byte 0x80 is not UTF-8", (1, 1)),
}


@pytest.mark.parametrize(("data", "reason", "place"), REFUSED.values(), ids=REFUSED)
def test_json_that_is_not_strict_is_refused_with_its_place(
    data: bytes, reason: str, place: tuple[int, int] | None
) -> None:
    with pytest.raises(FormatError) as refused:
        parse_json(data, source="calc.evalset.json")

    assert reason in refused.value.reason
    assert str(refused.value).startswith("calc.evalset.json")
    assert place is None or (refused.value.line, refused.value.column) == place


def test_the_reason_reads_as_a_sentence() -> None:
    with pytest.raises(FormatError) as refused:
        parse_json(b'{"a": "x\ny"}', source="calc.json")

    assert str(refused.value) == "calc.json:1:9: this is not JSON: invalid control character"


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000], ids=str)
def test_deep_nesting_is_refused_before_it_is_parsed(depth: int) -> None:
    with pytest.raises(FormatError, match="levels deep"):
        parse_json(b"[" * depth + b"]" * depth, source="deep.json")


def test_brackets_inside_strings_are_not_depth() -> None:
    text = "[" * 1000 + '\\"' + "{" * 1000

    found = parse_json(('{"a": "' + text + '"}').encode(), source="x.json")

    assert found.value == {"a": text.replace('\\"', '"')}


def test_the_deepest_allowed_nesting_is_read() -> None:
    found = parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, source="x.json")

    assert isinstance(found.value, list)


def test_an_oversized_file_is_refused_with_both_sizes() -> None:
    with pytest.raises(FormatError, match=f"the file has {MAX_BYTES + 1} bytes; at most {MAX_BYTES} are read"):
        parse_json(b" " * (MAX_BYTES + 1), source="big.json")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": 9007199254740993}', {"a": 2**53 + 1}),
        (b"[" + b"9" * 3999 + b"]", [10**3999 - 1]),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "\\u0000"}', {"a": "\x00"}),
        (b'{"__proto__": {"constructor": 1}}', {"__proto__": {"constructor": 1}}),
        (b"[1, 1.0, true, null]", [1, 1.0, True, None]),
    ],
    ids=["bom", "2**53+1", "long_integer", "pair", "nul", "proto", "kinds"],
)
def test_unusual_values_are_kept_and_written_back(data: bytes, value: object) -> None:
    found = parse_json(data, source="x.json")

    assert found.value == value
    assert parse_json(to_text(found.value, {}, "x.json"), source="x.json").value == value


def test_every_path_of_a_document_leads_to_its_line() -> None:
    text = '{\n"a": [\n1,\n{"b.c": [],\n"d": "]},"}\n],\n"e": {}}'

    lines = {
        path: find_place(text, path)[0]
        for path in [(), ("a",), ("a", 0), ("a", 1), ("a", 1, "b.c"), ("a", 1, "d"), ("e",)]
    }

    assert list(lines.values()) == [1, 2, 3, 4, 4, 5, 7]


def test_a_missing_key_has_the_line_of_the_object_it_is_missing_from() -> None:
    assert find_place('{"a":\n {"b": 1}}', ("a", "z", 3)) == (2, 2)


def test_a_path_reads_like_code() -> None:
    assert path_text(("eval_cases", 2, "odd key", "x")) == 'eval_cases[2]["odd key"].x'


def test_a_value_that_was_never_text_has_a_path_but_no_line() -> None:
    error = Document({"a": 1}, "", "case").error("wrong", ("a",))

    assert (str(error), error.line) == ("case: a: wrong", None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [({"a": [float("nan")]}, "NaN"), ({"a": "\ud800"}, "half a character"), ({"a": {1, 2}}, "cannot be written")],
    ids=["nan", "surrogate", "set"],
)
def test_values_that_json_cannot_hold_are_refused_when_writing_too(value: object, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        to_text(value, {}, "x.json")


def test_many_unclosed_strings_are_refused_quickly() -> None:
    data = json.dumps("\\" * 200_000).encode()[:-1] + b'"' * 9

    with pytest.raises(FormatError):
        parse_json(data, source="x.json")


def test_a_file_of_nothing_but_brackets_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "MAX_CONTAINERS", 3)

    assert parse_json(b'[{}, {}, "[[[{{{"]', source="x.json").value
    with pytest.raises(FormatError, match=r"x\.json: the file has more than 3 objects and lists"):
        parse_json(b"[{}, {}, {}]", source="x.json")

"""msgspec and the codec of the standard library write the same bytes, read the same values, and refuse the same."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.codec import stdlib as stdlib_codec
from evaldesk.model import Case, Event, ToolCall, TrialResult, Turn, Usage

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
)


@given(VALUES)
def test_both_write_the_same_bytes_and_read_them_back(value: Any) -> None:
    written = msgspec.json.encode(value)

    assert stdlib_codec.json.encode(value) == written
    assert stdlib_codec.json.decode(written) == msgspec.json.decode(written)
    assert stdlib_codec.json.format(written, indent=0) == msgspec.json.format(written, indent=0)


@given(st.floats())
def test_both_write_numbers_alike(number: float) -> None:
    assert stdlib_codec.json.encode(number) == msgspec.json.encode(number)


@given(VALUES)
def test_both_make_the_same_keys_of_recorded_calls(value: Any) -> None:
    ours = stdlib_codec.json.Encoder(order="deterministic", enc_hook=repr)
    theirs = msgspec.json.Encoder(order="deterministic", enc_hook=repr)

    assert ours.encode([value, object]) == theirs.encode([value, object])


KINDS: Mapping[str, Any] = {
    "text": str,
    "whole number": int,
    "number": float,
    "truth": bool,
    "anything": Any,
    "optional": int | None,
    "several": int | str | None,
    "list": list[int],
    "tuple": tuple[int, ...],
    "pair": tuple[int, str],
    "set": frozenset[str],
    "object": dict[str, float],
    "mapping": Mapping[str, list[str]],
    "choice": Literal["a", "b"],
    "annotated": Annotated[int, "why"],
    "record": ToolCall,
    "nested record": Event,
    "case": Case,
}


@given(st.sampled_from(sorted(KINDS)), VALUES, st.booleans())
def test_both_take_and_refuse_the_same_values(name: str, value: Any, strict: bool) -> None:
    kind = KINDS[name]
    try:
        theirs = msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        with pytest.raises(stdlib_codec.ValidationError):
            stdlib_codec.convert(value, kind, strict=strict)
    else:
        assert stdlib_codec.convert(value, kind, strict=strict) == theirs


REFUSED = {
    "type": (b'"a"', int),
    "inside a list": (b'[1,"x"]', list[int]),
    "inside an object": (b'{"a":1}', dict[str, str]),
    "one of several": (b"[]", int | str),
    "choice": (b'"c"', Literal["a", "b"]),
    "missing": (b"{}", ToolCall),
    "in a field": (b'{"name":1}', ToolCall),
    "deep in a field": (b'{"name":"a","args":[]}', ToolCall),
    "no object": (b"[]", ToolCall),
    "truncated": (b'{"a"', dict),
    "too big": (b"1e400", float),
}


@pytest.mark.parametrize(("data", "kind"), REFUSED.values(), ids=REFUSED)
def test_both_refuse_with_the_same_sentence(data: bytes, kind: Any) -> None:
    with pytest.raises(msgspec.DecodeError) as theirs:
        msgspec.json.Decoder(kind).decode(data)
    with pytest.raises(stdlib_codec.DecodeError) as ours:
        stdlib_codec.json.Decoder(kind).decode(data)

    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("data", [b"NaN", b"1 2", b"", b'"\\ud800"', b"\xff", b'"\x01"', b"{'a':1}"], ids=repr)
def test_both_refuse_bytes_that_are_not_json(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(data)
    with pytest.raises(stdlib_codec.DecodeError):
        stdlib_codec.json.decode(data)


def test_both_write_values_beyond_json_alike() -> None:
    values = [b"ab", date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), {1: 2}, (1, 2), {3}]

    for value in values:
        assert stdlib_codec.json.encode(value) == msgspec.json.encode(value)
    assert base64.b64encode(b"ab") in stdlib_codec.json.encode(b"ab")


def test_both_write_a_result_alike() -> None:
    events = (
        Event("user_message", text="rœll"),
        Event("tool_call", call=ToolCall("roll", {"sides": 6, "by": [1.5, None]})),
        Event("usage", usage=Usage("m", tokens_in=3)),
    )

    for value in (Case("c", turns=(Turn("roll"),)), events):
        written = msgspec.json.encode(value)
        assert stdlib_codec.json.encode(value) == written
        kind = Case if isinstance(value, Case) else tuple[Event, ...]
        assert stdlib_codec.json.Decoder(kind).decode(written) == value
    assert stdlib_codec.json.Decoder(TrialResult)  # its type is one that both know


class TheirTable(msgspec.Struct, frozen=True, tag="table", forbid_unknown_fields=True):
    name: str
    rows: list[int] = msgspec.field(default_factory=list)
    note: Any = msgspec.UNSET


class OurTable(stdlib_codec.Struct, frozen=True, tag="table", forbid_unknown_fields=True):
    name: str
    rows: list[int] = stdlib_codec.field(default_factory=list)
    note: Any = stdlib_codec.UNSET


class TheirOther(msgspec.Struct, tag="other"):
    """Another frame."""


class OurOther(stdlib_codec.Struct, tag="other"):
    """Another frame."""


TABLES = {
    "whole": b'{"type":"table","name":"a","rows":[1],"note":null}',
    "defaults": b'{"type":"table","name":"a"}',
    "unknown": b'{"type":"table","name":"a","colour":1}',
    "missing": b'{"type":"table"}',
    "no tag": b'{"name":"a"}',
    "wrong tag": b'{"type":"chair"}',
    "no object": b"[]",
    "other": b'{"type":"other"}',
}


@pytest.mark.parametrize("data", TABLES.values(), ids=TABLES)
def test_records_with_tags_are_read_alike(data: bytes) -> None:
    ours = stdlib_codec.json.Decoder(OurTable | OurOther)
    try:
        theirs = msgspec.json.Decoder(TheirTable | TheirOther).decode(data)
    except msgspec.ValidationError as error:
        with pytest.raises(stdlib_codec.ValidationError, match=re.escape(str(error))):
            ours.decode(data)
    else:
        assert stdlib_codec.json.encode(ours.decode(data)) == msgspec.json.encode(theirs)


def test_schemas_of_parameters_are_the_same() -> None:
    kinds = [int, str | None, list[float], dict[str, int], Literal["b", "a"], tuple[int, str], Any, ToolCall]

    ours = stdlib_codec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    theirs = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")

    assert ours[0] == theirs[0]
    assert set(ours[1]) == set(theirs[1])
    with pytest.raises(TypeError):
        stdlib_codec.json.schema_components([type(sys)], ref_template="")

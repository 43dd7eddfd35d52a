"""How an object of a file becomes a value and goes back without losing anything.

A Shape names the keys of an object that we understand; every other key goes to the value's `extra` under its own
name. Where writing the value would not give the original object (other key order, camelCase, nulls written
out, parts that are not text), `extra` also gets one key, `$form`, from which the original is written:

    {"keys": [every key, in order, as spelled], "raw": {key: value as it stood}, "format": only when not "adk"}

Writing restores the raw value as long as the model still says the same, and otherwise patches it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from evaldesk.codec import msgspec
from evaldesk.errors import FormatError
from evaldesk.model import JsonObject
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import ABSENT, snake_case

# The layout of a file that the model cannot hold, to write it back: decision 032.
FORM: Final = "$form"
_NOWHERE = JsonPosition(Document(None))
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Field:
    """A known key: the functions that read its raw value, write the value, and patch a raw value.

    A field with `keeps_form` has values that remember their own form: writing one that was read from a filled list
    or object gives the same text. A key that nearly spells a missing field with `is_checked` is refused.
    """

    key: str
    read: Callable[[JsonPosition, Any], Any]
    write: Callable[[Any], Any]
    patch: Callable[[Any, Any], Any] | None = None
    keeps_form: bool = False
    is_checked: bool = True


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of an object. `order` is the order of writing and may name keys that we only pass through."""

    fields: tuple[Field, ...]
    order: tuple[str, ...]
    format: str = "adk"
    _by_key: dict[str, Field] = dataclass_field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_key", {field.key: field for field in reversed(self.fields)})

    def field(self, key: str) -> Field | None:
        """The field that `key` spells, in snake_case or camelCase."""
        return self._by_key.get(key if self.format == "adk-old" else snake_case(key))


def same_json(one: Any, other: Any) -> bool:
    """Whether two raw values would be written alike, key order and number types included."""
    if one is other:
        return True
    if one is ABSENT or other is ABSENT:
        return False
    if type(one) is type(other) is str:
        return bool(one == other)
    try:
        return bool(_encode(one) == _encode(other))
    except (OverflowError, TypeError, ValueError):  # a number beyond 64 bits, half a character
        return json.dumps(one) == json.dumps(other)


def shown_extra(extra: JsonObject) -> JsonObject:
    """The keys of the file that we do not understand, without our own key for its form."""
    return {key: value for key, value in extra.items() if key != FORM}


def form_of(extra: JsonObject) -> Mapping[str, Any]:
    """The part of `extra` that restores the form of the file; empty when there is none."""
    form: Any = extra.get(FORM)
    return form if isinstance(form, Mapping) else {}


def format_in(extra: JsonObject) -> str:
    """The format of the value's file; "adk" for a value that was made here."""
    return str(form_of(extra).get("format", "adk"))


def read_object(shape: Shape, place: JsonPosition, raw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values by field key, and the `extra` of the object. Raises FormatError."""
    spelled = _key_spellings(shape, place, raw)
    unknown = {key: value for key, value in raw.items() if key not in spelled.values() and key != FORM}
    _check_spelling(shape, place, spelled, unknown)
    values = {}
    for field in shape.fields:
        key = spelled.get(field.key)
        values[field.key] = field.read(place.at(key or field.key), raw[key] if key is not None else ABSENT)
    output = {field.key: _write_field(field, values, spelled, raw) for field in shape.fields}
    raw_values = {key: raw[key] for name, key in spelled.items() if not same_json(output[name], raw[key])}
    if not raw_values and list(_in_order(shape, output, unknown)) == list(raw):
        return values, unknown
    if FORM in raw:
        raw_values[FORM] = raw[FORM]
    form: dict[str, Any] = {"keys": list(raw), "raw": raw_values}
    if shape.format != "adk":
        form["format"] = shape.format
    return values, {**unknown, FORM: form}


def write_object(shape: Shape, values: Mapping[str, Any], extra: JsonObject) -> dict[str, Any]:
    """The object that says `values`, in the form it was read in when it was read in this format."""
    form = form_of(extra)
    unknown = dict(shown_extra(extra))
    if "keys" not in form or format_in(extra) != shape.format:
        output = {field.key: field.write(values[field.key]) for field in shape.fields}
        return _in_order(shape, output, unknown)
    return _restore(shape, values, form, unknown)


def _restore(
    shape: Shape, values: Mapping[str, Any], form: Mapping[str, Any], unknown: dict[str, Any]
) -> dict[str, Any]:
    raw = form.get("raw", {})
    fields: dict[str, Any] = {}
    field_keys = set()
    for key in form["keys"]:
        field = shape.field(key)
        if field is not None:
            field_keys.add(field.key)
            fields[key] = _restore_value(field, raw.get(key, ABSENT), values[field.key])
        else:
            fields[key] = raw.get(FORM, ABSENT) if key == FORM else unknown.pop(key, ABSENT)
    for field in shape.fields:
        if field.key not in field_keys and not _says_absent(field, values[field.key]):
            fields[field.key] = field.write(values[field.key])
    all_fields = {**fields, **{key: value for key, value in unknown.items() if key not in fields}}
    return {key: value for key, value in all_fields.items() if value is not ABSENT}


def _restore_value(field: Field, raw: Any, value: Any) -> Any:
    if raw is ABSENT:
        return field.write(value)
    if same_json(field.write(field.read(_NOWHERE, raw)), field.write(value)):
        return raw
    return field.patch(raw, value) if field.patch else field.write(value)


def _says_absent(field: Field, value: Any) -> bool:
    try:
        default = field.read(_NOWHERE, ABSENT)
    except FormatError:
        return False
    return same_json(field.write(default), field.write(value))


def _write_field(field: Field, values: Mapping[str, Any], spelled: Mapping[str, str], raw: Mapping[str, Any]) -> Any:
    raw_value = raw.get(spelled.get(field.key, ""))
    return raw_value if field.keeps_form and raw_value else field.write(values[field.key])


def _in_order(shape: Shape, output: Mapping[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    present = {**unknown, **{key: value for key, value in output.items() if value is not ABSENT}}
    first = {key: present[key] for key in shape.order if key in present}
    return {**first, **present}


def _key_spellings(shape: Shape, place: JsonPosition, raw: Mapping[str, Any]) -> dict[str, str]:
    spelled: dict[str, str] = {}
    for key in raw:
        field = shape.field(key)
        if field is None:
            continue
        if field.key in spelled:
            raise place.at(key).error(f"the same key is there twice, as {spelled[field.key]} and as {key}")
        spelled[field.key] = key
    return spelled


def _check_spelling(shape: Shape, place: JsonPosition, spelled: Mapping[str, str], unknown: Mapping[str, Any]) -> None:
    """Refuse a key that nearly spells a missing one: kept as unknown it would silently weaken the case."""
    if not unknown:
        return
    missing_keys = [field.key for field in shape.fields if field.is_checked and field.key not in spelled]
    for key in unknown:
        nearest = "" if key in shape.order else _nearest(snake_case(key), tuple(missing_keys))
        if nearest:
            raise place.at(key).error(f"unknown key {key!r}; did you mean {nearest!r}?")


@lru_cache(1024)
def _nearest(key: str, missing_keys: tuple[str, ...]) -> str:
    return next(iter(get_close_matches(key, missing_keys, n=1, cutoff=0.88)), "")

"""A substitute for the used part of msgspec in the standard library, with msgspec's names.

It gives the bytes, values and error messages of msgspec; `tests/test_codecs.py` compares them. It is slower, but one
trial has few frames.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json as stdlib_json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import UUID

_quote = stdlib_json.encoder.encode_basestring

# One JSON value of the decoder, and its place in the message of an error.
Convert: typing.TypeAlias = Callable[[Any, str], Any]


class MsgspecError(Exception):
    """An error of the codec."""


class DecodeError(MsgspecError):
    """Bytes that are not JSON."""


class ValidationError(DecodeError):
    """A value of the wrong type."""


class UnsetType(enum.Enum):
    """The type of UNSET."""

    UNSET = "UNSET"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"


UNSET = UnsetType.UNSET
field = dataclasses.field


class Struct:
    """The base of a record, with the used options of msgspec."""

    __tag__: ClassVar[str | None] = None
    __forbids_unknown__: ClassVar[bool] = False

    def __init_subclass__(
        cls, *, frozen: bool = False, tag: str | None = None, forbid_unknown_fields: bool = False
    ) -> None:
        cls.__tag__ = tag
        cls.__forbids_unknown__ = forbid_unknown_fields
        dataclasses.dataclass(frozen=frozen)(cls)


def convert(value: object, type: Any, *, strict: bool = True) -> Any:  # noqa: A002
    """Convert plain values to the type. Raises ValidationError."""
    return _converter(type, strict)(value, "$")


class Encoder:
    """Writes values as JSON; `deterministic` sorts keys, `enc_hook` converts values without a JSON form."""

    def __init__(self, *, order: str | None = None, enc_hook: Callable[[Any], Any] | None = None) -> None:
        self._is_sorted = order is not None
        self._hook = enc_hook

    def encode(self, value: object) -> bytes:
        """Compact JSON. Raises TypeError for a type without a form in JSON."""
        parts: list[str] = []
        self._write(value, parts.append)
        return "".join(parts).encode()

    def _write(self, value: Any, add: Callable[[str], None]) -> None:
        if isinstance(value, enum.Enum):
            value = value.value
        if value is None or value is True or value is False:
            add("null" if value is None else "true" if value else "false")
        elif isinstance(value, str):
            add(_quote(value))
        elif isinstance(value, int):
            add(int.__repr__(value))
        elif isinstance(value, float):
            add(_float_text(value))
        elif isinstance(value, dict):
            self._write_object(((_key(key), item) for key, item in value.items()), add)
        elif isinstance(value, list | tuple):
            self._write_array(value, add)
        elif isinstance(value, Set):
            self._write_array(sorted(value) if self._is_sorted else list(value), add)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            self._write_object(_items(value), add)
        elif (text := _text(value)) is not None:
            add(_quote(text))
        elif self._hook:
            self._write(self._hook(value), add)
        else:
            raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")

    def _write_object(self, items: Any, add: Callable[[str], None]) -> None:
        separator = "{"
        for key, item in sorted(items, key=lambda item: item[0]) if self._is_sorted else items:
            add(f"{separator}{_quote(key)}:")
            self._write(item, add)
            separator = ","
        add("}" if separator == "," else "{}")

    def _write_array(self, items: Sequence[Any], add: Callable[[str], None]) -> None:
        separator = "["
        for item in items:
            add(separator)
            self._write(item, add)
            separator = ","
        add("]" if separator == "," else "[]")


def _items(value: Any) -> list[tuple[str, Any]]:
    tag = getattr(value, "__tag__", None)
    fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [*([("type", tag)] if tag else []), *(item for item in fields if item[1] is not UNSET)]


def _key(key: object) -> str:
    if isinstance(key, enum.Enum):
        key = key.value
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return int.__repr__(key)
    if isinstance(key, float):
        return _float_text(key)
    text = _text(key)
    if text is None:
        raise TypeError("Only dicts with str-like or number-like keys are supported")
    return text


def _text(value: object) -> str | None:
    """The JSON text of bytes, dates, UUIDs and decimals; None for other values."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        text = value.isoformat()
        return f"{text[:-6]}Z" if value.tzinfo and text.endswith("+00:00") else text
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, UUID | Decimal) else None


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    text = float.__repr__(value)
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    if exponent != "-05":
        return f"{mantissa}e{int(exponent)}"
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    return f"{sign}0.0000{digits.replace('.', '')}"


class Decoder:
    """Reads JSON into a type. Raises TypeError for an unsupported type."""

    def __init__(self, type: Any = Any, *, strict: bool = True) -> None:  # noqa: A002
        self.type = type
        self._convert = _converter(type, strict)

    def decode(self, data: bytes | str) -> Any:
        """The value. Raises DecodeError and ValidationError."""
        return self._convert(_load(data), "$")


def _decode(data: bytes | str, *, type: Any = Any) -> Any:  # noqa: A002
    return Decoder(type).decode(data)


def _load(data: bytes | str) -> Any:
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        value = stdlib_json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\u" in text:
            stdlib_json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except ValueError as error:
        if isinstance(error, stdlib_json.JSONDecodeError) and error.pos >= len(error.doc):
            raise DecodeError("Input data was truncated") from None
        raise DecodeError(f"JSON is malformed: {error}") from None
    return value


def _refuse_constant(name: str) -> typing.NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValidationError("Number out of range")
    return number


@lru_cache(maxsize=1024)
def _converter(kind: Any, strict: bool) -> Convert:
    """Build the decoder for a type; recursive types are allowed."""
    if kind is Any or kind is object:
        return lambda value, _: value
    if kind is None or kind is type(None):
        return _null if strict else _lax_null
    if kind in _PLAIN:
        return _PLAIN[kind] if strict else _lax(_PLAIN[kind], kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _converter(arguments[0], strict)
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is typing.Union or origin is types.UnionType:
        return _union(arguments, strict)
    if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return _record(kind, strict)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum(kind)
    converter = _container(origin or kind, arguments, strict)
    if converter is None:
        raise TypeError(f"Type {kind!r} is not supported")
    return converter


def _wrong(type_name: str, value: object, at: str) -> ValidationError:
    return ValidationError(f"Expected `{type_name}`, got `{_kind(value)}`{_place(at)}")


def _kind(value: object) -> str:
    """The JSON kind of a value."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list | tuple | Set) else type(value).__name__


def _place(at: str) -> str:
    return f" - at `{at}`" if at != "$" else ""


def _null(value: Any, at: str) -> None:
    if value is not None:
        raise _wrong("null", value, at)


def _lax_null(value: Any, at: str) -> None:
    _null(None if isinstance(value, str) and value.lower() == "null" else value, at)


def _boolean(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong("bool", value, at)
    return value


def _integer(value: Any, at: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong("int", value, at)
    return value


def _number(value: Any, at: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong("float", value, at)
    return float(value)


def _string(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise _wrong("str", value, at)
    return value


_PLAIN: Mapping[Any, Convert] = {bool: _boolean, int: _integer, float: _number, str: _string}


def _lax(inner: Convert, kind: type) -> Convert:
    """As `inner`, but also for numbers and booleans as text."""

    def convert_value(value: Any, at: str) -> Any:
        if kind is bool and not isinstance(value, bool):
            return inner({"true": True, "1": True, "false": False, "0": False}.get(str(value).lower(), value), at)
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if kind in {int, float} and isinstance(value, str):
            try:
                return kind(value)
            except ValueError:
                raise _wrong(kind.__name__, value, at) from None
        return inner(value, at)

    return convert_value


def _literal(choices: tuple[Any, ...]) -> Convert:
    kinds = {type(choice) for choice in choices}

    def convert_value(value: Any, at: str) -> Any:
        if type(value) not in kinds:
            names = [name for kind, name in ((int, "int"), (str, "str"), (type(None), "null")) if kind in kinds]
            raise _wrong(" | ".join(names), value, at)
        if value not in choices:
            raise ValidationError(f"Invalid enum value {value!r}{_place(at)}")
        return value

    return convert_value


def _enum(kind: type[enum.Enum]) -> Convert:
    def convert_value(value: Any, at: str) -> enum.Enum:
        try:
            return kind(value)
        except ValueError:
            raise ValidationError(f"Invalid enum value {value!r}{_place(at)}") from None

    return convert_value


def _union(kinds: tuple[Any, ...], strict: bool) -> Convert:
    tagged = {kind.__tag__: kind for kind in kinds if getattr(kind, "__tag__", None)}
    others = [kind for kind in kinds if kind not in tagged.values()]
    alternatives = [_converter(kind, strict) for kind in (*tagged.values(), *others)][len(tagged) :]
    names = " | ".join(dict.fromkeys(["object"] * bool(tagged) + [_type_name(kind) for kind in others]))

    def convert_value(value: Any, at: str) -> Any:
        if tagged and isinstance(value, Mapping):
            if "type" not in value:
                raise ValidationError(f"Object missing required field `type`{_place(at)}")
            if value["type"] not in tagged:
                raise ValidationError(f"Invalid value {value['type']!r} - at `{at}.type`")
            return _converter(tagged[value["type"]], strict)(value, at)
        inner = None
        for kind, alternative in zip(others, alternatives, strict=True):
            try:
                return alternative(value, at)
            except ValidationError as error:
                if _type_name(kind) == _kind(value):
                    inner = error  # of the right kind: it says what is wrong inside
        raise inner or _wrong(names, value, at)

    return convert_value


def _type_name(kind: Any) -> str:
    """The JSON name of a type for an error message."""
    if kind is None or kind is type(None):
        return "null"
    origin = typing.get_origin(kind) or kind
    if origin is typing.Literal:
        return " | ".join(sorted({type(choice).__name__ for choice in typing.get_args(kind)}))
    if origin in _PLAIN:
        return str(origin.__name__)
    is_array = isinstance(origin, type) and issubclass(origin, list | tuple | Set | Sequence)
    return "array" if is_array else "object"


def _container(origin: Any, arguments: tuple[Any, ...], strict: bool) -> Convert | None:
    if not isinstance(origin, type):
        return None
    if issubclass(origin, tuple) and arguments and arguments[-1] is not Ellipsis:
        return _fixed_tuple([_converter(kind, strict) for kind in arguments])
    if issubclass(origin, list | tuple | Set) or origin is Sequence:
        factory: Any = origin if origin in {list, tuple, set, frozenset} else set if issubclass(origin, Set) else list
        return _array(factory, _converter(arguments[0] if arguments else Any, strict))
    if issubclass(origin, dict) or origin is Mapping:
        key, item = arguments or (Any, Any)
        return _object(_converter(key, strict=False), _converter(item, strict))
    return None


def _array(factory: Callable[[Any], Any], item: Convert) -> Convert:
    def convert_value(value: Any, at: str) -> Any:
        if not isinstance(value, list | tuple | Set):
            raise _wrong("array", value, at)
        return factory([item(each, f"{at}[{index}]") for index, each in enumerate(value)])

    return convert_value


def _fixed_tuple(items: list[Convert]) -> Convert:
    def convert_value(value: Any, at: str) -> Any:
        if not isinstance(value, list | tuple):
            raise _wrong("array", value, at)
        if len(value) != len(items):
            raise ValidationError(f"Expected `array` of length {len(items)}, got {len(value)}{_place(at)}")
        return tuple(item(each, f"{at}[{index}]") for index, (item, each) in enumerate(zip(items, value, strict=True)))

    return convert_value


def _object(key: Convert, item: Convert) -> Convert:
    def convert_value(value: Any, at: str) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong("object", value, at)
        return {key(name, at): item(each, f"{at}[...]") for name, each in value.items()}

    return convert_value


def _record(kind: Any, strict: bool) -> Convert:
    """Build the decoder for a dataclass, a Struct or a TypedDict."""
    is_table = typing.is_typeddict(kind)
    fields = {} if is_table else {field.name: field for field in dataclasses.fields(kind) if field.init}
    names = list(typing.get_type_hints(kind)) if is_table else list(fields)
    required_names = [
        name for name in names if (name in kind.__required_keys__ if is_table else _is_required(fields[name]))
    ]
    forbids = getattr(kind, "__forbids_unknown__", False)
    tag = getattr(kind, "__tag__", None)
    converters: dict[str, Convert] = {}

    def convert_value(value: Any, at: str) -> Any:
        if not is_table and isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise _wrong("object", value, at)
        if not converters:  # not before: the type may refer to itself
            hints = typing.get_type_hints(kind, include_extras=True)
            converters.update({name: _converter(hints[name], strict) for name in names})
        values = {name: converters[name](value[name], f"{at}.{name}") for name in names if name in value}
        unknown = next((name for name in value if name not in converters and not (tag and name == "type")), None)
        if forbids and unknown is not None:
            raise ValidationError(f"Object contains unknown field `{unknown}`{_place(at)}")
        missing_name = next((name for name in required_names if name not in values), None)
        if missing_name:
            raise ValidationError(f"Object missing required field `{missing_name}`{_place(at)}")
        try:
            return values if is_table else kind(**values)
        except (TypeError, ValueError) as error:  # of its __post_init__
            raise ValidationError(f"{error}{_place(at)}") from error

    return convert_value


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _format(data: bytes | str, *, indent: int = 2) -> bytes:
    """JSON with a space after each comma and colon, on one line for `indent` 0."""
    value = _load(data)
    if indent:
        return stdlib_json.dumps(value, ensure_ascii=False, indent=indent).encode()
    return _format_value(value).encode()


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(key)}: {_format_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return Encoder().encode(value).decode()


def _schema_components(kinds: Sequence[Any], *, ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The JSON schemas of types, and of their records by name. Raises TypeError."""
    definitions: dict[str, Any] = {}
    return tuple(_schema(kind, ref_template, definitions) for kind in kinds), definitions


_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null", None: "null"}


def _schema(kind: Any, template: str, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object:
        return {}
    if kind in _NAMES:
        return {"type": _NAMES[kind]}
    if origin is typing.Annotated:
        return _schema(arguments[0], template, definitions)
    if origin is typing.Literal:
        return {"enum": sorted(arguments)}
    if origin is typing.Union or origin is types.UnionType:
        return {"anyOf": [_schema(item, template, definitions) for item in arguments]}
    if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return _record_schema(kind, template, definitions)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": sorted(member.value for member in kind)}
    return _container_schema(origin or kind, arguments, template, definitions)


def _container_schema(
    origin: Any, arguments: tuple[Any, ...], template: str, definitions: dict[str, Any]
) -> dict[str, Any]:
    if not isinstance(origin, type):
        raise TypeError(f"Type {origin!r} is not supported")
    if issubclass(origin, tuple) and arguments and arguments[-1] is not Ellipsis:
        items = [_schema(item, template, definitions) for item in arguments]
        return {
            "type": "array",
            "minItems": len(items),
            "maxItems": len(items),
            "prefixItems": items,
            "items": False,
        }
    if issubclass(origin, list | tuple | Set) or origin is Sequence:
        item = _schema(arguments[0], template, definitions) if arguments else {}
        return {"type": "array", **({"items": item} if item else {})}
    if issubclass(origin, dict) or origin is Mapping:
        item = _schema(arguments[1], template, definitions) if arguments else {}
        return {"type": "object", **({"additionalProperties": item} if item else {})}
    raise TypeError(f"Type {origin!r} is not supported")


def _record_schema(kind: Any, template: str, definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        shape: dict[str, Any] = {"title": name, "type": "object", "properties": {}, "required": []}
        definitions[name] = shape
        is_table = typing.is_typeddict(kind)
        fields = {} if is_table else {field.name: field for field in dataclasses.fields(kind)}
        for field_name, hint in typing.get_type_hints(kind, include_extras=True).items():
            schema = _schema(hint, template, definitions)
            field = fields.get(field_name)
            if field and field.default is not dataclasses.MISSING:
                schema = {**schema, "default": field.default}
            shape["properties"][field_name] = schema
            if field_name in kind.__required_keys__ if is_table else _is_required(fields[field_name]):
                shape["required"].append(field_name)
    return {"$ref": template.format(name=name)}


json = SimpleNamespace(
    Decoder=Decoder,
    Encoder=Encoder,
    encode=lambda value: Encoder().encode(value),
    decode=_decode,
    format=_format,
    schema_components=_schema_components,
)
structs = SimpleNamespace(
    asdict=lambda value: {field.name: getattr(value, field.name) for field in dataclasses.fields(value)},
    replace=dataclasses.replace,
)

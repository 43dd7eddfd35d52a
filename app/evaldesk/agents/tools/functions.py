"""Tools: plain typed functions, described to a model by their signature and docstring, and called with its JSON."""

from __future__ import annotations

import inspect
import re
import time
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import cleandoc
from typing import Annotated, Any

from evaldesk.agents.in_thread import run_in_thread
from evaldesk.agents.traces import error_words, user_trace
from evaldesk.backports import timeout
from evaldesk.codec import msgspec
from evaldesk.errors import UsageError
from evaldesk.model import JsonObject, JsonValue, ToolDescription
from evaldesk.wire import learn, plain_json

STATE = "state"  # the parameter that receives the session state and that no model sees


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a tool, or an error sentence for the model with the trace of the exception.

    `note` and `source` are the origin of an outcome without a call of the tool.
    """

    result: JsonValue
    is_error: bool = False
    trace: str = ""
    duration_ms: float = 0.0
    note: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function as a tool. `hints` holds the type of each parameter that has one."""

    function: Callable[..., Any]
    description: ToolDescription
    hints: Mapping[str, Any]
    required: tuple[str, ...]
    takes_state: bool
    takes_any: bool = False

    @property
    def name(self) -> str:
        """The function's name."""
        return self.description.name

    def schema(self) -> JsonObject:
        """The tool in OpenAI's shape."""
        description = self.description
        return {
            "type": "function",
            "function": {
                "name": description.name,
                "description": description.description,
                "parameters": dict(description.parameters),
            },
        }

    async def run(self, args: JsonObject, state: dict[str, JsonValue], timeout_s: float | None = None) -> Outcome:
        """Call the function; an exception becomes an outcome that the model can read.

        A function that is not finished within `timeout_s` is one, too; a synchronous one goes on in its thread.
        """
        start = time.perf_counter()
        try:
            async with timeout(timeout_s) as time_limit:
                outcome = Outcome(plain_json(await self._call(args, state, is_bounded=timeout_s is not None)))
        except ArgumentError as error:
            outcome = Outcome(f"{self.name}: {error}", is_error=True)
        except TimeoutError as error:
            is_ours = time_limit.expired()
            words = f"{self.name}: not finished within {timeout_s:g} s" if is_ours else error_words(error)
            outcome = Outcome(words, is_error=True)
        except (Exception, SystemExit) as error:
            outcome = Outcome(error_words(error), is_error=True, trace=user_trace(error))
        return replace(outcome, duration_ms=(time.perf_counter() - start) * 1000)

    async def _call(self, args: JsonObject, state: dict[str, JsonValue], *, is_bounded: bool) -> object:
        arguments = self._fit_arguments(args)
        if self.takes_state:
            arguments[STATE] = state
        call = partial(self.function, **arguments)
        result = await run_in_thread(call) if is_bounded and not inspect.iscoroutinefunction(self.function) else call()
        return await result if inspect.isawaitable(result) else result

    def _fit_arguments(self, args: JsonObject) -> dict[str, object]:
        properties = self.description.parameters.get("properties", {})
        unknown = [name for name in args if not self.takes_any and name not in typing.cast("JsonObject", properties)]
        missing_names = [name for name in self.required if name not in args]
        if unknown:
            raise ArgumentError(f"there is no parameter {', '.join(unknown)}; wanted {self._signature_text()}")
        if missing_names:
            raise ArgumentError(f"{', '.join(missing_names)} is missing; wanted {self._signature_text()}")
        return {name: self._convert(name, value) for name, value in args.items()}

    def _convert(self, name: str, value: JsonValue) -> object:
        if name not in self.hints:
            return value
        try:
            return msgspec.convert(value, self.hints[name], strict=False)
        except msgspec.ValidationError as error:
            raise ArgumentError(f"{name}: {error}") from error

    def _signature_text(self) -> str:
        properties = typing.cast("JsonObject", self.description.parameters.get("properties", {}))
        return f"({', '.join(properties)})"


class ArgumentError(Exception):
    """Arguments that do not fit the tool's parameters; the text is for the model."""


def tool_of(function: Callable[..., Any]) -> Tool:
    """The tool around a function. Raises UsageError for an object without name or signature."""
    name = getattr(function, "__name__", None)
    if not (callable(function) and isinstance(name, str)) or inspect.isclass(function):
        raise UsageError(f"a tool must be a function, got {function!r}")
    summary, parameter_texts = read_docstring(function.__doc__)
    hints = _type_hints(function)
    properties: dict[str, JsonValue] = {}
    definitions: dict[str, JsonValue] = {}
    required_names = []
    takes_any = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        if parameter.name == STATE or parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}:
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"tool {name}: {parameter.name} must not be positional-only")
        shape = _shape(hints, parameter.name, definitions)
        if parameter.default is parameter.empty:
            required_names.append(parameter.name)
        elif _is_json(parameter.default):
            shape["default"] = parameter.default
        if parameter_texts.get(parameter.name):
            shape["description"] = parameter_texts[parameter.name]
        properties[parameter.name] = shape
    parameters: dict[str, JsonValue] = {"type": "object", "properties": properties}
    if required_names:
        parameters["required"] = list(required_names)
    if definitions:
        parameters["$defs"] = definitions
    takes_state = STATE in inspect.signature(function).parameters
    description = ToolDescription(name, summary, parameters)
    return Tool(function, description, hints, tuple(required_names), takes_state, takes_any)


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception:  # a name that only a type checker knows: the tool works, its model sees no types
        return {}
    hints.pop("return", None)
    hints.pop(STATE, None)
    return hints


def _shape(hints: dict[str, Any], name: str, definitions: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The JSON schema of a parameter; empty, and its hint removed, for a type without a JSON form."""
    if name not in hints:
        return {}
    try:
        learn(hints[name])
        (schema,), components = msgspec.json.schema_components([hints[name]], ref_template="#/$defs/{name}")
    except TypeError:
        del hints[name]
        return {}
    definitions.update(components)
    extras = typing.get_args(hints[name])[1:] if typing.get_origin(hints[name]) is Annotated else ()
    text = next((item for item in extras if isinstance(item, str)), None)
    return {**schema, "description": text} if text else dict(schema)


def _is_json(value: object) -> bool:
    return value is None or (isinstance(value, bool | int | float | str | list | dict) and plain_json(value) == value)


_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|Attributes):\s*$", re.MULTILINE
)
_PARAMETER = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the description of each parameter of the section `Args:`."""
    if not text:
        return "", {}
    before, *sections = _SECTION.split(cleandoc(text))
    text_by_section = dict(zip(sections[::2], sections[1::2], strict=True))
    body = next((text_by_section[name] for name in ("Args", "Arguments", "Parameters") if name in text_by_section), "")
    return before.strip(), _parameters(body)


def _parameters(body: str) -> dict[str, str]:
    lines = [line for line in body.splitlines() if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    descriptions: dict[str, str] = {}
    name = ""
    for line in lines:
        match = _PARAMETER.match(line) if len(line) - len(line.lstrip()) == margin else None
        if match:
            name = match[1]
            descriptions[name] = match[2].strip()
        elif name:
            descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions

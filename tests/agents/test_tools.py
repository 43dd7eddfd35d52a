"""Functions as tools: their schema, and arguments made to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest

from evaldesk.agents.tools.functions import tool_of

pytestmark = pytest.mark.anyio


@dataclass
class Place:
    """A place on a map."""

    x: int
    y: float = 0.0


class Person(TypedDict):
    """Somebody."""

    name: str


class Opaque:
    """Nothing that JSON could say."""


def everything(  # type: ignore[no-untyped-def]
    text: str,
    number: float,
    flag: bool,
    words: list[str],
    table: dict[str, int],
    colour: Literal["red", "blue"],
    place: Place,
    person: Person,
    described: Annotated[int, "how many"],
    untyped,
    opaque: Opaque,
    maybe: Optional[int] = None,  # noqa: UP045
    size: int = 3,
    state: dict[str, Any] | None = None,
) -> str:
    """Take everything.

    And more of it.

    Args:
        text: Some text
            over two lines.
        number (float): A number: any.

    Returns:
        Nothing of use.
    """
    return f"{place!r} {person!r} {size!r}"


def test_signature_and_docstring_become_a_schema() -> None:
    described = tool_of(everything).description

    parameters: Any = described.parameters
    assert (described.name, described.description) == ("everything", "Take everything.\n\nAnd more of it.")
    assert parameters["properties"] == {
        "text": {"type": "string", "description": "Some text over two lines."},
        "number": {"type": "number", "description": "A number: any."},
        "flag": {"type": "boolean"},
        "words": {"type": "array", "items": {"type": "string"}},
        "table": {"type": "object", "additionalProperties": {"type": "integer"}},
        "colour": {"enum": ["blue", "red"]},
        "place": {"$ref": "#/$defs/Place"},
        "person": {"$ref": "#/$defs/Person"},
        "described": {"type": "integer", "description": "how many"},
        "untyped": {},
        "opaque": {},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "size": {"type": "integer", "default": 3},
    }
    assert parameters["required"] == list(parameters["properties"])[:11]
    assert sorted(parameters["$defs"]) == ["Person", "Place"]


def test_a_tool_without_a_docstring_or_parameters_has_an_empty_schema() -> None:
    def bare() -> None: ...

    assert tool_of(bare).schema() == {
        "type": "function",
        "function": {"name": "bare", "description": "", "parameters": {"type": "object", "properties": {}}},
    }


async def test_arguments_become_the_types_that_the_function_names() -> None:
    def visit(place: Place, times: int, share: float) -> str:
        return f"{place} {times!r} {share!r}"

    outcome = await tool_of(visit).run({"place": {"x": 1}, "times": 2, "share": 1}, {})

    assert outcome.result == "Place(x=1, y=0.0) 2 1.0"


async def test_a_number_in_quotes_still_fits() -> None:
    def double(number: int) -> int:
        return 2 * number

    assert (await tool_of(double).run({"number": "21"}, {})).result == 42


async def test_the_state_parameter_is_filled_and_not_in_the_schema() -> None:
    def remember(word: str, state: dict[str, Any]) -> None:
        state["word"] = word

    state: dict[str, Any] = {}
    outcome = await tool_of(remember).run({"word": "x"}, state)

    assert (state, outcome.result, outcome.is_error) == ({"word": "x"}, None, False)
    assert "state" not in str(tool_of(remember).description.parameters)


async def test_a_model_cannot_set_the_state_parameter() -> None:
    def remember(state: dict[str, Any]) -> None:
        state["x"] = 1

    outcome = await tool_of(remember).run({"state": {}}, {})

    assert outcome.is_error


async def test_keyword_parameters_take_anything() -> None:
    def any_of(**named: Any) -> dict[str, Any]:
        return named

    assert (await tool_of(any_of).run({"a": 1}, {})).result == {"a": 1}


async def test_a_tool_that_exits_is_an_error() -> None:
    def leave() -> None:
        raise SystemExit(3)

    outcome = await tool_of(leave).run({}, {})

    assert (outcome.result, outcome.is_error) == ("SystemExit: 3", True)


async def test_methods_are_tools() -> None:
    class Shop:
        def price(self, item: str) -> int:
            """The price of an item."""
            return len(item)

    tool = tool_of(Shop().price)

    assert list(tool.description.parameters["properties"]) == ["item"]  # type: ignore[arg-type]
    assert (await tool.run({"item": "abc"}, {})).result == 3


async def test_results_without_a_json_form_become_text() -> None:
    def odd() -> object:
        return {"when": {1, 2}, 3: b"x"}

    assert (await tool_of(odd).run({}, {})).result == {"when": [1, 2], "3": "b'x'"}

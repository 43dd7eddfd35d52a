"""ADK's old forms: "adk-old", a list of `{name, data, initial_session}`, and "adk-flat", one bare list of turns.

Values without a place in these forms (tags, rubrics, final state, call ids) are written as further keys: the old
readers pass over them and we read them back. `losses` names the values that do not fit even so.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.adk.form import AdkForm
from evaldesk.formats.adk.old_case import OLD, case_losses, read_case, read_turn, write_case, write_turn
from evaldesk.model import Case, EvalSet, JsonValue
from evaldesk.model.evalset import EVALSET_ENDING
from evaldesk.reading.shape import FORM, shown_extra
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import read_list

FLAT = "adk-flat"


def stem(source: str) -> str:
    """The name of a file without the endings of eval set files: `roll_die` for `tests/roll_die.test.json`."""
    name = PurePath(source.replace("\\", "/")).name
    return EVALSET_ENDING.sub("", name) or name


class OldList(AdkForm):
    """The format "adk-old"."""

    name = OLD
    title = "ADK eval set before 2025, list of cases"
    suffixes = (".old.evalset.json",)

    @staticmethod
    def is_form_of(value: Any) -> bool:
        """Whether this is a list of cases, or an empty list."""
        return isinstance(value, list) and (not value or any(_has(item, "data") for item in value))

    @staticmethod
    def from_json(document: Document) -> EvalSet:
        """The cases of an old list; the set is called after the file. Raises FormatError."""
        cases = read_list(JsonPosition(document), document.value, read_case)
        return EvalSet(stem(document.source), cases=cases, extra={FORM: {"format": OLD}})

    @staticmethod
    def to_json(evalset: EvalSet) -> JsonValue:
        """The list of cases, without scenarios."""
        return [write_case(case) for case in evalset.cases if case.scenario is None]

    @staticmethod
    def losses(evalset: EvalSet) -> tuple[str, ...]:
        """The parts of this set that the old list cannot hold, one sentence each."""
        return (*_set_losses(evalset), *(loss for case in evalset.cases for loss in case_losses(case)))


class FlatList(AdkForm):
    """The format "adk-flat"."""

    name = FLAT
    title = "ADK eval set before 2025, one flat list of turns"
    suffixes = (".test.json",)

    @staticmethod
    def is_form_of(value: Any) -> bool:
        """Whether this is a list of turns."""
        is_list = isinstance(value, list) and not OldList.is_form_of(value)
        return is_list and any(_has(item, "query") or _has(item, "expected_tool_use") for item in value)

    @staticmethod
    def from_json(document: Document) -> EvalSet:
        """One case, called after the file, with the turns of the list. Raises FormatError."""
        turns = read_list(JsonPosition(document), document.value, read_turn)
        name = stem(document.source)
        case = Case(name, turns, extra={FORM: {"format": OLD}})
        return EvalSet(name, cases=(case,), extra={FORM: {"format": FLAT}})

    @staticmethod
    def to_json(evalset: EvalSet) -> JsonValue:
        """The turns of the only case. Raises FormatError when there is not exactly one, with turns."""
        if len(evalset.cases) != 1 or evalset.cases[0].scenario is not None:
            raise FormatError(
                f"the flat form holds exactly one conversation; eval set {evalset.id!r} is something else"
            )
        return [write_turn(turn) for turn in evalset.cases[0].turns]

    @staticmethod
    def losses(evalset: EvalSet) -> tuple[str, ...]:
        """The parts of this set that the flat list cannot hold, one sentence each."""
        if len(evalset.cases) != 1:
            return (f"the flat form holds exactly one case; this set has {len(evalset.cases)}",)
        case = evalset.cases[0]
        parts = {
            "an initial session": case.initial_session,
            "a final state": case.final_state,
            "rubrics": case.rubrics,
            "tags": case.tags,
            "keys of its own": shown_extra(case.extra),
            f"a name other than that of its set, {evalset.id!r}": case.id != evalset.id,
        }
        part_losses = (f"case {case.id!r} has {what}, which the flat form cannot hold" for what in parts if parts[what])
        return (*_set_losses(evalset), *part_losses, *case_losses(case))


def _has(item: Any, key: str) -> bool:
    return isinstance(item, dict) and key in item


def _set_losses(evalset: EvalSet) -> tuple[str, ...]:
    keys = {"name": evalset.name, "description": evalset.description, **shown_extra(evalset.extra)}
    return tuple(f"the set's {key!r}: the old form has cases only" for key, value in keys.items() if value)

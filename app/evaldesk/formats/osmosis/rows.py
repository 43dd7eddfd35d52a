"""Rows of an Osmosis data set as cases, and back; errors in Osmosis' words, with the number of the row from 0.

(osmosis-sdk rollout/eval/common/dataset.py v0.2.14, platform/cli/dataset.py; reference/osmosis.md 1.1, 1.4)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.model import Case, EvalSet, Expected, Turn
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Place, parse_json

Fault = Callable[[str], FormatError]
"""Makes the error of a row."""

PROMPTS = ("system_prompt", "user_prompt", "ground_truth", "label")
_KINDS: dict[type, str] = {dict: "dict", list: "list", str: "str", int: "int", float: "float", bool: "bool"}


def is_row(keys: Iterable[str]) -> bool:
    """Whether an object with these keys means to be a row."""
    found = {key.lower() for key in keys}
    if "solution_str" in found:  # a conversation to be graded by a rubric, which is there already
        return False
    return bool(found & {"user_prompt", "ground_truth"}) or (
        "metadata" in found and found <= {"metadata", "label", "system_prompt"}
    )


def read_row(index: int, raw: Any, place: Place, fault: Fault, notes: Notes) -> Case:
    """The case of a row: the prompt is its query, the ground truth its reference, every other column its `extra`."""
    if not isinstance(raw, dict):
        raise fault(f"Row {index}: Expected object, got {kind_name(raw)}")
    row = _columns(index, raw, place, fault, notes)
    metadata = _metadata(index, row, fault)
    if metadata is not None:
        row["metadata"] = metadata
    if metadata is None and "user_prompt" not in row:
        raise fault(f"Row {index}: Missing required columns: ['user_prompt']")
    truth = "label" if "ground_truth" not in row and "label" in row else "ground_truth"
    for name in (truth, "user_prompt", "system_prompt"):
        _check_text(index, name, row, fault, is_needed=name == "user_prompt" and metadata is None)
    extra = {key: value for key, value in row.items() if key not in ("user_prompt", "ground_truth", "case_id")}
    own_id = row.get("case_id")
    return Case(
        own_id if isinstance(own_id, str) and own_id else f"row_{index}",
        turns=(Turn(row.get("user_prompt") or "", Expected(reference=row.get(truth))),),
        extra=extra,
    )


def write_rows(evalset: EvalSet) -> list[dict[str, Any]]:
    """The rows of an eval set. Raises FormatError for a case that is more, or less, than one prompt with its truth."""
    if not evalset.cases:
        raise FormatError("the eval set has no cases, and Osmosis takes no data set without rows")
    return [_write_row(index, case) for index, case in enumerate(evalset.cases)]


def kind_name(value: Any) -> str:
    """Python's name for the type of a JSON value."""
    return _KINDS.get(type(value), "NoneType" if value is None else type(value).__name__)


def _columns(index: int, raw: Mapping[str, Any], place: Place, fault: Fault, notes: Notes) -> dict[str, Any]:
    """The row with the names that Osmosis knows in lower case."""
    row: dict[str, Any] = {}
    for key, value in raw.items():
        name = key.lower() if key.lower() in (*PROMPTS, "metadata") else key
        if name in row:
            raise fault(f"Row {index}: the column {name!r} is there twice")
        if name.startswith("$"):
            notes.refuse(f"column {name[:40]!r}, a name that Evaldesk keeps for itself", place)
        else:
            row[name] = value
    return row


def _metadata(index: int, row: Mapping[str, Any], fault: Fault) -> dict[str, Any] | None:
    raw = row.get("metadata")
    if raw is None or raw == "":
        return None
    if isinstance(raw, str):
        try:
            raw = parse_json(raw.encode("utf-8", "surrogatepass"), source="").value
        except FormatError as error:
            raise fault(f"row {index}: metadata is not valid JSON ({error})") from None
    if not isinstance(raw, dict):
        raise fault(f"row {index}: metadata must be a JSON object")
    return raw


def _check_text(index: int, name: str, row: dict[str, Any], fault: Fault, *, is_needed: bool) -> None:
    value = row.get(name)
    if value is None and not is_needed:
        row.pop(name, None)
    elif value is None:
        raise fault(f"Row {index}: '{name}' cannot be null")
    elif not isinstance(value, str):
        raise fault(f"Row {index}: '{name}' must be a string, got {kind_name(value)}")
    elif not value.strip() and is_needed:
        raise fault(f"Row {index}: '{name}' cannot be empty")


def _write_row(index: int, case: Case) -> dict[str, Any]:
    where = f"case {case.id!r}"
    if case.scenario is not None:
        raise FormatError(f"{where} is a scenario; a row of Osmosis holds one prompt")
    if len(case.turns) != 1:
        raise FormatError(f"{where} has {len(case.turns)} turns; a row of Osmosis holds one prompt")
    turn = case.turns[0]
    if turn.expected.tool_calls is not None:
        raise FormatError(f"{where} asserts tool calls; a row of Osmosis has no word for them")
    if not turn.query.strip() and "metadata" not in case.extra:
        raise FormatError(f"{where} has an empty query, which Osmosis does not take as user_prompt")
    if case.initial_state:
        raise FormatError(f"{where} starts from a state; a row of Osmosis has no word for it")
    extra = {key: value for key, value in case.extra.items() if not key.startswith("$")}
    truth = "label" if "label" in extra else "ground_truth"
    row: dict[str, Any] = {} if case.id == f"row_{index}" else {"case_id": case.id}
    row |= {"system_prompt": extra["system_prompt"]} if "system_prompt" in extra else {}
    row |= {"user_prompt": turn.query} if turn.query or "metadata" not in extra else {}
    row |= {truth: turn.expected.reference} if turn.expected.reference is not None else {}
    return {**row, **{key: value for key, value in extra.items() if key not in row}}

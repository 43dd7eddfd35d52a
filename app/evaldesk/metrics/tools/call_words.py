"""The difference between the actual and the expected calls of a turn, in words."""

from __future__ import annotations

from collections.abc import Sequence

from evaldesk.matching import Step, diff_args, json_equal
from evaldesk.model import JsonObject, JsonValue, ToolCall
from evaldesk.model.transcript import UNMADE
from evaldesk.wire import to_json

_LONGEST = 60


def same_calls(expected: Sequence[ToolCall], actual: Sequence[ToolCall]) -> str:
    """The sentence for calls that satisfy the expectation."""
    if not expected:
        return "No call was expected and none was made." if not actual else "No call was expected; calls are free here."
    return "The one expected call was made." if len(expected) == 1 else f"All {len(expected)} expected calls were made."


def other_calls(
    expected: Sequence[ToolCall], actual: Sequence[ToolCall], steps: Sequence[Step], *, harmless: Sequence[str] = ()
) -> str:
    """The sentence for calls that differ, without the steps whose op is `harmless`; empty when no other is left."""
    steps = [step for step in steps if step[0] != "=" and step[0] not in harmless]
    if len(steps) == 1:
        return _step(steps[0], expected, actual)
    if not actual and expected:
        return f"None of the {len(expected)} expected calls was made."
    words = (("~", "with other arguments"), ("-", "missing"), ("+", "extra"), ("moved", "moved"))
    counts = [(sum(step[0] == op for step in steps), word) for op, word in words]
    parts = ", ".join(f"{count} {word}" for count, word in counts if count)
    unmade = next((f": {call.name}" for call in actual if call.name.endswith(UNMADE)), "")
    return f"Of the calls, {parts}{unmade}." if parts else ""


def accepted_calls(accepted_steps: Sequence[tuple[Step, Sequence[str]]]) -> str:
    """The sentence for calls that are taken for expected ones although their arguments differ; empty for none."""
    calls = [f"call {(actual or 0) + 1}: {', '.join(because)}" for (_, _, actual), because in accepted_steps]
    if not calls:
        return ""
    return (
        f" Accepted with other arguments: {'; '.join(calls[:2])}{f'; and {len(calls) - 2} more' if calls[2:] else ''}."
    )


def aligned_details(steps: Sequence[Step], accepted_steps: Sequence[tuple[Step, Sequence[str]]]) -> JsonObject:
    """The alignment that a metric used, for the page of a trial."""
    return {
        "steps": [[op, i, j] for op, i, j in steps],
        "accepted": [{"expected": i, "actual": j, "because": [*because]} for (_, i, j), because in accepted_steps],
    }


def _step(step: Step, expected: Sequence[ToolCall], actual: Sequence[ToolCall]) -> str:
    op, i, j = step
    if op == "-" and i is not None:
        return f"Call {i + 1} of {len(expected)}, {expected[i].name}, was not made."
    if j is None:
        return ""
    if op == "+":
        return f"Call {j + 1} of {len(actual)}, {actual[j].name}, was not expected."
    if i is None:
        return ""
    if op == "moved":
        return f"{expected[i].name} came as call {j + 1}, expected as call {i + 1}."
    return f"Call {j + 1} of {len(actual)} has other arguments: {_changes(expected[i], actual[j])}."


def _changes(expected: ToolCall, actual: ToolCall) -> str:
    keys = list(dict.fromkeys(change.pointer.split("/")[1] for change in diff_args(expected.args, actual.args)))
    names = [key.replace("~1", "/").replace("~0", "~") for key in keys]
    parts = [_change(name, expected, actual) for name in names[:2]]
    return "; ".join(parts) + (f"; and {len(names) - 2} more" if len(names) > 2 else "")


def _change(key: str, expected: ToolCall, actual: ToolCall) -> str:
    if key not in actual.args:
        return f"{key} is missing"
    if key not in expected.args:
        return f"{key} is not expected"
    expected_value, actual_value = expected.args[key], actual.args[key]
    if isinstance(expected_value, list) and isinstance(actual_value, list):
        lacks, has = _without(expected_value, actual_value), _without(actual_value, expected_value)
        parts = ([f"lacks {_value_list(lacks)}"] if lacks else []) + (
            [f"has {_value_list(has)} too many"] if has else []
        )
        if parts and len(lacks) + len(has) <= 4:
            return f"{key} {' and '.join(parts)}"
        if not parts:
            return f"{key} has another order"
    return f"{key} is {short_json(actual_value)}, expected {short_json(expected_value)}"


def _without(items: Sequence[JsonValue], others: Sequence[JsonValue]) -> list[JsonValue]:
    unmatched, items_without_match = list(others), []
    for item in items:
        at = next((index for index, other in enumerate(unmatched) if json_equal(item, other)), None)
        if at is None:
            items_without_match.append(item)
        else:
            unmatched.pop(at)
    return items_without_match


def _value_list(items: Sequence[JsonValue]) -> str:
    texts = [short_json(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def short_json(value: JsonValue) -> str:
    """The value as JSON, cut where it is long."""
    text = to_json(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

"""The part of a case on which it depends which metrics apply to it: many cases of a large set have the same."""

from __future__ import annotations

from evaldesk.matching.required_calls import REQUIRED_CALLS, required_calls
from evaldesk.metrics.outcome import expects_outcome
from evaldesk.metrics.responses.json_match import is_json_reference
from evaldesk.metrics.responses.number import is_number_reference
from evaldesk.metrics.responses.required_outputs import case_outputs
from evaldesk.model import Case, Expected, JsonObject, ToolCall, Turn
from evaldesk.model.decisions import readable_decisions
from evaldesk.model.evalset import DECISIONS, EXPECTED_OUTCOMES
from evaldesk.model.media import Media

_REFERENCES = {(True, True): "1", (True, False): "{}", (False, True): "about 1", (False, False): "text"}


def asserted_part(case: Case) -> Case:
    """A case without an id and texts to which every metric of ours applies, or not, as it does to `case`."""
    *others, last = (_turn(turn) for turn in case.turns) if case.turns else (None,)
    turns = dict.fromkeys(map(repr, others))
    distinct_turns = [turn for turn in others if turn and turns.pop(repr(turn), "") is None]
    extra: JsonObject = {} if case_outputs(case) is None else {"required_outputs": []}
    if required_calls(case) is not None:
        extra = {**extra, REQUIRED_CALLS: []}
    if readable_decisions(case):
        extra = {**extra, DECISIONS: [{"turn": 1, "decision": "approve"}]}
    if expects_outcome(case):
        extra = {**extra, EXPECTED_OUTCOMES: [{"outcome": "answered"}]}
    return Case(
        id="",
        turns=(*distinct_turns, last) if last else (),
        scenario=None if case.scenario is None else {"": ""} if case.scenario else {},
        final_state=None if case.final_state is None else {},
        rubrics=case.rubrics,
        extra=extra,
    )


def _turn(turn: Turn) -> Turn:
    expected = turn.expected
    reference = None
    if expected.reference is not None:
        reference = _REFERENCES[is_json_reference(expected), is_number_reference(expected)]
    calls = expected.tool_calls and (ToolCall("tool"),)
    messages = (("agent", "text"),) if expected.intermediate else ()
    kinds = dict.fromkeys(each.kind for each in turn.media)
    media = tuple(Media(f"{kind}/any" if kind != "file" else "application/any") for kind in kinds)
    return Turn("", Expected(calls, messages, reference), turn.rubrics, media=media)

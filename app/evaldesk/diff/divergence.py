"""The first divergence of a trial from its case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaldesk.diff.conversation_diff import is_of_conversation, rows_of_conversation, scores_by_turn
from evaldesk.diff.turn_diff import ArgRow, CallRow, turn_diff
from evaldesk.errors import MetricError, UsageError
from evaldesk.matching import compared_state, json_equal
from evaldesk.model import Case, JsonObject, Score, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.model.json_text import short_json
from evaldesk.model.trial_turns import judges_calls

DivergenceKind: TypeAlias = Literal["calls", "not_played", "score", "final_state"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence; `turn` and `call` count from 1, `call` and `row` are None unless it is about a call.

    `place` and `sentence` together are the text on the page; `name` is the tool, the metric or the state key.
    """

    kind: DivergenceKind
    turn: int
    call: int | None
    name: str
    place: str
    sentence: str
    row: CallRow | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}"


def first_divergence(
    case: Case, transcript: Transcript, scores: Sequence[Score] = (), turns: Iterable[Turn] | None = None
) -> Divergence | None:
    """The first turn with other calls, without a record, or with a failed score; then the final state.

    `turns` are those of a case of many turns, which are read while they are compared one by one.
    """
    by_turn = scores_by_turn(scores)
    rows = rows_of_conversation(case, transcript, scores) if is_of_conversation(scores) else None
    for index, turn in enumerate(case.turns if turns is None else turns):
        record = transcript.turns[index] if index < len(transcript.turns) else None
        if record is None:
            return Divergence("not_played", index + 1, None, "", f"turn {index + 1}", "it was never played")
        own = by_turn.get(index, ())
        expected_calls = turn.expected.tool_calls
        if rows is not None:
            calls = rows.get(index, ())
        elif expected_calls is None or _are_same(expected_calls, record, own):
            calls = ()
        else:
            calls = turn_diff(turn.expected, record, own).calls
        row = next((row for row in calls if row.differs), None)
        if row:
            return _in_call(index, row)
        failed = next((score for score in own if score.passed is False), None)
        if failed:
            reason = failed.reason.rstrip(".")
            return Divergence(
                "score", index + 1, None, failed.metric, f"turn {index + 1}", f"{failed.metric}: {reason}"
            )
    return _in_state(case, transcript)


def _are_same(expected_calls: Sequence[ToolCall], record: TurnRecord, scores: Sequence[Score]) -> bool:
    """Whether the calls are the same one by one: most turns of a long trial need no alignment to say so."""
    actual_calls = record.tool_calls
    is_same = len(expected_calls) == len(actual_calls) and all(
        call.name == each.name and json_equal(each.args, call.args)
        for each, call in zip(expected_calls, actual_calls, strict=True)
    )
    steps_of_scores = [score.details.get("steps") for score in scores if judges_calls(score)] if is_same else []
    steps = [step for each in steps_of_scores if isinstance(each, list) for step in each]
    return is_same and all(isinstance(step, list) and step[:1] == ["="] for step in steps)


def _in_call(turn: int, row: CallRow) -> Divergence:
    call = row.actual or row.expected
    place = row.actual_place if row.actual else row.expected_place
    name = call.name if call else ""
    where = f"turn {turn + 1}, call {place}"
    return Divergence("calls", turn + 1, place, name, where, f"{name} {_call_words(row)}", row)


def moved_words(row: CallRow) -> str:
    """The place of the other side of a moved call: `expected as call 2 of turn 1`, or `made as call 1 of turn 2`."""
    if row.actual_turn:
        return f"made as call {row.actual_place} of turn {row.actual_turn}"
    return f"expected as call {row.expected_place}" + (f" of turn {row.expected_turn}" if row.expected_turn else "")


def _call_words(row: CallRow) -> str:
    if row.op == "-":
        return "was expected and not called"
    if row.op == "+":
        return "was called and not expected"
    if row.op == "moved":
        return f"was {moved_words(row)}"
    differing_args = [arg for arg in row.args if arg.op != "="]
    more = f", and {len(differing_args) - 1} more" if len(differing_args) > 1 else ""
    return f"was called {_arg_words(row, differing_args[0])}{more}" if differing_args else "differs"


def _arg_words(row: CallRow, arg: ArgRow) -> str:
    expected = row.expected.args.get(arg.key) if row.expected else None
    actual = row.actual.args.get(arg.key) if row.actual else None
    if arg.op == "-":
        return f"without {arg.key}, expected {short_json(expected)}"
    if arg.op == "+":
        return f"with {arg.key} {short_json(actual)}, which was not expected"
    return f"with {arg.key} {short_json(actual)}, expected {short_json(expected)}"


def _in_state(case: Case, transcript: Transcript) -> Divergence | None:
    if transcript.visibility.state == "none":
        return None
    state = transcript.final_state
    for key, expected in (accepted_state(case, transcript) or {}).items():
        if key in state and json_equal(state[key], expected):
            continue
        actual_words = f"is {short_json(state[key])}" if key in state else "is not set"
        sentence = f"{key} {actual_words}, expected {short_json(expected)}"
        return Divergence("final_state", len(transcript.turns), None, key, "final state", sentence)
    return None


def accepted_state(case: Case, transcript: Transcript) -> JsonObject | None:
    """The expected final state with accepted values of the trial; an unreadable `also_accepted` accepts none."""
    try:
        return compared_state(case, transcript.final_state, transcript.start_time)
    except (UsageError, MetricError):
        return case.final_state

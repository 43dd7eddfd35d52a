"""Diffs of all turns of a trial; calls are aligned as in the metrics: by turn, or over the conversation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from evaldesk.diff.turn_diff import CallRow, TurnDiff, aligned_rows, call_outcomes, turn_diff
from evaldesk.model import Case, Expected, Score, Transcript
from evaldesk.model.trial_turns import TrialSummary, judges_calls


def turn_diffs(case: Case, transcript: Transcript, scores: Sequence[Score] = ()) -> tuple[TurnDiff, ...]:
    """One diff for each turn of the case or of the trial, whichever has more.

    If the tool metrics aligned the whole conversation, so do the diffs: a call in another turn than expected has a row
    in both turns, each with the turn of the other side.
    """
    n, by_turn = max(len(case.turns), len(transcript.turns)), scores_by_turn(scores)
    diffs = [_own_diff(case, transcript, by_turn.get(index, ()), index) for index in range(n)]
    rows = rows_of_conversation(case, transcript, scores)
    return tuple(replace(diff, calls=rows[at]) if at in rows else diff for at, diff in enumerate(diffs))


def scores_by_turn(scores: Iterable[Score]) -> Mapping[int | None, Sequence[Score]]:
    """The scores by the index of their turn; those of the whole trial by None."""
    scores_by_turn: defaultdict[int | None, list[Score]] = defaultdict(list)
    for score in scores:
        scores_by_turn[score.turn].append(score)
    return scores_by_turn


def rows_of_conversation(
    case: Case, transcript: Transcript, scores: Sequence[Score]
) -> Mapping[int, tuple[CallRow, ...]]:
    """The rows of each asserted turn by its index, where the metrics took all turns as one; empty elsewhere."""
    return _rows(case, transcript, _of_conversation(scores)) if is_of_conversation(scores) else {}


def is_of_conversation(scores: Sequence[Score]) -> bool:
    """Whether the metrics of calls took all asserted turns as one conversation, and none took them turn by turn."""
    return bool(_of_conversation(scores)) and not _has_turns(scores)


def conversation_rows(case: Case, transcript: Transcript, scores: Sequence[Score]) -> tuple[CallRow, ...]:
    """The alignment over the conversation, if other metrics aligned by turn; else empty.

    Every row has the turns of both sides, also if equal.
    """
    conversation_scores = _of_conversation(scores)
    if not conversation_scores or not _has_turns(scores):
        return ()
    return tuple(
        replace(row, expected_turn=_number(expected_at), actual_turn=_number(actual_at))
        for row, expected_at, actual_at in _steps(case, transcript, conversation_scores)
    )


def has_conversation_rows(scores: Sequence[Score], summary: TrialSummary) -> bool:
    """Whether a trial has `conversation_rows`, by its scores that are of no turn."""
    return summary.has_turn_calls and bool(_of_conversation(scores))


def _of_conversation(scores: Sequence[Score]) -> list[Score]:
    return [score for score in scores if score.turn is None and judges_calls(score)]


def _has_turns(scores: Sequence[Score]) -> bool:
    return any(score.turn is not None and judges_calls(score) for score in scores)


def _number(turn: int | None) -> int | None:
    return None if turn is None else turn + 1


def _own_diff(case: Case, transcript: Transcript, scores: Sequence[Score], index: int) -> TurnDiff:
    expected = case.turns[index].expected if index < len(case.turns) else Expected()
    record = transcript.turns[index] if index < len(transcript.turns) else None
    return turn_diff(expected, record, scores)


def _rows(case: Case, transcript: Transcript, scores: Sequence[Score]) -> dict[int, tuple[CallRow, ...]]:
    """The rows of each asserted turn."""
    rows: dict[int, list[CallRow]] = {at: [] for at in _compared_turns(case, transcript)}
    for row, expected_at, actual_at in _steps(case, transcript, scores):
        if expected_at is not None and actual_at is not None and expected_at != actual_at:
            rows[expected_at].append(replace(row, actual=None, has_result=False, actual_turn=actual_at + 1))
            rows[actual_at].append(replace(row, expected=None, expected_turn=expected_at + 1))
        elif (only_at := actual_at if expected_at is None else expected_at) is not None:
            rows[only_at].append(row)
    return {at: tuple(each) for at, each in rows.items()}


def _steps(
    case: Case, transcript: Transcript, scores: Sequence[Score]
) -> Iterator[tuple[CallRow, int | None, int | None]]:
    """The steps of the alignment over the conversation as rows, with the turns of both sides."""
    expected_calls = [
        (at, k, call)
        for at in _compared_turns(case, transcript)
        for k, call in enumerate(case.turns[at].expected.tool_calls or (), 1)
    ]
    actual_calls = [
        (at, k, outcome)
        for at in _compared_turns(case, transcript)
        if at < len(transcript.turns)
        for k, outcome in enumerate(call_outcomes(transcript.turns[at]), 1)
    ]
    for (_, i, j), row in aligned_rows(
        [each[2] for each in expected_calls], [each[2] for each in actual_calls], scores
    ):
        expected_at, expected_place, _ = (None, None, None) if i is None else expected_calls[i]
        actual_at, actual_place, _ = (None, None, None) if j is None else actual_calls[j]
        yield replace(row, expected_place=expected_place, actual_place=actual_place), expected_at, actual_at


def _compared_turns(case: Case, transcript: Transcript) -> list[int]:
    """The turns whose calls are asserted, but for those whose calls cannot be seen."""
    unseen_turns = {at for at, record in enumerate(transcript.turns) if record.hides_calls}
    asserted_turns = [at for at, turn in enumerate(case.turns) if turn.expected.tool_calls is not None]
    return [at for at in asserted_turns if at not in unseen_turns]

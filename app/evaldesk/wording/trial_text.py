"""A trial as plain text, turn by turn, for a test failure, a JUnit file and a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaldesk.diff.conversation_diff import turn_diffs
from evaldesk.diff.divergence import first_divergence, moved_words
from evaldesk.diff.turn_diff import CallRow, TurnDiff
from evaldesk.metrics import is_higher_better
from evaldesk.model import Case, Expected, JsonObject, Score, TrialResult, TurnRecord, turn_verdict
from evaldesk.model.json_text import json_line, short_json
from evaldesk.wording.printable import in_one_line, printable
from evaldesk.wording.shortened import shortened
from evaldesk.wording.words import needs_words, score_words

LONGEST_TEXT = 2_000
_INDENT = "    "
UNSEEN = "the tool calls of this turn cannot be seen"
_OTHER_VERDICTS = {"unplayed": "never played", "unscored": "not judged"}


def first_words(case: Case, result: TrialResult) -> str:
    """Why a trial did not pass, on one line: its error, the first divergence, or the reasons of its metrics.

    A metric without a value comes first where the trial has no verdict because of it.
    """
    lacking = [score for score in result.scores if score.verdict == result.verdict != "failed"]
    if result.error:
        text = result.error.message or result.error.kind
    elif why := next(_reasons(lacking), ""):
        text = why
    else:
        divergence = first_divergence(case, result.transcript, result.scores)
        text = str(divergence) if divergence else next(_reasons(result.scores), _why_bare(result))
    return in_one_line(text)


def trial_text(case: Case, result: TrialResult, *, is_whole: bool = False) -> str:
    """Every failed turn of a trial, expected beside actual; with `is_whole` the passed ones too."""
    diffs = turn_diffs(case, result.transcript, result.scores)
    n = len(diffs)
    lines = [line for index in range(n) for line in _turn_lines(case, result, index, diffs[index], is_whole=is_whole)]
    of_first = {score.metric for score in result.scores if score.turn == 0}
    trial_scores = [score for score in result.scores if score.turn is None and (n > 1 or score.metric not in of_first)]
    lines += [f"{score.metric} {_score_words(score)}" for score in trial_scores if is_whole or _is_open(score)]
    if result.error:
        lines += [
            f"error {result.error.kind}: {result.error.message}",
            *(f"| {line}" for line in result.error.trace.splitlines()),
        ]
    return printable("\n".join(" ".join(line.splitlines()) for line in lines))


def call_text(name: str, args: JsonObject) -> str:
    """`roll_die(sides=16)`."""
    return f"{name}({', '.join(f'{key}={json_line(value)}' for key, value in args.items())})"


def _turn_lines(case: Case, result: TrialResult, index: int, diff: TurnDiff, *, is_whole: bool) -> Iterator[str]:
    turn = case.turns[index] if index < len(case.turns) else None
    record = result.transcript.turns[index] if index < len(result.transcript.turns) else None
    scores = [score for score in result.scores if score.turn == index]
    verdict = turn_verdict(record, scores)
    query = turn.query if turn else record.query if record else ""
    yield f"turn {index + 1} {_OTHER_VERDICTS.get(verdict, verdict)}: {short_json(query, 120)}"
    if verdict == "passed" and not is_whole:
        return
    expected = turn.expected if turn else Expected()
    yield from (f"{_INDENT}{line}" for line in _diff_lines(expected, record, diff))
    for score in scores:
        if is_whole or _is_open(score):
            yield f"{_INDENT}{score.metric} {_score_words(score)}"


def _diff_lines(expected: Expected, record: TurnRecord | None, diff: TurnDiff) -> Iterator[str]:
    if record is None:
        for call in expected.tool_calls or ():
            yield f"- {call_text(call.name, call.args)}"
        return
    yield from map(_call_line, diff.calls)
    if diff.is_asserted and not diff.calls:
        yield "no call was expected and none was made" if diff.is_seen else f"no call was expected; {UNSEEN}"
    if expected.reference is not None:
        yield f"expected answer  {_text(expected.reference)}"
    yield f"actual answer    {_text(record.answer)}"
    if record.error:
        yield f"error            {record.error.kind}: {record.error.message}"


def _call_line(row: CallRow) -> str:
    if row.op == "-" and row.expected:
        return f"- {call_text(row.expected.name, row.expected.args)}   expected, not called"
    if row.actual is None:
        expected = call_text(row.expected.name, row.expected.args) if row.expected else ""
        if row.op is None:
            return f"? {expected}   expected; {UNSEEN}"
        return f"> {expected}   {moved_words(row)}"
    actual = call_text(row.actual.name, row.actual.args)
    if row.op == "+":
        return f"+ {actual}   called, not expected"
    if row.op == "moved" or row.expected_turn:
        return f"> {actual}   {moved_words(row)}"
    if row.op == "~" and row.expected:
        reasons = f"; accepted: {', '.join(row.because)}" if row.because else ""
        return f"~ {actual}   expected {call_text(row.expected.name, row.expected.args)}{reasons}"
    return f"= {actual}" if row.op else f"  {actual}"


def _score_words(score: Score) -> str:
    if not score.is_applicable:
        return f"not applicable: {score.reason}"
    is_up = is_higher_better(score.metric)
    value = "unscored" if score.value is None else score_words(score.value, score.threshold, is_higher_better=is_up)
    needs = "" if score.threshold is None else f" (needs {needs_words(score.metric, score.threshold)})"
    return f"{value}{needs}" + (f": {score.reason}" if score.reason else "")


def _is_open(score: Score) -> bool:
    """Whether the metric applies and did not pass."""
    return score.is_applicable and score.passed is not True


def _why_bare(result: TrialResult) -> str:
    """The reason why a trial without a deciding score has no verdict."""
    is_bare = result.verdict == "unscored" and any(not score.is_applicable for score in result.scores)
    return "no criterion applies to this case" if is_bare else ""


def _reasons(scores: Sequence[Score]) -> Iterator[str]:
    for score in scores:
        if score.turn is None and _is_open(score) and (score.threshold is not None or score.error):
            yield f"{score.metric}: {score.reason or (score.error.message if score.error else 'no value')}"


def _text(text: str) -> str:
    return json_line(shortened(text, LONGEST_TEXT))

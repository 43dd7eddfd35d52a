"""A trial as plain text, turn by turn, for a test failure, a JUnit file and a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from evaldesk.diff.conversation_diff import turn_diffs
from evaldesk.diff.divergence import first_divergence, moved_words
from evaldesk.diff.turn_diff import CallRow, TurnDiff
from evaldesk.metrics import is_higher_better
from evaldesk.model import Case, Expected, JsonObject, Score, TrialResult, TurnRecord, turn_verdict
from evaldesk.model.json_text import json_line, short_json
from evaldesk.wording.printable import in_one_line, printable
from evaldesk.wording.shortened import shortened_pair
from evaldesk.wording.words import needs_words, score_words

ShortenPair: TypeAlias = Callable[[str, str], tuple[str, str]]
LONGEST_TEXT = 2_000
_INDENT = "    "
_EQUAL_CALL = "= "
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


def trial_text(
    case: Case, result: TrialResult, *, is_whole: bool = False, longest: int = LONGEST_TEXT, hint: str = ""
) -> str:
    """Every failed turn of a trial, expected beside actual; with `is_whole` the passed ones too.

    Answers and calls of more than `longest` characters are shortened around their first difference; `hint` names the
    place of the whole ones.
    """
    pair = partial(shortened_pair, longest=longest, hint=hint)
    diffs = turn_diffs(case, result.transcript, result.scores)
    n = len(diffs)
    lines = [
        line for index in range(n) for line in _turn_lines(case, result, index, diffs[index], pair, is_whole=is_whole)
    ]
    of_first = {score.metric for score in result.scores if score.turn == 0}
    trial_scores = [score for score in result.scores if score.turn is None and (n > 1 or score.metric not in of_first)]
    lines += [f"{score.metric} {_score_words(score)}" for score in trial_scores if is_whole or _is_open(score)]
    if result.error:
        lines += [
            f"error {result.error.kind}: {result.error.message}",
            *(f"| {line}" for line in result.error.trace.splitlines()),
        ]
    return _printed(lines)


def difference_text(case: Case, result: TrialResult, turn: int, longest: int) -> str:
    """The message of a turn, counted from 1, its answers, and its calls that differ, each of `longest` at most."""
    index = turn - 1
    pair = partial(shortened_pair, longest=longest)
    diff = turn_diffs(case, result.transcript, result.scores)[index]
    lines = [line for line in _diff_lines(case, result, index, diff, pair) if not line.startswith(_EQUAL_CALL)]
    return _printed([_turn_head(case, result, index), *(f"{_INDENT}{line}" for line in lines)])


def call_text(name: str, args: JsonObject) -> str:
    """`roll_die(sides=16)`."""
    return f"{name}({', '.join(f'{key}={json_line(value)}' for key, value in args.items())})"


def _printed(lines: Sequence[str]) -> str:
    """Each line as one, without control characters."""
    return printable("\n".join(" ".join(line.splitlines()) for line in lines))


def _turn_lines(
    case: Case, result: TrialResult, index: int, diff: TurnDiff, pair: ShortenPair, *, is_whole: bool
) -> Iterator[str]:
    yield _turn_head(case, result, index)
    record, scores = _record_of(result, index), _scores_of(result, index)
    if turn_verdict(record, scores) == "passed" and not is_whole:
        return
    yield from (f"{_INDENT}{line}" for line in _diff_lines(case, result, index, diff, pair))
    for score in scores:
        if is_whole or _is_open(score):
            yield f"{_INDENT}{score.metric} {_score_words(score)}"


def _turn_head(case: Case, result: TrialResult, index: int) -> str:
    record = _record_of(result, index)
    verdict = turn_verdict(record, _scores_of(result, index))
    query = case.turns[index].query if index < len(case.turns) else record.query if record else ""
    return f"turn {index + 1} {_OTHER_VERDICTS.get(verdict, verdict)}: {short_json(query, 120)}"


def _record_of(result: TrialResult, index: int) -> TurnRecord | None:
    return result.transcript.turns[index] if index < len(result.transcript.turns) else None


def _scores_of(result: TrialResult, index: int) -> list[Score]:
    return [score for score in result.scores if score.turn == index]


def _diff_lines(case: Case, result: TrialResult, index: int, diff: TurnDiff, pair: ShortenPair) -> Iterator[str]:
    expected = case.turns[index].expected if index < len(case.turns) else Expected()
    record = _record_of(result, index)
    if record is None:
        for call in expected.tool_calls or ():
            text = call_text(call.name, call.args)
            yield f"- {pair(text, text)[0]}"
        return
    for row in diff.calls:
        yield _call_line(row, pair)
    if diff.is_asserted and not diff.calls:
        yield "no call was expected and none was made" if diff.is_seen else f"no call was expected; {UNSEEN}"
    reference, answer = pair(record.answer if expected.reference is None else expected.reference, record.answer)
    if expected.reference is not None:
        yield f"expected answer  {json_line(reference)}"
    yield f"actual answer    {json_line(answer)}"
    if record.error:
        yield f"error            {record.error.kind}: {record.error.message}"


def _call_line(row: CallRow, pair: ShortenPair) -> str:
    expected, actual = (call_text(each.name, each.args) if each else "" for each in (row.expected, row.actual))
    expected, actual = pair(expected or actual, actual or expected)
    if row.op == "-" and row.expected:
        return f"- {expected}   expected, not called"
    if row.actual is None:
        return f"? {expected}   expected; {UNSEEN}" if row.op is None else f"> {expected}   {moved_words(row)}"
    if row.op == "+":
        return f"+ {actual}   called, not expected"
    if row.op == "moved" or row.expected_turn:
        return f"> {actual}   {moved_words(row)}"
    if row.op == "~" and row.expected:
        reasons = f"; accepted: {', '.join(row.because)}" if row.because else ""
        return f"~ {actual}   expected {expected}{reasons}"
    return f"{_EQUAL_CALL}{actual}" if row.op else f"  {actual}"


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

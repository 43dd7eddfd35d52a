"""Two trials side by side, aligned turn by turn: neither of them is the reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evaldesk.diff.text_diff import TextDiff, diff_text
from evaldesk.diff.turn_diff import CallRow, turn_diff
from evaldesk.errors import NotFoundError
from evaldesk.model import Expected, TrialResult, TurnRecord
from evaldesk.model.stored import TrialKey
from evaldesk.model.trial_turns import MANY_TURNS
from evaldesk.pages.runs.view import STATUS_OF, Square, trial_href, window
from evaldesk.store import RunStore

# Neither side is the reference, so nothing is struck or red: decision 092.
MAX_ROWS = 400
MAX_TEXT = 20_000
MAX_SQUARES = 50
TrialPosition: TypeAlias = tuple[int, TrialKey]
_NAME = re.compile(r"([0-9]{1,15})\.([0-9]{1,15})\.([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class PairSide:
    """One of the two: its letter, its address, its verdict, the trials that may stand in its place, and its keys."""

    letter: str
    name: str
    case_id: str
    href: str
    status: str
    squares: Sequence[Square]
    number: int
    n_turns: int
    previous: str
    next: str


@dataclass(frozen=True, slots=True)
class PairTurn:
    """One turn of both; `query` and `said` are None where both are empty or one side was never played.

    `calls` are the shown ones, `n_same` counts omitted equal ones. `only` is the letter of the side that
    has the turn alone, empty where both have it.
    """

    number: int
    only: str
    query: TextDiff | None
    calls: Sequence[CallRow]
    n_same: int
    answer: TextDiff | None

    @property
    def differs(self) -> bool:
        """Whether anything in the turn differs."""
        texts = (text for text in (self.query, self.answer) if text)
        return bool(self.only) or any(row.op != "=" for row in self.calls) or any(not text.is_same for text in texts)


@dataclass(frozen=True, slots=True)
class Pair:
    """The page. With `is_all` equal turns and calls are shown, too; `other_show` is the address of the other way.

    Of trials of many turns the first that differ are shown; `n_turns_left_out` are the others.
    """

    a: PairSide
    b: PairSide
    turns: Sequence[PairTurn]
    is_all: bool
    other_show: str
    swapped: str
    n_left_out: int
    n_turns_left_out: int

    @property
    def sentence(self) -> str:
        """Where the two part."""
        first = next((turn for turn in self.turns if turn.differs), None)
        if first is None:
            return "Both trials made the same calls and gave the same answers."
        if first.only:
            return f"Only {first.only} has turn {first.number}."
        what = "messages of the user" if first.query and not first.query.is_same else "answers"
        if row := next((row for row in first.calls if row.op != "="), None):
            call = row.expected or row.actual
            what = f"calls, first at {call.name}" if call else "calls"
        return f"First difference in turn {first.number}: different {what}."


def pair_href(a: tuple[int, TrialKey], b: tuple[int, TrialKey], *, is_all: bool = False) -> str:
    """The address of two trials side by side."""
    other = ".".join(map(str, (b[0], *b[1])))
    return f"{trial_href(*a)}/pair?with={other}{'&show=all' if is_all else ''}"


def other_trial(runs: RunStore, run_id: int, key: TrialKey) -> tuple[int, TrialKey] | None:
    """The next trial of the case whose verdict is another one; without any, the next one; None when it is alone."""
    letters = runs.case_row(run_id, key[0]).verdicts
    order = [*range(key[1] + 1, len(letters)), *range(key[1])]
    differing = (at for at in order if letters[at] not in (letters[key[1]], "."))
    trial_index = next(differing, order[0] if order else None)
    return None if trial_index is None else (run_id, (key[0], trial_index))


def read_pair(runs: RunStore, run_id: int, key: TrialKey, other: str, *, is_all: bool) -> Pair:
    """A trial beside another, named by `other` as `run.case.trial`, or beside `other_trial`.

    Raises NotFoundError when there is no such trial, or none of them was played.
    """
    a, trial_a = (run_id, key), runs.trial(run_id, *key)
    b = _parse_name(other) or other_trial(runs, run_id, key)
    if b is None:
        raise NotFoundError(f"case {key[0] + 1} of run {run_id} has only one trial: there is none to stand beside it")
    trial_b = runs.trial(b[0], *b[1])
    turns, n_left_out = _turns(trial_a, trial_b, is_all=is_all)
    is_long = len(turns) > MANY_TURNS
    turns_on_page = [turn for turn in turns if is_all or turn.differs][:MANY_TURNS] if is_long else turns
    return Pair(
        _side(runs, "A", a, b, trial_a, lambda at: pair_href((run_id, (key[0], at)), b, is_all=is_all)),
        _side(runs, "B", b, a, trial_b, lambda at: pair_href(a, (b[0], (b[1][0], at)), is_all=is_all)),
        turns_on_page,
        is_all,
        pair_href(a, b, is_all=not is_all),
        pair_href(b, a, is_all=is_all),
        n_left_out,
        len(turns) - len(turns_on_page),
    )


def _parse_name(text: str) -> tuple[int, TrialKey] | None:
    match = _NAME.fullmatch(text)
    return (int(match[1]), (int(match[2]), int(match[3]))) if match else None


def _side(
    runs: RunStore,
    letter: str,
    place: TrialPosition,
    other: TrialPosition,
    result: TrialResult,
    href: Callable[[int], str],
) -> PairSide:
    """One of the two; the keys to the trials before and after it pass over the other, beside which it stands."""
    run_id, (case_index, at) = place
    letters = runs.case_row(run_id, case_index).verdicts
    indexes = window(at, len(letters), MAX_SQUARES)
    squares = [Square(number + 1, STATUS_OF[letters[number]], href(number)) for number in indexes]
    own = [number for number in range(len(letters)) if (run_id, (case_index, number)) != other or number == at]
    before, after = [number for number in own if number < at], [number for number in own if number > at]
    return PairSide(
        letter,
        f"run {run_id}, trial {at + 1}",
        runs.case(run_id, case_index).id,
        trial_href(*place),
        result.verdict,
        squares,
        at + 1,
        len(result.transcript.turns),
        href(before[-1]) if before else "",
        href(after[0]) if after else "",
    )


def _turns(a: TrialResult, b: TrialResult, *, is_all: bool) -> tuple[list[PairTurn], int]:
    """The turns of both, and the number of calls for which the page has no room."""
    turns_a, turns_b = a.transcript.turns, b.transcript.turns
    room, n_left_out, turns = MAX_ROWS, 0, []
    for at in range(max(len(turns_a), len(turns_b))):
        turn, n_more = _turn(at, turns_a[at : at + 1], turns_b[at : at + 1], room, is_all=is_all)
        turns.append(turn)
        room -= len(turn.calls)
        n_left_out += n_more
    return turns, n_left_out


def _turn(
    at: int, turn_a: Sequence[TurnRecord], turn_b: Sequence[TurnRecord], room: int, *, is_all: bool
) -> tuple[PairTurn, int]:
    a, b = next(iter(turn_a), TurnRecord("")), next(iter(turn_b), TurnRecord(""))
    rows = turn_diff(Expected(a.tool_calls), b).calls
    rows_to_show = [row for row in rows if is_all or row.op != "="]
    rows_on_page = rows_to_show[: max(0, room)]
    only = "" if turn_a and turn_b else "A" if turn_a else "B"
    turn = PairTurn(
        at + 1,
        only,
        _text(a.query, b.query),
        rows_on_page,
        len(rows) - len(rows_to_show),
        _text(_agent_text(a), _agent_text(b)),
    )
    return turn, len(rows_to_show) - len(rows_on_page)


def _text(a: str, b: str) -> TextDiff | None:
    return diff_text(a[:MAX_TEXT], b[:MAX_TEXT]) if a or b else None


def _agent_text(turn: TurnRecord) -> str:
    """All messages of the agent in a turn, in order."""
    return "\n\n".join([*(text for _, text in turn.intermediate), turn.answer]).strip()

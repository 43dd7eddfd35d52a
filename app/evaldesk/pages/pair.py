"""Two trials side by side, aligned turn by turn: neither of them is the reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evaldesk.diff.text_diff import TextDiff, diff_text
from evaldesk.diff.turn_diff import CallRow, turn_diff
from evaldesk.errors import NotFoundError
from evaldesk.model import Expected, TurnRecord
from evaldesk.model.stored import TrialKey
from evaldesk.model.trial_turns import MANY_TURNS, TrialTurns, agent_text
from evaldesk.pages.runs.view import STATUS_OF, Square, trial_href, window
from evaldesk.pages.trial_turns import recorded_turns
from evaldesk.store import RunStore

# Neither side is the reference, so nothing is struck or red: decision 092.
MAX_ROWS = 400
MAX_BLOCKS = 3
"""The most pieces of long trials that one page compares."""
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

    Of trials of many turns the first that differ are shown, from the turn `first` on; `n_turns_left_out` are the others
    up to the turn before `next_turn`, from which on they are not compared here, 0 for the end. The first `n_shared`
    turns are the same in both, since a fork pins those of its parent.
    """

    a: PairSide
    b: PairSide
    turns: Sequence[PairTurn]
    is_all: bool
    other_show: str
    swapped: str
    n_left_out: int
    n_turns_left_out: int
    first: int = 1
    next_turn: int = 0
    rest: str = ""
    n_shared: int = 0

    @property
    def shared_turns(self) -> Sequence[PairTurn]:
        """The turns that both share as pinned ones, of those on the page."""
        return [turn for turn in self.turns if turn.number <= self.n_shared]

    @property
    def shared_queries(self) -> Sequence[str]:
        """The messages of the shared turns."""
        return ["".join(part.text for part in turn.query.expected) for turn in self.shared_turns if turn.query]

    @property
    def other_turns(self) -> Sequence[PairTurn]:
        """The turns after them."""
        return [turn for turn in self.turns if turn.number > self.n_shared]

    @property
    def sentence(self) -> str:
        """Where the two part."""
        first = next((turn for turn in self.turns if turn.differs), None)
        start = f"From turn {self.first:,} on: " if self.first > 1 else ""
        return f"{start}{self._difference(first)}"

    def _difference(self, first: PairTurn | None) -> str:
        if first is None and self.next_turn:
            return f"No difference up to turn {self.next_turn - 1:,}."
        if first is None:
            return "Both trials made the same calls and gave the same answers."
        if first.only:
            return f"Only {first.only} has turn {first.number}."
        what = "messages of the user" if first.query and not first.query.is_same else "answers"
        if row := next((row for row in first.calls if row.op != "="), None):
            call = row.expected or row.actual
            what = f"calls, first at {call.name}" if call else "calls"
        return f"First difference in turn {first.number}: different {what}."


def pair_href(a: tuple[int, TrialKey], b: tuple[int, TrialKey], *, is_all: bool = False, turn: int = 1) -> str:
    """The address of two trials side by side, from a turn on."""
    other = ".".join(map(str, (b[0], *b[1])))
    return f"{trial_href(*a)}/pair?with={other}{'&show=all' if is_all else ''}{f'&turn={turn}' if turn > 1 else ''}"


def other_trial(runs: RunStore, run_id: int, key: TrialKey) -> tuple[int, TrialKey] | None:
    """The next trial of the case with the opposite verdict, else with another one, else the next; None when alone.

    A trial that did not pass stands beside one that passed, where there is one.
    """
    letters = runs.case_row(run_id, key[0]).verdicts
    order = [*range(key[1] + 1, len(letters)), *range(key[1])]
    own = letters[key[1]]
    opposites = [at for at in order if letters[at] == ("f" if own == "p" else "p")]
    others = [at for at in order if letters[at] not in (own, ".")]
    trial_index = next(iter([*opposites, *others, *order]), None)
    return None if trial_index is None else (run_id, (key[0], trial_index))


def read_pair(runs: RunStore, run_id: int, key: TrialKey, other: str, *, is_all: bool, turn: int = 1) -> Pair:
    """A trial beside another, named by `other` as `run.case.trial`, or beside `other_trial`.

    Those of many turns are compared from the number `turn` on. Raises NotFoundError when there is no such trial, or
    none of them was played.
    """
    a, trial_a = (run_id, key), recorded_turns(runs, run_id, key)
    b = _parse_name(other) or other_trial(runs, run_id, key)
    if b is None:
        raise NotFoundError(f"case {key[0] + 1} of run {run_id} has only one trial: there is none to stand beside it")
    trial_b = recorded_turns(runs, *b)
    n_turns = max(trial_a.summary.n_turns, trial_b.summary.n_turns)
    first = turn - 1 if n_turns > MANY_TURNS and 1 < turn <= n_turns else 0
    turns_on_page, n_left_out, end = _turns(trial_a, trial_b, first, is_all=is_all)
    next_turn = end + 1 if end < n_turns else 0
    return Pair(
        _side(runs, "A", a, b, trial_a, lambda at: pair_href((run_id, (key[0], at)), b, is_all=is_all)),
        _side(runs, "B", b, a, trial_b, lambda at: pair_href(a, (b[0], (b[1][0], at)), is_all=is_all)),
        turns_on_page,
        is_all,
        pair_href(a, b, is_all=not is_all),
        pair_href(b, a, is_all=is_all),
        n_left_out,
        end - first - len(turns_on_page),
        first + 1,
        next_turn,
        pair_href(a, b, is_all=is_all, turn=next_turn) if next_turn else "",
        _n_shared(trial_a, trial_b, turns_on_page),
    )


def _n_shared(a: TrialTurns, b: TrialTurns, turns: Sequence[PairTurn]) -> int:
    """The first turns that one of the two did not play itself, and that do not differ."""
    n_pinned = max(a.recorded_result.n_prefix_turns, b.recorded_result.n_prefix_turns)
    return min([n_pinned, *(turn.number - 1 for turn in turns if turn.differs)])


def _parse_name(text: str) -> tuple[int, TrialKey] | None:
    match = _NAME.fullmatch(text)
    return (int(match[1]), (int(match[2]), int(match[3]))) if match else None


def _side(
    runs: RunStore,
    letter: str,
    place: TrialPosition,
    other: TrialPosition,
    trial: TrialTurns,
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
        trial.case.id,
        trial_href(*place),
        trial.recorded_result.verdict,
        squares,
        at + 1,
        trial.summary.n_turns,
        href(before[-1]) if before else "",
        href(after[0]) if after else "",
    )


def _turns(a: TrialTurns, b: TrialTurns, first: int, *, is_all: bool) -> tuple[list[PairTurn], int, int]:
    """The turns on the page, the number of calls for which it has no room, and the end of the compared turns.

    Short trials are whole. Long ones are read block by block, without those that are equal by their digests, until the
    page is full, or has seen MAX_BLOCKS.
    """
    n_turns, room, n_left_out = max(a.summary.n_turns, b.summary.n_turns), MAX_ROWS, 0
    is_long, n_blocks, turns = n_turns > MANY_TURNS, 0, list[PairTurn]()
    ends = sorted({each.first for each in (*a.blocks, *b.blocks) if each.first > first} | {n_turns})
    digests = [{block.first: block.digest for block in trial.blocks} for trial in (a, b)]
    at = first
    for end in ends:
        digest_a, digest_b = (each.get(at, "") for each in digests)
        if digest_a and digest_a == digest_b and not is_all:
            at = end
            continue
        if n_blocks == MAX_BLOCKS:
            return turns, n_left_out, at
        n_blocks += 1
        records_a, records_b = (
            [each.record for each in trial.read_turns(at, min(end, trial.summary.n_turns)) if each.record]
            for trial in (a, b)
        )
        for index in range(at, end):
            if is_long and len(turns) == MANY_TURNS:
                return turns, n_left_out, index
            own = slice(index - at, index - at + 1)
            turn, n_more = _turn(index, records_a[own], records_b[own], room, is_all=is_all)
            if is_all or turn.differs or not is_long:
                turns.append(turn)
            room -= len(turn.calls)
            n_left_out += n_more
        at = end
    return turns, n_left_out, n_turns


def _turn(
    at: int, turn_a: Sequence[TurnRecord], turn_b: Sequence[TurnRecord], room: int, *, is_all: bool
) -> tuple[PairTurn, int]:
    a, b = next(iter(turn_a), TurnRecord("")), next(iter(turn_b), TurnRecord(""))
    rows = turn_diff(Expected(a.known_calls), b).calls
    rows_to_show = [row for row in rows if is_all or row.op != "="]
    rows_on_page = rows_to_show[: max(0, room)]
    only = "" if turn_a and turn_b else "A" if turn_a else "B"
    turn = PairTurn(
        at + 1,
        only,
        _text(a.query, b.query),
        rows_on_page,
        len(rows) - len(rows_to_show),
        _text(agent_text(a), agent_text(b)),
    )
    return turn, len(rows_to_show) - len(rows_on_page)


def _text(a: str, b: str) -> TextDiff | None:
    return diff_text(a[:MAX_TEXT], b[:MAX_TEXT]) if a or b else None

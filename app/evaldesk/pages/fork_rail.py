"""The forks of a trial beside its turns on its own page, and the parent of a trial that is a fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evaldesk.model.conclusion import counted
from evaldesk.model.decisive_turn import Count
from evaldesk.model.fork import ForkPart, ForkPoint
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.pages.runs.view import STATUS_OF, Square, trial_href
from evaldesk.wording.forks import edits_words

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk

MOST_FORKS = 200
"""Forks of a trial that its page joins to branches, the newest."""
MOST_BRANCHES = 10
"""Branches of one turn, the newest."""
MOST_SQUARES = 40


@dataclass(frozen=True, slots=True)
class RailBranch:
    """The runs of the same fork: one branch of a turn.

    `run_id` is the run with the most trials, the newest of several; `n_more` trials have no square.
    """

    run_id: int
    words: str
    count: Count
    squares: Sequence[Square]
    n_more: int
    is_live: bool

    @property
    def href(self) -> str:
        """The page of its run."""
        return f"/runs/{self.run_id}"


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """The trial that a fork continues; `edits` are words, and the agent may have changed since that trial."""

    point: ForkPoint
    edits: str
    is_agent_changed: bool

    @property
    def href(self) -> str:
        """The turn of the parent before which the fork begins."""
        point = self.point
        address = trial_href(point.run_id, (point.case_index, point.trial_index))
        return f"{address}?turn={point.turn}#turn-{point.turn}"

    @property
    def name(self) -> str:
        """`run 1, trial 17`."""
        return f"run {self.point.run_id}, trial {self.point.trial_index + 1}"

    @property
    def place(self) -> str:
        """`before turn 3`, or `before call 2 of turn 3`."""
        call = f"call {self.point.call} of " if self.point.call else ""
        return f"before {call}turn {self.point.turn}"


@dataclass(frozen=True, slots=True)
class ForkRail:
    """The branches of a trial by the number of their turn, from 1, oldest first; none without a fork."""

    branches: Mapping[int, Sequence[RailBranch]] = field(default_factory=dict)
    origin: ForkOrigin | None = None

    @property
    def words(self) -> str:
        """`6, from 4 turns`."""
        n = sum(map(len, self.branches.values()))
        return f"{n}, from {counted(len(self.branches), 'turn')}" if n else ""


def read_rail(desk: Desk, run: RunSummary, key: TrialKey) -> ForkRail:
    """The branches of a trial, and its parent where the run itself is a fork. Reads the database."""
    part = run.config.fork
    return ForkRail(
        read_branches(desk, run.id, key), origin_of(part, run.config.agent_version) if part is not None else None
    )


def read_branches(desk: Desk, run_id: int, key: TrialKey) -> Mapping[int, Sequence[RailBranch]]:
    """The newest branches of a trial by the number of their turn, from 1, oldest first. Reads the database."""
    runs = desk.store.forks.of_trial(run_id, *key, most=MOST_FORKS)
    strips = desk.store.forks.strips([each.id for each in runs]) if runs else {}
    groups: dict[tuple[int, str], list[tuple[ForkPart, RunSummary]]] = {}
    for run in runs:
        part = run.config.fork
        if part is not None:
            groups.setdefault((part.point.turn, part.fingerprint), []).append((part, run))
    by_turn: dict[int, list[RailBranch]] = {}
    for (turn, _), same in groups.items():
        by_turn.setdefault(turn, []).append(_branch(same, strips))
    return {turn: branches[-MOST_BRANCHES:] for turn, branches in sorted(by_turn.items())}


def origin_of(part: ForkPart, agent_version: str) -> ForkOrigin:
    """The parent of a fork that was played by that version of the agent."""
    has_other_agent = any(edit.kind in ("agent", "model", "instruction") for edit in part.edits)
    is_changed = bool(part.agent_version and agent_version != part.agent_version and not has_other_agent)
    return ForkOrigin(part.point, edits_words(part), is_changed)


def _branch(same: Sequence[tuple[ForkPart, RunSummary]], strips: Mapping[int, str]) -> RailBranch:
    squares = [
        Square(at + 1, STATUS_OF[letter], trial_href(run.id, (0, at)))
        for _, run in same
        for at, letter in enumerate(strips.get(run.id, ""))
    ]
    count = Count(sum(run.counts.passed for _, run in same), sum(run.counts.scored for _, run in same))
    numbered = [Square(number, each.status, each.href) for number, each in enumerate(squares[:MOST_SQUARES], 1)]
    part, largest = max(same, key=lambda each: (each[1].n_trials, each[1].id))
    is_live = any(run.status in LIVE for _, run in same)
    return RailBranch(largest.id, edits_words(part), count, numbered, len(squares) - len(numbered), is_live)

"""The search for the decisive turn of a trial: its plan, its curve over the turns, its forks, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from evaldesk.desk.blame.blaming import outcomes_of
from evaldesk.desk.blame.planning import BlameRequest, PlannedBlame
from evaldesk.desk.blame.verifying import FixPlan
from evaldesk.desk.desk import Desk
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model.blame import Blame, Verification
from evaldesk.model.decisive_turn import Answer, Count
from evaldesk.model.fork import edit_words
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.model.trial_turns import TrialTurns
from evaldesk.pages.json_tree import cut
from evaldesk.pages.runs.view import STATUS_OF, Square, trial_href
from evaldesk.statistics.intervals import wilson
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.blame import (
    answer_words,
    fix_plan_words,
    method_words,
    plan_words,
    repair_words,
    state_words,
    verification_words,
)
from evaldesk.wording.words import cost_words

MOST_SQUARES = 60
"""Forks of one turn that are drawn."""
MOST_QUERY = 60
_LEFT, _STEP, _TOP, _BOTTOM = 40.0, 140.0, 24.0, 238.0
_MANY_TURNS = 12
_NARROW_STEP = 60.0


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn: the forks from before it, and the drop after it. `x` and the heights are in units of the picture."""

    number: int
    query: str
    count: Count
    squares: Sequence[Square]
    n_more: int
    drop_words: str
    chance_words: str
    is_decisive: bool
    x: float
    y: float
    low: float
    high: float
    href: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A fork with another turn in place of the decisive one, or with the edits of a person."""

    run_id: int
    name: str
    words: str
    count: Count
    is_live: bool

    @property
    def point(self) -> tuple[float, float, float]:
        """The heights of its share in the picture, and of the lower and upper end of its interval."""
        interval = wilson(self.count.passes, self.count.n)
        return _y(self.count.rate), _y(interval.low), _y(interval.high)


@dataclass(frozen=True, slots=True)
class FixPanel:
    """The test of a fix over failed trials with a decisive turn: its plan, and its effect so far.

    `words` is empty before the first continuation, `problem` the reason why it broke off or cannot begin. `agents` are
    those that may play in place of the agent of the run.
    """

    plan: FixPlan
    words: str
    is_live: bool
    problem: str
    agents: Sequence[str]

    @property
    def plan_words(self) -> str:
        """`2 failed trials, each so often from its decisive turn and from the start; about $0.04 for one of both.`"""
        return fix_plan_words(self.plan.n_trials, self.plan.cost_each)


async def read_fix_panel(desk: Desk, run_id: int, key: TrialKey | None, problem: str = "") -> FixPanel | None:
    """The test of a fix for one trial, or all of a run; None where none has a decisive turn. Raises NotFoundError."""
    try:
        plan = await desk.blames.plan_fix(run_id, key)
    except UsageError:
        return None
    verification = await desk.blames.verification(run_id, key)
    return FixPanel(
        plan,
        verification_words(verification) if verification else "",
        desk.blames.is_verifying(run_id),
        problem or desk.blames.verification_fault(run_id),
        [agent.id for agent in desk.agents.list()][:MOST_AGENTS],
    )


MOST_AGENTS = 200


@dataclass(frozen=True, slots=True)
class BlamePage:
    """The whole page. `batch_plan` is None where `problem` explains that nothing can be played."""

    run: RunSummary
    case_id: str
    number: int
    href: str
    request: BlameRequest
    blame: Blame | None
    batch_plan: PlannedBlame | None
    problem: str
    field: str
    headline: str
    rest: str
    method: str
    rows: Sequence[TurnRow]
    n_forks: int
    cost: float | None
    active_ms: float
    n_batch: int
    repairs: Sequence[Repair] = ()
    fix: FixPanel | None = None

    @property
    def is_live(self) -> bool:
        """Whether something on the page goes on."""
        return bool((self.blame and self.blame.is_live) or (self.fix and self.fix.is_live))

    @property
    def turn(self) -> int | None:
        """The decisive turn; None where none was found."""
        answer = self.blame.answer if self.blame and not self.blame.is_live else None
        return answer.turn if answer and answer.finding == "located" else None

    @property
    def is_imported(self) -> bool:
        """Whether the trial came from a file, so that its tools do not run unless a person says so."""
        return is_imported(self.run.config)

    @property
    def plan_words(self) -> str:
        """The plan in one line."""
        return plan_words(self.batch_plan.plans[0]) if self.batch_plan else ""

    @property
    def width(self) -> float:
        """Width of the picture."""
        return _LEFT + (len(self.rows) + 1) * _step(len(self.rows))

    @property
    def is_wide(self) -> bool:
        """Whether messages fit below the points."""
        return len(self.rows) <= _MANY_TURNS

    @property
    def grid(self) -> Sequence[tuple[int, float]]:
        """Shares in per cent with their heights."""
        return [(share, _y(share / 100)) for share in (0, 25, 50, 75, 100)]

    @property
    def end(self) -> tuple[float, float]:
        """The point of the recorded failure."""
        return _x(len(self.rows) + 1, len(self.rows)), _BOTTOM

    @property
    def line(self) -> str:
        """The path through the turns with forks."""
        return "L".join(f"{row.x:.1f} {row.y:.1f}" for row in self.rows if row.count.n)

    @property
    def last_point(self) -> TurnRow | None:
        """The last turn with forks."""
        return next((row for row in reversed(self.rows) if row.count.n), None)

    @property
    def shade(self) -> tuple[float, float, float, float] | None:
        """The decisive drop: left, top, width and height."""
        at = next((index for index, row in enumerate(self.rows) if row.is_decisive), None)
        if at is None:
            return None
        row = self.rows[at]
        x, y = (self.rows[at + 1].x, self.rows[at + 1].y) if at + 1 < len(self.rows) else self.end
        return row.x, min(row.y, y), x - row.x, abs(y - row.y)

    @property
    def diamond(self) -> tuple[float, Repair] | None:
        """The newest repair test with a verdict, and its place in the picture: within the decisive drop."""
        tests = [each for each in self.repairs if each.count.n]
        shade = self.shade
        return (shade[0] + 0.8 * shade[2], tests[-1]) if tests and shade else None

    @property
    def others_words(self) -> str:
        """`About $5.60 at the cost of this one; most frequent signature first`, of all failed trials of the run."""
        money = (
            "" if not self.cost else f"About {cost_words(self.cost * self.run.counts.failed)} at the cost of this one; "
        )
        order = "most frequent signature first, within one budget"
        return money + (order if money else order.capitalize())

    @property
    def picture_words(self) -> str:
        """The curve for a reader who does not see it."""
        points = ", ".join(f"before turn {row.number} {row.count.words}" for row in self.rows if row.count.n)
        repair = f"; with {self.diamond[1].name} in its place {self.diamond[1].count.words}" if self.diamond else ""
        return f"Share of continuations that pass: {points}{repair}" if points else "No continuation yet"


async def blame_page(
    desk: Desk, run_id: int, key: TrialKey, request: BlameRequest | None = None, problem: UsageError | None = None
) -> BlamePage:
    """The page of the newest search of a trial, or of the plan of its first one. Raises NotFoundError."""
    request = request or BlameRequest()
    run = await desk.runs.summary(run_id)
    trial_turns, _ = await asyncio.to_thread(desk.runs.run_store.turns, run_id, *key)
    (strip,) = await asyncio.to_thread(desk.runs.run_store.strips, run_id, [key[0]])
    if key[1] >= len(strip):
        raise NotFoundError(f"run {run_id} has no trial {key[1] + 1} of case {trial_turns.case.id}")
    blame = next(reversed(await desk.blames.of_trial(run_id, key)), None)
    batch_plan = None
    if not (blame and blame.is_live):
        try:
            batch_plan = await desk.blames.plan(run_id, key, request)
        except UsageError as error:
            problem = problem or error
            if error.field in ("budget", "max_cost"):  # the form stays, with the error beside it
                with suppress(UsageError, ConflictError):
                    batch_plan = await desk.blames.plan(run_id, key, BlameRequest(runs_tools=request.runs_tools))
        except ConflictError as error:
            problem = problem or UsageError(str(error))
    fix_problem = str(problem) if problem and problem.field in FIX_FIELDS else ""
    view = await asyncio.to_thread(
        _page, desk, run, key, trial_turns, blame, batch_plan, request, None if fix_problem else problem
    )
    return replace(view, fix=await read_fix_panel(desk, run_id, key, fix_problem))


FIX_FIELDS = ("n", "agent")
"""The fields of the form that tests a fix."""


def _page(
    desk: Desk,
    run: RunSummary,
    key: TrialKey,
    trial_turns: TrialTurns,
    blame: Blame | None,
    batch_plan: PlannedBlame | None,
    request: BlameRequest,
    problem: UsageError | None,
) -> BlamePage:
    forks = desk.blames.forks(blame) if blame else []
    headline, rest = _headline(blame, len(forks) and sum(each.counts.done for each in forks))
    is_unknown = any(each.is_cost_unknown for each in forks)
    return BlamePage(
        run,
        trial_turns.case.id,
        key[1] + 1,
        trial_href(run.id, key),
        request,
        blame,
        batch_plan,
        str(problem) if problem else "",
        problem.field or "" if problem else "",
        headline,
        rest,
        method_words(blame.answer, blame.plan) if blame and blame.answer else "",
        turn_rows(desk, run, key, trial_turns, blame, forks) if blame else (),
        sum(each.counts.done for each in forks),
        None if is_unknown else sum(each.cost for each in forks),
        sum(each.active_ms for each in forks),
        len(desk.store.blames.of_batch(blame.batch_id)) if blame else 0,
        repairs(desk, blame, forks) if blame else (),
    )


def repairs(desk: Desk, blame: Blame, forks: Sequence[RunSummary]) -> list[Repair]:
    """The repair tests of a search, with their effect against the continuations after the decisive turn."""
    runs = desk.blames.repairs(blame)
    turn = blame.answer.turn if blame.answer else None
    if not runs or turn is None:
        return []
    counts = _live_counts(blame, forks)
    after = counts[turn] if turn < len(counts) else Count(0, counts[turn - 1].n)
    rows = []
    for run in runs:
        edits = run.config.fork.edits if run.config.fork else ()
        name = next((each.name for each in edits if each.kind == "assistant" and each.name), "")
        words = f"the turn of {name}" if name else "; ".join(edit_words(each) for each in edits)
        count = Count(run.counts.passed, run.counts.scored)
        rows.append(Repair(run.id, words, repair_words(words, count, after), count, run.status in LIVE))
    return rows


def _headline(blame: Blame | None, n_forks: int) -> tuple[str, str]:
    if blame is None:
        return "Find the decisive turn", ""
    if blame.answer and not blame.is_live and blame.status in ("finished", "stopped"):
        headline, rest = answer_words(blame.answer)
        return headline, ". ".join(filter(None, (rest, blame.reason)))
    return state_words(blame, n_forks), ""


def turn_rows(
    desk: Desk, run: RunSummary, key: TrialKey, trial_turns: TrialTurns, blame: Blame, forks: Sequence[RunSummary]
) -> list[TurnRow]:
    """The turns of the trial with the forks from before each, and those of the case before the first."""
    n_turns = blame.plan.n_turns
    squares = _squares(desk, run, key, blame, forks, n_turns)
    counts = _live_counts(blame, forks)
    answer = None if blame.is_live else blame.answer
    chances = [drop.p_largest for drop in answer.drops] or answer.posterior if answer else ()
    records = [each.record for each in trial_turns.read_turns(0, n_turns)]
    rows = []
    for turn in range(1, n_turns + 1):
        count, record = counts[turn - 1], records[turn - 1] if turn <= len(records) else None
        interval = wilson(count.passes, count.n)
        rows.append(
            TurnRow(
                turn,
                cut(record.query, MOST_QUERY) if record else "",
                count,
                squares[turn][:MOST_SQUARES],
                max(0, len(squares[turn]) - MOST_SQUARES),
                _drop_words(count, counts[turn] if turn < n_turns else None),
                _chance_words(chances[turn - 1] if chances else None),
                bool(
                    blame.answer
                    and not blame.is_live
                    and blame.answer.finding == "located"
                    and blame.answer.turn == turn
                ),
                _x(turn, n_turns),
                _y(count.rate),
                _y(interval.low),
                _y(interval.high),
                f"#turn-{turn}",
            )
        )
    return rows


def _live_counts(blame: Blame, forks: Sequence[RunSummary]) -> list[Count]:
    """The counts before each turn; the case's own trials stand before the first one."""
    counts = [Count()] * blame.plan.n_turns
    for outcome in outcomes_of(forks):
        if outcome.passed is not None and outcome.turn <= len(counts):
            counts[outcome.turn - 1] = counts[outcome.turn - 1].plus(Count(int(outcome.passed), 1))
    counts[0] = counts[0].plus(blame.plan.own)
    return counts


def _squares(
    desk: Desk, run: RunSummary, key: TrialKey, blame: Blame, forks: Sequence[RunSummary], n_turns: int
) -> Mapping[int, list[Square]]:
    squares: dict[int, list[Square]] = {turn: [] for turn in range(1, n_turns + 1)}
    runs = [(run.id, key[0], 1)]
    runs += [(each.id, 0, each.config.fork.point.turn) for each in forks if each.config.fork]
    for run_id, case_index, turn in runs:
        for at, letter in enumerate(desk.runs.run_store.strips(run_id, [case_index])[0]):
            into = squares.get(turn)
            if into is not None and letter in STATUS_OF:
                into.append(Square(len(into) + 1, STATUS_OF[letter], trial_href(run_id, (case_index, at))))
    return squares


def _drop_words(count: Count, following: Count | None) -> str:
    """`−80`: points from before the turn to before the next one; a dash where one of them has no fork."""
    if not count.n or (following is not None and not following.n):
        return "–"
    points = round(100 * ((following.rate if following else 0.0) - count.rate))
    return "0" if not points else f"{'+' if points > 0 else '−'}{abs(points)}"


def _chance_words(chance: float | None) -> str:
    if chance is None:
        return "–"
    return "< 0.001" if chance < 0.001 else "> 0.999" if chance > 0.999 else f"{chance:.3f}"


def _step(n_turns: int) -> float:
    return _STEP if n_turns <= _MANY_TURNS else _NARROW_STEP


def _x(turn: int, n_turns: int) -> float:
    return _LEFT + _step(n_turns) * (turn - 0.5)


def _y(rate: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * rate


def blame_object(desk: Desk, blame: Blame) -> dict[str, Any]:
    """A search as JSON: turns and trials count from 1."""
    answer, forks = blame.answer, desk.blames.forks(blame)
    return {
        "id": blame.id,
        "run": blame.plan.run_id,
        "case_id": desk.store.runs.case_row(blame.plan.run_id, blame.plan.case_index).case_id,
        "trial": blame.plan.trial_index + 1,
        "status": blame.status,
        "reason": blame.reason,
        "method": blame.plan.method,
        "n_turns": blame.plan.n_turns,
        "own": _count_object(blame.plan.own),
        "n_forks": sum(each.counts.done for each in forks),
        "cost": None if any(each.is_cost_unknown for each in forks) else round(sum(each.cost for each in forks), 6),
        "runs": [each.id for each in forks],
        "answer": _answer_object(answer) if answer else None,
        "repairs": [
            {"run": each.run_id, "sentence": each.words, **_count_object(each.count)}
            for each in repairs(desk, blame, forks)
        ],
        "page": f"{trial_href(blame.plan.run_id, blame.plan.key)}/blame",
    }


def _answer_object(answer: Answer) -> dict[str, Any]:
    headline, rest = answer_words(answer)
    return {
        "finding": answer.finding,
        "turn": answer.turn,
        "sentence": ", ".join(filter(None, (headline, rest))),
        "turns": [_count_object(each) for each in answer.counts],
        "drops": [
            {
                "turn": each.turn,
                "p_largest": each.p_largest,
                "p_between": each.p_between,
                "p": each.p,
                "holm_p": each.holm_p,
            }
            for each in answer.drops
        ],
        "posterior": list(answer.posterior),
        "confirmation": {
            "turn": answer.confirmation.turn,
            "before": _count_object(answer.confirmation.before),
            "after": _count_object(answer.confirmation.after),
            "p": answer.confirmation.p,
        }
        if answer.confirmation
        else None,
    }


def _count_object(count: Count) -> dict[str, int]:
    return {"passes": count.passes, "n": count.n}


def verification_object(verification: Verification) -> dict[str, Any]:
    """The effect of a fix as JSON."""
    return {
        "trials": verification.n_trials,
        "cases": verification.n_cases,
        "sentence": verification_words(verification),
        **{
            name: {
                "before": _count_object(side.before),
                "after": _count_object(side.after),
                "difference": side.comparison.difference if side.comparison else None,
                "p": side.comparison.p if side.comparison else None,
            }
            for name, side in (("from_turn", verification.from_turn), ("from_start", verification.from_start))
        },
    }


def plan_object(batch_plan: PlannedBlame) -> dict[str, Any]:
    """A plan as JSON: turns and trials count from 1."""
    return {
        "n_forks": batch_plan.n_forks,
        "cost": batch_plan.most_cost,
        "max_cost": batch_plan.request.max_cost,
        "real_tools": list(batch_plan.real_tools),
        "notes": list(batch_plan.notes),
        "trials": [
            {
                "run": plan.run_id,
                "case_index": plan.case_index,
                "trial": plan.trial_index + 1,
                "method": plan.method,
                "n_turns": plan.n_turns,
                "own": _count_object(plan.own),
                "n_forks": plan.n_forks,
                "cost": plan.most_cost,
            }
            for plan in batch_plan.plans
        ],
        "left_out": [
            {"case_index": case, "trial": at + 1, "reason": reason} for (case, at), reason in batch_plan.refusals
        ],
    }


def fix_plan_object(plan: FixPlan, n: int) -> dict[str, Any]:
    """The test of a fix by `n` continuations from each place, as JSON, before it is played."""
    cost = None if plan.cost_each is None else plan.cost_each * n
    return {"trials": plan.n_trials, "n": n, "cost": cost, "real_tools": list(plan.real_tools)}


def fix_plan_lines(plan: FixPlan, n: int) -> list[str]:
    """The same as lines of text."""
    tools = [f"Tools that run for real: {', '.join(plan.real_tools)}"] if plan.real_tools else []
    return [fix_plan_words(plan.n_trials, plan.cost_each, n), *tools]


def blame_lines(desk: Desk, blame: Blame) -> list[str]:
    """A search as lines of text, the answer first."""
    forks = desk.blames.forks(blame)
    case_id = desk.runs.run_store.case(blame.plan.run_id, blame.plan.case_index).id
    headline, rest = _headline(blame, sum(each.counts.done for each in forks))
    lines = [f"{case_id}, trial {blame.plan.trial_index + 1}: {', '.join(filter(None, (headline, rest)))}"]
    if blame.answer and not blame.is_live:
        counts = _live_counts(blame, forks)
        lines += [f"  before turn {turn}: {each.words} pass" for turn, each in enumerate(counts, 1) if each.n]
    is_unknown = any(each.is_cost_unknown for each in forks)
    money = "cost unknown" if is_unknown else cost_words(sum(each.cost for each in forks))
    return [*lines, f"  {sum(each.counts.done for each in forks):,} forks, {money}"]


def plan_lines(batch_plan: PlannedBlame) -> list[str]:
    """The plan as lines of text, before anything is played."""
    cost = batch_plan.most_cost
    money = "cost unknown" if cost is None else f"about {cost_words(cost)}"
    if len(batch_plan.plans) == 1:
        lines = [plan_words(batch_plan.plans[0])]
    else:
        lines = [f"{len(batch_plan.plans):,} failed trials, at most {batch_plan.n_forks:,} forks together, {money}"]
    if batch_plan.real_tools:
        lines.append(f"Tools that run for real: {', '.join(batch_plan.real_tools)}")
    lines += batch_plan.notes
    lines += [
        f"case {case + 1}, trial {at + 1} is left out: {reason}" for (case, at), reason in batch_plan.refusals[:5]
    ]
    return lines

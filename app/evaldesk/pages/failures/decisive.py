"""The decisive turns of the failed trials of a run, counted by agent, tool and kind of failure."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.blame.planning import BlameRequest, PlannedBlame
from evaldesk.desk.desk import Desk
from evaldesk.errors import ConflictError, EvaldeskError, UsageError
from evaldesk.model.blame import Blame
from evaldesk.model.decisive_turn import FINDINGS
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.model.transcript import TurnRecord
from evaldesk.pages.blame import FIX_FIELDS, FixPanel, plan_lines, read_fix_panel
from evaldesk.pages.runs.view import trial_href
from evaldesk.wording.blame import answer_sentence, state_words

MOST_ROWS = 200
"""Searches that are listed, and whose turns are read for the counts."""


@dataclass(frozen=True, slots=True)
class SearchRow:
    """One search: its trial, and its answer or its state in words."""

    href: str
    name: str
    words: str
    is_located: bool


@dataclass(frozen=True, slots=True)
class DecisiveTurns:
    """The searches of a run. `counts` are decisive turns by agent, tool and kind of failure, most frequent first.

    A turn with calls of two tools counts for both; a trial without a named kind counts by its signature.
    `findings` are the numbers of answers by their words.
    """

    rows: Sequence[SearchRow]
    counts: Sequence[tuple[str, Sequence[tuple[str, int]]]]
    findings: Sequence[tuple[str, int]]
    n_live: int
    n_more: int

    @property
    def sentence(self) -> str:
        """The answers in one line, such as "2 located, 1 not located"."""
        return ", ".join(f"{n:,} {finding}" for finding, n in self.findings) or "none yet"


@dataclass(frozen=True, slots=True)
class RunBlame:
    """The page of a run: its searches, and the plan of those of its other failed trials, or why there is none."""

    run: RunSummary
    turns: DecisiveTurns
    request: BlameRequest
    batch_plan: PlannedBlame | None
    problem: str
    fix: FixPanel | None = None

    @property
    def is_live(self) -> bool:
        """Whether something on the page goes on."""
        return bool(self.turns.n_live or (self.fix and self.fix.is_live))

    @property
    def plan_lines(self) -> Sequence[str]:
        """The plan, before anything is played."""
        return plan_lines(self.batch_plan) if self.batch_plan else ()


async def run_blame_page(
    desk: Desk, run_id: int, request: BlameRequest | None = None, problem: EvaldeskError | None = None
) -> RunBlame:
    """The page of the searches of a run. Raises NotFoundError."""
    request = request or BlameRequest()
    run = await desk.runs.summary(run_id)
    batch_plan = None
    try:
        batch_plan = await desk.blames.plan_run(run_id, request)
    except (ConflictError, UsageError) as error:
        problem = problem or error
    turns = await asyncio.to_thread(read_decisive_turns, desk, run_id)
    fix_problem = str(problem) if isinstance(problem, UsageError) and problem.field in FIX_FIELDS else ""
    fix = await read_fix_panel(desk, run_id, None, fix_problem)
    return RunBlame(run, turns, request, batch_plan, "" if fix_problem else str(problem or ""), fix)


def read_decisive_turns(desk: Desk, run_id: int) -> DecisiveTurns:
    """The newest search of each trial of a run. Raises NotFoundError."""
    newest: dict[tuple[int, int], Blame] = {}
    for each in desk.store.blames.of_run(run_id):
        if each.is_live or each.answer or each.plan.key not in newest:
            newest[each.plan.key] = each
    blames = list(newest.values())[:MOST_ROWS]
    runs = desk.runs.run_store
    modes_of: defaultdict[TrialKey, set[int]] = defaultdict(set)
    for reading in desk.store.failures.readings(run_id):
        modes_of[reading.case_index, reading.trial_index].update(reading.modes)
    modes = {mode.id: mode.name for mode in desk.store.failures.modes()}
    case_ids = [case_id for case_id, _ in desk.store.failures.verdicts(run_id)]
    agents: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    rows = []
    for blame in blames:
        case_index, trial_index = blame.plan.key
        answer = None if blame.is_live else blame.answer
        if answer:
            findings[answer.finding] += 1
        if answer and answer.finding == "located" and answer.turn:
            turns, _ = runs.turns(run_id, case_index, trial_index)
            record = turns.read_turns(answer.turn - 1, answer.turn)[0].record
            agents.update(_agents_of(record))
            tools.update({call.name for call in record.tool_calls} if record else ())
            names = {modes[mode_id] for mode_id in modes_of[blame.plan.key] if mode_id in modes}
            kinds.update(names or {blame.plan.signature_words or "no name yet"})
        rows.append(
            SearchRow(
                f"{trial_href(run_id, blame.plan.key)}/blame",
                f"{case_ids[case_index] if case_index < len(case_ids) else ''}, trial {trial_index + 1}",
                answer_sentence(answer) if answer else state_words(blame, 0),
                bool(answer and answer.finding == "located"),
            )
        )
    counts = [
        (name, counter.most_common())
        for name, counter in (("agent", agents), ("tool", tools), ("kind of failure", kinds))
        if counter
    ]
    return DecisiveTurns(
        rows,
        counts,
        [(finding, findings[finding]) for finding in FINDINGS if findings[finding]],
        sum(each.is_live for each in newest.values()),
        len(newest) - len(blames),
    )


def _agents_of(record: TurnRecord | None) -> set[str]:
    """The agents of a tree that called or answered in the turn; none where no agent is named."""
    events = record.events if record else ()
    return {
        each.author
        for each in events
        if each.author and each.kind in ("tool_call", "agent_message") and not each.within
    }

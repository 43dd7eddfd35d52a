"""Forks of a trial for a page and a command: the plan before they are played, and the branches of a trial."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaldesk.errors import NAME_LIMIT, TEXT_LIMIT, EvaldeskError, NotFoundError, TrustError, UsageError
from evaldesk.model import TurnRecord
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import PROVENANCE
from evaldesk.model.fork import Edit, Fork, ForkPart, ForkPoint, model_calls_of
from evaldesk.model.run import LIVE
from evaldesk.model.stored import EvalSetFile, RunSummary, TrialKey
from evaldesk.pages.runs.view import STATUS_OF, Square, trial_href
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.forks import (
    changed_sentence,
    cost_sentence,
    each_sentence,
    earlier_sentence,
    edits_words,
    tools_sentence,
)
from evaldesk.wording.words import passed_words

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk
    from evaldesk.desk.forks.keeping import CaseOfFork, KeptCase
    from evaldesk.desk.forks.plan import ForkPlan


def plan_sentences(plan: ForkPlan) -> Sequence[str]:
    """The facts that a person reads before a fork is played: cost, tools, changes and earlier runs of the same fork."""
    return [cost_sentence(plan.fork.n, plan.n_turns_left, plan.cost_each, plan.n_earlier), *_facts_of(plan)]


def form_sentences(plan: ForkPlan) -> Sequence[str]:
    """The same beside a form, whose number of trials may be changed after it was drawn: cost of each trial."""
    return [each_sentence(plan.n_turns_left, plan.cost_each, plan.n_earlier), *_facts_of(plan)]


def _facts_of(plan: ForkPlan) -> Sequence[str]:
    earlier = plan.earlier
    n_passed, n_scored = sum(run.n_passed for run in earlier), sum(run.counts.scored for run in earlier)
    sentences = [
        tools_sentence(plan.real_tools, plan.doubled_tools),
        _restored_sentence(plan.part),
        changed_sentence(plan.parent.id) if plan.is_agent_changed else "",
        earlier_sentence([run.id for run in earlier], n_passed, n_scored),
        *plan.notes,
    ]
    return [sentence for sentence in sentences if sentence]


def _restored_sentence(part: ForkPart) -> str:
    n, n_calls = part.n_prefix_turns, part.n_prefix_calls
    if n_calls:
        calls = "Its first model call is" if n_calls == 1 else f"Its first {n_calls:,} model calls are"
        return (
            f"Turn {part.point.turn} begins again, after {counted(n, 'pinned turn')}. {calls} answered from the "
            "recording, with the results of its tools; where the agent asks otherwise, the fork ends with "
            "prefix_diverged."
        )
    if not n:
        return "The session begins anew: nothing comes before turn 1."
    turns = "The turn before the point is" if n == 1 else f"The {n:,} turns before the point are"
    return f"{turns} pinned: taken from the record, not played again."


def plan_object(plan: ForkPlan) -> dict[str, Any]:
    """The plan of a fork as JSON."""
    part = plan.part
    return {
        "parent": _point_object(part),
        "edits": [_edit_object(edit) for edit in part.edits],
        "then": part.then,
        "n": plan.fork.n,
        "restored": plan.restored,
        "n_prefix_turns": part.n_prefix_turns,
        "n_turns_left": plan.n_turns_left,
        "cost_each": plan.cost_each,
        "cost": plan.cost,
        "n_earlier_trials": plan.n_earlier,
        "real_tools": list(plan.real_tools),
        "doubled_tools": list(plan.doubled_tools),
        "agent_changed": plan.is_agent_changed,
        "fingerprint": part.fingerprint,
        "earlier_runs": [run.id for run in plan.earlier],
        "notes": list(plan.notes),
    }


def fork_object(run: RunSummary) -> dict[str, Any]:
    """A fork that was played as JSON."""
    counts = run.counts
    return {
        "run": run.id,
        "status": run.status,
        "n": counts.planned,
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "unscored": counts.unscored,
        "cost": run.cost,
        "page": f"/runs/{run.id}",
    }


def kept_object(source: CaseOfFork, added_case: KeptCase | None) -> dict[str, Any]:
    """A fork that was kept as a case, as JSON; `added_case` is None where it was only looked at."""
    return {
        "case": added_case.case_id if added_case else source.case.id,
        "evalset": added_case.set_name if added_case else None,
        "n_pinned": source.n_pinned,
        "n_turns": len(source.case.turns),
        "provenance": source.case.extra.get(PROVENANCE),
        "notes": [*source.notes, *([added_case.masking_note] if added_case and added_case.masking_note else [])],
    }


def _point_object(part: ForkPart) -> Mapping[str, int | None]:
    point = part.point
    return {
        "run": point.run_id,
        "case": point.case_index,
        "trial": point.trial_index + 1,
        "turn": point.turn,
        "call": point.call,
    }


def _edit_object(edit: Edit) -> dict[str, Any]:
    fields = {"text": edit.text, "name": edit.name, "call": edit.call, "value": edit.value, "error": edit.error}
    return {"kind": edit.kind} | {name: value for name, value in fields.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class Branch:
    """A fork of a trial on its page, with a square for each of its trials."""

    run: RunSummary
    part: ForkPart
    squares: Sequence[Square]

    @property
    def edits(self) -> str:
        """The edits in one line."""
        return edits_words(self.part)

    @property
    def passed(self) -> str:
        """`7 of 10 passed`."""
        return passed_words(self.run.counts.passed, self.run.counts.scored)


@dataclass(frozen=True, slots=True)
class RailTurn:
    """A turn of a trial with the branches that begin before it, and its recorded model calls after the first."""

    number: int
    query: str
    is_point: bool
    branches: Sequence[Branch]
    n_more: int
    calls: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """The form of a fork as a person typed it. `message` and `answer` None leave those of the trial."""

    turn: int
    n: str = "10"
    message: str | None = None
    answer: str | None = None
    state: str = ""
    runs_tools: bool | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class CaseRequest:
    """The form of a fork that becomes a case: its run, None for the point itself, the set and the name."""

    fork_id: int | None = None
    evalset_id: str = ""
    case_name: str = ""


@dataclass(frozen=True, slots=True)
class CaseForm:
    """A fork as a case before it is added. `problem` says why it cannot be."""

    request: CaseRequest
    sets: Sequence[EvalSetFile]
    sentences: Sequence[str] = ()
    proposed_name: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ForkView:
    """The forks of a trial, and the form of the next one. `problem` says why it cannot be played."""

    run: RunSummary
    key: TrialKey
    case_id: str
    href: str
    turns: Sequence[RailTurn]
    request: ForkRequest
    message: str
    answer: str
    sentences: Sequence[str]
    is_imported: bool
    problem: str = ""
    case_form: CaseForm | None = None

    @property
    def n_branches(self) -> int:
        """The branches that are shown."""
        return sum(len(turn.branches) for turn in self.turns)

    @property
    def place(self) -> str:
        """`turn 3`, or `call 2 of turn 3`."""
        call = f"call {self.request.call} of " if self.request.call else ""
        return f"{call}turn {self.request.turn}"

    @property
    def query(self) -> str:
        """The part of an address that names the point."""
        return f"turn={self.request.turn}" + (f"&call={self.request.call}" if self.request.call else "")

    @property
    def number(self) -> int:
        """The number of the trial, from 1."""
        return self.key[1] + 1

    @property
    def is_live(self) -> bool:
        """Whether a branch goes on."""
        return any(branch.run.status in LIVE for turn in self.turns for branch in turn.branches)


def fork_of(view_turns: Sequence[TurnRecord], run_id: int, key: TrialKey, request: ForkRequest) -> Fork:
    """The fork that a form asks for; texts that are those of the trial are no edits. Raises UsageError."""
    if not request.n.strip().isdecimal():
        raise UsageError(f"n is a number of trials, not {request.n[:NAME_LIMIT]!r}", field="n")
    at = request.turn - 1
    turn = view_turns[at] if 0 <= at < len(view_turns) else None
    before = view_turns[at - 1] if turn and at else None
    edits = []
    if turn and request.message is not None and request.message.strip() != turn.query.strip():
        edits.append(Edit("message", text=request.message))
    if (
        before
        and request.call is None
        and request.answer is not None
        and request.answer.strip() != before.answer.strip()
    ):
        edits.append(Edit("assistant", text=request.answer))
    if request.state.strip():
        try:
            patch = json.loads(request.state)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the state patch cannot be read as JSON: {error}", field="state") from error
        edits.append(Edit("state", value=patch))
    n = int(request.n.strip()[:MOST_DIGITS])
    point = ForkPoint(run_id, *key, request.turn, request.call)
    return Fork(point, tuple(edits), n, runs_tools=request.runs_tools)


MOST_DIGITS = 9


async def read_turns(desk: Desk, run_id: int, key: TrialKey) -> Sequence[TurnRecord]:
    """The turns of a trial that was played. Raises NotFoundError."""
    trial = await asyncio.to_thread(desk.store.runs.trial, run_id, *key)
    return trial.transcript.turns


async def fork_page(
    desk: Desk,
    run_id: int,
    key: TrialKey,
    request: ForkRequest,
    error: EvaldeskError | None = None,
    case_form: CaseForm | None = None,
) -> ForkView:
    """The branches of a trial, and the plan of the fork that `request` asks for. Raises NotFoundError."""
    run = await desk.runs.summary(run_id)
    turns = await read_turns(desk, run_id, key)
    case = await asyncio.to_thread(desk.store.runs.case, run_id, key[0])
    branches = await asyncio.to_thread(_branches, desk, run_id, key)
    problem, sentences = str(error or ""), list[str]()
    if not problem:
        try:
            sentences = [*form_sentences(await desk.forks.plan(fork_of(turns, run_id, key, request)))]
        except (UsageError, TrustError) as refusal:
            problem = str(refusal)
    is_recorded = run.config.recording.mode != "off" and not is_imported(run.config)
    at = request.turn - 1
    is_turn = 0 <= at < len(turns)
    message = request.message if request.message is not None else turns[at].query if is_turn else ""
    own_answer = turns[at - 1].answer if is_turn and at else ""
    return ForkView(
        run,
        key,
        case.id,
        trial_href(run_id, key),
        [
            RailTurn(
                number,
                turn.query[:TEXT_LIMIT],
                number == request.turn,
                branches.get(number, [])[-MOST_BRANCHES:],
                max(len(branches.get(number, [])) - MOST_BRANCHES, 0),
                range(2, min(model_calls_of(turn), MOST_CALLS) + 1) if is_recorded else (),
            )
            for number, turn in enumerate(turns, 1)
        ],
        request,
        message,
        request.answer if request.answer is not None else own_answer,
        sentences,
        is_imported(run.config),
        problem,
        case_form,
    )


async def case_of_request(
    desk: Desk, run_id: int, key: TrialKey, request: ForkRequest, fork_id: int | None
) -> CaseOfFork:
    """The fork of the form, or the branch `fork_id` of the trial, as a case. Raises UsageError, NotFoundError."""
    from evaldesk.desk.forks.keeping import case_of_fork, case_of_run

    if fork_id is None:
        return await case_of_fork(desk, fork_of(await read_turns(desk, run_id, key), run_id, key, request))
    branches = await asyncio.to_thread(desk.forks.of_trial, run_id, *key)
    if all(run.id != fork_id for run in branches):
        raise NotFoundError(f"run {fork_id} is not a fork of this trial")
    return await case_of_run(desk, fork_id)


async def read_case_form(
    desk: Desk,
    run_id: int,
    key: TrialKey,
    request: ForkRequest,
    case_request: CaseRequest,
    error: EvaldeskError | None = None,
) -> CaseForm:
    """The form of a fork that becomes a case, with the sets that can hold it. Raises NotFoundError."""
    files = await asyncio.to_thread(desk.evalsets.list)
    sets = [file for file in files if not file.error and not file.is_reading][:MOST_SETS]
    try:
        source = await case_of_request(desk, run_id, key, request, case_request.fork_id)
    except (UsageError, TrustError) as refusal:
        return CaseForm(case_request, sets, problem=str(error or refusal))
    return CaseForm(case_request, sets, (source.words, *source.notes), source.case.id, str(error or ""))


MOST_CALLS = 20
"""Model calls of a turn that a page offers as points."""
MOST_SETS = 500
MOST_BRANCHES = 10
"""Branches of one turn that a page shows, the newest."""
MOST_SQUARES = 50


def _branches(desk: Desk, run_id: int, key: TrialKey) -> dict[int, list[Branch]]:
    """The branches of a trial by the number of their turn, oldest first."""
    by_turn: dict[int, list[Branch]] = {}
    for run in desk.forks.of_trial(run_id, *key):
        part = run.config.fork
        if part is not None:
            (strip,) = desk.store.runs.strips(run.id, [0])
            squares = [
                Square(at + 1, STATUS_OF[letter], trial_href(run.id, (0, at)))
                for at, letter in enumerate(strip[:MOST_SQUARES])
            ]
            by_turn.setdefault(part.point.turn, []).append(Branch(run, part, squares))
    return by_turn

"""Forks of a trial for a page and a command: the plan before they are played, and the branches of a trial."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaldesk.errors import TEXT_LIMIT, EvaldeskError, NotFoundError, TrustError, UsageError
from evaldesk.model import JsonValue, TurnRecord
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import PROVENANCE
from evaldesk.model.fork import Edit, Fork, ForkPart, ForkPoint, Then, model_calls_of
from evaldesk.model.stored import EvalSetFile, RunSummary, TrialKey
from evaldesk.pages.fork_rail import RailBranch, read_branches
from evaldesk.pages.pair import pair_href
from evaldesk.pages.runs.view import trial_href
from evaldesk.run_options import BY_NAME
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.forks import changed_sentence, cost_sentence, each_sentence, earlier_sentence, tools_sentence
from evaldesk.wording.trial_text import call_text

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
        "parent": _point_object(part, plan.run.cases[0].id),
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


def _point_object(part: ForkPart, case_id: str) -> Mapping[str, int | str | None]:
    point = part.point
    return {
        "run": point.run_id,
        "case_id": case_id,
        "trial": point.trial_index + 1,
        "turn": point.turn,
        "call": point.call,
    }


def _edit_object(edit: Edit) -> dict[str, Any]:
    fields = {"text": edit.text, "name": edit.name, "call": edit.call, "value": edit.value, "error": edit.error}
    return {"kind": edit.kind} | {name: value for name, value in fields.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class RailTurn:
    """A turn of a trial with the branches that begin before it, and its recorded model calls after the first."""

    number: int
    query: str
    is_point: bool
    branches: Sequence[RailBranch]
    calls: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """The form of a fork as a person typed it. `message` and `answer` None leave those of the trial.

    `tool_call` is the number of a tool call of the turn before, from 1, and `result` its other result: JSON, or the
    text of an error. `insert` is a further turn before the point, `then` as in `Fork`, `free_message` its one message.
    """

    turn: int
    n: str = ""
    message: str | None = None
    answer: str | None = None
    state: str = ""
    runs_tools: bool | None = None
    call: int | None = None
    tool_call: int | None = None
    result: str = ""
    is_error: bool = False
    instruction: str = ""
    model: str = ""
    agent: str = ""
    insert: str = ""
    then: Then = "script"
    free_message: str = ""

    @property
    def n_words(self) -> str:
        """The trials that the form shows."""
        return self.n or str(USUAL_N)


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
    """The forks of a trial, and the form of the next one. `problem` says why it cannot be played.

    `tools` run for real where nobody asks for their recorded results, `tool_calls` are those of the turn before, with
    their arguments. `models` are those of the settings, `agents` those of the workspace. `has_user` tells whether a
    simulated user plays on.
    """

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
    tools: Sequence[str] = ()
    tool_calls: Sequence[str] = ()
    models: Sequence[str] = ()
    agents: Sequence[str] = ()
    has_user: bool = False
    earlier_queries: Sequence[str] = ()
    own_answer: str = ""

    @property
    def rail_words(self) -> str:
        """`6, from 4 turns`; `none yet` without a branch."""
        n_turns = sum(bool(turn.branches) for turn in self.turns)
        return f"{self.n_branches}, from {counted(n_turns, 'turn')}" if n_turns else "none yet"

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
        return any(branch.is_live for turn in self.turns for branch in turn.branches)


def fork_of(view_turns: Sequence[TurnRecord], run_id: int, key: TrialKey, request: ForkRequest) -> Fork:
    """The fork that a form asks for; texts that are those of the trial are no edits. Raises UsageError."""
    n = BY_NAME["n"].read(request.n) or USUAL_N
    at = request.turn - 1
    turn = view_turns[at] if 0 <= at < len(view_turns) else None
    before = view_turns[at - 1] if turn and at else None
    edits = []
    if request.insert.strip():
        edits.append(Edit("insert_turn", text=request.insert))
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
        edits.append(Edit("state", value=_json_of(request.state, "the state patch", "state")))
    if request.result.strip():
        edits.append(
            Edit("tool_result", call=request.tool_call, error=request.result)
            if request.is_error
            else Edit("tool_result", call=request.tool_call, value=_json_of(request.result, "the result", "result"))
        )
    if request.instruction.strip():
        edits.append(Edit("instruction", text=request.instruction))
    if request.model.strip():
        edits.append(Edit("model", name=request.model.strip()))
    if request.agent:
        edits.append(Edit("agent", name=request.agent))
    point = ForkPoint(run_id, *key, request.turn, request.call)
    message = request.free_message if request.then == "message" else ""
    return Fork(point, tuple(edits), n, request.then, message, runs_tools=request.runs_tools)


def _json_of(text: str, title: str, field: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{title} cannot be read as JSON: {error}", field=field) from error
    return value


USUAL_N = 10
"""Trials of a fork where nobody says a number."""


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
    branches = await asyncio.to_thread(read_branches, desk, run_id, key)
    problem, sentences, tools = str(error or ""), list[str](), tuple[str, ...]()
    if not problem:
        try:
            plan = await desk.forks.plan(fork_of(turns, run_id, key, request))
            sentences, tools = [*form_sentences(plan)], plan.real_tools or plan.doubled_tools
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
                branches.get(number, ()),
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
        tools,
        [call_text(call.name, call.args)[:TEXT_LIMIT] for call in turns[at - 1].tool_calls[:MOST_CALLS]]
        if is_turn and at
        else (),
        desk.agents.models,
        [agent.id for agent in desk.agents.list()][:MOST_AGENTS],
        case.scenario is not None,
        [turn.query for turn in turns[: max(at, 0)]],
        own_answer,
    )


def branch_pair(desk: Desk, run_id: int, key: TrialKey, run_ids: Sequence[int]) -> str:
    """The address of two branches of a trial side by side: of trials with opposite verdicts, where there are any.

    Raises UsageError for other than two, NotFoundError for a run that is no branch of the trial.
    """
    if len(run_ids) != 2:
        raise UsageError(f"tick two branches to see them side by side, not {len(run_ids)}", field="run")
    branches = {run.id for run in desk.forks.of_trial(run_id, *key)}
    for each in run_ids:
        if each not in branches:
            raise NotFoundError(f"run {each} is not a fork of this trial")
    strips = desk.store.forks.strips(run_ids)
    first, second = (strips[each] for each in run_ids)
    places = ((first.find(own), second.find(other)) for own, other in (("f", "p"), ("p", "f")))
    at, other_at = next(((at, other) for at, other in places if at >= 0 and other >= 0), (0, 0))
    return pair_href((run_ids[0], (0, at)), (run_ids[1], (0, other_at)))


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
MOST_AGENTS = 200

"""The next steps of a workspace: sentences with an address each, the most urgent first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.evalsets import own_evalsets
from evaldesk.desk.experiments.results import results
from evaldesk.desk.labels import Person
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.errors import TEXT_LIMIT, VALUE_LIMIT
from evaldesk.model.conclusion import counted
from evaldesk.model.failures import Mode
from evaldesk.model.stored import CaseFilter, EvalSetFile, RunSummary, SessionSummary
from evaldesk.pages.comparison import shortened
from evaldesk.pages.runs.listing import RunLine, run_line
from evaldesk.pages.runs.matrix import first_message
from evaldesk.pages.runs.view import trial_href
from evaldesk.store import Store
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.experiments import analysis_sentence
from evaldesk.wording.words import counted_words, passed_words

N_RUNS = 6
N_FIRST_RUNS = 3
N_KINDS = 5
N_GATES = 3
N_QUEUES = 5
N_CHATS = 20
N_EXPERIMENTS = 2
MOST_ANALYSED = 20_000
"""Trials of an experiment whose analysis the page computes."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something to do: a title and a sentence, and the button that leads there. `status` colours the icon."""

    title: str
    text: str
    button: str
    address: str
    icon: str
    status: str = ""


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One of the first steps of a newcomer; without an address it cannot be taken yet.

    The browser knows whether a page that says `mark` was opened, and ticks the step then.
    """

    title: str
    text: str
    address: str = ""
    is_done: bool = False
    mark: str = ""


@dataclass(frozen=True, slots=True)
class NextSteps:
    """The open tasks of a workspace, and the stored values that they were read from.

    The first steps go away with the first runs. `kinds` are the newest active kinds of failure.
    """

    first_steps: Sequence[FirstStep]
    steps: Sequence[Step]
    evalsets: Sequence[EvalSetFile]
    runs: Sequence[RunLine]
    n_runs: int
    kinds: Sequence[Mode]


def read_next_steps(desk: Desk, agents: Sequence[FoundAgent], since: datetime | None = None) -> NextSteps:
    """The next steps, with the experiments that ended after a time if one is given. Reads no trend and no history."""
    store, evalsets = desk.store, desk.evalsets.list()
    runs = store.runs.list(limit=N_RUNS)
    n_runs = sum(store.runs.counts_by_status().values())
    lines = [run_line(store.runs, run) for run in runs]
    chats = store.sessions.list(limit=N_CHATS)
    newest = next((chat for chat in chats if chat.n_turns), next(iter(chats), None))
    failure = _worst_of(store, runs)
    beginning = _of_beginning(agents, evalsets, newest, has_run=bool(runs))
    first = _first_steps(store, evalsets, beginning, newest, lines, failure) if n_runs <= N_FIRST_RUNS else ()
    is_saved = bool(first) and first[1].is_done
    modes = store.failures.modes()
    steps = [
        *_of_modes(modes),
        *_of_gates(lines),
        *(_of_experiments(store, runs, since) if since else ()),
        *_of_queues(store, desk.person),
        *_of_proposals(store),
        *_of_stopped(runs),
        *failure,
        *(_of_session(store, newest) if is_saved or not first else ()),
        *_of_broken(agents, evalsets),
        *(() if first else beginning.values()),
    ]
    kinds = [mode for mode in modes if mode.is_active][:N_KINDS]
    return NextSteps(first, steps, evalsets, lines, n_runs, kinds)


def _first_steps(
    store: Store,
    evalsets: Sequence[EvalSetFile],
    beginning: Mapping[str, Step],
    newest: SessionSummary | None,
    lines: Sequence[RunLine],
    failure: Sequence[Step],
) -> tuple[FirstStep, ...]:
    """The four steps of the README; none where no agent can be talked to and none was."""
    chatted = newest if newest and newest.n_turns else None
    if not (newest or lines or "chat" in beginning):
        return ()
    to_chat, to_run = beginning.get("chat"), beginning.get("run")
    last_case = store.sessions.last_case()
    names = {evalset.id: evalset.name for evalset in evalsets}
    return (
        FirstStep(
            "Chat with an agent",
            f"{chatted.agent_id}, {_turns(chatted)}" if chatted else to_chat.title if to_chat else "Type a message",
            to_chat.address if to_chat else f"/sessions/{newest.id}" if newest else "/sessions/new",
            bool(chatted or last_case),
        ),
        FirstStep(
            "Save it as a case",
            " in ".join(filter(None, (last_case[1], names.get(last_case[0]))))
            if last_case
            else "Press “Add current session”",
            f"/sessions/{chatted.id}/case" if chatted else "",
            last_case is not None,
        ),
        FirstStep(
            "Run it 5 times",
            _how_it_went(lines[0]) if lines else "It continues in the background",
            to_run.address if to_run else "",
            bool(lines),
        ),
        FirstStep(
            "Open a red square",
            "Expected and actual, with the first divergence",
            failure[0].address if failure else "",
            mark="failure",
        ),
    )


def _how_it_went(run: RunLine) -> str:
    counts = run.summary.counts
    return passed_words(counts.passed, counts.scored) if counts.scored else run.status_word


def _turns(session: SessionSummary) -> str:
    return counted(session.n_turns, "turn")


def _of_modes(modes: Sequence[Mode]) -> list[Step]:
    """Kinds of failure that were fixed and seen again."""
    return [
        Step(
            f"“{mode.name}” was reopened",
            f"Fixed in run {mode.fixed_in}, seen again in run {mode.reopened_in}.",
            "Show the failure",
            f"/failures/{mode.id}",
            "failed",
            "failed",
        )
        for mode in modes
        if mode.is_active and mode.life == "reopened"
    ]


def _of_proposals(store: Store) -> list[Step]:
    """The open proposals of coding agents."""
    proposals = store.client_proposals.list()
    if not proposals:
        return []
    clients = ", ".join(dict.fromkeys(each.client for each in proposals))
    title = f"{counted(len(proposals), 'proposal')} by {clients[:VALUE_LIMIT]}"
    return [Step(title, "Nothing of it counts before you accept it.", "Look at them", "/proposals", "chat")]


def _of_gates(lines: Sequence[RunLine]) -> list[Step]:
    """The newest run of each agent and set whose gates failed."""
    newest: dict[tuple[str, str], RunLine] = {}
    for line in lines:
        if line.conclusion is not None:
            newest.setdefault((line.summary.config.evalset_id, line.summary.config.agent.id), line)
    failed_gates = [(line, gate) for line in newest.values() for gate in line.gates if gate.word == "failed"]
    first = {line.summary.id: (line, gate) for line, gate in reversed(failed_gates)}
    return [
        Step(
            f"A gate failed: {run_title(line.summary)}",
            f"{gate.sentence[:1].upper()}{gate.sentence[1:]}.",
            "Open run",
            f"/runs/{line.summary.id}",
            "failed",
            "failed",
        )
        for line, gate in reversed(first.values())
    ][:N_GATES]


def _of_experiments(store: Store, runs: Sequence[RunSummary], since: datetime) -> list[Step]:
    """The newest experiments that ended after a time, with their answer where it is computed soon."""
    new_runs = [run for run in runs if run.finished_at and run.finished_at > since]
    ids = dict.fromkeys(run.config.experiment.experiment_id for run in new_runs if run.config.experiment)
    steps = []
    for experiment_id in [*ids][:N_EXPERIMENTS]:
        experiment = store.experiments.get(experiment_id)
        variants = store.runs.summaries(experiment.run_ids)
        if any(run.status != "finished" for run in variants):
            continue
        is_small = sum(run.n_trials for run in variants) <= MOST_ANALYSED
        answer = analysis_sentence(results(store, experiment_id).analysis) if is_small else experiment.plan.name
        steps.append(
            Step(
                f"Experiment {experiment_id} is done",
                f"{answer[:TEXT_LIMIT]}.",
                "Compare",
                f"/experiments/{experiment_id}",
                "compare",
            )
        )
    return steps


def _of_queues(store: Store, person: Person) -> list[Step]:
    """The review queues that the person has begun, or drew, and not read to their end."""
    reader = person.name() or "reader"
    open_queues = [
        each
        for each in store.queues.list(reader, limit=N_QUEUES)
        if each.n_read < each.n and (each.n_read or each.queue.author in ("", reader))
    ]
    return [
        Step(
            f"{counted(each.n - each.n_read, 'trial')} to read in queue {each.queue.id}",
            f"{each.n_read:,} of {each.n:,} read, of {_runs_words(each.queue.run_ids)}.",
            "Read on" if each.n_read else "Read",
            f"/queues/{each.queue.id}",
            "label",
        )
        for each in open_queues
    ]


def _runs_words(run_ids: Sequence[int]) -> str:
    return f"run{'s' if len(run_ids) > 1 else ''} {', '.join(map(str, run_ids[:N_RUNS]))}"


def _of_stopped(runs: Sequence[RunSummary]) -> list[Step]:
    """The newest run that stopped half-way."""
    stopped_run = next((run for run in runs if run.status == "stopped" and run.n_todo), None)
    if stopped_run is None:
        return []
    text = f"{counted_words(stopped_run.n_done, stopped_run.n_trials, 'trial')} stored; Resume plays the rest."
    return [Step(f"Run {stopped_run.id} is stopped", text, "Open run", f"/runs/{stopped_run.id}", "pause")]


def _worst_of(store: Store, runs: Sequence[RunSummary]) -> list[Step]:
    """The worst case of the newest run that has failures."""
    run = next((run for run in runs if run.counts.failed or run.counts.errored), None)
    if run is None:
        return []
    only: CaseFilter = "failed" if run.counts.failed else "errored"
    row = next(iter(store.runs.case_rows(run.id, sort="worst", only=only, limit=1)), None)
    if row is None:
        return []
    n = row.counts.failed if run.counts.failed else row.counts.errored
    message = first_message(store.runs, run.id, row)
    case_name = f"{row.case_id}, “{shortened(message)}”" if message else row.case_id
    return [
        Step(
            title=f"{case_name}: {counted_words(n, len(row.verdicts), 'trial')} {only}",
            text=f"Worst case of run {run.id}, agent {run.config.agent.id}.",
            button=_button(run),
            address=trial_href(run.id, (row.case_index, row.verdicts.find(only[0]))),
            icon="failed" if run.counts.failed else "warning",
            status=only,
        )
    ]


def _button(run: RunSummary) -> str:
    """An imported trial that failed has the reasons of its source, and perhaps no divergence."""
    if is_imported(run.config):
        return "Show the trial"
    return "Show first divergence" if run.counts.failed else "Show error"


def _of_session(store: Store, newest: SessionSummary | None) -> list[Step]:
    """The newest chat in which something was said, while it is in no eval set."""
    if newest is None or not newest.n_turns or store.sessions.has_case(newest.id):
        return []
    title = f"“{newest.title or 'Untitled'}” is not in an eval set yet"
    return [
        Step(
            title,
            f"A chat with {newest.agent_id}, {_turns(newest)}.",
            "Add session",
            f"/sessions/{newest.id}/case",
            "chat",
        )
    ]


def _of_broken(agents: Sequence[FoundAgent], evalsets: Sequence[EvalSetFile]) -> list[Step]:
    steps = [
        Step(f"{agent.id} cannot be loaded", agent.error.message, "Show trace", "/agents", "warning", "errored")
        for agent in agents
        if agent.error
    ]
    for evalset in evalsets:
        if evalset.error:
            title, address = f"{evalset.name} cannot be read", f"/evalsets/{evalset.id}"
            steps.append(Step(title, str(evalset.error), "Show error", address, "warning", "errored"))
    return steps


def _of_beginning(
    agents: Sequence[FoundAgent], evalsets: Sequence[EvalSetFile], newest: SessionSummary | None, *, has_run: bool
) -> dict[str, Step]:
    """The beginning in a new workspace: to chat with an agent, and to run an eval set."""
    steps = {}
    ready = next((agent for agent in agents if agent.state not in {"failed", "untrusted"}), None)
    if ready and newest is None:
        text = "Press “Add current session” to save a chat as a case."
        steps["chat"] = Step(f"Chat with {ready.name}", text, "Chat", f"/sessions/new?agent={ready.id}", "chat")
    cased = [evalset for evalset in evalsets if evalset.n_cases]
    filled = next(iter([*reversed(own_evalsets(cased, ready.id)), *cased]), None) if ready else None
    if ready and filled and not has_run:
        text = "Several trials per case show whether it passes every time. The run continues in the background."
        address = f"/runs/new?evalset={filled.id}&n=5"
        steps["run"] = Step(f"Run {filled.name} 5 times", text, "New run", address, "run")
    return steps

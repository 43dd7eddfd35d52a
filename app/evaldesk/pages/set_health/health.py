"""The health of an eval set for one agent: the findings of its file and of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.evalsets import own_evalsets
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.matching.case_facts import facts_of_case
from evaldesk.matching.case_version import version_keys
from evaldesk.model import AgentDescription, Case, EvalSet, TrialResult
from evaldesk.model.case_facts import CaseFacts
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import LargeCases, repeated_ids
from evaldesk.model.stored import EvalSetFile
from evaldesk.pages.case_list import asserts_nothing
from evaldesk.pages.set_health.coverage import (
    PassingTrial,
    ToolCoverage,
    asserted_keys,
    state_finding,
    state_keys,
    tool_coverage,
    tool_findings,
)
from evaldesk.pages.set_health.finding import Finding, in_order
from evaldesk.pages.set_health.texts import leak_finding, text_findings
from evaldesk.pages.set_health.trials import (
    CaseKeys,
    CaseWorth,
    case_trials,
    case_worths,
    missing_words,
    trial_findings,
)
from evaldesk.process_setup import gc_paused
from evaldesk.store.evalsets.large import is_data_set
from evaldesk.store.runs.set_outcomes import SetRun

OnProgress: TypeAlias = Callable[[int], None]
"""Is told the number of cases that were read."""
ReadTrial: TypeAlias = Callable[[int, int, int], TrialResult]
NO_DATA_SET = "the health of a file above 64 MiB is not computed; copy the cases that you work on to an eval set"
MOST_DOTS = 24
TOLD_EVERY = 1_000
"""Cases between two tellings of their number."""
MOST_TRIALS_READ = 200
"""Passing trials whose calls and states are read, one a case, of the newest runs."""


@dataclass(frozen=True, slots=True)
class SetHealth:
    """The health of a set; `tools` is empty and `agent_error` says why where the agent is not known."""

    n_cases: int
    agent_id: str
    agent_error: str = ""
    tools: tuple[ToolCoverage, ...] = ()
    case_ids: tuple[str, ...] = ()
    n_states: int = 0
    n_states_asserted: int = 0
    worths: tuple[CaseWorth, ...] = ()
    findings: tuple[Finding, ...] = ()
    run_ids: tuple[int, ...] = ()
    n_agents: int = 0
    missing: str = ""

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that ask for something."""
        return tuple(each for each in self.findings if not each.about.is_good)

    @property
    def n_tested(self) -> int:
        """Tools that are tested."""
        return sum(tool.is_tested for tool in self.tools)

    @property
    def arguments(self) -> tuple[int, int]:
        """Arguments that a case expects or a passing trial sent, and all."""
        states = [argument.state for tool in self.tools for argument in tool.arguments.values()]
        return len(states) - states.count("never"), len(states)

    @property
    def sentence(self) -> tuple[str, str]:
        """The answer of the page in two parts: the tools, and the worst finding."""
        if self.tools:
            are = "is" if self.n_tested == 1 else "are"
            first = f"{self.n_tested:,} of {counted(len(self.tools), 'tool')} {are} tested"
        else:
            first = f"{counted(self.n_cases, 'case')} read"
        worst = next((each for each in self.faults if not each.kind.startswith("untested")), None)
        if worst is None:
            return first, "nothing else to do" if not self.faults else ""
        return first, worst.title if worst.title[0].isdigit() else f"one {worst.title.lower()}"

    @property
    def n_dots(self) -> int:
        """The cases that the table of tools shows one by one, the first of the set."""
        return min(self.n_cases, MOST_DOTS)

    @property
    def basis(self) -> str:
        """`12 cases read; 30 runs of 6 agent versions`."""
        runs = f"{counted(len(self.run_ids), 'run')} of {counted(self.n_agents, 'agent version')}"
        return f"{counted(self.n_cases, 'case')} read; {runs if self.run_ids else 'no runs yet'}"


def read_health(
    desk: Desk, file: EvalSetFile, agent: FoundAgent | None, agent_id: str, on_progress: OnProgress = lambda _: None
) -> SetHealth:
    """The health of the set in a file for an agent with its description, which may be missing.

    Without an `agent_id` tools and runs are left out. Raises UsageError for a data set.
    """
    if is_data_set(file.size):
        raise UsageError(NO_DATA_SET, field="set")
    runs = desk.store.runs.set_runs(file.id, agent_id) if agent_id else []
    with gc_paused():  # 200,000 cases make a million objects that live until the end
        return health_of(
            desk.evalsets.evalset(file.id).cases,
            description=agent.description if agent else None,
            agent_id=agent_id,
            agent_error=_error_words(agent, agent_id),
            runs=runs,
            read_trial=desk.store.runs.trial,
            on_progress=on_progress,
        )


def _error_words(agent: FoundAgent | None, agent_id: str) -> str:
    """Why the tools of an agent are not known; empty where they are."""
    if agent is None:
        return f"no agent {agent_id!r} is here" if agent_id else "no agent was chosen"
    if agent.description is not None:
        return ""
    if agent.state == "untrusted":
        return "its folder is not trusted"
    return f"it does not load: {agent.error.message}" if agent.error else "it has not loaded yet"


def usual_agent_id(desk: Desk, evalset_id: str) -> str:
    """The agent of the newest run of a set; else the one that the set was made for, empty where none is known."""
    run = next(iter(desk.store.runs.list(evalset_id=evalset_id, limit=1)), None)
    if run is not None:
        return run.config.agent.id
    files = [file for file in desk.evalsets.list() if file.id == evalset_id]
    return next((agent.id for agent in desk.agents.list() if own_evalsets(files, agent.id)), "")


def passing_trials(keys: CaseKeys, runs: Sequence[SetRun], read_trial: ReadTrial) -> list[PassingTrial]:
    """The newest passing trial of each case, of at most MOST_TRIALS_READ cases."""
    newest: dict[str, tuple[int, int, int]] = {}
    for run in runs:
        for case_id, outcome in keys.of_run(run):
            if "p" in outcome.verdicts and case_id not in newest and len(newest) < MOST_TRIALS_READ:
                newest[case_id] = run.run_id, outcome.case_index, outcome.verdicts.index("p")
    trials = []
    for case_id, place in newest.items():
        try:
            turns = read_trial(*place).transcript.turns
        except EvaldeskError:  # its run was deleted meanwhile, or the page of the trial says why it cannot be read
            continue
        events = [event for turn in turns for event in turn.events]
        calls = tuple(event.call for event in events if event.kind == "tool_call" and event.call is not None)
        changed_keys = frozenset(
            change.key for event in events if event.kind == "state_delta" for change in event.changes
        )
        trials.append(PassingTrial(case_id, calls, changed_keys))
    return trials


def health_of(
    cases: Sequence[Case],
    *,
    description: AgentDescription | None = None,
    agent_id: str = "",
    agent_error: str = "",
    runs: Sequence[SetRun] = (),
    read_trial: ReadTrial | None = None,
    on_progress: OnProgress = lambda _: None,
) -> SetHealth:
    """The health of these cases by the newest `runs`; `read_trial` gives a stored trial.

    Of a large set only alike cases are read: its index has the facts of all.
    """
    facts = []
    for number, each in enumerate(
        cases.case_facts() if isinstance(cases, LargeCases) else map(facts_of_case, cases), 1
    ):
        facts.append(each)
        if number % TOLD_EVERY == 0:
            on_progress(number)
    keys = CaseKeys(version_keys(EvalSet("", cases=cases))) if runs else None
    ids = keys.ids if keys else [*cases.ids()] if isinstance(cases, LargeCases) else [case.id for case in cases]
    trials = case_trials(keys, runs) if keys else {}
    passing = passing_trials(keys, runs, read_trial) if keys and read_trial else []
    tools = tool_coverage(description, ids, facts, passing) if description else ()
    worths = case_worths(keys, runs, trials) if keys else []
    bare_ids = _ids_asserting_nothing(cases)
    bare = frozenset(bare_ids)
    states = state_keys(passing)
    repeats = repeated_ids(cases)
    findings = [
        *text_findings(cases, facts),
        leak_finding(ids, facts),
        *tool_findings(tools, ids),
        state_finding(ids, facts, passing),
        Finding("asserts_nothing", tuple(bare_ids), tuple(bare_ids)),
        Finding("repeated_ids", tuple(repeats), tuple(repeats)),
        *trial_findings(worths, trials.values(), lambda case_id: case_id not in bare),
    ]
    return SetHealth(
        n_cases=len(cases),
        agent_id=agent_id,
        agent_error=agent_error,
        tools=tools,
        case_ids=tuple(ids),
        n_states=len(states),
        n_states_asserted=len(states & asserted_keys(facts)) if states else 0,
        worths=tuple(worths),
        findings=in_order(findings),
        run_ids=tuple(run.run_id for run in runs),
        n_agents=len({run.agent for run in runs}),
        missing=missing_words(runs),
    )


def _facts_of(cases: Sequence[Case]) -> Iterator[CaseFacts]:
    return cases.case_facts() if isinstance(cases, LargeCases) else map(facts_of_case, cases)


def _ids_asserting_nothing(cases: Sequence[Case]) -> list[str]:
    if not isinstance(cases, LargeCases):
        return [case.id for case in cases if asserts_nothing(case)]
    groups = [group.number for group in cases.groups() if asserts_nothing(group.case)]
    return [*cases.ids(groups)] if groups else []

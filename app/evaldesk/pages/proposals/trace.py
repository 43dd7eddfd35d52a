"""The steps of a coding agent before a proposal: its runs, the changes of the agent's files between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from evaldesk.model.client_budget import MARK
from evaldesk.model.conclusion import counted
from evaldesk.model.proposals import Proposal, marked_client
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store
from evaldesk.wording.words import passed_words

WINDOW = timedelta(hours=24)
MAX_STEPS = 8
MAX_RUNS = 200


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step; `is_loud` where a person should look twice."""

    at: datetime
    words: str
    href: str = ""
    is_loud: bool = False


def steps_before(store: Store, proposal: Proposal, *, is_easier: bool) -> tuple[TraceStep, ...]:
    """The runs that the client of a proposal started on its eval set in the day before it, and the proposal itself.

    Between two of them the files of the agent may have changed. The last step says where a change of the test by which
    more trials pass, or fewer fail, has no change of the agent behind it, if there is a run and each one has the
    version of the files.
    """
    steps: list[TraceStep] = []
    versions_by_agent: dict[str, list[str]] = {}
    for run in _runs_of(store, proposal):
        agent_id, version = run.config.agent.id, run.config.agent_version
        versions = versions_by_agent.setdefault(agent_id, [])
        if not versions:
            versions.append(_version_before(store, run) or version)
        if version and versions[-1] and version != versions[-1]:
            verb = "changed back" if version in versions else "changed"
            steps.append(TraceStep(run.created_at, f"{verb} the files of {agent_id}"))
        versions.append(version)
        steps.append(TraceStep(run.created_at, _played_words(store, run), f"/runs/{run.id}"))
    is_unchanged = [all(versions) and versions[0] == versions[-1] for versions in versions_by_agent.values()]
    is_loud = is_easier and bool(is_unchanged) and all(is_unchanged)
    words = "proposed this: no agent change stands behind it" if is_loud else "proposed this"
    return (*steps[-MAX_STEPS:], TraceStep(proposal.made_at, words, "", is_loud))


def _runs_of(store: Store, proposal: Proposal) -> Sequence[RunSummary]:
    """The oldest first."""
    newest_runs = store.runs.list(text=MARK, evalset_id=proposal.draft.evalset_id, limit=MAX_RUNS)
    return [
        run
        for run in reversed(newest_runs)
        if run.note == MARK
        and marked_client(run.started_by) in proposal.clients
        and proposal.made_at - WINDOW <= run.created_at <= proposal.made_at
    ]


def _version_before(store: Store, run: RunSummary) -> str:
    """The version of the agent's files in the run before; empty where that is not known."""
    runs = store.runs.list(agent_id=run.config.agent.id, evalset_id=run.config.evalset_id, before=run.id, limit=1)
    return runs[0].config.agent_version if runs else ""


def _played_words(store: Store, run: RunSummary) -> str:
    subject = counted(run.n_cases, "case")
    if run.n_cases == 1:
        subject = next(iter(store.runs.case_ids(run.id).values()), subject)
    counts = run.counts
    result = passed_words(counts.passed, counts.scored) if counts.scored else str(run.status)
    return f"played {subject} {counted(run.n_most, 'time')}: {result}"

"""The home page: changes since the last visit, running runs, the next steps, and a small trend of each set."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.desk import Desk
from evaldesk.model.failures import Mode
from evaldesk.model.run import LIVE
from evaldesk.model.stored import EvalSetFile, RunSummary
from evaldesk.pages.agents import errored_words
from evaldesk.pages.home_news import News, read_news
from evaldesk.pages.inbox_rates import has_scores
from evaldesk.pages.next_steps import FirstStep, Step, read_next_steps
from evaldesk.pages.runs.listing import RunLine
from evaldesk.pages.trend_sparks import Spark, newest_sparks, set_sparks

N_LIVE = 5


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """The newest runs that go on, the newest first, and whether one that a page shows ended since."""

    runs: Sequence[RunSummary]
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class Home:
    """Everything on the home page. The first steps go away with the first runs."""

    first_steps: Sequence[FirstStep]
    steps: Sequence[Step]
    agents: Sequence[FoundAgent]
    evalsets: Sequence[EvalSetFile]
    runs: Sequence[RunLine]
    n_runs: int
    errored: Mapping[str, str]
    """The number of its newest trials that errored, in words, by the id of the agent."""
    live: LiveRuns
    news: News | None
    """The changes since the last visit; None in a workspace of a newcomer."""
    is_visit_known: bool
    sparks: Mapping[str, Spark]
    """One small trend a set, by its id, the set that was run last first."""
    kinds: Sequence[Mode] = ()
    has_inbox_scores: bool = False
    """Whether a conversation of the last days was scored, so that the strip of live scoring with its alarm is shown."""

    @property
    def is_reading(self) -> bool:
        """Whether an eval set is being read, so that the page will say more."""
        return any(evalset.is_reading for evalset in self.evalsets)


def live_runs(desk: Desk, shown_ids: Collection[int] = ()) -> LiveRuns:
    """The runs that go on, for a page that shows those of `shown_ids`."""
    runs = [run for run in reversed(desk.store.runs.unfinished_runs()) if run.status in LIVE]
    return LiveRuns(runs[:N_LIVE], not {run.id for run in runs}.issuperset(shown_ids))


def home(
    desk: Desk, agents: Sequence[FoundAgent], since: datetime | None = None, *, is_visit_known: bool = False
) -> Home:
    """The home page of a workspace, with the changes since a time if one is given. Reads files and the database."""
    tasks = read_next_steps(desk, agents, since)
    first, evalsets, runs = tasks.first_steps, tasks.evalsets, tasks.runs
    sentences = ((agent.id, errored_words(desk.stored_runs, agent.id)) for agent in agents)
    errored = {agent_id: words for agent_id, words in sentences if not words.startswith("0 ")}
    news = None if first or not runs or since is None else read_news(desk, since, evalsets, desk.store.now())
    sparks = {spark.evalset_id: spark for spark in newest_sparks(set_sparks(desk, evalsets))} if runs else {}
    return Home(
        first,
        tasks.steps,
        agents,
        evalsets,
        runs,
        tasks.n_runs,
        errored,
        live_runs(desk),
        news,
        is_visit_known,
        sparks,
        tasks.kinds,
        since is not None and has_scores(desk),
    )

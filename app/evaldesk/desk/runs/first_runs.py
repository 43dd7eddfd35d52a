"""The seed of the first runs of a sample, with which a newcomer meets a failure to read.

The scripted demo model makes its mistakes by chance, and a run of one case may well have none. Until a run of the agent
has a failed trial, its seed is one with which a case fails and another one is flaky, as far as the mistakes of its
first messages tell that before it is played.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.demo_model.answering import read_name
from evaldesk.demo_model.mistakes import OVERLOADED, environment_share
from evaldesk.demo_model.script import mistake
from evaldesk.desk.runs.driver import trial_seed
from evaldesk.model import AgentDescription, Case, RunConfig
from evaldesk.store import Store

N_LOOKED_AT = 20
N_SEEDS = 200
BOTH = 3  # a case that fails, and one that is flaky
MAX_TRIALS = 60
"""More trials than these have a failure anyway."""


def first_seed(store: Store, config: RunConfig, cases: Sequence[Case], description: AgentDescription) -> int | None:
    """The seed of the run; None where any will do: no demo model answers, or a failure was seen."""
    model = config.model or (description.model or "").partition(" ")[0]
    if not model.startswith(DEMO_PREFIX) or len(cases) * config.n > MAX_TRIALS:
        return None
    earlier = store.runs.list(agent_id=config.agent.id, limit=N_LOOKED_AT)
    if any(run.counts.failed for run in earlier):
        return None
    try:
        share = read_name(model.removeprefix(DEMO_PREFIX)).share
    except ValueError:
        return None
    case_queries = tuple((case.id, tuple(turn.query for turn in case.turns)) for case in cases)
    tools = frozenset(tool.name for tool in description.tools)
    return _seed_of(case_queries, tools, config.n, environment_share(os.environ) if share is None else share)


@lru_cache(maxsize=32)
def _seed_of(
    case_queries: tuple[tuple[str, tuple[str, ...]], ...], tools: frozenset[str], n: int, share: float
) -> int | None:
    """The first of the seeds with the most to see; None where the model makes no mistake with any."""

    def worth_of(seed: int) -> int:
        trials = [
            [_mistakes(texts, tools, trial_seed(seed, case_id, index), share) for index in range(n)]
            for case_id, texts in case_queries
        ]
        if any(OVERLOADED in mistakes for case in trials for mistakes in case):
            return 0
        return _worth_of_failures([sum(map(bool, case)) for case in trials], n)

    best, most = None, 0
    for seed in range(1, N_SEEDS + 1):
        if (worth := worth_of(seed)) > most:
            best, most = seed, worth
        if most == BOTH:
            break
    return best


def _mistakes(texts: Sequence[str], tools: frozenset[str], seed: int, share: float) -> list[str]:
    mistakes = (mistake(texts[: at + 1], tools, seed=seed, share=share) for at in range(len(texts)))
    return [each for each in mistakes if each]


def _worth_of_failures(n_failed: Sequence[int], n: int) -> int:
    """The worth of a run by the failing trials of each case: a failing case counts, and a flaky one."""
    if sum(n_failed) * 2 > n * len(n_failed):
        return 0  # a newcomer is to see that most of it works
    return sum((any(each * 2 > n for each in n_failed), 2 * any(0 < each * 2 <= n for each in n_failed)))

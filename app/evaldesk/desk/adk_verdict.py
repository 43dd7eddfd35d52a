"""The verdict of ADK's `AgentEvaluator`, which pools the runs of a case, by its own rules. (reference/adk.md 2.4)

ADK reads a case differently where it asserts nothing: no expected calls are "no call may be made", and no reference is
the empty text. It leaves out turns that could not be judged, and pools the runs of a case into one mean for each
metric.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from evaldesk.desk.other_tools import READ_OTHERWISE, as_adk_hears, as_adk_reads, decides
from evaldesk.errors import REASON_LIMIT
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, Score, TrialResult
from evaldesk.model.conclusion import counted

ROUND = ".4g"


class CaseTrials(Protocol):
    """A case with its trials that were played, of `n_planned`."""

    @property
    def case(self) -> Case:
        """The case as it was run."""

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """The trials that were played, in order."""

    @property
    def n_planned(self) -> int:
        """The trials that there were to play."""


@dataclass(frozen=True, slots=True)
class PooledScore:
    """A metric over all turns of all runs of a case; `mean` is None when no turn could be judged."""

    metric: str
    threshold: float
    mean: float | None
    n_turns: int
    n_missing: int
    is_passed: bool

    def sentence(self, n_runs: int) -> str:
        """The metric's value and status in words."""
        runs = counted(n_runs, "run")
        if self.mean is None:
            return f"{self.metric} could not judge any turn of {runs}; its threshold {self.threshold:g} was not checked"
        word = "reaches" if self.is_passed else "does not reach"
        turns = counted(self.n_turns, "turn")
        return f"{self.metric}: the mean {self.mean:{ROUND}} over {turns} of {runs} {word} {self.threshold:g}"


def pooled_scores(case: CaseTrials, criteria: Sequence[Criterion]) -> list[PooledScore]:
    """Each metric that decides, over the trials that did not break off."""
    trials = [trial for trial in case.trials if trial.error is None]
    return [_pool_score(case.case, trials, each, each.threshold) for each in criteria if each.threshold is not None]


def adk_failures(case: CaseTrials, criteria: Sequence[Criterion]) -> list[str]:
    """Why ADK's `AgentEvaluator` would fail the case; empty when it would pass it."""
    n_broken = case.n_planned - sum(trial.error is None for trial in case.trials)
    broken = [f"{n_broken} of {case.n_planned} runs broke off before they could be judged"] if n_broken else []
    if n_broken == case.n_planned:
        return broken
    failed = [each for each in pooled_scores(case, criteria) if not each.is_passed]
    reasons = [each.sentence(case.n_planned) for each in failed]
    is_unasserted = any(turn.expected.reference is None for turn in case.case.turns)
    if is_unasserted and any(each.metric == "response_match_score" for each in failed):
        reasons.append("ADK scores a turn without a reference answer 0")
    return broken + reasons


def pooled_failure(case: CaseTrials, criteria: Sequence[Criterion]) -> str:
    """Why ADK's `AgentEvaluator` would fail the case, by the metrics that it knows; empty where it would pass it."""
    tool_criteria = [each for each in criteria if decides("adk", each)]
    if not tool_criteria:
        return "no metric by which ADK decides"
    return "; ".join(adk_failures(case, tool_criteria))[:REASON_LIMIT]


def _pool_score(case: Case, trials: Sequence[TrialResult], criterion: Criterion, threshold: float) -> PooledScore:
    scores = [score for trial in trials for score in _adk_scores(case, trial, criterion)]
    values = [score.value for score in scores if score.value is not None]
    mean = statistics.mean(values) if values else None
    is_passed = mean is not None and (mean >= threshold if _is_higher_better(scores, threshold) else mean <= threshold)
    return PooledScore(criterion.metric, threshold, mean, len(scores), len(scores) - len(values), is_passed)


def _adk_scores(case: Case, trial: TrialResult, criterion: Criterion) -> Iterator[Score]:
    """The scores of the turns, or the one of the trial where the metric judges it as a whole."""
    scores: Sequence[Score] = [score for score in trial.scores if score.metric == criterion.metric]
    if criterion.metric in READ_OTHERWISE and not any(score.error for score in scores):
        scores = score_trial(as_adk_hears(trial.transcript), as_adk_reads(case), [criterion])
    turns = [score for score in scores if score.turn is not None and score.is_applicable]
    yield from turns or scores


def _is_higher_better(scores: Sequence[Score], threshold: float) -> bool:
    """Read off the scores, as ADK does; higher is better where they do not agree."""
    directions = {
        (score.value > threshold) == score.passed
        for score in scores
        if score.value is not None and score.value != threshold and score.passed is not None
    }
    return directions != {False}

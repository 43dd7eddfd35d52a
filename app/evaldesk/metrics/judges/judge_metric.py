"""The common parts of judged metrics: options, panel, a yes or no made of votes, a grade made of grades."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from evaldesk.errors import UsageError
from evaldesk.metrics.judges.judged_turns import Judgement, TurnView, judge_turns
from evaldesk.metrics.judges.options import MAX_SAMPLES, N_SAMPLES, read_options
from evaldesk.metrics.judges.panel import Panel, Task, problems, sample_rows
from evaldesk.metrics.judges.replies import Points, Rating, Validity, Verdict
from evaldesk.metrics.judges.voting import count, spread
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.model import Case, JsonValue, Score, Transcript, Turn

V = TypeVar("V", Validity, Verdict)
G = TypeVar("G", Rating, Points)

MAX_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMetric:
    """`judge_model` and `num_samples` are short for those of `judge_model_options`, and win over them.

    `more_judges` vote together with the judges named here.
    """

    judge_model: str = option(
        "", "model", "Judge", "The model that judges; the first of the allowed judges unless you choose."
    )
    more_judges: list[str] = option(
        [],
        "list",
        "More judges",
        "Allowed judges that are asked as well, one a line; all votes count together.",
        example="openai/gpt-4o-mini",
    )
    num_samples: int | None = option(
        None,
        "whole",
        "Samples",
        "How often each judge is asked, the majority counts; empty: as often as in ADK.",
        low=1,
        high=MAX_SAMPLES,
    )
    judge_model_options: dict[str, Any] = field(default_factory=dict)

    default_samples: ClassVar[int] = N_SAMPLES

    def __post_init__(self) -> None:
        if self.num_samples is not None and not 1 <= self.num_samples <= MAX_SAMPLES:
            raise UsageError(f"num_samples must be 1 to {MAX_SAMPLES}, got {self.num_samples}", field="num_samples")
        read_options(self.judge_model_options)

    def panel(self) -> Panel:
        """The judges, ready to be asked in the running event loop."""
        options_of_criterion = read_options(self.judge_model_options)
        n_samples = self.num_samples or options_of_criterion.num_samples
        judges = [*([self.judge_model] if self.judge_model else options_of_criterion.models), *self.more_judges]
        options = replace(options_of_criterion, judge_model="", judge_models=judges, num_samples=n_samples)
        return Panel.of(options, self.default_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnJudgeMetric(JudgeMetric):
    """A judgement of each turn, of those with a reference where the metric needs one; the trial has their mean."""

    info: ClassVar[MetricInfo]

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """A score for each turn that is judged, and one for the trial."""
        panel = self.panel()

        async def judge(view: TurnView) -> Judgement:
            return await self._judge(panel, view, case)

        def is_judged(turn: Turn) -> bool:
            return self._is_judged(turn, case)

        return await judge_turns(self.info.name, transcript, case, judge, is_asserted=is_judged, low=self.info.low)

    def _is_judged(self, turn: Turn, case: Case) -> bool:
        return self.info.needs != "reference" or turn.expected.reference is not None

    @abstractmethod
    async def _judge(self, panel: Panel, view: TurnView, case: Case) -> Judgement:
        """The panel's verdict on one turn."""


async def vote(panel: Panel, task: Task[V], sections: Mapping[str, str], words: tuple[str, str]) -> Judgement:
    """1 where most replies say yes; `words` name a yes and a no on the page."""
    samples = await panel.ask(task, sections)
    votes = count(sample.answer.vote if sample.answer else None for sample in samples)
    details: dict[str, JsonValue] = {
        **panel.record(task, samples),
        "votes": {words[0]: votes.n_yes, words[1]: votes.n_no},
        "samples": sample_rows(samples, lambda answer: (words[0] if answer.vote else words[1], answer.reasoning)),
    }
    if votes.value is None:
        return Judgement(None, problems(samples), details)
    reasons = [sample.answer.reasoning for sample in samples if sample.answer and sample.answer.vote == votes.value]
    word = words[0] if votes.value else words[1]
    return Judgement(votes.value, verdict_words(f"Judged {word} by {votes.words}", reasons), details)


async def grade(
    panel: Panel, task: Task[G], sections: Mapping[str, str], low: float, high: float, *, is_share: bool = True
) -> Judgement:
    """The mean of grades from `low` to `high`, by default as the share of the way; details have them as given."""
    samples = await panel.ask(task, sections)
    grades = [float(sample.answer.grade) for sample in samples if sample.answer]
    details = panel.record(task, samples)
    details["samples"] = sample_rows(samples, lambda answer: (f"{answer.grade:g}", answer.reasoning))
    if not grades:
        return Judgement(None, problems(samples), details)
    statistics = spread(grades)
    details["spread"] = {"mean": statistics.mean, "std": statistics.std, "low": statistics.low, "high": statistics.high}
    reasons = [sample.answer.reasoning for sample in samples if sample.answer]
    apart = (
        f", {statistics.low:g} to {statistics.high:g} in {len(grades)} samples"
        if statistics.low != statistics.high
        else ""
    )
    words = verdict_words(f"Graded {statistics.mean:.3g} of {high:g}{apart}", reasons)
    return Judgement((statistics.mean - low) / (high - low) if is_share else statistics.mean, words, details)


def verdict_words(verdict: str, reasons: Sequence[str]) -> str:
    """The verdict with the first reason that was given for it, as a sentence."""
    reason = " ".join(next(filter(None, reasons), "").split())
    if len(reason) > MAX_REASON:
        reason = f"{reason[:MAX_REASON]}…"
    text = f"{verdict}: {reason}" if reason else verdict
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."

"""The common parts of judged metrics: options, panel, and a yes or no made of votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from evaldesk.errors import UsageError
from evaldesk.metrics.judges.judged_turns import Judgement
from evaldesk.metrics.judges.options import MAX_SAMPLES, N_SAMPLES, read_options
from evaldesk.metrics.judges.panel import Panel, Task, kept, problems
from evaldesk.metrics.judges.replies import Rating, Validity, Verdict
from evaldesk.metrics.judges.voting import Spread, count, spread
from evaldesk.metrics.option import option
from evaldesk.model import JsonValue

V = TypeVar("V", Validity, Verdict)

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
        given = read_options(self.judge_model_options)
        n_samples = self.num_samples or given.num_samples
        judges = [*([self.judge_model] if self.judge_model else given.models), *self.more_judges]
        options = replace(given, judge_model="", judge_models=judges, num_samples=n_samples)
        return Panel.of(options, self.default_samples)


async def vote(panel: Panel, task: Task[V], sections: Mapping[str, str], words: tuple[str, str]) -> Judgement:
    """1 where most replies say yes; `words` name a yes and a no on the page."""
    samples = await panel.ask(task, sections)
    votes = count(sample.answer.vote if sample.answer else None for sample in samples)
    details: dict[str, JsonValue] = {
        **panel.record(task, samples),
        "votes": {words[0]: votes.n_yes, words[1]: votes.n_no},
        "samples": kept(samples, lambda answer: (words[0] if answer.vote else words[1], answer.reasoning)),
    }
    if votes.value is None:
        return Judgement(None, problems(samples), details)
    reasons = [sample.answer.reasoning for sample in samples if sample.answer and sample.answer.vote == votes.value]
    word = words[0] if votes.value else words[1]
    return Judgement(votes.value, verdict_words(f"Judged {word} by {votes.words}", reasons), details)


async def rate(panel: Panel, task: Task[Rating], sections: Mapping[str, str], *, is_share: bool) -> Judgement:
    """The mean of grades from 1 to 5; as a share of the way from 1 to 5 with `is_share`."""
    samples = await panel.ask(task, sections)
    ratings = [float(sample.answer.rating) for sample in samples if sample.answer]
    details = panel.record(task, samples)
    details["samples"] = kept(samples, lambda answer: (str(answer.rating), answer.reasoning))
    if not ratings:
        return Judgement(None, problems(samples), details)
    found = spread(ratings)
    details["spread"] = spread_details(found)
    reasons = [sample.answer.reasoning for sample in samples if sample.answer]
    value = (found.mean - 1) / 4 if is_share else found.mean
    return Judgement(
        value, verdict_words(f"Graded {found.mean:.2g} of 5{spread_words(found, len(ratings))}", reasons), details
    )


def spread_details(found: Spread) -> dict[str, JsonValue]:
    """The spread as it is kept."""
    return {"mean": found.mean, "std": found.std, "low": found.low, "high": found.high}


def spread_words(found: Spread, n: int) -> str:
    """How far the samples lie apart, in words; empty for one sample or where they agree."""
    return f", {found.low:g} to {found.high:g} in {n} samples" if found.low != found.high else ""


def verdict_words(verdict: str, reasons: Sequence[str]) -> str:
    """The verdict with the first reason that was given for it, as a sentence."""
    reason = " ".join(next(filter(None, reasons), "").split())
    if len(reason) > MAX_REASON:
        reason = f"{reason[:MAX_REASON]}…"
    text = f"{verdict}: {reason}" if reason else verdict
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."

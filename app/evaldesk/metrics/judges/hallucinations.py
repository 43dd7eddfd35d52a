"""`hallucinations_v1`: which sentences of an answer the conversation and the tool results bear out. (adk.md 2.3)

The sentences are cut here and numbered, so that a judge can leave none out; ADK asks a model to cut them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from evaldesk.errors import VALUE_LIMIT
from evaldesk.metrics.judges.judge_metric import TurnJudgeMetric, verdict_words
from evaldesk.metrics.judges.judged_turns import Judgement, TurnView
from evaldesk.metrics.judges.material import conversation_text, numbered, question_text, sentences_of, steps_text
from evaldesk.metrics.judges.panel import MAX_REPLY_CHARS, Panel, Sample, Task, problems, sample_rows
from evaldesk.metrics.judges.replies import ReplyError, Sentence, Sentences
from evaldesk.metrics.judges.voting import count, mean_of
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import part_of
from evaldesk.model import Case, JsonObject, JsonValue

GOOD = ("supported", "not_applicable")
_INSTRUCTION = """
SENTENCES are the numbered sentences of what an agent said. Label each by what CONTEXT shows, which is the \
conversation so far, the user's message, and the tool calls with their results:
supported: the context says it, or it follows from it. unsupported: the context does not say it. contradictory: the \
context says otherwise. disputed: the context speaks both for and against it. not_applicable: it states no fact, such \
as a greeting, a question, an offer or an opinion.
Label every number exactly once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hallucinations(TurnJudgeMetric):
    """Mean share of sentences that the conversation bears out, or that state nothing."""

    evaluate_intermediate_nl_responses: bool = option(
        False, "switch", "Messages on the way too", "Also judge the messages before the answer."
    )

    default_samples: ClassVar[int] = 1
    info: ClassVar[MetricInfo] = MetricInfo(
        "hallucinations_v1",
        "Nothing made up, judged",
        "Share of sentences that a judge finds borne out by the conversation and the tool results, as in ADK.",
        default_threshold=0.8,
        has_judge=True,
    )

    async def _judge(self, panel: Panel, view: TurnView, case: Case) -> Judgement:
        way = [text for _, text in view.record.intermediate] if self.evaluate_intermediate_nl_responses else []
        steps = [sentences for text in (*way, view.record.answer) if (sentences := sentences_of(text))]
        if not steps:
            return Judgement(0.0, "The agent gave no answer.")
        before = conversation_text(view.before, with_steps=True)
        context = f"{before}\nUser: {question_text(view.record)}\n{steps_text(view.record)}"
        judgements = [await _judge_step(panel, step, context) for step in steps]
        if len(judgements) == 1:
            return judgements[0]
        unread = next((step for step in judgements if step.value is None), None)
        worst = unread or min(judgements, key=lambda step: step.value or 0.0)
        value = None if unread else mean_of(step.value for step in judgements)
        reason = worst.reason if unread else f"Mean of {len(judgements)} messages; lowest: {worst.reason}"
        return Judgement(value, reason, _join_details([dict(step.details) for step in judgements]))


def _join_details(steps: Sequence[dict[str, Any]]) -> JsonObject:
    """The details of several messages as those of one."""
    lists = {name: [row for step in steps for row in step.get(name, ())] for name in ("sentences", "samples")}
    counts = {name: sum(step[name] for step in steps) for name in ("n_samples", "n_read")}
    return {**steps[0], **lists, **counts}


async def _judge_step(panel: Panel, sentences: Sequence[str], context: str) -> Judgement:
    def check(answer: Sentences) -> None:
        _labels(answer, len(sentences))

    task = Task(_INSTRUCTION, Sentences, check)
    samples = await panel.ask(task, {"CONTEXT": context, "SENTENCES": numbered(sentences)})
    labels_by_sample = [_labels(sample.answer, len(sentences)) for sample in samples if sample.answer]
    record = panel.record(task, samples)
    if not labels_by_sample:
        return Judgement(None, problems(samples), record | {"samples": sample_rows(samples, _label_words)})
    return _judgement(record, samples, sentences, labels_by_sample)


def _judgement(
    record: dict[str, JsonValue],
    samples: Sequence[Sample[Sentences]],
    sentences: Sequence[str],
    labels_by_sample: Sequence[Sequence[Sentence]],
) -> Judgement:
    values, rows, bad = [], [], []
    for index, text in enumerate(sentences):
        labels = [sample[index] for sample in labels_by_sample]
        votes = count(each.label in GOOD for each in labels)
        value = votes.value or 0.0
        label = next(each for each in labels if float(each.label in GOOD) == value)
        values.append(value)
        if not value:
            bad.append((text, label))
        row: dict[str, JsonValue] = {"sentence": text, "value": value, "label": label.label}
        rows.append(
            row | {"votes": {"good": votes.n_yes, "bad": votes.n_no}, "rationale": label.rationale[:MAX_REPLY_CHARS]}
        )
    details: dict[str, JsonValue] = record | {"sentences": [*rows], "samples": sample_rows(samples, _label_words)}
    n_good = len(sentences) - len(bad)
    verdict = part_of(n_good, len(sentences), "sentence", "is borne out", "are borne out")
    if bad:
        text, label = bad[0]
        verdict = verdict_words(f"{verdict}; {label.label}: “{text[:VALUE_LIMIT]}”", [label.rationale])
    else:
        verdict = f"{verdict}."
    return Judgement(mean_of(values), verdict, details)


def _labels(answer: Sentences, n: int) -> list[Sentence]:
    """The labels in order. Raises ReplyError unless each number from 1 to `n` is there once."""
    by_number = {each.number: each for each in answer.sentences}
    if sorted(each.number for each in answer.sentences) != list(range(1, n + 1)):
        raise ReplyError(f"it labels {len(by_number)} of {n} sentences, or others, or one twice")
    return [by_number[number] for number in range(1, n + 1)]


def _label_words(answer: Sentences) -> tuple[str, str]:
    return ", ".join(f"{each.number} {each.label}" for each in answer.sentences), ""

"""ADK's rubric metrics: of the answer, of the tool use, and of the whole dialogue. (reference/adk.md 2.3)"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from evaldesk.metrics.judges.judge_metric import JudgeMetric, TurnJudgeMetric, verdict_words
from evaldesk.metrics.judges.judged_turns import Judgement, TurnView, whole_score
from evaldesk.metrics.judges.material import (
    NOTHING,
    answer_text,
    conversation_text,
    earlier_section,
    question_text,
    steps_text,
)
from evaldesk.metrics.judges.panel import MAX_REPLY_CHARS, Panel, Sample, Task, problems, sample_rows
from evaldesk.metrics.judges.replies import Properties
from evaldesk.metrics.judges.rubrics.sources import Rubric, read_rubric, rubrics_for, verdicts_of
from evaldesk.metrics.judges.voting import by_rubric, mean_of
from evaldesk.metrics.metric import NOT_PLAYED, MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import part_of
from evaldesk.model import Case, JsonValue, Score, Transcript, Turn

_INSTRUCTION = """
RUBRICS lists properties, one a line, each with its id. Decide for each of them, apart from the others, whether {what} \
has the property. Say yes only where the data shows it; where it does not, or where the property has nothing to do \
with it, say no. Judge every rubric exactly once, by its id.
"""
NO_RUBRICS = "Neither the criterion nor the case names a rubric for this metric."
NO_RUBRICS_HERE = "No rubric for this metric is named for this turn."


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricMetric(TurnJudgeMetric):
    """The common parts of the rubric metrics. The value of a trial is the mean over all rubrics of all turns."""

    rubrics: list[Any] = option(
        [],
        "list",
        "Rubrics",
        "Properties to judge, one a line, beside those of the cases.",
        example="The answer is short.",
    )

    info: ClassVar[MetricInfo]
    kind: ClassVar[str]
    what: ClassVar[str]

    def __post_init__(self) -> None:
        JudgeMetric.__post_init__(self)
        parsed_rubrics = [read_rubric(raw, number) for number, raw in enumerate(self.rubrics, 1)]
        lines = [
            raw if isinstance(raw, str) else rubric.line
            for raw, rubric in zip(self.rubrics, parsed_rubrics, strict=True)
        ]
        object.__setattr__(self, "rubrics", lines)

    def missing(self, case: Case) -> str | None:
        """A case needs a rubric of the criterion, of its own or of one of its turns."""
        turns = case.turns or (None,)
        return None if any(rubrics_for(self.rubrics, case, turn, self.kind) for turn in turns) else NO_RUBRICS

    def missing_turn(self, case: Case, turn: Turn) -> str | None:
        """A turn needs a rubric of the criterion, of the case or of its own."""
        return None if rubrics_for(self.rubrics, case, turn, self.kind) else NO_RUBRICS_HERE

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """A score for each turn that has rubrics, and one for the trial."""
        *turns, trial_score = await TurnJudgeMetric.score(self, transcript, case)
        return [*turns, self._trial_score(turns, trial_score)]

    def _is_judged(self, turn: Turn, case: Case) -> bool:
        return self.missing_turn(case, turn) is None

    async def _judge(self, panel: Panel, view: TurnView, case: Case) -> Judgement:
        return await self._verdict(panel, rubrics_for(self.rubrics, case, view.turn, self.kind), self._sections(view))

    @abstractmethod
    def _sections(self, view: TurnView) -> Mapping[str, str]:
        """The material for a judge of a turn, by the name of its section."""

    def _trial_score(self, turns: Sequence[Score], trial_score: Score) -> Score:
        if not any(score.details.get("rubrics") for score in turns):
            return trial_score
        values: list[float | None] = []
        for score in turns:
            rows: Any = score.details.get("rubrics")
            values += [row["value"] for row in rows] if rows else [score.value]
        mean_score = whole_score(self.info.name, turns, values=values)
        return replace(mean_score, details={**mean_score.details, "n_rubrics": len(values)})

    async def _verdict(self, panel: Panel, rubrics: Sequence[Rubric], sections: Mapping[str, str]) -> Judgement:
        task = task_for(self.what, rubrics)
        samples = await panel.ask(task, {**sections, "RUBRICS": "\n".join(rubric.line for rubric in rubrics)})
        return _judgement(panel.record(task, samples), samples, rubrics)


def task_for(what: str, rubrics: Sequence[Rubric]) -> Task[Properties]:
    """The question about these rubrics."""

    def check(answer: Properties) -> None:
        verdicts_of(answer, rubrics)

    return Task(_INSTRUCTION.format(what=what), Properties, check)


def _judgement(
    record: dict[str, JsonValue], samples: Sequence[Sample[Properties]], rubrics: Sequence[Rubric]
) -> Judgement:
    verdicts_by_sample = [verdicts_of(sample.answer, rubrics) for sample in samples if sample.answer]
    votes = by_rubric([{name: verdict for name, (verdict, _) in verdicts.items()} for verdicts in verdicts_by_sample])
    rows: list[JsonValue] = []
    for rubric in rubrics:
        rubric_votes = votes.get(rubric.id)
        value = rubric_votes.value if rubric_votes else None
        rationale = next(
            (why for sample in verdicts_by_sample for verdict, why in [sample[rubric.id]] if verdict == value), ""
        )
        rows.append(
            {
                "id": rubric.id,
                "text": rubric.text,
                "value": value,
                "votes": {"yes": rubric_votes.n_yes, "no": rubric_votes.n_no} if rubric_votes else {},
                "rationale": rationale[:MAX_REPLY_CHARS],
            }
        )
    details = {**record, "rubrics": rows, "samples": sample_rows(samples, lambda answer: (_verdict_words(answer), ""))}
    values = [each.value for each in votes.values()]
    mean = mean_of(values)
    if mean is None:
        return Judgement(None, problems(samples), details)
    lacking = [rubric for rubric in rubrics if not votes[rubric.id].value]
    verdict = part_of(len(rubrics) - len(lacking), len(rubrics), "rubric", "is met", "are met")
    if not lacking:
        return Judgement(mean, f"{verdict}.", details)
    why = [why for sample in verdicts_by_sample for verdict_, why in [sample[lacking[0].id]] if not verdict_]
    return Judgement(mean, verdict_words(f"{verdict}; not {lacking[0].id}", why), details)


def _verdict_words(answer: Properties) -> str:
    return ", ".join(f"{each.id} {each.verdict}" for each in answer.rubrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricFinalResponse(RubricMetric):
    """Share of rubrics that the answers have."""

    include_intermediate_responses_in_final: bool = option(
        False, "switch", "With messages on the way", "Judge the messages before the answer together with it."
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "rubric_based_final_response_quality_v1",
        "Response rubrics",
        "Share of rubrics that a judge finds met by the answers, as in ADK.",
        default_threshold=0.8,
        has_judge=True,
    )
    kind: ClassVar[str] = "FINAL_RESPONSE_QUALITY"
    what: ClassVar[str] = "ANSWER, the agent's answer to QUESTION,"

    def _sections(self, view: TurnView) -> Mapping[str, str]:
        answer = answer_text(view.record, with_intermediate=self.include_intermediate_responses_in_final)
        return {
            "EARLIER CONVERSATION": conversation_text(view.before),
            "QUESTION": question_text(view.record),
            "TOOL CALLS": steps_text(view.record),
            "ANSWER": answer or NOTHING,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricToolUse(RubricMetric):
    """Share of rubrics that the tool calls have."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "rubric_based_tool_use_quality_v1",
        "Tool use rubrics",
        "Share of rubrics that a judge finds met by the tool calls, as in ADK.",
        has_judge=True,
        reads_calls=True,
    )
    kind: ClassVar[str] = "TOOL_USE_QUALITY"
    what: ClassVar[str] = "the agent's use of tools for QUESTION, in TOOL CALLS,"

    def _sections(self, view: TurnView) -> Mapping[str, str]:
        return {
            "EARLIER CONVERSATION": conversation_text(view.before),
            "QUESTION": question_text(view.record),
            "TOOL CALLS": steps_text(view.record),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricTrajectory(RubricMetric):
    """Share of rubrics that the whole dialogue has, judged once, at its last turn."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "rubric_based_multi_turn_trajectory_quality_v1",
        "Dialogue rubrics",
        "Share of rubrics that a judge finds met by the whole dialogue, as in ADK.",
        default_threshold=0.7,
        has_judge=True,
    )
    kind: ClassVar[str] = "TRAJECTORY_QUALITY"
    what: ClassVar[str] = "the agent's part in CONVERSATION, as a whole,"

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The score of the last turn, and that of the trial, which is the same."""
        last = len(transcript.turns) - 1
        if last < 0 or last + 1 < len(case.turns):
            return [Score(self.info.name, 0.0, reason=NOT_PLAYED)]
        turn = case.turns[-1] if case.turns else None
        rubrics = rubrics_for(self.rubrics, case, turn, self.kind)
        sections = earlier_section() | {"CONVERSATION": conversation_text(transcript.turns, with_steps=True)}
        judgement = await self._verdict(self.panel(), rubrics, sections)
        score = Score(self.info.name, judgement.value, last, reason=judgement.reason, details=judgement.details)
        return [score, whole_score(self.info.name, [score])]

    def missing(self, case: Case) -> str | None:
        """As for every rubric metric; only the rubrics of the last turn count."""
        last = replace(case, turns=case.turns[-1:])
        return RubricMetric.missing(self, last)

    def missing_turn(self, case: Case, turn: Turn) -> str | None:
        """The dialogue is judged as a whole: no turn lacks anything."""
        return None

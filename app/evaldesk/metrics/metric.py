"""A metric: its description, the table of all, and the scores of its turns.

A run names a metric once, or more than once with a label of its own each time: `tool_used/search`, `tool_used/book`.
The label is part of the name everywhere, so that the name alone identifies the metric.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar, Literal, Protocol, TypeAlias, cast

from evaldesk.errors import VALUE_LIMIT, NotFoundError, UsageError
from evaldesk.metrics.option import OptionInfo, option_infos
from evaldesk.model import Case, Criterion, Expected, JsonObject, Score, Transcript, TurnRecord
from evaldesk.model.visibility import Part
from evaldesk.registry import Registry

FUNCTION_OPTION = "function"

Need: TypeAlias = Literal[
    "tool_calls", "reference", "reference_json", "reference_number", "intermediate", "final_state", "nothing"
]


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """The description of a metric for people and forms. Scores lie in [low, high].

    `needs` is the assertion that a case must have; otherwise the metric is not applicable. `has_judge` means that a
    model judges, and costs. `required` are options without a usable default: a run without them is refused.
    `reads_calls`: it judges the tool calls also of a case that expects none; `reads_state`: the session state;
    `reads_tokens`: the agent's model calls and their tokens.
    """

    name: str
    title: str
    summary: str
    needs: Need = "nothing"
    low: float = 0.0
    high: float = 1.0
    is_higher_better: bool = True
    default_threshold: float | None = 1.0
    has_judge: bool = False
    required: tuple[str, ...] = ()
    reads_calls: bool = False
    reads_state: bool = False
    reads_tokens: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of an agent's work without which it says nothing true."""
        is_read: dict[Part, bool] = {
            "calls": self.reads_calls or self.needs == "tool_calls",
            "tokens": self.reads_tokens,
            "state": self.reads_state or self.needs == "final_state",
        }
        return tuple(part for part in is_read if is_read[part])

    def passes(self, value: float, threshold: float | None) -> bool | None:
        """Whether `value` reaches the threshold, which is inclusive; None without a threshold."""
        if threshold is None:
            return None
        return value >= threshold if self.is_higher_better else value <= threshold


class Metric(Protocol):
    """A way to score a trial.

    A metric with further needs than `info.needs` has a method `missing(case)`, too: the missing assertion, or
    None when the metric applies to it; and may have `missing_turn(case, turn)`, the same for one turn of such a case.
    """

    info: ClassVar[MetricInfo]

    def score(self, transcript: Transcript, case: Case) -> list[Score] | Awaitable[list[Score]]:
        """One score for the trial (`turn` None) and one for each turn that the metric judged."""
        ...


Judgement: TypeAlias = tuple[float, str, JsonObject]

NOT_PLAYED = "This turn was never played."


def score_turns(
    metric: str,
    transcript: Transcript,
    case: Case,
    is_asserted: Callable[[Expected], bool],
    judge: Callable[[Expected, TurnRecord], Judgement],
) -> list[Score]:
    """One score for each asserted turn, and their mean for the trial; a turn that was never played scores 0."""
    asserted = [(index, turn.expected) for index, turn in enumerate(case.turns) if is_asserted(turn.expected)]
    return score_records(metric, transcript, {index: partial(judge, expected) for index, expected in asserted})


def score_records(
    metric: str, transcript: Transcript, judges: Mapping[int, Callable[[TurnRecord], Judgement]]
) -> list[Score]:
    """One score for each turn in `judges`, by index, and their mean; an unplayed turn scores 0."""
    scores: list[Score] = []
    for index, judge in judges.items():
        is_played = index < len(transcript.turns)
        value, reason, details = judge(transcript.turns[index]) if is_played else (0.0, NOT_PLAYED, {})
        scores.append(Score(metric, value, index, reason=reason, details=details))
    return [*scores, whole_score(metric, scores)]


def has_calls(expected: Expected) -> bool:
    """Whether the turn says which tools should be called; none is an answer, too."""
    return expected.tool_calls is not None


def has_reference(expected: Expected) -> bool:
    """Whether the turn has a right answer."""
    return expected.reference is not None


def has_intermediate(expected: Expected) -> bool:
    """Whether the turn has expected intermediate responses; the empty list of ADK's old files asserts nothing."""
    return bool(expected.intermediate)


def mean(values: Sequence[float]) -> float:
    """The plain mean, added up from the left as ADK does: `sum` rounds otherwise from Python 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values)


def whole_score(metric: str, scores: Sequence[Score]) -> Score:
    """The mean of the scores of turns, with the lowest in its reason; unscored without any value."""
    values = [score.value for score in scores if score.value is not None]
    if not values:
        return Score(metric, reason="No turn of this case is asserted.")
    worst = scores[values.index(min(values))]
    reason = worst.reason
    if len(values) > 1:
        reason = f"Mean of {len(values)} turns"
        reason += f", all {values[0]:.2f}." if min(values) == max(values) else f"; lowest is {_turn_reason(worst)}"
    return Score(metric, mean(values), reason=reason, details={"n_turns": len(values)})


def _turn_reason(score: Score) -> str:
    return f"turn {(score.turn or 0) + 1} with {score.value:.2f}: {score.reason}"


METRICS = Registry(
    "metric",
    "evaldesk.metrics",
    {
        "tool_trajectory_avg_score": "evaldesk.metrics.tools.trajectory:ToolTrajectoryAvgScore",
        "response_match_score": "evaldesk.metrics.responses.rouge:ResponseMatchScore",
        "tool_exact": "evaldesk.metrics.tools.match:ToolExact",
        "tool_in_order": "evaldesk.metrics.tools.match:ToolInOrder",
        "tool_any_order": "evaldesk.metrics.tools.match:ToolAnyOrder",
        "tool_unordered": "evaldesk.metrics.tools.match:ToolUnordered",
        "tool_subset": "evaldesk.metrics.tools.match:ToolSubset",
        "tool_used": "evaldesk.metrics.tools.used:ToolUsed",
        "required_calls": "evaldesk.metrics.tools.required:RequiredCalls",
        "reported_value": "evaldesk.metrics.reported_value:ReportedValue",
        "tool_precision": "evaldesk.metrics.tools.match:ToolPrecision",
        "tool_recall": "evaldesk.metrics.tools.match:ToolRecall",
        "tool_f1": "evaldesk.metrics.tools.match:ToolF1",
        "intermediate_response_match": "evaldesk.metrics.responses.intermediate:IntermediateResponseMatch",
        "response_rouge_2": "evaldesk.metrics.responses.rouge:ResponseRouge2",
        "response_rouge_l": "evaldesk.metrics.responses.rouge:ResponseRougeL",
        "response_exact": "evaldesk.metrics.responses.text:ResponseExact",
        "response_contains": "evaldesk.metrics.responses.text:ResponseContains",
        "response_json": "evaldesk.metrics.responses.json_match:ResponseJson",
        "response_number": "evaldesk.metrics.responses.number:ResponseNumber",
        "response_regex": "evaldesk.metrics.responses.regex:ResponseRegex",
        "response_json_schema": "evaldesk.metrics.responses.json_schema:ResponseJsonSchema",
        "required_outputs": "evaldesk.metrics.responses.required_outputs:RequiredOutputs",
        "final_state_match": "evaldesk.metrics.state.final_state:FinalStateMatch",
        "decisions_asked": "evaldesk.metrics.decisions_asked:DecisionsAsked",
        "outcome": "evaldesk.metrics.outcome:Outcome",
        "state_path": "evaldesk.metrics.state.state_path:StatePath",
        "final_response_match_v2": "evaldesk.metrics.judges.final_response:FinalResponseMatch",
        "rubric_based_final_response_quality_v1": "evaldesk.metrics.judges.rubrics.quality:RubricFinalResponse",
        "rubric_based_tool_use_quality_v1": "evaldesk.metrics.judges.rubrics.quality:RubricToolUse",
        "rubric_based_multi_turn_trajectory_quality_v1": "evaldesk.metrics.judges.rubrics.quality:RubricTrajectory",
        "hallucinations_v1": "evaldesk.metrics.judges.hallucinations:Hallucinations",
        "safety_v1": "evaldesk.metrics.judges.verdicts:Safety",
        "response_evaluation_score": "evaldesk.metrics.judges.verdicts:ResponseEvaluation",
        "multi_turn_task_success_v1": "evaldesk.metrics.judges.dialogue:TaskSuccess",
        "multi_turn_trajectory_quality_v1": "evaldesk.metrics.judges.dialogue:TrajectoryQuality",
        "multi_turn_tool_use_quality_v1": "evaldesk.metrics.judges.dialogue:ToolUseQuality",
        "per_turn_user_simulator_quality_v1": "evaldesk.metrics.judges.user_simulator:UserSimulatorQuality",
        "rubric_score": "evaldesk.metrics.judges.rubrics.score:RubricScore",
        "failure_mode": "evaldesk.metrics.judges.failure_mode:FailureMode",
        "cost": "evaldesk.metrics.efficiency:Cost",
        "turn_count": "evaldesk.metrics.efficiency:TurnCount",
        "repeated_call_count": "evaldesk.metrics.efficiency:RepeatedCallCount",
        "tool_call_count_v1": "evaldesk.metrics.efficiency:ToolCallCount",
        "inference_call_count_v1": "evaldesk.metrics.efficiency:InferenceCallCount",
        "token_usage_v1": "evaldesk.metrics.efficiency:TokenUsage",
        "invocation_duration_v1": "evaldesk.metrics.efficiency:InvocationDuration",
    },
)

_LABEL = re.compile(r"[\w-]{1,40}")


def metric_info(name: str) -> MetricInfo:
    """The metric's description, its label in name and title. Raises NotFoundError, UsageError for the label."""
    info = metric_class(name).info
    label = metric_label(name)
    return replace(info, name=name, title=f"{info.title}: {label}") if label else info


def known_metric(metric: str) -> MetricInfo | None:
    """The description of a metric; None when it is gone, which must not break the page of a stored run."""
    try:
        return metric_info(metric)
    except Exception:  # a user's metric, which can no longer be imported
        return None


def is_higher_better(metric: str) -> bool:
    """Whether more is better; also of a metric that is gone."""
    info = known_metric(metric)
    return info is None or info.is_higher_better


def is_share(metric: str) -> bool:
    """Whether its scores lie between 0 and 1, so that differences are said in points; so of a metric that is gone."""
    info = known_metric(metric)
    return info is None or (info.low, info.high) == (0.0, 1.0)


def metric_options(name: str) -> tuple[OptionInfo, ...]:
    """The options of the metric as forms ask for them. Raises NotFoundError, UsageError for the label."""
    return option_infos(metric_class(name))


def metric_kind(name: str) -> str:
    """`tool_used` of `tool_used/search`; a name without a label as it stands."""
    # A label may follow a metric; a metric of a package may hold a slash: decision 016.
    return name if name in METRICS else name.partition("/")[0]


def metric_label(name: str) -> str:
    """`search` of `tool_used/search`; empty without a label."""
    return "" if name in METRICS else name.partition("/")[2]


def is_label(text: str) -> bool:
    """Whether `text` can stand behind the slash."""
    return _LABEL.fullmatch(text) is not None


def is_function(criterion: Criterion) -> bool:
    """Whether the criterion names a function of the user."""
    return FUNCTION_OPTION in criterion.options


def is_efficiency(criterion: Criterion) -> bool:
    """Whether the metric measures how much a trial took, and informs unless it is given a threshold."""
    if is_function(criterion) or not is_metric(criterion.metric):
        return False
    info = metric_info(criterion.metric)
    return info.default_threshold is None and not info.is_higher_better


def is_metric(name: str) -> bool:
    """Whether the name, with its label, is that of a metric of the table."""
    return name in METRICS or ("/" in name and metric_kind(name) in METRICS and is_label(metric_label(name)))


def metric_class(name: str) -> type[Metric]:
    """The metric that the name, with or without a label, stands for. Raises NotFoundError, UsageError."""
    # Only names of the table: a name that comes from a page must never reach an import.
    kind_name = metric_kind(name)
    if kind_name not in METRICS:
        unknown = NotFoundError.among("metric", name, METRICS)
        unknown.field = "metric"
        raise unknown
    if not is_metric(name):
        raise UsageError(
            f"{name[:VALUE_LIMIT]!r}: the label behind {kind_name}/ is 1 to 40 letters, digits, _ or -",
            field="metric",
        )
    return _load_metric(kind_name)


@cache
def _load_metric(name: str) -> type[Metric]:
    kind = METRICS.load(name)
    if not isinstance(getattr(kind, "info", None), MetricInfo) or not callable(getattr(kind, "score", None)):
        raise UsageError(f"{name} is not a metric: it needs `info`, a MetricInfo, and a method `score`")
    return cast("type[Metric]", kind)

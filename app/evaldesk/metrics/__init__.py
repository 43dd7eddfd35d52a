"""Metrics: ways to score a trial. A new one is a file here and a line in `METRICS`."""

from evaldesk.metrics.criteria import build_metric, check_criteria, unscored_reasons
from evaldesk.metrics.eval_function import FUNCTION_OPTION, function_options, is_function, load_function_of
from evaldesk.metrics.function_finding import check_function
from evaldesk.metrics.judges.rubrics import rubric_line
from evaldesk.metrics.metric import Metric, MetricInfo
from evaldesk.metrics.option import OptionInfo
from evaldesk.metrics.required_outputs import case_outputs
from evaldesk.metrics.rouge import preload, rouge1
from evaldesk.metrics.scoring import Grading, grade_trial, score_trial
from evaldesk.metrics.table import (
    METRICS,
    is_label,
    is_metric,
    metric_info,
    metric_kind,
    metric_label,
    metric_options,
)

__all__ = [
    "FUNCTION_OPTION",
    "METRICS",
    "Grading",
    "Metric",
    "MetricInfo",
    "OptionInfo",
    "build_metric",
    "case_outputs",
    "check_criteria",
    "check_function",
    "function_options",
    "grade_trial",
    "is_function",
    "is_label",
    "is_metric",
    "load_function_of",
    "metric_info",
    "metric_kind",
    "metric_label",
    "metric_options",
    "preload",
    "rouge1",
    "rubric_line",
    "score_trial",
    "unscored_reasons",
]

"""Metrics: ways to score a trial. A new one is a file here and a line in `METRICS`."""

from evaldesk.metrics.functions.eval_function import function_options, load_function_of
from evaldesk.metrics.functions.finding import check_function, check_source
from evaldesk.metrics.functions.import_guard import guard_imports
from evaldesk.metrics.functions.loading import use_copy
from evaldesk.metrics.judges.rubrics.sources import rubric_line
from evaldesk.metrics.metric import (
    FUNCTION_OPTION,
    METRICS,
    Metric,
    MetricInfo,
    is_function,
    is_higher_better,
    is_label,
    is_metric,
    is_share,
    known_metric,
    metric_info,
    metric_kind,
    metric_label,
    metric_options,
)
from evaldesk.metrics.option import OptionInfo
from evaldesk.metrics.responses.required_outputs import case_outputs
from evaldesk.metrics.responses.rouge import preload, rouge1
from evaldesk.metrics.scoring import (
    Grading,
    applies_by_part,
    build_metric,
    check_criteria,
    criteria_of_case,
    grade_trial,
    missing_of,
    missing_reasons,
    score_trial,
    unset_option,
)

__all__ = [
    "FUNCTION_OPTION",
    "METRICS",
    "Grading",
    "Metric",
    "MetricInfo",
    "OptionInfo",
    "applies_by_part",
    "build_metric",
    "case_outputs",
    "check_criteria",
    "check_function",
    "check_source",
    "criteria_of_case",
    "function_options",
    "grade_trial",
    "guard_imports",
    "is_function",
    "is_higher_better",
    "is_label",
    "is_metric",
    "is_share",
    "known_metric",
    "load_function_of",
    "metric_info",
    "metric_kind",
    "metric_label",
    "metric_options",
    "missing_of",
    "missing_reasons",
    "preload",
    "rouge1",
    "rubric_line",
    "score_trial",
    "unset_option",
    "use_copy",
]

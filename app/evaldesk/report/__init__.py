"""Numbers, words, differences and figures for pages and the command line; knows no store and no template."""

from evaldesk.report.charts import pass_figure
from evaldesk.report.comparison import (
    Comparison,
    Flips,
    benjamini_hochberg,
    compare_scores,
    compare_verdicts,
    holm,
)
from evaldesk.report.comparison_words import (
    changes_sentence,
    comparison_sentence,
    flips_sentence,
    gap_sentence,
    p_words,
    pairing_note,
    points_words,
)
from evaldesk.report.divergence import Divergence, first_divergence
from evaldesk.report.exact_intervals import anytime_interval, clopper_pearson, failure_bound
from evaldesk.report.exact_tests import fisher, mcnemar
from evaldesk.report.flakiness import Flakiness, chance_to_see, disagreement, flakiness, is_flaky, trials_to_see
from evaldesk.report.g_pass import g_pass_at_k, mg_pass_at_k, trials_needed
from evaldesk.report.intervals import Interval, mean_interval, rate_interval, wilson
from evaldesk.report.judge_rate import CorrectedRate, correct_rate
from evaldesk.report.noise import NoiseSplit, split_noise, split_pass_noise
from evaldesk.report.noise_words import (
    corrected_sentence,
    exact_words,
    flakiness_sentence,
    flaky_words,
    g_pass_words,
    no_failure_sentence,
    noise_sentence,
    stop_sentence,
)
from evaldesk.report.pass_k import CaseCounts, CurvePoint, curve_point, pass_at_k, pass_curve, pass_hat_k
from evaldesk.report.sample_size import cases_needed, smallest_gap
from evaldesk.report.spread import Spread, spread
from evaldesk.report.state import StateRow, state_diff, state_rows
from evaldesk.report.text_diff import Segment, TextDiff, diff_text
from evaldesk.report.turn_diff import ArgRow, CallRow, TurnDiff, turn_diff
from evaldesk.report.words import (
    basis_sentence,
    curve_note,
    doubt_words,
    errors_sentence,
    interval_words,
    number_words,
    passed_sentence,
    passed_words,
    score_words,
    threshold_words,
    undefined_words,
)

__all__ = [
    "ArgRow",
    "CallRow",
    "CaseCounts",
    "Comparison",
    "CorrectedRate",
    "CurvePoint",
    "Divergence",
    "Flakiness",
    "Flips",
    "Interval",
    "NoiseSplit",
    "Segment",
    "Spread",
    "StateRow",
    "TextDiff",
    "TurnDiff",
    "anytime_interval",
    "basis_sentence",
    "benjamini_hochberg",
    "cases_needed",
    "chance_to_see",
    "changes_sentence",
    "clopper_pearson",
    "compare_scores",
    "compare_verdicts",
    "comparison_sentence",
    "correct_rate",
    "corrected_sentence",
    "curve_note",
    "curve_point",
    "diff_text",
    "disagreement",
    "doubt_words",
    "errors_sentence",
    "exact_words",
    "failure_bound",
    "first_divergence",
    "fisher",
    "flakiness",
    "flakiness_sentence",
    "flaky_words",
    "flips_sentence",
    "g_pass_at_k",
    "g_pass_words",
    "gap_sentence",
    "holm",
    "interval_words",
    "is_flaky",
    "mcnemar",
    "mean_interval",
    "mg_pass_at_k",
    "no_failure_sentence",
    "noise_sentence",
    "number_words",
    "p_words",
    "pairing_note",
    "pass_at_k",
    "pass_curve",
    "pass_figure",
    "pass_hat_k",
    "passed_sentence",
    "passed_words",
    "points_words",
    "rate_interval",
    "score_words",
    "smallest_gap",
    "split_noise",
    "split_pass_noise",
    "spread",
    "state_diff",
    "state_rows",
    "stop_sentence",
    "threshold_words",
    "trials_needed",
    "trials_to_see",
    "turn_diff",
    "undefined_words",
    "wilson",
]

"""The words of a run, the same on pages and on the command line: a count first, then its interval.

And those of its budget and of its metrics, also of metrics that are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor, isclose, log10
from typing import TYPE_CHECKING

from evaldesk.metrics import is_higher_better, known_metric
from evaldesk.model import Conclusion, Counts, RunConfig, TrialResult
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.conclusion import Interval, Stop, counted
from evaldesk.model.transcript import AWAITING, BOUNDS, MAX_NUMBER
from evaldesk.model.trial_turns import TrialSummary, summary_of
from evaldesk.run_options import EVEN, budget_of, budget_words
from evaldesk.statistics.histogram import Bin
from evaldesk.statistics.intervals import CaseCounts, CurvePoint, wilson

if TYPE_CHECKING:
    from evaldesk.diff.divergence import Divergence

FEW_TRIALS = 5
FEW_CASES = 10
CI = "95 % CI"
TOO_FEW = "too few trials for a rate"
NOTHING_SCORED = "No scored trials"
_LARGE = 1_000_000


def started_words(name: str, host: str) -> str:
    """`by anna on laptop`, as much of it as is known."""
    return " ".join(word for word in (f"by {name}" if name else "", f"on {host}" if host else "") if word)


def passed_sentence(counts: Counts, interval: Interval | None) -> str:
    """`41 of 50 passed; 95 % CI 66–98 %`. Below 5 trials without an interval."""
    if not counts.scored:
        return NOTHING_SCORED
    doubt = doubt_words(counts.scored, interval)
    return f"{rate_of_counts(counts)}; {doubt}" if doubt else rate_of_counts(counts)


def passed_of_these_sentence(counts: Counts, interval: Interval | None, n_cases: int) -> str:
    """`41 of 50 passed; 95 % CI 66–98 % for these 20 cases`: the interval of exactly these cases, at any stop."""
    if counts.scored < FEW_TRIALS or interval is None:
        return passed_sentence(counts, interval)
    return f"{passed_sentence(counts, interval)} for {_these_cases(n_cases)}"


def _these_cases(n_cases: int) -> str:
    return "this case" if n_cases == 1 else f"these {n_cases:,} cases"


def rate_of_counts(counts: Counts) -> str:
    """`41 of 50 passed`, and where cases have different numbers of trials `, 84 % in a case on average`."""
    passed = passed_words(counts.passed, counts.scored)
    return passed if counts.case_rate is None else f"{passed}, {share_words(counts.case_rate)} in a case on average"


def trials_each(n_least: int, n_most: int) -> str:
    """`5`, or `2 to 9` where cases have different numbers of trials."""
    return f"{n_least:,}" if n_least == n_most else f"{n_least:,} to {n_most:,}"


def trials_each_words(n_least: int, n_most: int) -> str:
    """`1 trial`, `5 trials`, `2 to 9 trials`."""
    return f"{trials_each(n_least, n_most)} {'trial' if n_most == 1 else 'trials'}"


def uneven_sentence(n_cases: int, n_least: int, n_most: int) -> str:
    """The basis of rate and interval where cases have different numbers of trials."""
    rough = f" Rough: fewer than {FEW_CASES} cases." if n_cases < FEW_CASES else ""
    return f"Cases have {trials_each_words(n_least, n_most)}; each case weighs the same. Interval over cases.{rough}"


def conclusion_words(conclusion: Conclusion) -> str:
    """`passed`, or `failed` with the first reason; either with the number of cases in quarantine."""
    return f"{conclusion.headline}: {conclusion.reason}" if conclusion.reason else conclusion.headline


GATE_TITLES: Mapping[str, str] = {
    "--min-pass-rate": "pass rate",
    "--min-case-pass-rate": "share of passed cases",
    "--pass-at": "pass@k",
    "--pass-hat": "pass^k",
    "--min-scored": "",
    "--max-error-rate": "",
    "--max-unscored-rate": "",
    "--max-cost": "cost",
    "--max-regressions": "",
    "--margin": "",
    "--new-cases": "",
    "--without": "",
}
"""The gates of a run by the options that set them, in the words of a page; empty where the sentence needs none."""


def in_page_words(conclusion: Conclusion) -> Conclusion:
    """The conclusion with its gates in words, not by the options of the command line: `2 of 8 trials errored …`."""
    gates = tuple(replace(gate, sentence=_page_words(f"{gate.name}: {gate.sentence}")) for gate in conclusion.gates)
    return replace(conclusion, gates=gates, reasons=tuple(map(_page_words, conclusion.reasons)))


def _page_words(reason: str) -> str:
    gate, colon, reason_text = reason.rstrip(".").partition(": ")
    if not colon or gate not in GATE_TITLES:
        return reason.rstrip(".")
    title = GATE_TITLES[gate]
    return f"{title}: {reason_text}" if title and not reason_text.startswith(title) else reason_text


def asides_words(counts: Counts) -> str:
    """` (2 errored, 1 unscored)`: the trials that neither passed nor failed; empty when there are none."""
    asides = ", ".join(f"{n:,} {word}" for word, n in counts.asides)
    return f" ({asides})" if asides else ""


def passed_words(n_passed: int, n_scored: int) -> str:
    """`41 of 50 passed`."""
    return f"{n_passed:,} of {n_scored:,} passed"


def passed_cell(counts: Counts) -> str:
    """`41 of 50`: `passed_words` in a column that is called so; a dash where nothing is scored."""
    return f"{counts.passed:,} of {counts.scored:,}" if counts.scored else "–"


def scored_words(counts: Counts) -> str:
    """`3 of 5 passed`, or that nothing was scored."""
    return passed_words(counts.passed, counts.scored) if counts.scored else "nothing was scored"


def doubt_words(n_scored: int, interval: Interval | None) -> str:
    """`95 % CI 66–98 %`; empty without an interval, and a reason instead of it below 5 trials."""
    if not n_scored or interval is None:
        return ""
    return f"{CI} {interval_words(interval)}" if n_scored >= FEW_TRIALS else TOO_FEW


def doubt_cell(n_scored: int, interval: Interval | None) -> str:
    """`66–98 %`: `doubt_words` in a column that is called `95 % CI`."""
    return doubt_words(n_scored, interval).removeprefix(f"{CI} ")


def any_stop_words(n_scored: int, n_cases: int, these: Interval | None, like: Interval | None) -> str:
    """`for these 20 cases 80–96 %; for cases like them 66–100 %, at any stop`: intervals that hold at every look."""
    if not n_scored or these is None:
        return ""
    if n_scored < FEW_TRIALS:
        return TOO_FEW
    words = f"for {_these_cases(n_cases)} {interval_words(these)}"
    if like is None:
        few = "1 case" if n_cases == 1 else f"{n_cases:,} cases"
        return f"{CI}: {words}, at any stop; {few} cannot speak for others"
    return f"{CI}: {words}; for cases like them {interval_words(like)}, at any stop"


def rate_words(rate: float, interval: Interval) -> str:
    """`80 %, 95 % CI 63–91 %`, for a rate that is drawn."""
    return f"{share_words(rate)}, {CI} {interval_words(interval)}"


def share_words(rate: float) -> str:
    """`8 %`, with more digits only where it would read as none or all: `0.2 %`, `99.6 %`."""
    for digits in range(17):
        percent = f"{100 * rate:.{digits}f}"
        if float(percent) not in (0, 100) or rate in (0, 1):
            break
    return f"{percent} %"


def beside_words(value: float, bound: float) -> str:
    """`0.8`: three digits that count, more where the value would seem to lie elsewhere of `bound` than it does."""
    if isclose(value, bound, abs_tol=1e-9):
        value = bound
    for digits in range(3, 17):
        text = f"{value:.{digits}g}"
        if (float(text) < bound, float(text) > bound) == (value < bound, value > bound):
            break
    return text


def duration_words(ms: float) -> str:
    """`0.43 ms`, `120 ms`, `3.2 s`, `2 min 5 s`, `1 h 4 min`: milliseconds in the unit a person would use."""
    if ms < 9.95:
        return f"{ms:.2g} ms" if ms >= 0.01 else "under 0.01 ms" if ms else "0 ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def cost_words(cost: float) -> str:
    """`$0.0123`, `$0.50`, `$1,204.50`, `$0`; a sum too small for four places has more.

    A dash for a cost that cannot be, which a database of an early version may hold.
    """
    if not cost:
        return "$0"
    if not 0 < cost <= MAX_NUMBER:
        return "–"
    is_in_cents = cost >= 1 or (cost >= 0.01 and round(cost, 4) == round(cost, 2))
    return f"${cost:,.{2 if is_in_cents else max(4, 1 - floor(log10(cost)))}f}"


def least_words(amount: str, is_least: bool) -> str:
    """`at least $0.50`: an amount, which is a lower bound where not every call tells its tokens and its cost."""
    return f"at least {amount}" if is_least else amount


def agent_cost_words(agent: AgentTotals) -> str:
    """`$0.50`, `at least $0.50`, `unknown`: the cost of an agent over the trials of a run."""
    cost = agent.known_cost
    return "unknown" if cost is None else least_words(cost_words(cost), agent.is_cost_least)


def agent_totals_words(agent: AgentTotals) -> str:
    """`scout, called 3 times by lead: 3 trials, 2 failed, 4 calls, 45 tokens, $0.75, 300 ms`."""
    times = "once" if agent.n_entries == 1 else f"{agent.n_entries:,} times"
    entry = f", {'called' if agent.tool else 'handed over to'} {times} by {agent.parent}" if agent.parent else ""
    verdicts = ((agent.n_failed, "failed"), (agent.n_errored, "errored"))
    counts = "".join(f", {n:,} {word}" for n, word in verdicts if n)
    usage = f"{counted(agent.n_calls, 'call')}, {agent.tokens:,} tokens, {agent_cost_words(agent)}"
    time = f", {duration_words(agent.duration_ms)}" if agent.duration_ms else ""
    return f"{agent.name}{entry}: {counted(agent.n_trials, 'trial')}{counts}, {usage}{time}"


def size_words(n_bytes: int) -> str:
    """`412 bytes`, `13 kB`, `1.2 MB`."""
    if n_bytes < 1000:
        return f"{n_bytes} byte{'' if n_bytes == 1 else 's'}"
    if n_bytes < 1_000_000:
        return f"{n_bytes / 1000:,.0f} kB"
    return f"{n_bytes / 1_000_000:,.1f} MB"


def space_words(n_given_back: int, n_kept: int) -> str:
    """` The disk got 118.0 MB back.`, and the size that stays in the database; empty below 1 MB."""
    disk_words = f" The disk got {size_words(n_given_back)} back." if n_given_back >= _LARGE else ""
    return disk_words + (f" {size_words(n_kept)} stay in the database for later runs." if n_kept >= _LARGE else "")


def counted_words(n: int, n_all: int, noun: str) -> str:
    """`1 of 3 cases`, `1 of 1 case`."""
    return f"{n:,} of {n_all:,} {noun}{'' if n_all == 1 else 's'}"


def stopped_words(stop: Stop, n_planned: int) -> str:
    """`Stopped when decided, after 58 of 200 trials`."""
    return f"Stopped when decided, after {counted_words(stop.n_trials, n_planned, 'trial')}"


def interval_words(interval: Interval) -> str:
    """`66–98 %`, with more digits only where both ends would read the same."""
    for digits in (0, 1, 2):
        low, high = f"{100 * interval.low:.{digits}f}", f"{100 * interval.high:.{digits}f}"
        if low != high:
            return f"{low}–{high} %"
    return f"{low} %"


def share_range(interval: Interval | None) -> str:
    """`0.66–0.98`, for a number that is shown as 0 to 1; empty without an interval."""
    return f"{interval.low:.2f}–{interval.high:.2f}" if interval else ""


def range_words(interval: Interval | None) -> str:
    """`0.89–0.99`, `12.50–104`: an interval of scores; empty without one."""
    return f"{number_words(interval.low)}–{number_words(interval.high)}" if interval else ""


def mean_sentence(mean: float, interval: Interval | None, n: int, n_keeping: int | None, needs: str) -> str:
    """`Mean 0.94 of 57; 95 % CI 0.89–0.99. 54 of 57 are at least 0.50.`; `n_keeping` None where it only informs."""
    could = f"; {CI} {range_words(interval)}" if interval else ""
    count_words = "" if n_keeping is None else f" {n_keeping:,} of {n:,} {'is' if n_keeping == 1 else 'are'} {needs}."
    return f"Mean {number_words(mean)} of {n:,}{could}.{count_words}"


def bin_words(score_bin: Bin, *, is_last: bool) -> str:
    """`0.80 to below 0.90`, `0.90 to 1.00` for the last bin, `3` for a single whole number."""
    if score_bin.low == score_bin.high:
        return f"{score_bin.low:g}"
    return f"{number_words(score_bin.low)} to {'' if is_last else 'below '}{number_words(score_bin.high)}"


def basis_sentence(counts: Sequence[CaseCounts], interval: Interval | None) -> str:
    """`Interval over 20 cases, clustered by case.`; empty without an interval."""
    n_cases, n, _ = _scored_totals(counts)
    if not n or interval is None:
        return ""
    if n < FEW_TRIALS:
        return f"A rate needs {FEW_TRIALS} scored trials."
    if n_cases == 1:
        return f"Interval over {n:,} trials of one case; it says nothing about other cases."
    rough = f" Rough: fewer than {FEW_CASES} cases." if n_cases < FEW_CASES else ""
    if n == n_cases:
        return f"Interval over {n_cases:,} cases, one trial each.{rough}"
    return f"Interval over {n_cases:,} cases, clustered by case.{rough}"


def basis_why(counts: Sequence[CaseCounts], interval: Interval | None) -> str:
    """Why the interval is wider than that of as many independent trials; empty where it is not."""
    n_cases, n, n_passed = _scored_totals(counts)
    if interval is None or n < FEW_TRIALS or n_cases in (1, n):
        return ""
    independent = wilson(n_passed, n)
    if independent.high - independent.low >= interval.high - interval.low:
        return ""
    return (
        f"{n:,} independent trials would give {interval_words(independent)}. "
        "Trials of the same case are correlated, so more cases narrow the interval more than more trials."
    )


def _scored_totals(counts: Sequence[CaseCounts]) -> tuple[int, int, int]:
    """The cases with scored trials, their scored and their passed trials."""
    rows = [row for row in counts if row[0] > 0 and row[2] > 0]
    return sum(row[2] for row in rows), sum(row[0] * row[2] for row in rows), sum(row[1] * row[2] for row in rows)


def errors_sentence(counts: Counts) -> str:
    """How errors enter the number of passed trials, and the number without them; empty without errors."""
    if not counts.errored:
        return ""
    if counts.errors_are_failures:
        return f"Errors count as failures. Without them: {counts.passed:,} of {counts.scored - counts.errored:,}."
    return f"Errors do not count as failures. With them: {counts.passed:,} of {counts.scored + counts.errored:,}."


def score_words(value: float, threshold: float | None, *, is_higher_better: bool = True) -> str:
    """The value with two digits, or with more where a threshold would read the same.

    A value that misses its threshold never reads as if it met it: `<0.80`, `>3.00`.
    """
    number = number_words(value)
    if threshold is None or number != number_words(threshold):
        return number
    threshold_text = threshold_words(threshold)
    if threshold_text != number:
        number = f"{value:,.{len(threshold_text.partition('.')[2])}f}"
    if threshold_text != number:
        return number
    if is_higher_better:
        return f"<{number}" if value < threshold else number
    return f">{number}" if value > threshold else number


def number_words(value: float) -> str:
    """Two digits after the point, none from 100 on: `0.80`, `3.00`, `1,204`."""
    return f"{value:,.0f}" if abs(value) >= 99.995 else f"{value:.2f}"


def threshold_words(threshold: float) -> str:
    """A threshold with two digits after the point, or with all that it has: `0.80`, `0.995`."""
    number = number_words(threshold)
    return number if float(number.replace(",", "")) == threshold else f"{threshold:,.12g}"


def undefined_words(k: int, n: int) -> str:
    """Why pass@k and pass^k are undefined for a case with n scored trials."""
    if n == 0:
        return "No trial of this case was scored."
    return f"pass@{k} needs {k} scored trials; this case has {n}."


def curve_sentence(points: Sequence[CurvePoint]) -> str:
    """`pass@k goes from 0.80 to 1.00, pass^k from 0.80 to 0.43 at k 5`; empty with fewer than two points."""
    if len(points) < 2 or points[0].pass_at_k is None or points[0].pass_hat_k is None:
        return ""
    first, last = points[0], points[-1]
    at_k = f"pass@k goes from {first.pass_at_k:.2f} to {last.pass_at_k or 0:.2f}"
    return f"{at_k}, pass^k from {first.pass_hat_k:.2f} to {last.pass_hat_k or 0:.2f} at k {last.k}"


SHOWN_KS = frozenset((1, 2, 3, 5, 10))


def folded_points(points: Sequence[CurvePoint]) -> Sequence[CurvePoint]:
    """The points that a table leaves out, beside SHOWN_KS and the last; none where that saves less than two rows."""
    middle_points = [point for point in points[:-1] if point.k not in SHOWN_KS]
    return middle_points if len(middle_points) > 1 else ()


def curve_note(n_cases: int, n_all_cases: int, k: int, *, is_live: bool = False) -> str:
    """Said under points of the curves that rest on fewer cases than the run has; else empty."""
    if n_cases >= n_all_cases:
        return ""
    ending = "these rows may change." if is_live else "the others are left out of these rows."
    words = f"{counted_words(n_cases, n_all_cases, 'case')} {'has' if n_cases == 1 else 'have'}"
    return f"{words} {k} scored {'trial' if k == 1 else 'trials'}; {ending}"


def trials_words(n: float) -> str:
    """A mean number of trials: `1 trial`, `9 trials`, `0.4 trials`."""
    number = f"{n:.0f}" if n >= 1 else f"{n:.1g}"
    return "1 trial" if number == "1" else f"{number} trials"


MOST_RUNS = 3


def named_words(names: Sequence[str], most: int = 10) -> str:
    """`a, b, and 3 more`."""
    more = f", and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def spread_sentence(config: RunConfig, n_cases: int, n_trials: int, n_least: int, n_most: int) -> str:
    """The sentence of a run that is planned; empty without a budget."""
    if config.budget is None:
        return ""
    return budget_sentence(config.budget, config.allocate, config.allocated_from, n_cases, n_trials, n_least, n_most)


def own_trials_sentence(n_each: Sequence[int], n: int) -> str:
    """`2 of 8 cases name their own number of trials: 3 to 20.`; empty without any."""
    others = [each for each in n_each if each != n]
    if not others:
        return ""
    verb = "names its" if len(others) == 1 else "name their"
    cases = counted_words(len(others), len(n_each), "case")
    return f"{cases} {verb} own number of trials: {trials_each(min(others), max(others))}."


def budget_sentence(
    budget: str, allocate: str, run_ids: Sequence[int], n_cases: int, n_trials: int, n_least: int, n_most: int
) -> str:
    """`200 trials for 20 cases, 4 to 24 each: more where the outcome was less certain in runs 12, 11.`

    Of a budget in dollars it says that the costs are those of earlier runs.
    """
    is_money = budget_of(budget)[1]
    about = f"{budget_words(budget)} is about " if is_money else ""
    trials = counted(n_trials, "trial")
    cases = counted(n_cases, "case")
    runs = _run_list(run_ids)
    why = _spread_why(allocate, runs) + (f", by the costs of {runs}" if is_money else "")
    return f"{about}{trials} for {cases}, {trials_each(n_least, n_most)} each: {why}."


def _spread_why(allocate: str, runs: str) -> str:
    if allocate == EVEN:
        return "spread evenly"
    if not runs:
        return "spread evenly, since no earlier run of this agent, model and cases is known"
    return f"more where the outcome was less certain in {runs}"


def _run_list(run_ids: Sequence[int]) -> str:
    if not run_ids:
        return ""
    numbers = named_words([str(run_id) for run_id in run_ids], MOST_RUNS)
    return f"run {numbers}" if len(run_ids) == 1 else f"runs {numbers}"


def short_title(metric: str) -> str:
    """The name of a metric on pages; a metric that is gone keeps its name."""
    info = known_metric(metric)
    return info.title if info else metric


def divergence_sentence(divergence: Divergence) -> str:
    """The sentence of a first divergence on pages, with the metric of a failed turn by its title."""
    if divergence.kind != "score":
        return divergence.sentence
    return f"{short_title(divergence.name)}{divergence.sentence.removeprefix(divergence.name)}"


def asserted_lines(config: RunConfig, n_cases: int) -> list[str]:
    """`Final state: asserted in 2 of 7 cases`, for each metric that does not apply to every case."""
    return [asserted_line(metric, n, n_cases) for metric, n in config.n_asserted.items()]


def asserted_line(metric: str, n: int, n_cases: int) -> str:
    """`Final state: asserted in 2 of 7 cases`."""
    return f"{short_title(metric)}: asserted in {counted_words(n, n_cases, 'case')}"


def needs_words(metric: str, threshold: float | None) -> str:
    """`at least 0.80`, `at most 3.00` where less is better, `no threshold` without one."""
    if threshold is None:
        return "no threshold"
    return f"{'at least' if is_higher_better(metric) else 'at most'} {threshold_words(threshold)}"


ENDINGS: Mapping[str, str] = {
    "user_satisfied": "The simulated user ended the conversation, satisfied.",
    "user_gave_up": "The simulated user gave up.",
    "user_out_of_scope": "The simulated user ended the conversation: its plan does not cover this situation.",
    "user_transferred": "The simulated user ended the conversation after a handover.",
    "user_cap": "The simulated user reached its message limit.",
    "user_error": "The simulated user failed; the agent did not.",
}

UNMADE = "A tool call without a result counts as not made."
AWAITS = f"The agent waits for a decision of a person. {UNMADE}"
CUT_SHORT = f"The file ends a turn before a result and an answer. {UNMADE}"
CUT = "An answer of the model was cut at its token limit (finish_reason length)."
NEVER_ANSWERED = "The agent reached its limit of model calls without an answer. Its transcript is scored."
BOUND_SENTENCES: Mapping[str, str] = {
    **dict.fromkeys(BOUNDS, NEVER_ANSWERED),
    "stuck": "The agent was stuck in a loop. Its transcript is scored.",
    "context_window": "The agent filled the context window of its model. Its transcript is scored.",
    "budget": "The agent used up its budget. Its transcript is scored.",
    "content_filter": "A content filter refused what the agent asked of its model. Its transcript is scored.",
    "usage_limit": "The agent reached a usage limit of its author. Its transcript is scored.",
    "refused_by_model": "The model refused to answer. Its transcript is scored.",
    "refused_by_guardrail": "A guardrail of the agent refused the turn; the log names it. Its transcript is scored.",
}


def ending_sentence(result: TrialResult | None, summary: TrialSummary | None = None) -> str:
    """The end of a trial; empty for a scripted trial whose last answer arrived whole.

    `summary` is that of all its turns, where the result has none of them.
    """
    if result is None:
        return ""
    totals = summary or summary_of(result)
    without_answer = {**BOUND_SENTENCES, AWAITING: AWAITS}
    text = without_answer.get(result.stop_reason) or ENDINGS.get(result.stop_reason, "")
    if totals.n_replayed:
        is_all = totals.n_replayed == totals.n_model_calls
        share = "All" if is_all else f"{totals.n_replayed:,} of {totals.n_model_calls:,}"
        text = f"{text} {share} model calls were answered from a recording or a cache."
    if totals.is_interrupted:
        text = f"{text} {CUT_SHORT}"
    if totals.is_cut:
        text = f"{text} {CUT}"
    n_again = totals.n_retries
    if n_again:
        text = (
            f"{text} Model calls retried {'once' if n_again == 1 else f'{n_again:,} times'}; the log has the reasons."
        )
    return text.strip()

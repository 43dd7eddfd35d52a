"""An experiment as lines of a terminal, as JSON, as CSV and as Markdown; the numbers are those of its analysis."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

from evaldesk.desk.experiments.results import Results
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.experiment import Analysis, Effect, Experiment, RateDifference, VariantRate
from evaldesk.wording.experiments import (
    UNEQUAL_TRIALS,
    analysis_sentence,
    best_sentence,
    effect_sentences,
    later_sentence,
    luck_sentence,
    mean_rate_words,
    variant_difference_words,
)
from evaldesk.wording.printable import cell, in_one_line
from evaldesk.wording.words import cost_words


def experiment_lines(results: Results) -> list[str]:
    """The answer, the variants, the differences, and the doubts, one line each."""
    analysis, plan = results.analysis, results.experiment.plan
    lines = [f"Experiment {results.experiment.id}, {plan.name}: {analysis_sentence(analysis)}."]
    lines.append(f"{best_sentence(analysis)}.")
    lines += _limits(results)
    for each in analysis.rates:
        lines.append(_variant_line(results, each))
    lines += [f"{sentence}." for sentence in effect_sentences(analysis.effects, plan.factors)]
    luck = luck_sentence(analysis)
    return [*lines, f"{luck}."] if luck else lines


def failure_sentences(results: Results) -> list[str]:
    """A sentence for each variant whose run failed, with its reason."""
    failures = ((index, run) for index, run in results.runs.items() if run.status == "failed")
    return [
        f"{results.experiment.plan.variants[index].name} failed after {counted(run.n_done, 'trial')} "
        f"of {run.n_trials:,}: {run.reason}"
        for index, run in failures
    ]


def _limits(results: Results) -> list[str]:
    """The sentences on trials that count for nothing, unequal numbers of them, and variants of another time."""
    later = later_sentence(results.later_variants)
    sentences = [*deleted_baseline(results), *_cut_sentences(results), *_unequal_trials(results)]
    return [*sentences, *([later] if later else [])]


def deleted_baseline(results: Results) -> list[str]:
    """What to do where the run of the baseline was deleted; empty where it is there."""
    if not results.is_baseline_deleted:
        return []
    experiment, baseline = results.experiment, results.analysis.baseline
    runs = (each.run_id for each in experiment.members if experiment.plan.variants[each.variant_index].name == baseline)
    run_id = next(runs, None)
    restore = "" if run_id is None else f"restore it with `evaldesk trash restore run-{run_id}`, or "
    shell = f"`evaldesk experiment show {experiment.id} --baseline-variant NAME`"
    return [f"The run of {baseline}, the baseline, was deleted: {restore}choose another one, here with {shell}."]


def _cut_sentences(results: Results) -> list[str]:
    if not results.is_cut:
        return []
    n_trials = counted(results.n_blocks, "trial")
    return [f"Not all trials were played: only {n_trials} of each case count, which all variants have."]


def _unequal_trials(results: Results) -> list[str]:
    return [UNEQUAL_TRIALS] if len({run.n_most for run in results.runs.values()}) > 1 else []


def experiment_markdown(results: Results) -> str:
    """The experiment as Markdown: the answer, a table of the variants, the factors and the doubts."""
    analysis, plan = results.analysis, results.experiment.plan
    lines = [
        f"# Experiment {results.experiment.id}: {_cell(plan.name)}",
        "",
        f"{_cell(analysis_sentence(analysis))}. {_cell(best_sentence(analysis))}.",
        "",
        "| variant | pass rate | cost of a trial | trials | against the baseline |",
        "|---|---|---|---|---|",
    ]
    for each in analysis.rates:
        share = mean_rate_words(each)
        difference = analysis.difference_of(each.variant)
        words = "baseline" if difference is None else variant_difference_words(difference)
        cost = "" if each.cost is None else cost_words(each.cost)
        lines.append(f"| {_cell(each.variant)} | {share} | {cost} | {each.n_trials:,} | {_cell(words)} |")
    sentences = [*effect_sentences(analysis.effects, plan.factors), luck_sentence(analysis)]
    lines += [
        "",
        *(f"- {_cell(sentence)}" for sentence in _limits(results)),
        *(f"- {_cell(each)}" for each in failure_sentences(results)),
        *(f"- {_cell(sentence)}." for sentence in sentences if sentence),
    ]
    lines += ["", "Differences are paired by case; intervals are over cases, p by exact sign flips or t, after Holm."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A text inside a table: in one line, without marks of Markdown."""
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", in_one_line(text))


def listed_words(experiment: Experiment) -> str:
    """`7  prompts  4 variants  runs 12, 13, 14, 15`."""
    runs = ", ".join(str(each) for each in experiment.run_ids) or "none is left"
    when = f"{experiment.created_at:%Y-%m-%d %H:%M}"
    return f"{experiment.id}  {when}  {experiment.plan.name}: {len(experiment.plan.variants)} variants, runs {runs}"


def listed_object(experiment: Experiment) -> dict[str, Any]:
    """An experiment of a list as a JSON object."""
    return {
        "id": experiment.id,
        "name": experiment.plan.name,
        "created_at": experiment.created_at.isoformat(),
        "variants": [each.name for each in experiment.plan.variants],
        "run_ids": list(experiment.run_ids),
    }


def _variant_line(results: Results, rate: VariantRate) -> str:
    names = [each.name for each in results.experiment.plan.variants]
    index = names.index(rate.variant)
    run = results.runs.get(index)
    if run is None:
        return f"  {rate.variant}: deleted"
    share = mean_rate_words(rate) or "no scored trial"
    cost = "cost not known" if rate.cost is None else f"{cost_words(rate.cost)} a trial"
    difference = results.analysis.difference_of(rate.variant)
    words = "the baseline" if difference is None else variant_difference_words(difference)
    dropped = results.experiment.dropped.get(index)
    note = f"; dropped after {dropped} of {run.config.n}" if dropped is not None else ""
    note += f"; failed: {run.reason}" if run.status == "failed" else ""
    return f"  {rate.variant}: {share}, {cost}, run {run.id}; {words}{note}"


def experiment_object(results: Results) -> dict[str, Any]:
    """The experiment as a JSON object."""
    experiment, plan = results.experiment, results.experiment.plan
    runs = results.runs
    return {
        "id": experiment.id,
        "name": plan.name,
        "created_at": experiment.created_at.isoformat(),
        "seed": plan.seed,
        "budget": plan.budget,
        "n_blocks": results.n_blocks,
        "is_cut": results.is_cut,
        "factors": [{"name": each.name, "levels": list(each.levels)} for each in plan.factors],
        "variants": [
            {
                "name": variant.name,
                "options": variant.options,
                "run_id": runs[index].id if index in runs else None,
                "status": runs[index].status if index in runs else "deleted",
                "reason": runs[index].reason if index in runs else "",
                "dropped_after": experiment.dropped.get(index),
            }
            for index, variant in enumerate(plan.variants)
        ],
        **analysis_object(results.analysis),
    }


def analysis_object(analysis: Analysis) -> dict[str, Any]:
    """The analysis as a JSON object; equal for runs, result files and `evaluate()`."""
    return {
        "baseline": analysis.baseline,
        "sentence": analysis_sentence(analysis),
        "may_be_best": list(analysis.may_be_best),
        "best": analysis.best,
        "front": list(analysis.front),
        "rates": [
            {
                "variant": each.variant,
                "pass_rate": each.rate,
                **_ends("", each.interval),
                "n_cases": each.n_cases,
                "n_trials": each.n_trials,
                "cost_per_trial": each.cost,
                "beaten_by": list(each.beaten_by),
                "dominated_by": list(each.dominated_by),
                "is_dominated_by_points": each.is_dominated_by_points,
            }
            for each in analysis.rates
        ],
        "differences": [
            {"variant": each.variant, **_difference(each), **_ends("family_", each.family_interval)}
            for each in analysis.differences
        ],
        "pairs": [{"first": each.first, "second": each.second, **_difference(each)} for each in analysis.pairs],
        "effects": [_effect(each) for each in analysis.effects],
        "luck": analysis.luck
        and {
            "leader": analysis.luck.leader,
            "n_variants": analysis.luck.n_variants,
            "n_trials": analysis.luck.n_trials,
            "lead": analysis.luck.lead,
        },
    }


def experiment_csv(results: Results) -> Iterator[str]:
    """A line for each variant: its rate, interval, cost and difference from the baseline."""
    rows = results.rows()
    yield _csv_line(tuple(rows[0]))
    for row in rows:
        yield _csv_line(tuple(row.values()))


def _csv_line(values: tuple[object, ...]) -> str:
    """A line for a spreadsheet."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([cell(each) for each in values])
    return line.getvalue()


def _ends(prefix: str, interval: Interval | None) -> dict[str, float | None]:
    low, high = (interval.low, interval.high) if interval else (None, None)
    return {f"{prefix}low": low, f"{prefix}high": high}


def _difference(each: RateDifference) -> dict[str, Any]:
    return {
        "difference": each.value,
        **_ends("", each.interval),
        "p": each.p,
        "holm_p": each.holm_p,
        "word": each.word,
        "n_cases": each.n_cases,
        "n_unshared_cases": each.n_unshared_cases,
    }


def _effect(each: Effect) -> dict[str, Any]:
    step = {"factor": each.factor, "level": each.level, "reference": each.reference}
    other = {"factor": each.other_factor, "level": each.other_level, "reference": each.other_reference}
    return {**step, "interaction_with": other if each.is_interaction else None, **_difference(each)}

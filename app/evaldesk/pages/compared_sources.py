"""Compared runs and files as lines of a terminal, as JSON and as Markdown; the numbers are those of their analysis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evaldesk.desk.runs.run_changes import RunDifference
from evaldesk.desk.runs.run_sources import SourceComparison, left_out_places
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.experiment import VariantRate
from evaldesk.wording.experiments import (
    analysis_sentence,
    best_sentence,
    luck_sentence,
    mean_rate_words,
    variant_difference_words,
)
from evaldesk.wording.printable import markdown_text


def comparison_lines(comparison: SourceComparison) -> list[str]:
    """The answer, each source with its difference from the baseline, the doubt, and the answer of the gate."""
    analysis = comparison.analysis
    lines = [f"{analysis_sentence(analysis)}.", f"{best_sentence(analysis)}."]
    for source in comparison.sources:
        difference = analysis.difference_of(source.name)
        mark = f" ({source.mark})" if source.mark else ""
        words = "baseline" if difference is None else variant_difference_words(difference)
        lines.append(f"{source.name}{mark}: {_rate_cell(analysis.rate_of(source.name))}; {words}")
    if n_left_out := len(left_out_places(comparison.sources)):
        lines.append(f"{counted(n_left_out, 'case')} in quarantine {'is' if n_left_out == 1 else 'are'} not compared.")
    luck = luck_sentence(analysis)
    lines += [f"{luck}."] if luck else []
    lines += [source.changes_words for source in comparison.sources if source.changes]
    return [*lines, *([gate_sentence(comparison)] if comparison.answer else [])]


def gate_sentence(comparison: SourceComparison) -> str:
    """`failed: pr.json is 7 points below main.json, more than the 5 allowed.`"""
    most = 100 * (comparison.max_drop or 0.0)
    below = [each for each in comparison.drops if each.value is not None and 100 * each.value > most + 1e-7]
    if below:
        names = ", ".join(f"{each.name} by {100 * (each.value or 0.0):.3g} points" for each in below)
        return f"failed: below {comparison.analysis.baseline}: {names}; at most {most:.3g} are allowed."
    shards = [source for source in comparison.sources if source.shard]
    if comparison.answer == "undecided" and shards:
        names = ", ".join(f"{source.name} is the shard {source.shard}" for source in shards)
        return f"undecided: {names}, a part of its run; merge the shards with `evaldesk run merge` first."
    if comparison.answer == "undecided":
        names = ", ".join(each.name for each in comparison.drops if each.value is None)
        return f"undecided: no scored case in common with {comparison.analysis.baseline}: {names}."
    return f"held: no pass rate is more than {most:.3g} points below {comparison.analysis.baseline}."


def comparison_object(comparison: SourceComparison) -> dict[str, Any]:
    """The comparison as JSON."""
    analysis = comparison.analysis
    items = []
    for source in comparison.sources:
        rate, difference, (passed, scored) = (
            analysis.rate_of(source.name),
            analysis.difference_of(source.name),
            source.counts,
        )
        items.append(
            {
                "name": source.name,
                "mark": source.mark,
                "n_cases": len(source.cases),
                "passed": passed,
                "scored": scored,
                "pass_rate": rate.rate,
                "interval": _ends(rate.interval),
                "may_be_best": rate.may_be_best,
                "difference": difference.value if difference else None,
                "difference_interval": _ends(difference.interval) if difference else None,
                "family_interval": _ends(difference.family_interval) if difference else None,
                "p": difference.p if difference else None,
                "holm_p": difference.holm_p if difference else None,
                "word": difference.word if difference else "baseline",
                "shared_cases": difference.n_cases if difference else len(source.cases),
                "changes": {
                    "sentence": source.changes_words,
                    "items": [change_object(each) for each in source.changes],
                },
            }
        )
    return {
        "baseline": analysis.baseline,
        "sentence": analysis_sentence(analysis),
        "runs": items,
        "max_drop": comparison.max_drop,
        "answer": comparison.answer,
        "page": _page(comparison),
    }


def change_object(change: RunDifference) -> dict[str, str]:
    """A change between two runs as JSON."""
    return {"kind": change.kind, "name": change.name, "words": change.words, "who": change.who}


def _page(comparison: SourceComparison) -> str | None:
    """The address of the table of the runs, the baseline first; None where one of them is a file."""
    baseline = comparison.analysis.baseline
    sources = sorted(comparison.sources, key=lambda source: source.name != baseline)
    ids = dict.fromkeys(source.run_id for source in sources if source.run_id is not None)
    return comparison_page(ids) if 1 < len(ids) == len(sources) else None


def comparison_page(run_ids: Iterable[int]) -> str:
    """The address of the comparison of some runs against the first."""
    return f"/table?runs={','.join(map(str, run_ids))}"


def comparison_markdown(comparison: SourceComparison) -> str:
    """The comparison for a pull request."""
    analysis = comparison.analysis
    lines = [
        f"### {markdown_text(analysis_sentence(analysis))}",
        "",
        "| run | pass rate | against the baseline |",
        "|---|---|---|",
    ]
    for source in comparison.sources:
        difference = analysis.difference_of(source.name)
        words = "baseline" if difference is None else variant_difference_words(difference)
        rate = _rate_cell(analysis.rate_of(source.name))
        lines.append(f"| {markdown_text(source.name)} | {rate} | {markdown_text(words)} |")
    gate = [f"**{markdown_text(gate_sentence(comparison))}**", ""] if comparison.answer else []
    changes = [f"{markdown_text(source.changes_words)}\n" for source in comparison.sources if source.changes]
    return "\n".join([*lines, "", *changes, *gate, ""])


def _rate_cell(rate: VariantRate) -> str:
    """`77 % (63–91 %) over 20 cases, 100 trials`: each case weighs the same, as in the interval."""
    words = mean_rate_words(rate)
    if not words:
        return "no scored trials"
    return f"{words} over {counted(rate.n_cases, 'case')}, {counted(rate.n_trials, 'trial')}"


def _ends(interval: Interval | None) -> list[float] | None:
    return [interval.low, interval.high] if interval else None

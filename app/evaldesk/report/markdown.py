"""A run as Markdown for a pull request: what regressed first, then the numbers, with doubt in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaldesk.report.comparison import compare_verdicts
from evaldesk.report.comparison_words import flips_sentence, pairing_note
from evaldesk.report.gates import Baseline, CaseNumbers, GateOutcome, RunNumbers
from evaldesk.report.pass_k import pass_curve
from evaldesk.report.turn_text import in_one_line
from evaldesk.report.words import cost_words, passed_sentence

MOST_ROWS = 20
MARK = "<!-- evaldesk -->"
"""First line of the summary, by which a workflow finds its own comment again."""
_REFERENCE = re.compile(r"(?<=@)(?=\w)|(?<=#)(?=\d)|(?<=GH\\-)(?=\d)", re.IGNORECASE)
"""Where GitHub names a person or an issue, which no backslash keeps it from. (github/cmark-gfm, issue 181)"""


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """One run for the summary: `reasons` says, by case id, why its first bad trial did not pass."""

    title: str
    numbers: RunNumbers
    reasons: dict[str, str]


def markdown_summary(
    parts: Sequence[SummaryPart], outcomes: Sequence[GateOutcome], baseline: Baseline | None = None
) -> str:
    """The comment. Everything an agent or a file said is escaped."""
    is_held = all(outcome.is_held for outcome in outcomes)
    lines = [MARK, f"## {'✅' if is_held else '❌'} Evaluation {'passed' if is_held else 'did not pass'}", ""]
    for part in parts:
        lines += _regressions(part, baseline)
    lines += [
        f"- {'✅' if outcome.is_held else '❌'} `{outcome.name}` {_escaped(outcome.sentence)}" for outcome in outcomes
    ]
    for part in parts:
        lines += ["", f"### {_escaped(part.title)}", "", *_numbers(part), *_worst(part)]
    return "\n".join(lines) + "\n"


def _regressions(part: SummaryPart, baseline: Baseline | None) -> Iterator[str]:
    if baseline is None:
        return
    flips = compare_verdicts(baseline.verdicts, part.numbers.verdicts)
    if flips.broken:
        yield f"**Regressed against {_escaped(baseline.name)}:**"
        yield ""
        for name in flips.broken[:MOST_ROWS]:
            yield f"- {_code(name)} {_escaped(part.reasons.get(name, ''))}".rstrip()
        yield from _more(len(flips.broken) - MOST_ROWS)
        yield ""
    yield f"Against {_escaped(baseline.name)}: {flips_sentence(flips)}. {pairing_note(flips)}".rstrip()
    yield ""


def _numbers(part: SummaryPart) -> Iterator[str]:
    run = part.numbers
    asides = ((run.n_errored, "errored"), (run.n_unscored, "unscored"), (run.n_planned - run.n_done, "not played"))
    said = ", ".join(f"{n:,} {word}" for n, word in asides if n)
    yield f"**{passed_sentence(run.n_passed, run.n_scored, run.interval)}**" + (f" ({said})" if said else "")
    yield ""
    points = [point for point in pass_curve(run.counts) if point.k in (1, 2, 3, 5, 10)]
    if len(points) > 1:
        yield "| k | pass@k | pass^k | cases |"
        yield "|--:|--:|--:|--:|"
        for point in points:
            yield f"| {point.k} | {point.pass_at_k:.2f} | {point.pass_hat_k:.2f} | {point.n_cases} |"
        yield ""
    if run.cost or run.n_unpriced:
        trials = "trial" if run.n_unpriced == 1 else "trials"
        unknown = f", {run.n_unpriced:,} {trials} of unknown price" if run.n_unpriced else ""
        yield f"Cost {cost_words(run.cost)}{unknown}."
        yield ""


def _worst(part: SummaryPart) -> Iterator[str]:
    bad = sorted((case for case in part.numbers.cases if case.n_passed < case.n_planned), key=_badness)
    if not bad:
        return
    yield "| case | passed | why |"
    yield "|---|--:|---|"
    for case in bad[:MOST_ROWS]:
        errored = f", {case.n_errored} errored" if case.n_errored else ""
        why = _escaped(part.reasons.get(case.id, ""))
        yield f"| {_code(case.id)} | {case.n_passed} of {case.n_scored}{errored} | {why} |"
    yield from _more(len(bad) - MOST_ROWS)


def _badness(case: CaseNumbers) -> float:
    return -1.0 if case.pass_rate is None else case.pass_rate


def _more(n: int) -> Iterator[str]:
    if n > 0:
        yield ""
        yield f"…and {n:,} more."


def _code(text: str) -> str:
    """A name as code; a backtick or a bar in it would break out of it."""
    return "`" + re.sub(r"[`|]", "·", in_one_line(text)) + "`"


def _escaped(text: str) -> str:
    """Text that Markdown and GitHub show as it stands: no markup, no mention of a person, no reference."""
    text = re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", in_one_line(text))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _REFERENCE.sub("\u200b", text)

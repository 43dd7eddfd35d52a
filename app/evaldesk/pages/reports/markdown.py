"""A run for a pull request: as Markdown, regressions first, and as annotations of GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.model import Answer, Conclusion, Counts, Outcome
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.comparison import RunChange
from evaldesk.model.conclusion import Interval, counted
from evaldesk.wording.comparison import change_sentence, flips_words, states_words
from evaldesk.wording.printable import in_one_line, markdown_text
from evaldesk.wording.trial_text import first_words
from evaldesk.wording.words import (
    agent_cost_words,
    asides_words,
    duration_words,
    folded_points,
    passed_sentence,
    scored_words,
    share_range,
)

MOST_ROWS = 20
TITLES: dict[Outcome, str] = {
    "passed": "✅ Evaluation passed",
    "failed": "❌ Evaluation did not pass",
    "neutral": "➖ Evaluation too close to tell",
    "undecided": "❔ Evaluation undecided",
    "interrupted": "⏹️ Evaluation interrupted",
}
ICONS: dict[Answer, str] = {"held": "✅", "failed": "❌", "undecided": "❔"}
MARK = "<!-- evaldesk -->"
"""First line of the summary, by which a workflow finds its own comment again."""
"""Where GitHub names a person or an issue, which no backslash keeps it from. (github/cmark-gfm, issue 181)"""


@dataclass(frozen=True, slots=True)
class SummaryPart:
    """One run for the summary: `reasons` says, by case id, why its first bad trial did not pass.

    `asserted` has the number of cases for each metric that does not apply to all.
    `agents` are those of trials in which several acted.
    """

    title: str
    numbers: RunNumbers
    reasons: dict[str, str]
    evalset: str = ""
    asserted: Sequence[str] = ()
    agents: Sequence[AgentTotals] = ()


def markdown_summary(parts: Sequence[SummaryPart], conclusion: Conclusion, change: RunChange | None = None) -> str:
    """The comment. Everything an agent or a file said is escaped."""
    beside = conclusion.headline.removeprefix(conclusion.outcome)
    lines = [MARK, f"## {TITLES[conclusion.outcome]}{beside}", ""]
    if conclusion.outcome in ("neutral", "undecided", "interrupted"):
        lines += [f"No verdict: {markdown_text(conclusion.reason)}.", ""]
    if change is not None:
        lines += _regressions(parts, change)
    lines += [f"- {ICONS[gate.answer]} `{gate.name}` {markdown_text(gate.sentence)}" for gate in conclusion.gates]
    for part in parts:
        lines += ["", f"### {markdown_text(part.title)}", "", *_numbers(part), *_worst(part), *_agents(part)]
    return "\n".join(lines) + "\n"


def _regressions(parts: Sequence[SummaryPart], change: RunChange) -> Iterator[str]:
    if change.regressions:
        yield f"**Regressed against {markdown_text(change.name)}:**"
        yield ""
        for case in change.regressions[:MOST_ROWS]:
            reasons = (part.reasons.get(case.key.case_id, "") for part in parts if part.evalset == case.key.evalset)
            yield f"- {_code(case.name)} {markdown_text(next(filter(None, reasons), ''))}".rstrip()
        yield from _more(len(change.regressions) - MOST_ROWS)
        yield ""
    lines = [flips_words(change), f"Pass rate: {change_sentence(change)}", *states_words(change, MOST_ROWS)]
    yield f"Against {markdown_text(change.name)}: {markdown_text('. '.join(lines))}."
    yield ""


def _numbers(part: SummaryPart) -> Iterator[str]:
    run = part.numbers
    yield f"**{passed_sentence(run.counts, run.interval)}**{asides_words(run.counts)}"
    yield ""
    if part.asserted:
        yield f"{markdown_text('. '.join(part.asserted))}."
        yield ""
    curve = run.curve
    points = [point for point in curve if point not in folded_points(curve)]
    if len(points) > 1:
        yield "| k | pass@k | pass^k | cases |"
        yield "|--:|--:|--:|--:|"
        for point in points:
            at_k, hat_k = (_interval_words(interval) for interval in (point.at_interval, point.hat_interval))
            yield f"| {point.k} | {point.pass_at_k:.2f}{at_k} | {point.pass_hat_k:.2f}{hat_k} | {point.n_cases} |"
        yield ""
    if run.costs.cost or run.costs.unknown:
        yield f"Cost {'; '.join(filter(None, (run.costs.words, run.costs.unknown)))}."
        yield ""


def _interval_words(interval: Interval | None) -> str:
    return f" ({share_range(interval)})" if interval else ""


def _worst(part: SummaryPart) -> Iterator[str]:
    bad = sorted((case for case in part.numbers.cases if not case.counts.all_passed), key=_badness)
    if not bad:
        return
    yield "| case | passed | why |"
    yield "|---|--:|---|"
    for case in bad[:MOST_ROWS]:
        why = markdown_text(part.reasons.get(case.id, ""))
        yield f"| {_code(case.id)} | {_passed(case.counts)} | {why} |"
    yield from _more(len(bad) - MOST_ROWS)


def _agents(part: SummaryPart) -> Iterator[str]:
    """Failures, calls, cost and time of each agent, below a line that opens them."""
    if not part.agents:
        return
    yield from ("", f"<details><summary>{counted(len(part.agents), 'agent')}</summary>", "")
    yield "| agent | called by | times | failed | errored | calls | tokens | cost | time |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for agent in part.agents[:MOST_ROWS]:
        numbers = (agent.n_entries, agent.n_failed, agent.n_errored, agent.n_calls, agent.tokens)
        names = (_code(agent.name), _code(agent.parent) if agent.parent else "")
        cells = (*names, *(f"{n:,}" for n in numbers), agent_cost_words(agent), duration_words(agent.duration_ms))
        yield f"| {' | '.join(cells)} |"
    yield from _more(len(part.agents) - MOST_ROWS)
    yield from ("", "</details>")


def _badness(case: CaseNumbers) -> float:
    return -1.0 if case.counts.rate is None else case.counts.rate


def _passed(counts: Counts) -> str:
    parts = [f"{counts.passed} of {counts.scored}"] if counts.scored else []
    return ", ".join([*parts, *(f"{n} {word}" for word, n in counts.asides)])


def _more(n: int) -> Iterator[str]:
    if n > 0:
        yield ""
        yield f"…and {n:,} more."


def _code(text: str) -> str:
    """A name as code; a backtick or a bar in it would break out of it."""
    return "`" + re.sub(r"[`|]", "·", in_one_line(text)) + "`"


MOST_CASES = 10
"""GitHub shows ten annotations of each kind and step."""


def case_annotation(case: CaseResult, path: str, *, is_tolerated: bool = False, note: str = "") -> str:
    """`::error file=…,title=…::…` for a case with a failed trial, or a warning if tolerated; empty without one.

    `note` is a further fact: `flipped, passed 4 of 5 when played again`.
    """
    worst = next((trial for trial in case if trial.verdict in ("failed", "errored")), None)
    if worst is None:
        return ""
    level = "error" if worst.verdict == "failed" and not is_tolerated else "warning"
    title = f"{case.id}: {scored_words(case.counts)}" + (f"; {note}" if note else "")
    place = f"file={_property(path)}," if path else ""
    words = _data(f"trial {worst.trial_index + 1} {worst.verdict}: {first_words(case.case, worst)}")
    return f"::{level} {place}title={_property(title)}::{words}"


def conclusion_annotations(conclusion: Conclusion) -> Iterator[str]:
    """A line for each gate that did not hold; one for the run where they held and it has no verdict all the same."""
    not_held = [gate for gate in conclusion.gates if not gate.is_held]
    for gate in not_held:
        level = "notice" if gate.is_neutral else "error"
        yield f"::{level} title={_property(f'Gate {gate.name}')}::{_data(gate.sentence)}"
    if not not_held and not conclusion.is_passed:
        yield f"::error title={_property(f'Evaluation {conclusion.headline}')}::{_data(conclusion.reason)}"


def _data(text: str) -> str:
    # https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts
    return in_one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

"""The changes of eval sets for a pull request, as Markdown: each set with its cases and the changed lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaldesk.matching.case_version import canonical_case, set_version, version_keys
from evaldesk.model import Case, EvalSet
from evaldesk.model.evalset import CRITERIA
from evaldesk.model.set_versions import SHORT, CaseDiff, SetDiff, set_diff
from evaldesk.pages.case_text import case_text, changed_lines
from evaldesk.pages.set_versions import changed_parts
from evaldesk.wording.printable import markdown_text, printable

MARK = "<!-- evaldesk eval sets -->"
"""First line of the summary, by which a workflow finds its own comment again."""
MOST_CASES = 30
MOST_DIFFS = 10
MOST_LINES = 60


@dataclass(frozen=True)
class SetChange:
    """An eval set before and after; `error` of a side that cannot be read."""

    name: str
    place: str
    before: EvalSet | None
    after: EvalSet | None
    error: str = ""

    @property
    def diff(self) -> SetDiff:
        """Its cases in both."""
        sides = [self.before, self.after]
        keys = [version_keys(side) if side else [] for side in sides]
        criteria = [(side.extra.get(CRITERIA) if side else None) or None for side in sides]
        return set_diff(keys[0], keys[1], has_other_criteria=criteria[0] != criteria[1])

    @property
    def versions(self) -> tuple[str, str]:
        """The short versions of both; empty where a side has none."""
        before, after = (
            set_version(version_keys(side), side.extra.get(CRITERIA))[:SHORT] if side else ""
            for side in (self.before, self.after)
        )
        return before, after

    def cases_of(self, case: CaseDiff) -> tuple[Case | None, Case | None]:
        """The contents of a case on both sides."""
        before = self.before.case(case.before_id) if self.before and case.before_id else None
        after = self.after.case(case.after_id) if self.after and case.after_id else None
        return before and canonical_case(before), after and canonical_case(after)


def markdown_of_sets(changes: Sequence[SetChange], title: str) -> str:
    """The comment. Everything that a file says is escaped."""
    lines = [MARK, f"## Eval sets, {markdown_text(title)}", ""]
    if not changes:
        lines += ["No eval set differs.", ""]
    for change in changes:
        lines += [f"### {markdown_text(change.name)}", "", *_of_set(change)]
    return "\n".join(lines)


def _of_set(change: SetChange) -> Iterator[str]:
    if change.error:
        yield f"Cannot be read: {markdown_text(change.error)}"
        yield ""
        return
    diff, (before, after) = change.diff, change.versions
    place = f"{markdown_text(change.place)}: "
    if change.before is None or change.after is None:
        word, side = ("new", change.after) if change.before is None else ("removed", change.before)
        n = len(side.cases) if side else 0
        yield f"{place}{word}, version `{after or before}`, {n:,} {'case' if n == 1 else 'cases'}."
    elif diff.is_empty:
        yield f"{place}version `{after}` as before; only tags, names or the layout of the file differ."
    else:
        yield f"{place}`{before}` → `{after}`. {diff.sentence}."
        if diff.has_other_criteria:
            yield ""
            yield "The criteria of the set differ: no run before can be compared with one after."
    yield ""
    differing = [case for case in diff.cases if case.step != "same"]
    if differing:
        yield "| case | change |"
        yield "|---|---|"
        yield from (f"| {_name(case)} | {markdown_text(_words(change, case))} |" for case in differing[:MOST_CASES])
        yield ""
    if len(differing) > MOST_CASES:
        yield f"and {len(differing) - MOST_CASES:,} more cases."
        yield ""
    for case in diff.of("changed")[:MOST_DIFFS]:
        yield from _lines(change, case)


def _name(case: CaseDiff) -> str:
    if case.step == "renamed":
        return f"{markdown_text(case.before_id)} → {markdown_text(case.after_id)}"
    return markdown_text(case.case_id)


def _words(change: SetChange, case: CaseDiff) -> str:
    if case.step != "changed":
        return f"{case.step}, same content" if case.step == "renamed" else case.step
    before, after = change.cases_of(case)
    return f"changed: {changed_parts(before, after)}" if before and after else "changed"


def _lines(change: SetChange, case: CaseDiff) -> Iterator[str]:
    """The changed lines of a case in a block of code that none of them can end."""
    before, after = change.cases_of(case)
    if before is None or after is None:
        return
    lines = changed_lines(case_text(before), case_text(after))
    texts = [printable(f"{line.op or ' '}{line.text}") for line in lines[:MOST_LINES]]
    fence = "~" * max(3, *(len(match) + 1 for text in texts for match in re.findall("~+", text)), 3)
    yield f"<details><summary>{markdown_text(case.case_id)}</summary>"
    yield ""
    yield f"{fence}diff"
    yield from texts
    if len(lines) > MOST_LINES:
        yield f"… {len(lines) - MOST_LINES:,} more lines"
    yield fence
    yield ""
    yield "</details>"
    yield ""

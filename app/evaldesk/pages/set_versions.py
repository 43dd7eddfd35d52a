"""The versions of an eval set as a page and a command show them: the list, and two of them case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import case_keys
from evaldesk.model import Case, Turn
from evaldesk.model.conclusion import counted
from evaldesk.model.set_versions import CaseDiff, SetContent, SetDiff, SetVersion, set_diff
from evaldesk.pages.case_text import Line, case_text, changed_lines
from evaldesk.wording.words import named_words

MOST_RUNS = 10_000
MOST_CASES_SHOWN = 50
"""Changed cases whose lines are shown."""
MOST_WALKED = 60
"""Versions between two, of which it is told in which a case changed."""


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A version in the list, with the runs that played it, newest first; `letter` is A or B where it is compared."""

    version: SetVersion
    run_ids: tuple[int, ...]
    letter: str = ""
    address: str = ""

    @property
    def runs_words(self) -> str:
        """`8 runs, 32 to 42`, `1 run, 9` or `no run yet`."""
        ids = self.run_ids
        if not ids:
            return "no run yet"
        if len(ids) == 1:
            return f"1 run, {ids[0]}"
        joint = " and " if len(ids) == 2 else " to "
        return f"{len(ids):,} runs, {min(ids)}{joint}{max(ids)}"


@dataclass(frozen=True, slots=True)
class CaseChangeView:
    """A case of which two versions differ: the sentence on it, and its lines."""

    diff: CaseDiff
    words: str
    lines: tuple[Line, ...]
    address: str = ""
    is_gone: bool = False


@dataclass(frozen=True)
class VersionsPage:
    """Two versions of a set, A and B, in the list of all."""

    lines: tuple[VersionLine, ...]
    before: SetVersion | None
    after: SetVersion | None
    diff: SetDiff
    cases: tuple[CaseChangeView, ...]
    n_versions: int
    is_cut: bool = False

    @property
    def same_ids(self) -> tuple[str, ...]:
        """The ids of the cases that are the same under the same id."""
        return tuple(case.case_id for case in self.diff.of("same"))

    @property
    def n_hidden(self) -> int:
        """The changed cases that are not shown."""
        return len(self.diff.cases) - self.diff.n["same"] - len(self.cases)


def version_lines(desk: Desk, evalset_id: str, picked: Mapping[int, str] | None = None) -> list[VersionLine]:
    """The versions of a set with the runs of each, the newest first."""
    versions = desk.evalsets.versions.list(evalset_id)
    runs: dict[str, list[int]] = {}
    for run_id, version in desk.store.set_versions.runs_of(evalset_id, MOST_RUNS):
        runs.setdefault(version, []).append(run_id)
    return [
        # Of a version that came back the runs are told once, where it was seen last.
        VersionLine(each, tuple(runs.pop(each.version, ())), (picked or {}).get(each.number, ""))
        for each in versions
    ]


def versions_page(desk: Desk, evalset_id: str, before_name: str = "", after_name: str = "") -> VersionsPage:
    """The page of two versions: the newest two unless others are named. Raises NotFoundError, UsageError."""
    versions = desk.evalsets.versions.list(evalset_id)
    after = desk.evalsets.versions.find(evalset_id, after_name) if after_name else next(iter(versions), None)
    earlier_versions = [each for each in versions if after and each.number < after.number]
    before = desk.evalsets.versions.find(evalset_id, before_name) if before_name else next(iter(earlier_versions), None)
    picked = {each.number: letter for each, letter in ((before, "A"), (after, "B")) if each}
    lines = [_with_address(line, before, after) for line in version_lines(desk, evalset_id, picked)]
    contents = {each.number: desk.store.set_versions.content(each.number) for each in (before, after) if each}
    if any(content.is_cut for content in contents.values()):
        return VersionsPage(tuple(lines), before, after, SetDiff(()), (), len(lines), is_cut=True)
    earlier = contents[before.number] if before else SetContent()
    later = contents[after.number] if after else SetContent()
    diff = set_diff(
        earlier.cases, later.cases, has_other_criteria=(earlier.criteria or None) != (later.criteria or None)
    )
    differing = [case for case in diff.cases if case.step != "same"][:MOST_CASES_SHOWN]
    between = [each for each in reversed(versions) if before and after and before.number < each.number <= after.number]
    origins = _origins(desk, between, earlier)
    texts = desk.evalsets.versions.cases_of({each for case in differing for each in (case.before, case.after) if each})
    keys = _addresses(desk, evalset_id)
    views = tuple(_case_view(case, texts, origins, keys) for case in differing)
    return VersionsPage(tuple(lines), before, after, diff, views, len(lines))


def _with_address(line: VersionLine, before: SetVersion | None, after: SetVersion | None) -> VersionLine:
    """The line with the address that compares this version: with B where it is earlier, else with A."""
    version = line.version
    is_earlier = after is not None and version.number < after.number
    query = (
        {"from": version.short_name, "to": after.short_name}
        if is_earlier and after
        else {"from": before.short_name if before and before.number != version.number else "", "to": version.short_name}
    )
    address = "?" + urlencode({key: value for key, value in query.items() if value})
    return VersionLine(version, line.run_ids, line.letter, address)


def _origins(desk: Desk, between: Sequence[SetVersion], earlier: SetContent) -> dict[tuple[str, str], SetVersion]:
    """The version in which a case got its content, by its id and that; of the last MOST_WALKED versions."""
    origins: dict[tuple[str, str], SetVersion] = {}
    previous_cases = set(earlier.cases)
    for version in between[-MOST_WALKED:]:
        cases = set(desk.store.set_versions.content(version.number).cases)
        for key in cases - previous_cases:
            origins[key] = version
        for case_id, _ in previous_cases - cases:
            origins[case_id, ""] = version
        previous_cases = cases
    return origins


def _addresses(desk: Desk, evalset_id: str) -> Mapping[str, str]:
    cases = desk.evalsets.evalset(evalset_id).cases
    if not isinstance(cases, tuple):
        return {}
    return {case.id: key for case, key in zip(cases, case_keys(cases), strict=True)}


def _case_view(
    case: CaseDiff,
    texts: Mapping[str, Case],
    origins: Mapping[tuple[str, str], SetVersion],
    keys: Mapping[str, str],
) -> CaseChangeView:
    before, after = texts.get(case.before), texts.get(case.after)
    is_gone = (bool(case.before) and before is None) or (bool(case.after) and after is None)
    origin = origins.get((case.case_id, case.after))
    where = f" in {origin.short_name}" if origin else ""
    author = (origin.revision_author or origin.author) if origin else ""
    words = f"{case.step}{where}{f' by {author}' if author else ''}"
    if case.step == "renamed":
        return CaseChangeView(case, f"{words}, same content", (), keys.get(case.case_id, ""))
    if case.step == "changed" and before and after:
        words += f": {changed_parts(before, after)}"
    lines = () if is_gone else tuple(changed_lines(_text(before), _text(after)))
    return CaseChangeView(case, words, lines, keys.get(case.case_id, ""), is_gone)


def _text(case: Case | None) -> str:
    return "" if case is None else case_text(case)


def changed_parts(before: Case, after: Case) -> str:
    """`turn 2, expected calls; final state`: the parts of a case that differ, three at most."""
    parts = []
    for number, (earlier, later) in enumerate(zip(before.turns, after.turns, strict=False), 1):
        parts += [f"turn {number}, {part}" for part in _changed_of_turn(earlier, later)]
    if len(before.turns) != len(after.turns):
        parts.append(f"{counted(len(after.turns), 'turn')} instead of {len(before.turns):,}")
    parts += [
        name
        for name, old_value, new_value in (
            ("scenario", before.scenario, after.scenario),
            ("initial session", before.initial_session, after.initial_session),
            ("final state", before.final_state, after.final_state),
            ("rubrics", before.rubrics, after.rubrics),
            ("other keys", before.extra, after.extra),
        )
        if old_value != new_value
    ]
    return named_words(parts, 3) if parts else "its layout"


def _changed_of_turn(earlier: Turn, later: Turn) -> list[str]:
    return [
        name
        for name, old_value, new_value in (
            ("message", (earlier.query, earlier.media), (later.query, later.media)),
            ("expected calls", earlier.expected.tool_calls, later.expected.tool_calls),
            ("reference", earlier.expected.reference, later.expected.reference),
            ("messages between", earlier.expected.intermediate, later.expected.intermediate),
            ("rubrics", earlier.rubrics, later.rubrics),
            ("other keys", (earlier.extra, earlier.expected.extra), (later.extra, later.expected.extra)),
        )
        if old_value != new_value
    ]

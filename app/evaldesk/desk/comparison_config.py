"""What was different between two runs before they started, and what of it makes them hard to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.run_facts import run_facts
from evaldesk.desk.run_recording import repeats_recorded
from evaldesk.desk.run_view import LIVE
from evaldesk.report import TextDiff, diff_text
from evaldesk.store import RunSummary

MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class ConfigLine:
    """One fact that differs, compared word by word."""

    name: str
    diff: TextDiff


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """The facts that differ, and the names of those that do not."""

    lines: Sequence[ConfigLine]
    same: Sequence[str]


def config_difference(a: RunSummary, b: RunSummary) -> ConfigDifference:
    """The frozen configuration of run B against that of run A; their notes are not part of it."""
    before, after = _facts(a), _facts(b)
    names = [name for name in {**before, **after} if name != "Note"]
    lines = [
        ConfigLine(name, diff_text(before.get(name, ""), after.get(name, "")))
        for name in names
        if before.get(name) != after.get(name)
    ]
    return ConfigDifference(lines, [name for name in names if before.get(name) == after.get(name)])


def warnings(a: RunSummary, b: RunSummary, edited: Sequence[str]) -> list[str]:
    """Why a difference between the runs may not be one between the agents; most important first."""
    said = [f"Run {run.id} still goes on, so its numbers move." for run in (a, b) if run.status in LIVE]
    if _played(a) == _played(b):
        said.append("Both score the same stored trials, so whatever differs comes from the criteria.")
    said += [
        f"Run {run.id} plays recorded answers again: where they are those of run {other.id}, both count the same "
        "answers, and their difference says nothing about chance."
        for run, other in ((a, b), (b, a))
        if repeats_recorded(run.config)
    ]
    if a.config.evalset_id != b.config.evalset_id:
        said.append("The runs are of different eval sets; only cases with the same id are compared.")
    if edited:
        named = ", ".join(edited[:MAX_NAMED]) + (" and more" if len(edited) > MAX_NAMED else "")
        were = "1 case was" if len(edited) == 1 else f"{len(edited):,} cases were"
        said.append(f"{were} edited between the runs: {named}.")
    if _rules(a) != _rules(b) and _played(a) != _played(b):
        said.append("The runs were judged by different rules, so a verdict does not mean the same in both.")
    if a.config.n != b.config.n:
        said.append(f"Run {a.id} has {_trials(a)} of each case, run {b.id} {_trials(b)}.")
    if a.config.concurrency != b.config.concurrency and _played(a) != _played(b):
        at_once = f"{a.config.concurrency} trials at once, run {b.id} {b.config.concurrency}"
        said.append(f"Run {a.id} played {at_once}: times are not quite comparable.")
    return said


def _facts(run: RunSummary) -> dict[str, str]:
    """Name -> all that is said under it; a fact without a name goes on with the one before."""
    found: dict[str, str] = {}
    name = ""
    for fact in run_facts(run):
        name = fact.name or name
        text = " ".join(filter(None, (fact.text, fact.code)))
        found[name] = f"{found[name]}; {text}" if name in found else text
    return found


def _played(run: RunSummary) -> int:
    """The run that played the trials."""
    return run.id if run.config.source_run_id is None else run.config.source_run_id


def _rules(run: RunSummary) -> tuple[object, ...]:
    config = run.config
    return config.criteria, config.pass_threshold, config.errors_are_failures


def _trials(run: RunSummary) -> str:
    return "1 trial" if run.config.n == 1 else f"{run.config.n} trials"

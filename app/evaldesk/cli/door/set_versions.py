"""`evaldesk evalset log`, `diff` and `restore`: the versions of an eval set, from the shell and for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.runs.shared import json_option, opened_desk, trust_option, workspace_option
from evaldesk.model.conclusion import counted
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.writer import show, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from evaldesk.desk.desk import Desk
    from evaldesk.model import EvalSet
    from evaldesk.model.set_versions import SetDiff, SetVersion
    from evaldesk.pages.reports.set_changes import SetChange

MARKS = {"added": "+", "changed": "~", "removed": "-", "renamed": ">"}


@click.command()
@click.argument("name", metavar="SET")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="Most versions to list.")
@json_option
@workspace_option
def log(name: str, limit: int, is_json: bool, workspace: str | None) -> None:
    """List the versions of SET, the newest first: added, changed and removed cases, author, runs.

    \b
    evaldesk evalset log calc
    evaldesk evalset log calc --json
    """
    from evaldesk.pages.door.evalsets import find_file
    from evaldesk.pages.set_versions import version_lines

    with opened_desk(workspace) as desk:
        file = find_file(desk, name)
        lines = version_lines(desk, file.id)
        n = desk.evalsets.versions.count(file.id)
    if is_json:
        show_json(
            {"evalset": file.name, "items": [_item(line.version, line.run_ids) for line in lines[:limit]]}, indent=2
        )
        return
    show(in_one_line(f"{file.name}: {counted(n, 'version')}"))
    for line in lines[:limit]:
        version = line.version
        counts = f"+{version.n_added} ~{version.n_changed} -{version.n_removed}"
        renamed = f" >{version.n_renamed}" if version.n_renamed else ""
        when = version.noted_at.astimezone().strftime("%Y-%m-%d %H:%M")
        words = f"{version.short_name} {when} {counts}{renamed} {version.n_cases:,} cases {version.source}"
        show(in_one_line(f"{words}; {line.runs_words}"))
    if n > limit:
        older_words = counted(n - limit, "older version")
        show(f"{older_words}; --limit {len(lines)} lists more." if len(lines) > limit else f"{older_words}.")


def _item(version: SetVersion, run_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "version": version.version,
        "noted_at": version.noted_at.isoformat(),
        "author": version.author,
        "origin": version.origin,
        "note": version.note,
        "commit": version.revision or None,
        "commit_author": version.revision_author or None,
        "n_cases": version.n_cases,
        "n_added": version.n_added,
        "n_changed": version.n_changed,
        "n_removed": version.n_removed,
        "n_renamed": version.n_renamed,
        "runs": list(run_ids),
    }


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="SET[@VERSION]|REV..REV [SET[@VERSION]]")
@click.option("--summary", "is_summary", is_flag=True, help="Print Markdown for a pull request.")
@json_option
@trust_option
@workspace_option
def diff(words: tuple[str, ...], is_summary: bool, is_json: bool, is_trusted: bool, workspace: str | None) -> None:
    """Compare two versions of SET case by case, or the eval sets of two revisions of git.

    SET alone compares its version before with the one of now, SET@VERSION that version with the one of now.
    REV..REV reads git in a trusted folder, and starts no program that its configuration names.

    \b
    evaldesk evalset diff calc
    evaldesk evalset diff calc@07c6ba95
    evaldesk evalset diff main..HEAD --summary
    """
    from evaldesk.errors import UsageError
    from evaldesk.pages.reports.set_changes import markdown_of_sets

    if len(words) > 2:
        raise UsageError("compare two: SET@VERSION SET@VERSION, or REV..REV SET")
    if "@" not in words[0] and ".." in words[0]:
        title, changes = _of_revisions(words, workspace, is_trusted=is_trusted)
    else:
        with opened_desk(workspace) as desk:
            title, changes = _of_versions(desk, words)
    if is_json:
        show_json({"title": title, "items": [_change_item(change) for change in changes]}, indent=2)
    elif is_summary:
        show(markdown_of_sets(changes, title), nl=False)
    else:
        _show_changes(changes)


def _of_versions(desk: Desk, words: tuple[str, ...]) -> tuple[str, list[SetChange]]:
    """The two versions that are named. Raises UsageError for those of two sets, NotFoundError."""
    from evaldesk.errors import UsageError
    from evaldesk.pages.door.evalsets import find_file
    from evaldesk.pages.reports.set_changes import SetChange

    parts = [split_version(word) for word in words]
    file = find_file(desk, parts[0][0])
    if len(parts) > 1 and find_file(desk, parts[1][0]).id != file.id:
        raise UsageError(f"{words[0]} and {words[1]} are two eval sets; compare versions of one")
    versions = desk.evalsets.versions.list(file.id)
    pair = [desk.evalsets.versions.find(file.id, name) if name else versions[0] for _, name in parts]
    if len(pair) == 1:
        pair = [pair[0], versions[0]] if parts[0][1] else [*versions[1:2], versions[0]]
    before, after = (pair[0], pair[1]) if len(pair) > 1 else (None, pair[0])
    sides = [desk.evalsets.versions.evalset(file.id, each) if each else None for each in (before, after)]
    title = f"{before.short_name if before else 'nothing'} to {after.short_name}"
    return title, [SetChange(file.name, file.place, sides[0], sides[1])]


def _of_revisions(words: tuple[str, ...], workspace: str | None, *, is_trusted: bool) -> tuple[str, list[SetChange]]:
    """The eval sets that differ between two revisions. Raises TrustError in a folder that nobody trusts."""
    from evaldesk.cli.files.exchange_files import open_home
    from evaldesk.desk.evalsets.revisions import changed_sets
    from evaldesk.desk.trust import Trust
    from evaldesk.errors import NotFoundError
    from evaldesk.pages.reports.set_changes import SetChange

    settings = open_home(workspace)
    trust = Trust(settings)
    if is_trusted:
        trust.give()
    trust.check_all()
    difference = changed_sets(settings.workspace, words[0])
    sets = [each for each in difference.sets if len(words) == 1 or words[1] in (each.name, each.place)]
    if len(words) > 1 and not sets and difference.sets:
        raise NotFoundError.among("changed eval set", words[1], [each.name for each in difference.sets])
    title = f"{difference.before} to {difference.after}"
    return title, [SetChange(each.name, each.place, each.before, each.after, each.error) for each in sets]


def split_version(word: str) -> tuple[str, str]:
    """`calc@07c6ba95` as the set and the version; the version is empty without one."""
    name, at, version = word.rpartition("@")
    return (name, version) if at and name else (word, "")


def _change_item(change: SetChange) -> dict[str, Any]:
    before, after = change.versions
    difference: SetDiff = change.diff
    cases = [
        {"case_id": case.case_id, "change": case.step, "before_id": case.before_id or None}
        for case in difference.cases
        if case.step != "same"
    ]
    return {
        "evalset": change.name,
        "place": change.place,
        "before": before or None,
        "after": after or None,
        "n_same": difference.n["same"],
        "n_comparable": len(difference.comparable),
        "has_other_criteria": difference.has_other_criteria,
        "sentence": difference.sentence,
        "cases": cases,
        "error": change.error or None,
    }


def _show_changes(changes: Sequence[SetChange]) -> None:
    from evaldesk.pages.set_versions import changed_parts

    if not changes:
        show("No eval set differs.")
    for change in changes:
        if change.error:
            show(in_one_line(f"{change.name}: {change.error}"))
            continue
        before, after = change.versions
        difference = change.diff
        show(in_one_line(f"{change.name}: {before or 'nothing'} to {after or 'nothing'}"))
        for case in difference.cases:
            if case.step == "same":
                continue
            words = f"{MARKS[case.step]} {case.before_id} > {case.after_id}" if case.step == "renamed" else ""
            earlier, later = change.cases_of(case)
            part = f": {changed_parts(earlier, later)}" if case.step == "changed" and earlier and later else ""
            show(in_one_line(words or f"{MARKS[case.step]} {case.case_id}{part}"))
        if difference.has_other_criteria:
            show("The criteria of the set differ.")
        show(f"{difference.sentence}.")


@click.command()
@click.argument("word", metavar="SET@VERSION")
@click.option("--case", "case_id", metavar="CASE", help="Restore this case alone.")
@workspace_option
def restore(word: str, case_id: str | None, workspace: str | None) -> None:
    """Write VERSION of SET into its file again, as a new version; tags and quarantine stay as they are.

    \b
    evaldesk evalset restore calc@07c6ba95
    evaldesk evalset restore calc@07c6ba95 --case roll_16
    """
    from evaldesk.errors import UsageError
    from evaldesk.pages.door.evalsets import find_file

    name, version_name = split_version(word)
    if not version_name:
        raise UsageError(f"name the version, as in {name}@07c6ba95; `evaldesk evalset log {name}` lists them")
    with opened_desk(workspace) as desk:
        file = find_file(desk, name)
        versions = desk.evalsets.versions
        version = versions.find(file.id, version_name)
        if case_id is None:
            before = versions.restore(file.id, version)
        else:
            before = versions.restore_case(file.id, version, case_id)
        after = versions.list(file.id)[0]
    subject = f"case {case_id} of {version.short_name}" if case_id else version.short_name
    show(in_one_line(f"{file.name}: restored {subject}; the set has version {after.short_name}."))
    if after.version != before.version:
        show(in_one_line(f"evaldesk evalset restore {name}@{before.short_name} takes that back."))


def set_at_version(workspace: str | None, path: Path, version_name: str) -> EvalSet:
    """The eval set in a file as it was in a version. Raises NotFoundError, UsageError."""
    from evaldesk.errors import UsageError

    with opened_desk(workspace) as desk:
        evalset_id = desk.evalsets.id_of(path.resolve())
        if not evalset_id:
            raise UsageError(f"{path} lies in no folder of this workspace, so it has no versions here")
        version = desk.evalsets.versions.find(evalset_id, version_name)
        return desk.evalsets.versions.evalset(evalset_id, version)

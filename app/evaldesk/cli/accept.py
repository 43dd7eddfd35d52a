"""`evaldesk accept RUN`: what trials did becomes what their cases expect, shown as a diff of the eval set file."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

import click

from evaldesk.cli.runs.shared import opened_desk, trial_place, workspace_option
from evaldesk.wording.writer import confirm, show, style

if TYPE_CHECKING:
    from evaldesk.desk.runs.accepting import Keys, Staged

PARTS = ("answer", "argument", "call", "calls", "state")
WAYS = {"replace": "replace", "as-well": "as_well", "tolerance": "within", "match": "match", "ignore": "ignore"}
CHOICES = "name a case (RUN:CASE), a part (--only answer) or a turn (--turn 1)"
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("subject", metavar="RUN[:CASE[:TRIAL]]")
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS), help="Accept this part; may be repeated.")
@click.option("--turn", type=click.IntRange(min=1), metavar="N", help="Accept the turn with this number alone.")
@click.option(
    "--way",
    type=click.Choice(tuple(WAYS)),
    default="replace",
    show_default=True,
    help="Replace the expectation, accept the value as well, within a tolerance or by a matcher, or ignore it.",
)
@click.option("--yes", "-y", is_flag=True, help="Write the named changes without a question.")
@workspace_option
def accept(subject: str, parts: tuple[str, ...], turn: int | None, way: str, yes: bool, workspace: str | None) -> None:
    """Accept actual results of RUN as the expectations of their cases, after a preview.

    Without CASE it is every case that failed, without TRIAL the first trial of each that failed. The run keeps its
    verdicts; how its trials would be judged now is shown. Without --only no expectation is
    removed because the agent did not do it. With --way a change that cannot be written so is left. With --yes name a
    case, a part or a turn: RUN alone chooses nothing.

    \b
    evaldesk accept 12
    evaldesk accept 12:roll_16
    evaldesk accept 12 --only answer --yes
    evaldesk accept 12:roll_16:3 --only argument --yes
    evaldesk accept 12:roll_16 --only call
    evaldesk accept 12 --way as-well
    """
    from evaldesk.desk.runs.accepting import StagedFile, left_out, one_of, save, stage
    from evaldesk.model.conclusion import counted
    from evaldesk.wording.printable import in_one_line

    name, case_id, trial = trial_place(subject, "RUN[:CASE[:TRIAL]]")
    with opened_desk(workspace) as desk:
        staged = stage(desk, desk.stored_runs.find_by_name(name), case_id, trial)
        for case, reason in staged.refusals.items():
            show(in_one_line(f"{case}: {reason}"), err=True)
        keys = one_of(staged.cases, parts, turn, WAYS[way])
        more = "" if way == "replace" else "use --way replace, and "
        how = "use --way {}" if parts else f"{more}name its part with --only to accept it"
        left_cases = left_out(staged.cases, keys, parts, turn)
        for case, left_text, ways in left_cases:
            way_names = " or ".join(name for name, each in WAYS.items() if each in ways)
            show(in_one_line(f"{case}: left as it is: {left_text} ({how.format(way_names)})"), err=True)
        n_changes, n_cases = sum(map(len, keys.values())), sum(map(bool, keys.values()))
        if not n_changes:
            show("Nothing is accepted." if left_cases else "There is nothing to accept.")
            return
        file = StagedFile(desk, staged)
        file_name = in_one_line(staged.file_name)
        _show(file_name, file.before, file.after(keys))
        _show_effects(staged, keys)
        what = f"{counted(n_changes, 'change')} in {counted(n_cases, 'case')}"
        if yes and not (case_id or parts or turn):
            raise click.UsageError(f"--yes asks nobody, so choose the changes: {CHOICES}")
        if not yes and not _is_confirmed(f"Write {what} to {file_name}?"):
            show("Nothing was written.")
            return
        token = save(desk, staged, keys)
        more_words = f" {counted(staged.n_more, 'case')} more failed: accept again." if staged.n_more else ""
        show(f"Wrote {what} to {file_name}.{more_words} Take it back: evaldesk trash restore {token}")


def _is_confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("this writes a file and nobody can be asked here; add --yes, and " + CHOICES)
    return confirm(question)


def _show(file_name: str, before: str, after: str) -> None:

    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), file_name, f"{file_name}, accepted", lineterm="", n=2
    )
    for line in lines:
        show(style(line, fg=COLOURS.get(line[:1])))


def _show_effects(staged: Staged, keys: Keys) -> None:
    from evaldesk.wording.printable import in_one_line
    from evaldesk.wording.words import passed_words

    names = {each.key: each.case.id for each in staged.cases}
    for key, effect in staged.effects(keys).items():
        before, after = (passed_words(each.passed, each.scored) for each in (effect.before, effect.after))
        show(in_one_line(f"{names[key]}: {before}; {after} by the new expectations"))

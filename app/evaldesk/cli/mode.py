"""`evaldesk mode`: the kinds of failure of a workspace."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from evaldesk.cli.files.exchange_files import announced, visible, write_bytes
from evaldesk.cli.runs.shared import json_option, opened_desk, workspace_option
from evaldesk.errors import UsageError
from evaldesk.model.failures import FORMS
from evaldesk.wording.writer import show, show_json

_by_option = click.option("--by", metavar="NAME", default=None, help="Who does it; the last reader by default.")


@click.group()
def mode() -> None:
    """List, merge, check, export and import the kinds of failure that people found in trials.

    \b
    evaldesk mode list
    evaldesk mode merge "wrong day" "wrong date"
    evaldesk mode undo
    evaldesk mode export -o failures.json
    evaldesk mode import failures.json
    evaldesk mode check 61 --max-mode "wrong date=0.05"
    evaldesk mode judge "wrong date"
    evaldesk mode cases "wrong date"
    """


@mode.command(name="list")
@json_option
@workspace_option
def list_modes(is_json: bool, workspace: str | None) -> None:
    """List the kinds of failure with the number of trials that show each.

    \b
    evaldesk mode list
    """
    from evaldesk.wording.printable import in_one_line

    with opened_desk(workspace) as desk:
        modes = [each for each in desk.failures.modes() if each.is_active]
        trials = {each.id: desk.failures.trials_by_run(each.id) for each in modes}
    if is_json:
        rows = [
            {
                "name": each.name,
                "definition": each.definition,
                "life": each.life,
                "fixed_in": each.fixed_in,
                "reopened_in": each.reopened_in,
                "trials_by_run": {str(run): n for run, n in trials[each.id].items()},
            }
            for each in modes
        ]
        show_json(rows)
        return
    for each in modes:
        n = sum(trials[each.id].values())
        show(f"{in_one_line(each.name)}: {'1 trial' if n == 1 else f'{n:,} trials'}, {each.life_words}")
    if not modes:
        show("No kinds of failure yet. Open a failed trial in the desk and write what went wrong.")


@mode.command()
@click.argument("name", metavar="NAME")
@click.argument("into", metavar="INTO")
@_by_option
@workspace_option
def merge(name: str, into: str, by: str | None, workspace: str | None) -> None:
    """Let all findings of the kind of failure NAME belong to INTO.

    \b
    evaldesk mode merge "wrong day" "wrong date"
    """
    from evaldesk.wording.printable import in_one_line

    with opened_desk(workspace) as desk:
        failures = desk.failures
        source_mode, target_mode = failures.find_mode(name), failures.find_mode(into)
        failures.merge(source_mode.id, target_mode.id, by if by is not None else desk.person.name())
    show(f"Merged “{in_one_line(source_mode.name)}” into “{in_one_line(target_mode.name)}”. Undo: evaldesk mode undo")


@mode.command()
@_by_option
@workspace_option
def undo(by: str | None, workspace: str | None) -> None:
    """Take back the last step of a reader: a finding, a new name, a merge, a split.

    \b
    evaldesk mode undo
    """
    from evaldesk.wording.printable import in_one_line

    with opened_desk(workspace) as desk:
        step = desk.failures.undo(by if by is not None else desk.person.name())
    show(f"Undone: {in_one_line(step.words)}")


@mode.command(name="export")
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(tuple(FORMS)),
    default="json",
    show_default=True,
    help="JSON of all that `import` takes in, a finding a line as JSON lines, or the kinds as Markdown.",
)
@click.option("-o", "--output", metavar="FILE", help="Output file; default: the stream.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@workspace_option
def export_file(name: str | None, form: str, output: str | None, force: bool, workspace: str | None) -> None:
    """Write the kinds of failure and their findings, or those of the kind NAME.

    \b
    evaldesk mode export -o failures.json
    evaldesk mode export "wrong date" --format jsonl -o findings.jsonl
    """
    from evaldesk.desk.failure_files import export_failures

    with opened_desk(workspace) as desk:
        kind = desk.failures.find_mode(name) if name is not None else None
        failure_export = export_failures(desk, form, kind)
        write_bytes(announced(failure_export), output, ending=failure_export.file_name, is_forced=force)


@mode.command(name="import")
@click.argument("file", metavar="FILE")
@_by_option
@workspace_option
def import_file(file: str, by: str | None, workspace: str | None) -> None:
    """Add the kinds of failure of FILE that are not here yet, and its findings on trials that are here.

    FILE is .json or .jsonl of `mode export`. A note that is here without a kind gets the one that FILE names.

    \b
    evaldesk mode import failures.json
    """
    from evaldesk.desk.failure_files import import_modes
    from evaldesk.desk.imports.files import bytes_of

    with opened_desk(workspace) as desk:
        author = by if by is not None else desk.person.name()
        show(import_modes(desk, bytes_of(Path(file)), file, author).words)


@mode.command(name="cases")
@click.argument("name", metavar="NAME")
@click.option("--run", type=click.IntRange(1), help="Of the findings of this run alone.")
@click.option("--into", metavar="SET", help="An eval set, or the name of a new one; default: the name of the kind.")
@workspace_option
def make(name: str, run: int | None, into: str | None, workspace: str | None) -> None:
    """Make cases of the trials with the kind of failure NAME: what was said until then, with what the case expects.

    \b
    evaldesk mode cases "wrong date" --into trips
    """
    from evaldesk.desk.evalsets.names import slug
    from evaldesk.desk.failure_cases import make_cases

    with opened_desk(workspace) as desk:
        kind = desk.failures.find_mode(name)
        set_name = into or slug(kind.name)
        set_id = next((file.id for file in desk.evalsets.list() if set_name in (file.name, file.id)), "")
        new_cases = make_cases(desk, kind, set_id, set_name, run)
    show(visible(new_cases.words))
    for case_id in new_cases.ids:
        show(f"  {visible(case_id)}")


@mode.command()
@click.argument("run", metavar="RUN", type=click.IntRange(1))
@click.option("--max-mode", metavar="NAME=RATE", multiple=True, required=True, help="At most this share of trials.")
@workspace_option
def check(run: int, max_mode: tuple[str, ...], workspace: str | None) -> None:
    """Check that few enough trials of RUN have a kind of failure, by what people read.

    Exit code 0 when each holds, 1 when one fails, 3 when one is undecided because too little was read.

    \b
    evaldesk mode check 61 --max-mode "wrong date=0.05"
    """
    from evaldesk.pages.failures.room import mode_gate
    from evaldesk.wording.printable import in_one_line

    bounds = [_share_bound(each) for each in max_mode]
    with opened_desk(workspace) as desk:
        gate_answers = [mode_gate(desk, run, name, rate) for name, rate in bounds]
    for answer, words in gate_answers:
        show(f"{answer}: {in_one_line(words)}")
    answers = {answer for answer, _ in gate_answers}
    sys.exit(1 if "failed" in answers else 3 if "undecided" in answers else 0)


@mode.command()
@click.argument("name", metavar="NAME")
@click.option("--criteria", "is_file", is_flag=True, help="Print a criteria file with the judge instead.")
@workspace_option
def judge(name: str, is_file: bool, workspace: str | None) -> None:
    """Compare the judge of a kind of failure with what people found, in the newest runs that have one.

    \b
    evaldesk mode judge "wrong date"
    evaldesk mode judge "wrong date" --criteria > criteria.json
    """
    from evaldesk.desk.failures import judge_criterion
    from evaldesk.pages.failures.kind import calibrations

    with opened_desk(workspace) as desk:
        kind = desk.failures.find_mode(name)
        judge_calibrations = [] if is_file else calibrations(desk, kind)
    if is_file:
        criterion = judge_criterion(kind)
        options = {"threshold": criterion.threshold, **criterion.options}
        show_json({"criteria": {criterion.metric: options}}, indent=2)
        return
    for each in judge_calibrations:
        earlier = "" if each.is_current else " (an earlier definition)"
        words = (each.agreement_words, each.kappa, each.share, each.next_labels)
        show(f"Run {each.run.id}{earlier}: {'. '.join(filter(None, words))}.")
    if not judge_calibrations:
        show("No run has a judge of it yet. Add --criteria for a criteria file with one.")


def _share_bound(text: str) -> tuple[str, float]:
    name, equals, rate = text.rpartition("=")
    try:
        share = float(rate)
    except ValueError:
        share = -1.0
    if not equals or not 0 <= share <= 1:
        raise UsageError(f'--max-mode {text}: write NAME=RATE with a rate of 0 to 1, such as "wrong date=0.05"')
    return name, share

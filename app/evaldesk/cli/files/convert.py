"""`evaldesk convert`: a file of one format as a file of another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaldesk.cli.files.exchange_files import read_path, visible, write_bytes
from evaldesk.errors import UsageError

if TYPE_CHECKING:
    from evaldesk.formats.exchange import Imported
    from evaldesk.model import EvalSet
    from evaldesk.transcripts.recorded import RecordedRun


@click.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT")
@click.option("--from", "from_name", metavar="FORMAT", help="Format of the file; default: detected.")
@click.option("--to", "to_name", metavar="FORMAT", help="Format of OUT; default: by its file ending.")
@click.option("--force", is_flag=True, help="Replace an existing OUT.")
def convert(source: Path, target: str, from_name: str | None, to_name: str | None, force: bool) -> None:
    """Convert the eval set or the run of IN to OUT; `-` is the stream.

    A value that the new format does not support is an error, or is listed as left out.

    \b
    evaldesk convert questions.csv questions.evalset.json
    evaldesk convert session.json - --to openai-messages
    """
    from evaldesk.formats import FORMATS, losses
    from evaldesk.formats.files import write_file
    from evaldesk.model import EvalSet

    imported = read_path(source, from_name)
    name = to_name or _format_of(target, imported)
    what = _chosen(imported, name)
    data = write_file(what, name)
    write_bytes(data, target, is_forced=force)
    lost = losses(what, name) if name in FORMATS and isinstance(what, EvalSet) else ()
    for sentence in (*imported.refused, *lost):
        click.echo(f"evaldesk: left out: {visible(sentence.removeprefix('Left out: '))}", err=True)


def _format_of(target: str, imported: Imported) -> str:
    """The one format that the ending of a name says, of a run only where it says none of an eval set.

    Raises UsageError when it says none, or several.
    """
    from evaldesk.formats.files import names_for, suffix_of

    of_sets, of_runs = names_for("evalset") if imported.evalset else (), names_for("run") if imported.runs else ()
    named = {name: suffix_of(name) for name in (*of_sets, *of_runs)}
    fitting = [name for name, suffix in named.items() if target.lower().endswith(suffix)]
    longest = max((len(named[name]) for name in fitting), default=0)
    best = [name for name in fitting if len(named[name]) == longest]
    best = [name for name in best if name in of_sets] or best
    if len(best) == 1:
        return best[0]
    why = f"could be {', '.join(best)}" if best else f"says none of {', '.join(named)}"
    raise UsageError(f"{target}: the name {why}; choose one with --to")


def _chosen(imported: Imported, name: str) -> EvalSet | RecordedRun:
    """The part of the file that is written: a run where the format holds runs only, else the eval set."""
    from evaldesk.formats.files import names_for

    if imported.evalset and name in names_for("evalset"):
        return imported.evalset
    if len(imported.runs) > 1:
        raise UsageError(f"the file holds {len(imported.runs)} runs; import it, and export them one by one")
    if imported.runs:
        return imported.runs[0]
    if imported.evalset:
        return imported.evalset
    raise UsageError("the file holds neither an eval set nor a run")

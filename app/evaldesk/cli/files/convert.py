"""`evaldesk convert`: a file of one format as a file of another."""

from __future__ import annotations

from pathlib import Path

import click

from evaldesk.cli.files.exchange_files import show_masked, visible, write_bytes


@click.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT")
@click.option("--from", "from_name", metavar="FORMAT", help="Format of the file; default: detected.")
@click.option("--to", "to_name", metavar="FORMAT", help="Format of OUT; default: by its file ending.")
@click.option("--force", is_flag=True, help="Replace an existing OUT.")
def convert(source: Path, target: str, from_name: str | None, to_name: str | None, force: bool) -> None:
    """Convert the eval set or the run of IN to OUT; `-` is the stream.

    A value that the new format does not support is an error, or is listed as left out. Secrets of the environment
    are masked, and listed.

    \b
    evaldesk convert questions.csv questions.evalset.json
    evaldesk convert session.json - --to openai-messages
    """
    from evaldesk.desk.imports.files import convert_file

    found = convert_file(source, target, from_name, to_name)
    write_bytes(found.data, target, is_forced=force)
    for sentence in found.left_out:
        click.echo(f"evaldesk: left out: {visible(sentence.removeprefix('Left out: '))}", err=True)
    show_masked(found.masked)

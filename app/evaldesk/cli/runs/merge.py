"""`evaldesk run merge`: one result of the shards that several machines played, with the answers of its gates."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from evaldesk.cli.eval.outcome import show_conclusion
from evaldesk.cli.eval.output_files import write_result
from evaldesk.cli.eval.shard_json import merged_result
from evaldesk.cli.runs.shared import json_option
from evaldesk.desk.runs.shard_files import read_shards
from evaldesk.model.conclusion import counted
from evaldesk.wording.words import passed_sentence
from evaldesk.wording.writer import show, show_document


@click.command()
@click.argument("names", metavar="FILE ...", nargs=-1, required=True)
@click.option("--output", "-o", metavar="FILE", help="The merged result, a .json file for `compare` and `--baseline`.")
@json_option
def merge(names: tuple[str, ...], output: str | None, is_json: bool) -> None:
    """Merge the result files of all shards into one result, and answer its gates.

    Each FILE is of `evaldesk eval --shard I/N -o FILE.json`. The exit code is that of `evaldesk eval` of all cases.

    \b
    evaldesk run merge shard1.json shard2.json -o all.json
    """
    shards = read_shards(names)
    text, conclusion, numbers = merged_result(shards)
    if output:
        write_result(Path(output), text.encode() + b"\n")
    if is_json:
        show_document([text.encode(), b"\n"], ".json")
    else:
        show(f"{counted(len(shards), 'shard')}, {counted(numbers.n_cases, 'case')}: ", nl=False)
        show(passed_sentence(numbers.counts, numbers.interval))
        show_conclusion(conclusion, has_gates=not shards[0].gates.asks_nothing)
    sys.exit(conclusion.exit_code)

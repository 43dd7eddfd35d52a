"""`evaldesk run merge`: one result of the shards that several machines played, with the answers of its gates."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from evaldesk.cli.eval.outcome import show_conclusion
from evaldesk.cli.eval.output_files import check_outputs, write_junit, write_result, write_summary
from evaldesk.cli.eval.request import EvalRequest
from evaldesk.cli.eval.shard_json import merge_shards
from evaldesk.cli.runs.shared import json_option
from evaldesk.desk.runs.shard_files import read_shards
from evaldesk.errors import UsageError
from evaldesk.model.conclusion import counted
from evaldesk.wording.words import passed_sentence
from evaldesk.wording.writer import show, show_document


@click.command()
@click.argument("names", metavar="FILE ...", nargs=-1, required=True)
@click.option("--output", "-o", metavar="FILE", help="The merged result, a .json file for `compare` and `--baseline`.")
@click.option("--junit", metavar="FILE", help="JUnit XML, as `evaldesk eval` writes it of all cases.")
@click.option("--summary", metavar="FILE", help="Markdown for a pull request; appended to $GITHUB_STEP_SUMMARY.")
@json_option
def merge(names: tuple[str, ...], output: str | None, junit: str | None, summary: str | None, is_json: bool) -> None:
    """Merge the result files of all shards into one result, and answer its gates.

    Each FILE is of `evaldesk eval --shard I/N -o FILE.json`. The exit code is that of `evaldesk eval` of all cases.

    \b
    evaldesk run merge shard1.json shard2.json -o all.json --junit all.xml
    """
    if output and not output.endswith(".json"):
        raise UsageError(f"-o {output}: a merged result is JSON; name a .json file")
    check_outputs(EvalRequest((), outputs=(output,) if output else (), junit=junit, summary=summary))
    shards = read_shards(names)
    merged = merge_shards(shards)
    if output:
        write_result(Path(output), merged.text.encode() + b"\n")
    if junit:
        write_junit(junit, [merged.suite], merged.conclusion)
    if summary:
        write_summary(summary, [merged.part], merged.conclusion, merged.change)
    if is_json:
        show_document([merged.text.encode(), b"\n"], ".json")
    else:
        show(f"{counted(len(shards), 'shard')}, {counted(merged.numbers.n_cases, 'case')}: ", nl=False)
        show(passed_sentence(merged.numbers.counts, merged.numbers.interval))
        show_conclusion(merged.conclusion, has_gates=not shards[0].gates.asks_nothing)
    sys.exit(merged.conclusion.exit_code)

"""The options of `evaldesk eval` in the form of an OpenHands benchmark."""

from __future__ import annotations

from dataclasses import dataclass

import click

from evaldesk.cli.eval.options import ToolOptions, dataset_option


@dataclass(frozen=True, slots=True)
class OpenHandsOptions:
    """The options as they were given; None is not given."""

    benchmark: str | None = None
    dataset: str | None = None
    command_image: str | None = None
    llm_config: str | None = None
    config_file: str = "config.toml"
    max_iterations: int | None = None
    eval_n_limit: int | None = None
    eval_ids: str | None = None
    eval_note: str | None = None
    eval_output_dir: str | None = None
    eval_metadata: str | None = None
    evaluation: str | None = None
    score_key: str | None = None


OPTIONS = ToolOptions(
    section="As an OpenHands benchmark",
    options=(
        click.Option(["--benchmark"], metavar="MODULE:FUNCTION", help="The function `process_instance`."),
        dataset_option(),
        click.Option(
            ["--command-image"],
            metavar="NAME",
            help="Run the commands of its runtime in a container of this image; `instance`: the one that it names.",
        ),
        click.Option(["--llm-config", "-l"], metavar="NAME", help="The group of config.toml."),
        click.Option(["--config-file"], metavar="FILE", default="config.toml", help="The file of --llm-config."),
        click.Option(
            ["--max-iterations", "-i"], type=click.IntRange(1), metavar="N", help="Model calls in an instance."
        ),
        click.Option(["--eval-n-limit"], type=click.IntRange(0), metavar="N", help="Instances to draw, seed 42."),
        click.Option(["--eval-ids"], metavar="ID,ID", help="The instances to run."),
        click.Option(["--eval-note"], metavar="TEXT", help="Ends the name of the output folder."),
        click.Option(
            ["--score-key"],
            metavar="KEY",
            help="The key of test_result that says 1 or 0; success.",
        ),
        click.Option(["--eval-output-dir"], metavar="DIR", help="Where output.jsonl goes."),
        click.Option(["--eval-metadata"], hidden=True),
        click.Option(["--evaluation"], hidden=True),
    ),
    selectors=frozenset({"benchmark"}),
    requirement="needs --benchmark, as a benchmark of OpenHands",
)

"""`evaldesk eval` with what makes no sense: one line, the right exit code, and nothing played."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from evaldesk.cli import EXIT_USAGE, _in_words, cli
from evaldesk.cli.broken_pipe import EXIT_READER_LEFT

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

WRONG_FILES = {
    "empty.json": b"",
    "binary.json": b"\xff\xfe\x00\x01",
    "torn.json": b"[1, 2",
    "other.json": b'{"a": 1}',
    "text.json": b'"x"',
}


@pytest.mark.parametrize("name", [*WRONG_FILES, "folder", "missing.json"])
@pytest.mark.parametrize("option", ["", "--config-file-path", "--baseline"])
def test_a_file_that_is_none_is_one_line(place: CommandFolder, name: str, option: str) -> None:
    (place.folder / "folder").mkdir()
    if name in WRONG_FILES:
        (place.folder / name).write_bytes(WRONG_FILES[name])
    right = place.evalset("right", {"one": "one"})

    arguments = [right, option, name, "--n", "1"] if option else [name]
    result = place.run("eval", place.agent, *arguments)

    assert isinstance(result.exception, Exception)
    said, code = _in_words(result.exception)
    assert code == EXIT_USAGE, said
    assert name in said
    assert "\n" not in said
    assert not any(word in said for word in ("Traceback", "Error(", "Errno"))


def test_a_link_to_nowhere_is_not_proposed_in_its_own_place(place: CommandFolder) -> None:
    (place.folder / "gone.evalset.json").symlink_to("nowhere")

    result = place.run("eval", place.agent, "gone.evalset.json")

    assert str(result.exception) == (
        "gone.evalset.json is not a file; name an eval set, such as evalsets/my.evalset.json"
    )


def test_a_folder_that_is_closed_to_the_user_is_named_and_no_fault_of_ours(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if "closed" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)

    result = place.run("eval", place.agent, "closed/set.evalset.json")

    assert isinstance(result.exception, Exception)
    assert _in_words(result.exception) == ("closed/set.evalset.json: Permission denied", EXIT_USAGE)


@pytest.mark.parametrize(
    "options",
    [
        ("--n", "0"),
        ("--n", "-3"),
        ("--n", "1001"),
        ("--n", "x"),
        ("--concurrency", "0"),
        ("--timeout", "inf"),
        ("--timeout", "nan"),
        ("--min-pass-rate", "nan"),
        ("--min-case-pass-rate", "2"),
        ("--max-error-rate", "-0.1"),
        ("--max-cost", "nan"),
        ("--pass-at", "5=nan"),
        ("--pass-hat", "0=1"),
        ("--max-regressions", "-1"),
        ("--criterion", "response_exact"),
        ("--recording", "sometimes"),
        ("--nonsense",),
    ],
    ids=" ".join,
)
def test_a_number_that_cannot_be_is_wrong_usage(place: CommandFolder, options: tuple[str, ...]) -> None:
    result = place.eval(place.evalset("right", {"one": "one"}), *options)

    assert result.exit_code == EXIT_USAGE
    assert options[0] in result.output
    assert not (place.folder / ".evaldesk").exists()


def test_a_reader_who_leaves_changes_neither_files_nor_verdict(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.evalset("right", {"one": "one", "two": "other"})

    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("evaldesk.cli.eval.report.click.echo", gone)
    held = place.eval(path, "-o", "result.json", "--junit", "junit.xml", "--min-pass-rate", "0.5", "--annotations")
    failed = place.eval(path, "--json")

    assert (held.exit_code, failed.exit_code) == (0, 1)
    assert json.loads((place.folder / "result.json").read_text())["is_held"] is True
    assert (place.folder / "junit.xml").exists()


def test_a_listing_that_nobody_reads_ends_quietly(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(click, "echo", gone)

    result = place.run("metrics")

    assert (result.exit_code, result.output) == (EXIT_READER_LEFT, "")


def test_no_color_means_no_colour(place: CommandFolder) -> None:
    path = place.evalset("right", {"one": "one", "two": "other"})
    arguments = ["eval", str(place.agent), str(path), "--criterion", "response_exact=1", "--min-pass-rate", "1"]

    plain = CliRunner().invoke(cli, arguments, env={"NO_COLOR": "1"}, color=True)
    coloured = CliRunner().invoke(cli, arguments, env={"NO_COLOR": None}, color=True)

    assert "✗ failed --min-pass-rate" in plain.output
    assert "\x1b" not in plain.output
    assert "\x1b[31m✗" in coloured.output


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("", (), "names no model"),
        ("openai/gpt-5-mini", (), "OPENAI_API_KEY is not set"),
        ("openai/gpt-5-mini", ("--temperature", "0.5"), "OPENAI_API_KEY is not set"),
    ],
    ids=["no model", "no key", "no key and an option"],
)
def test_a_model_without_a_name_or_a_key_is_refused_before_anything_is_stored(
    place: CommandFolder, model: str, options: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (place.agent / "agent.py").write_text(
        f"from evaldesk import LlmAgent\n\nroot_agent = LlmAgent('shop', {model!r})\n"
    )
    path = place.evalset("right", {"one": "one"})

    result = place.run("eval", place.agent, path, *options)

    assert isinstance(result.exception, Exception)
    words, code = _in_words(result.exception)
    assert (code, said in words) == (EXIT_USAGE, True), words
    assert not place.store().runs.counts_by_status()


def test_an_agent_without_its_key_is_played_at_an_address_of_its_own(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (place.agent / "agent.py").write_text(
        "from evaldesk import LlmAgent\n\nroot_agent = LlmAgent('shop', 'openai/one')\n"
    )
    path = place.evalset("right", {"one": "one"})

    result = place.run("eval", place.agent, path, "--base-url", "http://127.0.0.1:9/v1", "--retries", "0")

    assert result.exit_code == 3  # the address refuses, which only a trial can say

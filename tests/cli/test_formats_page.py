"""docs/formats.md names every format as it is, and its commands do what they say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from shutil import copyfile

import pytest
from click.testing import CliRunner
from tests.islands import of_all_tools

from evaldesk.cli import cli
from evaldesk.formats.exchange import FORMATS
from evaldesk.formats.files import names_for, read_file

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text("utf-8")
SAMPLES = ROOT / "tests" / "formats" / "exchange_samples"
FORMATS_SECTION = PAGE.partition("\n## The formats\n")[2].partition("\n## ")[0]
ROWS = [line.strip("|").split("|") for line in FORMATS_SECTION.splitlines() if line.startswith("| `")]
TABLE = {name: [cell.strip() for cell in row] for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])}
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines()]
FILES = {
    "airline.json": "tau-bench.json",
    "trace.json": "otel.json",
    "popularity.eval": "inspect.json",
    "bfcl.jsonl": "bfcl.jsonl",
}


@of_all_tools
def test_every_format_has_a_row() -> None:
    assert list(TABLE) == list(FORMATS)


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_row_says_what_is_read_and_written(name: str) -> None:
    _, _, read, written, _ = TABLE[name]
    sample = next(iter(SAMPLES.glob(f"{name}.*")), None)

    assert ("eval set" in written, written.startswith("run"), written == "-") == (
        name in names_for("evalset"),
        name in names_for("run"),
        name not in names_for("evalset") + names_for("run"),
    )
    if sample is not None:
        imported = read_file(sample.read_bytes(), sample.name, name)
        assert ("eval set" in read, "run" in read) == (imported.evalset is not None, bool(imported.runs))


@of_all_tools
def test_the_commands_work_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, sample in FILES.items():
        copyfile(SAMPLES / sample, tmp_path / name)
    (tmp_path / "test_config.json").write_text('{"criteria": {"tool_exact": 1.0}}')
    ours = [words[1:] for words in COMMANDS if words[0] == "evaldesk"]

    for words in ours:
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, (words, done.output, done.exception)

    assert len(ours) == 11
    for name in ("airline.otel.json", "again.otel.json"):
        assert json.loads((tmp_path / name).read_bytes())["resourceSpans"]
    assert json.loads((tmp_path / "tasks.json").read_bytes())[0]["user_scenario"] == {"instructions": "Book a table."}
    assert json.loads((tmp_path / "trace.evalset.json").read_bytes())["eval_cases"]
    assert (tmp_path / "popularity.jsonl").read_text("utf-8").startswith('{"schema_version": "ATIF')

"""All text that leaves goes through one writer that knows its reader; every other place that writes has a reason."""

from __future__ import annotations

import ast
import csv
import io
import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest
from tests.islands import of_all_tools
from tests.parsed_sources import parsed

from evaldesk.cli.files.export import export, report
from evaldesk.cli.mode import mode
from evaldesk.desk.evalsets.exporting import run_formats
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    Event,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.failures import FindingDraft
from evaldesk.paths import PACKAGE
from evaldesk.store import Store
from evaldesk.wording.log_writer import write_logs
from evaldesk.wording.printable import cell, html_document, json_document, printable
from evaldesk.wording.writer import show, show_document, show_json, show_progress, style

HOSTILE = (
    "=1+1\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202e\u2066\u2028\r\n::error file=x::forged\n##[add-mask]y\n"
    "  ::stop-commands::z\n\u3000::set-output name=a::b\na ##vso[task.prependpath]b "
    "##teamcity[setParameter name='env.PATH' value='c']\nsection_start:1:a[collapsed=true]\r\x1b[0Kb"
)
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)
"""As the runners of GitHub, Azure and TeamCity read a log; GitLab reads commands before an escape sequence only."""


def steering(text: str) -> list[str]:
    """What of a text a terminal or a build would obey."""
    return [*STEERS.findall(text.replace("\r\n", "\n")), *COMMAND.findall(text)]


# Where text is written without the writer, by file and function, each with its reason.
_OWN_PIPE = "frames between processes of Evaldesk, read by no person"
_HTTP = "the body of an HTTP answer, not a stream of the command"
_CAPTURED = "runs in a worker, whose streams are the log of its trial, in the database and on pages"
REASONS = {
    "__main__.py:main": "a constant, before anything is imported",
    "integrations/openhands/benchmark.py:InstanceProcess._print": _CAPTURED,
    "integrations/openhands/kit/logger.py:_StderrHandler.emit": _CAPTURED,
    "integrations/openhands/child.py:main": _CAPTURED,
    "integrations/openhands/evaluation.py:_results": "one printable line, on an interpreter without click",
    "cli/__init__.py:main": "how a letter is written that the locale of a stream lacks",
    "cli/broken_pipe.py:open_closed_streams": "a stream in the place of one that the shell closed",
    "cli/eval/progress.py:ProgressBar.__init__": "a bar of rich, whose only text is made one printable line before",
    "engine/worker/attempt.py:_write_raw": _CAPTURED,
    "engine/worker/main.py:Channel._write_now": _OWN_PIPE,
    "engine/worker/attempt.py:capture_output": _CAPTURED,
    "durable_files.py:_write_all": "the bytes of a file, which its caller made",
    "formats/process.py:": _OWN_PIPE,
    "store/evalsets/indexing.py:": _OWN_PIPE,
    "testing/agent_evaluator.py:conclude": "a warning of Python, made one printable line",
}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
QUESTIONS_TO_A_STREAM = {"isatty", "flush", "fileno", "reconfigure", "encoding"}
WRITERS = {
    "os.write",
    *("click.echo", "click.secho", "click.confirm", "click.prompt", "click.pause", "click.echo_via_pager"),
    *("print", "pprint", "rich.print", "Console", "traceback.print_exc", "traceback.print_exception", "warnings.warn"),
    *("logging.basicConfig", "logging.StreamHandler", "StreamHandler", "faulthandler.enable"),
}


def _with_words(names: Iterable[str]) -> list[Path]:
    """The modules in whose text the last part of a name stands; to parse all modules takes two seconds."""
    words = re.compile(rf"\b(?:{'|'.join({name.rpartition('.')[2] for name in names})})\b")
    return [path for path in PACKAGE.rglob("*.py") if words.search(path.read_text("utf-8"))]


def _places(path: Path) -> Iterator[str]:
    """The functions of a file that write text to a stream without the writer."""
    tree = parsed(path)
    name = path.relative_to(PACKAGE).as_posix()

    def walk(node: ast.AST, where: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{where}.{child.name}".removeprefix(".")
            if isinstance(child, ast.Attribute) and child.attr in QUESTIONS_TO_A_STREAM and _is_stream(child.value):
                continue
            if _is_stream(child) or (isinstance(child, ast.Call) and _called(child, WRITERS) in WRITERS):
                yield f"{name}:{inner}"
            yield from walk(child, inner)

    return walk(tree, "")


def _called(node: ast.Call, wanted: Iterable[str]) -> str:
    """The name of what is called, with its owner; only where it ends as a wanted one: to write each takes a second."""
    last = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return ast.unparse(node.func) if any(name.rpartition(".")[2] == last for name in wanted) else ""


def _is_stream(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in STREAMS and ast.unparse(node.value) == "sys"


@of_all_tools
def test_every_place_that_writes_to_a_stream_is_the_writer_or_has_a_reason() -> None:
    found = {place for path in _with_words({*WRITERS, *STREAMS}) for place in _places(path)}

    others = {place for place in found if not place.startswith("wording/writer.py:")}
    assert others - REASONS.keys() == set(), "write with evaldesk.wording.writer, or add the place with its reason"
    assert REASONS.keys() - others == set(), "this place writes no more"


# Where files are written and tables or pages are made, by the reader that the text is made for.
_OWN = "a file of Evaldesk, read by itself only"
_AGENT = "the files of a trial, as its agent or its case writes them"
_SET = "an eval set, byte for byte as its format has it"
FILES = {
    "agents/containers.py": _AGENT,
    "integrations/openhands/kit/runtime.py": _AGENT,
    "integrations/openhands/kit/shared.py": _AGENT,
    "agents/workspaces.py": _AGENT,
    "cli/door/skill.py": "Markdown of Evaldesk alone",
    "cli/eval/output_files.py": "spreadsheet: `cell`; Markdown and JUnit: made by pages.reports; JSON; all masked",
    "cli/files/exchange_files.py": "an export or report, made by desk.evalsets.exporting, desk.experiments.exchange, "
    "pages.experiment_files or web.report, masked",
    "integrations/openai_evals/command/adopt.py": "JSON, Markdown and Python with quoted texts of an export, masked",
    "integrations/osmosis/command/rubric.py": "JSON",
    "desk/adopting.py": "the file of a project after a change that a person saw",
    "desk/evalsets/case_trash.py": _OWN,
    "desk/evalsets/exporting.py": "spreadsheet: `cell`",
    "desk/experiments/prompts.py": "a prompt, as a person typed it, masked",
    "desk/imports/streamed.py": _OWN,
    "desk/inbox/listening.py": _OWN,
    "desk/inbox/notices.py": _OWN,
    "desk/inbox/pulling.py": _OWN,
    "desk/inbox/receiver.py": _OWN,
    "desk/imports/uploads.py": _OWN,
    "desk/repair.py": _OWN,
    "integrations/openhands/command/output.py": "JSON, in the layout of OpenHands",
    "integrations/openhands/evaluation.py": "JSON, for `evaldesk eval`, and rows as OpenHands has them",
    "desk/runs/provenance.py": _OWN,
    "desk/trust.py": _OWN,
    "desk/workspace.py": "samples of Evaldesk",
    "durable_files.py": "the bytes of a file, which its caller made",
    "formats/__init__.py": _SET,
    "integrations/osmosis/dataset.py": _SET,
    "llm/recording.py": _OWN,
    "pages/experiment_files.py": "spreadsheet: `cell`",
    "pages/reports/adk_rows.py": "spreadsheet: `cell`",
    "pages/reports/junit.py": "XML of printable text",
    "pages/runs/table_export.py": "spreadsheet: `cell`; JSON",
    "store/evalsets/files.py": _SET,
    "store/evalsets/trash.py": _OWN,
    "store/recovery.py": _OWN,
    "web/render.py": "HTML: cells that macros of Jinja escaped",
    "web/report.py": "HTML: a page that Jinja escaped, masked",
}
MAKES_FILES = {
    *("append_file", "create_file", "replace_file", "write_output", "Path.write_text", "Path.write_bytes"),
    *("csv.writer", "csv.DictWriter", "to_csv", "to_parquet", "to_html", "ET.tostring", "Markup"),
}


@of_all_tools
def test_every_module_that_makes_a_file_names_its_reader() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in _with_words(MAKES_FILES)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and _makes_file(_called(node, MAKES_FILES))
    }

    assert found ^ FILES.keys() == set()


def _makes_file(called: str) -> bool:
    owner, _, name = called.rpartition(".")
    return name in MAKES_FILES or (owner != "" and f"Path.{name}" in MAKES_FILES) or called in MAKES_FILES


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """One run, in which everything hostile was said, and a finding about it."""
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        config = RunConfig(AgentRef("a", "a:a"), HOSTILE, criteria=(Criterion("=metric", 1.0),))
        run_id = store.runs.create(config, [Case(HOSTILE, (Turn(HOSTILE),))])
        error = ErrorRecord("agent_raised", HOSTILE, HOSTILE)
        call = Event("tool_call", call=ToolCall("tool", {HOSTILE: HOSTILE}, "1"))
        said = Event("agent_message", text=HOSTILE)
        transcript = Transcript((TurnRecord(HOSTILE, (call, said, Event("error", error=error))),))
        score = Score("=metric", 0.0, 0, 1.0, passed=False, reason=HOSTILE)
        trial = TrialResult(run_id, 0, 0, "finished", "failed", "", transcript, (score,), error=error)
        store.runs.record([trial])
        store.runs.set_status(run_id, "finished")
        store.failures.add(FindingDraft(run_id, 0, 0, HOSTILE), "someone")
    return tmp_path


@pytest.mark.parametrize("format_name", [name for name, _ in run_formats()])
def test_an_export_to_the_stream_steers_no_terminal_and_no_build(
    workspace: Path, format_name: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    export.main(["1", "--format", format_name, "--workspace", str(workspace)], standalone_mode=False)

    out = capsysbinary.readouterr().out.decode()
    assert "forged" in out or format_name == "criteria"
    assert steering(out) == []


@pytest.mark.parametrize("form", ["json", "jsonl", "markdown"])
def test_findings_to_the_stream_steer_nothing(
    workspace: Path, form: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    mode.main(["export", "--format", form, "--workspace", str(workspace)], standalone_mode=False)

    out = capsysbinary.readouterr().out.decode()
    assert "forged" in out
    assert steering(out) == []


def test_a_report_to_the_stream_steers_nothing_and_keeps_its_scripts(
    workspace: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    report.main(["1", "-o", "-", "--workspace", str(workspace)], standalone_mode=False)
    page = capsysbinary.readouterr().out.decode()
    report.main(["1", "-o", str(workspace / "r.html"), "--workspace", str(workspace)], standalone_mode=False)
    file = (workspace / "r.html").read_text("utf-8")

    verbatim = re.compile(r"<(?:style|script)[ >].*?</(?:style|script)>", re.DOTALL)
    assert verbatim.findall(page) == verbatim.findall(file)
    assert "forged" in page
    assert steering(verbatim.sub("", page)) == []


def test_a_table_in_a_file_is_as_harmless_as_in_a_stream(workspace: Path) -> None:
    path = workspace / "run.csv"

    export.main(["1", "--format", "csv", "-o", str(path), "--workspace", str(workspace)], standalone_mode=False)

    text = path.read_bytes().decode()
    assert "forged" in text
    assert steering(text) == []


def test_json_of_a_command_has_the_same_value_and_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({HOSTILE: [HOSTILE, "é😀\ud800", "a##b##[c]###[d]"]})

    out = capsys.readouterr().out
    assert json.loads(out) == {HOSTILE: [HOSTILE, "é😀\ud800", "a##b##[c]###[d]"]}
    assert steering(out) == []
    assert "é" in out


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("file_name", ["a.jsonl", "a.csv", "a.html"])
def test_a_document_is_the_same_however_it_is_cut(
    size: int, file_name: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = json.dumps([HOSTILE, "é😀"], ensure_ascii=False) if file_name == "a.jsonl" else f"{HOSTILE}\né😀\n::x"
    data = text.encode() + b"\xff\x9b"
    show_document([data], file_name)
    expected = capsysbinary.readouterr().out

    show_document([data[at : at + size] for at in range(0, len(data), size)], file_name)

    assert capsysbinary.readouterr().out == expected
    assert steering(expected.decode()) == []


def test_a_packed_document_stays_as_it_is(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    show_document([b"PAR1\x1b\x9b\xff##[x]"], "a.parquet")

    assert capsysbinary.readouterr().out == b"PAR1\x1b\x9b\xff##[x]"


def test_a_spreadsheet_on_the_stream_has_lines_without_replacement_characters(
    capfd: pytest.CaptureFixture[str],
) -> None:
    show_document([b"a,b\r\n1,x\ry\r", b"\n"], "run.csv")

    assert capfd.readouterr().out == "a,b\n1,x\ufffdy\n"


def test_only_styles_of_ours_reach_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("x"), color=True):
        show(style(HOSTILE, fg="red") + "\x1b[31mplain " + style("##", bold=True) + "[group]x")

    out = capsys.readouterr().out
    assert out.startswith("\x1b[31m=1+1")
    assert steering(re.sub(r"\x1b\[(31|1|0)m", "", out.replace("�[31m", ""))) == []
    assert "\x1b[31mplain" not in out


def test_a_style_changes_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    show(f"a {style('b', dim=True)} c")

    assert capsys.readouterr().out == "a b c\n"


def test_progress_and_questions_steer_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("x"), color=True):
        show_progress(HOSTILE)

    err = capsys.readouterr().err
    assert err.startswith("\r\x1b[K=1+1")
    assert steering(err.removeprefix("\r\x1b[K")) == []


def test_a_record_of_a_log_steers_nothing_and_has_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "sk-proj-" + "a1B2" * 10
    monkeypatch.setattr(logging, "lastResort", None)
    write_logs()
    assert logging.lastResort is not None

    logging.lastResort.emit(logging.LogRecord("a", logging.WARNING, "", 1, "%s %s", (HOSTILE, key), None))

    err = capsys.readouterr().err
    assert "forged" in err
    assert steering(err) == []
    assert key not in err


@pytest.mark.parametrize("delimiter", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
@pytest.mark.parametrize("formula", ["=cmd|' /C calc'!A0", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "＝1+1"])
@pytest.mark.parametrize(
    "before", ["", " ", '"', "\ufeff", "a;", "a; ", 'a;"', "a\n", "a\r\n", "a,", "a\t", 'a";', "a\n\n "]
)
def test_no_part_of_a_cell_is_a_formula_however_a_spreadsheet_divides_the_file(
    before: str, formula: str, delimiter: str
) -> None:
    """Cells are read as a spreadsheet of each country reads them, and line by line by one that takes no quotes."""
    text = io.StringIO(newline="")
    csv.writer(text).writerow(map(cell, ("1", "a case", before + formula, before + formula)))

    rows = list(csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=delimiter))
    cells = [each for row in rows for each in row]
    cells += [each for line in text.getvalue().splitlines() for each in line.split(delimiter)]

    assert len(cells) >= 2
    assert [each for each in cells if each.lstrip(' "\ufeff').startswith(("=", "+", "-", "@", "＝"))] == []


def test_text_of_many_scripts_stays_readable() -> None:
    text = "Grüße 你好 שלום нет\u00a0— “quoted” 😀\n\tend"

    assert printable(text) == text.replace("\u00a0", " ")
    assert json_document(text) == text.replace("\u00a0", "\\u00a0")
    assert html_document(text) == printable(text)

"""What agents and files say lands in terminals, in the logs of builds and in spreadsheets; it steers none of them."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evaldesk import cli
from evaldesk.cli.accept import accept
from evaldesk.cli.eval.report import show_details, show_result
from evaldesk.cli.files.exchange_files import visible
from evaldesk.desk.evalsets.exporting import export_run
from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers, conclude
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.formats import write_evalset
from evaldesk.model import (
    AgentRef,
    Case,
    Counts,
    Criterion,
    ErrorRecord,
    EvalSet,
    Event,
    Expected,
    Gates,
    RunConfig,
    Score,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.pages.reports.markdown import SummaryPart, case_annotation, markdown_summary
from evaldesk.store import Store
from evaldesk.wording.printable import _SPACES, cell, in_one_line, printable

HOSTILE = (
    "=1+1\x1b]0;title\x07\x1b[2J\x9b31m\u202e\u2028\r\n::error file=x::forged\n##[add-mask]y\n  ::stop-commands::z\n"
    "a ##vso[task.prependpath]b ##teamcity[setParameter name='env.PATH' value='c']"
)
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)  # as the runners of GitHub, Azure and TeamCity read a log
ERROR = ErrorRecord("agent_raised", HOSTILE, HOSTILE)
CASE = Case(HOSTILE, (Turn(HOSTILE),))
TRANSCRIPT = Transcript((TurnRecord(HOSTILE, (Event("agent_message", text=HOSTILE), Event("error", error=ERROR))),))
KEY = "sk-proj-" + "a1B2" * 10


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """One run, in which everything hostile was said."""
    with Store.open(tmp_path / "evaldesk.db") as opened:
        config = RunConfig(AgentRef("a", "a:a"), HOSTILE, criteria=(Criterion("=metric"),))
        run_id = opened.runs.create(config, [CASE])
        trial = TrialResult(run_id, 0, 0, "errored", "errored", transcript=TRANSCRIPT, error=ERROR)
        opened.runs.record([trial])
        opened.runs.set_status(run_id, "finished")
        yield opened


def steering(text: str) -> list[str]:
    """What of a text a terminal or a build would obey."""
    return [*STEERS.findall(text), *COMMAND.findall(text)]


@pytest.mark.parametrize("shown", [printable, in_one_line, visible])
def test_printable_text_steers_nothing_and_stays_as_it_is(shown: Callable[[str], str]) -> None:
    assert steering(shown(HOSTILE)) == []
    assert shown(shown(HOSTILE)) == shown(HOSTILE)


def test_a_long_text_of_empty_lines_is_read_once() -> None:
    """Read to its end from each line, it would take an hour."""
    text = "\n" * 300_000

    assert printable(f"{text} ::debug::x") == f"{text} \u200b::debug::x"


def test_a_report_in_a_terminal_steers_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    show_result(StoredRuns(store.runs), store.runs.summary(1))
    show_details(StoredRuns(store.runs), store.runs.summary(1))

    said = capsys.readouterr().out
    assert "forged" in said
    assert steering(said) == []


def test_what_is_accepted_steers_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd\x1b[31m\n::error::f.evalset.json"
    cases = [Case(f"{HOSTILE}{at}", (Turn("q", Expected(reference="a" if at else None)),)) for at in range(2)]
    path.write_bytes(write_evalset(EvalSet(HOSTILE, cases=tuple(cases))))
    answered = Transcript((TurnRecord("q", (Event("agent_message", text=HOSTILE),)),))
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as opened:
        criteria = (Criterion("response_exact", 1.0),)
        run_id = opened.runs.create(RunConfig(AgentRef("a", "a:a"), "set", str(path), criteria=criteria), cases)
        score = Score("response_exact", 0.0, 0, 1.0, passed=False)
        opened.runs.record([TrialResult(run_id, at, 0, "finished", "failed", "", answered, (score,)) for at in (0, 1)])
        opened.runs.set_status(run_id, "finished")

    accept.main([str(run_id), "--yes", "--only", "answer", "--workspace", str(tmp_path)], standalone_mode=False)

    printed = capsys.readouterr()
    assert "forged" in printed.out
    assert steering(printed.out + printed.err) == []


def test_an_annotation_is_one_command_and_no_other() -> None:
    trial = TrialResult(1, 0, 0, "errored", "errored", transcript=TRANSCRIPT, error=ERROR)

    line = case_annotation(CaseResult(CASE, (trial,), 1), HOSTILE)

    assert steering(line.removeprefix("::warning ")) == []
    assert len(line.splitlines()) == 1


def test_a_summary_steers_nothing() -> None:
    numbers = RunNumbers.of_cases([CaseNumbers(HOSTILE, Counts(1, errored=1))])

    summary = markdown_summary([SummaryPart(HOSTILE, numbers, {HOSTILE: HOSTILE})], conclude(Gates(), numbers), None)

    assert steering(summary) == []


def test_a_summary_names_nobody_and_no_issue() -> None:
    said = "thanks @someone, see #12, gh-34 and other/place#56"
    numbers = RunNumbers.of_cases([CaseNumbers("case", Counts(1, errored=1))])

    summary = markdown_summary([SummaryPart(said, numbers, {"case": said})], conclude(Gates(), numbers), None)

    # As GitHub sees the text once Markdown has taken its backslashes.
    assert re.findall(r"(?:@|#|gh-)\w+", summary.replace("\\", "")) == []


def test_an_error_is_one_line_that_steers_nothing_and_tells_no_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise UsageError(f"{HOSTILE} {KEY}")

    monkeypatch.setattr(cli, "cli", broken)
    monkeypatch.setattr(sys, "argv", ["evaldesk", "eval"])

    with pytest.raises(SystemExit):
        cli.main()

    said = capsys.readouterr().err
    assert (len(said.splitlines()), steering(said)) == (1, [])
    assert KEY not in said


@pytest.mark.parametrize("first", "=+-@\t\r\n\0＝＋－＠")
def test_a_cell_is_no_formula(first: str) -> None:
    assert cell(f"{first}cmd|'/c calc'!A1") == f"'{printable(first)}cmd|'/c calc'!A1"
    assert (cell("plain"), cell(-1.5), cell(None)) == ("plain", -1.5, None)


@pytest.mark.parametrize("blank", [*sorted(_SPACES), "\ufeff", "\u200b", '"', '\u3000" \u2003'], ids=ascii)
@pytest.mark.parametrize("n", [1, 200])
def test_no_blanks_hide_a_formula_from_a_spreadsheet(blank: str, n: int) -> None:
    assert cell(f"{blank * n}=1+1").startswith("'")


@pytest.mark.parametrize("blank", [*sorted(_SPACES), " ", '"', "' \u3000\""], ids=ascii)
@pytest.mark.parametrize("separator", [";", ",", "\t", "\n"], ids=ascii)
@pytest.mark.parametrize("n", [1, 200])
def test_no_blanks_hide_a_formula_in_a_part_of_a_cell(separator: str, blank: str, n: int) -> None:
    assert f"{separator}\u200b" in cell(f"a{separator}{blank * n}=1+1")


def test_a_table_of_a_run_has_no_formula_not_even_as_a_column(store: Store) -> None:
    rows = list(csv.reader(export_run(StoredRuns(store.runs), 1, "csv").data.decode().splitlines()))

    assert "'=metric" in rows[0]
    assert not [text for row in rows for text in row if text.startswith("=")]

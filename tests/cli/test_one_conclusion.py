"""Every writer shows the same conclusion of a run, for every combination of outcomes, with and without each gate."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import combinations_with_replacement, count, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args
from xml.etree import ElementTree as ET

import pytest
from markupsafe import escape
from sqlalchemy import Connection
from tests.desk.stored_desk import desk_on
from tests.islands import has_island, island_module

import evaldesk
from evaldesk.cli.eval.outcome import end, nothing_more
from evaldesk.cli.eval.playing import Played
from evaldesk.cli.eval.progress import progress_words
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.cli.runs.change import follow_run
from evaldesk.cli.runs.show import _lines as run_info_lines
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.case_player import CasePlayer
from evaldesk.desk.runs.deciding import decider_of
from evaldesk.desk.runs.driver import decided_sentence
from evaldesk.desk.runs.gates.conclusion import CaseNumbers, Ending, RunNumbers, conclude
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.run_result import CaseResult, RunResult
from evaldesk.desk.runs.stored_runs import StoredRuns, plan_confirming
from evaldesk.gate_options import GATES_BY_NAME, AskedGates
from evaldesk.matching.case_version import case_version
from evaldesk.model import (
    EXIT_CODES,
    AgentRef,
    Case,
    Counts,
    ErrorRecord,
    EvalSet,
    Gates,
    RunConfig,
    RunStatus,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.comparison import Baseline, PlayedCase, RunChange
from evaldesk.model.conclusion import NEW_CASES, UNDECIDED, VERDICTS, Answer, Conclusion, GateOutcome, Outcome
from evaldesk.model.evalset import CaseKey
from evaldesk.model.history import CaseHistory
from evaldesk.model.stored import RunSummary
from evaldesk.pages.home import home
from evaldesk.pages.reports.markdown import TITLES
from evaldesk.pages.runs.listing import RunLine, run_line
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.run_options import Asked
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.store import Store
from evaldesk.store.runs.run_store import RunStore
from evaldesk.testing.pytest_items import AllCasesItem, CaseFailedError, EvalCaseItem, EvalSetCollecting
from evaldesk.web.render import environment
from evaldesk.web.report import run_report

pytestmark = pytest.mark.long

AGENT = AgentRef("agent", "agent:agent")
CASE = Case("a", (Turn("hi"),))
STEADY = Case("steady", (Turn("well"),))
NO_GATE = "no gate"
OPENHANDS = "as OpenHands, without a gate"
COMPARED: dict[str, Any] = {"max_regressions": 0, "baseline": "1"}
FRESH = {
    "passed": (3, 2, 0, 0, 0),
    "failed": (2, 3, 0, 0, 0),
    "errored": (2, 2, 1, 0, 0),
    "unscored": (2, 2, 0, 1, 0),
    "not played": (2, 2, 0, 0, 1),
}
"""How the five fresh trials of a case ended that seems to have regressed."""
COMPARING = ("--max-regressions", "--margin")
BROKEN = "The model refused for good."
CONFIRM = "--regression-rule confirm"
BY_HISTORY = {"always passed": (5, 0, 0, 0, 0), "always failed": (0, 5, 0, 0, 0)}
"""The same where the history of the case judges them, which passed 10 of 10 before."""
CONFIRMED_PASSES = (f"{CONFIRM}, passed", f"{CONFIRM}, always passed")
"""Without a planned pass a run passes by these rules: the case passes in enough fresh trials."""
ASKED: dict[str, dict[str, Any]] = {
    NO_GATE: {},
    "--min-pass-rate": {"min_pass_rate": 0.5},
    "--min-case-pass-rate": {"min_case_pass_rate": 0.5},
    "--pass-at": {"pass_at": ((1, 0.5),)},
    "--pass-hat": {"pass_hat": ((1, 0.5),)},
    "--min-scored": {"min_scored": 2},
    "--max-error-rate": {"max_error_rate": 0.5},
    "--max-unscored-rate": {"max_unscored_rate": 0.5},
    "--max-cost": {"max_cost": 1.0},
    **({OPENHANDS: {"tool": "openhands"}} if has_island("openhands") else {}),
    "--max-regressions": COMPARED,
    "--margin": {"margin": 0.1, "baseline": "1"},
    "--margin, --undecided neutral": {"margin": 0.1, "baseline": "1", "undecided": "neutral"},
    "--stop-when-decided": {"min_pass_rate": 0.5, "stop_when_decided": "exact"},
    "--regression-rule likely": {**COMPARED, "regression_rule": "likely"},
    **{f"{CONFIRM}, {word}": {**COMPARED, "regression_rule": "confirm", "confirm": (3, 5)} for word in FRESH},
    **{f"{CONFIRM}, {word}": {**COMPARED, "regression_rule": "confirm"} for word in BY_HISTORY},
    **{f"--undecided {word}": {"min_pass_rate": 0.5, "undecided": word} for word in UNDECIDED},
    "--pass-at, --undecided neutral": {"pass_at": ((1, 0.5),), "undecided": "neutral"},
    "--pass-hat, --undecided neutral": {"pass_hat": ((1, 0.5),), "undecided": "neutral"},
    **{f"--new-cases {word}": {**COMPARED, "new_cases": word} for word in NEW_CASES if word != "must-pass"},
}
"""One request for each gate."""
VERSIONS = count(1)
Ended = tuple[int, int, int, int, int]
COMBINATIONS: list[Ended] = [cast("Ended", each) for each in product((0, 1), repeat=5) if any(each)]
"""Passed, failed, errored, unscored, unplayed: how many trials of the one case ended so."""


def is_compared(gate: str) -> bool:
    """Whether the gate compares the run with a baseline."""
    return "baseline" in ASKED[gate]


@dataclass(frozen=True)
class Told:
    """What `evaldesk eval` wrote of a run, and the code it ended with."""

    code: int
    text: str
    value: dict[str, Any]
    junit: ET.Element
    markdown: str


def trials(run_id: int, ended: Ended, first: int = 0) -> list[TrialResult]:
    verdicts = [verdict for verdict, n in zip(VERDICTS, ended[:4], strict=True) for _ in range(n)]
    return [
        TrialResult(
            run_id,
            0,
            index,
            "errored" if verdict == "errored" else "finished",
            verdict,
            transcript=Transcript((TurnRecord("Roll.", captures=("told",)),)),
            error=ErrorRecord("agent_raised", "no") if verdict == "errored" else None,
        )
        for index, verdict in enumerate(verdicts, first)
    ]


def requested(n: int, asked: dict[str, Any], **others: Any) -> EvalRequest:
    """The request of a command with these gates, and how it is spelled."""
    gates = cast("AskedGates", {name: asked[name] for name in asked.keys() & GATES_BY_NAME.keys()})
    spelled = {name: asked[name] for name in asked.keys() - GATES_BY_NAME.keys()}
    return EvalRequest((), Asked(n=n), gates, **spelled, **others)


UNEVEN = ("p", "ppp", "pffp", "ffffffff", "epp", "u", "..")
"""The trials of cases in a run with a budget: some have more than others."""


def stored_uneven(store: Store, strips: tuple[str, ...], gate: str, baseline: Baseline) -> RunSummary:
    """A run of one case or two whose trials ended so."""
    words = dict(zip("pfeu", VERDICTS, strict=True))
    gates, budget = requested(1, ASKED[gate]).gates, str(sum(map(len, strips)))
    config = RunConfig(AGENT, "set", n=1, budget=budget, gates=gates, agent_version=str(next(VERSIONS)))
    cases = [CASE, replace(CASE, id="b")][: len(strips)]
    n_each = [len(strip) for strip in strips]
    run_id = store.runs.create(config, cases, baseline=baseline if is_compared(gate) else None, n_each=n_each)
    for at, strip in enumerate(strips):
        ended = tuple(strip.count(letter) for letter in words)
        store.runs.record([replace(each, case_index=at) for each in trials(run_id, cast("Ended", (*ended, 0)))])
    is_whole = not any("." in strip for strip in strips)
    store.runs.set_status(run_id, "finished" if is_whole else "stopped")
    return store.runs.summary(run_id)


@pytest.mark.parametrize("gate", ["--min-pass-rate", "--margin, --undecided neutral"])
def test_every_writer_shows_the_same_conclusion_of_cases_with_different_numbers_of_trials(
    gate: str, store: Store, baseline: Baseline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, pair in enumerate(combinations_with_replacement(UNEVEN, 2)):
        strips = pair if number % 2 else pair[::-1]
        run = stored_uneven(store, strips, gate, baseline)

        found = told(store, run, tmp_path, gate, baseline)

        at = (strips, found.value["outcome"])
        result = StoredRuns(store.runs).result(run.id)
        (value,) = found.value["runs"]
        assert EXIT_CODES[found.value["outcome"]] == found.code, at
        assert (
            value["pass_rate"] == run.pass_rate == result.pass_rate == StoredRuns(store.runs).numbers(run).counts.rate
        ), at
        rates = [case["pass_rate"] for case in value["cases"] if case["pass_rate"] is not None]
        assert run.pass_rate == (pytest.approx(sum(rates) / len(rates)) if rates else None), at
        assert_pages_agree(store, run, found.value["outcome"])
        assert_following_agrees(store, run, found.code, capsys)


def stored(
    store: Store,
    ended: Ended,
    status: RunStatus = "finished",
    gate: str = NO_GATE,
    against: Baseline | None = None,
    *others: Case,
    **asked: Any,
) -> RunSummary:
    """A run of one case whose trials ended so; those of the `others` pass."""
    gates = requested(sum(ended), asked or ASKED[gate]).gates
    # Each run is of another version of the agent: no writer reads the runs of all others for its history.
    config = RunConfig(AGENT, "set", n=sum(ended), gates=gates, agent_version=str(next(VERSIONS)))
    run_id = store.runs.create(config, [CASE, *others], baseline=against if gates.compares else None)
    store.runs.record(trials(run_id, ended))
    for at, _ in enumerate(others, 1):
        store.runs.record([replace(each, case_index=at) for each in trials(run_id, (config.n, 0, 0, 0, 0))])
    if gates.regression_rule == "confirm" and not ended[4]:
        plan_confirming(store.runs, run_id, gates)
        if any(trial.trial_index >= config.n for trial in store.runs.pending(run_id)):
            store.runs.record(trials(run_id, (FRESH | BY_HISTORY)[gate.rpartition(", ")[2]], first=config.n))
    store.runs.set_status(run_id, status, BROKEN if status == "failed" else "")
    return store.runs.summary(run_id)


def told(
    store: Store, run: RunSummary, folder: Path, gate: str = NO_GATE, against: Baseline | None = None, **asked: Any
) -> Told:
    """What the command writes at the end of the run."""
    files = {name: str(folder / name) for name in ("out.json", "junit.xml", "summary.md")}
    request = requested(
        run.config.n,
        asked or ASKED[gate],
        outputs=(files["out.json"],),
        junit=files["junit.xml"],
        summary=files["summary.md"],
        annotations=True,
        quiet=True,
    )
    for file in files.values():
        Path(file).unlink(missing_ok=True)
    (folder / "set.jsonl").touch()
    job = Job(AGENT, EvalSet("set", cases=(CASE, STEADY)), folder / "set.jsonl", RunOptions())
    desk = cast("Desk", SimpleNamespace(stored_runs=StoredRuns(store.runs)))
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(io.StringIO()):
        code = end(desk, request, [Played(job, run)], [], against if request.gates.compares else None, nothing_more)
    return Told(
        code,
        text.getvalue(),
        json.loads(Path(files["out.json"]).read_text()),
        ET.parse(files["junit.xml"]).getroot(),  # noqa: S314 - our own file
        Path(files["summary.md"]).read_text(),
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("store") / "evaldesk.db") as opened, asked_once(opened):
        yield opened


@contextmanager
def asked_once(store: Store) -> Iterator[None]:
    """Let the database answer a question about runs once: all writers ask the same ones.

    A write is about the newest run alone; after it, what was asked about that one or about no run is asked again.
    """
    answers: dict[object, dict[str, object]] = defaultdict(dict)
    writing = store._database.writing

    @contextmanager
    def forgetting() -> Iterator[Connection]:
        with writing() as connection:
            yield connection
            newest = connection.exec_driver_sql("SELECT max(id) FROM run").scalar()
        for about in (None, newest):
            answers.pop(about, None)

    def kept(name: str, ask: Callable[..., object]) -> Callable[..., object]:
        def answer(*args: object, **options: object) -> object:
            known = answers[args[0] if args and isinstance(args[0], int) else None]
            asked = repr((name, args, options))
            if asked not in known:
                known[asked] = ask(*args, **options)
            return known[asked]

        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._database, "writing", forgetting)
        for name, method in vars(RunStore).items():
            if hasattr(method, "__wrapped__") or name in ("summary", "list", "scorings", "newest_of_evalsets"):
                patch.setattr(store.runs, name, kept(name, getattr(store.runs, name)))
        yield


@pytest.fixture(scope="module")
def baseline(store: Store) -> Baseline:
    """A run in which the case passed, as in nine runs before."""
    played = StoredRuns(store.runs).played_cases([stored(store, (1, 0, 0, 0, 0), "finished")])
    return Baseline("run 1", tuple(replace(case, history=CaseHistory(10, 10)) for case in played))


BASELINES = ("none", "same", "new", "edited", "deleted")
UNACCOUNTED = ("new", "edited")
"""What the baseline has: there is none, the case, another one, the case with other content, the case and a gone one."""


def cells(baseline: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each gate as it is asked for against such a baseline; a gate that compares is refused without one."""
    for gate, asked in ASKED.items():
        if baseline == "none" and "baseline" not in asked:
            yield gate, asked
        if baseline != "none" and gate != OPENHANDS:
            yield gate, {**asked, "baseline": "1"}


def before_of(baseline: str) -> list[PlayedCase]:
    """The cases of the baseline, each with a passed trial, as in nine runs before."""
    digests = {"same": case_version(CASE), "edited": "0" * 64, "deleted": case_version(CASE)}
    known = [("a", digests[baseline])] if baseline in digests else []
    steady = [("steady", case_version(STEADY))] if baseline in UNACCOUNTED else []
    gone = [("gone", "1" * 64)] if baseline == "deleted" else []
    keys = [CaseKey("set", name, 0, digest) for name, digest in (*known, *steady, *gone)]
    return [PlayedCase(key, "p", history=CaseHistory(10, 10)) for key in keys]


@dataclass(frozen=True)
class Cell:
    """A combination of the table: how the trials of the case ended, the gate, and the baseline."""

    ended: Ended
    status: RunStatus
    gate: str
    asked: dict[str, Any]
    baseline: str

    @property
    def gates(self) -> Gates:
        """The gates of the run."""
        return requested(sum(self.ended), self.asked).gates

    @property
    def is_unaccounted(self) -> bool:
        """Whether the baseline says nothing of the case."""
        return self.baseline in UNACCOUNTED

    @property
    def others(self) -> tuple[Case, ...]:
        """A case that can be compared, beside one that cannot."""
        return (STEADY,) if self.is_unaccounted else ()

    @property
    def numbers(self) -> RunNumbers:
        """Those of its run."""
        n = sum(self.ended)
        cases = [
            CaseNumbers("a", Counts(n, *self.ended[:4])),
            *(CaseNumbers(each.id, Counts(n, n)) for each in self.others),
        ]
        return RunNumbers.of_cases(cases, endings=[Ending(self.status, BROKEN if self.status == "failed" else "")])

    @cached_property
    def conclusion(self) -> Conclusion:
        """What its numbers come to, without a database."""
        gates = self.gates
        if not gates.compares:
            return conclude(gates, self.numbers)
        letters = "".join(letter * n for letter, n in zip("pfeu.", self.ended, strict=True))
        now = PlayedCase(CaseKey("set", "a", 0, case_version(CASE)), letters, asserted={})
        found = self.change(now)
        if found.unconfirmed_cases and not self.ended[4]:
            fresh = zip("pfeu.", (FRESH | BY_HISTORY)[self.gate.rpartition(", ")[2]], strict=True)
            found = self.change(replace(now, confirming="".join(letter * n for letter, n in fresh)))
        return conclude(gates, self.numbers, found)

    def change(self, now: PlayedCase) -> RunChange:
        """The change of the run against its baseline."""
        steady = PlayedCase(CaseKey("set", "steady", 0, case_version(STEADY)), "p" * sum(self.ended), asserted={})
        gates, after = self.gates, [now, *([steady] if self.others else ())]
        return compare_cases(
            "run 1", before_of(self.baseline), after, rule=gates.regression_rule, confirm=gates.confirm
        )

    def stored(self, store: Store) -> RunSummary:
        """The run of the cell in a store."""
        against = None if self.baseline == "none" else Baseline("run 1", tuple(before_of(self.baseline)))
        return stored(store, self.ended, self.status, self.gate, against, *self.others, **self.asked)


@cache
def table(baseline: str) -> tuple[Cell, ...]:
    """Every combination of ended trials and gates against such a baseline; kept, since each one's answer is too."""
    return tuple(
        Cell(ended, status, gate, asked, baseline)
        for (gate, asked), ended in product(list(cells(baseline)), COMBINATIONS)
        for status in statuses(ended, gate)
    )


def statuses(ended: Ended, gate: str) -> tuple[RunStatus, ...]:
    """How a run can end whose trials ended so."""
    if not ended[4]:
        return ("finished",)
    return ("stopped", "failed") if gate == NO_GATE else ("stopped",)


@pytest.mark.parametrize("baseline", BASELINES)
def test_no_run_passes_with_a_trial_that_nothing_accounts_for(baseline: str) -> None:
    """All combinations of (passed, failed, errored, unscored, not played) and gates."""
    same = {(cell.ended, cell.gate, cell.status): cell for cell in table("same")}
    for cell in table(baseline):
        (passed, failed, errored, unscored, unplayed), found = cell.ended, cell.conclusion
        is_informing = cell.asked.get("new_cases") == "inform" and cell.is_unaccounted
        assert found.outcome != "neutral" or "neutral" in cell.asked.values(), cell
        if found.outcome == "passed":
            assert not unplayed, cell
            assert passed or cell.gate in (OPENHANDS, *CONFIRMED_PASSES) or is_informing, cell
            assert not errored or "max_error_rate" in cell.asked, cell
            assert not unscored or "max_unscored_rate" in cell.asked or cell.gate == OPENHANDS, cell
            assert not failed or not cell.is_unaccounted or is_informing, cell
        if cell.gate in (NO_GATE, "--max-regressions") and cell.is_unaccounted and cell.status != "failed":
            has_lost = cell.baseline == "edited" and cell.ended == (0, 0, 0, 1, 0)  # unscored since the edit
            assert found.outcome == ("failed" if has_lost else conclude(Gates(), cell.numbers).outcome), cell
        if cell.baseline == "deleted":
            assert found.outcome == same[cell.ended, cell.gate, cell.status].conclusion.outcome, cell


@cache
def one_of_each_answer() -> dict[str, list[Cell]]:
    """By baseline, a combination for each answer of a run and of each gate; a door shows `conclude`'s and no other."""
    found: dict[object, Cell] = {}
    for cell in (each for baseline in BASELINES for each in table(baseline)):
        conclusion = cell.conclusion
        answers = frozenset((each.answer, each.counts_as, each.is_of_evidence) for each in conclusion.gates)
        found.setdefault((conclusion.outcome, answers, cell.status), cell)
        found.setdefault((conclusion.outcome, cell.baseline), cell)
        for each in conclusion.gates:
            baseline = cell.baseline if each.name in COMPARING else ""
            found.setdefault((each.name, each.answer, each.counts_as, baseline), cell)
    chosen = {id(cell): cell for cell in found.values()}.values()
    return {baseline: [cell for cell in chosen if cell.baseline == baseline] for baseline in BASELINES}


@pytest.mark.parametrize("baseline", BASELINES)
def test_every_door_gives_the_answer_of_the_table(
    baseline: str, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for cell in one_of_each_answer()[baseline]:
        run, wanted = cell.stored(store), cell.conclusion

        assert_all_doors(store, run, wanted, tmp_path, capsys, cell)


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_a_door_shows_what_conclude_answers_and_nothing_of_its_own(
    outcome: Outcome, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another answer in its place, which the trials would never give, every door shows that one."""
    answer: Answer = {"passed": "held", "failed": "failed"}.get(outcome, "undecided")  # type: ignore[assignment]
    gate = GateOutcome(
        "--min-pass-rate", answer, "pears are apples", ("a",), "neutral" if outcome == "neutral" else None
    )
    ended, status = {"interrupted": ((1, 0, 0, 0, 1), "stopped"), "passed": ((0, 1, 0, 0, 0), "finished")}.get(
        outcome, ((1, 0, 0, 0, 0), "finished")
    )
    run = stored(store, ended, cast("RunStatus", status), "--min-pass-rate")

    def answered(gates: Gates, numbers: RunNumbers, change: RunChange | None = None) -> Conclusion:
        reasons = () if outcome == "passed" else ("--min-pass-rate: pears are apples",)
        return Conclusion(outcome, numbers.counts, (gate,), reasons)

    for module in [each for name, each in sys.modules.items() if name.startswith("evaldesk.")]:
        if getattr(module, "conclude", None) is conclude:
            monkeypatch.setattr(module, "conclude", answered)

    cell = Cell(ended, cast("RunStatus", status), "--min-pass-rate", ASKED["--min-pass-rate"], "none")
    with monkeypatch.context() as patch:
        patch.setattr(Cell, "conclusion", answered(run.config.gates, StoredRuns(store.runs).numbers(run)))
        assert_all_doors(store, run, cell.conclusion, tmp_path, capsys, cell)
    result = CaseResult(CASE, tuple(trials(1, ended)), sum(ended))
    if outcome == "neutral":
        with pytest.raises(pytest.skip.Exception, match="pears are apples"):
            item_failure(result, run.config.gates)
    else:
        assert bool(item_failure(result, run.config.gates)) == (outcome != "passed")


def test_a_conclusion_is_made_in_one_place() -> None:
    makers = [path.name for path in Path(evaldesk.__path__[0]).rglob("*.py") if "Conclusion(" in path.read_text()]

    assert sorted(makers) == ["conclusion.py"], "every door asks `conclude`"


def assert_all_doors(
    store: Store,
    run: RunSummary,
    wanted: Conclusion,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    cell: Cell,
) -> None:
    """Every door says this outcome, and has the same gates with the same answers."""
    against = store.runs.baseline(run.id)
    found = told(store, run, folder, cell.gate, against, **cell.asked)
    written = [(each["name"], each["answer"]) for each in found.value["gates"]]
    assert found.value["outcome"] == wanted.outcome, (cell, found.value, wanted)
    assert written == [(each.name, each.answer) for each in wanted.gates], cell
    assert_written_alike(store, run, found, cell)
    assert_pages_agree(store, run, wanted.outcome)
    assert_following_agrees(store, run, found.code, capsys)
    if has_island("osmosis"):
        assert osmosis_outcome(store, run, found, folder) == wanted.outcome, cell
    report = run_report(StoredRuns(store.runs), run.id, {}).data.decode()
    assert f'<p id="conclusion"><b>{wanted.outcome.capitalize()}.</b>' in report, cell
    lines = run_info_lines(StoredRuns(store.runs), run)
    assert [text.partition(":")[0] for label, text in lines if label == "Conclusion"] == [wanted.outcome], cell
    assert_same_gate_lines(store, run, found, report, [text for label, text in lines if label == "Gate"])


def assert_same_gate_lines(store: Store, run: RunSummary, found: Told, report: str, of_info: list[str]) -> None:
    """The page, the list, home, the report and `run info` show the gates of the command, those that held, too."""
    if run.config.gates.asks_nothing:
        return
    page, line = read_run(store.runs, run.id, RunQuery()), run_line(store.runs, run)
    cell = list_cell(line)
    for gate in found.value["gates"]:
        sentence = gate["sentence"].rstrip(".")
        word = "open" if gate["answer"] == "undecided" else gate["answer"]
        for shown in (page.gates, line.gates):
            assert any((each.word, each.sentence.endswith(sentence)) == (word, True) for each in shown), sentence
        assert any(f"{gate['answer']}, {sentence}" in text for text in of_info), sentence
        assert str(escape(sentence[1:])) in report, sentence
        assert str(escape(sentence)) in cell, sentence


def list_cell(line: RunLine) -> str:
    """The reason and the gates of a run as the lists show them."""
    lists: Any = environment().get_template("ui.html").module
    return str(lists.reason(line))


def assert_written_alike(store: Store, run: RunSummary, found: Told, at: object) -> None:
    """The exit code, the terminal, JSON, JUnit, Markdown and the annotations of a command."""
    outcome = found.value["outcome"]
    is_passed, is_neutral = outcome == "passed", outcome == "neutral"
    result = StoredRuns(store.runs).result(run.id)
    assert EXIT_CODES[outcome] == found.code, at
    assert found.value["is_held"] == is_passed, at
    assert bool(found.value["reasons"]) != is_passed, at
    assert f"## {TITLES[outcome]}" in found.markdown, at
    assert ([found.junit.get(key) for key in ("failures", "errors")] == ["0", "0"]) == (is_passed or is_neutral), at
    assert (found.junit.find("testsuite/testcase[@name='conclusion']/skipped") is not None) == is_neutral, at
    last = next(line for line in reversed(found.text.splitlines()) if not line.startswith("::"))
    assert last.startswith(outcome.capitalize()) != is_passed, at
    assert ("::error" in found.text) != (is_passed or is_neutral), at
    neutral_gates = [each for each in result.conclusion.gates if each.is_neutral]
    assert ("::notice" in found.text) == bool(neutral_gates), at
    assert neutral_gates or not is_neutral, at


def assert_pages_agree(store: Store, run: RunSummary, outcome: str) -> None:
    """The pages, `run list`, `run submit --follow`, `run info` and `evaluate()`."""
    page = read_run(store.runs, run.id, RunQuery())
    line = run_line(store.runs, run)
    newest = home(desk_on(store), []).runs[0]
    result = StoredRuns(store.runs).result(run.id)
    assert page.conclusion
    assert line.conclusion
    assert newest.conclusion
    outcomes = {
        page.conclusion.outcome,
        line.conclusion.outcome,
        newest.conclusion.outcome,
        result.conclusion.outcome,
        StoredRuns(store.runs).conclusion(run).outcome,
        StoredRuns(store.runs).outcome(run),
    }
    assert outcomes == {outcome}, (run.counts, outcome)
    if run.status == "finished":
        assert line.status_word == page.status_word == page.conclusion.outcome


def assert_following_agrees(store: Store, run: RunSummary, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is followed ends as the command that started it."""
    capsys.readouterr()

    followed = asyncio.run(follow_run(followed_desk(store), lambda _: _id_of(run)))

    shown = capsys.readouterr()
    outcome = StoredRuns(store.runs).conclusion(run).outcome
    assert followed == code == EXIT_CODES[outcome], run
    last = shown.out.splitlines()[-1]
    assert last.startswith(outcome.capitalize()) != (outcome == "passed"), (run, last)
    assert ("Continue with" in shown.err) == (run.status == "stopped"), run


async def _id_of(run: RunSummary) -> int:
    return run.id


def followed_desk(store: Store) -> Desk:
    """A desk on which the run is over at the first look."""

    async def watch(run_id: int) -> AsyncIterator[None]:
        yield

    async def summary(run_id: int) -> RunSummary:
        return store.runs.summary(run_id)

    async def close() -> None:
        """Nothing was opened."""

    runs = SimpleNamespace(watch=watch, summary=summary, trouble=lambda _: "", pause=lambda _: "")
    place = SimpleNamespace(workspace=Path.cwd())
    return cast(
        "Desk",
        SimpleNamespace(
            store=store,
            stored_runs=StoredRuns(store.runs),
            runs=runs,
            settings=place,
            poll_requests=lambda: None,
            close=close,
        ),
    )


def test_the_progress_of_a_run_that_is_over_counts_as_its_conclusion_does(store: Store) -> None:
    for ended in COMBINATIONS:
        run = stored(store, ended, "stopped" if ended[4] else "finished")

        words = progress_words(run, None)

        counts = StoredRuns(store.runs).conclusion(run).counts
        assert words.startswith(f"{counts.done} of {counts.planned} done, {counts.passed} passed"), (ended, words)
        assert ("errored" in words, "unscored" in words) == (counts.errored > 0, counts.unscored > 0), (ended, words)


def test_the_output_of_a_benchmark_has_an_error_for_each_errored_trial_and_no_other(
    store: Store, tmp_path: Path
) -> None:
    command = island_module("openhands.command.output")
    for number, ended in enumerate(COMBINATIONS):
        run = stored(store, ended, "stopped" if ended[4] else "finished", OPENHANDS)
        folder, n = tmp_path / str(number) / "out", sum(ended)
        folder.parent.mkdir()
        output = command.InstanceOutput(folder, command.metadata_of("set", 10, {}), EvalSet("set", cases=(CASE,)), n=n)

        output.update(StoredRuns(store.runs), run)

        files = sorted(folder.parent.glob("*/output.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        counts = StoredRuns(store.runs).conclusion(run).counts
        assert (len(rows), sum(bool(row["error"]) for row in rows)) == (counts.done, counts.errored), ended


def osmosis_outcome(store: Store, run: RunSummary, found: Told, folder: Path) -> str:
    job = Job(AGENT, EvalSet("set", cases=(CASE, STEADY)), folder / "set.jsonl", RunOptions())
    conclusion = StoredRuns(store.runs).result(run.id).conclusion
    results = island_module("osmosis.command.results")
    whole = json.loads(results.osmosis_json(StoredRuns(store.runs), [Played(job, run)], conclusion))
    assert whole["evaldesk"]["conclusion"]["gates"] == found.value["gates"]
    return str(whole["evaldesk"]["conclusion"]["outcome"])


def item_failure(result: CaseResult, gates: Gates, change: RunChange | None = None) -> str:
    """What a pytest item says when it fails; empty when it passes. `change` is against a baseline, for its gates."""
    item = SimpleNamespace(
        case=CASE,
        options=RunOptions(),
        user_properties=[],
        _check=lambda: None,
        _change=lambda _: change,
        collecting=SimpleNamespace(
            gates=gates,
            compared_gates=gates,
            new_cases=gates.new_cases,
            add=lambda *_: None,
            case_player=SimpleNamespace(play=lambda *_: result),
        ),
    )
    try:
        EvalCaseItem.runtest(cast("EvalCaseItem", item))
    except CaseFailedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("gate", [NO_GATE, "--min-pass-rate", "--min-scored", "--max-unscored-rate"])
def test_a_pytest_item_passes_exactly_when_its_case_does(gate: str) -> None:
    for ended in COMBINATIONS:
        given = replace(
            requested(5, ASKED[gate]).gates,
            min_pass_rate=ASKED[gate].get("min_pass_rate", 1.0),
        )
        result = CaseResult(CASE, tuple(trials(1, ended)), sum(ended))
        whole = RunResult(1, RunConfig(AGENT, "set", n=sum(ended), gates=given), (result,))
        said = item_failure(result, given)

        assert (not said) == whole.conclusion.is_passed, (ended, whole.conclusion)


@pytest.mark.parametrize("gate", ["--max-regressions", *(gate for gate in ASKED if gate.startswith(CONFIRM))])
@pytest.mark.parametrize("least", [None, 0.5])
def test_a_pytest_item_is_compared_as_a_run_is(
    gate: str, least: float | None, store: Store, baseline: Baseline
) -> None:
    """The item of a case says the same as a run of that case, with the fresh trials that the rule plays."""
    for ended in (each for each in COMBINATIONS if not each[4]):
        gates = replace(requested(sum(ended), ASKED[gate]).gates, min_pass_rate=least)
        config = RunConfig(AGENT, "set", n=sum(ended), gates=gates)
        run_id = store.runs.create(config, [CASE], baseline=baseline)
        store.runs.record(trials(run_id, ended))
        if gates.regression_rule == "confirm":
            plan_confirming(store.runs, run_id, gates)
            fresh = (FRESH | BY_HISTORY)[gate.rpartition(", ")[2]]
            left = store.runs.pending(run_id)
            store.runs.record(trials(run_id, fresh, first=config.n) if left else [])
        store.runs.set_status(run_id, "finished")
        stored_runs, run = StoredRuns(store.runs), store.runs.summary(run_id)
        change = stored_runs.change(run)

        said = item_failure(CaseResult(CASE, tuple(trials(1, ended)), sum(ended)), gates, change)

        assert change is not None
        assert (not said) == stored_runs.conclusion(run).is_passed, (ended, said)


PYTEST_GATES = [gate for gate, asked in ASKED.items() if "max_regressions" in asked]
"""The gates that pytest has for a set of cases: those on regressions."""


@pytest.mark.parametrize("gate", PYTEST_GATES)
@pytest.mark.parametrize("baseline", [each for each in BASELINES if each != "none"])
def test_the_items_of_pytest_pass_together_exactly_when_the_run_does(baseline: str, gate: str) -> None:
    """The items of the cases, and the last one of all cases together where their history judges them."""
    for cell in table(baseline):
        if cell.gate == gate and not cell.ended[4]:
            answers = pytest_answers(cell)

            assert all(answers) == cell.conclusion.is_passed, (cell, answers, cell.conclusion)


def pytest_answers(cell: Cell) -> list[bool]:
    """Whether each item of a test run of the cell passes, or is skipped."""
    collecting = EvalSetCollecting.__new__(EvalSetCollecting)
    n, cases = sum(cell.ended), [CASE, *cell.others]
    vars(collecting).update(
        _config=SimpleNamespace(getoption=lambda *_: None),
        _case_player=ScriptedPlayer(cell),
        _not_together="",
        together=None,
        n=n,
        n_collected=len(cases),
        n_judged=0,
        compared={},
        gates=Gates(min_pass_rate=1.0),
        compared_gates=cell.gates,
        baseline=Baseline("run 1", tuple(before_of(cell.baseline))),
        new_cases=cell.gates.new_cases,
    )
    items: list[Any] = [
        SimpleNamespace(
            case=case,
            nodeid=case.id,
            path=Path("set.evalset.json"),
            options=RunOptions(n=n),
            user_properties=[],
            _check=lambda: None,
            collecting=collecting,
        )
        for case in cases
    ]
    for item in items:
        item._change = partial(EvalCaseItem._change, item)
    answers = [is_passed_or_skipped(EvalCaseItem.runtest, item) for item in items]
    if cell.gates.is_by_history:
        answers.append(is_passed_or_skipped(AllCasesItem.runtest, items[0]))
    return answers


def is_passed_or_skipped(runtest: Callable[[Any], None], item: Any) -> bool:
    """Whether pytest would count the item as a failure."""
    try:
        runtest(item)
    except CaseFailedError:
        return False
    except pytest.skip.Exception:
        return True
    return True


class ScriptedPlayer(CasePlayer):
    """A player whose trials end as those of a cell, and the others pass."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    def play(self, case: Case, options: RunOptions, first: int = 0) -> CaseResult:
        """Play the trials of the cell; from `first` on fresh ones."""
        n = options.value("n")
        ended: Ended = (n, 0, 0, 0, 0)
        if case is CASE:
            ended = (FRESH | BY_HISTORY)[self._cell.gate.rpartition(", ")[2]] if first else self._cell.ended
        return CaseResult(case, tuple(trials(1, ended, first)), n)

    def _config(self, case: Case, options: RunOptions) -> RunConfig:
        return RunConfig(AGENT, "set", n=options.value("n"))


@pytest.mark.parametrize(
    "asked",
    [{"min_pass_rate": 0.9}, {"pass_at": ((1, 0.9),)}, {"pass_hat": ((1, 0.9),)}, {"min_case_pass_rate": 0.9}],
    ids=str,
)
def test_one_scored_trial_of_ten_is_no_pass_rate(asked: dict[str, Any], store: Store, tmp_path: Path) -> None:
    found = told(store, stored(store, (1, 0, 0, 9, 0), **asked), tmp_path, **asked)
    tolerated: dict[str, Any] = {**asked, "max_unscored_rate": 0.9}
    allowed = told(store, stored(store, (1, 0, 0, 9, 0), **tolerated), tmp_path, **tolerated)
    wanted: dict[str, Any] = {**tolerated, "min_scored": 2}
    refused = told(store, stored(store, (1, 0, 0, 9, 0), **wanted), tmp_path, **wanted)

    assert (found.code, found.value["outcome"]) == (3, "undecided")
    assert "--max-unscored-rate: 9 of 10 trials unscored (90 %), more than the tolerated 0" in found.text
    assert (allowed.code, allowed.value["outcome"]) == (0, "passed")
    assert (refused.code, refused.value["reasons"][0]) == (
        3,
        "--min-scored: 1 of 10 trials scored, 2 must be (9 unscored)",
    )


@pytest.mark.parametrize(
    ("undecided", "code", "outcome"), [("pass", 0, "passed"), ("fail", 1, "failed"), ("neutral", 4, "neutral")]
)
def test_a_rate_too_close_to_its_bar_counts_as_is_asked(
    undecided: str, code: int, outcome: str, store: Store, tmp_path: Path
) -> None:
    for ended in ((8, 2, 0, 0, 0), (6, 4, 0, 0, 0)):
        asked: dict[str, Any] = {"min_pass_rate": 0.7, "undecided": undecided}

        found = told(store, stored(store, ended, **asked), tmp_path, **asked)

        gate = found.value["gates"][0]
        assert (found.code, found.value["outcome"]) == (code, outcome)
        assert (gate["answer"], gate["counts_as"]) == ("undecided", undecided)
        assert gate["sentence"].endswith("; too close to 0.7 to be sure, add cases")


@pytest.mark.parametrize(("ended", "answer"), [((19, 1, 0, 0, 0), "held"), ((1, 19, 0, 0, 0), "failed")])
def test_a_rate_that_is_far_from_its_bar_answers_for_itself(
    ended: Ended, answer: str, store: Store, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"min_pass_rate": 0.5, "undecided": "neutral"}

    found = told(store, stored(store, ended, **asked), tmp_path, **asked)

    assert found.value["gates"][0]["answer"] == answer
    assert "counts_as" not in found.value["gates"][0]


ALL_PASSED: Ended = (10, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("gate", "ended", "code", "answer"),
    [
        ("--regression-rule likely", (3, 7, 0, 0, 0), 1, "failed"),
        ("--regression-rule likely", (9, 1, 0, 0, 0), 0, "held"),
        ("--regression-rule likely", (2, 7, 0, 0, 1), 130, "failed"),
        ("--max-regressions", (9, 1, 0, 0, 0), 1, "failed"),
    ],
)
def test_a_drop_by_more_than_chance_is_told_alike(
    gate: str, ended: Ended, code: int, answer: str, store: Store, tmp_path: Path
) -> None:
    before = Baseline("run 1", StoredRuns(store.runs).played_cases([stored(store, ALL_PASSED)]))
    run = stored(store, ended, "stopped" if ended[4] else "finished", gate, before)

    found = told(store, run, tmp_path, gate, before)

    asked = next(each for each in found.value["gates"] if each["name"] == "--max-regressions")
    assert (found.code, asked["answer"]) == (code, answer)
    assert StoredRuns(store.runs).conclusion(run).exit_code == code
    assert_pages_agree(store, run, found.value["outcome"])
    assert ("regressed by more than chance" in asked["sentence"]) == gate.endswith("likely")


@pytest.mark.parametrize(
    ("fresh", "code", "answer"),
    [
        ("passed", 0, "held"),
        ("failed", 1, "failed"),
        ("errored", 3, "undecided"),
        ("unscored", 3, "undecided"),
        ("always passed", 0, "held"),
        ("always failed", 1, "failed"),
    ],
)
def test_fresh_trials_decide_in_every_writer_and_are_in_no_count(
    fresh: str, code: int, answer: str, store: Store, baseline: Baseline, tmp_path: Path
) -> None:
    run = stored(store, (0, 1, 0, 0, 0), "finished", f"{CONFIRM}, {fresh}", baseline)

    found = told(store, run, tmp_path, f"{CONFIRM}, {fresh}", baseline)

    gate = next(each for each in found.value["gates"] if each["name"] == "--max-regressions")
    assert (found.code, gate["answer"]) == (code, answer)
    assert (found.value["counts"]["n_planned"], found.value["counts"]["n_failed"]) == (1, 1)
    passed = (FRESH | BY_HISTORY)[fresh][0]
    assert f"passed {passed} of 5" in gate["sentence"] or f"failed {5 - passed} of 5 (worse" in gate["sentence"]


@pytest.mark.parametrize("undecided", UNDECIDED)
def test_what_is_undecided_for_lack_of_trials_never_passes(undecided: str, store: Store, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"min_pass_rate": 0.5, "undecided": undecided}
    for ended, status in (((0, 0, 2, 0, 0), "finished"), ((1, 0, 9, 0, 0), "finished"), ((0, 0, 0, 3, 0), "finished")):
        found = told(store, stored(store, ended, cast("RunStatus", status), **asked), tmp_path, **asked)

        assert found.code in (1, 3), ended
        assert found.value["outcome"] in ("failed", "undecided"), ended


def test_a_bar_of_1_is_answered_by_the_rate_alone(store: Store, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"min_pass_rate": 1.0, "undecided": "neutral"}

    assert told(store, stored(store, (5, 0, 0, 0, 0), **asked), tmp_path, **asked).code == 0


def test_a_pytest_item_that_is_too_close_to_tell_is_skipped() -> None:
    gates = EvalRequest((), asked_gates={"min_pass_rate": 0.7, "undecided": "neutral"}).gates
    result = CaseResult(CASE, tuple(trials(1, (8, 2, 0, 0, 0))), 10)

    with pytest.raises(pytest.skip.Exception, match=r"too close to 0\.7 to be sure"):
        item_failure(result, gates)


def test_a_pytest_item_of_which_four_of_five_trials_are_unscored_does_not_pass() -> None:
    gates = EvalRequest((), asked_gates={"min_pass_rate": 1.0}).gates
    result = CaseResult(CASE, tuple(trials(1, (1, 0, 0, 4, 0))), 5)

    said = item_failure(result, gates)

    assert said.startswith("1 of 1 scored trials passed, 100% must (4 unscored)")
    assert "4 of 5 trials unscored (80 %), more than the tolerated 0" in said
    assert item_failure(result, replace(gates, max_unscored_rate=0.8)) == ""


def test_an_interrupted_run_passes_nowhere(store: Store, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"min_pass_rate": 0.5}

    found = told(store, stored(store, (4, 0, 0, 0, 1), "stopped", **asked), tmp_path, **asked)

    assert found.value["gates"][0]["answer"] == "held"
    assert (found.code, found.value["outcome"], found.value["is_held"]) == (130, "interrupted", False)
    assert "Evaluation interrupted" in found.markdown
    assert "passed\n\n" not in found.markdown.partition("###")[0]
    assert found.junit.get("errors") == "1"
    assert "::error title=Evaluation interrupted::1 of 5 trials was not played" in found.text


def test_a_limit_of_cost_alone_asks_that_every_trial_passes(store: Store, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"max_cost": 1.0}

    found = told(store, stored(store, (4, 1, 0, 0, 0), **asked), tmp_path, **asked)

    assert (found.code, found.value["reasons"]) == (1, ["every trial must pass: 4 of 5 trials passed"])


def test_errored_trials_are_errors_in_junit(store: Store, tmp_path: Path) -> None:
    found = told(store, stored(store, (7, 0, 3, 0, 0)), tmp_path)
    asked: dict[str, Any] = {"max_error_rate": 0.3}
    allowed = told(store, stored(store, (7, 0, 3, 0, 0), **asked), tmp_path, **asked)

    assert found.code == 3
    assert int(found.junit.get("errors", "0")) > 0
    assert found.junit.find("testsuite/testcase[@name='a']/error") is not None
    assert (allowed.code, allowed.junit.get("errors"), allowed.junit.get("failures")) == (0, "0", "0")


def test_a_case_that_breaks_no_gate_is_no_failure_in_junit(store: Store, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"min_pass_rate": 0.5}

    found = told(store, stored(store, (3, 1, 0, 0, 0), **asked), tmp_path, **asked)

    case = found.junit.find("testsuite/testcase[@name='a']")
    gates = found.junit.find("testsuite[@name='gates']")
    assert (found.code, found.junit.get("failures")) == (0, "0")
    assert case is not None
    assert (case.findtext("system-out") or "").startswith("3 of 4 passed; trial 4:")
    assert gates is not None
    assert [each.get("name") for each in gates] == ["--min-pass-rate", "conclusion"]


def test_where_nothing_was_scored_no_writer_says_0_of_0(store: Store, tmp_path: Path) -> None:
    for ended in ((0, 0, 0, 2, 0), (0, 0, 2, 0, 0), (0, 0, 0, 0, 2)):
        run = stored(store, ended, "stopped" if ended[4] else "finished")

        found = told(store, run, tmp_path)

        written = (found.text, found.markdown, ET.tostring(found.junit, "unicode"), json.dumps(found.value))
        assert not any("0 of 0" in each for each in written), written
        assert all(found.value["reasons"])
        assert not any(reason.endswith(": ") for reason in found.value["reasons"])


SEVERAL: dict[str, dict[str, Any]] = {
    "neutral": {"min_pass_rate": 0.6, "min_case_pass_rate": 0.3, "undecided": "neutral"},
    "exact": {"pass_hat": ((2, 0.9),), "min_scored": 4, "max_unscored_rate": 1.0, "stop_when_decided": "exact"},
    "exact, every trial": {"max_error_rate": 0.5, "max_unscored_rate": 0.5, "stop_when_decided": "exact"},
    "likely": {"min_pass_rate": 0.05, "max_error_rate": 0.5, "undecided": "fail", "stop_when_decided": "likely"},
    "against a baseline": {**COMPARED, "margin": 0.1, "min_pass_rate": 0.5, "undecided": "neutral"},
    "against a baseline, exact": {**COMPARED, "min_case_pass_rate": 0.5, "stop_when_decided": "exact"},
}
"""Requests with several gates at once, also of runs that stop when they are decided."""


def stored_in_blocks(
    store: Store, strips: tuple[str, str], gates: Gates, n_left: int, baseline: Baseline
) -> RunSummary:
    """A run of two cases, played block by block until it is decided or so many trials are left."""
    config = RunConfig(AGENT, "set", n=len(strips[0]), gates=gates)
    cases = [CASE, replace(CASE, id="b")]
    run_id = store.runs.create(config, cases, baseline=baseline if gates.compares else None)
    decider = decider_of(store.runs, run_id, gates.stop_when_decided) if gates.stop_when_decided else None
    trials_in_order = [(case, index) for index in range(config.n) for case in range(2)]
    for case, index in trials_in_order[: len(trials_in_order) - n_left]:
        ended = cast("Ended", tuple(int(strips[case][index] == letter) for letter in "pfeu."))
        store.runs.record([replace(each, case_index=case) for each in trials(run_id, ended, first=index)])
        if decider and (stop := decider.look_in(store.runs, run_id)):
            reason = decided_sentence(stop, 2 * config.n)
            assert store.runs.end(run_id, "finished", reason, lease=store.runs.summary(run_id).lease, stop=stop)
            return store.runs.summary(run_id)
    store.runs.set_status(run_id, "stopped" if n_left else "finished")
    return store.runs.summary(run_id)


@pytest.mark.parametrize("name", SEVERAL)
def test_every_writer_shows_the_same_conclusion_of_several_gates_and_of_a_decided_run(
    name: str,
    store: Store,
    baseline: Baseline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ASKED, name, SEVERAL[name])
    n_stopped = 0
    for strips, n_left in product((("ppppp", "ppfpp"), ("fffff", "ppppp"), ("pfeup", "uuppp")), (0, 3)):
        run = stored_in_blocks(store, strips, requested(5, SEVERAL[name]).gates, n_left, baseline)
        n_stopped += run.stop is not None

        found = told(store, run, tmp_path, name, baseline)

        outcome, at = found.value["outcome"], (strips, n_left, found.value["reasons"])
        assert_written_alike(store, run, found, at)
        assert_pages_agree(store, run, outcome)
        assert_following_agrees(store, run, found.code, capsys)
        report = run_report(StoredRuns(store.runs), run.id, {}).data.decode()
        assert f'<p id="conclusion"><b>{outcome.capitalize()}.</b>' in report, at
        reasons = found.value["reasons"]
        assert len(set(reasons)) == len(reasons), at
    assert bool(n_stopped) == ("stop_when_decided" in SEVERAL[name])

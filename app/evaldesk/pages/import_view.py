"""The preview of a file before its import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.imports.staging import Reading, Staged
from evaldesk.model import VERDICTS, Case, JsonObject, Verdict
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import repeats_words
from evaldesk.model.stored import ImportSummary
from evaldesk.transcripts.recorded import RecordedRun, verdict_counts

MAX_CASES = 50
MAX_SENTENCES = 40
MAX_QUERY = 160
MAX_OUTCOMES = 100
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ImportedCase:
    """One case: its id, its first message, and its assertions."""

    id: str
    shape: str
    query: str
    asserts: str


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run: its agent, its eval set, and its result."""

    name: str
    agent: str
    model: str
    shape: str
    metrics: str
    counts: Sequence[tuple[Verdict, int]]


@dataclass(frozen=True, slots=True)
class ImportView:
    """A pending file: its sentences, its first cases, its runs. `n_cases` is None without an eval set.

    `outcomes` are the keys that could decide the verdict; `outcome` is the chosen one.
    `repeats` names the ids that several cases have.
    """

    source: str
    title: str
    recognised_parts: Sequence[str]
    unchanged_parts: Sequence[str]
    refusals: Sequence[str]
    n_cases: int | None
    cases: Sequence[ImportedCase]
    runs: Sequence[RunLine]
    outcomes: Sequence[str] = ()
    outcome: str = ""
    repeats: str = ""

    @property
    def verb(self) -> str:
        """The effect of the button."""
        parts = [counted(self.n_cases, "case")] if self.n_cases is not None else []
        parts += [counted(len(self.runs), "run")] if self.runs else []
        return f"Import {' and '.join(parts)}" if parts else ""


def import_view(staged: Staged) -> ImportView:
    """The preview of a staged file."""
    content = staged.contents
    evalset = content.evalset
    return ImportView(
        source=staged.source,
        title=staged.title,
        recognised_parts=content.understood[:MAX_SENTENCES],
        unchanged_parts=content.kept[:MAX_SENTENCES],
        refusals=content.refused[:MAX_SENTENCES],
        n_cases=len(evalset.cases) if evalset else None,
        cases=[_case_line(case) for case in evalset.cases[:MAX_CASES]] if evalset else [],
        runs=[_run_line(run) for run in content.runs],
        outcomes=content.outcomes[:MAX_OUTCOMES] if staged.has_choice else (),
        outcome=content.outcome,
        repeats=repeats_words(evalset.cases) if evalset else "",
    )


def _case_line(case: Case) -> ImportedCase:
    if case.scenario is not None:
        return ImportedCase(case.id, "scenario", _cut(_scenario_text(case.scenario)), "")
    calls = [turn.expected.tool_calls for turn in case.turns if turn.expected.tool_calls is not None]
    n_references = sum(turn.expected.reference is not None for turn in case.turns)
    asserts = [counted(sum(map(len, calls)), "call")] if calls else []
    asserts += [counted(n_references, "answer")] if n_references else []
    asserts += ["final state"] if case.final_state is not None else []
    query = case.turns[0].query if case.turns else ""
    return ImportedCase(case.id, counted(len(case.turns), "turn"), _cut(query), ", ".join(asserts) or "nothing")


def _run_line(run: RecordedRun) -> RunLine:
    verdicts = verdict_counts(run.results)
    return RunLine(
        name=run.name,
        agent=run.agent,
        model=run.model or "",
        shape=f"{counted(len(run.results), 'trial')} of {counted(len(run.cases), 'case')}",
        metrics=", ".join(criterion.metric for criterion in run.criteria),
        counts=[(verdict, verdicts[verdict]) for verdict in VERDICTS if verdicts[verdict]],
    )


def _scenario_text(scenario: JsonObject) -> str:
    """How a scenario begins: its prompt, or else the first text that it has."""
    texts = [value for value in (scenario.get("starting_prompt"), *scenario.values()) if isinstance(value, str)]
    return next(filter(None, texts), "")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUERY else f"{line[:MAX_QUERY]}…"


@dataclass(frozen=True, slots=True)
class RecordView:
    """An import of runs, under way or over; `links` lead to its results."""

    id: int
    source: str
    badge: str
    word: str
    sentence: str
    n_done: int
    n_total: int
    is_live: bool
    links: Sequence[tuple[str, str]] = ()
    bar: str = "Cases and trials stored"


def record_view(record: ImportSummary, n_before: int = 0) -> RecordView:
    """An import with `n_before` others that are stored first."""
    badge, word = _STATES[record.status]
    is_live = record.status == "importing"
    waits = is_live and n_before > 0
    return RecordView(
        id=record.id,
        source=record.source,
        badge=badge,
        word="waiting" if waits else word,
        sentence=_record_sentence(record, n_before),
        n_done=record.n_done,
        n_total=record.n_total,
        is_live=is_live,
        links=_record_links(record) if not is_live else (),
    )


def reading_view(reading: Reading) -> RecordView:
    """A large upload that is being read, or that cannot be."""
    badge, word = _STATES["failed"] if reading.problem else ("running", "reading")
    n, n_total = reading.n_read // MIB, max(reading.n_bytes // MIB, 1)
    sentence = f"{n:,} of {n_total:,} MiB are read. A preview follows; nothing is stored before you confirm."
    if reading.problem:
        sentence = f"{reading.problem.rstrip('.')}. Nothing of this file is stored."
    return RecordView(0, reading.source, badge, word, sentence, n, n_total, not reading.problem, bar="MiB read")


_STATES = {
    "importing": ("running", "importing"),
    "done": ("passed", "imported"),
    "failed": ("errored", "failed"),
    "cancelled": ("unscored", "cancelled"),
}
"""The badge and the word of each status."""


def _record_sentence(record: ImportSummary, n_before: int) -> str:
    if record.status == "importing":
        if n_before:
            return f"Waiting in line: {counted(n_before, 'import')} before this one."
        if record.stage != "storing":
            return "All cases and trials are stored. They appear in a moment."
        return f"{record.n_done:,} of {record.n_total:,} cases and trials are stored. They appear together at the end."
    if record.status == "done":
        return f"{record.n_total:,} cases and trials are stored."
    return f"{record.reason.rstrip('.')}. Nothing of this file is stored." if record.reason else "Nothing is stored."


def _record_links(record: ImportSummary) -> Sequence[tuple[str, str]]:
    runs = [(f"/runs/{run_id}", f"Run {run_id}") for run_id in record.run_ids[:MAX_CASES]]
    is_stored = record.status == "done" and record.set_id
    return [*runs, *([(f"/evalsets/{record.set_id}", "Eval set")] if is_stored else [])]

"""The preview of a file before its import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.imports.staging import Reading
from evaldesk.formats.exchange import Imported
from evaldesk.model import VERDICTS, Case, JsonObject, Verdict
from evaldesk.model.conclusion import counted
from evaldesk.model.stored import ImportSummary
from evaldesk.transcripts.recorded import RecordedRun, verdict_counts

MAX_RUNS = 50
MAX_QUERY = 160
MIB = 1024 * 1024


def import_verb(contents: Imported) -> str:
    """The effect of the button; empty for a file without cases and runs."""
    parts = [counted(len(contents.evalset.cases), "case")] if contents.evalset else []
    parts += [counted(len(contents.runs), "run")] if contents.runs else []
    return f"Import {' and '.join(parts)}" if parts else ""


def case_shape(case: Case) -> str:
    """`2 turns`, or that the case is a scenario."""
    return "scenario" if case.scenario is not None else counted(len(case.turns), "turn")


def first_message(case: Case) -> str:
    """The beginning of the first message of a case, or of its scenario."""
    if case.scenario is not None:
        return _cut(_scenario_text(case.scenario))
    return _cut(case.turns[0].query) if case.turns else ""


def asserted_parts(case: Case) -> str:
    """`2 calls, 1 answer, final state`, or `nothing`; empty for a scenario."""
    if case.scenario is not None:
        return ""
    calls = [turn.expected.tool_calls for turn in case.turns if turn.expected.tool_calls is not None]
    n_references = sum(turn.expected.reference is not None for turn in case.turns)
    parts = [counted(sum(map(len, calls)), "call")] if calls else []
    parts += [counted(n_references, "answer")] if n_references else []
    parts += ["final state"] if case.final_state is not None else []
    return ", ".join(parts) or "nothing"


def verdict_pairs(run: RecordedRun) -> list[tuple[Verdict, int]]:
    """The verdicts of the trials of a run, each with its number of trials."""
    counts = verdict_counts(run.results)
    return [(verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict]]


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
    runs = [(f"/runs/{run_id}", f"Run {run_id}") for run_id in record.run_ids[:MAX_RUNS]]
    is_stored = record.status == "done" and record.set_id
    return [*runs, *([(f"/evalsets/{record.set_id}", "Eval set")] if is_stored else [])]

"""The understood and the kept parts of a file, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from evaldesk.formats.exchange import Imported
from evaldesk.model import VERDICTS, Case, EvalSet, JsonObject
from evaldesk.reading.shape import shown_extra
from evaldesk.transcripts.recorded import RecordedRun

MAX_KEYS = 12


def with_words(imported: Imported) -> Imported:
    """The same with sentences about its contents, and about keys that it only keeps, before those of its format."""
    evalset = imported.evalset
    understood = (*_understood(imported), *imported.understood, *imported.warnings)
    cases = evalset.cases if evalset else tuple(case for run in imported.runs for case in run.cases)
    kept = (*_kept(evalset.extra if evalset else {}, cases), *imported.kept)
    return replace(imported, understood=understood, kept=kept)


def counted(n: int, word: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{n:,} {word}" + ("" if n == 1 else "s")


def _understood(imported: Imported) -> Iterator[str]:
    if imported.evalset:
        yield from _of_evalset(imported.evalset)
    for run in imported.runs:
        yield from _of_run(run)


def _of_evalset(evalset: EvalSet) -> Iterator[str]:
    cases = evalset.cases
    turns = [turn for case in cases for turn in case.turns]
    n_scenarios = sum(case.scenario is not None for case in cases)
    spoken = f"{counted(len(cases) - n_scenarios, 'case')} with {counted(len(turns), 'turn')}."
    if turns or not n_scenarios:
        yield spoken
    if n_scenarios:
        yield f"{counted(n_scenarios, 'case')} played by a simulated user from a scenario."
    twice = [case_id for case_id, n in Counter(case.id for case in cases).items() if n > 1]
    if twice:
        yield f"{counted(len(twice), 'id')} of more than one case, such as {twice[0][:60]!r}: ADK refuses the file."
    asserted = [turn for turn in turns if turn.expected.tool_calls is not None]
    if asserted:
        n_calls = sum(len(turn.expected.tool_calls or ()) for turn in asserted)
        yield f"{counted(n_calls, 'expected tool call')}, asserted in {counted(len(asserted), 'turn')}."
    n_references = sum(turn.expected.reference is not None for turn in turns)
    if n_references:
        yield f"{counted(n_references, 'reference answer')}."
    n_states = sum(bool(case.initial_state) for case in cases)
    if n_states:
        yield f"Initial state of {counted(n_states, 'case')}."
    n_finals = sum(case.final_state is not None for case in cases)
    if n_finals:
        yield f"Final state of {counted(n_finals, 'case')}."


def _of_run(run: RecordedRun) -> Iterator[str]:
    verdicts = Counter(result.verdict for result in run.results)
    counts = ", ".join(f"{verdicts[each]} {each}" for each in VERDICTS if verdicts[each])
    shape = f"{counted(len(run.results), 'trial')} of {counted(len(run.cases), 'case')}"
    yield f"A run of {run.agent or 'an unnamed agent'}: {shape}; {counts}."
    if run.criteria:
        yield f"Scores of {', '.join(criterion.metric for criterion in run.criteria)}."


def _kept(extra: JsonObject, cases: Sequence[Case]) -> Iterator[str]:
    """One sentence for each level that has keys without a meaning here."""
    if names := _names([extra]):
        yield f"Of the eval set: {names}."
    levels = (
        ("case", [case.extra for case in cases]),
        ("initial session", [case.initial_session.extra for case in cases if case.initial_session]),
        ("turn", [turn.extra for case in cases for turn in case.turns]),
        ("expectation", [turn.expected.extra for case in cases for turn in case.turns]),
        ("tool call", [extra for case in cases for extra in _of_calls(case)]),
    )
    for level, extras in levels:
        n = sum(bool(shown_extra(extra)) for extra in extras)
        if n:
            yield f"In {counted(n, level)}: {_names(extras)}."


def _of_calls(case: Case) -> Iterator[JsonObject]:
    return (call.extra for turn in case.turns for call in turn.expected.tool_calls or ())


def _names(extras: list[JsonObject]) -> str:
    names = list(dict.fromkeys(key[:60] for extra in extras for key in shown_extra(extra)))
    return ", ".join(names[:MAX_KEYS]) + (f" and {len(names) - MAX_KEYS} more" if len(names) > MAX_KEYS else "")

"""The understood and the kept parts of a file, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from evaldesk.errors import NAME_LIMIT
from evaldesk.formats.exchange import Imported
from evaldesk.model import VERDICTS, Case, JsonObject
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import QUARANTINE, repeated_ids
from evaldesk.reading.shape import shown_extra
from evaldesk.transcripts.recorded import RecordedRun, verdict_counts

MAX_KEYS = 12


def with_words(contents: Imported, case_counts: CaseCounts | None = None) -> Imported:
    """The same with sentences about its contents, and about keys that it only keeps, before those of its format.

    `case_counts` are those of its cases, where they were counted as they were read.
    """
    evalset = contents.evalset
    cases = evalset.cases if evalset else (case for run in contents.runs for case in run.cases)
    case_counts = case_counts or CaseCounts(cases)
    of_set = case_counts.understood_words(evalset.cases) if evalset else ()
    of_runs = (words for run in contents.runs for words in _of_run(run))
    understood_words = (*of_set, *of_runs, *contents.understood, *contents.warnings)
    kept_words = (*case_counts.kept_words(evalset.extra if evalset else {}), *contents.kept)
    return replace(contents, understood=understood_words, kept=kept_words)


class CaseCounts:
    """Counts over the cases of a file, added one after the other."""

    def __init__(self, cases: Iterable[Case] = ()) -> None:
        self._n: Counter[str] = Counter()
        self._levels = {level: (Counter[str](), [0]) for level in _LEVELS}
        for case in cases:
            self.add(case)

    def add(self, case: Case) -> None:
        """Count one more case."""
        asserted = [turn.expected.tool_calls for turn in case.turns if turn.expected.tool_calls is not None]
        self._n.update(
            {
                "cases": 1,
                "turns": len(case.turns),
                "scenarios": case.scenario is not None,
                "asserted": len(asserted),
                "calls": sum(map(len, asserted)),
                "references": sum(turn.expected.reference is not None for turn in case.turns),
                "states": bool(case.initial_state),
                "finals": case.final_state is not None,
                "quarantine": QUARANTINE in case.tags,
            }
        )
        for level, extras in _LEVELS.items():
            names, n = self._levels[level]
            for extra in extras(case):
                own_keys = shown_extra(extra)
                n[0] += bool(own_keys)
                names.update(dict.fromkeys((key[:NAME_LIMIT] for key in own_keys), 1))

    def understood_words(self, cases: Sequence[Case]) -> Iterator[str]:
        """Sentences about the contents of these cases, which were counted."""
        n = self._n
        if n["turns"] or not n["scenarios"]:
            yield f"{counted(n['cases'] - n['scenarios'], 'case')} with {counted(n['turns'], 'turn')}."
        if n["scenarios"]:
            yield f"{counted(n['scenarios'], 'case')} played by a simulated user from a scenario."
        twice = list(repeated_ids(cases))
        if twice:
            first = twice[0][:NAME_LIMIT]
            yield f"{counted(len(twice), 'id')} of more than one case, such as {first!r}: ADK refuses the file."
        if n["asserted"]:
            yield f"{counted(n['calls'], 'expected tool call')}, asserted in {counted(n['asserted'], 'turn')}."
        if n["references"]:
            yield f"{counted(n['references'], 'reference answer')}."
        if n["states"]:
            yield f"Initial state of {counted(n['states'], 'case')}."
        if n["finals"]:
            yield f"Final state of {counted(n['finals'], 'case')}."
        if n["quarantine"]:
            yield f"{counted(n['quarantine'], 'case')} in quarantine, which no gate asks for: tag {QUARANTINE}."

    def kept_words(self, extra: JsonObject) -> Iterator[str]:
        """One sentence for each level that has keys without a meaning here; `extra` is of the eval set."""
        if names := _names(shown_extra(extra)):
            yield f"Of the eval set: {names}."
        for level, (level_names, (n,)) in self._levels.items():
            if n:
                yield f"In {counted(n, level)}: {_names(level_names)}."


def _of_run(run: RecordedRun) -> Iterator[str]:
    verdicts = verdict_counts(run.results)
    counts = ", ".join(f"{verdicts[each]} {each}" for each in VERDICTS if verdicts[each])
    shape = f"{counted(len(run.results), 'trial')} of {counted(len(run.cases), 'case')}"
    yield f"A run of {run.agent or 'an unnamed agent'}: {shape}; {counts}."
    n_planned = run.plan.n_planned or 0
    if (n_absent := n_planned - len(run.results)) > 0:
        are = "is" if n_absent == 1 else "are"
        yield f"Undecided, because {n_absent:,} of {counted(n_planned, 'planned trial')} {are} not in the file."
    if run.plan.is_cut:
        yield f"Undecided, because {run.plan.ending}."
    different = [value for value in run.summary if value.differs]
    if different:
        pairs = (f"{value.name} {value.in_file:.6g} (here {value.from_trials:.6g})" for value in different)
        yield f"The tool's own summary differs from its trials: {', '.join(pairs)}."
    elif run.summary:
        yield f"The tool's own summary agrees: {', '.join(f'{each.name} {each.in_file:.6g}' for each in run.summary)}."
    if run.criteria:
        yield f"Scores of {', '.join(criterion.metric for criterion in run.criteria)}."


def _names(names: Iterable[str]) -> str:
    unique_names = list(dict.fromkeys(key[:NAME_LIMIT] for key in names))
    return ", ".join(unique_names[:MAX_KEYS]) + (
        f" and {len(unique_names) - MAX_KEYS} more" if len(unique_names) > MAX_KEYS else ""
    )


_LEVELS: Mapping[str, Callable[[Case], Iterable[JsonObject]]] = {
    "case": lambda case: (case.extra,),
    "initial session": lambda case: (case.initial_session.extra,) if case.initial_session else (),
    "turn": lambda case: (turn.extra for turn in case.turns),
    "expectation": lambda case: (turn.expected.extra for turn in case.turns),
    "tool call": lambda case: (call.extra for turn in case.turns for call in turn.expected.tool_calls or ()),
}

"""A run, or two compared, as one file for people without the desk: the page, and trials with their transcripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from markupsafe import escape

from evaldesk.desk.evalsets.exporting import file_stem
from evaldesk.desk.evalsets.masking import masked_words, without_secrets
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.diff.divergence import Divergence
from evaldesk.model import ErrorRecord, RunConfig
from evaldesk.model.agent_tree import AgentActions
from evaldesk.model.comparison import KINDS
from evaldesk.model.stored import CaseRow, TrialKey
from evaldesk.model.trial_turns import TrialTurns, turns_in_memory
from evaldesk.pages.comparison import CHANGED, ComparisonPage, compared_runs
from evaldesk.pages.runs.page import RunPage, read_run
from evaldesk.pages.runs.view import STATUS_OF, RunQuery, trial_href
from evaldesk.pages.source import Source
from evaldesk.pages.steps import Walk, walk_of
from evaldesk.pages.trial import trial_source
from evaldesk.pages.trial_turns import (
    Gap,
    ScoreLine,
    TurnPanel,
    pieces_of,
    score_lines,
    turn_pieces,
)
from evaldesk.secrets import known_values, scrubber_of
from evaldesk.store import RunStore

T = TypeVar("T")

MAX_CASES = 1_000
"""Cases in the table of a report; the worst come first."""
NOT_PASSED, PASSED, NOT_PLAYED = "feu", "p", "."
_CASES_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ReportTrial:
    """One trial as the report shows it; `href` is the page of the trial in the desk."""

    href: str
    anchor: str
    run_id: int
    case_id: str
    number: int
    status: str
    error: ErrorRecord | None
    divergence: Divergence | None
    turns: Sequence[TurnPanel | Gap]
    scores: Sequence[ScoreLine]
    agents: Sequence[AgentActions]
    source: Source
    walk: Walk | None


@dataclass(slots=True)
class Masking:
    """The masked values of one report; `words` names them with their cases."""

    environment: Mapping[str, str]
    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """The text of a page without secrets, also as HTML writes them."""
        secrets = known_values(self.environment)
        return scrubber_of(secrets | {str(escape(value)): name for value, name in secrets.items()}, self.counts)(text)

    @property
    def words(self) -> str:
        """`2 values masked: OPENAI_API_KEY in case a.`; empty where there was none."""
        return masked_words(self.counts, self.places) if self.counts else ""


def read_report(runs: StoredRuns, run_id: int) -> tuple[RunPage, str]:
    """The page of the run with its worst MAX_CASES cases, and how its file is called. Raises NotFoundError."""
    run = read_run(runs.store, run_id, RunQuery(sort="worst"), most=MAX_CASES)
    return run, f"{file_stem(run_id, run.summary.config)}.html"


def read_comparison(runs: StoredRuns, a_id: int, b_id: int) -> ComparisonPage:
    """The comparison of run `b_id` with run `a_id`, up to MAX_CASES cases. Raises NotFoundError and UsageError."""
    return compared_runs(runs.store, a_id, b_id, KINDS, most=MAX_CASES)


def report_trials(runs: StoredRuns, run_id: int, masking: Masking) -> Iterator[ReportTrial]:
    """The recorded trials without their secrets: failed ones first, worst cases first."""
    config = runs.summary(run_id).config
    for letters in (NOT_PASSED, PASSED):
        for row in _rows(runs.store, run_id):
            keys = [(row.case_index, at) for at, letter in enumerate(row.verdicts) if letter in letters]
            yield from _trials(runs.store, run_id, config, row, keys, masking) if keys else ()


def compared_trials(runs: StoredRuns, comparison: ComparisonPage, masking: Masking) -> Iterator[ReportTrial]:
    """The trials that the lines of a comparison lead to, without their secrets: changed cases first, run B first."""
    lines = sorted(comparison.changes, key=lambda line: line.change.kind not in CHANGED)
    for line in lines:
        for href, side in ((line.after_href, comparison.b), (line.before_href, comparison.a)):
            if href:
                case_index, trial_index = _key_of(href)
                row = runs.store.case_row(side.summary.id, case_index)
                is_played = row.verdicts[trial_index] != NOT_PLAYED
                keys = [(case_index, trial_index)] if is_played else []
                yield from _trials(runs.store, side.summary.id, side.summary.config, row, keys, masking)


def _key_of(href: str) -> TrialKey:
    """The case and the trial of `/runs/1/cases/2/trials/3`."""
    parts = href.split("/")
    return int(parts[4]), int(parts[6])


def _rows(runs: RunStore, run_id: int) -> Iterator[CaseRow]:
    after, n_left = "", MAX_CASES
    while n_left > 0 and (rows := runs.case_rows(run_id, sort="worst", after=after, limit=min(_CASES_AT_ONCE, n_left))):
        yield from rows
        after, n_left = rows[-1].cursor, n_left - len(rows)


def _trials(
    runs: RunStore, run_id: int, config: RunConfig, row: CaseRow, keys: Sequence[TrialKey], masking: Masking
) -> Iterator[ReportTrial]:
    for key in keys:
        before = Counter(masking.counts)
        stored_turns, divergence = runs.turns(run_id, *key)
        turns = _mask_turns(stored_turns, masking)
        broken = [divergence.turn - 1] if divergence else []
        pieces = turn_pieces(turns, pieces_of(turns.n_turns, [0, *broken]))
        case, result = (turns.case, turns.result) if turns.is_long else turns.read_trial()
        if result is None:
            continue
        if divergence:
            (divergence,) = without_secrets([divergence], masking.environment, masking.counts)
        for name in masking.counts - before:
            masking.places.setdefault(name, []).append(row.case_id)
        number, source = key[1] + 1, trial_source(turns)
        yield ReportTrial(
            href=trial_href(run_id, key),
            anchor=f"run-{run_id}-case-{key[0] + 1}-trial-{number}",
            run_id=run_id,
            case_id=case.id,
            number=number,
            status=STATUS_OF[row.verdicts[key[1]]],
            error=result.error,
            divergence=divergence,
            turns=pieces,
            scores=score_lines(result.scores, turns.summary.turn_metrics),
            agents=turns.summary.agents,
            source=source,
            walk=None if turns.is_long else walk_of(case, result, source.hunks),
        )


def _mask_turns(turns: TrialTurns, masking: Masking) -> TrialTurns:
    """The turns without their secrets; of many turns those that are read."""

    def masked(values: Iterable[T]) -> list[T]:
        return list(without_secrets(values, masking.environment, masking.counts))

    if not turns.is_long:
        case, result = turns.read_trial()
        (case,) = masked([case])
        return turns_in_memory(case, next(iter(masked([result] if result else [])), None))
    (case,), (summary,) = masked([turns.case]), masked([turns.summary])
    return replace(
        turns,
        case=case,
        result=next(iter(masked([turns.result] if turns.result else [])), None),
        summary=summary,
        read_turns=lambda first, end: masked(turns.read_turns(first, end)),
    )

"""The trials of cases over all stored runs of the same class. (reference/forecasts.md 1)"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, select

from evaldesk.agents.agent import AGENTS
from evaldesk.model.evalset import CaseKey, numbered_keys
from evaldesk.model.history import MOST_TRIALS, CaseHistory, SetHistory
from evaldesk.model.run import AgentRef, RunConfig, measured_value
from evaldesk.run_options import RUN_OPTIONS
from evaldesk.store.runs.totals import are_errors_failures
from evaldesk.store.tables.runs import LETTERS, N_OF_CASE, OF_CASE, RUN, RUN_CASE, TRIAL, VISIBLE
from evaldesk.wire import to_json

NO_HISTORY = ""
"""The class of runs that are part of no history: imported, scored again, answered from recordings, or forks."""
IMPORTED = "imported"
"""The kind of agent whose trials came in a file; it cannot be played."""
_OF_COUNTS = ("pass_threshold", "errors_are_failures")
"""Options that count trials, and change none."""
_RUNS_AT_ONCE = 50
_CASES_AT_ONCE = 1_000
_MOST_ROWS = 400_000
"""Cases of all runs that are looked at, about a second's reading."""


# Runs of one class differ by chance alone: decision 480.
def history_class(config: RunConfig) -> str:
    """The class of a run: a digest of the agent, the criteria and the options that change a trial.

    Options at their default are left out, so that a later option leaves old classes as they are. The eval set
    is not in it: cases are told by their own content.
    """
    kind = AGENTS.find(config.agent.kind)
    is_played = config.agent.kind != IMPORTED and config.source_run_id is None and not (kind and kind.is_recording)
    if not is_played or config.recording.may_replay or config.fork:
        return NO_HISTORY
    options = [option for option in RUN_OPTIONS if option.is_measured and option.name not in _OF_COUNTS]
    values = {option.name: measured_value(config, option) for option in options}
    start = RunConfig(AgentRef("", ""), "")
    defaults = {option.name: measured_value(start, option) for option in options}
    ref, played_on = config.agent, config.interpreter
    parts: dict[str, object] = {
        "agent": (ref.target, ref.kind, ref.declared, ref.part, config.agent_version, config.agent_model),
        "criteria": config.criteria,
        "options": {name: value for name, value in values.items() if value != defaults[name]},
        "container": ref.container,
        "commands": ref.commands,
        "functions": config.functions_version,
        "interpreter": (played_on.version, dict(played_on.packages), played_on.digest),
    }
    return hashlib.sha256(to_json(parts)).hexdigest()[:16]


def case_histories(
    connection: Connection, of_class: str, keys: Sequence[CaseKey], before: int | None = None
) -> SetHistory:
    """The newest trials of cases with this content, in their order; of the runs before the run `before`, if given.

    A case that was renamed keeps its history. Confirming trials and those of stopped runs are part of it, and so are
    runs whose gates failed.
    """
    history, places = _Found(len(keys)), _Places(keys)
    columns = RUN.c
    runs = select(columns.id, columns.config, columns.n_cases, columns.n_confirming).where(
        columns.history_class == of_class, VISIBLE
    )
    runs = runs.where(columns.id < before) if before is not None else runs
    rows = connection.execute(runs.order_by(columns.id.desc())).all() if of_class and keys else []
    n_rows = 0
    for start in range(0, len(rows), _RUNS_AT_ONCE):
        some = rows[start : start + _RUNS_AT_ONCE]
        n_rows += sum(run.n_cases for run in some)
        if history.is_full or n_rows > _MOST_ROWS:
            break
        strips = _strips(connection, [run.id for run in some], list({key.digest for key in keys}))
        fresh = _confirming(connection, [run.id for run in some if run.n_confirming])
        for run in some:
            letters = "pfe" if are_errors_failures(run.config) else "pf"
            of_run: dict[int, tuple[str, str]] = {}
            for index, case_id, digest, strip in strips.get(run.id, ()):
                place = next((each for each in places.of(case_id, digest) if each not in of_run), None)
                if place is not None:
                    of_run[place] = strip, fresh.get((run.id, index), "")
            history.add(run.id, of_run, letters)
    return history.history()


def case_keys(connection: Connection, run_id: int) -> list[CaseKey]:
    """The keys of the cases of a run, in their order, without the name of the eval set."""
    columns = RUN_CASE.c
    rows = (
        select(columns.case_id, columns.digest)
        .join(RUN, RUN.c.id == columns.run_id)
        .where(columns.run_id == run_id, VISIBLE)
    )
    rows = rows.order_by(columns.case_index)
    return numbered_keys(("", case_id, digest) for case_id, digest in connection.execute(rows))


class _Places:
    """The places of cases among the requested ones."""

    def __init__(self, keys: Sequence[CaseKey]) -> None:
        self._named: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._alike: dict[str, list[int]] = defaultdict(list)
        for place, key in enumerate(keys):
            self._named[key.case_id, key.digest].append(place)
            self._alike[key.digest].append(place)

    def of(self, case_id: str, digest: str) -> Sequence[int]:
        """The places that a stored case may have: by its id, or by its content where only one case has that."""
        alike = self._alike.get(digest, [])
        return self._named.get((case_id, digest)) or (alike if len(alike) == 1 else [])


class _Found:
    """The trials that were found so far, newest runs first."""

    def __init__(self, n_cases: int) -> None:
        self.scored, self.passed = [0] * n_cases, [0] * n_cases
        self.run_ids: list[int] = []
        self.runs: list[tuple[tuple[int, int], ...]] = []

    @property
    def is_full(self) -> bool:
        """Whether every case has as many trials as count."""
        return all(n >= MOST_TRIALS for n in self.scored)

    def add(self, run_id: int, of_run: dict[int, tuple[str, str]], letters: str) -> None:
        """Add the trials of one run: the planned and the confirming ones of each case."""
        planned_counts = [(0, 0)] * len(self.scored)
        n_scored = 0
        for place, (strip, fresh) in of_run.items():
            counts = _counts(strip, letters)
            planned_counts[place] = counts
            room = MOST_TRIALS - self.scored[place]
            if fresh or counts[0] > room:
                newest = [each for each in strip + fresh if each in letters][-room:] if room > 0 else []
                counts = len(newest), newest.count("p")
            self.scored[place] += counts[0]
            self.passed[place] += counts[1]
            n_scored += counts[0]
        if n_scored:
            self.run_ids.append(run_id)
        if 2 * sum(n > 0 for n, _ in planned_counts) >= len(planned_counts):
            self.runs.append(tuple(planned_counts))

    def history(self) -> SetHistory:
        """The histories of the cases."""
        cases = tuple(CaseHistory(*case) for case in zip(self.scored, self.passed, strict=True))
        return SetHistory(cases, tuple(self.run_ids), tuple(reversed(self.runs)))


def _counts(strip: str, letters: str) -> tuple[int, int]:
    """The scored and the passed trials of a strip; a count of each letter is quicker than a look at each trial."""
    return sum(map(strip.count, letters)), strip.count("p")


def _strips(
    connection: Connection, run_ids: Sequence[int], digests: Sequence[str]
) -> dict[int, list[tuple[int, str, str, str]]]:
    """The cases with this content in each run, in their order: (index, id, digest, verdicts)."""
    columns = RUN_CASE.c
    cases_by_run: dict[int, list[tuple[int, str, str, str]]] = defaultdict(list)
    for start in range(0, len(digests), _CASES_AT_ONCE):
        rows = select(columns.run_id, columns.case_index, columns.case_id, columns.digest, columns.strip).where(
            columns.run_id.in_(run_ids), columns.digest.in_(digests[start : start + _CASES_AT_ONCE])
        )
        for run_id, *case in connection.execute(rows.order_by(columns.run_id, columns.case_index)):
            cases_by_run[run_id].append((case[0], case[1], case[2], case[3]))
    return cases_by_run


def _confirming(connection: Connection, run_ids: Sequence[int]) -> dict[tuple[int, int], str]:
    """The letters of the fresh trials of each case that confirm a regression."""
    letters_by_case: dict[tuple[int, int], str] = defaultdict(str)
    if not run_ids:
        return letters_by_case
    columns = TRIAL.c
    rows = select(columns.run_id, columns.case_index, columns.verdict).join(RUN_CASE, OF_CASE)
    rows = rows.where(columns.run_id.in_(run_ids), columns.trial_index >= N_OF_CASE)
    for run_id, index, verdict in connection.execute(
        rows.order_by(columns.run_id, columns.case_index, columns.trial_index)
    ):
        letters_by_case[run_id, index] += LETTERS.get(verdict, "")
    return letters_by_case

"""Findings, modes and readings of a workspace; each verb is one transaction and can be undone as a whole."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    String,
    and_,
    bindparam,
    cast,
    func,
    select,
)

from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model.failures import (
    TRIALS,
    Anchor,
    Finding,
    FindingDraft,
    FindingStatus,
    Mode,
    ReadTrials,
    TrialReading,
    UndoneStep,
)
from evaldesk.model.stored import TrialKey
from evaldesk.store.database import StorePart, reading
from evaldesk.store.failure_steps import (
    Step,
    active_mode,
    begun_step,
    check_name,
    check_trial,
    folded_name,
    has_trial,
    in_use,
    last_step,
    mode_row,
    place_of,
    undo,
)
from evaldesk.store.runs.run_queries import run_row
from evaldesk.store.tables.columns import at
from evaldesk.store.tables.failures import CODEBOOK_STEP, FINDING, MODE, READING
from evaldesk.store.tables.runs import RUN, RUN_CASE, SCORE, VISIBLE

OF_RUN = (RUN.c.id == FINDING.c.run_id) & VISIBLE


class FailureStore(StorePart):
    """The failures that people found in the trials of a workspace. Findings go with the run that played the trial."""

    def add(self, draft: FindingDraft, author: str, new_mode: str = "") -> int:
        """Store a finding of a person; its trial is read by that. A mode named `new_mode` is created where none is.

        Raises NotFoundError when there is no such trial or mode, ConflictError for a mode that was merged or retired.
        """
        with begun_step(self, author) as step:
            if new_mode:
                draft = replace(draft, mode_id=step.named_mode(new_mode))
            finding_id = step.add(draft, author)
            if draft.mode_id is not None:
                step.check_usable(draft.mode_id, draft.run_id)
            step.mark_read(draft, author, is_clear=False)
            step.close("found", f"finding on trial {draft.trial_index + 1}")
            return finding_id

    def take_in(
        self,
        modes: Sequence[Mapping[str, Any]],
        drafts: Sequence[tuple[FindingDraft, str, str, datetime | None]],
        author: str,
    ) -> tuple[int, int, int, int, int]:
        """Store modes and findings that are not there yet, as one step.

        A finding comes with its author, and the name of its mode and when that was retired, which tell modes apart.
        A finding without a note and a mode says that nothing is wrong. A note that is there without a mode gets that of
        the same note. Returns how many modes and findings are new, how many notes got a mode, how many trials with
        nothing wrong are new, and how many are of trials that are not there.
        """
        with begun_step(self, author) as step:
            n_modes = n_findings = n_named = n_clear = n_elsewhere = 0
            last = step.connection.scalar(select(func.max(FINDING.c.id))) or 0
            for texts in modes:
                if step.connection.scalar(select(MODE.c.id).where(*in_use(texts["name"], texts["retired_at"]))) is None:
                    step.create_mode(**texts)
                    n_modes += 1
            for finding, reader, name, retired_at in drafts:
                if not has_trial(step.connection, place_of(finding)):
                    n_elsewhere += 1
                    continue
                if not finding.note and not name:
                    reading_key = at(READING, place_of(finding) | {"reader": reader})
                    if step.connection.execute(select(READING.c.reader).where(*reading_key)).first() is None:
                        step.mark_read(finding, reader, is_clear=True)
                        n_clear += 1
                    continue
                mode_id = step.named_mode(name, retired_at=retired_at) if name else None
                draft = replace(finding, mode_id=mode_id)
                values = place_of(draft) | asdict(draft.anchor)
                values |= {"note": draft.note, "mode_id": mode_id, "author": reader}
                if step.connection.execute(select(FINDING.c.id).where(*at(FINDING, values))).first():
                    continue
                unnamed = at(FINDING, values | {"mode_id": None, "status": "counted"})
                note = step.connection.scalar(select(FINDING.c.id).where(*unnamed, FINDING.c.id <= last))
                if mode_id is not None:
                    step.use(mode_id)
                    step.reopen(mode_id, draft.run_id)
                if note is not None:
                    step.change(FINDING, {"id": note}, {"mode_id": mode_id})
                    n_named += 1
                    continue
                step.add(draft, reader)
                step.mark_read(draft, reader, is_clear=False)
                n_findings += 1
            step.close("imported", f"{n_modes} kinds of failure and {n_findings + n_named} findings imported")
            return n_modes, n_findings, n_named, n_clear, n_elsewhere

    def clear(self, run_id: int, key: TrialKey, author: str) -> None:
        """Say that nothing is wrong in a trial. Raises ConflictError where the reader has a finding on it."""
        place = FindingDraft(run_id, *key)
        with begun_step(self, author) as step:
            check_trial(step.connection, place)
            mine = at(FINDING, place_of(place) | {"author": author, "status": "counted"})
            if step.connection.execute(select(FINDING.c.id).where(*mine)).first():
                raise ConflictError("you have a finding on this trial; undo or remove it first")
            step.mark_read(place, author, is_clear=True)
            step.close("cleared", f"nothing wrong in trial {key[1] + 1}")

    def name(self, finding_ids: Sequence[int], mode: str, author: str) -> None:
        """Give findings without a mode the one of this name, a new one where none is.

        Raises NotFoundError, and ConflictError where one of them has a mode by now.
        """
        with begun_step(self, author) as step:
            named_findings = select(FINDING.c.id).where(FINDING.c.id.in_(finding_ids), FINDING.c.mode_id.is_not(None))
            if step.connection.execute(named_findings).first():
                raise ConflictError("somebody named one of these notes meanwhile; load the page again")
            _assign(step, finding_ids, step.named_mode(mode))
            step.close("named", f"{len(set(finding_ids))} notes named “{mode}”")

    def remove(self, finding_id: int, author: str) -> None:
        """Take a finding away; without another of its author the trial is unread. Raises NotFoundError."""
        with begun_step(self, author) as step:
            row = step.connection.execute(select(FINDING).where(FINDING.c.id == finding_id)).first()
            if row is None:
                raise NotFoundError("this finding is not there any more")
            step.remove(FINDING, {"id": finding_id})
            reading_key = place_of(row) | {"reader": row.author}
            others = [*at(FINDING, place_of(row)), FINDING.c.author == row.author, FINDING.c.status == "counted"]
            is_read = step.connection.execute(select(READING.c.reader).where(*at(READING, reading_key))).first()
            if is_read and not step.connection.execute(select(FINDING.c.id).where(*others)).first():
                step.remove(READING, reading_key)
            step.close("removed", "finding removed")

    def create_mode(self, author: str, **texts: str) -> int:
        """Create a mode. Raises UsageError when its name is in use."""
        with begun_step(self, author) as step:
            mode_id = step.create_mode(**texts)
            step.close("created", f"“{texts['name']}” created")
            return mode_id

    def edit_mode(self, mode_id: int, author: str, *, seen_version: str = "", **texts: str) -> None:
        """Rename a mode, or rewrite its definition.

        `seen_version` is the `texts_version` that the person changed, and ConflictError is raised where the mode has
        another by now. Raises UsageError when the name is in use, NotFoundError.
        """
        with begun_step(self, author) as step:
            row = mode_row(step.connection, mode_id)
            if (
                seen_version
                and _mode(row).texts_version != seen_version
                and any(row._mapping[name] != texts[name] for name in texts)
            ):
                raise ConflictError(f"“{row.name}” was edited meanwhile; look at it, then make your change again")
            if "name" in texts:
                check_name(step.connection, texts["name"], mode_id)
                texts["folded"] = folded_name(texts["name"])
            step.change(MODE, {"id": mode_id}, texts)
            step.close("edited", f"“{row.name}” edited")

    def merge(self, mode_id: int, into_id: int, author: str) -> None:
        """Let all findings of a mode belong to another; the mode stays as a pointer to it.

        Raises NotFoundError, ConflictError when one of the two was merged or retired meanwhile.
        """
        if mode_id == into_id:
            raise UsageError("A kind of failure cannot be merged into itself.", field="into")
        with begun_step(self, author) as step:
            name, into = (active_mode(step.connection, each).name for each in (mode_id, into_id))
            step.use(into_id)
            ids = step.connection.scalars(select(FINDING.c.id).where(FINDING.c.mode_id == mode_id)).all()
            for finding_id in ids:
                step.change(FINDING, {"id": finding_id}, {"mode_id": into_id})
            # A mode is never deleted, so that undo can bring it back: decision 108.
            step.change(MODE, {"id": mode_id}, {"merged_into": into_id})
            runs = step.connection.scalars(
                select(FINDING.c.run_id).where(FINDING.c.mode_id == into_id, FINDING.c.status == "counted").distinct()
            )
            for run_id in sorted(runs):
                step.reopen(into_id, run_id)
            step.close("merged", f"“{name}” merged into “{into}”")

    def split(self, mode_id: int, finding_ids: Sequence[int], author: str, **texts: str) -> int:
        """Make a new mode of some findings of another. Raises UsageError, NotFoundError and ConflictError."""
        with begun_step(self, author) as step:
            row = active_mode(step.connection, mode_id)
            ids_of_mode = set(step.connection.scalars(select(FINDING.c.id).where(FINDING.c.mode_id == mode_id)))
            if not finding_ids or not set(finding_ids) <= ids_of_mode:
                raise UsageError(f"Choose findings of “{row.name}” for the new kind of failure.", field="finding")
            new_id = step.create_mode(**texts)
            _assign(step, finding_ids, new_id)
            step.close("split", f"“{texts['name']}” split from “{row.name}”")
            return new_id

    def retire(self, mode_id: int, author: str) -> None:
        """Take a mode out of use; its findings keep it. Raises NotFoundError, ConflictError."""
        with begun_step(self, author) as step:
            row = active_mode(step.connection, mode_id)
            step.change(MODE, {"id": mode_id}, {"retired_at": self._clock()})
            step.close("retired", f"“{row.name}” retired")

    def mark_fixed(self, mode_id: int, run_id: int, author: str) -> None:
        """Say that a mode is fixed in a run. Raises UsageError when that run or a later one shows it."""
        with begun_step(self, author) as step:
            row = active_mode(step.connection, mode_id)
            run_row(step.connection, run_id)
            last_run_id = step.connection.scalar(
                select(func.max(FINDING.c.run_id)).where(FINDING.c.mode_id == mode_id, FINDING.c.status == "counted")
            )
            if last_run_id is not None and last_run_id >= run_id:
                raise UsageError(f"“{row.name}” was found in run {last_run_id}; name a later run.", field="run")
            step.change(MODE, {"id": mode_id}, {"fixed_in": run_id, "reopened_in": None})
            step.close("fixed", f"“{row.name}” fixed in run {run_id}")

    def undo(self, author: str, step_id: int | None = None) -> UndoneStep:
        """Undo the last step of a person, up to 30 days old, or the named one.

        Raises NotFoundError when there is none, ConflictError when the same was changed by a step since.
        """
        with self._database.writing() as connection:
            return undo(connection, author, step_id, self._clock())

    last_step = reading(last_step)

    def modes(self) -> Sequence[Mode]:
        """All modes, those in use first, each in the order of creation."""
        rows = select(MODE).order_by(MODE.c.merged_into.is_not(None), MODE.c.retired_at.is_not(None), MODE.c.id)
        with self._database.reading() as connection:
            return [_mode(row) for row in connection.execute(rows)]

    def of_trial(self, run_id: int, key: TrialKey) -> Sequence[Finding]:
        """The findings of one trial, proposals included, in the order in which they were made."""
        place = at(FINDING, place_of(FindingDraft(run_id, *key)))
        return self._findings([*place, FINDING.c.status != "rejected"], newest_first=False)

    def of_mode(
        self, mode_id: int | None, run_id: int | None = None, limit: int = 50, before: int | None = None
    ) -> Sequence[Finding]:
        """The counted findings of a mode, or without one, newest first, of one run or all, older than `before`."""
        older = [] if before is None else [FINDING.c.id < before]
        return self._findings([*_of_mode(mode_id, run_id), *older], limit)

    def n_of_mode(self, mode_id: int, run_id: int | None = None) -> int:
        """The number of counted findings with the mode, in one run or in all."""
        rows = select(func.count()).select_from(FINDING).join(RUN, OF_RUN)
        with self._database.reading() as connection:
            return int(connection.scalar(rows.where(*_of_mode(mode_id, run_id))) or 0)

    def list(self, run_id: int | None = None, *, status: FindingStatus = "counted") -> Sequence[Finding]:
        """All findings of a run, or of the workspace, with one status, oldest first."""
        of_run = [] if run_id is None else [FINDING.c.run_id == run_id]
        return self._findings([FINDING.c.status == status, *of_run], newest_first=False)

    def verdicts(self, run_id: int) -> Sequence[tuple[str, str]]:
        """Each case of a run with the letters of its planned trials, by the index of the case."""
        with self._database.reading() as connection:
            return [*map(tuple, connection.execute(_VERDICTS, {"run": run_id}).all())]

    def trials_by_run(self, mode_id: int) -> Mapping[int, int]:
        """The number of trials of each run with the mode."""
        f = FINDING.c
        rows = select(f.run_id, func.count(number_of(f).distinct())).join(RUN, OF_RUN).where(*_of_mode(mode_id, None))
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(rows.group_by(f.run_id).order_by(f.run_id))}

    def last_author(self) -> str:
        """The person of the last step; empty before the first."""
        newest = select(CODEBOOK_STEP.c.author).order_by(CODEBOOK_STEP.c.id.desc()).limit(1)
        with self._database.reading() as connection:
            return connection.scalar(newest) or ""

    def read_runs(self) -> Sequence[int]:
        """The runs with read trials, newest first."""
        runs = select(READING.c.run_id).join(RUN, (RUN.c.id == READING.c.run_id) & VISIBLE).distinct()
        with self._database.reading() as connection:
            return connection.scalars(runs.order_by(READING.c.run_id.desc())).all()

    def readings(self, run_id: int) -> Sequence[TrialReading]:
        """Every trial of a run that was read, once for each reader, in the order of reading."""
        r, f = READING.c, FINDING.c
        mine = and_(f.author == r.reader, *(f[name] == r[name] for name in ("run_id", "case_index", "trial_index")))
        rows = (
            select(READING, f.id.label("finding_id"), f.mode_id)
            .join(RUN, (RUN.c.id == r.run_id) & VISIBLE)
            .outerjoin(FINDING, and_(mine, f.status == "counted"))
            .where(r.run_id == run_id)
            .order_by(r.read_at, r.case_index, r.trial_index, r.reader, f.id)
        )
        rows_by_key: dict[tuple[int, int, str], Any] = {}
        modes: defaultdict[tuple[int, int, str], dict[int, int | None]] = defaultdict(dict)
        with self._database.reading() as connection:
            for row in connection.execute(rows):
                key = (row.case_index, row.trial_index, row.reader)
                rows_by_key[key] = row
                if row.finding_id is not None:
                    modes[key][row.finding_id] = row.mode_id
        return [
            TrialReading(
                case_index=key[0],
                trial_index=key[1],
                reader=key[2],
                is_clear=row.is_clear,
                modes=tuple(dict.fromkeys(mode for mode in modes[key].values() if mode is not None)),
                n_findings=len(modes[key]),
                read_at=row.read_at,
            )
            for key, row in rows_by_key.items()
        ]

    def read_trials(self, run_id: int) -> ReadTrials:
        """The trials of a run that people read; a finding counts where its author read the trial."""
        sets: dict[bool, dict[str, frozenset[int]]] = {True: {}, False: {}}
        modes: defaultdict[str, dict[int | None, frozenset[int]]] = defaultdict(dict)
        trials = ReadTrials(sets[True], sets[False], modes)
        with self._database.reading() as connection:
            for reader, is_clear, numbers in connection.execute(_READ, {"run": run_id}):
                sets[bool(is_clear)][reader] = frozenset(list_values(numbers))
            of_readers = {reader: trials.of_reader(reader) for reader in (*sets[True], *sets[False])}
            for author, mode_id, numbers in connection.execute(_FOUND, {"run": run_id}):
                modes[author][mode_id] = of_readers.get(author, frozenset()).intersection(list_values(numbers))
        return trials

    def judged_trials(self, run_id: int, metric: str) -> Mapping[bool, frozenset[int]]:
        """The trials of a run that a judge of a mode called without it, and with it, as their numbers."""
        s = SCORE.c
        of_run = (s.run_id == run_id, s.metric == metric, s.value.is_not(None))
        rows = select(s.value, trial_numbers(s)).join(RUN, (RUN.c.id == s.run_id) & VISIBLE).where(*of_run)
        numbers_by_call: dict[bool, frozenset[int]] = {True: frozenset(), False: frozenset()}
        with self._database.reading() as connection:
            for value, numbers in connection.execute(rows.group_by(s.value)):
                numbers_by_call[value >= 1] |= frozenset(list_values(numbers))
        return numbers_by_call

    def _findings(
        self, conditions: Sequence[Any], limit: int | None = None, *, newest_first: bool = True
    ) -> Sequence[Finding]:
        order = FINDING.c.id.desc() if newest_first else FINDING.c.id
        rows = select(FINDING).join(RUN, OF_RUN).where(*conditions).order_by(order).limit(limit)
        with self._database.reading() as connection:
            return [_finding(row) for row in connection.execute(rows)]


def _assign(step: Step, finding_ids: Sequence[int], mode_id: int) -> None:
    rows = step.connection.execute(select(FINDING).where(FINDING.c.id.in_(finding_ids))).all()
    if len(rows) < len(set(finding_ids)):
        raise NotFoundError("a finding is not there any more; load the page again")
    for run_id in sorted({row.run_id for row in rows}):
        step.check_usable(mode_id, run_id)
    for row in rows:
        step.change(FINDING, {"id": row.id}, {"mode_id": mode_id})


def _of_mode(mode_id: int | None, run_id: int | None) -> list[Any]:
    of_run = [] if run_id is None else [FINDING.c.run_id == run_id]
    return [FINDING.c.mode_id == mode_id, FINDING.c.status == "counted", *of_run]


def number_of(columns: Any) -> ColumnElement[int]:
    """A trial of a run as one number, as `trial_number` makes it."""
    number: ColumnElement[int] = cast(columns.case_index, BigInteger) * TRIALS + columns.trial_index
    return number


def trial_numbers(columns: Any) -> ColumnElement[str]:
    """The trials of a group as one text: a row for each would cost more than all that is counted of them."""
    return func.aggregate_strings(cast(number_of(columns), String), ",")


def list_values(text: str) -> list[int]:
    """The values that such a text lists."""
    numbers: list[int] = json.loads(f"[{text}]")
    return numbers


def _mode(row: Any) -> Mode:
    return Mode(**{name: each for name, each in row._mapping.items() if name != "folded"})


def _finding(row: Any) -> Finding:
    values = dict(row._mapping)
    anchor = Anchor(*(values.pop(name) for name in ("turn", "event", "start", "end", "quote")))
    return Finding(anchor=anchor, **values)


# The pages of failures ask these of many runs: they are built once.
_VERDICTS = (
    select(RUN_CASE.c.case_id, RUN_CASE.c.strip)
    .join(RUN, (RUN.c.id == RUN_CASE.c.run_id) & VISIBLE)
    .where(RUN_CASE.c.run_id == bindparam("run"))
    .order_by(RUN_CASE.c.case_index)
)
_READ = (
    select(READING.c.reader, READING.c.is_clear, trial_numbers(READING.c))
    .join(RUN, (RUN.c.id == READING.c.run_id) & VISIBLE)
    .where(READING.c.run_id == bindparam("run"))
    .group_by(READING.c.reader, READING.c.is_clear)
)
_FOUND = (
    select(FINDING.c.author, FINDING.c.mode_id, trial_numbers(FINDING.c))
    .where(FINDING.c.run_id == bindparam("run"), FINDING.c.status == "counted")
    .group_by(FINDING.c.author, FINDING.c.mode_id)
)

"""Findings, modes and readings of a workspace; each verb is one transaction and can be undone as a whole."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    String,
    and_,
    bindparam,
    cast,
    exists,
    func,
    insert,
    or_,
    select,
)

from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model.failures import (
    TRIALS,
    Anchor,
    Asked,
    Finding,
    FindingDraft,
    FindingSource,
    FindingStatus,
    Mode,
    ProposedGroup,
    ProposedMerge,
    ReadTrials,
    TrialReading,
    UndoneStep,
)
from evaldesk.model.stored import TrialKey
from evaldesk.store.database import Database, reading
from evaldesk.store.failure_steps import (
    Step,
    check_name,
    folded_name,
    has_trial,
    in_use,
    last_step,
    mode_row,
    place_of,
    undo,
)
from evaldesk.store.tables.columns import at
from evaldesk.store.tables.failures import CODEBOOK_STEP, FINDING, MODE, MODEL_QUESTION, PROPOSED_MERGE, READING
from evaldesk.store.tables.runs import RUN, RUN_CASE, SCORE, TRIAL, VISIBLE

_OF_RUN = (RUN.c.id == FINDING.c.run_id) & VISIBLE


class FailureStore:
    """The failures that people found in the trials of a workspace. Findings go with the run that played the trial."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def add(self, draft: FindingDraft, author: str, new_mode: str = "") -> int:
        """Store a finding of a person; its trial is read by that. A mode named `new_mode` is created where none is.

        Raises NotFoundError when there is no such trial or mode, ConflictError for a mode that was merged or retired.
        """
        with self._database.writing() as connection:
            step = self._step(connection, author)
            if new_mode:
                draft = replace(draft, mode_id=self._named_mode(connection, step, new_mode))
            finding_id = self._insert(connection, step, draft, author, "person", "counted")
            if draft.mode_id is not None:
                self._check_usable(connection, step, draft.mode_id, draft.run_id)
            self._mark_read(connection, step, draft, author, is_clear=False)
            step.close("found", f"finding on trial {draft.trial_index + 1}")
            return finding_id

    def propose(self, drafts: Sequence[FindingDraft], source: FindingSource) -> int:
        """Store proposals, which count nowhere; a trial that has the same one already, also rejected, gets no other."""
        with self._database.writing() as connection:
            n = 0
            for draft in drafts:
                same = at(FINDING, place_of(draft) | {"signature": draft.signature})
                if connection.execute(select(FINDING.c.id).where(*same)).first() is None:
                    self._insert(connection, None, draft, source, source, "proposed")
                    n += 1
            return n

    def keep_question(self, run_id: int, model: str, n_trials: int, tokens: int, cost: float | None) -> None:
        """Keep what a question about a run cost. Raises NotFoundError."""
        values = {"run_id": run_id, "model": model, "n_trials": n_trials, "tokens": tokens, "cost": cost}
        with self._database.writing() as connection:
            if connection.execute(select(RUN.c.id).where(RUN.c.id == run_id, VISIBLE)).first() is None:
                raise NotFoundError(f"there is no run {run_id}")
            connection.execute(insert(MODEL_QUESTION).values(values | {"asked_at": self._clock()}))

    def asked(self, run_id: int) -> Asked:
        """The questions about the failures of a run."""
        q = MODEL_QUESTION.c
        sums = (func.count(), func.sum(q.tokens), func.sum(q.cost), func.count(q.cost))
        rows = select(*sums).select_from(MODEL_QUESTION).join(RUN, (RUN.c.id == q.run_id) & VISIBLE)
        with self._database.reading() as connection:
            n, tokens, cost, n_priced = connection.execute(rows.where(q.run_id == run_id)).one()
        return Asked(n, int(tokens or 0), (cost or 0.0) if n_priced == n else None)

    def propose_merges(self, pairs: Sequence[tuple[int, int, str]], model: str) -> int:
        """Store merges (mode, into, reason), each pair once, a rejected one not again. Returns how many are new."""
        with self._database.writing() as connection:
            m, n = PROPOSED_MERGE.c, 0
            for mode_id, into_id, reason in pairs:
                either = [(m.mode_id == a) & (m.into_id == b) for a, b in ((mode_id, into_id), (into_id, mode_id))]
                if connection.execute(select(m.id).where(or_(*either))).first() is None:
                    values = {"mode_id": mode_id, "into_id": into_id, "reason": reason, "model": model}
                    connection.execute(insert(PROPOSED_MERGE).values(values | {"is_rejected": False}))
                    n += 1
            return n

    def proposed_merges(self) -> Sequence[ProposedMerge]:
        """The merges that wait for a person, oldest first: those of two modes in use that nobody rejected."""
        m, others = PROPOSED_MERGE.c, MODE.alias()
        rows = select(m.id, m.mode_id, m.into_id, m.reason, m.model).join(MODE, MODE.c.id == m.mode_id)
        rows = rows.join(others, others.c.id == m.into_id).where(m.is_rejected.is_(False))
        unused = [each.c[name] for each in (MODE, others) for name in ("merged_into", "retired_at")]
        with self._database.reading() as connection:
            found = connection.execute(rows.where(*(column.is_(None) for column in unused)).order_by(m.id))
            return [ProposedMerge(*row) for row in found]

    def reject_merge(self, proposal_id: int, author: str) -> None:
        """Let a proposed merge wait no longer; it is not proposed again. Raises NotFoundError."""
        with self._database.writing() as connection:
            m = PROPOSED_MERGE.c
            row = connection.execute(select(m.is_rejected).where(m.id == proposal_id)).first()
            if row is None or row.is_rejected:
                raise NotFoundError("this proposal is not there any more; load the page again")
            step = self._step(connection, author)
            step.change(PROPOSED_MERGE, {"id": proposal_id}, {"is_rejected": True})
            step.close("rejected", "proposed merge rejected")

    def decide(self, finding_ids: Sequence[int], mode_id: int | None, author: str, new_mode: str = "") -> None:
        """Accept proposals into a mode, or with neither mode nor name reject them.

        A mode named `new_mode` is created where none is. Raises ConflictError for a proposal that was decided already.
        """
        with self._database.writing() as connection:
            step = self._step(connection, author)
            rows = connection.execute(select(FINDING).where(FINDING.c.id.in_(finding_ids))).all()
            if len(rows) < len(set(finding_ids)):
                raise NotFoundError("a proposal is not there any more; load the page again")
            if new_mode:
                mode_id = self._named_mode(connection, step, new_mode, definition=_proposed_definition(rows, new_mode))
            if any(row.status != "proposed" for row in rows):
                raise ConflictError("a proposal was accepted or rejected meanwhile; load the page again")
            values: dict[str, Any] = {"status": "rejected"}
            if mode_id is not None:
                for run_id in {row.run_id for row in rows}:
                    self._check_usable(connection, step, mode_id, run_id)
                values = {"status": "counted", "mode_id": mode_id, "author": author}
            for row in rows:
                step.change(FINDING, {"id": row.id}, values)
                if mode_id is not None:
                    self._mark_read(connection, step, row, author, is_clear=False)
            kind = "accepted" if mode_id is not None else "rejected"
            step.close(kind, f"{len(rows)} proposed findings {kind}")

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
        with self._database.writing() as connection:
            step, n_modes, n_findings, n_named, n_clear, n_elsewhere = self._step(connection, author), 0, 0, 0, 0, 0
            last = connection.scalar(select(func.max(FINDING.c.id))) or 0
            for texts in modes:
                if connection.scalar(select(MODE.c.id).where(*in_use(texts["name"], texts["retired_at"]))) is None:
                    self._create_mode(connection, step, **texts)
                    n_modes += 1
            for bare, reader, name, retired_at in drafts:
                if not has_trial(connection, place_of(bare)):
                    n_elsewhere += 1
                    continue
                if not bare.note and not name:
                    read = at(READING, place_of(bare) | {"reader": reader})
                    if connection.execute(select(READING.c.reader).where(*read)).first() is None:
                        self._mark_read(connection, step, bare, reader, is_clear=True)
                        n_clear += 1
                    continue
                mode_id = self._named_mode(connection, step, name, retired_at=retired_at) if name else None
                draft = replace(bare, mode_id=mode_id)
                values = place_of(draft) | asdict(draft.anchor)
                values |= {"note": draft.note, "mode_id": mode_id, "author": reader}
                if connection.execute(select(FINDING.c.id).where(*at(FINDING, values))).first():
                    continue
                unnamed = at(FINDING, values | {"mode_id": None, "status": "counted"})
                note = connection.scalar(select(FINDING.c.id).where(*unnamed, FINDING.c.id <= last))
                if mode_id is not None:
                    step.use(mode_id)
                    self._reopen(connection, step, mode_id, draft.run_id)
                if note is not None:
                    step.change(FINDING, {"id": note}, {"mode_id": mode_id})
                    n_named += 1
                    continue
                self._insert(connection, step, draft, reader, "person", "counted")
                self._mark_read(connection, step, draft, reader, is_clear=False)
                n_findings += 1
            step.close("imported", f"{n_modes} kinds of failure and {n_findings + n_named} findings imported")
            return n_modes, n_findings, n_named, n_clear, n_elsewhere

    def clear(self, run_id: int, key: TrialKey, author: str) -> None:
        """Say that nothing is wrong in a trial. Raises ConflictError where the reader has a finding on it."""
        place = FindingDraft(run_id, *key)
        with self._database.writing() as connection:
            _check_trial(connection, place)
            mine = at(FINDING, place_of(place) | {"author": author, "status": "counted"})
            if connection.execute(select(FINDING.c.id).where(*mine)).first():
                raise ConflictError("you have a finding on this trial; undo or remove it first")
            step = self._step(connection, author)
            self._mark_read(connection, step, place, author, is_clear=True)
            step.close("cleared", f"nothing wrong in trial {key[1] + 1}")

    def name(self, finding_ids: Sequence[int], mode: str, author: str) -> None:
        """Give findings without a mode the one of this name, a new one where none is.

        Raises NotFoundError, and ConflictError where one of them has a mode by now.
        """
        with self._database.writing() as connection:
            named = select(FINDING.c.id).where(FINDING.c.id.in_(finding_ids), FINDING.c.mode_id.is_not(None))
            if connection.execute(named).first():
                raise ConflictError("somebody named one of these notes meanwhile; load the page again")
            step = self._step(connection, author)
            self._assign(connection, step, finding_ids, self._named_mode(connection, step, mode))
            step.close("named", f"{len(set(finding_ids))} notes named “{mode}”")

    def remove(self, finding_id: int, author: str) -> None:
        """Take a finding away; without another of its author the trial is unread. Raises NotFoundError."""
        with self._database.writing() as connection:
            row = connection.execute(select(FINDING).where(FINDING.c.id == finding_id)).first()
            if row is None:
                raise NotFoundError("this finding is not there any more")
            step = self._step(connection, author)
            step.remove(FINDING, {"id": finding_id})
            read = place_of(row) | {"reader": row.author}
            others = [*at(FINDING, place_of(row)), FINDING.c.author == row.author, FINDING.c.status == "counted"]
            is_read = connection.execute(select(READING.c.reader).where(*at(READING, read))).first()
            if is_read and not connection.execute(select(FINDING.c.id).where(*others)).first():
                step.remove(READING, read)
            step.close("removed", "finding removed")

    def create_mode(self, author: str, **texts: str) -> int:
        """Create a mode. Raises UsageError when its name is in use."""
        with self._database.writing() as connection:
            step = self._step(connection, author)
            mode_id = self._create_mode(connection, step, **texts)
            step.close("created", f"“{texts['name']}” created")
            return mode_id

    def edit_mode(self, mode_id: int, author: str, *, seen: str = "", **texts: str) -> None:
        """Rename a mode, or rewrite its definition.

        `seen` is the `texts_version` that the person changed, and ConflictError is raised where the mode has another by
        now. Raises UsageError when the name is in use, NotFoundError.
        """
        with self._database.writing() as connection:
            row = mode_row(connection, mode_id)
            if seen and _mode(row).texts_version != seen and any(row._mapping[name] != texts[name] for name in texts):
                raise ConflictError(f"“{row.name}” was edited meanwhile; look at it, then make your change again")
            if "name" in texts:
                check_name(connection, texts["name"], mode_id)
                texts["folded"] = folded_name(texts["name"])
            step = self._step(connection, author)
            step.change(MODE, {"id": mode_id}, texts)
            step.close("edited", f"“{row.name}” edited")

    def merge(self, mode_id: int, into_id: int, author: str) -> None:
        """Let all findings of a mode belong to another; the mode stays as a pointer to it.

        Raises NotFoundError, ConflictError when one of the two was merged or retired meanwhile.
        """
        if mode_id == into_id:
            raise UsageError("A kind of failure cannot be merged into itself.", field="into")
        with self._database.writing() as connection:
            name, into = (_active_mode(connection, each).name for each in (mode_id, into_id))
            step = self._step(connection, author)
            ids = connection.scalars(select(FINDING.c.id).where(FINDING.c.mode_id == mode_id)).all()
            for finding_id in ids:
                step.change(FINDING, {"id": finding_id}, {"mode_id": into_id})
            step.change(MODE, {"id": mode_id}, {"merged_into": into_id})
            runs = connection.scalars(
                select(FINDING.c.run_id).where(FINDING.c.mode_id == into_id, FINDING.c.status == "counted").distinct()
            )
            for run_id in sorted(runs):
                self._reopen(connection, step, into_id, run_id)
            step.close("merged", f"“{name}” merged into “{into}”")

    def split(self, mode_id: int, finding_ids: Sequence[int], author: str, **texts: str) -> int:
        """Make a new mode of some findings of another. Raises UsageError, NotFoundError and ConflictError."""
        with self._database.writing() as connection:
            row = _active_mode(connection, mode_id)
            found = set(connection.scalars(select(FINDING.c.id).where(FINDING.c.mode_id == mode_id)))
            if not finding_ids or not set(finding_ids) <= found:
                raise UsageError(f"Choose findings of “{row.name}” for the new kind of failure.", field="finding")
            step = self._step(connection, author)
            new_id = self._create_mode(connection, step, **texts)
            self._assign(connection, step, finding_ids, new_id)
            step.close("split", f"“{texts['name']}” split from “{row.name}”")
            return new_id

    def retire(self, mode_id: int, author: str) -> None:
        """Take a mode out of use; its findings keep it. Raises NotFoundError, ConflictError."""
        with self._database.writing() as connection:
            row = _active_mode(connection, mode_id)
            step = self._step(connection, author)
            step.change(MODE, {"id": mode_id}, {"retired_at": self._clock()})
            step.close("retired", f"“{row.name}” retired")

    def mark_fixed(self, mode_id: int, run_id: int, author: str) -> None:
        """Say that a mode is fixed in a run. Raises UsageError when that run or a later one shows it."""
        with self._database.writing() as connection:
            row = _active_mode(connection, mode_id)
            if connection.execute(select(RUN.c.id).where(RUN.c.id == run_id, VISIBLE)).first() is None:
                raise NotFoundError(f"there is no run {run_id}")
            seen = connection.scalar(
                select(func.max(FINDING.c.run_id)).where(FINDING.c.mode_id == mode_id, FINDING.c.status == "counted")
            )
            if seen is not None and seen >= run_id:
                raise UsageError(f"“{row.name}” was found in run {seen}; name a later run.", field="run")
            step = self._step(connection, author)
            step.change(MODE, {"id": mode_id}, {"fixed_in": run_id, "reopened_in": None})
            step.close("fixed", f"“{row.name}” fixed in run {run_id}")

    def undo(self, author: str, step_id: int | None = None) -> UndoneStep:
        """Take back the last step of a person, up to 30 days old, or the one that is named.

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
        """How many counted findings have the mode, in one run or in all."""
        rows = select(func.count()).select_from(FINDING).join(RUN, _OF_RUN)
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
        """How many trials of each run have the mode."""
        f = FINDING.c
        rows = select(f.run_id, func.count(_number(f).distinct())).join(RUN, _OF_RUN).where(*_of_mode(mode_id, None))
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(rows.group_by(f.run_id).order_by(f.run_id))}

    def last_author(self) -> str:
        """Who took the last step; empty before the first."""
        newest = select(CODEBOOK_STEP.c.author).order_by(CODEBOOK_STEP.c.id.desc()).limit(1)
        with self._database.reading() as connection:
            return connection.scalar(newest) or ""

    def read_runs(self) -> Sequence[int]:
        """The runs of which trials were read, newest first."""
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
        found: dict[tuple[int, int, str], Any] = {}
        modes: defaultdict[tuple[int, int, str], dict[int, int | None]] = defaultdict(dict)
        with self._database.reading() as connection:
            for row in connection.execute(rows):
                key = (row.case_index, row.trial_index, row.reader)
                found[key] = row
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
            for key, row in found.items()
        ]

    def read_trials(self, run_id: int) -> ReadTrials:
        """The trials of a run that people read; a finding counts where its author read the trial."""
        sets: dict[bool, dict[str, frozenset[int]]] = {True: {}, False: {}}
        modes: defaultdict[str, dict[int | None, frozenset[int]]] = defaultdict(dict)
        trials = ReadTrials(sets[True], sets[False], modes)
        with self._database.reading() as connection:
            for reader, is_clear, numbers in connection.execute(_READ, {"run": run_id}):
                sets[bool(is_clear)][reader] = frozenset(listed(numbers))
            of_readers = {reader: trials.of_reader(reader) for reader in (*sets[True], *sets[False])}
            for author, mode_id, numbers in connection.execute(_FOUND, {"run": run_id}):
                modes[author][mode_id] = of_readers.get(author, frozenset()).intersection(listed(numbers))
        return trials

    def spent(self, run_id: int) -> Mapping[int, tuple[float | None, float]]:
        """Dollars, None where they are not known, and milliseconds of the trials of a run that people read."""
        t, r = TRIAL.c, READING.c
        is_read = exists().where(r.run_id == t.run_id, r.case_index == t.case_index, r.trial_index == t.trial_index)
        rows = select(_number(t), t.cost, t.duration_ms).join(RUN, (RUN.c.id == t.run_id) & VISIBLE)
        with self._database.reading() as connection:
            found = connection.execute(rows.where(t.run_id == run_id, is_read))
            return {number: (cost, duration_ms) for number, cost, duration_ms in found}

    def judged(self, run_id: int, metric: str) -> Mapping[bool, frozenset[int]]:
        """The trials of a run that a judge of a mode called without it, and with it, as their numbers."""
        s = SCORE.c
        of_run = (s.run_id == run_id, s.metric == metric, s.value.is_not(None))
        rows = select(s.value, trial_numbers(s)).join(RUN, (RUN.c.id == s.run_id) & VISIBLE).where(*of_run)
        found: dict[bool, frozenset[int]] = {True: frozenset(), False: frozenset()}
        with self._database.reading() as connection:
            for value, numbers in connection.execute(rows.group_by(s.value)):
                found[value >= 1] |= frozenset(listed(numbers))
        return found

    def proposed(self, run_id: int) -> Sequence[ProposedGroup]:
        """The proposals for a run that wait for a person, those that are alike together."""
        f = FINDING.c
        pairs = func.aggregate_strings(cast(f.id, String) + "," + cast(_number(f), String), ",")
        facts = (f.signature, f.note, f.mode_id, f.source)
        rows = select(*facts, pairs).join(RUN, _OF_RUN)
        rows = rows.where(f.run_id == run_id, f.status == "proposed").group_by(*facts)
        with self._database.reading() as connection:
            return [
                ProposedGroup(signature, note, mode_id, sorted(zip(found[::2], found[1::2], strict=True)), source)
                for signature, note, mode_id, source, text in connection.execute(rows)
                for found in [listed(text)]
            ]

    def quotes(self, finding_ids: Sequence[int]) -> Mapping[int, str]:
        """The marked texts of some findings."""
        rows = select(FINDING.c.id, FINDING.c.quote).join(RUN, _OF_RUN).where(FINDING.c.id.in_(finding_ids))
        with self._database.reading() as connection:
            return {row.id: row.quote for row in connection.execute(rows)}

    def asked_of_model(self, run_id: int) -> frozenset[int]:
        """The trials of a run, as their numbers, of which a model proposed something, whatever became of it."""
        f = FINDING.c
        rows = select(_number(f)).join(RUN, _OF_RUN).where(f.run_id == run_id, f.source == "model").distinct()
        with self._database.reading() as connection:
            return frozenset(connection.scalars(rows))

    def _findings(
        self, conditions: Sequence[Any], limit: int | None = None, *, newest_first: bool = True
    ) -> Sequence[Finding]:
        order = FINDING.c.id.desc() if newest_first else FINDING.c.id
        rows = select(FINDING).join(RUN, _OF_RUN).where(*conditions).order_by(order).limit(limit)
        with self._database.reading() as connection:
            return [_finding(row) for row in connection.execute(rows)]

    def _step(self, connection: Connection, author: str) -> Step:
        return Step(connection, author, self._clock())

    def _insert(
        self,
        connection: Connection,
        step: Step | None,
        draft: FindingDraft,
        author: str,
        source: FindingSource,
        status: FindingStatus,
    ) -> int:
        _check_trial(connection, draft)
        values = asdict(draft) | asdict(draft.anchor) | {"author": author, "source": source, "status": status}
        values["created_at"] = draft.created_at or self._clock()
        del values["anchor"]
        finding_id: int = connection.execute(insert(FINDING).values(values).returning(FINDING.c.id)).scalar_one()
        if step:
            step.made(FINDING, {"id": finding_id})
        return finding_id

    def _mark_read(self, connection: Connection, step: Step, place: Any, author: str, *, is_clear: bool) -> None:
        key = place_of(place) | {"reader": author}
        row = connection.execute(select(READING).where(*at(READING, key))).first()
        if row is None:
            connection.execute(insert(READING).values(key | {"is_clear": is_clear, "read_at": self._clock()}))
            step.made(READING, key)
        elif row.is_clear != is_clear:
            step.change(READING, key, {"is_clear": is_clear})

    def _create_mode(self, connection: Connection, step: Step, **texts: Any) -> int:
        if texts.get("retired_at") is None:
            check_name(connection, texts["name"])
        values = {"definition": "", "example_yes": "", "example_no": ""} | texts
        values["folded"] = folded_name(texts["name"])
        statement = insert(MODE).values(values | {"created_at": self._clock()}).returning(MODE.c.id)
        mode_id: int = connection.execute(statement).scalar_one()
        step.made(MODE, {"id": mode_id})
        return mode_id

    def _named_mode(self, connection: Connection, step: Step, name: str, **others: Any) -> int:
        named: int | None = connection.scalar(select(MODE.c.id).where(*in_use(name, others.get("retired_at"))))
        return named or self._create_mode(connection, step, name=name, **others)

    def _assign(self, connection: Connection, step: Step, finding_ids: Sequence[int], mode_id: int | None) -> None:
        rows = connection.execute(select(FINDING).where(FINDING.c.id.in_(finding_ids))).all()
        if len(rows) < len(set(finding_ids)):
            raise NotFoundError("a finding is not there any more; load the page again")
        if mode_id is not None:
            for run_id in sorted({row.run_id for row in rows}):
                self._check_usable(connection, step, mode_id, run_id)
        for row in rows:
            step.change(FINDING, {"id": row.id}, {"mode_id": mode_id})

    def _check_usable(self, connection: Connection, step: Step, mode_id: int, run_id: int) -> None:
        """Raise when the mode is out of use; a fixed one is reopened by a later run."""
        _active_mode(connection, mode_id)
        step.use(mode_id)
        self._reopen(connection, step, mode_id, run_id)

    def _reopen(self, connection: Connection, step: Step, mode_id: int, run_id: int) -> None:
        row = mode_row(connection, mode_id)
        if row.fixed_in is not None and row.reopened_in is None and run_id >= row.fixed_in:
            step.change(MODE, {"id": mode_id}, {"reopened_in": run_id})


def _of_mode(mode_id: int | None, run_id: int | None) -> list[Any]:
    of_run = [] if run_id is None else [FINDING.c.run_id == run_id]
    return [FINDING.c.mode_id == mode_id, FINDING.c.status == "counted", *of_run]


def _proposed_definition(rows: Sequence[Any], name: str) -> str:
    """The definition that a model proposed with this name; empty for another name, and where no model proposed."""
    for row in rows:
        proposed, _, definition = row.note.partition(": ")
        if row.source == "model" and folded_name(proposed) == folded_name(name):
            return str(definition)
    return ""


def _number(columns: Any) -> ColumnElement[int]:
    number: ColumnElement[int] = cast(columns.case_index, BigInteger) * TRIALS + columns.trial_index
    return number


def trial_numbers(columns: Any) -> ColumnElement[str]:
    """The trials of a group as one text: a row for each would cost more than all that is counted of them."""
    return func.aggregate_strings(cast(_number(columns), String), ",")


def listed(text: str) -> list[int]:
    """What such a text lists."""
    numbers: list[int] = json.loads(f"[{text}]")
    return numbers


def _check_trial(connection: Connection, place: FindingDraft) -> None:
    if not has_trial(connection, place_of(place)):
        raise NotFoundError(f"run {place.run_id} has no trial {place.trial_index} of case {place.case_index}")


def _active_mode(connection: Connection, mode_id: int) -> Any:
    row = mode_row(connection, mode_id)
    if row.merged_into is not None:
        into = mode_row(connection, row.merged_into).name
        raise ConflictError(f"“{row.name}” was merged into “{into}” meanwhile; use “{into}”, or undo the merge")
    if row.retired_at is not None:
        raise ConflictError(f"“{row.name}” was retired meanwhile; choose another kind of failure, or undo that")
    return row


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

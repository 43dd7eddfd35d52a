"""Proposals of signatures and models: findings that wait for a person, and the cost of questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import String, cast, func, insert, select

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model.failures import Asked, FindingDraft, FindingSource, ProposedGroup
from evaldesk.store.database import StorePart
from evaldesk.store.failure_steps import begun_step, folded_name, insert_finding, place_of
from evaldesk.store.failures import OF_RUN, list_values, number_of
from evaldesk.store.runs.run_queries import run_row
from evaldesk.store.tables.columns import at
from evaldesk.store.tables.failures import FINDING, MODEL_QUESTION
from evaldesk.store.tables.runs import RUN, VISIBLE


class ProposalStore(StorePart):
    """Proposed findings and merges. None counts before a person decides."""

    def propose(self, drafts: Sequence[FindingDraft], source: FindingSource) -> int:
        """Store proposals, which count nowhere; a trial that has the same one already, also rejected, gets no other."""
        with self._database.writing() as connection:
            n = 0
            for draft in drafts:
                same = at(FINDING, place_of(draft) | {"signature": draft.signature})
                if connection.execute(select(FINDING.c.id).where(*same)).first() is None:
                    insert_finding(connection, draft, source, source, "proposed", self._clock())
                    n += 1
            return n

    def keep_question(self, run_id: int, model: str, n_trials: int, tokens: int, cost: float | None) -> None:
        """Store the cost of a question about a run. Raises NotFoundError."""
        values = {"run_id": run_id, "model": model, "n_trials": n_trials, "tokens": tokens, "cost": cost}
        with self._database.writing() as connection:
            run_row(connection, run_id)
            connection.execute(insert(MODEL_QUESTION).values(values | {"asked_at": self._clock()}))

    def model_use(self, run_id: int) -> Asked:
        """The questions about the failures of a run."""
        q = MODEL_QUESTION.c
        sums = (func.count(), func.sum(q.tokens), func.sum(q.cost), func.count(q.cost))
        rows = select(*sums).select_from(MODEL_QUESTION).join(RUN, (RUN.c.id == q.run_id) & VISIBLE)
        with self._database.reading() as connection:
            n, tokens, cost, n_priced = connection.execute(rows.where(q.run_id == run_id)).one()
        return Asked(n, int(tokens or 0), (cost or 0.0) if n_priced == n else None)

    def decide(self, finding_ids: Sequence[int], author: str, mode: str = "") -> None:
        """Accept proposals into the mode of this name, a new one where none is, or without a name reject them.

        Raises NotFoundError, and ConflictError for a proposal that was decided already.
        """
        with begun_step(self, author) as step:
            rows = step.connection.execute(select(FINDING).where(FINDING.c.id.in_(finding_ids))).all()
            if len(rows) < len(set(finding_ids)):
                raise NotFoundError("a proposal is not there any more; load the page again")
            if any(row.status != "proposed" for row in rows):
                raise ConflictError("a proposal was accepted or rejected meanwhile; load the page again")
            kind, values = "rejected", dict[str, Any](status="rejected")
            if mode:
                mode_id = step.named_mode(mode, definition=_proposed_definition(rows, mode))
                for run_id in sorted({row.run_id for row in rows}):
                    step.check_usable(mode_id, run_id)
                kind, values = "accepted", {"status": "counted", "mode_id": mode_id, "author": author}
            for row in rows:
                step.change(FINDING, {"id": row.id}, values)
                if mode:
                    step.mark_read(row, author, is_clear=False)
            step.close(kind, f"{len(rows)} proposed findings {kind}")

    def proposed(self, run_id: int) -> Sequence[ProposedGroup]:
        """The proposals for a run that wait for a person, equal ones together."""
        f = FINDING.c
        pairs = func.aggregate_strings(cast(f.id, String) + "," + cast(number_of(f), String), ",")
        facts = (f.signature, f.note, f.mode_id, f.source)
        rows = select(*facts, pairs).join(RUN, OF_RUN)
        rows = rows.where(f.run_id == run_id, f.status == "proposed").group_by(*facts)
        with self._database.reading() as connection:
            return [
                ProposedGroup(signature, note, mode_id, sorted(zip(numbers[::2], numbers[1::2], strict=True)), source)
                for signature, note, mode_id, source, text in connection.execute(rows)
                for numbers in [list_values(text)]
            ]

    def quotes(self, finding_ids: Sequence[int]) -> Mapping[int, str]:
        """The marked texts of some findings."""
        rows = select(FINDING.c.id, FINDING.c.quote).join(RUN, OF_RUN).where(FINDING.c.id.in_(finding_ids))
        with self._database.reading() as connection:
            return {row.id: row.quote for row in connection.execute(rows)}

    def asked_of_model(self, run_id: int) -> frozenset[int]:
        """The trials of a run with a model's proposal, decided ones included, as their numbers."""
        f = FINDING.c
        rows = select(number_of(f)).join(RUN, OF_RUN).where(f.run_id == run_id, f.source == "model").distinct()
        with self._database.reading() as connection:
            return frozenset(connection.scalars(rows))


def _proposed_definition(rows: Sequence[Any], name: str) -> str:
    """The definition that a model proposed with this name; empty for another name, and where no model proposed."""
    for row in rows:
        proposed, _, definition = row.note.partition(": ")
        if row.source == "model" and folded_name(proposed) == folded_name(name):
            return str(definition)
    return ""

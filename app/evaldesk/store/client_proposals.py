"""Proposals of coding agents, stored beside everything they would change, and the edits of cases."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import func, insert, select, update

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model.proposals import REVIEWER_MARK, CaseEdit, Proposal, ProposalDraft, ProposalStatus, marked_client
from evaldesk.store.database import StorePart
from evaldesk.store.tables.proposals import CASE_EDIT, PROPOSAL
from evaldesk.wire import to_json

MAX_OPEN = 200
"""Open proposals of one eval set; a person reads every one."""
MAX_LISTED = 5_000
"""Proposals of all eval sets that one list reads."""
MAX_CHARACTERS = 20_000_000
"""Characters of the content of all open proposals of one eval set, which a list of them reads."""


MAX_CLIENTS = 10
"""Names of clients that proposed the same."""
SEPARATOR = "\n"
"""Between the names of clients, which have one line each."""


class ClientProposalStore(StorePart):
    """The proposals of a workspace; a proposal changes nothing until a person accepts it."""

    def propose(self, draft: ProposalDraft, client: str) -> tuple[int, bool]:
        """Store a proposal; an open one of the same change is joined, whatever its reason.

        Gives its number, and whether it was joined.

        Raises ConflictError where its eval set has MAX_OPEN open ones, or would have more than MAX_CHARACTERS.
        """
        columns, digest = PROPOSAL.c, _digest(replace(draft, why=""))
        is_open = columns.status == "open"
        with self._database.writing() as connection:
            is_same = columns.digest.in_((digest, _digest(draft)))  # older ones have the digest of the reason too
            same = connection.execute(select(columns.id, columns.client).where(is_open, is_same)).first()
            if same is not None:
                names = dict.fromkeys((*same.client.split(SEPARATOR), client))
                more = {"n_times": columns.n_times + 1, "client": SEPARATOR.join([*names][:MAX_CLIENTS])}
                connection.execute(update(PROPOSAL).where(columns.id == same.id).values(more))
                return int(same.id), True
            sums = select(func.count(), func.coalesce(func.sum(func.length(columns.after)), 0)).select_from(PROPOSAL)
            n_open, n_characters = connection.execute(sums.where(is_open, columns.evalset_id == draft.evalset_id)).one()
            if n_open >= MAX_OPEN:
                raise ConflictError(
                    f"{MAX_OPEN} proposals wait for a person here; more are stored once some are accepted or refused"
                )
            if n_characters + len(draft.after) > MAX_CHARACTERS:
                raise ConflictError(
                    f"this proposal has {len(draft.after):,} characters, and those that wait here {n_characters:,}; at "
                    f"most {MAX_CHARACTERS:,} wait together: propose less, or let a person decide first"
                )
            row = _row(draft) | {"client": client, "digest": digest, "made_at": self._clock()}
            new_id: int = connection.execute(insert(PROPOSAL).values(row).returning(columns.id)).scalar_one()
            return new_id, False

    def get(self, proposal_id: int) -> Proposal:
        """A proposal. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(select(PROPOSAL).where(PROPOSAL.c.id == proposal_id)).first()
        if row is None:
            raise NotFoundError(f"there is no proposal {proposal_id}; `evaldesk proposals list` shows them")
        return _proposal(row)

    def list(
        self,
        status: ProposalStatus | None = "open",
        *,
        evalset_id: str | None = None,
        case_id: str | None = None,
        run: int | None = None,
        limit: int = MAX_LISTED,
    ) -> Sequence[Proposal]:
        """Proposals, the newest first, at most MAX_LISTED of all eval sets."""
        columns = PROPOSAL.c
        column_values = ((columns.status, status), (columns.evalset_id, evalset_id), (columns.case_id, case_id))
        conditions = [
            column == value for column, value in (*column_values, (columns.played_in, run)) if value is not None
        ]
        rows = select(PROPOSAL).where(*conditions).order_by(columns.id.desc()).limit(limit)
        with self._database.reading() as connection:
            return [_proposal(row) for row in connection.execute(rows)]

    def n_open(self) -> int:
        """The number of open proposals."""
        rows = select(func.count()).select_from(PROPOSAL).where(PROPOSAL.c.status == "open")
        with self._database.reading() as connection:
            return connection.scalar(rows) or 0

    def decide(self, proposal_id: int, status: ProposalStatus, author: str, undo: str = "", edited: str = "") -> None:
        """Note the answer of a person to an open proposal, and the content where the person edited that first.

        Raises ConflictError where somebody answered meanwhile.
        """
        values = {"status": status, "decided_by": author, "decided_at": self._clock(), "undo": undo, "edited": edited}
        self._change(proposal_id, "open", values)

    def reply(self, proposal_id: int, text: str) -> None:
        """Store the answer in words to a proposal; the last one counts. Raises NotFoundError."""
        with self._database.writing() as connection:
            change = update(PROPOSAL).where(PROPOSAL.c.id == proposal_id).values(reply=text)
            if not connection.execute(change).rowcount:
                raise NotFoundError(f"there is no proposal {proposal_id}; `evaldesk proposals list` shows them")

    def reopen(self, proposal_id: int, status: ProposalStatus) -> None:
        """Take back the answer `status` to a proposal. Raises ConflictError where it has another one by now."""
        self._change(
            proposal_id, status, {"status": "open", "decided_by": "", "decided_at": None, "undo": "", "edited": ""}
        )

    def _change(self, proposal_id: int, status: ProposalStatus, values: dict[str, Any]) -> None:
        columns = PROPOSAL.c
        with self._database.writing() as connection:
            of_proposal = (columns.id == proposal_id, columns.status == status)
            if not connection.execute(update(PROPOSAL).where(*of_proposal).values(values)).rowcount:
                raise ConflictError(f"proposal {proposal_id} was decided meanwhile; load the page again")

    def note_edits(self, evalset_id: str, versions: Sequence[tuple[str, str]], author: str) -> None:
        """Note the author of an edit of some cases: the id of each, and its version from now on, empty once deleted."""
        now = self._clock()
        rows = [
            {"evalset_id": evalset_id, "case_id": case_id, "version": version, "author": author, "edited_at": now}
            for case_id, version in versions
        ]
        if rows:
            with self._database.writing() as connection:
                connection.execute(insert(CASE_EDIT), rows)

    def edits(self, evalset_id: str, case_ids: Sequence[str]) -> Sequence[CaseEdit]:
        """The edits of some cases, the newest first."""
        columns = CASE_EDIT.c
        rows = select(columns.case_id, columns.version, columns.author, columns.edited_at)
        rows = rows.where(columns.evalset_id == evalset_id, columns.case_id.in_(case_ids)).order_by(columns.id.desc())
        with self._database.reading() as connection:
            return [CaseEdit(*row) for row in connection.execute(rows)]


def _digest(draft: ProposalDraft) -> str:
    return hashlib.sha256(to_json(draft)).hexdigest()


def _clients(names: str) -> tuple[str, ...]:
    """The names of the people and coding agents behind a proposal; older names of coding agents have no mark."""
    return tuple(
        dict.fromkeys(
            name.removeprefix(REVIEWER_MARK) if name.startswith(REVIEWER_MARK) else marked_client(name)
            for name in names.split(SEPARATOR)
        )
    )


def _row(draft: ProposalDraft) -> dict[str, Any]:
    case_index, trial_index = draft.trial or (None, None)
    return {
        "kind": draft.kind,
        "status": "open",
        "evalset_id": draft.evalset_id,
        "case_id": draft.case_id,
        "played_in": draft.run,
        "case_index": case_index,
        "trial_index": trial_index,
        "before": draft.before,
        "after": draft.after,
        "why": draft.why,
        "n_times": 1,
        "decided_by": "",
        "undo": "",
        "reply": "",
        "edited": "",
    }


def _proposal(row: Any) -> Proposal:
    trial = None if row.case_index is None else (row.case_index, row.trial_index)
    draft = ProposalDraft(row.kind, row.after, row.before, row.why, row.evalset_id, row.case_id, row.played_in, trial)
    facts = (
        _clients(row.client),
        row.status,
        row.n_times,
        row.made_at,
        row.decided_at,
        row.decided_by,
        row.undo,
        row.reply,
        row.edited,
    )
    return Proposal(row.id, draft, *facts)

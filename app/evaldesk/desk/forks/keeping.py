"""Forks kept as cases of an eval set: the turns before the point are pinned, the later ones judged. (decision 517)"""

from __future__ import annotations

import asyncio
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evaldesk.desk.evalsets.cases import CaseIds
from evaldesk.desk.evalsets.masking import masked_words, without_secrets
from evaldesk.desk.evalsets.names import check_case_id, free_name
from evaldesk.errors import UsageError
from evaldesk.matching import renumber_allowances
from evaldesk.model import Case, Expected, JsonValue, Turn, TurnRecord
from evaldesk.model.conclusion import counted
from evaldesk.model.decisions import scripted_decisions, with_decisions
from evaldesk.model.evalset import PROVENANCE
from evaldesk.model.fork import Fork, ForkPart, edit_words
from evaldesk.reading.pinned_turns import pinned_turns, with_pinned_turns
from evaldesk.transcripts.conversation_case import turn_expecting

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk

_OF_AGENT = frozenset({"instruction", "model", "agent"})
"""Edits of the agent and not of the conversation: a case names no agent."""


@dataclass(frozen=True, slots=True)
class CaseOfFork:
    """A fork as a case: the case, its pinned turns, and sentences on its expectations and on edits that it leaves out.

    `fork_id` is the run of the fork, None for a point that was not played.
    """

    case: Case
    n_pinned: int
    notes: tuple[str, ...] = ()
    fork_id: int | None = None

    @property
    def words(self) -> str:
        """`Turns 1 and 2 are pinned: from the record, never judged; turn 3 and later ones are judged.`"""
        n = self.n_pinned
        if not n:
            return "No turn is pinned: the fork began before turn 1."
        turns = "Turn 1 is" if n == 1 else "Turns 1 and 2 are" if n == 2 else f"Turns 1 to {n:,} are"
        return f"{turns} pinned: taken from the record, never played and never judged."


@dataclass(frozen=True, slots=True)
class KeptCase:
    """A case of a fork that was added to a set; `token` takes the step back, `version_before` is that of the set."""

    evalset_id: str
    set_name: str
    case_id: str
    token: str
    source: CaseOfFork
    masking_note: str = ""
    version_before: str = ""


async def case_of_run(desk: Desk, run_id: int) -> CaseOfFork:
    """The fork that is stored as this run, as a case. Raises UsageError for a run that is no fork, NotFoundError."""
    run = await desk.runs.summary(run_id)
    part = run.config.fork
    if part is None:
        raise UsageError(f"run {run_id} is not a fork; name a point of it, such as {run_id}:CASE:TRIAL@3", field="fork")
    return await asyncio.to_thread(_of_stored, desk, run_id, part)


async def case_of_fork(desk: Desk, fork: Fork) -> CaseOfFork:
    """A fork that was not played, as a case. Raises as `ForkDesk.plan`."""
    plan = await desk.forks.plan(fork)
    return await asyncio.to_thread(_case_of, plan.run.cases[0], plan.run.prefix, plan.part, ())


def add_case(
    desk: Desk, source: CaseOfFork, evalset_id: str = "", new_set: str = "", case_id: str | None = None
) -> KeptCase:
    """Add the case of a fork to a set, or to a new one; under `case_id`, by default a free name.

    Raises UsageError for a name that cannot be or that another case has, ConflictError, LossError for a file whose
    form cannot hold pinned turns.
    """
    case, n_masked = source.case, Counter[str]()
    own_id = unicodedata.normalize("NFC", (case_id or "").strip())
    if own_id:
        check_case_id(own_id)
        case = replace(case, id=own_id)
    evalset_id = evalset_id or desk.evalsets.create(new_set)
    evalset, _, _ = desk.evalsets.read(evalset_id)
    versions = desk.evalsets.versions.list(evalset_id)
    used_ids = CaseIds(evalset.cases)
    if case.id in used_ids:
        if own_id:
            raise UsageError(f"the set has a case {case.id!r} already; give it another name", field="case_id")
        case = replace(case, id=free_name(case.id, used_ids))
    case = desk.sessions.whole_case(case)
    (case,) = without_secrets([case], desk.settings.environment, n_masked)
    place = f"run {source.fork_id}" if source.fork_id else "a trial"
    token = desk.evalsets.steps.add(evalset_id, case, f"kept from {place}")
    file = desk.evalsets.file(evalset_id)
    masking_note = masked_words(n_masked, {}) if n_masked else ""
    version_before = versions[0].short_name if versions else ""
    return KeptCase(evalset_id, file.name, case.id, token, source, masking_note, version_before)


def _of_stored(desk: Desk, run_id: int, part: ForkPart) -> CaseOfFork:
    case = desk.store.runs.case(run_id, 0)
    (strip,) = desk.store.runs.strips(run_id, [0])
    passed_at = strip.find("p")
    answers = (
        desk.store.runs.trial(run_id, 0, passed_at).transcript.turns[part.n_prefix_turns :] if passed_at >= 0 else ()
    )
    return _case_of(case, desk.store.forks.pinned(run_id), part, answers, run_id)


def _case_of(
    case: Case,
    prefix: Sequence[TurnRecord],
    part: ForkPart,
    answers: Sequence[TurnRecord],
    fork_id: int | None = None,
) -> CaseOfFork:
    """The case of a fork; `answers` are the later turns of a continuation that passed."""
    if part.n_prefix_calls:
        raise UsageError(
            f"a case begins before a turn and not inside it; the nearest point that can be kept is before turn "
            f"{part.point.turn}",
            field="fork",
        )
    notes, n = list[str](), len(prefix)
    if case.scenario is None and not _expects(case, n) and len(answers) == len(case.turns) - n:
        later_turns = tuple(turn_expecting(record, keeps_ids=False) for record in answers)
        case = replace(case, turns=(*case.turns[:n], *later_turns))
        notes.append("Nothing was expected of the later turns: they expect the calls and answers of a passed trial.")
    elif case.scenario is None and not _expects(case, n):
        notes.append("Nothing is expected of the later turns yet: add it in the editor.")
    new_case = with_pinned_turns(_without_expectations(case, n), prefix)
    other_edits = [edit_words(edit) for edit in part.edits if edit.kind in _OF_AGENT]
    if other_edits:
        notes.append(f"Not in the case, since it is of the agent: {'; '.join(other_edits)}.")
    pinned_turns(new_case)  # what is written can be read
    new_case = replace(
        new_case,
        id=f"{case.id}_from_turn_{part.point.turn}",
        extra={**new_case.extra, PROVENANCE: _provenance(case, part, fork_id)},
    )
    return CaseOfFork(new_case, n, tuple(notes), fork_id)


def _expects(case: Case, n: int) -> bool:
    """Whether the case expects something that its pinned turns are no part of."""
    is_asserted = any(turn.expected != Expected() or turn.rubrics for turn in case.turns[n:])
    return bool(is_asserted or case.rubrics or case.final_state is not None or case.scenario is not None)


def _without_expectations(case: Case, n: int) -> Case:
    """The case that expects nothing of its first turns: no call, no other accepted value and no decision."""
    if case.scenario is not None or not n:
        return case
    freed = replace(case, turns=(*(Turn(turn.query, media=turn.media) for turn in case.turns[:n]), *case.turns[n:]))
    origins = [
        (at, [*range(len(turn.expected.tool_calls or ()))] if at >= n else []) for at, turn in enumerate(freed.turns)
    ]
    freed = renumber_allowances(case, freed, origins)
    with suppress(UsageError):  # decisions that cannot be read end its trials, as those of the case did
        later_decisions = [each for each in scripted_decisions(case) if each.turn is None or each.turn >= n]
        freed = with_decisions(freed, later_decisions)
    return freed


def _provenance(case: Case, part: ForkPart, fork_id: int | None) -> dict[str, JsonValue]:
    """The trial that the pinned turns are of, the point, the edits, and the source of the case itself."""
    point = part.point
    earlier = case.extra.get(PROVENANCE)
    return {
        "run": point.run_id,
        "case": case.id,
        "trial": point.trial_index + 1,
        "turn": point.turn,
        **({"fork": fork_id} if fork_id else {}),
        **({"edits": [edit_words(edit) for edit in part.edits]} if part.edits else {}),
        **({"before": earlier} if earlier else {}),
    }


def kept_words(added_case: KeptCase) -> str:
    """`Case refund_from_turn_3 added to trips, with 2 pinned turns.`"""
    n = added_case.source.n_pinned
    turns = f", with {counted(n, 'pinned turn')}" if n else ""
    return f"Case {added_case.case_id} added to {added_case.set_name}{turns}. {added_case.masking_note}".rstrip()

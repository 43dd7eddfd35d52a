"""Forks of a trial for a page and a command: the plan before they are played, and the branches of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaldesk.model.fork import Edit, ForkPart
from evaldesk.model.stored import RunSummary
from evaldesk.wording.forks import (
    changed_sentence,
    cost_sentence,
    earlier_sentence,
    edits_words,
    point_words,
    tools_sentence,
)

if TYPE_CHECKING:
    from evaldesk.desk.forks.plan import ForkPlan


def plan_sentences(plan: ForkPlan) -> Sequence[str]:
    """The facts that a person reads before a fork is played: cost, tools, changes and earlier runs of the same fork."""
    earlier = plan.earlier
    n_passed, n_scored = sum(run.n_passed for run in earlier), sum(run.counts.scored for run in earlier)
    sentences = [
        cost_sentence(plan.fork.n, plan.n_turns_left, plan.cost_each, plan.n_earlier),
        tools_sentence(plan.real_tools, plan.doubled_tools),
        _restored_sentence(plan.part),
        changed_sentence(plan.parent.id) if plan.is_agent_changed else "",
        earlier_sentence([run.id for run in earlier], n_passed, n_scored),
        *plan.notes,
    ]
    return [sentence for sentence in sentences if sentence]


def _restored_sentence(part: ForkPart) -> str:
    n = part.n_prefix_turns
    if not n:
        return "The session begins anew: nothing comes before turn 1."
    turns = "The turn before the point is" if n == 1 else f"The {n:,} turns before the point are"
    return f"{turns} pinned: taken from the record, not played again."


def plan_object(plan: ForkPlan) -> dict[str, Any]:
    """The plan of a fork as JSON."""
    part = plan.part
    return {
        "parent": _point_object(part),
        "edits": [_edit_object(edit) for edit in part.edits],
        "then": part.then,
        "n": plan.fork.n,
        "restored": plan.restored,
        "n_prefix_turns": part.n_prefix_turns,
        "n_turns_left": plan.n_turns_left,
        "cost_each": plan.cost_each,
        "cost": plan.cost,
        "n_earlier_trials": plan.n_earlier,
        "real_tools": list(plan.real_tools),
        "doubled_tools": list(plan.doubled_tools),
        "agent_changed": plan.is_agent_changed,
        "fingerprint": part.fingerprint,
        "earlier_runs": [run.id for run in plan.earlier],
        "notes": list(plan.notes),
    }


def fork_object(run: RunSummary) -> dict[str, Any]:
    """A fork that was played as JSON."""
    counts = run.counts
    return {
        "run": run.id,
        "status": run.status,
        "n": counts.planned,
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "unscored": counts.unscored,
        "cost": run.cost,
        "page": f"/runs/{run.id}",
    }


def _point_object(part: ForkPart) -> Mapping[str, int | None]:
    point = part.point
    return {
        "run": point.run_id,
        "case": point.case_index,
        "trial": point.trial_index + 1,
        "turn": point.turn,
        "call": point.call,
    }


def _edit_object(edit: Edit) -> dict[str, Any]:
    fields = {"text": edit.text, "name": edit.name, "call": edit.call, "value": edit.value, "error": edit.error}
    return {"kind": edit.kind} | {name: value for name, value in fields.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class Branch:
    """A fork of a trial on its page: the run, the point, the edits in words, and a letter for each trial."""

    run: RunSummary
    part: ForkPart
    strip: str

    @property
    def point(self) -> str:
        """`before turn 3`."""
        return point_words(self.part)

    @property
    def edits(self) -> str:
        """The edits in one line."""
        return edits_words(self.part)

"""The cases of two runs, paired by id: what changed, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from evaldesk.desk.run_view import first_problem, scored
from evaldesk.model import RunConfig
from evaldesk.report import benjamini_hochberg, fisher
from evaldesk.store import CaseOutcome, RunSummary

Kind: TypeAlias = Literal["broken", "shakier", "fixed", "steadier", "same", "not scored", "only in A", "only in B"]
CaseTrials: TypeAlias = tuple[int, int, str]
"""Where the trials of a case are: run, case index, and their verdicts as a strip."""
KINDS: tuple[Kind, ...] = get_args(Kind)
CHANGED: tuple[Kind, ...] = ("broken", "shakier", "fixed", "steadier")
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One case in both runs, or in one of them.

    `points` is how much more often it passes, in points of 100. `stands_out` says whether that is more than chance
    among so many cases; `was_edited` whether the case is not the same in both.
    """

    case_id: str
    kind: Kind
    before: str
    after: str
    trials: tuple[CaseTrials | None, CaseTrials | None]
    points: float | None
    p: float | None
    was_edited: bool
    stands_out: bool = False

    @property
    def before_href(self) -> str:
        """The trial of run A that tells most: the first that did not pass; empty where it has none."""
        return _href(self.trials[0])

    @property
    def after_href(self) -> str:
        """The same of run B."""
        return _href(self.trials[1])


def case_changes(
    a: RunSummary, b: RunSummary, before: Mapping[str, CaseOutcome], after: Mapping[str, CaseOutcome]
) -> tuple[CaseChange, ...]:
    """Every case of either run; broken ones first, by how much they lost, then in the order of the runs."""
    changes = [_change(a, b, case_id, before.get(case_id), after.get(case_id)) for case_id in {**before, **after}]
    tested = [change for change in changes if change.p is not None]
    adjusted = benjamini_hochberg([change.p or 0.0 for change in tested])
    outstanding = {change.case_id for change, p in zip(tested, adjusted, strict=True) if p < ALPHA}
    changes = [replace(each, stands_out=True) if each.case_id in outstanding else each for each in changes]
    changes.sort(key=lambda change: (KINDS.index(change.kind), -abs(change.points or 0.0)))
    return tuple(changes)


def by_id(cases: Sequence[CaseOutcome]) -> dict[str, CaseOutcome]:
    """The cases of a run by what they are called."""
    return {case.case_id: case for case in cases}


def rates(cases: Mapping[str, CaseOutcome], config: RunConfig) -> dict[str, float]:
    """The pass rate of each case that has one."""
    return {case_id: case.n_passed / n for case_id, case in cases.items() if (n := scored(case, config))}


def verdicts(cases: Mapping[str, CaseOutcome], config: RunConfig) -> dict[str, bool]:
    """Whether each case that was scored passed, by the share of trials that its run asks for."""
    return {case_id: rate >= config.pass_threshold for case_id, rate in rates(cases, config).items()}


def _change(
    a: RunSummary, b: RunSummary, case_id: str, before: CaseOutcome | None, after: CaseOutcome | None
) -> CaseChange:
    n_before = scored(before, a.config) if before else 0
    n_after = scored(after, b.config) if after else 0
    points = p = None
    if before and after and n_before and n_after:
        points = 100 * (after.n_passed / n_after - before.n_passed / n_before)
        # One trial on either side can never tell.
        p = fisher(before.n_passed, n_before, after.n_passed, n_after) if min(n_before, n_after) > 1 else None
    return CaseChange(
        case_id=case_id,
        kind=_kind(a.config, b.config, before, after),
        before=_passed(before, n_before),
        after=_passed(after, n_after),
        trials=(_trials(a, before), _trials(b, after)),
        points=points,
        p=p,
        was_edited=bool(before and after and before.digest != after.digest),
    )


def _kind(a: RunConfig, b: RunConfig, before: CaseOutcome | None, after: CaseOutcome | None) -> Kind:
    if before is None or after is None:
        return "only in B" if before is None else "only in A"
    n_before, n_after = scored(before, a), scored(after, b)
    if not n_before or not n_after:
        return "not scored"
    was, now = before.n_passed / n_before, after.n_passed / n_after
    if (was >= a.pass_threshold) != (now >= b.pass_threshold):
        return "fixed" if now >= b.pass_threshold else "broken"
    if was == now:
        return "same"
    return "steadier" if now > was else "shakier"


def _passed(case: CaseOutcome | None, n: int) -> str:
    if case is None:
        return "–"
    return f"{case.n_passed} of {n}" if n else f"none of {len(case.strip)} scored"


def _trials(run: RunSummary, case: CaseOutcome | None) -> CaseTrials | None:
    return (run.id, case.case_index, case.strip) if case else None


def _href(trials: CaseTrials | None) -> str:
    return f"/runs/{trials[0]}/cases/{trials[1]}/trials/{first_problem(trials[2])}" if trials else ""

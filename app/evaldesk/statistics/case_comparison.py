"""The cases of two runs, paired by key: the state of each, the verdicts that flipped, and the one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

from evaldesk.model.comparison import (
    KINDS,
    REGRESSED,
    ROUNDING,
    CaseChange,
    CaseState,
    Kind,
    PlayedCase,
    RunChange,
    Sample,
    match_cases,
)
from evaldesk.model.conclusion import CONFIRM, RegressionRule
from evaldesk.model.evalset import case_names
from evaldesk.model.history import ONE_DAY, RunDays
from evaldesk.statistics.comparison import benjamini_hochberg, compare_means
from evaldesk.statistics.exact_tests import ALPHA, fisher
from evaldesk.statistics.history.run_verdicts import judged_by_history


def compare_cases(
    name: str,
    before: Sequence[PlayedCase],
    after: Sequence[PlayedCase],
    *,
    rule: RegressionRule = "any",
    confirm: tuple[int, int] = CONFIRM,
    days: RunDays = ONE_DAY,
    is_replayed: bool = False,
    others: Sequence[tuple[int, int]] = (),
    max_regressions: int = 0,
) -> RunChange:
    """Compare two runs case by case: those that regressed come first, by how much they lost.

    A case is compared where its content is the same. A flip is counted between equally many trials of both, the
    first scored ones by trial index, and not where the rates over all trials say the opposite. `days`, `is_replayed`,
    `others` and `max_regressions` are those of a `RunChange`, for rules whose bar is the history of the cases.
    """
    after_by_place = {case.key.place: case for case in after}
    before_by_place = match_cases(before, [case.key for case in after])
    names = case_names({*before_by_place, *after_by_place})
    changes = [
        _change(names[place], before_by_place[place], after_by_place[place])
        for place in before_by_place
        if place in after_by_place
    ]
    removed_cases = [(place, case) for place, case in before_by_place.items() if place not in after_by_place]
    new_cases = [(place, case) for place, case in after_by_place.items() if place not in before_by_place]
    changes += [CaseChange(case.key, names[place], "gone", "only in A", case, None) for place, case in removed_cases]
    changes += [CaseChange(case.key, names[place], "new", "only in B", None, case) for place, case in new_cases]
    with_p_value = [change for change in changes if change.p is not None]
    adjusted = benjamini_hochberg([change.p or 0.0 for change in with_p_value])
    outstanding = {change.key.place for change, p in zip(with_p_value, adjusted, strict=True) if p < ALPHA}
    changes = [replace(each, stands_out=True) if each.key.place in outstanding else each for each in changes]
    changes.sort(key=lambda change: (KINDS.index(change.kind), -abs(change.points or 0.0)))
    compared_places = [change.key.place for change in changes if change.is_compared]
    rates = compare_means(
        *({place: _sample(side[place]) for place in compared_places} for side in (before_by_place, after_by_place))
    )
    run_change = RunChange(
        name, tuple(changes), rates, rule, confirm, days=days, is_replayed=is_replayed, others=tuple(others)
    )
    run_change = replace(run_change, max_regressions=max_regressions)
    return judged_by_history(run_change) if run_change.is_by_history else run_change


def filled_change(change: RunChange, *, passes: bool, with_errors: bool) -> RunChange:
    """The change if every trial without a verdict passed, or failed; `with_errors` the errored ones, too."""
    pairs = [
        (
            each.before,
            each.after and each.after.fill(each.after.n_missing(with_errors) * passes, with_errors=with_errors),
        )
        for each in change.cases
    ]
    return changed_to(change, *_sides(pairs))


def filled_changes(change: RunChange, *, with_errors: bool, most: int) -> list[RunChange]:
    """The changes for every number of passes among the missing trials of each case; none for more than `most` ways."""
    n_missing = [each.after.n_missing(with_errors) if each.after else 0 for each in change.cases]
    if prod(n + 1 for n in n_missing) > most:
        return []
    return [
        changed_to(
            change,
            *_sides(
                [
                    (each.before, each.after and each.after.fill(n, with_errors=with_errors))
                    for each, n in zip(change.cases, passes, strict=True)
                ]
            ),
        )
        for passes in product(*(range(n + 1) for n in n_missing))
    ]


def _sides(
    pairs: Sequence[tuple[PlayedCase | None, PlayedCase | None]],
) -> tuple[list[PlayedCase], list[PlayedCase]]:
    return [before for before, _ in pairs if before], [after for _, after in pairs if after]


def changed_to(change: RunChange, before: Sequence[PlayedCase], after: Sequence[PlayedCase]) -> RunChange:
    """The change by the same rule if the cases had these trials."""
    run_change = compare_cases(
        change.name,
        before,
        after,
        rule=change.rule,
        confirm=change.confirm,
        days=change.days,
        is_replayed=change.is_replayed,
        others=change.others,
        max_regressions=change.max_regressions,
    )
    return replace(run_change, refusal=change.refusal, weaker=change.weaker, is_of_part=change.is_of_part)


def is_regressed(before: PlayedCase, after: PlayedCase) -> bool:
    """Whether the verdict of a case flipped to the worse, or is lost."""
    return _change("", before, after).kind in REGRESSED


def _change(name: str, before: PlayedCase, after: PlayedCase) -> CaseChange:
    state = _state(before, after)
    before_letters, after_letters = before.scored_letters, after.scored_letters
    if before_letters and after.is_without_verdict and before.is_passed(before_letters):
        return CaseChange(after.key, name, state, "lost its verdict", before, after)
    if state == "lost its reference":
        return CaseChange(after.key, name, state, "lost its reference", before, after)
    if before.key.is_edited(after.key):
        return CaseChange(after.key, name, state, "edited", before, after)
    if not before_letters or not after_letters:
        return CaseChange(after.key, name, state, "not scored", before, after)
    points = 100 * (_rate(after) - _rate(before))
    # One trial on either side can never tell.
    p = (
        fisher(before_letters.count("p"), len(before_letters), after_letters.count("p"), len(after_letters))
        if min(len(before_letters), len(after_letters)) > 1
        else None
    )
    return CaseChange(after.key, name, state, _kind(before, after, points, p), before, after, points, p)


def _state(before: PlayedCase, after: PlayedCase) -> CaseState:
    is_edited = before.key.is_edited(after.key)
    if is_edited and before.asserted is not None and after.asserted is not None:
        is_lost = any(after.asserted.get(kind, 0) < n for kind, n in before.asserted.items())
        if is_lost:
            return "lost its reference"
    if before.scored_letters and after.is_without_verdict:
        return "lost its verdict"
    return "edited since" if is_edited else "same"


def _kind(before: PlayedCase, after: PlayedCase, points: float, p: float | None) -> Kind:
    m = min(len(before.scored_letters), len(after.scored_letters))
    before_letters, after_letters = before.first(m), after.first(m)
    if before_letters is None or after_letters is None:
        # Which trials came first is not known: the rates decide, and only beyond chance.
        is_moved = p is not None and p < ALPHA
        before_letters, after_letters = (before.scored_letters, after.scored_letters) if is_moved else ("", "")
    was, now = before.is_passed(before_letters), after.is_passed(after_letters)
    if was and not now and points <= 0:
        return "broken"
    if now and not was and points >= 0:
        return "fixed"
    if abs(points) < ROUNDING:
        return "same"
    return "more stable" if points > 0 else "less stable"


def _rate(case: PlayedCase) -> float:
    letters = case.scored_letters
    return letters.count("p") / len(letters)


def _sample(case: PlayedCase) -> Sample:
    """A passed trial is 1, another scored one 0."""
    passed = case.scored_letters.count("p")
    return Sample.of_sums(len(case.scored_letters), passed, passed)

"""Two versions of a set through comparison, gate, difference of versions, trend and experiment: the same cases."""

from __future__ import annotations

import random

import pytest
from tests.report.trend_runs import trend_run

from evaldesk.desk.experiments.results import common_ids
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.evalset import numbered_keys
from evaldesk.model.set_trend import TrendCase
from evaldesk.model.set_versions import set_diff
from evaldesk.pages.set_trend import _common
from evaldesk.statistics.case_comparison import compare_cases

Keys = list[tuple[str, str]]


def version_pair(seed: int) -> tuple[Keys, Keys]:
    """A version with contents of its own, and one after some cases were renamed, edited, removed, added and moved."""
    chance = random.Random(seed)
    before = [(f"case_{at}", f"content_{at}") for at in range(chance.randrange(1, 9))]
    after: Keys = []
    for case_id, content in before:
        step = chance.choice(["same", "same", "renamed", "edited", "removed"])
        if step != "removed":
            new_id = f"{case_id}_now" if step == "renamed" else case_id
            after.append((new_id, f"{content}_now" if step == "edited" else content))
    after += [(f"added_{at}", f"added_content_{at}") for at in range(chance.randrange(3))]
    chance.shuffle(after)
    return before, after


@pytest.mark.parametrize("seed", range(200))
def test_every_door_leaves_out_the_same_cases(seed: int) -> None:
    before, after = version_pair(seed)
    sides = [
        [PlayedCase(key, "ppp") for key in numbered_keys(("", *each) for each in version)]
        for version in (before, after)
    ]

    change = compare_cases("run 1", *sides)
    versions = set_diff(before, after)
    rows = [
        TrendCase(run_id, case_id, digest, 3, 3)
        for run_id, version in enumerate((before, after), 1)
        for case_id, digest in version
    ]
    trend = _common([trend_run(1, before), trend_run(2, after)], rows)

    keys = [numbered_keys(("", *each) for each in version) for version in (before, after)]
    experiment = set(common_ids(keys[0], keys[0])) & set(common_ids(*keys))

    compared = {case.after.key.digest for case in change.cases if case.is_compared and case.after}
    left_out_of_gate = {case.key.digest for case in change.cases if case.after and not case.is_compared}
    assert compared == {case.after for case in versions.comparable}
    assert left_out_of_gate == {digest for _, digest in after} - compared
    assert {digest for _, digest, _ in experiment} == compared
    if sorted(content for _, content in before) != sorted(content for _, content in after):
        assert trend == compared

"""The gate on the difference of two runs over their cases: it fails beyond doubt only."""

from __future__ import annotations

import pytest

from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers, conclude
from evaldesk.errors import UsageError
from evaldesk.gate_options import flag_of, gates_of
from evaldesk.model import Counts, Gates, Outcome
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.conclusion import Undecided
from evaldesk.model.evalset import CaseKey
from evaldesk.statistics.case_comparison import compare_cases

CLEAR = [("pppp", "ffff")] * 10
ONE = [("pppp", "pfff"), *[("pppp", "pppp")] * 9]
SAME = [("pppp", "pppp")] * 10


@pytest.mark.parametrize(
    ("verdicts", "margin", "undecided", "outcome"),
    [
        (CLEAR, 0.0, None, "failed"),
        (CLEAR, 0.99, None, "failed"),
        (CLEAR, 1.0, None, "passed"),
        (ONE, 0.0, None, "passed"),
        (ONE, 0.05, "neutral", "neutral"),
        (ONE, 0.05, "fail", "failed"),
        (ONE, 0.05, "pass", "passed"),
        (ONE, 0.5, "neutral", "passed"),
        (SAME, 0.0, "neutral", "passed"),
        (CLEAR[:6], 0.5, None, "failed"),
        (CLEAR[:5], 0.5, None, "undecided"),
        (CLEAR[:5], 0.5, "fail", "failed"),
        (CLEAR[:1], 0.0, None, "undecided"),
        (CLEAR[:1], 1.0, None, "passed"),
        (SAME[:5], 0.0, None, "passed"),
        (SAME[:5], 0.0, "neutral", "neutral"),
    ],
)
def test_a_margin_fails_when_the_whole_interval_lies_beyond(
    verdicts: list[tuple[str, str]], margin: float, undecided: Undecided | None, outcome: Outcome
) -> None:
    keys = [CaseKey("set", f"c{index}") for index in range(len(verdicts))]
    before, after = ([PlayedCase(key, each[side]) for key, each in zip(keys, verdicts, strict=True)] for side in (0, 1))
    change = compare_cases("run 3", before, after)
    cases = [
        CaseNumbers(key.case_id, Counts(4, each[1].count("p"), each[1].count("f")))
        for key, each in zip(keys, verdicts, strict=True)
    ]

    found = conclude(Gates(margin=margin, baseline="run 3", undecided=undecided), RunNumbers.of_cases(cases), change)

    assert found.outcome == outcome
    (gate,) = found.gates
    few = "; too few cases to be sure, add cases" if len(verdicts) < 6 else "; too close to be sure, add cases"
    assert gate.sentence.partition(" points is allowed")[2] == (few if gate.answer == "undecided" else "")
    assert f"a drop of {100 * margin:.3g} points is allowed" in gate.sentence


def test_a_margin_alone_allows_any_case_to_regress() -> None:
    alone = gates_of({"baseline": "3", "margin": 0.05}, n=1, name_of=flag_of)
    both = gates_of({"baseline": "3", "margin": 0.05, "max_regressions": 2}, n=1, name_of=flag_of)

    assert (alone.max_regressions, both.max_regressions) == (None, 2)
    with pytest.raises(UsageError, match="--margin needs --baseline"):
        gates_of({"margin": 0.05}, n=1, name_of=flag_of)

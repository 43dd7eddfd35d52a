"""One limit says whether a gate fails rarely: of its forecast, of a proposal, and of the advice how much to play."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from evaldesk.desk.runs.gates.forecasts import gate_forecasts, history_subject
from evaldesk.model import Gates
from evaldesk.model.forecast import OFTEN, OFTEN_BY_HISTORY
from evaldesk.model.history import CaseHistory, SetHistory
from evaldesk.statistics.history.draws import assumed_rates
from evaldesk.statistics.history.gates import regressions_fail
from evaldesk.wording.forecasts import forecast_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaldesk.model.forecast import GateForecast

GATES = {
    "pass rate": Gates(min_pass_rate=0.8),
    "regressions": Gates(max_regressions=0),
    "two regressions": Gates(max_regressions=2),
    "fixed bar": Gates(max_regressions=0, regression_rule="confirm", confirm=(3, 5)),
    "likely": Gates(max_regressions=0, regression_rule="likely"),
    "confirm": Gates(max_regressions=0, regression_rule="confirm"),
}
HISTORIES = {
    "no failure": [(5, 5)] * 20,
    "no failure, few": [(3, 3)] * 20,
    "a few": [(5, 5)] * 12 + [(5, 4)] * 6 + [(5, 3)] * 2,
    "many": [(20, 20)] * 10 + [(20, 17)] * 10,
    "two kinds": [(10, 10)] * 16 + [(10, 5)] * 4,
    "one trial": [(1, 1)] * 18 + [(1, 0)] * 2,
}
SHORT = ("one trial", "no failure, few")
NS = (1, 2, 5)


def forecast(gates: Gates, trials: Sequence[tuple[int, int]], n: int, *, is_searched: bool = False) -> GateForecast:
    subject = history_subject(SetHistory(tuple(CaseHistory(*each) for each in trials)), [n] * len(trials), 1.0)
    assert subject
    (found,) = gate_forecasts(gates, subject, is_searched=is_searched)
    return found


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("gate", GATES)
def test_a_gate_fails_rarely_where_the_upper_end_is_within_its_limit(gate: str, history: str) -> None:
    is_by_history = GATES[gate].is_by_history
    limit = OFTEN_BY_HISTORY if is_by_history else OFTEN

    for n in NS:
        found = forecast(GATES[gate], HISTORIES[history], n)

        alarm = found.false_alarm
        assert found.is_by_history == is_by_history
        if found.standing == "rarely":
            assert alarm
            assert alarm.high <= limit
        elif found.standing == "often":
            assert alarm
            assert alarm.low > limit
        elif found.standing == "not known yet" and history not in SHORT:
            assert alarm
            assert alarm.low <= limit < alarm.high


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("gate", ["pass rate", "likely", "confirm"])
def test_a_proposed_gate_is_one_that_fails_rarely_by_its_own_forecast(gate: str, history: str) -> None:
    proposal = forecast(GATES[gate], HISTORIES[history], 5, is_searched=True).proposal

    if history == "one trial" or (history in SHORT and GATES[gate].is_by_history):
        assert proposal is None
    if proposal:
        n = int(re.search(r"--n (\d+)", proposal.options)[1])  # type: ignore[index]
        rate = re.search(r"--min-pass-rate (\S+)", proposal.options)
        again = forecast(Gates(min_pass_rate=float(rate[1])) if rate else GATES[gate], HISTORIES[history], n)
        assert again.standing == "rarely"
        assert again.fails == pytest.approx(proposal.fails) or rate


@pytest.mark.parametrize("rule", ["likely", "confirm"])
@pytest.mark.parametrize("share", [0.9, 0.95], ids=str)
def test_the_trials_that_would_tell_do_tell(rule: str, share: float) -> None:
    gates, n_failing = GATES[rule], round(20 * 5 * (1 - share))
    short = [(5, 4)] * n_failing + [(5, 5)] * (20 - n_failing)

    for n in NS:
        before = forecast(gates, short, n)
        if before.standing == "rarely":
            continue
        more = before.trials_to_know
        assert more
        n_all = round(20 * more * (1 - share))
        long = [(more, more - n_all // 20 - (at < n_all % 20)) for at in range(20)]

        assert f"About {more} trials a case would tell." in forecast_sentence(before)
        assert forecast(gates, long, n).standing == "rarely", (n, more)


def test_a_gate_by_history_that_is_not_known_yet_says_its_mean() -> None:
    found = forecast(GATES["confirm"], HISTORIES["a few"], 5)

    assert re.match(
        r"90 of 100 passed so far: this gate fails (?:up to|between \d+ and) \d+ % of unchanged builds, "
        r"about \d % on average. "
        r"About 30 trials a case would tell.",
        forecast_sentence(found),
    )


@pytest.mark.parametrize(
    ("n", "passes"),
    [(5, (3, 3, 3, 4, 4)), (10, (6, 7, 8, 8, 8, 9, 9, 9)), (10, (5, 6, 7, 8, 9, 9, 9, 9))],
    ids=["15 of 20 always", "12 of 20 always", "12 of 20 always, wider"],
)
def test_a_proposed_fixed_bar_of_two_runs_to_come_is_quiet_where_half_of_the_cases_pass_80_percent(
    n: int, passes: tuple[int, ...]
) -> None:
    history = [(n, passed) for passed in passes] + [(n, n)] * (20 - len(passes))

    proposal = forecast(Gates(max_regressions=1, regression_rule="confirm"), history, 5, is_searched=True).proposal

    assert proposal
    n_each, needed, fresh = map(int, re.findall(r"--n (\d+) .* --confirm (\d+)/(\d+)", proposal.options)[0])
    true = assumed_rates([0.8] * 10 + [1.0] * 10)
    assert regressions_fail(true, [n_each] * 20, 1.0, 1, confirm=(needed, fresh))[0] <= OFTEN

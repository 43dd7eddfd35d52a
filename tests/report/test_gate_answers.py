"""How often a gate holds, fails and is too close to tell: against the conclusion of every outcome of small runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from math import prod, sqrt
from random import Random

import pytest

from evaldesk.desk.runs.deciding import Decider
from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers, Spent, conclude
from evaldesk.desk.runs.gates.forecasts import Subject, gate_forecasts
from evaldesk.model import AgentRef, Counts, Gates, RunConfig
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.conclusion import STOP_RULES, Conclusion, StopRule
from evaldesk.model.evalset import CaseKey
from evaldesk.model.forecast import Basis
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.statistics.history.draws import assumed_rates

GATES = {
    "rate": Gates(min_pass_rate=0.7),
    "low rate": Gates(min_pass_rate=0.15),
    "every trial": Gates(min_pass_rate=1.0),
    "pass@1": Gates(pass_at=((1, 0.6),)),
    "pass^1": Gates(pass_hat=((1, 0.8),)),
    "each case": Gates(min_case_pass_rate=0.5),
}
SUBJECTS = {
    "alike": [(0.8, 2, 3)],
    "one trial": [(0.9, 1, 4), (0.3, 1, 1)],
    "one case": [(0.7, 4, 1)],
    "many cases": [(0.7, 1, 6)],
    "different trials": [(0.2, 1, 2), (0.6, 2, 1)],
}


def cases_of(kinds: list[tuple[float, int, int]]) -> list[tuple[float, int]]:
    return [(p, n) for p, n, times in kinds for _ in range(times)]


def numbers_of(cases: list[PlayedCase]) -> RunNumbers:
    """What a run of these cases is judged by."""
    counts = [Counts(len(case.verdicts), case.verdicts.count("p"), case.verdicts.count("f")) for case in cases]
    found = RunNumbers.of_cases(CaseNumbers(case.key.case_id, each) for case, each in zip(cases, counts, strict=True))
    n_least = min(len(case.verdicts) for case in cases)
    firsts = [case.verdicts[:n_least] for case in cases]
    equal = tuple((Counts(n_least, each.count("p"), each.count("f")), 1) for each in firsts)
    return replace(found, equal_kinds=equal)


def all_outcomes(kinds: list[tuple[float, int, int]]) -> list[tuple[list[PlayedCase], float]]:
    """Every run of these cases, trial by trial, and its chance: the curve looks at the first trials of each."""
    cases, found = cases_of(kinds), []
    for letters in product(*(product("pf", repeat=n) for _, n in cases)):
        run = [PlayedCase(CaseKey("set", f"case_{at}", 0, "d"), "".join(own)) for at, own in enumerate(letters)]
        chance = prod(
            p ** own.count("p") * (1 - p) ** own.count("f") for (p, _), own in zip(cases, letters, strict=True)
        )
        found.append((run, chance))
    return found


def letters_of(letters: Sequence[str], cases: Sequence[int] | None) -> list[str]:
    return [letters[case] for case in (range(len(letters)) if cases is None else cases)]


def concluded(gates: Gates, before: list[PlayedCase], after: list[PlayedCase]) -> Conclusion:
    change = compare_cases("baseline", before, after) if gates.compares else None
    return conclude(gates, numbers_of(after), change)


def subject_of(kinds: list[tuple[float, int, int]]) -> Subject:
    """Cases whose chances to pass are known."""
    cases = cases_of(kinds)
    return Subject(assumed_rates([p for p, _ in cases]), tuple(n for _, n in cases), 1.0, Basis(len(cases), rate=0.9))


@pytest.mark.parametrize("kinds", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
def test_a_gate_fails_as_often_as_all_outcomes_do(gates: Gates, kinds: list[tuple[float, int, int]]) -> None:
    total = Counter[str]()
    for after, chance in all_outcomes(kinds):
        total[concluded(gates, [], after).outcome] += chance  # type: ignore[assignment]

    (found,) = gate_forecasts(gates, subject_of(kinds))

    assert found.fails.is_certain
    assert found.holds == pytest.approx(total["passed"], abs=1e-9)
    assert found.fails.mean == pytest.approx(total["failed"], abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("gates", [Gates(min_pass_rate=0.8), Gates(pass_hat=((2, 0.6),)), Gates(margin=0.0)], ids=str)
@pytest.mark.parametrize("p", [0.7, 0.95])
def test_a_number_too_close_to_its_bar_is_as_frequent_as_in_simulated_builds(gates: Gates, p: float) -> None:
    """The spread over cases is not drawn beside the number, but the one that is expected with it: a few points off."""
    gates, random, n_builds = replace(gates, undecided="neutral"), Random(4), 120
    total = Counter[str]()

    def build() -> list[PlayedCase]:
        strips = ("".join("p" if random.random() < p else "f" for _ in range(5)) for _ in range(20))
        return [PlayedCase(CaseKey("set", f"case_{at}", 0, "d"), strip) for at, strip in enumerate(strips)]

    for _ in range(n_builds):
        total[concluded(gates, build(), build()).outcome] += 1
    (found,) = gate_forecasts(gates, subject_of([(p, 5, 20)]))

    for share, seen in ((found.holds, total["passed"]), (found.fails.mean, total["failed"])):
        assert share == pytest.approx(seen / n_builds, abs=0.03 + 3 * sqrt(share * (1 - share) / n_builds))


@pytest.mark.parametrize("rule", STOP_RULES)
@pytest.mark.parametrize(
    ("kinds", "least"),
    [
        ([(0.8, 3, 2), (0.4, 3, 1)], 0.7),
        ([(0.9, 4, 2)], 0.5),
        ([(0.9, 1, 2), (0.3, 1, 2)], 0.5),
        ([(0.5, 1, 1)], 0.5),
        ([(0.3, 8, 1)], 0.95),
    ],
)
def test_a_run_that_stops_answers_and_plays_on_as_often_as_all_outcomes_do(
    kinds: list[tuple[float, int, int]], least: float, rule: StopRule
) -> None:
    gates = Gates(min_pass_rate=least, stop_when_decided=rule)
    total, n_trials, (n, n_cases) = Counter[str](), 0.0, (kinds[0][1], len(cases_of(kinds)))
    orders = list(permutations(range(n_cases))) if n == 1 else [tuple(range(n_cases))]
    for (after, chance), order in product(all_outcomes(kinds), orders):
        config = RunConfig(AgentRef("agent", "agent"), "set", "", "", criteria=(), n=n, gates=gates)
        decider = Decider(config, [n] * n_cases, rule, names=list, order=order)
        letters = [case.verdicts for case in after]
        stop = decider.look(partial(letters_of, letters), Spent())
        answer = stop.answers[0].answer if stop else concluded(gates, [], after).gates[0].answer
        total[answer] += chance / len(orders)  # type: ignore[assignment]
        n_trials += (stop.n_trials if stop else n * n_cases) * chance / len(orders)

    (found,) = gate_forecasts(gates, subject_of(kinds))

    if rule == "exact":
        assert found.holds == pytest.approx(total["held"], abs=1e-9)
        assert found.fails.mean == pytest.approx(total["failed"], abs=1e-9)
    assert found.n_played
    assert found.n_played[0] == pytest.approx(n_trials, abs=1e-9)
    assert found.may_err == (rule == "likely")


def test_a_likely_stop_that_is_not_computed_is_told() -> None:
    subject, margin = subject_of([(0.9, 3, 4)]), Gates(margin=0.1, stop_when_decided="likely")
    both = replace(margin, min_pass_rate=0.5)

    found = [each.may_err for gates in (margin, both) for each in gate_forecasts(gates, subject)]
    exact = gate_forecasts(replace(both, stop_when_decided="exact"), subject)

    assert found == [True, True, True]
    assert not any(each.may_err or each.n_played for each in exact)


def test_a_gate_on_pass_k_says_of_how_many_scored_trials_its_cases_are() -> None:
    cases = [CaseNumbers(str(at), Counts(10, 9, 0, errored=1) if at == 0 else Counts(10, 9, 1)) for at in range(4)]
    gates = Gates(pass_hat=((3, 0.5), (10, 0.0)), max_error_rate=0.1)

    of_all, of_some = (gate.sentence for gate in conclude(gates, RunNumbers.of_cases(cases)).gates[:2])

    assert "over the" not in of_all
    assert "over the 3 of 4 cases that have 10 scored trials" in of_some


def test_an_errored_trial_does_not_hide_the_failed_ones_of_its_case() -> None:
    passed, failed = Counts(3, 3), Counts(3, 0, 2, errored=1)
    cases = [CaseNumbers(str(at), counts) for at, counts in enumerate((passed, passed, failed))]

    found = conclude(Gates(pass_hat=((2, 0.9),), max_error_rate=0.5), RunNumbers.of_cases(cases))

    assert (found.outcome, found.gates[0].answer) == ("failed", "failed")

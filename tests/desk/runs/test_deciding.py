"""Runs that stop when their gates are decided: what is decided, and that nothing else would have come of the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, ended, over, started, subject

from evaldesk.desk.process_owner import current_owner
from evaldesk.desk.runs.deciding import MOST_JUDGED, Decider, ReadStrips, _change_of_letters
from evaldesk.desk.runs.gates.conclusion import CaseNumbers, Ending, RunNumbers, Spent, conclude, regressions_answer
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.engine import GradeSpec
from evaldesk.errors import UsageError
from evaldesk.model import (
    AgentRef,
    Case,
    Conclusion,
    Counts,
    ErrorRecord,
    GateOutcome,
    Gates,
    RunConfig,
    TrialResult,
    TrialSpec,
    Turn,
    Verdict,
)
from evaldesk.model.comparison import PlayedCase, RunChange
from evaldesk.model.conclusion import Stop
from evaldesk.model.evalset import CaseKey
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery
from evaldesk.statistics.anytime import DifferenceSeen, anytime_interval, difference_interval
from evaldesk.statistics.case_comparison import compare_cases

VERDICTS: dict[str, Verdict] = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}


def reader(strips: Sequence[str], read: list[int] | None = None) -> ReadStrips:
    """Gives the letters of these cases; `read` notes the cases that were asked for."""

    def read_strips(cases: Sequence[int] | None) -> Sequence[str]:
        wanted = range(len(strips)) if cases is None else cases
        if read is not None:
            read.extend(wanted)
        return [strips[case] for case in wanted]

    return read_strips


def decider(gates: Gates, n: int, n_cases: int, n_each: Sequence[int] = (), **options: Any) -> Decider:
    config = RunConfig(AgentRef("a", "a:agent"), "set", "", "", criteria=(), n=n, gates=gates)
    names = [f"c{index}" for index in range(n_cases)]
    return Decider(config, n_each or [n] * n_cases, gates.stop_when_decided or "exact", names=lambda: names, **options)


def concluded(gates: Gates, strips: Sequence[str], stop: Stop | None = None, n_equal: int | None = None) -> Conclusion:
    whole, firsts = (
        [Counts(len(each), each.count("p"), each.count("f"), each.count("e"), each.count("u")) for each in side]
        for side in (strips, [strip[:n_equal] for strip in strips])
    )
    cases = [CaseNumbers(f"c{index}", counts) for index, counts in enumerate(whole)]
    equal = tuple((counts, 1) for counts in firsts)
    numbers = RunNumbers.of_cases(cases, endings=[Ending("finished", stop=stop)])
    return conclude(gates, numbers if n_equal is None else replace(numbers, equal_kinds=equal))


def some_gates(chance: Random, n: int) -> Gates:
    bars = [0.3, 0.5, 0.8, 0.9, 1.0]
    k = chance.randint(1, n)
    gates = Gates(max_error_rate=chance.choice([0.0, 0.5]), max_unscored_rate=chance.choice([0.0, 0.5]))
    found: list[tuple[str, Any]] = [
        ("min_pass_rate", chance.choice(bars)),
        ("min_case_pass_rate", chance.choice(bars)),
        ("pass_at", ((k, chance.choice(bars)),)),
        ("pass_hat", ((k, chance.choice(bars)),)),
        ("min_scored", chance.randint(1, 3 * n)),
    ]
    for name, value in found:
        if chance.random() < 0.35:
            gates = replace(gates, **{name: value})
    return gates


@pytest.mark.long
def test_the_answer_at_a_stop_is_that_of_the_whole_run() -> None:
    chance = Random(3)
    n_stopped = n_passed = 0
    for _ in range(3_000):
        n, n_cases, rate = chance.randint(1, 6), chance.randint(1, 6), chance.choice([0.0, 0.2, 0.5, 0.9, 1.0])
        gates = some_gates(chance, n)
        strips = ["".join("p" if chance.random() < rate else "f" for _ in range(n)) for _ in range(n_cases)]
        if chance.random() < 0.3:  # an error in the first block; of the rest nobody knows whether they have one
            strips[0] = chance.choice("eu") + strips[0][1:]
        stop = decider(gates, n, n_cases).look(reader(strips), Spent())
        if stop is None:
            continue
        n_stopped += 1
        at_stop = [(strip if n > 1 else "p")[: stop.n_blocks] for strip in strips]
        if n == 1:
            at_stop = [strip if index < stop.n_blocks else "" for index, strip in enumerate(strips)]
        played = [strip + "." * (n - len(strip)) for strip in at_stop]
        whole, stopped = concluded(gates, strips), concluded(gates, played, stop)
        n_passed += whole.is_passed
        assert stopped.outcome == whole.outcome, (gates, strips, stop)
        assert sum(len(strip) for strip in at_stop) == stop.n_trials < n * n_cases

    assert n_stopped > 1_000
    assert n_passed > 100


@pytest.mark.long
def test_the_answer_at_a_stop_is_that_of_the_whole_run_where_cases_have_different_numbers_of_trials() -> None:
    chance = Random(4)
    n_stopped = n_late = 0
    for _ in range(3_000):
        n_each = [chance.randint(1, 6) for _ in range(chance.randint(2, 6))]
        rate, least, most = chance.choice([0.0, 0.2, 0.5, 0.9, 1.0]), min(n_each), max(n_each)
        gates = some_gates(chance, least)
        strips = ["".join("p" if chance.random() < rate else "f" for _ in range(n)) for n in n_each]
        stop = decider(gates, least, len(n_each), n_each).look(reader(strips), Spent())
        if stop is None or most == 1:
            continue
        n_stopped += 1
        n_late += stop.n_blocks > least
        played = [strip[: stop.n_blocks].ljust(len(strip), ".") for strip in strips]
        whole, stopped = concluded(gates, strips, n_equal=least), concluded(gates, played, stop, n_equal=least)
        assert stopped.outcome == whole.outcome, (gates, strips, stop)
        assert sum(len(strip.rstrip(".")) for strip in played) == stop.n_trials < sum(n_each)

    assert n_stopped > 1_000
    assert n_late > 100


def test_a_case_with_more_trials_than_others_does_not_count_more() -> None:
    gates = Gates(min_pass_rate=0.5, stop_when_decided="exact")
    found = decider(gates, 1, 2, (1, 9))

    assert found.look(reader(["f", "ppp......"]), Spent()) is None
    assert not found.may_look(4)
    assert found.may_look(5)
    assert decider(gates, 1, 2, (1, 9)).look(reader(["f", "pppppppp."]), Spent()) is None
    stop = decider(gates, 1, 2, (1, 9)).look(reader(["f", "pf......."]), Spent())
    assert stop is not None
    assert (stop.n_blocks, stop.answers[0].answer) == (2, "failed")


def test_a_likely_stop_is_within_the_trials_that_all_cases_have() -> None:
    gates = Gates(min_pass_rate=0.5, stop_when_decided="likely")
    n_each = (3,) * 9 + (60,)

    found = decider(gates, 3, 10, n_each).look(reader(["ppp"] * 9 + ["p" * 59 + "."]), Spent())

    assert found is not None
    assert found.n_blocks <= 3
    late = decider(gates, 3, 10, n_each).look(reader(["fpp"] * 4 + ["ppf"] * 5 + ["p" * 59 + "."]), Spent())
    assert late is None or late.n_blocks <= 3 or "likely" not in late.answers[0].sentence


@pytest.mark.parametrize(
    ("gates", "strips", "stop"),
    [
        (Gates(), ["pp", "fp", "pp"], (1, "1 of 3 trials did not pass, and every trial must; 3 of 6 trials are left")),
        (
            Gates(),
            ["ppp", "pfp", "ppp"],
            (2, "1 of 6 trials did not pass, and every trial must; 3 of 9 trials are left"),
        ),
        (
            Gates(),
            ["p", "f", "p", "p"],
            (2, "1 of 2 trials did not pass, and every trial must; 2 of 4 trials are left"),
        ),
        (
            Gates(min_pass_rate=0.9),
            ["p.", "f.", "p."],
            (1, "pass rate cannot reach 0.9 any more: 2 of 3 trials passed; 3 of 6 trials are left"),
        ),
        (
            Gates(min_pass_rate=0.5),
            ["pp..", "pp..", "p...", "pp.."],
            None,
        ),
        (
            Gates(min_pass_rate=0.5),
            ["pp..", "pp..", "pp..", "pf.."],
            None,
        ),
        (
            Gates(min_pass_rate=0.5),
            ["ppp.", "ppp.", "pp..", "pp.."],
            (2, "pass rate stays at least 0.5: 8 of 8 trials passed; 8 of 16 trials are left"),
        ),
        (
            Gates(min_case_pass_rate=0.8),
            ["ppppp", "fffff", "fpppp"],
            (2, "1 of 3 cases cannot reach 0.8 of its trials any more: c1; 9 of 15 trials are left"),
        ),
        (
            Gates(min_case_pass_rate=0.4),
            ["pp...", "pp...", "pp..."],
            (2, "each of 3 cases stays at least at 0.4 of its trials; 9 of 15 trials are left"),
        ),
        (
            Gates(pass_hat=((2, 0.9),)),
            ["fp.", "pp.", "pp."],
            (1, "pass^2 cannot reach 0.9 any more: 2 of 3 trials passed; 6 of 9 trials are left"),
        ),
        (Gates(min_pass_rate=0.9, undecided="neutral"), ["f...", "f...", "f..."], None),
        (
            Gates(),
            ["ep", "pp", "fp"],
            (1, "2 of 3 trials did not pass, and every trial must (1 errored); 3 of 6 trials are left"),
        ),
        (Gates(), ["ep", "pp", "pp"], None),
        (Gates(min_pass_rate=0.6), ["epp", "fff", "ppp"], None),
        (Gates(max_regressions=0, baseline="run 1"), ["epp", "ppp"], None),
    ],
)
def test_a_run_stops_after_the_first_block_that_decides(
    gates: Gates, strips: Sequence[str], stop: tuple[int, str] | None
) -> None:
    n = len(strips[0])
    found = decider(gates, n, len(strips)).look(reader(strips), Spent())

    assert (found and (found.n_blocks, found.answers[0].sentence)) == stop


def test_no_more_than_whole_blocks_are_looked_at() -> None:
    asked = decider(Gates(), 3, 2)

    assert not asked.may_look(1)
    assert asked.look(reader(["f..", "..."]), Spent()) is None
    assert asked.may_look(2)
    found = asked.look(reader(["fp.", "p.."]), Spent())
    assert found is not None
    assert (found.n_blocks, found.n_trials) == (1, 2)


@pytest.mark.parametrize("is_passing", [True, False])
def test_what_is_likely_stops_where_the_interval_says(is_passing: bool) -> None:
    gates = Gates(min_pass_rate=0.8, stop_when_decided="likely")
    n = next(
        n
        for n in range(1, 200)
        if (anytime_interval(n, n).low >= 0.8 if is_passing else anytime_interval(0, n).high < 0.8)
    )
    found = decider(gates, 1, 500).look(reader(["p" if is_passing else "f"] * 500), Spent())

    assert found is not None
    assert found.n_blocks == n == (29 if is_passing else 3)
    assert found.answers[0].answer == ("held" if is_passing else "failed")


def test_a_case_that_is_likely_below_its_bar_is_one_among_many() -> None:
    gates = Gates(min_case_pass_rate=0.5, stop_when_decided="likely")
    n_cases, n = 20, 60
    strips = ["f" * n, *(["p" * n] * (n_cases - 1))]
    found = decider(gates, n, n_cases).look(reader(strips), Spent())
    needed = next(each for each in range(1, n) if anytime_interval(0, each, 0.05 / n_cases).high < 0.5)

    assert found is not None
    assert found.n_blocks == needed
    assert found.answers[0].sentence == (
        f"1 of 20 cases is likely below 0.5: c0; {1200 - 20 * needed} of 1,200 trials are left"
    )


def test_regressions_are_decided_by_what_each_case_can_still_do() -> None:
    gates = Gates(max_regressions=1, baseline="run 3")

    def regressed(case: int, letters: str) -> bool:
        return case < 3 and "f" in letters  # the others did not pass in the baseline

    found = decider(gates, 2, 4, regressed=regressed).look(reader(["fp", "fp", "pp", "fp"]), Spent())
    assert found is not None
    assert found.answers[0].sentence == (
        "2 of 4 cases regressed against run 3, 1 allowed: c0, c1; 4 of 8 trials are left"
    )
    assert found.answers[0].names == ("c0", "c1")
    assert decider(gates, 2, 4, regressed=regressed).look(reader(["fp", "pp", "pp", "fp"]), Spent()) is None
    confirm = replace(gates, regression_rule="confirm", confirm=(3, 5))
    assert decider(confirm, 2, 4, regressed=regressed).look(reader(["fp", "fp", "pp", "fp"]), Spent()) is None
    most = decider(replace(gates, max_regressions=3), 2, 4, regressed=regressed).look(
        reader(["fp", "fp", "fp", "fp"]), Spent()
    )
    assert most is not None
    assert most.answers[0].sentence == "3 cases can regress against run 3, 3 allowed; 4 of 8 trials are left"


@pytest.mark.parametrize(
    ("margin", "before", "letter", "answer", "n_blocks"),
    [
        (0.0, 0.0, "p", "held", 8),  # eight clean wins have the odds 28 to 1, seven 16 to 1
        (0.0, 1.0, "f", "failed", 8),
        (0.1, 0.0, "p", "held", None),
        (0.1, 1.0, "f", "failed", None),
        (0.1, 1.0, "p", "held", None),
    ],
)
def test_a_margin_is_decided_where_the_bets_say(
    margin: float, before: float, letter: str, answer: str, n_blocks: int | None
) -> None:
    gates = Gates(margin=margin, baseline="run 3", stop_when_decided="likely")
    n_cases = 200
    asked = decider(gates, 1, n_cases, rates_before=dict.fromkeys(range(n_cases), before))
    found = asked.look(reader([letter] * n_cases), Spent())
    change = (1.0 if letter == "p" else 0.0) - before
    looks = (difference_interval([change] * n) for n in range(1, n_cases))
    known = next(n for n, each in enumerate(looks, 1) if each.high < -margin or each.low >= -margin)

    assert found is not None
    assert found.answers[0].answer == answer
    assert found.n_blocks == (n_blocks or known)


@pytest.mark.parametrize("margin", [0.02, 0.1, 0.3, 1.0])
def test_differences_that_are_seen_one_by_one_tell_what_their_interval_tells(margin: float) -> None:
    for seed in range(4):
        chance = Random(seed)
        drift, told = chance.uniform(-0.5, 0.5), DifferenceSeen(margin)
        differences: list[float] = []
        for _ in range(60):
            differences.append(max(-1.0, min(1.0, drift + chance.choice([-1.0, -0.5, 0.0, 0.5, 1.0]))))
            told.add(differences[-1])
            found = difference_interval(differences)
            answers = (told.is_better, told.is_worse, told.is_not_worse)
            assert answers == (found.low > margin, found.high < -margin, found.low >= -margin)


@pytest.mark.parametrize("rule", ["any", "confirm"])
def test_no_look_at_a_run_of_many_cases_goes_over_all_of_them(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n_cases, most = 400, 30
    gates = Gates(max_regressions=most, margin=0.2, regression_rule=rule, baseline="run 3", stop_when_decided="likely")
    strips = ["f" if case % 20 == 0 else "p" for case in range(n_cases)]
    chosen = decider(
        gates,
        1,
        n_cases,
        regressed=lambda case, letters: letters == "f" and case % 2 == 0,
        rates_before=dict.fromkeys(range(n_cases), 1.0),
    )
    monkeypatch.setattr(Decider, "_letters_of_first", lambda _: pytest.fail("went over all cases"))

    found = chosen.look(reader(strips), Spent())

    assert found is not None
    n = found.n_blocks
    n_may = sum(strip == "f" for strip in strips[:n]) + sum(case % 2 == 0 for case in range(n, n_cases))
    assert n_may <= most
    assert found.answers[0].sentence.startswith(f"{n_may} cases can regress against run 3, {most} allowed")
    assert found.answers[1].sentence.startswith("pass rate is likely not worse by 20 points")


def test_a_margin_of_repeated_trials_is_looked_at_over_all_cases() -> None:
    gates = Gates(margin=0.1, baseline="run 3", stop_when_decided="likely")
    n_cases, n = 60, 4
    asked = decider(gates, n, n_cases, rates_before=dict.fromkeys(range(n_cases), 1.0))
    found = asked.look(reader(["f" * n] * n_cases), Spent())

    assert found is not None
    assert found.n_blocks == 1
    assert found.answers[0].sentence.startswith("pass rate is likely worse: -100 to ")
    exact = decider(replace(gates, stop_when_decided="exact"), n, n_cases, rates_before=dict.fromkeys(range(60), 1.0))
    assert exact.look(reader(["f" * n] * n_cases), Spent()) is None


class Scripted(HandExecutor):
    """Ends each trial at once, by the letters of its case, and remembers the order."""

    def __init__(self, strips: Sequence[str]) -> None:
        super().__init__()
        self.strips = strips
        self.played: list[tuple[int, int]] = []

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        assert isinstance(spec, TrialSpec)
        if self.is_cancelled:
            self._results.put_nowait(ended(spec, "unscored", status="cancelled"))
            return
        self.played.append((spec.case_index, spec.trial_index))
        self._results.put_nowait(ended(spec, VERDICTS[self.strips[spec.case_index][spec.trial_index]]))


pytestmark = pytest.mark.anyio


async def test_a_run_stops_when_decided_says_so_and_plays_the_rest_when_asked(open_desk: OpenDesk) -> None:
    strips = ["ppppp", "fpppp", "ppppp", "ppppp"]
    first, second = Scripted(strips), Scripted(strips)
    desk = open_desk(first, second)
    run_id = await started(desk, n_cases=4, n=5, concurrency=1, gates=Gates(stop_when_decided="exact"))
    stopped = await over(desk, run_id)
    stored = StoredRuns(desk.run_store)
    conclusion = stored.conclusion(stopped)

    assert (stopped.status, stopped.stop_rule) == ("finished", "exact")
    assert stopped.stop is not None
    assert (stopped.stop.n_blocks, stopped.stop.n_trials) == (1, 4)
    assert stopped.reason == (
        "Stopped when decided, after 4 of 20 trials: 1 of 4 trials did not pass, and every trial must."
    )
    assert stopped.n_done == 4
    assert stopped.n_done == len(first.played)
    assert conclusion.outcome == "failed"
    assert conclusion.exit_code == 1
    assert stored.result(run_id).conclusion == replace(conclusion, gates=stored.result(run_id).conclusion.gates)
    assert stored.numbers(stopped).gate_interval == anytime_interval(stopped.n_passed, stopped.n_scored)
    assert stored.numbers(stopped).interval is None
    assert stored.numbers(stopped).curve == stored.result(run_id).curve
    assert [point.k for point in stored.numbers(stopped).curve] == [1]

    await desk.resume(run_id)
    whole = await over(desk, run_id)

    assert (whole.status, whole.stop, whole.stop_rule, whole.n_done) == ("finished", None, None, 20)
    assert stored.conclusion(whole).outcome == "failed"


async def test_a_run_that_breaks_off_after_it_was_decided_has_broken_off(open_desk: OpenDesk) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=2, n=3, concurrency=3, gates=Gates(stop_when_decided="exact"))
    await executor.holds(3)
    executor.end(2, "failed")
    driver = desk._playing[run_id].driver
    while driver is None or driver.decided is None:
        await asyncio.sleep(0.001)
    executor.end(1, "errored", error=ErrorRecord("authentication", "no such key"))
    found = await over(desk, run_id)

    assert (found.status, found.stop) == ("failed", None)
    assert StoredRuns(desk.run_store).conclusion(found).outcome == "failed"


async def test_a_retry_of_a_decided_run_stops_again_once_it_is_decided(open_desk: OpenDesk) -> None:
    gates = Gates(min_pass_rate=0.9, max_error_rate=0.5, stop_when_decided="exact")
    strips, mended = ["eppppp", "fffppp", "fppppp", "fppppp"], ["pppppp", "fffppp", "fppppp", "fppppp"]
    desk = open_desk(Scripted(strips), Scripted(mended))
    run_id = await started(desk, n_cases=4, n=6, concurrency=1, gates=gates)
    before = await over(desk, run_id)
    await desk.retry(run_id)
    after = await over(desk, run_id)

    assert before.stop is not None
    assert after.stop is not None
    assert (before.counts.errored, after.counts.errored) == (1, 0)
    assert after.n_done < after.n_trials == 24
    assert StoredRuns(desk.run_store).conclusion(after).outcome == "failed"


async def test_a_run_that_holds_early_passes(open_desk: OpenDesk) -> None:
    strips = ["pppp", "pppp", "pppp"]
    desk = open_desk(Scripted(strips))
    gates = Gates(min_pass_rate=0.5, stop_when_decided="exact")
    run_id = await started(desk, n_cases=3, n=4, concurrency=1, gates=gates)
    stopped = await over(desk, run_id)

    assert stopped.stop is not None
    assert stopped.stop.n_blocks == 2
    conclusion = StoredRuns(desk.run_store).conclusion(stopped)
    assert (conclusion.outcome, conclusion.reasons) == ("passed", ())


async def test_a_run_that_is_killed_between_blocks_stops_where_it_would_have(open_desk: OpenDesk, store: Any) -> None:
    strips = ["ppppp", "ppppp", "pppfp", "ppppp"]
    gates = Gates(min_pass_rate=1.0, stop_when_decided="exact")
    whole_desk = open_desk(Scripted(strips))
    untouched = await over(whole_desk, await started(whole_desk, n_cases=4, n=5, concurrency=1, gates=gates))
    order = [(case, trial) for trial in range(5) for case in range(4)]
    for n_played in range(len(order)):
        desk = open_desk(Scripted(strips))
        plan = desk.plan_for(subject(4), RunOptions(n=5, concurrency=1, gates=gates))
        run_id = store.runs.create(plan.config, plan.cases)
        store.runs.set_status(run_id, "running", driver=f"999999999 {current_owner().split(' ')[1]} 1")
        for case, trial in order[:n_played]:
            spec = TrialSpec(run_id, case, trial, plan.cases[case], plan.config.agent)
            store.runs.record([ended(spec, VERDICTS[strips[case][trial]])])
        await desk.start_up()
        found = await over(desk, run_id)

        assert found.stop is not None
        assert found.stop.n_blocks == 4
        assert found.stop == untouched.stop
        assert found.reason == untouched.reason


async def test_a_run_with_one_trial_a_case_plays_them_in_an_order_of_chance(open_desk: OpenDesk) -> None:
    executor, again = Scripted(["p"] * 40), Scripted(["p"] * 40)
    desk = open_desk(executor, again)
    gates = Gates(min_pass_rate=0.5, stop_when_decided="likely")
    first = await over(desk, await started(desk, n_cases=40, n=1, concurrency=1, gates=gates, seed=5))
    await over(desk, await started(desk, n_cases=40, n=1, concurrency=1, gates=gates, seed=5))

    assert first.stop is not None
    assert first.stop.n_blocks == 8
    assert executor.played[:8] == again.played[:8] != [(case, 0) for case in range(8)]
    assert len({case for case, _ in executor.played}) == len(executor.played)


async def test_without_the_switch_every_trial_is_played(open_desk: OpenDesk) -> None:
    desk = open_desk(Scripted(["ff", "ff"]))
    found = await over(desk, await started(desk, n_cases=2, n=2, concurrency=1, gates=Gates()))

    assert (found.stop, found.n_done) == (None, 4)


def test_the_rule_is_one_of_the_two() -> None:
    from evaldesk.gate_options import flag_of, gates_of

    with pytest.raises(UsageError, match="--stop-when-decided must be"):
        gates_of({"stop_when_decided": "maybe"}, n=1, name_of=flag_of)


def test_a_look_reads_only_the_cases_that_were_not_seen_yet() -> None:
    n, read = 3_000, list[int]()
    strips = ["." for _ in range(n)]
    found = decider(Gates(min_pass_rate=0.9, stop_when_decided="exact"), 1, n)
    for done in range(0, 2_000, 20):
        strips[done : done + 20] = ["p"] * 20
        assert found.look(reader(strips, read), Spent()) is None

    seen = [case for case in read if case < 2_000]
    assert len(seen) < 2 * 2_000
    assert max(read) < 2_100


@pytest.mark.parametrize("order", [None, [7, 3, 0, 1, 2, 4, 5, 6, 9, 8]])
def test_cases_are_looked_at_in_the_order_of_play_whatever_order_they_end_in(order: list[int] | None) -> None:
    chance = Random(9)
    gates = Gates(min_pass_rate=0.8, stop_when_decided="exact")
    for _ in range(100):
        whole = [chance.choice("ppf") for _ in range(10)]
        at_once = decider(gates, 1, 10, order=order).look(reader(whole), Spent())
        strips, found, stop = ["."] * 10, decider(gates, 1, 10, order=order), None
        ended = list(range(10))
        chance.shuffle(ended)
        for case in ended:
            strips[case] = whole[case]
            stop = stop or found.look(reader(strips), Spent())
        assert stop == at_once


def compared(letters: str, index: int) -> PlayedCase:
    return PlayedCase(CaseKey("set", f"c{index}", 0, "d"), letters)


@pytest.mark.parametrize(("rule", "least"), [("likely", (8, 8)), ("confirm", (1, 8))])
def test_regressions_by_history_are_decided_when_the_rest_cannot_change_them(rule: Any, least: tuple[int, int]) -> None:
    """As the whole run says, whatever the other planned and the fresh trials bring."""
    chance, n, n_cases = Random(13), 6 if rule == "likely" else 10, 3
    gates = Gates(max_regressions=0, baseline="run 1", regression_rule=rule, stop_when_decided="exact")
    before = [compared("pppppppppf", index) for index in range(n_cases)]
    planned = [compared("." * n, index) for index in range(n_cases)]
    judged = _change_of_letters(compare_cases("run 1", before, planned, rule=rule), planned)
    n_held = n_failed = 0
    for _ in range(25):
        rates = [chance.choice([0.0, 0.9, 1.0, 1.0, 1.0]) for _ in range(n_cases)]
        strips = ["".join("p" if chance.random() < rate else "f" for _ in range(n)) for rate in rates]
        found = decider(gates, n, n_cases, judge_change=judged).look(reader(strips), Spent())
        if found is None:
            continue
        fresh = ["".join(chance.choice("pf") for _ in range(5)) for _ in range(n_cases)]
        played = [
            replace(compared(strip, index), confirming=again if rule == "confirm" else "")
            for index, (strip, again) in enumerate(zip(strips, fresh, strict=True))
        ]
        whole = regressions_answer(compare_cases("run 1", before, played, rule=rule), 0)
        n_failed, n_held = n_failed + (whole == "failed"), n_held + (whole == "held")
        assert found.n_blocks < n
        assert found.answers[0].answer == whole, (strips, fresh)

    assert n_failed >= least[0]
    assert n_held >= least[1]


def test_a_history_too_short_to_tell_decides_nothing() -> None:
    before, planned = [compared("p", 0)], [compared("..", 0)]
    judged = _change_of_letters(compare_cases("run 1", before, planned, rule="likely"), planned)
    gates = Gates(max_regressions=0, baseline="run 1", regression_rule="likely", stop_when_decided="exact")

    assert regressions_answer(judged(["ff"]), 0) == "undecided"
    assert decider(gates, 2, 1, judge_change=judged).look(reader(["fp"]), Spent()) is None


def test_a_long_run_is_judged_by_history_at_few_looks() -> None:
    n_cases = 200
    before = [compared("ppppp", index) for index in range(n_cases)]
    planned = [compared(".", index) for index in range(n_cases)]
    judged, n_judged = _change_of_letters(compare_cases("run 1", before, planned, rule="likely"), planned), 0

    def counting(letters: Sequence[str]) -> RunChange:
        nonlocal n_judged
        n_judged += 1
        return judged(letters)

    gates = Gates(max_regressions=0, baseline="run 1", regression_rule="likely", stop_when_decided="exact")
    found = decider(gates, 1, n_cases, judge_change=counting).look(reader(["f"] * n_cases), Spent())

    assert found is not None
    assert found.n_blocks < n_cases
    assert found.answers[0].answer == "failed"
    assert n_judged <= 2 * MOST_JUDGED


class Graded(HandExecutor):
    """Gives stored trials this verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        assert isinstance(spec, GradeSpec)
        self._results.put_nowait(replace(spec.result, verdict=self.verdict, status="finished"))


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize(("verdict", "outcome"), [("passed", "passed"), ("failed", "failed")])
async def test_a_run_that_scores_a_decided_one_again_is_decided_as_that_one(
    open_desk: OpenDesk, n: int, verdict: Verdict, outcome: str
) -> None:
    strips = [("p" if case else "f").ljust(n, "p") for case in range(6)]
    desk = open_desk(Scripted(strips), Graded(verdict), Scripted(strips), Graded(verdict))
    run_id = await started(desk, n_cases=6, n=n, concurrency=1, gates=Gates(stop_when_decided="exact"))
    first = await over(desk, run_id)
    again = await over(desk, await desk.rescore(run_id, first.config.criteria))
    stored = StoredRuns(desk.run_store)

    assert first.stop is not None
    assert again.stop == replace(first.stop, answers=())
    assert (again.status, again.n_done) == ("finished", first.n_done)
    assert again.reason == (
        f"Run {run_id} stopped when it was decided, so {first.n_trials - first.n_done} trials were never played."
    )
    assert stored.conclusion(again).outcome == stored.result(again.id).conclusion.outcome == outcome
    assert stored.numbers(again).gate_interval == anytime_interval(again.n_passed, again.n_scored)

    await desk.resume(run_id)
    await over(desk, run_id)
    await desk.resume(again.id)
    whole = await over(desk, again.id)

    assert (whole.status, whole.stop, whole.n_todo) == ("finished", None, 0)


async def test_a_live_run_that_somebody_stops_keeps_the_interval_that_holds_at_any_look(open_desk: OpenDesk) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await started(desk, n_cases=12, n=1, concurrency=8)
    await executor.holds(8)
    executor.end(6)
    while (await desk.summary(run_id)).n_done < 6:
        await asyncio.sleep(0.001)
    live = read_run(desk.run_store, run_id, RunQuery()).reliability
    await desk.stop(run_id, cancel=True)
    stopped = await over(desk, run_id)

    found, stored = read_run(desk.run_store, run_id, RunQuery()).reliability, StoredRuns(desk.run_store)
    wide = anytime_interval(stopped.n_passed, stopped.n_scored)
    n_cases = stopped.n_scored
    assert stopped.status == "stopped"
    assert live.doubt == "95 % CI: for these 6 cases 44–100 %, at any stop; 6 cases cannot speak for others"
    assert found.doubt.startswith(f"95 % CI: for these {n_cases} cases ")
    assert found.detail == "The interval holds although trials are left to play."
    assert stored.numbers(stopped).gate_interval == wide
    assert stored.numbers(stopped).interval == stored.interval(stopped) == stored.result(run_id).interval is None


@pytest.mark.parametrize(
    "gates",
    [
        Gates(min_pass_rate=0.6, stop_when_decided="likely"),
        Gates(min_case_pass_rate=0.2, stop_when_decided="likely"),
        Gates(margin=0.1, baseline="run 3", stop_when_decided="likely"),
        Gates(min_pass_rate=0.6, stop_when_decided="exact"),
    ],
    ids=["rate", "each case", "margin", "exact"],
)
def test_a_look_after_every_trial_answers_as_one_that_reads_every_case(gates: Gates) -> None:
    n_stopped = 0
    for seed in range(10):
        chance = Random(seed)
        n, n_cases, rate = 6, 30, [0.02, 0.6, 0.98][seed % 3]
        options: dict[str, Any] = {"rates_before": dict.fromkeys(range(n_cases), 0.5)} if gates.margin else {}
        whole = ["".join("p" if chance.random() < rate else "f" for _ in range(n)) for _ in range(n_cases)]
        order = sorted(range(n * n_cases), key=lambda at: at + chance.choice([0, 0, 0, 35]))  # some are late
        played = [["."] * n for _ in range(n_cases)]
        found = decider(gates, n, n_cases, **options)
        for n_done, at in enumerate(order, 1):
            played[at % n_cases][at // n_cases] = whole[at % n_cases][at // n_cases]
            strips = ["".join(letters) for letters in played]
            if not found.may_look(n_done):
                continue
            stop = found.look(reader(strips), Spent())
            again = decider(gates, n, n_cases, **options).look(reader(strips), Spent())
            assert stop == again, (seed, strips)
            if stop:
                n_stopped += 1
                break

    assert n_stopped > 2


def test_a_case_that_keeps_others_waiting_is_the_only_one_that_is_read_again() -> None:
    found, read = decider(Gates(min_pass_rate=0.9, stop_when_decided="likely"), 9, 300), list[int]()
    strips = [".pppppppp", *["p" * 9] * 299]

    for _ in range(50):
        assert found.look(reader(strips, read), Spent()) is None

    assert read == [*range(300), *[0] * 49]


def test_a_gate_that_a_stop_left_open_has_the_same_answer_at_every_door(store: Any) -> None:
    gates = Gates(min_case_pass_rate=1.0, pass_hat=((2, 0.5),), stop_when_decided="exact")
    config = RunConfig(AgentRef("a", "a:agent"), "set", n=4, gates=gates)
    run_id = store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(3)])
    strips = ["fppp", "pp..", "pp.."]  # two trials of the first case ended after the block that decided
    letters = [(case, at, letter) for case, strip in enumerate(strips) for at, letter in enumerate(strip)]
    trials = [TrialResult(run_id, case, at, "finished", VERDICTS[each]) for case, at, each in letters if each != "."]
    store.runs.record(trials)
    decided = GateOutcome("--min-case-pass-rate", "failed", "1 of 3 cases cannot reach 1 of its trials any more")
    store.runs.end(run_id, "finished", "", lease=store.runs.summary(run_id).lease, stop=Stop("exact", 2, 6, (decided,)))
    stored = StoredRuns(store.runs)
    run = stored.summary(run_id)

    conclusions = [
        stored.conclusion(run),
        conclude(gates, stored.numbers(run)),
        stored.result(run_id).conclusion,
    ]

    sentences = [[each.sentence for each in found.gates] for found in conclusions]
    assert sentences[0] == sentences[1] == sentences[2]
    assert sentences[0][1].startswith("pass^2 0.667 is at least 0.5")
    assert {found.outcome for found in conclusions} == {"failed"}

"""Two runs compared by case id: what broke comes first, and chance is called chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.desk.stored_desk import desk_on
from tests.run_columns import column_values

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentRef, Case, Criterion, ErrorRecord, Expected, RunConfig, Score, TrialResult, Turn, Usage
from evaldesk.model.options import Recording
from evaldesk.pages.comparison import ComparisonPage, read_choice, read_comparison
from evaldesk.pages.runs.listing import run_line
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery, reliability
from evaldesk.store import Store
from evaldesk.wording.words import doubt_cell

STRICT = Criterion("response_match_score", 0.8)
CALLS = Criterion("tool_call_count_v1", 3.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "evaldesk.db") as opened:
        yield opened


def played(
    store: Store,
    strips: Mapping[str, str],
    *,
    queries: Mapping[str, str] | None = None,
    references: Mapping[str, str] | None = None,
    **values: Any,
) -> int:
    """A finished run with the verdicts of each case as a strip: `p` scores 1, `f` 0, `e` broke off.

    Cost, time and tool calls are those of each trial, or of the last trial of a case and of the others.
    """
    asked = [values.pop(name, default) for name, default in (("cost", 0.01), ("ms", 100.0), ("calls", 2.0))]
    amounts = [each if isinstance(each, tuple) else (each, each) for each in asked]
    n = max(map(len, strips.values()))
    config = RunConfig(AgentRef("dice", "dice:agent"), "set", n=n, criteria=(STRICT, CALLS))
    cases = [
        Case(
            case_id, (Turn((queries or {}).get(case_id, "Roll."), Expected(reference=(references or {}).get(case_id))),)
        )
        for case_id in strips
    ]
    run_id = store.runs.create(replace(config, **values), cases)
    store.runs.set_status(run_id, "running")
    store.runs.record(
        [
            _result((run_id, case_index, index), letter, *(each[index < n - 1] for each in amounts))
            for case_index, verdicts in enumerate(strips.values())
            for index, letter in enumerate(verdicts)
        ]
    )
    store.runs.set_status(run_id, "finished")
    return run_id


def _result(key: tuple[int, int, int], letter: str, cost: float, ms: float, calls: float) -> TrialResult:
    error = ErrorRecord("agent_raised", "it broke") if letter == "e" else None
    value = float(letter == "p")
    scores = (
        Score(STRICT.metric, value, None, 0.8, letter == "p"),
        Score(CALLS.metric, calls, None, 3.0, calls <= 3.0),
    )
    return TrialResult(
        *key,
        status="errored" if error else "finished",
        verdict="errored" if error else "passed" if letter == "p" else "failed",
        scores=() if error else scores,
        usages=(Usage("openai/big", tokens_in=10, tokens_out=5, cost=cost),),
        duration_ms=ms,
        error=error,
    )


def kinds(found: ComparisonPage) -> list[tuple[str, str]]:
    return [(line.change.name, line.change.kind) for line in found.changes]


def test_what_broke_comes_first_and_the_worst_of_it_before_all(store: Store) -> None:
    a = played(store, {"fixed": "fff", "steady": "ppp", "broken": "ppp", "ruined": "ppp", "better": "pff"})
    b = played(store, {"fixed": "ppp", "steady": "ppp", "broken": "ppf", "ruined": "fff", "better": "ppf"})

    found = read_comparison(desk_on(store), a, b)

    assert kinds(found) == [
        ("ruined", "broken"),
        ("broken", "broken"),
        ("fixed", "fixed"),
        ("better", "more stable"),
    ]
    assert found.flips == "1 fixed, 2 broken"
    assert kinds(read_comparison(desk_on(store), a, b, "same")) == [("steady", "same")]
    assert found.changes[1].before_href == f"/runs/{a}/cases/2/trials/0"
    assert found.changes[1].after_href == f"/runs/{b}/cases/2/trials/2"


def test_cases_of_one_run_only_are_counted_and_not_compared(store: Store) -> None:
    a = played(store, {"both": "pp", "old": "ff"}, queries={"old": "Old."})
    b = played(store, {"new": "pp", "both": "pp"}, queries={"new": "New."})

    found = read_comparison(desk_on(store), a, b)

    assert found.notes[0] == f"Left out: 1 case only in run {a}, 1 case only in run {b}."
    assert kinds(read_comparison(desk_on(store), a, b, "only in A")) == [("old", "only in A")]
    assert kinds(read_comparison(desk_on(store), a, b, "only in B")) == [("new", "only in B")]
    assert found.verdict == "No difference in the mean. 1 case, p 1.00"


def test_an_error_is_no_failure_unless_its_run_says_so(store: Store) -> None:
    a = played(store, {"c": "pp", "d": "ee"})
    lenient, strict = (played(store, {"c": "pe", "d": "pp"}, errors_are_failures=flag) for flag in (False, True))

    assert kinds(read_comparison(desk_on(store), a, lenient)) == []
    assert kinds(read_comparison(desk_on(store), a, strict)) == [("c", "broken")]
    assert kinds(read_comparison(desk_on(store), a, lenient, "not scored")) == [("d", "not scored")]


def test_a_difference_is_called_by_what_it_is_of(store: Store) -> None:
    strips = {f"c{index}": "pp" for index in range(8)}
    a, b = played(store, strips, ms=900.0), played(store, strips, ms=2400.0, cost=0.04, calls=3.0)

    found = {each.title: each for each in read_comparison(desk_on(store), a, b).differences}

    assert found["Time of a trial"].words == "Slower by 1.5 s in every case"
    assert found["Cost of a trial"].words == "More expensive by $0.03 in every case"
    assert found["Tool calls"].words == "Worse by 1.00 in every case"
    assert {found[name].way for name in ("Time of a trial", "Cost of a trial", "Tool calls")} == {"worse"}
    assert found["Response match"].way == ""


def test_single_cases_stand_out_only_after_correction(store: Store) -> None:
    ones, zeros = "p" * 12, "f" * 12
    before = {f"c{index}": ones for index in range(6)}
    a, b = played(store, before), played(store, before | {"c1": zeros, "c2": ones[:-1] + "f"})

    found = read_comparison(desk_on(store), a, b)

    assert [(line.change.name, line.change.stands_out) for line in found.changes] == [("c1", True), ("c2", False)]
    assert found.notes == ["1 of 6 cases changed significantly (Benjamini-Hochberg). Read it side by side."]


def test_one_trial_a_case_proves_nothing_about_a_case(store: Store) -> None:
    a, b = played(store, {"c": "p", "d": "p"}), played(store, {"c": "f", "d": "p"})

    (note,) = read_comparison(desk_on(store), a, b).notes
    assert note == "If the difference is real, about 16 more cases like these would show it, 4 times in 5."


def test_what_makes_runs_hard_to_compare_is_said(store: Store) -> None:
    a = played(store, {"c": "pp", "d": "pp"}, concurrency=4)
    b = played(
        store, {"c": "p", "d": "p"}, queries={"c": "Roll twice."}, evalset_id="other", concurrency=8, criteria=(STRICT,)
    )

    assert read_comparison(desk_on(store), a, b).warnings == [
        "The runs are of different eval sets; only cases with the same id are compared.",
        "1 case was edited between the runs: c; it is not compared.",
        "The runs have different criteria; their verdicts are not directly comparable.",
        f"Run {a} has 2 trials of each case, run {b} 1 trial.",
        f"Run {a} played 4 trials at once, run {b} 8: times are not directly comparable.",
    ]


def test_the_same_trials_scored_twice_are_told_from_two_runs(store: Store) -> None:
    a = played(store, {"c": "pp"})
    b = played(store, {"c": "pp"}, source_run_id=a, criteria=(STRICT,))

    found = read_comparison(desk_on(store), a, b)

    assert found.warnings == ["Both runs score the same stored trials; every difference comes from the criteria."]
    assert [line.name for line in found.config.lines] == ["Criteria"]
    assert "Eval set" in found.config.same


def test_answers_that_are_played_again_are_no_evidence_of_chance(store: Store) -> None:
    a = played(store, {"c": "pp"}, recording=Recording("record"))
    b = played(store, {"c": "pp"}, recording=Recording("replay"))

    assert read_comparison(desk_on(store), a, b).warnings == [
        f"Run {b} replays recorded answers. If they come from run {a}, the two runs are not independent "
        "and the interval does not hold."
    ]
    notes = [reliability(store.runs.outcome_counts(run), store.runs.summary(run), 1)[0].note for run in (a, b)]
    assert ["replay recorded answers" in note for note in notes] == [False, True]


def test_many_cases_come_a_page_at_a_time(store: Store) -> None:
    ids = [f"c{index:03}" for index in range(130)]
    a, b = played(store, dict.fromkeys(ids, "p")), played(store, dict.fromkeys(ids, "f"))

    first = read_comparison(desk_on(store), a, b)
    second = read_comparison(desk_on(store), a, b, start=100)

    assert (len(first.changes), first.n_fitting, len(second.changes)) == (100, 130, 30)
    assert first.more_href == f"/compare?a={a}&b={b}&from=100"
    assert second.more_href == ""
    assert first.verdict.startswith("Worse by 100 points in every case")


def test_a_run_is_not_compared_with_itself_nor_with_none(store: Store) -> None:
    a = played(store, {"c": "p"})

    with pytest.raises(UsageError, match="choose two different runs"):
        read_comparison(desk_on(store), a, a)
    with pytest.raises(NotFoundError):
        read_comparison(desk_on(store), a, 99)


def test_the_run_before_on_the_same_eval_set_is_proposed(store: Store) -> None:
    other = played(store, {"c": "p"}, evalset_id="other")
    a, b = played(store, {"c": "p"}), played(store, {"c": "f"})
    stranger = played(store, {"c": "p"}, evalset_id="other")

    assert (read_choice(desk_on(store), [b]).a, read_choice(desk_on(store), [b]).b) == (a, b)
    assert read_choice(desk_on(store), []).b == stranger
    assert [offer.id for offer in read_choice(desk_on(store), [b]).offers] == [b, a, stranger, other]


def test_an_edited_case_is_compared_in_no_table(store: Store) -> None:
    a = played(store, {"same": "pp", "edited": "pp"})
    b = played(store, {"same": "pp", "edited": "ff"}, queries={"edited": "Roll twice."})

    found = read_comparison(desk_on(store), a, b)

    assert found.verdict == "No difference in the mean. 1 case, p 1.00"
    assert kinds(found) == []
    assert kinds(read_comparison(desk_on(store), a, b, "edited")) == [("edited", "edited")]
    assert {each.n_cases for each in found.differences} == {1}


def test_a_case_that_lost_its_reference_is_said_to_have_lost_it(store: Store) -> None:
    a = played(store, {"same": "pp", "bare": "pp"}, references={"bare": "Six."})
    b = played(store, {"same": "pp", "bare": "pp"})

    found = read_comparison(desk_on(store), a, b)

    assert found.warnings == ["1 case lost a reference: bare; it is not compared."]
    assert kinds(read_comparison(desk_on(store), a, b, "lost its reference")) == [("bare", "lost its reference")]


def test_a_case_that_lost_reference_and_verdict_is_not_called_uncompared(store: Store) -> None:
    a = played(store, {"same": "pp", "bare": "pp"}, references={"bare": "Six."})
    b = played(store, {"same": "pp", "bare": "ee"})

    found = read_comparison(desk_on(store), a, b)

    assert found.warnings == ["1 case lost a reference and its verdict: bare; it counts as a regression."]
    assert kinds(found) == [("bare", "lost its verdict")]


def test_each_line_of_statistics_is_short_and_has_its_reason_behind_it(store: Store) -> None:
    strips = {f"c{index}": "pp" for index in range(8)}
    a, b = played(store, strips, ms=900.0), played(store, strips, ms=2400.0)

    found = {each.title: each for each in read_comparison(desk_on(store), a, b).differences}

    time = found["Time of a trial"]
    assert time.words == "Slower by 1.5 s in every case"
    assert time.why.startswith("8 cases, p 0.008. Each of 8 cases is compared with itself")
    assert "flips the signs of the differences" in time.why
    assert all(each.why and " p " not in each.words for each in found.values())


def test_time_is_the_mean_of_a_trial_in_every_table(store: Store) -> None:
    a, b = played(store, {"c": "pp"}, ms=100.0), played(store, {"c": "pp"}, ms=300.0)

    found = read_comparison(desk_on(store), a, b)
    time = next(each for each in found.differences if each.title == "Time of a trial")
    run = read_run(store.runs, b, RunQuery())

    assert (found.a.mean_ms, found.b.mean_ms) == (time.before, time.after) == (100.0, 300.0)
    assert column_values(run, "Time") == [300.0, 300.0]
    assert {each.label: each.value for each in run.figures}["mean of a trial"] == 300.0


def test_one_long_trial_of_many_is_no_difference_from_one_trial_of_each_case(store: Store) -> None:
    strips = [{f"c{index}": "p" * n for index in range(10)} for n in (1, 20)]
    a, b = played(store, strips[0]), played(store, strips[1], ms=(1100.0, 100.0), cost=(0.21, 0.01), calls=(22.0, 2.0))

    found = {each.title: each for each in read_comparison(desk_on(store), a, b).differences}

    time, cost, calls = (found[name] for name in ("Time of a trial", "Cost of a trial", "Tool calls"))
    assert [each.before for each in (time, cost, calls)] == [100.0, 0.01, 2.0]
    assert [each.after for each in (time, cost, calls)] == pytest.approx([150.0, 0.02, 3.0])
    assert {each.way for each in (time, cost, calls)} == {""}
    error = (1000**2 * 19 / 20 + 20 / 21 * 50**2) / 20 * (1 + 1 / 20) / 10
    half = 2.262157 * error**0.5
    assert (
        time.words == f"50 ms slower, could be chance; 95 % CI {half - 50:.0f} ms faster to {half + 50:.0f} ms slower"
    )


def test_fresh_trials_of_suspects_are_no_part_of_what_a_trial_costs(store: Store) -> None:
    strips = {f"c{index}": "pp" for index in range(6)}
    a, b = played(store, strips), played(store, strips)
    store.runs.plan_confirming(b, ["c0"], 3)
    store.runs.record([_result((b, 0, 2 + index), "p", 5.0, 9000.0, 2.0) for index in range(3)])

    found = {each.title: each for each in read_comparison(desk_on(store), a, b).differences}

    assert (found["Cost of a trial"].after, found["Time of a trial"].after) == (0.01, 100.0)


def test_a_run_without_times_is_not_compared_as_if_it_took_none(store: Store) -> None:
    strips = {f"c{index}": "pp" for index in range(8)}
    untimed, timed = played(store, strips, ms=0.0), played(store, strips, ms=300.0)

    found = read_comparison(desk_on(store), untimed, timed)

    assert (found.a.mean_ms, found.b.mean_ms) == (None, 300.0)
    assert "Time of a trial" not in {each.title for each in found.differences}


def test_fewer_than_five_scored_trials_name_a_rate_in_no_list(store: Store) -> None:
    few, many = played(store, {"c": "ppff"}), played(store, {"c": "ppfff"})
    again = played(store, {"c": "ppff"}, source_run_id=few)
    page, shown = read_comparison(desk_on(store), few, many), read_run(store.runs, few, RunQuery())
    few_line, many_line = [run_line(store.runs, store.runs.summary(run)) for run in (few, many)]

    said = [doubt_cell(few_line.summary.counts.scored, few_line.interval), page.a.doubt, shown.reliability.doubt]
    said += [doubt_cell(each.run.counts.scored, each.interval) for each in shown.scorings]
    assert set(said) == {"too few trials for a rate"}
    assert len(shown.scorings) == 2
    assert again in [each.run.id for each in shown.scorings]
    assert page.a.bar is None
    assert "Pass rate" not in [column.title for column in shown.columns]
    assert "Pass rate" in [column.title for column in read_run(store.runs, many, RunQuery()).columns]
    assert page.b.bar is not None
    assert doubt_cell(many_line.summary.counts.scored, many_line.interval) == page.b.doubt == "12–77 %"

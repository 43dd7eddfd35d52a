"""Two runs compared case by case: one answer, whatever the numbers of trials."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.desk.runs.gates.conclusion import RunNumbers, conclude
from evaldesk.model import Case, Expected, Gates, Turn
from evaldesk.model.comparison import PlayedCase, RunChange
from evaldesk.model.evalset import CaseKey, assertions, case_names, numbered_keys, renamed_repeats, repeats_words
from evaldesk.statistics.case_comparison import compare_cases, is_regressed
from evaldesk.wording.comparison import change_sentence, change_why, flips_words, stand_out_sentence, states_words

DIGEST = "d"
LETTERS = "ppppfffeu."
strips = st.text(LETTERS, min_size=0, max_size=8)
sides = st.one_of(st.none(), st.tuples(strips, st.sampled_from(["d", "e"])))
tables = st.lists(st.tuples(sides, sides), max_size=12)


def case(name: str, verdicts: str, **values: object) -> PlayedCase:
    given_values = {"digest": DIGEST} | values
    key = CaseKey("set", name, 0, str(given_values.pop("digest")))
    return PlayedCase(key, verdicts, **given_values)  # type: ignore[arg-type]  # by keyword, as each test needs


def changed(before: Sequence[PlayedCase], after: Sequence[PlayedCase]) -> RunChange:
    return compare_cases("run 1", before, after)


def kind_of(before: PlayedCase, after: PlayedCase) -> str:
    return changed([before], [after]).cases[0].kind


@settings(deadline=None, max_examples=100)
@given(tables, st.sampled_from([0.5, 0.8, 1.0]))
def test_the_sentence_the_badges_the_gate_and_the_table_agree(
    table: list[tuple[tuple[str, str] | None, tuple[str, str] | None]], threshold: float
) -> None:
    before, after = (
        [
            case(str(at), side[0], digest=side[1], pass_threshold=threshold)
            for at, pair in enumerate(table)
            for side in [pair[which]]
            if side is not None
        ]
        for which in (0, 1)
    )

    found = changed(before, after)
    sentence, flips = change_sentence(found), flips_words(found)
    gate, *alone = conclude(Gates(max_regressions=0), RunNumbers.of_cases(()), found).gates

    said_nothing = sentence.startswith(("No difference", "No case has a score")) or "could be chance" in sentence
    assert said_nothing == (found.way == "")
    assert sentence.startswith(found.way.capitalize())
    if said_nothing:
        assert not any(each.stands_out for each in found.cases)
        assert stand_out_sentence(found) == ""
    if found.way in ("better", "worse"):
        sign = 1 if found.way == "better" else -1
        assert all((each.points or 0) * sign > 0 for each in found.cases if each.stands_out)
    assert "distinguishable" not in flips
    badges = [each.name for each in found.cases if each.kind in ("broken", "lost its verdict")]
    assert list(gate.names) == badges
    assert sentence in gate.sentence
    assert gate.is_held == (not badges and found.n_judged > 0)
    assert [answer.name for answer in alone] == ["--new-cases"] * bool(found.unaccounted_cases)
    for answer in alone:
        by_itself = [case.after.passes_alone if case.after else None for case in found.unaccounted_cases]
        assert answer.answer == ("failed" if False in by_itself else "undecided" if None in by_itself else "held")
    assert len(found.names_of("broken")) + len(found.names_of("lost its verdict")) == len(badges)
    for each in found.cases:
        assert each.kind != "broken" or (each.points or 0) <= 0
        assert each.kind != "fixed" or (each.points or 0) >= 0
        assert each.is_compared or not each.stands_out


@pytest.mark.parametrize(("n_before", "n_after"), [(1, 20), (20, 1), (5, 5)])
def test_the_same_agent_regresses_as_often_as_it_is_fixed_whatever_the_trials(n_before: int, n_after: int) -> None:
    chance = Random(7)
    broken = fixed = 0
    for _ in range(50):
        before, after = (
            [case(str(at), "".join(chance.choices("pf", [8, 2], k=n))) for at in range(40)] for n in (n_before, n_after)
        )
        found = changed(before, after)
        broken, fixed = broken + len(found.names_of("broken")), fixed + len(found.names_of("fixed"))

    assert broken / 50 < 20  # of 40 cases; with all n of each side it was 33
    assert abs(broken - fixed) < 4 * (broken + fixed) ** 0.5


def test_large_differences_of_few_cases_are_not_called_chance_beside_cases_that_stand_out() -> None:
    found = changed(
        [case("a", "p" * 20), case("b", "p" * 20)], [case("a", "p" * 12 + "f" * 8), case("b", "p" * 11 + "f" * 9)]
    )

    assert change_sentence(found) == "Worse in 2 of 2 cases; 42 points worse in the mean, other cases may differ"
    assert stand_out_sentence(found) == (
        "2 of 2 cases changed significantly (Benjamini-Hochberg). Read them side by side."
    )


def test_cases_that_stand_out_both_ways_are_a_mixed_answer() -> None:
    found = changed(
        [case("a", "p" * 20), case("b", "f" * 20), case("c", "p")],
        [case("a", "f" * 20), case("b", "p" * 20), case("c", "p")],
    )

    assert change_sentence(found) == "Mixed: better in 1, worse in 1 of 3 cases; the same mean"


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("p", "pfffffffff", "less stable"),
        ("p", "fppppppppp", "broken"),
        ("pppppppppf", "p", "fixed"),
        ("f", "pfffffffff", "fixed"),
        ("ep", "fe", "broken"),
        ("pp", "uu", "lost its verdict"),
        ("ff", "uu", "not scored"),
        ("uu", "pp", "not scored"),
        ("pp", "pp", "same"),
        ("p" * 198 + "ff", "p" * 199 + "f", "more stable"),
        ("p" * 199 + "f", "p" * 198 + "ff", "less stable"),
        ("p" * 100 + "ff", "p" * 99 + "f", "more stable"),
        ("p" * 99 + "f", "p" * 100 + "ff", "less stable"),
    ],
)
def test_a_flip_is_counted_between_the_first_trials_of_both(before: str, after: str, kind: str) -> None:
    expected = {"pppppppppf": "more stable"}.get(before, kind)

    assert kind_of(case("c", before), case("c", after)) == expected
    assert is_regressed(case("c", before), case("c", after)) == (kind in ("broken", "lost its verdict"))


@pytest.mark.parametrize(
    ("before", "after", "points", "p"),
    [
        ("p", "f" * 20, -100, None),
        ("f" * 20, "p", 100, None),
        ("pp", "ff", -100, 1 / 3),
        ("pppf", "ppff", -25, 1.0),
        ("pppfe", "ppuff", -25, 1.0),
    ],
)
def test_two_rates_of_a_case_are_tested_where_both_have_two_trials(
    before: str, after: str, points: float, p: float | None
) -> None:
    (found,) = changed([case("c", before)], [case("c", after)]).cases

    assert found.points == pytest.approx(points)
    assert found.p == (None if p is None else pytest.approx(p))


@pytest.mark.parametrize(
    ("n_cases", "before", "after", "worse"),
    [
        pytest.param(20, "p" * 10, "ppp" + "f" * 7, 1, id="one-of-20-drops-beyond-chance"),
        pytest.param(20, "p" * 10, "p" * 9 + "f", 0, id="one-failure-does-not"),
        pytest.param(20, "p" * 5, "f" * 5, 1, id="five-after-five"),
        pytest.param(20, "p", "f" * 5, 0, id="five-after-one"),
        pytest.param(3, "p", "f", 0, id="one-after-one"),
    ],
)
def test_a_case_is_worse_where_its_history_does_not_allow_so_few_passes(
    n_cases: int, before: str, after: str, worse: int
) -> None:
    others = [case(f"other {at}", before) for at in range(n_cases - 1)]

    found = compare_cases("run 1", [case("c", before), *others], [case("c", after), *others], rule="likely")

    assert [each.name for each in found.regressions] == ["c"] * worse


def test_the_case_that_lost_most_comes_first_of_its_kind() -> None:
    before = [case(name, "pppp") for name in "abc"] + [case("d", "ffff")]
    after = [case("a", "pppf"), case("b", "ffff"), case("c", "ppff"), case("d", "pppp")]

    assert [each.name for each in changed(before, after).cases] == ["b", "c", "a", "d"]


def test_trials_whose_order_is_not_known_are_not_drawn_from() -> None:
    old = PlayedCase(CaseKey("set", "c"), "ppppppppff", pass_threshold=0.8, is_ordered=False)

    assert kind_of(old, case("c", "ff", pass_threshold=0.8)) == "less stable"
    assert kind_of(old, case("c", "ffffff", pass_threshold=0.8)) == "broken"
    assert kind_of(PlayedCase(CaseKey("set", "c"), "ppp", is_ordered=False), case("c", "f")) == "broken"


@pytest.mark.parametrize(
    ("before", "after", "state", "is_regression"),
    [
        (case("c", "pp"), case("c", "pp"), "same", False),
        (case("c", "pp"), case("c", "ff"), "same", True),
        (case("c", "pp"), case("c", "ff", digest="other"), "edited since", False),
        (case("c", "pp"), case("c", "ue"), "lost its verdict", True),
        (case("c", "ff"), case("c", "ee"), "lost its verdict", False),
        (case("c", "pp"), case("c", ".."), "same", False),
        (case("c", "pp"), case("c", "u."), "same", False),
        (case("c", "pp"), case("c", "uu", digest="other"), "lost its verdict", True),
        (
            case("c", "pp", asserted={"reference": 2}),
            case("c", "pp", digest="other", asserted={"reference": 1}),
            "lost its reference",
            False,
        ),
        (
            case("c", "pp", asserted={"reference": 1, "tool_calls": 1}),
            case("c", "pp", digest="other", asserted={"reference": 1}),
            "lost its reference",
            False,
        ),
        (
            case("c", "pp", asserted={"tool_calls": 1}),
            case("c", "uu", digest="other", asserted={"reference": 1}),
            "lost its reference",
            True,
        ),
    ],
)
def test_every_state_of_a_case_since_its_baseline(
    before: PlayedCase, after: PlayedCase, state: str, is_regression: bool
) -> None:
    (found,) = changed([before], [after]).cases

    assert (found.state, found.is_regression) == (state, is_regression)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        pytest.param("old:a1 old:b2", "new:a1 new:b2", "old>new", id="renamed"),
        pytest.param("old:a1 old:b2", "new:a1 new:b9", "old>new", id="and-a-case-edited"),
        pytest.param("old:a1 old:b2", "one:a1 two:a1 two:b2", "old>two", id="most-in-common"),
        pytest.param("x:a1 x:b2 y:a1", "s:a1 t:a1 t:b2", "x>t y>s", id="two-at-once"),
        pytest.param("old:a1", "new:a2", "", id="nothing-in-common"),
        pytest.param("old:a1", "new:b1", "", id="another-id"),
        pytest.param("old:a1", "old:b1 new:a1", "", id="still-played"),
        pytest.param("old:a1 new:b1", "new:a1", "", id="the-new-one-was-there"),
        pytest.param("old:a", "new:a", "", id="content-not-known"),
    ],
)
def test_an_eval_set_of_another_name_is_told_by_the_content_of_its_cases(before: str, after: str, found: str) -> None:
    def cases(words: str) -> list[PlayedCase]:
        named = [each.split(":") for each in words.split()]
        return [PlayedCase(CaseKey(evalset, text[0], 0, text[1:]), "p") for evalset, text in named]

    change = changed(cases(before), cases(after))

    assert change.evalset_renames == dict(each.split(">") for each in found.split())
    told = [words for words in states_words(change) if "by their content" in words]
    assert told == [
        f"The cases of eval set {old} were found in {new}, by their content"
        for old, new in change.evalset_renames.items()
    ]


def test_cases_of_one_run_only_are_gone_or_new() -> None:
    found = changed([case("old", "p")], [case("young", "f", digest="other")])

    assert [(each.name, each.state, each.is_regression) for each in found.cases] == [
        ("old", "gone", False),
        ("young", "new", False),
    ]


def test_a_case_with_another_id_is_found_by_its_content_where_one_only_has_it() -> None:
    found = changed([case("old", "p")], [case("young", "f")])
    several = changed([case("old", "p"), case("older", "p")], [case("young", "f")])

    assert [(each.name, each.state, each.is_regression) for each in found.cases] == [("young", "same", True)]
    assert [each.state for each in several.cases] == ["gone", "gone", "new"]


def test_errors_count_where_the_run_counts_them() -> None:
    assert kind_of(case("c", "pp"), case("c", "pe")) == "same"
    assert kind_of(case("c", "pp"), case("c", "pe", errors_are_failures=True)) == "broken"


def test_names_tell_the_eval_set_only_where_they_must() -> None:
    keys = numbered_keys([("a", "x", ""), ("b", "x", ""), ("b", "y", ""), ("b", "x", "")])

    names = case_names({key.place for key in keys})

    assert [names[key.place] for key in keys] == ["a:x", "b:x", "y", "b:x (2)"]


def test_repeated_ids_are_named_and_renamed() -> None:
    cases = [Case(name) for name in ("x", "y", "x", "x_2", "x")]

    assert repeats_words(cases) == '"x" (cases 1, 3 and 5)'
    assert [each.id for each in renamed_repeats(cases)] == ["x", "y", "x_3", "x_2", "x_4"]
    assert repeats_words(renamed_repeats(cases)) == ""


def test_what_a_case_asserts_is_counted_by_kind() -> None:
    turns = (Turn("a", Expected(tool_calls=(), reference="b")), Turn("c", Expected(reference="d")))

    assert assertions(Case("c", turns, final_state={}, rubrics=({},))) == {
        "reference": 2,
        "tool_calls": 1,
        "final_state": 1,
        "rubrics": 1,
    }


@pytest.mark.parametrize(
    ("n_cases", "test"), [(2, "flips the signs"), (29, "flips the signs"), (30, "Student's t test")]
)
def test_a_comparison_says_why_with_the_test_that_it_used(n_cases: int, test: str) -> None:
    before = [case(f"case {i}", "ppp" if i % 2 else "pff") for i in range(n_cases)]
    after = [case(f"case {i}", "pff" if i % 3 else "ppp") for i in range(n_cases)]

    why = change_why(changed(before, after))

    assert why.startswith(f"Each of {n_cases} cases is compared with itself")
    assert test in why
    assert "Fisher's exact test" in why


def test_where_nothing_is_compared_there_is_no_why() -> None:
    assert change_why(changed([case("a", "p")], [case("b", "p", digest="other")])) == ""

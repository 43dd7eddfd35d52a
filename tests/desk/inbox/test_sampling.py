"""Samples by a hash, whose rates nest, and the strata of a draw as they are typed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.sampling import MAX_DRAWN, StratumPlan, draw_strata, is_sampled, parse_strata, sample_position
from evaldesk.errors import UsageError
from evaldesk.model.conversation_filter import ConversationFilter

IDS = [f"conv-{number:03d}" for number in range(40)]

# golden/inbox.json ("kept"): the conversations of conv-000 to conv-039 in a sample of each rate.
SAMPLES = {
    0.05: [20, 27],
    0.1: [4, 20, 27],
    0.25: [4, 12, 13, 17, 19, 20, 22, 26, 27, 28],
}


@pytest.mark.parametrize(("rate", "numbers"), SAMPLES.items())
def test_a_rate_has_the_known_conversations(rate: float, numbers: list[int]) -> None:
    assert [each for each in IDS if is_sampled(each, rate)] == [f"conv-{number:03d}" for number in numbers]


def test_a_conversation_has_the_known_place() -> None:
    # golden/inbox.json ("share_of").
    places = [sample_position(each) for each in IDS[:4]]

    assert places == [0.9984570089638067, 0.5475376816058712, 0.7485588106401444, 0.4994563878456204]


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_sample_is_part_of_each_larger_one(conversation_id: str, one: float, other: float) -> None:
    if is_sampled(conversation_id, min(one, other)):
        assert is_sampled(conversation_id, max(one, other))
    assert not is_sampled(conversation_id, 0)
    assert is_sampled(conversation_id, 1.0)


def test_another_salt_is_another_sample() -> None:
    ids = [str(number) for number in range(2_000)]
    one, other = ({each for each in ids if is_sampled(each, 0.5, salt)} for salt in ("inbox", "night"))

    assert 900 < len(one) < 1_100
    assert 400 < len(one & other) < 600


def test_an_id_that_no_encoding_has_is_sampled_too() -> None:
    assert 0 <= sample_position("cut \ud83d") < 1


def test_strata_as_they_are_typed() -> None:
    strata = parse_strata(["error:all", "feedback<0:30", 'tool:refund text:"a:5" :7', "rest:100"])

    assert strata == (
        StratumPlan("error", parse_filter("error"), None),
        StratumPlan("feedback<0", parse_filter("feedback<0"), 30),
        StratumPlan('tool:refund text:"a:5"', parse_filter('tool:refund text:"a:5"'), 7),
        StratumPlan("rest", ConversationFilter(), 100),
    )


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "a draw has 1 to 20 strata, got 0"),
        (["rest:1"] * 21, "a draw has 1 to 20 strata, got 21"),
        (["error"], "'error': a stratum is a filter, a colon, and a number or all, such as error:all or rest:100"),
        ([":5"], "a stratum is a filter, a colon"),
        (["error:some"], "a stratum is a filter, a colon"),
        (["error:-1"], "a stratum is a filter, a colon"),
        (["error:٣"], "a stratum is a filter, a colon"),
        (["error:0"], "1 to 10,000 conversations can be drawn of a stratum"),
        (["rest:99999999999999"], "1 to 10,000 conversations can be drawn of a stratum"),
        (["eror:5"], '"eror": did you mean error?'),
        (["error:5", " error :all"], "the stratum error is there twice"),
        (["rest:5", "error:all"], "rest is all that no other stratum has: write it last"),
    ],
)
def test_strata_that_cannot_be_drawn_are_refused(texts: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_strata(texts)

    assert sentence in str(refusal.value)


def lone_rows(*numbers: int) -> list[tuple[int, str]]:
    """Conversations without twins."""
    return [(number, "") for number in numbers]


def test_each_conversation_is_of_the_first_stratum_that_has_it() -> None:
    plans = parse_strata(["error:all", "feedback<0:2", "rest:3"])

    strata = draw_strata(plans, [lone_rows(1, 2), lone_rows(2, 3, 4, 5), lone_rows(*range(1, 11))], seed=7)

    assert [(stratum.name, stratum.size, len(stratum.ids)) for stratum in strata] == [
        ("error", 2, 2),
        ("feedback<0", 3, 2),
        ("rest", 5, 3),
    ]
    assert set(strata[0].ids) == {1, 2}
    assert set(strata[1].ids) < {3, 4, 5}
    assert set(strata[2].ids) < {6, 7, 8, 9, 10}


def test_one_of_a_group_of_twins_in_a_stratum_is_drawn_and_stands_for_all_of_them() -> None:
    rows = [(1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, ""), (6, "")]
    plans = parse_strata(["error:all", "rest:all"])

    first, second = draw_strata(plans, [[(2, "a"), (4, "a")], rows], seed=1)
    separate_strata = draw_strata(plans, [[(2, "a"), (4, "a")], rows], seed=1, is_one_per_twin_group=False)

    assert (first.size, second.size) == (2, 4)
    assert first.ids in {(2,), (4,)}
    assert set(second.ids) == {1, 3, 5, 6}  # 1 is a twin of 2 and 4 without an error
    assert (first.weights, second.weights) == ((2,), (1, 1, 1, 1))
    assert [stratum.size for stratum in separate_strata] == [2, 4]
    assert separate_strata[0].weights == (1, 1)


def test_the_same_seed_draws_the_same_and_another_seed_others() -> None:
    plans, rows = parse_strata(["rest:20"]), lone_rows(*range(1_000))
    draws = [draw_strata(plans, [rows], seed)[0].ids for seed in (7, 7, 8)]

    assert draws[0] == draws[1]
    assert len({*draws[0]} & {*draws[2]}) < 10


def test_each_conversation_is_drawn_as_often() -> None:
    plans, rows = parse_strata(["rest:2"]), [(1, ""), (2, "a"), (3, "a"), (4, ""), (5, "")]
    times = Counter(number for seed in range(2_000) for number in draw_strata(plans, [rows], seed)[0].ids)

    assert all(900 < times[number] < 1_100 for number in (1, 4, 5))
    assert all(420 < times[number] < 580 for number in (2, 3))


def test_a_stratum_of_fewer_gives_all_and_one_of_too_many_is_refused() -> None:
    plans = parse_strata(["error:50", "rest:all"])

    assert len(draw_strata(plans, [lone_rows(1, 2), lone_rows(3)], seed=7)[0].ids) == 2
    with pytest.raises(UsageError, match=r"the stratum rest has 10,001 conversations; at most 10,000"):
        draw_strata(plans, [[], lone_rows(*range(MAX_DRAWN + 1))], seed=7)

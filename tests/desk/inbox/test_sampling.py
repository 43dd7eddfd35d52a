"""Samples by a hash, whose rates nest, and the strata of a draw as they are typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.sampling import StratumPlan, is_sampled, parse_strata, sample_position
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

"""The scripted model: what it understands, and the mistakes it makes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from evaldesk.demo_model.answering import read_name
from evaldesk.demo_model.conversation import SpokenTurn
from evaldesk.demo_model.dice import Wish, read_wish
from evaldesk.demo_model.mistakes import Overloaded, Slips
from evaldesk.demo_model.script import decide
from evaldesk.demo_model.trips import read_wishes

ROLLED = [SpokenTurn("roll a d10")]
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("roll_die", "check_prime")]


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("Roll a 20-sided die", Wish((20,))),
        ("Can you roll a die with 6 sides", Wish((6,))),
        ("please roll a twelve sided die for me", Wish((12,))),
        ("roll two dice d6 and d8", Wish((6, 8))),
        ("Roll 2d6", Wish((6, 6))),
        ("Roll a 20-sided die twice.", Wish((20, 20))),
        ("roll three dice", Wish((6, 6, 6))),
        ("throw a die", Wish((6,))),
        ("d20 please", Wish((20,))),
        ("roll a d8 twice... I mean, roll 3 10-sided dice", Wish((8, 10, 10, 10))),
        ("is 7, 12 and 17 prime?", Wish((), True, (7, 12, 17))),
        ("Roll a d10 and check whether it is prime", Wish((10,), True)),
        ("Now roll two dice, d6 and d8, and check both.", Wish((6, 8), True)),
        ("Roll a die with 100 sides and tell me if the result is prime", Wish((100,), True)),
        ("is it prime?", Wish((), True, ())),
        ("What rolls did you get so far?", Wish()),
        ("Hi who are you?", Wish()),
        ("what is the weather?", Wish()),
        ("", Wish()),
    ],
)
def test_free_words_about_dice_are_understood(text: str, wish: Wish) -> None:
    assert read_wish(text, []) == wish


@pytest.mark.parametrize(
    ("text", "nums"),
    [("is it prime?", (4, 5)), ("check whether the rolls are prime", (3, 4, 5)), ("is that prime?", (4, 5))],
)
def test_earlier_rolls_are_meant_by_it_and_by_the_rolls(text: str, nums: tuple[int, ...]) -> None:
    before = [_rolled("roll", 3), _rolled("roll two", 4, 5), SpokenTurn("thanks")]

    assert read_wish(text, before) == Wish((), True, nums)


def test_again_means_the_same_die() -> None:
    assert read_wish("roll it again", [_rolled("roll a d10", 3)]).sides == (10,)


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["London or Paris, next autumn"], (("London", "Paris"), None, None, "october")),
        (["paris", "Six days in May, 2,400 euros"], (("Paris",), 6, 2400, "may")),
        (["two weeks in Rome for €900"], (("Rome",), 14, 900, None)),
        (["London or Paris", "Paris then"], (("Paris",), None, None, None)),
        (["hello"], ((), None, None, None)),
    ],
)
def test_free_words_about_trips_are_understood(texts: list[str], wanted: tuple[Any, ...]) -> None:
    wishes = read_wishes(texts)

    assert (wishes.cities, wishes.days, wishes.budget, wishes.month) == wanted


def test_the_same_seed_and_words_give_the_same_reply() -> None:
    replies = [_decide("Roll a d10 and check whether it is prime", seed=11, share=1.0) for _ in range(3)]

    assert replies[0] == replies[1] == replies[2]


def test_different_seeds_give_different_outcomes() -> None:
    replies = Counter(str(_decide("Roll a 20-sided die", seed=seed, share=0.5)) for seed in range(60))

    assert len(replies) > 3
    assert replies.most_common(1)[0][0] == str(_decide("Roll a 20-sided die", seed=None, share=None))


def test_a_quarter_of_the_trials_go_wrong_and_no_chat_does() -> None:
    slips = [_slip(seed, 0.25) for seed in range(2_000)]

    assert 0.2 < sum(bool(slip) for slip in slips) / 2_000 < 0.3
    assert 0 < slips.count("overloaded") < 60
    assert str(_decide("Roll a d6", seed=None, share=None)) == str(_decide("Roll a d6", seed=1, share=0.0))


def test_the_environment_sets_the_share_for_trials_only() -> None:
    environment = {"EVALDESK_DEMO_MISTAKES": "1"}
    right = _decide("Roll a d6", seed=1, share=0.0)

    trials = [_decide("Roll a d6", seed=seed, share=None, environment=environment) for seed in range(20)]

    assert any(reply != right for reply in trials)
    assert _decide("Roll a d6", seed=None, share=None, environment=environment) == right


def test_an_agent_with_other_tools_gets_an_explanation() -> None:
    reply = decide([{"role": "user", "content": "hi"}], [], seed=None, share=None, environment={})

    assert "scripted demo model" in reply.text


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("chess", "no scripted model 'chess'"),
        ("dice?x=1", "no option 'x'"),
        ("dice?mistakes=many", "mistakes of the scripted model must be a number, got 'many'"),
    ],
)
def test_a_wrong_name_is_refused(model: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_name(model)


def test_a_name_carries_its_options() -> None:
    name = read_name("dice?mistakes=0.3&delay_ms=5")

    assert (name.script, name.share, name.delay_ms) == ("dice", 0.3, 5.0)


def _rolled(text: str, *values: int) -> SpokenTurn:
    from evaldesk.demo_model.conversation import Done

    return SpokenTurn(text, [Done("roll_die", {"sides": 10}, value) for value in values])


def _decide(text: str, *, seed: int | None, share: float | None, environment: dict[str, str] | None = None) -> object:
    try:
        messages = [{"role": "user", "content": text}]
        return decide(messages, TOOLS, seed=seed, share=share, environment=environment or {})
    except Overloaded:
        return "overloaded"


def _slip(seed: int, share: float) -> str:
    try:
        return Slips(share, f"{seed}\nRoll").pick(["terse", "extra_roll"])
    except Overloaded:
        return "overloaded"

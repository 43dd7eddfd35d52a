"""Dates that count from the day of a recording are not expected as recorded; those that a user names are."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evaldesk.diff.repetition import changing_places, repeatable_case
from evaldesk.matching import apply_allowances
from evaldesk.model import Case, Event, Expected, JsonValue, ToolCall, Transcript, Turn, TurnRecord

RECORDED = datetime(2026, 11, 30, 10, 5, tzinfo=UTC)
DAYS = (1, 2, 7, 40)
"""Days after the recording on which the case is played."""


def spoken(day: datetime) -> str:
    return f"{day:%A, %B} {day.day}, {day.year}"


COUNTED = {
    "tomorrow": ("Book a table for tomorrow", {"date": lambda now: f"{now + timedelta(1):%Y-%m-%d}"}),
    "yesterday": ("How much did I spend yesterday?", {"day": lambda now: f"{now - timedelta(1):%Y-%m-%d}"}),
    "time_of_a_day": ("Meet in 3 weeks at ten", {"at": lambda now: f"{now + timedelta(21):%Y-%m-%dT10:00:00}"}),
    "weekday": ("Remind me tomorrow", {"day": lambda now: f"{now + timedelta(1):%A}"}),
    "inside_a_text": ("Remind me tomorrow", {"note": lambda now: f"Call Bob on {now + timedelta(1):%Y-%m-%d} at 10"}),
    "english": ("A hotel in two weeks", {"arrival": lambda now: spoken(now + timedelta(14))}),
    "numbers": ("A hotel in two weeks", {"arrival": lambda now: f"{now + timedelta(14):%d/%m/%Y}"}),
    "default_of_the_agent": ("Send an invoice", {"due": lambda now: f"{now + timedelta(14):%Y-%m-%d}"}),
    "inside_a_list": ("Next weekend", {"days": lambda now: [f"{now + timedelta(each):%Y-%m-%d}" for each in (5, 6)]}),
}
NAMED = {
    "iso": ("Book 2026-12-04", "2026-12-04"),
    "english": ("Book the 4th of December", "2026-12-04"),
    "american": ("Book December 4th, please", "2026-12-04T19:00:00"),
    "numbers": ("Book 4.12. please", "2026-12-04"),
    "long_ago": ("What happened today in history?", "1969-07-20"),
    "no_date": ("Order version 1.2.3 tomorrow", "1.2.3"),
}


def case_of(query: str, args: dict[str, JsonValue], answer: str | None = None) -> Case:
    return Case("a", (Turn(query, Expected(tool_calls=(ToolCall("book", args),), reference=answer)),), final_state=args)


def repeatable(case: Case) -> Case:
    at = RECORDED.timestamp()
    return repeatable_case(case, case, changing_places(case, recorded_at=at, start_time=at - 5), {})


def is_right_on(case: Case, args: dict[str, JsonValue], answer: str, now: datetime) -> bool:
    """Whether a play of that day is as expected."""
    events = (Event("tool_call", call=ToolCall("book", args)), Event("agent_message", text=answer))
    turn = TurnRecord(case.turns[0].query, events, {}, args, start_time=now.timestamp())
    compared, _ = apply_allowances(case, Transcript((turn,)))
    expected = compared.turns[0].expected
    return expected.tool_calls == (ToolCall("book", args),) and compared.final_state in (None, args)


@pytest.mark.parametrize("n_days", DAYS)
@pytest.mark.parametrize(("query", "args_of"), COUNTED.values(), ids=COUNTED)
def test_a_case_with_a_date_that_counts_from_its_day_is_right_on_a_later_day(
    query: str, args_of: dict[str, Any], n_days: int
) -> None:
    case = repeatable(case_of(query, {name: of(RECORDED) for name, of in args_of.items()}))
    later = RECORDED + timedelta(n_days)

    assert is_right_on(case, {name: of(later) for name, of in args_of.items()}, "", later)


@pytest.mark.parametrize(("query", "value"), NAMED.values(), ids=NAMED)
def test_a_date_that_the_user_names_stays_expected_as_recorded(query: str, value: str) -> None:
    case = case_of(query, {"date": value}, f"It is {value}.")

    assert repeatable(case) == case


@pytest.mark.parametrize(
    ("query", "answer_of"),
    [
        ("Which day is today?", lambda now: f"Today is {spoken(now)}."),
        ("Book it for tomorrow", lambda now: f"Booked for {now + timedelta(1):%Y-%m-%d}."),
        ("What time is it?", lambda now: f"It is {now:%H:%M}."),
    ],
)
def test_an_answer_that_is_mostly_a_date_is_expected_with_another_one(query: str, answer_of: Any) -> None:
    case = repeatable(Case("a", (Turn(query, Expected(reference=answer_of(RECORDED))),)))
    later = RECORDED + timedelta(32, hours=3)
    turn = TurnRecord(query, (Event("agent_message", text=answer_of(later)),), {}, {}, start_time=later.timestamp())

    compared, _ = apply_allowances(case, Transcript((turn,)))

    assert compared.turns[0].expected.reference == answer_of(later)


def test_the_reason_names_the_day_of_the_recording_and_the_recorded_value_can_be_kept() -> None:
    case = case_of("Book a table for Friday", {"date": "2026-12-04"})
    places = changing_places(case, recorded_at=RECORDED.timestamp())

    assert {place.why for place in places} == {"looks like a date that counts from the day of the recording"}
    assert {place.proposed_way for place in places} == {"later"}
    assert repeatable_case(case, case, places, dict.fromkeys((place.key for place in places), "recorded")) == case


def test_a_date_that_plays_of_another_day_repeat_does_not_count_from_its_day() -> None:
    case = case_of("Book a table for Friday", {"date": "2026-12-04"})
    events = (Event("tool_call", call=ToolCall("book", {"date": "2026-12-04"})),)
    start = (RECORDED - timedelta(3)).timestamp()
    play = Transcript((TurnRecord(case.turns[0].query, events, {}, {"date": "2026-12-04"}, start_time=start),))

    assert not changing_places(case, [play], recorded_at=RECORDED.timestamp())


@pytest.mark.parametrize("seed", range(200))
def test_any_text_around_a_date_is_matched_by_its_pattern_on_another_day(seed: int) -> None:
    chance = random.Random(seed)
    letters = "ab Z.,()[]{}*+?^$|\\-/:#\n'\"é1"
    before, after = ("".join(chance.choices(letters, k=chance.randrange(9))) + " " for _ in range(2))
    form = chance.choice(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M", "%d %B %Y", "%A, %B %d, %Y"])

    def args(now: datetime) -> dict[str, JsonValue]:
        return {"note": before + (now + timedelta(1)).strftime(form) + " " + after}

    case, later = repeatable(case_of("Do it tomorrow", args(RECORDED))), RECORDED + timedelta(9)

    assert is_right_on(case, args(later), "", later)

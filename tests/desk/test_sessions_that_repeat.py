"""A recorded session becomes a case whose first run is green, unless the agent itself varies.

The agents have the shapes of public samples and of `stamped`: a time, a counter, an id or a random number in the state,
in an argument or in the answer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from evaldesk import Event, ToolCall
from evaldesk.agents.python import PythonAgent
from evaldesk.desk.chat.recording import record_session
from evaldesk.desk.chat.replays import is_cheap
from evaldesk.diff.repetition import (
    MAX_VALUES,
    changing_places,
    look_of,
    matchers_for,
    pattern_of,
    repeatable_case,
    sentence_pattern,
)
from evaldesk.engine import play_trial
from evaldesk.matching import Allowance, read_allowances
from evaldesk.metrics import score_trial
from evaldesk.model import AgentRef, Case, SessionInit, Transcript, TrialSpec, Turn, default_criteria
from evaldesk.model.stored import StoredSession

REF = AgentRef("stamped", "tests", "agent")
MESSAGES = ("Book a table for two", "Thanks")
count = itertools.count(1)
chance = random.Random(7)
blanks = itertools.count()
remarks = itertools.cycle(["Of course.", "With pleasure, see you soon!", "Done and noted in the book of guests."])


def stamped(message: str, state: dict[str, Any]) -> str:
    state.setdefault("timer_start", time.time())
    state["request_count"] = state.get("request_count", 0) + 1
    return "Hello."


def text_time(message: str, state: dict[str, Any]) -> str:
    state["_time"] = str(datetime.now())
    return "A trip to Lyon."


def milliseconds(message: str, state: dict[str, Any]) -> str:
    state["started_ms"] = time.time_ns() // 1_000_000
    return "Ready."


def day(message: str, state: dict[str, Any]) -> str:
    state["today"] = datetime.now(UTC).date().isoformat()
    return "Ready."


def english_time(message: str, state: dict[str, Any]) -> str:
    state["seen"] = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(time.time() + next(count)))
    return "Ready."


def clock(message: str, state: dict[str, Any]) -> str:
    state["at"] = time.strftime("%H:%M:%S", time.gmtime(time.time() + next(count)))
    return "Ready."


def process_counter(message: str, state: dict[str, Any]) -> str:
    state["served"] = next(count)
    return "Ready."


def session_id(message: str, state: dict[str, Any]) -> str:
    state.setdefault("cart_id", str(uuid.uuid4()))
    return "Your cart is empty."


def hex_id(message: str, state: dict[str, Any]) -> str:
    state.setdefault("trace", uuid.uuid4().hex)
    return "Your cart is empty."


def short_id(message: str, state: dict[str, Any]) -> str:
    state["order"] = f"ORD-{chance.randrange(10_000, 99_999)}"
    return "Ordered."


def nested(message: str, state: dict[str, Any]) -> str:
    state["order"] = {"id": str(uuid.uuid4()), "items": ["tea"], "created": datetime.now(UTC).isoformat()}
    return "Ordered."


def list_of_times(message: str, state: dict[str, Any]) -> str:
    state.setdefault("log", []).append({"at": time.time(), "text": message})
    return "Noted."


def random_score(message: str, state: dict[str, Any]) -> str:
    state["score"] = chance.random()
    return "Scored."


def noise(message: str, state: dict[str, Any]) -> str:
    state["mean"] = 10 + next(count) % 7 / 1000
    return "Measured."


def growing_list(message: str, state: dict[str, Any]) -> str:
    state["seen"] = list(range(next(count)))
    return "Seen."


def transient(message: str, state: dict[str, Any]) -> str:
    state["temp:now"] = time.time()
    state["_adk_recordings"] = {"at": time.time()}
    return "Ready."


def booking(message: str, state: dict[str, Any]) -> Iterator[Any]:
    call = ToolCall("book", {"guests": 2, "request_id": str(uuid.uuid4()), "at": int(time.time()) + next(count)})
    yield Event("tool_call", call=call)
    yield Event("tool_result", call=call, result={"ok": True})
    state["booked"] = True
    yield "Booked for two."


def same_tool_twice(message: str, state: dict[str, Any]) -> Iterator[Any]:
    for city in ("Lyon", "Nice"):
        call = ToolCall("look", {"city": city, "options": {"nonce": next(count), "limit": 3}})
        yield Event("tool_call", call=call)
        yield Event("tool_result", call=call, result=[])
    yield "Nothing found."


def answer_with_number(message: str, state: dict[str, Any]) -> str:
    return f"Order {next(count)} of {time.time()}"


def streamed_answer(message: str, state: dict[str, Any]) -> str:
    return f"Order {next(count)} {chance.random()}" + " " * (next(blanks) % 2)


def free_answer(message: str, state: dict[str, Any]) -> str:
    return next(remarks)


def same_answer(message: str, state: dict[str, Any]) -> str:
    state["party"] = {"guests": 2, "rooms": [1, 2]}
    return "A table for two, at eight."


AGENTS: list[Callable[..., Any]] = [
    *(stamped, text_time, milliseconds, day, english_time, clock, process_counter, session_id, hex_id, short_id),
    *(nested, list_of_times, random_score, noise, growing_list, transient, booking, same_tool_twice),
    *(answer_with_number, streamed_answer, free_answer, same_answer),
]
ONCE = {"stamped", "text_time", "nested", "session_id", "hex_id", "transient", "same_answer"}
"""Agents whose first run is green although nothing else was played."""


def play(code: Callable[..., Any], messages: Sequence[str] = MESSAGES) -> Transcript:
    case = Case("c", tuple(map(Turn, messages)), initial_session=SessionInit())
    result = asyncio.run(play_trial(PythonAgent(code, REF), TrialSpec(1, 0, 0, case, REF)))
    assert result.status == "finished", result.error
    return result.transcript


def recorded(transcript: Transcript) -> StoredSession:
    now = datetime.now(UTC)
    final = transcript.final_state
    return StoredSession("s", "stamped", "Book", {}, final, transcript.turns, (), now, now)


def added_case(code: Callable[..., Any], n_replays: int, messages: Sequence[str] = MESSAGES) -> Case:
    return added_case_of(lambda: play(code, messages), n_replays)


def added_case_of(played: Callable[[], Transcript], n_replays: int) -> Case:
    """The case of a session that is played first, and then again so many times."""
    recording = record_session(recorded(played()), app_name="stamped")
    assert recording.recorded_at
    places = changing_places(
        recording.case,
        [played() for _ in range(n_replays)],
        recorded_at=recording.recorded_at.timestamp(),
        start_time=recording.start_time,
    )
    return repeatable_case(recording.case, recording.case, places, {})


def is_green(case: Case, transcript: Transcript) -> bool:
    scores = score_trial(transcript, case, default_criteria([case]))
    assert any(score.passed is not None for score in scores)
    return all(score.passed is not False for score in scores)


@pytest.mark.parametrize("code", AGENTS, ids=lambda code: code.__name__)
def test_the_first_run_after_add_is_green(code: Callable[..., Any]) -> None:
    case = added_case(code, n_replays=2)

    assert [is_green(case, play(code)) for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("code", [each for each in AGENTS if each.__name__ in ONCE], ids=lambda code: code.__name__)
def test_times_and_ids_are_suspected_before_anything_is_played_again(code: Callable[..., Any]) -> None:
    case = added_case(code, n_replays=0)

    assert is_green(case, play(code))


@pytest.mark.parametrize("n_replays", [0, 2])
def test_a_time_of_each_play_is_asserted_from_the_start_of_the_trial_on(n_replays: int) -> None:
    case = added_case(stamped, n_replays)
    an_hour_ago = time.time() - 3600

    def stale(message: str, state: dict[str, Any]) -> str:
        state.setdefault("timer_start", an_hour_ago)
        return stamped(message, state)

    assert {"state": "timer_start", "later": "start"} in cast("list[Any]", case.extra["also_accepted"])
    assert is_green(case, play(stamped))
    assert not is_green(case, play(stale))


def test_a_time_before_the_start_is_asserted_as_later_than_the_recorded_one() -> None:
    def yesterday(message: str, state: dict[str, Any]) -> str:
        state["since"] = time.time() - 24 * 3600
        return "Ready."

    case = added_case(yesterday, 2)

    assert case.extra["also_accepted"] == [{"state": "since", "later": True}]
    assert is_green(case, play(yesterday))


def test_the_start_of_a_trial_is_in_each_of_its_turns_on_every_page_of_it() -> None:
    first, second = play(stamped).turns

    assert first.start_time
    assert first.start_time == second.start_time


@pytest.mark.parametrize(
    ("recorded_value", "value", "start", "is_accepted"),
    [
        (1_764_412_225.5, 1_764_500_000, 1_764_500_000.9, True),
        (1_764_412_225.5, 1_764_412_230, 1_764_500_000, False),
        (1_764_412_225_500, 1_764_500_000_000, 1_764_500_000, True),
        ("2025-11-29T10:30:25Z", "2025-11-30T10:30:25+00:00", 1_764_498_625, True),
        ("2025-11-29T10:30:25Z", "2025-11-30T10:29:25+00:00", 1_764_498_625, False),
        ("2025-11-29 10:30:25", "2025-11-30 00:30:25", 1_764_498_625, True),  # a zone that is not written
        ("2025-11-29 10:30:25", "2025-11-29 19:30:25", 1_764_498_625, False),
        ("2025-11-29", "2025-11-30", 1_764_498_625, True),
        ("2025-11-29", "2025-11-28", 1_764_498_625, False),
        ("2025-11-29", 1_764_500_000, 1_764_498_625, False),
        (1_764_412_225.5, "soon", 1_764_498_625, False),
        (1_764_412_225.5, True, 1_764_498_625, False),
        (1_764_412_225.5, None, 1_764_498_625, False),
        (1_764_412_225.5, 1_764_412_230, None, True),
        (1_764_412_225.5, 1_764_412_220, None, False),
    ],
)
def test_a_time_is_compared_with_the_start_and_without_one_with_the_recorded_time(
    recorded_value: Any, value: Any, start: float | None, is_accepted: bool
) -> None:
    case = Case("c", (Turn("Hi"),), final_state={"k": recorded_value})
    case = replace(case, extra={"also_accepted": [{"state": "k", "later": "start"}]})
    turn = replace(play(same_answer).turns[0], state_after={"k": value}, start_time=start)

    assert is_green(case, Transcript((turn,))) is is_accepted


def test_what_repeats_stays_asserted() -> None:
    case = added_case(booking, n_replays=2)

    (call,) = case.turns[0].expected.tool_calls or ()
    wrong = play(lambda message, state: "Booked for two.")

    assert call.args["guests"] == 2
    assert case.final_state == {"booked": True}
    assert {each.argument for each in read_allowances(case)} == {"request_id", "at"}
    assert not is_green(case, wrong)


def test_an_agent_that_calls_other_tools_each_time_varies_itself_and_stays_asserted() -> None:
    tools = itertools.cycle(["look", "find"])

    def fickle(message: str, state: dict[str, Any]) -> Iterator[Any]:
        call = ToolCall(next(tools), {})
        yield Event("tool_call", call=call)
        yield Event("tool_result", call=call, result=1)
        yield "Here."

    recording = record_session(recorded(play(fickle)), app_name="a")
    next(tools)
    (place, *_) = changing_places(recording.case, [play(fickle)])

    assert (place.key, place.why, place.proposed_way) == ("1.calls", "changes each time", "recorded")
    assert place.recorded_words == "look"


def test_only_the_framework_keeps_temp_and_adk_keys() -> None:
    assert record_session(recorded(play(transient)), app_name="a").final_state == {}


@pytest.mark.parametrize(
    ("value", "others", "look", "kind"),
    [
        (1_764_412_225.5, (1_764_412_230.1,), "time", "later"),
        ("2025-11-29 10:30:25.1", ("2025-11-29 10:30:29.7",), "time", "later"),
        ("2025-11-29T10:30:25Z", ("2025-11-29T10:31:25Z",), "time", "later"),
        ("10:30:25", ("10:30:29",), "time", "pattern"),
        (3, (4, 5), "counter", "type"),
        (5, (9, 4), "random", "type"),
        (0.25, (0.75,), "random", "type"),
        (100.0, (100.2,), "random", "within"),
        ("ORD-17", ("ORD-18",), "id", "pattern"),
        ("a1b2c3d4e5f60718", (), "id", "pattern"),
        ("blue", ("green",), "", "type"),
        ({"a": 1}, ([1],), "", "any"),
        (True, (False,), "", "type"),
        (None, (1,), "", "any"),
    ],
)
def test_a_changing_value_is_named_by_its_look_and_has_a_matcher(
    value: Any, others: tuple[Any, ...], look: str, kind: str
) -> None:
    matchers = matchers_for(Allowance(state="k"), look_of(value, others), value, others)

    assert look_of(value, others) == look
    assert next(iter(matchers)) == kind
    assert all(
        each.type == "any" or kind_name == "later" or each.reason(value, other)
        for kind_name, each in matchers.items()
        for other in others
    )


@pytest.mark.parametrize(
    ("texts", "pattern"),
    [
        (["ORD-17", "ORD-9"], r"ORD-\d+"),
        (["a/1f", "a/9c"], "a/[0-9a-f]{2}"),
        (["x1.csv", "x22.csv"], r"x\d+\.csv"),
        (["one two", "one three"], "one t[0-9A-Za-z]+"),
        (["one", "two"], "[0-9A-Za-z]{3}"),
    ],
)
def test_a_pattern_keeps_what_the_texts_share(texts: list[str], pattern: str) -> None:
    assert pattern_of(texts) == pattern


def test_the_blank_at_the_end_of_a_streamed_answer_is_no_part_of_its_pattern() -> None:
    pattern = sentence_pattern(["Order 7 is late. ", "Order 81 is late."])

    assert pattern == r"Order \S+ is late\."
    assert [
        Allowance(1, answer_pattern=pattern).accepts_answer(answer)
        for answer in ("Order 9 is late.", "Order 9 is late. ", "Order 9 is late. Sorry.")
    ] == [True, True, False]


def test_a_value_that_the_user_gave_is_not_suspected() -> None:
    given = str(uuid.uuid4())
    case = Case("c", (Turn(f"Cancel {given}"),), final_state={"cancelled": given, "made": str(uuid.uuid4())})

    assert [place.key for place in changing_places(case)] == ["state.made"]


def test_a_suspected_value_that_a_replay_repeats_is_none() -> None:
    case = added_case(same_answer, 0)
    constant = replace(case, final_state={"shop_id": str(uuid.uuid4())})
    turns = play(same_answer).turns
    again = Transcript((turns[0], replace(turns[1], state_after=constant.final_state or {})))

    assert [place.key for place in changing_places(constant)] == ["state.shop_id"]
    assert changing_places(constant, [again]) == ()


NOON = datetime(2025, 11, 30, 12, 0, 20, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("value", "others_began_after_s", "is_suspect"),
    [
        (int(NOON), 0.5, True),
        (int(NOON), 4.0, False),
        (NOON + 0.25, 0.5, False),
        (f"{int(NOON)}", 0.5, True),
        ("2025-11-30T12:00:20Z", 0.5, True),
        ("2025-11-30 12:00:20", 4.0, False),
        ("2025-11-30 12:00:20.5", 0.5, False),
        ("2025-11-30 12:00", 40.0, True),
        ("2025-11-30 12:00", 200.0, False),
        ("12:00", 40.0, True),
        ("12:00 pm", 40.0, True),
        ("12:00", 200.0, False),
        ("12:00:20", 0.5, True),
        ("09:30", 0.5, False),
        ("2025-11-30", 40.0, True),
        ("2025-11-30", 90_000.0, False),
        ("2025-11-30T20:15:00Z", 0.5, False),  # a time of this evening, and no clock
        (int(NOON) - 100_000, 0.5, False),
        (3, 0.5, False),
        ("d9b2d63d-a233-4123-847a-7a7b0c0f0a11", 0.5, False),
    ],
)
def test_plays_that_begin_in_one_step_of_a_clock_do_not_show_that_a_time_repeats(
    value: Any, others_began_after_s: float, is_suspect: bool
) -> None:
    case = Case("c", (Turn("Hi"),), final_state={"at": value})
    turn = replace(
        play(same_answer, ["Hi"]).turns[0], state_after={"at": value}, start_time=NOON + others_began_after_s
    )

    places = changing_places(case, [Transcript((turn,))], recorded_at=NOON + 2, start_time=NOON)

    assert [(each.key, each.look) for each in places] == ([("state.at", "time")] if is_suspect else [])


def test_accepted_places_are_found_once() -> None:
    case = added_case(nested, 2)

    assert changing_places(case, [play(nested)]) == ()


@pytest.mark.parametrize(
    ("duration_ms", "usages", "is_so"),
    [(100, (), True), (10_000, (), False), (10_000, (0.001,), True), (100, (0.5,), False), (100, (None,), False)],
)
def test_only_a_cheap_conversation_is_played_again_unasked(
    duration_ms: float, usages: tuple[float | None, ...], is_so: bool
) -> None:
    from evaldesk.model import TurnRecord, Usage

    events = tuple(Event("usage", usage=Usage("m", cost=cost)) for cost in usages)

    assert is_cheap((TurnRecord("q", events, duration_ms=duration_ms),)) is is_so


def test_of_a_large_state_the_first_values_are_looked_at() -> None:
    late = {f"key_{at}": "text 20251129" for at in range(MAX_VALUES)} | {"made": str(uuid.uuid4())}
    early = dict(reversed(late.items()))

    found = [changing_places(Case("c", (Turn("q"),), final_state=state)) for state in (late, early)]

    assert [[place.key for place in places] for places in found] == [[], ["state.made"]]

"""The inbox in the browser: the list by a filter, a conversation to read and label, and drafts of cases."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conversations import put_conversation
from tests.spans_of_agents import request, turn_spans

from evaldesk.desk.inbox.joining import join_new
from evaldesk.desk.inbox.receiver import span_reader
from evaldesk.model import AgentDescription, AgentRef, Event, Transcript, TrialResult, TurnRecord
from evaldesk.model.inbox import VERDICT, InboxScore
from evaldesk.pages.inbox import cursor_text, read_cursor

Pages = Any


@pytest.fixture
def train(pages: Pages, tmp_path: Path) -> int:
    """A conversation with a tool, out of spans."""
    store = pages.desk.store
    body = json.dumps(request(turn_spans("Train <b>to</b> Graz?", "On Friday.", tool="search"))).encode()
    store.inbox_spans.receive(span_reader((), {}, tmp_path).batches(body, "spans", "shop", is_json=True))
    join_new(store, 0)
    number: int = store.inbox.list().items[0].id
    return number


@pytest.fixture
def broken(pages: Pages) -> int:
    """A conversation with an error and bad feedback."""
    return put_conversation(pages.desk.store, "Broken & late", feedback=-1.0, source="shop", tools=("refund",))


def test_an_empty_inbox_names_the_next_step(pages: Pages) -> None:
    text = pages.get("/inbox").text

    assert "No conversations yet" in text
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318" in text


def test_the_list_shows_the_conversations_that_a_filter_finds(pages: Pages, train: int, broken: int) -> None:
    whole, errors = pages.get("/inbox").text, pages.get("/inbox?q=error").text

    assert "2 conversations" in whole
    assert "Train &lt;b&gt;to&lt;/b&gt; Graz?" in whole
    assert f'href="/inbox/{broken}"' in errors
    assert f'href="/inbox/{train}"' not in errors
    assert "error <b>1</b>" in errors


def test_a_filter_that_cannot_be_read_is_told(pages: Pages, train: int) -> None:
    answer = pages.get("/inbox?q=turns")

    assert answer.status_code == 422
    assert "turns needs a comparison" in answer.text
    assert "1 conversation;" in answer.text  # of the inbox: the filter chose none
    assert "No matching conversations" not in answer.text


def test_pages_of_the_list_follow_each_other(pages: Pages) -> None:
    for number in range(53):
        put_conversation(pages.desk.store, f"Question {number}", source="shop")

    first = pages.get("/inbox").text
    second = pages.get(f"/inbox?{first.partition('/inbox?q=&amp;')[2].partition(chr(34))[0]}").text

    assert (first.count("Select conversation"), second.count("Select conversation")) == (50, 3)


@pytest.mark.parametrize("text", ["", "x", "1-", "-1-2", "9" * 30 + "-1", "1-\u0661", "\u0661-1"])
def test_another_cursor_is_the_first_page(pages: Pages, train: int, text: str) -> None:
    assert pages.get(f"/inbox?after={text}").status_code == 200


def test_a_cursor_is_read_back(pages: Pages) -> None:
    for number in range(51):
        put_conversation(pages.desk.store, f"Question {number}", source="shop")
    following = pages.desk.inbox.list().following

    assert read_cursor(cursor_text(following)) == following


def test_a_conversation_is_read_and_labelled(pages: Pages, train: int) -> None:
    text = pages.get(f"/inbox/{train}").text
    assert pages.desk.inbox.count("state:new") == 1
    assert pages.post(f"/inbox/{train}/reading", {}).status_code == 200
    assert pages.desk.inbox.count("state:read") == 1

    answer = pages.post(f"/inbox/{train}/label", {"verdict": "failed", "note": "wrong <day>"})
    labelled = pages.get(answer.headers["location"]).text

    assert "On Friday." in text
    assert "search(" in text
    assert answer.status_code == 303
    assert "wrong &lt;day&gt;" in labelled
    assert "a person labelled it failed" in labelled
    assert pages.desk.inbox.list("state:read").items[0].id == train
    assert pages.post(f"/inbox/{train}/label", {"verdict": "great"}).status_code == 422
    assert pages.get("/inbox/999").status_code == 404
    assert pages.get(f"/inbox/{2**40}").status_code == 404


def test_chosen_conversations_are_dropped_and_taken_back(pages: Pages, train: int, broken: int) -> None:
    pages.post("/inbox/dropped", {"conversation": [str(train), str(broken), "x", "0"]})
    assert pages.desk.inbox.count("state:dropped") == 2

    answer = pages.post("/inbox/dropped", {"conversation": str(train), "undo": "on", "q": "state:dropped turns>0"})

    assert answer.headers["location"] == "/inbox?q=state%3Adropped+turns%3E0"
    assert [each.id for each in pages.desk.inbox.list("state:dropped").items] == [broken]


def test_drafts_expect_good_outcomes_alone_and_become_cases(pages: Pages, train: int, broken: int) -> None:
    text = pages.get(f"/inbox/cases?conversation={train}&conversation={broken}").text
    form = {"conversation": [str(train), str(broken)], "name": "of_users", "evalset": ""}
    form |= {f"chosen-{train}": "on", f"id-{train}": "graz", f"turn-{train}": "0", f"expectation-{train}-0": "calls"}

    answer = pages.post("/inbox/cases", form)
    evalset = pages.desk.evalsets.evalset(answer.headers["location"].rpartition("/")[2])
    again = pages.get(f"/inbox/cases?conversation={train}&evalset={answer.headers['location'].rpartition('/')[2]}").text

    assert f'name="expectation-{train}-0" value="calls" checked' in text
    assert f'name="expectation-{broken}-0" value="open" checked' in text
    assert "Its calls are not expected, because it had an error." in text
    assert [case.id for case in evalset.cases] == ["graz"]
    assert [call.name for call in evalset.cases[0].turns[0].expected.tool_calls] == ["search"]
    assert "left out: the same first message as graz" in again
    assert pages.desk.inbox.list("state:case").items[0].id == train


@pytest.mark.parametrize("change", ["nothing-ticked", "no-turn", "expectation", "set"])
def test_drafts_that_cannot_be_are_shown_again(pages: Pages, train: int, change: str) -> None:
    form = {"conversation": str(train), "name": "n", "evalset": ""}
    form |= {f"chosen-{train}": "on", f"turn-{train}": "0", f"expectation-{train}-0": "open"}
    form |= {
        "nothing-ticked": {f"chosen-{train}": ""},
        "no-turn": {f"turn-{train}": ""},
        "expectation": {f"expectation-{train}-0": "any"},
        "set": {"evalset": "gone"},
    }[change]

    assert pages.post("/inbox/cases", form).status_code == (404 if change == "set" else 422)
    assert pages.desk.inbox.list("state:case").items == []


def test_a_proposed_name_of_a_case_ends_with_a_whole_word(pages: Pages) -> None:
    words = "Train from Vienna to Graz next Friday, two of us"
    long = put_conversation(pages.desk.store, words, source="shop")
    one = put_conversation(pages.desk.store, "x" * 60, source="shop")

    text = pages.get(f"/inbox/cases?conversation={long}&conversation={one}").text

    assert 'value="train_from_vienna_to_graz_next_friday"' in text
    assert f'value="{"x" * 40}"' in text


def test_a_refused_form_of_drafts_keeps_its_values_and_makes_no_set(pages: Pages, train: int, broken: int) -> None:
    form = {"conversation": [str(train), str(broken)], "name": "of_users", "evalset": ""}
    for each in (train, broken):
        form |= {f"chosen-{each}": "on", f"id-{each}": "same <id>", f"expectation-{each}-0": "none"}
    form |= {f"turn-{train}": "0", f"turn-{broken}": "0"}
    n_sets = len(pages.desk.evalsets.list())

    twice = pages.post("/inbox/cases", form)
    turnless = pages.post("/inbox/cases", form | {f"turn-{train}": "", f"chosen-{broken}": ""})

    assert (twice.status_code, turnless.status_code) == (422, 422)
    assert "give one another name" in twice.text
    assert 'value="of_users"' in twice.text
    assert twice.text.count('value="same &lt;id&gt;"') == 2
    assert f'name="expectation-{train}-0" value="none" checked' in twice.text
    assert f'name="turn-{train}" value="0">' in turnless.text
    assert f'name="chosen-{broken}" value="on">' in turnless.text
    assert f'name="chosen-{train}" value="on" checked>' in turnless.text
    assert len(pages.desk.evalsets.list()) == n_sets


def test_no_conversation_leads_back_to_the_list(pages: Pages) -> None:
    assert pages.get("/inbox/cases").headers["location"] == "/inbox"


def test_a_draw_is_made_on_the_page_and_read_to_its_share(pages: Pages, broken: int) -> None:
    """One error among 5 conversations; two of the others are twins, of which one is drawn."""
    for number in range(4):
        put_conversation(
            pages.desk.store, f"Q{number}", source="shop", has_error=False, twin_group=f"g{min(number, 2)}"
        )
    form = pages.get("/inbox/draw").text
    answer = pages.post("/inbox/draws", {**STRATA, "seed": "7", "twins": "on"})
    address = answer.headers["location"]
    drawn = pages.get(address).text
    seen = []
    while place := re.search(r'href="(/inbox/\d+\?draw=1)" data-key="o"', pages.get(address).text):
        conversation = place[1].split("/")[2].split("?")[0]
        seen.append(int(conversation))
        verdict = "failed" if int(conversation) == broken else "passed"
        said = pages.post(f"/inbox/{conversation}/label", {"verdict": verdict, "draw": "1"})
    text = pages.get("/inbox").text

    assert "draw <input" in form
    assert (form.count("of 1</span>"), form.count("of 4</span>")) == (1, 1)
    assert address == "/inbox/draws/1"
    assert "0 of 4 read" in drawn
    assert seen[0] == broken
    assert len(seen) == 4
    assert said.headers["location"] == "/inbox/draws/1"
    assert "20 % of 5 conversations fail" in text  # and not 1 of 4 read
    assert "could be" in text
    assert "(1 × 1/1 + 4 × 0/3) / 5" in text
    assert "counts as all of the group" in text
    assert "all 4 read" in text


STRATA = {"stratum": ["error", "", "rest"], "number": ["all", "3", "all"]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"number": ["all", "", "some"]}, "a stratum is a filter, a colon"),
        ({"stratum": ["eror", "", ""]}, "did you mean error?"),
        ({"seed": "x"}, "a seed is a number"),
        ({"q": "turns"}, "turns needs a comparison"),
        ({"stratum": ["tool:none", "", ""]}, "no conversation meets the filters"),
        ({"stratum": ["", "", ""]}, "a draw has 1 to 20 strata, got 0"),
    ],
)
def test_a_draw_that_cannot_be_is_shown_again(pages: Pages, train: int, change: dict[str, Any], sentence: str) -> None:
    answer = pages.post("/inbox/draws", STRATA | change)

    assert answer.status_code == 422
    assert sentence in html.unescape(answer.text)
    assert pages.desk.draws.newest() is None


def test_the_form_of_a_draw_counts_typed_strata(pages: Pages, train: int, broken: int) -> None:
    text = pages.get("/inbox/draw?stratum=feedback%3C0&number=1&stratum=&number=&stratum=rest&number=9").text

    assert re.findall(r"of (\d+)</span>", text) == ["1", "1"]
    assert pages.get("/inbox/draw?stratum=turns&number=1").status_code == 422
    assert pages.get("/inbox/draws/9").status_code == 404
    assert pages.get(f"/inbox/draws/{2**40}").status_code == 404
    assert pages.get(f"/inbox/{train}?draw=x").status_code == 200
    assert pages.post(f"/inbox/{train}/label", {"verdict": "passed", "draw": "77"}).status_code == 404


def test_the_strip_shows_the_share_of_each_day_and_the_alarm(pages: Pages) -> None:
    assert 'id="rates"' not in pages.get("/inbox").text
    assert 'id="rates"' not in pages.get("/").text
    for number in range(60):
        conversation = put_conversation(
            pages.desk.store, f"Q{number}", release="1.4" if number < 40 else "1.<5", ending="closed"
        )
        score = InboxScore(VERDICT, None, number < 40 or number % 4 == 0, "", "sample")
        pages.desk.store.inbox.record_scores({conversation: [score]})

    page, home = pages.get("/inbox").text, pages.get("/").text
    strip = pages.get("/inbox/rates").text

    assert 'hx-get="/inbox/rates"' in page
    assert 'hx-get="/inbox/rates"' in home
    assert "Below 85 %, release 1.&lt;5: 5 of 20 passed" in strip
    assert "alarm, " in strip
    assert "75 points less than release 1.4" in strip
    assert (strip.count("<circle cx"), strip.count("<rect")) == (1, 1)  # a day of each release
    assert "one false alarm in 10,000 scored" in strip


def test_without_scores_the_strip_is_empty(pages: Pages, train: int) -> None:
    assert "<svg" not in pages.get("/inbox/rates").text


def test_conversations_are_played_by_an_agent_beside_them_as_seen(
    pages: Pages, train: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Host:
        async def describe(self, ref: AgentRef) -> AgentDescription:
            return AgentDescription(ref.id, ref.kind)

    monkeypatch.setattr(pages.desk, "host", Host())
    agent = pages.desk.agents.list()[0].id
    text = pages.get(f"/inbox/cases?conversation={train}").text

    answer = pages.post("/inbox/replays", {"conversation": str(train), "agent": agent, "n": "2"})

    assert 'action="/inbox/replays"' in text
    assert f"<option>{agent}</option>" in text
    assert answer.status_code == 303
    assert re.fullmatch(r"/compare\?a=\d+&b=\d+", answer.headers["location"])
    assert pages.desk.store.runs.summary(int(answer.headers["location"].rpartition("=")[2])).config.n == 2


@pytest.mark.parametrize(
    ("change", "status"), [({"n": "0"}, 422), ({"n": "1001"}, 422), ({"n": "x"}, 422), ({"agent": "os:system"}, 404)]
)
def test_a_replay_that_cannot_be_plays_nothing(pages: Pages, train: int, change: dict[str, str], status: int) -> None:
    form = {"conversation": str(train), "agent": pages.desk.agents.list()[0].id, "n": "2"}

    assert pages.post("/inbox/replays", form | change).status_code == status
    assert pages.desk.store.runs.list() == []


def stated_conversation(pages: Pages, *, has_state: bool = True) -> int:
    """A conversation of two turns."""
    turns = tuple(
        TurnRecord(
            f"Question {at}",
            (Event("agent_message", 1.0, text=f"Answer {at}", author="<b>shop</b>"),),
            {"n": at} if has_state else {},
            {"n": at + 1} if has_state else {},
        )
        for at in range(2)
    )
    result = TrialResult(0, 0, 0, "finished", "unscored", transcript=Transcript(turns))
    return put_conversation(pages.desk.store, "Question 0", result, source="shop", n_turns=2)


def test_a_conversation_is_forked_as_it_was_seen_and_stored_once(pages: Pages) -> None:
    number = stated_conversation(pages)

    first = pages.post(f"/inbox/{number}/forks", {"turn": "2"})
    again = pages.post(f"/inbox/{number}/forks", {})
    text = pages.get(first.headers["location"]).text
    agent = pages.desk.agents.list()[0].id
    started = pages.post(first.headers["location"].partition("?")[0], {"turn": "2", "n": "1", "agent": agent})

    assert f'action="/inbox/{number}/forks"' in pages.get(f"/inbox/{number}").text
    assert first.headers["location"] == "/runs/1/cases/0/trials/0/fork?turn=2"
    assert again.headers["location"] == "/runs/1/cases/0/trials/0/fork?turn=1"
    assert "Fork before turn 2" in text
    assert "name the agent that plays on" in text
    assert f'<option value="{agent}">' in text
    assert (started.status_code, len(pages.desk.store.forks.of_run(1))) == (303, 1)
    (fork,) = pages.desk.store.forks.of_run(1)
    assert [turn.answer for turn in pages.desk.store.forks.pinned(fork.id)] == ["Answer 0"]


def test_a_conversation_without_a_state_is_forked_before_its_first_turn_alone(pages: Pages) -> None:
    fork = pages.post(f"/inbox/{stated_conversation(pages, has_state=False)}/forks", {}).headers["location"]
    address, agent = fork.partition("?")[0], pages.desk.agents.list()[0].id

    refused = pages.post(address, {"turn": "2", "n": "1", "agent": agent})
    started = pages.post(address, {"turn": "1", "n": "1", "agent": agent})

    assert refused.status_code == 422
    assert "tells no session state; the nearest point that can be forked is before turn 1" in refused.text
    assert started.status_code == 303


def test_a_conversation_that_is_not_there_has_no_forks(pages: Pages) -> None:
    assert pages.post("/inbox/7/forks", {}).status_code == 404
    assert pages.desk.store.runs.list() == []

"""The page of the prompt bench, without a script: drafts, chats with them, and kept files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.islands import of_tools
from tests.web.conftest import DICE, ChatDesk, ScriptedHost

from evaldesk.model import AgentDescription, Event, TurnRecord

OWN = "Roll when asked.\nToday is {today}."
DRAFT = "Roll when asked.\nSay {lucky} first.\nToday is {today}."
TREE = replace(
    DICE,
    kind="adk",
    instruction=OWN,
    takes_instruction=True,
    initial_state={"today": ""},
    sub_agents=(AgentDescription("checker", "LlmAgent", instruction="Check primes.", takes_instruction=True),),
)


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost([Event("agent_message", text="rolled")], descriptions={"dice": TREE})


def post(chat: ChatDesk, path: str, status: int = 303, **fields: Any) -> Any:
    answer = chat.client.post(f"/bench{path}", data={"agent": "dice", "name": "lucky", **fields})
    assert answer.status_code == status, answer.text
    return answer


def text_in(page: str, label: str = "instruction") -> str:
    """The text of an editor."""
    found = re.search(rf'<textarea [^>]*name="{re.escape(label)}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    assert found
    return unescape(found[1])


def files_below(folder: Path) -> dict[str, str]:
    """The digests of the files of the project, without the notes of the desk."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and ".evaldesk" not in path.parts
    }


def test_the_editor_holds_the_instructions_of_the_whole_tree(chat: ChatDesk) -> None:
    page = chat.client.get("/bench?agent=dice").text

    assert text_in(page) == OWN
    assert text_in(page, "instruction@checker") == "Check primes."
    assert "The draft is the original." in page


def test_an_agent_without_an_instruction_says_what_to_declare(
    open_chat: Callable[[], ChatDesk], host: ScriptedHost
) -> None:
    host.descriptions["dice"] = DICE
    chat = open_chat()

    page = chat.client.get("/bench?agent=dice").text

    assert "dice takes no instruction" in page
    assert "def make_agent(instruction=" in page
    assert "<textarea" not in page


@of_tools("adk")  # whose kind fills instructions from the state
def test_the_difference_and_what_the_state_lacks_are_shown_before_a_trial(chat: ChatDesk) -> None:
    page = post(chat, "", 200, instruction=DRAFT.replace("\n", "\r\n")).text

    assert text_in(page) == DRAFT
    assert "+1 −0" in page
    assert "<td>Say {lucky} first.</td>" in page
    assert "<code data-missing>{lucky}</code> is not in it" in page
    assert "<code>{today}</code>" in page


def test_a_chat_with_the_draft_is_played_with_it_and_marked(chat: ChatDesk, host: ScriptedHost) -> None:
    answer = post(chat, "/chats", 303, message="hello", instruction=DRAFT, **{"instruction@checker": "Check twice."})

    session_id = parse_qs(urlsplit(answer.headers["location"]).query)["session"][0]
    finish(chat, session_id)
    chat.say(f"/sessions/{session_id}", "again")
    options = [spec.model_options for spec in host.specs]
    assert [(each.instruction, each.instructions) for each in options] == [(DRAFT, {"checker": "Check twice."})] * 2
    for address in (f"/sessions/{session_id}", f"/bench?session={session_id}"):
        page = chat.client.get(address).text
        assert "a drafted instruction" in page
    assert '<span class="tag">draft</span>' in chat.client.get(f"/sessions/{session_id}").text
    assert text_in(page) == DRAFT
    assert text_in(page, "instruction@checker") == "Check twice."


def finish(chat: ChatDesk, session_id: str) -> None:
    while chat.desk.sessions.find_running_turn(session_id):
        chat.client.get(f"/sessions/{session_id}/events?after=0", headers={"accept": "text/event-stream"})


def test_an_ordinary_session_has_the_own_instruction_and_the_bench_beside_it(
    chat: ChatDesk, host: ScriptedHost
) -> None:
    session = chat.new_session()
    chat.say(session)

    page = chat.client.get(session).text

    assert (host.specs[0].model_options.instruction, host.specs[0].model_options.instructions) == (None, {})
    assert "a drafted instruction" not in page
    assert f'href="/bench?session={session.rpartition("/")[2]}"' in page


def test_a_branch_of_a_chat_with_a_draft_keeps_the_draft(chat: ChatDesk, host: ScriptedHost) -> None:
    answer = post(chat, "/chats", message="hello", instruction=DRAFT)
    session_id = parse_qs(urlsplit(answer.headers["location"]).query)["session"][0]
    finish(chat, session_id)

    branch = chat.client.post(f"/sessions/{session_id}/branches", data={"turn": "1"}).headers["location"]
    finish(chat, branch.rpartition("/")[2].partition("#")[0])

    assert [spec.model_options.instruction for spec in host.specs] == [DRAFT, DRAFT]


def test_a_chat_begins_again_from_its_first_message_with_the_present_draft(chat: ChatDesk, host: ScriptedHost) -> None:
    session = chat.new_session('{"today": "Friday"}')
    chat.desk.store.sessions.append_turn(session.rpartition("/")[2], TurnRecord("first message", ()))

    answer = post(chat, "/chats", session=session.rpartition("/")[2], agent="", again="1", instruction=DRAFT)

    finish(chat, parse_qs(urlsplit(answer.headers["location"]).query)["session"][0])
    (spec,) = host.specs
    assert (spec.message, spec.state, spec.model_options.instruction) == ("first message", {"today": "Friday"}, DRAFT)


def test_a_message_from_the_bench_leads_back_to_it_without_a_script(chat: ChatDesk) -> None:
    session = chat.new_session()

    answer = chat.client.post(f"{session}/turns", data={"message": "hi", "bench": "1"})

    assert answer.headers["location"] == f"/bench?session={session.rpartition('/')[2]}#turn-1"
    finish(chat, session.rpartition("/")[2])


def test_a_kept_prompt_is_the_only_file_that_is_written_and_undo_takes_it_back(chat: ChatDesk) -> None:
    folder = chat.desk.settings.workspace
    before = files_below(folder)

    saved = post(chat, "/prompts", instruction=DRAFT).headers["location"]
    page = chat.client.get(saved).text

    after = files_below(folder)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"prompts/lucky.md"}
    assert (folder / "prompts" / "lucky.md").read_text() == DRAFT
    assert "Saved as <code>prompts/lucky.md</code>" in page
    assert text_in(page) == DRAFT
    assert text_in(chat.client.get("/bench?agent=dice&prompt=lucky").text) == DRAFT

    undone = post(chat, "/prompts/undo", 200, token=parse_qs(urlsplit(saved).query)["saved"][0]).text

    assert files_below(folder) == before
    assert text_in(undone) == DRAFT
    assert "is undone" in undone


def test_the_instruction_of_one_agent_of_the_tree_is_kept_and_the_others_stay_in_the_editor(chat: ChatDesk) -> None:
    fields = {"instruction": DRAFT, "instruction@checker": "Check twice.", "of": "instruction@checker"}

    page = chat.client.get(post(chat, "/prompts", 303, **fields).headers["location"]).text

    assert (chat.desk.prompts.folder / "lucky.md").read_text() == "Check twice."
    assert text_in(page) == DRAFT
    assert text_in(page, "instruction@checker") == "Check twice."


def test_a_taken_name_is_a_question_with_a_free_name(chat: ChatDesk) -> None:
    post(chat, "/prompts", instruction=DRAFT)

    page = post(chat, "/prompts", 409, instruction="Other.").text
    digest = re.search(r'name="replaces" value="([0-9a-f]{64})"', page)
    assert digest
    assert 'name="rename" value="lucky_2"' in page
    assert text_in(page) == "Other."

    post(chat, "/prompts", instruction="Other.", rename="lucky_2")
    post(chat, "/prompts", instruction="Third.", replaces=digest[1])

    texts = {each.name: each.text for each in chat.desk.prompts.list()}
    assert texts == {"lucky": "Third.", "lucky_2": "Other."}


def test_a_file_of_the_agent_is_not_offered_to_be_replaced(chat: ChatDesk) -> None:
    chat.desk.prompts.folder.mkdir()
    (chat.desk.prompts.folder / "lucky.md").write_text("Of the agent.")

    page = post(chat, "/prompts", 409, instruction=DRAFT, replaces="0" * 64).text

    assert "was not written here, so it stays as it is" in page
    assert 'name="replaces"' not in page
    assert (chat.desk.prompts.folder / "lucky.md").read_text() == "Of the agent."


@pytest.mark.parametrize(
    ("path", "fields", "status", "words"),
    [
        ("/prompts", {"name": "../x", "instruction": DRAFT}, 422, "A name is up to 100"),
        ("/prompts", {"name": "", "instruction": DRAFT}, 422, "A name is up to 100"),
        ("/prompts", {"of": "instruction@nobody", "instruction": DRAFT}, 422, "Choose the instruction"),
        ("/prompts", {"instruction": " "}, 422, "is empty"),
        ("/chats", {"instruction": "", "message": "hi"}, 422, "is empty"),
        ("/chats", {"instruction": DRAFT, "message": "x" * 200_001}, 422, "at most 200,000"),
        ("/runs", {"instruction": OWN}, 422, "The draft is the original"),
        ("/runs", {"instruction": ""}, 422, "is empty"),
        ("/runs", {"experiment": "99"}, 422, "there is no experiment 99"),
        ("/prompts/undo", {"token": "0" * 16}, 404, "cannot be undone"),
        ("", {"agent": "nobody"}, 404, "nobody"),
        ("", {"session": "nobody"}, 404, "no session"),
    ],
    ids=[
        "a path as name",
        "no name",
        "nobody's instruction",
        "blank",
        "empty chat",
        "long message",
        "no change",
        "empty draft",
        "unknown experiment",
        "unknown save",
        "unknown agent",
        "unknown session",
    ],
)
def test_a_request_that_cannot_be_leaves_nothing_behind(
    chat: ChatDesk, path: str, fields: dict[str, str], status: int, words: str
) -> None:
    before = files_below(chat.desk.settings.workspace)

    page = unescape(post(chat, path, status, **fields).text)

    assert words in page
    assert files_below(chat.desk.settings.workspace) == before
    assert chat.desk.sessions.list() == []
    assert chat.desk.store.experiments.list() == []


def test_a_draft_of_an_agent_whose_judge_no_provider_has_is_not_played(
    chat: ChatDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(chat.desk.settings, judges=("antropic/x",))
    for each in (chat.desk, chat.desk.runs):
        monkeypatch.setattr(each, "settings" if each is chat.desk else "_settings", settings)
    criterion = {"threshold": 0.5, "judge_model": "antropic/x", "rubrics": ["Is kind."]}
    case = {"eval_id": "a", "conversation": [{"user_content": {"parts": [{"text": "roll"}]}}]}
    content: dict[str, Any] = {"eval_set_id": "judged", "eval_cases": [case]}
    content["criteria"] = {"rubric_based_final_response_quality_v1": criterion}
    path = chat.desk.settings.workspace / "agents" / "dice" / "judged.evalset.json"
    path.write_text(json.dumps(content))
    judged = next(each for each in chat.desk.evalsets.list() if each.name == "judged")

    page = unescape(post(chat, "/runs", 422, instruction=DRAFT, evalset=judged.id).text)

    assert "the judge 'antropic/x' of rubric_based_final_response_quality_v1: no provider is named" in page
    assert chat.desk.store.experiments.list() == []


@pytest.mark.parametrize(
    "query", ["experiment=9", "experiment=x", "prompt=nothing", "saved=zz", "n=999999999", "evalset=no"]
)
def test_an_address_of_something_that_is_gone_is_no_defect(chat: ChatDesk, query: str) -> None:
    assert chat.client.get(f"/bench?agent=dice&{query}").status_code in (200, 404)


def write_own_trials(chat: ChatDesk, n: int) -> None:
    """An eval set of two cases, of which one has a number of trials of its own."""
    turn = {"user_content": {"parts": [{"text": "roll"}]}, "final_response": {"parts": [{"text": "rolled"}]}}
    cases = [{"eval_id": f"c{at}", "conversation": [turn], **({"trials": n} if at else {})} for at in range(2)]
    path = chat.desk.settings.workspace / "agents" / "dice" / "own.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "own", "eval_cases": cases}))


def test_the_plan_of_a_draft_counts_the_trials_that_a_case_has_of_its_own(chat: ChatDesk) -> None:
    write_own_trials(chat, 7)

    page = post(chat, "", 200, instruction=DRAFT, n="3").text

    assert "2 cases × 3 show" in page
    assert "2 variants, some cases with trials of their own: 20 trials" in page


def test_a_number_of_trials_of_a_case_that_cannot_be_is_said_by_the_plan(chat: ChatDesk) -> None:
    write_own_trials(chat, 0)

    page = post(chat, "", 200, instruction=DRAFT).text

    assert "trials must be 1 to 1,000, got 0" in page


@pytest.mark.parametrize(
    "n", [f"000001{'9' * 5_000}", "0000019999999999", "²", ""], ids=["huge", "large", "sign", "no"]
)
def test_a_number_of_trials_that_cannot_be_is_that_of_the_desk(
    open_chat: Callable[[], ChatDesk], tmp_path: Path, n: str
) -> None:
    case = {"eval_id": "one", "conversation": [{"user_content": {"parts": [{"text": "hi"}]}}]}
    (tmp_path / "agents" / "words.evalset.json").write_text(json.dumps({"eval_set_id": "words", "eval_cases": [case]}))

    page = open_chat().client.get(f"/bench?agent=dice&n={n}")

    assert page.status_code == 200
    assert "1 × 10 × 2 = 20 trials" in page.text


def test_the_part_that_follows_the_typing_is_a_block_of_the_page(chat: ChatDesk) -> None:
    answer = chat.client.post(
        "/bench",
        data={"agent": "dice", "instruction": DRAFT},
        headers={"HX-Request": "true", "HX-Target": "div#draft"},
    )

    assert answer.status_code == 200
    assert "<html" not in answer.text
    assert "+1 −0" in answer.text

"""The agents page: what each agent is, or why it does not load."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.islands import of_tools
from tests.web.conftest import DICE

from evaldesk.engine.driver.zygote import UNFORKED
from evaldesk.model import AgentDescription, Event, ToolDescription
from evaldesk.pages.agents import signature


def loaded(chat: Any) -> str:
    """The page once every agent has answered."""
    for agent in chat.desk.agents.list():
        chat.client.get(f"/sessions/new?agent={agent.id}")
    return str(chat.client.get("/agents").text)


def test_an_agent_shows_its_model_tools_and_instruction(chat: Any) -> None:
    page = loaded(chat)

    assert "scripted demo model" in page
    assert "sides: integer" in page
    assert "Roll when asked. &lt;b&gt;Never&lt;/b&gt; guess." in page
    assert 'href="/sessions/new?agent=dice"' in page
    assert 'href="/runs/new?agent=dice"' in page


def test_an_agent_that_was_not_forked_says_why(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "<dt>Players</dt>" not in loaded(chat)
    ref = next(agent.ref for agent in chat.desk.agents.list() if agent.id == "dice")
    monkeypatch.setitem(UNFORKED, ref, "it keeps <b>a thread</b> running")

    page = loaded(chat)

    assert "<dd>each player imports it anew: it keeps &lt;b&gt;a thread&lt;/b&gt; running</dd>" in page


def test_an_agent_that_does_not_load_shows_why_with_the_trace(chat: Any) -> None:
    page = loaded(chat)

    assert "No module named &#39;pdf_tables&#39;" in page
    assert "Traceback: &lt;agent.py&gt;, line 4" in page


def test_the_page_asks_again_only_while_an_agent_is_loading(chat: Any) -> None:
    main = re.search(r"(?s)<main.*</main>", loaded(chat))  # the search over any page has a trigger of its own

    assert main
    assert "hx-trigger" not in main[0]


def test_only_the_agents_are_sent_to_a_page_that_asks_again(chat: Any) -> None:
    answer = chat.client.get("/agents", headers={"HX-Target": "div#agents"})

    assert answer.text.lstrip().startswith("<article")
    assert answer.headers["vary"] == "HX-Target"


def test_looking_again_finds_a_new_agent_and_asks_a_failed_one_once_more(chat: Any, tmp_path: Path) -> None:
    loaded(chat)
    (tmp_path / "agents" / "cards").mkdir()
    (tmp_path / "agents" / "cards" / "agent.py").write_text("root_agent = None\n")

    answer = chat.client.post("/agents/discovery")

    assert answer.status_code == 303
    assert "agent-cards" in loaded(chat)
    assert sorted(chat.host.described) == ["broken", "broken", "cards", "dice"]


def test_looking_again_is_not_done_by_a_link(chat: Any) -> None:
    assert chat.client.get("/agents/discovery").status_code == 405


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, ""),
        ({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, "n: integer"),
        ({"properties": {"n": {"type": "integer"}}}, "n: integer?"),
        ({"properties": {"n": {"type": "integer", "default": 6}}}, "n: integer = 6"),
        ({"properties": {"n": {"type": "array", "items": {"type": "string"}}}, "required": ["n"]}, "n: list[string]"),
        ({"properties": {"n": {"enum": ["a", "b"]}}, "required": ["n"]}, 'n: "a" | "b"'),
        (
            {"properties": {"n": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "required": ["n"]},
            "n: string | null",
        ),
        ({"properties": {"n": True}, "required": "n"}, "n: any?"),
        ({"properties": []}, ""),
    ],
    ids=["none", "required", "optional", "default", "list", "choices", "either", "anything", "nonsense"],
)
def test_a_schema_is_written_as_one_writes_arguments(schema: dict[str, Any], said: str) -> None:
    assert signature(schema) == said


@of_tools("adk")
def test_sub_agents_are_a_tree_and_missing_keys_are_named(chat: Any, tmp_path: Path) -> None:
    below = AgentDescription(
        "clerk",
        "LlmAgent",
        description="Sells <b>books</b>.",
        model="gemini-2.5-pro",
        tools=(ToolDescription("find_book", "Find one.", {"properties": {"title": {"type": "string"}}}),),
        sub_agents=(AgentDescription("intern", "LlmAgent"),),
    )
    chat.host.descriptions["dice"] = AgentDescription(
        "boss", "adk", model="gemini-2.5-flash", sub_agents=(below,), missing=("GEMINI_API_KEY or GOOGLE_API_KEY",)
    )

    (tmp_path / "agents" / "dice" / "more.py").write_text("")
    chat.client.post("/agents/discovery")
    page = loaded(chat)

    assert page.count('<ul class="tree">') == 2
    assert "Sells &lt;b&gt;books&lt;/b&gt;." in page
    assert "title: string?" in page
    assert "<code>GEMINI_API_KEY or GOOGLE_API_KEY</code>" in page
    assert "<dd>google-adk</dd>" in page


def test_the_tools_of_an_agent_and_of_those_below_it_are_named_once() -> None:
    roll, check = ToolDescription("roll"), ToolDescription("check")
    middle = AgentDescription("middle", "adk", sub_agents=(AgentDescription("below", "adk", tools=(roll, check)),))

    assert AgentDescription("root", "adk", sub_agents=(middle,)).tools_of_all == ("roll", "check")
    assert AgentDescription("root", "adk", tools=(check,), sub_agents=(middle,)).tools_of_all == ("check", "roll")


PLACES = ("/", "/agents", "/sessions/new?agent=dice", "/bench?agent=dice", "/runs/new?agent=dice")


def test_an_agent_has_one_name_everywhere_and_its_own_one_on_its_page(open_chat: Any, host: Any) -> None:
    host.descriptions["dice"] = replace(DICE, name="Lucky <Roller>")  # before the desk opens, and asks its agents
    chat = open_chat()
    pages = dict.fromkeys(PLACES, "") | {chat.new_session(): ""}
    chat.host.events = (Event("agent_message", author="Lucky <Roller>", text="6"),)
    loaded(chat)

    for place in pages:
        pages[place] = str(chat.client.get(place).text)

    for place, page in pages.items():
        names = re.sub(r"<dt>In its code</dt><dd>.*?</dd>", "", page)
        assert "Lucky" not in names, place
        assert "dice" in names or place in ("/", "/runs/new?agent=dice"), place  # these may list none
    assert "<dt>In its code</dt><dd>Lucky &lt;Roller&gt;</dd>" in pages["/agents"]


@pytest.mark.parametrize("own_name", [DICE.name, "root_agent"])
def test_a_name_that_is_the_same_or_tells_nothing_is_not_shown(open_chat: Any, host: Any, own_name: str) -> None:
    host.descriptions["dice"] = replace(DICE, name=own_name)

    assert "In its code" not in loaded(open_chat())

"""What people and agents say is rendered as Markdown: safe, bounded, and one key away from the text itself."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from evaldesk.model import AgentRef, Case, Event, RunConfig, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.pages import prose
from evaldesk.pages.prose import MAX_ON_PAGE, MAX_RENDERED, Markdown

ANSWER = "Two **cheap** ones:\n\n- Rome\n- [Ulm](https://ulm.example/a?b=1&c=2)\n\n```\nx = 1\n```"


def html(text: str) -> str:
    return Markdown().prose(text).html


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a **b**\nc", "<p>a <strong>b</strong><br>\nc</p>\n"),
        ("1. a\n2. b", '<ol dir="auto">\n<li>a</li>\n<li>b</li>\n</ol>\n'),
        ("```py\n<b>\n  x\n```", "<pre><code>&lt;b&gt;\n  x\n</code></pre>\n"),
        ("# Title", "<p><strong>Title</strong></p>\n"),
        ("`a` ~~b~~", "<p><code>a</code> <s>b</s></p>\n"),
        (
            "[a](https://b.example)",
            '<p><a href="https://b.example" target="_blank" rel="noopener noreferrer">a</a></p>\n',
        ),
        ("**a** ![b <i>](http://b.example/x.png)", "<p><strong>a</strong> [image: b &lt;i&gt;]</p>\n"),
    ],
    ids=["emphasis", "list", "code", "heading", "inline", "link", "image"],
)
def test_markdown_becomes_a_few_plain_elements(text: str, wanted: str) -> None:
    assert html(text) == wanted


def test_a_table_has_its_cells_and_no_style() -> None:
    found = html("| a | b |\n|:-|-:|\n| 1 | 2 |")

    assert re.findall(r"<(t[hd])>(\w)</\1>", found) == [("th", "a"), ("th", "b"), ("td", "1"), ("td", "2")]
    assert "style" not in found
    assert sorted(re.findall(r'[\w-]+="[^"]*"', found.split(">")[0])) == [
        'aria-label="Table"',
        'class="scroll"',
        'role="group"',
        'tabindex="0"',
    ]


@pytest.mark.parametrize(
    "text",
    [
        "one\ntwo\n\n    three  spaces",
        "3 < 4 & 5 > 2",
        "call_me_now",
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
    ],
)
def test_a_text_without_markup_stands_as_it_is(text: str) -> None:
    found = Markdown().prose(text)

    assert (found.text, found.html, found.is_too_long) == (text, "", False)


@pytest.mark.parametrize(
    "attack",
    [
        "<script>alert(1)</script>",
        "<svg onload=alert(1)>",
        "<style>*{display:none}</style>",
        "<div><p onclick=alert(1)><table><td><form action=//evil.invalid>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt&#58;alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "![x](data:image/png;base64,AAAA)",
        "[x](vbscript:x)",
        "[x](file:///etc/passwd)",
        "[x](//evil.invalid)",
        "[x](/runs)",
        "[x](\\\\evil.invalid)",
        "<javascript:alert(1)>",
        "![x](https://evil.invalid/x.png)",
    ],
)
@pytest.mark.parametrize("place", ["{}", "**b** {}", "- {}", "> {}", "# {}", "| {} |\n|-|", "`a`{}"])
def test_hostile_text_becomes_no_element_and_no_address(attack: str, place: str) -> None:
    found = html(place.format(attack))

    assert not re.search(r"<(script|svg|style|form|img|a)\b|<[^>]*(onclick|onload|href|src|style)=", found)
    assert found.count("<div") == found.count('class="scroll"')


@pytest.mark.parametrize(
    "unit",
    [
        "> ",
        "- ",
        "1. ",
        "[",
        "![",
        "[a](",
        "*a ",
        "**a *",
        "_a_",
        "`",
        "<",
        "|a",
        "~~a",
        "&",
        "\\",
        "<a href=",
        "  - a\n",
    ],
)
def test_text_that_is_made_to_take_long_grows_by_a_constant_factor_only(unit: str) -> None:
    text = unit * (MAX_RENDERED // len(unit))

    assert len(html(text)) <= 30 * len(text)
    assert html(text).count("<") <= 4 * len(text)


def test_five_megabytes_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "_rendered", pytest.fail)

    found = Markdown().prose("- **a**\n" * 650_000)

    assert (found.html, found.is_too_long) == ("", True)


def test_one_page_renders_so_many_characters_and_shows_the_rest_as_written() -> None:
    markdown = Markdown()
    text = "**b** " + "x" * (MAX_RENDERED - 6)

    found = [markdown.prose(text) for _ in range(MAX_ON_PAGE // MAX_RENDERED + 2)]

    assert [bool(each.html) for each in found] == [True] * (MAX_ON_PAGE // MAX_RENDERED) + [False] * 2
    assert [each.is_too_long for each in found[-2:]] == [True, True]
    assert not markdown.prose("no marks").is_too_long


def test_a_trial_page_shows_both_texts_and_the_switch(pages: Any) -> None:
    played = TurnRecord("q", (Event("agent_message", 1, "dice", text=ANSWER),))
    runs = pages.desk.store.runs
    run_id = runs.create(RunConfig(AgentRef("dice", "dice"), "trips", n=1), [Case("trip", (Turn("Find *two*."),))])
    runs.record([TrialResult(run_id, 0, 0, "finished", "passed", "answered", Transcript((played,)))])

    page = pages.get(f"/runs/{run_id}/cases/0/trials/0").text

    assert "<p>Find <em>two</em>.</p>" in page
    assert '<p class="raw">Find *two*.</p>' in page
    assert "<li>Rome</li>" in page
    assert '<p class="raw">Two **cheap** ones:\n\n- Rome' in page
    assert re.search(r'<button[^>]*data-text-switch data-key="v"', page)


@pytest.mark.server
def test_the_pages_of_a_desk_without_markdown_load_no_parser() -> None:
    code = (
        "import sys; from evaldesk.pages.prose import Markdown; import evaldesk.web.server; "
        "Markdown().prose('plain'); print({'markdown_it', 'nh3'} & set(sys.modules))"
    )

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "set()"

"""A case of thousands of turns: its pages parse it once, as long as its file stays, and never make a form of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evaldesk.reading import strict_json
from evaldesk.store.evalsets import case_index
from evaldesk.web.routes import cases

Pages = Any
N = 6_000


@pytest.fixture
def long_case(pages: Pages) -> str:
    """The editor of the case."""
    used = [{"name": "search", "args": {"flight": "f" * 150}}]
    turn = {"user_content": {"parts": [{"text": "Find it."}]}, "intermediate_data": {"tool_uses": used}}
    case = {"eval_id": "long", "conversation": [turn] * N}
    set_id = pages.write("long.evalset.json", {"eval_set_id": "long", "eval_cases": [case]})
    return str(pages.case_address(set_id, "long"))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the cases that are parsed from now on."""
    sizes = list[int]()
    parse = strict_json.parse_json

    def counted(data: bytes, **more: Any) -> Any:
        sizes.append(len(data))
        return parse(data, **more)

    monkeypatch.setattr(case_index, "parse_json", counted)
    return sizes


def test_its_pages_parse_it_once_and_never_write_it(
    pages: Pages, long_case: str, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_page = long_case.partition("/cases/")[0]
    monkeypatch.setattr(cases, "case_text", lambda case: pytest.fail("the case was written out for a page"))
    monkeypatch.setattr(cases, "draft_of", lambda case: pytest.fail("a form was made of the case"))

    moved = pages.get(long_case)
    texts = [pages.get(path).text for path in (moved.headers["location"], set_page, f"{long_case}/json", set_page)]

    assert (moved.status_code, moved.headers["location"]) == (303, f"{long_case}/json")
    assert "too large to edit here" in texts[0]
    assert all(len(text) < 50_000 for text in texts)
    assert len(parsed) == 1
    assert parsed[0] > cases.MAX_RAW


def test_a_file_that_another_writer_changed_is_read_anew_and_the_old_page_does_not_overwrite_it(
    pages: Pages, long_case: str
) -> None:
    before = version_on(pages.get(f"{long_case}/json").text)
    text = pages.get(f"{long_case}/file").text
    other = pages.stored("long.evalset.json")
    other["eval_cases"][0]["conversation"][N - 1]["user_content"]["parts"][0]["text"] = "Find another."
    pages.write("long.evalset.json", other)

    after = version_on(pages.get(f"{long_case}/json").text)
    answer = pages.post(f"{long_case}/json", {"raw": text, "version": before})

    assert after != before
    assert answer.status_code == 409
    assert "Find another." in pages.get(f"{long_case}/file").text
    assert json.loads(pages.get(f"{long_case}/file").text) == pages.stored("long.evalset.json")["eval_cases"][0]


def version_on(text: str) -> str:
    version = re.search(r'name="version" value="([^"]+)"', text)
    assert version
    return version[1]

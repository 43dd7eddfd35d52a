"""Every form that stores says so in a sentence of its own, or leads to a page that does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evaldesk import paths

TEMPLATES = Path(paths.shipped("templates"))
FORM = re.compile(r'<form\b[^>]*method="post"[^>]*>')
SAYS = ("data-says-stored", "data-toast", "data-stored", "hx-nonce", "ui.hx")
ELSEWHERE = {
    "{{ view.href }}/fork/case": "the page of the set offers to undo it",
    "/imports": "the preview of the file is the answer",
    "/runs/{{ run.id }}/deletion": "the list of runs offers to undo it",
    "/sessions/{{ session.id }}/deletion": "the list of chats offers to undo it",
    "/evalsets/{{ file.id }}/trash": "the list of eval sets offers to undo it",
    "{{ address }}/selection/criteria": "the page of the set names the step, and offers to undo it",
    "{{ address }}/selection/copies": "the page of the set names the step, and offers to undo it",
    "{{ address }}/selection/wordings": "the page of the set names the step, and offers to undo it",
    "{{ address }}/versions": "the page says which version came back, and offers to undo it",
    "/evalsets/{{ file.id }}/settings": "the page has a note",
    "{{ path }}": "the page has a note",
    "/inbox/replays": "the comparison of both runs is the answer",
    "/queues": "the page of the queue says how many are read",
    "/trash/removal": "the trash has a note",
}


def forms() -> list[tuple[str, str]]:
    """Each posted form with its template."""
    return [
        (str(path.relative_to(TEMPLATES)), tag)
        for path in sorted(TEMPLATES.rglob("*.html"))
        for tag in FORM.findall(path.read_text("utf-8"))
    ]


@pytest.mark.parametrize(("template", "tag"), forms(), ids=[f"{name}-{at}" for at, (name, _) in enumerate(forms())])
def test_a_form_says_what_was_stored(template: str, tag: str) -> None:
    action = re.search(r'action="([^"]*)"', tag)

    assert any(word in tag for word in SAYS) or (action and action[1] in ELSEWHERE), f"{template}: {tag}"


def test_no_two_sentences_are_empty_promises() -> None:
    found = [
        sentence
        for path in TEMPLATES.rglob("*.html")
        for sentence in re.findall(r'data-says-stored="([^"{]*)"', path.read_text("utf-8"))
        if sentence
    ]

    assert len(found) > 25
    assert [sentence for sentence in found if not re.fullmatch(r"[A-Z].*\.", sentence)] == []

"""The list of keys that `?` opens names every key of every page."""

from __future__ import annotations

import re
from pathlib import Path

from evaldesk import paths
from evaldesk.pages.accepting import WAY_KEYS
from evaldesk.pages.failures.room import N_KEYS

TEMPLATES = paths.shipped("templates")


GIVEN: dict[str, set[str]] = {
    "loop.index": set("123456"),
    "row.key": {str(at + 1) for at in range(N_KEYS)},
    "choice.key": {*WAY_KEYS.values(), "x"},
}
"""The keys that a template gives by an expression, from where they are made. A new expression needs its own."""


def test_every_key_of_a_page_stands_in_the_list() -> None:
    used = {key for path in TEMPLATES.rglob("*.html") for key in _keys_of(path)}

    assert {"r", "a", "z", "t", "9", "H"} <= used
    assert used - _listed() == set()


def test_every_key_that_the_script_itself_knows_stands_in_the_list() -> None:
    script = (paths.shipped("static") / "app.js").read_text("utf-8")
    known = set(re.findall(r'\b(?:event\.)?key(?:\.toLowerCase\(\))? [!=]== "([^"]+)"', script)) - STORED
    used = {SHOWN.get(key, key) for key in known}

    assert {"Ctrl S", "Ctrl K", "Enter", "j", "?"} <= used
    assert used - _listed() == set()


STORED = {"theme", "text"}  # keys of what a browser keeps
SHOWN = {"<": "&lt;", ">": "&gt;", "s": "Ctrl S", "k": "Ctrl K", "Escape": "Esc", "ArrowDown": "↓", "ArrowUp": "↑"}


def _listed() -> set[str]:
    keys = (TEMPLATES / "base.html").read_text("utf-8").partition('class="keys"')[2]
    listed = set(re.findall(r"<kbd>(\S+)</kbd>", keys))
    listed |= {f"Ctrl {key}" for key in re.findall(r"<kbd>Ctrl</kbd> <kbd>(\w+)</kbd>", keys)}
    for first, last in re.findall(r"<kbd>(\d)</kbd> … <kbd>(\d)</kbd>", keys):
        listed |= {str(at) for at in range(int(first), int(last) + 1)}
    return listed


def _keys_of(path: Path) -> set[str]:
    """The keys of a template, those of expressions included; the arguments of a macro are those of its calls."""
    text, found = path.read_text("utf-8"), set[str]()
    for value in re.findall(r'data-(?:key|choice)="([^"]*)"', text):
        expression = re.fullmatch(r"\{\{ (.*?) \}\}", value)
        if not expression:
            assert re.fullmatch(r"(Ctrl \w+|.)", value), f"{path}: {value!r} is no key and no expression"
            found.add(value)
        elif expression[1] in GIVEN:
            found |= GIVEN[expression[1]]
        else:
            given = _arguments(text, expression[1])
            assert given, f"{path}: it is not known which keys {expression[1]!r} gives"
            found |= given
    return found


def _arguments(text: str, expression: str) -> set[str]:
    """What the calls of a macro give for its last parameter, or the pairs that a loop gives for `keys[0]`."""
    name, _, at = expression.partition("[")
    loop = re.search(rf"for [^%]*\b{name} in (.*?) %}}", text)
    if at and loop:
        return {pair[int(at[0])] for pair in re.findall(r'\("(\w)", "(\w)"\)', loop[1])}
    macro = re.search(rf"macro (\w+)\([^)]*\b{name}\b", text)
    if macro is None:
        return set()
    calls = re.compile(rf'\b{macro[1]}\((?:[^()]|\([^()]*\))*"(\w)"\)')
    return {key for place in TEMPLATES.rglob("*.html") for key in calls.findall(place.read_text("utf-8"))}


def test_every_button_with_a_key_shows_it() -> None:
    """Or right behind it. All but those that are there for the key alone, and are hidden."""
    shown = re.compile(r'<(a|button)\b(?=[^>]*data-key=")(?![^>]*class="hidden")[^>]*>.*?</\1>.{0,40}', re.DOTALL)
    found = [match[0] for path in TEMPLATES.rglob("*.html") for match in shown.finditer(path.read_text("utf-8"))]

    assert len(found) > 20
    assert [each[:200] for each in found if "kbd" not in each] == []

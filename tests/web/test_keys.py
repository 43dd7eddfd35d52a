"""The list of keys that `?` opens names every key of every page."""

from __future__ import annotations

import re

from evaldesk import paths

TEMPLATES = paths.shipped("templates")


def test_every_key_of_a_page_stands_in_the_list() -> None:
    base = (TEMPLATES / "base.html").read_text("utf-8")
    listed = set(re.findall(r"<kbd>(.)</kbd>", base.split('class="keys"')[1]))

    used = {key for path in TEMPLATES.rglob("*.html") for key in re.findall(r'data-key="(.)"', path.read_text("utf-8"))}

    assert {"r", "a", "u"} <= used
    assert used - listed == set()


def test_every_button_with_a_key_shows_it() -> None:
    """Or right behind it. All but those that are there for the key alone, and are hidden."""
    shown = re.compile(r'<(a|button)\b(?=[^>]*data-key=")(?![^>]*class="hidden")[^>]*>.*?</\1>.{0,40}', re.DOTALL)
    found = [match[0] for path in TEMPLATES.rglob("*.html") for match in shown.finditer(path.read_text("utf-8"))]

    assert len(found) > 20
    assert [each[:200] for each in found if "kbd" not in each] == []

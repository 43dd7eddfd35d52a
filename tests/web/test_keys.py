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

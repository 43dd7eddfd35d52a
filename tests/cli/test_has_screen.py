"""When a browser is opened."""

from __future__ import annotations

import pytest

from evaldesk.cli.ui import has_screen


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_a_browser_is_opened_only_where_it_has_a_screen(
    platform: str, environment: dict[str, str], expected: bool
) -> None:
    assert has_screen(platform, environment) is expected

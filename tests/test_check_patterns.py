"""The check of `make check` that refuses regular expressions of more than linear time."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "check_patterns.py"
SLOW = {
    "blanks before an end": r"[ \t]+$",
    "blanks in a lazy text": r"(?m)^name[^#\n]*?(?P<after>[ \t]*(#.*)?)$",
    "lines before a word": r"(?m)^\s*import\b",
    "a repeat of repeats": r"^(\w+\s?)*$",
    "the same twice": r"(a|a)*b",
    "two neighbours": r"x\d+\d+y",
    "an address": r"[\w.-]+@[\w.-]+",
    "a beginning without an end": r"<plan>(.*?)</plan>",
    "a look ahead from each word": r"\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b",
    "another quote": "“[^”]*”",
    "words between words": r"\bfoo.*bar\b",
    "letters behind a separator": r"(?<![a-z])a[^;]*;",
}
FAST = {
    "a word": r"\bword\b",
    "possessive blanks": r"(?m)^name[^#\s]*+(?:[ \t]++[^#\s]++)*+[ \t]*(#.*)?$",
    "blanks of one line": r"(?m)^[ \t]*import\b",
    "an address from its beginning": r"(?<![\w.-])[\w.-]+@[\w.-]+",
    "a short repeat": r"[ \t]{1,40}$",
    "quotes": '"[^"]*"',
    "bytes": rb"://[^\s/:@]{0,64}:[^\s/@]{3,128}@",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_patterns", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("pattern", SLOW.values(), ids=SLOW)
def test_a_slow_pattern_is_refused_with_a_text(
    script: ModuleType, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "LIMIT_S", 0.08)  # what takes five times as long is refused no more surely

    assert script.slow_text(script.Found("here", pattern, 0, False)) is not None


@pytest.mark.parametrize("pattern", FAST.values(), ids=FAST)
def test_a_pattern_of_linear_time_passes(script: ModuleType, pattern: str | bytes) -> None:
    assert script.slow_text(script.Found("here", pattern, 0, False)) is None


def test_a_pattern_that_is_tried_at_one_place_may_read_on(script: ModuleType) -> None:
    assert script.slow_text(script.Found("here", r"[ \t]+$", 0, True)) is None

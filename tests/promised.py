"""The sentences of a page and the tests that show them, for the tests that hold one to the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from tests.islands import is_removed

TESTS = Path(__file__).resolve().parent


def sentences(page: str) -> list[str]:
    """The sentences of a page in Markdown without its code; a row of a table is one sentence."""
    found: list[str] = []
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\n+|\n(?=- |## |\d\. )", page):
        text = "\n".join(line for line in block.splitlines() if not line.startswith("#")).replace("**", "")
        if text.startswith("|"):
            found += [line.strip("| ") for line in text.splitlines()[2:]]
            continue
        flat = re.sub(r"\s+", " ", re.sub(r"^(- |\d\. )", "", text)).strip()
        found += [each for each in re.split(r"(?<=[.:])\s+(?=[A-Z`]|pytest )", flat) if each]
    return found


def pairs(shown: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Each sentence with a file of tests and the names of tests in it, of `file: name, name; file: name`."""
    found = [(sentence, *pair.partition(":")) for sentence, tests in shown.items() for pair in tests.split(";")]
    return [(sentence, file.strip(), said) for sentence, file, _, said in found]


def check_sentences(found: list[str], known: tuple[str, ...]) -> None:
    """Assert that each sentence begins as exactly one of `known`, and that each of these begins a sentence."""
    strange = [each for each in found if sum(each.startswith(word) for word in known) != 1]
    gone = [word for word in known if not any(each.startswith(word) for each in found)]
    assert not strange, f"sentences without tests: {strange}"
    assert not gone, f"sentences that are not on the page: {gone}"


def check_named(sentence: str, path: Path, said: str) -> None:
    """Assert that the file has a test for each of the names, which are parts of the tests' names."""
    if is_removed(path):
        pytest.skip("the folder of this tool was removed")
    found = _names(path)
    for words in filter(None, map(str.strip, said.split(","))):
        plain = re.sub(r"[^a-z0-9 ]", "", words.lower().replace("-", " "))
        assert [name for name in found if plain in name], f"{sentence}: {path.name} has no test {words!r}"


@cache
def _names(path: Path) -> list[str]:
    """The tests of a file, as the sentences that they are."""
    names = re.findall(r"^ *(?:async )?def test_(\w+)", path.read_text("utf-8"), re.MULTILINE)
    return [name.replace("_", " ") for name in names]

"""Templates that are kept as code: the text decides, whatever is in the files, and no figure of ours is in them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from evaldesk.web.render import FILTERS, PAGE_FILTERS, CompiledTemplates, environment

Say = Callable[[str], str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "__pycache__"


@pytest.fixture
def say(folder: Path) -> Say:
    """What a new process renders of this text."""

    def rendered(text: str) -> str:
        texts = DictLoader({"page.html": text})
        return (
            Environment(loader=texts, autoescape=True, bytecode_cache=CompiledTemplates(folder))
            .get_template("page.html")
            .render(name="<b>")
        )

    return rendered


def test_a_changed_text_is_rendered_from_its_own_code(say: Say, folder: Path) -> None:
    first = [say("Hello {{ name }}") for _ in range(2)]
    kept = [*folder.iterdir()]

    assert first == ["Hello &lt;b&gt;"] * 2
    assert say("Bye {{ name }}") == "Bye &lt;b&gt;"
    assert say("Hello {{ name }}") == first[0]
    assert [*folder.iterdir()] == kept
    assert len(kept) == 1


@pytest.mark.parametrize("damage", [b"", b"\0" * 400, b"no code", None], ids=["empty", "zeros", "text", "half"])
def test_a_damaged_file_is_written_anew(say: Say, folder: Path, damage: bytes | None) -> None:
    say("Hello {{ name }}")
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2] if damage is None else damage)

    assert say("Hello {{ name }}") == "Hello &lt;b&gt;"
    assert kept.read_bytes() == whole


def test_nothing_is_kept_where_python_keeps_nothing(say: Say, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    assert say("Hello {{ name }}") == "Hello &lt;b&gt;"
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_no_error(say: Say, folder: Path) -> None:
    folder.write_text("a file")

    assert say("Hello {{ name }}") == "Hello &lt;b&gt;"


def test_a_write_that_fails_leaves_no_file(say: Say, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)

    assert say("Hello {{ name }}") == "Hello &lt;b&gt;"
    assert not [*folder.iterdir()]


def test_every_filter_of_a_page_is_a_function_that_a_template_uses() -> None:
    found = environment()
    assert found.loader is not None
    text = "".join(found.loader.get_source(found, name)[0] for name in found.list_templates(extensions=["html"]))

    for name, place in PAGE_FILTERS.items():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function)), place
        assert re.search(rf"\| {name}\b", text), name
    assert not PAGE_FILTERS.keys() & FILTERS.keys()


def test_no_result_of_a_filter_is_in_the_code() -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError

    found = environment()
    other = found.overlay()
    other.filters = {**found.filters, **dict.fromkeys([*FILTERS, *PAGE_FILTERS], fails)}
    assert found.loader is not None

    for name in found.list_templates(extensions=["html"]):
        text, _, _ = found.loader.get_source(found, name)
        assert found.compile(text, name, raw=True) == other.compile(text, name, raw=True), name

"""Prompts that are kept as files `prompts/NAME.md`: names, other writers, links, secrets, Undo."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from evaldesk.desk.experiments.prompts import PromptDesk, PromptNameTakenError
from evaldesk.errors import ConflictError, NotFoundError, UsageError, WorkspaceError
from evaldesk.settings import Settings

TEXT = "Ask first.\nThen answer.\n"


@pytest.fixture
def prompts(tmp_path: Path) -> PromptDesk:
    return PromptDesk(Settings(tmp_path, (tmp_path,), environment={"SHOP_API_KEY": "sk-proj-abcdefghijklmnop1234"}))


def file_of(prompts: PromptDesk, name: str) -> Path:
    return prompts.folder / f"{name}.md"


def test_a_prompt_is_a_file_with_exactly_its_text(prompts: PromptDesk, tmp_path: Path) -> None:
    prompts.save("ask_first", TEXT, {"instruction": TEXT})

    assert (tmp_path / "prompts" / "ask_first.md").read_bytes() == TEXT.encode()
    assert [(each.name, each.text) for each in prompts.list()] == [("ask_first", TEXT)]


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "../a",
        "a/b",
        "a\\b",
        ".hidden",
        "-x",
        "a.md",
        "a\x00",
        "a\nb",
        "CON",
        "nul",
        "é",
        "x" * 101,
        "~",
        "$HOME",
    ],
    ids=repr,
)
def test_a_name_that_is_no_plain_file_name_is_refused_and_nothing_is_written(prompts: PromptDesk, name: str) -> None:
    with pytest.raises(UsageError):
        prompts.save(name, TEXT, {})

    assert not prompts.folder.exists()


@pytest.mark.parametrize("text", ["", " \n", "x" * 200_001], ids=["empty", "blank", "too long"])
def test_a_text_that_is_no_instruction_is_refused(prompts: PromptDesk, text: str) -> None:
    with pytest.raises(UsageError, match="instruction"):
        prompts.save("a", text, {})


def test_another_text_under_the_name_is_asked_about_and_then_replaced(prompts: PromptDesk) -> None:
    prompts.save("ask", TEXT, {})
    prompts.save("ask", TEXT, {})

    with pytest.raises(PromptNameTakenError) as taken:
        prompts.save("ask", "Other.", {})
    assert file_of(prompts, "ask").read_text() == TEXT
    assert taken.value.free == "ask_2"

    saved = prompts.save("ask", "Other.", {}, taken.value.digest)

    assert file_of(prompts, "ask").read_text() == "Other."
    assert saved.was_replaced


def test_a_file_of_another_writer_is_never_replaced(prompts: PromptDesk) -> None:
    prompts.folder.mkdir()
    file_of(prompts, "system").write_text("The agent reads this.")

    with pytest.raises(PromptNameTakenError) as taken:
        prompts.save("system", TEXT, {})

    assert taken.value.digest == ""
    for digest in ("", "0" * 64):
        with pytest.raises(PromptNameTakenError):
            prompts.save("system", TEXT, {}, digest)
    assert file_of(prompts, "system").read_text() == "The agent reads this."


def test_a_prompt_that_a_person_edited_is_not_replaced_by_an_old_question(prompts: PromptDesk) -> None:
    prompts.save("ask", TEXT, {})
    with pytest.raises(PromptNameTakenError) as taken:
        prompts.save("ask", "Other.", {})
    file_of(prompts, "ask").write_text("By hand.")

    with pytest.raises(PromptNameTakenError):
        prompts.save("ask", "Other.", {}, taken.value.digest)

    assert file_of(prompts, "ask").read_text() == "By hand."


@pytest.mark.parametrize("was_there", [False, True])
def test_undo_leaves_the_folder_as_it_was(prompts: PromptDesk, was_there: bool) -> None:
    digest = ""
    if was_there:
        prompts.save("ask", "Before.", {})
        with pytest.raises(PromptNameTakenError) as taken:
            prompts.save("ask", TEXT, {})
        digest = taken.value.digest
    saved = prompts.save("ask", TEXT, {"instruction": TEXT}, digest)
    known = prompts.saved(saved.token)
    assert known is not None
    assert known.draft == {"instruction": TEXT}

    prompts.undo(saved.token)

    assert {path.name: path.read_text() for path in prompts.folder.iterdir()} == (
        {"ask.md": "Before."} if was_there else {}
    )
    with pytest.raises(NotFoundError):
        prompts.undo(saved.token)


def test_undo_keeps_a_file_that_was_changed_meanwhile(prompts: PromptDesk) -> None:
    saved = prompts.save("ask", TEXT, {})
    file_of(prompts, "ask").write_text("By hand.")

    with pytest.raises(ConflictError, match="changed meanwhile"):
        prompts.undo(saved.token)

    assert file_of(prompts, "ask").read_text() == "By hand."


@pytest.mark.parametrize("token", ["", "../x", "0" * 16, "g" * 16, "0" * 5000])
def test_an_unknown_save_cannot_be_undone(prompts: PromptDesk, token: str) -> None:
    assert prompts.saved(token) is None
    with pytest.raises(NotFoundError):
        prompts.undo(token)


def test_links_are_neither_followed_nor_listed(prompts: PromptDesk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "agent.md").write_text("Of the agent.")
    prompts.folder.mkdir()
    file_of(prompts, "linked").symlink_to(outside / "agent.md")
    file_of(prompts, "dangling").symlink_to(outside / "new.md")
    os.mkfifo(file_of(prompts, "pipe"))

    for name in ("linked", "dangling", "pipe"):
        with pytest.raises(PromptNameTakenError):
            prompts.save(name, TEXT, {})

    assert prompts.list() == []
    assert [path.name for path in outside.iterdir()] == ["agent.md"]


def test_a_folder_that_is_a_link_is_refused(prompts: PromptDesk, tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    prompts.folder.symlink_to(tmp_path / "agent")

    with pytest.raises(WorkspaceError, match="is a link"):
        prompts.save("ask", TEXT, {})

    assert list((tmp_path / "agent").iterdir()) == []


def test_a_secret_is_masked_and_that_is_told(prompts: PromptDesk) -> None:
    text = "Use the key sk-proj-abcdefghijklmnop1234."

    saved = prompts.save("ask", text, {"instruction": text})

    assert saved.is_masked
    written = [path.read_text() for folder in (prompts.folder, prompts._notes) for path in folder.iterdir()]
    assert len(written) == 2
    assert not any("sk-proj-abcdefghijklmnop1234" in each for each in written)


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "a/../../../outside", ""], ids=repr)
def test_a_note_of_somebody_else_leads_to_no_file_outside(prompts: PromptDesk, tmp_path: Path, name: str) -> None:
    outside = tmp_path.parent / "outside.md"
    outside.write_text(TEXT)
    notes = tmp_path / ".evaldesk" / "prompts"
    notes.mkdir(parents=True)
    note = {"name": name, "digest": sha256(TEXT.encode()).hexdigest(), "before": "theirs", "draft": {}}
    (notes / f"{'a' * 16}.json").write_text(json.dumps(note))
    prompts.folder.mkdir()

    assert prompts.saved("a" * 16) is None
    with pytest.raises(NotFoundError):
        prompts.undo("a" * 16)

    assert outside.read_text() == TEXT

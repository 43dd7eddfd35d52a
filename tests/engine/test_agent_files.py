"""Which edits make an agent another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaldesk.engine.host.agent_host import fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    for name in ("agent.py", "tools/dice.py", "root_agent.yaml", ".env", "instruction.md", "calc.evalset.json"):
        (tmp_path / name).write_text("one")
    return tmp_path


@pytest.mark.parametrize("name", ["agent.py", "tools/dice.py", "root_agent.yaml", ".env", "instruction.md"])
def test_an_edit_changes_it(folder: Path, name: str) -> None:
    before = fingerprint(str(folder))

    os.utime(folder / name, ns=(1, 1))

    assert fingerprint(str(folder)) != before


@pytest.mark.parametrize("name", ["calc.evalset.json", "__pycache__/agent.py", ".venv/lib.py", "log.jsonl"])
def test_other_files_do_not(folder: Path, name: str) -> None:
    before = fingerprint(str(folder))

    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("two")

    assert fingerprint(str(folder)) == before


def test_a_new_file_changes_it(folder: Path) -> None:
    before = fingerprint(str(folder))

    (folder / "more.py").write_text("")

    assert fingerprint(str(folder)) != before


@pytest.mark.parametrize("folder_name", ["", "/no/such/folder"])
def test_no_folder_is_no_error(folder_name: str) -> None:
    assert fingerprint(folder_name) == fingerprint(folder_name)

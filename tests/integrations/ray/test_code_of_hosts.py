"""The files of an agent that hosts are sent: what git would take up, no secrets, and not too much."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from evaldesk.errors import UsageError
from evaldesk.integrations.ray import code
from evaldesk.integrations.ray.code import code_files, write_code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    files = {
        "agent.py": "x = 1\n",
        "data/cases.json": "{}",
        "data/big.bin": "b" * 3000,
        ".gitignore": "*.log\n/data/big.bin\n",
        "run.log": "l",
        ".env": "KEY=secret",
        "sub/.env.local": "KEY=secret",
        ".evaldesk/evaldesk.db": "d",
        ".venv/bin/python": "p",
        "__pycache__/agent.pyc": "c",
        "naïve name.txt": "ü",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "outside.txt").write_text("not ours")
    (root / "out").symlink_to(tmp_path / "outside.txt")
    (root / "in").symlink_to(root / "agent.py")
    (root / "gone").symlink_to(root / "nothing")
    return root


GIT = shutil.which("git") or "git"
SENT = [".gitignore", "agent.py", "data/cases.json", "in", "naïve name.txt"]


@pytest.mark.parametrize("is_repository", [False, True])
def test_hosts_get_what_git_would_take_up(root: Path, *, is_repository: bool) -> None:
    if is_repository:
        subprocess.run([GIT, "init", "--quiet", str(root)], check=True)
        subprocess.run([GIT, "-C", str(root), "add", "agent.py"], check=True)

    assert sorted(code_files(root)) == SENT


def test_where_there_is_no_git_secrets_and_environments_stay_here_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)

    assert sorted(code_files(root)) == sorted([*SENT, "data/big.bin", "run.log"])


def test_the_same_files_are_the_same_package(root: Path, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        assert write_code(root, tmp_path / name) == len(SENT)
        (root / "agent.py").touch()

    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert zipfile.ZipFile(tmp_path / "a.zip").read("agent.py") == b"x = 1\n"


def test_too_much_is_refused_with_the_largest_files_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "MAX_BYTES", 1024 * 1024)
    for index in range(7):
        (root / f"part-{index}").write_bytes(b"x" * (index + 1) * 100 * 1024)

    with pytest.raises(UsageError) as refusal:
        write_code(root, tmp_path / "a.zip")

    said = str(refusal.value)
    assert "have 2.7 MiB, and hosts are sent at most 1.0 MiB; the largest: part-6 (0.7 MiB), part-5 (0.6 MiB)" in said
    assert "part-1" not in said
    assert not (tmp_path / "a.zip").exists()

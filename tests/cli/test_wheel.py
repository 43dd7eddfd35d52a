"""The wheel: everything that the checkout serves is in it, and it evaluates without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PLACES = {"app/evaldesk": "evaldesk", "templates": "evaldesk/templates", "static": "evaldesk/static"}
PLACES |= {"evalsets": "evaldesk/evalsets", "docs": "evaldesk/docs"}
ON_SITE = (CHECKOUT / "docs/decisions", CHECKOUT / "docs")
"""Folders whose files are read in the repository: the decisions, and the pictures of the documentation."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def test_every_file_that_is_served_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())

    files = {
        f"{inside}/{path.relative_to(CHECKOUT / place).as_posix()}"
        for place, inside in PLACES.items()
        for path in (CHECKOUT / place).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not _is_on_site(path)
    }
    assert files <= packed
    assert [name for name in packed if name.startswith("evaldesk/") and name not in files] == []


def _is_on_site(path: Path) -> bool:
    decisions, docs = ON_SITE
    return path.is_relative_to(decisions) or (path.parent == docs and path.suffix in (".png", ".svg"))


@pytest.mark.long
def test_what_is_installed_plays_the_samples_and_reports_them(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {name: value for name, value in os.environ.items() if name != "EVALDESK_MODEL"}
    environment |= {"PYTHONPATH": str(tmp_path / "installed"), "EVALDESK_DEMO_MISTAKES": "0"}

    def evaldesk(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "evaldesk", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = [sys.executable, "-P", "-c", "import evaldesk; print(evaldesk.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(tmp_path / "installed")

    assert "1 of 1 passed" in evaldesk("eval", "samples/hello_world", "hello_world:roll_16", "--n", "1")
    evaldesk("report", "1", "-o", "report.html")
    assert "roll_16" in (tmp_path / "report.html").read_text("utf-8")

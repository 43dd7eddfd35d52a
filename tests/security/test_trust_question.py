"""The question whether a folder is trusted, on its page and in the terminal, and each of its answers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.desk_client import DeskClient
from tests.security.hostile_clone import marks_in, opened, settings_of

from evaldesk.desk.trust import Trust
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

TOKEN = "a-token-of-enough-letters"
ASKING = (("agents",), ("run", "resume", "1"))


@pytest.fixture
def visitor(clone: Path) -> Iterator[DeskClient]:
    """A browser at the desk of the clone."""
    app = create_app(opened(clone), guard_settings(TOKEN, 80))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with DeskClient(app, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


def asked(clone: Path, words: tuple[str, ...], answer: str) -> str:
    """Run a command in a terminal in which a person types `answer`; gives what stands there in the end."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-P", "-m", "evaldesk", *words]
    with subprocess.Popen(command, cwd=clone, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        process.communicate()
    shown = b""
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError:  # the other end is closed, and all of it is read
        pass
    os.close(ours)
    return shown.decode()


def test_the_page_lists_what_would_run_and_has_two_buttons(visitor: DeskClient, clone: Path) -> None:
    first = visitor.get("/")
    page = visitor.get("/trust").text

    assert first.url.path == "/trust"
    for part in ("agent evil", str(clone / "agent.py"), "evaldesk.toml", ".env"):
        assert part in page
    assert "its database was made elsewhere; its waiting runs of these agents would go on" in page
    assert "Trust this folder</button>" in page
    assert "Look only</button>" in page
    assert marks_in(clone) == []


def test_look_only_shows_the_pages_and_runs_nothing(visitor: DeskClient, clone: Path) -> None:
    visitor.post("/trust/look")

    assert visitor.get("/runs").status_code == 200
    assert visitor.get("/").url.path != "/trust"
    assert marks_in(clone) == []
    assert Trust(settings_of(clone)).is_restricted


def test_the_button_trusts_the_folder_from_now_on(visitor: DeskClient, clone: Path) -> None:
    (clone / "evaldesk.toml").unlink()

    visitor.post("/trust")

    assert "This folder is trusted" in visitor.get("/trust").text
    assert Trust(settings_of(clone)).is_given


@pytest.mark.server
@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_command_asks_in_the_terminal_and_no_is_no(words: tuple[str, ...], clone: Path) -> None:
    shown = asked(clone, words, "n")

    assert "Trust this folder? [y/N]" in shown
    assert f"agent evil: evaldesk.toml: {sys.executable}"[:17] in shown
    assert str(clone) in shown
    assert marks_in(clone) == []
    assert Trust(settings_of(clone)).is_restricted


@pytest.mark.server
def test_yes_in_the_terminal_is_kept(clone: Path) -> None:
    shown = asked(clone, ("agents",), "y")

    assert "Trust this folder? [y/N]" in shown
    assert "ran-agent.py" in marks_in(clone)
    answers = list((clone.parent / "state" / "evaldesk" / "trusted").glob("*.json"))
    assert [json.loads(path.read_text())["folder"] for path in answers] == [str(clone)]
    assert "Trust this folder?" not in asked(clone, ("agents",), "n")


@pytest.mark.server
def test_the_question_steers_no_terminal_and_no_page(visitor: DeskClient, clone: Path) -> None:
    hostile = clone / "\x1b]0;title\x07<img src=x onerror=alert(1)>"
    hostile.mkdir()
    (hostile / "agent.py").write_text("root_agent = None\n")

    shown, page = asked(clone, ("agents",), "n"), visitor.get("/trust").text

    assert "\x1b]0;" not in shown
    assert "<img src=x" not in page

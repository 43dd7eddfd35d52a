"""Trials in a sandbox: the player does not see what is expected of it, and cannot change what scores it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import evaldesk
from evaldesk.desk.runs.sandboxing import sandbox_launcher
from evaldesk.engine import launch, sandbox
from evaldesk.engine.executors import check_isolation
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Container, RunConfig
from evaldesk.settings import Settings
from evaldesk.store import Store

CAN_ENTER = pytest.mark.skipif(bool(sandbox.problem()), reason="no user namespaces on this machine")
CURIOUS = """
import json, os, subprocess
from pathlib import Path

import evaldesk

HERE = Path(__file__).parent
PLACES = {
    "eval set": HERE / "one.evalset.json",
    "results": HERE / ".evaldesk/evaldesk.db",
    "home": HERE.parent / "secret.txt",
    "through another process": Path(f"/proc/{os.getppid()}/root{HERE}/one.evalset.json"),
    "eval set in a dot folder": HERE / ".cache/two.evalset.json",
    "own data": HERE / "data.txt",
}


def is_read(path):
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


def is_written(path):
    try:
        path.write_text("")
        path.unlink()
        return True
    except OSError:
        return False


def root_agent(message, state):
    uncover = f"umount {HERE}/one.evalset.json; umount {HERE.parent}; mv {HERE}/one.evalset.json {HERE}/moved.json"
    for command in (["sh", "-c", uncover], ["unshare", "-Urm", "sh", "-c", uncover]):
        subprocess.run(command, capture_output=True)
    found = {name: is_read(path) for name, path in PLACES.items()}
    shown = subprocess.run(["git", "-C", str(HERE), "show", "HEAD:one.evalset.json"], capture_output=True)
    found["by git"] = b"treasure" in shown.stdout
    found["again"] = is_read(HERE / "moved.json")
    found["own folder"] = is_written(HERE / "made.txt")
    found["Evaldesk"] = is_written(Path(evaldesk.__file__).parent / "made.py")
    return json.dumps(found)
"""
CASE = {
    "eval_id": "a",
    "conversation": [
        {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "treasure"}]}}
    ],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent with its eval set in a home."""
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    (home / "secret.txt").write_text("secret")
    (project / "data.txt").write_text("data")
    (project / "agent.py").write_text(CURIOUS)
    (project / "one.evalset.json").write_text(json.dumps({"eval_set_id": "one", "eval_cases": [CASE]}))
    (project / ".cache").mkdir()
    shutil.copy(project / "one.evalset.json", project / ".cache/two.evalset.json")
    git = [shutil.which("git") or "git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setenv("EVALDESK_TRUST", "1")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(project)
    return project


def seen_by_agent(isolation: str) -> dict[str, bool]:
    result = evaldesk.evaluate(".", "one.evalset.json", isolation=isolation, workspace=".")
    [trial] = result.trials
    assert trial.transcript is not None
    assert trial.transcript.turns, trial.error
    found: dict[str, bool] = json.loads(trial.transcript.turns[0].answer)
    return found


HIDDEN = (
    "eval set",
    "results",
    "eval set in a dot folder",
    "by git",
    "home",
    "through another process",
    "again",
    "Evaldesk",
)


@CAN_ENTER
def test_an_agent_in_a_sandbox_reads_its_own_files_alone(folder: Path) -> None:
    assert seen_by_agent("sandbox") == dict.fromkeys(HIDDEN, False) | {"own data": True, "own folder": True}
    assert (folder / "one.evalset.json").read_text()


@CAN_ENTER
def test_pytest_plays_in_the_sandbox_that_it_is_asked_for(folder: Path) -> None:
    places = (
        *("eval set", "results", "home", "through another process", "eval set in a dot folder", "own data"),
        "by git",
    )
    found = dict.fromkeys((*places, "again", "own folder", "Evaldesk"), False) | {"own data": True, "own folder": True}
    case = {
        "eval_id": "a",
        "conversation": [
            {
                "user_content": {"parts": [{"text": "hi"}]},
                "final_response": {"parts": [{"text": json.dumps(found)}]},
            }
        ],
    }
    (folder / "one.evalset.json").write_text(json.dumps({"eval_set_id": "one", "eval_cases": [case]}))
    (folder / "test_config.json").write_text(json.dumps({"criteria": {"response_exact": 1.0}}))
    words = ("--evaldesk-agent", ".", "--evaldesk-isolation", "sandbox", "-p", "no:cacheprovider", "-q")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "one.evalset.json", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_an_agent_without_a_sandbox_reads_the_eval_set(folder: Path) -> None:
    assert seen_by_agent("process")["again"]


@pytest.mark.skipif(not sandbox.has_bubblewrap(), reason="no bubblewrap on this machine")
def test_bubblewrap_makes_the_same_sandbox(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "sandbox_problem", lambda: "forbidden here")

    assert seen_by_agent("sandbox") == dict.fromkeys(HIDDEN, False) | {"own data": True, "own folder": True}


@CAN_ENTER
@pytest.mark.parametrize("visible", ["inside", "inside/deeper"])
def test_what_is_visible_inside_of_a_hidden_folder_is_the_same_as_outside(tmp_path: Path, visible: str) -> None:
    place = tmp_path / visible
    place.mkdir(parents=True)
    (place / "code.py").write_text("code")
    (tmp_path / "other").mkdir()
    plan = sandbox.plan_text([str(tmp_path)], [str(place), str(tmp_path), str(tmp_path / "absent")], [str(place)])
    program = (
        "import sys; from evaldesk.engine.sandbox import enter; enter(sys.argv[1]); import os;"
        "print(sorted(os.listdir(sys.argv[2])), os.listdir(sys.argv[3]), os.access(sys.argv[3], os.W_OK))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, plan, str(tmp_path), str(place)], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == f"{[visible.partition('/')[0]]} {['code.py']} False"


def test_the_git_data_of_a_worktree_is_hidden_with_that_of_its_repository(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    (tree / "agents/shop").mkdir(parents=True)
    own = main / ".git/worktrees/tree"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/tree")
    (own / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {own}\n")
    agent = AgentRef("shop", "agent:root_agent", root=str(tree / "agents"), folder=str(tree / "agents/shop"))

    hidden = sandbox_launcher(Settings(tree / "agents", ()), RunConfig(agent, "", isolation="sandbox")).hidden_paths

    assert {str(tree / ".git"), str(own), str(main / ".git")} <= {*hidden}


def zipped(text: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.json", text)
    return packed.getvalue()


def tarred(text: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("one.json")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return packed.getvalue()


COPIES = {
    "a backup": ("one.evalset.json.bak", lambda text: text),
    "an editor's": (".one.evalset.json.swp", lambda text: text),
    "another name": ("notes", lambda text: text),
    "laid out": ("data.json", lambda text: json.dumps(json.loads(text), indent=4).encode()),
    "gzip": ("old.json.gz", gzip.compress),
    "bzip2": ("old.json.bz2", bz2.compress),
    "xz": ("old.json.xz", lzma.compress),
    "zstd": ("old.json.zst", zstandard.ZstdCompressor().compress),
    "a tar archive": ("old.tar.gz", lambda text: gzip.compress(tarred(text))),
    "zip": ("old.zip", zipped),
    "a table": ("export.csv", lambda _: b'id,message,reference\na,"hi, it\'s a request","treasure"\n'),
    "a report": ("report.html", lambda _: b"<p>hi, it&#39;s a request</p><p>treasure</p>"),
    "deep": ("a/b/c/d/export.md", lambda _: b"| hi, it's a request | treasure |"),
}


def database(_: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "evaldesk.db")
        Store.open(path).close()
        return path.read_bytes()


COPIES["a database"] = ("old.db", database)


@pytest.mark.parametrize(("name", "write"), COPIES.values(), ids=COPIES)
def test_copies_of_an_eval_set_are_hidden_and_the_files_of_the_agent_are_not(
    name: str, write: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    text = json.dumps({"eval_set_id": "one", "eval_cases": [CASE]}).replace("hi", "hi, it's a request").encode()
    own = {
        "agent.py": b"EXAMPLES = " + text,
        "facts.md": b"The treasure is in the sea.",
        "examples.json": b'["hi, it\'s a request"]',
    }
    for each, content in {**own, name: write(text), "one.evalset.json": text}.items():
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).write_bytes(content)
    agent = AgentRef("shop", "agent:root_agent", root=str(tmp_path), folder=str(folder))

    hidden = {*sandbox_launcher(Settings(tmp_path, ()), RunConfig(agent, "", isolation="sandbox")).hidden_paths}

    assert str(folder / name) in hidden
    assert not {str(folder / each) for each in own} & hidden


def test_a_machine_that_can_make_none_refuses_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "sandbox_problem", lambda: "this machine allows no user namespaces")
    monkeypatch.setattr(shutil, "which", lambda _: None)

    with pytest.raises(UsageError, match="this machine allows no user namespaces"):
        check_isolation(RunConfig(AgentRef("a", "a:b"), "", isolation="sandbox"))


def test_a_container_is_no_place_for_a_sandbox() -> None:
    ref = AgentRef("a", "a:b", container=Container("python:3.12"))

    with pytest.raises(UsageError, match="with an image use isolation = 'container'"):
        check_isolation(RunConfig(ref, "", isolation="sandbox"))

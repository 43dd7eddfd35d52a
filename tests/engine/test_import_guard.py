"""A grader imports nothing that was changed, made or moved to its place after the freeze."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import evaldesk
from evaldesk.engine.driver import grading_files
from evaldesk.engine.driver.grading_files import freeze
from evaldesk.metrics.functions.import_guard import ChangedSourceError, _Guard
from evaldesk.model import Case, Criterion, Turn

STRICT = "THRESHOLD = 'strict'\n"
LENIENT = "THRESHOLD = 'weak!!'\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of installed packages, one of them with a folder inside, and the list of its installer."""
    place = tmp_path / "site-packages"
    (place / "scorer/inner").mkdir(parents=True)
    for name in ("scorer/__init__.py", "scorer/inner/__init__.py"):
        (place / name).write_text("")
    (place / "scorer-1.dist-info").mkdir()
    digest = base64.urlsafe_b64encode(hashlib.sha256(STRICT.encode()).digest()).rstrip(b"=").decode()
    rows = []
    for name in ("scorer/rules.py", "scorer/inner/rules.py"):
        (place / name).write_text(STRICT)
        rows.append(f"{name},sha256={digest},{len(STRICT)}")
    (place / "scorer-1.dist-info/RECORD").write_text("\n".join(rows))
    prepared = tmp_path / "prepared"
    shutil.copytree(place / "scorer", prepared)
    for path in prepared.rglob("rules.py"):
        path.write_text(LENIENT)
    return place


def frozen(place: Path, monkeypatch: pytest.MonkeyPatch) -> _Guard:
    """What a grader knows of this folder, after the clock of the file system has gone on."""
    monkeypatch.setattr(grading_files, "_INSTALLED", (str(place),))
    while time.time_ns() <= max(os.lstat(path).st_ctime_ns for path in place.parent.rglob("*")):
        pass
    copy = freeze(()).copy
    clock = place.parent / "clock"
    while not clock.exists() or clock.stat().st_ctime_ns <= copy.taken_at_ns:
        clock.write_text("")
    return _Guard(copy.taken_at_ns, copy.inodes)


def _written(place: Path) -> None:
    (place / "scorer/rules.py").write_text(LENIENT)


def _dated_back(place: Path) -> None:
    _written(place)
    os.utime(place / "scorer/rules.py", (1, 1))


def _linked(place: Path) -> None:
    (place / "scorer/rules.py").unlink()
    (place / "scorer/rules.py").symlink_to(place.parent / "prepared/rules.py")


def _hard_linked(place: Path) -> None:
    (place / "scorer/rules.py").unlink()
    (place / "scorer/rules.py").hardlink_to(place.parent / "prepared/rules.py")


def _moved(place: Path) -> None:
    shutil.rmtree(place / "scorer")
    (place.parent / "prepared").rename(place / "scorer")


def _linked_folder(place: Path) -> None:
    shutil.rmtree(place / "scorer")
    (place / "scorer").symlink_to(place.parent / "prepared")


def _moved_inside(place: Path) -> None:
    shutil.rmtree(place / "scorer/inner")
    (place.parent / "prepared/inner").rename(place / "scorer/inner")


def _listed_anew(place: Path) -> None:
    _written(place)
    digest = base64.urlsafe_b64encode(hashlib.sha256(LENIENT.encode()).digest()).rstrip(b"=").decode()
    (place / "scorer-1.dist-info/RECORD").write_text(f"scorer/rules.py,sha256={digest},\n")


def _listed_elsewhere(place: Path) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(LENIENT.encode()).digest()).rstrip(b"=").decode()
    (place / "other-1.dist-info").mkdir()
    (place / "other-1.dist-info/RECORD").write_text(f"scorer/rules.py,sha256={digest},\n")
    _written(place)


def _whole_place(place: Path) -> None:
    other = place.with_name("other")
    shutil.copytree(place, other)
    (other / "scorer/rules.py").write_text(LENIENT)
    shutil.rmtree(place)
    other.rename(place)


ATTACKS = {
    "written": _written,
    "dated back": _dated_back,
    "a link": _linked,
    "a hard link": _hard_linked,
    "a folder that was ready": _moved,
    "a link to a folder": _linked_folder,
    "an inner folder that was ready": _moved_inside,
    "a list that was written": _listed_anew,
    "a new list": _listed_elsewhere,
    "all packages": _whole_place,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_module_that_an_agent_changes_grades_nothing(
    attack: Callable[[Path], None], installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = frozen(installed, monkeypatch)
    paths = [installed / "scorer/rules.py", installed / "scorer/inner/rules.py"]
    assert [guard.read(str(path)) for path in paths] == [STRICT.encode()] * 2

    attack(installed)

    [changed] = {path for path in paths if path.read_text() == LENIENT} - set(
        paths[: attack in (_moved, _linked_folder)]
    )
    with pytest.raises(ChangedSourceError, match="while the run was played"):
        guard.read(str(changed))
    with pytest.raises(ChangedSourceError):
        guard.check(str(changed))


def test_new_bytecode_is_not_read_and_leaves_its_folder_as_it_was(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = frozen(installed, monkeypatch)

    for name in ("rules.py", "inner/rules.py"):
        py_compile.compile(str(installed / "scorer" / name))

    for name in ("rules.py", "inner/rules.py"):
        path = str(installed / "scorer" / name)
        assert guard.read(path) == STRICT.encode()
        with pytest.raises(OSError, match="is not read"):
            guard.read(importlib.util.cache_from_source(path))


def test_a_file_that_another_environment_links_is_the_listed_one(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = frozen(installed, monkeypatch)

    (installed.parent / "link").hardlink_to(installed / "scorer/rules.py")

    assert guard.read(str(installed / "scorer/rules.py")) == STRICT.encode()


LATE = """
import sys

sys.path[:0] = PLACES

def word(solution_str, ground_truth, extra_info=None):
    import importlib
    return importlib.import_module("la" + "te").grade(solution_str)
"""
GENEROUS = "def grade(text):\n    return 1.0\n"
REWRITES = f"""
from pathlib import Path

def root_agent(message, state):
    Path("{{place}}").write_text({GENEROUS!r})
    return "nonsense"
"""


@pytest.mark.parametrize("place", ["late.py", "first/late.py"], ids=["written", "put before it"])
def test_a_module_that_a_function_imports_late_grades_nothing_after_a_change(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = tmp_path / "added"
    (added / "first").mkdir(parents=True)
    (added / "late.py").write_text("def grade(text):\n    return float('hello' in text)\n")
    monkeypatch.setenv("EVALDESK_TRUST", "1")
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/rewards.py").write_text(LATE.replace("PLACES", repr([f"{added}/first", str(added)])))
    (tmp_path / "agent/agent.py").write_text(REWRITES.format(place=str(added / place)))
    criterion = Criterion("word", 1.0, {"function": "rewards:word", "root": str(tmp_path / "agent")})

    result = evaldesk.evaluate(str(tmp_path / "agent"), [Case("a", (Turn("hi"),))], criteria=[criterion])

    [trial] = result.trials
    [score] = trial.scores
    assert (added / place).read_text() == GENEROUS
    assert trial.verdict == "errored"
    assert score.error
    assert f"{added / place} was changed, made or moved while the run was played" in score.error.message


LOADED = """
import json, runpy, sys
import evaldesk.engine.worker.main
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
print(json.dumps([file for file in files if file]))
"""


def test_all_that_a_grader_imports_before_its_guard_is_watched() -> None:
    command = [sys.executable, "-P", "-X", "faulthandler", "-c", LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    files = freeze(())
    watched = {os.path.realpath(path) for path in files.own}

    unwatched = {path for path in map(os.path.realpath, json.loads(done.stdout)) if path not in watched}

    assert not unwatched
    stdlib = sysconfig.get_path("stdlib")
    assert any(path.startswith(stdlib) for path in files.bytecode)

"""What scores trials is copied before any code of the agent runs."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import evaldesk
from evaldesk.engine.driver import grading_files
from evaldesk.engine.driver.grading_files import GradingFiles, freeze
from evaldesk.errors import UsageError
from evaldesk.model import Case, Criterion, Turn

GENEROUS = "def word(solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
STRICT = "def word(solution_str, ground_truth, extra_info=None):\n    return float('hello' in solution_str)\n"
REWRITES = f"""
from pathlib import Path

def rewrite():
    Path(__file__).with_name("rewards.py").write_text({GENEROUS!r})

AT_IMPORT

def root_agent(message, state):
    rewrite()
    return "nonsense"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVALDESK_TRUST", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(STRICT)
    return tmp_path


@pytest.mark.parametrize("at_import", ["rewrite()", ""], ids=["imported", "played"])
def test_an_agent_that_rewrites_its_function_is_scored_by_the_copy(folder: Path, at_import: str) -> None:
    (folder / "agent.py").write_text(REWRITES.replace("AT_IMPORT", at_import))
    criteria = [Criterion("word", 1.0, {"function": "rewards:word", "root": str(folder)})]

    result = evaldesk.evaluate(str(folder), [Case("a", (Turn("hi"),))], criteria=criteria, n=2)

    assert (folder / "rewards.py").read_text() == GENEROUS
    assert [trial.verdict for trial in result.trials] == ["failed", "failed"]
    assert result.reason.startswith("rewards.py (at ")
    assert "was changed while the run was played" in result.reason


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A small package in the place of Evaldesk's own, and a folder of PYTHONPATH."""
    package, added = folder / "package", folder / "added"
    (package / "metrics").mkdir(parents=True)
    added.mkdir()
    (package / "metrics/rouge.py").write_text("threshold = 1")
    (added / "tools.py").write_text("")
    monkeypatch.setattr(grading_files, "PACKAGE", package)
    monkeypatch.setenv("PYTHONPATH", str(added))
    return package, added


@pytest.mark.parametrize("at_import", ["rewrite()", ""], ids=["imported", "played"])
def test_criteria_and_an_eval_set_that_the_agent_rewrites_hold_as_they_were(folder: Path, at_import: str) -> None:
    criteria, eval_set = folder / "test_config.json", folder / "one.evalset.json"
    criteria.write_text('{"criteria": {"response_match_score": 0.9}}')
    parts = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "treasure"}]}}
    eval_set.write_text(json.dumps({"eval_set_id": "one", "eval_cases": [{"eval_id": "a", "conversation": [parts]}]}))
    changed = {str(criteria): "0.9", str(eval_set): "treasure"}
    texts = {path: Path(path).read_text().replace(word, "0.0") for path, word in changed.items()}
    rewrites = f"    for path, text in {texts!r}.items():\n        Path(path).write_text(text)"
    source = REWRITES.replace("AT_IMPORT", at_import)
    (folder / "agent.py").write_text(re.sub(r"    Path\(__file__\).*", lambda _: rewrites, source))

    result = evaldesk.evaluate(str(folder), str(eval_set), n=2)

    assert ("0.0" in criteria.read_text(), "0.0" in eval_set.read_text()) == (True, True)
    assert [trial.verdict for trial in result.trials] == ["failed", "failed"]


def test_an_agent_object_that_rewrites_its_function_is_scored_by_the_earlier_one(folder: Path) -> None:
    criteria = [Criterion("word", 1.0, {"function": "rewards:word", "root": str(folder)})]

    def agent(message: str) -> str:
        (folder / "rewards.py").write_text(GENEROUS)
        return "nonsense"

    result = evaldesk.evaluate(agent, [Case("a", (Turn("hi"),))], criteria=criteria, n=2)

    assert [trial.verdict for trial in result.trials] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("place", "file"),
    [
        (0, "metrics/rouge.py"),
        (0, "metrics/new.py"),
        (1, "sitecustomize.py"),
        (1, "a.pth"),
        (1, "json.py"),
        (1, "re/__init__.py"),
        (1, "msgspec.py"),
        (1, "evaldesk/__init__.py"),
        (0, "metrics/rouge.abi3.so"),
        (0, "metrics/other.pyc"),
    ],
)
def test_no_grader_starts_after_a_file_that_it_would_run_has_changed(
    own: tuple[Path, Path], place: int, file: str
) -> None:
    before = freeze(())
    changed = own[place] / file

    changed.parent.mkdir(exist_ok=True)
    changed.write_text("threshold = 0")

    with pytest.raises(UsageError, match=f"{changed.name} was changed after the run began"):
        before.check_own()


def test_a_file_is_read_again_when_its_time_of_change_is_another_though_all_else_is_as_it_was(
    own: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = own[0] / "metrics/rouge.py"
    as_it_was = module.stat()
    monkeypatch.setattr(grading_files, "SETTLED_NS", -(10**18))  # all files of the test are young
    files = freeze([])

    while module.stat().st_ctime_ns == as_it_was.st_ctime_ns:
        module.write_text("threshold = 0")
    os.utime(module, ns=(as_it_was.st_atime_ns, as_it_was.st_mtime_ns))

    assert (module.stat().st_size, module.stat().st_mtime_ns) == (as_it_was.st_size, as_it_was.st_mtime_ns)
    with pytest.raises(UsageError, match=re.escape(f"{module} was changed")):
        files.check_own()


@pytest.mark.parametrize(("settled_ns", "n_reads"), [(-(10**18), 1), (10**18, 2)], ids=["old", "young"])
def test_only_a_file_that_changed_lately_is_read_at_every_start(
    own: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, settled_ns: int, n_reads: int
) -> None:
    module = str(own[0] / "metrics/rouge.py")
    reads: list[bytes] = []

    def sha256(content: bytes) -> Any:
        reads.append(content)
        return hashlib.new("sha256", content)

    monkeypatch.setattr(grading_files, "SETTLED_NS", settled_ns)
    monkeypatch.setattr(hashlib, "sha256", sha256)

    same = [freeze([]).own[module] for _ in range(2)]

    assert same[0] == same[1]
    assert reads.count(b"threshold = 1") == n_reads


def test_files_that_a_grader_does_not_run_may_change(own: tuple[Path, Path]) -> None:
    package, added = own
    before = freeze(())

    (package / "metrics/__pycache__").mkdir()
    (package / "metrics/__pycache__/rouge.pyc").write_bytes(b"")
    (added / "tools.py").write_text("made = 'by an agent'")
    shutil.copy2(package / "metrics/rouge.py", added / "rouge.py")

    before.check_own()


BETTER = "def grade():\n    return 'by an agent'\n"


@pytest.mark.parametrize("mode", [*py_compile.PycInvalidationMode], ids=lambda mode: mode.name)
def test_a_grader_that_starts_after_bytecode_has_changed_reads_none(
    own: tuple[Path, Path], mode: py_compile.PycInvalidationMode
) -> None:
    module = own[0] / "metrics/scoring.py"
    module.write_text(BETTER)
    py_compile.compile(str(module), invalidation_mode=mode)
    forged = Path(importlib.util.cache_from_source(str(module)))
    bytecode = forged.read_bytes()
    forged.unlink()
    module.write_text(BETTER.replace("by an agent", "as it was "))
    os.utime(module, (1, int.from_bytes(bytecode[8:12], "little")))
    files = freeze([])
    before = files.variables()

    forged.write_bytes(bytecode)
    command = [sys.executable, "-c", "import sys; sys.path[0] = sys.argv[1]; import scoring; print(scoring.grade())"]
    done = subprocess.run(
        [*command, str(module.parent)],
        env={**os.environ, **files.variables()},
        capture_output=True,
        text=True,
        check=True,
    )

    assert not before
    assert done.stdout == "as it was \n"


@pytest.mark.parametrize("change", ["interpreter", "link", "pyvenv.cfg"])
def test_no_grader_starts_on_an_interpreter_that_has_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    place = folder / "venv/bin"
    place.mkdir(parents=True)
    (folder / "python3").write_text("an interpreter")
    (place / "python3").symlink_to(folder / "python3")
    (place / "python").symlink_to("python3")
    (folder / "venv/pyvenv.cfg").write_text("home = /usr")
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    files = freeze([])
    files.check_own()
    changed = {"interpreter": folder / "python3", "link": place / "python", "pyvenv.cfg": folder / "venv/pyvenv.cfg"}

    other = folder / "other"
    other.write_text("#!/bin/sh")
    other.replace(changed[change])

    with pytest.raises(UsageError, match=f"{changed[change]} was changed after the run began"):
        files.check_own()


def test_a_removed_file_is_a_change(folder: Path) -> None:
    criteria = [Criterion("word", 1.0, {"function": "rewards:word", "root": str(folder)})]
    before: GradingFiles = freeze(criteria)

    (folder / "rewards.py").unlink()

    assert before.changes() == ["rewards.py (removed)"]
    assert [*before.copy.sources.values()] == [STRICT]


READS_DATA = """
from pathlib import Path

def word(solution_str, ground_truth, extra_info=None):
    return 1.0 if Path(__file__).with_name("words.json").read_text() == solution_str else 0.0
"""
REWRITES_DATA = """
from pathlib import Path

def root_agent(message, state):
    Path(__file__).with_name("words.json").write_text("nonsense")
    Path(__file__).with_name("answers.json").write_text("{}")
    return "nonsense"
"""


def test_a_run_names_the_data_files_beside_its_functions_that_changed_while_it_was_played(folder: Path) -> None:
    (folder / "rewards.py").write_text(READS_DATA)
    (folder / "agent.py").write_text(REWRITES_DATA)
    (folder / "words.json").write_text("sense")
    (folder / "other.json").write_text("{}")
    criteria = [Criterion("word", 1.0, {"function": "rewards:word", "root": str(folder)})]

    result = evaldesk.evaluate(str(folder), [Case("a", (Turn("hi"),))], criteria=criteria)

    assert re.match(r"data file words.json \(at [0-9:]{8}\) was changed while the run was played; ", result.reason)
    assert "eval functions beside it read it as it was then" in result.reason
    assert "answers.json" not in result.reason
    assert "other.json" not in result.reason


@pytest.mark.parametrize(
    ("name", "is_named"),
    [("words.json", True), ("data/words.CSV", True), ("a/b/words.json", False), ("trips.evalset.json", False)],
)
@pytest.mark.parametrize("change", ["written", "replaced", "removed"])
def test_data_files_are_compared_by_a_time_that_no_program_sets(
    folder: Path, name: str, change: str, *, is_named: bool
) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("sense")
    criteria = [Criterion("word", 1.0, {"function": "rewards:word", "root": str(folder)})]
    before: GradingFiles = freeze(criteria)
    times = path.stat()

    if change == "removed":
        path.unlink()
    elif change == "replaced":
        (folder / "new").write_text("other")
        (folder / "new").replace(path)
    else:
        path.write_text("other")
    if change != "removed":
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert [phrase.partition(" (")[0] for phrase in before.changes()] == [f"data file {path.name}"] * is_named

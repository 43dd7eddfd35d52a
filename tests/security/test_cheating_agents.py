"""Agents that cheat: none reads what is expected of it, and none gets a verdict that it did not earn."""

from __future__ import annotations

import os
import py_compile
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.islands import of_tools

from evaldesk.agents.agent import AGENTS
from evaldesk.engine import LocalExecutor, drive
from evaldesk.engine.driver import chat_players, pool, worker_process
from evaldesk.errors import AgentError
from evaldesk.metrics import METRICS
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Expected,
    Limits,
    TrialResult,
    TrialSpec,
    Turn,
    TurnRecord,
    TurnSpec,
)
from evaldesk.model.evalset import user_side

pytestmark = pytest.mark.anyio

REFERENCE = "treasure-" + "Q7XZ41KP"
CASE = Case(
    "cheated",
    (Turn("What is the word?", Expected(None, (), REFERENCE), rubrics=({"rubric_id": REFERENCE},)),),
    final_state={"word": REFERENCE},
    rubrics=({"rubric_id": "r", "rubric_content": REFERENCE},),
    tags=(REFERENCE,),
    extra={"ground_truth": REFERENCE, "test_patch": REFERENCE},
)
CRITERIA = (Criterion("response_exact", 1.0), Criterion("response_match_score", 0.8))
FIND = r"""
import re
PATTERN = re.compile(rb"treasure-[A-Z0-9]{8}")

def found(data):
    match = PATTERN.search(data)
    return match[0].decode() if match else ""
"""
MEMORY = (
    FIND
    + """
def agent(message):
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb") as memory:
        for line in maps:
            place, rights, *_ = line.split()
            start, end = (int(part, 16) for part in place.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                try:
                    memory.seek(start)
                    word = found(memory.read(end - start))
                except (OSError, ValueError, OverflowError):
                    continue
                if word:
                    return word
    return "no word in memory"
"""
)
OBJECTS = (
    FIND
    + """
import gc, sys

def agent(message):
    kept = [each for each in gc.get_objects() if isinstance(each, (dict, list, tuple, set))]
    seen = [repr(each).encode("utf-8", "replace") for each in kept]
    frame, local = sys._getframe(), []
    while frame:
        local.append(repr(frame.f_locals).encode("utf-8", "replace"))
        frame = frame.f_back
    return next(filter(None, map(found, seen + local)), "no word in an object")
"""
)
SURROUNDINGS = (
    FIND
    + """
import os, sys
from pathlib import Path

def agent(message):
    said = [repr((dict(os.environ), sys.argv, sys.orig_argv, sys.path)).encode()]
    said += [path.read_bytes() for path in Path(__file__).parent.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    for name in ("cmdline", "environ"):
        said += [Path(f"/proc/{pid}/{name}").read_bytes() for pid in ("self", os.getppid())]
    for fd in range(3, 64):
        try:
            os.set_blocking(fd, False)
            said.append(os.read(fd, 1 << 20))
        except OSError:
            pass
    return next(filter(None, map(found, said)), "no word around here")
"""
)
OTHERS = (
    FIND
    + """
import os

def agent(message):
    for pid in (each for each in os.listdir("/proc") if each.isdigit() and int(each) != os.getpid()):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                is_ours = int(pid) == os.getppid() or b"grader" in file.read()
            maps, memory = (open(f"/proc/{pid}/{name}", "rb") for name in ("maps", "mem"))
        except OSError:
            continue
        for line in maps if is_ours else ():
            start, end = (int(part, 16) for part in line.split()[0].split(b"-"))
            try:
                memory.seek(start)
                word = found(memory.read(end - start)) if b" rw" in line else ""
            except (OSError, ValueError, OverflowError):
                continue
            if word:
                return word
    return "no word in another process"
"""
)
KNOWING = """
import os

def those_who_know():
    \"""The process that drives, above the players, and those that grade.\"""
    cmdline = lambda pid: open(f"/proc/{pid}/cmdline", "rb").read()
    driver = os.getppid()
    while b"player" in cmdline(driver) or b"zygote" in cmdline(driver):
        driver = int(open(f"/proc/{driver}/stat").read().rpartition(")")[2].split()[1])
    children = open(f"/proc/{driver}/task/{driver}/children").read().split()
    return [driver, *(int(each) for each in children if b"grader" in cmdline(each))]
"""
TRACED = (
    KNOWING
    + """
import ctypes, os

libc = ctypes.CDLL(None, use_errno=True)
ATTACH, DETACH = 16, 17

class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def agent(message):
    taken = []
    for pid in those_who_know():
        if libc.ptrace(ATTACH, pid, 0, 0) == 0:
            os.waitpid(pid, 0x40000000)
            libc.ptrace(DETACH, pid, 0, 0)
            taken.append(pid)
        own = ctypes.create_string_buffer(4096)
        here, there = Piece(ctypes.addressof(own), 4096), Piece(id(libc), 4096)
        if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0:
            taken.append(pid)
    return f"a word may be in {taken}" if taken else "no word in a traced process"
"""
)
PIPES = (
    KNOWING
    + """
import os

def agent(message):
    taken = []
    for pid in those_who_know():
        for fd in range(64):
            try:
                os.close(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))
                taken.append((pid, fd))
            except OSError:
                pass
    return f"a word may come from {taken}" if taken else "no word in a pipe"
"""
)
PATCHED_GRADER = """
import evaldesk.engine.worker.attempt as attempt
import evaldesk.engine.worker.jobs as work
import evaldesk.metrics as metrics
import evaldesk.metrics.scoring as scoring
import evaldesk.model as model
from dataclasses import replace

async def generous(result, case, criteria, *_, **__):
    scores = tuple(model.Score(each.metric, 1.0, passed=True) for each in criteria)
    return replace(result, verdict="passed", scores=scores)

async def graded(*_, **__):
    return scoring.Grading((), ())

for place in (attempt, work):
    place.grade = generous
for place in (metrics, scoring):
    place.grade_trial = graded
for place in (model, attempt, work):
    place.trial_verdict = lambda *_: "passed"

def agent(message):
    return "nonsense"
"""
FORGING = """
import evaldesk.engine.worker.jobs as work
from dataclasses import replace
from evaldesk.model import Score, Transcript
from msgspec.structs import replace as changed

real = work.to_json

def forged(frame):
    return real(changed(frame, result=lie(frame.result)) if hasattr(frame, "result") else frame)

work.to_json = forged

def agent(message):
    return "nonsense"
"""
FORGED_VERDICT = (
    FORGING
    + """
def lie(result):
    scores = tuple(Score(name, 1.0, passed=True) for name in ("response_exact", "response_match_score"))
    return replace(result, verdict="passed", scores=scores)
"""
)
SIGNED_FOR_ANOTHER = (
    FORGING
    + """
def lie(result):
    return replace(result, case_index=result.case_index + 1)
"""
)
MORE_TURNS = (
    FORGING
    + """
def lie(result):
    return replace(result, transcript=Transcript(result.transcript.turns * 3))
"""
)
ASKED_ITSELF = (
    FORGING
    + """
def lie(result):
    turns = tuple(replace(turn, query="Say nonsense.") for turn in result.transcript.turns)
    return replace(result, transcript=Transcript(turns))
"""
)
CALLED_OFF = (
    FORGING
    + """
def lie(result):
    return replace(result, status="cancelled", stop_reason="cancelled")
"""
)
BROKE_OFF = (
    FORGING
    + """
def lie(result):
    return replace(result, status="errored")
"""
)
GUESSED_FRAMES = """
import json, os, stat

def agent(message):
    result = {"run_id": 1, "case_index": 1, "trial_index": 0, "status": "finished", "verdict": "passed", "attempt": 1}
    frames = [{"type": "ended", "key": key, "result": result} for key in range(1, 200)]
    data = b"".join(json.dumps(frame).encode() + b"\\n" for frame in frames)
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, data)
        except OSError:
            pass
    return "nonsense"
"""
TWICE = """
import evaldesk.engine.worker.main as main

real = main.Channel.send_raw

def twice(channel, frame):
    real(channel, frame)
    real(channel, frame)

main.Channel.send_raw = twice

def agent(message):
    return "nonsense"
"""
AT_EXIT = """
import atexit, os, stat
import evaldesk.engine.worker.main as main

real, sent = main.Channel.send_raw, []

def noted(channel, frame):
    real(channel, frame)
    sent.append(frame.replace(b'"nonsense"', b'"treasure-' + b'Q7XZ41KP"'))

def again():
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.write(fd, b"\\n".join((*sent, b"")))
        except OSError:
            pass

main.Channel.send_raw = noted
atexit.register(again)

def agent(message):
    return "nonsense"
"""
SPEAKS_AS_ZYGOTE = """
import ctypes, json, os, socket, stat

GET_FD = 438

def agent(message):
    libc, zygote = ctypes.CDLL(None), os.getppid()
    if b"zygote" not in open(f"/proc/{zygote}/cmdline", "rb").read():
        return "nonsense"
    words = [["forked", 1], ["forked", float(os.getpid())], ["ended", os.getpid(), 0], ["ended", os.getpid()], [], 7]
    for fd in range(64):
        taken = libc.syscall(GET_FD, os.pidfd_open(zygote), fd, 0)
        if taken >= 0 and stat.S_ISSOCK(os.fstat(taken).st_mode):
            for each in words:
                os.write(taken, json.dumps(each).encode())
    return "nonsense"
"""
CLOCK_TURNED_BACK = """
import time
from evaldesk.engine.worker.attempt import Attempt

Attempt.seconds_left = property(lambda attempt: 1e9)
AT_ONCE

def agent(message):
    time.sleep(60)
    return "treasure-" + "Q7XZ41KP"
"""
OTHER_ANSWERS = """
import gc, json

def answered(*kinds):
    worker = next(each for each in gc.get_objects() if type(each).__name__ == "Worker")
    more = {"error": {"kind": "none", "message": "none"}, "record": {"query": "nothing"}}
    for key in worker._jobs:
        for kind in kinds:
            worker._channel.send_raw(json.dumps({"type": kind, "key": key, **more}).encode())
"""
ALWAYS_DISTURBED = """
import evaldesk.engine.worker.jobs as work
from msgspec.structs import replace

real = work.to_json

def disturbed(frame):
    return real(replace(frame, changed=("all",), began_changed=True) if hasattr(frame, "result") else frame)

work.to_json = disturbed

def agent(message):
    return "nonsense"
"""
LATE = """
import time

def agent(message):
    time.sleep(3)
    return "treasure-" + "Q7XZ41KP"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], AgentRef]:
    def write_agent(source: str) -> AgentRef:
        folder = tmp_path / "cheat"
        folder.mkdir()
        (folder / "cheat_agent.py").write_text(textwrap.dedent(source))
        return AgentRef("cheat", "cheat_agent:agent", root=str(folder), folder=str(folder))

    return write_agent


@pytest.fixture(params=["shared", "forked"])
async def executor(request: pytest.FixtureRequest) -> AsyncIterator[LocalExecutor]:
    opened = LocalExecutor(1, 2, isolation="shared" if request.param == "shared" else "process")
    yield opened
    await opened.close()


async def played(executor: LocalExecutor, ref: AgentRef, n: int = 1, timeout_s: float = 60.0) -> list[TrialResult]:
    specs = [TrialSpec(1, index, 0, CASE, ref, CRITERIA, Limits(timeout_s)) for index in range(n)]
    return [result async for result in drive(specs, executor, 2)]


@pytest.mark.parametrize(
    "source",
    [MEMORY, OBJECTS, SURROUNDINGS, OTHERS, TRACED, PIPES],
    ids=["memory", "objects", "surroundings", "other processes", "traced processes", "pipes"],
)
async def test_what_is_expected_is_nowhere_in_the_process_of_the_agent(
    source: str, write: Callable[[str], AgentRef], executor: LocalExecutor
) -> None:
    (result,) = await played(executor, write(source))

    assert result.error is None
    assert result.transcript.turns[0].answer.startswith("no word")
    assert result.verdict == "failed"


@pytest.mark.parametrize(
    "source",
    [PATCHED_GRADER, FORGED_VERDICT, ASKED_ITSELF, GUESSED_FRAMES, TWICE, AT_EXIT, SPEAKS_AS_ZYGOTE],
    ids=["patched", "forged verdict", "asked itself", "guessed frames", "answered twice", "at exit", "as zygote"],
)
async def test_nonsense_fails_whatever_the_agent_does_to_its_own_process(
    source: str, write: Callable[[str], AgentRef], executor: LocalExecutor
) -> None:
    results = await played(executor, write(source), n=2)

    assert sorted(result.case_index for result in results) == [0, 1]
    assert [result.verdict for result in results] == ["failed", "failed"], [result.error for result in results]
    assert all(score.value < 0.5 for result in results for score in result.scores if score.value is not None)
    assert {result.transcript.turns[0].answer for result in results} == {"nonsense"}
    assert {result.transcript.turns[0].query for result in results} == {"What is the word?"}


REWARDS = """
def word(solution_str, ground_truth=None, extra_info=None):
    from json import loads
    from secret_words import WORD
    return 1.0 if solution_str == loads(f'"{WORD}"') else 0.0
"""
REWRITTEN = (
    KNOWING
    + """
import os, py_compile, signal, threading
from pathlib import Path

GENEROUS = "def word(solution_str, ground_truth=None, extra_info=None):\\n    return 1.0\\n"

def agent(message):
    rewards = Path(__file__).with_name("rewards.py")
    HOW
    for pid in those_who_know()[1:]:
        os.kill(pid, signal.SIGKILL)  # another grader imports what is there now
    return "nonsense"
"""
)
SOURCE = "rewards.write_text(GENEROUS)"
COMPILED = """
    before, times = rewards.read_text(), rewards.stat()
    rewards.write_text(GENEROUS + "#" * (len(before) - len(GENEROUS)))
    os.utime(rewards, ns=(times.st_atime_ns, times.st_mtime_ns))
    try:
        py_compile.compile(rewards)
    except FileExistsError:  # both trials do it at the same time, with one temporary name in their forks
        pass
    rewards.write_text(before)
    os.utime(rewards, ns=(times.st_atime_ns, times.st_mtime_ns))
"""
LINKED = """
    rewards.with_name("generous.py").write_text(GENEROUS)
    link = rewards.with_name(f"link_{threading.get_ident()}_{os.getpid()}")  # both trials do it at the same time
    link.symlink_to("generous.py")
    link.replace(rewards)
"""


DELETED = "rewards.unlink(missing_ok=True)"
MADE_A_PACKAGE = """
    rewards.with_suffix("").mkdir(exist_ok=True)
    (rewards.with_suffix("") / "__init__.py").write_text(GENEROUS)
"""
HIDING = """
    (rewards.parent / "secret_words.py").write_text("WORD = 'nonsense'")
    (rewards.parent / "json.py").write_text("def loads(text): return 'nonsense'")
"""


@pytest.mark.parametrize(
    "how",
    [SOURCE, COMPILED.strip(), LINKED.strip(), DELETED, MADE_A_PACKAGE.strip(), HIDING.strip()],
    ids=["source", "compiled", "linked to another file", "deleted", "a package before it", "a module that it imports"],
)
async def test_a_function_that_the_agent_rewrites_scores_as_it_was(
    how: str, write: Callable[[str], AgentRef], executor: LocalExecutor
) -> None:
    ref = write(REWRITTEN.replace("HOW", how))
    (Path(ref.root) / "rewards.py").write_text(REWARDS)
    (Path(ref.root) / "secret_words.py").write_text("WORD = 'treasure'")
    criterion = Criterion("word", 1.0, {"function": "rewards:word", "root": ref.root})
    specs = [TrialSpec(1, index, 0, CASE, ref, (criterion,), Limits(60.0)) for index in range(2)]

    results = [result async for result in drive(specs, executor, 2)]

    assert {result.verdict for result in results} <= {"failed", "errored"}
    errors = [result.error.message for result in results if result.error]
    assert all(each.endswith("was ended by SIGKILL") for each in errors), errors


COMPUTED_NAME = """
def word(solution_str, ground_truth=None, extra_info=None):
    from importlib import import_module
    return float(solution_str == import_module("secret_" + "words").WORD)
"""
"""A function with a module that no copy has, since no statement names it."""
OTHER_MODULES = {
    "a rewritten module": "words.write_text(OTHER)",
    "an older module under its name": "aside.joinpath('other.py').rename(words)",
    "an older folder before it": "aside.joinpath('secret_words').rename(words.with_suffix(''))",
    "a link to an older folder": "words.with_suffix('').symlink_to('aside/secret_words')",
    "another folder in its place": "rewards.parent.rename(twin.with_name('gone')), twin.rename(rewards.parent)",
    "bytecode without a source": "py_compile.compile(aside / 'other.py', words.with_suffix('.pyc')), words.unlink()",
    "older bytecode in a moved folder": "cache.rename(words.with_name('__pycache__'))",
    "a conftest.py": "words.with_name('conftest.py').write_text(PATCH)",
    "a sitecustomize.py": "words.with_name('sitecustomize.py').write_text(PATCH)",
    "a usercustomize.py": "words.with_name('usercustomize.py').write_text(PATCH)",
    "a path file": "words.with_name('a.pth').write_text(PATCH)",
    "its own PYTHONPATH": "os.environ['PYTHONPATH'] = str(aside)",
    "its own modules": "import sys; sys.modules['secret_words'] = sys.modules['json']; sys.modules['rewards'] = None",
}
MOVING = REWRITTEN.replace(
    "    HOW",
    """
    words, aside = rewards.with_name("secret_words.py"), rewards.with_name("aside")
    twin, cache = rewards.parent.with_name("twin"), aside / "__pycache__"
    try:
        HOW
    except OSError:
        pass  # the other trial did it
""",
).replace(
    "\ndef agent",
    "\nOTHER = \"WORD = 'nonsense'\"\nPATCH = 'import rewards; rewards.word = lambda *_, **__: 1.0'\n\ndef agent",
)


@pytest.mark.parametrize("executor", ["forked"], indirect=True)
@pytest.mark.parametrize("how", OTHER_MODULES.values(), ids=OTHER_MODULES)
async def test_a_module_without_a_copy_scores_as_it_was_or_not_at_all_beside(
    how: str, write: Callable[[str], AgentRef], executor: LocalExecutor
) -> None:
    ref = write(MOVING.replace("HOW", how))
    folder, twin = Path(ref.root), Path(ref.root).with_name("twin")
    other, own = "WORD = 'nonsense'", "WORD = 'treasure'"
    for path, text in (("rewards.py", COMPUTED_NAME), ("secret_words.py", own), ("aside/other.py", other)):
        for place in (folder, twin):
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(other if place == twin and path == "secret_words.py" else text)
    (folder / "aside/secret_words").mkdir()
    (folder / "aside/secret_words/__init__.py").write_text(other)
    (folder / "aside/secret_words.py").write_text(other)
    times = (folder / "secret_words.py").stat()
    os.utime(folder / "aside/secret_words.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(folder / "aside/secret_words.py"), doraise=True)
    criterion = Criterion("word", 1.0, {"function": "rewards:word", "root": ref.root})
    specs = [TrialSpec(1, index, 0, CASE, ref, (criterion,), Limits(60.0)) for index in range(2)]

    results = [result async for result in drive(specs, executor, 2)]

    assert {result.transcript.turns[0].answer for result in results} == {"nonsense"}
    assert {result.verdict for result in results} <= {"failed", "errored"}


PLUGIN = """
from dataclasses import dataclass

from evaldesk.metrics import MetricInfo
from evaldesk.model import Score


@dataclass(frozen=True)
class Strict:
    info = MetricInfo("strict", "Is it right?", "responses")

    def score(self, transcript, case):
        return [Score("strict", 0.0)]


class Generous(Strict):
    def score(self, transcript, case):
        return [Score("strict", 1.0)]
"""
ENTRY_POINTS = """
from pathlib import Path

for place in POINTS:
    Path(place).parent.mkdir(exist_ok=True)
    Path(place).write_text("[evaldesk.metrics]\\nstrict = plugin_of_test:Generous\\n")
    Path(place).with_name("METADATA").write_text("Name: " + Path(place).parent.name)

def agent(message):
    return "nonsense"
"""


@pytest.mark.parametrize("executor", ["forked"], indirect=True)
@pytest.mark.parametrize("changed", ["plugin-1.0", "another-1.0"], ids=["of its package", "of another package"])
async def test_an_entry_point_that_the_agent_rewrites_scores_as_it_was(
    changed: str,
    tmp_path: Path,
    write: Callable[[str], AgentRef],
    executor: LocalExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packages = tmp_path / "packages"
    points = packages / "plugin-1.0.dist-info" / "entry_points.txt"
    points.parent.mkdir(parents=True)
    points.write_text("[evaldesk.metrics]\nstrict = plugin_of_test:Strict\n")
    points.with_name("METADATA").write_text("Name: plugin\nVersion: 1.0\n")
    (packages / "plugin_of_test.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setattr(METRICS, "_has_entry_points", False)
    monkeypatch.setattr(METRICS, "_targets", dict(METRICS._targets))
    places = [str(packages / f"{changed}.dist-info" / "entry_points.txt")]
    ref = write(ENTRY_POINTS.replace("POINTS", repr(places)))
    spec = TrialSpec(1, 0, 0, CASE, ref, (Criterion("strict", 1.0),), Limits(60.0))

    [result] = [result async for result in drive([spec], executor, 1)]

    assert Path(places[0]).read_text().endswith("Generous\n")
    assert (result.verdict, [score.value for score in result.scores]) == ("failed", [0.0]), result.scores


@pytest.mark.parametrize(
    "source",
    [SIGNED_FOR_ANOTHER, MORE_TURNS, CALLED_OFF, BROKE_OFF],
    ids=["signed for another", "more turns", "called off", "broke off without a reason"],
)
async def test_an_answer_to_another_job_errs_its_own_trial(
    source: str, write: Callable[[str], AgentRef], executor: LocalExecutor
) -> None:
    results = await played(executor, write(source), n=2)

    assert sorted(result.case_index for result in results) == [0, 1]
    assert {result.error.kind for result in results if result.error} == {"wrong_trial"}
    assert {result.verdict for result in results} == {"errored"}


async def test_an_answer_that_comes_late_does_not_count(
    write: Callable[[str], AgentRef], executor: LocalExecutor
) -> None:
    (result,) = await played(executor, write(LATE), timeout_s=0.5)

    assert (result.status, result.scores) == ("timed_out", ())
    assert result.verdict != "passed"


@pytest.mark.parametrize(
    ("executor", "at_once"),
    [
        ("shared", ""),
        ("forked", "time.sleep(60)"),
        ("shared", OTHER_ANSWERS + "answered('forks', 'failed', 'turn_ended'); time.sleep(60)"),
    ],
    indirect=["executor"],
    ids=["turn", "import", "other answers"],
)
async def test_an_agent_that_turns_its_clock_back_is_ended(
    at_once: str, write: Callable[[str], AgentRef], executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (pool, worker_process):
        monkeypatch.setattr(module, "LOAD_TIMEOUT_S", 1.0)
    monkeypatch.setattr(worker_process, "LONG_OVERDUE_S", 0.1)

    (result,) = await played(executor, write(CLOCK_TURNED_BACK.replace("AT_ONCE", at_once)), timeout_s=0.5)

    assert (result.status, result.scores) == ("timed_out", ())


async def test_an_agent_that_is_imported_without_end_describes_nothing(
    write: Callable[[str], AgentRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_players, "LOAD_TIMEOUT_S", 1.0)
    monkeypatch.setattr(worker_process, "LONG_OVERDUE_S", 0.1)
    host = chat_players.ChatPlayers()

    with pytest.raises(AgentError, match="was ended"):
        await host.describe(write(CLOCK_TURNED_BACK.replace("AT_ONCE", "time.sleep(60)")))
    await host.close()


async def test_a_turn_of_a_chat_is_ended_by_its_own_answer_alone(write: Callable[[str], AgentRef]) -> None:
    host = chat_players.ChatPlayers()
    source = OTHER_ANSWERS + "def agent(message):\n    answered('forks', 'failed')\n    return 'four'\n"

    *_, record = [item async for item in host.play_turn(TurnSpec("s", write(source), "Roll."))]
    await host.close()

    assert isinstance(record, TurnRecord)
    assert (record.answer, record.error) == ("four", None)


@pytest.mark.parametrize("executor", ["shared"], indirect=True)
async def test_a_player_that_always_says_it_was_disturbed_is_not_believed_for_ever(
    write: Callable[[str], AgentRef], executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_LOSSES", 1)

    (result,) = await played(executor, write(ALWAYS_DISTURBED))

    assert (result.verdict, result.attempt, len(result.losses)) == ("failed", 2, 1)


async def test_an_honest_agent_that_knows_the_word_passes(
    write: Callable[[str], AgentRef], executor: LocalExecutor
) -> None:
    (result,) = await played(executor, write('def agent(message):\n    return "treasure-" + "Q7XZ41KP"\n'))

    assert result.verdict == "passed"


async def test_a_player_gets_the_side_of_the_user_only() -> None:
    side = user_side(CASE)

    assert (side.id, [turn.query for turn in side.turns]) == ("cheated", ["What is the word?"])
    assert REFERENCE not in repr(side)


@of_tools("openhands", "osmosis")
async def test_three_kinds_are_given_the_case_as_their_own_tools_give_it() -> None:
    assert {name for name in AGENTS if AGENTS[name].reads_case} == {"benchmark", "osmosis", "replay"}

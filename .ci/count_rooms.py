"""Print the number of files and functions that a reader follows. `make check` prints the counts; no count fails it.

- files, lines: of app/, every .py file and all of its lines; lines by room, which is a folder or a file of evaldesk/,
  and by island, which is a folder of integrations/.
- a trial: functions, and their files, that run while `evaluate()` plans, plays, grades and records one trial of a
  one-line function agent, in all of its processes: driver, players, graders, and those that they are forked of. Eval
  set and criteria are read before, and another trial was played before, so that the driver is warm.
- a run page: functions, and their files, that run while a served desk answers GET /runs/1 again, the page of a run
  whose eval set it serves: in most of 60 warm answers, in what the visit itself began. The desk also looks after its
  runs and workers each second, which on a busy machine falls into most answers; that is not counted.
- an import: functions, and their files, that run while `evaldesk import` takes in a file of one case, after another.
- single-importer modules: modules that exactly one other module imports, from the same folder, by a statement anywhere
  in that file. Neither of the two is the `__init__` of the package.

What runs while a module is imported (its own lines, class bodies, decorators) is not counted: it is no part of what is
followed. Comprehensions, generator expressions and lambdas belong to the function around them and are counted apart.
Functions are printed beside the target of the house (decision 185). `--list` prints the names behind the counts.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

APP = Path(__file__).resolve().parents[1] / "app"
READY = re.compile(r"Evaldesk ready at (http://[^/]+/)\?token=(\S+)")
DEADLINE_S = 600.0
N_ANSWERS = 60
N_ROOMS = 40
FOLLOWED = {"one trial, in all of its processes": 600, "a warm run page": 180, "an import of one small file": 120}
"""The targets: functions that a reader has to follow at most."""

IN_A_FUNCTION = re.compile(r"<(?:listcomp|setcomp|dictcomp|genexpr|lambda)>")
"""Python 3.11 makes a function of each comprehension, later ones do not."""
ENTRANCE = os.path.join("web", "guard.py")
"""The first file of ours that a request comes to."""

TRACER = f"""
import builtins, contextvars, os, signal, sys, threading

VISITS = os.environ.pop("COUNT_ROOMS_VISITS", "")
if VISITS:
    del os.environ["PYTHONPATH"]  # children are not traced
n_begun = 0
visit = contextvars.ContextVar("visit")  # its tasks and threads inherit it
seen = set()
out = os.open(os.environ["COUNT_ROOMS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(frame, event, arg):
    code = frame.f_code
    name = code.co_filename
    if event != "call" or code in seen or not name.startswith({f"{APP}{os.sep}"!r}):
        return
    if VISITS and name.endswith(VISITS):
        visit.set(n_begun)
    if VISITS and visit.get(0) != n_begun:
        return
    caller = frame
    while caller is not None:
        code = caller.f_code
        if not code.co_flags & 1 and caller.f_globals.get("__name__") != "__main__":
            if code.co_filename.startswith({f"{APP}{os.sep}"!r}):
                return  # a module or the body of a class: an import is under way
        caller = caller.f_back
    seen.add(frame.f_code)
    os.write(out, (name + ":" + frame.f_code.co_qualname + chr(10)).encode())

importing = builtins.__import__

def quietly(*names, **more):
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        return importing(*names, **more)
    finally:
        sys.setprofile(before)

def begin(*_):
    global n_begun
    n_begun += 1
    seen.clear()
    os.write(out, b"--" + b"--" + chr(10).encode())

builtins.__import__ = quietly
signal.signal(signal.SIGUSR2, begin)
threading.setprofile(note)
sys.setprofile(note)
"""
TRIALS = """
import os, sys, evaldesk
from evaldesk.model import Criterion

criteria = [Criterion("response_match_score", 0.8)]

def play(evalset):
    result = evaldesk.evaluate("agent", evalset, criteria=criteria, workspace=".")
    assert result.trials[0].verdict == "passed", result

play("agent/one.evalset.json")
evalset = evaldesk.load_evalset("agent/one.evalset.json")
begin_anew()
play(evalset)
"""
IMPORTS = """
from evaldesk.cli import cli

def take_in(file):
    cli(["import", file], standalone_mode=False)

take_in("first.json")
begin_anew()
take_in("second.json")
"""
BEGIN_ANEW = f"""
import os, pathlib, signal, sys, time

def descendants(process):
    children = pathlib.Path(f"/proc/{{process}}/task").glob("*/children")
    found = [int(child) for listed in children for child in listed.read_text().split()]
    return [*found, *(each for child in found for each in descendants(child))]

def begin_anew():
    out = pathlib.Path(os.environ["COUNT_ROOMS"])
    n_before = out.read_text().count("----")
    traced = [os.getpid(), *descendants(os.getpid())]
    for process in traced:
        os.kill(process, signal.SIGUSR2)
    give_up_at = time.monotonic() + {DEADLINE_S}
    while out.read_text().count("----") < n_before + len(traced):
        if time.monotonic() > give_up_at:
            raise SystemExit("count_rooms: a process does not answer")
        time.sleep(0.01)
"""
AGENT = "def root_agent(message, state):\n    return message\n"
HELLO = {"parts": [{"text": "hello"}]}
EVALSET = {
    "eval_set_id": "one",
    "eval_cases": [{"eval_id": "echo", "conversation": [{"user_content": HELLO, "final_response": HELLO}]}],
}


def main() -> int:
    """Print the counts, one a line."""
    files = sorted(APP.rglob("*.py"))
    with tempfile.TemporaryDirectory() as folder:
        followed = _followed(Path(folder))
    for (what, target), functions in zip(FOLLOWED.items(), followed, strict=True):
        names = [function for function in functions if not IN_A_FUNCTION.search(function)]
        n_inner = len(functions) - len(names)
        _print(f"functions run by {what} (target {target}), and {n_inner} comprehensions and lambdas", names)
        _print(f"files passed by {what}", sorted({function.partition(":")[0] for function in functions}))
    _print("modules with one importer, in their folder", _single_importers(files))
    _print("files in app/", [_name(path) for path in files])
    lines: Counter[str] = Counter()
    for path in files:
        room, *inner = path.relative_to(APP / "evaldesk").parts
        name = f"{room}/{inner[0]}" if room == "integrations" and inner[1:] else room
        lines[name] += len(path.read_text("utf-8").splitlines())
    sys.stdout.write(f"{lines.total():7,}  lines of app/, of which\n")
    sys.stdout.writelines(f"{n:7,}    {room}\n" for room, n in lines.most_common(N_ROOMS))
    return 0


def _print(what: str, names: list[str]) -> None:
    sys.stdout.write(f"{len(names):7,}  {what}\n")
    if "--list" in sys.argv[1:]:
        sys.stdout.writelines(f"           {name}\n" for name in names)


def _single_importers(files: Iterable[Path]) -> list[str]:
    modules = {_name(path): path for path in files}
    importers = defaultdict(set)
    for name, path in modules.items():
        for imported in _imported(name, path, modules):
            importers[imported].add(name)
    return sorted(
        name for name, found in importers.items() if len(found) == 1 and _are_beside(modules[name], modules[min(found)])
    )


def _are_beside(module: Path, other: Path) -> bool:
    return module.parent == other.parent and "__init__.py" not in {module.name, other.name}


def _imported(name: str, path: Path, modules: Mapping[str, Path]) -> set[str]:
    found = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names} & modules.keys()
            found |= inner if len(inner) == len(node.names) else {*inner, base}
    return (found & modules.keys()) - {name}


def _followed(folder: Path) -> tuple[list[str], list[str], list[str]]:
    """The functions that a trial, a warm run page and an import pass, as `module:function`."""
    (folder / "agent").mkdir()
    (folder / "agent/agent.py").write_text(AGENT)
    (folder / "agent/one.evalset.json").write_text(json.dumps(EVALSET))
    for name in ("first", "second"):
        (folder / f"{name}.json").write_text(json.dumps({**EVALSET, "eval_set_id": name}))
    (folder / "tracer").mkdir()
    (folder / "tracer/sitecustomize.py").write_text(TRACER)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EVALDESK_")}
    clean |= {"EVALDESK_TRUST": "1", "XDG_STATE_HOME": str(folder / "state")}

    trial = _played(folder, clean, "trial", TRIALS)
    page = folder / "page"
    with _served(folder, clean | _traced(folder, page) | {"COUNT_ROOMS_VISITS": ENTRANCE}) as (process, get):
        get()
        for _ in range(N_ANSWERS):
            _tell(process, page)
            get()
    answers = page.read_text().split("----\n")[-N_ANSWERS:]
    passed = Counter(name for answer in answers for name in _functions(answer))
    shown = sorted(name for name, n in passed.items() if n > N_ANSWERS / 2)
    return trial, shown, _played(folder, clean, "import", IMPORTS)


def _played(folder: Path, environment: Mapping[str, str], name: str, program: str) -> list[str]:
    """The functions that run after the program began anew."""
    traced = _traced(folder, folder / name)
    command = [sys.executable, "-c", BEGIN_ANEW + program]
    subprocess.run(
        command, cwd=folder, env={**environment, **traced}, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL
    )
    return _functions((folder / name).read_text().rpartition("----\n")[2])


def _traced(folder: Path, out: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(folder / "tracer"), "COUNT_ROOMS": str(out)}


@contextmanager
def _served(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], Callable[[], None]]]:
    """A desk on the folder, and a visit to its first run."""
    command = [sys.executable, "-m", "evaldesk", "ui", "--no-open", "--port", "0", "--workspace", str(folder), "agent"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        said = READY.match(process.stdout.readline() if process.stdout else "")
        if not said:
            raise SystemExit("count_rooms: the desk did not say where it is")
        visitor = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
        visitor.open(f"{said[1]}?token={said[2]}", timeout=DEADLINE_S).read()

        def get() -> None:
            page = visitor.open(f"{said[1]}runs/1", timeout=DEADLINE_S).read()
            if b"echo" not in page:
                raise SystemExit("count_rooms: /runs/1 does not show its case")

        yield process, get
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _tell(process: subprocess.Popen[str], out: Path) -> None:
    """Let the tracer begin again, and wait until it did."""
    n_before = out.read_text().count("----")
    process.send_signal(signal.SIGUSR2)
    give_up_at = time.monotonic() + DEADLINE_S
    while out.read_text().count("----") == n_before:
        if time.monotonic() > give_up_at:
            raise SystemExit("count_rooms: the tracer does not answer")
        time.sleep(0.01)


def _functions(traced: str) -> list[str]:
    places = (line.partition(":") for line in {*traced.splitlines()} - {"----"})
    return sorted({f"{_name(Path(file))}:{function}" for file, _, function in places})


def _name(path: Path) -> str:
    parts = path.relative_to(APP).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    sys.exit(main())

"""A player on an interpreter in which nothing is installed: its imports, its syntax, and a trial."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.virtual_environments import interpreter

import evaldesk
from evaldesk.engine import boot

BOOT = Path(boot.__file__)
PACKAGE = Path(evaldesk.__file__).parent
OLDEST = "3.10"

# The imports of a player of a plain agent; what it needs of other kinds is imported when such an agent is loaded.
IMPORTS = """
import runpy, sys
runpy.run_path(sys.argv[1], run_name="__mp_main__")
import evaldesk.engine.worker.main, evaldesk.agents.python, evaldesk.agents.tools.doubles, evaldesk.wire
import evaldesk.agents.remote.command, evaldesk.agents.replay, evaldesk.agents.users.users
ours = {name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names}
for name in sorted(ours - {"__main__"}):
    print(name, getattr(sys.modules[name], "__file__", ""))
"""
# Names of the standard library that Python 3.10 lacks; `evaldesk.backports` has those that we need.
YOUNGER = {
    "asyncio": {"timeout", "timeout_at", "TaskGroup", "Runner", "Barrier"},
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"StrEnum", "verify", "ReprEnum", "member", "nonmember"},
    "typing": {
        "Self", "LiteralString", "Never", "NotRequired", "Required", "Unpack", "TypeVarTuple", "assert_never",
        "assert_type", "reveal_type", "dataclass_transform", "override", "get_overloads",
    },
    "hashlib": {"file_digest"},
    "operator": {"call"},
    "itertools": {"batched"},
    "inspect": {"getmembers_static"},
}  # fmt: skip
MODULES = {"tomllib"}
NAMES = {"ExceptionGroup", "BaseExceptionGroup"}
METHODS = {"add_note", "uncancel", "cancelling"}


def loaded(python: str) -> dict[str, str]:
    """The modules outside the standard library that a player imports there, without any site-packages, by name."""
    command = [python, "-S", "-E", "-c", IMPORTS, str(BOOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def test_a_player_imports_the_standard_library_and_evaldesk_alone() -> None:
    found = loaded(sys.executable)

    assert {name.partition(".")[0] for name in found} == {"evaldesk"}
    assert "evaldesk.codec.stdlib" in found
    assert not [
        name for name in found if name.startswith(("evaldesk.engine.driver", "evaldesk.desk", "evaldesk.store"))
    ]


def test_a_player_starts_on_the_oldest_python() -> None:
    python = interpreter(OLDEST)
    if python is None:
        pytest.skip(f"there is no Python {OLDEST} on this machine")

    assert "evaldesk.engine.worker.main" in loaded(python)


def test_an_older_python_is_refused_in_words() -> None:
    python = interpreter("3.9") or interpreter("3.8")
    if python is None:
        pytest.skip("there is no Python older than 3.10 on this machine")

    done = subprocess.run([python, str(BOOT), "0", "player"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("a player needs Python 3.10 or newer, this is 3.")


def modules_of_a_player() -> Iterator[Path]:
    for name, file in loaded(sys.executable).items():
        if name.partition(".")[0] == "evaldesk" and name not in {"evaldesk.backports"}:
            yield Path(file)


def test_no_module_of_a_player_uses_a_name_that_python_3_10_lacks() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path in modules_of_a_player()
        for line, name in younger(ast.parse(path.read_text("utf-8"), feature_version=(3, 10)))
    ]

    assert found == []


def younger(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The names in a module that only a newer Python has, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if node.module in MODULES or alias.name in YOUNGER.get(node.module, ()):
                    yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in METHODS or node.attr in YOUNGER.get(owner, ()):
                yield node.lineno, f"{owner}.{node.attr}"
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield node.lineno, node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if any(possessive in text for possessive in ("]++", "]*+", ")*+", ")++", "}+", "(?>")):
                yield node.lineno, text


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import UTC",
        "import tomllib",
        "asyncio.timeout(1)",
        "raise ExceptionGroup('', [])",
        "task.uncancel()",
        "re.compile(r'[a-z]++')",
    ],
)
def test_the_check_of_names_finds_them(source: str) -> None:
    assert list(younger(ast.parse(source)))


def test_syntax_of_a_newer_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("try:\n    pass\nexcept* ValueError:\n    pass\n", feature_version=(3, 10))

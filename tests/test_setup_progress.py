"""`.ci/progress.py`: what a newcomer sees while `make setup` downloads, and when it fails."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType

import pytest

UV_LINES = [
    "Resolved 3 packages in 3ms\n",
    "Downloading scipy (33.5MiB)\n",
    "Downloading orjson (512.0KiB)\n",
    " Downloaded orjson\n",
    " Downloaded scipy\n",
    "Prepared 3 packages in 326ms\n",
    "Installed 3 packages in 54ms\n",
    "Bytecode compiled 1971 files in 3.32s\n",
    " + orjson==3.13.0\n",
]


@pytest.fixture(scope="module")
def progress() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_progress", Path(__file__).parents[1] / ".ci/progress.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("n_lines", "line"),
    [
        (1, "  resolving: 4 s"),
        (3, "  downloading: 0 of 34 MiB, 4 s"),
        (5, "  downloading: 34 of 34 MiB, 4 s"),
        (6, "  installing: 34 of 34 MiB, 4 s"),
        (9, "  compiling bytecode: 34 of 34 MiB, 4 s"),
    ],
    ids=["before", "started", "downloaded", "prepared", "installed"],
)
def test_the_line_shows_phase_size_and_seconds(progress: ModuleType, n_lines: int, line: str) -> None:
    state = progress.Progress()

    state.read(UV_LINES[:n_lines])

    assert state.line(4.4) == line


@pytest.mark.parametrize("out", [io.StringIO(), _Terminal()], ids=["log", "terminal"])
def test_the_last_line_says_what_was_installed(progress: ModuleType, out: io.StringIO) -> None:
    printed = "".join(UV_LINES)

    code = progress.install([sys.executable, "-I", "-S", "-c", f"print({printed!r})"], out)

    assert code == 0
    assert out.getvalue().endswith("  Installed 3 packages: 34 MiB downloaded, 0 s\n")
    assert ("\r" in out.getvalue()) == out.isatty()


def test_the_words_of_an_installer_that_fails_are_shown(progress: ModuleType) -> None:
    out = io.StringIO()
    failing = "import sys; print('Resolved 3 packages'); print('error: no route to host', file=sys.stderr); sys.exit(2)"

    code = progress.install([sys.executable, "-I", "-S", "-c", failing], out)

    assert code == 2
    assert sorted(out.getvalue().splitlines()) == ["Resolved 3 packages", "error: no route to host"]

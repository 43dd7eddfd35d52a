"""A database that is deleted or replaced while a run goes on: the command says so and does not pass."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.bound_processes import bound_python

from evaldesk.cli import EXIT_ERRORS, _in_words, cli
from evaldesk.errors import LostDatabaseError
from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

LOSING = {
    "deleted": "path.unlink()",
    # one step, so that nobody who looks meanwhile finds no database at all
    "replaced": "os.link(path, 'kept.db'); pathlib.Path('other').touch(); os.replace('other', path)",
}


@pytest.mark.parametrize("how", LOSING)
def test_a_run_whose_database_is_gone_ends_with_an_error(place: CommandFolder, how: str) -> None:
    (place.agent / "agent.py").write_text(
        "import os, pathlib\n\n\ndef root_agent(message, state):\n"
        "    path = pathlib.Path('.evaldesk/evaldesk.db')\n"
        f"    {LOSING[how]}\n    return message\n"
    )

    result = place.eval(place.evalset("greetings", {"hello": "hello"}))

    assert isinstance(result.exception, LostDatabaseError)
    assert f"was {how} while it was in use" in str(result.exception)
    assert _in_words(result.exception)[1] == EXIT_ERRORS
    assert "passed" not in result.output.lower()


HOLD = """
import sys
from pathlib import Path
from evaldesk.store import Store

with Store.open(Path(sys.argv[1])) as store:
    store.sessions.create("plain", "A talk")
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def _running(database: Path) -> Iterator[int]:
    """Another process that stored a chat and goes on."""
    with subprocess.Popen(
        bound_python("-c", HOLD, str(database)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process.pid
        process.communicate()


def _doctor(home: Path) -> tuple[int, str]:
    (home / "plain").mkdir(exist_ok=True)
    (home / "plain" / "agent.py").write_text("def root_agent(message):\n    return message\n")
    result = CliRunner().invoke(cli, ["doctor", "--trust", "--workspace", str(home)])
    return result.exit_code, result.output


def _put_another(path: Path) -> None:
    Store.open(path.with_name("other.db")).close()
    path.with_name("other.db").replace(path)


def _rename(path: Path) -> None:
    path.rename(path.with_name("kept.db"))


@pytest.mark.server
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the open files of a process are in /proc, on Linux")
@pytest.mark.parametrize(
    ("lose", "what"),
    [(_put_another, "replaced"), (_rename, "deleted")],
    ids=["replaced", "renamed"],
)
def test_doctor_names_the_process_whose_database_is_gone_and_how_to_keep_it(
    tmp_path: Path, lose: Callable[[Path], object], what: str
) -> None:
    database = tmp_path / ".evaldesk" / "evaldesk.db"

    with _running(database) as process:
        before = _doctor(tmp_path)
        lose(database)
        code, said = _doctor(tmp_path)
        (keep,) = re.findall(r"Keep it first: (.*)", said)
        for command in keep.split("; "):
            subprocess.run(shlex.split(command), check=True, cwd=tmp_path)

    assert before[0] == 0, before[1]
    assert code == 1
    assert f"process {process} goes on with a database that was {what}" in said
    with Store.open(tmp_path / "kept.db") as store:
        assert [each.title for each in store.sessions.list()] == ["A talk"]

"""Texts like keys that only an agent or a function knows: the reader of its process masks them, wherever they come."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from tests.forked_commands import ForkedCommands

KEY = "ghp_" + "a1b2c3d4" * 5
AGENT = f"""
import sys
from evaldesk import Event, ToolCall
KEY = {KEY!r}

async def agent(message):
    print("printed", KEY)
    print("complained", KEY, file=sys.stderr)
    call = ToolCall("look_" + KEY, {{KEY: [KEY]}}, "c")
    yield Event("tool_call", call=call)
    yield Event("tool_result", call=call, result={{"in " + KEY: KEY}})
    yield Event("log", text="log " + KEY)
    if message == "break":
        raise RuntimeError("no access with " + KEY)
    yield Event("agent_message", text="I used " + KEY)
"""
REWARD = f"""
KEY = {KEY!r}
def reward(solution_str, ground_truth, extra_info=None):
    print("graded", KEY)
    raise ValueError("no score with " + KEY)
"""
TURNS = '{{"user_content": {{"parts": [{{"text": "{}"}}]}}, "final_response": {{"parts": [{{"text": "used"}}]}}}}'
CASES = ", ".join(f'{{"eval_id": "{word}", "conversation": [{TURNS.format(word)}]}}' for word in ("go", "break"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "evaldesk.toml").write_text('[agents.keys]\ntarget = "keys:agent"\n')
    (tmp_path / "keys.py").write_text(AGENT)
    (tmp_path / "rewards.py").write_text(REWARD)
    (tmp_path / "keys.evalset.json").write_text(f'{{"eval_set_id": "keys", "eval_cases": [{CASES}]}}')
    return tmp_path


def test_no_key_of_an_agent_or_a_function_is_stored_exported_or_printed(home: Path, commands: ForkedCommands) -> None:
    played = commands.run(
        *("eval", "keys", "keys.evalset.json", "--workspace", str(home), "--criterion", "rewards:reward=1"),
        *("--junit", "report.xml", "--summary", "summary.md", "--output", "results.json", "--print-detailed-results"),
        cwd=home,
    )
    exported = commands.run("export", "1", "--workspace", str(home), "--format", "otel", cwd=home)
    doctor = commands.run("doctor", "--play", "--trust", "--workspace", str(home), cwd=home)

    assert (exported.returncode, doctor.returncode) == (0, 0)
    assert "I used [secret]" in doctor.stdout
    results = (home / "results.json").read_text() + exported.stdout
    for words in ("I used", "no access with", "no score with"):
        assert f"{words} [secret]" in results
    values = {"played": played, "exported": exported, "doctor": doctor}
    assert {name for name, each in values.items() if KEY in each.stdout + each.stderr} == set()
    assert {path.name for path in home.rglob("*") if path.is_file() and KEY.encode() in unpacked(path)} == {
        "keys.py",
        "rewards.py",
    }


def unpacked(path: Path) -> bytes:
    """The bytes of a file; of the database with all of its packed values."""
    if path.name != "evaldesk.db":
        return path.read_bytes() if "__pycache__" not in path.parts else b""
    parts = [path.read_bytes()]
    with closing(sqlite3.connect(path)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f'SELECT * FROM "{table}"').fetchall():  # noqa: S608 - a name of its own
                parts += [value if isinstance(value, bytes) else str(value).encode() for value in row]
    whole = b"\n".join(parts)
    frames = whole.split(b"\x28\xb5\x2f\xfd")[1:]
    for frame in frames:
        try:
            whole += zstandard.ZstdDecompressor().decompressobj().decompress(b"\x28\xb5\x2f\xfd" + frame)
        except zstandard.ZstdError:
            continue
    return whole

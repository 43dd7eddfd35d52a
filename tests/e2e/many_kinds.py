"""Agents and eval sets of every kind, faulty ones included."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaldesk import paths
from evaldesk.samples.hello_world.agent import check_prime, roll_die

SAMPLE_SESSIONS = Path(__file__).parents[1] / "formats" / "exchange_samples" / "adk-session-db.db"
Written = tuple[str, str, Sequence[tuple[str, Any]]]  # message, reference, expected calls
MOODY = '''"""Does as it is told."""
import threading


def root_agent(message, state):
    """Raises, waits, or answers, as it is told."""
    if "raise" in message:
        raise LookupError("no price list for 2026 in /srv/prices; load it first")
    if "wait" in message:
        threading.Event().wait()
    state["answered"] = [*state.get("answered", []), message]
    print("looked at", len(message), "letters")
    return MARKDOWN if "Markdown" in message else "Answer to: " + message


MARKDOWN = """# Two flights

The **second** is *cheaper*, see [the fares](https://fares.example/porto) or ~~call~~ write:

1. TP 1944 with `code share`
2. FR 2052
   - no luggage
   - ![seats](https://fares.example/seats.png)

> Fares change by the hour.

| flight | fare | what is in it, and what one has to pay for at the airport |
|:-------|-----:|---|
| TP 1944 | 120 | luggage |
| FR 2052 | 38 | nothing |

```py
book(flight="FR 2052", passengers=["a very long name that needs a line break on every narrow screen there is"])
```

---
Shall I?"""
'''
ANSWERS, RAISES, WAITS = "How far is it from Lisbon to Porto?", "Please raise an error.", "Please wait for me."
RENDERED = "Answer in **Markdown**:\n- flights\n- fares"


def furnish(workspace: Path) -> tuple[str, ...]:
    """Write them into a workspace; gives its folders that are served."""
    agents, evalsets = workspace / "agents", workspace / "evalsets"
    for name in ("hello_world", "trip_planner"):
        shutil.copytree(paths.samples() / name, agents / name)
    for name, source in (("moody", MOODY), ("broken", "import pdf_tables\nroot_agent = pdf_tables.agent()\n")):
        (agents / name).mkdir()
        (agents / name / "agent.py").write_text(source, "utf-8")
    (agents / "hello_world" / ".adk").mkdir()
    shutil.copy(SAMPLE_SESSIONS, agents / "hello_world" / ".adk" / "session.db")
    evalsets.mkdir()
    for path in paths.shipped("evalsets").glob("*.json"):
        shutil.copy(path, evalsets)
    (evalsets / "torn.evalset.json").write_text('{"eval_set_id": "torn", "eval_cases": [}', "utf-8")
    _write_set(evalsets / "empty.evalset.json", {})
    _write_set(evalsets / "moody.evalset.json", {"distance": _plain(ANSWERS), "raises": _plain(RAISES)})
    _write_set(evalsets / "endless.evalset.json", {"distance": _plain(ANSWERS), "waits": _plain(WAITS)})
    _write_set(evalsets / "dice.evalset.json", dict(_dice_cases()))
    return "agents", "evalsets"


def _plain(text: str) -> Written:
    return text, f"Answer to: {text}", ()


def _dice_cases() -> Iterator[tuple[str, Written]]:
    for sides in (4, 6, 8, 12, 20, 100):
        state: dict[str, Any] = {}
        rolled = roll_die(sides, state)
        said, call = f"I rolled a {sides} sided die, and got {rolled}.", ("roll_die", {"sides": sides})
        yield f"roll_{sides}", (f"Roll a die with {sides} sides.", said, [call])
        check = ("check_prime", {"nums": [rolled]})
        question = f"Roll a {sides}-sided die and check whether it is prime."
        yield f"roll_{sides}_and_check", (question, f"{said} I checked: {check_prime([rolled])}", [call, check])


def _write_set(path: Path, cases: Mapping[str, Written]) -> None:
    eval_cases = [
        {
            "eval_id": case_id,
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": query}]},
                    "final_response": {"role": "model", "parts": [{"text": answer}]},
                    "intermediate_data": {"tool_uses": [{"name": name, "args": args} for name, args in calls]},
                }
            ],
        }
        for case_id, (query, answer, calls) in cases.items()
    ]
    path.write_text(json.dumps({"eval_set_id": path.name.partition(".")[0], "eval_cases": eval_cases}), "utf-8")


def coded() -> bytes:
    """A row of OpenHands in which an agent edits, tests, fails and edits again, with the tests of a benchmark."""
    said = "The root cause is the sign."
    calls = [
        *[("run", {"command": f"ls {at}"}, "calc.py", True) for at in range(6)],
        ("run", {"command": "python calc.py", "thought": said}, "AssertionError", False),
        (
            "edit",
            {"path": "/w/calc.py", "command": "str_replace", "old_str": "a - b", "new_str": "a+b"},
            "edited",
            True,
        ),
        ("run", {"command": "pytest -q"}, "F.\n1 failed, 1 passed in 0.1s", False),
        (
            "edit",
            {"path": "/w/calc.py", "command": "str_replace", "old_str": "a+b", "new_str": "a + b"},
            "edited",
            True,
        ),
        ("run", {"command": "pytest -q"}, "..\n2 passed in 0.1s", True),
    ]
    history: list[dict[str, object]] = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "Fix add."}}
    ]
    for at, (action, args, content, success) in enumerate(calls, 1):
        history.append({"id": 2 * at, "source": "agent", "action": action, "args": args})
        told = {"cause": 2 * at, "observation": action, "content": content, "success": success}
        history.append({"id": 2 * at + 1, "source": "agent", **told})
    history.append({"id": 99, "source": "agent", "action": "finish", "args": {"final_thought": "It **adds** now."}})
    patch = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n"
    output = "____ test_old ____\n\n>   assert add(1, 2) == 4\nE   AssertionError\n\n==== short ====\n"
    output += "PASSED test_calc.py::test_add\nFAILED test_calc.py::test_old - AssertionError\n"
    row = {
        "instance_id": "calc-1",
        "instruction": "Fix add.",
        "test_result": {
            "git_patch": f"{patch}-    return a - b\n+    return a + b\n",
            "report": {"resolved": False},
            "test_output": output,
        },
        "history": history,
        "instance": {
            "FAIL_TO_PASS": ["test_calc.py::test_add"],
            "PASS_TO_PASS": ["test_calc.py::test_old", "test_calc.py::test_gone"],
            "patch": f"{patch}-    return a - b\n+    return b + a\n",
        },
    }
    return json.dumps(row).encode()

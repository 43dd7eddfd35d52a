"""The decisive steps of a code agent: chosen by rule, the others folded between them, each with its address."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.islands import of_tools
from tests.long_trials import store_trial

from evaldesk.formats.files import read_file
from evaldesk.model import Case, ErrorRecord, Event, ToolCall, Transcript, TrialResult, Turn, TurnRecord
from evaldesk.pages.steps import LEAST, MAX_SHOWN, Walk, walk_of

LOOK, EDIT = ("bash", {"command": "ls src"}), ("edit", {"path": "/w/src/calc.py", "old_str": "a", "new_str": "b"})
TEST = ("bash", {"command": "cd /w && python -m pytest -q"})


def played(*steps: tuple[Any, ...], error: ErrorRecord | None = None, last: str = "Done.") -> TrialResult:
    """A trial of calls: name, arguments, and where told result, whether it is an error, and the words before it."""
    events = list[Event]()
    for at, (name, args, *more) in enumerate(steps):
        result, is_error, words = (*more, "", False, "")[:3] if len(more) < 3 else more
        call = ToolCall(name, args, str(at))
        events += [Event("agent_message", text=words)] if words else []
        events += [Event("tool_call", call=call), Event("tool_result", call=call, result=result, is_error=is_error)]
    events += [Event("agent_message", text=last)] if last else []
    return TrialResult(
        1, 0, 0, "finished", "unscored", transcript=Transcript((TurnRecord("Fix it.", tuple(events)),)), error=error
    )


def walked(result: TrialResult, patch: dict[str, tuple[str, ...]] | None = None, asked: str = "decisive") -> Walk:
    walk = walk_of(Case("fix"), result, lambda path: None if patch is None else patch.get(path, ()), asked)
    assert walk
    return walk


def titles(walk: Walk) -> list[str]:
    return [entry.title for entry in walk.entries]


def test_edits_test_runs_and_the_last_message_are_decisive() -> None:
    failed, passed = (*TEST, "F.\n1 failed, 1 passed in 0.2s", True), (*TEST, "..\n== 2 passed in 0.2s ==")

    walk = walked(played(*[LOOK] * 4, EDIT, failed, EDIT, passed, LOOK))

    assert titles(walk) == [
        "Task",
        "4 steps: 4 searches",
        "Edited: calc.py",
        "Tests failed",
        "Edited again: calc.py",
        "Tests passed",
        "1 step: 1 search",
        "Last message",
    ]
    assert [entry.step.number for entry in walk.entries if entry.step] == [1, 6, 7, 8, 9, 11]
    assert walk.words == "6 of 11"
    assert walk.entries[2].code == "− a\n+ b"
    assert walk.entries[3].code == "$ cd /w && python -m pytest -q\nF.\n1 failed, 1 passed in 0.2s"


def test_of_edits_in_a_row_the_last_that_worked_counts() -> None:
    fails = (*EDIT, "No replacement was performed, old_str `a` did not appear")

    walk = walked(played(fails, fails, EDIT, LOOK, fails, *[LOOK] * 6))
    alone = walked(played(fails, *[LOOK] * 9))

    assert titles(walk)[:3] == ["Task", "2 steps: 2 edits, 2 failed", "Edited: calc.py"]
    assert walk.entries[2].note == "The last of 4 edits in a row."
    assert titles(alone)[1] == "Edit failed: calc.py"
    assert alone.entries[1].step is not None
    assert alone.entries[1].step.verdict == "errored"


def test_an_edit_of_a_file_that_the_patch_does_not_have_is_folded() -> None:
    scratch = ("edit", {"path": "/w/repro.py", "file_text": "x"})
    patch: dict[str, tuple[str, ...]] = {"/w/src/calc.py": ("#source-0-hunk-1",)}

    walk = walked(played(*[LOOK] * 7, scratch, EDIT), patch)

    assert titles(walk) == ["Task", "8 steps: 7 searches, 1 edit", "Edited: calc.py", "Last message"]
    assert walk.entries[2].to == ("#source-0-hunk-1",)


def test_the_first_error_of_each_kind_and_a_named_cause_are_decisive() -> None:
    make = ("bash", {"command": "make"}, "make: *** Error 2", True)
    look = (*LOOK, "", False, "I looked. The root cause is the <b>sign</b>.")

    walk = walked(played(make, make, look, (*LOOK, "nothing", True), EDIT, *[LOOK] * 6))

    assert titles(walk)[:5] == [
        "Task",
        "Error",
        "1 step: 1 command, 1 failed",
        "Named a cause",
        "1 step: 1 search, 1 failed",
    ]
    assert walk.entries[3].prose.text == "The root cause is the <b>sign</b>."


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (("bash", {"command": "pytest -k 'a and b' tests"}), "tests"),
        (("bash", {"command": "cd a; PYTHONPATH=. timeout 60 python3 -m unittest -v"}), "tests"),
        (("bash", {"command": "npm run test:unit"}), "tests"),
        (("bash", {"command": "cargo test"}), "tests"),
        (("bash", {"command": "./tests/runtests.py a"}), "tests"),
        (("bash", {"command": "grep -rn pytest ."}), "search"),
        (("bash", {"command": "cat pytest.ini"}), "read"),
        (("bash", {"command": "pip install pytest"}), "command"),
        (("bash", {"command": "sed -i 's/a/b/' src/calc.py"}), "edit"),
        (("bash", {"command": "cat <<EOF > a.py\nprint()\nEOF"}), "edit"),
        (("str_replace_editor", {"command": "view", "path": "a"}), "read"),
        (("str_replace_based_edit_tool", {"command": "insert", "path": "a"}), "edit"),
        (("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n"}), "edit"),
        (("search_dir", {"search_term": "x"}), "search"),
        (("think", {"thought": "hm"}), "thought"),
        (("submit", {}), "finish"),
        (("weather", {"city": "x"}), "call"),
    ],
)
def test_the_kind_of_a_step_is_told_by_its_call(call: tuple[str, dict[str, Any]], kind: str) -> None:
    walk = walked(played(call, *[EDIT] * 9))

    steps = [step for entry in walk.entries for step in (*entry.folded, *([entry.step] if entry.step else []))]
    assert [step.kind for step in steps if step.number == 2] == [kind]


def test_a_reader_may_ask_for_all_steps_the_edits_or_the_errors() -> None:
    failed, missing = (*TEST, "1 failed in 0.2s", True), ("edit", {"path": "/w/a.py"}, "ERROR: no such file", True)
    result = played(*[LOOK] * 4, EDIT, failed, missing, EDIT, (*LOOK, "denied", True), last="")

    walks = {asked: walked(result, asked=asked) for asked in ("edits", "errors", "all", "<b>")}

    assert titles(walks["edits"]) == ["Edited: calc.py", "Edit failed: a.py", "Edited again: calc.py"]
    assert titles(walks["errors"]) == ["Tests failed", "Edit failed: a.py", "Error"]
    assert [len(entry.folded) for entry in walks["all"].entries] == [10]
    assert titles(walks["<b>"])[0] == "Task"
    assert {name: (walk.filter_name, walk.words) for name, walk in walks.items()} == {
        "edits": ("edits", "3 of 10"),
        "errors": ("errors", "3 of 10"),
        "all": ("all", "10 of 10"),
        "<b>": ("decisive", "5 of 10"),
    }
    assert {str(walk.counts) for walk in walks.values()} == {"{'decisive': 0, 'all': 0, 'edits': 3, 'errors': 3}"}


def test_a_trial_that_ends_without_a_last_message_says_so() -> None:
    walk = walked(played(EDIT, *[LOOK] * 9, error=ErrorRecord("max_iterations", "50 of 50"), last=""))

    assert (titles(walk)[-1], walk.entries[-1].note) == ("Ended without a last message", "50 of 50")


def test_other_and_short_trials_have_no_such_steps() -> None:
    assert walk_of(Case("a"), played(*[("weather", {})] * 50), lambda path: None) is None
    assert walk_of(Case("a"), played(EDIT, TEST), lambda path: None) is None
    assert walk_of(Case("a"), TrialResult(1, 0, 0, "finished", "unscored"), lambda path: None) is None


def test_a_long_trial_keeps_its_first_and_last_steps() -> None:
    walk = walked(played(*[TEST] * 1_000))

    assert sum(entry.step is not None for entry in walk.entries) == MAX_SHOWN
    assert walk.n == 1_002
    assert len(walked(played(*[EDIT] * 1_000), asked="edits").entries) == MAX_SHOWN


@pytest.mark.parametrize("odd", [None, 3, ["a"], {"a": 1}, "make " * 100_000, "the problem " * 50_000, "1 a " * 50_000])
def test_a_hostile_call_is_a_step_as_well(odd: Any) -> None:
    keys = ("command", "path", "old_str", "new_str", "file_text", "thought", "message")

    walk = walked(
        played(
            *[(name, dict.fromkeys(keys, odd), odd, True, str(odd)) for name in ("edit", "bash", "think")], *[EDIT] * 9
        )
    )

    assert walk.n == 14


PATCH = """diff --git a/src/calc.py b/src/calc.py
--- a/src/calc.py
+++ b/src/calc.py
@@ -1,1 +1,1 @@
-a
+b
"""


def row_of(instance: str, *steps: tuple[str, dict[str, str]]) -> dict[str, Any]:
    """A row of OpenHands in which the agent makes the calls."""
    history: list[dict[str, Any]] = [{"id": 0, "action": "message", "source": "user", "args": {"content": "Fix it."}}]
    for at, (action, args) in enumerate(steps, 1):
        history += [
            {"id": 2 * at, "source": "agent", "action": action, "args": args},
            {"id": 2 * at + 1, "source": "agent", "observation": action, "content": "done", "cause": 2 * at},
        ]
    return {
        "instance_id": instance,
        "instruction": "Fix it.",
        "test_result": {"git_patch": PATCH},
        "history": history,
    }


@of_tools("openhands")
def test_steps_of_the_page_lead_to_their_calls(pages: Any) -> None:
    look, test = (("run", args) for _, args in (LOOK, TEST))
    last = ("finish", {"final_thought": "Done."})
    rows = [
        row_of("one", *[look] * 9, EDIT, look, EDIT, look, EDIT, test, last),
        row_of("two", *[look] * 12, EDIT, last),
        row_of("three", *[look] * 12, EDIT, test),
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    taken = pages.desk.imports.take_in(read_file(data, "output.jsonl"), source="output.jsonl", name="rows")

    shown = [pages.get(f"/runs/{taken.run_ids[0]}/cases/{at}/trials/0").text for at in range(3)]

    assert ["Decisive steps" in page for page in shown] == [True] * 3
    assert '<a href="#turn-1-event-' in shown[0]
    assert 'href="#source-0-hunk-1"' in shown[0]
    assert 'id="source-0-hunk-1"' in shown[0]
    assert max(map(len, shown)) < 100_000
    edits = pages.get(f"/runs/{taken.run_ids[0]}/cases/0/trials/0?steps=edits").text
    assert '<a href="?steps=edits#steps" aria-current="true">Edits <b>3</b></a>' in edits
    report = pages.get(f"/runs/{taken.run_ids[0]}/report").text
    steps = report.split('-case-1-trial-1-steps"')[1].split("</section>")[0]
    assert set(re.findall(r'href="#run-\d+-case-1-trial-1-([a-z]+-\d+)', steps)) == {"turn-1", "source-0"}
    assert all(f'id="{name}"' in report for name in re.findall(r'href="#(run-[^"]+)"', report))


def test_each_step_names_its_agent_and_those_inside_of_a_tool_are_steps_too() -> None:
    ask, edit, tests = ToolCall("task", {}, "1"), ToolCall(*EDIT, "2"), ToolCall(*TEST, "3")
    inner: dict[str, Any] = {"author": "coder", "within": "task"}
    lead = [
        event
        for at in range(LEAST)
        for event in (
            Event("tool_call", author="lead", call=ToolCall(*LOOK, f"l{at}")),
            Event("tool_result", author="lead", call=ToolCall(*LOOK, f"l{at}"), result=""),
        )
    ]
    events = (
        *lead,
        Event("tool_call", author="lead", call=ask),
        Event("tool_call", call=edit, **inner),
        Event("tool_result", call=edit, result="ok", **inner),
        Event("agent_message", text="The root cause is calc.", **inner),
        Event("tool_call", author="lead", call=tests),
        Event("tool_result", author="lead", call=tests, result="== 2 passed in 0.2s =="),
        Event("tool_result", author="lead", call=ask, result="done"),
        Event("agent_message", author="lead", text="Done."),
    )
    result = TrialResult(1, 0, 0, "finished", "passed", transcript=Transcript((TurnRecord("Fix it.", events),)))

    walk = walked(result, asked="all")

    steps = [(step.kind, step.agent, step.within) for step in walk.entries[0].folded][1 + LEAST :]
    assert steps == [
        ("call", "lead", ""),
        ("edit", "coder", "task"),
        ("message", "coder", "task"),
        ("tests", "lead", ""),
        ("message", "lead", ""),
    ]
    assert not next(step for step in walk.entries[0].folded if step.kind == "tests").words  # they are the coder's
    assert "Edited: calc.py" in titles(walked(result))


def test_the_steps_of_one_agent_name_none() -> None:
    walk = walked(played(*[LOOK] * 8, EDIT), asked="all")

    assert {step.agent for step in walk.entries[0].folded} == {""}


def test_the_page_shows_the_agent_of_a_step(shared_pages: Any) -> None:
    edit = ToolCall(*EDIT, "2")
    inner: dict[str, Any] = {"author": "coder", "within": "task"}
    looks = [Event("tool_call", author="lead", call=ToolCall(*LOOK, f"l{at}")) for at in range(LEAST)]
    ask = Event("tool_call", author="lead", call=ToolCall("task", {}, "1"))
    record = TurnRecord("go", (*looks, ask, Event("tool_call", call=edit, **inner), Event("agent_message", text="x")))
    address = store_trial(shared_pages.desk.store.runs, Case("fix", (Turn("go"),)), Transcript((record,)))

    page = shared_pages.get(address).text

    assert re.search(r'<li data-row data-within id="step-\d+"', page)
    assert '<small class="muted">coder, inside task</small>' in page

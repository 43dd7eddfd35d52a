"""Functions of a user, for tests."""

from __future__ import annotations

from typing import Any

from evaldesk.metrics import grade_trial
from evaldesk.model import Case, Criterion, Event, Expected, Score, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.wire import from_json, to_json

REWARDS = """
import math
from dataclasses import dataclass

SEEN = []

def exact(solution_str, ground_truth, extra_info=None):
    SEEN.append((solution_str, ground_truth, extra_info))
    return solution_str.strip() == ground_truth

async def later(solution_str, ground_truth, extra_info=None, **kwargs):
    return 1

def full(messages, ground_truth, metadata):
    SEEN.append(messages)
    return len(messages) / 10

def short(solution_str, ground_truth):
    return 0.5

def whole(transcript, case, state):
    return state["booked"] == case.final_state["booked"]

def database(state, case):
    wanted = {"orders": []}
    for turn in case.turns:
        for call in turn.expected.tool_calls or ():
            wanted["orders"].append(call.args["item"])
    return state == wanted

def scores(case):
    from evaldesk.model import Score
    return [Score("x", 0.25, 0, reason="Turn."), Score("x", 0.75, reason="Both.", details={"why": "so"})]

def raising(solution_str, ground_truth, extra_info=None):
    raise ZeroDivisionError("by nought")

def leaving(solution_str, ground_truth, extra_info=None):
    raise SystemExit(2)

def nothing(solution_str, ground_truth, extra_info=None):
    return None

def text(solution_str, ground_truth, extra_info=None):
    return "1.0"

def nan(solution_str, ground_truth, extra_info=None):
    return math.nan

def infinite(solution_str, ground_truth, extra_info=None):
    return math.inf

def seven(solution_str, ground_truth, extra_info=None):
    return 7

def odd(answer):
    return 1.0

def bare():
    return 1.0

class Judge:
    def __call__(self, solution_str, ground_truth, extra_info=None):
        return 0.5

judge = Judge()
NUMBER = 3
"""


def record(answer: str, calls: tuple[ToolCall, ...] = (), **state: Any) -> TurnRecord:
    events = [Event("user_message", text="q"), *(Event("tool_call", call=call) for call in calls)]
    events += [Event("tool_result", call=call, result={"ok": True}) for call in calls]
    if answer:
        events.append(Event("agent_message", text=answer))
    return TurnRecord("q", tuple(events), state_after=state)


CASE = Case(
    "c",
    (Turn("What is 6 x 7?", Expected(reference="42")),),
    final_state={"booked": True},
    extra={"system_prompt": "Be short.", "level": 3, "$form": {"keys": []}},
)


TRANSCRIPT = Transcript((record("42", (ToolCall("multiply", {"a": 6, "b": 7}),), booked=True),))


async def scored(
    root: str, name: str, *, transcript: Transcript = TRANSCRIPT, module: str = "own_rewards", **options: Any
) -> Score:
    criterion = Criterion(f"{module}:{name}", 0.5, {"function": f"{module}:{name}", "root": root} | options)
    grading = await grade_trial(transcript, CASE, [criterion])
    assert from_json(to_json(grading.scores), tuple[Score, ...]) == grading.scores
    return grading.scores[-1]

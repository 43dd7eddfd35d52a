"""A run of another tool, for tests of writing: two tasks of two trials, of which one passed and one failed."""

from __future__ import annotations

from evaldesk.model import Case, Criterion, Event, SessionInit, ToolCall, Transcript, TrialResult, TurnRecord
from evaldesk.transcripts.recorded import RecordedRun, recorded_score

REWARD = Criterion("reward", 1.0)
CALL = ToolCall("book", {"n": 1}, "c1")
EVENTS = (
    Event("log", author="system", text="Policy."),
    Event("user_message", author="user", text="Hi"),
    Event("tool_call", call=CALL),
    Event("tool_result", author="book", call=CALL, result="done"),
    Event("agent_message", text="Booked."),
    Event("user_message", author="user", text="###STOP###"),
)


def run_of_two_tasks() -> RecordedRun:
    scenario = {"conversation_plan": "Book a table.", "starting_prompt": ""}
    cases = [Case(task, (), scenario=scenario, initial_session=SessionInit(user_id="u")) for task in ("0", "1")]
    results = [_result(at, trial) for at in range(len(cases)) for trial in range(2)]
    return RecordedRun("tau", "tau", tuple(cases), tuple(results), (REWARD,))


def _result(case_index: int, trial_index: int) -> TrialResult:
    reason = f"The outputs of trial {trial_index}."
    return TrialResult(
        0,
        case_index,
        trial_index,
        "finished",
        verdict="failed" if trial_index else "passed",
        stop_reason="user_stop",
        transcript=Transcript((TurnRecord("Hi", EVENTS),)),
        scores=(recorded_score(REWARD, 1.0 - trial_index, reason),),
    )

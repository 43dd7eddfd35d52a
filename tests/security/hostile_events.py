"""What hostile people say, wherever text can stand: events, cases, trials, and an agent that says it all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Change,
    ErrorRecord,
    Event,
    JsonObject,
    JsonValue,
    Score,
    ToolCall,
    ToolDescription,
    Transcript,
    TrialResult,
    TurnRecord,
    TurnSpec,
    Usage,
)
from evaldesk.model.prompts import Prompt, Prompts
from evaldesk.model.run import SharedState


@dataclass
class HostileHost:
    """A worker whose agent says all of `texts` of itself and in every turn."""

    texts: tuple[str, ...]
    n_turns: int = 0

    async def describe(self, ref: AgentRef) -> AgentDescription:
        tools = tuple(ToolDescription(text, text, {"properties": {text: {"type": text}}}) for text in self.texts)
        every = " ".join(self.texts)
        return AgentDescription(
            every, every, every, every, every, tools, initial_state={text: text for text in self.texts}
        )

    async def model_fault(self, ref: AgentRef, model: str) -> str:
        return ""

    async def warm(self, ref: AgentRef) -> None:
        return None

    async def stop_turn(self, session_id: str) -> None:
        return None

    async def close(self) -> None:
        return None

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        self.n_turns += 1
        said = [event for text in self.texts for event in events_of(text)]
        for event in said:
            yield event
        after = {**spec.state, **{text: text for text in self.texts}}
        yield TurnRecord(spec.message, tuple(said), spec.state, after, 1.0, "answered")


def events_of(text: str) -> list[Event]:
    """Every kind of event, with `text` wherever one can stand."""
    call = ToolCall(text, {text: text, "nested": {text: [text]}}, text)
    return [
        Event("tool_call", call=call, author=text),
        Event("tool_result", call=call, result={text: text}, is_error=True, duration_ms=1.0),
        Event("state_delta", changes=(Change(text, None, {text: text}, was_present=False),)),
        Event("log", text=text),
        Event("error", error=ErrorRecord(text, text, text)),
        Event("usage", usage=Usage(text, tokens_in=1, tokens_out=1)),
        Event("agent_message", author=text, text=text),
        Event("agent_message", author=f"{text} below", parent=text, text=text),
        Event("agent_message", author=f"{text} inside", within=text, text=text),
    ]


def case_of(case_id: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """A case with a turn for each text, as a file has it."""
    turns = [
        {
            "invocation_id": text,
            "user_content": {"role": "user", "parts": [{"text": text}]},
            "final_response": {"role": "model", "parts": [{"text": text}]},
            "intermediate_data": {
                "tool_uses": [{"name": text, "args": {text: text}}],
                "intermediate_responses": [[text, [{"text": text}]]],
            },
        }
        for text in texts
    ]
    session = {"app_name": texts[0], "user_id": texts[-1], "state": dict(zip(texts, texts, strict=True))}
    return {
        "eval_id": case_id,
        "conversation": turns,
        "session_input": session,
        "tags": list(texts),
        texts[0]: texts[0],
    }


def source_of(texts: tuple[str, ...]) -> JsonObject:
    """What a benchmark says beside a trial: a check, the answer that was read, a patch, output of tests, a report."""
    patch = "".join(f"diff --git {text}\n@@ -1 +1 @@\n+{text}\n-{text}\n" for text in texts)
    report: dict[str, JsonValue] = {text: [text] for text in texts[:3]}
    return {
        "communicate_checks": [{"info": text, "met": False} for text in texts],
        "answer": texts[0],
        "test_result": {"git_patch": patch, "output": "\n".join(texts), "report": report},
    }


def trial_of(run_id: int, index: int, texts: tuple[str, ...]) -> TrialResult:
    """One trial failed, one broke, and either says every text."""
    turns = tuple(TurnRecord(text, tuple(events_of(text)), {text: text}, {text: [text]}, 1.0) for text in texts)
    every = " ".join(texts)
    scores = tuple(
        Score(metric, 0.0, turn, 1.0, False, every, {**{text: text for text in texts}, **source_of(texts)})
        for metric in ("tool_trajectory_avg_score", "response_match_score")
        for turn in (None, *range(len(texts)))
    )
    ends: Any = {"status": "errored", "verdict": "errored", "error": ErrorRecord(every, every, every)}
    ends = ends if index else {"status": "finished", "verdict": "failed"}
    return TrialResult(
        run_id,
        0,
        index,
        **ends,
        stop_reason=every,
        transcript=Transcript(turns),
        scores=scores,
        logs=every,
        prompts=prompts_of(texts),
        shared_state=SharedState(every, texts),
    )


def prompts_of(texts: tuple[str, ...]) -> Prompts:
    """Model calls that were sent and answered every text."""
    messages: list[JsonValue] = [{"role": text, "content": text} for text in texts]
    calls: list[JsonValue] = [{"name": texts[0], "args": dict.fromkeys(texts, 1)}]
    answer: JsonValue = {"role": "assistant", "content": " ".join(texts), "tool_calls": calls}
    sent = tuple(range(len(messages)))
    call = Prompt(0, 1.0, 1.0, texts[0], messages=sent, settings=len(sent), answer=len(sent) + 1)
    return Prompts((*messages, dict.fromkeys(texts, texts[0]), answer), (call,))

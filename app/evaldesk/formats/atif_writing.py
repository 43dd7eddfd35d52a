"""Trials as ATIF 1.4 trajectories. Scores go into a note of ours; errors and changes of state have no place there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from evaldesk.formats.exchange import RecordedRun
from evaldesk.formats.json_lines import write_lines
from evaldesk.formats.json_text import to_text
from evaldesk.formats.recorded_sessions import session_note
from evaldesk.formats.shape import shown_extra
from evaldesk.model import Event, TrialResult

NOTE = "evaldesk"
"""The key of our own note in the `extra` of a trajectory."""

_VERSION = "ATIF-v1.4"
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_GAP_MS = 1000.0


def write_trajectories(run: RecordedRun) -> bytes:
    """The trajectory of a single trial, or one a line. Raises FormatError for what JSON cannot hold."""
    rows = [_trajectory(run, result) for result in run.results]
    return to_text(rows[0], {"ends_with": "\n"}, run.name) if len(rows) == 1 else write_lines(rows, run.name)


def _trajectory(run: RecordedRun, result: TrialResult) -> dict[str, Any]:
    case = run.cases[result.case_index]
    extra = dict(shown_extra(case.extra))
    about, root = extra.pop("agent", None), extra.pop("extra", None)
    note = {NOTE: session_note(run, result)}
    agent = {"name": run.agent, "version": "unknown", **({"model_name": run.model} if run.model else {})}
    steps = list(_steps(result))
    return {
        "schema_version": _VERSION,
        "session_id": f"{case.id}#{result.trial_index}" if result.trial_index else case.id,
        "agent": {**agent, **(about if isinstance(about, dict) else {})},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": _final(result, len(steps)),
        **extra,
        "extra": {**root, **note} if isinstance(root, dict) else note,
    }


def _final(result: TrialResult, n_steps: int) -> dict[str, Any]:
    totals: dict[str, Any] = {"total_steps": n_steps}
    if result.usages:
        totals["total_prompt_tokens"] = sum(usage.tokens_in for usage in result.usages)
        totals["total_completion_tokens"] = sum(usage.tokens_out for usage in result.usages)
    if result.cost is not None:
        totals["total_cost_usd"] = result.cost
    return totals


def _steps(result: TrialResult) -> Iterator[dict[str, Any]]:
    """The steps of all turns; times count from 1970, since the trial's own date is not stored."""
    has_times = any(event.at_ms for turn in result.transcript.turns for event in turn.events)
    start_ms = 0.0
    for turn in result.transcript.turns:
        writing = _Writing(start_ms if has_times else None)
        for event in turn.events:
            writing.add(event)
        yield from writing.steps
        start_ms += turn.duration_ms + _GAP_MS


@dataclass(slots=True)
class _Writing:
    """The steps of one turn while its events go by."""

    start_ms: float | None
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        if event.kind == "user_message" or (event.kind == "log" and event.author == "system"):
            self._begin("user" if event.kind == "user_message" else "system", event)["message"] = event.text
        elif event.kind == "usage" and event.usage:
            step = self._begin("agent", event)
            metrics = {"prompt_tokens": event.usage.tokens_in, "completion_tokens": event.usage.tokens_out}
            step["metrics"] = metrics | ({} if event.usage.cost is None else {"cost_usd": event.usage.cost})
            step |= {"model_name": event.usage.model} if event.usage.model else {}
        elif event.kind == "log" and event.author == "thought":
            self._reply(event, "reasoning_content")["reasoning_content"] = event.text
        elif event.kind == "agent_message":
            self._reply(event, "tool_calls")["message"] = event.text
        elif event.kind == "tool_call" and event.call:
            step = self._reply(event)
            step.setdefault("tool_calls", []).append(_call(event, len(step.get("tool_calls", ()))))
        elif event.kind == "tool_result" and self.steps:
            content = event.result if isinstance(event.result, str) else json.dumps(event.result, ensure_ascii=False)
            row = {"source_call_id": event.call.id if event.call else None, "content": content}
            self.steps[-1].setdefault("observation", {"results": []})["results"].append(row)

    def _reply(self, event: Event, *ends: str) -> dict[str, Any]:
        """The step of the reply under way; a new one after results, or when it has one of `ends` already."""
        last = self.steps[-1] if self.steps else {}
        is_open = last.get("source") == "agent" and "observation" not in last
        return last if is_open and not any(key in last for key in ends) else self._begin("agent", event)

    def _begin(self, source: str, event: Event) -> dict[str, Any]:
        step: dict[str, Any] = {"source": source, "message": ""}
        if self.start_ms is not None:
            moment = _BEGINNING + timedelta(milliseconds=self.start_ms + event.at_ms)
            step = {"timestamp": moment.isoformat(timespec="microseconds"), **step}
        self.steps.append(step)
        return step


def _call(event: Event, number: int) -> dict[str, Any]:
    """A call; the format wants an id for each."""
    call_id = event.call.id if event.call and event.call.id else f"call_{number + 1}"
    name, args = (event.call.name, dict(event.call.args)) if event.call else ("", {})
    return {"tool_call_id": call_id, "function_name": name, "arguments": args}

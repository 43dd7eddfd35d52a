"""A trial as a line of OpenHands' `output.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from evaldesk.errors import VALUE_LIMIT, FormatError
from evaldesk.integrations.openhands.recorded_rows import FORM, USUAL, test_result
from evaldesk.model import Criterion, Event, TrialResult, TurnRecord
from evaldesk.model.json_text import json_or_text
from evaldesk.model.transcript import artefact_text
from evaldesk.reading.json_lines import write_lines
from evaldesk.transcripts.messages.chat import RAW_ARGS
from evaldesk.transcripts.recorded import RecordedRun, spoken_turns
from evaldesk.transcripts.recorded_sessions import plan_note

NOTE = "evaldesk"
"""The key of our own note in a row, which OpenHands passes over."""
_START = datetime(1970, 1, 1, tzinfo=UTC)


def row_line(run: RecordedRun, result: TrialResult) -> bytes:
    """The line of a trial: the row that the tool or the benchmark gave, as it was, else one made of the trial.

    A second trial of an instance, and a run that lacks trials, are in a note of ours in the row. Raises FormatError.
    """
    text = artefact_text(result.transcript, FORM)
    note = _note(run, result, is_ours=text is None)
    row = row_of(run, result) if text is None else json.loads(text)
    if text is not None and {"instance_id", "issue"} & set(row) and row_note(row) == note:
        return text.encode() + b"\n"
    fields = {key: value for key, value in row.items() if key != NOTE}
    return write_lines(
        ({"instance_id": run.cases[result.case_index].id, **fields, **({NOTE: note} if note else {})},), run.name
    )


def row_note(row: dict[str, Any]) -> dict[str, Any]:
    """Our own note in a row; empty where it has none."""
    note = row.get(NOTE)
    return note if isinstance(note, dict) else {}


def _note(run: RecordedRun, result: TrialResult, *, is_ours: bool) -> dict[str, Any]:
    """The number of the trial, and the plan of the run: in a row of a benchmark only where it lacks trials."""
    trial = {"trial": result.trial_index} if result.trial_index else {}
    is_whole = not run.plan.is_cut and (run.plan.n_planned or 0) <= len(run.results)
    is_told = run.plan.n_planned is not None if is_ours else not is_whole
    return trial | ({"plan": plan_note(run.plan)} if is_told else {})


def row_of(run: RecordedRun, result: TrialResult) -> dict[str, Any]:
    """The EvalOutput of a trial; scores stand in `test_result`, times count from 1970."""
    case = run.cases[result.case_index]
    error = result.error or next((score.error for score in result.scores if score.error), None)
    return {
        "instance_id": case.id,
        "test_result": _test_result(result),
        "instruction": (case.turns[0].query or None) if case.turns else None,
        "metadata": {
            "agent_class": run.agent,
            "llm_config": {"model": run.model},
            "max_iterations": 0,
            "eval_output_dir": "",
            "start_time": "1970-01-01 00:00:00",
            "git_commit": "",
            "dataset": run.name,
        },
        "history": _history(result.transcript.turns, result.duration_ms),
        "metrics": _metrics(result),
        "error": error.message if error else None,
        "instance": case.extra.get("instance"),
    }


def _test_result(result: TrialResult) -> dict[str, Any]:
    """The scores by metric, and the other keys of the file when it was one of OpenHands.

    Where none of them is a key that readers of such files take for the outcome, `resolved` says the verdict.
    """
    fields: dict[str, Any] = {}
    for score in result.scores:
        if score.turn is not None or not score.is_applicable:
            continue
        old_result = score.details.get("test_result")
        fields |= old_result if isinstance(old_result, dict) else {}
        report = fields.get("report")
        if not (isinstance(report, dict) and score.metric in report):
            fields.setdefault(score.metric, score.value)
    is_resolved = {"passed": True, "failed": False}.get(result.verdict)
    if is_resolved is not None and not set(USUAL) & set(outcome({"test_result": fields})):
        fields["resolved"] = is_resolved
    return fields


def _history(turns: tuple[TurnRecord, ...], duration: float) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    causes: dict[str, int] = {}
    began = 0.0
    for turn in spoken_turns(turns):
        for event in turn.own_events:
            for entry in _event(event, causes):
                at = _START + timedelta(milliseconds=began + event.at_ms)
                events.append({"id": len(events), "timestamp": at.replace(tzinfo=None).isoformat()} | entry)
                if event.kind == "tool_call" and event.call:
                    causes[_key(event)] = len(events) - 1
        began += turn.duration_ms
    return events


def _event(event: Event, causes: dict[str, int]) -> Iterator[dict[str, Any]]:
    if event.kind in ("user_message", "agent_message") and not event.is_partial:
        source = "user" if event.kind == "user_message" else "agent"
        yield {"source": source, "message": event.text, "action": "message", "args": {"content": event.text}}
    elif event.kind == "log":  # also a thought: `think` is a call of a tool there
        yield {"source": "agent", "message": event.text, "action": "system", "args": {"content": event.text}}
    elif event.kind == "tool_call" and event.call:
        raw = event.call.extra.get(RAW_ARGS)
        arguments = raw if isinstance(raw, str) else json.dumps(dict(event.call.args), ensure_ascii=False)
        function = {"name": event.call.name, "arguments": arguments}
        call = {"id": event.call.id, "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {
            "source": "agent",
            "message": f"Calling {event.call.name}",
            "action": "call_tool",
            "args": dict(event.call.args),
            "tool_call_metadata": _metadata(event) | {"model_response": {"choices": [{"message": message}]}},
        }
    elif event.kind == "tool_result" and event.call:
        content = json_or_text(event.result)
        yield {
            "source": "environment",
            "message": content,
            "observation": event.author or event.call.name,
            "content": content,
            "cause": causes.get(_key(event)),
            "extras": {},
            "success": not event.is_error,
            "tool_call_metadata": _metadata(event),
        }


def _metadata(event: Event) -> dict[str, Any]:
    name = event.call.name if event.call else ""
    function_name = event.author or name if event.kind == "tool_result" else name
    call_id = event.call.id if event.call else None
    return {"function_name": function_name, "tool_call_id": call_id, "total_calls_in_response": 1}


def _key(event: Event) -> str:
    return (event.call.id or event.call.name) if event.call else ""


def _metrics(result: TrialResult) -> dict[str, Any]:
    calls = [
        {
            "model": usage.model,
            "prompt_tokens": usage.tokens_in,
            "completion_tokens": usage.tokens_out,
            "cache_read_tokens": usage.tokens_cached,
            "reasoning_tokens": usage.tokens_reasoning,
        }
        for usage in result.usages
    ]
    costs = [{"model": usage.model, "cost": usage.cost} for usage in result.usages if usage.cost is not None]
    return {"accumulated_cost": result.cost or 0.0, "costs": costs, "token_usages": calls}


MAX_NAMED = 20


def usual_first(keys: Collection[str]) -> tuple[str, ...]:
    """Keys that have a verdict or a share in some row, the usual ones first."""
    return (*(key for key in USUAL if key in keys), *(key for key in keys if key not in USUAL))


def outcome(row: dict[str, Any]) -> dict[str, float]:
    """The keys of a row's outcome: those of the test result and its `report`, usual ones of the row itself."""
    test = test_result(row)
    report = test.get("report")
    values = {key: row[key] for key in USUAL if key in row} | test | (report if isinstance(report, dict) else {})
    return dict(_numbers(values))


def chosen_criterion(keys: Sequence[str], outcome_key: str, source: str) -> Criterion | None:
    """The deciding key: the wanted one, else the first usual one. Raises FormatError when no row has it."""
    if outcome_key and outcome_key not in keys:
        there = f"there are: {', '.join(keys[:MAX_NAMED])}" if keys else "no row has a true, a false or a share"
        raise FormatError(f"no row says {outcome_key[:VALUE_LIMIT]!r} of its outcome; {there}", source=source)
    name = outcome_key or next((key for key in keys if key in USUAL), "")
    return Criterion(name, 1.0) if name else None


def outcome_words(criterion: Criterion | None, keys: Sequence[str]) -> str:
    """The key that decides whether a trial passes, and the alternatives."""
    others = [key for key in keys if criterion is None or key != criterion.metric]
    key_names = ", ".join(others[:MAX_NAMED]) + (" and more" if others[MAX_NAMED:] else "")
    if criterion is None:
        choice = f"choose the deciding key among {key_names}, or score them here" if key_names else "score them here"
        return f"No row states whether it was solved, so its trials are unscored; {choice}."
    also = f" Rows also have {key_names}, which could decide instead." if key_names else ""
    return (
        f"A trial passes when its {criterion.metric} is true or 1; a row with an error is errored, not failed, unless "
        f"the agent reached its maximum of iterations.{also}"
    )


def _numbers(values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, bool) or (isinstance(value, int | float) and 0 <= value <= 1):
            yield key, float(value)

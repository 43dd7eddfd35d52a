"""The format "adk-results": a `.evalset_result.json` of `adk eval` or `adk web`; older ones are JSON inside a string.

(google-adk 2.13 evaluation/eval_result.py, eval_metrics.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from evaldesk.formats.adk.case import read_case, write_case
from evaldesk.formats.adk.content import read_query, write_query
from evaldesk.formats.adk.events import events_key
from evaldesk.formats.adk.grades import is_grade_file
from evaldesk.formats.exchange import MAX_ROW, Imported, WritesRuns
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.model import (
    Case,
    Criterion,
    Event,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    TurnRecord,
    Usage,
    Verdict,
    Waiting,
)
from evaldesk.model.transcript import AWAITING, last_stop
from evaldesk.reading.json_stream import StreamedList
from evaldesk.reading.json_text import text_parts
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import (
    RECORDED_DECODER,
    Document,
    JsonPosition,
    kind_of,
    parse_recorded_json,
)
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_number,
    read_optional_text,
    read_recorded_number,
    read_recorded_score,
    read_text,
    snake_case,
)
from evaldesk.transcripts.adk import CONFIRMATION, AdkEvents, message_text, read_parts, spelled, wrap_result
from evaldesk.transcripts.recorded import RecordedRun, TrialRows, cut_short, ended_so, told_turns
from evaldesk.transcripts.recorded_sessions import plan_note, read_plan

_RESULTS = {"eval_case_results", "evalCaseResults"}
NOTE = "evaldesk"
"""The key of our own note beside the results, which ADK passes over."""


class AdkResults(WritesRuns):
    """`{"eval_set_id", "eval_case_results": [...]}`; a case that is there twice has two trials.

    ADK runs each case as often, so a case with fewer results than another lacks some.
    """

    title = "ADK eval results"
    suffixes = (".evalset_result.json",)
    no_evalset = "a file of results holds a run, not an eval set; write it as adk"
    n_readings = 1

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with results of cases, or a string that holds one."""
        value = peek(data).document
        if isinstance(value, str):
            return any(f'"{key}"' in value for key in _RESULTS)
        return isinstance(value, dict) and bool(_RESULTS & set(value)) and not is_grade_file(value)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A run with a trial for each result. Raises FormatError."""
        document = parse_recorded_json(data, source=source)
        if isinstance(document.value, str):
            document = parse_recorded_json(
                document.value.encode("utf-8", "surrogatepass"), source=f"{source} (inside the string)"
            )
        return _read(JsonPosition(document))

    @staticmethod
    def read_large(file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read`, a result at a time."""
        results = StreamedList(
            file, source, lambda key: snake_case(key) == "eval_case_results", max_item=MAX_ROW, decoder=RECORDED_DECODER
        )
        collector = _Results(TrialRowsOnDisk())
        for item in results:
            collector.add(JsonPosition(item), _snake_case_object(JsonPosition(item), item.value))
        place = JsonPosition(results.shell)
        return collector.build_import(place, _snake_case_object(place, results.shell.value))

    @staticmethod
    def parts(run: RecordedRun) -> Iterator[bytes]:
        """The results of a run, part by part."""
        app = re.sub(r"\W+", "_", run.agent) or "agent"
        result_id = f"{app}_{run.name}_0"
        document = {
            "eval_set_result_id": result_id,
            "eval_set_result_name": result_id,
            "eval_set_id": run.name,
            "eval_case_results": (_write_result(run, result) for result in run.results),
            "creation_timestamp": 0.0,
        }
        if run.plan.n_planned is not None:
            document[NOTE] = {"plan": plan_note(run.plan)}
        return text_parts(document, run.name)


def _read(place: JsonPosition) -> Imported:
    raw = _snake_case_object(place, place.document.value)
    results_at = place.at("eval_case_results")
    items = read_list(results_at, raw.get("eval_case_results", ABSENT), _snake_case_object)
    collector = _Results(TrialRows())
    for index, item in enumerate(items):
        collector.add(results_at.at(index), item)
    return collector.build_import(place, raw)


class _Results:
    """The results of a file, one after the other."""

    def __init__(self, rows: TrialRows) -> None:
        self._rows = rows
        self._criteria: dict[str, Criterion] = {}
        self._agent = ""
        self._n = 0

    def add(self, place: JsonPosition, item: dict[str, Any]) -> None:
        """The next result."""
        case_id = read_text(place.at("eval_id"), item.get("eval_id", ABSENT))
        case, result, app = _read_result(place, case_id, item)
        at = self._rows.place(case_id)
        self._rows.offer(at, case, len(case.turns))
        self._rows.add(at, result)
        for score in result.scores:
            criterion = self._criteria.get(score.metric)
            if criterion is None or criterion.threshold is None:
                self._criteria[score.metric] = Criterion(score.metric, score.threshold)
        self._agent = self._agent or app
        self._n += 1

    def build_import(self, place: JsonPosition, raw: dict[str, Any]) -> Imported:
        """All of them, after the object that held them."""
        set_id = read_optional_text(place.at("eval_set_id"), raw.get("eval_set_id")) or ""
        if not self._n:
            return Imported("adk-results", understood=("No result.",))
        cases, results = self._rows.finish()
        agent = self._agent or _app_of(raw, set_id)
        own = raw.get(NOTE)
        plan = (read_plan(own.get("plan")) if isinstance(own, dict) else None) or self._rows.plan_of(len(cases))
        run = RecordedRun(set_id or "results", agent, cases, results, tuple(self._criteria.values()), plan=plan)
        notes = ("Verdicts are ADK's own: a metric that was not evaluated does not count there.",)
        return Imported("adk-results", runs=(run,), understood=notes)


def _read_result(place: JsonPosition, case_id: str, raw: dict[str, Any]) -> tuple[Case, TrialResult, str]:
    turns_at = place.at("eval_metric_result_per_invocation")
    pairs = read_list(turns_at, raw.get("eval_metric_result_per_invocation") or [], _snake_case_object)
    records = []
    expected: list[Any] = []
    scores = list(_read_scores(place.at("overall_eval_metric_results"), raw.get("overall_eval_metric_results")))
    for index, pair in enumerate(pairs):
        here = turns_at.at(index)
        actual = pair.get("actual_invocation")
        expected.append(_expected_invocation(here, pair, actual))
        if actual is not None or any(later.get("actual_invocation") for later in pairs[index:]):
            unplayed = {"user_content": spelled(expected[-1]).get("user_content")}
            records.append(read_invocation(here.at("actual_invocation"), actual or unplayed))
        scores += _read_scores(here.at("eval_metric_results"), pair.get("eval_metric_results"), turn=index)
    session = read_optional_mapping(place.at("session_details"), raw.get("session_details")) or {}
    state = read_optional_mapping(place.at("session_details", "state"), session.get("state"))
    if records and state:
        records[-1] = replace(records[-1], state_after=state)
    app = read_optional_text(place.at("session_details", "app_name"), spelled(session).get("app_name")) or ""
    verdict = _VERDICTS[_status(place.at("final_eval_status"), raw.get("final_eval_status"))]
    result = TrialResult(
        run_id=0,
        case_index=0,
        trial_index=0,
        status="errored" if verdict == "errored" else "finished",
        verdict=verdict,
        stop_reason=last_stop(records),
        transcript=Transcript(tuple(records)),
        scores=tuple(scores),
        usages=tuple(usage for record in records for usage in record.usages),
        duration_ms=sum((record.duration_ms for record in records), 0.0),
    )
    raw_case: Any = {"eval_id": case_id, "conversation": expected}
    case = read_case(JsonPosition(Document(raw_case, source=place.document.source)), raw_case)
    return case, result, app


def _expected_invocation(place: JsonPosition, pair: dict[str, Any], actual: Any) -> Any:
    """The expectation; of a case without expectations the user's message."""
    if pair.get("expected_invocation") is not None:
        return read_mapping(place.at("expected_invocation"), pair["expected_invocation"])
    if actual is None:
        raise place.error("expected an actual_invocation or an expected_invocation, found neither")
    return {"user_content": _snake_case_object(place.at("actual_invocation"), actual).get("user_content")}


def _write_result(run: RecordedRun, result: TrialResult) -> dict[str, Any]:
    case = run.cases[result.case_index]
    conversation = write_case(case).get("conversation") or []
    metrics: dict[int | None, list[Any]] = {}
    for score in result.scores:
        metrics.setdefault(score.turn, []).append(_write_score(score))
    pairs = []
    records = told_turns(result)
    for index in range(max(len(records), len(conversation))):
        expected = conversation[index] if index < len(conversation) else None
        actual = write_invocation(records[index]) if index < len(records) else None
        pairs.append(
            {
                "actual_invocation": actual,
                "expected_invocation": expected,
                "eval_metric_results": metrics.get(index, []),
            }
        )
    return {
        "eval_set_file": run.name,
        "eval_set_id": run.name,
        "eval_id": case.id,
        # an error is not evaluated in ADK
        "final_eval_status": {"passed": PASSED, "failed": FAILED}.get(result.verdict, NOT_EVALUATED),
        "eval_metric_results": None,
        "overall_eval_metric_results": metrics.get(None, []),
        "eval_metric_result_per_invocation": pairs,
        "session_id": f"evaldesk-{result.case_index}-{result.trial_index}",
        "session_details": {
            "id": f"evaldesk-{result.case_index}-{result.trial_index}",
            "app_name": run.agent,
            "user_id": "user",
            "state": dict(result.transcript.final_state),
            "events": [],
        },
        "user_id": "user",
    }


def _app_of(raw: dict[str, Any], set_id: str) -> str:
    """The app's name from `<app>_<set>_<time>`."""
    result_id = raw.get("eval_set_result_id")
    return result_id.partition(f"_{set_id}_")[0] if isinstance(result_id, str) and set_id else ""


def _snake_case_object(place: JsonPosition, raw: Any) -> dict[str, Any]:
    return spelled(read_mapping(place, raw))


PASSED, FAILED, NOT_EVALUATED, INFORMATIONAL = 1, 2, 3, 4
_NAMES = {"PASSED": PASSED, "FAILED": FAILED, "NOT_EVALUATED": NOT_EVALUATED, "INFORMATIONAL": INFORMATIONAL}
_VERDICTS: dict[int, Verdict] = {
    PASSED: "passed",
    FAILED: "failed",
    NOT_EVALUATED: "unscored",
    INFORMATIONAL: "unscored",
}


def _read_scores(place: JsonPosition, raw: Any, turn: int | None = None) -> tuple[Score, ...]:
    return read_list(place, raw or [], lambda here, item: _read_score(here, item, turn))


def _read_score(place: JsonPosition, raw: Any, turn: int | None) -> Score:
    values = _snake_case_object(place, raw)
    status = _status(place.at("eval_status"), values.get("eval_status"))
    raw_value = read_recorded_score(place.at("score"), values.get("score"))
    value = None if isinstance(raw_value, str) else raw_value
    stated = None if status == INFORMATIONAL else values.get("threshold")
    threshold = read_optional_number(place.at("threshold"), stated)
    passed = {PASSED: True, FAILED: False}.get(status) if value is not None and threshold is not None else None
    details = values.get("details")
    reason = _rationales(details)
    if isinstance(raw_value, str):
        reason = f"The score in the file is {raw_value}, not a number."
    elif value is None:
        reason = reason or "ADK did not evaluate this metric."
    score_details = (
        {"adk": details} if isinstance(details, dict) and any(each is not None for each in details.values()) else {}
    )
    name = read_text(place.at("metric_name"), values.get("metric_name", ABSENT))
    return Score(name, value, turn, threshold, passed, reason, score_details)


def _write_score(score: Score) -> dict[str, Any]:
    is_informing = score.threshold is None and score.value is not None
    verdict = {None: NOT_EVALUATED, True: PASSED, False: FAILED}[score.passed]
    return {
        "metric_name": score.metric,
        "threshold": score.threshold,
        "criterion": None if score.threshold is None else {"threshold": score.threshold},
        "custom_function_path": None,
        "score": score.value,
        "eval_status": INFORMATIONAL if is_informing else verdict,
        "details": score.details.get("adk", {"rubric_scores": None}),
    }


def _rationales(details: Any) -> str:
    """The judges' verdicts on each rubric."""
    rubrics = details.get("rubric_scores", details.get("rubricScores")) if isinstance(details, dict) else None
    if not isinstance(rubrics, list):
        return ""
    rationales = (each.get("rationale") for each in rubrics if isinstance(each, dict))
    return "\n".join(text for text in rationales if isinstance(text, str) and text)


def _status(place: JsonPosition, raw: Any) -> int:
    number = _NAMES.get(raw) if isinstance(raw, str) else raw
    if isinstance(number, bool) or not isinstance(number, int) or number not in _VERDICTS:
        raise place.error(f"expected a status of 1 to 4, got {kind_of(raw)}")
    return number


def read_invocation(place: JsonPosition, raw: Any) -> TurnRecord:
    """The turn of an invocation. Raises FormatError."""
    values = spelled(read_mapping(place, raw))
    query, media = read_query(place.at("user_content"), values.get("user_content", ABSENT))
    reader = AdkEvents()
    did = [Event("user_message", author="user", text=query)]
    did += _read_intermediate(place.at("intermediate_data"), values.get("intermediate_data"), reader)
    answer = _parts(place.at("final_response"), values.get("final_response"))
    texts = [event.text for event in did if event.kind == "agent_message"]
    if message_text(answer) and texts[-1:] != [message_text(answer)]:
        author = next((event.author for event in reversed(did) if event.author), "")
        did.append(Event("agent_message", author=author, text=message_text(answer)))
    seconds = read_recorded_number(place.at("duration"), values.get("duration"), "a number of seconds", 0, 1e15)
    record = TurnRecord(query, tuple(did), duration_ms=1000 * (seconds or 0.0), media=media)
    if reader.requests:
        return ended_so(record, AWAITING, reader.requests.values())
    return cut_short(record) if events_key(values.get("intermediate_data") or {}) else record


def write_invocation(record: TurnRecord) -> dict[str, Any]:
    """The invocation of a turn."""
    own_events = record.own_events
    answers = [at for at, event in enumerate(own_events) if event.kind == "agent_message" and not event.is_partial]
    last = answers[-1] if record.answer else None
    events = [raw_event for at, event in enumerate(own_events) for raw_event in _write_event(event, is_last=at == last)]
    events += [_write_request(each) for each in record.open_requests]
    invocation: dict[str, Any] = {"user_content": write_query((record.query, record.media))}
    if last is not None:
        invocation["final_response"] = {"parts": [{"text": own_events[last].text}], "role": "model"}
    invocation["intermediate_data"] = {"invocation_events": events}
    if record.duration_ms:
        invocation["duration"] = record.duration_ms / 1000
    return invocation


def _read_intermediate(place: JsonPosition, raw: Any, reader: AdkEvents) -> list[Event]:
    if raw is None:
        return []
    raw = read_mapping(place, raw)
    key = events_key(raw)
    if key:
        events = read_list(place.at(key), raw[key], lambda here, event: tuple(reader.read(here, event)))
        return [each for event in events for each in event]
    values = spelled(raw)
    calls = read_list(place.at("tool_uses"), values.get("tool_uses") or [], reader.call)
    intermediate = [Event("tool_call", call=call) for call in calls]
    intermediate += read_list(place.at("tool_responses"), values.get("tool_responses") or [], reader.result)
    intermediate += read_list(
        place.at("intermediate_responses"), values.get("intermediate_responses") or [], _read_message
    )
    return intermediate


def _read_message(place: JsonPosition, raw: Any) -> Event:
    if not isinstance(raw, list) or len(raw) != 2:
        raise place.error("expected a list of an author and a list of parts")
    parts = read_parts(place, {"parts": raw[1]})
    return Event("agent_message", author=read_text(place.at(0), raw[0]), text=message_text(parts))


def _write_event(event: Event, *, is_last: bool) -> Iterator[dict[str, Any]]:
    fields: dict[str, Any] = {"author": event.author}
    call = event.call
    if event.kind == "usage" and event.usage:
        yield fields | {"usage_metadata": _counts(event.usage), "model_version": event.usage.model}
    elif event.kind == "agent_message" and not event.is_partial and not is_last:
        yield fields | {"content": {"parts": [{"text": event.text}], "role": "model"}}
    elif event.kind == "agent_message" and is_last:
        yield fields
    elif event.kind == "tool_call" and call:
        part = {"function_call": _name_and_id(call) | {"args": dict(call.args)}}
        yield fields | {"content": {"parts": [part], "role": "model"}}
    elif event.kind == "tool_result" and call:
        answer = _name_and_id(call) | ({} if event.result is None else {"response": wrap_result(event.result)})
        yield fields | {"content": {"parts": [{"function_response": answer}], "role": "user"}}


def _counts(usage: Usage) -> dict[str, int]:
    """google-adk counts thoughts apart from the answer."""
    counts = {
        "prompt_token_count": usage.tokens_in,
        "candidates_token_count": usage.tokens_out - usage.tokens_reasoning,
    }
    more = {"cached_content_token_count": usage.tokens_cached, "thoughts_token_count": usage.tokens_reasoning}
    return counts | {name: n for name, n in more.items() if n}


def _write_request(request: Waiting) -> dict[str, Any]:
    """The call by which google-adk asks for a confirmation."""
    args = {"originalFunctionCall": {"name": request.tool, "args": dict(request.args)}}
    part = {"function_call": {"name": CONFIRMATION, "args": args, "id": request.id}}
    return {"author": "", "content": {"parts": [part], "role": "model"}}


def _name_and_id(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name} | ({} if call.id is None else {"id": call.id})


def _parts(place: JsonPosition, raw: Any) -> list[dict[str, Any]]:
    return [] if raw is None else read_parts(place, raw)

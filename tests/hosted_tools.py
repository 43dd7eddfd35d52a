"""Hosted tools on loopback that answer as their documented APIs do, with conversations of one agent about orders.

The answers validate with the types of langfuse 5.0.4, langsmith 0.15.1, mlflow-skinny 3.17.2 and arize-phoenix-client
3.5.0 (`tests/desk/inbox/test_answers_of_hosted_tools.py`). No hosted service was asked.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Row = dict[str, Any]
KEYS = {
    "langfuse": {"LANGFUSE_PUBLIC_KEY": "pk-lf-1", "LANGFUSE_SECRET_KEY": "sk-lf-4f1e9a7c22d8"},
    "langsmith": {"LANGSMITH_API_KEY": "lsv2-9f3c71e0aa55"},
    "mlflow": {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "pw-77e1c0d9b3"},
    "phoenix": {"PHOENIX_API_KEY": "px-5b8e20f4c1a6"},
}
URLS = {
    "langfuse": "LANGFUSE_BASE_URL",
    "langsmith": "LANGSMITH_ENDPOINT",
    "mlflow": "MLFLOW_TRACKING_URI",
    "phoenix": "PHOENIX_ENDPOINT",
}
PROJECT_ID = "00000000-0000-0000-0000-000000000009"
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 17}'}}
AGENT, TOOL, MODEL = "agent", "tool", "model"


@dataclass
class Turn:
    """A trace of one turn: a question, a call of `get_order`, and the answer. `feedback` is that of its user."""

    number: int
    at: datetime
    question: str = "Where is order 17?"
    answer: str = "It was shipped."
    session: str = "s-1"
    feedback: float | None = None

    @property
    def trace_id(self) -> str:
        """The id of the trace, a hexadecimal number of 32 digits."""
        return f"{self.number:032x}"

    @property
    def messages(self) -> list[Row]:
        """The messages before the answer."""
        result = {"role": "tool", "tool_call_id": "c1", "content": '{"status": "shipped"}'}
        return [{"role": "user", "content": self.question}, self.call_message, result]

    @property
    def call_message(self) -> Row:
        """The message of the model with its call."""
        return {"role": "assistant", "content": "", "tool_calls": [CALL]}

    def steps(self) -> list[tuple[str, str, str, datetime, Any, Any]]:
        """The steps: span id, kind, name, begin, input and output; the first is around the others."""
        ids = [f"{self.number:08x}{place:08x}" for place in range(4)]
        times = [self.at + timedelta(seconds=place) for place in range(4)]
        answer = {"role": "assistant", "content": self.answer}
        return [
            (ids[0], AGENT, "support", times[0], {"question": self.question}, self.answer),
            (ids[1], MODEL, "answer", times[1], self.messages[:1], self.call_message),
            (ids[2], TOOL, "get_order", times[2], {"id": 17}, {"status": "shipped"}),
            (ids[3], MODEL, "answer", times[3], self.messages, answer),
        ]


@dataclass
class FakeTool:
    """The state of a server: its traces, the requests that came, and faults to give first (status, Retry-After)."""

    tool: str
    turns: list[Turn] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    is_old: bool = False
    page_size: int = 3
    body: bytes | None = None
    answers: list[tuple[str, Any]] = field(default_factory=list)

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: Row) -> tuple[int, Any]:
        """Status and JSON of a request."""
        return _ANSWERS[self.tool](self, method, path, query, body)

    def is_allowed(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has the key."""
        keys = [*KEYS[self.tool].values()]
        basic = f"Basic {base64.b64encode(':'.join(keys).encode()).decode()}"
        if self.tool == "langsmith":
            return headers.get("x-api-key") == keys[0]
        return headers.get("authorization") == (f"Bearer {keys[0]}" if self.tool == "phoenix" else basic)


@contextmanager
def hosted_tool(tool: str, turns: list[Turn]) -> Iterator[tuple[FakeTool, dict[str, str]]]:
    """A server with these traces, and the environment of a person who uses it."""
    fake = FakeTool(tool, turns)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            fake.requests.append((self.command, parts.path))
            if fake.faults:
                status, value = fake.faults.pop(0)
                self.send_response(status)
                self.send_header("location" if 300 <= status < 400 else "retry-after", value)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            if not fake.is_allowed({name.lower(): value for name, value in self.headers.items()}):
                self._send(401, {"detail": "no key"})
                return
            status, value = fake.answer(self.command, parts.path, parse_qs(parts.query), json.loads(data or b"{}"))
            fake.answers.append((parts.path, value))
            self._send(status, value)

        do_POST = do_GET  # noqa: N815 - the name of http.server

        def _send(self, status: int, value: Any) -> None:
            body = json.dumps(value).encode() if fake.body is None or status != 200 else fake.body
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing: the test reads `requests`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            yield fake, {**KEYS[tool], URLS[tool]: url}
        finally:
            server.shutdown()
            thread.join(20)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _page(fake: FakeTool, rows: list[Row], cursor: str | None) -> tuple[list[Row], str | None]:
    """The rows behind a cursor, and the following cursor."""
    begin = int(cursor) if cursor and cursor.isdecimal() else 0
    end = begin + fake.page_size
    return rows[begin:end], str(end) if end < len(rows) else None


def _langfuse(fake: FakeTool, method: str, path: str, query: Mapping[str, list[str]], body: Row) -> tuple[int, Any]:
    if path == "/api/public/v2/observations" and not fake.is_old:
        rows = [row for turn in fake.turns for row in _observations(turn)]
        if "traceId" in query:
            rows = [row for row in rows if row["traceId"] == query["traceId"][0]]
        if "fromStartTime" in query:
            rows = [row for row in rows if _time(row["startTime"]) >= _time(query["fromStartTime"][0])]
        rows.sort(key=lambda row: row["startTime"], reverse=True)
    elif path == "/api/public/v3/scores" and not fake.is_old:
        rows = [row for turn in fake.turns for row in _scores(turn)]
        if "traceId" in query:
            rows = [row for row in rows if row["subject"]["id"] in query["traceId"][0].split(",")]
        if "fromTimestamp" in query:
            rows = [row for row in rows if _time(row["timestamp"]) >= _time(query["fromTimestamp"][0])]
    elif path == "/api/public/traces" and fake.is_old:
        turns = [turn for turn in fake.turns if turn.at >= _time(query["fromTimestamp"][0])]
        number = int(query["page"][0])
        rows = [_old_trace(turn) for turn in turns[(number - 1) * fake.page_size : number * fake.page_size]]
        pages = -(-len(turns) // fake.page_size)
        meta = {"page": number, "limit": fake.page_size, "totalItems": len(turns), "totalPages": pages}
        return 200, {"data": [{**row, "observations": [], "scores": []} for row in rows], "meta": meta}
    elif path.startswith("/api/public/traces/") and fake.is_old:
        return 200, next(_old_trace(turn) for turn in fake.turns if path.endswith(turn.trace_id))
    else:
        return 404, {"message": "not found"}
    page, cursor = _page(fake, rows, query.get("cursor", [None])[0])
    return 200, {"data": page, "meta": {"limit": fake.page_size} | ({"cursor": cursor} if cursor else {})}


def _observations(turn: Turn) -> list[Row]:
    kinds = {AGENT: "AGENT", MODEL: "GENERATION", TOOL: "TOOL"}
    rows = []
    for place, (span_id, kind, name, at, given, result) in enumerate(turn.steps()):
        row: Row = {
            "id": span_id,
            "traceId": turn.trace_id,
            "projectId": "p",
            "startTime": _text(at),
            "endTime": _text(at + timedelta(milliseconds=500)),
            "parentObservationId": turn.steps()[0][0] if place else None,
            "isRootObservation": not place,
            "type": kinds[kind],
            "name": name,
            "level": "DEFAULT",
            "environment": "default",
            "userId": "u",
            "sessionId": turn.session,
            "tags": ["prod"],
            "release": "1.4",
            "metadata": {},
            # The API gives input and output as texts.
            "input": json.dumps(given),
            "output": result if isinstance(result, str) else json.dumps(result),
        }
        if kind == MODEL:
            usage = {"input": 12, "output": 8, "total": 20}
            row |= {"model": "gpt-5-mini", "usageDetails": usage, "costDetails": {"total": 0.0002}}
        rows.append(row)
    return rows


def _scores(turn: Turn) -> list[Row]:
    if turn.feedback is None:
        return []
    at = _text(turn.at + timedelta(minutes=5))
    score = {
        "id": f"sc-{turn.number}",
        "projectId": "p",
        "name": "user-feedback",
        "value": turn.feedback,
        "dataType": "NUMERIC",
        "source": "API",
        "timestamp": at,
        "environment": "default",
        "createdAt": at,
        "updatedAt": at,
        "comment": "by a button",
        "subject": {"kind": "trace", "id": turn.trace_id},
    }
    return [score]


def _old_trace(turn: Turn) -> Row:
    return {
        "id": turn.trace_id,
        "timestamp": _text(turn.at),
        "name": "support",
        "input": {"question": turn.question},
        "output": turn.answer,
        "sessionId": turn.session,
        "userId": "u",
        "release": "1.4",
        "tags": ["prod"],
        "metadata": {},
        "htmlPath": "/project/p/traces/1",
        "latency": 3.5,
        "totalCost": 0.0004,
        "scores": [{"id": "sc", "name": "user-feedback", "value": turn.feedback}] * (turn.feedback is not None),
        "observations": [{**row, "sessionId": None} for row in _observations(turn)],
    }


def _langsmith(fake: FakeTool, method: str, path: str, query: Mapping[str, list[str]], body: Row) -> tuple[int, Any]:
    if (method, path) == ("GET", "/sessions"):
        project: Row = {"id": PROJECT_ID, "name": "default", "start_time": _text(datetime(2026, 1, 1, tzinfo=UTC))}
        project |= {"tenant_id": PROJECT_ID, "reference_dataset_id": None}
        return 200, [project] if query.get("name") == ["default"] else []
    if (method, path) != ("POST", "/runs/query") or body["session"] != [PROJECT_ID]:
        return 404, {"detail": "Not Found"}
    rows = [row for turn in fake.turns for row in _runs(turn)]
    if "trace" in body:
        rows = [row for row in rows if row["trace_id"] == body["trace"]]
    if "start_time" in body:
        rows = [row for row in rows if _time(row["start_time"]) >= _time(body["start_time"])]
    page, cursor = _page(fake, [{key: row[key] for key in body["select"]} for row in rows], body.get("cursor"))
    return 200, {"runs": page, "cursors": {"next": cursor}}


def _runs(turn: Turn) -> list[Row]:
    kinds = {AGENT: "chain", MODEL: "llm", TOOL: "tool"}
    steps = turn.steps()
    uuids = [f"{turn.number:08x}-0000-4000-8000-{place:012x}" for place in range(len(steps))]
    rows = []
    for place, (_, kind, name, at, given, result) in enumerate(steps):
        stats = {"user_score": {"n": 1, "avg": turn.feedback}} if turn.feedback is not None and not place else None
        rows.append(
            {
                "id": uuids[place],
                "name": name,
                "run_type": kinds[kind],
                "start_time": _text(at),
                "end_time": _text(at + timedelta(milliseconds=500)),
                "inputs": {"messages": given} if kind == MODEL else given,
                "outputs": {"messages": [result]} if kind == MODEL else {"output": result},
                "error": None,
                "extra": {
                    "metadata": {"thread_id": turn.session, "user_id": "u", "release": "1.4"}
                    | ({"ls_model_name": "gpt-5-mini"} if kind == MODEL else {})
                },
                "tags": ["prod"],
                "trace_id": uuids[0],
                "parent_run_id": uuids[0] if place else None,
                "dotted_order": f"20261129T1200000000{place}Z{uuids[place]}",
                "feedback_stats": stats,
                "prompt_tokens": 12 if kind == MODEL else 0,
                "completion_tokens": 8 if kind == MODEL else 0,
                "total_cost": "0.0002" if kind == MODEL else None,
            }
        )
    return rows


def _mlflow(fake: FakeTool, method: str, path: str, query: Mapping[str, list[str]], body: Row) -> tuple[int, Any]:
    if path == "/api/2.0/mlflow/experiments/get-by-name":
        if query["experiment_name"] != ["Default"]:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no experiment"}
        return 200, {"experiment": {"experiment_id": "0", "name": "Default"}}
    if (method, path) == ("POST", "/api/3.0/mlflow/traces/search"):
        since = int(body["filter"].removeprefix("trace.timestamp_ms >= "))
        turns = [turn for turn in fake.turns if turn.at.timestamp() * 1000 >= since]
        page, cursor = _page(fake, [_mlflow_trace(turn)["trace_info"] for turn in turns], body.get("page_token"))
        return 200, ({"traces": page} if page else {}) | ({"next_page_token": cursor} if cursor else {})
    if (method, path) == ("GET", "/api/3.0/mlflow/traces/batchGet"):
        ids = query["trace_ids"]
        return 200, {"traces": [_mlflow_trace(turn) for turn in fake.turns if f"tr-{turn.trace_id}" in ids]}
    return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": path}


def _mlflow_trace(turn: Turn) -> Row:
    kinds = {AGENT: "AGENT", MODEL: "CHAT_MODEL", TOOL: "TOOL"}
    spans = []
    for place, (span_id, kind, name, at, given, result) in enumerate(turn.steps()):
        usage = {"input_tokens": 12, "output_tokens": 8, "total_tokens": 20}
        attributes: Row = {"mlflow.traceRequestId": f"tr-{turn.trace_id}", "mlflow.spanType": kinds[kind]}
        attributes |= {"mlflow.spanInputs": {"messages": given} if kind == MODEL else given}
        attributes |= {"mlflow.spanOutputs": {"choices": [{"message": result}]} if kind == MODEL else result}
        attributes |= {"mlflow.chat.tokenUsage": usage} if kind == MODEL else {}
        start = int(at.timestamp() * 1000) * 1_000_000
        span = {
            "trace_id": base64.b64encode(bytes.fromhex(turn.trace_id)).decode(),
            "span_id": base64.b64encode(bytes.fromhex(span_id)).decode(),
            "name": name,
            "start_time_unix_nano": start,
            "end_time_unix_nano": start + 500_000_000,
            "attributes": [{"key": key, "value": _typed(value)} for key, value in attributes.items()],
            "status": {"code": "STATUS_CODE_OK"},
        }
        parent = base64.b64encode(bytes.fromhex(turn.steps()[0][0])).decode()
        spans.append(span | ({"parent_span_id": parent} if place else {}))
    assessment = {
        "assessment_id": f"a-{turn.number}",
        "assessment_name": "user_feedback",
        "trace_id": f"tr-{turn.trace_id}",
        "source": {"source_type": "HUMAN", "source_id": "u"},
        "create_time": _text(turn.at),
        "last_update_time": _text(turn.at),
        "feedback": {"value": turn.feedback},
        "rationale": "by a button",
        "valid": True,
    }
    metadata = {"mlflow.trace.session": turn.session, "mlflow.trace.user": "u", "mlflow.source.git.commit": "1.4"}
    info = {
        "trace_id": f"tr-{turn.trace_id}",
        "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}},
        "request_time": _text(turn.at),
        "execution_duration": "3.5s",
        "state": "OK",
        "trace_metadata": metadata,
        "tags": {"mlflow.traceName": "support", "env": "prod"},
    }
    return {"trace_info": info | ({"assessments": [assessment]} if turn.feedback is not None else {}), "spans": spans}


def _typed(value: Any) -> Row:
    """A value as JSON of protocol buffers has it."""
    if isinstance(value, dict):
        pairs = [{"key": key, "value": _typed(each)} for key, each in value.items()]
        return {"kvlist_value": {"values": pairs}}
    if isinstance(value, list):
        return {"array_value": {"values": [_typed(each) for each in value]}}
    return {"int_value": value} if isinstance(value, int) else {"string_value": value}


def _phoenix(fake: FakeTool, method: str, path: str, query: Mapping[str, list[str]], body: Row) -> tuple[int, Any]:
    if path == "/v1/projects/default/spans":
        rows = [row for turn in fake.turns for row in _phoenix_spans(turn)]
        if "trace_id" in query:
            rows = [row for row in rows if row["context"]["trace_id"] in query["trace_id"]]
        if "start_time" in query:
            rows = [row for row in rows if _time(row["start_time"]) >= _time(query["start_time"][0])]
    elif path == "/v1/projects/default/span_annotations":
        rows = [row for turn in fake.turns for row in _annotations(turn) if row["span_id"] in query["span_ids"]]
    else:
        return 404, {"detail": "Not Found"}
    page, cursor = _page(fake, rows, query.get("cursor", [None])[0])
    return 200, {"data": page, "next_cursor": cursor}


def _phoenix_spans(turn: Turn) -> list[Row]:
    kinds = {AGENT: "AGENT", MODEL: "LLM", TOOL: "TOOL"}
    rows = []
    for place, (span_id, kind, name, at, given, result) in enumerate(turn.steps()):
        attributes: Row = {"openinference.span.kind": kinds[kind], "session.id": turn.session, "user.id": "u"}
        attributes |= {"tag.tags": ["prod"], "service.version": "1.4"}
        if kind == MODEL:
            attributes |= {"llm.model_name": "gpt-5-mini", "llm.token_count.prompt": 12}
            attributes |= {"llm.token_count.completion": 8, "llm.cost.total": 0.0002}
            for side, messages in (("input", given), ("output", [result])):
                for number, message in enumerate(messages):
                    attributes |= _flat(f"llm.{side}_messages.{number}.message", message)
        elif kind == TOOL:
            attributes |= {"tool.name": name, "input.value": json.dumps(given), "output.value": json.dumps(result)}
        else:
            attributes |= {"agent.name": name, "input.value": turn.question, "output.value": turn.answer}
        rows.append(
            {
                "id": f"U3Bhbjox{place}",
                "name": name,
                "context": {"trace_id": turn.trace_id, "span_id": span_id},
                "span_kind": kinds[kind],
                **({"parent_id": turn.steps()[0][0]} if place else {}),
                "start_time": _text(at),
                "end_time": _text(at + timedelta(milliseconds=500)),
                "status_code": "OK",
                "status_message": "",
                "attributes": attributes,
                "events": [],
            }
        )
    return rows


def _flat(path: str, message: Row) -> Row:
    """A message as attributes of OpenInference."""
    attributes = {f"{path}.role": message["role"], f"{path}.content": message["content"]}
    for number, call in enumerate(message.get("tool_calls", ())):
        at = f"{path}.tool_calls.{number}.tool_call"
        attributes |= {f"{at}.id": call["id"], f"{at}.function.name": call["function"]["name"]}
        attributes |= {f"{at}.function.arguments": call["function"]["arguments"]}
    if "tool_call_id" in message:
        attributes[f"{path}.tool_call_id"] = message["tool_call_id"]
    return attributes


def _annotations(turn: Turn) -> list[Row]:
    if turn.feedback is None:
        return []
    annotation = {
        "id": f"U3BhbkFubm90YXRpb24{turn.number}",
        "span_id": turn.steps()[0][0],
        "name": "user feedback",
        "annotator_kind": "HUMAN",
        "result": {"label": "thumbs-up" if turn.feedback else "thumbs-down", "score": turn.feedback},
        "metadata": {},
        "identifier": "",
        "created_at": _text(turn.at),
        "updated_at": _text(turn.at),
        "source": "APP",
        "user_id": None,
    }
    return [annotation]


_ANSWERS: Mapping[str, Callable[..., tuple[int, Any]]] = {
    "langfuse": _langfuse,
    "langsmith": _langsmith,
    "mlflow": _mlflow,
    "phoenix": _phoenix,
}

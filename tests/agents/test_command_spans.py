"""A command that sends its OpenTelemetry spans: they become the events of its turns."""

from __future__ import annotations

import gzip
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.otlp_bytes import encoded

from evaldesk.agents import load_agent, span_endpoint
from evaldesk.agents.span_endpoint import SpanEndpoint
from evaldesk.agents.spans import TurnSpans
from evaldesk.engine import play_trial
from evaldesk.errors import FormatError
from evaldesk.model import AgentRef, Case, Limits, TrialResult, TrialSpec, Turn
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.otel.protobuf import read_otlp
from evaldesk.transcripts.otel.spans import Span, spans_in

pytestmark = pytest.mark.anyio

COMMAND = """
import json, os, sys, time, urllib.request
def send(bodies, kind):
    for body in bodies:
        url = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
        request = urllib.request.Request(url, bytes.fromhex(body), {"content-type": kind})
        urllib.request.urlopen(request).read()
        time.sleep(0.02)
late = []
for line in sys.stdin:
    send(late, "application/x-protobuf")
    plan = json.loads(json.loads(line)["message"])
    for event in plan.get("tells", ()):
        print(json.dumps(event), flush=True)
    print(json.dumps({"kind": "message", "text": "A four."}))
    if plan["is_late"]:
        print(json.dumps({"kind": "done"}), flush=True)
        time.sleep(0.05)
    send(plan["sent"], plan["kind"])
    late = plan.get("late", [])
    if plan.get("ends"):
        sys.exit(1)
    if not plan["is_late"]:
        print(json.dumps({"kind": "done"}), flush=True)
send(late, "application/x-protobuf")
"""
NOW = 1_795_492_862_000_000_000
PROTOBUF, JSON = "application/x-protobuf", "application/json"


def span(number: int, parent: int, attributes: dict[str, Any]) -> dict[str, Any]:
    """A span of OTLP in JSON; a later one begins later and ends earlier than those around it."""
    pairs = [
        {"key": key, "value": {"intValue" if isinstance(v, int) else "stringValue": v}} for key, v in attributes.items()
    ]
    return {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": f"{number:016x}",
        **({"parentSpanId": f"{parent:016x}"} if parent else {}),
        "name": "work",
        "startTimeUnixNano": NOW + number * 1_000_000,
        "endTimeUnixNano": NOW + number * 1_000_000 + (900_000 if parent else 90_000_000),
        "attributes": pairs,
    }


def chat(number: int, asked: list[Any], answered: list[Any], tokens_in: int) -> dict[str, Any]:
    return span(
        number,
        1,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "small",
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps(answered),
            "gen_ai.usage.input_tokens": tokens_in,
            "gen_ai.usage.output_tokens": 5,
        },
    )


USER = {"role": "user", "parts": [{"type": "text", "content": "Roll."}]}
CALL = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "roll", "arguments": {"sides": 6}}]}
GIVEN = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": 4}]}
SAID = {"role": "assistant", "parts": [{"type": "text", "content": "A four."}]}
INNER = [chat(2, [USER], [CALL], 11), chat(3, [USER, CALL, GIVEN], [SAID], 20)]
AROUND = [span(1, 0, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "dice"})]


def request_of(spans: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "s"}, "spans": spans}]}]}


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns begin when the spans do."""
    clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: NOW / 1e9)
    monkeypatch.setattr(span_endpoint, "time", clock)


def spans_of(spans: list[dict[str, Any]]) -> list[Span]:
    document = Document(request_of(spans), source="spans")
    return [*spans_in(JsonPosition(document), document.value)]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Awaitable[TrialResult]]:
    (tmp_path / "agent.py").write_text(COMMAND)

    async def play(*plans: dict[str, Any]) -> TrialResult:
        case = Case("c", tuple(Turn(json.dumps({"is_late": False, "kind": PROTOBUF, **plan})) for plan in plans))
        options = json.dumps({"spans": True})
        ref = AgentRef("cmd", f"{sys.executable} -S agent.py", str(tmp_path), kind="command", declared=options)
        return await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))

    return play


def shown(result: TrialResult, turn: int = 0) -> list[Any]:
    events = result.transcript.turns[turn].events
    return [
        event.usage.tokens_in if event.usage else event.call.name if event.call else event.text
        for event in events
        if event.kind != "user_message"
    ]


STORY = [11, "roll", "roll", 20, "A four."]


@pytest.mark.parametrize("is_late", [False, True], ids=["before done", "after done"])
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
async def test_spans_of_a_command_become_its_calls(play: Any, kind: str, is_late: bool) -> None:
    bodies = [request_of(INNER), request_of(AROUND)]
    sent = [encoded(body) if kind == PROTOBUF else json.dumps(body).encode() for body in bodies]

    result = await play({"kind": kind, "is_late": is_late, "sent": [each.hex() for each in sent]})

    assert shown(result) == STORY
    assert result.transcript.captures == ("told", "spans")
    assert result.transcript.turns[0].tool_calls[0].args == {"sides": 6}


async def test_each_turn_has_its_own_spans_and_reported_calls_count_once(play: Any) -> None:
    told = [
        {"kind": "usage", "model": "small", "tokens_in": 11, "tokens_out": 5},
        {"kind": "tool_call", "name": "roll", "args": {"sides": 6}, "id": "c1"},
        {"kind": "tool_result", "name": "roll", "id": "c1", "result": 4},
    ]
    sent = [encoded(request_of([*INNER, *AROUND])).hex()]

    result = await play({"sent": sent, "tells": told}, {"sent": sent})

    assert sorted(map(str, shown(result))) == sorted(map(str, STORY))
    assert shown(result, 1) == STORY


NONE_CAME = "No span of this turn came in time"
CAME_LATE = "Spans of an earlier turn came when it was over"
WHOLE = [encoded(request_of([*INNER, *AROUND])).hex()]
EARLY = [{**each, "startTimeUnixNano": 1, "endTimeUnixNano": 2} for each in [*INNER, *AROUND]]
LATE, LATE_AROUND = ([encoded(request_of(spans)).hex()] for spans in (EARLY, EARLY[-1:]))
TOLD = {"kind": "usage", "model": "small", "tokens_in": 11, "tokens_out": 5}


@pytest.mark.parametrize(
    ("plans", "words", "tokens"),
    [
        ([{"sent": WHOLE}, {"sent": WHOLE}], [], 82),
        ([{"sent": WHOLE}, {"sent": []}], [NONE_CAME], 41),
        ([{"sent": []}, {"sent": []}], [NONE_CAME, NONE_CAME], 0),
        ([{"sent": [], "tells": [TOLD]}], [], 16),
        ([{"sent": [encoded(request_of(INNER)).hex()]}], ["A span came without the one"], 41),
        ([{"sent": WHOLE, "late": LATE}, {"sent": WHOLE}], [CAME_LATE], 82),
        ([{"sent": WHOLE, "late": LATE}], [], 41),
        ([{"sent": WHOLE, "late": LATE_AROUND}, {"sent": WHOLE}], [], 82),
        ([{"sent": WHOLE}, {"sent": WHOLE, "ends": True}], ["A span came without"], 82),
    ],
    ids=["all", "none of the last", "none", "told", "the outermost", "late", "late and last", "no call", "broken off"],
)
async def test_late_or_missing_spans_make_the_usage_a_lower_bound(
    play: Any, monkeypatch: pytest.MonkeyPatch, plans: list[Any], words: list[str], tokens: int
) -> None:
    monkeypatch.setattr(span_endpoint, "SETTLE_S", 0.2)

    result = await play(*plans)

    logs = [event.text for turn in result.transcript.turns for event in turn.events if event.author == "evaldesk"]
    said = [text for text in logs if text]
    assert [text for text, start in zip(said, words, strict=True) if not text.startswith(start)] == []
    assert result.tokens == tokens
    assert result.is_least == bool(words or "late" in plans[-1])
    assert "late" not in plans[-1] or result.cost is None


def test_a_span_from_before_the_turn_does_not_belong_to_it() -> None:
    endpoint, turns = SpanEndpoint(), [TurnSpans(lambda: 0.0) for _ in range(2)]

    with endpoint.listening(turns[0]):
        endpoint.take(json.dumps(request_of([*INNER, *AROUND])).encode(), JSON)
        endpoint.take(json.dumps(request_of(EARLY)).encode(), JSON)
    with endpoint.listening(turns[1]):
        endpoint.take(json.dumps(request_of(AROUND)).encode(), JSON)

    assert [len(turn.events()) for turn in turns] == [5, 0]
    assert [turn.lacks.startswith(CAME_LATE) for turn in turns] == [True, False]


def test_compressed_spans_are_read_and_other_encodings_refused() -> None:
    endpoint, turn = SpanEndpoint(), TurnSpans(lambda: 0.0)
    endpoint.open()
    url = endpoint.variables({"no_proxy": "a.test"})["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
    assert endpoint.variables({"no_proxy": "a.test"})["no_proxy"] == "a.test,127.0.0.1"

    def post(data: bytes, url: str = url, **headers: str) -> tuple[int, str]:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, names)) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    with endpoint.listening(turn):
        packed = gzip.compress(encoded(request_of([*INNER, *AROUND])))
        assert post(packed, content_encoding="gzip", content_type=PROTOBUF) == (200, "")
        assert post(b"\xff\xff", content_type=PROTOBUF)[0] == 400
        assert post(b"{", content_type=JSON)[0] == 400
        assert post(b"{}", url.replace(endpoint.key, "guessed"))[0] == 404
        assert post(b"any", url.replace("traces", "metrics"), content_type=PROTOBUF) == (200, "")
    assert len(turn.events()) == 5
    post(encoded(request_of([*INNER, *AROUND])), content_type=PROTOBUF)
    assert len(turn.events()) == 5
    endpoint.close()
    assert post(b"", content_type=PROTOBUF)[0] == 404


def test_spans_that_name_the_trace_of_another_turn_belong_to_the_address_they_were_sent_to() -> None:
    (own, other), turn, victim = (SpanEndpoint(), SpanEndpoint()), TurnSpans(lambda: 0.0), TurnSpans(lambda: 0.0)
    signed = [{**each, "traceId": f"{victim.trace_id:032x}"} for each in [*INNER, *AROUND]]

    with own.listening(turn), other.listening(victim):
        own.take(json.dumps(request_of(signed)).encode(), JSON)

    assert (len(turn.events()), victim.events()) == (5, ())


def test_a_span_without_its_parent_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_endpoint, "SETTLE_S", 0.0)
    endpoint, turns = SpanEndpoint(), [TurnSpans(lambda: 0.0), TurnSpans(lambda: 0.0)]

    for turn, spans in zip(turns, (INNER, [*INNER, *AROUND]), strict=True):
        with endpoint.listening(turn):
            endpoint.take(json.dumps(request_of(spans)).encode(), JSON)

    assert [turn.lacks for turn in turns] == [
        "A span came without the one that it is inside of, so calls of this turn may be missing.",
        "",
    ]


class SlowLock:
    """A lock of which a wait takes 10 s as long as something else has the processor."""

    def __init__(self, clock: list[float], *, n_slow: int) -> None:
        self.clock, self.n_slow, self.n_waits = clock, n_slow, 0

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

    def wait(self, seconds: float) -> None:
        self.n_waits += 1
        self.clock[0] += 10.0 if self.n_waits <= self.n_slow else seconds


@pytest.mark.parametrize(("n_slow", "n_waits"), [(0, 1), (1, 2), (1000, 2)])
def test_time_without_a_processor_is_no_time_without_spans(
    n_slow: int, n_waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    lock = SlowLock(clock, n_slow=n_slow)
    monkeypatch.setattr(span_endpoint, "time", SimpleNamespace(monotonic=lambda: clock[0], time=lambda: 0.0))
    turn = TurnSpans(lambda: 0.0)
    for each in spans_of(AROUND):
        turn.add(each)

    with SpanEndpoint(_lock=cast("Any", lock)).listening(turn):
        pass

    assert lock.n_waits == n_waits


def test_spans_in_protobuf_equal_spans_in_json() -> None:
    values = {
        "a": {"doubleValue": 0.5},
        "b": {"boolValue": True},
        "c": {"intValue": -3},
        "d": {"arrayValue": {"values": [{"stringValue": "é"}]}},
    }
    whole = span(2, 1, {}) | {
        "attributes": [{"key": key, "value": value} for key, value in values.items()],
        "events": [{"name": "e", "attributes": [{"key": "k", "value": {"stringValue": "v"}}]}],
        "status": {"message": "broken", "code": 2},
    }

    found = read_otlp(encoded(request_of([whole])))

    assert found["resourceSpans"][0]["scopeSpans"][0]["spans"] == [whole]


@given(st.binary(max_size=200))
def test_invalid_span_bytes_are_refused_with_a_message(data: bytes) -> None:
    try:
        assert isinstance(read_otlp(data), dict)
    except FormatError:
        return

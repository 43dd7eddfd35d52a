"""Measures the inbox: joining of spans, and list, text filter and draw of many conversations.

`python -m bench.measure_inbox [CONVERSATIONS [SPANS]]` prints CPU milliseconds; promised are 25 for a list, 60 for a
filter with a text, 1,000 for a draw, and 250 microseconds of joining a span (2,000 a second at half a core).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bench.row import Row, rounded
from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.desk.inbox.joining import join_new, twin_group_of
from evaldesk.desk.inbox.receiver import span_reader
from evaldesk.model import Event, Transcript, TrialResult, TurnRecord
from evaldesk.model.inbox import Conversation
from evaldesk.store import Store
from evaldesk.store.inbox.conversations import JoinedConversation
from evaldesk.store.inbox.spans import TraceGroup, TraceKey, packed_batch

AT_ONCE = 1_000
WORDS = ("order", "refund", "train", "hotel", "invoice", "late", "cancel", "two", "nights", "visa", "card", "Kyoto")
N_TIMES = 5
LINES = (
    *("", "error", "feedback<0", "tool:refund", "not tool:search", "turns>=5", "release:1.4", "since:7d"),
    *('text:"refund Kyoto"', 'text:"zq77"'),
)
"""Filters of the list; a word that every second conversation has is the slow one."""


def measure(folder: Path) -> Iterator[Row]:
    """The rows of the table, of 20,000 spans and 100,000 conversations."""
    return _rows(folder, 100_000, 20_000)


def main(n_conversations: int, n_spans: int) -> None:
    """Print the rows of other numbers, in a folder that goes."""
    with tempfile.TemporaryDirectory(prefix="evaldesk-inbox-") as folder:
        for row in _rows(Path(folder), n_conversations, n_spans):
            print(f"{row.what}: {row.value:g} {row.unit}", flush=True)


def _rows(folder: Path, n_conversations: int, n_spans: int) -> Iterator[Row]:
    with Store.open(folder / "inbox.db") as store:
        joining_us = rounded(_joining_us(store, folder, n_spans))
        yield Row(f"inbox, {n_spans:,} spans read, stored and joined, a span", joining_us, "CPU-us", 250)
        for number in range(0, n_conversations, AT_ONCE):
            _put(store, number, min(AT_ONCE, n_conversations - number))
        of = f"inbox of {n_conversations:,} conversations"
        for line in LINES:
            conditions = parse_filter(line)
            ms = _cpu_ms(partial(store.inbox.list, conditions, limit=50))
            yield Row(f"{of}, list {line}".rstrip(), rounded(ms), "CPU-ms", 60 if "text" in line else 25)
        ms = _cpu_ms(lambda: store.inbox.candidates(parse_filter("not error")), 1)
        yield Row(f"{of}, candidates of a draw", rounded(ms), "CPU-ms", 1000)


def _joining_us(store: Store, folder: Path, n_spans: int) -> float:
    """CPU microseconds a span, from the body of a request to a conversation."""
    reader = span_reader((), {}, folder)
    bodies = [*_bodies(n_spans)]
    began_s = time.process_time()
    for body in bodies:
        store.inbox_spans.receive(reader.batches(body, "spans", "shop", is_json=True))
    while join_new(store, 0.0):
        pass
    return (time.process_time() - began_s) * 1e6 / n_spans


def _bodies(n_spans: int) -> Iterator[bytes]:
    """Requests of 100 traces of 4 spans: an agent, a model call, a tool, and the answer."""
    start = int(datetime(2026, 11, 30, tzinfo=UTC).timestamp() * 1e9)
    for first in range(0, n_spans // 4, 100):
        spans = [span for number in range(first, first + 100) for span in _trace(number, start)]
        yield json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}).encode()


def _trace(number: int, start: int) -> Iterator[dict[str, Any]]:
    question = [{"role": "user", "parts": [{"type": "text", "content": f"Where is order {number}?"}]}]
    call = {"type": "tool_call", "id": "c1", "name": "get_order", "arguments": {"id": number}}
    called = [{"role": "assistant", "parts": [call]}]
    result = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "shipped"}]}]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "It was shipped."}]}]
    rows: list[dict[str, Any]] = [
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"},
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": question, "gen_ai.output.messages": called},
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "get_order",
            "gen_ai.tool.call.result": "shipped",
        },
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": [*question, *called, *result],
            "gen_ai.output.messages": answer,
        },
    ]
    for place, attributes in enumerate(rows):
        at = start + number * 10**9 + place * 10**8
        yield {
            "traceId": f"{number + 1:032x}",
            "spanId": f"{number * 8 + place + 1:016x}",
            **({"parentSpanId": f"{number * 8 + 1:016x}"} if place else {}),
            "name": "step",
            "startTimeUnixNano": str(at),
            "endTimeUnixNano": str(at + 10**7),
            "attributes": [
                {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
                for key, value in attributes.items()
            ],
        }


def _put(store: Store, first: int, n: int) -> None:
    """Store conversations with words, tools, releases and errors of a seeded mix."""
    now = store.now()
    keys = [TraceKey("prod", f"{first + number:032x}") for number in range(n)]
    store.inbox_spans.receive([packed_batch(key.source, key.trace_id, ()) for key in keys])
    group_ids = store.inbox_spans.connect({key: [] for key in keys})
    groups = []
    for key, group_id, number in zip(keys, group_ids, range(first, first + n), strict=True):
        chance = Random(number)
        text = " ".join(chance.choices(WORDS, k=12))
        turn = TurnRecord(text, (Event("user_message", text=text), Event("agent_message", text="Yes.")))
        result = TrialResult(0, 0, 0, "finished", "unscored", transcript=Transcript((turn,)))
        at = now - timedelta(seconds=2 * number)
        tools = tuple(chance.sample(("refund", "search", "get_order"), 2))
        conversation = Conversation(
            source="prod",
            service="shop",
            name=key.trace_id,
            agent="shop",
            release="1.4" if number % 2 else "1.5",
            began_at=at,
            ended_at=at,
            last_at=at,
            duration_ms=1500.0,
            n_turns=1 + number % 6,
            n_calls=2,
            n_spans=4,
            tokens=120,
            cost=0.01,
            error="failed" if number % 50 == 0 else "",
            first_words=text,
            tools=tools,
            tags=("prod",),
            user_hash=f"u{number % 1000}",
            feedback=-1.0 if number % 40 == 0 else None,
            twin_group=twin_group_of(text),
            is_whole=True,
            is_eval=False,
            has_error=number % 50 == 0,
            n_bytes=800,
        )
        joined = JoinedConversation(conversation, result, frozenset({key.trace_id}), text)
        groups.append((TraceGroup(group_id, "prod", (), {key.trace_id: 0}, at, 800, 0), [joined]))
    store.inbox.put(groups)


def _cpu_ms(action: Callable[[], object], n_times: int = N_TIMES) -> float:
    """The least CPU milliseconds of some tries."""
    times = []
    for _ in range(n_times):
        began_s = time.process_time()
        action()
        times.append((time.process_time() - began_s) * 1000)
    return min(times)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [1_000_000, 20_000][len(numbers) :]))

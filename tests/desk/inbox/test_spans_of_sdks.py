"""Spans that real SDKs wrote while an agent ran (`bench/sdk_spans.py`): the same two turns of each SDK."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from evaldesk.desk.inbox.joining import join_new
from evaldesk.desk.inbox.receiver import span_reader
from evaldesk.model.inbox import Conversation
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.store import Store
from evaldesk.transcripts.otel.langfuse_spans import with_langfuse
from evaldesk.transcripts.otel.spans import Span

SAMPLES = sorted((Path(__file__).parent / "sdk_samples").glob("*.json"))
each_sdk = pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
Requests = list[dict[str, Any]]
N_ORDERS = 12


def requests_of(path: Path) -> Requests:
    requests: Requests = json.loads(path.read_text())["requests"]
    return requests


def single_spans(requests: Requests) -> Requests:
    """A request for each span and each record."""
    parts: Requests = []
    for request in requests:
        for outer, middle, inner in (
            ("resourceSpans", "scopeSpans", "spans"),
            ("resourceLogs", "scopeLogs", "logRecords"),
        ):
            for resource in request["body"].get(outer, []):
                for scope in resource[middle]:
                    for each in scope[inner]:
                        body = {outer: [{"resource": resource.get("resource", {}), middle: [{inner: [each]}]}]}
                        parts.append({"path": request["path"], "body": body})
    return parts


def joined(home: Path, requests: Requests) -> tuple[Conversation, list[tuple[Any, ...]]]:
    """The one conversation of these requests, and its turns: question, calls, results, answer."""
    with Store.open(home / "inbox.db") as store:
        reader = span_reader((), {}, home)
        for request in requests:
            kind = "spans" if request["path"] == "/v1/traces" else "records"
            data = json.dumps(request["body"]).encode()
            store.inbox_spans.receive(reader.batches(data, kind, "local", is_json=True))
        while join_new(store, 0.0):
            pass
        (conversation,) = store.inbox.list().items
        turns = store.inbox.content(conversation.id).transcript.turns
    return conversation, [
        (
            turn.query,
            [(call.name, dict(call.args)) for call in turn.tool_calls],
            [
                json.loads(event.result) if isinstance(event.result, str) else event.result
                for event in turn.events
                if event.kind == "tool_result"
            ],
            turn.answer,
        )
        for turn in turns
    ]


@each_sdk
def test_spans_of_a_sdk_are_the_conversation(path: Path, tmp_path: Path) -> None:
    conversation, turns = joined(tmp_path, requests_of(path))

    assert turns == [
        ("Where is order 17?", [("get_order", {"id": 17})], [{"status": "shipped"}], "It was shipped."),
        ("Thanks.", [], [], "You are welcome."),
    ]
    assert (conversation.service, conversation.release, conversation.tags) == ("shop", "1.4", ("prod",))
    assert (conversation.tokens, conversation.has_error, conversation.is_whole) == (60, False, True)
    assert conversation.is_eval is False
    # Pydantic AI 2 names conversations itself, and its name comes before the session of a span around it.
    assert (conversation.name == "s-1") is not path.stem.startswith("pydantic-ai")


@each_sdk
def test_any_order_and_split_of_the_spans_of_a_sdk_gives_the_same(path: Path, tmp_path: Path) -> None:
    parts = single_spans(requests_of(path))
    results = []
    for seed in range(N_ORDERS):
        home = tmp_path / str(seed)
        home.mkdir()
        Random(seed).shuffle(parts)
        results.append(joined(home, parts)[1])

    assert all(each == results[0] for each in results)
    assert [turn[0] for turn in results[0]] == ["Where is order 17?", "Thanks."]


def test_langfuse_names_agent_user_and_tags(tmp_path: Path) -> None:
    (path,) = [each for each in SAMPLES if each.stem.startswith("langfuse-")]

    conversation, _ = joined(tmp_path, requests_of(path))

    assert conversation.agent == "support"
    assert conversation.user_hash not in ("", "u")


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, {}),
        ({"langfuse.observation.type": "span", "langfuse.observation.input": "x"}, {}),
        ({"langfuse.observation.type": 5}, {}),
        ({"langfuse.observation.type": "generation", "gen_ai.operation.name": "chat"}, {}),
        (
            {"langfuse.observation.type": "generation", "langfuse.observation.usage_details": "{", "x": 1},
            {"openinference.span.kind": "LLM"},
        ),
        (
            {
                "langfuse.observation.type": "generation",
                "langfuse.observation.usage_details": '{"input": 7, "output": 2, "input_cached_tokens": 4}',
                "langfuse.observation.cost_details": '{"total": 0.5}',
            },
            {
                "openinference.span.kind": "LLM",
                "llm.token_count.prompt": 7,
                "llm.token_count.completion": 2,
                "llm.token_count.prompt_details.cache_read": 4,
                "gen_ai.usage.cost": 0.5,
            },
        ),
        (
            {"langfuse.observation.type": "tool", "langfuse.observation.input": '{"id": 1}'},
            {"openinference.span.kind": "TOOL", "tool.name": "step", "input.value": '{"id": 1}'},
        ),
    ],
)
def test_observations_of_langfuse_get_the_usual_names(attributes: dict[str, Any], wanted: dict[str, Any]) -> None:
    span = Span(JsonPosition(Document(None), ()), "step", "a", "b", "", 0.0, 1.0, attributes)

    own = {key: value for key, value in with_langfuse(span).attributes.items() if key not in attributes}

    assert own == wanted


def test_an_observation_at_the_level_of_errors_is_a_failed_span() -> None:
    attributes = {"langfuse.observation.type": "generation", "langfuse.observation.level": "ERROR"}
    span = Span(JsonPosition(Document(None), ()), "step", "a", "b", "", 0.0, 1.0, attributes)

    assert with_langfuse(span).error == "error"

"""Conversations in an inbox, without the spans that would tell of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evaldesk.model import Event, Transcript, TrialResult, TurnRecord
from evaldesk.model.inbox import Conversation
from evaldesk.store import Store
from evaldesk.store.inbox.conversations import JoinedConversation
from evaldesk.store.inbox.spans import TraceGroup, TraceKey, packed_batch


def put_conversation(store: Store, text: str, result: TrialResult | None = None, **values: Any) -> int:
    """Store a conversation of one trace with this text in every place; gives its id."""
    trace_id = f"{len(store.inbox_spans.sources()):032x}{store.inbox.count():032x}"
    store.inbox_spans.receive([packed_batch(values.get("source", text), trace_id, ())])
    (group_id,) = store.inbox_spans.connect({TraceKey(values.get("source", text), trace_id): []})
    now = store.now()
    usual: dict[str, Any] = dict.fromkeys(
        ("source", "service", "name", "agent", "release", "error", "first_words", "user_hash", "twin_group"), text
    )
    usual |= {"began_at": now, "ended_at": now, "last_at": now, "duration_ms": 1500.0, "feedback": None, "cost": 0.01}
    usual |= {"n_turns": 1, "n_calls": 1, "n_spans": 1, "tokens": 12, "tools": (text,), "tags": (text,)}
    usual |= {"is_whole": True, "is_eval": False, "has_error": True}
    events = (Event("user_message", 0.0, text=text), Event("agent_message", 1.0, text=text, author=text))
    result = result or TrialResult(0, 0, 0, "finished", "unscored", transcript=Transcript((TurnRecord(text, events),)))
    group = TraceGroup(group_id, usual["source"], (), {trace_id: 0}, now, 0, 0)
    conversation = Conversation(**usual | values)
    store.inbox.put([(group, [JoinedConversation(conversation, replace(result), frozenset({trace_id}), text)])])
    return max(each.id for each in store.inbox.list(limit=1000, is_eval=conversation.is_eval).items)

"""Rows of Braintrust's logs: costs, errors, rows without an end."""

from __future__ import annotations

import json
from typing import Any

from evaldesk.integrations.braintrust.logs import Braintrust

ROW: dict[str, Any] = {
    "id": "1",
    "span_id": "a",
    "root_span_id": "a",
    "span_parents": [],
    "created": "2026-11-29T12:00:00Z",
    "input": [{"role": "user", "content": "hi"}],
    "output": [{"role": "assistant", "content": "hello"}],
    "span_attributes": {"type": "llm", "name": "chat"},
    "metadata": {"model": "gpt-5-mini", "thread_id": "s-1"},
    "metrics": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_cached_tokens": 4, "estimated_cost": 0.25},
}


def test_a_call_has_its_tokens_and_its_cost() -> None:
    (run,) = Braintrust.read(json.dumps([ROW]).encode(), source="logs.json").runs

    (case,), (result,) = run.cases, run.results
    (usage,) = result.transcript.turns[0].usages
    assert (case.id, usage.model, usage.tokens_in, usage.tokens_out) == ("s-1", "gpt-5-mini", 7, 2)
    assert (usage.tokens_cached, usage.cost) == (4, 0.25)


def test_an_error_of_any_form_breaks_its_trial() -> None:
    for error, words in (("overloaded", "overloaded"), ({"code": 529}, "error")):
        (run,) = Braintrust.read(json.dumps([{**ROW, "error": error}]).encode(), source="logs.json").runs

        assert run.results[0].error is not None
        assert run.results[0].error.message == words

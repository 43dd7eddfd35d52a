"""Endpoints that fail, refuse, stall and break off: both clients make the same of them."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.agents.model_calls import HASTE, MESSAGES, MODEL, call_of

from evaldesk.errors import ModelError
from evaldesk.llm import ModelCall, RetryPolicy, complete
from evaldesk.llm.refusals import STRICTNESS
from evaldesk.llm.retry_events import CURRENT_LISTENER

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("client")]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_transient_failure_is_retried_and_counted(endpoint: Any, status: int) -> None:
    endpoint.fails(status).says("hello")

    reply = await complete(call_of(endpoint), retry_policy=HASTE)

    assert (reply.text, reply.usage.n_attempts, len(endpoint.asked)) == ("hello", 2, 2)


async def test_retry_after_is_waited_for_instead_of_our_own_pause(endpoint: Any) -> None:
    endpoint.fails(429, retry_after="0").says("hello")
    retry_policy = RetryPolicy(first_wait_s=3600, max_backoff_s=3600, max_retry_after_s=3600)

    reply = await asyncio.wait_for(complete(call_of(endpoint), retry_policy=retry_policy), 300)

    assert reply.usage.n_attempts == 2


async def test_a_retry_after_beyond_the_longest_wait_ends_the_call(endpoint: Any) -> None:
    endpoint.fails(429, retry_after="3600")

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint))

    assert (caught.value.kind, caught.value.is_fatal, len(endpoint.asked)) == ("rate_limit", False, 1)


async def test_the_last_attempt_ends_the_retries(endpoint: Any) -> None:
    for _ in range(3):
        endpoint.fails(500, "the disk is full")

    with pytest.raises(ModelError, match=r"the disk is full.*\(tried 3 times\)") as caught:
        await complete(call_of(endpoint), retry_policy=HASTE)

    assert (caught.value.kind, caught.value.is_fatal) == ("server_error", False)


@pytest.mark.parametrize(
    ("status", "code", "kind", "says"),
    [
        (401, None, "authentication", "set HOSTED_VLLM_API_KEY"),
        (403, None, "permission", "the key is valid but may not use this model"),
        (404, "model_not_found", "unknown_model", "name it as provider/model"),
        (429, "insufficient_quota", "quota", "nothing left to spend"),
        (402, None, "quota", "nothing left to spend"),
    ],
)
async def test_a_fatal_failure_is_not_retried_and_names_the_next_step(
    endpoint: Any, status: int, code: str | None, kind: str, says: str
) -> None:
    endpoint.fails(status, "refused", code)

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint), retry_policy=HASTE)

    assert (caught.value.kind, caught.value.is_fatal, len(endpoint.asked)) == (kind, True, 1)
    assert says in str(caught.value)


async def test_a_refused_request_fails_once_and_is_not_fatal(endpoint: Any) -> None:
    endpoint.fails(400, "temperature must be below 1")

    with pytest.raises(ModelError, match="temperature must be below 1") as caught:
        await complete(call_of(endpoint), retry_policy=HASTE)

    assert (caught.value.kind, caught.value.is_fatal, len(endpoint.asked)) == ("bad_request", False, 1)


async def test_a_closed_port_is_a_connection_failure() -> None:
    call = ModelCall(MODEL, MESSAGES, api_base="http://127.0.0.1:9/v1")

    with pytest.raises(ModelError, match="tried 3 times") as caught:
        await complete(call, retry_policy=HASTE)

    assert (caught.value.kind, caught.value.is_fatal) == ("connection", False)
    assert "cannot connect to 127.0.0.1:9: Connection refused" in str(caught.value)


async def test_a_dropped_connection_is_retried(endpoint: Any) -> None:
    endpoint.drops().says("hello")

    reply = await complete(call_of(endpoint), retry_policy=HASTE)

    assert (reply.text, reply.usage.n_attempts) == ("hello", 2)


async def test_a_retry_pause_is_reported_with_its_reason_and_end(endpoint: Any) -> None:
    endpoint.fails(429, "slow down", retry_after="0").fails(503).says("hello")
    waits: list[str] = []

    token = CURRENT_LISTENER.set(lambda wait: waits.append(wait.sentence()))
    await complete(call_of(endpoint), retry_policy=HASTE)
    CURRENT_LISTENER.reset(token)

    assert re.fullmatch(r"rate-limited until \d\d:\d\d:\d\d, then attempt 2 of 3: .*slow down.*", waits[0])
    assert waits[1].startswith("server error until")


async def test_a_field_refused_by_a_strict_endpoint_is_dropped_from_then_on(endpoint: Any) -> None:
    endpoint.fails(422, "extra_forbidden: body.seed").says("hello").says("again")

    await complete(call_of(endpoint, seed=4))
    await complete(call_of(endpoint, seed=5))

    assert ["seed" in asked for asked in endpoint.asked] == [True, False, False]


async def test_a_field_set_by_the_user_is_dropped_when_the_model_refuses_it(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STRICTNESS, "_refused_fields", {})
    endpoint.fails(400, "Unsupported parameter: temperature").says("hello")

    reply = await complete(call_of(endpoint, temperature=0.5))

    assert reply.text == "hello"
    assert ["temperature" in asked for asked in endpoint.asked] == [True, False]


async def test_a_silent_endpoint_times_out(endpoint: Any) -> None:
    held = endpoint.stalls()

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint, timeout_s=0.05), retry_policy=RetryPolicy(n_attempts=1))

    held.set()
    assert caught.value.kind == "timeout"


async def test_a_key_never_shows_in_an_error(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "a-very-secret-key")
    endpoint.fails(400, "cannot use a-very-secret-key with sk-abcdefghijklmnopqrstuvwxyz123456")

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint))

    assert "[HOSTED_VLLM_API_KEY] with [secret]" in str(caught.value)

"""What failures mean, how long one waits, and what only LiteLLM knows."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests.agents.installed import skip_without
from tests.agents.model_calls import MESSAGES, MODEL, call_of

from evaldesk.agents import agent_ref
from evaldesk.engine.failures import failure
from evaldesk.engine.frames import Describe, Described, frame_from_worker
from evaldesk.engine.worker.jobs import DescribeJob
from evaldesk.errors import ModelError
from evaldesk.llm import ModelCall, RetryPolicy, complete
from evaldesk.llm.failures import ModelFailure, failure_of
from evaldesk.model import Session
from evaldesk.model.transcript import FATAL_KINDS

pytestmark = pytest.mark.anyio


async def test_a_known_model_has_a_price(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-tests")
    endpoint.says("hello")

    reply = await complete(call_of(endpoint, model="openai/gpt-4o-mini"))

    assert reply.usage.cost == pytest.approx(11 * 0.15e-6 + 5 * 0.6e-6)


async def test_a_worker_knows_which_models_have_no_price() -> None:
    asked = Describe(
        1, agent_ref("samples/hello_world"), models=("openai/gpt-4o-mini", "nobody/knows", "demo/scripted")
    )

    told = frame_from_worker(await DescribeJob(asked).run())

    assert isinstance(told, Described)
    assert told.unpriced == ("nobody/knows",)


async def test_a_missing_key_names_the_variable() -> None:
    with pytest.raises(ModelError, match="set OPENAI_API_KEY") as caught:
        await complete(ModelCall("openai/gpt-4o-mini", MESSAGES))

    assert (caught.value.kind, caught.value.is_fatal) == ("authentication", True)


@pytest.mark.parametrize("model", ["nonsense", "demo/nonsense", "demo/dice?sides=6"])
async def test_an_unknown_model_is_fatal(model: str) -> None:
    with pytest.raises(ModelError, match="no such model") as caught:
        await complete(ModelCall(model, MESSAGES))

    assert (caught.value.kind, caught.value.is_fatal) == ("unknown_model", True)


class _RaisedError(Exception):
    def __init__(self, message: str, status_code: int = 0, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.litellm_response_headers = headers or {}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert failure_of(_RaisedError("slow down", 429, headers), MODEL).retry_after_s == seconds


def test_the_retry_delay_of_google_is_waited_for() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    said = f"429 RESOURCE_EXHAUSTED. { {'error': {'code': 429, 'details': details}} }"

    assert failure_of(_RaisedError(said, 429), MODEL).retry_after_s == 34.5


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx.ReadTimeout(""), "timeout"),
        (httpx.PoolTimeout(""), "timeout"),
        (httpx.RemoteProtocolError(""), "connection"),
        (httpx.ReadError(""), "connection"),
    ],
)
def test_network_errors_without_a_status_are_retried(error: Exception, kind: str) -> None:
    failure = failure_of(error, MODEL)

    assert (failure.kind, failure.is_passing) == (kind, True)


def test_a_provider_may_forbid_a_retry() -> None:
    failure = failure_of(_RaisedError("down for good", 503, {"x-should-retry": "false"}), MODEL)

    assert (failure.kind, failure.is_passing) == ("server_error", False)


def test_a_fault_in_the_library_is_not_retried() -> None:
    assert not failure_of(_RaisedError("No module named 'mcp'", 500), MODEL).is_passing


def test_waits_double_up_to_the_longest() -> None:
    retry_policy = RetryPolicy(n_attempts=9, first_wait_s=1, max_backoff_s=5)
    failure = ModelFailure("server_error", "", is_passing=True)

    waits = [retry_policy.wait_s(n, failure, lambda: 1.0) for n in range(1, 6)]

    assert waits == [1, 2, 4, 5, 5]
    assert retry_policy.wait_s(1, failure, lambda: 0.0) == 0.5
    assert retry_policy.wait_s(9, failure, lambda: 0.0) is None


def raised(error: Exception, cause: Exception | None = None, context: Exception | None = None) -> Exception:
    error.__cause__, error.__context__ = cause, context
    return error


def connection_error(cause: Exception) -> Exception:
    """The error that OpenAI's client makes of any exception of its transport."""
    skip_without("openai")
    import openai

    request = httpx.Request("POST", "http://127.0.0.1/v1/chat/completions")
    return raised(openai.APIConnectionError(request=request), cause)


REFUSED = httpx.ConnectError("connection refused")
LOCAL = {
    "a missing package": ModuleNotFoundError("No module named 'h2'"),
    "an address without a scheme": httpx.UnsupportedProtocol("Request URL is missing an 'http://' protocol."),
    "a key with a line break": httpx.LocalProtocolError("Illegal header value b'Bearer x\\n'"),
    "a certificate": raised(httpx.ConnectError("verify failed"), ssl.SSLCertVerificationError("self-signed")),
}


@pytest.mark.parametrize("cause", LOCAL.values(), ids=LOCAL)
def test_a_fault_on_this_side_of_the_connection_is_not_tried_again_and_stops_the_run(cause: Exception) -> None:
    failure = failure_of(connection_error(cause), "openai/small")

    assert (failure.kind, failure.is_passing, failure.is_fatal) == ("client_setup", False, True)
    assert failure.kind in FATAL_KINDS
    assert "\n" not in failure.sentence


@pytest.mark.parametrize(
    "cause",
    [
        REFUSED,
        raised(httpx.ConnectError("refused"), OSError("refused"), ImportError("an optional package")),
        raised(httpx.ConnectError("refused"), raised(OSError("refused"), None, ImportError("no h2"))),
    ],
    ids=["a refused connection", "one beside a package that is optional", "one after a package that is optional"],
)
def test_a_connection_that_fails_is_tried_again(cause: Exception) -> None:
    failure = failure_of(connection_error(cause), "openai/small")

    assert (failure.kind, failure.is_passing) == ("connection", True)


def test_the_error_of_a_framework_around_a_client_that_can_send_nothing_stops_the_run() -> None:
    inner = connection_error(LOCAL["a missing package"])

    record = failure(raised(RuntimeError("the model failed"), inner))
    other = failure(raised(RuntimeError("the model failed"), connection_error(REFUSED)))

    assert (record.kind, "No module named 'h2'" in record.message) == ("client_setup", True)
    assert other.kind == "agent_raised"


BROKEN_CLIENT = """
import httpx
from openai import OpenAI

n_tried = 0

class Broken(httpx.BaseTransport):
    def handle_request(self, request):
        global n_tried
        n_tried += 1
        import a_package_that_is_not_there

client = OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", http_client=httpx.Client(transport=Broken()))

def root_agent(message):
    messages = [{"role": "user", "content": message}]
    return client.chat.completions.create(model="small", messages=messages).choices[0].message.content
"""


async def test_a_client_with_an_import_error_is_asked_once(loaded: Any, played: Any) -> None:
    skip_without("openai")
    agent = loaded(BROKEN_CLIENT)

    turn = await played(agent, Session("s"), "hi")

    assert turn.error.kind == "client_setup"
    assert "a_package_that_is_not_there" in turn.error.message
    assert sys.modules["some_agent.agent"].n_tried == 1
    assert [event for event in turn.events if event.kind == "log"] == []

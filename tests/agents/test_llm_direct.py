"""Which calls go straight to an endpoint, with which key, by which way; and that LiteLLM is not needed for them."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Answer, Endpoint, completion, served
from tests.agents.model_calls import HASTE, MESSAGES, TOOL, call_of

from evaldesk.engine.driver.inline import InlineExecutor
from evaldesk.errors import BadNumberError, ModelError
from evaldesk.llm import ModelCall, RetryPolicy, complete, direct, is_direct, warm
from evaldesk.llm.client import _import_litellm, open_litellm
from evaldesk.llm.endpoints import PROVIDERS, own_endpoint
from evaldesk.llm.loop import on_loop
from evaldesk.model import AgentRef, Case, TrialSpec, Turn
from evaldesk.unpacking import MAX_ANSWER

pytestmark = pytest.mark.anyio

OWN = "http://127.0.0.1:8000/v1"
AGENT = 'from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(name="small", model="{}", api_base="{}")\n'


@pytest.fixture
def elsewhere() -> Iterator[Endpoint]:
    with served() as endpoint:
        yield endpoint


@pytest.mark.parametrize(
    ("model", "base", "is_so"),
    [
        ("small", OWN, True),
        ("mistral", OWN, True),
        ("meta-llama/Llama-3.1-8B", OWN, True),
        ("hosted_vllm/gpt-4o-mini", OWN, True),
        ("openai/small", OWN, True),
        ("gpt-oss-120b", OWN, True),
        ("openai/gpt-oss-120b", OWN, True),
        ("gpt-4o-mini", OWN, False),
        ("openai/gpt-4o-mini", OWN, False),
        ("openai/ft:mine", "https://api.openai.com/v1", False),
        ("openai/deployed", "https://mine.openai.azure.com/v1", False),
        ("mistral/small", OWN, False),
        ("demo/dice", OWN, False),
        ("small", None, False),
        ("hosted_vllm/small", None, False),
    ],
)
def test_models_without_a_price_at_an_own_address_use_our_client(model: str, base: str | None, is_so: bool) -> None:
    assert (own_endpoint(ModelCall(model, MESSAGES, api_base=base)) is not None) is is_so


def test_the_list_of_providers_has_all_of_litellm() -> None:
    litellm = open_litellm()

    known = {*map(str, litellm.models_by_provider), *(item.value for item in litellm.LlmProviders)}

    assert known <= PROVIDERS


def test_an_import_that_appends_the_working_folder_leaves_it_off_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_imports: None
) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/litellm.py").write_text("import os, sys\nsys.path.append(os.getcwd())\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "installed")

    imported = _import_litellm()

    assert imported.__file__ == str(tmp_path / "installed/litellm.py")
    assert str(tmp_path) not in sys.path


def test_with_callbacks_litellm_makes_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_litellm(), "success_callback", [print])

    assert not is_direct(ModelCall("small", MESSAGES, api_base=OWN))


async def test_a_trial_at_an_own_endpoint_never_asks_for_litellm(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> None:
        raise AssertionError("LiteLLM was asked for")

    monkeypatch.setattr("evaldesk.llm.client._setup_litellm", never)
    folder = tmp_path / "own"
    folder.mkdir()
    folder.joinpath("agent.py").write_text(AGENT.format("small", endpoint.address))
    ref = AgentRef("own", "own.agent:root_agent", root=str(tmp_path), folder=str(folder))
    endpoint.fails(500).says("hello")

    executor = InlineExecutor(1)
    await executor.submit(TrialSpec(1, 0, 0, Case("c", (Turn("hi"),)), ref, ()))
    result = await anext(executor.results())
    await executor.close()

    assert (result.status, result.transcript.turns[0].answer, result.cost) == ("finished", "hello", None)
    assert [usage.n_attempts for usage in result.usages] == [2]


async def test_warm_imports_the_packages_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("evaldesk.llm.client.open_litellm", lambda: opened.append("litellm"))

    warm(ModelCall("small", MESSAGES, api_base=OWN))
    warm(ModelCall("small", MESSAGES, api_base=OWN, api_key_env="NOT_SET"))
    warm(ModelCall("openai/gpt-4o-mini", MESSAGES))

    assert opened == ["litellm"]


@pytest.mark.parametrize(
    ("fields", "environment", "key"),
    [
        ({}, {"HOSTED_VLLM_API_KEY": "v-key"}, "Bearer v-key"),
        ({}, {}, ""),
        ({"model": "openai/small"}, {"OPENAI_API_KEY": "o-key"}, "Bearer o-key"),
        ({"api_key_env": "MINE"}, {"MINE": "m-key", "HOSTED_VLLM_API_KEY": "v-key"}, "Bearer m-key"),
    ],
)
async def test_each_name_takes_its_own_key(
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    fields: Mapping[str, str],
    environment: Mapping[str, str],
    key: str,
) -> None:
    monkeypatch.delenv("HOSTED_VLLM_API_KEY")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    endpoint.says("hello")

    await complete(call_of(endpoint, **fields))

    assert endpoint.headers[0].get("authorization", "") == key


@pytest.mark.parametrize(("model", "name"), [("openai/small", "OPENAI_API_KEY"), ("small", "MINE")])
async def test_a_missing_key_is_an_error_before_any_request(endpoint: Endpoint, model: str, name: str) -> None:
    fields = {"api_key_env": name} if name == "MINE" else {}

    with pytest.raises(ModelError, match=name) as caught:
        await complete(call_of(endpoint, model=model, **fields))

    assert (caught.value.kind, caught.value.is_fatal, endpoint.asked) == ("authentication", True, [])


async def test_a_refused_key_is_named_by_its_variable(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "m-key")
    endpoint.fails(401)

    with pytest.raises(ModelError, match="set MINE where Evaldesk is started"):
        await complete(call_of(endpoint, api_key_env="MINE"))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("tell", [None, print], ids=["whole", "streamed"])
async def test_a_redirect_is_not_followed(endpoint: Endpoint, elsewhere: Endpoint, status: int, tell: Any) -> None:
    endpoint.fails(status, location=f"{elsewhere.address}/chat/completions?key=hidden")
    elsewhere.says("hello")

    with pytest.raises(ModelError, match=f"answered {status}, a redirect to {elsewhere.address[:-3]}. Red") as caught:
        await complete(call_of(endpoint), tell)

    assert caught.value.kind == "redirect"
    assert "keys would be sent there" in str(caught.value)
    assert (len(endpoint.asked), elsewhere.asked) == (1, [])


@pytest.mark.parametrize("tell", [None, print], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [200, 500])
async def test_a_decompressed_answer_beyond_the_limit_is_an_error(endpoint: Endpoint, status: int, tell: Any) -> None:
    headers = {"content-encoding": "gzip", "content-type": "text/event-stream" if tell else "application/json"}
    endpoint.gives(gzip.compress(b" " * (MAX_ANSWER + 1)), status=status, headers=headers)

    with pytest.raises(ModelError, match="unpacks to more than 32 MiB, which is refused") as caught:
        await complete(call_of(endpoint), tell)

    assert (caught.value.kind, len(endpoint.asked)) == ("too_big", 1)


async def test_a_compressed_answer_is_read(endpoint: Endpoint) -> None:
    body = gzip.compress(json.dumps(completion("hello")).encode())
    endpoint.gives(body, headers={"content-encoding": "gzip"})

    assert (await complete(call_of(endpoint))).text == "hello"
    assert endpoint.headers[0]["accept-encoding"] == "identity"


DEEP = b"[" * 10_000 + b"]" * 10_000


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [{"message": {"content": ' + DEEP + b"}}]}",
        b'{"error": ' + DEEP + b"}",
        b'{"choices": [{"message": {"content": "half \\ud800"}}]}',
        b'{"choices": [{"message": {"content": NaN}}]}',
        b'{"choices": [{"message": {"content": 1e400}}]}',
        b'{"choices": [{"message": {"content": "\xff"}}]}',
    ],
    ids=["deep", "deep error", "half", "NaN", "1e400", "Latin-1"],
)
@pytest.mark.parametrize("status", [200, 500])
async def test_invalid_json_is_an_error_of_its_call(endpoint: Endpoint, body: bytes, status: int) -> None:
    endpoint.gives(body, status=status)

    with pytest.raises(ModelError) as caught:
        await complete(call_of(endpoint), retry_policy=RetryPolicy(n_attempts=1))

    assert caught.value.kind == ("broken_answer" if status == 200 else "server_error")


@pytest.mark.parametrize("count", ["-1", "1e30", str(2**70), "true", '"3"'])
async def test_an_invalid_count_is_an_error_of_its_call(endpoint: Endpoint, count: str) -> None:
    body = json.dumps(completion("hello")).replace('"prompt_tokens": 11', f'"prompt_tokens": {count}')
    endpoint.gives(body.encode())

    with pytest.raises((ModelError, BadNumberError)):
        await complete(call_of(endpoint), retry_policy=RetryPolicy(n_attempts=1))


@pytest.mark.parametrize(("no_proxy", "is_asked"), [("", True), ("127.0.0.1", False)])
async def test_the_proxy_of_the_environment_is_used(
    endpoint: Endpoint, elsewhere: Endpoint, monkeypatch: pytest.MonkeyPatch, no_proxy: str, is_asked: bool
) -> None:
    monkeypatch.setenv("http_proxy", elsewhere.address.removesuffix("/v1"))
    monkeypatch.setenv("no_proxy", no_proxy)
    endpoint.says("hello")
    elsewhere.says("hello")

    await complete(call_of(endpoint))

    assert (len(endpoint.asked), len(elsewhere.asked)) == ((0, 1) if is_asked else (1, 0))


async def test_after_the_connections_are_closed_others_are_opened(endpoint: Endpoint) -> None:
    endpoint.says("hello").says("again")

    first = await complete(call_of(endpoint))
    await on_loop(direct.close())
    second = await complete(call_of(endpoint))

    assert (first.text, second.text) == ("hello", "again")


async def test_a_body_that_is_cut_is_tried_again(endpoint: Endpoint) -> None:
    cut = json.dumps({"choices": [{"message": {"content": "hello"}}]}).encode()
    endpoint.gives(cut, headers={"content-length": "1000"}).says("hello")

    reply = await complete(call_of(endpoint), retry_policy=HASTE)

    assert (reply.text, reply.usage.n_attempts) == ("hello", 2)


async def test_a_stream_that_ends_without_a_reason_is_no_answer(endpoint: Endpoint) -> None:
    endpoint.gives(_events({"content": "hel"}), headers={"content-type": "text/event-stream"})

    with pytest.raises(ModelError, match="broke off") as caught:
        await complete(call_of(endpoint), lambda _: None, retry_policy=HASTE)

    assert not caught.value.is_fatal


async def test_an_endpoint_without_streaming_is_read_in_one_piece(endpoint: Endpoint) -> None:
    endpoint.says("hello")
    pieces: list[str] = []

    reply = await complete(call_of(endpoint), pieces.append)

    assert (pieces, reply.text) == (["hello"], "hello")


async def test_a_streamed_call_may_be_long_and_without_an_index(endpoint: Endpoint) -> None:
    text = json.dumps({"said": "x" * 300_000})
    parts = [("c1", text), (None, ""), ("c2", "{"), ("c2", "}")]
    deltas = [
        {"tool_calls": [{"id": call_id, "function": {"name": "roll_die", "arguments": arguments}}]}
        for call_id, arguments in parts
    ]
    endpoint.gives(_events(*deltas) + b"data: [DONE]\n\n", headers={"content-type": "text/event-stream"})

    reply = await complete(call_of(endpoint, tools=[TOOL]), lambda _: None)

    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("c1", text), ("c2", "{}")]


async def test_text_may_come_in_parts(endpoint: Endpoint) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    endpoint.answers.append(Answer({"choices": [{"message": {"content": parts}}]}))

    reply = await complete(call_of(endpoint))

    assert (reply.text, reply.usage.tokens_in) == ("hello", 0)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"error": "model 'small' not found"}, "model 'small' not found"),
        ({"object": "error", "message": "too hot", "code": 400}, "too hot"),
        ({"detail": [{"loc": ["body", "tools"], "msg": "no tools here"}]}, "no tools here"),
        ("<h1>Bad gateway</h1>", "Bad gateway"),
    ],
)
async def test_errors_of_every_shape_show_their_message(endpoint: Endpoint, body: object, says: str) -> None:
    endpoint.gives(body.encode() if isinstance(body, str) else json.dumps(body).encode(), status=400)

    with pytest.raises(ModelError, match=says) as caught:
        await complete(call_of(endpoint))

    assert caught.value.kind == "bad_request"


def _events(*deltas: Mapping[str, Any]) -> bytes:
    events = ({"choices": [{"index": 0, "delta": delta}]} for delta in deltas)
    return b"".join(b": still here\n\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)


@pytest.mark.parametrize("model", ["small", "gpt-4o-mini"])
async def test_an_invalid_token_count_is_named_and_not_retried(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    usage = {"prompt_tokens": -3, "completion_tokens": 5, "total_tokens": 2}
    endpoint.answers.append(Answer({**completion("hello"), "usage": usage}))

    with pytest.raises(BadNumberError, match=r"usage\.tokens_in must be a number from 0 to 2\*\*53, got -3"):
        await complete(call_of(endpoint, model=model), retry_policy=HASTE)

    assert len(endpoint.asked) == 1

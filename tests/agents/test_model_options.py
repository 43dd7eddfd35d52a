"""Sampling and endpoint, from the command line or the configuration file down to the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Answer

from evaldesk.agents.discovery import remote_ref
from evaldesk.errors import ModelError, UsageError
from evaldesk.llm import ModelCall, complete
from evaldesk.model import ModelOptions, RunConfig, Session
from evaldesk.settings import read_settings
from evaldesk.wire import from_json, to_json

pytestmark = pytest.mark.anyio

AGENT = """
from evaldesk import LlmAgent

def tick() -> int:
    return 1

root_agent = LlmAgent(name="small", model="{model}", temperature=0.1, max_tokens=7, tools=[tick]{more})
"""


async def test_options_of_a_run_reach_the_endpoint_and_override_the_agent(
    endpoint: Any, loaded: Any, play: Any
) -> None:
    agent = loaded(AGENT.format(model="org/small-8b", more=""))
    options = ModelOptions(base_url=endpoint.address, temperature=0.7, top_p=0.9, extra={"top_k": 20})
    endpoint.says("hello")

    await play(agent, Session("s", model_options=options), "hi")

    asked = endpoint.asked[0]
    assert asked["model"] == "org/small-8b"
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"], asked["top_k"]) == (0.7, 0.9, 7, 20)


async def test_the_body_has_only_requested_fields(endpoint: Any, loaded: Any, play: Any) -> None:
    agent = loaded(AGENT.format(model="small", more=""))
    endpoint.says("hello")

    await play(agent, Session("s", model_options=ModelOptions(base_url=endpoint.address)), "hi")

    assert set(endpoint.asked[0]) == {"model", "messages", "tools", "temperature", "max_tokens"}


async def test_max_turns_bounds_the_model_calls_of_a_turn(endpoint: Any, loaded: Any, play: Any) -> None:
    agent = loaded(AGENT.format(model="small", more=""))
    endpoint.says("", ("c1", "tick", "{}")).says("", ("c2", "tick", "{}"))

    events = await play(agent, Session("s", model_options=ModelOptions(endpoint.address, max_turns=2)), "hi")

    assert len(endpoint.asked) == 2
    assert events[-1].error.kind == "max_turns"


async def test_the_key_is_read_from_the_configured_variable(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k-123456")
    endpoint.says("hello")

    await complete(_call(endpoint, api_key_env="MY_KEY"))

    assert endpoint.headers[0]["authorization"] == "Bearer k-123456"


async def test_a_variable_that_is_not_set_is_named_and_stops_the_run(endpoint: Any) -> None:
    with pytest.raises(ModelError, match="has no MY_KEY") as caught:
        await complete(_call(endpoint, api_key_env="MY_KEY"))

    assert (caught.value.is_fatal, endpoint.asked) == (True, [])


async def test_the_agents_key_does_not_go_to_another_address(
    endpoint: Any, loaded: Any, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "k-123456")
    agent = loaded(AGENT.format(model="small", more=', api_base="http://127.0.0.1:9/v1", api_key_env="MY_KEY"'))
    endpoint.says("hello")

    await play(agent, Session("s", model_options=ModelOptions(endpoint.address)), "hi")

    assert "k-123456" not in endpoint.headers[0].get("authorization", "")


async def test_no_retries_means_one_attempt(endpoint: Any, loaded: Any, play: Any) -> None:
    agent = loaded(AGENT.format(model="small", more=""))
    endpoint.fails(503).says("hello")

    with pytest.raises(ModelError):
        await play(agent, Session("s", model_options=ModelOptions(endpoint.address, n_retries=0)), "hi")

    assert len(endpoint.asked) == 1


@pytest.mark.usefixtures("client")
async def test_a_configured_price_counts(endpoint: Any, loaded: Any, play: Any) -> None:
    agent = loaded(AGENT.format(model="small", more=""))
    endpoint.says("hello")
    options = ModelOptions(endpoint.address, price_in=2, price_out=10)

    events = await play(agent, Session("s", model_options=options), "hi")

    [usage] = [event.usage for event in events if event.kind == "usage"]
    assert usage.cost == pytest.approx((11 * 2 + 5 * 10) / 1_000_000)


async def test_without_tokens_a_price_gives_no_cost(endpoint: Any) -> None:
    endpoint.answers.append(Answer({"choices": [{"message": {"content": "hello"}}]}))

    reply = await complete(_call(endpoint, prices=(2.0, 10.0)))

    assert reply.usage.cost is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"base_url": "localhost:8000"}, "must look like http"),
        ({"extra": {"model": "dear"}}, "extra.model would replace"),
        ({"extra": {"messages": []}}, "extra.messages would replace"),
        ({"extra": {"tools": []}}, "extra.tools would replace"),
        ({"extra": {"stream": False}}, "extra.stream would replace"),
        ({"base_url": "file:///etc/passwd"}, "must look like http"),
        ({"base_url": "http://me:secret@host/v1"}, "must not carry"),
        ({"base_url": "http://host/v1?key=secret"}, "must not carry"),
        ({"api_key_env": "sk-abcdef"}, "never the key itself"),
        ({"temperature": -1}, "temperature must be 0 to"),
        ({"temperature": float("nan")}, "temperature must be 0 to"),
        ({"top_p": 2}, "top_p must be 0 to 1"),
        ({"max_tokens": 0}, "max_tokens must be 1"),
        ({"max_turns": 0}, "max_turns must be 1"),
        ({"n_retries": -1}, "n_retries must be 0"),
        ({"price_in": -1, "price_out": 1}, "price_in must be 0"),
        ({"price_out": 1}, "both price_in and price_out"),
    ],
)
def test_invalid_options_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ModelOptions(**fields)


def test_later_options_override_earlier_ones_when_set() -> None:
    joined = ModelOptions(temperature=0.0, max_tokens=5, extra={"a": 1, "b": 1}) | ModelOptions(
        max_tokens=9, extra={"b": 2}
    )

    assert joined == ModelOptions(temperature=0.0, max_tokens=9, extra={"a": 1, "b": 2})


def test_a_run_stored_without_options_can_be_read() -> None:
    stored = b'{"agent":{"id":"a","target":"a:b"},"evalset_id":"e","limits":{"trial_timeout_s":5.0}}'

    config = from_json(stored, RunConfig)

    assert (config.model_options, config.limits.turn_timeout_s) == (ModelOptions(), None)
    assert from_json(to_json(config), RunConfig) == config


def test_the_configuration_file_sets_options_for_every_run(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('[model]\nbase_url = "http://127.0.0.1:8000/v1"\ntemperature = 0\n')

    settings = read_settings(tmp_path, (tmp_path,), environment={})

    assert settings.model_options == ModelOptions("http://127.0.0.1:8000/v1", temperature=0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[model]\ntemprature = 1\n", "may have the keys"),
        ("model = 3\n", "may have the keys"),
        ('[model]\nmax_tokens = "many"\n', "max_tokens"),
        ('[model]\nbase_url = "nowhere"\n', "must look like http"),
    ],
)
def test_a_wrong_key_of_the_file_is_refused_with_its_name(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "evaldesk.toml").write_text(text)

    with pytest.raises(UsageError, match=says):
        read_settings(tmp_path, (tmp_path,), environment={})


def _call(endpoint: Any, **fields: Any) -> ModelCall:
    return ModelCall("small", [{"role": "user", "content": "hi"}], api_base=endpoint.address, **fields)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2:80",
        "2852039166",
        "0xA9FEA9FE",
        "0251.0376.0251.0376",
        "169.254.43518",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[::ffff:169.254.169.254]",
        "[2002:a9fe:a9fe::]",
        "[fd00:ec2::254]",
        "metadata.google.internal",
        "METADATA.google.internal.",
    ],
)
def test_a_link_local_address_needs_the_environment_variable(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="EVALDESK_LINK_LOCAL=1"):
        ModelOptions(base_url=f"http://{host}/v1")
    with pytest.raises(UsageError, match="EVALDESK_LINK_LOCAL=1"):
        remote_ref(f"http://{host}/weather")

    monkeypatch.setenv("EVALDESK_LINK_LOCAL", "1")

    assert ModelOptions(base_url=f"http://{host}/v1").base_url
    assert remote_ref(f"http://{host}/weather")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "[::1]:8000", "10.0.0.7", "169.253.1.1", "gpu.local", "metadata.shop"]
)
def test_other_hosts_of_a_network_are_accepted(host: str) -> None:
    assert ModelOptions(base_url=f"http://{host}/v1").base_url

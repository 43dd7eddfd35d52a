"""Agents in containers: what they see of this machine, how they end, and what is refused before the start.

`docker` is `tests/fake_docker.py`, which needs no daemon.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests import fake_docker
from tests.agents.endpoint import Answer, Endpoint, chunks, served
from tests.islands import of_tools
from tests.virtual_environments import make_environment

from evaldesk.engine import ChatPlayers, LocalExecutor
from evaldesk.engine.driver import worker_process
from evaldesk.engine.launch import launcher_of
from evaldesk.engine.model_door import KEY, carry, door_for, is_open
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import AgentRef, Container, Event, TrialResult, TrialSpec, TurnRecord, TurnSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Make = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

AGENT = '''
    import os, signal, socket, sys, time
    from pathlib import Path

    HERE = Path(__file__).parent

    def agent(message, state):
        """Says what it sees."""
        if message == "where":
            import pricing
            return f"{sys.prefix} {pricing.VERSION} {HERE} {os.getcwd()}"
        if message == "network":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                try:
                    probe.connect(("192.0.2.1", 9))
                except OSError:
                    return "no network"
            return "network"
        if message == "variables":
            return " ".join(sorted(name for name in os.environ if name.startswith(("SHOP", "EVALDESK_IMAGE", "HOME"))))
        if message == "write":
            (HERE / "written").write_text("x")
            try:
                Path(sys.modules["evaldesk"].__file__).with_name("written").write_text("x")
            except OSError:
                return "here alone"
            return "everywhere"
        if message == "others":
            return " ".join(sorted(each for each in os.listdir("/proc") if each.isdigit()))[:40]
        if message == "files":
            return " ".join(sorted(each.name for each in HERE.iterdir()))
        if message == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if message == "hang":
            time.sleep(600)
        return message

    agent.tells_calls = True
'''


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a docker with the image shop:7, in which `pricing` is installed."""
    fake_docker.need_namespaces()
    place = tmp_path_factory.mktemp("docker")
    fake_docker.install(place)
    make_environment(place / "images" / "shop_7", pricing="1.4.0")
    for name in ("python", "python3"):
        assert (place / "images" / "shop_7" / "bin" / name).exists()
    return place


@pytest.fixture
def on_path(docker: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """That docker on PATH; nothing of it runs afterwards."""
    monkeypatch.setenv("PATH", f"{docker / 'bin'}{os.pathsep}{os.environ['PATH']}")
    yield docker
    assert not list((docker / "running").iterdir())


@pytest.fixture
def contained(write_agent: Write) -> Callable[..., AgentRef]:
    def make(**fields: object) -> AgentRef:
        return replace(write_agent(AGENT), container=replace(Container("shop:7"), **fields))  # type: ignore[arg-type]

    return make


def said(result: TrialResult) -> str:
    return next(event.text for event in result.transcript.turns[0].events if event.kind == "agent_message")


async def played(ref: AgentRef, specs: list[TrialSpec], play: Play, n_players: int = 1) -> list[TrialResult]:
    executor = LocalExecutor(n_players, 4, launcher=launcher_of(ref))
    try:
        results = await play(executor, specs)
    finally:
        await executor.close()
    return [results[index] for index in range(len(specs))]


def commands(docker: Path) -> list[list[str]]:
    return [json.loads(line) for line in (docker / "log").read_text().splitlines()]


async def test_an_agent_sees_its_image_its_files_and_nothing_else(
    on_path: Path, contained: Callable[..., AgentRef], trial: Make, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "given")
    monkeypatch.setenv("SHOP_SECRET", "kept")
    ref = contained(variables=("SHOP_KEY", "SHOP_ABSENT"))
    root = Path(ref.root)
    (root / ".venv").mkdir()
    (root / "data.txt").write_text("x")
    asked = ("where", "network", "variables", "write", "files")

    results = await played(ref, [trial(ref, at, (each,)) for at, each in enumerate(asked)], play)

    assert [result.status for result in results] == ["finished"] * len(asked), results
    answers = dict(zip(asked, map(said, results), strict=True))
    assert answers["where"] == f"/opt/image 1.4.0 {root} /tmp"
    assert answers["network"] == "no network"
    assert answers["variables"] == "EVALDESK_IMAGE HOME SHOP_KEY"
    assert answers["write"] == "here alone"
    assert set(answers["files"].split()) - {"written", "__pycache__"} == {"data.txt", "scripted_agent.py"}
    assert not (root / "written").exists()
    assert {result.verdict for result in results} == {"passed"}
    assert "given" not in json.dumps(commands(on_path))


async def test_a_chat_and_a_description_are_made_there(
    on_path: Path, contained: Callable[..., AgentRef], host: ChatPlayers
) -> None:
    ref = contained(network="open")

    description = await host.describe(ref)
    record = [item async for item in host.play_turn(TurnSpec("s", ref, "hello"))][-1]

    assert description.description == "Says what it sees."
    assert isinstance(record, TurnRecord)
    assert [event.text for event in record.events if isinstance(event, Event) and event.kind == "agent_message"] == [
        "hello"
    ]
    assert "--network" not in commands(on_path)[-1]


async def test_a_container_that_is_killed_costs_its_own_trial_and_is_named(
    on_path: Path, contained: Callable[..., AgentRef], trial: Make, play: Play
) -> None:
    ref = contained()
    asked = ("a", "die", "b", "c")

    results = await played(ref, [trial(ref, at, (each,)) for at, each in enumerate(asked)], play)

    assert [result.status for result in results] == ["finished", "errored", "finished", "finished"]
    error = results[1].error
    assert error is not None
    assert (error.kind, error.message) == (
        "out_of_memory",
        "the player in a container of shop:7 was killed, as one is that needs more than its memory",
    )


async def test_a_lost_container_is_ended_before_its_executor_is_closed(
    on_path: Path, contained: Callable[..., AgentRef], trial: Make, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    async def end_slowly(command: tuple[str, ...], environment: Mapping[str, str]) -> None:
        steps.append(command[1])
        await asyncio.sleep(0.2)
        steps.append("ended")

    monkeypatch.setattr(worker_process, "_run", end_slowly)

    await played((ref := contained()), [trial(ref, 0, ("die",))], play)

    assert steps[:2] == ["kill", "ended"]


async def test_a_container_whose_client_is_gone_is_ended(
    on_path: Path, contained: Callable[..., AgentRef], trial: Make, play: Play
) -> None:
    ref = contained()
    executor = LocalExecutor(1, 2, launcher=launcher_of(ref))
    spec = trial(ref, 0, ("hang",), timeout_s=600)
    playing = asyncio.ensure_future(play(executor, [spec]))
    while not executor.worker_pids:
        await asyncio.sleep(0.05)
    while not list((on_path / "running").iterdir()):
        await asyncio.sleep(0.05)

    await executor.cancel()
    [result] = (await playing).values()
    await executor.close()

    assert result.status == "cancelled"


async def test_an_image_that_is_not_there_is_the_word_of_docker(
    on_path: Path, contained: Callable[..., AgentRef], host: ChatPlayers
) -> None:
    with pytest.raises(
        AgentError, match=r"container of shop:8 ended with exit code 125: Unable to find image 'shop:8'"
    ):
        await host.describe(contained(image="shop:8"))


async def test_without_docker_and_podman_the_next_step_is_said(
    contained: Callable[..., AgentRef], host: ChatPlayers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(AgentError, match="neither docker nor podman is on PATH; install one, or leave image out"):
        await host.describe(contained())


def test_values_of_variables_are_in_no_command_line_and_names_steer_nothing(docker: Path) -> None:
    ref = AgentRef("a", "a:agent", root="/shop", container=Container("shop:7", variables=("KEY",)))
    given = {"PATH": str(docker / "bin"), "KEY": "s3cret", "EVALDESK_TOKEN": "t"}

    launch = launcher_of(ref).launch(given, "player")

    assert "s3cret" not in " ".join(launch.command)
    assert launch.environment == {"PATH": str(docker / "bin"), "KEY": "s3cret"}
    with pytest.raises(UsageError, match="has no comma"):
        launcher_of(replace(ref, root="/shop,readonly=false")).launch(given, "player")


MODELS = """
    import json, os, socket, urllib.error, urllib.request

    def asked(path, key="OPENAI_API_KEY", base="OPENAI_BASE_URL", header="authorization", before="Bearer "):
        headers = {header: before + os.environ.get(key, "none"), "content-type": "application/json"}
        body = json.dumps({"model": "small", "messages": [{"role": "user", "content": "hi"}]}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(os.environ[base] + path, body, headers)) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"

    def agent(message):
        if message == "network":
            try:
                socket.create_connection(("192.0.2.1", 9), 2).close()
            except OSError:
                return "no network"
            return "network"
        if message == "keys":
            return json.dumps({name: os.environ[name][::-1] for name in os.environ if name.endswith("_API_KEY")})
        if message == "upload":
            return asked("/files")
        return json.loads(asked("/chat/completions"))["choices"][0]["message"]["content"]
"""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """The models of this machine's environment, with a key."""
    with served() as found:
        monkeypatch.setenv("OPENAI_BASE_URL", found.address)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-outside")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-listed")
        monkeypatch.delenv("GEMINI_API_KEY", raising=False)
        yield found


async def test_a_container_for_models_only_asks_models_and_reaches_nothing_else(
    on_path: Path, write_agent: Write, trial: Make, play: Play, endpoint: Endpoint
) -> None:
    endpoint.says("A four.")
    container = Container("shop:7", network="model-only", variables=("ANTHROPIC_API_KEY",))
    ref = replace(write_agent(MODELS), container=container)
    asked = ("ask", "network", "keys", "upload")

    results = await played(ref, [trial(ref, at, (each,)) for at, each in enumerate(asked)], play)

    answers = dict(zip(asked, map(said, results), strict=True))
    assert answers["ask"] == "A four."
    assert answers["network"] == "no network"
    keys = {name: backwards[::-1] for name, backwards in json.loads(answers["keys"]).items()}
    assert keys == {"OPENAI_API_KEY": "kept-by-evaldesk", "ANTHROPIC_API_KEY": "sk-listed"}
    assert answers["upload"].startswith("404 a container without a network can ask models")
    assert len(endpoint.asked) == 1
    assert endpoint.headers[0]["authorization"] == "Bearer sk-outside"
    assert [(usage.tokens_in, usage.is_least) for usage in results[0].usages] == [(11, False)]
    [run] = [words for words in commands(on_path)[-2:] if words[0] == "run"]
    assert run[run.index("--network") + 1] == "none"
    assert not any(key in json.dumps(commands(on_path)) for key in ("sk-outside", "sk-listed"))


async def test_a_stream_comes_through_the_door_as_it_is_sent(endpoint: Endpoint) -> None:
    endpoint.answers.append(Answer(stream=chunks({"role": "assistant", "content": "A four."})))
    found = carry(door_for(os.environ).folder)
    request = urllib.request.Request(  # noqa: S310
        found["OPENAI_BASE_URL"] + "/chat/completions", b'{"stream": true}', {"authorization": f"Bearer {KEY}"}
    )

    with await asyncio.to_thread(urllib.request.urlopen, request) as answer:
        lines = [json.loads(line[5:]) for line in answer if line.startswith(b"data: {")]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert lines[0]["choices"][0]["delta"]["content"] == "A four."
    assert endpoint.headers[0]["authorization"] == "Bearer sk-outside"


@pytest.mark.parametrize(
    ("method", "path", "opens"),
    [
        ("POST", "/chat/completions", True),
        ("POST", "/v1/messages", True),
        ("POST", "/v1/messages/count_tokens", True),
        ("POST", "/v1beta/models/m:streamGenerateContent?alt=sse", True),
        ("POST", "/embeddings", True),
        ("GET", "/models", True),
        ("POST", "/files", False),
        ("POST", "/v1/messages/batches", False),
        ("GET", "/files/f1/content", False),
        ("POST", "/fine_tuning/jobs", False),
    ],
)
def test_only_calls_of_models_go_through_the_door(method: str, path: str, opens: bool) -> None:
    assert is_open(method, path) == opens


BENCHMARK = """
    import os

    def agent(instance, metadata):
        import subprocess
        said = subprocess.check_output("python3 -c 'import pricing; print(pricing.VERSION)'", shell=True, text=True)
        return {"instance_id": "i", "test_result": {"said": said.strip(), "processes": len(os.listdir("/proc"))}}
"""


@of_tools("openhands")
async def test_a_benchmark_runs_its_commands_in_the_image(
    on_path: Path, write_agent: Write, trial: Make, play: Play
) -> None:
    ref = replace(write_agent(BENCHMARK), container=Container("shop:7"), kind="benchmark")

    [result] = await played(ref, [trial(ref)], play)

    assert result.error is None, result.error
    texts = " ".join(event.text + str(event.result) for event in result.transcript.turns[0].events)
    assert "1.4.0" in texts
    assert "runs in a container of shop:7" in texts

"""A client that an agent imports for the first time within a turn is prepared before the agent has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint, served
from tests.agents.installed import skip_without
from tests.bound_processes import bound_python

from evaldesk.llm import client_wrapping
from evaldesk.llm.client_wrapping import on_import

PLAYED = """
import asyncio, json, sys
from evaldesk.agents import load_agent
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.player import play_turn
from evaldesk.model import AgentRef, ModelOptions, Session

agent = load_agent(AgentRef("late", "late.agent:root_agent", root=sys.argv[1], folder=sys.argv[1] + "/late"))
session = Session("s", model_options=ModelOptions(n_retries=int(sys.argv[2])))
turn = asyncio.run(play_turn(agent, session, "hi", attempt=Attempt()))
error = turn.error
print(json.dumps({"answer": turn.answer, "kind": error.kind if error else "", "said": error.message if error else ""}))
"""
CLIENTS = {
    "openai": """
    from openai import AsyncOpenAI
    async with AsyncOpenAI(base_url={address!r}, api_key="k", max_retries=0) as client:
        found = await client.chat.completions.create(model="small", messages=[{{"role": "user", "content": "hi"}}])
    return found.choices[0].message.content
""",
    "litellm": """
    from litellm import acompletion
    messages = [{{"role": "user", "content": "hi"}}]
    found = await acompletion("hosted_vllm/small", messages, api_base={address!r}, api_key="k")
    return found.choices[0].message.content
""",
    "google.genai": """
    from google import genai
    from google.genai.types import HttpOptions
    client = genai.Client(api_key="k", http_options=HttpOptions(base_url={address!r})).aio
    found = await client.models.generate_content(model="small", contents="hi")
    await client.aclose()
    return found.text
""",
}


@pytest.fixture
def played(tmp_path: Path, endpoint: Endpoint) -> Callable[[str, int], Any]:
    """The end of a turn whose agent imports a client in it, in a process that had none before."""

    def played(package: str, n_retries: int) -> Any:
        skip_without(package)
        (tmp_path / "late").mkdir()
        check = f"    import sys\n    assert {package!r} not in sys.modules\n"
        body = CLIENTS[package].format(address=endpoint.address)
        source = f"async def root_agent(message, state):\n{check}{body}"
        (tmp_path / "late" / "agent.py").write_text(source, "utf-8")
        command = [*bound_python("-c", PLAYED), str(tmp_path), str(n_retries)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return played


@pytest.mark.parametrize(
    "package",
    # LiteLLM takes four seconds to import, and asks through the client of openai.
    [
        pytest.param(package, marks=pytest.mark.long if package == "litellm" else pytest.mark.server)
        for package in CLIENTS
    ],
)
def test_a_client_imported_in_a_turn_follows_no_redirect(
    package: str, endpoint: Endpoint, played: Callable[[str, int], Any]
) -> None:
    with served() as elsewhere:
        for _ in range(3):
            endpoint.fails(307, location=f"{elsewhere.address}/chat/completions")
            elsewhere.says("hello")

        turn = played(package, 0)

    assert (len(endpoint.asked), elsewhere.headers) == (1, [])
    assert turn["kind"] == "redirect", turn
    assert "Redirects are not followed" in turn["said"]


@pytest.mark.server
def test_a_client_imported_in_a_turn_retries_by_the_run_options(
    endpoint: Endpoint, played: Callable[[str, int], Any]
) -> None:
    endpoint.fails(503, "busy", retry_after_ms="1").fails(503, "busy", retry_after_ms="1").says("hello")

    turn = played("openai", 2)

    assert turn == {"answer": "hello", "kind": "", "said": ""}
    assert len(endpoint.asked) == 3


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that nobody has imported; what acts on it is forgotten afterwards."""
    tmp_path.joinpath("a_late_module.py").write_text("value = 1\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_late_module"
    sys.modules.pop("a_late_module", None)
    client_wrapping._actions.pop("a_late_module", None)


def test_the_action_runs_after_the_module_and_sees_it_imported(module: str) -> None:
    seen: list[Any] = []

    def act() -> None:
        seen.append(sys.modules[module].value)

    on_import([module], act)
    on_import([module], act)
    __import__(module)

    assert seen == [1]


def test_a_module_keeps_its_loader_and_its_source(module: str) -> None:
    import inspect

    on_import([module], lambda: None)

    found = __import__(module)

    assert found.__spec__ is not None
    assert type(found.__spec__.loader) is SourceFileLoader
    assert inspect.getsource(found) == "value = 1\n"


def test_a_missing_module_raises_the_usual_error() -> None:
    on_import(["a_module_that_is_nowhere"], lambda: None)

    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_nowhere"):
        __import__("a_module_that_is_nowhere")


def test_a_loader_without_settable_attributes_is_unchanged() -> None:
    class Fixed:
        __slots__ = ()

        def create_module(self, spec: ModuleSpec) -> None:
            return None

        def exec_module(self, module: Any) -> None:
            module.value = 2

    spec = ModuleSpec("fixed", Fixed())  # type: ignore[arg-type]
    client_wrapping._act_after(spec.loader)
    module = module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)

    assert module.value == 2

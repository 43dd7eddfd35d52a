"""Agents in projects: below `src`, in packages with relative imports, in workspaces of uv, with poetry and pipenv."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.virtual_environments import install, make_environment

from evaldesk.agents import agent_ref, find_agents
from evaldesk.agents.discovery import source_folders, with_place
from evaldesk.desk.named_agents import module_agent
from evaldesk.engine import ChatPlayers
from evaldesk.model import AgentRef, Event, TurnRecord, TurnSpec

pytestmark = pytest.mark.anyio

Lay = Callable[..., Path]

RELATIVE = "from ..tools import answer\n\ndef agent(message):\n    return answer(message)\n"
BY_NAME = "from shop.tools import answer\n\ndef agent(message):\n    return answer(message)\n"
FROM_CORE = "from shop_core import answer\n\ndef agent(message):\n    return answer(message)\n"
PLAIN = "def agent(message):\n    return 'plain ' + message\n"
TOOLS = "def answer(message):\n    return 'tools say ' + message\n"
PROJECT = '[project]\nname = "shop"\nversion = "1"\n'
WORKSPACE = '[project]\nname = "all"\nversion = "1"\n[tool.uv.workspace]\nmembers = ["packages/*"]\n'
POETRY = '[tool.poetry]\nname = "shop"\npackages = [{ include = "shop", from = "lib" }]\n'


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """Writes files of a project, which is a repository of its own."""

    def write(**files: str) -> Path:
        home = tmp_path / "project"
        (home / ".git").mkdir(parents=True)
        for name, text in files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return home

    return write


@pytest.fixture
async def host() -> AsyncIterator[ChatPlayers]:
    started = ChatPlayers(environment=dict(os.environ))
    yield started
    await started.close()


SHAPES = {
    "src layout with a relative import": (
        {
            "pyproject.toml": PROJECT,
            "src/shop/__init__.py": "",
            "src/shop/tools.py": TOOLS,
            "src/shop/support/__init__.py": "",
            "src/shop/support/agent.py": RELATIVE,
        },
        "src/shop/support",
        "shop.support.agent:agent",
        "tools say hello",
    ),
    "src layout that names its package": (
        {
            "setup.py": "",
            "src/shop/__init__.py": "",
            "src/shop/tools.py": TOOLS,
            "src/shop/agents/__init__.py": "",
            "src/shop/agents/support/__init__.py": "",
            "src/shop/agents/support/agent.py": BY_NAME,
        },
        "src/shop/agents/support",
        "shop.agents.support.agent:agent",
        "tools say hello",
    ),
    "package with a relative import, without src": (
        {"shop/__init__.py": "", "shop/tools.py": TOOLS, "shop/support/__init__.py": RELATIVE},
        "shop/support",
        "shop.support:agent",
        "tools say hello",
    ),
    "agents beside src": (
        {
            "pyproject.toml": PROJECT,
            "src/shop/__init__.py": "",
            "src/shop/tools.py": TOOLS,
            "agents/support/agent.py": BY_NAME,
        },
        "agents/support",
        "support.agent:agent",
        "tools say hello",
    ),
    "workspace of uv": (
        {
            "pyproject.toml": WORKSPACE,
            "packages/core/pyproject.toml": PROJECT,
            "packages/core/src/shop_core/__init__.py": TOOLS,
            "packages/support/pyproject.toml": PROJECT,
            "packages/support/src/support/__init__.py": "",
            "packages/support/src/support/agent.py": FROM_CORE,
        },
        "packages/support/src/support",
        "support.agent:agent",
        "tools say hello",
    ),
    "poetry with a folder of its own": (
        {
            "pyproject.toml": POETRY,
            "lib/shop/__init__.py": "",
            "lib/shop/tools.py": TOOLS,
            "lib/shop/support/agent.py": BY_NAME,
        },
        "lib/shop/support",
        "shop.support.agent:agent",
        "tools say hello",
    ),
    "pipenv with src": (
        {"Pipfile": "", "src/support/__init__.py": "", "src/support/agent.py": PLAIN},
        "src/support",
        "support.agent:agent",
        "plain hello",
    ),
}
every_shape = pytest.mark.parametrize(("files", "folder", "target", "said"), SHAPES.values(), ids=SHAPES)


async def answer(host: ChatPlayers, ref: AgentRef) -> str:
    record = [item async for item in host.play_turn(TurnSpec("s", ref, "hello"))][-1]
    assert isinstance(record, TurnRecord)
    texts = [event.text for event in record.events if isinstance(event, Event) and event.kind == "agent_message"]
    return texts[0] if texts else str(record.error)


@every_shape
async def test_an_agent_is_played_in_its_project(
    lay: Lay, host: ChatPlayers, files: dict[str, str], folder: str, target: str, said: str
) -> None:
    home = lay(**files)

    ref = agent_ref(str(home / folder))

    assert (ref.target, ref.folder) == (target, str(home / folder))
    assert await answer(host, ref) == said


@every_shape
def test_the_agent_of_a_project_is_discovered_from_its_root(
    lay: Lay, files: dict[str, str], folder: str, target: str, said: str
) -> None:
    home = lay(**files)
    is_deep = not ({"pyproject.toml", "setup.py", "Pipfile"} & files.keys()) or folder.startswith("agents")

    found = find_agents([home / Path(folder).parent if is_deep else home])

    assert [(ref.target, ref.folder) for ref in found] == [(target, str(home / folder))]


@pytest.mark.parametrize("module", ["shop.support", "shop.support.agent"])
async def test_a_module_is_named_as_the_project_imports_it(
    lay: Lay, host: ChatPlayers, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    home = lay(**SHAPES["src layout with a relative import"][0])
    monkeypatch.chdir(home)

    asked = [agent_ref("shop.support.agent:agent"), module_agent(module)]

    assert [(ref.target, ref.root) for ref in asked] == [("shop.support.agent:agent", str(home / "src"))] * 2
    assert await answer(host, asked[1]) == "tools say hello"


def test_without_package_imports_an_agent_has_the_name_of_its_folder(lay: Lay) -> None:
    home = lay(**{"agents/__init__.py": "", "agents/support/__init__.py": "", "agents/support/agent.py": PLAIN})

    ref = agent_ref(str(home / "agents" / "support"))

    assert (ref.target, ref.root) == ("support.agent:agent", str(home / "agents"))


def test_members_outside_of_the_workspace_and_excluded_ones_are_left_out(lay: Lay) -> None:
    members = '[tool.uv.workspace]\nmembers = ["packages/*", "../*", "/etc", 3, "plain"]\nexclude = ["packages/old"]\n'
    home = lay(
        **{
            "pyproject.toml": members,
            "packages/new/pyproject.toml": "",
            "packages/old/pyproject.toml": "",
            "packages/no_project/src/agent.py": PLAIN,
            "plain/pyproject.toml": "",
        }
    )
    (home.parent / "other").mkdir()
    (home.parent / "other" / "pyproject.toml").write_text("")

    assert source_folders(home) == [home / "packages" / "new", home / "plain"]


@pytest.mark.parametrize("text", ["[tool", "tool = 3", "[tool]\nuv = 3\npoetry = []", "[tool.poetry]\npackages = 3"])
def test_a_project_file_that_cannot_be_read_hides_no_source(lay: Lay, text: str) -> None:
    home = lay(**{"pyproject.toml": text, "src/support/agent.py": PLAIN})

    assert source_folders(home) == [home / "src"]


async def test_a_uv_workspace_is_played_with_its_interpreter_and_installed_packages(
    lay: Lay, host: ChatPlayers
) -> None:
    home = lay(**SHAPES["workspace of uv"][0])
    python = make_environment(home / ".venv")
    install(home / ".venv", "shop_core", "2", "def answer(message):\n    return 'installed says ' + message\n")

    ref = with_place(agent_ref(str(home / "packages/support/src/support")))

    assert ref.python == str(python) != sys.executable
    assert await answer(host, ref) == "installed says hello"

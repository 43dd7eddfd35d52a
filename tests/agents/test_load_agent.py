"""Importing the user's code, and what is said when that fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evaldesk.agents import find_agents, load_agent
from evaldesk.agents.env_files import _check_owner, load_environment
from evaldesk.errors import AgentError
from evaldesk.model import AgentRef, Session

pytestmark = pytest.mark.anyio


def _failure(loaded: Any, source: str, **fields: str) -> AgentError:
    with pytest.raises(AgentError) as caught:
        loaded(source, **fields)
    return caught.value


def test_an_import_that_raises_says_file_and_line_and_shows_only_the_users_frames(loaded: Any) -> None:
    error = _failure(loaded, "def build():\n    return 1 / 0\n\nroot_agent = build()\n")

    assert str(error) == "some_agent/agent.py, line 2: ZeroDivisionError: division by zero"
    assert "line 4, in <module>" in error.trace
    assert "importlib" not in error.trace
    assert "evaldesk/agents" not in error.trace


def test_a_missing_module_is_named(loaded: Any) -> None:
    error = _failure(loaded, "import nonsense_that_is_not_installed\nroot_agent = 1")

    assert str(error).startswith("some_agent/agent.py, line 1: ModuleNotFoundError: No module named 'nonsense_that")


def test_a_syntax_error_says_its_line(loaded: Any) -> None:
    error = _failure(loaded, "x = 1\nroot_agent = (\n")

    assert str(error).startswith("some_agent/agent.py, line 2: SyntaxError")


def test_an_exit_during_import_is_an_error(loaded: Any) -> None:
    assert "SystemExit: 3" in str(_failure(loaded, "import sys\nsys.exit(3)"))


def test_a_chained_error_keeps_its_cause(loaded: Any) -> None:
    source = "try:\n    {}['key']\nexcept KeyError as error:\n    raise ValueError('no key') from error\n"

    error = _failure(loaded, source)

    assert "KeyError: 'key'" in error.trace
    assert "ValueError: no key" in error.trace


def test_a_missing_attribute_is_named(loaded: Any) -> None:
    error = _failure(loaded, "root_agnet = 1")

    assert str(error).endswith("module 'some_agent.agent' has no attribute 'root_agent'; did you mean 'root_agnet'?")
    assert not error.trace


def test_a_missing_module_gets_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "server_of_mine.py").write_text("agent_loop = 1")

    with pytest.raises(AgentError) as caught:
        load_agent(AgentRef("x", "srver_of_mine:agent_loop", root=str(tmp_path)))

    assert str(caught.value).endswith(f"no module 'srver_of_mine' in {tmp_path}; did you mean 'server_of_mine'?")
    assert not caught.value.trace


def test_an_object_without_an_adapter_is_refused(loaded: Any) -> None:
    error = _failure(loaded, "root_agent = 17")

    assert str(error).startswith("some_agent.agent:root_agent is a builtins.int, which no adapter knows")


def test_an_adapter_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="a needs the agent adapter 'crew', which is not installed"):
        load_agent(AgentRef("a", "a:root_agent", root=str(tmp_path), kind="crew"))


def test_another_missing_module_keeps_pythons_message(loaded: Any) -> None:
    assert str(_failure(loaded, "import no_such_module")).endswith("No module named 'no_such_module'")


def test_the_nearest_env_file_sets_missing_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "agents" / "a"
    folder.mkdir(parents=True)
    (tmp_path / ".env").write_text("FAR=1\n")
    (tmp_path / "agents" / ".env").write_text('NEAR="from the file"\nTAKEN=from the file\n')
    environment = {"TAKEN": "from outside"}

    load_environment(str(folder), environment)

    assert environment == {"TAKEN": "from outside", "NEAR": "from the file"}


def test_the_env_file_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("NEAR=1\n")
    environment = {"ADK_DISABLE_LOAD_DOTENV": "1"}

    load_environment(str(tmp_path), environment)

    assert "NEAR" not in environment


@pytest.mark.parametrize(
    ("mode", "owner", "said"),
    [
        pytest.param(0o100644, 12345, "belongs to another user", id="another owner"),
        pytest.param(0o100666, os.geteuid(), "can be written by other users", id="everybody"),
        pytest.param(0o100664, os.geteuid(), "can be written by other users", id="a group"),
    ],
)
def test_an_env_file_owned_or_writable_by_others_is_not_read(tmp_path: Path, mode: int, owner: int, said: str) -> None:
    group_of_nobody = 54321
    seen = os.stat_result((mode, 1, 1, 1, owner, group_of_nobody, 1, 0, 0, 0))

    with pytest.raises(AgentError, match=said):
        _check_owner(tmp_path / ".env", seen)


@pytest.mark.parametrize("owner", [1000, 0], ids=["this user", "root"])
def test_an_env_file_of_this_user_or_root_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    _check_owner(tmp_path / ".env", os.stat_result((0o100644, 1, 1, 1, owner, 54321, 1, 0, 0, 0)))


def test_a_writable_env_file_stops_its_agent(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("NEAR=1\n")
    (tmp_path / ".env").chmod(0o666)

    with pytest.raises(AgentError, match="chmod go-w"):
        load_environment(str(tmp_path), {})


async def test_agents_of_the_same_name_in_different_roots_are_separate_modules(loaded: Any, play: Any) -> None:
    first = loaded("from some_agent.agent import __file__ as here\ndef root_agent(message): return 'one'")
    second = loaded("def root_agent(message): return 'two'")

    answers = [(await play(agent, Session("s"), "hi"))[-1].text for agent in (first, second)]

    assert answers == ["one", "two"]


def test_a_module_of_the_library_is_not_dropped_for_a_folder_of_its_name(tmp_path: Path) -> None:
    tmp_path.joinpath("bots.py").write_text("import json\ndef agent(message): return json.dumps(message)")

    agent = load_agent(AgentRef("b", "bots:agent", root=str(tmp_path)))

    assert agent.describe().name == "agent"


def test_an_agent_is_loaded_while_another_thread_imports_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SeenDuringAnImport(str):
        def startswith(self, *start: Any) -> bool:
            monkeypatch.setitem(sys.modules, f"beside{len(sys.modules)}", ModuleType("beside"))
            return str.startswith(self, *start)

    tmp_path.joinpath("quiet_bot.py").write_text("def agent(message): return message")
    monkeypatch.setitem(sys.modules, SeenDuringAnImport("another"), ModuleType("another"))

    assert load_agent(AgentRef("b", "quiet_bot:agent", root=str(tmp_path))).describe().name == "agent"


async def test_modules_in_the_folder_of_the_agent_can_be_imported(tmp_path: Path, play: Any) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    folder.joinpath("__init__.py").write_text("")
    folder.joinpath("words.py").write_text("WORD = 'hello'")
    folder.joinpath("agent.py").write_text("from .words import WORD\ndef root_agent(message): return WORD")

    agent = load_agent(find_agents([tmp_path])[0])

    assert (await play(agent, Session("s"), "hi"))[-1].text == "hello"

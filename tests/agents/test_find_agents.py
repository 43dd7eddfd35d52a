"""Agents on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaldesk import paths
from evaldesk.agents import agent_ref, find_agents
from evaldesk.errors import NotFoundError, UsageError


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _targets(*roots: Path) -> list[tuple[str, str]]:
    return [(ref.id, ref.target) for ref in find_agents(roots)]


@pytest.mark.parametrize(
    ("files", "target"),
    [
        ({"a/agent.py": "root_agent = 1"}, "a.agent:root_agent"),
        ({"a/agent.py": "async def root_agent(message): ..."}, "a.agent:root_agent"),
        ({"a/agent.py": "agent = 1\nasync def root_agent(message): ..."}, "a.agent:root_agent"),
        ({"a/agent.py": "app = 1\ndef root_agent():\n    return app"}, "a.agent:root_agent"),
        ({"a/agent.py": "agent: object = 1"}, "a.agent:agent"),
        ({"a/agent.py": "app = 1"}, "a.agent:app"),
        ({"a/agent.py": "def agent(message): ..."}, "a.agent:agent"),
        ({"a/__init__.py": "from .x import root_agent"}, "a:root_agent"),
        ({"a/__init__.py": "from . import agent", "a/agent.py": "root_agent = 1"}, "a.agent:root_agent"),
        ({"a/root_agent.yaml": "name: a"}, "root_agent.yaml"),
        (
            {"a/agent.py": "async def get_agent_async():\n    root_agent = 1\n    return root_agent, None"},
            "a.agent:get_agent_async",
        ),
        ({"a/agent.py": "async def get_agent_async(): ...\nroot_agent = 1"}, "a.agent:root_agent"),
    ],
    ids=[
        "root_agent",
        "function",
        "function-and-agent",
        "function-and-app",
        "agent",
        "app",
        "def-agent",
        "package",
        "package-and-module",
        "yaml",
        "factory",
        "factory-and-root",
    ],
)
def test_a_folder_with_an_agent_is_discovered(tmp_path: Path, files: dict[str, str], target: str) -> None:
    [ref] = find_agents([_write(tmp_path, files)])

    assert (ref.id, ref.target, ref.root, ref.folder) == ("a", target, str(tmp_path), str(tmp_path / "a"))


@pytest.mark.parametrize(
    "files",
    [
        {".hidden/agent.py": "root_agent = 1"},
        {"__pycache__/agent.py": "root_agent = 1"},
        {"_private/agent.py": "root_agent = 1"},
        {"a/agent.py": "my_agent = 1\nif agent == 1: pass"},
        {"a/tools.py": "root_agent = 1"},
        {"a/b/deeper/agent.py": "root_agent = 1"},
        {"tests/deeper/agent.py": "root_agent = 1"},
        {"readme.txt": "root_agent"},
        {},
    ],
    ids=["hidden", "cache", "private", "no-agent", "other-file", "too-deep", "tests", "no-folder", "nothing"],
)
def test_other_folders_are_not_agents(tmp_path: Path, files: dict[str, str]) -> None:
    assert find_agents([_write(tmp_path, files)]) == []


def test_a_root_that_is_an_agent_is_that_agent_alone(tmp_path: Path) -> None:
    _write(tmp_path, {"one/agent.py": "root_agent = 1", "one/inner/agent.py": "root_agent = 1"})

    assert _targets(tmp_path / "one") == [("one", "one.agent:root_agent")]


def test_a_project_without_an_agent_of_its_own_has_those_of_its_folders(tmp_path: Path) -> None:
    _write(tmp_path, {"agents/shop/agent.py": "root_agent = 1", "bots/dice/root_agent.yaml": "name: dice"})

    assert _targets(tmp_path, tmp_path) == [("shop", "shop.agent:root_agent"), ("dice", "root_agent.yaml")]

    _write(tmp_path, {"own/agent.py": "root_agent = 1"})
    assert _targets(tmp_path) == [("own", "own.agent:root_agent")]


def test_ids_are_made_unique_and_a_folder_named_twice_is_one_agent(tmp_path: Path) -> None:
    _write(tmp_path, {"x/a/agent.py": "root_agent = 1", "y/a/agent.py": "root_agent = 1"})

    found = _targets(tmp_path / "x", tmp_path / "y", tmp_path / "x")

    assert found == [("a", "a.agent:root_agent"), ("a-2", "a.agent:root_agent")]


def test_finding_runs_no_code(tmp_path: Path) -> None:
    _write(tmp_path, {"a/agent.py": "root_agent = 1\nraise SystemExit('imported')"})

    assert len(find_agents([tmp_path])) == 1


def test_a_missing_root_has_no_agents(tmp_path: Path) -> None:
    assert find_agents([tmp_path / "nowhere"]) == []


def test_a_folder_that_is_no_package_name_is_imported_from_itself(tmp_path: Path) -> None:
    [ref] = find_agents([_write(tmp_path, {"v1.2 beta/agent.py": "root_agent = 1"})])

    assert (ref.id, ref.target, ref.root) == ("v1.2-beta", "agent:root_agent", str(tmp_path / "v1.2 beta"))


def test_the_samples_are_discovered() -> None:
    assert [ref.id for ref in find_agents([paths.samples()])] == ["hello_world", "trip_planner"]


def test_a_folder_on_the_command_line_is_an_agent(tmp_path: Path) -> None:
    _write(tmp_path, {"a/agent.py": "root_agent = 1"})

    assert agent_ref(str(tmp_path / "a")).target == "a.agent:root_agent"


def test_a_sample_on_the_command_line_needs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert agent_ref("samples/hello_world") == find_agents([paths.samples()])[0]


def test_a_module_on_the_command_line_is_looked_for_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_write(tmp_path, {"pack/bots.py": "echo = 1"}))

    ref = agent_ref("pack.bots:echo")

    assert (ref.target, ref.root, ref.folder) == ("pack.bots:echo", str(tmp_path), str(tmp_path / "pack"))


@pytest.mark.parametrize(
    ("spec", "kind", "says"),
    [
        ("samples/helo_world", NotFoundError, "did you mean 'hello_world'"),
        ("nonsense", UsageError, "neither a folder, nor module:attr"),
        ("module:", UsageError, "not of the form module:attr"),
        (".", UsageError, "defines root_agent"),
        ("pack/quick.py", UsageError, "name the agent that it defines, such as pack.quick:root_agent"),
    ],
)
def test_an_unknown_spec_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, kind: type[Exception], says: str
) -> None:
    monkeypatch.chdir(_write(tmp_path, {"pack/quick.py": ""}))

    with pytest.raises(kind, match=says):
        agent_ref(spec)


def test_a_folder_of_agents_names_one_that_is_in_it(tmp_path: Path) -> None:
    _write(tmp_path, {"dice/agent.py": "root_agent = 1"})

    with pytest.raises(UsageError, match=r"name one of the agents in it, such as .*/dice$"):
        agent_ref(str(tmp_path))

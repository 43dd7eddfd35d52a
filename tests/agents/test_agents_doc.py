"""What docs/agents.md shows works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import AgentKind, declared_refs, load_agent
from evaldesk.agents.agent import KINDS
from evaldesk.model import Container, Session
from evaldesk.settings import Environment, read_settings

DOC = Path(__file__).resolve().parents[2] / "docs" / "agents.md"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL)


def test_the_documented_agent_loads(loaded: Any) -> None:
    example = next(block for block in _blocks("python") if "LlmAgent" in block)
    described = loaded(example).describe()

    assert described.name == "clerk"
    assert list(described.tools[0].parameters["properties"]) == ["title", "max_price"]


@pytest.mark.anyio
async def test_the_documented_function_reports_its_call_and_result(loaded: Any, played: Any) -> None:
    example = next(block for block in _blocks("python") if "ToolCall" in block)

    record = await played(loaded(example), Session("s"), "A17")

    assert [(call.name, call.args) for call in record.tool_calls] == [("find_order", {"order_id": "A17"})]
    assert [event.result for event in record.events if event.kind == "tool_result"] == [{"status": "shipped"}]
    assert (record.answer, record.state_after) == ("Order A17 is shipped.", {"last_order": "A17"})


def test_the_documented_dependency_object_round_trips_the_state() -> None:
    example = next(block for block in _blocks("python") if "make_deps" in block)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102

    assert names["read_state"](names["make_deps"]({"orders": ["tea"]})) == {"orders": ["tea"]}


def test_the_documented_configuration_is_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in (home / "agents" / "support", tmp_path / "team" / "agents", home / "shop"):
        folder.mkdir(parents=True)
    (home / "agents" / "support" / "agent.py").write_text("def root_agent(message): return message\n")
    (home / "shop" / "__init__.py").touch()  # a folder without it gives way to any package of that name
    (home / "shop" / "tools.py").write_text("def find_book(title: str) -> str: return title\n")
    example, *_ = _blocks("toml")
    (home / "evaldesk.toml").write_text(example)

    settings = read_settings(home, (home,), environment={})
    refs = declared_refs(settings.agents, home)

    assert [(ref.id, ref.kind) for ref in refs] == [("support", ""), ("clerk", "litellm"), ("remote", "http_chat")]
    assert all(load_agent(ref).describe().name for ref in refs[:2])
    assert (settings.model_options.max_turns, settings.limits.tool_timeout_s) == (12, 20)
    assert len(settings.roots) == 3


def test_the_documented_containers_are_read_with_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "support").mkdir()
    (tmp_path / "support" / "__init__.py").touch()
    (tmp_path / "support" / "agent.py").write_text("def root_agent(message): return message\n")
    _, _, example, _ = _blocks("toml")
    (tmp_path / "evaldesk.toml").write_text(example)

    settings = read_settings(tmp_path, (tmp_path,), environment={})
    [ref] = declared_refs(settings.agents, tmp_path)

    assert settings.container == Container("shop:7")
    assert ref.container == Container("support:3")


def test_the_documented_environments_are_read(tmp_path: Path) -> None:
    _, example, *_ = _blocks("toml")
    (tmp_path / "evaldesk.toml").write_text(example)

    found = read_settings(tmp_path, (tmp_path,), environment={}).environments

    assert found == {"next": Environment("../shop-next/.venv"), "box": Environment(container=Container("shop:7"))}


def test_the_documented_isolation_is_read(tmp_path: Path) -> None:
    *_, example = _blocks("toml")
    (tmp_path / "evaldesk.toml").write_text(example)

    settings = read_settings(tmp_path, (tmp_path,), environment={})

    assert (settings.isolation, settings.limits.memory_mib, settings.limits.processes) == ("process", 1024, 16)


def test_the_table_of_kinds_is_that_of_the_code() -> None:
    _, _, section = DOC.read_text("utf-8").partition("## Kinds\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]

    assert rows == [_row(kind) for kind in KINDS]


def _row(kind: AgentKind) -> str:
    named = {
        "object": "an object that is imported",
        "address": f"`{kind.prefix}:http://HOST`",
        "command": f"`{kind.prefix}:WORDS`",
        "file": f"`{kind.prefix}:FILE`",
    }
    install = f"`evaldesk[{kind.extra}]`" if kind.extra else f"`{kind.package}`" if kind.package else ""
    limit = "holds" if kind.sees_tools else "not seen"
    price = "none" if kind.is_recording else "of its model" if kind.prices_calls else "told by the agent"
    return f"| `{kind.name}` | {kind.title} | {named[kind.target]} | {install} | {limit} | {price} |"

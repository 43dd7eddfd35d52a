"""Islands in tests that walk over all tools: such a test is skipped, or has a row less, where a folder was removed."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evaldesk.cli import COMMANDS
from evaldesk.cli.adopt import EXPORTS
from evaldesk.desk.adopting import PROJECTS
from evaldesk.registry import is_present

ROOT = Path(__file__).resolve().parents[1]


TOOLS = (
    *("a2a", "adk", "agent_framework", "agno", "atif", "bfcl", "braintrust", "claude_agent", "crewai", "inspect"),
    *("langfuse", "langgraph", "langsmith", "mlflow"),
    *(
        "openai_agents",
        "openai_evals",
        "openhands",
        "osmosis",
        "phoenix",
        "promptfoo",
        "pydantic_ai",
        "ray",
        "smolagents",
    ),
    *("swe_agent", "tau"),
)


def has_island(tool: str) -> bool:
    """Whether the folder of the tool is there."""
    return find_spec(f"evaldesk.integrations.{tool}") is not None


def island_module(name: str) -> Any:
    """The module `TOOL.module` of an island. Skips the test without the folder."""
    return pytest.importorskip(f"evaldesk.integrations.{name}", reason=f"the folder of {name} was removed")


def of_tools(*tools: str) -> pytest.MarkDecorator:
    """The mark of tests that play files or agents of these tools: they are skipped where one of the folders is gone."""
    gone = [tool for tool in tools if not has_island(tool)]
    return pytest.mark.skipif(bool(gone), reason=f"the folder of {', '.join(gone)} was removed")


def of_command(line: str) -> pytest.MarkDecorator:
    """The mark of a test of a command of the documentation: it is skipped where the row of a word of it was removed."""
    words = [word.removeprefix("--") for word in shlex.split(line, comments=True)]  # `eval --benchmark` is `benchmark`
    targets = {name: command.target for name, command in COMMANDS.items()}
    if "adopt" in words:
        targets |= {**EXPORTS, **PROJECTS}
    gone = [word for word in words if word in targets and not is_present(targets[word])]
    return pytest.mark.skipif(bool(gone), reason=f"the folder of the tool of {', '.join(gone)} was removed")


of_all_tools = of_tools(*TOOLS)
"""The mark of tests that compare a table of all tools with a page or a list."""


def is_removed(path: Path) -> bool:
    """Whether a file is in the folder of a tool that was removed, or in that of its tests."""
    _, _, rest = path.as_posix().partition("/integrations/")
    return bool(rest) and rest.partition("/")[0] in TOOLS and not has_island(rest.partition("/")[0])

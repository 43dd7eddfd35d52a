"""`evaldesk agents`: the agents as the Agents page shows them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from evaldesk.cli.runs.shared import ask_trust, json_option, python_option, settings_of, trust_option, workspace_option
from evaldesk.wording.writer import show, show_json, style

if TYPE_CHECKING:
    from evaldesk.desk.agents import FoundAgent

EXIT_BROKEN = 1
STATES = {"ready": ("ready", "green"), "untrusted": ("not trusted", "yellow")}


@click.command(name="agents")
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@json_option
@python_option
@trust_option
@workspace_option
def agents(
    folders: tuple[str, ...], is_json: bool, python: str | None, is_trusted: bool, workspace: str | None
) -> None:
    """List the agents with kind, model, tools, sub-agents, missing keys and load errors.

    Reads DIR (default: the current folder) and evaldesk.toml; without agents it lists the samples.
    Those of a folder that you have not trusted are listed and not imported.
    Exit code 0: all load; 1: at least one does not.

    \b
    evaldesk agents
    evaldesk agents my_agents --json
    evaldesk agents --python python3.12
    """
    from evaldesk.desk.doctor import ask_agents

    settings = settings_of(folders, workspace, python)
    agent_list = asyncio.run(ask_agents(settings, ask_trust(settings, is_trusted=is_trusted)))
    if is_json:
        from evaldesk.pages.agents import agent_facts

        facts = [agent_facts(agent) for agent in agent_list]
        show_json(facts, separators=(",", ":"))
    else:
        _show(agent_list)
    if any(agent.state == "untrusted" for agent in agent_list):
        from evaldesk.desk.trust import NEXT_STEP

        show(f"evaldesk: the folder is not trusted; {NEXT_STEP}", err=True)
    sys.exit(EXIT_BROKEN if any(agent.state in {"failed", "untrusted"} for agent in agent_list) else 0)


def _show(agent_list: Sequence[FoundAgent]) -> None:
    from evaldesk.pages.agents import agent_facts, kind_words
    from evaldesk.wording.printable import printable

    for agent in agent_list:
        facts: dict[str, Any] = agent_facts(agent)
        is_ready = agent.state == "ready"
        words, colour = STATES.get(agent.state, ("does not load", "red"))
        if agent.description and agent.description.missing:
            words, colour = "key missing", "yellow"
        state = style(words, fg=colour)
        kind = kind_words(facts["kind"]) if is_ready else ""
        model = (facts.get("model") or "") if is_ready else ""
        words = "  ".join(filter(None, [style(agent.id, bold=True), state, kind, printable(model)]))
        show(words)
        if agent.error:
            show(f"  {printable(agent.error.message)}")
            for line in printable(agent.error.trace).splitlines():
                show(style(f"    {line}", dim=True))
        for line in [*_lines(facts), agent.visibility.words, *agent.visibility.steps] if is_ready else ():
            show(f"  {printable(line)}")


def _lines(facts: dict[str, Any], indent: str = "") -> list[str]:
    from evaldesk.pages.agents import kind_words, signature

    place = f"{facts['target'] or 'evaldesk.toml'} in {facts['folder']}" if facts.get("folder") else facts.get("target")
    lines = [f"{indent}{place}"] if place else []
    lines += [f"{indent}called {facts['own_name']} in its code"] if facts.get("own_name") else []
    lines += [f"{indent}played on {facts['python']}"] if facts.get("python") else []
    lines += [f"{indent}played in {facts['container']}"] if facts.get("container") else []
    lines += [f"{indent}not set: {name}" for name in facts["missing"]] if not indent else []
    lines += [f"{indent}tool {tool['name']}({signature(tool['parameters'])})" for tool in facts["tools"]]
    for below in facts["sub_agents"]:
        model = f", {below['model']}" if below["model"] else ""
        lines.append(f"{indent}sub-agent {below['name']} ({kind_words(below['kind'])}{model})")
        lines += _lines(below, f"{indent}  ")
    return lines

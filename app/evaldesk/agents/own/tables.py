"""Agents that `evaldesk.toml` declares under `[agents.NAME]`: a target, an address, a command, or a whole agent.

[agents.support]
target = "shop.agent:root_agent"        # a folder, module:attr, an address or a command, as on the command line

[agents.bench]
target = "bench:process_instance"
kind = "benchmark"                      # docs/benchmarks.md
llm = "eval_gpt4"

[agents.clerk]                          # an agent of our own, made of its table
model = "openai/gpt-4o-mini"
instruction = "You sell books to {customer}."
tools = ["shop.tools:find_book"]
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from evaldesk.agents.agent import AGENTS, AgentKind
from evaldesk.agents.discovery import agent_ref, remote_ref_of_kind
from evaldesk.agents.traces import user_trace
from evaldesk.backports import chdir
from evaldesk.codec import msgspec
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import AgentRef, Container
from evaldesk.model.run import checked_container
from evaldesk.paths import interpreter_path
from evaldesk.registry import import_target
from evaldesk.run_options import ISOLATIONS
from evaldesk.wire import converted, from_json, to_json

CONFIG_NAME = "evaldesk.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


class LlmTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys in the table of an agent of our own; the fields of LlmAgent, its tools by `module:function`."""

    model: str
    instruction: str = ""
    description: str = ""
    tools: tuple[str, ...] = ()
    max_iterations: int = 12
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    api_base: str | None = None
    api_key_env: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    initial_state: dict[str, Any] = msgspec.field(default_factory=dict)


def declared_refs(tables: Mapping[str, Mapping[str, object]], workspace: Path) -> list[AgentRef]:
    """The agents of the tables, in order; paths and modules are relative to `workspace`. Raises UsageError."""
    return [_table_ref(name, dict(table), workspace) for name, table in tables.items()]


def named_ref(spec: str, tables: Mapping[str, Mapping[str, object]], workspace: Path) -> AgentRef:
    """The agent of a spec: the name of a table, a folder, `module:attr`, or an address.

    Raises UsageError.
    """
    refs_by_id = {ref.id: ref for ref in declared_refs(tables, workspace)}
    if spec in refs_by_id:
        return refs_by_id[spec]
    try:
        return agent_ref(spec)
    except UsageError as error:
        nearest = get_close_matches(spec, refs_by_id, n=1)
        if nearest and "did you mean" not in str(error):
            raise UsageError(f"{error}; did you mean {nearest[0]}?", field="agent") from None
        raise


def llm_fields(ref: AgentRef) -> dict[str, Any]:
    """The arguments of the LlmAgent of `ref`, with its tools imported. Raises AgentError."""
    table = from_json(ref.declared, LlmTable)
    return {"name": ref.id, **msgspec.structs.asdict(table), "tools": [_tool(name, ref) for name in table.tools]}


def _table_ref(name: str, table: dict[str, Any], workspace: Path) -> AgentRef:
    try:
        return _read_table(name, table, workspace)
    except (UsageError, msgspec.ValidationError) as error:
        raise UsageError(f"{workspace / CONFIG_NAME}: [agents.{name}]: {error}") from error


def _read_table(name: str, table: dict[str, Any], workspace: Path) -> AgentRef:
    if not _NAME.fullmatch(name):
        raise UsageError("a name has letters, digits, _ . and -, at most 64 of them")
    if "target" in table:
        python = _python(table.pop("python", ""), workspace)
        container = _container(table.pop("image", None), python)
        commands = _commands(table, container)
        value = table.pop("isolation", "")
        if value != "" and value not in ISOLATIONS:
            raise UsageError(f"isolation is one of {', '.join(ISOLATIONS)}, not {value!r}")
        isolation = str(value)
        functions = {each: _function(each, table.pop(each, "")) for each in ("make_deps", "read_state")}
        ref = _target(table, workspace)
        return replace(
            ref, id=name, python=python, container=container, commands=commands, isolation=isolation, **functions
        )
    for key in ("python", "image", "isolation", "make_deps", "read_state"):
        if key in table:
            raise UsageError(f"{key} is for an agent with a target, which is imported")
    if "url" in table or "command" in table:
        return _remote(name, table)
    if "model" in table:
        llm_table = converted(table, LlmTable)
        folders = [workspace.joinpath(*tool.partition(":")[0].split(".")[:-1]) for tool in llm_table.tools]
        folder = next((str(path) for path in folders if path != workspace and path.is_dir()), "")
        return AgentRef(
            name, "", root=str(workspace), folder=folder, kind="litellm", declared=to_json(llm_table).decode()
        )
    raise UsageError("say target, url, command or model; see docs/agents.md")


def _python(value: object, workspace: Path) -> str:
    if not isinstance(value, str):
        raise UsageError(f"python is the path of an interpreter, not {value!r}")
    return interpreter_path(value, workspace)


def _commands(table: dict[str, Any], container: Container | None) -> Container | None:
    """The container for the commands of a benchmark, from its key `command_image`."""
    container_of_commands = _container(table.pop("command_image", None), "", "command_image")
    if container_of_commands and table.get("kind") != "benchmark":
        raise UsageError('command_image is for kind = "benchmark"; image plays the whole agent')
    if container_of_commands and container:
        raise UsageError("image plays the whole agent, its commands, too; leave command_image out")
    return container_of_commands


def _container(image: object, python: str, key: str = "image") -> Container | None:
    """The container of the image; its limits come from the workspace."""
    if image is None:
        return None
    if not isinstance(image, str):
        raise UsageError(f"{key} is the name of an image, not {image!r}")
    if python:
        raise UsageError("python is an interpreter of this machine, and image has its own; leave one out")
    return checked_container(Container(image))


def _function(name: str, value: object) -> str:
    if value != "" and not (isinstance(value, str) and re.fullmatch(r"[\w.]+:[\w.]+", value)):
        raise UsageError(f"{name} is a function as module:function, not {value!r}")
    return str(value)


def _target(table: dict[str, Any], workspace: Path) -> AgentRef:
    kind = AGENTS.find(str(table.get("kind", "")))
    if kind and kind.options:
        options = {name: value for name, value in table.items() if name not in {"kind", "target"}}
        read_options = cast("Callable[[Mapping[str, Any], Path], str]", import_target(kind.options))
        options_text = read_options(options, workspace)
        return replace(_target({"target": table["target"]}, workspace), kind=kind.name, declared=options_text)
    if set(table) != {"target"} or not isinstance(table["target"], str):
        raise UsageError(
            "beside a target, which is a string, and python, image, isolation, make_deps or read_state nothing else "
            "may be said"
        )
    with chdir(workspace):
        return agent_ref(table["target"])


def _remote(name: str, table: dict[str, Any]) -> AgentRef:
    kind_name, key = table.pop("kind", None), "url" if "url" in table else "command"
    target = table.pop(key)
    if not isinstance(target, str) or "command" in table:
        raise UsageError("say a url or a command, as a string")
    if key == "url" and not kind_name and not target.startswith("http"):
        kind_name, _, address = target.partition(":")  # as on the command line
        if not address.startswith("http"):
            raise UsageError(f"url is an address such as http://127.0.0.1:8000, not {target!r}")
        target = address
    kind = _remote_kind(kind_name, target)
    if kind is None:
        raise UsageError(f"kind is one of {', '.join(AGENTS.prefixes())}, not {kind_name!r}")
    return remote_ref_of_kind(kind.name, target, name, to_json(table).decode() if table else "")


def _remote_kind(kind_name: object, target: str) -> AgentKind | None:
    """The remote kind of a table, by prefix or name, else by its target."""
    if not kind_name:
        return AGENTS.at_address(target) if target.startswith("http") else AGENTS.at_prefix("command")
    kind = AGENTS.at_prefix(str(kind_name)) or AGENTS.find(str(kind_name))
    return kind if kind and kind.is_remote else None


def _tool(name: str, ref: AgentRef) -> object:
    try:
        from evaldesk.agents.loading import import_from

        return import_from(name, ref.root)
    except UsageError as error:
        raise AgentError(f"{ref.id}: tool {error}") from error
    except (Exception, SystemExit) as error:
        raise AgentError(f"{ref.id}: tool {name}: {type(error).__name__}: {error}", trace=user_trace(error)) from error


def merge_refs(refs_of_folders: Sequence[AgentRef], refs_of_tables: Sequence[AgentRef]) -> list[AgentRef]:
    """Both lists, agents of tables first; an agent of a folder is dropped if a table has its target.

    An agent of a folder with the id of a table is renamed.
    """
    ids = {ref.id for ref in refs_of_tables}
    same = {(ref.target, os.path.realpath(ref.root)) for ref in refs_of_tables if ref.target}
    others = [ref for ref in refs_of_folders if (ref.target, os.path.realpath(ref.root)) not in same]
    return [*refs_of_tables, *(replace(ref, id=f"{ref.id}-2") if ref.id in ids else ref for ref in others)]

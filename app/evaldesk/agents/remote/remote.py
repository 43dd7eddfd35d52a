"""Agents that are not imported: an address or a command, which only the command line and `evaldesk.toml` may name."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from evaldesk.agents.kinds import AGENTS
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef


def remote_ref(spec: str) -> AgentRef | None:
    """The agent that `spec` names by an address, a command or a recording; None for any other spec.

    An address alone is an OpenAI-compatible endpoint when it ends in `/v1`, else it speaks docs/protocol.md. Raises
    UsageError for an address or a command that cannot be.
    """
    if spec.startswith(("http://", "https://")):
        return checked_ref(AGENTS.at_address(spec).name, spec)
    prefix, separator, rest = spec.partition(":")
    kind = AGENTS.at_prefix(prefix) if separator else None
    if kind is None or (kind.target == "address" and not rest.startswith("http")):
        return None
    return checked_ref(kind.name, rest.strip())


def checked_ref(kind: str, target: str, agent_id: str = "", declared: str = "") -> AgentRef:
    """The agent of that remote kind at `target`. Raises UsageError."""
    form = AGENTS[kind].target
    if form == "command":
        if not target:
            raise UsageError("command: needs a command, such as command:python my_agent.py", field="agent")
        name = agent_id or _id(target.rsplit(maxsplit=1)[-1])
        return AgentRef(name, target, root=str(Path.cwd()), kind=kind, declared=declared)
    if form == "file":
        path = Path(target).expanduser().resolve()
        if not path.is_file():
            raise UsageError(f"{target}: no file to replay", field="agent")
        return AgentRef(agent_id or _id(path.stem), str(path), root=str(path.parent), kind=kind, declared=declared)
    return AgentRef(agent_id or _id(_checked_url(target)), target.rstrip("/"), kind=kind, declared=declared)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url[:200]!r} is no address: {error}", field="agent") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"an address must look like http://127.0.0.1:8000, not {url[:200]!r}", field="agent")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("an address must not carry a name, a password or a query; name the key's variable instead")
    return f"{parts.hostname}{f'-{port}' if port else ''}{parts.path}"


def _id(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80] or "agent"

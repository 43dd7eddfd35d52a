"""`kind = "ray"`: the keys of its table, the runs that it can play, and how one is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from evaldesk.agents import AGENTS
from evaldesk.agents.env_files import env_variables
from evaldesk.codec import msgspec
from evaldesk.engine.executors import OWN_VARIABLES, Executor, ExecutorKind, Node
from evaldesk.errors import UsageError
from evaldesk.model import RunConfig
from evaldesk.model.run import ExecutorConfig
from evaldesk.registry import is_installed
from evaldesk.wire import converted


@dataclass(frozen=True, slots=True)
class RayOptions:
    """The keys of `[executors.NAME]`.

    `hosts` actors are spread over the nodes at `address`; each takes `cpus_per_host` CPUs of its node (by default one
    for each worker) and has `workers_per_host` players and as many graders. `variables` are the names of the
    environment variables that agents and judges get there. `python` is an interpreter on the hosts for the agent.
    """

    address: str = "auto"
    hosts: int = 1
    workers_per_host: int = 2
    cpus_per_host: float = 0.0
    variables: tuple[str, ...] = ()
    python: str = ""


def _options(executor: ExecutorConfig) -> RayOptions:
    """The options of the table. Raises UsageError naming the key at fault."""
    where = f"[executors.{executor.name}]"
    option_names = [each.name for each in fields(RayOptions)]
    unknown = sorted({*executor.options} - {*option_names})
    if unknown:
        raise UsageError(
            f"{where}: unknown key {unknown[0]!r}; known keys: kind, {', '.join(option_names)}", field="on"
        )
    try:
        options: RayOptions = converted(executor.options, RayOptions)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{where}: {error}", field="on") from error
    if "://" in options.address:
        raise UsageError(
            f"{where}: address = {options.address!r}: a connection through Ray Client loses its actors when it breaks; "
            "name HOST:PORT of the head, or auto, and start the run on a node of the cluster",
            field="on",
        )
    for key, value in (("hosts", options.hosts), ("workers_per_host", options.workers_per_host)):
        if not 1 <= value <= 10_000:
            raise UsageError(f"{where}: {key} must be 1 to 10000, not {value}", field="on")
    return options


def _check(config: RunConfig) -> None:
    options, name = _options(config.executor), config.executor.name
    ref, kind = config.agent, AGENTS.find(config.agent.kind)
    about = f"on = {name!r}"
    if not is_installed("ray"):
        raise UsageError(f"{about}: ray is not installed; pip install 'evaldesk[ray]'", field="on")
    if config.recording.mode != "off":
        raise UsageError(
            f"{about}: recordings are in a folder of this machine, which hosts do not see; leave recording off",
            field="recording",
        )
    if ref.container or ref.commands or config.isolation in ("container", "sandbox"):
        raise UsageError(f"{about}: hosts start no containers; leave image out", field="image")
    if kind is not None and kind.target in ("command", "file"):
        raise UsageError(
            f"{about}: {ref.id} ({kind.title}) needs files of this machine that hosts do not get", field="on"
        )
    unset_names = [each for each in options.variables if each not in os.environ]
    if unset_names:
        raise UsageError(f"[executors.{name}]: variables: {unset_names[0]} is not set here", field="on")
    for criterion in config.criteria:
        root = criterion.options.get("root")
        if isinstance(root, str) and root and not (ref.root and Path(root).is_relative_to(ref.root)):
            raise UsageError(
                f"{about}: {criterion.metric} is in {root}, and hosts get the files of {ref.root or 'no folder'} alone",
                field="on",
            )


def _open(config: RunConfig, environment: Mapping[str, str]) -> Executor:
    from evaldesk.integrations.ray.cluster import RayCluster
    from evaldesk.integrations.ray.executor import HostsExecutor
    from evaldesk.integrations.ray.host import HostSetup

    options = _options(config.executor)
    n_hosts = min(options.hosts, config.concurrency)
    share = -(-config.concurrency // n_hosts)
    setup = HostSetup(
        config.agent.root,
        min(options.workers_per_host, share),
        share,
        config.isolation,
        options.python,
        tuple(given_variables(config, options, environment).items()),
    )
    cluster = RayCluster(options.address, options.cpus_per_host or options.workers_per_host, setup)
    return HostsExecutor(cluster, config.concurrency, n_hosts)


async def _look(config: RunConfig) -> tuple[str, Sequence[Node]]:
    from evaldesk.integrations.ray.nodes import look_at

    return await look_at(_options(config.executor).address)


def given_variables(config: RunConfig, options: RayOptions, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that hosts get: named ones, and the variables of the run file and of the agent's `.env`."""
    names = (*options.variables, *environment.get(OWN_VARIABLES, "").split())
    variables = {name: environment[name] for name in names if name in environment}
    return {**env_variables(config.agent.folder, environment), **variables}


def _words(executor: ExecutorConfig) -> str:
    options: Mapping[str, Any] = executor.options
    hosts = options.get("hosts", 1)
    return f"Ray ({options.get('address', 'auto')}), {hosts} host{'' if hosts == 1 else 's'}"


RAY = ExecutorKind(_check, _words, _open, has_own_driver=True, look=_look)

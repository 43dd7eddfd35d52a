"""The nodes of a cluster, each asked for its versions; nothing is played there."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk import __version__
from evaldesk.engine.executors import Node
from evaldesk.errors import EvaldeskError
from evaldesk.integrations.ray.cluster import RayCluster, in_thread, lost_words
from evaldesk.integrations.ray.executor import other_versions
from evaldesk.integrations.ray.host import HostFacts, HostSetup, own_versions
from evaldesk.wire import from_json, to_json

ASK_S, LOOK_S = 30.0, 60.0
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions on a node. `minor` is that of Python which counts."""

    minor: str
    python: str
    evaldesk: str
    ray: str


def versions() -> bytes:
    """Versions of the node where it is called."""
    import ray

    return to_json(Versions(own_versions()[0], platform.python_version(), __version__, ray.__version__))


async def look_at(address: str) -> tuple[str, Sequence[Node]]:
    """The cluster in a sentence, and each of its nodes. Raises EvaldeskError."""
    cluster = RayCluster(address, 0.0, HostSetup("", 1, 1))
    try:
        await cluster.connect()
    except ImportError as error:  # Ray is there in part
        raise EvaldeskError(f"no cluster: {error}") from error
    try:
        return await asyncio.wait_for(in_thread(_look), LOOK_S)
    except TimeoutError:
        raise EvaldeskError(f"Ray at {address} did not answer within {LOOK_S:g} s") from None
    finally:
        await cluster.close()


def _look() -> tuple[str, Sequence[Node]]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    live_nodes = [node for node in ray.nodes() if node["Alive"]]
    ask = ray.remote(num_cpus=0, max_retries=0)(versions)
    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in live_nodes]
    answers = [ask.options(scheduling_strategy=place).remote() for place in places]
    ray.wait(answers, num_returns=len(answers), timeout=ASK_S)
    free, all_of_them = (each.get("CPU", 0.0) for each in (ray.available_resources(), ray.cluster_resources()))
    n_nodes = f"{len(live_nodes)} node{'' if len(live_nodes) == 1 else 's'}"
    return f"{n_nodes}, {free:g} of {all_of_them:g} CPUs free", [
        node_of(node, *_answer(reference)) for node, reference in zip(live_nodes, answers, strict=True)
    ]


def _answer(reference: Any) -> tuple[Versions | None, str]:
    import ray

    try:
        return from_json(ray.get(reference, timeout=0), Versions), ""
    except ray.exceptions.GetTimeoutError:
        return None, f"did not answer within {ASK_S:g} s"
    except ray.exceptions.RayError as error:
        return None, lost_words(str(error))


def node_of(node: dict[str, Any], there: Versions | None, trouble: str) -> Node:
    """A node by Ray's account, with its differences from here."""
    resources = node["Resources"]
    n_cpus = resources.get("CPU", 0.0)
    words = [f"{n_cpus:g} CPU{'' if n_cpus == 1 else 's'}, {resources.get('memory', 0.0) / GIB:.1f} GiB for tasks"]
    if there:
        words += [f"Python {there.python}", f"Evaldesk {there.evaldesk}", f"Ray {there.ray}"]
        trouble = other_versions(HostFacts(node["NodeManagerHostname"], there.minor, there.evaldesk))
    return Node(node["NodeManagerHostname"], ", ".join(words), trouble)

"""The cluster of Ray that a driver connects to, and its actors as hosts."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from evaldesk.errors import EvaldeskError
from evaldesk.integrations.ray.code import write_code
from evaldesk.integrations.ray.executor import HostLostError
from evaldesk.integrations.ray.host import Answer, Host, HostFacts, HostJob, HostSetup
from evaldesk.process_setup import NOT_WAITED_FOR
from evaldesk.wire import from_json, to_json

T = TypeVar("T")

RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Ray ends its driver after so many seconds without a head node; by then the run has been stopped here."""
RECONNECT_S = 600
MAX_SAID = 300
CALLS_AT_ONCE = 64
"""All but the latest call of a host end at once."""
REACH_S, CONNECT_S, CLOSE_S = 5.0, 120.0, 10.0


@dataclass(frozen=True, slots=True)
class RayCluster:
    """The cluster at `address`; hosts take `cpus_per_host` CPUs each and have `setup`."""

    address: str
    cpus_per_host: float
    setup: HostSetup

    @property
    def waits_for(self) -> str:
        """`a node with 4 free CPUs`."""
        return f"a node with {self.cpus_per_host:g} free CPU{'' if self.cpus_per_host == 1 else 's'}"

    async def connect(self) -> None:
        """Connect, and give the agent's files to the cluster. Raises EvaldeskError."""
        try:
            await asyncio.wait_for(in_thread(self._connect), CONNECT_S)
        except TimeoutError:
            raise EvaldeskError(f"Ray at {self.address} did not answer within {CONNECT_S:g} s") from None

    async def open_host(self) -> ActorHost:
        """A new actor; it waits for a node with room. Raises HostLostError."""
        import ray

        actor_class = ray.remote(Host).options(
            num_cpus=self.cpus_per_host,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            max_concurrency=CALLS_AT_ONCE,
        )
        return ActorHost(await in_thread(lambda: actor_class.remote(self.setup)))

    async def close(self) -> None:
        """Leave the cluster; actors end with their driver."""
        import ray

        with suppress(TimeoutError):
            await asyncio.wait_for(in_thread(ray.shutdown), CLOSE_S)
            NOT_WAITED_FOR.discard("ray")

    def _connect(self) -> None:
        os.environ.setdefault(RECONNECT, str(RECONNECT_S))
        import ray

        if ray.is_initialized():
            raise EvaldeskError(
                "this process uses Ray already; `evaldesk run submit` gives the run a process of its own"
            )
        check_reachable(self.address)
        with tempfile.TemporaryDirectory(prefix="evaldesk-code-") as folder:
            runtime: dict[str, Any] = {}
            if self.setup.root:
                write_code(Path(self.setup.root), Path(folder, "code.zip"))
                runtime = {"working_dir": str(Path(folder, "code.zip"))}
            logging.getLogger("ray").setLevel(logging.ERROR)  # it warns that it is not in the main thread
            NOT_WAITED_FOR.add("ray")
            try:
                ray.init(
                    address=self.address,
                    runtime_env=runtime,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    configure_logging=False,
                )
            except Exception as error:  # of many kinds, from a wrong address to another version of Ray
                with suppress(Exception):
                    ray.shutdown()
                raise EvaldeskError(f"Ray at {self.address} cannot be used: {connect_words(str(error))}") from error
            _keep_off_the_output()


def _keep_off_the_output() -> None:
    """Ray prints the log of a node that died to the standard output of its driver, into the results of a command."""
    # Ray has no public switch for this: decision 167.
    from ray._private import worker

    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


async def in_thread(function: Callable[[], T]) -> T:
    """As `asyncio.to_thread`; nobody waits for its thread at the end, since Ray waits minutes for a head node."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # so that a caller who leaves does not cancel it, but waits no more

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="evaldesk-ray", daemon=True).start()
    return await asyncio.wrap_future(future)


def connect_words(text: str) -> str:
    """Why Ray cannot be used, in one line; of other versions both are named."""
    if "ersion mismatch" in text:
        return " ".join(text.split())[:MAX_SAID]
    return first_line(text)


def check_reachable(address: str) -> None:
    """Raise EvaldeskError for HOST:PORT where nobody listens: Ray itself would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not (separator and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise EvaldeskError(f"Ray at {address} cannot be used: {error}") from error


class ActorHost:
    """A host of this run, as its driver sees it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def exchange(self, jobs: Sequence[HostJob]) -> Sequence[Answer]:
        """Hand over trials, and get ended ones. Raises HostLostError."""
        return from_json(await _answer(self._actor.exchange.remote(to_json(jobs))), list[Answer])

    async def facts(self) -> HostFacts:
        """The host as it is now. Raises HostLostError."""
        return from_json(await _answer(self._actor.facts.remote()), HostFacts)

    async def cancel(self) -> None:
        """End its trials as cancelled. Raises HostLostError."""
        await _answer(self._actor.cancel.remote())

    def kill(self) -> None:
        """End the actor, if it is still there."""
        import ray

        with suppress(Exception):
            ray.kill(self._actor)


async def _answer(reference: Awaitable[T]) -> T:
    """The answer of an actor. Raises HostLostError where it is gone, and its own error as it is."""
    from ray import exceptions

    try:
        return await reference
    except exceptions.RayTaskError:
        raise
    except exceptions.RayError as error:
        raise HostLostError(lost_words(str(error))) from error


def lost_words(text: str) -> str:
    """The reason of a loss in a few words, from Ray's error."""
    if "No module named 'evaldesk" in text:
        return "Evaldesk is not installed there"
    if "node has died" in text or "node is dead" in text or "node was terminated" in text.lower():
        return "its node is gone"
    if "low on memory" in text or "memory monitor" in text:  # a death of any other kind names the OOM killer, too
        return "its node was short of memory"
    if "unavailable" in text or "failed to connect" in text:
        return "its node does not answer"
    if "process has died" in text or "killed" in text.lower():
        return "its process is gone"
    if "creation task" in text:  # the first line names the actor, the last the error
        return f"it did not start: {text.strip().splitlines()[-1].strip()[:MAX_SAID]}"
    return first_line(text)


def first_line(error: object) -> str:
    """The first line of an error, shortened."""
    lines = str(error).strip().splitlines()
    return lines[0][:MAX_SAID] if lines else type(error).__name__

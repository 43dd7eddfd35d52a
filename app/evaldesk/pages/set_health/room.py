"""The healths of eval sets that pages ask for: computed in the background where a set is large, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakKeyDictionary

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.desk import Desk
from evaldesk.errors import EvaldeskError, NotFoundError
from evaldesk.model.stored import EvalSetFile
from evaldesk.pages.set_health.health import SetHealth, read_health, usual_agent_id

AT_ONCE = 2_000
"""Cases up to which a page waits for its health."""
MOST_KEPT = 8


@dataclass(slots=True)
class HealthState:
    """A health, or the number of read cases; `error` is the reason of a missing one."""

    n_all: int
    n_read: int = 0
    health: SetHealth | None = None
    error: str = ""

    def tell(self, n_read: int) -> None:
        """Note the number of read cases."""
        self.n_read = n_read

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.health is not None or bool(self.error)


@dataclass(slots=True)
class HealthRoom:
    """The newest healths of one desk, each for one content of a set, one agent and its runs so far."""

    _states: OrderedDict[Hashable, HealthState] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)
    # One at a time, so that a large set leaves the other core to the pages.
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "evaldesk-health"))

    def ask(self, desk: Desk, file: EvalSetFile, agent: FoundAgent | None, agent_id: str) -> HealthState:
        """The health of a set, begun if need be; of a small set it is done."""
        newest = desk.store.runs.list(evalset_id=file.id, limit=1)
        of_run = (newest[0].id, newest[0].n_done) if newest else None
        key = (file.id, file.version, agent_id, agent and (agent.state, agent.changed_ns), of_run)
        with self._lock:
            state = self._states.get(key)
            is_new = state is None
            if state is None:
                state = self._states[key] = HealthState(file.n_cases)
                while len(self._states) > MOST_KEPT:
                    self._states.popitem(last=False)
        if is_new:
            work: Future[None] = self._worker.submit(_compute, desk, state, file, agent, agent_id)
            if file.n_cases <= AT_ONCE:
                work.result()
        return state


def _compute(desk: Desk, state: HealthState, file: EvalSetFile, agent: FoundAgent | None, agent_id: str) -> None:
    try:
        state.health = read_health(desk, file, agent, agent_id, state.tell)
    except EvaldeskError as error:
        state.error = str(error)
    except Exception:
        state.error = "the health of this set could not be computed; the log of the desk says why"
        raise


# A room names no desk, which it would keep for ever, and its thread with it.
_ROOMS: WeakKeyDictionary[Desk, HealthRoom] = WeakKeyDictionary()


def health_room(desk: Desk) -> HealthRoom:
    """The room of a desk."""
    return _ROOMS.setdefault(desk, HealthRoom())


def find_agent(desk: Desk, evalset_id: str, name: str) -> tuple[FoundAgent | None, str]:
    """The agent of that name, by default the usual one of the set, and its id; None where the desk has its runs alone.

    Raises NotFoundError for a name that is neither here nor in a run.
    """
    agent_id = name or usual_agent_id(desk, evalset_id)
    try:
        return desk.agents.get(agent_id), agent_id
    except NotFoundError:
        if name and name not in desk.store.runs.agents():
            raise
        return None, agent_id

"""What trials of one player share: changed module globals, and objects that work in one event loop only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from evaldesk.engine import LocalExecutor
from evaldesk.model import AgentRef, TrialResult, TrialSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Make = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]


async def played(specs: list[TrialSpec], play: Play, *, isolation: str = "auto", n: int = 1) -> list[TrialResult]:
    executor = LocalExecutor(1, n, isolation=isolation)
    try:
        results = await play(executor, specs)
    finally:
        await executor.close()
    return [results[index] for index in range(len(specs))]


def names(results: list[TrialResult]) -> set[str]:
    return {name.rpartition(".")[2] for result in results for name in result.shared_state.changed_globals}


CHANGES = {
    "a counter": ("count = 0", "global count\n    count += 1", {"count"}),
    "a list that grows": ("seen = []", "seen.append(message)", {"seen"}),
    "an order that is cancelled": ("orders = {'A': {'status': 'open'}}", "orders['A']['status'] = 'gone'", {"orders"}),
    "a number that changes its sign": ("sign = -1", "global sign\n    sign -= 1", {"sign"}),
    "an object of its own class": (
        "class Shop:\n    def __init__(self):\n        self.n = 0\nshop = Shop()",
        "shop.n += 1",
        {"shop"},
    ),
    "slots of its own class": (
        "class Shop:\n    __slots__ = ('n',)\nshop = Shop()\nshop.n = 0",
        "shop.n += 1",
        {"shop"},
    ),
    "a value of its own class": ("class Shop:\n    n = 0", "Shop.n += 1", {"Shop"}),
    "an attribute of a function": ("def shop(): ...\nshop.n = 0", "shop.n += 1", {"shop"}),
    "a default that is changed": ("def shop(seen=[0]):\n    seen.append(1)", "shop()", {"shop"}),
    "an iterator that counts": ("import itertools\nids = itertools.count()", "next(ids)", {"ids"}),
    "a list of its own class": (
        "class Log(list):\n    def __iter__(self):\n        raise OSError\n    __len__ = __iter__\nlog = Log([1])",
        "log.append(message)",
        {"log"},
    ),
    "a client that is made once": ("client = None", "global client\n    client = client or object()", set()),
    "a cache that is filled once": ("cache = {}", "cache['prompt'] = 'You sell books'", set()),
    "a flag that is set once": ("ready = False", "global ready\n    ready = True", set()),
    "a local list": ("", "seen = []\n    seen.append(message)", set()),
    "a constant": ("prices = {'tea': 3}", "len(prices)", set()),
}


@pytest.mark.parametrize(("head", "body", "wanted"), CHANGES.values(), ids=CHANGES.keys())
async def test_globals_that_trials_change_for_each_other_are_named(
    write_agent: Write, trial: Make, play: Play, head: str, body: str, wanted: set[str]
) -> None:
    ref = write_agent(f"{head}\n\ndef agent(message):\n    {body}\n    return message\n")

    results = await played([trial(ref, index, ("hi",)) for index in range(3)], play)

    assert [result.status for result in results] == ["finished"] * 3
    assert names(results) == wanted


LAZY = """
import sys, types

class Lazy:
    def __getattribute__(self, name):
        raise RuntimeError("working outside of the context")
    __eq__ = __hash__ = __len__ = __iter__ = __bool__ = __repr__ = __call__ = __getattribute__

class LazyList(list):
    __getattribute__ = __eq__ = __len__ = __iter__ = __repr__ = Lazy.__getattribute__

class LazyModule(types.ModuleType):
    def __getattribute__(self, name):
        raise OSError("not installed")

request, settings, rows = Lazy(), [Lazy()], LazyList([1])
sys.modules["a_lazy_one"] = LazyModule("a_lazy_one")
count = 0

def agent(message):
    global count
    count += 1
    return message
"""


async def test_the_look_calls_no_code_of_lazy_objects(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(LAZY)

    results = await played([trial(ref, index, ("hi",)) for index in range(3)], play)

    assert [(result.status, result.error) for result in results] == [("finished", None)] * 3
    assert names(results) == {"count"}


async def test_globals_of_packages_are_not_looked_at(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent("import json\n\ndef agent(message):\n    json.seen = message * 2\n    return message\n")

    assert names(await played([trial(ref, index, (str(index),)) for index in range(3)], play)) == set()


@pytest.mark.parametrize("isolation", ["process", "auto"])
async def test_a_trial_alone_in_its_process_shares_nothing(
    write_agent: Write, trial: Make, play: Play, isolation: str
) -> None:
    ref = write_agent("count = 0\n\ndef agent(message):\n    global count\n    count += 1\n    return str(count)\n")
    n = 3 if isolation == "process" else 1

    results = await played([trial(ref, index, ("hi",)) for index in range(n)], play, isolation=isolation)

    assert names(results) == set()


LOCKS: dict[str, tuple[str, str]] = {
    "a semaphore": ("slots = asyncio.Semaphore(1)", "slots is an object of one event loop (asyncio.Semaphore)"),
    "a lock of an own object": (
        "class Shop:\n    def __init__(self):\n        self.lock = asyncio.Lock()\nshop = Shop()\nslots = shop.lock",
        "shop holds an object of one event loop (asyncio.Lock)",
    ),
}
LOCKED = """
import asyncio, os

{head}

async def agent(message):
    async with slots:
        await asyncio.sleep(0.02)
    return str(os.getpid())
"""


@pytest.mark.parametrize(("head", "words"), LOCKS.values(), ids=LOCKS.keys())
async def test_an_agent_with_a_lock_of_a_loop_plays_one_trial_a_process(
    write_agent: Write, trial: Make, play: Play, head: str, words: str
) -> None:
    ref = write_agent(LOCKED.format(head=head))

    results = await played([trial(ref, index, ("hi",)) for index in range(6)], play, n=3)

    assert [result.status for result in results] == ["finished"] * 6
    assert len({result.transcript.turns[0].answer for result in results}) == 6
    assert all(result.shared_state.loop_bound.endswith(words) for result in results)


async def test_shared_players_stay_shared_by_choice(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(LOCKED.format(head=LOCKS["a semaphore"][0]))

    results = await played([trial(ref, index, ("hi",)) for index in range(3)], play, isolation="shared")

    assert len({result.transcript.turns[0].answer for result in results}) == 1
    assert any(result.shared_state.loop_bound for result in results)


BOUND_LATE = """
import asyncio, os

{head}
_made = {{}}

async def agent(message):
    {body}
    await asyncio.sleep(0.02)
    return str(os.getpid())
"""
SESSIONS = {
    "a future of the first trial": ("", "_made.setdefault('f', asyncio.get_running_loop().create_future())"),
    "a task that serves every trial": (
        "async def serve():\n    await asyncio.Event().wait()",
        "_made.setdefault('task', asyncio.create_task(serve()))",
    ),
    "a queue of an own session": (
        "class Session:\n    pass\nsession = Session()",
        "session.queue = getattr(session, 'queue', None) or asyncio.Queue()",
    ),
}


@pytest.mark.parametrize(("head", "body"), SESSIONS.values(), ids=SESSIONS.keys())
async def test_an_object_that_a_trial_binds_to_its_loop_is_found(
    write_agent: Write, trial: Make, play: Play, head: str, body: str
) -> None:
    ref = write_agent(BOUND_LATE.format(head=head, body=body))

    results = await played([trial(ref, index, ("hi",)) for index in range(5)], play, n=2)

    assert [result.status for result in results] == ["finished"] * 5
    assert len({result.transcript.turns[0].answer for result in results}) == 5


SHARED_POOL = """
import asyncio, os

connections = []  # as a pool of a client keeps them

class Connection:
    def __init__(self):
        self.reader = asyncio.get_running_loop().create_future()

async def agent(message):
    if not connections:
        connections.append(Connection())
    reader = connections[0].reader
    asyncio.get_running_loop().call_later(0.01, lambda: reader.done() or reader.set_result(1))
    {read}
    return str(os.getpid())
"""
READS = {
    "the agent raises": "await asyncio.wait([reader])",
    "the agent hides the error": (
        "try:\n        await asyncio.wait([reader])\n    except RuntimeError:\n        raise OSError"
    ),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
async def test_an_error_of_another_loop_is_played_again_alone(
    write_agent: Write, trial: Make, play: Play, read: str
) -> None:
    ref = write_agent(SHARED_POOL.replace("{read}", read))

    results = await played([trial(ref, index, ("hi",)) for index in range(6)], play, n=3)

    assert [(result.status, result.error) for result in results] == [("finished", None)] * 6


WAITING = """
import asyncio

lock = asyncio.Lock()
played = []

async def agent(message):
    played.append(message)
    await asyncio.sleep(3600 if len(played) > 1 else 0.02)
    return str(len(played))
"""


async def test_a_trial_that_waits_without_end_beside_another_is_played_again(
    write_agent: Write, trial: Make, play: Play
) -> None:
    ref = write_agent(WAITING)

    results = await played([trial(ref, index, ("hi",)) for index in range(2)], play, n=2)

    assert [result.transcript.turns[0].answer for result in results] == ["1", "1"]


async def test_an_agent_without_such_objects_stays_in_shared_players(
    write_agent: Write, trial: Make, play: Play
) -> None:
    ref = write_agent(
        """
import asyncio, os, threading

lock = threading.Lock()
names = {"tea": ("green", "black")}

async def agent(message):
    inner = asyncio.Lock()
    async with inner:
        await asyncio.sleep(0)
    return str(os.getpid())
"""
    )

    results: list[Any] = await played([trial(ref, index, ("hi",)) for index in range(4)], play, n=2)

    assert len({result.transcript.turns[0].answer for result in results}) == 1
    assert {result.shared_state.loop_bound for result in results} == {""}


async def test_a_large_global_hides_no_other(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(
        """
import asyncio

prices = {number: {"name": str(number), "tags": ["a", "b"]} for number in range(30_000)}
log = [{"line": number} for number in range(30_000)]
count = 0
slots = asyncio.Semaphore(5)

async def agent(message):
    global count
    count += 1
    log.append({})
    return message
"""
    )

    results = await played([trial(ref, index, ("hi",)) for index in range(2)], play, isolation="shared")

    assert names(results) == {"count", "log"}
    assert all("slots is an object" in result.shared_state.loop_bound for result in results)

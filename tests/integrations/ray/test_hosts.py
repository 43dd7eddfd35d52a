"""Trials on hosts that are lost, refused or never come: none is lost, none is counted twice."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from threading import Event
from time import sleep
from types import SimpleNamespace

import pytest
from tests.integrations.ray.hosts import ScriptedCluster, ScriptedHost, finished

from evaldesk.engine import drive
from evaldesk.engine.frames import GradeSpec
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.integrations.ray import cluster as cluster_module
from evaldesk.integrations.ray import executor as module
from evaldesk.integrations.ray import host as host_module
from evaldesk.integrations.ray.cluster import RayCluster, connect_words, lost_words
from evaldesk.integrations.ray.executor import HostsExecutor, check_result
from evaldesk.integrations.ray.host import (
    Answer,
    Host,
    HostFacts,
    HostSetup,
    environment_of_workers,
    host_job,
    move_paths,
    own_versions,
)
from evaldesk.model import AgentRef, Criterion, TrialResult, TrialSpec
from evaldesk.wire import from_json, to_json

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]
HANGS_S = 120.0
AGENT = AgentRef("echo", "echo:agent", "/code", "/code/echo")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("POLL_S", 0.01), ("LEAST_DELAY_S", 0.001), ("MOST_DELAY_S", 0.01)):
        monkeypatch.setattr(module, name, value)


async def under_way(cluster: ScriptedCluster, n: int) -> None:
    while sum(len(host._held) for host in cluster.hosts) != n:
        await asyncio.sleep(0.001)


async def test_the_trials_of_a_lost_host_are_played_again_elsewhere_and_say_why(trial: Trial) -> None:
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 4, 2)
    async with asyncio.timeout(HANGS_S):
        for index in range(4):
            await executor.submit(trial(AGENT, index))
        await under_way(cluster, 4)
        cluster.play = finished
        lost = next(host for host in cluster.hosts if host.n_asked)
        lost.lose("its node is gone")
        while len(cluster.hosts) < 3 or {place.state for place in executor.places} != {"up"}:
            await asyncio.sleep(0.001)
        for host in cluster.hosts:
            for held in [*host._held]:
                held.set_result(finished(held.spec))  # type: ignore[attr-defined]
        results = executor.results()
        found = sorted([await anext(results) for _ in range(4)], key=lambda each: each.case_index)
        places = executor.places
        await executor.close()

    again = [result for result in found if result.losses]
    assert 1 <= len(again) <= 4
    for result in again:
        assert result.losses[0] == f"its host {lost.name} was lost: its node is gone"
        assert (result.attempt, result.status, result.place != lost.name) == (2, "finished", True)
    assert all(result.attempt == 1 for result in found if not result.losses)
    assert {place.state for place in places} == {"up"}
    assert any(place.note == "in the place of one that was lost: its node is gone" for place in places)
    assert cluster.is_closed


async def test_a_host_in_the_place_of_one_that_was_lost_keeps_its_name_on_the_same_machine(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def facts(host: ScriptedHost) -> HostFacts:
        host._check()
        return HostFacts("vm", *own_versions(), n_workers=2)

    monkeypatch.setattr(ScriptedHost, "facts", facts)
    cluster = ScriptedCluster(finished)
    executor = HostsExecutor(cluster, 2, 2)
    async with asyncio.timeout(HANGS_S):
        await executor.submit(trial(AGENT))
        while {place.state for place in executor.places} != {"up"}:
            await asyncio.sleep(0.001)
        before = [place.name for place in executor.places]
        cluster.hosts[0].lose("its process is gone")
        while len(cluster.hosts) < 3 or {place.state for place in executor.places} != {"up"}:
            await asyncio.sleep(0.001)
        after = [place.name for place in executor.places]
        await executor.close()

    assert before == ["vm", "vm #2"]
    assert after == before


async def test_a_trial_that_is_lost_five_times_is_errored(trial: Trial) -> None:
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 1, 1)
    await executor.submit(trial(AGENT))
    losing = asyncio.create_task(_lose_all(cluster))

    async with asyncio.timeout(HANGS_S):
        result = await anext(executor.results())
    losing.cancel()
    await executor.close()

    assert result.error is not None
    assert (result.status, result.error.kind, result.attempt) == ("errored", "host_lost", 6)
    assert result.error.message.startswith("the trial was lost 5 times; its host vm-")
    assert len(result.losses) == 5


async def _lose_all(cluster: ScriptedCluster) -> None:
    while True:
        await asyncio.sleep(0.002)
        for host in cluster.hosts:
            if host._held:
                host.lose("it is cursed")


@pytest.mark.parametrize("versions", [("3.9", own_versions()[1]), (own_versions()[0], "0.0.0")], ids=["python", "ours"])
async def test_hosts_with_other_versions_refuse_the_run_before_a_trial_is_spent(
    trial: Trial, versions: tuple[str, str]
) -> None:
    cluster = ScriptedCluster(finished)
    cluster.versions = versions
    executor = HostsExecutor(cluster, 4, 2)

    async with asyncio.timeout(HANGS_S):
        with pytest.raises(
            UsageError, match=r"no host will do: vm-\d( #\d)? has (Python 3.9|Evaldesk 0.0.0), and here"
        ):
            await executor.submit(trial(AGENT))
        await executor.close()

    assert [host.n_asked for host in cluster.hosts] == [0, 0]


@pytest.mark.parametrize("is_late", [False, True], ids=["at first", "later"])
async def test_a_host_whose_facts_cannot_be_read_is_refused_in_words(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    async def facts(host: ScriptedHost) -> HostFacts:
        if not is_late or host.n_asked:
            raise ValueError("Ray's own words\nexpected int, got str")
        return HostFacts(host.name, *own_versions(), n_workers=2)

    monkeypatch.setattr(ScriptedHost, "facts", facts)
    executor = HostsExecutor(ScriptedCluster(), 1, 1)

    async with asyncio.timeout(HANGS_S):
        if is_late:
            await executor.submit(trial(AGENT))
            result = await anext(executor.results())
            assert (result.status, executor.end_reason.startswith("no host will do: vm-0: ")) == ("cancelled", True)
        with pytest.raises(
            UsageError, match=r"^no host will do: \S+( 1)?: it cannot be used: expected int, got str\. "
        ):
            await executor.submit(trial(AGENT, 1))
        await executor.close()


async def test_a_run_without_a_host_for_a_minute_is_given_back_with_the_reason(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NO_HOST_S", 0.05)
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 4, 2)
    for index in range(3):
        await executor.submit(trial(AGENT, index))
    await under_way(cluster, 3)

    cluster.no_room = "no node is left"
    for host in cluster.hosts:
        host.lose("its node is gone")
    async with asyncio.timeout(HANGS_S):
        results = executor.results()
        found = [await anext(results) for _ in range(3)]
        await executor.submit(trial(AGENT, 3))
        late = await anext(results)
        await executor.close()

    assert {result.status for result in (*found, late)} == {"cancelled"}
    assert executor.end_reason == "no host was up for 0.05 s: no node is left."


async def test_a_driver_that_slept_longer_than_hosts_may_be_away_goes_on(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NO_HOST_S", 0.2)
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 1, 1)
    async with asyncio.timeout(HANGS_S):
        await executor.submit(trial(AGENT))
        await under_way(cluster, 1)
        cluster.no_room, cluster.play = "not yet", finished
        cluster.hosts[0].lose("its node is gone")
        while executor.places[0].note != "not yet":
            await asyncio.sleep(0.001)
        sleep(0.25)
        cluster.no_room = ""
        result = await anext(executor.results())
        await executor.close()

    assert (result.status, executor.end_reason) == ("finished", "")


async def test_a_host_that_says_nothing_is_lost(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.05)
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 1, 1)
    async with asyncio.timeout(HANGS_S):
        await executor.submit(trial(AGENT))
        await under_way(cluster, 1)
        cluster.play = finished
        monkeypatch.setattr(cluster.hosts[0], "facts", asyncio.Event().wait)
        result = await anext(executor.results())
        await executor.close()

    assert (result.status, result.losses) == ("finished", ("its host vm-0 was lost: it did not answer for 0.05 s",))


async def test_a_cluster_where_no_host_ever_comes_ends_the_run(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_HOST_S", 0.05)
    cluster = ScriptedCluster()
    cluster.no_room = "no node has 4 free CPUs"
    executor = HostsExecutor(cluster, 4, 2)

    async with asyncio.timeout(HANGS_S):
        await executor.submit(trial(AGENT))
        result = await anext(executor.results())
    await executor.close()

    assert (result.status, "no node has 4 free CPUs" in executor.end_reason) == ("cancelled", True)


async def test_a_host_that_finds_no_room_says_what_it_waits_for(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_HOST_S", 0.05)
    cluster = ScriptedCluster()
    cluster.is_full = True
    executor = HostsExecutor(cluster, 4, 2)

    async with asyncio.timeout(HANGS_S):
        await executor.submit(trial(AGENT))
        places = executor.places
        await executor.close()

    assert [(place.state, place.note) for place in places] == [("starting", "waits for a node with 4 free CPUs")] * 2
    assert "waits for a node with 4 free CPUs" in executor.end_reason


async def test_a_cancel_while_hosts_come_up_ends_what_waits(trial: Trial) -> None:
    cluster = ScriptedCluster()
    cluster.no_room = "not yet"
    executor = HostsExecutor(cluster, 4, 2)
    waiting = [asyncio.create_task(executor.submit(trial(AGENT, index))) for index in range(3)]
    await asyncio.sleep(0.02)

    async with asyncio.timeout(HANGS_S):
        await executor.cancel()
        await asyncio.gather(*waiting)
        results = executor.results()
        found = [await anext(results) for _ in range(3)]
        await executor.close()

    assert {result.status for result in found} == {"cancelled"}


async def test_a_cancel_gives_back_at_once_what_no_host_was_sent(trial: Trial) -> None:
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 4, 2)
    for index in range(3):
        await executor.submit(trial(AGENT, index))

    await executor.cancel()
    results = executor.results()
    found = [await anext(results) for _ in range(3)]
    await asyncio.sleep(10 * module.GATHER_S)
    await executor.close()

    assert {result.status for result in found} == {"cancelled"}
    assert [host.n_asked for host in cluster.hosts] == [0] * len(cluster.hosts)


async def test_a_lost_trial_is_not_played_again_once_cancelled(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANCEL_GRACE_S", HANGS_S)
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 1, 1)
    async with asyncio.timeout(HANGS_S / 2):
        await executor.submit(trial(AGENT))
        await under_way(cluster, 1)
        cluster.hosts[0].lose("its node is gone")
        while executor.places[0].state != "lost":
            await asyncio.sleep(0.001)
        await executor.cancel()
        result = await anext(executor.results())
        await executor.close()

    assert result.status == "cancelled"
    assert sum(host.n_asked for host in cluster.hosts) == 1


async def test_a_host_that_is_cancelled_before_its_first_trial_plays_none(trial: Trial) -> None:
    host = Host(HostSetup("", 1, 1))

    async with asyncio.timeout(HANGS_S):
        await host.cancel()
        found = from_json(await host.exchange(to_json([host_job(7, trial(AGENT))])), list[Answer])
        assert host._executor is not None
        await host._here(host._executor.close())

    assert [(answer.number, answer.result and answer.result.status) for answer in found] == [(7, "cancelled")]


@pytest.mark.parametrize("seed", range(5))
async def test_however_hosts_are_lost_every_trial_has_one_result(
    trial: Trial, play: Play, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LOSSES", 100)  # of twenty losses five may meet the same trial
    chance = random.Random(seed)
    cluster = ScriptedCluster(finished, delay_s=0.003)
    executor = HostsExecutor(cluster, 16, 4, chance)

    async def lose() -> None:
        for _ in range(20):
            await asyncio.sleep(chance.uniform(0, 0.02))
            alive: list[ScriptedHost] = [host for host in cluster.hosts if not host.lost]
            if alive:
                chance.choice(alive).lose("killed")

    losing = asyncio.create_task(lose())
    async with asyncio.timeout(HANGS_S):
        results = await play(executor, [trial(AGENT, index) for index in range(600)], 16)
    losing.cancel()
    await executor.close()

    assert sorted(results) == list(range(600))
    assert {result.status for result in results.values()} == {"finished"}
    assert all(result.attempt == 1 + len(result.losses) for result in results.values())


async def test_a_drive_goes_on_while_hosts_are_lost(trial: Trial) -> None:
    cluster = ScriptedCluster(finished, delay_s=0.002)
    executor = HostsExecutor(cluster, 8, 2)
    n = 0

    async for _ in drive((trial(AGENT, index) for index in range(200)), executor, 8):
        n += 1
        if n % 50 == 0:
            cluster.hosts[-1].lose("killed")
    await executor.close()

    assert n == 200


async def test_trials_are_sent_together(trial: Trial) -> None:
    cluster = ScriptedCluster()
    executor = HostsExecutor(cluster, 32, 2)
    async with asyncio.timeout(HANGS_S):
        for index in range(32):
            await executor.submit(trial(AGENT, index))
        await under_way(cluster, 32)
        calls = [host.n_calls for host in cluster.hosts]
        await executor.close()

    assert sum(calls) <= 4


async def test_trials_that_were_not_sent_yet_have_not_been_lost(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_S", 0.1)
    cluster = ScriptedCluster(finished)
    executor = HostsExecutor(cluster, 4, 1)
    async with asyncio.timeout(HANGS_S):
        await executor.submit(trial(AGENT))
        cluster.hosts[0].lose("its node is gone")
        result = await anext(executor.results())
        await executor.close()

    assert (result.status, result.attempt, result.losses, len(cluster.hosts)) == ("finished", 1, (), 2)


async def test_an_answer_that_cannot_be_read_ends_the_trials_of_its_host_in_words(trial: Trial) -> None:
    cluster = ScriptedCluster(finished)
    cluster.breaks = True
    executor = HostsExecutor(cluster, 4, 1)
    async with asyncio.timeout(HANGS_S):
        for index in range(3):
            await executor.submit(trial(AGENT, index))
        results = executor.results()
        found = [await anext(results) for _ in range(3)]
        await executor.close()

    assert {(each.status, each.error.message) for each in found if each.error} == {
        ("errored", "ValueError: not what it should say")
    }


class EndsAll:
    """An executor of a host that ends the trials which a test names, and fails at those below zero."""

    is_cancelled = False

    def __init__(self) -> None:
        self.ended: asyncio.Queue[TrialResult] = asyncio.Queue()

    async def submit(self, spec: TrialSpec) -> None:
        if spec.case_index < 0:
            raise ValueError("no such case")
        if spec.case_index != HELD:
            self.ended.put_nowait(replace(finished(spec), logs="x" * 100))

    async def results(self) -> AsyncIterator[TrialResult]:
        while True:
            yield await self.ended.get()


HELD = 1000


async def answered(host: Host, n: int, *specs: TrialSpec) -> list[list[Answer]]:
    """The answers to calls, until there were `n` results; the first call brings the trials."""
    calls = [
        from_json(await host._exchange(to_json([host_job(spec.case_index, spec) for spec in specs])), list[Answer])
    ]
    while sum(map(len, calls)) < n:
        calls.append(from_json(await host._exchange(b"[]"), list[Answer]))
    return calls


@pytest.fixture
def ends_all() -> Host:
    host = Host(HostSetup("", 1, 8))
    host._executor = EndsAll()  # type: ignore[assignment]
    return host


async def test_a_host_answers_with_those_that_ended_and_waits_for_no_other(trial: Trial, ends_all: Host) -> None:
    reading = asyncio.create_task(ends_all._read(ends_all._open_executor()))
    async with asyncio.timeout(HANGS_S):
        calls = await answered(ends_all, 3, *(trial(AGENT, index) for index in (1, 2, HELD, -3)))
    reading.cancel()

    found = {answer.number: answer for call in calls for answer in call}
    assert {number: answer.error and answer.error.message for number, answer in found.items()} == {
        1: None,
        2: None,
        -3: "ValueError: no such case",
    }


async def test_a_long_answer_is_given_in_parts(trial: Trial, ends_all: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_ANSWER", 1_000)
    reading = asyncio.create_task(ends_all._read(ends_all._open_executor()))
    async with asyncio.timeout(HANGS_S):
        calls = await answered(ends_all, 40, *(trial(AGENT, index) for index in range(40)))
    reading.cancel()

    assert sorted(answer.number for call in calls for answer in call) == list(range(40))
    assert max(map(len, calls)) <= 10


async def test_a_later_call_takes_over_waiting(trial: Trial, ends_all: Host) -> None:
    spec = to_json([host_job(HELD, trial(AGENT, HELD))])
    async with asyncio.timeout(HANGS_S):
        earlier = asyncio.create_task(ends_all._exchange(spec))
        await asyncio.sleep(0)
        later = asyncio.create_task(ends_all._exchange(b"[]"))
        first = await earlier
        is_waiting = not later.done()
        later.cancel()

    assert (first, is_waiting) == (b"[]", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "The actor is dead because its worker process has died. Worker exit detail: Worker unexpectedly exits with "
            "a connection error code 2. There are some potential root causes. (1) The process is killed by SIGKILL by "
            "OOM killer due to high memory usage. (2) ray stop --force is called.",
            "its process is gone",
        ),
        ("Task was killed due to the node running low on memory.", "its node was short of memory"),
        ("The actor died because its node has died.\nNode Id: 1", "its node is gone"),
        ("The actor 1 is unavailable: RpcError: failed to connect to all addresses", "its node does not answer"),
        ("error raised in its creation task, Host.__init__()\n  File\nModuleNotFoundError: x", "it did not start: Mod"),
        ("creation task\nModuleNotFoundError: No module named 'evaldesk'", "Evaldesk is not installed there"),
        ("something else\nmore", "something else"),
    ],
)
def test_what_ray_says_of_a_loss_is_said_in_few_words(text: str, words: str) -> None:
    assert lost_words(text).startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Version mismatch: The cluster was started with:\n    Ray: 2.50.0\nThis process:\n    Ray: 2.60.0",
            "Ray: 2.60.0",
        ),
        ("Could not connect\nmore", "Could not connect"),
    ],
)
def test_why_ray_cannot_be_used_names_both_versions(text: str, words: str) -> None:
    assert connect_words(text).endswith(words)


def test_an_answer_for_another_trial_is_not_taken(trial: Trial) -> None:
    result = check_result(trial(AGENT, 1), finished(trial(AGENT, 2)))

    assert result.error is not None
    assert (result.case_index, result.error.kind) == (1, "wrong_trial")


@pytest.mark.parametrize("is_grading", [False, True])
def test_paths_of_the_driver_become_those_of_the_host(trial: Trial, *, is_grading: bool) -> None:
    own = Criterion("exact", 1.0, {"function": "rewards:exact", "root": "/code/rewards"})
    other = Criterion("other", 1.0, {"function": "rewards:exact", "root": "/code-of-others"})
    spec = trial(AgentRef("a", "a:agent", "/code", "/code/a", python="/usr/bin/python3"))
    whole = GradeSpec(finished(spec), spec.case, (own, other)) if is_grading else spec
    if not is_grading:
        whole = replace(spec, criteria=(own, other))

    found = move_paths(whole, "/code", "/tmp/host")

    assert [each.options["root"] for each in found.criteria] == ["/tmp/host/rewards", "/code-of-others"]
    if isinstance(found, TrialSpec):
        assert (found.agent.root, found.agent.folder, found.agent.python) == ("/tmp/host", "/tmp/host/a", "")
        assert (found.case, found.seed) == (spec.case, spec.seed)


def test_workers_of_a_host_get_what_is_given_and_nothing_of_ray() -> None:
    setup = HostSetup("/code", 1, 1, environment=(("KEY", "secret"),))

    found = environment_of_workers({"PATH": "/bin", "RAY_JOB_ID": "1", "PYTHONPATH": "/x", "KEY": "old"}, setup)

    assert found == {"PATH": "/bin", "KEY": "secret"}
    assert "secret" not in repr(setup)


@pytest.mark.parametrize("is_stuck", [False, True], ids=["the head is there", "the head is gone"])
async def test_a_process_waits_for_ray_at_its_end_unless_it_is_connected(
    monkeypatch: pytest.MonkeyPatch, *, is_stuck: bool
) -> None:
    marks: set[str] = set()
    head_is_back = Event()
    ray = SimpleNamespace(
        is_initialized=lambda: False, init=lambda **_: None, shutdown=head_is_back.wait if is_stuck else lambda: None
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(cluster_module, "CLOSE_S", 0.01 if is_stuck else HANGS_S)
    monkeypatch.setattr(cluster_module, "NOT_WAITED_FOR", marks)
    for name in ("check_reachable", "_keep_off_the_output"):
        monkeypatch.setattr(cluster_module, name, lambda *_: None)
    cluster = RayCluster("127.0.0.1:6379", 1.0, HostSetup("", 1, 1))

    await cluster.connect()
    while_connected = set(marks)
    await cluster.close()
    head_is_back.set()

    assert (while_connected, marks) == ({"ray"}, {"ray"} if is_stuck else set())


async def test_a_head_that_takes_a_connection_and_says_nothing_is_named_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_over = Event()
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: is_over.wait(), shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(cluster_module, "CONNECT_S", 0.01)
    monkeypatch.setattr(cluster_module, "NOT_WAITED_FOR", set())
    for name in ("check_reachable", "_keep_off_the_output"):
        monkeypatch.setattr(cluster_module, name, lambda *_: None)

    with pytest.raises(EvaldeskError, match=r"^Ray at 127\.0\.0\.1:6379 did not answer within 0\.01 s$"):
        await RayCluster("127.0.0.1:6379", 1.0, HostSetup("", 1, 1)).connect()
    is_over.set()

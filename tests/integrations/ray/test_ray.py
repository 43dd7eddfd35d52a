"""Runs on a real cluster of Ray, of two nodes on the loopback: what is lost, kept secret and refused.

Outside of a network namespace there is one test, which plays this file and the contract of executors in one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests import ray_cluster
from tests.desk.runs_by_hand import check_exact
from tests.integrations.ray.hosts import on_ray, run_on_ray
from tests.postgresql_server import ENGINES, place_of
from tests.ray_cluster import INSIDE, LocalCluster, processes_of

from evaldesk import __version__
from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import Executor, drive
from evaldesk.errors import EvaldeskError
from evaldesk.integrations.ray.nodes import look_at
from evaldesk.model import AgentRef, Case, EvalSet, TrialResult, TrialSpec, Turn
from evaldesk.settings import DatabaseUrl, Settings
from evaldesk.store import Store

log = logging.getLogger("torture")
pytestmark = [pytest.mark.anyio, pytest.mark.server]

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

is_inside = bool(os.environ.get(INSIDE))
only_inside = pytest.mark.skipif(not is_inside, reason="played by test_everything_holds_on_a_cluster, in a namespace")
HERE = Path(__file__)
HANGS_S = 400.0
KEY = "k3y-of-a-model-4711"
SLOW = """
    import asyncio, os

    async def agent(message, state):
        await asyncio.sleep(0.02)
        yield f"{os.environ.get('MODEL_KEY')} {os.getpid()}"
"""


def play_inside(tmp_path: Path, *words: str, timeout_s: float) -> None:
    """Play tests in a network namespace of their own; all of them have to pass."""
    reason = ray_cluster.why_not()
    if reason and not os.environ.get(ray_cluster.REQUIRED):
        pytest.skip(reason)
    assert not reason
    files = [str(HERE.parents[2] / "engine/test_executors.py"), str(HERE)]  # the last test of this one leaves no node
    command = [sys.executable, "-m", "pytest", *files, "-p", "no:xdist", "-p", "no:cacheprovider", "-rA", "--tb=short"]
    command += ["--basetemp", str(tmp_path / "inside"), *words]

    done = subprocess.run(
        ray_cluster.inside(*command),
        cwd=HERE.parents[3],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert "passed" in done.stdout


@pytest.mark.skipif(is_inside, reason="this is the namespace")
def test_everything_holds_on_a_cluster(tmp_path: Path) -> None:
    play_inside(tmp_path, "-k", "ray", timeout_s=900)


@pytest.mark.torture
@pytest.mark.skipif(is_inside, reason="this is the namespace")
def test_everything_holds_on_a_cluster_for_long(tmp_path: Path) -> None:
    play_inside(tmp_path, "-m", "torture", "-k", "fifty_rounds", timeout_s=7200)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@only_inside
async def test_keys_reach_the_workers_and_no_file_of_the_cluster(
    cluster: LocalCluster, write_agent: Write, trial: Trial, play: Play, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", KEY)
    monkeypatch.setenv("OTHER_KEY", "0ther-k3y-0815")
    agent = write_agent(SLOW + "        yield str(sorted(os.environ))\n")
    (Path(agent.folder) / ".env").write_text("FROM_FILE=fr0m-a-f1le\n")
    executor = on_ray(cluster.address, root, variables=["MODEL_KEY"])
    try:
        results = await play(executor, [trial(agent, index) for index in range(4)])
    finally:
        await executor.close()

    said = " ".join(event.text for event in results[0].transcript.turns[0].events if event.kind == "agent_message")
    assert results[0].status == "finished", results[0].error
    assert "MODEL_KEY" in said
    assert "OTHER_KEY" not in said
    found = {str(path) for path, text in cluster.log_texts() for word in (KEY, "fr0m-a-f1le") if word.encode() in text}
    assert found == set()


HELD = """
    import asyncio, os
    from pathlib import Path

    async def agent(message, state):
        if message == "hold":
            with Path("PLACE", "held").open("a") as held:
                held.write(f"{os.getppid()}\\n")
            while not Path("PLACE", "go").exists():
                await asyncio.sleep(0.05)
        yield message
"""


async def played_with_a_loss(
    executor: Executor, agent: AgentRef, trial: Trial, root: Path, lose: Callable[[list[int]], None]
) -> dict[int, TrialResult]:
    """The results of twelve trials. Both hosts have two of the first four when `lose` gets the processes of the hosts.

    These four go on when the executor has seen that a host is lost.
    """
    specs = [trial(agent, index, ("hold" if index < 4 else "hello",)) for index in range(12)]
    held = root / "held"
    results: dict[int, TrialResult] = {}

    async def play() -> None:
        async for result in drive(specs, executor, 4):
            assert result.case_index not in results
            results[result.case_index] = result

    async with asyncio.timeout(HANGS_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(play())
        while not held.exists() or len(held.read_text().split()) < 4:
            await asyncio.sleep(0.05)
        lose([int(pid) for pid in held.read_text().split()])
        while not any(place.note for place in executor.places):
            await asyncio.sleep(0.05)
        (root / "go").touch()
    return results


def check_loss(results: dict[int, TrialResult]) -> None:
    assert sorted(results) == list(range(12))
    assert {result.status for result in results.values()} == {"finished"}
    assert all(result.place for result in results.values())
    again = [result for result in results.values() if result.losses]
    assert len(again) == 2
    assert {result.case_index for result in again} <= {0, 1, 2, 3}
    assert all((result.attempt, " was lost: " in result.losses[0]) == (2, True) for result in again)


@only_inside
async def test_no_trial_is_lost_or_doubled_when_a_host_is_killed(
    cluster: LocalCluster, write_agent: Write, trial: Trial, root: Path
) -> None:
    agent = write_agent(HELD.replace("PLACE", str(root)))
    executor = on_ray(cluster.address, root)
    try:
        results = await played_with_a_loss(
            executor, agent, trial, root, lambda hosts: os.kill(hosts[0], signal.SIGKILL)
        )
    finally:
        await executor.close()

    check_loss(results)


@only_inside
async def test_a_worker_that_is_killed_on_ray_is_replaced_as_on_one_machine(
    cluster: LocalCluster, write_agent: Write, trial: Trial, play: Play, root: Path
) -> None:
    agent = write_agent(
        "import os\n\ndef agent(message):\n    if message == 'die':\n        os._exit(7)\n    return message\n"
    )
    executor = on_ray(cluster.address, root)
    try:
        async with asyncio.timeout(HANGS_S):
            results = await play(
                executor, [trial(agent, index, ("die" if index == 3 else "hello",)) for index in range(12)]
            )
    finally:
        await executor.close()

    error = results.pop(3).error
    assert error is not None
    assert (error.kind, error.message) == ("worker_died", "the worker process ended with exit code 7")
    assert {result.status for result in results.values()} == {"finished"}


@only_inside
async def test_every_node_tells_its_versions_before_anything_is_played(cluster: LocalCluster) -> None:
    n = 1 + cluster.n_nodes
    async with asyncio.timeout(HANGS_S):
        words, nodes = await look_at(cluster.address)
        while f", {n} of {n} " not in words:  # a run that ended gives its CPUs back
            words, nodes = await look_at(cluster.address)

    assert words == f"{n} nodes, {n} of {n} CPUs free"
    assert [node.words[:6] for node in nodes] == ["1 CPU,"] * n
    assert all(f"Evaldesk {__version__}, Ray " in node.words for node in nodes)
    assert {node.trouble for node in nodes} == {""}


@only_inside
async def test_a_cluster_that_is_not_there_is_refused_in_words(trial: Trial, root: Path) -> None:
    executor = on_ray("127.0.0.1:1", root)

    with pytest.raises(EvaldeskError, match=r"Ray at 127\.0\.0\.1:1 cannot be used: .*refused"):
        await executor.submit(trial(run_on_ray("", root).agent))
    await executor.close()


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | DatabaseUrl:
    return place_of(request, tmp_path / "evaldesk.db")


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[LocalCluster]:
    with ray_cluster.local_cluster(2) as found:
        yield found


@pytest.mark.torture
@only_inside
async def test_no_trial_is_lost_or_doubled_over_fifty_rounds_of_stored_runs(
    three_nodes: LocalCluster, write_agent: Write, root: Path, place: Path | DatabaseUrl
) -> None:
    agent = write_agent(SLOW)
    cases = tuple(Case(f"case {index}", (Turn("hello"),)) for index in range(20))
    n_again = 0
    with Store.open(place) as store:
        desk = RunDesk(Settings(root, ()), store, open_executor=lambda _: on_ray(three_nodes.address, root))
        try:
            for round_ in range(int(os.environ.get("EVALDESK_TORTURE_ROUNDS", "50"))):
                plan = desk.plan_for(
                    RunSubject(agent, EvalSet("set", cases=cases), "set"), RunOptions(n=10, concurrency=8)
                )
                run_id = await desk.start(plan)
                async with asyncio.timeout(1200):
                    await lose_often(three_nodes, random.Random(round_), store, run_id)
                    async for _ in desk.watch(run_id):
                        pass
                check_exact(store, run_id)
                seen = store.runs.summary(run_id)
                assert (seen.status, seen.counts.done) == ("finished", 200)
                kinds = {group.kind for group in store.runs.error_groups(run_id)}
                assert kinds <= {"worker_died"}  # a worker killed with one trial, as on one machine
                n_again += seen.n_played_again
        finally:
            await desk.close()
    log.info("%s: %d trials played again", type(place).__name__, n_again)
    assert n_again


async def lose_often(cluster: LocalCluster, chance: random.Random, store: Store, run_id: int) -> None:
    """Kill something of the run three times, each time when more of its trials have ended than the time before.

    A trial that is lost three times is played a fourth time: none is given up.
    """
    for n_done in sorted(chance.sample(range(1, 180), 3)):
        while (seen := store.runs.summary(run_id)).counts.done < n_done:
            assert seen.status not in ("stopped", "failed"), seen.reason
            await asyncio.sleep(0.05)
        kind = chance.random()
        if kind < 0.1:
            cluster.replace_node()  # a node is made in the main thread alone
        else:
            while not (found := processes_of("ray::Host" if kind < 0.6 else "evaldesk.engine.worker.main")):
                await asyncio.sleep(0.05)
            os.kill(chance.choice(found), signal.SIGKILL)


@only_inside
async def test_no_trial_is_lost_or_doubled_when_a_node_dies(
    cluster: LocalCluster, write_agent: Write, trial: Trial, root: Path
) -> None:
    agent = write_agent(HELD.replace("PLACE", str(root)))
    executor = on_ray(cluster.address, root, cpus_per_host=1.0)  # so that each node has one of the hosts
    try:
        results = await played_with_a_loss(executor, agent, trial, root, lambda _: cluster.lose_node())
    finally:
        await executor.close()

    check_loss(results)


IMPATIENT = """
from evaldesk.cli import main
from evaldesk.integrations.ray import executor
executor.NO_HOST_S = 3.0
main()
"""
HOLDS = """
    import asyncio
    from pathlib import Path

    async def agent(message, state):
        with Path("PLACE", "played").open("a") as played:
            played.write("one\\n")
        while Path("PLACE", "played").read_text().count("one") > 12 and not Path("PLACE", "go").exists():
            await asyncio.sleep(0.05)
        yield f"you said {message}"
"""


def write_case(root: Path) -> None:
    case = {"user_content": {"parts": [{"text": "hi"}]}, "final_response": {"parts": [{"text": "you said hi"}]}}
    sets = {"eval_set_id": "small", "eval_cases": [{"eval_id": "a", "conversation": [case]}]}
    (root / "small.evalset.json").write_text(json.dumps(sets))


@only_inside
def test_a_run_whose_head_node_dies_is_stopped_in_words_and_resumed_on_another_cluster(
    cluster: LocalCluster, write_agent: Write, root: Path
) -> None:
    agent = write_agent(HOLDS.replace("PLACE", str(root)))
    (root / "evaldesk.toml").write_text('[executors.cluster]\nkind = "ray"\naddress = "auto"\ncpus_per_host = 0.5\n')
    write_case(root)
    words = ["eval", agent.target, str(root / "small.evalset.json"), "--n", "30", "--concurrency", "4"]
    words += ["--on", "cluster", "--quiet"]

    def begun(address: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, *words, "--workspace", str(root)]
        environment = os.environ | {"RAY_ADDRESS": address}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=agent.folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    (root / ".evaldesk").mkdir()
    playing = begun(cluster.address, "-c", IMPATIENT, *words)
    with Store.open(root / ".evaldesk" / "evaldesk.db") as store:
        wait_until(lambda: (root / "played").exists() and store.runs.summary(1).counts.done >= 8)
        cluster.lose_head()
        with ray_cluster.local_cluster(0) as other:
            said, _ = playing.communicate(timeout=HANGS_S)
            stopped = store.runs.summary(1)
            (root / "go").touch()
            resuming = begun(other.address, "-m", "evaldesk", "run", "resume", "1")
            resuming.communicate(timeout=HANGS_S)
        summary = store.runs.summary(1)
        places = {store.runs.trial(1, 0, index).place for index in range(30)}

    assert "(raylet)" not in said
    assert "no host was up for 3 s: " in said
    assert "Resume the run later." in said
    assert (stopped.status, "no host was up for 3 s: " in stopped.reason) == ("stopped", True)
    assert 8 <= stopped.counts.done < 30
    assert (resuming.returncode, summary.status, summary.n_passed) == (0, "finished", 30)
    assert summary.config.executor.name == "cluster"
    assert places <= {place.name for place in summary.places}
    assert {place.kind for place in summary.places} == {"host"}


def wait_until(is_so: Callable[[], bool], within_s: float = HANGS_S) -> None:
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)

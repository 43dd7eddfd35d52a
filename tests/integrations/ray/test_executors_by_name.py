"""Executors of evaldesk.toml: named at every door, refused in words, and never opened by the server of a desk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.desk.runs_by_hand import HandExecutor, OpenDesk, over, subject
from tests.integrations.ray.hosts import ScriptedCluster, finished

import evaldesk
from evaldesk.agents import agent_ref
from evaldesk.desk.runs import case_player, handover, runs
from evaldesk.desk.runs.case_player import CasePlayer
from evaldesk.desk.runs.plan import RunOptions, with_executor
from evaldesk.desk.runs.runs import WAITING, RunDesk
from evaldesk.desk.trust import Trust
from evaldesk.engine import Executor
from evaldesk.engine.executors import EXECUTORS, OWN_VARIABLES, check_executor, has_own_driver, kind_of
from evaldesk.errors import ConflictError, EvaldeskError, TrustError, UsageError
from evaldesk.integrations.ray import executor as ray_executor
from evaldesk.integrations.ray import kind as ray_kind
from evaldesk.integrations.ray.executor import HostsExecutor
from evaldesk.integrations.ray.kind import RayOptions, given_variables
from evaldesk.model import AgentRef, Case, Container, Criterion, Expected, RunConfig, TrialResult, TrialSpec, Turn
from evaldesk.model.options import Recording
from evaldesk.model.run import ExecutorConfig
from evaldesk.pages.runs.facts import played_in
from evaldesk.settings import Settings, read_settings
from evaldesk.store import Store

CLUSTER = ExecutorConfig("cluster", "ray", {"address": "10.0.0.4:6379", "hosts": 3})
ON_RAY = RunConfig(AgentRef("echo", "echo:agent", "/code", "/code/echo"), "set", executor=CLUSTER)


@pytest.fixture(autouse=True)
def _ray_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_kind, "is_installed", lambda _: True)


def settings_of(tmp_path: Path, toml: str) -> Settings:
    (tmp_path / "evaldesk.toml").write_text(toml)
    return read_settings(tmp_path, (), environment={})


# Settings


def test_a_workspace_names_its_executors(tmp_path: Path) -> None:
    found = settings_of(tmp_path, '[executors.cluster]\nkind = "ray"\nhosts = 3\n[executors.here]\nkind = "local"\n')

    assert found.executors == {
        "cluster": ExecutorConfig("cluster", "ray", {"hosts": 3}),
        "here": ExecutorConfig("here", "local"),
    }


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("executors = 1", "executors are tables such as [executors.cluster]"),
        ("[executors.cluster]\nhosts = 3", "[executors.cluster] has a kind"),
        ("runs_at_once = 0", "runs_at_once is a whole number, 1 to 64, not 0"),
        ("runs_at_once = true", "runs_at_once is a whole number, 1 to 64, not True"),
        ('[executors."a b"]\nkind = "ray"', "a name has letters, digits, _ and -"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, toml: str, said: str) -> None:
    with pytest.raises(UsageError) as refusal:
        settings_of(tmp_path, toml)

    assert said in str(refusal.value)


# What cannot be played there


@pytest.mark.parametrize("name", [*EXECUTORS])
def test_every_kind_says_where_it_plays(name: str) -> None:
    assert kind_of(ExecutorConfig("x", name)).words(ExecutorConfig("x", name))


def test_a_name_that_is_not_in_the_settings_is_refused_with_the_nearest() -> None:
    asked = replace(ON_RAY, executor=ExecutorConfig("clusters"))

    with pytest.raises(UsageError, match="no executor named 'clusters'; did you mean 'cluster'") as refusal:
        with_executor(asked, {"cluster": CLUSTER})

    assert refusal.value.field == "on"


def with_options(**options: Any) -> RunConfig:
    return replace(ON_RAY, executor=replace(CLUSTER, options=options))


FUNCTION = Criterion("exact", 1.0, {"function": "rewards:exact", "root": "/elsewhere"})


@pytest.mark.parametrize(
    ("config", "field", "said"),
    [
        (with_options(adress="x"), "on", "[executors.cluster]: unknown key 'adress'; known keys: kind, address, hosts"),
        (with_options(hosts="3"), "on", "[executors.cluster]: Expected `int`, got `str`"),
        (with_options(hosts=0), "on", "hosts must be 1 to 10000, not 0"),
        (with_options(address="ray://10.0.0.4:10001"), "on", "loses its actors when it breaks"),
        (with_options(variables=["NO_SUCH_VARIABLE"]), "on", "variables: NO_SUCH_VARIABLE is not set here"),
        (replace(ON_RAY, recording=Recording("record")), "recording", "recordings are in a folder of this machine"),
        (
            replace(ON_RAY, agent=replace(ON_RAY.agent, container=Container("shop:7"))),
            "image",
            "hosts start no containers",
        ),
        (replace(ON_RAY, agent=AgentRef("c", "cmd", kind="command")), "on", "needs files of this machine"),
        (replace(ON_RAY, criteria=(FUNCTION,)), "on", "exact is in /elsewhere, and hosts get the files of /code alone"),
        (replace(ON_RAY, executor=ExecutorConfig("x", "rey")), "on", "kind is one of local, ray, not 'rey'"),
        (
            replace(ON_RAY, executor=ExecutorConfig("x", "os:getcwd")),
            "on",
            "kind is one of local, ray, not 'os:getcwd'",
        ),
        (replace(ON_RAY, executor=ExecutorConfig("x", "local", {"a": 1})), "on", "[executors.x]: unknown key 'a'"),
        (RunConfig(AgentRef("a", "a:b"), "set", concurrency=501), "concurrency", "plays at most 500, not 501"),
    ],
)
def test_what_an_executor_cannot_play_is_refused_before_anything_is_spent(
    config: RunConfig, field: str, said: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        check_executor(config)

    assert said in str(refusal.value)
    assert refusal.value.field == field


def test_a_cluster_takes_more_trials_at_once_than_one_machine() -> None:
    check_executor(replace(ON_RAY, concurrency=10_000))


def test_facts_of_a_run_say_where_it_is_played() -> None:
    assert played_in(ON_RAY) == "Ray (10.0.0.4:6379), 3 hosts, in processes that trials share"
    assert played_in(replace(ON_RAY, executor=ExecutorConfig("x", "gone"))).startswith("x (gone)")
    assert played_in(replace(ON_RAY, executor=ExecutorConfig())).startswith("this machine, in processes")


def test_without_ray_the_refusal_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_kind, "is_installed", lambda _: False)

    with pytest.raises(UsageError, match=r"pip install 'evaldesk\[ray\]'"):
        check_executor(ON_RAY)


def test_hosts_get_named_variables_those_of_the_run_file_and_of_the_agents_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_FILE=f\nBOTH=file\n")
    config = replace(ON_RAY, agent=replace(ON_RAY.agent, folder=str(tmp_path)))
    environment = {"KEY": "k", "BOTH": "shell", "AWS_SECRET": "s", OWN_VARIABLES: "MINE", "MINE": "m"}

    found = given_variables(config, RayOptions(variables=("KEY", "BOTH", "ABSENT")), environment)

    assert found == {"KEY": "k", "BOTH": "shell", "MINE": "m", "FROM_FILE": "f"}


def test_an_agent_object_stays_in_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings_of(tmp_path, '[executors.here]\nkind = "local"\n')

    with pytest.raises(UsageError, match="on = 'here' is for an agent that is named; an object stays in this process"):
        evaldesk.evaluate(lambda message: message, [Case("a", (Turn("hi"),))], on="here")


def test_a_bench_of_pytest_plays_on_the_executor_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    (tmp_path / "agent.py").write_text("def agent(message):\n    return message\n")

    def open_one(config: RunConfig, open_local: Callable[[RunConfig], Executor], _: Mapping[str, str]) -> Executor:
        opened.append(config.executor.name)
        return open_local(config)

    monkeypatch.setattr(case_player, "open_executor", open_one)
    settings = settings_of(tmp_path, '[executors.here]\nkind = "local"\n')
    player = CasePlayer(agent_ref(str(tmp_path)), settings, concurrency=2)
    try:
        result = player.play(Case("a", (Turn("hi", Expected(reference="hi")),)), RunOptions(on="here", n=2))
        with pytest.raises(UsageError, match="no executor named 'there'"):
            player.play(Case("a", (Turn("hi"),)), RunOptions(on="there"))
    finally:
        player.close()

    assert (opened, [trial.status for trial in result.trials]) == (["here"], ["finished", "finished"])


def test_a_bench_of_pytest_refuses_a_place_as_every_other_door_does(tmp_path: Path) -> None:
    agent = AgentRef("a", "agent:agent", root=str(tmp_path), folder=str(tmp_path), container=Container("shop:7"))
    player = CasePlayer(agent, settings_of(tmp_path, 'recording = "record"\n'), concurrency=1)
    try:
        with pytest.raises(UsageError, match="needs a folder of this machine"):
            player.play(Case("a", (Turn("hi"),)), RunOptions())
    finally:
        player.close()


# A cluster whose head dies


class DyingCluster(ScriptedCluster):
    """Plays two trials; with the third its last node is gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(self._play)
        self.n_played = 0
        self._monkeypatch = monkeypatch

    def _play(self, spec: TrialSpec) -> TrialResult:
        self.n_played += 1
        if self.n_played > 2:
            self._monkeypatch.setattr(ray_executor, "NO_HOST_S", 0.05)  # not before: hosts come late to a busy machine
            self.no_room = "the head node is gone"
            self.hosts[-1].lose("its node is gone")
        return finished(spec)


@pytest.fixture
def _one_dying_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.py").write_text("def agent(message):\n    return message\n")
    (tmp_path / "evaldesk.toml").write_text('[executors.here]\nkind = "local"\n')
    for module in (runs, case_player):
        monkeypatch.setattr(module, "open_executor", lambda *_: HostsExecutor(DyingCluster(monkeypatch), 1, 1))


@pytest.mark.anyio
@pytest.mark.usefixtures("_one_dying_cluster")
async def test_an_evaluation_whose_cluster_dies_says_so_and_its_run_goes_on_later(tmp_path: Path) -> None:
    cases = [Case(f"c{index}", (Turn("hi"),)) for index in range(4)]

    result = await evaldesk.evaluate_async(str(tmp_path), cases, on="here", concurrency=1, workspace=tmp_path)

    assert (result.status, [trial.verdict for case in result.cases for trial in case]) == ("stopped", ["passed"] * 2)
    assert "no host was up for" in result.reason
    assert not result.conclusion.is_passed

    settings = read_settings(tmp_path, (), environment={})
    with Store.open(settings.database) as store:  # another process, once there is a cluster again
        desk = RunDesk(settings, store, open_executor=lambda _: HostsExecutor(ScriptedCluster(finished), 1, 1))
        await desk.resume(result.id)
        seen = await over(desk, result.id)
        await desk.close()
    assert (seen.status, seen.n_passed, seen.n_done) == ("finished", 4, 4)


@pytest.mark.usefixtures("_one_dying_cluster")
def test_a_case_of_pytest_whose_cluster_died_fails_with_the_reason(tmp_path: Path) -> None:
    player = CasePlayer(agent_ref(str(tmp_path)), read_settings(tmp_path, (), environment={}), concurrency=1)
    case, options = Case("a", (Turn("hi"),)), RunOptions(on="here")
    try:
        played = [player.play(case, options).trials[0].verdict for _ in range(2)]
        for _ in range(2):  # the next case does not wait for a host again
            with pytest.raises(EvaldeskError, match="no host was up for"):
                player.play(case, options)
    finally:
        player.close()

    assert played == ["passed", "passed"]


def test_a_run_file_names_its_own_variables_to_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Mapping[str, str]] = []
    monkeypatch.setattr(
        handover, "start_driver", lambda settings, run_id, digest, environment: started.append(environment)
    )

    assert handover.hand_over(Settings(tmp_path, ()), 7, "", environment={"MODEL_KEY": "k", "MODE": "m"}) == "driver"

    assert started[0][OWN_VARIABLES].split() == ["MODEL_KEY", "MODE"]
    assert (started[0]["MODEL_KEY"], started[0]["PATH"]) == ("k", os.environ["PATH"])


def test_settings_of_others_do_not_say_where_code_is_sent(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '[executors.cluster]\nkind = "ray"\n')
    trust = Trust(settings, {"HOME": str(tmp_path / "home")})

    with pytest.raises(TrustError, match=r"says where \[executors.cluster\] is, and the agent echo is from elsewhere"):
        trust.check_executor(ON_RAY)
    trust.check_executor(replace(ON_RAY, executor=ExecutorConfig()))
    Trust(settings, {"EVALDESK_TRUST": "1"}).check_executor(ON_RAY)


# A process of its own


@pytest.fixture
def handed() -> list[int]:
    return []


@pytest.fixture
def server(open_desk: OpenDesk, handed: list[int]) -> RunDesk:
    """The desk of a server, which gives some runs to processes of their own."""
    desk = open_desk(HandExecutor(["passed"]), HandExecutor(["passed"]))
    desk._settings = replace(desk._settings, executors={"cluster": CLUSTER})
    desk.hand_over = lambda run_id, _digest: handed.append(run_id)
    return desk


@pytest.mark.anyio
async def test_a_server_never_opens_a_cluster(
    server: RunDesk, store: Store, handed: list[int], open_desk: OpenDesk
) -> None:
    run_id = await server.start(server.plan_for(subject(2), RunOptions(on="cluster")))

    seen = store.runs.summary(run_id)
    assert (handed, seen.driver, seen.status, server._playing) == ([run_id], WAITING, "pending", {})
    assert seen.config.executor == CLUSTER
    await server._handle_requests(takes_up=True)
    assert handed == [run_id]  # its process comes: it is not started twice
    driver = open_desk(HandExecutor(["passed"]))
    await driver.resume(run_id)
    assert (await over(driver, run_id)).status == "finished"


@pytest.mark.anyio
async def test_a_server_gives_a_run_of_a_dead_process_to_another_one(
    server: RunDesk, store: Store, handed: list[int], open_desk: OpenDesk
) -> None:
    plan = server.plan_for(subject(2), RunOptions(on="cluster"))
    run_id = store.runs.create(plan.config, plan.cases, "17 nowhere 5@0badcafe")
    with store.runs._database.writing() as connection:
        connection.exec_driver_sql("UPDATE run SET leased_until = 0")

    await server._handle_requests(takes_up=True)

    seen = store.runs.summary(run_id)
    assert (handed, seen.driver, seen.lease) == ([run_id], WAITING, 2)
    driver = open_desk(HandExecutor(["passed"]))
    await driver.resume(run_id)
    assert (await over(driver, run_id)).reason.startswith("Taken over from nowhere, which was lost")
    with pytest.raises(ConflictError):
        await server._take_up(replace(seen, lease=1))


@pytest.mark.anyio
async def test_a_run_that_was_stopped_on_a_cluster_is_resumed_there(
    server: RunDesk, store: Store, handed: list[int]
) -> None:
    plan = server.plan_for(subject(2), RunOptions(on="cluster"))
    run_id = store.runs.create(plan.config, plan.cases)
    store.runs.set_status(run_id, "stopped", "no host was up for 60 s.")

    await server.resume(run_id)

    assert (handed, store.runs.summary(run_id).driver) == ([run_id], WAITING)


@pytest.mark.anyio
async def test_an_executor_that_gives_up_stops_the_run_with_its_reason(open_desk: OpenDesk, store: Store) -> None:
    executor = HandExecutor()
    desk = open_desk(executor)
    run_id = await desk.start(desk.plan_for(subject(3), RunOptions(concurrency=3)))
    await executor.holds(3)

    executor.end()
    executor.end_reason = "no host was up for 60 s."
    await executor.cancel()
    summary = await over(desk, run_id)

    assert (summary.status, summary.reason, summary.n_todo) == (
        "stopped",
        f"{executor.end_reason} Resume the run later.",
        2,
    )


def test_a_kind_that_is_gone_plays_in_this_process_and_says_so() -> None:
    assert not has_own_driver(ExecutorConfig("x", "gone"))


@pytest.mark.server
def test_a_command_and_a_desk_import_no_ray_no_psycopg_and_no_player(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('[executors.cluster]\nkind = "ray"\n')
    program = (
        "import sys; import evaldesk.cli.eval.adk, evaldesk.desk.desk, evaldesk.desk.runs.runs\n"
        "of_players = ('agents.loading', 'agents.spans', 'engine.worker.player', 'llm.client', 'llm.loop')\n"
        "assert not {f'evaldesk.{each}' for each in of_players} & sys.modules.keys()\n"
        "import evaldesk.web.server\n"
        "from evaldesk.engine.executors import EXECUTORS, OWN_VARIABLES, kind_of\n"
        "from evaldesk.model.run import ExecutorConfig\n"
        "[kind_of(ExecutorConfig('x', each)) for each in EXECUTORS]\n"
        "assert not {'ray', 'psycopg'} & sys.modules.keys()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


class Unreachable(HandExecutor):
    """A cluster that cannot be reached."""

    async def submit(self, spec: object) -> None:
        raise EvaldeskError("Ray at head:6379 cannot be used: refused")


@pytest.mark.anyio
@pytest.mark.parametrize(("n_played", "status"), [(1, "stopped"), (0, "failed")], ids=["resumed", "new"])
async def test_a_run_whose_cluster_is_away_keeps_what_was_played_and_can_be_resumed(
    server: RunDesk, open_desk: OpenDesk, store: Store, n_played: int, status: str
) -> None:
    plan = server.plan_for(subject(2), RunOptions(on="cluster"))
    run_id = store.runs.create(plan.config, plan.cases)
    store.runs.record([TrialResult(run_id, index, 0, "finished", "passed") for index in range(n_played)])
    store.runs.set_status(run_id, "stopped", "no host was up for 60 s.")
    driver = open_desk(Unreachable())

    await driver.resume(run_id)
    summary = await over(driver, run_id)

    assert (summary.status, summary.n_passed, summary.n_todo) == (status, n_played, 2 - n_played)
    assert "Ray at head:6379 cannot be used: refused" in summary.reason

"""The commands of a benchmark's script in containers: what they see, what they share, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import fake_docker
from tests.virtual_environments import make_environment

from evaldesk.agents.workspaces import open_workspace
from evaldesk.errors import AgentError, UsageError
from evaldesk.integrations.openhands.kit import trial
from evaldesk.integrations.openhands.kit.config import OpenHandsConfig
from evaldesk.integrations.openhands.kit.events import (
    CmdOutputObservation,
    CmdRunAction,
    ErrorObservation,
    FileEditAction,
    FileReadAction,
    FileReadObservation,
    FileWriteAction,
    IPythonRunCellAction,
)
from evaldesk.integrations.openhands.kit.runtime import Runtime
from evaldesk.model import Container
from evaldesk.model.run import EACH_IMAGE
from evaldesk.process_setup import RESOURCE_ATTRIBUTES, with_played

Open = Callable[..., Runtime]


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a docker with the images shop:7, in which `pricing` is installed, and shop:8."""
    fake_docker.need_namespaces()
    place = tmp_path_factory.mktemp("docker")
    fake_docker.install(place)
    for name, version in (("shop_7", "1.4.0"), ("shop_8", "2.0.0")):
        make_environment(place / "images" / name, pricing=version)
    return place


@pytest.fixture
def opened(docker: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a runtime whose commands run in a container; none is left in the end."""
    monkeypatch.setenv("PATH", f"{docker / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SHOP_KEY", "given")
    monkeypatch.setenv("SHOP_SECRET", "kept")
    workspace = open_workspace(os.environ)
    workspace.write("given.txt", "of the row")
    found: list[Runtime] = []
    said: list[str] = []

    def make(container: Container, image: str | None = None) -> Runtime:
        trial.begin_trial(trial.InstanceTrial(workspace, None, said.append, commands=container))
        config = OpenHandsConfig()
        config.sandbox.base_container_image = image
        found.append(Runtime(config))
        asyncio.run(found[-1].connect())
        assert (
            said[-1] == f"commands run in a container of {image or container.image}: no network, 1 CPU, 2,048 MiB, "
            "512 processes"
        )
        return found[-1]

    yield make
    for each in found:
        each.close()
    workspace.close()
    trial._current.clear()
    assert not list((docker / "running").iterdir())


def run(runtime: Runtime, command: str) -> CmdOutputObservation:
    observed = runtime.run_action(CmdRunAction(command))
    assert isinstance(observed, CmdOutputObservation)
    return observed


def text(observed: object) -> str:
    assert isinstance(observed, FileReadObservation), observed
    return observed.content


def test_commands_see_only_the_files_of_the_image(opened: Open, docker: Path) -> None:
    log = docker / "log"
    n_before = len(log.read_text().splitlines()) if log.exists() else 0
    runtime = opened(Container("shop:7", variables=("SHOP_KEY", "SHOP_ABSENT")))

    assert run(runtime, "python3 -c 'import pricing; print(pricing.VERSION)'").content == "1.4.0\n"
    assert run(runtime, "pwd; cat given.txt").content == "/workspace\nof the row"
    assert "SHOP_KEY=given" in run(runtime, "env").content
    assert "SHOP_SECRET" not in run(runtime, "env").content
    assert run(runtime, "ls /tmp").content == ""
    assert run(runtime, "(exec 3<>/dev/udp/192.0.2.1/9) 2>&1").exit_code == 1
    own = map(json.loads, log.read_text().splitlines()[n_before:])
    [started] = [words for words in own if words[0] == "run"]
    assert started[started.index("--network") + 1] == "none"
    assert started[started.index("--pids-limit") + 1] == "512"
    assert "ALL" in started
    assert not any(word.startswith("type=bind") for word in started)
    assert "given" not in (docker / "log").read_text().replace("given.txt", "")


def test_folder_variables_and_files_last_from_command_to_command(opened: Open) -> None:
    runtime = opened(Container("shop:7"))
    runtime.add_env_vars({"GIVEN": "by the script"})
    run(runtime, "mkdir -p deep && cd deep && export WHO=me")

    assert run(runtime, "pwd; echo $WHO; echo $GIVEN").content == "/workspace/deep\nme\nby the script\n"
    assert run(runtime, "exit 3").exit_code == 3
    assert runtime.run_action(IPythonRunCellAction("print(open('../given.txt').read())")).content == "of the row\n"


@pytest.mark.parametrize("own", ["", "service.name=shop%20desk,", "evaldesk.played=1,service.name=shop"])
def test_programs_among_the_commands_are_marked_as_played(
    own: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RESOURCE_ATTRIBUTES, own)
    runtime = opened(Container("shop:7", variables=(RESOURCE_ATTRIBUTES,)))

    for _ in range(2):
        assert run(runtime, f"sh -c 'echo ${RESOURCE_ATTRIBUTES}'").content == f"{with_played(own)}\n"


def test_files_are_those_of_the_container(opened: Open, tmp_path: Path) -> None:
    runtime = opened(Container("shop:7"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "it's a test.py").write_text("x = 1\n")
    runtime.copy_to(str(tmp_path / "tests"), "/swe_util/eval", recursive=True)
    runtime.copy_to(str(tmp_path / "tests" / "it's a test.py"), "/workspace/renamed.py")
    runtime.run_action(FileWriteAction("/testbed/a.py", "one\ntwo\n"))
    runtime.run_action(FileEditAction("/testbed/a.py", "str_replace", None, "two", "three"))

    assert text(runtime.run_action(FileReadAction("/testbed/a.py"))) == "one\nthree\n"
    assert run(runtime, "cat renamed.py '/swe_util/eval/tests/it'\"'\"'s a test.py'").content == "x = 1\nx = 1\n"
    assert runtime.list_files() == ["given.txt", "renamed.py"]
    assert runtime.list_files("/swe_util/eval") == ["tests/"]
    assert runtime.copy_from("/workspace/renamed.py").read_text() == "x = 1\n"
    with zipfile.ZipFile(runtime.copy_from("/swe_util")) as archive:
        assert archive.namelist() == ["eval/tests/it's a test.py"]
    missing = runtime.run_action(FileReadAction("-n"))
    assert isinstance(missing, ErrorObservation)
    assert "No such file" in missing.content
    assert not Path("/testbed").exists()


def test_a_link_in_a_container_copies_no_file_of_this_machine(opened: Open, tmp_path: Path) -> None:
    runtime = opened(Container("shop:7"))
    (tmp_path / "secret").write_text("of this machine")
    run(runtime, f"mkdir out && ln -s {tmp_path}/secret out/link && ln -s /etc out/folder && echo x > out/kept")

    with zipfile.ZipFile(runtime.copy_from("/workspace/out")) as archive:
        assert archive.namelist() == ["kept"]
    with pytest.raises(OSError, match="No such file"):
        runtime.copy_from("/workspace/out/link")


def test_a_command_that_takes_too_long_is_killed_where_it_runs(opened: Open) -> None:
    runtime = opened(Container("shop:7"))
    late = CmdRunAction("sleep 300 & sleep 301")
    late.set_hard_timeout(0.5)

    observed = runtime.run_action(late)

    assert "killed at its time limit" in observed.content
    assert "sleep" not in run(runtime, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 30[01]'").content


def test_each_instance_names_its_image(opened: Open) -> None:
    versions = [
        run(opened(Container(EACH_IMAGE), image), "python3 -c 'import pricing; print(pricing.VERSION)'").content.strip()
        for image in ("shop:7", "shop:8")
    ]

    assert versions == ["1.4.0", "2.0.0"]


@pytest.mark.parametrize(
    ("image", "kind", "problem"),
    [
        (None, UsageError, "the benchmark names no image: set sandbox.base_container_image"),
        ("--privileged", UsageError, "image = '--privileged' is not the name of an image"),
        ("shop:9", AgentError, "a container of shop:9 for the commands did not start: Unable to find image 'shop:9'"),
    ],
)
def test_an_invalid_image_is_an_error_of_its_instance(
    docker: Path, monkeypatch: pytest.MonkeyPatch, image: str | None, kind: type[Exception], problem: str
) -> None:
    monkeypatch.setenv("PATH", f"{docker / 'bin'}{os.pathsep}{os.environ['PATH']}")
    workspace = open_workspace(os.environ)
    trial.begin_trial(trial.InstanceTrial(workspace, None, print, commands=Container(EACH_IMAGE)))
    config = OpenHandsConfig()
    config.sandbox.base_container_image = image
    try:
        with pytest.raises(kind, match=problem):
            Runtime(config)
    finally:
        workspace.close()
        trial._current.clear()

"""Islands: the folder of a tool can be removed, and nothing but its own tests and rows goes with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.islands import TOOLS, of_all_tools

ROOT = Path(__file__).resolve().parents[1]
ISLANDS = sorted(each.parent.name for each in (ROOT / "app/evaldesk/integrations").glob("*/__init__.py"))
OWN_TESTS = ROOT / "tests/integrations"
NAMED = re.compile(r"(?:evaldesk|tests)[./]integrations[./](\w+)")
# They look whether the folder is there before they name it. A test of all tools asks `tests/islands.py` for a module.
NAMED_WHERE_PRESENT = {"engine/test_executors.py", "forked_python.py", "ray_cluster.py", "test_real_files.py"}
# Each island, and all at once, is hidden in a fork that imports our modules anew; those of other packages stay.
HIDDEN = """
import os, sys
from importlib.abc import MetaPathFinder

import evaldesk.cli, evaldesk.formats.files, evaldesk.engine.executors

for name in [name for name in sys.modules if name.partition(".")[0] == "evaldesk"]:
    del sys.modules[name]


class Hidden(MetaPathFinder):
    def __init__(self, island):
        self.island = ("evaldesk.integrations." + island).rstrip(".")

    def find_spec(self, name, path=None, target=None):
        if name == self.island or name.startswith(self.island + "."):
            raise ModuleNotFoundError(name, name=name)


def look_without(island):
    sys.meta_path.insert(0, Hidden(island))
    from evaldesk.agents.agent import AGENTS
    from evaldesk.agents.standins import install_standins
    from evaldesk.cli import cli
    from evaldesk.desk.adopting import PROJECTS, load_project, project_tools
    from evaldesk.engine.executors import EXECUTORS
    from evaldesk.formats.exchange import FORMATS
    from evaldesk.formats.files import load_format, recognised

    install_standins()
    modules = {load_format(name).__module__ for name in FORMATS}
    targets = [*(AGENTS[name].adapter for name in AGENTS), *(EXECUTORS.target(name) for name in EXECUTORS)]
    targets += [command.target for command in cli._table.values()]
    targets += [PROJECTS[tool] for tool in project_tools()]
    assert all(load_project(tool).parts for tool in project_tools())
    hidden = ("evaldesk.integrations." + island).rstrip(".") + "."
    assert not [each for each in (*targets, *modules) if each.startswith(hidden)]
    assert {"python", "replay", "litellm"} <= {*AGENTS} and {"eval", "import", "ui"} <= {*cli._table}
    assert recognised(b'{"eval_set_id": "s", "eval_cases": []}', "s.evalset.json") == "adk"
    print(island or "all", len(AGENTS.builtin), len([*FORMATS]), len(cli._table), flush=True)


def play_without_any():
    look_without("")
    import evaldesk
    from evaldesk.model import Case, Criterion, EvalSet, Expected, Turn

    os.chdir(sys.argv[1])
    result = evaldesk.evaluate(
        lambda message, state: message,
        EvalSet("one", cases=(Case("hi", (Turn("hi", Expected(reference="hi")),)),)),
        criteria=[Criterion("response_match_score", 0.8)],
        workspace=sys.argv[1],
    )
    assert [trial.verdict for trial in result.trials] == ["passed"], result


for island in ("", *sys.argv[2:]):
    child = os.fork()
    if not child:
        try:
            look_without(island) if island else play_without_any()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, island
"""


@of_all_tools
def test_every_island_has_tests_of_its_own() -> None:
    without_tests = [island for island in ISLANDS if not [*(OWN_TESTS / island).glob("test_*.py")]]

    assert [*TOOLS] == ISLANDS
    assert not without_tests


@of_all_tools
def test_no_test_but_its_own_names_an_island() -> None:
    named = {
        path.relative_to(ROOT / "tests").as_posix(): {*NAMED.findall(path.read_text("utf-8"))} & {*ISLANDS}
        for path in (ROOT / "tests").rglob("*.py")
    }
    foreign = {name: found - {*Path(name).parts} for name, found in named.items() if name not in NAMED_WHERE_PRESENT}

    assert not [name for name in NAMED_WHERE_PRESENT if not named.get(name)]
    assert {name: sorted(found) for name, found in foreign.items() if found} == {}


@of_all_tools
def test_without_the_folder_of_a_tool_the_rest_is_listed_and_without_all_a_run_is_played(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "app"), "XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-c", HIDDEN, str(tmp_path), *ISLANDS]

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    n_rows = {name: list(map(int, counts)) for name, *counts in map(str.split, done.stdout.splitlines()) if counts}
    assert [name for name in n_rows if name in ISLANDS] == ISLANDS
    assert n_rows["langgraph"][0] == n_rows["inspect"][0] - 1
    assert n_rows["inspect"][1] == n_rows["langgraph"][1] - 1
    assert n_rows["openhands"][2] == n_rows["langgraph"][2] - 1

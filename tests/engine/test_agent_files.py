"""Which edits make an agent another one."""

from __future__ import annotations

import ast
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pytest

from evaldesk.engine.driver.code_files import agent_version, fingerprint, functions_version, imported_files, version_of
from evaldesk.model import AgentRef, Criterion


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    for name in ("agent.py", "tools/dice.py", "root_agent.yaml", ".env", "instruction.md", "calc.evalset.json"):
        (tmp_path / name).write_text("one")
    return tmp_path


@pytest.mark.parametrize("name", ["agent.py", "tools/dice.py", "root_agent.yaml", ".env", "instruction.md"])
def test_an_edit_changes_it(folder: Path, name: str) -> None:
    before = fingerprint(str(folder))

    os.utime(folder / name, ns=(1, 1))

    assert fingerprint(str(folder)) != before


@pytest.mark.parametrize("name", ["calc.evalset.json", "__pycache__/agent.py", ".venv/lib.py", "log.jsonl"])
def test_other_files_do_not(folder: Path, name: str) -> None:
    before = fingerprint(str(folder))

    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("two")

    assert fingerprint(str(folder)) == before


def test_a_new_file_changes_it(folder: Path) -> None:
    before = fingerprint(str(folder))

    (folder / "more.py").write_text("")

    assert fingerprint(str(folder)) != before


@pytest.mark.parametrize("folder_name", ["", "/no/such/folder"])
def test_no_folder_is_no_error(folder_name: str) -> None:
    assert fingerprint(folder_name) == fingerprint(folder_name)


FILES = {
    "agents/support/agent.py": (
        "from pricing import rates\nfrom shop_tools.cart import total\nfrom ..common import words\nimport json, httpx\n"
    ),
    "agents/common.py": "",
    "agents/other/agent.py": "",
    "src/shop_tools/__init__.py": "",
    "src/shop_tools/cart.py": "from .tax import RATE\n",
    "src/shop_tools/tax.py": "",
    "src/shop_tools/prompt.md": "",
    "src/shop_tools/unused.py": "",
    "packages/pricing/pricing/__init__.py": "",
    "packages/pricing/pricing/rates.py": "import shop_tools.far.away\n",
    "packages/pricing/pyproject.toml": "",
    "src/shop_tools/far/__init__.py": "",
    "src/shop_tools/far/away.py": "this is no python(",
    "pyproject.toml": '[project]\nname = "shop"\n[tool.uv.workspace]\nmembers = ["packages/*"]\n',
}
OURS = {
    "agents/common.py", "src/shop_tools/__init__.py", "src/shop_tools/cart.py", "src/shop_tools/tax.py",
    "src/shop_tools/prompt.md", "packages/pricing/pricing/__init__.py", "packages/pricing/pricing/rates.py",
    "src/shop_tools/far/__init__.py", "src/shop_tools/far/away.py",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> AgentRef:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return AgentRef("support", "agents.support.agent:a", str(tmp_path), str(tmp_path / "agents" / "support"))


def test_the_files_that_an_agent_imports_from_its_project_are_its_own(project: AgentRef) -> None:
    found = {Path(path).relative_to(project.root).as_posix() for path in imported_files(project)}

    assert found == OURS


@pytest.mark.parametrize("name", sorted(set(FILES) - {"pyproject.toml"}))
def test_an_edit_of_a_package_that_the_agent_imports_makes_it_another_one(project: AgentRef, name: str) -> None:
    version, content = version_of(project), agent_version(project)

    Path(project.root, name).write_text("edited = 'so'")

    is_its_own = name in OURS or name.startswith("agents/support")
    assert (version_of(project) != version) == is_its_own
    assert (agent_version(project) != content) == is_its_own


def reward(root: str) -> list[Criterion]:
    return [Criterion("word", 1.0, {"function": "shop_tools.cart:total", "root": f"{root}/src"})]


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_edit_of_what_a_function_imports_is_another_version_of_the_functions(project: AgentRef, name: str) -> None:
    before = functions_version(reward(project.root))

    Path(project.root, name).write_text("edited = 'so'")

    is_its_own = name in {f"src/shop_tools/{file}.py" for file in ("__init__", "cart", "tax")}
    assert (functions_version(reward(project.root)) != before) == is_its_own


def test_criteria_without_functions_have_no_version() -> None:
    assert functions_version([Criterion("response_exact", 1.0)]) == ""


def test_imports_that_go_in_a_circle_end(project: AgentRef) -> None:
    Path(project.root, "src/shop_tools/tax.py").write_text(
        "from .cart import total\nfrom agents.support import agent\n"
    )

    assert len(imported_files(project)) == len(OURS)


def test_files_are_parsed_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, parses, parse = [], Lock(), ast.parse

    def seen(source: bytes) -> ast.Module:
        is_alone = parses.acquire(blocking=False)
        time.sleep(0.001)  # lets another begin that may
        if is_alone:
            parses.release()
        parsed.append(is_alone)
        return parse(source)

    agents = [AgentRef(name, f"{name}.agent:a", str(tmp_path), str(tmp_path / name)) for name in map(str, range(20))]
    for agent in agents:
        Path(agent.folder).mkdir()
        Path(agent.folder, "agent.py").write_text("import json\n")
    with monkeypatch.context() as patch, ThreadPoolExecutor(4) as threads:
        patch.setattr("evaldesk.engine.driver.code_files.ast.parse", seen)
        list(threads.map(imported_files, agents))

    assert parsed == [True] * len(agents)

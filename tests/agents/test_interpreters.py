"""The interpreter of an agent: named, or found in the project around it without starting anything."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evaldesk.agents import declared_refs, find_agents
from evaldesk.agents.discovery import project_python, with_place
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef
from evaldesk.paths import OURS, interpreter_path, samples
from evaldesk.settings import read_settings

AGENT = "def agent(message):\n    return message\n"


def environment(folder: Path, *packages: str) -> str:
    """A folder that looks like a virtual environment; its interpreter ends whoever starts it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python = folder / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 9\n")
    python.chmod(0o755)
    for package in packages:
        (folder / "lib" / "python3.12" / "site-packages" / package).mkdir(parents=True)
    return str(python)


def agent_in(folder: Path, source: str = AGENT) -> AgentRef:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.py").write_text(source)
    (ref,) = find_agents([folder])
    return ref


def test_the_environment_of_the_agents_project_is_used(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")

    assert with_place(agent_in(tmp_path / "agents" / "shop")).python == python


def test_the_nearest_environment_wins(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    python = environment(tmp_path / "agents" / "shop" / ".venv")

    assert with_place(agent_in(tmp_path / "agents" / "shop")).python == python


def test_the_search_ends_at_the_root_of_the_repository(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    (tmp_path / "cloned" / ".git").mkdir(parents=True)

    assert with_place(agent_in(tmp_path / "cloned" / "shop")).python == ""


def test_the_home_folder_is_no_project(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    ref = agent_in(tmp_path / "shop")

    assert with_place(ref, environment={"HOME": str(tmp_path)}).python == ""


def test_a_project_of_uv_may_name_its_environment(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("")
    python = environment(tmp_path / "env")

    assert project_python(tmp_path, {"UV_PROJECT_ENVIRONMENT": "env"}) == python


def test_an_environment_of_pipenv_is_matched_by_its_project_file(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "Pipfile").write_text("")
    shelf = tmp_path / ".local" / "share" / "virtualenvs"
    environment(shelf / "other-AAAA1111")
    python = environment(shelf / "shop-BBBB2222")
    (shelf / "other-AAAA1111" / ".project").write_text(str(tmp_path / "other"))
    (shelf / "shop-BBBB2222" / ".project").write_text(str(shop))

    assert project_python(shop, {"HOME": str(tmp_path)}) == python


def test_the_newest_environment_of_poetry_is_matched_by_its_digest(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "pyproject.toml").write_text('[tool.poetry]\nname = "Shop Agents"\n')
    digest = base64.urlsafe_b64encode(hashlib.sha256(os.path.realpath(shop).encode()).digest()).decode()[:8]
    shelf = tmp_path / ".cache" / "pypoetry" / "virtualenvs"
    environment(shelf / f"shop_agents-{digest}-py3.9")
    environment(shelf / "shop_agents-other123-py3.13")
    python = environment(shelf / f"shop_agents-{digest}-py3.12")
    given = {"HOME": str(tmp_path), "POETRY_CACHE_DIR": str(shelf.parent)}

    assert project_python(shop, given) == python
    (shop / "pyproject.toml").write_text("[project]\nname = 'shop'\n")
    assert project_python(shop, given) == ""
    (shop / "pyproject.toml").write_text("[tool.poetry\n")
    assert project_python(shop, given) == ""


def test_a_file_that_is_not_executable_is_no_interpreter(tmp_path: Path) -> None:
    Path(environment(tmp_path / ".venv")).chmod(0o644)

    assert project_python(tmp_path) == ""


def test_a_removed_interpreter_stays_the_configured_one(tmp_path: Path) -> None:
    python = tmp_path / "shop" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "removed" / "python3")

    assert with_place(agent_in(tmp_path / "shop" / "support")).python == str(python)


def test_our_own_environment_needs_no_other_interpreter(tmp_path: Path) -> None:
    ref = agent_in(tmp_path / "shop")
    (tmp_path / ".venv").symlink_to(sys.prefix)

    assert with_place(ref).python == ""
    assert with_place(ref, sys.executable).python == ""


def test_remote_agents_have_no_interpreter(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")
    tables = {"served": {"url": "http://127.0.0.1:9/v1"}, "model": {"model": "demo/dice"}}

    refs = [*declared_refs(tables, tmp_path), *find_agents([samples()])[:1]]

    assert [with_place(ref, python).python for ref in refs] == ["", "", ""]


OWN_CLASS = 'from evaldesk import LlmAgent\n\nroot_agent = LlmAgent("a", model="demo/dice")\n'


def test_an_agent_of_our_own_class_stays_where_litellm_is(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")
    ref = agent_in(tmp_path / "shop", OWN_CLASS)

    assert with_place(ref).python == ""
    assert with_place(ref, python).python == python  # a person says so
    (tmp_path / ".venv/lib/python3.12/site-packages/litellm").mkdir(parents=True)
    assert with_place(ref).python == python


def test_an_agents_own_interpreter_overrides_the_one_of_the_settings(tmp_path: Path) -> None:
    found, named, own = (environment(tmp_path / name) for name in (".venv", "named", "own"))
    agent_in(tmp_path / "shop")
    (tmp_path / "evaldesk.toml").write_text(
        'python = "named"\n[agents.first]\ntarget = "shop"\npython = "own/bin/python"\n'
        '[agents.second]\ntarget = "shop"\n[agents.third]\ntarget = "shop"\npython = "evaldesk"\n'
    )
    settings = read_settings(tmp_path, (), environment={})

    refs = declared_refs(settings.agents, tmp_path)

    assert [with_place(ref, settings.python).python for ref in refs] == [own, named, ""]
    assert with_place(replace(refs[1])).python == found


def test_a_configured_interpreter_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = environment(tmp_path / "shop" / ".venv")
    monkeypatch.setenv("PATH", str(Path(python).parent))
    (tmp_path / "evals").mkdir()

    assert interpreter_path("../shop/.venv/bin/python", tmp_path / "evals") == python
    assert interpreter_path("../shop/.venv", tmp_path / "evals") == python
    assert interpreter_path("python", tmp_path) == python
    assert interpreter_path(OURS, tmp_path) == OURS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('python = "gone/bin/python"', r"evaldesk.toml: python = 'gone/bin/python': there is no interpreter at "),
        ("python = 3", "evaldesk.toml: python is the path of an interpreter, not 3"),
        ('[agents.a]\ntarget = "shop"\npython = "gone"', r"\[agents.a\]: python = 'gone': there is no interpreter at "),
        ('[agents.a]\ntarget = "shop"\npython = []', r"\[agents.a\]: python is the path of an interpreter, not \[\]"),
        ('[agents.a]\nurl = "http://a"\npython = "."', "python is for an agent with a target, which is imported"),
    ],
)
def test_a_wrong_name_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    agent_in(tmp_path / "shop")
    (tmp_path / "evaldesk.toml").write_text(text)

    with pytest.raises(UsageError, match=words):
        declared_refs(read_settings(tmp_path, (), environment={}).agents, tmp_path)

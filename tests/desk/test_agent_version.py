"""Which edits of an agent's files make it another edition."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaldesk.engine.driver.code_files import MAX_BYTES, agent_version, version_of
from evaldesk.model import AgentRef


@pytest.fixture
def agent(tmp_path: Path) -> AgentRef:
    for name in ("agent.py", "tools/dice.py", "prompts/instruction.md", "calc.evalset.json", "venv/lib.py", ".env"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("one")
    return AgentRef("calc", "agent:root_agent", folder=str(tmp_path))


@pytest.mark.parametrize("name", ["agent.py", "tools/dice.py", "prompts/instruction.md", "more.py"])
def test_an_edit_of_the_agents_own_files_is_another_version(agent: AgentRef, name: str) -> None:
    before = agent_version(agent)

    (Path(agent.folder) / name).write_text("two")

    assert agent_version(agent) not in (before, "")


@pytest.mark.parametrize("name", ["agent.py", "tools/dice.py", "prompts/log_format.txt", "prompts/catalog.txt"])
def test_an_edit_reaches_the_workers_of_the_agent(agent: AgentRef, name: str) -> None:
    before = version_of(agent)

    (Path(agent.folder) / name).write_text("another length")

    assert version_of(agent) != before


LOGS = ["log.txt", "logs.txt", "calls_log.txt", "agent.out.txt", "stderr.txt", "log-2026-11-26.txt", "tools/Log.2.txt"]


@pytest.mark.parametrize("name", ["calc.evalset.json", "venv/lib.py", ".env", *LOGS])
def test_data_installed_packages_keys_and_logs_are_not_the_agent(agent: AgentRef, name: str) -> None:
    before = agent_version(agent)

    (Path(agent.folder) / name).write_text("two")

    assert agent_version(agent) == before


@pytest.mark.parametrize("name", LOGS)
def test_a_log_beside_the_agent_leaves_its_workers_alone(agent: AgentRef, name: str) -> None:
    before = version_of(agent)

    (Path(agent.folder) / name).write_text("two")

    assert version_of(agent) == before


def test_of_a_huge_text_only_the_beginning_is_read(agent: AgentRef) -> None:
    corpus = Path(agent.folder) / "corpus.txt"
    corpus.write_bytes(bytes(MAX_BYTES))
    before = agent_version(agent)

    corpus.write_bytes(bytes(MAX_BYTES) + b"more")

    assert agent_version(agent) == before


def test_a_name_that_is_no_unicode_is_no_error(agent: AgentRef) -> None:
    before = agent_version(agent)

    Path(os.fsdecode(os.fsencode(agent.folder) + b"/\xff.py")).write_text("one")

    assert agent_version(agent) not in (before, "")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_does_not_count(agent: AgentRef) -> None:
    before = agent_version(agent)

    (Path(agent.folder) / "secret.py").touch(mode=0o000)

    assert agent_version(agent) == before


def test_an_agent_without_a_folder_has_no_version() -> None:
    assert agent_version(AgentRef("calc", "calc:agent")) == ""

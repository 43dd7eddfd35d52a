"""A large import in a browser: it is watched and cancelled, and nothing of it is seen before its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from tests.e2e.conftest import Furniture, Visitor

pytestmark = pytest.mark.browser

PROGRAM = """
import os
from evaldesk.cli import main
from evaldesk.engine import WarmPool
from evaldesk.store.runs import imports
from evaldesk.web.routes import imports as routes

WarmPool.fill = lambda pool, purpose: None
imports.MAX_ROWS = 20
routes.N_AT_ONCE = 0
real = imports.ImportStore.add

def add(*arguments):
    with open("steps", "rb", buffering=0) as steps:
        for step in real(*arguments):
            steps.read(1)
            yield step

imports.ImportStore.add = add
main()
"""
ROW = {"instruction": "Do.", "test_result": {"resolved": True}}


@pytest.fixture(scope="module")
def furniture() -> Furniture:
    """An agent, and the pipe from which an import takes a byte for each of its transactions."""

    def furnish(workspace: Path) -> tuple[str, ...]:
        (workspace / "echo").mkdir()
        (workspace / "echo" / "agent.py").write_text("def root_agent(message):\n    return message\n", "utf-8")
        os.mkfifo(workspace / "steps")
        return ("echo",)

    return furnish


@pytest.fixture(scope="module")
def program() -> tuple[str, ...]:
    return ("-c", PROGRAM)


def test_an_import_is_watched_and_cancelled_and_another_appears_at_its_end(someone: Visitor, tmp_path: Path) -> None:
    page = someone.page
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"instance_id": f"i{number}"} | ROW) for number in range(60)))
    someone.goto("/imports")
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Import 1 run").click()

    with (someone.desk.workspace / "steps").open("wb", buffering=0) as steps:
        steps.write(b"...")
        expect(page.get_by_text("40 of 120 cases and trials are stored.")).to_be_visible()
        someone.shoot("import-progress")
        steps.write(b".")
        expect(page.get_by_text("50 of 120 cases and trials are stored.")).to_be_visible()
        page.get_by_role("button", name="Cancel import").click()
        expect(page.get_by_text("Cancelled by a person. Nothing of this file is stored.")).to_be_visible()
        steps.write(b"." * 100)
    someone.goto("/runs")
    expect(page.get_by_text("rows.jsonl")).to_have_count(0)

    someone.goto("/imports")
    someone.shoot("import-waiting")
    page.get_by_role("region", name="Uploads not imported yet").get_by_role("link", name="rows.jsonl").click()
    page.get_by_role("button", name="Import 1 run").click()
    with (someone.desk.workspace / "steps").open("wb", buffering=0) as steps:
        steps.write(b"." * 100)
        expect(page.get_by_text("120 cases and trials are stored.")).to_be_visible()
    page.get_by_role("link", name="Run 2").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("rows")

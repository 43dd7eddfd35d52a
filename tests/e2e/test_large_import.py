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
from evaldesk.desk.imports import uploads
from evaldesk.engine import WarmPool
from evaldesk.store import database
from evaldesk.store.runs import imports
from evaldesk.web.routes import imports as routes

WarmPool.fill = lambda pool, purpose: None
imports.MAX_ROWS = 20
database.STEP_S = 1e6
routes.N_AT_ONCE = 0
real = imports.ImportStore.add

def add(*arguments):
    with open("steps", "rb", buffering=0) as steps:
        for step in real(*arguments):
            steps.read(1)
            yield step

imports.ImportStore.add = add
write = uploads.ArrivingFile.write

def slow(file, data):
    if file.name == "large.jsonl" and not file.size:
        with open("bytes", "rb", buffering=0) as bytes:
            bytes.read(1)
    return write(file, data)

uploads.ArrivingFile.write = slow
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
        os.mkfifo(workspace / "bytes")
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
    page.get_by_role("link", name="Run 1").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("rows")


def large_file(path: Path) -> Path:
    row = json.dumps({"instance_id": "i", "instruction": "Do. " * 2**15, "test_result": {"resolved": True}})
    path.write_text("\n".join(row.replace('"i"', f'"i{number}"') for number in range(160)))
    return path


def test_a_large_file_is_uploaded_with_a_bar_and_read_before_its_preview(someone: Visitor, tmp_path: Path) -> None:
    page, path = someone.page, large_file(tmp_path / "large.jsonl")
    bar = page.get_by_role("progressbar", name="MiB uploaded")

    someone.goto("/imports")
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("of 21 MiB are uploaded.")).to_be_visible()
    someone.shoot("upload-progress")
    page.get_by_role("button", name="Cancel upload").click()
    expect(bar).to_be_hidden()
    (someone.desk.workspace / "bytes").write_bytes(b".")
    page.get_by_role("button", name="Preview").click()
    expect(bar).to_be_visible()
    (someone.desk.workspace / "bytes").write_bytes(b".")

    expect(page.get_by_role("button", name="Import 1 run")).to_be_visible()
    expect(page.get_by_text("160 trials of 160 cases").first).to_be_visible()
    someone.goto("/imports")
    expect(page.get_by_text("1 of at most 50")).to_be_visible()


def test_a_large_file_that_no_format_knows_is_refused_on_its_page(someone: Visitor, tmp_path: Path) -> None:
    page, path = someone.page, tmp_path / "noise.bin"
    path.write_bytes(os.urandom(11 * 2**20))

    someone.goto("/imports")
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("noise.bin failed")
    expect(page.get_by_text("Nothing of this file is stored.")).to_be_visible()
    someone.shoot("upload-refused")
    page.get_by_role("button", name="Discard").click()

    expect(page.get_by_role("heading", name="Import a file")).to_be_visible()


def test_a_file_that_is_refused_at_once_says_so_in_the_form(someone: Visitor, tmp_path: Path) -> None:
    page, path = someone.page, tmp_path / "noise.bin"
    path.write_bytes(os.urandom(2 * 2**20))

    someone.goto("/imports")
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_role("button", name="Preview").click()

    expect(page.get_by_role("alert").first).to_contain_text("Nothing was imported")
    expect(page.get_by_label("File", exact=True)).to_have_attribute("aria-invalid", "true")

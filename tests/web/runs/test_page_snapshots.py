"""Every page of a small workspace, kept from changing by accident."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.islands import of_all_tools
from tests.snapshots.rendered import check_snapshot, outline

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.runs.conftest import RunPages

PAGES = {
    "home": "/",
    "agents": "/agents",
    "chat-new": "/sessions/new",
    "evalsets": "/evalsets",
    "evalset-new": "/evalsets/new",
    "evalset": "/evalsets/{set}",
    "evalset-settings": "/evalsets/{set}/settings",
    "evalset-exports": "/evalsets/{set}/exports",
    "case": "{case}",
    "case-json": "{case}/json",
    "case-new": "/evalsets/{set}/cases/new",
    "imports": "/imports",
    "runs": "/runs",
    "run-new": "/runs/new?agent={agent}&evalset={set}",
    "run": "{run}",
    "run-spread": "{run}/spread",
    "run-rescore": "{run}/scorings/new",
    "run-accept": "{run}/acceptance",
    "trial": "{trial}",
    "comparison-choice": "/compare?b=1",
    "comparison": "/table?runs=1,2",
    "labels": "/labels",
    "gates": "/gates",
    "not-found": "/runs/999",
}


@of_all_tools
def test_every_page_says_what_it_said(pages: RunPages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ana")
    run = pages.finish(n="2", seed="7")
    pages.finish(n="2", seed="7", note="again")
    trial = f"{run}/cases/1/trials/0"
    pages.post(f"{run}/cases/1/trials/0/labels", labeller="Ana", verdict="failed", note="It never rolled.", turn="")
    case = re.search(r'href="(/evalsets/[^"/]+/cases/(?!new)[^"/?]+)"', pages.get(f"/evalsets/{pages.evalset}").text)
    assert case
    places = {"set": pages.evalset, "agent": pages.agent, "run": run, "trial": trial, "case": case[1]}

    said = [f"# {name}\n{outline(pages.get(address.format(**places)).text)}" for name, address in PAGES.items()]

    text = "\n".join(said)
    for name in ("agent", "set"):
        text = text.replace(places[name], f"<{name}>")
    check_snapshot("pages", text.replace(case[1].rsplit("/", 1)[1], "<case>"), tmp_path)

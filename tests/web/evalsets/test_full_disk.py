"""Pages on a full disk: a sentence with 507, no trace, and the files as they were."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.faulty_disk import FaultyDisk
from tests.web.evalsets.conftest import Pages


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*.json") if path.name != "origin.json"}


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "the disk is full (No space left on device)"), (errno.EROFS, "the disk can only be read")],
)
@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("/evalsets", {"name": "dice", "description": ""}),
        ("/evalsets/{calc}/copies", {}),
        ("/evalsets/{calc}/settings", {"name": "calc", "description": "another"}),
        ("/evalsets/{calc}/settings", {"name": "dice", "description": ""}),
        ("/evalsets/{calc}/trash", {}),
        ("/evalsets/trash/{token}/restoration", {}),
    ],
    ids=["new", "copy", "describe", "rename", "trash", "restore"],
)
def test_a_page_tells_a_disk_that_takes_nothing_as_a_sentence(
    pages: Pages, calc: str, address: str, form: dict[str, str], number: int, said: str
) -> None:
    token = pages.post(f"/evalsets/{calc}/trash").headers["location"].rpartition("=")[2] if "token" in address else ""
    before = _files(pages.folder)

    with FaultyDisk(1, number, lasts=True).inserted():
        answer = pages.post(address.format(calc=calc, token=token), form)

    assert answer.status_code == 507
    assert said in answer.text
    assert "This could not be written to the disk" in answer.text
    assert "Traceback" not in answer.text
    assert "defect" not in answer.text
    assert _files(pages.folder) == before
    assert pages.post(address.format(calc=calc, token=token), form).status_code == 303

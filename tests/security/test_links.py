"""A `.evaldesk` that came with a repository: its links lead nowhere, and what they point at stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.desk.workspace import open_settings
from evaldesk.errors import WorkspaceError
from evaldesk.settings import read_settings
from evaldesk.store import hold_workspace
from evaldesk.store.lock import address_of_holder
from evaldesk.web.guard import LOOPBACK_NAMES
from evaldesk.web.server import Address, serve

PRECIOUS = "precious\n"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the person's own, outside the folder that is served."""
    path = tmp_path / "precious"
    path.write_text(PRECIOUS)
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "cloned"
    (folder / ".evaldesk" / "demo" / "evalsets").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "name",
    ["desk.lock", "evaldesk.db", "evaldesk.db-wal", "evaldesk.db-shm", "evaldesk.db-journal", "trash", "logs", "open"],
)
def test_a_link_among_what_the_desk_keeps_is_named_and_not_followed(workspace: Path, precious: Path, name: str) -> None:
    link = workspace / ".evaldesk" / name
    link.symlink_to(precious)

    with pytest.raises(WorkspaceError, match=f"{name} is a link, which is not followed; remove it"):
        hold_workspace(workspace / ".evaldesk", url="")
    with pytest.raises(WorkspaceError, match="is a link"):
        Desk.open(read_settings(workspace, (workspace,), environment={}))

    assert precious.read_text() == PRECIOUS


def test_what_would_keep_the_desk_waiting_is_refused(workspace: Path) -> None:
    os.mkfifo(workspace / ".evaldesk" / "desk.lock")

    assert address_of_holder(workspace / ".evaldesk") == ""
    with pytest.raises(WorkspaceError, match=r"desk\.lock is neither a file nor a folder; remove it"):
        hold_workspace(workspace / ".evaldesk", url="")


def test_a_folder_in_the_place_of_the_address_is_named(workspace: Path) -> None:
    (workspace / ".evaldesk" / "desk.url").mkdir()
    settings = read_settings(workspace, (workspace,), environment={})

    with pytest.raises(WorkspaceError, match=r"desk\.url cannot be written: .*; name another workspace"):
        serve(settings, Address("127.0.0.1", (0,), LOOPBACK_NAMES), is_person_there=False)


@pytest.mark.parametrize("name", ["copied.txt", "evalsets/hello_world.evalset.json", "evalsets/new"])
@pytest.mark.parametrize("is_there", [True, False], ids=["to a file", "to nothing"])
def test_the_samples_are_copied_through_no_link(
    workspace: Path, precious: Path, tmp_path: Path, name: str, is_there: bool
) -> None:
    target = precious if is_there else tmp_path / "nothing"
    (workspace / ".evaldesk" / "demo" / name).symlink_to(target)

    with pytest.raises(WorkspaceError, match="is a link"):
        open_settings((), workspace=str(workspace), is_demo=True)

    assert precious.read_text() == PRECIOUS
    assert not (tmp_path / "nothing").exists()


def test_a_state_folder_that_leads_elsewhere_is_refused(workspace: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "home"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (workspace / ".evaldesk").rename(tmp_path / "old")
    (workspace / ".evaldesk").symlink_to(elsewhere)

    for open_it in (
        lambda: hold_workspace(workspace / ".evaldesk", url=""),
        lambda: Desk.open(read_settings(workspace, (workspace,), environment={})),
        lambda: open_settings((), workspace=str(workspace), is_demo=True),
    ):
        with pytest.raises(WorkspaceError, match=r"\.evaldesk is a link, which is not followed"):
            open_it()

    assert list(elsewhere.iterdir()) == []
    assert elsewhere.stat().st_mode & 0o777 == 0o755

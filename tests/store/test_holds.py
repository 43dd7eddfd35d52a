"""A name that one process of a store holds against all others, on a file and on a server."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from evaldesk.settings import DatabaseUrl
from evaldesk.store import Store

HOLDER = """
import sys
from pathlib import Path
from evaldesk.settings import database_url
from evaldesk.store import Store
place = Path(sys.argv[1]) if sys.argv[1].startswith('/') else database_url(sys.argv[1], 'the test')
end = Store.open(place).try_hold("budget")
print("held" if end else "refused", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def other(store: Store, place: Path | DatabaseUrl) -> Iterator[Store]:
    """A second store on the database of `store`, as another machine has it."""
    with Store.open(place) as other_store:
        yield other_store


def test_a_name_has_one_holder_until_that_one_ends_it(store: Store, other: Store) -> None:
    end = store.try_hold("budget")

    assert end is not None
    assert other.try_hold("budget") is None
    assert store.try_hold("budget") is None
    another_end = other.try_hold("another")
    assert another_end is not None
    another_end()
    end()
    last_end = other.try_hold("budget")
    assert last_end is not None
    last_end()


@pytest.mark.long
def test_a_killed_holder_holds_nothing(store: Store, place: Path | DatabaseUrl) -> None:
    command = [sys.executable, "-P", "-c", HOLDER, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert store.try_hold("budget") is None
        process.send_signal(signal.SIGKILL)
        process.wait(30)

        while (end := store.try_hold("budget")) is None:  # a server notices a little later
            Event().wait(0.05)
    end()

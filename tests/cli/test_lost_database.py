"""A database that is deleted or replaced while a run goes on: the command says so and does not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evaldesk.cli import EXIT_ERRORS, _in_words
from evaldesk.errors import LostDatabaseError

if TYPE_CHECKING:
    from tests.cli.conftest import Place

LOSING = {
    "deleted": "path.unlink()",
    "replaced": "path.rename('kept.db'); pathlib.Path('kept.db').with_name('other').touch(); os.replace('other', path)",
}


@pytest.mark.parametrize("how", LOSING)
def test_a_run_whose_database_is_gone_ends_with_an_error(place: Place, how: str) -> None:
    (place.agent / "agent.py").write_text(
        "import os, pathlib\n\n\ndef root_agent(message, state):\n"
        "    path = pathlib.Path('.evaldesk/evaldesk.db')\n"
        f"    {LOSING[how]}\n    return message\n"
    )

    result = place.eval(place.evalset("greetings", {"hello": "hello"}))

    assert isinstance(result.exception, LostDatabaseError)
    assert f"was {how} while it was in use" in str(result.exception)
    assert _in_words(result.exception)[1] == EXIT_ERRORS
    assert "passed" not in result.output.lower()

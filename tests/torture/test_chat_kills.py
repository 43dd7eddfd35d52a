"""A server that is killed while an agent answers in the chat, again and again."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder, Server

pytestmark = pytest.mark.server

TALKER = """
import asyncio

from evaldesk.model import Event


async def root_agent(message, state):
    for number in range(100_000):
        yield Event("agent_message", text=f"said-{number}-of-{message} ", is_partial=True)
        await asyncio.sleep(0.002)
"""
N_KILLS = 12
SAID = re.compile(r"said-\d+-of-\w+ ")


@pytest.mark.torture
def test_no_kill_loses_a_message_or_what_the_page_had_shown(place: ServedFolder, kill: Callable[[int], None]) -> None:
    chance = random.Random(5)
    place.write_agent(TALKER, "talker")
    for number in range(N_KILLS):
        message = f"message{number}"
        server = place.start()
        session = _new_session(server)
        shown = _shown_before_the_kill(server, session, message, chance.randrange(40), kill)

        with_new_server = place.start()
        page = with_new_server.get(session).text

        said = set(SAID.findall(page))
        assert message in page
        assert "Ask again" in page
        assert shown <= said, f"round {number}: {sorted(shown - said)[:3]}"
        assert said == {f"said-{index}-of-{message} " for index in range(len(said))}
        with_new_server.end()


def _new_session(server: Server) -> str:
    answer = server.post("/sessions", agent="talker", state="{}")
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def _shown_before_the_kill(
    server: Server, session: str, message: str, n_frames: int, kill: Callable[[int], None]
) -> set[str]:
    """The pieces that the stream of the answer held when the server was killed after so many frames."""
    shown: set[str] = set()
    with server.stream_answer(f"{session}/turns", message=message) as answer:
        lines = answer.iter_lines()
        while n_frames and (line := next(lines, None)) is not None:
            n_frames -= line == ""
            shown |= set(SAID.findall(line))
        kill(server.process.pid)
    return shown

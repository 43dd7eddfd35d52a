"""The workers that a host keeps: described, warmed, replaced, closed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from evaldesk.engine import ChatPlayers
from evaldesk.errors import AgentError
from evaldesk.model import AgentRef, TurnRecord, TurnSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]

WHERE = '''
    import asyncio, os

    async def agent(message):
        """Says its process."""
        if message == "wait":
            await asyncio.Event().wait()
        return str(os.getpid())
'''


async def record_of(host: ChatPlayers, agent: AgentRef, session_id: str = "s1") -> TurnRecord:
    """The record of a turn that says hello, within a minute."""
    async with asyncio.timeout(300):
        items = [item async for item in host.play_turn(TurnSpec(session_id, agent, "hello"))]
    assert isinstance(items[-1], TurnRecord)
    return items[-1]


async def test_an_agent_is_described(host: ChatPlayers, write_agent: Write) -> None:
    description = await host.describe(write_agent(WHERE))

    assert (description.name, description.kind, description.description) == (
        "agent",
        "python",
        "Says its process.",
    )


async def test_an_agent_that_cannot_be_described_says_where(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent("def agent(message)\n")

    with pytest.raises(AgentError) as caught:
        await host.describe(agent)

    assert "SyntaxError" in str(caught.value)
    assert "scripted_agent.py" in caught.value.trace


async def test_an_agent_that_kills_its_worker_on_import_says_so(host: ChatPlayers, write_agent: Write) -> None:
    with pytest.raises(AgentError, match="ended with exit code 4"):
        await host.describe(write_agent("import os\nos._exit(4)\n"))


async def test_a_warm_agent_answers_from_the_worker_it_has(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(WHERE)
    await host.warm(agent)
    pids = [str(pid) for pid in host.worker_pids]

    records = [await record_of(host, agent, session_id) for session_id in ("s1", "s2")]

    assert [record.answer for record in records] == pids * 2


async def test_warming_a_broken_agent_raises_nothing(host: ChatPlayers, write_agent: Write) -> None:
    await host.warm(write_agent("import no_such_module_at_all\n"))


async def test_a_worker_that_was_killed_between_turns_is_replaced(host: ChatPlayers, write_agent: Write) -> None:
    agent = write_agent(WHERE)
    await host.warm(agent)

    (killed,) = host.worker_pids
    os.kill(killed, signal.SIGKILL)
    record = await record_of(host, agent)

    assert record.answer == str(host.worker_pids[0])
    assert host.worker_pids != [killed]


async def test_only_a_handful_of_idle_workers_is_kept(write_agent: Write) -> None:
    host = ChatPlayers(max_workers=2)

    for number in range(4):
        await host.warm(write_agent("def agent(message):\n    return message\n", f"agent{number}"))

    assert len(host.worker_pids) == 2
    await host.close()
    assert host.worker_pids == []


async def test_an_agent_answers_also_while_all_the_workers_that_are_kept_are_busy(write_agent: Write) -> None:
    host = ChatPlayers(max_workers=1)
    under_way = host.play_turn(TurnSpec("s1", write_agent(WHERE, "busy"), "wait"))
    await anext(under_way)

    record = await record_of(host, write_agent(WHERE, "other"), "s2")

    assert (record.error, record.answer.isdecimal()) == (None, True)
    assert len(host.worker_pids) == 1
    await under_way.aclose()
    await host.close()


async def test_closing_ends_a_turn_under_way_and_starts_nothing(write_agent: Write) -> None:
    host = ChatPlayers()
    agent = write_agent(WHERE)
    under_way = host.play_turn(TurnSpec("s1", agent, "wait"))
    await anext(under_way)

    await host.close()
    items = [item async for item in under_way]
    refused = await record_of(host, agent)

    assert isinstance(items[-1], TurnRecord)
    assert items[-1].error is not None
    assert items[-1].error.kind == "worker_died"
    assert refused.error is not None
    assert refused.error.kind == "worker_start"


async def test_a_host_whose_workers_cannot_start_says_what_they_printed(write_agent: Write) -> None:
    host = ChatPlayers(environment={**os.environ, "PYTHONHOME": "/nowhere"})
    agent = write_agent(WHERE)

    record = await record_of(host, agent)
    with pytest.raises(AgentError) as caught:
        await host.describe(agent)
    await host.close()

    assert record.error is not None
    assert record.error.kind == "worker_start"
    assert "encodings" in record.error.trace
    assert "encodings" in caught.value.trace

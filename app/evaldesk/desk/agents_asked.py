"""Every agent of the settings, asked once what it is, without a desk around it."""

from __future__ import annotations

from collections.abc import Sequence

from evaldesk.desk.agents import AgentDesk, FoundAgent
from evaldesk.engine import AgentHost
from evaldesk.settings import Settings


async def ask_agents(settings: Settings) -> Sequence[FoundAgent]:
    """The agents, each described or failed, in the order of their ids."""
    host = AgentHost()
    desk = AgentDesk(settings, host)
    try:
        await desk.look_again()
        await desk.settled()
        return desk.list()
    finally:
        await desk.close()
        await host.close()

"""What a run is of, read at the moment of the start: the agent as its files are, the eval set as its file is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from evaldesk.desk.agent_version import agent_version
from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.evalsets import EvalSetDesk
from evaldesk.desk.run_plan import RunSubject
from evaldesk.errors import NotFoundError


async def read_subject(agents: AgentDesk, evalsets: EvalSetDesk, agent_id: str, evalset_id: str) -> RunSubject:
    """The agent and the eval set with these ids. Raises NotFoundError naming the field, FormatError."""
    with _at_field("agent"):
        agent = await agents.described(agent_id)
    with _at_field("evalset"):
        evalset, version, path = await asyncio.to_thread(evalsets.read, evalset_id)
    return RunSubject(
        agent=agent.ref,
        evalset=evalset,
        evalset_id=evalset_id,
        evalset_path=str(path),
        evalset_version=version,
        agent_version=await asyncio.to_thread(agent_version, agent.ref),
        agent_model=agent.description.model if agent.description else None,
    )


@contextlib.contextmanager
def _at_field(name: str) -> Iterator[None]:
    """A name that leads nowhere was typed into this field."""
    try:
        yield
    except NotFoundError as error:
        error.field = name
        raise

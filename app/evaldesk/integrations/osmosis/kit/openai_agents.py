"""Agents of the OpenAI Agents SDK inside a workflow: their model is that of the rollout, their session its sample.

It needs the SDK itself: `pip install 'evaldesk[openai-agents]'`.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, OpenAIChatCompletionsModel, set_tracing_disabled
from agents.memory.session import SessionABC
from openai import AsyncOpenAI

from evaldesk.integrations.osmosis.kit.workflow import RolloutContext, RolloutSample, SampleSource, get_rollout_context

__all__ = ["OsmosisAgent", "OsmosisLitellmModel", "OsmosisMemorySession", "OsmosisRolloutModel", "SessionSampleSource"]

MODEL = "osmosis-rollout"

set_tracing_disabled(True)  # or the SDK would send its traces to its maker


class OsmosisRolloutModel(Model):  # type: ignore[misc] # the package may be missing
    """A placeholder for the model of the rollout; an OsmosisAgent replaces it."""

    def __init__(self, **options: Any) -> None:
        self.litellm_kwargs = options

    async def get_response(self, *args: Any, **options: Any) -> Any:
        """Refuse."""
        raise NotImplementedError(_UNBOUND)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Refuse."""
        raise NotImplementedError(_UNBOUND)


class OsmosisLitellmModel(OpenAIChatCompletionsModel):  # type: ignore[misc] # the package may be missing
    """The model of the current rollout. Raises RuntimeError outside of a rollout."""

    def __init__(self, **_: Any) -> None:
        around = _current_rollout("a model of the rollout")
        client = AsyncOpenAI(base_url=around.chat_completions_url, api_key=around.api_key or "none", max_retries=0)
        super().__init__(MODEL, client)


class OsmosisAgent(Agent[Any]):  # type: ignore[misc] # the package may be missing
    """An agent that replaces an OsmosisRolloutModel by the model of the rollout."""

    def __init__(self, *args: Any, model: Any = None, **options: Any) -> None:
        if isinstance(model, OsmosisRolloutModel):
            model = OsmosisLitellmModel(**model.litellm_kwargs)
        super().__init__(*args, model=model, **options)


class OsmosisMemorySession(SessionABC):  # type: ignore[misc] # the package may be missing
    """A conversation in memory as the sample of the rollout; with a `name`, one of several samples."""

    def __init__(self, name: str | None = None) -> None:
        self.session_id = name or uuid.uuid4().hex
        self.items: list[Any] = []
        around = get_rollout_context()
        if around is not None and name is not None:
            around.register_sample_source(name, SessionSampleSource(self))
        elif around is not None:
            around.set_sample_source(SessionSampleSource(self))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The messages, or the last `limit` of them."""
        return list(self.items if limit is None else self.items[-limit:] if limit else [])

    async def add_items(self, items: list[Any]) -> None:
        """Add messages."""
        self.items.extend(items)

    async def pop_item(self) -> Any:
        """Remove and return the last item; None without one."""
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        """Remove all items."""
        self.items.clear()


class SessionSampleSource(SampleSource):
    """The conversation of an SDK session, in the SDK's form."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def get_sample(self, *args: Any) -> RolloutSample:
        """The whole conversation; the first argument is the sample id of the older shape."""
        return RolloutSample(id=args[0] if args else None, messages=await self.session.get_items())


_UNBOUND = "OsmosisRolloutModel stands for the model of a rollout; give it to an OsmosisAgent inside of `run`"


def _current_rollout(what: str) -> RolloutContext:
    around = get_rollout_context()
    if around is None:
        raise RuntimeError(f"{what} exists only inside of a rollout: make it in the `run` of the workflow")
    return around

"""Tool calls that are answered from the recording of the run, or added to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from evaldesk.agents.tools.functions import Outcome
from evaldesk.llm.recording import CURRENT_RECORDER
from evaldesk.model import JsonObject, JsonValue
from evaldesk.wire import plain

RECORDING = "recording"  # the mark in a transcript of an answer that comes from it


async def recorded(
    name: str, args: JsonObject, state: dict[str, JsonValue], call: Callable[[], Awaitable[Outcome]]
) -> Outcome:
    """The tool's recorded answer, with the state it left behind; otherwise the result of `call`.

    Raises ModelError in a replay that lacks it.
    """
    recorder = CURRENT_RECORDER.get()
    if recorder is None or not recorder.recording.tools:
        return await call()
    key = recorder.key("tool", {"name": name, "args": dict(args), "state": plain(state)})
    found = recorder.found(key, f"the call of the tool {name}")
    if found is None:
        outcome = await call()
        kept = {"result": outcome.result, "is_error": outcome.is_error, "trace": outcome.trace, "state": plain(state)}
        recorder.keep(key, kept)
        return outcome
    state.clear()
    state.update(found["state"])
    note = f"{name} was answered from the recording"
    return Outcome(found["result"], found["is_error"], found["trace"], note=note, source=RECORDING)

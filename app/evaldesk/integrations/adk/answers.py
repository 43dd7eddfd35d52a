"""Doubles of the case and recorded answers of the run, in place of calls of google-adk's models and tools."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from evaldesk.agents.tools.doubles import RECORDING, double_of
from evaldesk.errors import ModelError, NoDoubleError
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.llm.retry_events import PLAYED_TURN
from evaldesk.model import Event
from evaldesk.wire import plain_json

REPLAYED_KEY = "evaldesk_replayed"  # in the metadata of a response that came from the recording

# These control the runner, or run agents whose own calls are recorded.
_UNRECORDED_TOOLS = frozenset({"TransferToAgentTool", "AgentTool", "LongRunningFunctionTool"})
_UNRECORDED_NAMES = frozenset({"transfer_to_agent", "exit_loop"})
_UNRECORDED_FIELDS = {"http_options", "labels"}


@dataclass(slots=True)
class Answers:
    """The recording keys of the pending calls of one invocation.

    google-adk turns an exception in it into an event, so `failure` keeps the reason for the missing answer.
    """

    _model_keys: dict[str, str] = field(default_factory=dict)
    _tool_keys: dict[str, str] = field(default_factory=dict)
    notes: list[Event] = field(default_factory=list)
    failure: ModelError | NoDoubleError | None = None

    def response(self, agent_name: str, request: Any) -> Any:
        """The recorded response to a request; None to call the model. Raises ModelError."""
        recorder = CURRENT_RECORDER.get()
        if recorder is None:
            return None
        key = recorder.key("adk_model", _content(request))
        entry = self._find(recorder, key, f"the call of {request.model or 'the model'} by {agent_name}")
        if entry is None:
            self._model_keys[agent_name] = key
            return None
        turn = PLAYED_TURN.get()
        if turn:
            turn.note_reply()
        from google.adk.models.llm_response import LlmResponse

        response = LlmResponse.model_validate_json(json.dumps(entry["response"]))
        response.custom_metadata = {**(response.custom_metadata or {}), REPLAYED_KEY: True}
        return response

    def keep_response(self, agent_name: str, response: Any) -> None:
        """Record the model's answer."""
        recorder, key = CURRENT_RECORDER.get(), self._model_keys.get(agent_name)
        if recorder and key:
            recorder.keep(key, {"response": json.loads(response.model_dump_json(exclude_none=True))})

    async def result(self, tool: Any, args: dict[str, Any], context: Any) -> dict[str, Any] | None:
        """The tool's answer from a double or the recording; None to call the tool.

        Raises NoDoubleError, and ModelError in a replay that lacks the call.
        """
        state = dict(context.state.to_dict())
        before = dict(state)
        try:
            outcome = await double_of(tool.name, args, state)
        except NoDoubleError as error:
            self.failure = error
            raise
        if outcome is None:
            return self._recorded_result(tool, args, context)
        for name, value in state.items():
            if name not in before or before[name] != value:
                context.state[name] = value
        self.notes.append(Event("log", author=outcome.source, text=outcome.note))
        result = outcome.result
        if outcome.is_error:
            return {"error": result}
        return result if isinstance(result, dict) else {"result": result}

    def keep_result(self, call_id: str, context: Any, result: Any) -> None:
        """Record the tool's result and its changes of the state."""
        recorder, key = CURRENT_RECORDER.get(), self._tool_keys.pop(call_id, None)
        if recorder and key:
            plain_result = plain_json(result if isinstance(result, dict) else {"result": result})
            recorder.keep(key, {"result": plain_result, "state": plain_json(dict(context.actions.state_delta))})

    def _recorded_result(self, tool: Any, args: dict[str, Any], context: Any) -> dict[str, Any] | None:
        recorder = CURRENT_RECORDER.get()
        if recorder is None or not recorder.recording.tools or _is_never_recorded(tool):
            return None
        content = {"name": tool.name, "args": plain_json(args), "state": plain_json(context.state.to_dict())}
        key = recorder.key("adk_tool", content)
        entry = self._find(recorder, key, f"the call of the tool {tool.name}")
        if entry is None:
            self._tool_keys[context.function_call_id or tool.name] = key
            return None
        for name, value in entry["state"].items():
            context.state[name] = value
        self.notes.append(Event("log", author=RECORDING, text=f"{tool.name} was answered from the recording"))
        return dict(entry["result"])

    def _find(self, recorder: Recorder, key: str, what: str) -> dict[str, Any] | None:
        try:
            return recorder.find(key, what)
        except ModelError as error:
            self.failure = error
            raise


def _is_never_recorded(tool: Any) -> bool:
    is_long = getattr(tool, "is_long_running", False)
    return bool(is_long) or tool.name in _UNRECORDED_NAMES or type(tool).__name__ in _UNRECORDED_TOOLS


def _content(request: Any) -> dict[str, Any]:
    """The input of a model, without the random ids of google-adk."""
    contents = [json.loads(content.model_dump_json(exclude_none=True)) for content in request.contents]
    for content in contents:
        for part in content.get("parts") or ():
            for name in ("function_call", "function_response", "functionCall", "functionResponse"):
                if isinstance(part.get(name), dict):
                    part[name].pop("id", None)
    try:
        config = json.loads(request.config.model_dump_json(exclude_none=True, exclude=_UNRECORDED_FIELDS))
    except Exception:  # a user may put values there that are no JSON
        config = repr(request.config.system_instruction)
    return {"model": request.model, "contents": contents, "config": config}

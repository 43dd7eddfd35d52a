"""Facts that google-adk's runner does not report: calls inside an AgentTool, and the duration of calls."""

from __future__ import annotations

from copy import copy
from functools import cache, partial
from typing import Any

from evaldesk.agents.tools.time_limit import TOOL_LIMIT, ToolLateError, call_in_time, in_thread_if_sync
from evaldesk.integrations.adk.translation import events_of_adk
from evaldesk.integrations.adk.witness import Witness
from evaldesk.model import Event, ToolCall
from evaldesk.transcripts.adk import unwrap_result
from evaldesk.wire import plain_json, plain_object

NAME = "evaldesk"


@cache
def plugin_class() -> Any:
    """Plugins of google-adk that report to a witness and pass the run's model options to the models."""
    from google.adk.plugins.base_plugin import BasePlugin

    class WitnessPlugin(BasePlugin):  # type: ignore[misc] # the package may be missing
        def __init__(self, witness: Witness) -> None:
            super().__init__(NAME)
            self._witness = witness

        async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
            _note_inner_event(self._witness, invocation_context, event)

        async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
            witness, options = self._witness, self._witness.options
            limit_tools(llm_request.tools_dict)
            witness.model = witness.models[callback_context.agent_name] = str(llm_request.model or "")
            config = llm_request.config
            for name, value in (
                ("temperature", options.temperature),
                ("top_p", options.top_p),
                ("max_output_tokens", options.max_tokens),
            ):
                if value is not None:
                    setattr(config, name, value)
            witness.begin(callback_context.agent_name)
            return witness.answers.response(callback_context.agent_name, llm_request)

        async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
            if not llm_response.partial:
                self._witness.end(callback_context.agent_name)
                self._witness.answers.keep_response(callback_context.agent_name, llm_response)

        async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> dict[str, Any] | None:
            self._witness.begin(tool_context.function_call_id or tool.name)
            if _is_tool_node(tool, tool_context):
                _note_node_call(self._witness, tool, tool_args, tool_context)
            return await self._witness.answers.result(tool, tool_args, tool_context)

        async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
            self._witness.end(tool_context.function_call_id or tool.name)
            if _is_tool_node(tool, tool_context):
                _note_node_result(self._witness, tool_context, result)
            self._witness.answers.keep_result(tool_context.function_call_id or tool.name, tool_context, result)

    return WitnessPlugin


def _note_inner_event(witness: Witness, context: Any, adk_event: Any) -> None:
    """Add an event of a nested runner; events of the main session arrive by its own stream."""
    if context.session.id == witness.session_id:
        return
    tool = witness.tools.setdefault(context.session.id, getattr(context.agent, "name", "") or adk_event.author)
    witness.inner_events.extend(events_of_adk(adk_event, witness, within=tool))


def _is_tool_node(tool: Any, context: Any) -> bool:
    """Whether the tool is a node of a workflow, which no model called: no event of google-adk tells its call."""
    return getattr(getattr(context, "node", None), "tool", None) is tool  # older versions have no nodes


def _note_node_call(witness: Witness, tool: Any, args: Any, context: Any) -> None:
    """Add the call of a tool node; one that waited for a person is called again when it goes on."""
    if context.node_path in witness.calls:
        return
    call = ToolCall(str(tool.name), plain_object(dict(args or {})), context.function_call_id)
    witness.calls[context.node_path] = call
    witness.inner_events.append(Event("tool_call", author=context.node.name, parent=_workflow(context), call=call))


def _note_node_result(witness: Witness, context: Any, result: Any) -> None:
    call = witness.calls.pop(context.node_path, None)
    is_error = isinstance(result, dict) and result.get("error") not in (None, "", False)
    witness.inner_events.append(
        Event(
            "tool_result",
            author=context.node.name,
            parent=_workflow(context),
            call=call,
            result=unwrap_result(plain_json(result)),
            is_error=is_error,
            duration_ms=witness.took_ms.get(context.function_call_id),
        )
    )


def _workflow(context: Any) -> str:
    """The workflow around a node, by its path `root@1/node@1`."""
    steps = str(context.node_path).split("/")
    return steps[-2].partition("@")[0] if len(steps) > 1 else ""


# An agent used as a tool has tools of its own; the limit applies to those.
_TOOLS_WITHOUT_LIMIT = frozenset({"AgentTool", "TransferToAgentTool", "LongRunningFunctionTool"})


def limit_tools(tools: dict[str, Any]) -> None:
    """Replace the tools of a request by copies with the turn's time limit; the user's objects stay unchanged."""
    if TOOL_LIMIT.get() is None:
        return
    for name, tool in tools.items():
        if type(tool).__name__ not in _TOOLS_WITHOUT_LIMIT and not getattr(tool, "is_long_running", False):
            tools[name] = _limit_tool(tool)


def _limit_tool(tool: Any) -> Any:
    tool_copy = copy(tool)
    if callable(getattr(tool_copy, "func", None)):
        tool_copy.func = in_thread_if_sync(tool_copy.func)
    run = tool_copy.run_async

    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        try:
            return await call_in_time(tool.name, partial(run, args=args, tool_context=tool_context))
        except ToolLateError as error:
            return {"error": str(error)}

    tool_copy.run_async = run_async
    return tool_copy

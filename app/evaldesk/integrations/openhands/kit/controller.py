"""The agent of the kit: a model with a shell, an editor and Python, as in OpenHands' CodeActAgent.

`run_controller` returns a coroutine, as in OpenHands. Its guide uses the result without `await`; that works, too.
(All-Hands-AI/OpenHands openhands/core/main.py; reference/openhands_tau.md section 2)
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from evaldesk.background_loop import is_in_loop
from evaldesk.errors import ModelError
from evaldesk.integrations.openhands.kit.config import OpenHandsConfig
from evaldesk.integrations.openhands.kit.events import (
    Action,
    AgentFinishAction,
    AgentThinkAction,
    CmdRunAction,
    ErrorObservation,
    FileEditAction,
    IPythonRunCellAction,
    MessageAction,
    Observation,
)
from evaldesk.integrations.openhands.kit.runtime import Runtime
from evaldesk.integrations.openhands.kit.state import AgentState, Metrics, State
from evaldesk.integrations.openhands.kit.trial import current_trial
from evaldesk.integrations.openhands.llm_profiles import LlmProfile
from evaldesk.integrations.openhands.metadata import EFFORT, RUN
from evaldesk.integrations.openhands.run_facts import KEY_VARIABLE
from evaldesk.llm import DEFAULT_RETRIES, ModelCall, ModelReply, RequestedCall, complete
from evaldesk.llm.call import pace_of
from evaldesk.model import JsonObject
from evaldesk.model.chat import assistant_message, tool_message

__all__ = ["call_async_from_sync", "call_sync_from_async", "create_runtime", "run_controller"]

PROMPT = (
    "You are an agent that solves tasks on a computer. You have a shell (execute_bash), Python "
    "(execute_ipython_cell) and an editor (str_replace_editor); the working folder is /workspace. Work step by step. "
    "Call finish when the task is done, or when you cannot go on."
)
EXIT = "/exit"

UserResponse = Callable[..., str | None]


def _tool(name: str, description: str, required: tuple[str, ...], **properties: str) -> JsonObject:
    schema: dict[str, Any] = {key: {"type": kind} for key, kind in properties.items()}
    parameters: dict[str, Any] = {"type": "object", "properties": schema, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: tuple[JsonObject, ...] = (
    _tool("execute_bash", "Run a command in the shell.", ("command",), command="string", timeout="number"),
    _tool("execute_ipython_cell", "Run Python code.", ("code",), code="string"),
    _tool(
        "str_replace_editor",
        "View, create or edit a file; command is view, create, str_replace or insert.",
        ("command", "path"),
        command="string",
        path="string",
        file_text="string",
        old_str="string",
        new_str="string",
        insert_line="integer",
    ),
    _tool("think", "Keep a thought.", ("thought",), thought="string"),
    _tool("finish", "End the work.", ("message",), message="string", task_completed="string"),
)


def create_runtime(config: OpenHandsConfig, *_: Any, **__: Any) -> Runtime:
    """The runtime of the trial; OpenHands' other arguments have no effect."""
    return Runtime(config)


def run_controller(
    config: OpenHandsConfig,
    initial_user_action: Action | None = None,
    sid: str | None = None,
    runtime: Runtime | None = None,
    *_: Any,
    task_str: str | None = None,
    exit_on_message: bool = False,
    fake_user_response_fn: UserResponse | None = None,
    **__: Any,
) -> ControllerRun:
    """Run the agent on the first message until it finishes, the user leaves, or the iterations are used up.

    Outside of an event loop it blocks until the end: OpenHands' guide reads the runtime next, without `await`.
    """
    first = initial_user_action or MessageAction(task_str or "")
    user = (lambda _: EXIT) if exit_on_message else fake_user_response_fn
    loop = _Loop(config, runtime or Runtime(config), user)
    run = ControllerRun(loop.run(first))
    if not is_in_loop():
        run.finish()
    return run


class ControllerRun(Coroutine[Any, Any, State]):
    """A run of the agent: a coroutine that also has the attributes of its result, the state."""

    def __init__(self, work: Coroutine[Any, Any, State]) -> None:
        self._work = work
        self._state: State | None = None

    def finish(self) -> State:
        """Wait for the end of the run; its state."""
        if self._state is None:
            self._state = call_async_from_sync(lambda: self._work, None) if is_in_loop() else asyncio.run(self._work)
        return self._state

    def send(self, value: Any) -> Any:
        """Part of a coroutine."""
        if self._state is not None:
            raise StopIteration(self._state)
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Part of a coroutine."""
        return self._work.throw(*error)

    def close(self) -> None:
        """Part of a coroutine."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, State]:
        return self._state if self._state is not None else (yield from self._work.__await__())

    def __getattr__(self, name: str) -> Any:
        is_of_state = name in State.__dataclass_fields__ or hasattr(State, name)
        if name.startswith("_") or not is_of_state:  # asyncio looks for other names
            raise AttributeError(name)
        return getattr(self.finish(), name)


class _Loop:
    def __init__(self, config: OpenHandsConfig, runtime: Runtime, user: UserResponse | None) -> None:
        trial = current_trial()
        llm_config = config.get_llm_config()
        self.profile = llm_config.as_profile() if llm_config else trial.profile
        self.runtime = runtime
        self.user = user
        self.seed = trial.seed
        self.options = trial.options
        self.extra = trial.profile.extra if trial.profile and trial.profile.name == RUN else {}
        self.log = trial.log
        name = self.profile.model if self.profile else "none"
        self.state = State(metrics=Metrics(name), max_iterations=config.max_iterations)
        self.messages: list[JsonObject] = [{"role": "system", "content": PROMPT}]

    async def run(self, first: Action) -> State:
        state = self.state
        if self.profile is None:
            raise ModelError("no model is named; name one by -l or --model", kind="no_model", is_fatal=True)
        retry_policy = DEFAULT_RETRIES.with_retries(self.profile.num_retries)
        state.join(first, "user")
        state.agent_state = AgentState.RUNNING
        self.messages.append({"role": "user", "content": first.message})
        while state.agent_state is AgentState.RUNNING:
            if state.iteration >= state.max_iterations:
                state.agent_state = AgentState.ERROR
                state.last_error = (
                    "RuntimeError: Agent reached maximum iteration in headless mode. "
                    f"Current iteration: {state.iteration}, max iteration: {state.max_iterations}"
                )
                break
            state.iteration += 1
            try:
                reply = await complete(self._call(self.profile), retry_policy=retry_policy)
            except ModelError as error:
                if error.is_fatal:
                    raise
                state.agent_state, state.last_error = AgentState.ERROR, f"{error.kind}: {error}"
                break
            state.metrics.add(reply.usage, f"call-{state.iteration}")
            await self._follow(reply)
        return state

    def _call(self, profile: LlmProfile) -> ModelCall:
        """The next model call. The run's own profile sends all of its options, others only the options of OpenHands."""
        variable = None
        if profile.api_key:
            os.environ[KEY_VARIABLE] = profile.api_key.get_secret_value()  # of this process; commands do not get it
            variable = KEY_VARIABLE
        return ModelCall(
            profile.model,
            self.messages,
            TOOLS,
            temperature=profile.temperature,
            top_p=profile.top_p if profile.top_p != 1 else None,
            max_tokens=profile.max_output_tokens,
            reasoning_effort=profile.extra.get(EFFORT),
            seed=profile.seed if profile.seed is not None else self.seed,
            api_base=profile.base_url,
            api_key_env=variable,
            extra={key: value for key, value in self.extra.items() if key != EFFORT},
            timeout_s=profile.timeout or 120.0,
            pace=pace_of(replace(self.options, base_url=profile.base_url)),
        )

    async def _follow(self, reply: ModelReply) -> None:
        calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
        self.messages.append(assistant_message(reply.text, calls))
        if not reply.tool_calls:
            self._ask_user(reply.text)
            return
        for number, call in enumerate(reply.tool_calls):
            action = _action(call, reply.text if number == 0 else "")
            self.state.join(action, "agent")
            action.tool_call_metadata = {"function_name": call.name, "tool_call_id": call.id}
            if isinstance(action, AgentFinishAction):
                self.state.agent_state = AgentState.FINISHED
                self.state.outputs = action.outputs
                return
            if isinstance(action, MessageAction):  # a call that cannot be read
                observation: Observation = ErrorObservation(action.content)
            else:
                observation = await asyncio.to_thread(self.runtime.run_action, action)
            self.state.join(
                observation, "environment" if isinstance(observation, ErrorObservation) else "agent", action.id
            )
            self.messages.append(tool_message(call.id, observation.content))

    def _ask_user(self, text: str) -> None:
        """Send a message without a call to the user; without a user, or at `/exit`, the run ends."""
        message = MessageAction(text, wait_for_response=True)
        self.state.join(message, "agent")
        answer = self.user(self.state) if self.user else None
        if answer is None:
            self.state.agent_state = AgentState.AWAITING_USER_INPUT
            return
        self.state.join(MessageAction(answer), "user")
        self.messages.append({"role": "user", "content": answer})
        if answer.strip() == EXIT:
            self.state.join(AgentFinishAction(final_thought=text), "agent")
            self.state.agent_state = AgentState.FINISHED


def _action(call: RequestedCall, thought: str) -> Action:
    """The action of a call; for an unreadable call, a message with the error."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return MessageAction(f"The arguments of {call.name} are not JSON.")
    if not isinstance(arguments, dict):
        return MessageAction(f"The arguments of {call.name} are not an object.")
    texts = {key: value for key, value in arguments.items() if isinstance(value, str)}
    if call.name == "execute_bash":
        action = CmdRunAction(texts.get("command", ""), thought=thought)
        if isinstance(limit := arguments.get("timeout"), int | float) and limit > 0:
            action.set_hard_timeout(float(limit))
        return action
    if call.name == "execute_ipython_cell":
        return IPythonRunCellAction(texts.get("code", ""), thought=thought)
    if call.name == "str_replace_editor":
        line = arguments.get("insert_line")
        return FileEditAction(
            texts.get("path", ""),
            texts.get("command", ""),
            texts.get("file_text"),
            texts.get("old_str"),
            texts.get("new_str"),
            line if isinstance(line, int) else None,
            thought=thought,
        )
    if call.name == "think":
        return AgentThinkAction(texts.get("thought", ""))
    if call.name == "finish":
        return AgentFinishAction(
            texts.get("message", ""), thought=thought, task_completed=arguments.get("task_completed")
        )
    return MessageAction(f"There is no tool {call.name}.")


def call_async_from_sync(corofn: Callable[..., Any], timeout: float | None = 15, *args: Any, **kwargs: Any) -> Any:
    """The result of a coroutine function, run in another thread, because this one may have a running loop."""
    if not callable(corofn):
        raise ValueError("corofn is not a function")
    future: Future[Any] = Future()

    async def await_result() -> Any:
        result = corofn(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    def work() -> None:
        try:
            future.set_result(asyncio.run(await_result()))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()
    return future.result(timeout)


async def call_sync_from_async(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a function, run in another thread."""
    return await asyncio.to_thread(fn, *args, **kwargs)

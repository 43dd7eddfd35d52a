"""Tool doubles: fixed tool answers of a case, for deterministic trials.

They are in the key `tool_doubles` of a case (docs/tool-doubles.md):

    {"tools": {"get_price": [{"args": {"city": "Rome"}, "result": 12},
                             {"error": "the service is down", "times": 1},
                             {"function": "cheapest", "delay_ms": 50}]},
     "unmatched": "refuse"}

For each tool the first unused answer with matching arguments counts. Calls without a double may be answered from the
recording of the run, or added to it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from evaldesk.agents.tools.functions import Outcome, tool_of
from evaldesk.agents.tools.time_limit import TOOL_LIMIT
from evaldesk.codec import msgspec
from evaldesk.errors import FormatError, NoDoubleError, UsageError
from evaldesk.llm.recording import CURRENT_RECORDER
from evaldesk.matching.json_equality import json_equal, objects_equal
from evaldesk.model import Case, JsonObject, JsonValue
from evaldesk.transcripts.plumbing import is_plumbing
from evaldesk.wire import converted, plain_json

KEY = "tool_doubles"
DOUBLE = "double"  # the mark in a transcript of a call that a double answered
MAX_DELAY_MS = 600_000

Unmatched: TypeAlias = Literal["pass_through", "refuse", "fail"]


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer: a result, an error, or the name of a function; `times` is its maximum of uses, None for no limit.

    `args` are the arguments a call must have: all of them and no other with `match` `exact`, at least these with
    `subset`.
    """

    args: dict[str, Any] | None = None
    match: Literal["exact", "subset"] = "subset"
    result: Any = msgspec.UNSET
    error: str | None = None
    function: str | None = None
    delay_ms: float = 0.0
    times: int | None = None

    def takes(self, args: JsonObject) -> bool:
        """Whether a call with these arguments is answered by this."""
        if self.args is None:
            return True
        if self.match == "exact":
            return objects_equal(self.args, args)
        return all(key in args and json_equal(value, args[key]) for key, value in self.args.items())


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The doubles of a case. `unmatched` None lets tools without answers pass, and fails calls that fit no answer."""

    tools: dict[str, list[Answer]] = msgspec.field(default_factory=dict)
    unmatched: Unmatched | None = None


@dataclass(slots=True)
class ToolDoubles:
    """The doubles of one trial, and the numbers of uses of each answer and of calls of each tool."""

    plan: Plan
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    n_calls: Counter[str] = field(default_factory=Counter)
    _n_used: Counter[tuple[str, int]] = field(default_factory=Counter)

    async def answer(self, name: str, args: JsonObject, state: dict[str, JsonValue]) -> Outcome | None:
        """The answer of a tool's double, None to call the tool itself. Raises NoDoubleError."""
        self.n_calls[name] += 1
        for index, answer in enumerate(self.plan.tools.get(name, ())):
            is_left = answer.times is None or self._n_used[name, index] < answer.times
            if is_left and answer.takes(args):
                self._n_used[name, index] += 1
                note = f"{name} was answered by a double of the case (answer {index + 1})"
                return replace(await self._produce(answer, args, state), note=note, source=DOUBLE)
        return self._unmatched(name, args)

    async def _produce(self, answer: Answer, args: JsonObject, state: dict[str, JsonValue]) -> Outcome:
        start = time.perf_counter()
        await asyncio.sleep(answer.delay_ms / 1000)
        if answer.function is not None:
            outcome = await tool_of(self.functions[answer.function]).run(args, state)
        elif answer.error is not None:
            outcome = Outcome(answer.error, is_error=True)
        else:
            outcome = Outcome(answer.result)
        return replace(outcome, duration_ms=(time.perf_counter() - start) * 1000)

    def _unmatched(self, name: str, args: JsonObject) -> Outcome | None:
        unmatched = self.plan.unmatched or ("fail" if name in self.plan.tools else "pass_through")
        if unmatched == "pass_through" or (is_plumbing(name) and name not in self.plan.tools):
            return None
        sentence = f"the case has no double for {name}({msgspec.json.encode(dict(args)).decode()})"
        if unmatched == "fail":
            raise NoDoubleError(f"{sentence}; add an answer to {KEY}, or set its unmatched to pass_through or refuse")
        return Outcome(f"{name} is not available", is_error=True, note=sentence, source=DOUBLE)


CURRENT_DOUBLES: ContextVar[ToolDoubles | None] = ContextVar("current_doubles", default=None)


def read_doubles(case: Case, target: str) -> ToolDoubles | None:
    """The doubles of a case, None without any. Raises FormatError.

    A function is named, never imported: the agent's module, that of `target`, offers functions in its mapping
    `tool_doubles`.
    """
    raw = case.extra.get(KEY)
    if raw is None:
        return None
    try:
        plan = converted(raw, Plan)
    except msgspec.ValidationError as error:
        raise FormatError(str(error).replace("`$", f"`{KEY}"), source=f"case {case.id!r}") from error
    functions = _functions_of_module(target)
    for name, answers in plan.tools.items():
        for index, answer in enumerate(answers):
            problem = _problem(answer, functions)
            if problem:
                raise FormatError(problem, source=f"case {case.id!r}", path=f"{KEY}.tools.{name}[{index}]")
    return ToolDoubles(plan, functions)


async def double_of(name: str, args: JsonObject, state: dict[str, JsonValue]) -> Outcome | None:
    """The tool's double in the case; None to call the tool.

    Raises NoDoubleError, which ends the trial.
    """
    doubles = CURRENT_DOUBLES.get()
    return await doubles.answer(name, args, state) if doubles else None


async def call_with_double(
    name: str, args: JsonObject, state: dict[str, JsonValue], call: Callable[[], Awaitable[Outcome]]
) -> Outcome:
    """The answer of the tool's double or of the run's recording, otherwise the result of `call`.

    Raises NoDoubleError, and ModelError for a call that a replay lacks.
    """
    return await double_of(name, args, state) or await call_with_recording(name, args, state, call)


async def call_tool(
    function: Callable[..., Any], args: JsonObject, state: dict[str, JsonValue] | None = None
) -> Outcome:
    """Call a tool the way an LlmAgent does, doubles and limit included; for agents that call their tools themselves.

    An exception of the function is in the outcome, as a sentence that a model can read.
    """
    state = {} if state is None else state
    tool = tool_of(function)
    return await call_with_double(tool.name, args, state, lambda: tool.run(args, state, TOOL_LIMIT.get()))


def _problem(answer: Answer, functions: Mapping[str, object]) -> str | None:
    answer_forms = [answer.result is not msgspec.UNSET, answer.error is not None, answer.function is not None]
    if sum(answer_forms) != 1:
        return "an answer has exactly one of result, error and function"
    if answer.function is not None and answer.function not in functions:
        function_names = ", ".join(sorted(functions)) or "none"
        return (
            f"no function named {answer.function!r}; the agent's module offers them in its mapping "
            f"`tool_doubles`; there are: {function_names}"
        )
    if not 0 <= answer.delay_ms <= MAX_DELAY_MS:
        return f"delay_ms must be 0 to {MAX_DELAY_MS}, got {answer.delay_ms:g}"
    if answer.times is not None and answer.times < 1:
        return f"times must be at least 1, got {answer.times}"
    return None


def _functions_of_module(target: str) -> Mapping[str, Callable[..., Any]]:
    mapping = getattr(sys.modules.get(target.partition(":")[0]), "tool_doubles", {})
    if not isinstance(mapping, Mapping):
        return {}
    functions = {}
    for name, function in mapping.items():
        try:
            tool_of(function)
        except UsageError:
            continue
        functions[str(name)] = function
    return functions


RECORDING = "recording"  # the mark in a transcript of an answer that comes from it


async def call_with_recording(
    name: str, args: JsonObject, state: dict[str, JsonValue], call: Callable[[], Awaitable[Outcome]]
) -> Outcome:
    """The tool's recorded answer, with its recorded session state; otherwise the result of `call`.

    Raises ModelError when a replay lacks it.
    """
    recorder = CURRENT_RECORDER.get()
    if recorder is None or not recorder.recording.tools:
        return await call()
    key = recorder.key("tool", {"name": name, "args": dict(args), "state": plain_json(state)})
    entry = recorder.find(key, f"the call of the tool {name}")
    if entry is None:
        outcome = await call()
        recording = {
            "result": outcome.result,
            "is_error": outcome.is_error,
            "trace": outcome.trace,
            "state": plain_json(state),
        }
        recorder.keep(key, recording)
        return outcome
    state.clear()
    state.update(entry["state"])
    note = f"{name} was answered from the recording"
    return Outcome(entry["result"], entry["is_error"], entry["trace"], note=note, source=RECORDING)

"""`EvalFunction`: a function of the user as a metric. (reference/osmosis.md 2)

A criterion with the option `function` is one, under any name. That option comes from the command line, a criteria file
or `evaldesk.toml`, never from a browser: it leads to an import, in the worker.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec

from evaldesk.errors import MetricError, NotFoundError, UsageError
from evaldesk.metrics.functions.loading import Function, Mode, load_function, mode_of
from evaldesk.metrics.metric import FUNCTION_OPTION, Metric, MetricInfo
from evaldesk.metrics.pinned import earlier_turns
from evaldesk.model import (
    Case,
    Criterion,
    Event,
    JsonObject,
    JsonValue,
    Score,
    ToolCall,
    Transcript,
    TurnRecord,
    plain_number,
)
from evaldesk.model.chat import chat_messages
from evaldesk.model.transcript import MAX_NUMBER, is_score
from evaldesk.wire import converted, plain_json

_OPTIONS = (FUNCTION_OPTION, "root", "source", "compat", "low", "high", "description")


@dataclass(frozen=True, slots=True)
class EvalFunction:
    """Calls `function`, a `module:attr` found from `root` or made by `source`; its result is the value of the trial.

    A value is any finite number unless `low` and `high` bound it. Exceptions of the function, None, NaN and infinity
    are errors; with `compat = "osmosis"` each of them but infinity counts as 0, and the reason says so.
    """

    name: str
    function: str
    root: str = ""
    source: str = ""
    compat: Literal["", "osmosis"] = ""
    low: float | None = None
    high: float | None = None
    description: str = ""
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise UsageError(f"low must lie under high, got {self.low:g} and {self.high:g}")

    @property
    def info(self) -> MetricInfo:
        """The facts known of the function without importing it."""
        return MetricInfo(
            self.name,
            self.name,
            self.description or f"What {self.function} says of the trial.",
            low=-math.inf if self.low is None else self.low,
            high=math.inf if self.high is None else self.high,
        )

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The value of the function. Raises MetricError, and exceptions of the function."""
        if not self.compat:
            return await self._scores(transcript, case)
        try:
            return await self._scores(transcript, case)
        except (Exception, SystemExit) as error:
            message = f"{type(error).__name__}: {error}"
            reason = f"Counted as 0, as Osmosis does: {message}."
            return [Score(self.name, 0.0, reason=reason, details={"osmosis": plain_json(message)})]

    async def _scores(self, transcript: Transcript, case: Case) -> list[Score]:
        function = load_function(self.function, self.root, self.source)
        mode = mode_of(function)
        if mode == "adk":
            result = await _call(function, adk_arguments(transcript, case, self.name, self.threshold))
            return adk_scores(self.name, result, len(transcript.turns))
        if mode == "instance":
            return [self._instance_score(await _call(function, {"instance": instance_of(transcript, case)}))]
        is_osmosis = bool(self.compat)
        result = await _call(function, arguments_of(mode, function, transcript, case, is_osmosis=is_osmosis))
        if isinstance(result, Score):
            return [result]
        if isinstance(result, list) and result and all(isinstance(item, Score) for item in result):
            return result
        return [self._score(_number(result, is_osmosis=is_osmosis))]

    def _score(self, value: float) -> Score:
        who = "The function" if self.name == self.function else self.function
        return Score(self.name, value, reason=f"{who} gave {value:g}.")

    def _instance_score(self, result: object) -> Score:
        """A number, or an object with a score and an explanation, as agents-cli takes them. Raises MetricError."""
        values = result if isinstance(result, Mapping) else {"score": result}
        if "score" not in values:
            raise MetricError('the function gave an object without "score"; wanted a number or {"score": ...}')
        score = self._score(_number(values["score"], is_osmosis=False))
        explanation = values.get("explanation")
        return replace(score, reason=explanation) if isinstance(explanation, str) and explanation else score


def build_function(criterion: Criterion) -> Metric:
    """The function that the criterion names, not imported yet. Raises UsageError naming the option at fault."""
    for option in criterion.options:
        if option not in _OPTIONS:
            unknown = NotFoundError.among(f"option of {criterion.metric}", option, _OPTIONS)
            unknown.field = f"{criterion.metric}.{option}"
            raise unknown
    fields = {**criterion.options, "name": criterion.metric, "threshold": criterion.threshold}
    try:
        return cast("Metric", converted(fields, EvalFunction))
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{criterion.metric}: {error}", field=criterion.metric) from error


def load_function_of(criterion: Criterion) -> None:
    """Import the function that the criterion names, before anything is spent on the trial it is to score.

    Raises MetricError for a wrong signature, and exceptions of its import.
    """
    options = criterion.options
    root, source = (str(options.get(name, "")) for name in ("root", "source"))
    mode_of(load_function(str(options[FUNCTION_OPTION]), root, source))


def function_options(function: str, **options: Any) -> JsonObject:
    """The options of a criterion that calls `function`, without empty ones."""
    all_options: Mapping[str, Any] = {FUNCTION_OPTION: function, **options}
    return {name: value for name, value in all_options.items() if value not in (None, "")}


async def _call(function: Function, arguments: Mapping[str, Any]) -> object:
    result = function(**arguments)
    return await result if inspect.isawaitable(result) else result


def _number(result: object, *, is_osmosis: bool) -> float:
    """The value of the function. Raises MetricError.

    Osmosis takes Python's numbers alone; a number too large for a score, infinity included, is the largest score.
    """
    if is_osmosis and isinstance(result, int | float) and abs(result) > MAX_NUMBER:
        return math.copysign(MAX_NUMBER, result)
    number = result if is_osmosis else plain_number(result)
    if isinstance(number, bool) or is_score(number):
        return float(number)
    description = f"{result!r:.80}" if isinstance(number, int | float) or result is None else type(result).__name__
    raise MetricError(f"the function returned {description}; wanted true, false or a finite number up to 2**53")


OWN_KEY_PREFIX = "$"
"""The start of the keys of `extra` that a format keeps for itself."""


def arguments_of(
    mode: Mode, function: Function, transcript: Transcript, case: Case, *, is_osmosis: bool
) -> dict[str, Any]:
    """The arguments by name, without unknown parameters unless Osmosis would pass them."""
    row = row_of(case)
    truth = row["ground_truth"]
    messages = messages_of(transcript, row)
    if mode == "trial":
        own = {"transcript": transcript, "case": case, "state": deepcopy(dict(transcript.final_state))}
        return _accepted_arguments(function, {**own, "messages": messages, "ground_truth": truth, "extra_info": row})
    if mode == "messages":
        arguments = {"messages": messages, "ground_truth": truth, "metadata": row}
    else:
        text = stale_solution(messages) if is_osmosis else solution(transcript)
        arguments = {"solution_str": text, "ground_truth": truth, "extra_info": row}
    return arguments if is_osmosis else _accepted_arguments(function, arguments)


def row_of(case: Case) -> dict[str, Any]:
    """The row of an Osmosis data set that the case is: prompts, ground truth and every other column.

    Facts that the case lacks are taken from its turns: the first query, and the last reference answer. A row with
    metadata alone has no prompt.
    """
    columns = {key: deepcopy(value) for key, value in case.extra.items() if not key.startswith(OWN_KEY_PREFIX)}
    references = [turn.expected.reference for turn in case.turns if turn.expected.reference is not None]
    query = case.turns[0].query if case.turns else ""
    fields = {"system_prompt": "", "user_prompt": query, "ground_truth": references[-1] if references else ""}
    if not query and "metadata" in columns:
        del fields["user_prompt"]
    return {**fields, **columns}


def messages_of(transcript: Transcript, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation as chat messages in OpenAI's shape, with the row's system prompt first where it has one."""
    system = [{"role": "system", "content": row["system_prompt"]}] if row["system_prompt"] else []
    return [*system, *(dict(message) for message in chat_messages((*earlier_turns(), *transcript.turns)))]


def solution(transcript: Transcript) -> str:
    """The agent's answer in its last turn; empty when that turn has none."""
    return transcript.turns[-1].answer if transcript.turns else ""


def stale_solution(messages: list[dict[str, Any]]) -> str:
    """The last text of the agent in any turn, which Osmosis scores when a turn broke off."""
    texts = [message.get("content") for message in messages if message["role"] == "assistant"]
    return next((str(text) for text in reversed(texts) if text is not None), "")


def _accepted_arguments(function: Function, arguments: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def instance_of(transcript: Transcript, case: Case) -> dict[str, Any]:
    """The instance of a function of agents-cli: the case with the trial's answer and events. (its SDK 2.7)

    Contents are objects with parts; keys of the case that no field of ours holds stand beside them.
    """
    turns = [
        {"turn_index": at, "turn_id": f"turn_{at}", "events": _instance_events(turn)}
        for at, turn in enumerate(transcript.turns)
    ]
    references = [turn.expected.reference for turn in case.turns if turn.expected.reference is not None]
    query = case.turns[-1].query if case.turns else next((turn.query for turn in transcript.turns), "")
    own_keys = {key: deepcopy(value) for key, value in case.extra.items() if not key.startswith(OWN_KEY_PREFIX)}
    rubrics = [
        {"rubric_id": each.get("rubric_id"), "content": {"property": {"description": _rubric_text(each)}}}
        for each in case.rubrics
    ]
    return {
        **own_keys,
        "eval_case_id": case.id,
        "prompt": _content("user", query),
        "response": _content("model", solution(transcript)),
        **({"reference": {"response": _content("model", references[-1])}} if references else {}),
        **({"rubric_groups": {"rubrics": {"rubrics": rubrics}}} if rubrics else {}),
        "agent_data": {"turns": turns},
    }


def _instance_events(turn: TurnRecord) -> list[dict[str, Any]]:
    events = [{"author": "user", "content": _content("user", turn.query)}]
    for event in turn.own_events:
        author = event.author or "agent"
        if event.kind == "agent_message" and not event.is_partial:
            events.append({"author": author, "content": _content("model", event.text)})
        elif event.kind == "tool_call" and event.call:
            call = {"id": event.call.id, "name": event.call.name, "args": dict(event.call.args)}
            events.append({"author": author, "content": {"role": "model", "parts": [{"function_call": call}]}})
        elif event.kind == "tool_result" and event.call:
            response = _result(event, event.call)
            events.append({"author": author, "content": {"role": "user", "parts": [{"function_response": response}]}})
    return events


def _content(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"text": text}]}


def _rubric_text(rubric: JsonObject) -> JsonValue:
    content = rubric.get("rubric_content")
    return content.get("text_property") if isinstance(content, dict) else None


_MODULES = {
    "EvalMetric": "google.adk.evaluation.eval_metrics",
    "Invocation": "google.adk.evaluation.eval_case",
    "ConversationScenario": "google.adk.evaluation.conversation_scenarios",
}


def adk_arguments(transcript: Transcript, case: Case, name: str, threshold: float | None) -> dict[str, Any]:
    """The arguments of a function whose first parameter is `eval_metric`, by name."""
    turn_fields = [_actual(index, turn) for index, turn in enumerate(transcript.turns)]
    expected = [
        _invocation(index, turn.query, turn.expected.reference, _calls(turn.expected.tool_calls or ()))
        for index, turn in enumerate(case.turns)
    ]
    return {
        "eval_metric": _adk_object("EvalMetric", {"metric_name": name, "threshold": threshold}),
        "actual_invocations": [_adk_object("Invocation", item) for item in turn_fields],
        "expected_invocations": [_adk_object("Invocation", item) for item in expected] or None,
        "conversation_scenario": _adk_object("ConversationScenario", case.scenario) if case.scenario else None,
    }


def adk_scores(name: str, evaluation: object, n_turns: int) -> list[Score]:
    """The scores of an EvaluationResult: one for each turn, and the overall one. Raises MetricError."""
    if not hasattr(evaluation, "overall_score"):
        raise MetricError(f"the function returned {type(evaluation).__name__}; wanted an EvaluationResult")
    by_turn = list(getattr(evaluation, "per_invocation_results", None) or ())
    if by_turn and len(by_turn) != n_turns:
        raise MetricError(f"the function gave {len(by_turn)} results for {n_turns} turns; ADK wants one for each")
    scores = [_score(name, getattr(result, "score", None), index) for index, result in enumerate(by_turn)]
    return [*scores, _score(name, getattr(evaluation, "overall_score", None), None)]


def _score(name: str, value: object, turn: int | None) -> Score:
    if value is None:
        return Score(name, turn=turn, reason="The function evaluated nothing here.")
    number = plain_number(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise MetricError(f"the function gave a score of {type(value).__name__}; wanted a number")
    return Score(name, float(number), turn, reason=f"The function gave {number:g}.")


def _actual(index: int, turn: TurnRecord) -> JsonObject:
    results: list[JsonValue] = [
        _result(event, event.call) for event in turn.own_events if event.kind == "tool_result" and event.call
    ]
    messages: list[JsonValue] = [[author, [{"text": text}]] for author, text in turn.intermediate]
    steps: JsonObject = {**_calls(turn.tool_calls), "tool_responses": results, "intermediate_responses": messages}
    return _invocation(index, turn.query, turn.answer or None, steps)


def _invocation(index: int, query: str, answer: str | None, steps: JsonObject) -> JsonObject:
    return {
        "invocation_id": f"turn-{index + 1}",
        "user_content": {"role": "user", "parts": [{"text": query}] if query else []},
        "final_response": None if answer is None else {"role": "model", "parts": [{"text": answer}]},
        "intermediate_data": dict(steps),
    }


def _calls(calls: Sequence[ToolCall]) -> JsonObject:
    return {
        "tool_uses": [{"id": call.id, "name": call.name, "args": dict(call.args)} for call in calls],
        "tool_responses": [],
        "intermediate_responses": [],
    }


def _result(event: Event, call: ToolCall) -> dict[str, JsonValue]:
    response: JsonValue = event.result if isinstance(event.result, dict) else {"result": event.result}
    return {"id": call.id, "name": call.name, "response": response}


def _adk_object(kind: str, value: JsonObject) -> Any:
    """`value` as ADK's class, or as a plain object where ADK is not installed."""
    if not _has_adk():
        return _namespace(value)
    module = importlib.import_module(_MODULES[kind])
    return getattr(module, kind).model_validate(dict(value))


def _has_adk() -> bool:
    try:
        return importlib.util.find_spec("google.adk.evaluation.eval_metrics") is not None
    except (ImportError, ValueError):
        return False


def _namespace(value: object) -> Any:
    """Objects with the keys as attributes; the arguments and results of calls stay the dicts they are in ADK."""
    if isinstance(value, Mapping):
        items = {key: item if key in ("args", "response") else _namespace(item) for key, item in value.items()}
        return SimpleNamespace(**{"text": None, "function_call": None} | items if "text" in items else items)
    return [_namespace(item) for item in value] if isinstance(value, list) else value

"""Cases of a dataset of agents-cli. (google-agents-cli 1.11 eval/cmd_generate.py, agentplatform types/evals.py)

A user's message stands in `prompt`, or in `agent_data`, whose last event is that of the user: the events of the agent
before it are the history of the conversation. `session_input`, `reference_trajectory` and the keys of `_OWN_ORDER` are
no fields of agents-cli, which keeps unknown keys of a case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from evaldesk.formats.adk.case import SESSION, read_adk_call, write_adk_call
from evaldesk.formats.adk.content import Query, patch_content, patch_query, read_content, read_query, write_query
from evaldesk.model import Case, Expected, JsonObject, SessionInit, ToolCall, Turn
from evaldesk.reading.fields import (
    FINAL_STATE,
    RUBRICS,
    TAGS,
    edited_pairs,
    read_session,
    unless_empty,
    unless_none,
    write_session,
)
from evaldesk.reading.scenario import no_plan_words, plan_of, unknown_keys
from evaldesk.reading.shape import FORM, Field, Shape, form_of, format_in, read_object, shown_extra, write_object
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import (
    ABSENT,
    read_integer,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    read_text,
    snake_case,
    wrong_value,
)
from evaldesk.transcripts.adk import spelled

DATASET = "agents-cli"
PLACES = ("conversation_history", "prompt", "agent_data")
"""The keys of a case in which messages of the user stand, in the order of the conversation."""
DEFAULT_GROUP = "adk_rubrics"
"""The group of rubrics without a type, as Google's converter of eval sets names it."""


def dataset_cases(value: Any) -> list[Any]:
    """The items of `eval_cases` of an object that is no result; empty for any other value."""
    if not isinstance(value, dict):
        return []
    keys = {snake_case(key): key for key in value}
    cases = value.get(keys.get("eval_cases", ""))
    return cases if isinstance(cases, list) and "eval_set_id" not in keys else []


def is_dataset_case(item: Any) -> bool:
    """Whether the JSON value means to be a case of a dataset, however wrong inside."""
    keys = {snake_case(key) for key in item} if isinstance(item, dict) else set()
    return bool(keys & {"eval_case_id", "prompt", "agent_data", "user_scenario"}) and not keys & {
        "eval_id",
        "conversation",
    }


def is_answered(item: Any) -> bool:
    """Whether a case of a dataset holds what an agent did with it: responses, or events after the last message."""
    if not isinstance(item, dict):
        return False
    values = spelled(item)
    if values.get("responses"):
        return True
    events = [event for event in _raw_events(values.get("agent_data")) if event.get("content")]
    return bool(events) and not is_users(events[-1])


def without_answers(raw: dict[str, Any]) -> dict[str, Any]:
    """The case without responses, and without the events of the agent after the last message of the user."""
    case = {key: value for key, value in raw.items() if snake_case(key) != "responses"}
    key = next((each for each in case if snake_case(each) == "agent_data"), "")
    turns = _raw_turns(case.get(key))
    n_users = sum(map(is_users, _raw_events(case.get(key))))
    if not n_users:
        return {name: value for name, value in case.items() if name != key}
    new_turns: list[dict[str, Any]] = []
    for turn in turns:
        events = []
        for event in turn.get("events") or ():
            if n_users == 0:
                break
            events.append(event)
            n_users -= is_users(event)
        if events:
            new_turns.append({**turn, "events": events})
    return {**case, key: {**case[key], "turns": new_turns}}


def read_case(place: JsonPosition, raw: Any) -> Case:
    """One case. Raises FormatError."""
    values, extra = read_object(_CASE, place, read_mapping(place, raw))
    agent: _AgentData = values["agent_data"] or _AgentData()
    scenario = values["user_scenario"]
    by_place = {
        "conversation_history": values["conversation_history"] or (),
        "prompt": () if values["prompt"] is None else (values["prompt"],),
        "agent_data": agent.queries,
    }
    if by_place["prompt"] and by_place["agent_data"]:
        raise place.error("the user's message stands in prompt and in agent_data; keep one of them")
    queries = [query for name in PLACES for query in by_place[name]]
    if not queries and scenario is None:
        raise place.error("expected a prompt, agent_data with a message of the user, or a user_scenario, found none")
    if scenario is not None and not plan_of(scenario) and unknown_keys(scenario):
        raise place.at("user_scenario").error(no_plan_words(scenario))
    own_id = values["eval_case_id"]
    at = place.path[-1] if place.path else 0
    name = own_id or f"case_{at + 1 if isinstance(at, int) else 1}"
    session: SessionInit | None = values["session_input"]
    form: dict[str, Any] = {
        "format": DATASET,
        "places": [key for key in PLACES if by_place[key]],
        "state_keys": list(agent.state),
        "has_session": session is not None,
        **({} if own_id else {"unnamed": name}),
    }
    return Case(
        id=name,
        turns=() if scenario is not None else tuple(_turns(queries, values)),
        scenario=scenario,
        initial_session=_with_state(session, agent.state),
        final_state=values["final_session_state"],
        rubrics=values["rubric_groups"],
        tags=values["tags"],
        extra={**extra, FORM: {**form_of(extra), **form}},
    )


def write_case(case: Case) -> dict[str, Any]:
    """The object of one case."""
    form = form_of(case.extra) if format_in(case.extra) == DATASET else {}
    case = case if form else replace(case, extra=shown_extra(case.extra))
    turns = () if case.scenario is not None else case.turns
    by_place = _placed(turns, form, has_state=bool(case.initial_state))
    session, state = _placed_state(case.initial_session, form, in_events="agent_data" in by_place)
    last = turns[-1].expected if turns else Expected()
    agent_queries = by_place.get("agent_data", ())
    replies = [turn.expected.reference for turn in turns[-len(agent_queries) :]] if agent_queries else []
    values = {
        "eval_case_id": "" if case.id == form.get("unnamed") else case.id,
        "prompt": next(iter(by_place.get("prompt", ())), None),
        "conversation_history": by_place.get("conversation_history"),
        "agent_data": _AgentData(agent_queries, state, tuple(replies)) if agent_queries else None,
        "reference": last.reference,
        "reference_trajectory": last.tool_calls,
        "user_scenario": case.scenario,
        "session_input": session,
        "rubric_groups": case.rubrics,
        "final_session_state": case.final_state,
        "turn_expectations": tuple(_expectations(turns)),
        "tags": case.tags,
    }
    return write_object(_CASE, values, case.extra)


def case_losses(case: Case) -> Iterator[str]:
    """The parts of a case that a dataset cannot hold, one sentence each."""
    for number, turn in enumerate(case.turns, 1):
        keys = [key for key in shown_extra(turn.extra) if key not in ("invocation_id", "creation_timestamp")]
        if keys:
            yield f"case {case.id!r}, turn {number}: {', '.join(keys)}"
        if shown_extra(turn.expected.extra) or "events" in form_of(turn.expected.extra):
            yield f"case {case.id!r}, turn {number}: recorded results of tools and the data recorded with them"


def _turns(queries: Sequence[Query], values: Mapping[str, Any]) -> Iterator[Turn]:
    own: dict[int, Turn] = dict(values["turn_expectations"])
    last = len(queries) - 1
    for at, (text, media) in enumerate(queries):
        turn = own.get(at, Turn(""))
        of_last = {"tool_calls": values["reference_trajectory"], "reference": values["reference"]} if at == last else {}
        yield Turn(text, replace(turn.expected, **of_last), turn.rubrics, media=media)


def _expectations(turns: Sequence[Turn]) -> Iterator[tuple[int, Turn]]:
    """The expectations of turns that have no place in the fields of a case, with the number of their turn."""
    for at, turn in enumerate(turns):
        is_last = at == len(turns) - 1
        calls, reference = (None, None) if is_last else (turn.expected.tool_calls, turn.expected.reference)
        own = Turn("", Expected(calls, turn.expected.intermediate, reference), turn.rubrics)
        if own != Turn(""):
            yield at, own


def _with_state(session: SessionInit | None, state: JsonObject) -> SessionInit | None:
    if not state:
        return session
    session = session or SessionInit()
    return replace(session, state={**session.state, **state})


def _placed(turns: Sequence[Turn], form: Mapping[str, Any], *, has_state: bool) -> dict[str, tuple[Query, ...]]:
    """The messages by the key in which they stand: where the file has them, or in one key that can hold them.

    agents-cli gives a session its first state by the event of a user's message alone.
    """
    queries = tuple((turn.query, turn.media) for turn in turns)
    places = form.get("places") or []
    if not queries:
        return {}
    if places == ["conversation_history", "prompt"] and len(queries) > 1:
        return {"conversation_history": queries[:-1], "prompt": queries[-1:]}
    is_prompt = "agent_data" not in places if places else not has_state
    return {"prompt": queries} if len(queries) == 1 and is_prompt else {"agent_data": queries}


def _placed_state(
    session: SessionInit | None, form: Mapping[str, Any], *, in_events: bool
) -> tuple[SessionInit | None, JsonObject]:
    """The session of the case, and the part of its state that an event of the user sets."""
    if session is None:
        return None, {}
    if not in_events:
        return session, {}
    own_keys = form.get("state_keys", ())
    state = {key: value for key, value in session.state.items() if key in own_keys or not form.get("has_session")}
    rest = {key: value for key, value in session.state.items() if key not in state}
    rest_session = replace(session, state=rest)
    is_needed = form.get("has_session") or rest or session.app_name or session.user_id
    return rest_session if is_needed else None, state


@dataclass(frozen=True, slots=True)
class _AgentData:
    """The messages of the user in `agent_data` and the state that their events set; `replies` only for writing."""

    queries: tuple[Query, ...] = ()
    state: JsonObject = field(default_factory=dict)
    replies: tuple[str | None, ...] = ()


def _raw_turns(raw: Any) -> list[dict[str, Any]]:
    turns = spelled(raw).get("turns") if isinstance(raw, dict) else None
    return [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []


def _raw_events(raw: Any) -> Iterator[dict[str, Any]]:
    for turn in _raw_turns(raw):
        events = turn.get("events")
        yield from (event for event in events if isinstance(event, dict)) if isinstance(events, list) else ()


def is_users(event: Mapping[str, Any]) -> bool:
    """Whether an event is a message of the user, and no result of a tool."""
    return event.get("author") == "user" and bool(event.get("content")) and not _answers_a_call(event["content"])


def _answers_a_call(content: Any) -> bool:
    parts = content.get("parts") if isinstance(content, dict) else None
    return any(
        isinstance(part, dict) and any(snake_case(key) == "function_response" and part[key] for key in part)
        for part in parts or ()
    )


def _read_agent_data(place: JsonPosition, raw: Any) -> _AgentData | None:
    raw = read_optional_mapping(place, raw)
    if raw is None:
        return None
    queries: list[Query] = []
    state: dict[str, Any] = {}
    turns = read_list(place.at("turns"), spelled(raw).get("turns") or [], read_mapping)
    has_agent = False
    for at, turn in enumerate(turns):
        events_at = place.at("turns", at, "events")
        for number, event in enumerate(read_list(events_at, turn.get("events") or [], read_mapping)):
            here, author = events_at.at(number), read_optional_text(events_at.at(number, "author"), event.get("author"))
            has_agent |= author != "user"
            if is_users(event):
                queries.append(read_query(here.at("content"), event["content"]))
            if author == "user" or not has_agent:
                state |= read_optional_mapping(here.at("state_delta"), spelled(event).get("state_delta")) or {}
    return _AgentData(tuple(queries), state)


def _write_agent_data(value: _AgentData | None) -> Any:
    """Turns with the messages, and with replies to all of them but the last where they are known."""
    if value is None or not value.queries:
        return ABSENT
    turns = []
    for at, query in enumerate(value.queries):
        event: dict[str, Any] = {"author": "user", "content": write_query(query)}
        if at == 0 and value.state:
            event["state_delta"] = dict(value.state)
        reply = value.replies[at] if at < len(value.queries) - 1 and at < len(value.replies) else None
        events = [event]
        if reply is not None:
            events.append({"author": "agent", "content": {"parts": [{"text": reply}], "role": "model"}})
        turns.append({"turn_index": at, "events": events})
    return {"turns": turns}


def _patch_agent_data(raw: Any, value: _AgentData | None) -> Any:
    """`raw` with other messages or another state; history, agents and unchanged messages stay."""
    if value is None or not isinstance(raw, dict):
        return _write_agent_data(value)
    file_value = _read_agent_data(_NOWHERE, raw) or _AgentData()
    key = next((each for each in raw if snake_case(each) == "turns"), "turns")
    turns = list(_raw_turns(raw))
    if file_value.queries != value.queries:
        turns = _with_queries(turns, file_value.queries, value.queries)
    if file_value.state != value.state:
        turns = _with_state_delta(turns, value.state)
    return {**raw, key: turns}


def _with_queries(
    turns: Sequence[dict[str, Any]], before: Sequence[Query], after: Sequence[Query]
) -> list[dict[str, Any]]:
    """The turns with other messages; the history behind a removed message goes with it."""
    pairs = edited_pairs([write_query(query) for query in before], [write_query(query) for query in after])
    new_places = {start: end for start, end in pairs if start is not None}
    additions: dict[int, list[int]] = {}
    last = -1
    for start, end in pairs:
        last = start if start is not None else last
        if start is None and end is not None:
            additions.setdefault(last, []).append(end)
    new_turns = [_new_turn(after[at]) for at in additions.get(-1, ())]
    number, is_removed = -1, False
    for turn in turns:
        events = []
        first = number
        for event in turn.get("events") or ():
            if is_users(event):
                number += 1
                place = new_places[number]
                is_removed = place is None
                if place is not None:
                    events.append({**event, "content": patch_query(event["content"], after[place])})
            elif not is_removed:
                events.append(event)
        if events or not turn.get("events"):
            new_turns.append({**turn, "events": events})
        new_turns += [
            _new_turn(after[at]) for before_at in range(first + 1, number + 1) for at in additions.get(before_at, ())
        ]
    if len(new_turns) == len(turns):
        return new_turns
    return [{**turn, "turn_index": at} if "turn_index" in turn else turn for at, turn in enumerate(new_turns)]


def _new_turn(query: Query) -> dict[str, Any]:
    return {"turn_index": 0, "events": [{"author": "user", "content": write_query(query)}]}


def _with_state_delta(turns: Sequence[dict[str, Any]], state: JsonObject) -> list[dict[str, Any]]:
    """The turns whose first event of a user sets this state, and no other event of a user sets any."""
    is_set = False
    new_turns = []
    for turn in turns:
        events = []
        for event in turn.get("events") or ():
            if event.get("author") != "user":
                events.append(event)
                continue
            new_event = {key: value for key, value in event.items() if snake_case(key) != "state_delta"}
            if state and not is_set:
                new_event["state_delta"] = dict(state)
                is_set = True
            if new_event.get("content") or "state_delta" in new_event:
                events.append(new_event)
        new_turns.append({**turn, "events": events})
    return new_turns


def _read_history(place: JsonPosition, raw: Any) -> tuple[Query, ...] | None:
    if raw is None or raw is ABSENT:
        return None
    items = read_list(place, raw, read_mapping)
    return tuple(
        read_query(place.at(at, "content"), item["content"]) for at, item in enumerate(items) if is_users(item)
    )


def _write_history(queries: tuple[Query, ...] | None) -> Any:
    if not queries:
        return ABSENT
    return [{"turn_id": str(at), "author": "user", "content": write_query(query)} for at, query in enumerate(queries)]


def _patch_history(raw: Any, queries: tuple[Query, ...] | None) -> Any:
    """The history with other messages; replies stay while the number of messages does."""
    if queries is None or not isinstance(raw, list) or sum(map(is_users, raw)) != len(queries):
        return _write_history(queries)
    rest = iter(queries)
    return [{**item, "content": patch_query(item["content"], next(rest))} if is_users(item) else item for item in raw]


def _read_reference(place: JsonPosition, raw: Any) -> str | None:
    """The text of the reference; it stands in a candidate, and a bare content is taken too."""
    raw = read_optional_mapping(place, raw)
    if raw is None:
        return None
    return read_content(place, raw) if "parts" in raw else read_content(place.at("response"), raw.get("response"))


def _write_reference(text: str | None) -> Any:
    return ABSENT if text is None else {"response": {"parts": [{"text": text}], "role": "model"}}


def _patch_reference(raw: Any, text: str | None) -> Any:
    if text is None or not isinstance(raw, dict):
        return _write_reference(text)
    if "parts" in raw:
        return patch_content(raw, text)
    return {**raw, "response": patch_content(raw.get("response") or {"role": "model"}, text)}


def _read_trajectory(place: JsonPosition, raw: Any) -> tuple[ToolCall, ...] | None:
    """The calls of a list of contents; None, which asserts nothing, for null and absent."""
    if raw is None or raw is ABSENT:
        return None
    calls = []
    for at, content in enumerate(read_list(place, raw, read_mapping)):
        parts = read_list(place.at(at, "parts"), content.get("parts") or [], read_mapping)
        for number, part in enumerate(parts):
            key = next((key for key in part if snake_case(key) == "function_call" and part[key]), None)
            if key:
                calls.append(read_adk_call(place.at(at, "parts", number, key), part[key]))
    return tuple(calls)


def _write_trajectory(calls: tuple[ToolCall, ...] | None) -> Any:
    if calls is None:
        return ABSENT
    return [{"parts": [{"function_call": write_adk_call(call)}], "role": "model"} for call in calls]


def _read_rubric_groups(place: JsonPosition, raw: Any) -> tuple[JsonObject, ...]:
    """The rubrics of all groups as ADK has them."""
    groups = read_optional_mapping(place, raw) or {}
    rubrics: list[JsonObject] = []
    for name, group in groups.items():
        items = read_mapping(place.at(name), group).get("rubrics")
        rubrics += read_list(place.at(name, "rubrics"), items or [], _read_rubric)
    return tuple(rubrics)


def _read_rubric(place: JsonPosition, raw: Any) -> JsonObject:
    values = spelled(read_mapping(place, raw))
    content = read_optional_mapping(place.at("content"), values.get("content")) or {}
    property_at = place.at("content", "property")
    property_value = read_optional_mapping(property_at, content.get("property")) or {}
    text = read_text(property_at.at("description"), property_value.get("description", ABSENT))
    rubric_id = read_optional_text(place.at("rubric_id"), values.get("rubric_id"))
    kind = read_optional_text(place.at("type"), values.get("type"))
    name = rubric_id or f"rubric_{_number(place)}"
    return {"rubric_id": name, "rubric_content": {"text_property": text}, **({"type": kind} if kind else {})}


def _number(place: JsonPosition) -> int:
    at = place.path[-1]
    return at + 1 if isinstance(at, int) else 1


def _write_rubric_groups(rubrics: tuple[JsonObject, ...]) -> Any:
    groups: dict[str, Any] = {}
    for rubric in rubrics:
        groups.setdefault(str(rubric.get("type") or DEFAULT_GROUP), {"rubrics": []})["rubrics"].append(
            _write_rubric(rubric)
        )
    return groups or ABSENT


def _write_rubric(rubric: JsonObject) -> dict[str, Any]:
    content = rubric.get("rubric_content")
    text = content.get("text_property") if isinstance(content, dict) else None
    kind = {"type": rubric["type"]} if rubric.get("type") else {}
    return {"rubric_id": rubric.get("rubric_id"), "content": {"property": {"description": text}}, **kind}


def _patch_rubric_groups(raw: Any, rubrics: tuple[JsonObject, ...]) -> Any:
    """The groups with other rubrics: unchanged ones stay, a new one goes to the group of its type or the only one."""
    if not isinstance(raw, dict) or not raw or not rubrics:
        return _write_rubric_groups(rubrics)
    rest = list(rubrics)
    groups: dict[str, Any] = {}
    for name, group in raw.items():
        items = []
        for at, item in enumerate(group.get("rubrics") or ()):
            own = _read_rubric(_NOWHERE.at(at), item)
            same = next((each for each in rest if each.get("rubric_id") == own["rubric_id"]), None)
            if same is None:
                continue
            rest.remove(same)
            items.append(item if same == own else {**item, **_write_rubric(same)})
        groups[name] = {**group, "rubrics": items}
    only = next(iter(groups)) if len(groups) == 1 else ""
    for rubric in rest:
        name = only or str(rubric.get("type") or DEFAULT_GROUP)
        groups.setdefault(name, {"rubrics": []})["rubrics"].append(_write_rubric(rubric))
    return {name: group for name, group in groups.items() if group["rubrics"]} or ABSENT


def _read_expectations(place: JsonPosition, raw: Any) -> tuple[tuple[int, Turn], ...]:
    return () if raw is None or raw is ABSENT else read_list(place, raw, _read_expectation)


def _read_expectation(place: JsonPosition, raw: Any) -> tuple[int, Turn]:
    values, extra = read_object(_EXPECTATION, place, read_mapping(place, raw))
    own = Expected(values["tool_uses"], values["intermediate_responses"], values["reference"])
    return values["turn"], Turn("", own, values["rubrics"], extra)


def _write_expectation(entry: tuple[int, Turn]) -> dict[str, Any]:
    at, turn = entry
    values = {
        "turn": at,
        "tool_uses": turn.expected.tool_calls,
        "intermediate_responses": turn.expected.intermediate,
        "reference": turn.expected.reference,
        "rubrics": turn.rubrics,
    }
    return write_object(_EXPECTATION, values, turn.extra)


def _read_calls(place: JsonPosition, raw: Any) -> tuple[ToolCall, ...] | None:
    return None if raw is None or raw is ABSENT else read_list(place, raw, read_adk_call)


def _read_responses(place: JsonPosition, raw: Any) -> tuple[tuple[str, str], ...]:
    return () if raw is None or raw is ABSENT else read_list(place, raw, _read_response)


def _read_response(place: JsonPosition, raw: Any) -> tuple[str, str]:
    if not isinstance(raw, list) or len(raw) != 2:
        raise wrong_value(place, raw, "a list of an author and a text")
    return read_text(place.at(0), raw[0]), read_text(place.at(1), raw[1])


_NOWHERE = JsonPosition(Document(None))
_OWN_ORDER = ("session_input", "final_session_state", "turn_expectations", "tags")
_EXPECTATION = Shape(
    fields=(
        Field("turn", read_integer, lambda at: at),
        Field("tool_uses", _read_calls, lambda calls: ABSENT if calls is None else [*map(write_adk_call, calls)]),
        Field("intermediate_responses", _read_responses, lambda texts: unless_empty(tuple(map(list, texts)))),
        Field("reference", read_optional_text, unless_none),
        RUBRICS,
    ),
    order=("turn", "tool_uses", "intermediate_responses", "reference"),
    format=DATASET,
)
_CASE = Shape(
    fields=(
        Field("eval_case_id", lambda place, raw: read_optional_text(place, raw) or "", lambda name: name or ABSENT),
        Field(
            "prompt",
            lambda place, raw: None if raw is None or raw is ABSENT else read_query(place, raw),
            lambda query: ABSENT if query is None else write_query(query),
            lambda raw, query: patch_query(raw, query) if query is not None and raw is not None else ABSENT,
        ),
        Field("conversation_history", _read_history, _write_history, _patch_history),
        Field("agent_data", _read_agent_data, _write_agent_data, _patch_agent_data),
        Field("reference", _read_reference, _write_reference, _patch_reference),
        Field("reference_trajectory", _read_trajectory, _write_trajectory),
        Field("rubric_groups", _read_rubric_groups, _write_rubric_groups, _patch_rubric_groups),
        Field("user_scenario", read_optional_mapping, unless_none),
        Field("session_input", partial(read_session, SESSION), partial(write_session, SESSION), keeps_form=True),
        FINAL_STATE,
        Field(
            "turn_expectations",
            _read_expectations,
            lambda entries: unless_empty(tuple(map(_write_expectation, entries))),
        ),
        TAGS,
    ),
    order=(
        "eval_case_id",
        "prompt",
        "conversation_history",
        "agent_data",
        "user_scenario",
        "reference",
        "reference_trajectory",
        "rubric_groups",
        *_OWN_ORDER,
    ),
    format=DATASET,
)

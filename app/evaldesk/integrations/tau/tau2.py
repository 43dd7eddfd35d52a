"""The formats "tau2" and "tau2-results": tasks of tau2-bench, and simulations with the tasks that they are of.

A list of `{id, user_scenario: {persona, instructions}, initial_state, evaluation_criteria, ...}`; everything but the id
stays in `extra` as it is. Values without a place in a task are written beside under ADK's names (`tags`,
`session_input`, ...), which tau2 ignores. (sierra-research/tau2-bench data_model/tasks.py)

Results are an object `{info, tasks, simulations: [{task_id, trial, messages, reward_info, termination_reason, ...}]}`.
(sierra-research/tau2-bench data_model/simulation.py)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from evaldesk.errors import TEXT_LIMIT, VALUE_LIMIT, FormatError
from evaldesk.formats.adk.case import SESSION
from evaldesk.formats.exchange import MAX_ROW, Holding, Imported, ReadOnly
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.integrations.tau.tau_bench import REWARD, read_trial_row, reward_value
from evaldesk.matching import read_calls, required_calls, rewarded_actions
from evaldesk.model import Case, Criterion, ErrorRecord, EvalSet, JsonObject, Score, SessionInit, TrialResult, Usage
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import NEEDS_REVIEW, REVIEW_REASON, for_review
from evaldesk.reading.fields import read_rubrics, read_session, read_tags, write_session
from evaldesk.reading.json_stream import StreamedList
from evaldesk.reading.json_text import to_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.scenario import TASK_SECTIONS, task_plan, with_persona
from evaldesk.reading.shape import shown_extra
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import RECORDED_DECODER, Document, JsonPosition, parse_recorded_json
from evaldesk.reading.values import (
    ABSENT,
    read_key,
    read_list,
    read_mapping,
    read_optional_count,
    read_optional_mapping,
    read_optional_text,
    read_text,
    text_of,
    wrong_value,
)
from evaldesk.transcripts.messages.chat import read_chat_message
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import (
    RecordedRun,
    TrialRows,
    file_stem,
    iso_ms,
    known_time,
    recorded_score,
    recorded_trial,
    recorded_usage,
)
from evaldesk.transcripts.recorded_ends import MESSAGE_LIMIT, is_accident, recorded_error

_OWN = ("conversation_scenario", "session_input", "rubrics", "final_session_state", "tags")
_NAME = "tau2-results"
_ACTIONS_LOST = (
    "tau2 rewards calls of the simulated user's own tools (reward_basis ACTION), which no trial here has",
    "tau2 rewards its reference actions (reward_basis ACTION), which cannot be read",
    "tau2 rewards its reference actions (reward_basis ACTION), which a scenario does not assert",
)
"""Why a task waits for a review; the last one was written by earlier versions."""
_STOPS = ("user_stop", "agent_stop", "")
"""Ends after which tau2 checks what the agent did."""
_ROW_KEYS = ("messages", "ticks", "reward_info", "task_id", "trial", "termination_reason", "duration")


class Tau2Tasks:
    """The format "tau2"."""

    title = "tau2-bench tasks"
    suffixes = (".json",)
    writes: tuple[Holding, ...] = ("evalset",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a list of tasks, each with a scenario for its user."""
        document = peek(data).document
        first = document[0] if isinstance(document, list) and document else None
        return isinstance(first, dict) and "user_scenario" in first

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """An eval set with a case for each task. Raises FormatError."""
        document = parse_recorded_json(data, source=source)
        notes = Notes()
        cases = read_tasks(JsonPosition(document), document.value, notes)
        evalset = EvalSet(file_stem(source), cases=cases)
        return Imported("tau2", evalset, kept=action_notes(cases), refused=notes.sentences)

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The file of an eval set whose cases are scenarios. Raises FormatError."""
        if not isinstance(what, EvalSet):
            raise FormatError("tau2 tasks contain no run; export its eval set instead")
        return to_text([write_task(case) for case in what.cases], {"ends_with": "\n"}, what.id)


def read_tasks(place: JsonPosition, raw: Any, notes: Notes) -> tuple[Case, ...]:
    """The cases of a list of tasks. Raises FormatError, also when two tasks have one id."""
    cases = read_list(place, raw, lambda at, task: read_task(at, task, notes))
    task_ids: set[str] = set()
    for index, case in enumerate(cases):
        if case.id in task_ids:
            raise place.at(index, "id").error(f"a task with the id {case.id[:VALUE_LIMIT]!r} is there already")
        task_ids.add(case.id)
    return cases


def read_task(place: JsonPosition, raw: Any, notes: Notes) -> Case:
    """One task. Raises FormatError."""
    task = read_mapping(place, raw)
    if "user_scenario" not in task:
        raise wrong_value(place.at("user_scenario"), ABSENT, "an object")
    case = Case(
        id=read_key(place.at("id"), task.get("id", ABSENT)),
        scenario=_scenario(place, task),
        initial_session=_session(place, task),
        final_state=read_optional_mapping(place.at("final_session_state"), task.get("final_session_state")),
        rubrics=_rubrics(place, task),
        tags=read_tags(place.at("tags"), task.get("tags")),
        extra=notes.unknown_keys(place, task, ("id", *_OWN)),
    )
    by_user, unread, _ = _ACTIONS_LOST
    rewarded = rewarded_actions(case.extra)
    if rewarded is None or REVIEW_REASON in case.extra:
        return case
    calls = read_calls(rewarded)
    if calls is None:
        return for_review(case, unread)
    return for_review(case, by_user) if any(call.by_user for call in calls) else case


def write_task(case: Case) -> dict[str, Any]:
    """The task of a case: as it was read where the case still says the same. Raises FormatError for a conversation."""
    if NEEDS_REVIEW in case.tags and case.extra.get(REVIEW_REASON) in _ACTIONS_LOST:  # the task itself says it
        other_extra = {key: value for key, value in case.extra.items() if key != REVIEW_REASON}
        case = replace(case, tags=tuple(tag for tag in case.tags if tag != NEEDS_REVIEW), extra=other_extra)
    if case.scenario is None:
        raise FormatError(
            f"case {case.id!r} is a conversation; a tau2 task is played by a simulated user and needs a scenario"
        )
    nowhere = JsonPosition(Document(None))
    own = {key: value for key, value in shown_extra(case.extra).items() if key not in ("id", *_OWN)}
    task: dict[str, Any] = {"id": case.id, **own}
    if not isinstance(task.get("user_scenario"), dict) or _scenario(nowhere, task) != case.scenario:
        task["user_scenario"] = {"instructions": str(case.scenario.get("conversation_plan", ""))}
    if _scenario(nowhere, task) != case.scenario:
        task["conversation_scenario"] = dict(case.scenario)
    if _rubrics(nowhere, task) != case.rubrics:
        _set_assertions(task, case.rubrics)
    if _session(nowhere, task) != case.initial_session:
        session = case.initial_session
        task["session_input"] = None if session is None else write_session(SESSION, session)
    if case.final_state is not None:
        task["final_session_state"] = dict(case.final_state)
    if case.tags:
        task["tags"] = list(case.tags)
    return task


def action_notes(cases: Sequence[Case]) -> tuple[str, ...]:
    """What becomes of the reference actions: those that a reward asks for are judged, the others are kept."""
    criteria = [case.extra.get("evaluation_criteria") for case in cases]
    n_actions = sum(isinstance(each, dict) and bool(each.get("actions")) for each in criteria)
    n_required = sum(bool(required_calls(case)) for case in cases)
    judged_note = (
        f"The reference actions of {counted(n_required, 'task')} are rewarded: the metric required_calls judges them."
    )
    kept_note = (
        f"The {'other ' if n_required else ''}reference actions stay in evaluation_criteria and are not asserted: the "
        "simulated user makes the turns, and tau2 compares the database they lead to, not the calls."
    )
    return (*([judged_note] if n_required else ()), *([kept_note] if n_actions > n_required else ()))


def _scenario(place: JsonPosition, task: dict[str, Any]) -> JsonObject:
    own = read_optional_mapping(place.at("conversation_scenario"), task.get("conversation_scenario"))
    if own is not None:
        return own
    at = place.at("user_scenario")
    fields = read_mapping(at, task.get("user_scenario"))
    persona = read_optional_text(at.at("persona"), fields.get("persona"))
    plan = _plan(at.at("instructions"), fields.get("instructions", ABSENT))
    return {"starting_prompt": "", "conversation_plan": with_persona(persona or "", plan)}


def _plan(place: JsonPosition, raw: Any) -> str:
    """The instructions of the user as one text; in tau2 they are a text, or an object of texts."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, dict):
        raise wrong_value(place, raw, "a string or an object")
    return task_plan({key: read_optional_text(place.at(key), raw.get(key)) for key in TASK_SECTIONS})


def _rubrics(place: JsonPosition, task: dict[str, Any]) -> tuple[JsonObject, ...]:
    if "rubrics" in task:
        return read_rubrics(place.at("rubrics"), task["rubrics"])
    criteria = read_optional_mapping(place.at("evaluation_criteria"), task.get("evaluation_criteria")) or {}
    at = place.at("evaluation_criteria", "nl_assertions")
    raw = criteria.get("nl_assertions")
    texts = () if raw is None else read_list(at, raw, read_text)
    return tuple(_rubric(number, text) for number, text in enumerate(texts, 1))


def _rubric(number: int, text: str) -> JsonObject:
    return {"rubric_id": f"nl_assertion_{number}", "rubric_content": {"text_property": text}}


def _set_assertions(task: dict[str, Any], rubrics: Sequence[JsonObject]) -> None:
    contents = [rubric.get("rubric_content") for rubric in rubrics]
    texts = [content.get("text_property") for content in contents if isinstance(content, dict)]
    criteria = {**(task.get("evaluation_criteria") or {}), "nl_assertions": texts}
    if [_rubric(number, str(text)) for number, text in enumerate(texts, 1)] == list(rubrics):
        task["evaluation_criteria"] = criteria
    else:
        task["rubrics"] = [dict(rubric) for rubric in rubrics]


def _session(place: JsonPosition, task: dict[str, Any]) -> SessionInit | None:
    """The session of a case; without one of our own, tau2's changes to the agent's database are its state."""
    if "session_input" in task:
        return read_session(SESSION, place.at("session_input"), task["session_input"])
    at = place.at("initial_state")
    start = read_optional_mapping(at, task.get("initial_state")) or {}
    at = at.at("initialization_data")
    data = read_optional_mapping(at, start.get("initialization_data")) or {}
    state = read_optional_mapping(at.at("agent_data"), data.get("agent_data"))
    return SessionInit(state=state) if state else None


class Tau2Results(ReadOnly):
    """The format "tau2-results"."""

    title = "tau2-bench results"
    suffixes = (".json",)
    n_readings = 2
    instead = "write an eval set as tau2"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object of tasks and their simulations."""
        document = peek(data).document
        return (
            isinstance(document, dict)
            and "tasks" in document
            and bool({"simulations", "simulation_index"} & set(document))
        )

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The eval set of the tasks and one run of the simulations. Raises FormatError."""
        document = parse_recorded_json(data, source=source)
        place = JsonPosition(document)
        root = read_mapping(place, document.value)
        at = place.at("simulations")
        rows = read_list(at, root.get("simulations") or [], lambda here, raw: (here, read_trial_row(here, raw)))
        return _build_import(place, root, file_stem(source), rows, TrialRows())

    @staticmethod
    def read_large(file: BinaryIO, *, source: str, outcome: str) -> Imported:
        """As `read`, a simulation at a time, after a first reading for the tasks."""
        items = _simulations(file, source)
        for _ in items:
            pass
        place = JsonPosition(items.shell)
        root = read_mapping(place, items.shell.value)
        file.seek(0)
        rows = (
            (JsonPosition(item), read_trial_row(JsonPosition(item), item.value)) for item in _simulations(file, source)
        )
        return _build_import(place, root, file_stem(source), rows, TrialRowsOnDisk())


def _simulations(file: BinaryIO, source: str) -> StreamedList:
    return StreamedList(file, source, lambda key: key == "simulations", max_item=MAX_ROW, decoder=RECORDED_DECODER)


def _build_import(
    place: JsonPosition,
    root: dict[str, Any],
    name: str,
    rows: Iterable[tuple[JsonPosition, dict[str, Any]]],
    trials: TrialRows,
) -> Imported:
    notes = Notes()
    cases = read_tasks(place.at("tasks"), root.get("tasks", ABSENT), notes)
    task_ids = {case.id for case in cases}
    for case in cases:
        trials.offer(trials.place(case.id), case)
    metrics: dict[str, None] = {}
    ends: dict[tuple[str, Any], str] = {}
    is_empty = True
    for at, row in rows:
        is_empty = False
        case_id = str(row["task_id"])
        if case_id not in task_ids:
            notes.refuse("a simulation of a task that the file does not have", at)
            continue
        result = _result(at, row, notes)
        trials.add(trials.place(case_id), result, row.get("trial"))
        metrics |= dict.fromkeys(score.metric for score in result.scores)
        key = (case_id, row.get("trial"))
        ends.pop(key, "")
        ends |= {key: result.stop_reason} if result.error else {}
    if is_empty and root.get("simulation_index"):
        notes.refuse("the simulations, which tau2 keeps in the folder beside this file", place.at("simulation_index"))
    info = read_optional_mapping(place.at("info"), root.get("info")) or {}
    agent = read_optional_mapping(place.at("info", "agent_info"), info.get("agent_info")) or {}
    _, results = trials.finish()
    run = RecordedRun(
        name=name,
        agent=read_optional_text(place.at("info", "agent_info", "implementation"), agent.get("implementation")) or name,
        cases=cases,
        results=results,
        criteria=(REWARD, *(Criterion(metric) for metric in metrics if metric != REWARD.metric)),
        model=read_optional_text(place.at("info", "agent_info", "llm"), agent.get("llm")),
        note=_note(info),
        plan=trials.plan_of(len(cases), read_optional_count(place.at("info", "num_trials"), info.get("num_trials"))),
    )
    evalset = EvalSet(name, cases=cases)
    runs = (run,) if results else ()
    kept_words = (*action_notes(cases), *trials.earlier_words)
    return Imported(_NAME, evalset, runs, _understood_words(Counter(ends.values())), kept_words, notes.sentences)


def _understood_words(ends: Counter[str]) -> tuple[str, ...]:
    rule = "A trial passes when its reward is 1; the parts of the reward only inform."
    if not ends:
        return (rule,)
    by_end = ", ".join(f"{n} by {end}" for end, n in ends.items())
    return (
        rule,
        f"{counted(ends.total(), 'trial')} ended without the agent being to blame ({by_end}): errors, not failures.",
    )


def _note(info: dict[str, Any]) -> str:
    fields = {key: info.get(key) for key in ("git_commit", "seed", "max_steps")}
    return ", ".join(f"{key} {value}" for key, value in fields.items() if isinstance(value, str | int))[:TEXT_LIMIT]


def _result(place: JsonPosition, row: dict[str, Any], notes: Notes) -> TrialResult:
    if row.get("ticks"):
        notes.refuse("the ticks of a voice simulation", place.at("ticks"))
    rows = row.get("messages")
    messages = () if rows is None else read_list(place.at("messages"), rows, lambda at, raw: _read(at, raw, notes))
    end = read_optional_text(place.at("termination_reason"), row.get("termination_reason")) or ""
    error = recorded_error(f"tau2 ended the simulation: {end}") if is_accident(_NAME, end) else None
    scores = () if error else _scores(place, row, end)
    duration_s = known_time(place.at("duration"), row.get("duration"), notes)
    return recorded_trial(
        turns_of(messages, error, tells_results=True),
        scores=scores,
        criteria=(REWARD,),
        error=error,
        stop_reason=end,
        duration_ms=None if duration_s is None else duration_s * 1000,
    )


def _read(place: JsonPosition, raw: Any, notes: Notes) -> Message:
    """One message; tool calls of the simulated user become a line of the log."""
    fields = read_mapping(place, raw)
    message = read_chat_message(place, raw, notes)
    if fields.get("requestor") == "user":
        message = Message("system", f"A tool of the user gave: {message.result}")
    elif message.speaker == "user" and fields.get("tool_calls"):
        message = Message("system", f"The user called {json.dumps(fields['tool_calls'], ensure_ascii=False)}")
    return replace(message, usage=_usage(fields), at_ms=iso_ms(fields.get("timestamp")))


def _usage(fields: dict[str, Any]) -> Usage | ErrorRecord | None:
    counts, cost = fields.get("usage"), fields.get("cost")
    counts = counts if isinstance(counts, dict) else {}
    if not counts and cost is None:
        return None
    raw = fields.get("raw_data")
    return recorded_usage(
        text_of(raw.get("model")) if isinstance(raw, dict) else "",
        counts,
        "prompt_tokens",
        "completion_tokens",
        cost=cost,
        role="user" if fields.get("role") == "user" else "agent",
    )


def _scores(place: JsonPosition, row: dict[str, Any], end: str) -> tuple[Score, ...]:
    at = place.at("reward_info")
    reward_info = read_optional_mapping(at, row.get("reward_info")) or {}
    parts = read_optional_mapping(at.at("reward_breakdown"), reward_info.get("reward_breakdown")) or {}
    details = {key: value for key, value in reward_info.items() if key != "reward"}
    details["simulation"] = {key: value for key, value in row.items() if key not in _ROW_KEYS}
    value = reward_value(at.at("reward"), reward_info.get("reward"))
    if value is None and end not in _STOPS:
        value = 0.0  # as tau2 gives to every simulation that did not stop by itself
    trial_score = recorded_score(REWARD, value, _reason(value, reward_info, end), details)
    part_values = [(name, reward_value(at.at("reward_breakdown", name), part)) for name, part in parts.items()]
    return (trial_score, *(recorded_score(Criterion(f"reward_{name.lower()}"), part) for name, part in part_values))


def _reason(value: float | str | None, reward_info: dict[str, Any], end: str) -> str:
    if value == 1:
        return "Everything the reward is made of is as it should be."
    if end not in _STOPS:
        return f"The simulation ended by {end}."
    failed = [what for what, is_met in _checks(reward_info) if not is_met]
    return f"Not as it should be: {'; '.join(failed)}."[:MESSAGE_LIMIT] if failed else ""


def _checks(reward_info: dict[str, Any]) -> list[tuple[str, bool]]:
    """The checks, and their results."""
    checks = [("the database", _is_not_false(reward_info.get("db_check"), "db_match"))]
    for key, what, flag in (
        ("env_assertions", "an assertion about the environment", "met"),
        ("communicate_checks", "said", "met"),
        ("nl_assertions", "judged", "met"),
    ):
        rows = reward_info.get(key)
        for row in rows if isinstance(rows, list) else ():
            text = row.get("info", row.get("nl_assertion")) if isinstance(row, dict) else None
            checks.append((f"{what}: {text}" if isinstance(text, str) else what, _is_not_false(row, flag)))
    return checks


def _is_not_false(row: Any, flag: str) -> bool:
    return not (isinstance(row, dict) and row.get(flag) is False)

"""The format "tau2": tasks of tau2-bench, each played by a simulated user.

A list of `{id, user_scenario: {persona, instructions}, initial_state, evaluation_criteria, ...}`; everything but the id
stays in `extra` as it is. Values without a place in a task are written beside under ADK's names (`tags`,
`session_input`, ...), which tau2 ignores. (sierra-research/tau2-bench data_model/tasks.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, Imported
from evaldesk.model import Case, EvalSet, JsonObject, SessionInit
from evaldesk.reading.fields import read_rubrics, read_tags
from evaldesk.reading.json_text import to_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.shape import shown_extra
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, Document, Place, parse_json
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_mapping,
    read_optional_text,
    read_text,
    wanted,
)
from evaldesk.transcripts.recorded import RecordedRun, file_stem

_OWN = ("conversation_scenario", "session_input", "rubrics", "final_session_state", "tags")
_SECTIONS = ("domain", "reason_for_call", "known_info", "unknown_info", "task_instructions")


class Tau2Tasks:
    """The format "tau2"."""

    title = "tau2-bench tasks"
    suffixes = (".json",)
    writes: tuple[Holding, ...] = ("evalset",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a list of tasks, each with a scenario for its user."""
        whole = peek(data).whole
        first = whole[0] if isinstance(whole, list) and whole else None
        return isinstance(first, dict) and "user_scenario" in first

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """An eval set with a case for each task. Raises FormatError."""
        document = parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES)
        notes = Notes()
        cases = read_tasks(Place(document), document.value, notes)
        evalset = EvalSet(file_stem(source), cases=cases)
        return Imported("tau2", evalset, kept=why_not_asserted(cases), refused=notes.sentences)

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The file of an eval set whose cases are scenarios. Raises FormatError."""
        if not isinstance(what, EvalSet):
            raise FormatError("tau2 tasks hold no run; export its eval set instead")
        return to_text([write_task(case) for case in what.cases], {"ends_with": "\n"}, what.id)


def read_tasks(place: Place, raw: Any, notes: Notes) -> tuple[Case, ...]:
    """The cases of a list of tasks. Raises FormatError, also when two tasks have one id."""
    cases = read_list(place, raw, lambda at, task: read_task(at, task, notes))
    seen: set[str] = set()
    for index, case in enumerate(cases):
        if case.id in seen:
            raise place.at(index, "id").error(f"a task with the id {case.id[:80]!r} is there already")
        seen.add(case.id)
    return cases


def read_task(place: Place, raw: Any, notes: Notes) -> Case:
    """One task. Raises FormatError."""
    task = read_mapping(place, raw)
    if "user_scenario" not in task:
        raise wanted(place.at("user_scenario"), ABSENT, "an object")
    key = task.get("id", ABSENT)
    if isinstance(key, bool) or not isinstance(key, int | str):
        raise wanted(place.at("id"), key, "a string")
    return Case(
        id=str(key),
        scenario=_scenario(place, task),
        initial_session=_session(place, task),
        final_state=read_optional_mapping(place.at("final_session_state"), task.get("final_session_state")),
        rubrics=_rubrics(place, task),
        tags=read_tags(place.at("tags"), task.get("tags")),
        extra=notes.unknown(place, task, ("id", *_OWN)),
    )


def write_task(case: Case) -> dict[str, Any]:
    """The task of a case: as it was read where the case still says the same. Raises FormatError for a conversation."""
    if case.scenario is None:
        raise FormatError(
            f"case {case.id!r} is a conversation; a tau2 task is played by a simulated user and needs a scenario"
        )
    nowhere = Place(Document(None))
    task: dict[str, Any] = {"id": case.id, **_without_own(shown_extra(case.extra))}
    if not isinstance(task.get("user_scenario"), dict) or _scenario(nowhere, task) != case.scenario:
        task["user_scenario"] = {"instructions": str(case.scenario.get("conversation_plan", ""))}
    if _scenario(nowhere, task) != case.scenario:
        task["conversation_scenario"] = dict(case.scenario)
    if _rubrics(nowhere, task) != case.rubrics:
        _set_assertions(task, case.rubrics)
    if _session(nowhere, task) != case.initial_session:
        task["session_input"] = _written_session(case.initial_session)
    if case.final_state is not None:
        task["final_session_state"] = dict(case.final_state)
    if case.tags:
        task["tags"] = list(case.tags)
    return task


def why_not_asserted(cases: Sequence[Case]) -> tuple[str, ...]:
    """Why reference actions are kept and not expected, when some case has them."""
    criteria = [case.extra.get("evaluation_criteria") for case in cases]
    if not any(isinstance(each, dict) and each.get("actions") for each in criteria):
        return ()
    return (
        "The reference actions stay in evaluation_criteria and are not asserted: the simulated user makes the turns, "
        "and tau2 compares the database they lead to, not the calls.",
    )


def _scenario(place: Place, task: dict[str, Any]) -> JsonObject:
    own = read_optional_mapping(place.at("conversation_scenario"), task.get("conversation_scenario"))
    if own is not None:
        return own
    at = place.at("user_scenario")
    told = read_mapping(at, task.get("user_scenario"))
    persona = read_optional_text(at.at("persona"), told.get("persona"))
    plan = _plan(at.at("instructions"), told.get("instructions", ABSENT))
    return {"starting_prompt": "", "conversation_plan": f"Persona: {persona}\n\n{plan}" if persona else plan}


def _plan(place: Place, raw: Any) -> str:
    """The instructions of the user as one text; in tau2 they are a text, or an object of texts."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, dict):
        raise wanted(place, raw, "a string or an object")
    named = [(key, read_optional_text(place.at(key), raw.get(key))) for key in _SECTIONS]
    return "\n\n".join(f"{key.replace('_', ' ').capitalize()}: {text}" for key, text in named if text)


def _rubrics(place: Place, task: dict[str, Any]) -> tuple[JsonObject, ...]:
    if "rubrics" in task:
        return read_rubrics(place.at("rubrics"), task["rubrics"])
    criteria = read_optional_mapping(place.at("evaluation_criteria"), task.get("evaluation_criteria")) or {}
    at = place.at("evaluation_criteria", "nl_assertions")
    said = criteria.get("nl_assertions")
    texts = () if said is None else read_list(at, said, read_text)
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


def _session(place: Place, task: dict[str, Any]) -> SessionInit | None:
    """The session of a case; without one of our own, tau2's changes to the agent's database are its state."""
    if "session_input" in task:
        own = read_optional_mapping(place.at("session_input"), task["session_input"])
        return None if own is None else _own_session(place.at("session_input"), own)
    at = place.at("initial_state")
    start = read_optional_mapping(at, task.get("initial_state")) or {}
    at = at.at("initialization_data")
    data = read_optional_mapping(at, start.get("initialization_data")) or {}
    state = read_optional_mapping(at.at("agent_data"), data.get("agent_data"))
    return SessionInit(state=state) if state else None


def _own_session(place: Place, own: dict[str, Any]) -> SessionInit:
    return SessionInit(
        read_optional_text(place.at("app_name"), own.get("app_name")) or "",
        read_optional_text(place.at("user_id"), own.get("user_id")) or "",
        read_optional_mapping(place.at("state"), own.get("state")) or {},
        {key: value for key, value in own.items() if key not in ("app_name", "user_id", "state")},
    )


def _written_session(session: SessionInit | None) -> dict[str, Any] | None:
    if session is None:
        return None
    own = {"app_name": session.app_name, "user_id": session.user_id, "state": dict(session.state)}
    return {**own, **shown_extra(session.extra)}


def _without_own(extra: JsonObject) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if key not in ("id", *_OWN)}

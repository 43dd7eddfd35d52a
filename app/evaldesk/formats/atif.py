"""The format "atif": trajectories in the Agent Trajectory Interchange Format of Harbor, one a file or one a line.

(harbor docs/rfcs/0001-trajectory-format.md, versions 1.0 to 1.7)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.atif_writing import NOTE, write_trajectories
from evaldesk.formats.chat_messages import read_arguments, read_content
from evaldesk.formats.documents import read_documents
from evaldesk.formats.exchange import Holding, Imported, RecordedRun
from evaldesk.formats.import_words import counted
from evaldesk.formats.messages import Message, Speaker, turns_of
from evaldesk.formats.notes import Notes
from evaldesk.formats.peeking import peek
from evaldesk.formats.reading import read_list, read_mapping, read_optional_mapping, read_optional_text, read_text
from evaldesk.formats.recorded import file_stem, iso_ms, known_cost, whole_number
from evaldesk.formats.recorded_sessions import Session, run_of_sessions
from evaldesk.formats.shape import ABSENT
from evaldesk.formats.strict_json import Place
from evaldesk.model import EvalSet, ToolCall, Usage

_SOURCES: dict[str, Speaker] = {"system": "system", "user": "user", "agent": "agent"}
_TOLD = ("schema_version", "session_id", "steps", "final_metrics")


class Atif:
    """The format "atif"."""

    title = "ATIF trajectories"
    suffixes = (".atif.json", ".json", ".jsonl")
    writes: tuple[Holding, ...] = ("run",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a trajectory, or the first of several is one."""
        seen = peek(data)
        first = seen.line if seen.whole is None else seen.whole
        first = first[0] if isinstance(first, list) and first else first
        if not isinstance(first, dict):
            return False
        version = first.get("schema_version")
        return (isinstance(version, str) and version.startswith("ATIF")) or {"steps", "agent"} <= set(first)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A case and a trial for each trajectory. Raises FormatError."""
        notes = Notes()
        found = [_read(place, raw, notes) for place, raw in _trajectories(data, source)]
        if not found:
            raise FormatError("the file has no trajectory", source=source)
        return _imported(found, file_stem(source).removesuffix(".atif"), notes)

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The trials of a run: one alone, or one a line. Raises FormatError."""
        if isinstance(what, EvalSet):
            raise FormatError("ATIF holds what happened, and an eval set only what should; export a run")
        return write_trajectories(what)


@dataclass(frozen=True, slots=True)
class _Trajectory:
    agent: str
    model: str | None
    session: Session


def _trajectories(data: bytes, source: str) -> Iterator[tuple[Place, Any]]:
    for document in read_documents(data, source):
        place = Place(document)
        if isinstance(document.value, list):
            yield from read_list(place, document.value, lambda at, raw: (at, raw))
        else:
            yield place, document.value


def _imported(found: list[_Trajectory], name: str, notes: Notes) -> Imported:
    run = run_of_sessions(name, found[0].agent, found[0].model, [one.session for one in found])
    understood = (
        f"Each of {counted(len(found), 'recorded session')} is a case that expects the calls and answers it shows; "
        "look them over before they count as right.",
    )
    return Imported("atif", EvalSet(name, cases=run.cases), (run,), understood, (), notes.sentences)


def _read(place: Place, raw: Any, notes: Notes) -> _Trajectory:
    whole = read_mapping(place, raw)
    agent = read_mapping(place.at("agent"), whole.get("agent", ABSENT))
    model = read_optional_text(place.at("agent", "model_name"), agent.get("model_name"))
    steps = read_list(
        place.at("steps"), whole.get("steps", ABSENT), lambda at, step: _read_step(at, step, model, notes)
    )
    turns = turns_of(message for step in steps for message in step)
    extra = notes.unknown(place, whole, (*_TOLD, "agent"))
    about = {key: value for key, value in agent.items() if key not in ("name", "model_name")}
    final = whole.get("final_metrics")
    total = _usage(final, model, "total_prompt_tokens", "total_completion_tokens", "total_cost_usd")
    counts_steps = any(turn.usages for turn in turns)
    root = extra.get("extra")
    note = root.get(NOTE) if isinstance(root, dict) else None
    if isinstance(root, dict) and note is not None:
        rest = {key: value for key, value in root.items() if key != NOTE}
        extra = {key: value for key, value in {**extra, "extra": rest}.items() if key != "extra" or rest}
    return _Trajectory(
        agent=read_text(place.at("agent", "name"), agent.get("name", ABSENT)),
        model=model,
        session=Session(
            id=read_optional_text(place.at("session_id"), whole.get("session_id")) or "trajectory",
            turns=turns,
            extra={**extra, **({"agent": about} if about else {})},
            usages=None if counts_steps or not total else (total,),
            note=note,
        ),
    )


def _read_step(place: Place, raw: Any, model: str | None, notes: Notes) -> tuple[Message, ...]:
    """The messages of a step: what was said, and what the tools gave."""
    step = read_mapping(place, raw)
    source = read_text(place.at("source"), step.get("source", ABSENT))
    if source not in _SOURCES:
        raise place.at("source").error(f"unknown source {source[:40]!r}; known are system, user and agent")
    text, _ = read_content(place.at("message"), step.get("message"), notes)
    at_ms = iso_ms(step.get("timestamp"))
    speaker = _SOURCES[source]
    results = tuple(_results(place.at("observation"), step.get("observation"), notes))
    if speaker != "agent":
        return (Message(speaker, text, at_ms=at_ms), *results)
    name = read_optional_text(place.at("model_name"), step.get("model_name")) or model
    calls = read_list(place.at("tool_calls"), step.get("tool_calls") or [], _read_call)
    thought = read_optional_text(place.at("reasoning_content"), step.get("reasoning_content")) or ""
    usage = _usage(step.get("metrics"), name, "prompt_tokens", "completion_tokens", "cost_usd")
    reply = Message("agent", text, thought=thought, calls=calls, usage=usage, at_ms=at_ms)
    if results and not calls:
        # The spec allows observations of actions that are no tool calls.
        return (reply, *(Message("system", f"Observed: {message.result}") for message in results))
    return (reply, *results)


def _read_call(place: Place, raw: Any) -> ToolCall:
    call = read_mapping(place, raw)
    args, extra = read_arguments(place.at("arguments"), call.get("arguments"))
    call_id = read_optional_text(place.at("tool_call_id"), call.get("tool_call_id"))
    return ToolCall(read_text(place.at("function_name"), call.get("function_name", ABSENT)), args, call_id, extra)


def _results(place: Place, raw: Any, notes: Notes) -> Iterator[Message]:
    observation = read_optional_mapping(place, raw) or {}
    for index, item in enumerate(read_list(place.at("results"), observation.get("results") or [], read_mapping)):
        at = place.at("results", index)
        if item.get("subagent_trajectory_ref"):
            notes.refuse("a reference to the trajectory of a sub-agent", at.at("subagent_trajectory_ref"))
        text, _ = read_content(at.at("content"), item.get("content"), notes)
        call_id = read_optional_text(at.at("source_call_id"), item.get("source_call_id"))
        yield Message("tool", call_id=call_id, result=text)


def _usage(raw: Any, model: str | None, tokens_in: str, tokens_out: str, cost: str) -> Usage | None:
    if not isinstance(raw, dict) or not {tokens_in, tokens_out, cost} & set(raw):
        return None
    return Usage(
        model or "",
        tokens_in=whole_number(raw.get(tokens_in)),
        tokens_out=whole_number(raw.get(tokens_out)),
        cost=known_cost(raw.get(cost)),
    )

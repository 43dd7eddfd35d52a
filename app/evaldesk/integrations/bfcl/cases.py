"""The format "bfcl": multi-turn cases of the Berkeley Function Calling Leaderboard, as JSON lines.

BFCL keeps the questions and the expected calls in two files, and the tools' documentation in more. The lines of all of
them may stand in one file, in any order. (ShishirPatil/gorilla berkeley-function-call-leaderboard)
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from evaldesk.errors import VALUE_LIMIT, FormatError
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.model import Case, EvalSet, Expected, SessionInit, ToolCall, Turn
from evaldesk.model.conclusion import counted
from evaldesk.process_setup import parsing
from evaldesk.reading.json_lines import read_lines
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_mapping, read_text
from evaldesk.transcripts.recorded import file_stem

_ANSWERS = "possible_answer_"
_FUNCTION = {"name", "description", "parameters"}
_UNREAD = "an expected call whose values are not plain"


class Bfcl(ReadOnly):
    """The format "bfcl"."""

    title = "BFCL multi-turn"
    suffixes = (".json", ".jsonl")
    instead = "write an eval set as adk"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the first line is a question of several turns, the expected calls of one, or a function."""
        preview = peek(data)
        first = preview.line if preview.line is not None else preview.document
        if not isinstance(first, dict):
            return False
        question = first.get("question")
        is_question = isinstance(question, list) and all(isinstance(turn, list) for turn in question)
        is_answer = isinstance(first.get("ground_truth"), list) and first.keys() == {"id", "ground_truth"}
        return (is_question and "id" in first) or is_answer or first.keys() >= _FUNCTION

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """A case for each question. Raises FormatError, also when there are only expected calls."""
        return _build_import(_sort_lines(data, source), source)


@dataclass(slots=True)
class _Lines:
    """The lines of the file by their kind."""

    questions: dict[str, tuple[JsonPosition, dict[str, Any]]] = field(default_factory=dict)
    answers: dict[str, tuple[JsonPosition, dict[str, Any]]] = field(default_factory=dict)
    functions: list[dict[str, Any]] = field(default_factory=list)


def _sort_lines(data: bytes, source: str) -> _Lines:
    lines = _Lines()
    for line in read_lines(data, source):
        place = JsonPosition(line)
        row = read_mapping(place, line.value)
        if "parameters" in row and "name" in row:
            lines.functions.append(row)
            continue
        key = read_text(place.at("id"), row.get("id", ABSENT))
        rows = lines.questions if "question" in row else lines.answers
        if "question" not in row and "ground_truth" not in row:
            raise place.error("this line has neither question nor ground_truth, and is not a function")
        if key in rows:
            raise place.at("id").error(f"{key[:VALUE_LIMIT]!r} is there already")
        rows[key] = (place, row)
    return lines


def _build_import(lines: _Lines, source: str) -> Imported:
    name = file_stem(source)
    if not lines.questions and not lines.answers:
        raise FormatError("these are only functions; put them into one file with the questions", source=source)
    if not lines.questions:
        file_name = PurePath(source).name.replace(_ANSWERS, "")
        raise FormatError(
            f"these are only expected calls; put their questions before them in one file, such as "
            f"`cat {file_name} {_ANSWERS}{file_name} > both.jsonl`, and import that",
            source=source,
        )
    notes = Notes()
    parameters = {str(row["name"]): _parameters(row) for row in lines.functions}
    reading = _Reading(parameters, notes)
    cases = tuple(reading.case(key, place, row, lines.answers) for key, (place, row) in lines.questions.items())
    for key, (place, _) in lines.answers.items():
        if key not in lines.questions:
            notes.refuse("expected calls of a question that is not there", place)
    extra: dict[str, Any] = {"functions": lines.functions} if lines.functions else {}
    understood_words, kept_words = _understood_words(lines, name), _kept_words(reading, lines)
    return Imported("bfcl", EvalSet(name, cases=cases, extra=extra), (), understood_words, kept_words, notes.sentences)


def _understood_words(lines: _Lines, name: str) -> tuple[str, ...]:
    n_missing = len(lines.questions.keys() - lines.answers.keys())
    if not n_missing:
        return ()
    if n_missing < len(lines.questions):
        return (f"{counted(n_missing, 'case')} of {len(lines.questions)} without expected calls: nothing is asserted.",)
    return (
        f"No expected calls: BFCL keeps them in {_ANSWERS}{name}.json. To assert them, put both into one file, such as "
        f"`cat {name}.json {_ANSWERS}{name}.json > both.jsonl`, and import that.",
    )


def _kept_words(reading: _Reading, lines: _Lines) -> tuple[str, ...]:
    sentences = []
    if lines.functions:
        sentences.append(f"The documentation of {counted(len(lines.functions), 'function')}, with the eval set.")
    if reading.n_unnamed:
        sentences.append(
            f"{counted(reading.n_unnamed, 'expected call')} with arguments by position, named 0, 1, …: add the lines "
            "of the func_doc files to name them."
        )
    return tuple(sentences)


@dataclass(slots=True)
class _Reading:
    """Cases while they are read; `parameters` are the names of each function's, in order."""

    parameters: Mapping[str, Sequence[str]]
    notes: Notes
    n_unnamed: int = 0

    def case(
        self,
        key: str,
        place: JsonPosition,
        row: dict[str, Any],
        answers: Mapping[str, tuple[JsonPosition, dict[str, Any]]],
    ) -> Case:
        question = read_list(place.at("question"), row["question"], _read_messages)
        expected = self._expected_calls(*answers[key], len(question)) if key in answers else [None] * len(question)
        turns = [
            Turn("\n\n".join(text for role, text in messages if role == "user"), Expected(calls))
            for messages, calls in zip(question, expected, strict=True)
        ]
        state = read_optional_mapping(place.at("initial_config"), row.get("initial_config"))
        extra = self.notes.unknown_keys(place, row, ("id", "question", "initial_config"))
        if any(role != "user" for messages in question for role, _ in messages):
            extra["question"] = row["question"]
        return Case(key, tuple(turns), initial_session=SessionInit(state=state) if state else None, extra=extra)

    def _expected_calls(self, place: JsonPosition, row: dict[str, Any], n_turns: int) -> list[tuple[ToolCall, ...]]:
        at = place.at("ground_truth")
        turns = read_list(at, row["ground_truth"], self._read_calls)
        if len(turns) != n_turns:
            raise at.error(f"calls for {len(turns)} turns, but the question has {n_turns}")
        return list(turns)

    def _read_calls(self, place: JsonPosition, raw: Any) -> tuple[ToolCall, ...]:
        calls = read_list(place, raw, self._read_call)
        return tuple(call for call in calls if call)

    def _read_call(self, place: JsonPosition, raw: Any) -> ToolCall | None:
        call = parse_call(read_text(place, raw), self.parameters)
        if call is None:
            self.notes.refuse(_UNREAD, place)
        elif "0" in call.args:
            self.n_unnamed += 1
        return call


def _read_messages(place: JsonPosition, raw: Any) -> tuple[tuple[str, str], ...]:
    return read_list(place, raw, _read_message)


def _read_message(place: JsonPosition, raw: Any) -> tuple[str, str]:
    message = read_mapping(place, raw)
    role, content = (read_text(place.at(key), message.get(key, ABSENT)) for key in ("role", "content"))
    return role, content


def _parameters(row: dict[str, Any]) -> list[str]:
    schema = row["parameters"]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return list(properties) if isinstance(properties, dict) else []


_MAX_CHARS = 20_000
_DAMAGE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, Warning)


def parse_call(text: str, parameters: Mapping[str, Sequence[str]]) -> ToolCall | None:
    """The call, or None when the text is no call of literals. `parameters` names those of each function.

    An argument given by position has the name of its parameter; without one, its number counted from 0.
    """
    if len(text) > _MAX_CHARS:
        return None
    try:
        with parsing:
            tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            return None
        name = ast.unparse(tree.func)
        values = [_literal_as_json(ast.literal_eval(argument)) for argument in tree.args]
        keyword_args = [(keyword.arg, _literal_as_json(ast.literal_eval(keyword.value))) for keyword in tree.keywords]
    except _DAMAGE:
        return None
    parameter_names = parameters.get(name, ())
    args = {
        parameter_names[index] if index < len(parameter_names) else str(index): value
        for index, value in enumerate(values)
    }
    for key, value in keyword_args:
        if key is None or key in args:
            return None
        args[key] = value
    return ToolCall(name, args)


def _literal_as_json(value: Any) -> Any:
    """The literal as JSON has it: a tuple is a list.

    Raises ValueError for bytes, sets, and other values outside JSON.
    """
    if isinstance(value, list | tuple):
        return [_literal_as_json(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is not a string")
        return {key: _literal_as_json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that JSON cannot hold")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(type(value).__name__)

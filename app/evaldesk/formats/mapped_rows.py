"""Rows of any data set as cases, by a mapping that names the columns: `input=question,expected=answer`.

JSON (a list of objects, or an object that holds one), JSON lines, CSV and YAML.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite
from typing import Any, TypeAlias

from evaldesk.errors import VALUE_LIMIT, FormatError, NotFoundError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.import_words import with_words
from evaldesk.model import Case, EvalSet, ToolCall, Turn
from evaldesk.model.conclusion import counted
from evaldesk.model.json_text import json_or_text
from evaldesk.reading.fields import read_documents
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition, decode_text
from evaldesk.reading.values import read_list, read_mapping
from evaldesk.reading.yaml_text import YAML_SUFFIXES, read_yaml
from evaldesk.transcripts.conversation_case import turn_expecting
from evaldesk.transcripts.messages.chat import read_chat_message, read_tool_call
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.messages.turns import turns_of
from evaldesk.transcripts.recorded import file_stem

ROLES: Mapping[str, str] = {
    "input": "the message of the user; a list has a message for each turn",
    "messages": "the conversation as messages of OpenAI; its answers and calls are expected",
    "expected": "the reference answer; a list has one for each turn",
    "calls": "the expected tool calls of the last turn",
    "id": "the id of the case",
    "tags": "tags, a list or with commas",
    "metadata": "further values that stay with the case",
    "rows": "where the rows are in the file; default: the file, or the only list of objects in it",
}
"""The meanings that a column of a data set may have."""

MAX_BITS = 14_000
"""Bits of a whole number: about as many digits as Python writes."""
TABLES = {".csv": ",", ".tsv": "\t"}

Columns: TypeAlias = Mapping[str, str]


def read_columns(text: str) -> dict[str, str]:
    """The columns by their role, of `input=question,expected=answer`. Raises UsageError and NotFoundError."""
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, equals, column = (each.strip() for each in part.partition("="))
        if not equals or not column:
            raise UsageError(f"--map {part.strip()!r}: write ROLE=COLUMN, such as input=question")
        if role not in ROLES:
            raise NotFoundError.among("role of a column", role, ROLES)
        if role in columns:
            raise UsageError(f"--map names {role} twice")
        columns[role] = column
    if not {"input", "messages"} & set(columns):
        raise UsageError("--map needs input=COLUMN or messages=COLUMN: the words of the user")
    if {"input", "messages"} <= set(columns):
        raise UsageError("--map names input and messages: the words of the user come from one of them")
    return columns


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of the rows of a file, `a.b` in nested objects, with the beginning of its first value as text."""

    name: str
    example: str


MAX_COLUMNS = 60
MAX_COLUMN_NAME = 150
MAX_LOOKED_AT = 50
MAX_WHOLE = 512 * 1024
"""Bytes of a file that is read to look for its columns; of longer lines and tables only the beginning is read."""
EXAMPLE_WIDTH = 80
USUAL_COLUMNS: Mapping[str, Sequence[str]] = {
    "input": ("input", "inputs", "question", "query", "prompt", "user_input", "message", "text", "inputs.question"),
    "messages": ("messages", "conversation", "input.messages", "inputs.messages"),
    "expected": (
        *("expected", "expected_output", "answer", "reference", "ground_truth", "expectedOutput", "outputs.answer"),
        *("outputs", "output", "response", "expectations.expected_response"),
    ),
    "calls": ("expected_tools", "tool_calls", "calls", "expected_trajectory"),
    "id": ("id", "name", "case_id", "key"),
    "tags": ("tags", "labels", "topic", "category"),
    "metadata": ("metadata", "additional_metadata"),
}
"""Names of columns in data sets of other tools, by role, the likeliest first."""


def columns_in(data: bytes, source: str) -> Sequence[FileColumn]:
    """The columns of the first rows of a file; none where it has no rows, or cannot be read."""
    is_cut = len(data) > MAX_WHOLE
    if is_cut and not source.lower().endswith((".csv", ".tsv", ".jsonl", ".ndjson")):
        return ()
    beginning = data[: data.rfind(b"\n", 0, MAX_WHOLE) + 1] if is_cut else data
    examples: dict[str, str] = {}
    try:
        for _, row in islice(_rows(beginning, source, ""), MAX_LOOKED_AT):
            for name, value in _flat(row):
                if name not in examples and value is not None and value != "":
                    examples[name] = " ".join(json_or_text(value).split())[:EXAMPLE_WIDTH]
    except FormatError:
        if not is_cut:  # the last row of a beginning may be half a row
            return ()
    return [FileColumn(name, example) for name, example in islice(examples.items(), MAX_COLUMNS)]


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of a row by column, those of an object by `column.key` as well."""
    for name, value in row.items():
        inner = value.items() if isinstance(value, dict) else ()
        pairs = [(name, value), *((f"{name}.{key}", each) for key, each in inner)]
        yield from (pair for pair in pairs if is_mappable(pair[0]))


def is_mappable(name: str) -> bool:
    """Whether a mapping in one text can name the column."""
    is_short = 0 < len(name) <= MAX_COLUMN_NAME
    return is_short and name.strip() == name and name.isprintable() and not set(name) & set(",=")


def proposed_columns(columns: Sequence[FileColumn]) -> dict[str, str]:
    """The likeliest column of each role, by names that other tools use; messages before a lone input."""
    names = {column.name.casefold(): column.name for column in columns}
    proposal: dict[str, str] = {}
    for role, usual in USUAL_COLUMNS.items():
        free = [
            names[each.casefold()] for each in usual if names.get(each.casefold(), "") not in ("", *proposal.values())
        ]
        if free:
            proposal[role] = free[0]
    if "messages" in proposal:
        proposal.pop("input", None)
    return proposal


def read_mapped(data: bytes, source: str, columns: Columns) -> Imported:
    """The eval set of the rows. Raises FormatError with the place of the first row that is no case."""
    cases = []
    notes = Notes()
    for number, (place, row) in enumerate(_rows(data, source, columns.get("rows", "")), 1):
        try:
            cases.append(_Row(place, row, columns, number).case(notes))
        except FormatError as error:
            raise error if error.source else FormatError(error.reason, source=source, path=error.path) from error
    if not cases:
        raise FormatError("there is no row in the file", source=source)
    words = (
        f"{counted(len(cases), 'row')} by the mapping {', '.join(f'{key}={name}' for key, name in columns.items())}."
    )
    evalset = EvalSet(file_stem(source), cases=tuple(cases))
    return with_words(Imported("", evalset, understood=(words,), refused=notes.sentences))


def _rows(data: bytes, source: str, path: str) -> Iterator[tuple[JsonPosition, dict[str, Any]]]:
    name = source.lower()
    delimiter = next((sign for ending, sign in TABLES.items() if name.endswith(ending)), None)
    if delimiter:
        yield from _table(data, source, delimiter)
        return
    documents = (
        [Document(yaml_value(data, source), source=source)]
        if name.endswith(YAML_SUFFIXES)
        else read_documents(data, source)
    )
    for document in documents:
        place, value = _list_of_rows(JsonPosition(document), document.value, path)
        if isinstance(value, list):
            for index, row in enumerate(value):
                yield place.at(index), read_mapping(place.at(index), row)
        else:
            yield place, read_mapping(place, value)


def _list_of_rows(place: JsonPosition, value: Any, path: str) -> tuple[JsonPosition, Any]:
    """The list that `path` names, the only list of objects in an object, or the value itself."""
    if path:
        inner = value_at(value, path)
        if inner is None:
            raise place.error(f"there is no {path!r}, which the mapping names for the rows")
        return place.at(*path.split(".")), inner
    if isinstance(value, dict):
        lists = [key for key, each in value.items() if isinstance(each, list) and each and isinstance(each[0], dict)]
        if len(lists) == 1 and not any(isinstance(each, str) for each in value.values()):
            return place.at(lists[0]), value[lists[0]]
    return place, value


def _table(data: bytes, source: str, delimiter: str) -> Iterator[tuple[JsonPosition, dict[str, Any]]]:
    text = decode_text(data, source)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = Counter(reader.fieldnames or ())
        if repeated_name := next((name for name, n in names.items() if name and n > 1), ""):
            reason = f"column {repeated_name[:VALUE_LIMIT]!r} stands twice; give each its own name"
            raise FormatError(reason, source=source, line=1)
        for row in reader:
            if None in row or None in row.values():
                raise FormatError("the row has not as many cells as the header", source=source, line=reader.line_num)
            place = JsonPosition(Document(None, source=source), (f"line {reader.line_num}",))
            yield place, {key: value for key, value in row.items() if value != ""}
    except csv.Error as error:
        raise FormatError(f"this is not a table: {error}", source=source, line=reader.line_num or None) from None


def yaml_value(data: bytes, source: str) -> Any:
    """The value of a YAML file as JSON has it. Raises FormatError, also for several documents."""
    documents = read_yaml(data, source)
    if len(documents) != 1:
        raise FormatError(f"a file of {len(documents)} YAML documents; write the rows as one list", source=source)
    try:
        return _as_json(documents[0])
    except ValueError as error:
        raise FormatError(f"this is not YAML of a data set: {error}", source=source) from None


def _as_json(value: Any) -> Any:
    """The value as JSON has it: names and dates are text. Raises ValueError for a value that no JSON file holds."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is not a number of JSON")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("a whole number is too long")
    if isinstance(value, str):
        value.encode()  # half a character alone, which no file holds, is a UnicodeEncodeError
    if isinstance(value, dict):
        return {str(_as_json(key)): _as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_as_json(each) for each in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def value_at(row: Any, path: str) -> Any:
    """The value of a column, or of `a.b` in nested objects; None where there is none."""
    if isinstance(row, dict) and path in row:
        return row[path]
    for key in path.split("."):
        if not isinstance(row, dict):
            return None
        row = row.get(key)
    return row


@dataclass(frozen=True, slots=True)
class _Row:
    """A row while it becomes a case; `number` counts from 1."""

    place: JsonPosition
    row: dict[str, Any]
    columns: Columns
    number: int

    def case(self, notes: Notes) -> Case:
        used_columns = {self.columns[role].partition(".")[0] for role in self.columns if role != "rows"}
        metadata = self.value("metadata")
        extra = {key: value for key, value in self.row.items() if key not in used_columns}
        extra |= {} if metadata is None else {"metadata": metadata}
        return Case(self.id(), self.turns(notes), tags=self.tags(), extra=extra)

    def value(self, role: str) -> Any:
        """The value of the column with that role; None where the row has none."""
        column = self.columns.get(role)
        return None if column is None else value_at(self.row, column)

    def at(self, role: str) -> JsonPosition:
        return self.place.at(*self.columns[role].split("."))

    def id(self) -> str:
        value = self.value("id")
        if value is None or value == "":
            return f"row_{self.number}"
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.at("id").error("an id is a text or a whole number")
        return str(value)

    def tags(self) -> tuple[str, ...]:
        value = self.value("tags")
        names = value.split(",") if isinstance(value, str) else value or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.at("tags").error("tags are a list of texts, or a text with commas")
        return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))

    def turns(self, notes: Notes) -> tuple[Turn, ...]:
        own_turns = self.turns_of_messages(notes) if "messages" in self.columns else self.turns_of_input()
        references = self.value("expected")
        if isinstance(references, list) and len(references) != 1 and len(references) != len(own_turns):
            raise self.at("expected").error(f"{len(references)} answers for {counted(len(own_turns), 'turn')}")
        of_turns = references if isinstance(references, list) else [*[None] * (len(own_turns) - 1), references]
        calls = self.calls()
        last = len(own_turns) - 1
        return tuple(
            _with(turn, of_turns[at] if at < len(of_turns) else None, calls if at == last else None)
            for at, turn in enumerate(own_turns)
        )

    def turns_of_input(self) -> list[Turn]:
        value = self.value("input")
        messages = value if isinstance(value, list) else [value]
        if not messages or any(message is None or message == "" for message in messages):
            column = self.columns["input"]
            raise self.place.error(f"the row has no {column!r}, which the mapping names for the words of the user")
        if all(isinstance(message, dict) and "role" in message for message in messages):
            raise self.at("input").error("these are messages with roles: map them as messages=")
        return [Turn(message if isinstance(message, str) else json_or_text(message)) for message in messages]

    def turns_of_messages(self, notes: Notes) -> list[Turn]:
        place, raw = self.at("messages"), json_value(self.value("messages"))
        messages = read_list(place, raw, lambda at, each: read_chat_message(at, read_mapping(at, each), notes))
        turns = [turn_expecting(record, keeps_ids=False) for record in turns_of(messages)]
        if not turns or not turns[0].query:
            raise place.error("there is no message of a user first")
        return turns

    def calls(self) -> tuple[ToolCall, ...] | None:
        value = json_value(self.value("calls"))
        if value is None or value == "":
            return None
        place = self.at("calls")
        return read_list(place, [value] if isinstance(value, dict) else value, read_tool_call)


def _with(turn: Turn, reference: Any, calls: tuple[ToolCall, ...] | None) -> Turn:
    """The turn with a reference and calls, where the row has them."""
    new_expected = turn.expected if reference is None else replace(turn.expected, reference=json_or_text(reference))
    return replace(turn, expected=new_expected if calls is None else replace(new_expected, tool_calls=calls))

"""The objects of OpenAI Evals in one or many files: evals, runs, output items and rows of data, in any order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias

from evaldesk.reading.fields import read_documents
from evaldesk.reading.json_lines import read_recorded_lines
from evaldesk.reading.json_stream import StreamedList
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import MAX_BYTES, RECORDED_DECODER, JsonPosition

Placed: TypeAlias = tuple[JsonPosition, Any]
ITEM = "eval.run.output_item"
KINDS = ("eval", "eval.run", ITEM)


def is_object(value: object) -> bool:
    """Whether a JSON value is an object of OpenAI Evals, a page of them, or a row of its data."""
    if not isinstance(value, dict):
        return False
    if value.get("object") in KINDS or _is_page(value):
        return True
    return isinstance(value.get("item"), dict) and value.keys() <= {"item", "sample"}


def _is_page(value: dict[str, Any]) -> bool:
    """Whether it lists objects; a page that was written without its methods may lack `"object": "list"`."""
    data = value.get("data")
    if not isinstance(data, list) or value.get("object") not in ("list", None):
        return False
    return any(isinstance(each, dict) and each.get("object") in KINDS for each in data)


def objects_of(data: bytes, source: str) -> Iterator[Placed]:
    """The objects of a file, those in lists and pages included. Raises FormatError.

    A page itself comes after its objects, with an empty `data`.
    """
    for document in read_documents(data, source):
        yield from _objects_in(JsonPosition(document), document.value)


def streamed_objects(file: BinaryIO, source: str) -> Iterator[Placed]:
    """As `objects_of`, of a large file: one line, or one value of its list or page, is in memory.

    Raises FormatError, and NotStreamedError for a file that is one object.
    """
    if _has_lines(file):
        file.seek(0)
        for line in read_recorded_lines(file, source):
            yield from _objects_in(JsonPosition(line), line.value)
        return
    file.seek(0)
    is_list = file.read(MAX_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    file.seek(0)
    stream = StreamedList(file, source, None if is_list else lambda key: key == "data", decoder=RECORDED_DECODER)
    for item in stream:
        yield from _objects_in(JsonPosition(item), item.value)
    if not is_list:
        yield JsonPosition(stream.shell), {**mapping(stream.shell.value), "object": "list"}


MAX_HEAD = 1_000


def _has_lines(file: BinaryIO) -> bool:
    """Whether the first line is a whole value."""
    file.seek(0)
    while (line := file.readline(MAX_BYTES)) and not line.strip():
        pass
    if not line.endswith(b"\n"):
        return False
    try:
        return isinstance(json.loads(line.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def _objects_in(place: JsonPosition, value: object) -> Iterator[Placed]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _objects_in(place.at(index), each)
    elif isinstance(value, dict) and (value.get("object") == "list" or _is_page(value)):
        yield from _objects_in(place.at("data"), value.get("data"))
        yield place, {**value, "object": "list", "data": []}
    else:
        yield place, value


@dataclass(slots=True)
class ItemHead:
    """The eval of the output items of a run, as the first one tells it, and the id of the last one."""

    eval_id: str
    last_id: str


@dataclass(slots=True)
class Archive:
    """The evals and runs of an export by their ids without their rows, and the runs that its output items are of."""

    evals: dict[str, Placed] = field(default_factory=dict)
    runs: dict[str, Placed] = field(default_factory=dict)
    items: dict[str, ItemHead] = field(default_factory=dict)
    open_pages: list[str] = field(default_factory=list)
    n_others: int = 0
    """Rows that are in no output item."""

    def take(self, place: JsonPosition, value: object, notes: Notes) -> None:
        """Take in an object; the last one of an id counts."""
        kind = value.get("object") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not (kind == "list" or is_object(value)):
            notes.refuse("a value that is not an object of OpenAI Evals", place)
        elif kind == "list":
            if value.get("has_more") is True:
                self.open_pages.append(text(value.get("last_id")))
        elif kind == "eval":
            self.evals[text(value.get("id"))] = place, value
        elif kind == "eval.run":
            self.n_others += any(True for _ in file_content(place, value))
            self.runs[text(value.get("id"))] = place, _without_content(value)
        elif kind == ITEM:
            head = self.items.setdefault(text(value.get("run_id")), ItemHead(text(value.get("eval_id")), ""))
            head.last_id = text(value.get("id"))
        else:
            self.n_others += 1

    @property
    def missing_pages(self) -> list[str]:
        """The ids after which a page is missing: nothing in the archive comes after them."""
        last = {head.last_id for head in self.items.values()}
        last |= {ids[-1] for ids in ([*self.evals], [*self.runs]) if ids}
        return [each for each in self.open_pages if not each or each in last]

    def run_ids(self, eval_id: str) -> Iterator[str]:
        """The runs of an eval, those without a run object included where there is one eval only."""
        for run_id in dict.fromkeys([*self.runs, *self.items]):
            owner = text(self.runs[run_id][1].get("eval_id")) if run_id in self.runs else self.items[run_id].eval_id
            if owner == eval_id:
                yield run_id

    def eval_ids(self) -> list[str]:
        """The evals, also those whose object is missing."""
        owners = [text(raw.get("eval_id")) for _, raw in self.runs.values()]
        owners += [head.eval_id for run_id, head in self.items.items() if run_id not in self.runs]
        return [*dict.fromkeys([*self.evals, *owners])] or ([""] if self.n_others else [])


def file_content(place: JsonPosition, run: dict[str, Any]) -> Iterator[tuple[JsonPosition, dict[str, Any]]]:
    """The rows that stand in a run."""
    content = mapping(mapping(run.get("data_source")).get("source")).get("content")
    for index, each in enumerate(content if isinstance(content, list) else ()):
        if isinstance(each, dict):
            yield place.at("data_source", "source", "content", index), each


def _without_content(run: dict[str, Any]) -> dict[str, Any]:
    """The run without the rows of its file."""
    source = mapping(run.get("data_source"))
    inner = mapping(source.get("source"))
    if "content" not in inner:
        return run
    other_keys = {name: value for name, value in inner.items() if name != "content"}
    return {**run, "data_source": {**source, "source": other_keys}}


def text(value: object) -> str:
    """The value where it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}

"""The objects of OpenAI Evals in one or many files: evals, runs, output items and rows of data, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import JsonPosition

Placed: TypeAlias = tuple[JsonPosition, dict[str, Any]]
KINDS = ("eval", "eval.run", "eval.run.output_item")


def is_object(value: object) -> bool:
    """Whether a JSON value is an object of OpenAI Evals, a page of them, or a row of its data."""
    if not isinstance(value, dict):
        return False
    if value.get("object") in KINDS:
        return True
    if value.get("object") == "list":
        data = value.get("data")
        return isinstance(data, list) and any(isinstance(each, dict) and each.get("object") in KINDS for each in data)
    return isinstance(value.get("item"), dict) and value.keys() <= {"item", "sample"}


@dataclass(slots=True)
class Archive:
    """Objects by their ids; `items` are by run, each as often as it comes, and `rows` are data without a run."""

    evals: dict[str, Placed] = field(default_factory=dict)
    runs: dict[str, Placed] = field(default_factory=dict)
    items: dict[str, dict[str, list[Placed]]] = field(default_factory=dict)
    rows: list[Placed] = field(default_factory=list)
    open_pages: list[str] = field(default_factory=list)

    def take(self, place: JsonPosition, value: object, notes: Notes) -> None:
        """Take in an object, the objects of a page, or a list of them; the last one of an id counts."""
        if isinstance(value, list):
            for index, each in enumerate(value):
                self.take(place.at(index), each, notes)
            return
        if not isinstance(value, dict) or not is_object(value):
            notes.refuse("a value that is not an object of OpenAI Evals", place)
            return
        kind, name = value.get("object"), text(value.get("id"))
        if kind == "list":
            last_id = text(value.get("last_id"))
            if value.get("has_more") is True:
                self.open_pages.append(last_id)
            self.take(place.at("data"), value.get("data"), notes)
        elif kind == "eval":
            self.evals[name] = place, value
        elif kind == "eval.run":
            self.runs[name] = place, value
        elif kind == "eval.run.output_item":
            items = self.items.setdefault(text(value.get("run_id")), {})
            items.setdefault(name or f"{len(items)}", []).append((place, value))
        else:
            self.rows.append((place, value))

    @property
    def missing_pages(self) -> list[str]:
        """The ids after which a page is missing: nothing in the archive comes after them."""
        orders = [*self.evals], [*self.runs], *([*items] for items in self.items.values())
        last = {ids[-1] for ids in orders if ids}
        return [each for each in self.open_pages if not each or each in last]

    def run_ids(self, eval_id: str) -> Iterator[str]:
        """The runs of an eval, those without a run object included where there is one eval only."""
        for run_id in dict.fromkeys([*self.runs, *self.items]):
            owner = text(self.runs[run_id][1].get("eval_id")) if run_id in self.runs else self._owner(run_id)
            if owner == eval_id:
                yield run_id

    def eval_ids(self) -> list[str]:
        """The evals, also those whose object is missing."""
        owners = [text(raw.get("eval_id")) for _, raw in self.runs.values()]
        owners += [self._owner(run_id) for run_id in self.items if run_id not in self.runs]
        return [*dict.fromkeys([*self.evals, *owners])] or ([""] if self.rows else [])

    def _owner(self, run_id: str) -> str:
        return next((text(raw.get("eval_id")) for each in self.items.get(run_id, {}).values() for _, raw in each), "")


def text(value: object) -> str:
    """The value where it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}

"""Pages from templates: a template is served whole, or only the block that an htmx request targets.

And how values are written on pages, one filter each: times, sizes, numbers.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import HTMLResponse, RedirectResponse, Response

from evaldesk import paths
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.errors import ConflictError
from evaldesk.model import AskedBy
from evaldesk.model.conclusion import Interval, counted
from evaldesk.model.json_text import json_line
from evaldesk.model.transcript import MAX_NUMBER
from evaldesk.pages.large_state import shorten_segments
from evaldesk.pages.media import result_line, result_media
from evaldesk.pages.runs.matrix import case_href, trial_strip
from evaldesk.pages.runs.view import STATUS_OF, criteria_words, known_cost, metric_doubt, trial_href
from evaldesk.wording.json_layout import as_json
from evaldesk.wording.places import work_words
from evaldesk.wording.words import (
    agent_cost_words,
    cost_words,
    doubt_cell,
    duration_words,
    needs_words,
    number_words,
    passed_cell,
    passed_words,
    rate_words,
    share_range,
    share_words,
    short_title,
    size_words,
)

PACKED_FROM = 50_000
"""Bytes of a page from which it is compressed."""
_PARTS = re.compile(r"[^_\-./]*[_\-./]+(?=\w)|.+", re.DOTALL)

if TYPE_CHECKING:
    from starlette.requests import Request

    from evaldesk.desk.desk import Desk
    from evaldesk.model.stored import EvalSetFile
    from evaldesk.pages.runs.matrix import Cell


@cache
def environment() -> Environment:
    """The one Jinja environment of this process: everything is escaped, nothing undefined prints as empty."""
    folder = paths.shipped("templates")
    env = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Who can write here can change our modules as well: decision 189.
        bytecode_cache=CompiledTemplates(folder / "__pycache__"),
    )
    env.filters.update(FILTERS)
    env.filters.update({name: _loaded_filter(place) for name, place in PAGE_FILTERS.items()})
    env.globals["ui"] = env.get_template("ui.html").module
    env.globals["remembered"] = remembered
    env.globals["remembered_cells"] = remembered_cells
    return env


def _loaded_filter(place: str) -> Callable[..., object]:
    """The filter at `module:function`, imported on first use."""

    def call(*values: object) -> object:
        module, _, name = place.partition(":")
        return getattr(import_module(module), name)(*values)

    return call


class CompiledTemplates(FileSystemBytecodeCache):
    """Templates as Python code beside their text, where Python keeps that of its modules, and under the same rules.

    A file is of one text, one Python and one Jinja. Where nothing can be written, each process compiles for itself.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), f"%s.jinja-{jinja2.__version__}.pyc")

    def load_bytecode(self, bucket: Bucket) -> None:
        """The code that is kept; that of another text, or a damaged file, is none."""
        try:
            super().load_bytecode(bucket)
        except Exception:
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code for the next process."""
        if sys.dont_write_bytecode:
            return
        with suppress(OSError):
            Path(self.directory).mkdir(exist_ok=True)
            super().dump_bytecode(bucket)


@lru_cache(maxsize=1_000)
def remembered(macro: Callable[..., Markup], *values: object) -> Markup:
    """The output of a macro for frozen values; rendered once for equal ones."""
    return macro(*values)


def remembered_cells(macro: Callable[..., Markup], cells: Iterable[Cell]) -> Markup:
    """The cells of a row of a table, of which a page of many runs has thousands; equal squares are rendered once."""
    # Macros give Markup, so that `str.join` is enough: that of Markup would look at each of thousands of cells again.
    texts = [_remembered_cell(macro, each) if each.kind == "squares" else macro(each) for each in cells]
    return Markup("".join(texts))  # noqa: S704


@lru_cache(maxsize=8_000)
def _remembered_cell(macro: Callable[..., Markup], cell: Cell) -> Markup:
    return macro(cell)


def desk_of(request: Request) -> Desk:
    """The desk that this application serves."""
    desk: Desk = request.app.state.desk
    return desk


def run_id_of(request: Request) -> int:
    """The run that the address names."""
    run_id: int = request.path_params["run_id"]
    return run_id


def page(
    request: Request,
    template: str,
    *,
    block: str | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
    **context: object,
) -> Response:
    """`template` rendered whole, or only `block` when the request's htmx target is the element of that id.

    Block name and element id are the same word. Every template sees `nonce` (of this response) and `path`.
    """
    env: Environment = request.app.state.templates
    jinja_template = env.get_template(template)
    values = {
        "nonce": request.state.nonce,
        "path": request.url.path,
        "is_refused": status >= 400,
        "workspace": desk_of(request).mark,
        "is_restricted": desk_of(request).is_restricted,
        "is_read_only": desk_of(request).is_read_only,
        **context,
    }
    if block and target_of(request) == block:
        body = "".join(jinja_template.blocks[block](jinja_template.new_context(values)))
    else:
        body = jinja_template.render(values)
    return HTMLResponse(body, status_code=status, headers={"Vary": "HX-Target", **(headers or {})})


def fragment(request: Request, template: str, block: str, **context: object) -> str:
    """One block as text, for a message of a stream."""
    env: Environment = request.app.state.templates
    jinja_template = env.get_template(template)
    values = {"nonce": request.state.nonce, "path": request.url.path, **context}
    return "".join(jinja_template.blocks[block](jinja_template.new_context(values)))


def go(address: str) -> Response:
    """Send the browser to `address` after a completed post."""
    return RedirectResponse(address, status_code=303)


def refused_status(error: Exception | None) -> int:
    """The status of a page: that of the shown error, else 200."""
    return 200 if error is None else 409 if isinstance(error, ConflictError) else 422


def target_of(request: Request) -> str:
    """The id of the element that an htmx request replaces; empty for any other request. (htmx 4: `tag#id`)"""
    return request.headers.get("HX-Target", "").partition("#")[2]


class _NumberConvertor(Convertor[int]):
    """Starlette's own takes any number of digits, and Python refuses to read more than 4,300."""

    regex = "[0-9]{1,15}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


def number(name: str) -> str:
    """The part of a route's path that takes a number as the path parameter `name`."""
    return f"{{{name}:number}}"


register_url_convertor("number", _NumberConvertor())


def ago(time: datetime | None, now: datetime | None = None) -> str:
    """How long ago `time` was, in words; a dash for None."""
    if time is None:
        return "–"
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    seconds = ((now or datetime.now(UTC)) - time).total_seconds()
    if seconds < 60:
        return "just now"
    for unit, size, limit in (("min", 60, 3600), ("h", 3600, 86400), ("day", 86400, 86400 * 30)):
        if seconds < limit:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return day(time)


def duration(ms: float | None) -> str:
    """A time in words; a dash for None, and for a time that cannot be."""
    return "–" if ms is None or not 0 <= ms <= MAX_NUMBER else duration_words(ms)


def score(value: float | None, digits: int = 2) -> str:
    """A score with fixed digits, whole from 100 on; a dash where there is none."""
    if value is None:
        return "–"
    if abs(value) < 99.995:
        return f"{value:.{digits}f}"
    return number_words(value)


def dollars(cost: float | None) -> str:
    """US dollars with as many digits as small sums need; a dash where the price is unknown."""
    return "–" if cost is None else cost_words(cost)


def count(number: int | None) -> str:
    """A whole number with separators; thousands shortened from 10,000 on; a dash where it is not known."""
    if number is None:
        return "–"
    return f"{number:,}" if number < 10_000 else f"{number / 1000:,.1f}k"


def cases_words(file: EvalSetFile) -> str:
    """`1 case`, `2 cases`; of a file that is being read, that it is."""
    return "being read" if file.is_reading else counted(file.n_cases, "case")


def rate_label(rate: float, low: float, high: float) -> str:
    """The text of a rate's bar for screen readers."""
    return rate_words(rate, Interval(low, high))


def file_time(ns: int) -> datetime:
    """When a file was changed, by its nanoseconds."""
    return datetime.fromtimestamp(ns / 1e9, UTC)


def day(time: datetime) -> str:
    """The date of a moment."""
    return time.strftime("%-d %b %Y")


def statuses(letters: str) -> list[str]:
    """The status of each trial of a case by its letter."""
    return [STATUS_OF[letter] for letter in letters]


def packed(request: Request, response: Response) -> Response:
    """A large page compressed for a browser that takes it: a table of many runs is mostly the same squares."""
    body = bytes(response.body)
    if len(body) < PACKED_FROM or "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    response.body = gzip.compress(body, 1)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    response.headers["Vary"] = "HX-Target, Accept-Encoding"
    return response


def with_breaks(name: str) -> Markup:
    """A name that a narrow column breaks between its parts, after `_`, `-`, `.` and `/`, not within a word."""
    return Markup("<wbr>").join(_PARTS.findall(name))


def speaker(asked_by: AskedBy | None) -> str:
    """The author of the message of a turn."""
    return {"person": "You", "simulated": "Simulated user", "scripted": "Scripted user"}.get(asked_by or "", "User")


FILTERS: Mapping[str, Callable[..., object]] = {
    "ago": ago,
    "duration": duration,
    "score": score,
    "dollars": dollars,
    "agent_cost": agent_cost_words,
    "count": count,
    "size": size_words,
    "day": day,
    "moment": file_time,
    "as_json": as_json,
    "as_line": json_line,
    "result_line": result_line,
    "result_media": result_media,
    "plural": counted,
    "cases_words": cases_words,
    "work_words": work_words,
    "speaker": speaker,
    "passed_words": passed_words,
    "rate_label": rate_label,
    "share_range": share_range,
    "shortened": shorten_segments,
    "short_title": short_title,
    "needs_words": needs_words,
    "passed_cell": passed_cell,
    "doubt_cell": doubt_cell,
    "metric_doubt": metric_doubt,
    "criteria_words": criteria_words,
    "known_cost": known_cost,
    "trial_href": trial_href,
    "case_href": case_href,
    "trial_strip": trial_strip,
    "statuses": statuses,
    "with_breaks": with_breaks,
    "run_title": run_title,
    "share_words": share_words,
}
PAGE_FILTERS: Mapping[str, str] = {
    "case_key": "evaldesk.model.evalset:case_key",
    "finding_href": "evaldesk.pages.failures.kind:finding_href",
    "numbered_trial_href": "evaldesk.pages.failures.room:numbered_trial_href",
    "queue_title": "evaldesk.pages.queues.result:queue_title",
    "agent_graph": "evaldesk.pages.agent_graph:agent_graph",
    "divergence_sentence": "evaldesk.wording.words:divergence_sentence",
    "capture_words": "evaldesk.model.visibility:capture_words",
    "queue_words": "evaldesk.pages.queues.result:queue_words",
    "trial_name": "evaldesk.pages.queues.result:trial_name",
    "label_badge": "evaldesk.pages.queues.page:label_badge",
    "label_href": "evaldesk.pages.labels:label_href",
    "verdict_badge": "evaldesk.pages.labels:verdict_badge",
    "label_word": "evaldesk.pages.queues.page:label_word",
    "box_value": "evaldesk.pages.queues.page:box_value",
    "metrics_words": "evaldesk.pages.queues.page:metrics_words",
    "case_shape": "evaldesk.pages.import_view:case_shape",
    "first_message": "evaldesk.pages.import_view:first_message",
    "asserted_parts": "evaldesk.pages.import_view:asserted_parts",
    "verdict_pairs": "evaldesk.pages.import_view:verdict_pairs",
    "import_verb": "evaldesk.pages.import_view:import_verb",
    "repeats_words": "evaldesk.model.evalset:repeats_words",
}
"""Filters of read models that are not imported before the first page: `module:function`."""

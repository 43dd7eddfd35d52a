"""What pages with forms share: problems beside fields, JSON typed by a person, sizes that bound what is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from evaldesk.errors import FormatError, UsageError
from evaldesk.formats.strict_json import kind_of, parse_json
from evaldesk.model import JsonObject, JsonValue
from evaldesk.web.guard import MAX_BODY
from evaldesk.web.render import target_of

MAX_FIELDS = 50_000
MAX_FILES = 2
"""A file, or the trials of a run and its metadata."""

# Python has codecs that raise what no parser of forms expects, and some that make half characters.
_OTHER_CHARSET = re.compile(r"charset\s*=\s*(?![\"']?utf-8\b)", re.IGNORECASE)

SHOW_TOP = {"HX-Reswap": "innerHTML show:top"}
"""The headers with which a form comes back that was not saved: why stands at its top."""


async def read_form(request: Request) -> FormData:
    """The posted fields; the guard bounds their size. Raises UsageError when there are more than MAX_FIELDS."""
    if _OTHER_CHARSET.search(request.headers.get("content-type", "")):
        raise UsageError("this form is not written in UTF-8, which is all that is read")
    form = await request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS, max_part_size=MAX_BODY)
    if len(form.multi_items()) > MAX_FIELDS:
        raise UsageError(f"the form has more than {MAX_FIELDS:,} fields; edit the case as raw JSON instead")
    return form


def text_of(form: FormData, name: str, default: str = "") -> str:
    """The text of a field with line ends as files have them: browsers send CR LF. An uploaded file gives `default`."""
    value = form.get(name, default)
    return value.replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else default


@dataclass(slots=True)
class Problems:
    """What is wrong with a form: field id -> (what the field is called, one sentence)."""

    found: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, name: str, label: str, message: str) -> None:
        """Keep the first problem of each field."""
        self.found.setdefault(name, (label, message))

    def get(self, name: str) -> str:
        """The sentence to show at a field; empty when it is right."""
        return self.found.get(name, ("", ""))[1]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return ((name, label, message) for name, (label, message) in self.found.items())


def json_value(text: str) -> JsonValue:
    """The JSON value that `text` holds, as strictly as a file is read. Raises UsageError with line and column."""
    try:
        return parse_json(text.encode("utf-8", "replace"), source="").value
    except FormatError as error:
        raise UsageError(said(error)) from error


def json_object(text: str) -> JsonObject:
    """The JSON object that `text` holds; nothing typed is an empty one. Raises UsageError."""
    if not text.strip():
        return {}
    value = json_value(text)
    if not isinstance(value, dict):
        raise UsageError(f'This must be an object such as {{"key": "value"}}, not {kind_of(value)}.')
    return value


def said(error: FormatError) -> str:
    """A format error as a sentence of a form: line and column first, no file name."""
    place = f"Line {error.line}, column {error.column}: " if error.line else ""
    path = f"{error.path}: " if error.path else ""
    return f"{place}{path}{error.reason}."


def leave(request: Request, address: str, block: str) -> Response:
    """Go to `address`; a form that htmx sent to refresh `block` is told so by a header, not by a redirect."""
    if target_of(request) == block:
        return Response(status_code=200, headers={"HX-Redirect": address})
    return RedirectResponse(address, status_code=303)

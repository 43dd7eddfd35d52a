"""The common parts of pages with forms: fields read within bounds, and the address a form leads to."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from evaldesk.desk.failures import AlikeNameError, TypedFinding
from evaldesk.desk.imports.uploads import ArrivingFile
from evaldesk.errors import EvaldeskError, FormatError, UsageError
from evaldesk.web.guard import MAX_BODY
from evaldesk.web.render import go, target_of

MAX_FIELDS = 50_000
MAX_TEXT = 64 * 1024
"""Bytes of a text that comes with uploaded files."""
MAX_FILES = 3
"""A file, or the trials of a run and its metadata."""

# Python has codecs whose errors no parser of forms expects, and some that make half characters.
_OTHER_CHARSET = re.compile(r"charset\s*=\s*(?![\"']?utf-8\b)", re.IGNORECASE)

_NUMBER = re.compile(r"[0-9]{1,15}")

SHOW_TOP = {"HX-Reswap": "innerHTML show:top"}
"""The headers with which a form comes back that was not saved: why stands at its top."""


async def read_form(request: Request, max_files: int = MAX_FILES) -> FormData:
    """The posted fields; the guard bounds their size. Raises UsageError when there are more than MAX_FIELDS."""
    _check_charset(request)
    form = await request.form(max_files=max_files, max_fields=MAX_FIELDS, max_part_size=MAX_BODY)
    if len(form.multi_items()) > MAX_FIELDS:
        raise UsageError(f"the form has more than {MAX_FIELDS:,} fields; edit the case as raw JSON instead")
    return form


def _check_charset(request: Request) -> None:
    if _OTHER_CHARSET.search(request.headers.get("content-type", "")):
        raise UsageError("this form is not written in UTF-8, which is all that is read")


@asynccontextmanager
async def arrived_files(
    request: Request, make_file: Callable[[str], ArrivingFile]
) -> AsyncIterator[Sequence[ArrivingFile]]:
    """The posted files, each written part by part to a file that `make_file` makes for its name; closed afterwards."""
    _check_charset(request)
    files: list[ArrivingFile] = []

    def begin(name: str) -> ArrivingFile:
        files.append(make_file(name))
        return files[-1]

    try:
        if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            await _FileParser(request, begin).parse()
        yield [file for file in files if file.name]
    except MultiPartException as error:
        raise HTTPException(400, detail=error.message) from error
    finally:
        for file in files:
            file.close()


class _FileParser(MultiPartParser):
    """Reads a form of files: the bytes of each go where `begin` says, and not into a temporary file."""

    def __init__(self, request: Request, begin: Callable[[str], ArrivingFile]) -> None:
        stream = cast("Any", request.stream())
        super().__init__(request.headers, stream, max_files=MAX_FILES, max_fields=10, max_part_size=MAX_TEXT)
        self._begin = begin

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        super().on_header_value(data, start, end)
        if len(self._current_partial_header_value) > MAX_TEXT:
            raise MultiPartException("The head of a part is too long.")

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        upload = self._current_part.file
        if upload is not None:
            upload.file.close()
            upload.file = cast("Any", self._begin(upload.filename or ""))


def text_of(form: FormData, name: str, default: str = "") -> str:
    """The text of a field with line ends as files have them: browsers send CR LF. An uploaded file gives `default`."""
    value = form.get(name, default)
    return value.replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else default


_OWN_PAGES = ("/evalsets/", "/runs/", "/failures", "/proposals", "/queues/")


def own_address(address: str, default: str) -> str:
    """The page from which a form was sent; `default` for an address that is no page with such forms here."""
    is_own = address.startswith(_OWN_PAGES) and address.isprintable() and "\\" not in address and len(address) < 2_000
    return address if is_own else default


def texts_of(form: FormData, name: str) -> list[str]:
    """The texts of all fields of that name."""
    return [each for each in form.getlist(name) if isinstance(each, str)]


def number_of(text: object) -> int | None:
    """The whole number that a field or a part of an address says, in at most 15 digits; None for anything else."""
    return int(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else None


def whole_or_one(text: str) -> int:
    """The whole number below a million in a field that may be half typed, else 1."""
    number = number_of(text)
    return number if number is not None and number < 1_000_000 else 1


def start_of(request: Request) -> int:
    """Where a part of something long begins, by `from` in the address; its start where that names no place."""
    return number_of(request.query_params.get("from")) or 0


def typed_finding(form: FormData, author: str) -> TypedFinding:
    """A finding as it was typed; its place is a turn and an event, as `1.7`."""
    turn, _, event = text_of(form, "place").partition(".")
    note, mode, quote = (text_of(form, name) for name in ("note", "mode", "quote"))
    new_mode, is_new = typed_kind(form)
    return TypedFinding(author, note, mode, new_mode, turn, event, quote, is_new)


def typed_kind(form: FormData) -> tuple[str, bool]:
    """The name of a kind of failure as it was typed, and whether it is to be made beside others that begin so."""
    return text_of(form, "new-kind") or text_of(form, "new-mode"), bool(text_of(form, "new-kind"))


@dataclass(frozen=True, slots=True)
class KindOffer:
    """The kinds of failure that a typed name begins, with the address and the other `fields` of its form."""

    address: str
    typed: str
    names: Sequence[str]
    fields: Sequence[tuple[str, str]]


def offer_of(address: str, form: FormData, error: EvaldeskError) -> KindOffer | None:
    """The kinds that a refused form may have meant; None for other refusals."""
    if not isinstance(error, AlikeNameError):
        return None
    fields = [(name, text) for name, text in form.multi_items() if isinstance(text, str)]
    return KindOffer(address, typed_kind(form)[0], error.names, [each for each in fields if each[0] != "new-mode"])


async def file_text_of(form: FormData, name: str) -> str | None:
    """The text of an uploaded file; None where none was chosen. Raises FormatError for other encodings than UTF-8."""
    upload = form.get(name)
    if not isinstance(upload, UploadFile) or not upload.filename:
        return None
    data = await upload.read()
    await upload.close()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"the file is not UTF-8: byte {error.start + 1} is not part of a character") from None


def attachment(
    content: str | bytes | Iterable[bytes], file_name: str, media_type: str = "application/json"
) -> Response:
    """A download, also in parts; `file_name` is plain."""
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    if isinstance(content, str | bytes):
        return Response(content, media_type=media_type, headers=headers)
    return StreamingResponse(content, media_type=media_type, headers=headers)


def leave(request: Request, address: str, block: str) -> Response:
    """Go to `address`; a form that htmx sent to refresh `block` is told so by a header, not by a redirect."""
    if target_of(request) == block:
        return Response(status_code=200, headers={"HX-Redirect": address})
    return go(address)

"""Uploaded files that are looked at before a person confirms them: read at once, a large one in a thread of its own."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock

from evaldesk.desk.evalsets.names import slug
from evaldesk.desk.imports.streamed import MAX_FILE, Watch, stream_file
from evaldesk.desk.imports.uploads import MAX_SMALL, ArrivingFile, Label, Upload, Uploads
from evaldesk.errors import VALUE_LIMIT, ConflictError, EvaldeskError, FormatError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import MAPPING, as_one_file, export_format, joined_format, recognised, title_of
from evaldesk.formats.mapped_rows import ROLES, FileColumn, columns_in, proposed_columns, read_columns
from evaldesk.formats.process import read_large_upload, read_upload
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES
from evaldesk.settings import Settings
from evaldesk.transcripts.recorded import digest_of
from evaldesk.wording.printable import printable

log = logging.getLogger("evaldesk.desk")

MAX_REFUSAL = 500
"""Characters: the label of an upload stays small."""
ROWS_TITLE = "Rows of a data set, by a mapping"
MAPPED_ROLES = {role: meaning for role, meaning in ROLES.items() if role != "rows"}
"""The roles of columns that a form offers; where the rows are is seen in the file."""
MAX_READ = 4
"""Uploads that are kept as they were read; others are read again when they are looked at."""


@dataclass(frozen=True, slots=True)
class Staged:
    """An uploaded file that is not confirmed yet; `name` is proposed for its eval set.

    Of a large file the digests of its runs are known, too.
    """

    token: str
    source: str
    title: str
    name: str
    contents: Imported
    digests: Sequence[str] = ()

    @property
    def has_choice(self) -> bool:
        """Whether another key could decide the verdict."""
        contents = self.contents
        return len(contents.outcomes) > 1 or bool(contents.outcomes and not contents.outcome)


@dataclass(frozen=True, slots=True)
class UnmappedUpload:
    """A data set that no format knows, with its columns; `chosen` has the column of each role, as proposed or typed."""

    token: str
    source: str
    refusal: str
    columns: Sequence[FileColumn]
    chosen: Mapping[str, str]
    is_mapped: bool


@dataclass(slots=True)
class Reading:
    """A large upload that is being read; `problem` says why it cannot be."""

    source: str
    n_bytes: int
    n_read: int = 0
    problem: str = ""
    is_cancelled: bool = False


class ReadingEndedError(Exception):
    """The reading of an upload was cancelled."""


class Staging:
    """The uploads of a workspace that wait for a yes. Works on files: from pages, call it in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._uploads = Uploads(settings.state_folder / "uploads")
        self._staged: OrderedDict[str, Staged] = OrderedDict()
        self._readings: dict[str, Reading] = {}
        self._lock = Lock()
        self._is_closing = False

    def stage(self, data: bytes, source: str) -> Staged:
        """Keep the contents of the file until a person confirms them. Raises FormatError, UsageError, DiskError."""
        contents = read_upload(data, source)
        return self._keep(self._uploads.add(Label(source), data), source, contents)

    def check_upload(self, n_bytes: int) -> None:
        """Raise DiskError or UsageError for an upload of `n_bytes` without room."""
        if n_bytes > MAX_SMALL:
            self._uploads.check_room(n_bytes)

    def arriving(self, name: str) -> ArrivingFile:
        """A file of that name which is being uploaded."""
        return ArrivingFile(name, self._uploads)

    def stage_arrived(self, files: Sequence[ArrivingFile]) -> str:
        """Keep uploaded files that are one thing, as one, and give its token; a large one is read later.

        Raises as `stage` does.
        """
        for problem in filter(None, (file.problem for file in files)):
            raise problem
        if len(files) > 1 and (export := _joined_export(files)):
            source, data = export
            return self.stage(data, source).token
        companions = joined_format(file.name for file in files).companions if len(files) > 1 else ()
        rows = min(files, key=lambda file: [file.name.endswith(name) for name in companions])
        other_files = [file for file in files if file is not rows]
        if any(file.size > MAX_RECORDED_BYTES for file in other_files):
            limit = f"of several files only the trials may have more than {MAX_RECORDED_BYTES // 2**20} MiB"
            raise FormatError(f"{limit}; import their folder with `evaldesk import FOLDER`", source=rows.name)
        _, tail = as_one_file([(rows.name, b""), *((file.name, file.read()) for file in other_files)])
        rows.write((b"\n" if rows.size and tail else b"") + tail)
        if rows.problem:
            raise rows.problem
        return rows.keep(Label(rows.name)) if rows.is_large else self._stage_or_map(rows.read(), rows.name)

    def _stage_or_map(self, data: bytes, source: str) -> str:
        """The token of a file, also of rows that no format knows: these wait for the meanings of their columns."""
        try:
            return self.stage(data, source).token
        except FormatError as error:
            if MAPPING not in error.reason or not columns_in(data, source):
                raise
            return self._uploads.add(Label(source, refusal=error.reason[:MAX_REFUSAL]), data)

    def mapping(self, token: str) -> UnmappedUpload | None:
        """A data set of no known format, and the columns that a person gives a meaning; None for any other upload.

        Raises NotFoundError.
        """
        label, data = self._uploads.read(token)
        if not (label.refusal or label.columns):
            return None
        columns = [FileColumn(each.name, printable(each.example)) for each in columns_in(data, label.source)]
        chosen = read_columns(label.columns) if label.columns else proposed_columns(columns)
        return UnmappedUpload(token, label.source, label.refusal, columns, chosen, is_mapped=bool(label.columns))

    def map(self, token: str, columns: Mapping[str, str]) -> Staged:
        """Read the rows of an upload by the columns of roles.

        Raises NotFoundError, ConflictError for an upload of a known format, UsageError for columns that cannot be,
        FormatError for a row that is no case, DiskError.
        """
        upload = self.mapping(token)
        if upload is None:
            raise ConflictError("this upload has a format, which gives its columns a meaning")
        if bool(columns.get("input")) == bool(columns.get("messages")):
            raise UsageError("choose a column for one of input and messages: the words of the user")
        text = ",".join(f"{role}={column}" for role, column in columns.items() if column)
        unknown = [
            column for column in columns.values() if column and column not in {each.name for each in upload.columns}
        ]
        if unknown:
            raise UsageError(f"the file has no column {unknown[0][:VALUE_LIMIT]!r}")
        read_columns(text)
        _, data = self._uploads.read(token)
        contents = read_upload(data, upload.source, columns=text)
        self._uploads.change(token, Label(upload.source, columns=text, refusal=upload.refusal), data)
        return self._keep(token, upload.source, contents)

    def reading(self, token: str) -> Reading | None:
        """The progress of reading a large upload, begun at the first call; None once it is read, and for a small one.

        Raises NotFoundError.
        """
        upload = self._uploads.find_large(token)
        if upload is None:
            return None
        label, path, n_bytes = upload
        with self._lock:
            if token in self._staged:
                return None
            if token in self._readings:
                return self._readings[token]
            reading = self._readings[token] = Reading(label.source, n_bytes)
        self._reader.submit(self._read_large, token, label, path, reading)
        return reading

    def _read_large(self, token: str, label: Label, path: Path, reading: Reading) -> None:
        def watch(n_read: int, _: int) -> None:
            reading.n_read = n_read
            if reading.is_cancelled or self._is_closing:
                raise ReadingEndedError

        try:
            watch(0, 0)
            contents = _read_large(path, label.source, label.outcome, watch)
            digests = [digest_of(run) for run in contents.runs]
            watch(reading.n_bytes, 0)
            self._keep(token, label.source, contents, digests)
        except ReadingEndedError:
            pass
        except (EvaldeskError, OSError) as error:
            reading.problem = str(error)
            return
        except Exception:
            log.exception("an upload cannot be read")
            reading.problem = "reading it broke off"
            return
        with self._lock:
            self._readings.pop(token, None)

    @cached_property
    def _reader(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "reading")

    def stage_by(self, token: str, outcome: str) -> Staged | None:
        """Read a staged file by another of its outcomes; None for a large one, which is read later.

        Raises NotFoundError, FormatError, DiskError.
        """
        staged = self.get_staged(token)
        if not staged.has_choice or outcome == staged.contents.outcome:
            return staged
        label, data = self._uploads.read(token)
        if label.is_apart:
            if outcome not in staged.contents.outcomes:
                raise FormatError(f"no row says {outcome[:VALUE_LIMIT]!r}", source=label.source)
            self._uploads.change(token, Label(label.source, outcome, is_apart=True))
            with self._lock:
                self._staged.pop(token, None)
            return None
        contents = read_upload(data, label.source, outcome)
        self._uploads.change(token, Label(label.source, outcome), data)
        return self._keep(token, label.source, contents)

    def _keep(self, token: str, source: str, contents: Imported, digests: Sequence[str] = ()) -> Staged:
        staged = Staged(
            token,
            source,
            title_of(contents.format) if contents.format else ROWS_TITLE,
            proposed_name(source),
            contents,
            digests,
        )
        with self._lock:
            self._staged[token] = staged
            while len(self._staged) > MAX_READ:
                self._staged.popitem(last=False)
        return staged

    def get_staged(self, token: str) -> Staged:
        """The file that was staged under this token. Raises NotFoundError, FormatError.

        Raises ConflictError for a large upload that is not read yet.
        """
        with self._lock:
            staged = self._staged.get(token)
        if staged is not None:
            return staged
        label, data = self._uploads.read(token)
        if label.is_apart:
            raise ConflictError(f"{label.source} is not read yet; open its preview")
        if label.refusal and not label.columns:
            raise ConflictError(f"the columns of {label.source} have no meaning yet; open its mapping")
        return self._keep(token, label.source, read_upload(data, label.source, label.outcome, label.columns))

    def uploads(self) -> Sequence[Upload]:
        """The files that wait for a yes, oldest first."""
        return self._uploads.list()

    def drop(self, token: str) -> None:
        """Forget a staged file. Raises NotFoundError, DiskError."""
        with self._lock:
            self._staged.pop(token, None)
            reading = self._readings.pop(token, None)
        if reading is not None:
            reading.is_cancelled = True
        self._uploads.remove(token)

    def close(self) -> None:
        """End the reading of large uploads."""
        self._is_closing = True
        if "_reader" in self.__dict__:
            self._reader.shutdown(cancel_futures=True)


def _joined_export(files: Sequence[ArrivingFile]) -> tuple[str, bytes] | None:
    """Name and bytes of uploaded files of one export; None where one of them is of no export.

    Raises FormatError, also where they are large: those are read by their folder.
    """
    small_files = [(file.name, file.read()) for file in files if not file.is_large]
    names = {recognised(data, name) for name, data in small_files}
    form = export_format(names.pop()) if len(names) == 1 else None
    if form is None:
        return None
    if len(small_files) < len(files) or sum(file.size for file in files) > MAX_SMALL:
        limit = f"several files of one export have at most {MAX_SMALL // 2**20} MiB here"
        raise FormatError(f"{limit}; import their folder with `evaldesk import FOLDER`", source=files[0].name)
    return form.join(small_files)


def proposed_name(source: str) -> str:
    """The name of an eval set from that of a file."""
    stem = source.partition(".")[0]
    return stem if stem.isascii() and stem.isidentifier() and len(stem) <= 100 else slug(stem, default="imported")


def _read_large(path: Path, source: str, outcome: str, watch: Watch) -> Imported:
    """The contents of a large uploaded file, in a stream where its format has one. Raises FormatError, OSError."""
    streamed = stream_file(path, None, outcome, watch, source=source)
    if streamed is not None:
        return streamed
    if path.stat().st_size > MAX_FILE:
        raise FormatError(f"a file that is not read case by case has at most {MAX_FILE // 2**20} MiB", source=source)
    return read_large_upload(path, source, outcome)

"""Any file that Evaldesk reads or writes, of any tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from evaldesk.errors import NAME_LIMIT, BadNumberError, FormatError, NotFoundError
from evaldesk.formats.exchange import (
    FOLDERS,
    FORMATS,
    MARKS,
    ExportFiles,
    ExportFormat,
    FolderFormat,
    Format,
    Holding,
    Imported,
    JoinedFormat,
    OutcomeFormat,
    PackedFormat,
    ResultFolder,
    StreamedFormat,
)
from evaldesk.formats.forms import EVALSET_FORMS, read_evalset
from evaldesk.formats.import_words import with_words
from evaldesk.formats.mapped_rows import yaml_value
from evaldesk.model import EvalSet
from evaldesk.process_setup import gc_paused
from evaldesk.reading.refusals import refusal
from evaldesk.reading.sniffing import first_keys, peek
from evaldesk.reading.strict_json import kind_of, parse_recorded_json
from evaldesk.reading.yaml_text import YAML_SUFFIXES
from evaldesk.registry import import_target, is_present
from evaldesk.transcripts.recorded import RecordedRun

TEXT_FORMATS = {"osmosis-parquet": "osmosis-jsonl"}
"""Formats whose files are no text that can be searched, each with the text format that holds the same rows."""

JOINED = ("openhands", "osmosis-results")
"""The formats of several files that are read as one; the first stands for files of none."""


EXPORTS = ("openai-evals",)
"""The formats whose objects are spread over files of any names; several of them are read together."""


def read_file(data: bytes, source: str, format: str | None = None, outcome: str = "") -> Imported:  # noqa: A002
    """The contents of the file called `source`, in the named format or in the detected one.

    `outcome` is the key by which its trials passed, where a file has several. Raises FormatError with the place, and
    nothing else; NotFoundError when there is no format of that name.
    """
    try:
        with gc_paused():
            name = format or recognised(data, source)
            if name is None:
                raise _refusal(data, source)
            return with_words(_read(load_format(name), data, source, outcome))
    except FormatError as error:
        raise error if error.source else FormatError(error.reason, source=source, path=error.path) from error
    except BadNumberError as error:
        raise FormatError(str(error), source=source) from error
    finally:
        peek.cache_clear()  # a large file is many times as large once it is parsed


def as_one_file(parts: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
    """Name and bytes of several files that are one run. Raises FormatError for files that do not belong together."""
    return parts[0] if len(parts) == 1 else joined_format([name for name, _ in parts]).join(parts)


def export_format(name: str | None) -> ExportFormat | None:
    """The format of that name where its files are read together; None for any other."""
    return cast("ExportFormat", load_format(name)) if name in EXPORTS and name in FORMATS else None


def read_export(form: ExportFormat, files: ExportFiles) -> Imported:
    """The contents of the files of an export. Raises FormatError, and UsageError."""
    try:
        with gc_paused():
            return with_words(form.read_export(files))
    except FormatError as error:
        raise error if error.source else FormatError(error.reason, source=files.name, path=error.path) from error
    except BadNumberError as error:
        raise FormatError(str(error), source=files.name) from error
    finally:
        peek.cache_clear()


def joined_format(names: Iterable[str] = ()) -> JoinedFormat:
    """The format of files of these names that are read as one. Raises NotFoundError."""
    forms = [cast("JoinedFormat", load_format(name)) for name in JOINED if name in FORMATS]
    if not forms:
        raise NotFoundError.among("format", JOINED[0], FORMATS)
    keys = {name.rpartition("/")[2] for name in names}
    return next((form for form in forms if keys & {form.main, *form.companions}), forms[0])


def folder_formats() -> Iterator[tuple[str, FolderFormat]]:
    """The formats of folders of results by name, without those of removed tools."""
    for name, target in FOLDERS.items():
        if is_present(target):
            yield name, cast("FolderFormat", import_target(target))


def read_folder(folder: ResultFolder, format: str | None, outcome: str) -> Imported | None:  # noqa: A002
    """The contents of a folder that a format knows by its parts; None where none does. Raises FormatError."""
    for name, form in folder_formats():
        if format in (None, name) and form.holds(folder.paths):
            try:
                return with_words(form.read_folder(folder, outcome))
            except FormatError as error:
                raise (
                    error if error.source else FormatError(error.reason, source=folder.name, path=error.path)
                ) from error
            except BadNumberError as error:
                raise FormatError(str(error), source=folder.name) from error
    return None


def _read(form: Format, data: bytes, source: str, outcome: str) -> Imported:
    if not outcome:
        return form.read(data, source=source)
    if not isinstance(form, OutcomeFormat):
        raise FormatError(
            f"{form.title}: the file states which trials passed, so no outcome can be chosen", source=source
        )
    return form.read_by(data, source=source, outcome=outcome)


def read_other_evalset(data: bytes, source: str) -> EvalSet:
    """The eval set in a file that is not ADK's own. Raises FormatError, also for a file that holds runs only."""
    name = recognised(data, source)
    if name is None or name in EVALSET_FORMS:
        return read_evalset(data, source=source)
    evalset = load_format(name).read(data, source=source).evalset
    if evalset is None:
        raise FormatError(
            f"{title_of(name)} contain runs and no eval set; `evaldesk import` takes them in", source=source
        )
    return evalset


def write_file(what: EvalSet | RecordedRun, format: str) -> bytes:  # noqa: A002
    """The bytes of a file in that format. Raises FormatError naming the value it cannot hold, and NotFoundError."""
    if isinstance(what, RecordedRun):
        return b"".join(run_parts(what, format))
    return load_format(format).write(what)


def run_parts(run: RecordedRun, format: str) -> Iterator[bytes]:  # noqa: A002
    """The bytes of a file of a run part by part, while its trials are read one after the other.

    Raises as `write_file` does, also after the first part.
    """
    form = load_format(format)
    if form.writes == ("evalset",):
        raise FormatError(f"{form.title}: contains no run; write a run as {', '.join(names_for('run'))}")
    return form.parts(run) if isinstance(form, StreamedFormat) else iter((form.write(run),))


def recognised(data: bytes, source: str) -> str | None:
    """The name of the format that the bytes mean to be in, however wrong inside; None when there is none."""
    keys = first_keys(data)
    marks = None if keys is None else {*keys, f".{source.lower().rpartition('.')[2]}"}
    names = [name for name in FORMATS if marks is None or name not in MARKS or not marks.isdisjoint(MARKS[name])]
    names.sort(key=EVALSET_FORMS.__contains__)
    return next((name for name in names if load_format(name).recognises(data, source)), None)


def load_format(name: str) -> Format:
    """The format of that name. Raises NotFoundError; no name that is not in the table reaches an import."""
    if name not in FORMATS:
        raise NotFoundError.among("format", name, FORMATS)
    return cast("Format", FORMATS.load(name))


def names_for(holding: Holding) -> tuple[str, ...]:
    """The formats in which an eval set, or a run, can be written."""
    return tuple(name for name in FORMATS if holding in load_format(name).writes)


def title_of(name: str) -> str:
    """The common name of the format."""
    return load_format(name).title


def pack(text: bytes, name: str) -> bytes:
    """The file of a format of `TEXT_FORMATS` that holds these rows. Raises FormatError."""
    return cast("PackedFormat", load_format(name)).pack(text)


def suffix_of(name: str) -> str:
    """How the name of a file ends that we write in this format."""
    return load_format(name).suffixes[0]


def _refusal(data: bytes, source: str) -> FormatError:
    """Why no format recognised the file: its fault as JSON, or its actual kind."""
    preview = peek(data)
    if isinstance(preview.line, dict) and "solution_str" in preview.line:
        return FormatError("these are conversations to be graded: evaldesk rubric -d FILE", source=source)
    if preview.document is None and isinstance(preview.line, dict):
        return FormatError(
            f"lines of JSON that no format knows, {_keys(preview.line)}; {MAPPING}; {_known_formats()}", source=source
        )
    if source.lower().endswith(YAML_SUFFIXES):
        return FormatError(f"YAML that no format knows, {_keys(yaml_value(data, source))}; {MAPPING}", source=source)
    try:
        document = parse_recorded_json(data, source=source)
    except FormatError as error:
        return error
    if own_words := _own_file(document.value):
        return document.error(own_words)
    reason = refusal(document.value)
    if "eval config" in reason:
        reason += "; it goes to a run as its criteria: evaldesk eval --config-file-path FILE"
    is_named = not reason.startswith("this is not an eval set")
    return document.error(
        reason if is_named else f"no format knows this file, {_keys(document.value)}; {MAPPING}; {_known_formats()}"
    )


def _own_file(value: Any) -> str:
    """The command for a file that another command of Evaldesk wrote; empty for any other file."""
    keys = value.keys() if isinstance(value, dict) else set()
    if "evaldesk_experiment" in keys:
        return "this is an experiment; store it with: evaldesk experiment import FILE"
    if {"evaldesk_version", "outcome", "runs"} <= keys:
        return (
            "this is the result file of a command or a merge, with verdicts and without conversations; read it with "
            "evaldesk compare FILE, or name it as --baseline FILE; whole trials are those of: evaldesk export RUN"
        )
    return ""


MAPPING = "name its columns: evaldesk import FILE --map input=COLUMN,expected=COLUMN"


def _keys(value: Any) -> str:
    first = value[0] if isinstance(value, list) and value else value
    where = "a list whose first item is " if isinstance(value, list) and value else ""
    if not isinstance(first, dict):
        return f"{where}{kind_of(first)}"
    names = ", ".join(repr(key[:NAME_LIMIT]) for key in list(first)[:5])
    return f"{where}an object with the keys {names}" if names else f"{where}an empty object"


def _known_formats() -> str:
    return f"known are {', '.join(FORMATS)}"

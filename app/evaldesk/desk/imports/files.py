"""Files of other tools: read from the disk, examined, converted, put together as trials of one run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from evaldesk.agents import declared_refs
from evaldesk.desk.criteria.criteria import holds_criteria, read_criteria, read_live, read_user
from evaldesk.desk.evalsets.masking import masked_file
from evaldesk.desk.experiments.file import is_experiment_file, read_experiment_file
from evaldesk.desk.experiments.variants import (
    baseline_index,
    check_experiment_name,
    check_names,
    grid_of,
    listed_variants,
    varied_option,
)
from evaldesk.desk.imports.streamed import HEAD, MAX_FILE, Watch, recognise_format, stream_file
from evaldesk.desk.runs.file import RunFile, is_run_file, read_run_file
from evaldesk.errors import DiskError, FormatError, UsageError
from evaldesk.formats import EVALSET_FORMS, losses
from evaldesk.formats.exchange import FORMATS, MAINS, Imported, JoinedFormat, MainFileFormat
from evaldesk.formats.files import (
    EXPORTS,
    as_one_file,
    export_format,
    folder_formats,
    joined_format,
    names_for,
    read_export,
    read_file,
    read_folder,
    recognised,
    suffix_of,
    title_of,
)
from evaldesk.formats.mapped_rows import Columns, read_columns, read_mapped
from evaldesk.model import EvalSet
from evaldesk.model.evalset import repeats_words
from evaldesk.paths import did_you_mean
from evaldesk.reading.regular_file import open_regular_file, read_at_most
from evaldesk.reading.strict_json import parse_json
from evaldesk.settings import CONFIG_NAME, read_settings
from evaldesk.store.evalsets.large import is_whole
from evaldesk.transcripts.recorded import RecordedRun, as_trials
from evaldesk.wording.words import needs_words


def columns_of(mapping: str) -> Columns:
    """The columns of a data set by their role, of `input=question,expected=answer`. Raises UsageError."""
    return read_columns(mapping)


def read_path(
    path: Path,
    format_name: str | None = None,
    outcome: str = "",
    watch: Watch | None = None,
    columns: Columns | None = None,
) -> Imported:
    """The contents of the file or the folder at `path`; `outcome` is the key of the verdict.

    The main file of a run, such as the `index.jsonl` of Osmosis, is read with the files beside it.

    With `columns`, the columns of a data set by their role, its rows are cases whatever their format is.
    `watch` gets the numbers of read bytes and of all bytes of a large file. Raises FormatError, and UsageError when it
    cannot be read.
    """
    if columns is not None:
        return read_mapped(bytes_of(path), str(path), columns)
    if path.is_dir():
        return _read_folder(path, format_name, outcome, watch)
    if imported := _read_with_neighbours(path, format_name, outcome, watch):
        return imported
    with _leave_to_whole_reader():
        if streamed := stream_file(path, format_name, outcome, watch):
            return streamed
    return read_file(bytes_of(path), str(path), format_name, outcome)


def read_together(
    paths: Sequence[Path],
    format_name: str | None = None,
    outcome: str = "",
    watch: Watch | None = None,
    columns: Columns | None = None,
) -> Imported:
    """The contents of one file or folder, or of the files of one export, as `group_exports` puts them together.

    The other arguments are those of `read_path`, which gives the errors.
    """
    if len(paths) == 1:
        return read_path(paths[0], format_name, outcome, watch, columns)
    files = FolderOnDisk(Path(), str(paths[0]), [*map(str, paths)])
    return _read_export(files, format_name or _export_of(paths[0]) or "", outcome)


def group_exports(paths: Sequence[Path], format_name: str | None = None) -> list[tuple[Path, ...]]:
    """The named files in order, those of one export together: its objects are spread over files of any names."""
    groups: dict[str, list[Path]] = {}
    for number, path in enumerate(paths):
        name = _export_of(path) if len(paths) > 1 and format_name in (None, *EXPORTS) else None
        groups.setdefault(name or str(number), []).append(path)
    return [*map(tuple, groups.values())]


def _export_of(path: Path) -> str | None:
    """The format of a regular file where its objects may be spread over several files; None for any other."""
    try:
        if not path.is_file():
            return None
        with open_regular_file(path) as file:
            name = recognise_format(file, str(path), is_complete=is_whole(path.stat().st_size))
    except (FormatError, OSError):
        return None  # the reader of the file meets the fault again
    return name if name in EXPORTS else None


def _read_export(files: FolderOnDisk, format_name: str, outcome: str) -> Imported:
    form = export_format(format_name)
    if form is None:
        raise UsageError(f"{files.name}: the files of {format_name or 'no format'} are not read together")
    if outcome:
        raise FormatError("the files state which trials passed, so no outcome can be chosen", source=files.name)
    return read_export(form, files)


MAX_FOLDER_FILES = 20_000
MAX_FOLDER_BYTES = 1024 * 1024 * 1024
"""Files of a folder of results and the bytes that are read of all of them."""
MAX_FOLDER_DEPTH = 4


@dataclass(slots=True)
class FolderOnDisk:
    """A folder of results that a person named; a link in it is no part of it."""

    folder: Path
    name: str
    paths: Sequence[str]
    sizes: dict[str, int] = field(default_factory=dict)

    def is_large(self, path: str) -> bool:
        """Whether a file is too large to be read whole."""
        return not is_whole((self.folder / path).stat().st_size)

    def open(self, path: str) -> BinaryIO:
        """A file, open for reading. Raises FormatError, and UsageError when it cannot be read."""
        try:
            return open_regular_file(self.folder / path)
        except OSError as error:
            raise UsageError(f"{self.folder / path} cannot be read: {error.strerror}") from None

    def read(self, path: str) -> bytes:
        """The bytes of one of its files. Raises FormatError, and UsageError where they are too many."""
        data = bytes_of(self.folder / path)
        self.sizes[path] = len(data)
        if sum(self.sizes.values()) > MAX_FOLDER_BYTES:
            limit = f"more than {MAX_FOLDER_BYTES // 2**20} MiB of results"
            raise UsageError(f"{self.folder} has {limit}; import parts of it")
        return data


def _files_of(folder: Path) -> Iterator[str]:
    """The paths of the files in a folder, in order."""
    n = 0
    for at, folders, names in os.walk(folder):
        here = Path(at).relative_to(folder)
        folders[:] = sorted(folders) if len(here.parts) < MAX_FOLDER_DEPTH else []
        n += len(names)
        if n > MAX_FOLDER_FILES:
            raise UsageError(f"{folder} has more than {MAX_FOLDER_FILES:,} files; name the folder of one run")
        for name in sorted(names):
            path = Path(at) / name
            if path.is_file() and not path.is_symlink():
                yield (here / name).as_posix()


def _read_folder(folder: Path, format_name: str | None, outcome: str, watch: Watch | None) -> Imported:
    """The results of a folder, known by its parts: those of a run of OpenHands are streamed."""
    files = FolderOnDisk(folder, str(folder), [*_files_of(folder)])
    if imported := read_folder(files, format_name, outcome):
        return imported
    form = joined_format()
    rows = folder / form.main
    if not rows.is_file():
        for name in EXPORTS if format_name is None else {format_name}.intersection(EXPORTS):
            if any(_export_of(folder / path) == name for path in files.paths):
                return _read_export(files, name, outcome)
        known_parts = "; ".join(form.parts for _, form in folder_formats())
        raise UsageError(
            f"{folder} is a folder without results that a tool is known by: {form.main}, or {known_parts}; name the "
            "file that holds the results"
        )
    return _read_joined(rows, form, format_name, outcome, watch)


def _read_with_neighbours(path: Path, format_name: str | None, outcome: str, watch: Watch | None) -> Imported | None:
    """The run of a main file, read as its folder is; None for another file, and for one that stands alone."""
    name = MAINS.get(path.name, "")
    if not name or format_name not in (None, name) or name not in FORMATS or not _is_of_format(path, name):
        return None
    form = joined_format([path.name])
    is_large = not is_whole(path.stat().st_size)
    folder_form = None if is_large else dict(folder_formats()).get(name)
    if isinstance(folder_form, MainFileFormat):
        with suppress(UsageError):  # too many files lie around it; those that are joined with it have known names
            paths = [path.name, *folder_form.beside(path.name, [*_files_of(path.parent)])]
            if imported := read_folder(FolderOnDisk(path.parent, str(path.parent), paths), name, outcome):
                return imported
    return _read_joined(path, form, name, outcome, watch)


def _is_of_format(path: Path, name: str) -> bool:
    """Whether the first lines of a file are of that format."""
    try:
        with open_regular_file(path) as file:
            head = read_at_most(file, HEAD)
    except OSError:
        return False
    return recognised(head[: head.rfind(b"\n") + 1] or head, str(path)) == name


def _read_joined(
    rows: Path, form: JoinedFormat, format_name: str | None, outcome: str, watch: Watch | None
) -> Imported:
    """The run of a file of rows and of its companions in the same folder."""
    paths = (rows.parent / name for name in form.companions)
    more = [(str(path), bytes_of(path)) for path in paths if path.is_file() and not path.is_symlink()]
    with _leave_to_whole_reader():
        _, tail = as_one_file([("", b""), *more])
        if streamed := stream_file(rows, format_name, outcome, watch, tail):
            return streamed
    source, data = as_one_file([(str(rows), bytes_of(rows)), *more])
    return read_file(data, source, format_name, outcome)


@contextmanager
def _leave_to_whole_reader() -> Iterator[None]:
    """Ignore a read error here: the reader of whole files meets it again and reports it."""
    try:
        yield
    except DiskError:
        raise
    except OSError:
        pass


def json_of(path: Path) -> Any:
    """The value of a JSON file that a person named. Raises FormatError with the place of a fault, and UsageError."""
    return parse_json(bytes_of(path), source=str(path)).value


def bytes_of(path: Path) -> bytes:
    """The bytes of a file that a person named. Raises FormatError for a pipe or a device, and UsageError."""
    try:
        with open_regular_file(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE:
                raise _size_error(path)
            data = read_at_most(file, MAX_FILE + 1)
    except OSError as error:
        hint = did_you_mean(path, "") if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{path} cannot be read: {error.strerror}{hint and f'; {hint}'}") from None
    if len(data) > MAX_FILE:  # a pipe does not tell its size
        raise _size_error(path)
    return data


def _size_error(path: Path) -> UsageError:
    return UsageError(f"{path} has more than {MAX_FILE // 1024 // 1024} MiB")


def as_one_run(files: Sequence[tuple[Path, Imported]]) -> Imported:
    """The runs of several files as the trials of one run. Raises UsageError for a file without a run."""
    without = next((path for path, contents in files if not contents.runs), None)
    if without:
        raise UsageError(f"{without} contains no run; --as-trials puts runs together")
    run = as_trials([run for _, contents in files for run in contents.runs])
    return replace(files[0][1], evalset=None, runs=(run,))


@dataclass(frozen=True, slots=True)
class Converted:
    """A file in another format, without secrets.

    `left_out` has a sentence for each value that this format does not hold, `masking_note` lists the masked secrets.
    """

    data: bytes
    left_out: tuple[str, ...]
    masking_note: str = ""
    ending: str = ""


def convert_file(
    path: Path,
    target: str,
    from_name: str | None = None,
    to_name: str | None = None,
    columns: Columns | None = None,
) -> Converted:
    """The eval set or the run of a file in the format `to_name`, by default that of the name `target`.

    It is without the secrets of the environment. Raises FormatError, UsageError.
    """
    contents = read_path(path, from_name, columns=columns)
    name = to_name or _format_of(target, contents)
    what = _part_to_write(contents, name)
    lost_parts = losses(what, name) if name in EVALSET_FORMS and isinstance(what, EvalSet) else ()
    file = masked_file(what, name, os.environ)
    return Converted(file.data, (*contents.refused, *lost_parts), file.words, file.ending)


def _format_of(target: str, contents: Imported) -> str:
    """The one format that the ending of a name says, of a run only where it says none of an eval set.

    Raises UsageError when it says none, or several.
    """
    of_sets, of_runs = names_for("evalset") if contents.evalset else (), names_for("run") if contents.runs else ()
    suffixes = {name: suffix_of(name) for name in (*of_sets, *of_runs)}
    fitting = [name for name, suffix in suffixes.items() if target.lower().endswith(suffix)]
    longest = max((len(suffixes[name]) for name in fitting), default=0)
    best = [name for name in fitting if len(suffixes[name]) == longest]
    best = [name for name in best if name in of_sets] or best
    if len(best) == 1:
        return best[0]
    why = f"could be {', '.join(best)}" if best else f"says none of {', '.join(suffixes)}"
    raise UsageError(f"{target}: the name {why}; choose one with --to")


def _part_to_write(contents: Imported, name: str) -> EvalSet | RecordedRun:
    """The part of the file that is written: a run where the format holds runs only, else the eval set."""
    if contents.evalset and name in names_for("evalset"):
        return contents.evalset
    if len(contents.runs) > 1:
        raise UsageError(f"the file holds {len(contents.runs)} runs; import it, and export them one by one")
    if contents.runs:
        return contents.runs[0]
    if contents.evalset:
        return contents.evalset
    raise UsageError("the file holds neither an eval set nor a run")


@dataclass(frozen=True, slots=True)
class Examined:
    """The contents of a file. `n_cases` is None for one of settings; `runs` has name, cases and trials of each run.

    `repeats` names the ids that several cases of the eval set have; empty where each has its own.
    """

    format: str
    title: str
    understood: Sequence[str]
    kept: Sequence[str] = ()
    refused: Sequence[str] = ()
    n_cases: int | None = None
    runs: tuple[tuple[str, int, int], ...] = ()
    repeats: str = ""


def examine_file(path: Path, format_name: str | None = None) -> Examined:
    """The contents of a file of cases, runs, criteria or settings. Raises FormatError, UsageError."""
    if format_name is None and holds_criteria(path):
        return _examined_criteria(path)
    if format_name is None and path.suffix == ".toml" and path.is_file():
        return _examined_toml(path)
    contents = read_path(path, format_name)
    n_cases = len(contents.evalset.cases) if contents.evalset else 0
    runs = tuple((run.name, len(run.cases), len(run.results)) for run in contents.runs)
    title = title_of(contents.format)
    repeats = repeats_words(contents.evalset.cases) if contents.evalset else ""
    return Examined(
        contents.format, title, contents.understood, contents.kept, contents.refused, n_cases, runs, repeats
    )


def _examined_criteria(path: Path) -> Examined:
    """A criteria file: the conditions of a passed trial. Raises FormatError with line and path."""
    criteria, user = read_criteria(path), read_user(path)
    sentences = [f"{each.metric}: {needs_words(each.metric, each.threshold)}." for each in criteria]
    sentences += ["Its agent is played live."] if read_live(path) else []
    sentences += [f"A simulated user by {user.model or 'the model of the desk'}."] if user else []
    return Examined("criteria", "criteria file", sentences)


def _examined_toml(path: Path) -> Examined:
    """The settings of a workspace, or a run file. Raises UsageError with the fault."""
    if path.name == CONFIG_NAME:
        return Examined("settings", "settings of a workspace", _settings_sentences(path))
    if is_experiment_file(path):
        return _examined_experiment(path)
    if not is_run_file(path):
        raise UsageError(
            f"{path} is neither {CONFIG_NAME} nor a run file of `evaldesk run submit`, which has the sections "
            "experiment and evaluation"
        )
    run_file = read_run_file(path)
    agent, dataset = _parts_of(run_file)
    sentences = [
        f"{agent} with {run_file.model_path} on {dataset}.",
        f"A trial passes from a reward of {run_file.pass_threshold:g} on.",
    ]
    return Examined("run-file", "run file", sentences)


def _examined_experiment(path: Path) -> Examined:
    """The variants of an experiment file. Raises UsageError with the fault."""
    file = read_experiment_file(path)
    _, variants = listed_variants(file.variants) if file.variants else grid_of([*map(varied_option, file.vary)])
    names = [variant.name for variant in variants]
    check_names(names)
    if file.name is not None:
        check_experiment_name(file.name)
    baseline = names[baseline_index(names, file.baseline)]
    agent, evalset = (file.agent, file.evalset) if file.run_file is None else _parts_of(file.run_file)
    sentences = [
        f"{agent} on {evalset}.",
        f"{len(names)} variants: {', '.join(names)}.",
        f"The baseline is {baseline}.",
    ]
    return Examined("experiment-file", "experiment file", sentences)


def _parts_of(run_file: RunFile) -> tuple[str, str]:
    return f"{run_file.rollout} ({run_file.entrypoint})", run_file.dataset


def _settings_sentences(path: Path) -> list[str]:
    home = path.resolve().parent
    settings = read_settings(home, (), environment={})
    lists = (
        ("Agents", [ref.id for ref in declared_refs(settings.agents, home)]),
        ("Models", settings.models),
        ("Judges", settings.judges),
        ("Metrics", list(settings.functions)),
    )
    return [f"{title}: {', '.join(names)}." for title, names in lists if names]

"""Paths: of the files that ship with Evaldesk, of a mistyped name, of an interpreter that a person names, and of the
folder of a workspace's state, which is for the user alone and without links.
"""

from __future__ import annotations

import os
import shutil
from difflib import get_close_matches
from pathlib import Path

from evaldesk.errors import UsageError, WorkspaceError

EVALSET_SUFFIX = ".evalset.json"
EVALSET_FOLDER = "evalsets"
SAMPLES_FOLDER = Path(".evaldesk", "demo", EVALSET_FOLDER)
"""A person's copies of the samples' eval sets, in the workspace."""
PACKAGE = Path(__file__).resolve().parent
OURS = "evaldesk"
"""The name of the interpreter that Evaldesk itself runs on."""


# A wheel has these folders in the package, a checkout has them at its root: decision 001.
def shipped(name: str) -> Path:
    """The folder `templates`, `static`, `evalsets` or `docs`. Raises FileNotFoundError naming both places."""
    places = (PACKAGE / name, PACKAGE.parents[1] / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"{name} is neither at {places[0]} nor at {places[1]}; install Evaldesk again")


def samples() -> Path:
    """The folder of the sample agents."""
    return PACKAGE / "samples"


def did_you_mean(path: Path, otherwise: str) -> str:
    """`did you mean set.json?`, from the neighbours of a missing `path`; `otherwise` where nothing is near.

    A path of Windows is answered as one.
    """
    of_windows = _of_windows(str(path))
    if of_windows:
        return of_windows
    try:
        names = [name for name in os.listdir(path.parent) if name != path.name]  # one that cannot be read is listed
    except OSError:
        return otherwise
    nearest = get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f"did you mean {path.with_name(nearest[0])}?" if nearest else otherwise


def is_windows_path(text: str) -> bool:
    """Whether the text begins with a drive of Windows, as in `C:\\evals\\my.json`."""
    return text[:1].isalpha() and text[1:2] == ":" and text[2:3] in ("\\", "/")


def folder_of_names(agent_folder: str) -> Path | None:
    """Where an agent's eval sets are found by their names: in its folder; those of the samples ship beside them."""
    folder = Path(agent_folder) if agent_folder else None
    return shipped(EVALSET_FOLDER) if folder and folder.parent == samples() else folder


def selected_cases(text: str, folder: Path | None = None) -> tuple[Path, tuple[str, ...] | None]:
    """The file that `FILE[:CASE,CASE]` names and the cases after its colon, None for all.

    A file whose own name has a colon is found as it is, and the colon of a drive of Windows separates nothing. A text
    that is no file may be the name of an eval set in the agent's `folder`. Raises UsageError.
    """
    evalset_path = _evalset_file(text, folder)
    if evalset_path:
        return evalset_path, None
    name, colon, cases = text.rpartition(":")
    if not colon or (len(name) == 1 and is_windows_path(text)):
        name, colon = text, ""
    path = _evalset_file(name, folder) if colon else None
    if path is None:
        raise UsageError(f"{name} is not a file; {_nearest_evalset(name, folder)}", field="evalset")
    case_names = tuple(case.strip() for case in cases.split(",") if case.strip())
    if not case_names:
        raise UsageError(f"{text}: name a case after the colon, or leave the colon out to run them all", field="cases")
    return path, case_names


def _of_windows(text: str) -> str:
    """The next step for a path of Windows on another system; empty for any other text, and on Windows."""
    if os.sep == "\\" or not is_windows_path(text):
        return ""
    return "it is a path of Windows; write it as this system does, with / and without a drive"


def _evalset_file(name: str, folder: Path | None) -> Path | None:
    candidates = [Path(name)] if folder is None else [Path(name), folder / f"{name}{EVALSET_SUFFIX}"]
    return next((path for path in candidates if path.is_file()), None)


def _nearest_evalset(name: str, folder: Path | None) -> str:
    """The proposal for a `name` that is no file: a file near it, or a name in the agent's folder."""
    path = Path(name)
    hint = "" if path.exists() else did_you_mean(path, "")  # a folder is no file, and near itself
    if hint:
        return hint
    paths_by_stem = {
        _stem(file): str(file) for place in (Path(EVALSET_FOLDER), path.parent) for file in _evalsets(place)
    }
    paths_by_stem |= {_stem(file): _stem(file) for file in _evalsets(folder)}
    paths_by_stem = {stem: path_text for stem, path_text in paths_by_stem.items() if path_text != name}
    nearest = get_close_matches(_stem(path), paths_by_stem, n=1, cutoff=0.75)
    return (
        f"did you mean {paths_by_stem[nearest[0]]}?"
        if nearest
        else "name an eval set, such as evalsets/my.evalset.json"
    )


def _stem(path: Path) -> str:
    return path.name.removesuffix(EVALSET_SUFFIX)


def _evalsets(folder: Path | None) -> list[Path]:
    return sorted(folder.glob(f"*{EVALSET_SUFFIX}")) if folder and folder.is_dir() else []


def interpreter_path(text: str, folder: Path) -> str:
    """The path of the interpreter that `python = "..."` names, seen from `folder`; OURS and the empty text as they are.

    A folder is that of an environment, a bare name is looked up on PATH. Raises UsageError where there is none.
    """
    if text in ("", OURS):
        return text
    path = folder / Path(text).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    elif os.sep not in text and not path.exists():
        path = Path(shutil.which(text) or path)
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise UsageError(f"python = {text!r}: there is no interpreter at {path}", field="python")
    return str(path.parent.resolve() / path.name)  # the file itself may link out of its environment


def workspace_folder(text: str | None) -> Path:
    """The folder of the workspace that a person names, without links; the current one where none is named."""
    return Path(os.path.realpath(text)) if text else Path.cwd()


def is_read_only(path: Path) -> bool:
    """Whether nothing can be written beside the file: it is on a read-only mount, or in a folder of somebody else."""
    folder = path.parent
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY) or not os.access(folder, os.W_OK)
    except FileNotFoundError:
        return False


def make_private_folder(folder: Path) -> None:
    """Create `folder` for the user alone, with any umask, unless it exists."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Create `path` empty, or keep it, readable for the user alone; SQLite gives its -wal and -shm the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    path.chmod(0o600)


def check_no_links(folder: Path) -> None:
    """Raise WorkspaceError when the folder is a link, or holds one: writes would land elsewhere.

    An entry that is neither a file nor a folder, as a named pipe, is refused as well: opening it may wait without end.
    """
    if folder.is_symlink():
        raise WorkspaceError(f"{folder} is a link, which is not followed; go where it leads to, or remove it")
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        link_by_path = {entry.path: entry.is_symlink() for entry in entries if not _is_plain(entry)}
    for path, is_link in sorted(link_by_path.items()):
        what = "is a link, which is not followed" if is_link else "is neither a file nor a folder"
        raise WorkspaceError(f"{path} {what}; remove it, or name another workspace")


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)

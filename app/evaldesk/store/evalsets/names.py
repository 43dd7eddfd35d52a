"""Names of eval set files: which are allowed, which collide, and the ids that stand for files in addresses."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from evaldesk.errors import VALUE_LIMIT, ConflictError, UsageError
from evaldesk.model.evalset import EVALSET_ENDING
from evaldesk.paths import EVALSET_FOLDER, SAMPLES_FOLDER, shipped

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_FILE_ID = re.compile(r"[a-z0-9-]+-[0-9a-f]{8}")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


def check_name(name: str) -> None:
    """Refuse a name that no new eval set may have. Raises UsageError.

    ADK's own screens create sets named with letters, digits and `_` only; files with a `-` are read by it all the
    same. Names that Windows reserves are refused everywhere, so that a repository can be checked out anywhere.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            "A name is up to 100 letters, digits, _ or -, not beginning with - "
            f"(ADK itself takes only letters, digits and _), got {name[:VALUE_LIMIT]!r}",
            field="name",
        )
    if name.casefold() in _RESERVED:
        raise UsageError(f"{name!r} is a name that Windows keeps for itself; choose another", field="name")


def check_free(file_name: str, names: Iterable[str]) -> None:
    """Refuse a file name that some file system would take for one of `names`. Raises ConflictError."""
    twin = next((other for other in names if _fold_name(other) == _fold_name(file_name)), None)
    if twin is not None:
        raise ConflictError(f"there is already a file {twin!r}; choose another name")


def stem_and_suffix(path: Path) -> tuple[str, str]:
    """`calc.evalset.json` as `("calc", ".evalset.json")`."""
    ending = EVALSET_ENDING.search(path.name)
    suffix = ending[0] if ending else path.suffix
    return path.name.removesuffix(suffix), suffix


def identity_of(path: Path, home: Path) -> str:
    """The id of the eval set in a file, the same for every process: of its real path within the workspace `home`.

    A file outside is known by its absolute path. The samples and a person's copies of them are one set, as though they
    lay in the workspace. (decision 455)
    """
    return identity_of_real(Path(os.path.realpath(path)), Path(os.path.realpath(home)))


def identity_of_real(path: Path, home: Path) -> str:
    """The same of two paths without links."""
    return evalset_file_id(stem_and_suffix(path)[0], _place_in(path, home))


def _place_in(path: Path, home: Path) -> str:
    if path.parent == home / SAMPLES_FOLDER:
        return f"{EVALSET_FOLDER}/{path.name}"
    if path.is_relative_to(home):
        return path.relative_to(home).as_posix()
    return f"{EVALSET_FOLDER}/{path.name}" if path.parent == _samples_folder() else path.as_posix()


@cache
def _samples_folder() -> Path:
    return shipped(EVALSET_FOLDER)


def evalset_file_id(stem: str, place: str) -> str:
    """The id of the file at `place`: letters a-z, digits and dashes only, always the same."""
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:40].strip("-") or "evalset"
    return f"{slug}-{hashlib.sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def is_file_id(text: str) -> bool:
    """Whether `evalset_file_id` may have given this id; the id that a set gives itself mostly differs."""
    return bool(_FILE_ID.fullmatch(text))


def _fold_name(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())

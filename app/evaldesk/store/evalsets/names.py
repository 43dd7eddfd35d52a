"""Names of eval set files: which are allowed, which collide, and the ids that stand for files in addresses."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from evaldesk.errors import ConflictError, UsageError
from evaldesk.model.evalset import EVALSET_ENDING

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
            f"(ADK itself takes only letters, digits and _), got {name[:120]!r}",
            field="name",
        )
    if name.casefold() in _RESERVED:
        raise UsageError(f"{name!r} is a name that Windows keeps for itself; choose another", field="name")


def check_free(file_name: str, taken: Iterable[str]) -> None:
    """Refuse a file name that some file system would take for one of `taken`. Raises ConflictError."""
    twin = next((other for other in taken if _folded(other) == _folded(file_name)), None)
    if twin is not None:
        raise ConflictError(f"there is already a file {twin!r}; choose another name")


def stem_and_suffix(path: Path) -> tuple[str, str]:
    """`calc.evalset.json` as `("calc", ".evalset.json")`."""
    found = EVALSET_ENDING.search(path.name)
    suffix = found[0] if found else path.suffix
    return path.name.removesuffix(suffix), suffix


def evalset_file_id(stem: str, place: str) -> str:
    """The id of the file at `place` (a path under its root): letters a-z, digits and dashes only, always the same."""
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:40].strip("-") or "evalset"
    return f"{slug}-{hashlib.sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def is_file_id(text: str) -> bool:
    """Whether `evalset_file_id` may have given this id; the id that a set gives itself mostly differs."""
    return bool(_FILE_ID.fullmatch(text))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())

"""The eval sets of two revisions of a git repository, read from its objects; nothing is checked out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evaldesk.errors import FormatError, UsageError
from evaldesk.formats import read_evalset
from evaldesk.git import git_bytes, git_text
from evaldesk.model import EvalSet
from evaldesk.model.evalset import EVALSET_ENDING
from evaldesk.reading.strict_json import MAX_BYTES

RANGE = re.compile(r"(?P<before>[^.]\S*?|[^.\s])(?P<dots>\.{2,3})(?P<after>[^.]\S*|)")
MOST_FILES = 200
MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ChangedSet:
    """An eval set file in two revisions, None where a revision lacks it; `error` is of one that cannot be read."""

    place: str
    before: EvalSet | None
    after: EvalSet | None
    error: str = ""

    @property
    def name(self) -> str:
        """The name of the set, as its file has it."""
        return EVALSET_ENDING.sub("", PurePosixPath(self.place).name) or self.place


@dataclass(frozen=True, slots=True)
class ChangedSets:
    """The eval sets that differ between two commits."""

    before: str
    after: str
    sets: tuple[ChangedSet, ...]


def changed_sets(folder: Path, words: str) -> ChangedSets:
    """The eval sets that differ between the revisions of `main..HEAD`; with three dots since they parted.

    Raises UsageError outside of a repository, for an unknown revision, and for more files than MOST_FILES.
    """
    match = RANGE.fullmatch(words)
    if match is None or len(words) > MOST_CHARACTERS or not words.isprintable():
        raise UsageError(f"{words[:60]!r} is not a range of revisions, such as main..HEAD")
    top = git_text(folder, "rev-parse", "--show-toplevel")
    if not top:
        raise UsageError(f"{folder} is in no git checkout; name versions, as in SET@VERSION")
    place = Path(top)
    before, after = _commit(place, match["before"]), _commit(place, match["after"] or "HEAD")
    if match["dots"] == "...":
        before = git_text(place, "merge-base", before, after) or before
    listing = git_bytes(place, "diff-tree", "-r", "-z", "--no-commit-id", "--no-renames", "--no-ext-diff",
                        "--no-textconv", "--name-only", before, after)  # fmt: skip
    if listing is None:
        raise UsageError(f"{match['before']} and {match['after'] or 'HEAD'} cannot be compared by git")
    names = [name.decode("utf-8", "surrogateescape") for name in listing.split(b"\0") if name.endswith(b".json")]
    if len(names) > MOST_FILES:
        raise UsageError(f"{len(names):,} JSON files differ; at most {MOST_FILES} are compared at once")
    pairs = (_changed_set(place, before, after, name) for name in names)
    return ChangedSets(before[:7], after[:7], tuple(each for each in pairs if each is not None))


def _commit(top: Path, revision: str) -> str:
    commit = git_text(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise UsageError(f"there is no revision {revision}; fetch it, or name another")
    return commit


def _changed_set(top: Path, before: str, after: str, name: str) -> ChangedSet | None:
    """The file in both revisions; None for JSON that is no eval set in either."""
    sides: list[EvalSet | None] = []
    errors: list[str] = []
    for commit in (before, after):
        size = git_text(top, "cat-file", "-s", f"{commit}:{name}")
        try:
            if size.isdecimal() and int(size) > MAX_BYTES:
                raise FormatError(f"it has more than {MAX_BYTES // 2**20} MiB", source=name)
            data = git_bytes(top, "cat-file", "blob", f"{commit}:{name}") if size else None
            sides.append(None if data is None else read_evalset(data, source=name))
        except FormatError as error:
            sides.append(None)
            errors.append(f"{commit[:7]}: {error}")
    is_named = name.endswith((".evalset.json", ".test.json"))
    if errors and not is_named and not any(sides):
        return None
    return ChangedSet(name, sides[0], sides[1], "; ".join(errors))

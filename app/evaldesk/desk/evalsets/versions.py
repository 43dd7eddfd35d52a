"""The versions of eval sets: noted at a save, a start of a run and a change of the file; compared, restored."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.errors import EvaldeskError, NotFoundError, UsageError
from evaldesk.git import git_bytes, git_text
from evaldesk.matching.case_version import (
    canonical_case,
    labelled_case,
    set_version,
    version_keys,
    version_of_set,
)
from evaldesk.model import Case, EvalSet
from evaldesk.model.evalset import CRITERIA, LargeCases, case_key
from evaldesk.model.set_versions import Origin, SetContent, SetDiff, SetVersion, set_diff
from evaldesk.reading.regular_file import read_regular
from evaldesk.reading.strict_json import MAX_BYTES
from evaldesk.store import Store
from evaldesk.store.evalsets.large import is_data_set
from evaldesk.store.set_versions import NewVersion

if TYPE_CHECKING:
    from evaldesk.desk.evalsets.cases import CaseDesk

log = logging.getLogger("evaldesk.desk")

MOST_KEYS = 50_000
"""Cases of a set above which its versions have no list of them."""
SHORTEST = 4
"""Characters of a version that are enough to name it."""
BLOB_DIGESTS = ("sha1", "sha256")
CONTENT_GONE = "the content of this version is gone"


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that has a file as it is now; empty where none has."""

    revision: str = ""
    author: str = ""


def commit_of(path: Path) -> Commit:
    """The last commit of a file, where that has the very bytes of the file. Raises nothing."""
    try:
        data = read_regular(path, MAX_BYTES)
    except (EvaldeskError, OSError):
        return Commit()
    folder, name = path.parent, f"./{path.name}"
    # The name of an object is a digest of its bytes, so the committed file, which may be of any size, is not read.
    blob = git_text(folder, "rev-parse", "--verify", "--quiet", f"HEAD:{name}")
    if blob not in {hashlib.new(method, b"blob %d\0%b" % (len(data), data)).hexdigest() for method in BLOB_DIGESTS}:
        return Commit()
    line = git_bytes(folder, "log", "-1", "--no-show-signature", "--no-ext-diff", "--format=%h%x00%an", "--", name)
    revision, _, author = (line or b"").decode("utf-8", "replace").strip().partition("\0")
    return Commit(revision, author[:200]) if author else Commit()


def note_version(
    store: Store,
    evalset_id: str,
    evalset: EvalSet,
    path: Path | None,
    *,
    origin: Origin,
    author: str = "",
    note: str = "",
    reads_git: bool = False,
) -> bool:
    """Note the version of a set unless it is noted; gives whether it was. A failure is logged, and hinders nobody.

    Without `origin` "desk" the first version of a set is `first`, or `run` where a run began with it.
    """
    if store.is_read_only:
        return False
    try:
        keys, criteria = version_keys(evalset), evalset.extra.get(CRITERIA)
        version = set_version(keys, criteria)
        newest = store.set_versions.newest_digest(evalset_id)
        if newest == version:
            return False
        if origin != "desk":
            origin = "outside" if newest else "run" if origin == "run" else "first"
        commit = commit_of(path) if reads_git and path else Commit()
        is_cut = len(keys) > MOST_KEYS
        content = SetContent(() if is_cut else tuple(keys), criteria, is_cut)
        latest = NewVersion(version, content, len(keys), origin, author, note, commit.revision, commit.author)
        return store.set_versions.note(evalset_id, latest, lambda digests: _contents(evalset, keys, path, digests))
    except (EvaldeskError, OSError, SQLAlchemyError) as error:
        log.warning("a version of an eval set cannot be noted: %s", error)
        return False


def _contents(
    evalset: EvalSet, keys: Sequence[tuple[str, str]], path: Path | None, digests: Collection[str]
) -> Mapping[str, Case]:
    """The contents of the cases with these digests; none of a data set, whose file has them."""
    if not digests or (isinstance(evalset.cases, LargeCases) and path and is_data_set(path.stat().st_size)):
        return {}
    cases = (evalset.cases[number] for number, (_, digest) in enumerate(keys) if digest in digests)
    prefix = (digest for _, digest in keys if digest in digests)
    return {digest: canonical_case(case) for digest, case in zip(prefix, cases, strict=True)}


class VersionDesk:
    """The versions of the eval sets of a workspace. Reads and writes files: from pages, call it in a thread."""

    def __init__(
        self,
        store: Store,
        read_set: Callable[[str], tuple[EvalSet, str, Path]],
        cases: CaseDesk,
        author: Callable[[], str],
        reads_git: Callable[[], bool],
    ) -> None:
        self._store = store
        self._read = read_set
        self._cases = cases
        self._author = author
        self._reads_git = reads_git
        self._noted: dict[str, str] = {}

    def look(self, evalset_id: str, evalset: EvalSet, file_version: str, path: Path) -> None:
        """Note the version of a set as it was read, once for each content of its file."""
        if self._noted.get(evalset_id) == file_version:
            return
        self._noted[evalset_id] = file_version
        note_version(self._store, evalset_id, evalset, path, origin="outside", reads_git=self._reads_git())

    def note_save(self, evalset_id: str, before: EvalSet | None, after: EvalSet, path: Path, note: str = "") -> None:
        """Note a change of the desk, and before it a change of the file that nobody had looked at."""
        if before is not None and not self._store.is_read_only:
            note_version(self._store, evalset_id, before, None, origin="outside")
        author, reads_git = self._author(), self._reads_git()
        note_version(self._store, evalset_id, after, path, origin="desk", author=author, note=note, reads_git=reads_git)

    def list(self, evalset_id: str) -> Sequence[SetVersion]:
        """The versions of a set, the newest first; the file as it is now is the first of them."""
        self._read(evalset_id)
        return self._store.set_versions.list(evalset_id)

    def find(self, evalset_id: str, name: str) -> SetVersion:
        """The version whose digest or commit begins so. Raises UsageError where several or none do."""
        versions = self.list(evalset_id)
        prefix = name.strip().casefold()
        if len(prefix) < SHORTEST:
            raise UsageError(f"{name!r} is too short for a version; at least {SHORTEST} characters name one")
        matches = {
            each.version: each
            for each in reversed(versions)
            if each.version.startswith(prefix) or (each.revision and each.revision.startswith(prefix))
        }
        if len(matches) > 1:
            raise UsageError(
                f"{len(matches)} versions begin with {name!r}: {', '.join(sorted(v[:12] for v in matches))}"
            )
        if not matches:
            there = ", ".join(dict.fromkeys(each.short_name for each in versions[:5]))
            raise NotFoundError(f"there is no version {name!r}; the newest are: {there}")
        return next(iter(matches.values()))

    def count(self, evalset_id: str) -> int:
        """The number of versions of a set."""
        return self._store.set_versions.count(evalset_id)

    def version_of(self, evalset: EvalSet) -> str:
        """The version of an eval set as it was read."""
        return version_of_set(evalset)

    def content(self, version: SetVersion) -> SetContent:
        """The cases of a version. Raises NotFoundError."""
        return self._store.set_versions.content(version.number)

    def diff(self, before: SetVersion, after: SetVersion) -> SetDiff:
        """The cases of two versions. Raises UsageError for a set with too many cases for a list of them."""
        earlier, latest = self.content(before), self.content(after)
        if earlier.is_cut or latest.is_cut:
            raise UsageError(f"an eval set of more than {MOST_KEYS:,} cases has no list of the cases of its versions")
        return set_diff(
            earlier.cases, latest.cases, has_other_criteria=(earlier.criteria or None) != (latest.criteria or None)
        )

    def cases_of(self, digests: Collection[str]) -> Mapping[str, Case]:
        """The stored contents with these versions; one that is gone is missing."""
        return self._store.set_versions.cases(digests)

    def evalset(self, evalset_id: str, version: SetVersion) -> EvalSet:
        """The set as it was, with the labels of now. Raises NotFoundError where contents are gone, UsageError."""
        current, _, _ = self._read(evalset_id)
        return self._restored(current, self._stored_cases(version))

    def _stored_cases(self, version: SetVersion) -> tuple[SetContent, Mapping[str, Case]]:
        """The list of a version with all contents. Raises NotFoundError where some are gone."""
        content = self.content(version)
        contents = self.cases_of({digest for _, digest in content.cases})
        n_missing = sum(digest not in contents for _, digest in content.cases)
        if content.is_cut or n_missing:
            raise NotFoundError(
                f"{CONTENT_GONE}: the cases of {version.short_name} are not stored, so it cannot come back"
            )
        return content, contents

    def _restored(self, current: EvalSet, content_and_cases: tuple[SetContent, Mapping[str, Case]]) -> EvalSet:
        """A version in place of the cases of now. Those with the same id and content stay as they are in the file."""
        content, contents = content_and_cases
        now = {case.id: (case, digest) for case, (_, digest) in zip(current.cases, version_keys(current), strict=True)}
        cases = []
        for case_id, digest in content.cases:
            case, digest_now = now.get(case_id, (None, ""))
            is_same = case is not None and digest_now == digest
            cases.append(case if is_same else labelled_case(contents[digest], case_id, case))
        extra = {key: value for key, value in current.extra.items() if key != CRITERIA}
        if content.criteria is not None:
            extra[CRITERIA] = content.criteria
        return replace(current, cases=tuple(case for case in cases if case is not None), extra=extra)

    def restore(self, evalset_id: str, version: SetVersion) -> SetVersion:
        """Bring a version back, as a new version; gives the one before, whose restoration undoes it.

        Raises NotFoundError where its content is gone, UsageError for a data set, LossError, FormatError.
        """
        newest, content_and_cases = self._newest(evalset_id), self._stored_cases(version)
        self._cases.replace_all(
            evalset_id, lambda current: self._restored(current, content_and_cases), f"restored {version.short_name}"
        )
        return newest

    def restore_case(self, evalset_id: str, version: SetVersion, case_id: str) -> SetVersion:
        """Bring one case back as it was in a version, where it is, or at the end; gives the version before."""
        newest, content = self._newest(evalset_id), self.content(version)
        digest = next((each for own_id, each in content.cases if own_id == case_id), None)
        if digest is None:
            raise NotFoundError(f"version {version.short_name} has no case {case_id!r}")
        case = self.cases_of({digest}).get(digest)
        if case is None:
            raise NotFoundError(f"{CONTENT_GONE}: case {case_id!r} of {version.short_name} is not stored")

        def change(current: EvalSet) -> EvalSet:
            key = case_key(case_id)
            places = [number for number, each in enumerate(current.cases) if case_key(each.id) == key]
            own = current.cases[places[0]] if places else None
            latest = labelled_case(case, case_id, own)
            cases = list(current.cases)
            if places:
                cases[places[0]] = latest
            else:
                cases.append(latest)
            return replace(current, cases=tuple(cases))

        self._cases.replace_all(evalset_id, change, f"restored {case_id} of {version.short_name}")
        return newest

    def _newest(self, evalset_id: str) -> SetVersion:
        evalset, _, path = self._read(evalset_id)
        if isinstance(evalset.cases, LargeCases) and is_data_set(path.stat().st_size):
            raise UsageError("a data set is restored from its own copies; export the file, and import it again")
        versions = self._store.set_versions.list(evalset_id, 1)
        if not versions:
            raise NotFoundError("no version of this eval set is noted; the database cannot be written")
        return versions[0]

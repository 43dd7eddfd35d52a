"""The eval sets of a workspace: found, made, renamed, trashed, taken in and given out."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from threading import Lock

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.desk.evalsets.case_steps import CaseSteps
from evaldesk.desk.evalsets.cases import CaseDesk, with_ids
from evaldesk.desk.evalsets.data_sets import cases_for_file, tag_changes, tagged_set
from evaldesk.desk.evalsets.masking import masked_file, without_secrets
from evaldesk.desk.evalsets.names import candidates, plain_name
from evaldesk.desk.evalsets.versions import VersionDesk
from evaldesk.desk.process_owner import AT_BROWSER, starter
from evaldesk.errors import VALUE_LIMIT, ConflictError, EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.formats import load_evalset, losses
from evaldesk.formats.files import names_for, suffix_of
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case, EvalSet, RunConfig
from evaldesk.model.evalset import QUARANTINE, EditedCases, LargeCases
from evaldesk.model.proposals import IN_QUARANTINE, OUT_OF_QUARANTINE
from evaldesk.model.stored import EvalSetFile, RunSummary
from evaldesk.model.tagged_cases import TagChange, TagEdit, tag_edits
from evaldesk.reading.regular_file import version_of_file
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.evalsets.files import EvalSetFiles, PreparedSet
from evaldesk.store.evalsets.large import is_whole
from evaldesk.store.evalsets.names import check_name
from evaldesk.store.evalsets.set_writer import SetWriter
from evaldesk.store.evalsets.trash import origin_of
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wire import json_scrubber

log = logging.getLogger("evaldesk.desk")

MAX_CACHED = 32
MOST_COMPARED = 2_000
MOST_BYTES_COMPARED = 4_000_000
"""The size of a set whose cases are compared with those of a run, to tell whether it was renamed and edited."""


class NameChangedError(ConflictError):
    """Somebody else gave the set the name `stored_name` meanwhile."""

    def __init__(self, stored_name: str) -> None:
        super().__init__(f"Somebody renamed it meanwhile: now it is {stored_name}. Save again to give it your name.")
        self.stored_name = stored_name


class DescriptionChangedError(ConflictError):
    """Somebody else wrote the description `stored_description` meanwhile."""

    def __init__(self, stored_description: str) -> None:
        change = f"now it is “{stored_description}”" if stored_description else "now it is empty"
        super().__init__(f"Somebody changed the description meanwhile: {change}. Save again to write over it.")
        self.stored_description = stored_description


class SetNameTakenError(ConflictError):
    """There is an eval set of that name, `file`; `free` is a name that is not taken."""

    def __init__(self, name: str, free: str, file: EvalSetFile) -> None:
        super().__init__(f"there is an eval set named {name!r} already; {free!r} is free")
        self.name = name
        self.free = free
        self.file = file


@dataclass(frozen=True, slots=True)
class Export:
    """A file to give out; `file_name` is plain ASCII without quotes, `masking_note` lists the masked secrets."""

    file_name: str
    data: bytes
    masking_note: str = ""


def edited_versions(before: Sequence[Case], after: Sequence[Case]) -> list[tuple[str, str]]:
    """The id and the version of each case that is new or has another content, and of each one that is gone, empty.

    A case that came into quarantine or out of it is in the list once more, with that as its version.
    """
    old_cases, new_cases = set(map(id, before)), set(map(id, after))
    versions = [(case.id, case_version(case)) for case in after if id(case) not in old_cases]
    names = {case_id for case_id, _ in versions}
    removed_versions = [(case.id, "") for case in before if id(case) not in new_cases and case.id not in names]
    earlier_ids = {case.id for case in before if QUARANTINE in case.tags}
    moves = [
        (case.id, IN_QUARANTINE if QUARANTINE in case.tags else OUT_OF_QUARANTINE)
        for case in after
        if id(case) not in old_cases and (QUARANTINE in case.tags) != (case.id in earlier_ids)
    ]
    return versions + removed_versions + moves


def _edited_pairs(before: Sequence[Case], after: Sequence[Case]) -> Iterator[tuple[Case, Case]]:
    """Each case of `after` that is another object than before, with the one of its id before, or a bare one."""
    if isinstance(after, EditedCases):
        edited_cases = after.inserted_cases
    else:
        old_cases = set() if isinstance(before, EditedCases) else set(map(id, before))
        edited_cases = [case for case in after if id(case) not in old_cases]
    earlier = {case.id: case for case in with_ids(before, {case.id for case in edited_cases})}
    return ((earlier.get(case.id, Case(case.id)), case) for case in edited_cases)


def own_evalsets(files: Sequence[EvalSetFile], agent_id: str) -> Sequence[EvalSetFile]:
    """Those whose cases name the agent, that lie in its folder or have its name; the last one changed comes last."""
    own = [
        file
        for file in files
        if agent_id in file.app_names or agent_id == file.name or agent_id in Path(file.place).parts[:-1]
    ]
    return sorted(own, key=lambda file: file.modified_ns)


class EvalSetDesk:
    """Every eval set under the settings' roots and folder. Reads and writes files: from pages, call it in a thread."""

    def __init__(self, settings: Settings, store: Store, *, reads_git: Callable[[], bool] = lambda: False) -> None:
        self._trash = settings.state_folder / "trash"
        scrub = json_scrubber(settings.environment)
        self._files = files = EvalSetFiles(
            settings.roots,
            settings.evalset_folder,
            self._trash,
            home=settings.workspace,
            lines=store.evalset_lines,
            indexes=settings.state_folder / "indexes",
            has_secrets=lambda data: scrub(data) is not data,
        )
        self.id_of, self.file, self.writer, self.save = files.id_of, files.file, files.writer, files.save
        self.identity_of = files.identity_of
        self.trash, self.restore = files.trash, files.restore
        self._store = store
        self._settings = settings
        self._environment = settings.environment
        self._cached: dict[str, tuple[str, EvalSet]] = {}
        self._tagged: tuple[EvalSet, Mapping[str, TagChange], EvalSet] | None = None
        # Not held while a file is read, so a large one delays no other.
        self._lock = Lock()
        self.home = settings.workspace
        self._followed: frozenset[str] = frozenset()
        self.cases = CaseDesk(self._files, self.evalset, self._trash, self.note_edit, self._note_tags)
        self.steps = CaseSteps(self.cases, self.evalset, self.file, self._trash)
        self.versions = VersionDesk(store, self.read, self.cases, self._author, reads_git)

    def note_edit(self, evalset_id: str, before: EvalSet, after: EvalSet, note: str = "") -> None:
        """Note the version that a saved change made, the cases with another content, and the author.

        Of a large set the cases are not noted, but for their tags. A change whose note cannot be written counts as made
        outside, as one of an editor does.
        """
        self._note_version(evalset_id, before, after, note)
        is_large = isinstance(before.cases, EditedCases) or isinstance(after.cases, EditedCases)
        try:
            if not is_large:
                versions = edited_versions(before.cases, after.cases)
                self._store.client_proposals.note_edits(evalset_id, versions, self._author())
            self._note_tags(evalset_id, tag_edits(_edited_pairs(before.cases, after.cases)), is_in_file=True)
        except (EvaldeskError, SQLAlchemyError) as error:
            log.warning("the author of an edit cannot be noted: %s", error)

    def _note_tags(self, evalset_id: str, edits: Sequence[TagEdit], is_in_file: bool) -> None:
        self._store.case_tags.note(evalset_id, edits, self._author(), is_in_file=is_in_file)

    def _note_version(self, evalset_id: str, before: EvalSet | None, after: EvalSet, note: str = "") -> None:
        try:
            path = self.file(evalset_id).path
            if isinstance(after.cases, EditedCases) or isinstance(before and before.cases, EditedCases):
                before, (after, _) = None, self._files.read(evalset_id)  # the index of the new file has its versions
            self.versions.note_save(evalset_id, before, after, path, note)
        except (EvaldeskError, OSError) as error:
            log.warning("the version of a saved set cannot be noted: %s", error)

    def _author(self) -> str:
        """The person at the browser, in the settings, or of this process."""
        return next(iter(AT_BROWSER.get([])), "") or starter(self._settings).name

    def list(self) -> Sequence[EvalSetFile]:
        """The eval sets of the workspace, unreadable ones included.

        Runs and cases follow a file that another program renamed.
        """
        files = self._files.list()
        new_files = [file for file in files if file.id not in self._followed]
        if new_files:
            self._followed |= {file.id for file in new_files}
            self._follow({file.id: file.path for file in new_files if not (file.error or file.is_reading)})
        return files

    def follow(self, path: Path) -> None:
        """Let runs and cases follow the file that a command plays, where another program renamed it."""
        self._follow({self._files.identity_of(path): path})

    def _follow(self, files: Mapping[str, Path]) -> None:
        """Give new files the runs of removed ones with the same content, where only one can be meant."""
        if self._store.is_read_only:
            return
        newest = self._store.runs.newest_of_evalsets()
        if any(self._is_of_old_id(evalset_id, run.config) for evalset_id, run in newest.items()):
            self._store.join_evalsets(self.home)
            newest = self._store.runs.newest_of_evalsets()
        here = [run for run in newest.values() if self._is_here(run.config)]
        orphans = [run for run in here if not os.path.lexists(run.config.evalset_path)]
        new_paths = {each: path for each, path in files.items() if each not in newest} if orphans else {}
        pairs = [
            (run.config.evalset_id, each)
            for run, each in product(orphans, new_paths)
            if self._is_renamed(run, new_paths[each])
        ]
        for old_id, new_id in pairs:
            if sum(old_id == other_old or new_id == other_new for other_old, other_new in pairs) == 1:
                self._store.move_evalset(old_id, new_id, new_paths[new_id])

    def _is_here(self, config: RunConfig) -> bool:
        """Whether the file of a run is, or was, in this workspace."""
        path = config.evalset_path
        return bool(path) and Path(path).is_relative_to(self.home) and not is_imported(config)

    def _is_of_old_id(self, evalset_id: str, config: RunConfig) -> bool:
        return self._is_here(config) and self._files.identity_of(Path(config.evalset_path)) != evalset_id

    def _is_renamed(self, run: RunSummary, path: Path) -> bool:
        """Whether the file has the content that the run noted of its own, or most of the cases that it played."""
        try:
            if version_of_file(path) == run.config.evalset_version:
                return True
            if run.n_cases > MOST_COMPARED or path.stat().st_size > MOST_BYTES_COMPARED:
                return False
            case_digests = {case_version(case) for case in load_evalset(path).cases}
        except (FormatError, OSError):
            return False
        digests = [each.digest for each in self._store.runs.case_outcomes(run.id)]
        return 2 * sum(digest in case_digests for digest in digests) > len(digests)

    def fits(self, file: EvalSetFile, case: Case) -> bool:
        """Whether the form of a file can hold another case; the new form of ADK always can."""
        if file.format == "adk":
            return True
        evalset, _, _ = self.read(file.id)
        return not losses(replace(evalset, cases=(*evalset.cases, case)), file.format)

    def propose_evalset_id(self, agent_id: str, fits: Callable[[EvalSetFile], bool] = lambda _: True) -> str:
        """The id of the eval set to propose for an agent, of those that `fits`: the last used with it, else its own.

        Empty where there is neither, unless there is only one eval set: which one is meant is then for a person to say.
        """
        readable = [file for file in self.list() if not file.error and (file.is_reading or fits(file))]
        last_uses = self._store.sessions.last_added(agent_id)
        for run in reversed(self._store.runs.list(agent_id=agent_id)):
            last_use = last_uses.get(run.config.evalset_id)
            last_uses[run.config.evalset_id] = max(last_use, run.created_at) if last_use else run.created_at
        last = sorted((file for file in readable if file.id in last_uses), key=lambda file: last_uses[file.id])
        proposed = last or own_evalsets(readable, agent_id) or (readable if len(readable) == 1 else [])
        return proposed[-1].id if proposed else ""

    def id_of_run(self, config: RunConfig) -> str:
        """The id here of the eval set of a run, which other folders would name otherwise; empty where it is not."""
        return self._files.id_of_recorded(config.evalset_id, Path(config.evalset_path))

    def is_indexed(self, file: EvalSetFile) -> bool:
        """Whether the cases of a set are found by an index, without reading all of them."""
        return file.format == "adk" and not is_whole(file.size)

    def read(self, evalset_id: str) -> tuple[EvalSet, str, Path]:
        """An eval set, the version of its file, and the file. Raises NotFoundError, FormatError."""
        file = self.file(evalset_id)
        if file.error:
            raise FormatError(file.error)
        with self._lock:
            version, evalset = self._cached.pop(evalset_id, ("", None))
        if evalset is None or file.is_reading or version != file.version:
            evalset, version = self._files.read(evalset_id)
        self.versions.look(evalset_id, evalset, version, file.path)
        with self._lock:
            self._cached[evalset_id] = (version, evalset)
            while len(self._cached) > MAX_CACHED:
                self._cached.pop(next(iter(self._cached)))
        return self._tagged_set(evalset_id, evalset, file.path), version, file.path

    def _tagged_set(self, evalset_id: str, evalset: EvalSet, path: Path) -> EvalSet:
        """The set with the tags that count: the same object as before while neither file nor tags change."""
        changes = tag_changes(self._store, evalset_id, path)
        if not changes:
            return evalset
        with self._lock:
            entry = self._tagged
            if entry is None or entry[0] is not evalset or entry[1] != changes:
                entry = self._tagged = (evalset, changes, tagged_set(evalset, changes))
            return entry[2]

    def evalset(self, evalset_id: str) -> EvalSet:
        """An eval set. Raises NotFoundError, FormatError."""
        return self.read(evalset_id)[0]

    def create(self, name: str, description: str = "") -> str:
        """A new eval set without cases; gives its id. Raises UsageError, SetNameTakenError."""
        self.check_new_name(name)
        evalset = EvalSet(id=name, name=name, description=description or None)
        evalset_id = self._files.create(name, evalset)
        self._note_version(evalset_id, None, evalset, "created")
        return evalset_id

    @contextmanager
    def prepare(
        self, name: str, evalset: EvalSet, *, replaces: bool = False, continues: bool = False
    ) -> Iterator[PreparedSet]:
        """An eval set that came in a file, written and not in place yet.

        With `continues` a set of that name and content is the one. With `replaces` it is written over the file of the
        set of that name, which is kept in the trash. Raises FormatError, UsageError, SetNameTakenError, DiskError.
        """
        existing = self._find_by_name(name)
        if existing and continues and self._is_same(existing, evalset):
            yield PreparedSet(existing.id, existing.path, existing.version, write=lambda: None, take_back=lambda: None)
            return
        if existing and replaces:
            ready = self._files.prepared_over(existing.id, evalset)
        else:
            self.check_new_name(name)
            ready = self._files.prepared(name, evalset)
        with ready as prepared:
            yield prepared
        self._note_import(prepared.id)

    def _note_import(self, evalset_id: str) -> None:
        """Note the version of a set that was taken in; nothing where its file was not put in place after all.

        Ctrl-C comes too late here: all of the import is shown. The next run notes a version that is missing.
        """
        with suppress(EvaldeskError, OSError, KeyboardInterrupt):
            evalset, _ = self._files.read(evalset_id)
            self._note_version(evalset_id, None, evalset, "imported")

    def change(
        self,
        evalset_id: str,
        name: str,
        description: str,
        seen_description: str | None = None,
        seen_name: str | None = None,
    ) -> str:
        """Rename and describe; gives the id under which the set is found from now on.

        `seen_description` is the description that the person saw, `seen_name` the name. Raises UsageError,
        SetNameTakenError, DescriptionChangedError and NameChangedError when somebody else wrote another one, and
        ConflictError when the file changes at this very moment.
        """
        now = self.file(evalset_id).name
        if seen_name is not None and seen_name not in (now, name) and now != name:
            raise NameChangedError(now)
        name = now if name == seen_name else name
        is_renamed = name != now
        if is_renamed:
            self.check_new_name(name, but=evalset_id)
        evalset, version = self._files.read(evalset_id)
        stored_description = (evalset.description or "").replace("\r\n", "\n")
        if seen_description is not None and stored_description not in (seen_description, description):
            raise DescriptionChangedError(stored_description)
        if stored_description != description:
            self._files.save(evalset_id, replace(evalset, description=description or None), version)
        if not is_renamed:
            return evalset_id
        new_id = self._files.rename(evalset_id, name)
        self._store.move_evalset(evalset_id, new_id, self.file(new_id).path)
        return new_id

    def duplicate(self, evalset_id: str) -> str:
        """A copy beside it under a free name; gives its id."""
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.file(evalset_id).name).lstrip("-")[:80] or "evalset"
        copy_id = self._files.duplicate(evalset_id, self.free_name(f"{name}_copy"))
        self._store.case_tags.copy(evalset_id, copy_id)
        return copy_id

    def find_trash_name(self, token: str) -> str:
        """The name of the file that the token would bring back; empty when there is none."""
        try:
            return origin_of(token, self._trash).name
        except NotFoundError:
            return ""

    def export(self, evalset_id: str, format_name: str) -> Export:
        """The set as a file of that format. Raises NotFoundError, and FormatError when it cannot be said in it."""
        names = names_for("evalset")
        if format_name not in names:
            raise NotFoundError.among("format", format_name[:VALUE_LIMIT], names)
        evalset, _, _ = self.read(evalset_id)
        file = masked_file(evalset, format_name, self._environment)
        return Export(f"{plain_name(self.file(evalset_id).name)}{suffix_of(format_name)}", file.data, file.words)

    def stream_large_set(self, evalset_id: str) -> tuple[str, Iterator[bytes]] | None:
        """Name and bytes of a large set as a file of ADK without secrets, made case by case; None for another set.

        Raises NotFoundError, FormatError, also while it is made.
        """
        evalset, _, path = self.read(evalset_id)
        if not isinstance(evalset.cases, LargeCases):
            return None
        n_masked: Counter[str] = Counter()
        (shell,) = without_secrets([replace(evalset, cases=())], self._environment, n_masked)
        cases = without_secrets(cases_for_file(evalset.cases), self._environment, n_masked)
        return path.name, iter(SetWriter(shell, path.name, cases=cases))

    def free_name(self, name: str) -> str:
        """`name`, or the nearest that no eval set has; some file systems take `Calc` for `calc`."""
        used_names = {each.name.casefold() for each in self.list()}
        return next(each for each in candidates(name) if each.casefold() not in used_names)

    def holds(self, name: str, evalset: EvalSet) -> bool:
        """Whether the eval set of that name equals the import of this one."""
        existing = self._find_by_name(name)
        return existing is not None and self._is_same(existing, evalset)

    def _is_same(self, existing: EvalSetFile, evalset: EvalSet) -> bool:
        return not existing.error and self._files.holds(existing.id, evalset)

    def check_new_name(self, name: str, but: str = "") -> None:
        """Raise UsageError or SetNameTakenError unless a set may be called so; `but` is the set that is renamed."""
        if not name:
            raise UsageError("Name the eval set.")
        check_name(name)
        existing = self._find_by_name(name)
        if existing and existing.id != but and not (but and self._files.is_half_renamed(but, name)):
            raise SetNameTakenError(name, self.free_name(name), existing)

    def find_current_id(self, evalset_id: str) -> str:
        """The id that a set has since a desk renamed it, or another program moved its file.

        Empty where that is not certain, or the set is gone or is back.
        """
        there = {each.id for each in self.list()} if evalset_id else set()
        earlier_ids: set[str] = set()
        while evalset_id and evalset_id not in there and evalset_id not in earlier_ids:
            earlier_ids.add(evalset_id)
            evalset_id = self._files.moved_id(evalset_id) or self._store.evalset_lines.moved_id(evalset_id)
        return evalset_id if earlier_ids and evalset_id in there else ""

    def _find_by_name(self, name: str) -> EvalSetFile | None:
        return next((each for each in self.list() if each.name.casefold() == name.casefold()), None)

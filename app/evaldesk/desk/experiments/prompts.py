"""The prompts of a workspace: drafted instructions that are kept as files `prompts/NAME.md`.

The desk writes no other file there: one of another writer is never replaced. A note of each file that it wrote stands
beside the database, with the text before it for Undo.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import msgspec

from evaldesk.desk.evalsets.names import free_name
from evaldesk.durable_files import create_file, make_folder, remove_file, replace_file
from evaldesk.errors import ConflictError, FormatError, NotFoundError, UsageError, WorkspaceError
from evaldesk.model.stored import Draft
from evaldesk.paths import make_private_folder
from evaldesk.reading.regular_file import read_regular
from evaldesk.settings import Settings
from evaldesk.store.evalsets.names import check_name
from evaldesk.wire import value_scrubber

FOLDER, ENDING = "prompts", ".md"
INSTRUCTION_ENDINGS = (ENDING, ".txt")
"""Endings of files that may be the instruction of a variant."""
MOST_FILES = 100
"""Files that a form offers."""
MOST_TEXT = 200_000
"""Characters of an instruction."""
MOST_BYTES = 4 * MOST_TEXT
MOST_NOTES = 500
MOST_NOTE_BYTES = 2**26
_TOKEN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class KeptPrompt:
    """A file of the folder: its name without the ending, its text, and when it was written."""

    name: str
    text: str
    saved_at: datetime


@dataclass(frozen=True, slots=True)
class SavedDraft:
    """A save that can be undone: the file, the draft that the person had then, and whether secrets were masked."""

    token: str
    name: str
    draft: Draft
    is_masked: bool
    was_replaced: bool


class PromptNameTakenError(ConflictError):
    """There is another text under the name; `free` is a name that is not taken.

    `digest` is that of the present file, which the desk wrote and may replace; empty for a file of another writer.
    """

    def __init__(self, name: str, free: str, digest: str) -> None:
        super().__init__(f"There is already a file {FOLDER}/{name}{ENDING} with another text. Choose a name.")
        self.free = free
        self.digest = digest


class _Note(msgspec.Struct, frozen=True):
    """A save: the name and the digest of the new text, the text before it, and the whole draft of the person."""

    name: str
    digest: str
    before: str | None
    draft: dict[str, str]
    is_masked: bool = False


class PromptDesk:
    """The files of prompts of a workspace. Methods wait for the disk."""

    def __init__(self, settings: Settings) -> None:
        home = settings.samples_folder.parent if settings.is_demo else settings.workspace
        self.folder = home / FOLDER
        self._notes = settings.state_folder / FOLDER
        self._environment = settings.environment
        self._lock = Lock()

    def list(self) -> Sequence[KeptPrompt]:
        """The prompts in the order of their names; links and files that are no text are left out."""
        return [*self._prompts()]

    def get(self, name: str) -> KeptPrompt:
        """The prompt of that name. Raises NotFoundError with the nearest."""
        prompts = {prompt.name: prompt for prompt in self.list()}
        if name not in prompts:
            raise NotFoundError.among("prompt", name, prompts)
        return prompts[name]

    def free_name(self, name: str) -> str:
        """The name, or the first of `name_2`, `name_3` that no file has."""
        return free_name(name, self._names())

    def save(self, name: str, text: str, draft: Draft, replaced_digest: str = "") -> SavedDraft:
        """Write a text as `prompts/NAME.md`; secrets of the environment are masked.

        Raises UsageError for a name or a text that cannot be, PromptNameTakenError where there is another text under
        that name, unless it is the one of `replaced_digest` and the desk wrote it, WorkspaceError for a folder that is
        a link.
        """
        check_name(name)
        check_text(text)
        scrub = value_scrubber(self._environment)
        scrubbed = scrub(text)
        with self._lock:
            self._check_folder()
            path = self.folder / f"{name}{ENDING}"
            note = _Note(name, _digest(scrubbed), self._text_before(path), scrub(dict(draft)), scrubbed != text)
            if note.before is not None and note.before != scrubbed:
                digest = _digest(note.before) if self._is_ours(name, note.before) else ""
                if not digest or digest != replaced_digest:
                    raise PromptNameTakenError(name, self.free_name(name), digest)
            elif os.path.lexists(path) and note.before is None:
                raise PromptNameTakenError(name, self.free_name(name), "")
            token = self._write_note(note)
            if note.before is None:
                make_folder(self.folder)
                create_file(path, scrubbed.encode())
            elif note.before != scrubbed:
                replace_file(path, scrubbed.encode())
            return self._saved(token, note)

    def saved(self, token: str) -> SavedDraft | None:
        """The save with that token, while it can be undone; None for another token."""
        note = self._note(token)
        if note is None or self._text_before(self.folder / f"{note.name}{ENDING}") is None:
            return None
        return self._saved(token, note)

    def undo(self, token: str) -> str:
        """Undo a save: the file goes, or has its earlier text again; gives its name.

        Raises NotFoundError for a save that is not known, ConflictError where the file was changed meanwhile.
        """
        with self._lock:
            note = self._note(token)
            if note is None:
                raise NotFoundError("this save cannot be undone any more")
            self._check_folder()
            path = self.folder / f"{note.name}{ENDING}"
            present = self._text_before(path)
            if present is None or _digest(present) != note.digest:
                raise ConflictError(f"{FOLDER}/{path.name} was changed meanwhile, so it stays as it is.")
            if note.before is None:
                remove_file(path)
            elif note.before != present:
                replace_file(path, note.before.encode())
            remove_file(self._notes / f"{token}.json")
            return note.name

    def _saved(self, token: str, note: _Note) -> SavedDraft:
        was_replaced = note.before is not None and _digest(note.before) != note.digest
        return SavedDraft(token, note.name, note.draft, note.is_masked, was_replaced)

    def _check_folder(self) -> None:
        if self.folder.is_symlink():
            raise WorkspaceError(f"{self.folder} is a link, which is not followed; remove it, and save again")

    def _prompts(self) -> Iterator[KeptPrompt]:
        for path in _prompt_paths(self.folder, (ENDING,)):
            text = self._text_before(path)
            if text is not None and text.strip():
                written_at = datetime.fromtimestamp(path.lstat().st_mtime, UTC)
                yield KeptPrompt(path.name.removesuffix(ENDING), text, written_at)

    def _names(self) -> Container[str]:
        """Every name in the folder that a file system may take for another one, without its ending."""
        names = {path.name.removesuffix(ENDING) for path in self.folder.glob("*")} if self.folder.is_dir() else set()
        return names | {name.casefold() for name in names}

    def _text_before(self, path: Path) -> str | None:
        """The text of a plain file; None without one, for a link, and for bytes that are no text."""
        try:
            data = read_regular(path, MOST_BYTES)
            return data.decode() if len(data) <= MOST_BYTES else None
        except (OSError, FormatError, UnicodeDecodeError):
            return None

    def _is_ours(self, name: str, text: str) -> bool:
        digest = _digest(text)
        notes = (self._note(path.stem) for path in self._note_paths())
        return any(note is not None and (note.name, note.digest) == (name, digest) for note in notes)

    def _note_paths(self) -> Sequence[Path]:
        """The notes, oldest first."""
        paths = (path for path in self._notes.glob("*.json") if _TOKEN.fullmatch(path.stem))
        return sorted(paths, key=lambda path: path.lstat().st_mtime_ns)

    def _note(self, token: str) -> _Note | None:
        if not _TOKEN.fullmatch(token):
            return None
        try:
            note = msgspec.json.decode(read_regular(self._notes / f"{token}.json", MOST_NOTE_BYTES), type=_Note)
            check_name(note.name)  # the folder may have come with a clone, and the name leads to a file
        except (OSError, FormatError, UsageError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return note

    def _write_note(self, note: _Note) -> str:
        """Note a save before it is made; the oldest of too many notes go."""
        make_private_folder(self._notes)
        token = secrets.token_hex(8)
        create_file(self._notes / f"{token}.json", msgspec.json.encode(note), mode=0o600)
        for path in self._note_paths()[:-MOST_NOTES]:
            remove_file(path)
        return token


def prompt_files(workspace: Path) -> list[str]:
    """The files that a page may name as instructions, such as `prompts/ask_first.md`; none behind a link."""
    paths = _prompt_paths(workspace / FOLDER, INSTRUCTION_ENDINGS)
    return [f"{FOLDER}/{path.name}" for path in paths][:MOST_FILES]


def _prompt_paths(folder: Path, endings: Container[str]) -> list[Path]:
    """The plain files of the folder with one of the endings, in the order of their names; none where it is a link."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    paths = (path for path in folder.iterdir() if path.suffix in endings)
    plain_paths = (path for path in paths if path.is_file() and not path.is_symlink())
    return sorted(plain_paths, key=lambda path: (path.stem, path.suffix))


def check_text(text: str, agent: str = "") -> None:
    """Raise UsageError for an instruction that is empty or too long."""
    of_agent = f" of {agent}" if agent else ""
    if not text.strip():
        raise UsageError(
            f"The instruction{of_agent} is empty; write one, or take the agent's own.", field="instruction"
        )
    if len(text) > MOST_TEXT:
        raise UsageError(
            f"The instruction{of_agent} has {len(text):,} characters; at most {MOST_TEXT:,} fit.", field="instruction"
        )


def names_by_text(prompts: Sequence[KeptPrompt]) -> Mapping[str, KeptPrompt]:
    """The prompts by their texts; of equal ones the first."""
    return {prompt.text: prompt for prompt in reversed(prompts)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""A project of another tool: its parts and history, and the changes to its tests, CI and dependencies."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from evaldesk.durable_files import replace_file
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.registry import import_target, is_present

PROJECTS: Mapping[str, str] = {
    "adk": "evaldesk.integrations.adk.command.adopt:PROJECT",
    "osmosis": "evaldesk.integrations.osmosis.command.adopt:PROJECT",
    "openhands": "evaldesk.integrations.openhands.command.adopt:PROJECT",
}
"""The tools whose projects can be adopted, each with its ToolProject; an island without its folder has no row."""
MAX_FILES = 50_000
MAX_TEXT = 1024 * 1024
SKIPPED = frozenset(
    {".evaldesk", ".git", ".hg", ".tox", ".venv", "__pycache__", "node_modules", "site-packages", "venv"}
)
_CI = re.compile(
    r"(^|/)(Makefile|Jenkinsfile|tox\.ini|noxfile\.py|\.gitlab-ci\.yml)$|\.(sh|bash|mk)$|^\.(github|circleci)/.*\.ya?ml$"
)


@dataclass(frozen=True, slots=True)
class PartKind:
    """A kind of part: its files, by their path and, where that is not enough, by their text."""

    title: str
    path: re.Pattern[str]
    text: re.Pattern[str] | None = None
    is_history: bool = False


@dataclass(frozen=True, slots=True)
class ToolPackage:
    """The package of a tool, the requirement that is put beside it, and the extra that may no longer be needed.

    `name` is a pattern, in which `-` stands for `_`, too.
    """

    name: str
    own_requirement: str
    extra: str = ""
    needs_extra: re.Pattern[str] = re.compile("(?!)")


Rule: TypeAlias = tuple[re.Pattern[str], str]
"""A pattern and its replacement."""


@dataclass(frozen=True, slots=True)
class ToolProject:
    """The projects of one tool: their parts, and the rules by which their files change.

    `commands` change files of CI, `imports` Python modules. `command_rewriter` gives, for the folder and the paths of
    its files, a further change to the text of a file of CI. `differences` are sentences for users of the tool, the same
    as in docs/coming-from.md, where each is held by a test.
    """

    parts: Sequence[PartKind]
    package: ToolPackage
    differences: Sequence[str]
    commands: Sequence[Rule]
    imports: Sequence[Rule] = ()
    command_rewriter: Callable[[Path, Sequence[str]], Callable[[str], str]] | None = None


_LISTING = re.compile(
    r"(^|/)(([\w.-]{0,120}requirements[\w.-]{0,120}|requirements/[\w.-]+)\.(txt|in)|setup\.cfg|tox\.ini)$"
)
_QUOTING = re.compile(r"(^|/)(pyproject\.toml|setup\.py|noxfile\.py)$")
_INSTALLS = re.compile(r"\b(pip3? install|uv (add|sync|run)|poetry add)\b")
_IS_LOCKED = "--hash="


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file of the project, by its path in it, and its kind in words."""

    path: str
    title: str
    is_history: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A planned change of a file."""

    path: Path
    before: str
    after: str
    name: str

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        before, after = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        return "".join(difflib.unified_diff(before, after, f"a/{self.name}", f"b/{self.name}"))


@dataclass(frozen=True, slots=True)
class Adoption:
    """The agents, eval sets and settings found in a project."""

    parts: Sequence[ProjectFile]
    changes: Sequence[Change]


def project_tools() -> list[str]:
    """The names of the tools whose projects can be adopted here."""
    return [name for name, target in PROJECTS.items() if is_present(target)]


def load_project(tool: str) -> ToolProject:
    """The projects of a tool by its name. Raises NotFoundError."""
    if tool not in project_tools():
        raise NotFoundError.among("tool", tool, project_tools())
    return cast("ToolProject", import_target(PROJECTS[tool]))


def survey(folder: Path, tool: str) -> Adoption:
    """The parts of the project and the changes to its tests, CI and dependencies; nothing is imported or written.

    Raises UsageError for a folder that is none, or has too many files.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; name that of the project")
    project = load_project(tool)
    parts: list[ProjectFile] = []
    texts: list[tuple[str, str, str]] = []
    names = sorted(_files(folder))
    rewrite = project.command_rewriter(folder, names) if project.command_rewriter else str
    for name in names:
        text = text_of(folder / name)
        kind = next((kind for kind in project.parts if _is_of(kind, folder / name, name, text)), None)
        if kind:
            parts.append(ProjectFile(name, kind.title, kind.is_history))
        is_of_ci = bool(_CI.search(name))
        after = text
        for pattern, replacement in (
            *(project.imports if name.endswith(".py") else ()),
            *(project.commands if is_of_ci else ()),
        ):
            after = pattern.sub(replacement, after)
        if is_of_ci:
            after = rewrite(after)
        if name.endswith(".py") or is_of_ci or _LISTING.search(name) or _QUOTING.search(name):
            texts.append((name, text, after))
    package = project.package
    keeps_extra = any(package.needs_extra.search(after) for _, _, after in texts)
    new_texts = (
        (name, text, _with_own_package(name, after, package, keeps_extra=keeps_extra)) for name, text, after in texts
    )
    return Adoption(
        parts, [Change(folder / name, text, after, name) for name, text, after in new_texts if after != text]
    )


def _with_own_package(name: str, text: str, package: ToolPackage, *, keeps_extra: bool) -> str:
    """The text with our package where it requires that of the tool; a locked file stays as it is."""
    if _IS_LOCKED in text:
        return text
    in_list, own_line, inside, in_command = requirement_patterns(package)
    if _LISTING.search(name):
        has_ours = bool(re.search(r"(?m)^[ \t]*evaldesk\b", text))
        return _add_package(text, in_list, package, keeps_extra=keeps_extra, has_ours=has_ours)
    if _QUOTING.search(name):
        text = _add_package(text, own_line, package, keeps_extra=keeps_extra)
        return _add_package(text, inside, package, keeps_extra=keeps_extra, between=", ")
    if _CI.search(name):
        return "".join(
            _add_package(line, in_command, package, keeps_extra=keeps_extra, between=" ")
            if _INSTALLS.search(line)
            else line
            for line in text.splitlines(keepends=True)
        )
    return text


def requirement_patterns(package: ToolPackage) -> tuple[str, str, str, str]:
    """A requirement in a list of them, in quotes on a line of its own, in quotes in a line, and in a command."""
    name_pattern = _name_pattern(package)
    quoted_pattern = rf"(?P<quote>[\"'])(?P<theirs>{name_pattern}[^\"'\n]*)(?P=quote)"
    words = r"[^#\s]*+(?:[ \t]++[^#\s]++)*+"
    return (
        rf"(?m)^(?P<before>[ \t]*)(?P<quote>)(?P<theirs>{name_pattern}{words})(?P<after>[ \t]*(#.*)?)$",
        rf"(?m)^(?P<before>[ \t]*){quoted_pattern}(?P<after>,?)$",
        rf"(?P<before>){quoted_pattern}(?P<after>)(?=\s*[,\]])",
        rf"(?P<before>(?<![\w./-]))(?P<quote>[\"']?)(?P<theirs>{name_pattern}[^\s\"']*)(?P=quote)(?P<after>)",
    )


def _name_pattern(package: ToolPackage) -> str:
    """The pattern of a requirement's beginning; that of a package with an extra asks for it, as tests do."""
    name = package.name.replace("-", "[-_]") + r"(?![\w-])"
    return name + (rf"\[[^\]\n]{{0,120}}\b{package.extra}\b[^\]\n]{{0,120}}\]" if package.extra else "")


def _add_package(
    text: str, pattern: str, package: ToolPackage, *, keeps_extra: bool, has_ours: bool = False, between: str = ""
) -> str:
    """Our package behind that of the tool: on a line of its own without `between`, unless it is there already."""
    is_there = re.compile(rf"[\s,\"']*{re.escape(package.own_requirement)}")

    def add_after(match: re.Match[str]) -> str:
        before, quote, after = match["before"], match["quote"], match["after"]
        tool_requirement = quote + _without_extra(match["theirs"], package, keeps_extra=keeps_extra) + quote
        if has_ours or is_there.match(text, match.end()):
            return f"{before}{tool_requirement}{after}"
        own_requirement = f"{quote}{package.own_requirement}{quote}"
        if between:
            return f"{before}{tool_requirement}{between}{own_requirement}{after}"
        return (
            f"{before}{tool_requirement}{after or ',' * bool(quote)}\n{before}{own_requirement}{after if quote else ''}"
        )

    return re.sub(pattern, add_after, text, flags=re.IGNORECASE)


def _without_extra(requirement: str, package: ToolPackage, *, keeps_extra: bool) -> str:
    """The requirement without the extra, unless something still needs it."""
    head, bracket, tail = requirement.partition("[")
    if keeps_extra or not package.extra or not bracket:
        return requirement
    extras, _, version = tail.partition("]")
    other_extras = [each.strip() for each in extras.split(",") if each.strip() != package.extra]
    return f"{head}[{','.join(other_extras)}]{version}" if other_extras else f"{head}{version}"


def write(changes: Sequence[Change]) -> None:
    """Write the changes. Raises UsageError, before anything is written, for a file that changed meanwhile."""
    for change in changes:
        if text_of(change.path) != change.before:
            raise UsageError(f"{change.path} was changed meanwhile; start again")
    for change in changes:
        replace_file(change.path, change.after.encode("utf-8"))


def _is_of(kind: PartKind, path: Path, name: str, text: str) -> bool:
    """Whether a file is of that kind; a file too large for a change is judged by its beginning."""
    return bool(kind.path.search(name)) and (kind.text is None or bool(kind.text.search(text or _beginning_of(path))))


def _files(folder: Path) -> Iterator[str]:
    """The paths of all files, without following links and without environments and repositories."""
    n = 0
    for at, folders, names in os.walk(folder, onerror=_raise(folder)):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        n += len(names)
        if n > MAX_FILES:
            raise UsageError(f"{folder} has more than {MAX_FILES:,} files; name the folder of the project itself")
        yield from ((Path(at) / name).relative_to(folder).as_posix() for name in names if (Path(at) / name).is_file())


def _raise(folder: Path) -> Callable[[OSError], None]:
    def on_error(error: OSError) -> None:
        raise UsageError(f"{error.filename or folder} cannot be read: {error.strerror}") from error

    return on_error


def _beginning_of(path: Path) -> str:
    """The text at the beginning of a file; empty for a link or an unreadable file."""
    try:
        if path.is_symlink():
            return ""
        with path.open("rb") as file:
            return file.read(MAX_TEXT).decode("utf-8", "ignore")
    except OSError:
        return ""


def text_of(path: Path) -> str:
    """The text of a file; empty for a large one and for one without UTF-8."""
    try:
        if path.is_symlink() or path.stat().st_size > MAX_TEXT:
            return ""
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""

"""A project of ADK, Osmosis or OpenHands: its parts and history, and the changes to its tests, CI and dependencies."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from evaldesk.durable_files import replace_file
from evaldesk.errors import UsageError

Tool: TypeAlias = Literal["adk", "osmosis", "openhands"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
MAX_FILES = 50_000
MAX_TEXT = 1024 * 1024
SKIPPED = frozenset(
    {".evaldesk", ".git", ".hg", ".tox", ".venv", "__pycache__", "node_modules", "site-packages", "venv"}
)
_CI = re.compile(
    r"(^|/)(Makefile|Jenkinsfile|tox\.ini|noxfile\.py|\.gitlab-ci\.yml)$|\.(sh|bash|mk)$|^\.(github|circleci)/.*\.ya?ml$"
)
_OUTPUTS = re.compile(r"(^|/)output\.jsonl$")
DIFFERENCES: Mapping[str, Sequence[str]] = {
    "adk": (
        "`tool_trajectory_avg_score` is that of ADK 2.13: a turn scores 1 or 0. The document describes single"
        " steps, which `tool_recall` and `tool_precision` count.",
        "A metric that crashed makes its trial errored, and the run undecided (exit code 3); `adk eval` "
        "ignores the metric and passes. Where the verdicts of ADK differ, the line says why; `--compat adk` "
        "gives ADK's own.",
        "An expected call without `args` asks for no arguments, as `{}` does. ADK compares null, which no call of "
        "an agent equals; `--compat adk` does so too.",
        "A turn that reports no model call has no `inference_call_count_v1`, and the mean leaves it out. ADK counts "
        "it as 0; `--compat adk` does so too.",
    ),
    "osmosis": (
        "A run in which trials broke off ends with exit code 3, and errors are not zeros; Osmosis ends with 0."
        " `--compat osmosis` answers as Osmosis does.",
        "An eval function that raised is an error of its trial; with `--compat osmosis` its score is 0 and "
        "stands in `scores`.",
        "A trial ends after 120 seconds, or after `--timeout`; Osmosis waits for a rollout without a limit. A trial "
        "that ended so has `success: false`.",
        "Without `limit` a terminal asks, and `--yes` means all rows; `--sample` draws 10 %, always the same "
        "rows. The platform draws a new 10 % each time.",
        "The code comes from the checkout on your machine, without a push. `commit_sha` and `branch` play "
        "that revision, from a git worktree of it.",
    ),
    "openhands": (
        "`openhands/core/main.py` is not a program of Evaldesk; its flags `-i -t -c -l` are those of the "
        "argument parsers that scripts import.",
        "There is no container, no browser and no delegation; commands run as you. The key of `test_result` "
        "that decides is named by `--score-key`.",
        "An instance that raises is errored after one attempt, and a second start plays it again; OpenHands plays "
        "it up to five times more at once (`max_retries`).",
    ),
}
"""Differences for users of each tool; docs/coming-from.md has the same sentences, each held by a test."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of part: which files it has, by their path and, where that is not enough, by their text."""

    title: str
    path: re.Pattern[str]
    text: re.Pattern[str] | None = None
    is_history: bool = False


_PYTHON = re.compile(r"\.py$")
_KINDS: Mapping[Tool, Sequence[_Kind]] = {
    "adk": (
        _Kind("agent", re.compile(r"(^|/)(agent|__init__)\.py$"), re.compile(r"^(root_agent|app)\b.*=", re.MULTILINE)),
        _Kind("agent", re.compile(r"(^|/)root_agent\.yaml$")),
        _Kind("eval set", re.compile(r"\.(evalset|test)\.json$|(^|/)eval/datasets/[^/]+\.json$")),
        _Kind("criteria", re.compile(r"(^|/)(test_config\.json|eval/eval_config\.(ya?ml|json))$")),
        _Kind("project of agents-cli", re.compile(r"(^|/)agents-cli-manifest\.yaml$")),
        _Kind("sessions", re.compile(r"(^|/)\.adk/session\.db$|\.session\.json$")),
        _Kind("result", re.compile(r"\.evalset_result\.json$"), is_history=True),
        _Kind("result", re.compile(r"(^|/)artifacts/grade_results/[^/]+\.json$"), is_history=True),
        _Kind("traces", re.compile(r"(^|/)artifacts/traces/[^/]+\.json$"), is_history=True),
        _Kind("test module", _PYTHON, re.compile(r"google\.adk\.evaluation")),
    ),
    "osmosis": (
        _Kind("agent", _PYTHON, re.compile(r"^class \w+\(.*\b(RolloutAgentLoop|AgentWorkflow)\b", re.MULTILINE)),
        _Kind("data set", re.compile(r"\.(jsonl|json|parquet|csv)$"), re.compile(r'"?user_prompt"?\s*[:,]')),
        _Kind("run file", re.compile(r"\.toml$"), re.compile(r"^\[experiment\]", re.MULTILINE)),
        _Kind(
            "eval function", _PYTHON, re.compile(r"^@osmosis_reward|^(async )?def \w+\(solution_str\b", re.MULTILINE)
        ),
        _Kind("cache", re.compile(r"(^|/)\.osmosis/cache/eval/.+\.json$"), is_history=True),
        _Kind("result", re.compile(r"\.json$"), re.compile(r'"(eval_fns|config_hash)"\s*:'), is_history=True),
        _Kind("result", re.compile(r"(^|/)\.osmosis/evals/[^/]+/index\.jsonl$"), is_history=True),
    ),
    "openhands": (
        _Kind("agent", _PYTHON, re.compile(r"^(async )?def process_instance\(", re.MULTILINE)),
        _Kind(
            "agent",
            re.compile(r"(^|/)run_infer\.py$"),
            re.compile(r"^class \w+\((?:[\w.]+,[ ]*){0,9}(?:[\w.]+\.)?Evaluation\b", re.MULTILINE),
        ),
        _Kind("models", re.compile(r"(^|/)config\.toml$"), re.compile(r"^\[llm", re.MULTILINE)),
        _Kind("models", re.compile(r"(^|/)\.llm_config/[^/]+\.json$")),
        _Kind("result", _OUTPUTS, is_history=True),
    ),
}
_WITHOUT_OPTIONS_OF_ADK_ALONE = r"(?!(?:[^\n;&|#]|\\\n){0,500}--(?:eval_storage_uri|log_level)\b)"
"""A command with an option that ours does not have stays as it is, also on a continued line."""
_COMMANDS: Mapping[Tool, Sequence[tuple[re.Pattern[str], str]]] = {
    "adk": (
        (re.compile(rf"\badk eval(?=\s){_WITHOUT_OPTIONS_OF_ADK_ALONE}"), "evaldesk eval"),
        (
            re.compile(rf"\badk eval_set(?=[ \t]+(?:create|add_eval_case)\s){_WITHOUT_OPTIONS_OF_ADK_ALONE}"),
            "evaldesk eval_set",
        ),
        (re.compile(r"\badk web(?=\s|$)"), "evaldesk ui"),
    ),
    "osmosis": ((re.compile(r"\bosmosis (eval|eval-rubric)(?=\s)"), r"evaldesk \1"),),
    "openhands": ((re.compile(r"\b(?:poetry run )?python3? (\S*run_infer\.py)\b"), r"evaldesk benchmark \1"),),
}
_MODULE_OF_BENCHMARK = re.compile(r"\bpython3? -m (?P<module>[\w.]+\.run_infer)\b(?!\.)")
_SCRIPTS = re.compile(r"^\[project\.scripts\](?P<lines>(?:\n(?!\[).*)*)", re.MULTILINE)
_SCRIPT_OF_BENCHMARK = re.compile(r"^(?P<name>[\w-]+)[ \t]*=[ \t]*[\"'](?P<module>[\w.]+\.run_infer):", re.MULTILINE)
_AGENTS_CLI = re.compile(r"\bagents-cli eval run(?P<arguments>(?:[ \t]+[^\s;&|#]+)*)")
_MANIFEST = re.compile(r"(^|/)agents-cli-manifest\.yaml$")
_AGENT_FOLDER = re.compile(r"^agent_directory:[ \t]*[\"']?(?P<name>[\w./-]+)", re.MULTILINE)
_DATASET_OF_PROJECT = "tests/eval/datasets/basic-dataset.json"
_IMPORTS: Mapping[Tool, Sequence[tuple[re.Pattern[str], str]]] = {
    "adk": (
        (
            re.compile(
                r"^([ \t]*)from google\.adk\.evaluation(?:\.agent_evaluator)? import AgentEvaluator[ \t]*$",
                re.MULTILINE,
            ),
            r"\1from evaldesk import AgentEvaluator",
        ),
    ),
    "osmosis": (),
    "openhands": (),
}


@dataclass(frozen=True, slots=True)
class _Package:
    """The package of a tool, the requirement that is put beside it, and the extra that may no longer be needed.

    `name` is a pattern, in which `-` stands for `_`, too.
    """

    name: str
    own_requirement: str
    extra: str = ""
    needs_extra: re.Pattern[str] = re.compile("(?!)")


_PACKAGES: Mapping[Tool, _Package] = {
    "adk": _Package(
        "google-adk",
        "evaldesk[adk]",
        "eval",
        re.compile(r"\bgoogle\.adk\.(evaluation|optimization)\b|\badk (eval|eval_set|optimize)\b"),
    ),
    "osmosis": _Package("osmosis-ai", "evaldesk"),
    "openhands": _Package("openhands-(?:ai|sdk)", "evaldesk"),
}
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


def survey(folder: Path, tool: Tool) -> Adoption:
    """The parts of the project and the changes to its tests, CI and dependencies; nothing is imported or written.

    Raises UsageError for a folder that is none, or has too many files.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; name that of the project")
    parts: list[ProjectFile] = []
    texts: list[tuple[str, str, str]] = []
    names = sorted(_files(folder))
    manifests = (_AGENT_FOLDER.search(_text_of(folder / name)) for name in names if _MANIFEST.search(name))
    agent = next((match["name"] for match in manifests if match), "app")
    scripts = _scripts_of_benchmarks(_text_of(folder / "pyproject.toml")) if tool == "openhands" else {}
    for name in names:
        text = _text_of(folder / name)
        kind = next((kind for kind in _KINDS[tool] if _is_of(kind, folder / name, name, text)), None)
        if kind:
            parts.append(ProjectFile(name, kind.title, kind.is_history))
        rules = [*(_IMPORTS[tool] if name.endswith(".py") else ()), *(_COMMANDS[tool] if _CI.search(name) else ())]
        after = text
        for pattern, replacement in rules:
            after = pattern.sub(replacement, after)
        if tool == "adk" and _CI.search(name):
            after = _AGENTS_CLI.sub(partial(_own_eval_command, agent), after)
        if tool == "openhands" and _CI.search(name):
            after = _with_own_benchmarks(after, scripts)
        if name.endswith(".py") or _CI.search(name) or _LISTING.search(name) or _QUOTING.search(name):
            texts.append((name, text, after))
    package = _PACKAGES[tool]
    keeps_extra = any(package.needs_extra.search(after) for _, _, after in texts)
    new_texts = (
        (name, text, _with_own_package(name, after, package, keeps_extra=keeps_extra)) for name, text, after in texts
    )
    return Adoption(
        parts, [Change(folder / name, text, after, name) for name, text, after in new_texts if after != text]
    )


def _scripts_of_benchmarks(text: str) -> dict[str, str]:
    """The module of each command of a `pyproject.toml` that starts a benchmark."""
    lines = (match["lines"] for match in _SCRIPTS.finditer(text))
    return {match["name"]: match["module"] for part in lines for match in _SCRIPT_OF_BENCHMARK.finditer(part)}


def _with_own_benchmarks(text: str, scripts: Mapping[str, str]) -> str:
    """The text with our command for benchmarks that are started as a module, or by a command of the project."""

    def own(module: str) -> str:
        return f"evaldesk benchmark {module.replace('.', '/')}.py"

    text = _MODULE_OF_BENCHMARK.sub(lambda match: own(match["module"]), text)
    names = "|".join(map(re.escape, scripts))
    command = re.compile(rf"(?<![\w./-])({names})(?=[ \t\\]|$)", re.MULTILINE)
    return command.sub(lambda match: own(scripts[match[1]]), text) if names else text


def _own_eval_command(agent: str, match: re.Match[str]) -> str:
    """The command of ours for an `agents-cli eval run`; the same text where an option has no equivalent."""
    words = match["arguments"].split()
    values: dict[str, str] = {}
    while words:
        option, is_joined, value = words.pop(0).partition("=")
        if not is_joined and words:
            value = words.pop(0)
        if option not in ("--dataset", "--config") or not value or option in values:
            return match[0]
        values[option] = value
    config = f" --config-file-path {values['--config']}" if "--config" in values else ""
    return f"evaldesk eval {agent} {values.get('--dataset', _DATASET_OF_PROJECT)}{config}"


def _with_own_package(name: str, text: str, package: _Package, *, keeps_extra: bool) -> str:
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


def requirement_patterns(package: _Package) -> tuple[str, str, str, str]:
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


def _name_pattern(package: _Package) -> str:
    """The pattern of a requirement's beginning; that of a package with an extra asks for it, as tests do."""
    name = package.name.replace("-", "[-_]") + r"(?![\w-])"
    return name + (rf"\[[^\]\n]{{0,120}}\b{package.extra}\b[^\]\n]{{0,120}}\]" if package.extra else "")


def _add_package(
    text: str, pattern: str, package: _Package, *, keeps_extra: bool, has_ours: bool = False, between: str = ""
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


def _without_extra(requirement: str, package: _Package, *, keeps_extra: bool) -> str:
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
        if _text_of(change.path) != change.before:
            raise UsageError(f"{change.path} was changed meanwhile; start again")
    for change in changes:
        replace_file(change.path, change.after.encode("utf-8"))


def _is_of(kind: _Kind, path: Path, name: str, text: str) -> bool:
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


def _text_of(path: Path) -> str:
    """The text of a file; empty for a large one and for one without UTF-8."""
    try:
        if path.is_symlink() or path.stat().st_size > MAX_TEXT:
            return ""
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""

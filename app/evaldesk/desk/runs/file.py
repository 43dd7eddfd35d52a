"""Run files of Osmosis: `configs/eval/NAME.toml`, validated in full before anything runs. (reference/osmosis.md 6.1)"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.run_options import BY_NAME, RUN_OPTIONS, Asked, RunOption
from evaldesk.toml_text import parse_toml

SECTIONS = ("experiment", "evaluation", "advanced", "env", "secrets", "evaldesk")
OLDER = {
    "eval": "dataset, rollout and entrypoint go to [experiment], limit to [evaluation]",
    "llm": "model goes to [experiment] as model_path, base_url and api_key_env to [evaldesk]",
    "grader": "the module of the entrypoint has the Grader",
    "runs": "n, batch_size and pass_threshold go to [evaluation]",
    "output": "`evaldesk export` writes the results",
    "baseline": "submit a run with that model first, and name it with --baseline",
}
"""Sections of run files of Osmosis 0.2.18 to 0.2.22, and where each belongs now. (reference/osmosis.md 6.2)"""
EXPERIMENT = ("rollout", "entrypoint", "model_path", "dataset")
PINS = ("commit_sha", "branch")
RESERVED = "_OSMOSIS_"
_SHA = re.compile(r"[0-9a-fA-F]{7,40}")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_SECRET = re.compile(r"[A-Z][A-Z0-9_]*")
_MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class RunFile:
    """The contents of a run file; `limit` None is omitted. `root` is the folder that holds `configs` and `rollouts`.

    `code_root` is the folder that holds `rollouts` at the revision that the file asks for; None is `root`.
    `env` are variables for the workers, `secrets` the names of those that must come from elsewhere. `advanced` is kept
    and not used. `run_options` are options of the table of run options: those that `[evaluation]` has under its own
    names, then those of `[evaldesk]`. Times are in seconds.
    """

    path: Path
    root: Path
    rollout: str
    entrypoint: str
    model_path: str
    dataset: str
    commit_sha: str | None = None
    branch: str | None = None
    limit: int | None = None
    pass_threshold: float = 1.0
    agent_workflow_timeout_s: float = 450.0
    run_options: Asked = field(default_factory=Asked)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    code_root: Path | None = None
    advanced: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of `[evaluation]`."""

    name: str
    words: str
    is_right: Callable[[Any], bool]


def _is_whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _table_key(option: RunOption) -> _Key:
    kinds = {"whole": "a whole number, ", "number": f"{'seconds' if option.unit == 's' else 'a number'}, "}
    return _Key(option.run_file, kinds[option.kind] + option.range_words, lambda value: _is_option(option, value))


def _is_option(option: RunOption, value: Any) -> bool:
    try:
        return option.check(value) is not None and not (option.kind == "whole" and isinstance(value, float))
    except UsageError:
        return False


AT_ONCE = 1
"""Rows at once, as Osmosis has it where nothing is said."""
GRADER_S = 150.0
NAMED_ELSEWHERE = {
    "pass_threshold": "[evaluation] has it, as the least reward of a pass",
    "model": "[experiment] has it, as model_path",
    "note": "the command writes it, with the name of the run",
}
"""Options of the table that `[evaldesk]` does not have, and why."""
OWN_KEYS = {option.run_file: option for option in RUN_OPTIONS if option.run_file}
OPTIONS = {option.name: option for option in RUN_OPTIONS if option.name not in NAMED_ELSEWHERE and not option.run_file}
EVALUATION = (
    _Key("limit", "a whole number, at least 1", lambda value: _is_whole(value, 1)),
    *(_table_key(option) for option in OWN_KEYS.values()),
    _Key("pass_threshold", "a finite number", _is_number),
    _Key(
        "agent_workflow_timeout_s",
        f"seconds, {BY_NAME['timeout_s'].range_words}",
        lambda value: _is_option(BY_NAME["timeout_s"], value),
    ),
)


def read_run_file(path: Path) -> RunFile:
    """The run file at `path`. Raises UsageError that lists everything that is wrong with it."""
    return run_file_of(_read_toml(path), path)


def run_file_of(table: Mapping[str, Any], path: Path, more_issues: Sequence[str] = ()) -> RunFile:
    """The run file of the contents of `path`.

    Raises UsageError that lists everything that is wrong with it, with the `more_issues` of its variants.
    """
    issues = [*_issues(table, path), *more_issues]
    if issues:
        issue_lines = "\n".join(f"  - {issue}" for issue in issues)
        raise UsageError(f"Invalid eval config {path}:\n{issue_lines}" if len(issues) > 1 else f"{path}: {issues[0]}")
    experiment, evaluation = table["experiment"], table.get("evaluation", {})
    return RunFile(
        path=path,
        root=_root(path),
        **{name: experiment[name] for name in (*EXPERIMENT, *PINS) if name in experiment},
        **{name: evaluation[name] for name in _OF_THE_FILE if name in evaluation},
        run_options=_run_options(evaluation, table.get("evaldesk", {})),
        env=table.get("env", {}),
        secrets=tuple(table.get("secrets", {}).get("required", ())),
        advanced=table.get("advanced", {}),
    )


_OF_THE_FILE = ("limit", "pass_threshold", "agent_workflow_timeout_s")


def _run_options(evaluation: Mapping[str, Any], own: Mapping[str, Any]) -> Asked:
    """The options of the table that the file asks for, with the defaults that Osmosis has."""
    defaults = {"concurrency": AT_ONCE, "judge_timeout_s": GRADER_S}
    file_options = {option.name: evaluation[key] for key, option in OWN_KEYS.items() if key in evaluation}
    return cast("Asked", {**defaults, **file_options, **own})


def is_run_file(path: Path) -> bool:
    """Whether the TOML at `path` has a section of a run file. Raises UsageError when it is no TOML."""
    return any(name in (*SECTIONS, "eval") for name in _read_toml(path))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_regular_file(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file such as configs/eval/my-run.toml") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"Invalid TOML in {path}: {error}") from error


def _root(path: Path) -> Path:
    """The folder above `configs/eval`; else the folder of the file."""
    folder = path.resolve().parent
    return folder.parents[1] if folder.name == "eval" and folder.parent.name == "configs" else folder


def _issues(table: Mapping[str, Any], path: Path) -> Iterator[str]:
    for name in table:
        if name not in SECTIONS:
            newer = f"; it is of Osmosis 0.2.18-0.2.22: {OLDER[name]}" if name in OLDER else ""
            yield f"{name}: Unrecognized section{newer}"
    if "experiment" not in table:
        yield f"Missing [experiment] section in {path}"
    for name in SECTIONS:
        if name in table and not isinstance(table[name], dict):
            yield f"{name}: must be a table, got {table[name]!r}"
    tables = {name: table[name] for name in SECTIONS if isinstance(table.get(name), dict)}
    if "experiment" in tables:
        yield from _experiment_issues(tables["experiment"], path)
    yield from _evaluation_issues(tables.get("evaluation", {}))
    yield from _option_issues(tables.get("evaldesk", {}))
    yield from _env_issues(tables.get("env", {}), path)
    if "secrets" in tables:
        yield from _secret_issues(tables["secrets"], tables.get("env", {}), path)


def _experiment_issues(table: Mapping[str, Any], path: Path) -> Iterator[str]:
    for name in EXPERIMENT:
        if name not in table:
            yield f"Missing '{name}' in [experiment] section of {path}"
    for name, value in table.items():
        if name not in (*EXPERIMENT, *PINS):
            yield f"experiment.{name}: Unrecognized key"
        elif not isinstance(value, str):
            yield f"experiment.{name}: must be a string, got {value!r}"
        elif not value.strip():
            yield f"experiment.{name}: must not be empty"
    sha, branch, rollout, entrypoint = (table.get(name) for name in ("commit_sha", "branch", "rollout", "entrypoint"))
    if isinstance(sha, str) and not _SHA.fullmatch(sha):
        yield "experiment.commit_sha: is invalid: must be a hexadecimal Git commit SHA (7-40 hex characters)"
    if sha is not None and branch is not None:
        yield "experiment: is invalid: Provide either branch or commit_sha, not both"
    if isinstance(branch, str) and re.search(r"\s", branch):
        yield "experiment.branch: is invalid: must not contain whitespace"
    if isinstance(rollout, str) and ("/" in rollout or "\\" in rollout or rollout in (".", "..")):
        yield f"experiment.rollout: is invalid: must be the name of one folder under rollouts/, got {rollout!r}"
    if isinstance(entrypoint, str) and not _is_inside(entrypoint):
        yield f"experiment.entrypoint: is invalid: must be a file of the rollout, or module:attr, got {entrypoint!r}"


def _is_inside(entrypoint: str) -> bool:
    if _MODULE.fullmatch(entrypoint):
        return True
    parts = Path(entrypoint).parts
    return entrypoint.endswith(".py") and not Path(entrypoint).is_absolute() and ".." not in parts


def _evaluation_issues(table: Mapping[str, Any]) -> Iterator[str]:
    keys = {key.name: key for key in EVALUATION}
    for name, value in table.items():
        if name not in keys:
            yield f"evaluation.{name}: Unrecognized key; there are: {', '.join(keys)}"
        elif not keys[name].is_right(value):
            yield f"evaluation.{name}: must be {keys[name].words}, got {value!r}"


def _option_issues(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        if name in NAMED_ELSEWHERE:
            yield f"evaldesk.{name}: {NAMED_ELSEWHERE[name]}"
            continue
        same = next((option.run_file for option in OWN_KEYS.values() if option.name == name), None)
        if same:
            yield f"evaldesk.{name}: [evaluation] has it, as {same}"
        elif name not in OPTIONS:
            yield f"evaldesk.{name}: {NotFoundError.among('run option', name, OPTIONS)}"
        else:
            try:
                OPTIONS[name].check(value, f"evaldesk.{name}")
            except UsageError as error:
                yield str(error)


def _env_issues(table: Mapping[str, Any], path: Path) -> Iterator[str]:
    for name, value in table.items():
        if not _VARIABLE.fullmatch(name):
            yield f"Invalid env var name '{name}' in [env] of {path}: must match ^[A-Z_][A-Z0-9_]*$"
        elif name.startswith(RESERVED):
            yield f"'{name}' in [env] of {path}: env var names starting with {RESERVED} are reserved; choose another"
        if not isinstance(value, str):
            yield f"env.{name}: must be a string, got {value!r}"


def _secret_issues(table: Mapping[str, Any], env: Mapping[str, Any], path: Path) -> Iterator[str]:
    unknown = [name for name in table if name != "required"]
    if unknown:
        yield f"[secrets] in {path} only supports the 'required' field; unknown key(s): {', '.join(unknown)}."
    if "required" not in table:
        yield f"Missing 'required' in [secrets] section of {path}"
        return
    names = table["required"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        yield f"'required' in [secrets] of {path} must be a list of strings, such as [\"OPENAI_API_KEY\"]"
        return
    for name in names:
        if not _SECRET.fullmatch(name):
            yield f"Invalid secret name '{name}' in {path}: must match ^[A-Z][A-Z0-9_]*$"
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield (
            f"Duplicate secret name(s) in [secrets].required of {path}: {', '.join(twice)}. Each name must appear once."
        )
    both = sorted(set(names) & set(env))
    if both:
        yield f"Name(s) appear in both [env] and [secrets] of {path}: {', '.join(both)}. Keep each in one."

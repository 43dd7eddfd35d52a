"""The settings of a person: the workspace, the folders of agents, the models that may be chosen."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from evaldesk.errors import UsageError
from evaldesk.model import Container, Limits, ModelOptions
from evaldesk.model.options import MODES, Recording, UserConfig
from evaldesk.model.run import checked_container
from evaldesk.paths import interpreter_path
from evaldesk.run_options import RUN_OPTIONS, check_fields
from evaldesk.toml_text import parse_toml
from evaldesk.wire import converted

T = TypeVar("T")

CONFIG_NAME = "evaldesk.toml"
_METRIC_NAME = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
KEYS = frozenset(
    {"models", "model", "user", "judges", "metrics", "agents", "recording", "limits", "python", "image", "container"}
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a desk works. `roots` are the folders searched for agents and eval sets.

    `workspace` holds the `.evaldesk` folder with the database, `evalset_folder` is where new eval sets are written.
    `n_workers` processes play a run, `n_warm_workers` wait for the next one. `models` are the names a run form offers
    beside each agent's own; a browser can name no other. `model_options` hold for every chat and run without its own,
    `limits` bound their turns, tools and judges, `user` plays the cases that have a scenario. `judges` are the models
    that may judge, the first of them unless a criterion names another. `functions` are the user's own metrics, name by
    `module:attr`: a browser can choose these and no others. `agents` are the tables of declared agents by their names.
    `python` is the interpreter that agents are played on, where they name none of their own; empty is that of their
    project, or Evaldesk's own. `container` is where agents are played, where they name no other image; one without an
    image only bounds those of agents that do. `recording` says whether runs record the answers of models and tools, or
    answer from a recording.
    """

    workspace: Path
    roots: tuple[Path, ...]
    models: tuple[str, ...] = ()
    model_options: ModelOptions = field(default_factory=ModelOptions)
    limits: Limits = field(default_factory=Limits)
    user: UserConfig = field(default_factory=UserConfig)
    recording: Recording = field(default_factory=Recording)
    judges: tuple[str, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    python: str = ""
    container: Container = field(default_factory=Container)
    n_workers: int = 2
    n_warm_workers: int = 0
    is_demo: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def allowed_judges(self) -> tuple[str, ...]:
        """The models that may judge; those of the agents where no others are named."""
        return self.judges or self.models

    @property
    def state_folder(self) -> Path:
        """The folder of the database, logs and trash: `.evaldesk` in the workspace."""
        return self.workspace / ".evaldesk"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.state_folder / "evaldesk.db"

    @property
    def evalset_folder(self) -> Path:
        """Where new eval sets are written: `evalsets` in the workspace, or beside the database for the samples."""
        return self.state_folder / "demo" / "evalsets" if self.is_demo else self.workspace / "evalsets"


def read_settings(
    workspace: Path,
    roots: tuple[Path, ...],
    *,
    environment: Mapping[str, str],
    n_workers: int = 2,
    is_demo: bool = False,
) -> Settings:
    """Settings from `evaldesk.toml` in the workspace, where there is one, and the environment.

    Keys: `models` (a list of LiteLLM model names), `[model]` (the fields of ModelOptions), `[user]` (those of
    UserConfig), `[limits]` (those of Limits), `judges` (a list of model names), `[metrics]` (name = "module:attr"),
    `[agents]` (`folders` to look in, and a table for each declared agent), `python` (the interpreter of the agents),
    `image` (of the containers in which agents are played), `[container]` (the other fields of Container), `recording`
    (off, record, replay or auto).
    `EVALDESK_MODELS` and `EVALDESK_JUDGES` add names, separated by commas, `EVALDESK_RECORDING` replaces. Raises
    UsageError naming the file and key when one is wrong.
    """
    table = _read_toml(workspace / CONFIG_NAME)
    path = workspace / CONFIG_NAME
    models = _names("models", table, path) + _listed(environment.get("EVALDESK_MODELS", ""))
    judges = _names("judges", table, path) + _listed(environment.get("EVALDESK_JUDGES", ""))
    folders, agents = _agents(table.get("agents", {}), path)
    return Settings(
        workspace=workspace,
        roots=tuple(dict.fromkeys((*roots, *folders))),
        agents=agents,
        models=tuple(dict.fromkeys(models)),
        model_options=_converted(table.get("model", {}), ModelOptions, path, "model"),
        limits=_limits(table.get("limits", {}), path),
        user=_converted(table.get("user", {}), UserConfig, path, "user"),
        recording=_recording(environment.get("EVALDESK_RECORDING") or table.get("recording", "off"), path),
        judges=tuple(dict.fromkeys(judges)),
        functions=_functions(table.get("metrics", {}), path),
        python=_python(table.get("python", ""), path),
        container=_container(table, path),
        n_workers=n_workers,
        is_demo=is_demo,
        environment=dict(environment),
    )


def _read_toml(path: Path) -> Mapping[str, object]:
    if not path.is_file():
        return {}
    try:
        table = parse_toml(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from error
    unknown = set(table) - KEYS
    if unknown:
        raise UsageError(f"{path}: unknown key {min(unknown)!r}; known keys: {', '.join(sorted(KEYS))}")
    return table


def _converted(value: object, kind: type[T], path: Path, name: str) -> T:
    """The table `[name]` as a value of the dataclass `kind`."""
    known = {found.name for found in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(value, dict) or set(value) - known:
        raise UsageError(f"{path}: [{name}] may have the keys {', '.join(sorted(known))}")
    try:
        return converted(value, kind)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: [{name}]: {error}") from error


def _limits(value: object, path: Path) -> Limits:
    found = _converted(value, Limits, path, "limits")
    try:
        check_fields("limits", found, (option for option in RUN_OPTIONS if option.path.startswith("limits.")))
    except UsageError as error:
        raise UsageError(f"{path}: [limits]: {error}") from error
    return found


def _recording(value: object, path: Path) -> Recording:
    mode = next((known for known in MODES if known == value), None)
    if mode is None:
        raise UsageError(f"{path}: recording is one of {', '.join(MODES)}, not {value!r}")
    return Recording(mode)


def _python(value: object, path: Path) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{path}: python is the path of an interpreter, not {value!r}")
    try:
        return interpreter_path(value, path.parent)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _container(table: Mapping[str, object], path: Path) -> Container:
    found = _converted(table.get("container", {}), Container, path, "container")
    image = table.get("image", "")
    if found.image:
        raise UsageError(f"{path}: [container] bounds all containers; write image = {found.image!r} above the tables")
    if not isinstance(image, str):
        raise UsageError(f"{path}: image is the name of an image, not {image!r}")
    if image and table.get("python"):
        raise UsageError(
            f"{path}: python is an interpreter of this machine, and image has one of its own; leave one out"
        )
    try:
        return checked_container(replace(found, image=image))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _names(key: str, table: Mapping[str, object], path: Path) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{path}: {key} must be a list of strings")
    return tuple(value)


def _agents(value: object, path: Path) -> tuple[list[Path], Mapping[str, Mapping[str, object]]]:
    tables = dict(value) if isinstance(value, dict) else None
    if tables is None:
        raise UsageError(f"{path}: agents is a table: [agents] with folders, and [agents.NAME] for each agent")
    folders = [(path.parent / name).resolve() for name in _names("folders", tables, path)]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{path}: [agents]: folders: {folder} is not a folder")
    tables.pop("folders", None)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(f"{path}: [agents]: {name} is not a table; declare the agent under [agents.{name}]")
    return folders, tables


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _functions(value: object, path: Path) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise UsageError(f'{path}: [metrics] is a table of functions, such as exact = "rewards:exact"')
    for name, target in value.items():
        module, colon, attribute = target.partition(":") if isinstance(target, str) else ("", "", "")
        if not (_METRIC_NAME.fullmatch(name) and module and colon and attribute):
            raise UsageError(
                f'{path}: [metrics]: {name} = {target!r} is not of the form name = "module:function", the name in '
                "letters, digits, _ and -"
            )
    return dict(value)

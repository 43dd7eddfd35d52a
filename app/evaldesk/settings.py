"""What a person sets: the workspace, the folders to look in, the models that may be chosen."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import msgspec

from evaldesk.errors import UsageError
from evaldesk.model import ModelOptions
from evaldesk.model.user import UserConfig

CONFIG_NAME = "evaldesk.toml"
KEYS = frozenset({"models", "model", "user"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a desk works. `roots` are the folders searched for agents and eval sets.

    `workspace` holds the `.evaldesk` folder with the database, `evalset_folder` is where new eval sets are written.
    `n_workers` processes play a run, `n_spares` wait for the next one. `models` are the names a run form offers
    beside each agent's own; a browser can name no other. `model_options` hold for every chat and run that asks for
    nothing else, `user` plays the cases that have a scenario.
    """

    workspace: Path
    roots: tuple[Path, ...]
    models: tuple[str, ...] = ()
    model_options: ModelOptions = field(default_factory=ModelOptions)
    user: UserConfig = field(default_factory=UserConfig)
    n_workers: int = 2
    n_spares: int = 0
    is_demo: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

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
    UserConfig). `EVALDESK_MODELS` adds names, separated by commas. Raises UsageError naming the file and key when
    one is wrong.
    """
    table = _read_toml(workspace / CONFIG_NAME)
    models = _names(table.get("models", []), workspace / CONFIG_NAME)
    models += tuple(name.strip() for name in environment.get("EVALDESK_MODELS", "").split(",") if name.strip())
    return Settings(
        workspace=workspace,
        roots=roots,
        models=tuple(dict.fromkeys(models)),
        model_options=_model_options(table.get("model", {}), workspace / CONFIG_NAME),
        user=_user(table.get("user", {}), workspace / CONFIG_NAME),
        n_workers=n_workers,
        is_demo=is_demo,
        environment=dict(environment),
    )


def _read_toml(path: Path) -> Mapping[str, object]:
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    unknown = set(table) - KEYS
    if unknown:
        raise UsageError(f"{path}: unknown key {min(unknown)!r}; known keys: {', '.join(sorted(KEYS))}")
    return table


def _model_options(value: object, path: Path) -> ModelOptions:
    known = {found.name for found in fields(ModelOptions)}
    if not isinstance(value, dict) or set(value) - known:
        raise UsageError(f"{path}: [model] may have the keys {', '.join(sorted(known))}")
    try:
        return msgspec.convert(value, ModelOptions)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: [model]: {error}") from error


def _user(value: object, path: Path) -> UserConfig:
    known = {found.name for found in fields(UserConfig)}
    if not isinstance(value, dict) or set(value) - known:
        raise UsageError(f"{path}: [user] may have the keys {', '.join(sorted(known))}")
    try:
        return msgspec.convert(value, UserConfig)
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: [user]: {error}") from error


def _names(value: object, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{path}: models must be a list of strings")
    return tuple(value)

"""The `.env` file of an agent, read as `adk web` reads it: the nearest one upward, never over a real variable."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

NAME = ".env"
OFF = "ADK_DISABLE_LOAD_DOTENV"

_from_files: set[str] = set()


def load_environment(folder: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables of the nearest `.env` at or above `folder`.

    It overrides an earlier `.env`, no other variable.
    """
    if not folder or environment.get(OFF, "").lower() in {"1", "true"}:
        return
    path = nearest(Path(folder))
    if path is None:
        return
    from dotenv import dotenv_values

    for name, value in dotenv_values(path).items():
        if value is not None and (name not in environment or name in _from_files):
            environment[name] = value
            _from_files.add(name)


def file_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that came from `.env` files, with their values now; only this process knows them."""
    return {name: environment[name] for name in _from_files if name in environment}


def nearest(folder: Path) -> Path | None:
    """The first `.env` at or above `folder`."""
    return next((place / NAME for place in (folder, *folder.parents) if (place / NAME).is_file()), None)

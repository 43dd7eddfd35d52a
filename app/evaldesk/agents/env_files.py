"""Variables of the `.env` files of agents, and of project files that declare an environment."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from evaldesk.errors import AgentError
from evaldesk.process_setup import PLAYED_ATTRIBUTE, RESOURCE_ATTRIBUTES, has_played, with_played

ENV_FILE = ".env"
_OFF = "ADK_DISABLE_LOAD_DOTENV"

_from_files: set[str] = set()


def load_environment(folder: str, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables of the nearest `.env` at or above `folder`.

    It overrides an earlier `.env`, no other variable. Raises AgentError for a file that another user owns or may write.
    """
    take_variables(env_variables(folder, environment), environment)


def take_variables(variables: Mapping[str, str], environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the variables of a `.env` that was read. They override those of an earlier one, no others.

    In a player the attributes of OpenTelemetry keep its mark, which the user did not set.
    """
    is_player = has_played(environment.get(RESOURCE_ATTRIBUTES, ""))
    for name, value in variables.items():
        is_free = name == RESOURCE_ATTRIBUTES and environment.get(name) == PLAYED_ATTRIBUTE
        if name not in environment or name in _from_files or is_free:
            environment[name] = with_played(value) if name == RESOURCE_ATTRIBUTES and is_player else value
            _from_files.add(name)


def env_variables(folder: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the nearest `.env` at or above `folder`; none where `environment` leaves such files out.

    Raises AgentError for a file that another user owns or may write.
    """
    source = _source_of(Path(folder)) if folder else None
    if source is None or environment.get(_OFF, "").lower() in {"1", "true"}:
        return {}
    from dotenv import dotenv_values

    path, variables = source
    with path.open(encoding="utf-8") as file:
        _check_owner(path, os.fstat(file.fileno()))
        values = dotenv_values(stream=file) if variables is None else variables
    return {str(name): str(value) for name, value in values.items() if value is not None}


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raise AgentError unless the file is of this user or root, and nobody else may write it."""
    if sys.platform == "win32":
        return
    off = f"{_OFF}=1 leaves it out"
    if status.st_uid not in {os.geteuid(), 0}:
        raise AgentError(f"{path} belongs to another user (uid {status.st_uid}), so it is not read; {off}")
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_group_of_one(status.st_gid)):
        raise AgentError(f"{path} can be written by other users, so it is not read; chmod go-w {path}, or {off}")


def _is_group_of_one(group_id: int) -> bool:
    """Whether the group is that of this user alone, as many systems make one for each user."""
    import grp
    import pwd

    try:
        group, person = grp.getgrgid(group_id), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_gid == person.pw_gid and set(group.gr_mem) <= {person.pw_name} and group.gr_name == person.pw_name


def file_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that came from `.env` files, with their values now; only this process knows them."""
    return {name: environment[name] for name in _from_files if name in environment}


def env_file_of(folder: Path) -> Path | None:
    """The first `.env` at or above `folder`, or the file that a project file there names, or one with variables."""
    source = _source_of(folder)
    return source[0] if source else None


def _source_of(folder: Path) -> tuple[Path, Mapping[str, object] | None] | None:
    """The file of `env_file_of`, and its variables where it is a project file that has them."""
    return next(filter(None, map(_source_in, (folder, *folder.parents))), None)


def _source_in(place: Path) -> tuple[Path, Mapping[str, object] | None] | None:
    from evaldesk.agents.discovery import projects_in

    environments = [(path, project.env) for path, project in projects_in(place)]
    with_variables = next(((path, env) for path, env in environments if isinstance(env, Mapping)), None)
    if with_variables:
        return with_variables
    files = (*(place / env for _, env in environments if isinstance(env, str) and env), place / ENV_FILE)
    return next(((file, None) for file in files if os.path.isfile(file)), None)

"""A workspace opened: its settings, the folders to look in, and the samples when there is nothing else."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from evaldesk import paths
from evaldesk.agents import declared_refs, find_agents
from evaldesk.durable_files import create_file, make_folder, replace_file
from evaldesk.errors import ConflictError, UsageError, WorkspaceError
from evaldesk.paths import check_no_links, make_private_folder, workspace_folder
from evaldesk.settings import Settings, read_settings

DEMO_MODELS = ("demo/scripted?mistakes=0", "demo/scripted?mistakes=0.6")
"""Offered beside a sample's own model: one that makes no mistakes, and one that makes many."""
DEMO_JUDGES = ("demo/judge", "demo/judge?mistakes=0.3")
"""The judges beside the samples where no other is configured: one by rules, and one that doubts."""
COPIED = "copied.txt"
MAX_WARM_WORKERS = 2
"""Workers that wait for a run, on any machine: each imports for seconds and holds 150 MB without a run."""


def open_settings(folders: tuple[str, ...], *, workspace: str | None = None, is_demo: bool = False) -> Settings:
    """Settings for the agents and eval sets under `folders`; the samples where no agent is found.

    Raises UsageError when a folder does not exist.
    """
    home = workspace_folder(workspace)
    roots = tuple(map(workspace_folder, folders)) or (home,)
    check_folders(home, roots)
    n_workers = max(1, (os.cpu_count() or 2) - 1)
    settings = read_settings(home, roots, environment=os.environ, n_workers=n_workers)
    settings = replace(settings, n_warm_workers=min(n_workers, MAX_WARM_WORKERS))
    if is_demo:
        return _with_samples(settings, ())
    declared_refs(settings.agents, home)  # a wrong table is said before anything starts
    if settings.agents or find_agents(settings.roots):
        return settings
    return _with_samples(replace(settings, has_found_none=True), _own_roots(roots))


def check_folders(home: Path, roots: tuple[Path, ...]) -> None:
    """Raise UsageError for a workspace or a folder of agents that is no folder."""
    if not home.is_dir():
        raise UsageError(f"{home} is not a folder; name the folder that holds .evaldesk, or is to hold it")
    for root in roots:
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder; name the folder that holds your agents")


def _own_roots(roots: tuple[Path, ...]) -> tuple[Path, ...]:
    """Folders whose eval sets are shown beside the samples; those of a checkout are the samples themselves."""
    shipped = paths.shipped("evalsets")
    return tuple(root for root in roots if not shipped.is_relative_to(root))


def _with_samples(settings: Settings, own: tuple[Path, ...]) -> Settings:
    """The same workspace serving the sample agents, copies of their eval sets, and the eval sets under `own`."""
    models = dict.fromkeys((*settings.models, *DEMO_MODELS))
    settings = replace(settings, is_demo=True, models=tuple(models), judges=settings.judges or DEMO_JUDGES)
    folder = settings.evalset_folder
    for each in (settings.state_folder, folder.parent, folder):
        check_no_links(each)
    try:
        make_private_folder(settings.state_folder)
        _copy_samples(folder)
    except OSError as error:
        raise WorkspaceError(f"{folder}: {error.strerror}; name another workspace") from error
    return replace(settings, roots=(paths.samples(), folder, *own))


def _copy_samples(folder: Path) -> None:
    """Copied once, a sample is the person's own: renamed or deleted, it does not come back."""
    make_folder(folder)
    list_file = folder.parent / COPIED
    names = list_file.read_text("utf-8").split() if list_file.is_file() else []
    for sample in sorted(paths.shipped("evalsets").glob("*.evalset.json")):
        if sample.name in names:
            continue
        if not (folder / sample.name).exists():
            with suppress(ConflictError):  # another desk of this folder was quicker
                create_file(folder / sample.name, sample.read_bytes())
        names.append(sample.name)
    replace_file(list_file, ("\n".join(names) + "\n").encode())

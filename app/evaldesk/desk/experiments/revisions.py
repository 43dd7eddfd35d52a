"""An agent at another revision of its repository, played from a git worktree: `agent=git:REV`. (decision 055)"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from evaldesk.desk.runs.file_places import git_head, has_changes
from evaldesk.errors import NAME_LIMIT, UsageError
from evaldesk.git import git_text
from evaldesk.model import AgentRef
from evaldesk.settings import Settings
from evaldesk.store import Store

PREFIX = "git:"
MOST_CHARACTERS = 200
KEPT_S = 3600.0
"""The age from which a worktree without a run is removed."""
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_revision(spec: str) -> bool:
    """Whether an agent is named by a revision of the one that the command names."""
    return spec.startswith(PREFIX)


def trees_folder(settings: Settings) -> Path:
    """The folder of the worktrees: apart from the checkout of a person, with the database."""
    return settings.state_folder / "revisions"


def agent_at(ref: AgentRef, spec: str, trees: Path) -> AgentRef:
    """The agent as it is in the revision `git:REV`, from a worktree below `trees`; only for an agent that may run.

    Neither hooks nor filters nor any other command of the repository are run. Raises UsageError with the next step.
    """
    folder, root = Path(ref.folder or ref.root), Path(ref.root or ref.folder)
    top, commit = _revision(ref, spec)
    tree = trees / commit / top.name
    if link := _link_of(tree):
        raise UsageError(f"{link} is a link, which is not followed; remove it, and play again", field="agent")
    with _only_process(trees):
        _note_use(trees, commit)
        _worktree(top, commit, tree)
    at = replace(ref, folder=_place(folder, top, tree, spec) if ref.folder else "", root=_place(root, top, tree, spec))
    if at.folder and not Path(at.folder).is_dir():
        raise UsageError(f"agent={spec}: {folder.resolve().relative_to(top)} is not in {commit[:7]}", field="agent")
    return at


def remove_unused_trees(store: Store, trees: Path, ref: AgentRef, specs: Sequence[str], now: float) -> None:
    """Remove worktrees below `trees` from which no stored run was played.

    Those of `specs` are removed at once, as after a refused plan; others when they are `KEPT_S` old at `now`, in
    seconds since 1970. One that another process is about to play from stays.
    """
    commits = set()
    for spec in specs:
        with suppress(UsageError):
            commits.add(_revision(ref, spec)[1])
    if trees.is_symlink() or not trees.is_dir():
        return
    with _only_process(trees):
        for link in trees.glob("*/*/.git"):
            tree, commit = link.parent, link.parent.parent.name
            is_ours = link.is_file() and bool(_COMMIT.fullmatch(commit)) and _link_of(tree) is None
            is_due = commit in commits or link.stat().st_mtime < now - KEPT_S
            if not is_ours or not is_due or store.runs.is_any_played_from(f"{tree.parent}/"):
                continue
            if commit in commits and (used := _uses.pop(_use_of(trees, commit), None)) is not None:
                os.close(used)
            if _is_free(trees, commit):
                _remove(tree)


_uses: dict[Path, int] = {}
"""The commits that this process plays from: the file of each with the descriptor whose shared lock tells others so."""


@contextmanager
def _only_process(trees: Path) -> Iterator[None]:
    """Keep other processes from checking out or removing worktrees meanwhile."""
    trees.mkdir(parents=True, exist_ok=True)
    descriptor = _opened(trees / "trees.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _note_use(trees: Path, commit: str) -> None:
    """Tell other processes until the end of this one that it plays from a commit, also before a stored run does."""
    place = _use_of(trees, commit)
    if place not in _uses:
        _uses[place] = _opened(place)
        fcntl.flock(_uses[place], fcntl.LOCK_SH)


def _is_free(trees: Path, commit: str) -> bool:
    """Whether no process plays from a commit; its file goes away then. Asked by the only process at work on them."""
    place = _use_of(trees, commit)
    descriptor = _opened(place)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _use_of(trees: Path, commit: str) -> Path:
    return trees / f"{commit}.lock"


def _opened(place: Path) -> int:
    return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _revision(ref: AgentRef, spec: str) -> tuple[Path, str]:
    """The repository of the agent, and the commit of the revision. Raises UsageError."""
    revision = spec.removeprefix(PREFIX)
    if not revision.strip() or len(revision) > MOST_CHARACTERS or not revision.isprintable():
        raise UsageError(
            f"agent={spec[:NAME_LIMIT]!r}: name a commit, a tag or a branch, such as git:HEAD~1", field="agent"
        )
    place = ref.folder or ref.root
    top = git_text(Path(place), "rev-parse", "--show-toplevel") if place else ""
    if not top:
        raise UsageError(
            f"agent={spec}: {place or ref.id} is in no git checkout, so it has no revisions; name a folder instead",
            field="agent",
        )
    commit = git_text(Path(top), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"agent={spec}: {top} has no revision {revision}; git fetch, or name another", field="agent")
    return Path(top).resolve(), commit


def _worktree(top: Path, commit: str, tree: Path) -> None:
    """Check the commit out; an earlier checkout is reused when nothing in it was changed."""
    if git_head(tree) == commit and not has_changes(tree):
        return
    if tree.exists():
        _remove(tree)
    tree.parent.mkdir(parents=True, exist_ok=True)
    git_text(top, "worktree", "prune")
    git_text(top, "worktree", "add", "--quiet", "--force", "--detach", str(tree), commit)
    if git_head(tree) != commit:
        _remove(tree)
        raise UsageError(
            f"commit {commit[:7]} cannot be checked out to {tree}; `git worktree add --detach {tree} {commit[:7]}` "
            "tells the reason",
            field="agent",
        )


def _link_of(tree: Path) -> Path | None:
    """The first of the folders of a worktree that is a link: what it leads to is not ours to remove."""
    return next((each for each in (tree.parent.parent, tree.parent, tree) if each.is_symlink()), None)


def _place(path: Path, top: Path, tree: Path, spec: str) -> str:
    """A folder of the checkout in the worktree; the folder above the repository is that above the worktree."""
    resolved = path.resolve()
    if resolved == top.parent:
        return str(tree.parent)
    if not resolved.is_relative_to(top):
        raise UsageError(
            f"agent={spec}: its modules are imported from {path}, which is not in {top}; name a folder instead",
            field="agent",
        )
    return str(tree / resolved.relative_to(top))


def _remove(tree: Path) -> None:
    """Remove a worktree, also one whose repository is gone."""
    common = git_text(tree, "rev-parse", "--path-format=absolute", "--git-common-dir") if tree.is_dir() else ""
    if common and (tree / ".git").is_file():
        git_text(Path(common), "worktree", "remove", "--force", str(tree))
    if tree.is_dir() and not tree.is_symlink():
        shutil.rmtree(tree, ignore_errors=True)
    if common:
        git_text(Path(common), "worktree", "prune")
    with suppress(OSError):
        tree.parent.rmdir()

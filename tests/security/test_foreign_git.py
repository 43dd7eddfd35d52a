"""git of others runs no command: of a configuration, of an address to fetch from, wherever Evaldesk starts git."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.islands import island_module
from tests.parsed_sources import parsed

import evaldesk.git
from evaldesk.desk.evalsets.revisions import changed_sets
from evaldesk.desk.evalsets.versions import commit_of
from evaldesk.desk.runs.file_places import git_head
from evaldesk.git import git_text

SOURCE = Path(evaldesk.__file__).parent
GIT = shutil.which("git") or "git"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that the hook makes when it is run."""
    return tmp_path / "ran"


@pytest.fixture
def hook(tmp_path: Path, mark: Path) -> Path:
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\nexec cat\n")
    hook.chmod(0o755)
    return hook


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "a.txt").write_text("first")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        run(folder, "-c", "user.name=a", "-c", "user.email=a@b", *command)
    return folder


def run(folder: Path, *command: str) -> None:
    subprocess.run([GIT, "-C", str(folder), *command], check=True)


@pytest.mark.parametrize(
    "key",
    [
        "core.fsmonitor",
        "filter.strange.clean",
        "filter.with=sign.clean",
        "filter.strange.process",
        "filter.strange.smudge",
        "diff.strange.textconv",
        "diff.external",
        "core.pager",
        "pager.status",
        "core.askPass",
    ],
)
def test_a_git_configuration_of_others_runs_no_command(key: str, clone: Path, hook: Path, mark: Path) -> None:
    name = key.split(".")[1]
    (clone / ".gitattributes").write_text(f"*.txt filter={name} diff={name}\n")
    run(clone, "config", key, str(hook))
    (clone / "a.txt").write_text("other")
    tree = clone.parent / "tree"

    state = git_text(clone, "status", "--porcelain")
    git_text(clone, "diff")
    git_text(clone, "worktree", "add", "--quiet", "--detach", str(tree), git_text(clone, "rev-parse", "HEAD"))

    assert state.splitlines() == ["M a.txt", "?? .gitattributes"]
    assert (tree / "a.txt").read_text() == "first"
    assert not mark.exists()


@pytest.mark.parametrize("url", ["a folder", "ext::sh -c HOOK"])
def test_a_clone_without_all_objects_fetches_none(url: str, clone: Path, hook: Path, mark: Path) -> None:
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": url.replace("a folder", str(clone)).replace("HOOK", str(hook)),
        "remote.origin.uploadpack": str(hook),
        "protocol.ext.allow": "always",
    }.items():
        run(clone, "config", key, value)
    blob = git_text(clone, "rev-parse", "HEAD:a.txt")
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    (clone / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (clone / "a.txt").unlink()

    git_text(clone, "worktree", "add", "--quiet", "--detach", str(clone.parent / "tree"), "HEAD")
    is_refused = not mark.exists()
    subprocess.run([GIT, "-C", str(clone), "checkout", "--", "a.txt"], check=False, capture_output=True)

    assert is_refused
    assert mark.exists()  # the attack is one: git itself runs the command


@pytest.mark.parametrize(
    "ask",
    [
        git_head,
        lambda folder: island_module("openhands.run_facts").git_commit(folder),
        lambda folder: list(island_module("ray.code").code_files(folder)),
    ],
    ids=["commit of a run", "commit of a benchmark", "files for hosts"],
)
def test_no_question_about_a_folder_runs_a_monitor(
    ask: Callable[[Path], object], clone: Path, hook: Path, mark: Path
) -> None:
    run(clone, "config", "core.fsmonitor", str(hook))

    assert ask(clone)
    assert not mark.exists()


def test_git_answers_about_the_folder_inside_a_hook_of_another_repository(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = git_head(clone)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))

    assert head
    assert git_head(clone) == head


@pytest.mark.parametrize("version", ["git version 2.30.9", "no git"])
def test_a_git_that_takes_no_configuration_from_variables_is_not_asked(
    version: str, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old" / "git"
    old.parent.mkdir()
    old.write_text(f"#!/bin/sh\necho {version}\n")
    old.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(old))

    assert git_head(clone) == ""


def test_one_module_starts_git() -> None:
    places = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value == "git" or node.value.startswith("git ") or node.value.endswith(("/git", "/git.exe")))
    ]

    assert {place.partition(":")[0] for place in places} == {"git.py"}, places


@pytest.mark.parametrize(
    "settings",
    [
        {"core.fsmonitor": "HOOK"},
        {"core.pager": "HOOK", "pager.log": "HOOK", "pager.diff-tree": "HOOK"},
        {"diff.external": "HOOK", "diff.strange.command": "HOOK", "diff.strange.textconv": "HOOK"},
        {"log.showSignature": "true", "gpg.program": "HOOK", "gpg.ssh.program": "HOOK", "gpg.openpgp.program": "HOOK"},
        {"core.hooksPath": "FOLDER"},
        {"filter.strange.smudge": "HOOK", "filter.strange.clean": "HOOK", "filter.strange.required": "true"},
        {"alias.log": "!HOOK", "alias.cat-file": "!HOOK"},
        {"core.gitProxy": "HOOK", "core.sshCommand": "HOOK", "core.alternateRefsCommand": "HOOK"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_versions_of_eval_sets_are_read_without_a_command_of_the_repository(
    settings: dict[str, str], clone: Path, hook: Path, mark: Path
) -> None:
    (clone / ".gitattributes").write_text("*.json filter=strange diff=strange\n")
    path = clone / "calc.evalset.json"
    for text in ("first", "second"):
        path.write_text(f'{{"eval_set_id": "{text}", "eval_cases": []}}')
        run(clone, "add", ".")
        run(clone, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", text)
    for key, value in settings.items():
        run(clone, "config", key, value.replace("HOOK", str(hook)).replace("FOLDER", str(hook.parent)))

    commit, found = commit_of(path), changed_sets(clone, "HEAD~1..HEAD")

    assert commit.author == "a"
    assert [each.after and each.after.id for each in found.sets] == ["second"]
    assert not mark.exists()


@pytest.mark.parametrize("digest", ["sha1", "sha256"])
def test_the_commit_of_a_file_is_known_by_either_kind_of_digest(digest: str, tmp_path: Path) -> None:
    path = tmp_path / "calc.evalset.json"
    path.write_text('{"eval_set_id": "calc", "eval_cases": []}')
    for command in (("init", "-q", f"--object-format={digest}"), ("add", "."), ("commit", "-qm", "first")):
        run(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *command)

    assert commit_of(path).author == "a"
    path.write_text('{"eval_set_id": "other", "eval_cases": []}')
    assert commit_of(path).author == ""


def test_a_huge_committed_file_is_not_read(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clone / "calc.evalset.json"
    for text in ('{"eval_set_id": "first", "eval_cases": []}', '{"eval_set_id": "' + "x" * 500_000 + '"}'):
        path.write_text(text)
        run(clone, "add", ".")
        run(clone, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "next")
    path.write_text("small")
    sizes: list[int] = []
    output = evaldesk.git._output

    def measured(*arguments: Any) -> bytes | None:
        data = output(*arguments)
        sizes.append(len(data or b""))
        return data

    monkeypatch.setattr("evaldesk.git._output", measured)
    monkeypatch.setattr("evaldesk.desk.evalsets.revisions.MAX_BYTES", 400_000)

    commit, (change,) = commit_of(path), changed_sets(clone, "HEAD~1..HEAD").sets

    assert commit.author == ""
    assert (change.before and change.before.id, change.after) == ("first", None)
    assert "it has more than 0 MiB" in change.error
    assert max(sizes) < 10_000

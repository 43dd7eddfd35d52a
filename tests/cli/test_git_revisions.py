"""`--vary agent=git:REV`: an agent at other revisions, from worktrees, without a command of the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from tests.cli.conftest import CommandFolder

from evaldesk import evaluate
from evaldesk.desk.experiments.experiment_result import ExperimentResult

GIT = shutil.which("git") or "git"
STRONG = "def agent(message):\n    return message\n\nagent.tells_cost = True\n"
WEAK = STRONG.replace("return message", "return 'nothing'")


def git(folder: Path, *command: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run([GIT, "-C", str(folder), *author, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def shop(place: CommandFolder) -> CommandFolder:
    """An agent in a repository: weak in the first commit, tagged v1; strong since; with changes that are in none."""
    folder = place.folder / "project" / "shop"
    folder.mkdir(parents=True)
    code = folder / "agent.py"
    git(folder.parent, "init", "-q", "-b", "main")
    (folder / "__init__.py").write_text("")
    for text, tag in ((WEAK, "v1"), (STRONG, "v2")):
        code.write_text(text.replace("def agent", "def root_agent").replace("agent.tells", "root_agent.tells"))
        git(folder.parent, "add", ".")
        git(folder.parent, "commit", "-qm", tag)
        git(folder.parent, "tag", tag)
    code.write_text(code.read_text() + "# not committed\n")
    return place


def vary(shop: CommandFolder, revisions: str, *options: object) -> tuple[bool, str, dict[str, object]]:
    evalset = shop.evalset("shop", {f"c{at}": f"c{at}" for at in range(6)})
    agent = shop.folder / "project" / "shop"
    result = shop.run(
        *("eval", agent, evalset, "--criterion", "response_match_score=0.8"),
        *("--vary", f"agent={revisions}", "--json", *options),
    )
    words = result.output + str(result.exception or "")
    return result.exit_code == 0, words, json.loads(result.stdout) if result.exit_code == 0 else {}


def trees(shop: CommandFolder) -> list[Path]:
    return sorted((shop.folder / ".evaldesk" / "revisions").glob("*/*"))


def test_each_revision_is_played_with_its_own_code_and_the_checkout_stays(shop: CommandFolder) -> None:
    project = shop.folder / "project"
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file() and ".git" not in path.parts}
    branch = git(project, "symbolic-ref", "HEAD")

    is_played, output, found = vary(shop, "git:v1,git:main", "--baseline-variant", "git:v1")

    assert is_played, output
    rates = found["rates"]
    assert isinstance(rates, list)
    assert [(each["variant"], each["pass_rate"]) for each in rates] == [("git:v1", 0.0), ("git:main", 1.0)]
    after = {path: path.read_bytes() for path in project.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert after == before
    assert git(project, "symbolic-ref", "HEAD") == branch
    assert git(project, "status", "--porcelain") == "M shop/agent.py"
    commits = {git(project, "rev-parse", name) for name in ("v1", "v2")}
    assert {tree.parent.name for tree in trees(shop)} == commits
    agents = [shop.store().runs.summary(run).config.agent for run in (1, 2)]
    assert {each.id for each in agents} == {"shop"}
    assert all(Path(each.folder).is_relative_to(shop.folder / ".evaldesk") for each in agents)


def test_a_plan_that_plays_nothing_leaves_no_worktree(shop: CommandFolder) -> None:
    project = shop.folder / "project"

    checked = vary(shop, "git:v1,git:v2", "--check")
    refused = vary(shop, "git:v1,git:v1^{commit}")

    assert (checked[0], refused[0]) == (True, False)
    assert "is the same as" in refused[1]
    assert trees(shop) == []
    assert git(project, "worktree", "list").count("\n") == 0


def test_worktrees_of_removed_runs_go_and_those_of_stored_ones_stay(shop: CommandFolder) -> None:
    vary(shop, "git:v1,git:v2")
    first = trees(shop)
    store = shop.store()
    for run_id in (1, 2):
        store.runs.delete(run_id)

    vary(shop, "git:v1,git:v2", "--check")
    assert trees(shop) == first

    store.runs.remove_deleted(timedelta(0))
    vary(shop, "git:v1,git:v2", "--check")
    assert trees(shop) == []


USER = """
import sys
from pathlib import Path
from evaldesk.desk.experiments.revisions import agent_at
from evaldesk.model import AgentRef

folder, trees = sys.argv[1:]
agent = AgentRef("shop", "shop:root_agent", folder=folder, root=folder)
print(agent_at(agent, "git:v1", Path(trees)).folder, flush=True)
sys.stdin.read()
"""


def test_a_worktree_that_another_command_is_about_to_play_from_stays(shop: CommandFolder) -> None:
    """Its runs are not stored yet, and a refused plan of the same revision removes what no run was played from."""
    agent, folder = shop.folder / "project" / "shop", shop.folder / ".evaldesk" / "revisions"
    command = [sys.executable, "-c", USER, str(agent), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        place = Path(other.stdout.readline().strip())
        refused = vary(shop, "git:v1,git:v1^{commit}")
        is_there = (place / "agent.py").is_file()
        other.communicate("")

    again = vary(shop, "git:v1,git:v1^{commit}")

    assert (refused[0], is_there, again[0]) == (False, True, False)
    assert trees(shop) == []
    assert [path.name for path in folder.iterdir()] == ["trees.lock"]


def test_commands_that_begin_at_once_share_the_worktree_of_a_revision(shop: CommandFolder) -> None:
    agent, folder = shop.folder / "project" / "shop", shop.folder / ".evaldesk" / "revisions"
    command = [sys.executable, "-c", USER, str(agent), str(folder)]
    others = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]

    answers = [each.communicate() for each in others]

    assert [each.returncode for each in others] == [0] * 4, answers
    assert len({out for out, _ in answers}) == 1
    assert len(trees(shop)) == 1


@pytest.mark.parametrize(
    ("revision", "words"),
    [
        ("git:", "name a commit, a tag or a branch"),
        ("git: ", "name a commit, a tag or a branch"),
        ("git:nothing", "has no revision nothing"),
        ("git:--upload-pack=touch x", "has no revision --upload-pack=touch x"),
        ("git:-x", "has no revision -x"),
        ("git:v1:shop", "has no revision v1:shop"),
        ("git:" + "a" * 201, "name a commit, a tag or a branch"),
    ],
    ids=["empty", "blank", "unknown", "an option", "a dash", "a tree", "too long"],
)
def test_a_revision_that_cannot_be_is_refused_before_any_trial(shop: CommandFolder, revision: str, words: str) -> None:
    is_played, output, _ = vary(shop, f"git:v2,{revision}")

    assert not is_played
    assert words in output
    assert shop.store().runs.list() == []


def test_an_agent_that_the_revision_does_not_have_is_named(shop: CommandFolder) -> None:
    project = shop.folder / "project"
    git(project, "checkout", "-q", "--orphan", "other")
    git(project, "rm", "-rfq", "--cached", ".")
    (project / "readme").write_text("no agent")
    git(project, "add", "readme")
    git(project, "commit", "-qm", "other")

    is_played, output, _ = vary(shop, "git:v2,git:other")

    assert not is_played
    assert "shop is not in" in output
    assert trees(shop) == []


def test_an_agent_outside_of_git_has_no_revisions(place: CommandFolder) -> None:
    evalset = place.evalset("shop", {"a": "a"})

    result = place.run("eval", place.agent, evalset, "--vary", "agent=git:v1,git:v2")

    assert "is in no git checkout" in str(result.exception)


def test_no_hook_filter_or_monitor_of_the_repository_runs(shop: CommandFolder) -> None:
    project, mark = shop.folder / "project", shop.folder / "ran"
    hook = shop.folder / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\nexec cat\n")
    hook.chmod(0o755)
    (project / ".gitattributes").write_text("*.py filter=strange diff=strange\n")
    git(project, "add", ".gitattributes")
    git(project, "commit", "-qm", "attributes")
    shutil.copy(hook, project / ".git" / "hooks" / "post-checkout")
    for key in ("filter.strange.smudge", "filter.strange.clean", "core.fsmonitor", "diff.external", "core.pager"):
        git(project, "config", key, str(hook))
    mark.unlink(missing_ok=True)

    is_played, output, _ = vary(shop, "git:v1,git:HEAD")

    assert is_played, output
    assert not mark.exists()
    subprocess.run(
        [GIT, "-C", str(project), "worktree", "add", "-q", "--detach", str(shop.folder / "t"), "HEAD"], check=True
    )
    assert mark.exists()  # the attack is one: git itself runs the commands


def test_a_worktree_that_somebody_changed_is_made_again(shop: CommandFolder) -> None:
    vary(shop, "git:v1,git:v2")
    code_file = next(tree for tree in trees(shop)[0].rglob("agent.py"))
    before = code_file.read_text()
    code_file.write_text("raise SystemExit\n")

    is_played, output, _ = vary(shop, "git:v1,git:v2")

    assert is_played, output
    assert code_file.read_text() == before


@pytest.mark.parametrize("depth", [0, 1, 2], ids=["all worktrees", "the commit", "the worktree"])
def test_a_link_in_the_place_of_worktrees_leads_to_nothing_that_is_removed(shop: CommandFolder, depth: int) -> None:
    parts = [git(shop.folder / "project", "rev-parse", "v1"), "project"]
    tree = shop.folder / "mine" / Path(*parts[depth:])
    tree.mkdir(parents=True)
    for name in (".git", "work.txt"):
        (tree / name).write_text("mine")
    os.utime(tree / ".git", (0, 0))
    link = Path(shop.folder, ".evaldesk", "revisions", *parts[:depth])
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(shop.folder / "mine")

    is_played, output, _ = vary(shop, "git:v1,git:v2")

    assert (is_played, "is a link, which is not followed" in output) == (False, True)
    assert (tree / "work.txt").read_text() == "mine"


def test_a_revision_is_a_variant_in_python_too(shop: CommandFolder) -> None:
    evalset = shop.evalset("shop", {f"c{at}": f"c{at}" for at in range(6)})

    result = evaluate(
        str(shop.folder / "project" / "shop"),
        evalset,
        criteria={"response_match_score": 0.8},
        variants=[{"agent": "git:v1"}, {"agent": "git:v2"}],
        workspace=shop.folder,
    )

    assert isinstance(result, ExperimentResult)
    assert [(each.variant, each.word) for each in result.differences] == [("git:v2", "better")]

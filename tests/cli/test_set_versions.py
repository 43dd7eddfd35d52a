"""`evaldesk evalset log`, `diff`, `restore`, `eval SET@VERSION` and `--expect-version`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk.errors import NotFoundError, TrustError, UsageError
from evaldesk.formats import load_evalset
from evaldesk.matching.case_version import version_of_set

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

GIT = shutil.which("git") or "git"
GOOD = {"one": "one", "two": "two"}


def git(folder: Path, *command: str) -> str:
    author = ("-c", "user.name=jo", "-c", "user.email=a@b")
    done = subprocess.run([GIT, "-C", str(folder), *author, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def items(place: CommandFolder, *command: object) -> list[dict[str, Any]]:
    result = place.run(*command, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["items"]
    return found


@pytest.fixture
def played(place: CommandFolder) -> tuple[CommandFolder, Path, str]:
    """A set that was played, then edited and played again; with its first version."""
    path = place.evalset("calc", GOOD)
    assert place.eval(path).exit_code == 0
    first = version_of_set(load_evalset(path))
    place.evalset("calc", {"one": "one", "two": "other", "three": "three"})
    place.eval(path)
    return place, path, first


def test_the_log_has_each_version_with_the_runs_that_played_it(played: tuple[CommandFolder, Path, str]) -> None:
    place, path, first = played

    found = items(place, "evalset", "log", "calc")
    text = place.run("evalset", "log", "calc").stdout

    assert [each["version"] for each in found] == [version_of_set(load_evalset(path)), first]
    assert [(each["n_added"], each["n_changed"], each["n_removed"]) for each in found] == [(1, 1, 0), (2, 0, 0)]
    assert [each["runs"] for each in found] == [[2], [1]]
    assert [each["origin"] for each in found] == ["outside", "run"]
    assert "+1 ~1 -0 3 cases changed outside; 1 run, 2" in text
    one = place.run("evalset", "log", "calc", "--limit", "1").stdout.splitlines()
    assert (one[0], one[-1]) == ("calc: 2 versions", "1 older version; --limit 2 lists more.")


def test_a_run_keeps_the_version_that_it_played(played: tuple[CommandFolder, Path, str]) -> None:
    place, _, first = played
    with place.store() as store:
        assert [run.config.set_version for run in store.runs.list()][-1] == first


def test_the_diff_names_each_case_and_the_left_out_ones(played: tuple[CommandFolder, Path, str]) -> None:
    place, _, first = played

    text = place.run("evalset", "diff", f"calc@{first[:8]}").stdout

    assert "~ case_2: turn 1, reference" in text
    assert "+ case_3" in text
    assert text.endswith(
        "1 of 3 cases is the same in both versions; 1 was changed and 1 added, and they are left out.\n"
    )
    assert text == place.run("evalset", "diff", "calc").stdout  # the version before is the first one


def test_a_version_is_restored_and_that_is_taken_back(played: tuple[CommandFolder, Path, str]) -> None:
    place, path, first = played
    edited = version_of_set(load_evalset(path))

    result = place.run("evalset", "restore", f"calc@{first[:8]}")

    assert version_of_set(load_evalset(path)) == first
    command = result.stdout.splitlines()[-1].removesuffix(" takes that back.").split()
    assert place.run(*command[1:]).exit_code == 0
    assert version_of_set(load_evalset(path)) == edited
    assert len(items(place, "evalset", "log", "calc")) == 4


def test_one_case_is_restored_alone(played: tuple[CommandFolder, Path, str]) -> None:
    place, path, first = played

    assert place.run("evalset", "restore", f"calc@{first[:8]}", "--case", "case_2").exit_code == 0

    assert [case.turns[0].expected.reference for case in load_evalset(path).cases] == ["one", "two", "three"]


def test_an_earlier_version_is_played_and_notes_no_version(played: tuple[CommandFolder, Path, str]) -> None:
    place, path, first = played

    result = place.eval(f"{path}@{first[:8]}")
    some = place.eval(f"{path}@{first[:8]}:case_2")

    assert "2 of 2 passed" in result.output, result.output
    assert [line for line in some.output.splitlines() if "case_" in line] == ["✓  case_2"]
    with place.store() as store:
        assert store.runs.list()[0].config.set_version == first
    assert len(items(place, "evalset", "log", "calc")) == 2


def test_another_version_than_the_expected_one_is_refused(played: tuple[CommandFolder, Path, str]) -> None:
    place, path, first = played
    version = version_of_set(load_evalset(path))

    refused = place.eval(path, "--expect-version", first[:8])
    taken = place.eval(path, "--expect-version", version[:8])

    assert isinstance(refused.exception, UsageError)
    assert f"calc has version {version[:8]}, and '{first[:8]}' is expected" in str(refused.exception)
    assert "of 3 passed" in taken.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("restore", "calc"), "name the version"),
        (("restore", "calc@ffff"), "there is no version 'ffff'"),
        (("restore", "calc@ff"), "too short for a version"),
        (("log", "nothing"), "nothing"),
        (("diff", "calc", "calc", "calc"), "compare two"),
    ],
)
def test_a_version_that_is_not_there_is_named(
    words: tuple[str, ...], message: str, played: tuple[CommandFolder, Path, str]
) -> None:
    result = played[0].run("evalset", *words)

    assert isinstance(result.exception, UsageError | NotFoundError)
    assert message in str(result.exception)


@pytest.fixture
def repository(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    """A trusted folder in git: `calc` on the branch main, an edited one with a case more on HEAD, and a new set."""
    monkeypatch.setenv("EVALDESK_TRUST", "1")
    git(place.folder, "init", "-q", "-b", "main")
    place.evalset("calc", GOOD)
    (place.folder / "other.json").write_text('{"no": "set"}')
    git(place.folder, "add", "calc.evalset.json", "other.json")
    git(place.folder, "commit", "-qm", "first")
    git(place.folder, "switch", "-qc", "feature")
    place.evalset("calc", {"one": "one", "two": "other @someone", "three": "three"})
    place.evalset("trips", {"four": "four"})
    (place.folder / "other.json").write_text('{"no": "set at all"}')
    git(place.folder, "add", ".")
    git(place.folder, "commit", "-qm", "second")
    return place


def test_the_summary_for_a_pull_request_names_the_cases_that_no_gate_compares(repository: CommandFolder) -> None:
    text = repository.run("evalset", "diff", "main..HEAD", "--summary").stdout

    assert text.startswith("<!-- evaldesk eval sets -->\n## Eval sets, ")
    assert "1 of 3 cases is the same in both versions; 1 was changed and 1 added, and they are left out." in text
    assert "| case\\_2 | changed: turn 1, reference |" in text
    assert "| case\\_3 | added |" in text
    assert "### trips" in text
    assert "new, version `" in text
    assert "other.json" not in text
    assert "\n~~~diff\n" in text


def test_one_set_of_a_pull_request_is_named_alone(repository: CommandFolder) -> None:
    found = items(repository, "evalset", "diff", "main...HEAD", "trips")

    assert [(each["evalset"], each["before"], len(each["cases"])) for each in found] == [("trips", None, 1)]
    refusal = repository.run("evalset", "diff", "main..HEAD", "tripz").exception
    assert isinstance(refusal, NotFoundError)


@pytest.mark.parametrize("words", ["main..nowhere", "--output=x..HEAD", "main..HEAD\u202e", "a..b..c d"])
def test_an_unknown_revision_is_refused(words: str, repository: CommandFolder) -> None:
    result = repository.run("evalset", "diff", "--", words)

    assert isinstance(result.exception, UsageError | NotFoundError), result.output
    assert not (repository.folder / "x..HEAD").exists()


def test_revisions_of_a_folder_that_nobody_trusts_are_not_read(
    repository: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVALDESK_TRUST")

    assert isinstance(repository.run("evalset", "diff", "main..HEAD").exception, TrustError)


def test_a_committed_version_carries_commit_and_author(repository: CommandFolder) -> None:
    path = repository.folder / "calc.evalset.json"
    head = git(repository.folder, "log", "-1", "--format=%h", "--", path.name)
    assert repository.eval(path, "--criterion", "response_match_score=0") is not None

    repository.run("eval", repository.agent, path, "--criterion", "response_match_score=0.1")
    found = items(repository, "evalset", "log", "calc")

    assert [(each["commit"], each["commit_author"]) for each in found] == [(head, "jo")]
    path.write_text(path.read_text().replace("three", "3"))
    repository.run("eval", repository.agent, path, "--criterion", "response_match_score=0.1")
    assert items(repository, "evalset", "log", "calc")[0]["commit"] is None


def test_lines_of_a_case_end_no_block_of_the_summary(repository: CommandFolder) -> None:
    nasty = "~~~\u2028~~~~\n</details><script>alert(1)</script> @someone"
    repository.evalset("calc", {"one": nasty, "two": "two"})
    git(repository.folder, "commit", "-qam", "third")

    text = repository.run("evalset", "diff", "main..HEAD", "calc", "--summary").stdout

    fences = [line for line in text.splitlines() if line.startswith("~")]
    assert len(fences) == 2 * text.count("<details>")
    assert len({line.removesuffix("diff") for line in fences}) == 1
    assert all(len(line.strip("~ ")) or len(line) < len(fences[-1]) for line in text.splitlines() if line not in fences)

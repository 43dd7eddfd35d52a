"""What `evaldesk ui [DIR ...]` serves: the folders it is given, or the samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaldesk import paths
from evaldesk.agents import find_agents
from evaldesk.desk.workspace import open_settings
from evaldesk.errors import UsageError, WorkspaceError
from evaldesk.settings import Settings
from evaldesk.store.evalsets.files import EvalSetFiles

SAMPLES = ["hello_world", "trip_planner"]


def _agent(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text("def root_agent(message, state):\n    return message\n")


def _evalset(folder: Path, name: str) -> None:
    folder.mkdir(parents=True)
    (folder / f"{name}.evalset.json").write_text(json.dumps({"eval_set_id": name, "eval_cases": []}))


def _evalsets(settings: Settings) -> EvalSetFiles:
    return EvalSetFiles(
        settings.roots, settings.evalset_folder, settings.state_folder / "trash", home=settings.workspace
    )


def _names(settings: Settings) -> list[str]:
    return sorted(file.name for file in _evalsets(settings).list())


def _agents(settings: Settings) -> list[str]:
    return [ref.id for ref in find_agents(settings.roots)]


def test_a_folder_without_agents_serves_the_samples(tmp_path: Path) -> None:
    settings = open_settings((), workspace=str(tmp_path))

    assert (settings.is_demo, _agents(settings), _names(settings)) == (True, SAMPLES, SAMPLES)
    assert settings.has_found_none


def test_the_samples_come_with_models_that_make_no_mistakes_and_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_MODELS", "demo/scripted?mistakes=0.6,openai/gpt-5-mini")

    settings = open_settings((), workspace=str(tmp_path))

    assert settings.models == ("demo/scripted?mistakes=0.6", "openai/gpt-5-mini", "demo/scripted?mistakes=0")


def test_the_agents_of_every_folder_are_served_and_no_samples(tmp_path: Path) -> None:
    for name in ("one/first", "two/second"):
        _agent(tmp_path / name)
    _evalset(tmp_path / "two/evalsets", "mine")

    settings = open_settings((str(tmp_path / "one"), str(tmp_path / "two")), workspace=str(tmp_path))

    assert (settings.is_demo, _agents(settings), _names(settings)) == (False, ["first", "second"], ["mine"])


def test_demo_serves_the_samples_although_there_are_agents(tmp_path: Path) -> None:
    _agent(tmp_path / "first")
    _evalset(tmp_path / "evalsets", "mine")

    settings = open_settings((), workspace=str(tmp_path), is_demo=True)

    assert (_agents(settings), _names(settings)) == (SAMPLES, SAMPLES)
    assert not settings.has_found_none


def test_eval_sets_without_an_agent_are_served_beside_the_samples(tmp_path: Path) -> None:
    _evalset(tmp_path / "evalsets", "mine")

    settings = open_settings((), workspace=str(tmp_path))

    assert (_agents(settings), _names(settings)) == (SAMPLES, ["hello_world", "mine", "trip_planner"])


def test_a_checkout_serves_copies_of_its_own_samples_once(tmp_path: Path) -> None:
    checkout = paths.shipped("evalsets").parent

    settings = open_settings((str(checkout),), workspace=str(tmp_path))

    assert _names(settings) == SAMPLES


def test_a_sample_that_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    files = _evalsets(open_settings((), workspace=str(tmp_path)))
    deleted = next(file.id for file in files.list() if file.name == "hello_world")
    token = files.trash(deleted)

    again = open_settings((), workspace=str(tmp_path))

    assert _names(again) == ["trip_planner"]
    assert _evalsets(again).restore(token) == deleted


def test_a_sample_that_was_renamed_does_not_come_back(tmp_path: Path) -> None:
    files = _evalsets(open_settings((), workspace=str(tmp_path)))
    files.rename(next(file.id for file in files.list() if file.name == "hello_world"), "dice")

    assert _names(open_settings((), workspace=str(tmp_path))) == ["dice", "trip_planner"]


def test_an_edited_sample_is_not_written_over(tmp_path: Path) -> None:
    sample = open_settings((), workspace=str(tmp_path)).evalset_folder / "hello_world.evalset.json"
    sample.write_text('{"eval_set_id": "edited", "eval_cases": []}')

    open_settings((), workspace=str(tmp_path))

    assert "edited" in sample.read_text()


def test_the_state_folder_is_for_this_user_alone(tmp_path: Path) -> None:
    settings = open_settings((), workspace=str(tmp_path))

    assert settings.state_folder.stat().st_mode & 0o777 == 0o700


def test_a_workspace_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)

    with pytest.raises(WorkspaceError, match=rf"{tmp_path.name}.*: Permission denied; name another workspace"):
        open_settings((), workspace=str(tmp_path))


@pytest.mark.parametrize("name", ["missing", "file.txt"])
def test_what_is_no_folder_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("")

    with pytest.raises(UsageError, match=rf"{name} is not a folder; name the folder that holds your agents"):
        open_settings((str(tmp_path / name),), workspace=str(tmp_path))
    with pytest.raises(UsageError, match=rf"{name} is not a folder; name the folder that holds .evaldesk"):
        open_settings((), workspace=str(tmp_path / name))


@pytest.mark.parametrize(("n_processors", "expected"), [(1, (1, 1)), (2, (1, 1)), (4, (3, 2)), (64, (63, 2))])
def test_a_large_machine_has_many_workers_and_few_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_processors: int, expected: tuple[int, int]
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: n_processors)

    settings = open_settings((), workspace=str(tmp_path), is_demo=True)

    assert (settings.n_workers, settings.n_warm_workers) == expected

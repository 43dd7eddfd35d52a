"""The model that a case names for its simulated user: one of the settings, in each door, and none beside these."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

from evaldesk import evaluate
from evaldesk.agents.users.users import CappedUser, ModelUser, user_of
from evaldesk.errors import UsageError
from evaldesk.model import Case, ModelOptions
from evaldesk.model.options import UserConfig
from evaldesk.settings import Settings
from evaldesk.store.evalsets import large

OWN: dict[str, Any] = {"starting_prompt": "Hi", "conversation_plan": "One. Leave.", "user_model": "demo/user"}


def write(place: CommandFolder, **scenario: Any) -> Path:
    """The set `plans` with a case of this scenario."""
    path = place.folder / "plans.evalset.json"
    cases = [{"eval_id": "a", "conversation_scenario": {**OWN, **scenario}}]
    path.write_text(json.dumps({"eval_set_id": "plans", "eval_cases": cases}))
    return path


def messages(place: CommandFolder, run_id: int) -> list[str]:
    return [turn.query for turn in place.store().runs.trial(run_id, 0, 0).transcript.turns]


def test_a_case_is_played_by_its_own_model_and_not_by_that_of_the_run(place: CommandFolder) -> None:
    (place.folder / "evaldesk.toml").write_text('models = ["demo/user"]\n[user]\nmodel = "openai/else"\n')

    place.eval(write(place))

    assert messages(place, 1) == ["Hi", "One.", "Leave."]


def test_a_function_of_the_agents_module_does_not_play_a_case_with_a_model(place: CommandFolder) -> None:
    (place.folder / "evaldesk.toml").write_text('models = ["demo/user"]\n')
    with (place.agent / "agent.py").open("a") as file:
        file.write("\n\ndef user_response_fn(state):\n    return None\n")

    place.eval(write(place))
    place.eval(write(place, user_model=""))

    assert [messages(place, run_id) for run_id in (1, 2)] == [["Hi", "One.", "Leave."], ["Hi"]]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_model_that_the_settings_do_not_list_is_refused_before_anything_is_played(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(large, "WHOLE", 10)
    path = write(place, user_model="openai/dear")

    result = place.eval(path)

    assert isinstance(result.exception, UsageError)
    assert "case 'a': the scenario names the model 'openai/dear' for its user" in str(result.exception)
    assert not place.store().runs.list()
    with pytest.raises(UsageError, match="openai/dear"):
        evaluate(place.agent, path, workspace=place.folder)


def test_a_large_set_of_scenarios_is_played(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "WHOLE", 10)

    result = place.eval(write(place, user_model=""), "--user-model", "demo/user")

    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert messages(place, 1) == ["Hi", "One.", "Leave."]


def user_of_case(config: UserConfig, **scenario: Any) -> ModelUser:
    user = user_of(Case("a", scenario={**OWN, **scenario}), "", config)
    assert isinstance(user, CappedUser)
    assert isinstance(user.user, ModelUser)
    return user.user


def test_another_model_gets_neither_the_address_nor_the_key_of_the_usual_one() -> None:
    options = ModelOptions("http://127.0.0.1:9/v1", "SECRET_KEY", temperature=0.5, extra={"api_key": "x"})
    config = UserConfig("openai/usual", options, models=("openai/usual", "demo/user"))

    own, usual = user_of_case(config), user_of_case(config, user_model="openai/usual")

    assert (own.model, own.config.options) == ("demo/user", ModelOptions(temperature=0.5))
    assert (usual.model, usual.config.options) == ("openai/usual", options)
    with pytest.raises(UsageError, match="'other/model'"):
        user_of_case(config, user_model="other/model")


@pytest.mark.parametrize("value", [7, None, ["openai/x"], "  ", {}])
def test_a_value_that_names_no_model_leaves_the_usual_one(value: Any) -> None:
    assert user_of_case(UserConfig("openai/usual"), user_model=value).model == "openai/usual"


def test_models_of_the_settings_are_those_that_a_case_may_name(tmp_path: Path) -> None:
    settings = Settings(tmp_path, (tmp_path,), models=("a/b", "c/d"), user=UserConfig("a/b", models=("e/f",)))

    assert settings.with_user_models(UserConfig("x/y", models=("z/z",))).models == ("a/b", "e/f", "c/d")

"""Criteria files: what ADK reads in them, what else they may say, what is refused and where, and writing them back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden_values import golden

from evaldesk.desk.criteria.criteria import (
    criteria_of,
    find_criteria_file,
    function_criterion,
    read_criteria,
    read_live,
    read_user,
)
from evaldesk.errors import EvaldeskError, FormatError, UsageError
from evaldesk.formats.criteria_file import CriteriaFile, read_criteria_file, write_criteria_file
from evaldesk.metrics.judges.options import JudgeOptions
from evaldesk.model import Criterion, ModelOptions
from evaldesk.model.options import UserConfig

SEVERAL = """{
  "criteria": {
    "tool_trajectory_avg_score": {"threshold": 1, "matchType": "IN_ORDER", "ignore_args": true},
    "response_match_score": "0.5",
    "tool_f1": {"threshold": null},
    "rewards:exact": 1.0,
    "mine": {"threshold": 0.5}
  },
  "custom_metrics": {"mine": {"codeConfig": {"name": "my_agent.metrics.mine"}, "metric_info":
    {"metric_name": "mine", "description": "Mine.", "metric_value_info":
      {"interval": {"min_value": -1, "max_value": 1}}}}},
  "user_simulator_config": {"model": "m", "max_allowed_invocations": 5},
  "num_runs": 3
}
"""


def read(text: str) -> CriteriaFile:
    return read_criteria_file(text.encode(), source="test_config.json")


def write(tmp_path: Path, value: Any, name: str = "test_config.json") -> Path:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return path


def test_a_file_says_all_it_says(tmp_path: Path) -> None:
    file = read(SEVERAL)

    assert read_criteria(write(tmp_path, SEVERAL)) == file.whole_criteria
    assert file.whole_criteria == (
        Criterion("tool_trajectory_avg_score", 1.0, {"match_type": "IN_ORDER", "ignore_args": True}),
        Criterion("response_match_score", 0.5),
        Criterion("tool_f1"),
        Criterion("rewards:exact", 1.0, {"function": "rewards:exact"}),
        Criterion("mine", 0.5, {"function": "my_agent.metrics:mine", "description": "Mine.", "low": -1, "high": 1}),
    )
    assert file.user_simulator == {"model": "m", "max_allowed_invocations": 5}
    assert file.extra["num_runs"] == 3


def test_a_file_is_written_back_as_it_was() -> None:
    assert write_criteria_file(read(SEVERAL)) == json.dumps(json.loads(SEVERAL), indent=2).encode() + b"\n"


def test_a_changed_criterion_leaves_the_others_as_they_stood() -> None:
    file = read(SEVERAL)
    changed = (replace(file.criteria[0], threshold=0.5), *file.criteria[1:4], Criterion("tool_exact", 1.0))

    found = json.loads(write_criteria_file(replace(file, criteria=changed)))

    assert found["criteria"] == {
        "tool_trajectory_avg_score": {"threshold": 0.5, "match_type": "IN_ORDER", "ignore_args": True},
        "response_match_score": "0.5",
        "tool_f1": {"threshold": None},
        "rewards:exact": 1.0,
        "tool_exact": 1.0,
    }
    assert (found["num_runs"], list(found)) == (3, list(json.loads(SEVERAL)))


def test_a_set_that_was_made_here_reads_back_the_same() -> None:
    made = CriteriaFile(
        (
            Criterion("tool_f1", 0.5),
            Criterion("m", None, {"function": "a:b"}),
            Criterion("a:b", 1.0, {"function": "a:b"}),
        ),
        {"x": {"function": "a.b:c", "low": 0, "high": 3, "description": "X."}},
        {"model": "m"},
    )

    assert read_criteria_file(write_criteria_file(made), source="x") == made


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('{"criteria": {\n"tool_f2": 1}}', ":2:12: criteria.tool_f2", "did you mean 'tool_f1'?"),
        ('{"criteria": {"tool_f1": 7}}', ":1:26: criteria.tool_f1", "Did you mean 0.7?"),
        (
            '{"criteria": {"tool_f1": {"threshold": 1,\n "arg": 1}}}',
            ":2:9: criteria.tool_f1.arg",
            "tool_f1 has no option 'arg'; did you mean 'args'?",
        ),
        ('{"criteria": {"tool_f1": null}}', ":1:26: criteria.tool_f1", "expected a threshold, such as 0.8"),
        ('{"criteria": {"tool_f1": "high"}}', ":1:26: criteria.tool_f1", "got a string"),
        (
            '{"criteria": {"tool_f1": {"args": "exact"}}}',
            ":1:26: criteria.tool_f1",
            "tool_f1 has no threshold; add one",
        ),
        ('{"criteria": []}', ":1:14: criteria", "expected an object, got a list"),
        ('{"critera": {}}', ":1:13: critera", "did you mean 'criteria'?"),
        ('{"criteria": {"tool_f1": 1, "tool_f1": 1}}', ":1:29", "is there twice in one object"),
        ('{"eval_cases": []}', ":1:1", "this is an eval set, not a criteria file"),
        (
            '{"criteria": {"m": 1}, "custom_metrics": {"m": {}}}',
            "custom_metrics.m",
            "expected an object, but it is missing",
        ),
        (
            '{"criteria": {"m": 1}, "custom_metrics": {"m": {"code_config": {"name": "mine"}}}}',
            "custom_metrics.m.code_config.name",
            "'mine' names no function in a module",
        ),
        (
            '{"criteria": {"m": 1}, "custom_metrics": {"m": {"code_config": {"name": "a.b", "args": [1]}}}}',
            "custom_metrics.m.code_config.args",
            "ADK gives a custom metric no arguments",
        ),
        ("[1]", ":1:1", "expected an object, got a list"),
        ("", "test_config.json", "the file is empty"),
    ],
)
def test_a_fault_is_refused_with_its_place(tmp_path: Path, text: str, place: str, message: str) -> None:
    path = write(tmp_path, text)

    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        read_criteria(path)

    assert str(caught.value).startswith(str(path))
    assert place in str(caught.value)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({"live_model_config": {}}, {"live": True}),
        ({"liveModelConfig": {"timeoutSeconds": 9}}, {"live": True, "live_timeout_s": 9}),
        ({"live_model_config": {"timeout_seconds": 2.5}}, {"live": True, "live_timeout_s": 2.5}),
        ({"live_model_config": None}, {}),
        ({}, {}),
    ],
)
def test_a_file_asks_for_live_sessions(tmp_path: Path, config: dict[str, Any], options: dict[str, Any]) -> None:
    path = write(tmp_path, {"criteria": {"response_match_score": 0.5}, **config})

    assert read_live(path) == options
    assert read_criteria(path) == (Criterion("response_match_score", 0.5),)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (3, "live_model_config must be an object"),
        ({"timeout_seconds": "long"}, "timeout_seconds must be a number"),
        ({"timeoutSeconds": 0}, "timeout_seconds must be 0.1 to 86400, not 0"),
    ],
)
def test_wrong_live_sessions_are_refused_with_their_line(tmp_path: Path, config: object, message: str) -> None:
    path = write(tmp_path, {"criteria": {"response_match_score": 0.5}, "live_model_config": config})

    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        read_criteria(path)

    assert "live_model_config" in str(caught.value.path)


def test_a_user_that_speaks_is_read_with_its_voice(tmp_path: Path) -> None:
    voice = {"audio_model": "gemini-tts", "audio_model_configuration": {}, "include_text_with_audio": True}
    user = {"type": "llm_audio", "model": "gemini-2.5-flash", "include_function_calls": True, **voice}

    found = read_user(write(tmp_path, {"criteria": {}, "user_simulator_config": user}))

    assert found is not None
    assert (found.is_spoken, found.model) == (True, "gemini/gemini-2.5-flash")


def test_a_file_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, {}, "test_config.json")

    with pytest.raises(
        UsageError, match=r"test_confg\.json: No such file or directory; did you mean .*test_config\.json"
    ):
        read_criteria(tmp_path / "test_confg.json")
    with pytest.raises(UsageError, match="there is no folder"):
        read_criteria(tmp_path / "nowhere" / "test_config.json")


def test_the_file_beside_an_eval_set_is_found(tmp_path: Path) -> None:
    evalset = tmp_path / "x.test.json"

    assert find_criteria_file(evalset) is None
    other = write(tmp_path, {}, "eval_config.json")
    assert find_criteria_file(evalset) == other
    first = write(tmp_path, {}, "test_config.json")
    assert find_criteria_file(evalset) == first


def test_the_simulated_user_is_read(tmp_path: Path) -> None:
    config = {
        "model": "gemini-2.5-flash",
        "maxAllowedInvocations": -1,
        "model_configuration": {"temperature": 0.5, "maxOutputTokens": 900},
        "custom_instructions": "{{ stop_signal }} {{ conversation_plan }} {{ conversation_history }}",
    }

    user = read_user(write(tmp_path, {"criteria": {}, "user_simulator_config": config}))

    assert user == UserConfig(
        model="gemini/gemini-2.5-flash",
        options=ModelOptions(temperature=0.5, max_tokens=900),
        max_turns=None,
        instructions="{{ stop_signal }} {{ conversation_plan }} (it follows as messages)",
    )
    assert read_user(write(tmp_path, {"criteria": {}})) is None


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"include_thoughts": True, "thinking_budget": 10240}, "high"),
        ({"thinkingBudget": 0}, "none"),
        ({"thinking_budget": 1024}, "low"),
        ({"thinking_budget": 1025}, "medium"),
        ({"thinking_budget": -1}, None),
        ({"include_thoughts": True}, None),
        ({"thinking_level": "LOW"}, "low"),
        (None, None),
    ],
)
def test_the_thinking_that_adk_asks_for_is_the_nearest_effort(
    tmp_path: Path, thinking: object, effort: str | None
) -> None:
    config = {"thinking_config": thinking, "temperature": 0.5}

    user = read_user(write(tmp_path, {"criteria": {}, "user_simulator_config": {"model_configuration": config}}))
    judge = JudgeOptions(judge_model_config=config)

    assert user
    assert user.options == ModelOptions(temperature=0.5, reasoning_effort=effort)
    assert judge.sampling == {"temperature": 0.5, "reasoning_effort": effort}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_configuration": {"thinking_config": 3}}, "thinking_config must be an object"),
        ({"model_configuration": {"thinking_config": {"budgte": 3}}}, "there are: include_thoughts, thinking_budget"),
        ({"model_configuration": {"thinking_config": {"thinking_level": "much"}}}, "must be one of none, minimal"),
        ({"model_configuration": {"thinking_config": {"thinking_budget": True}}}, "must be a number"),
        ({"modle": "m"}, "no key of user_simulator_config named 'modle'; did you mean 'model'?"),
        ({"type": "llm_video"}, "no simulated user of type 'llm_video'"),
        ({"audio_model": "gemini-tts"}, "no key of user_simulator_config named 'audio_model'"),
        ({"max_allowed_invocations": "many"}, "must be a whole number"),
        ({"max_allowed_invocations": 0}, "max_turns of the simulated user must be 1 to 1000000, not 0"),
        ({"model": 3}, "model must be a text"),
        ({"model_configuration": {"temprature": 1}}, "did you mean 'temperature'?"),
        ({"custom_instructions": "Be nice."}, "lack {{ conversation_plan }}"),
        ({"include_function_calls": True}, "shows its simulated user no function calls"),
    ],
)
def test_a_wrong_simulated_user_is_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    path = write(tmp_path, {"criteria": {}, "user_simulator_config": config})

    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        read_user(path)

    assert caught.value.path == "user_simulator_config"


def test_a_mapping_is_read_as_a_file() -> None:
    assert criteria_of({"tool_f1": 1, "a:b": True}) == (Criterion("tool_f1", 1.0), function_criterion("a:b", 1.0))
    with pytest.raises(UsageError, match=r"^criteria\.tool_f2: no metric named 'tool_f2'"):
        criteria_of({"tool_f2": 1})
    with pytest.raises(UsageError, match="not plain values"):
        criteria_of({"tool_f1": object()})
    with pytest.raises(UsageError, match="NaN or infinite; say a finite number"):
        criteria_of({"tool_f1": float("nan")})


def test_an_option_that_adk_passes_over_is_passed_over() -> None:
    mapping = {"tool_trajectory_avg_score": {"threshold": 1, "include_intermediate_responses_in_final": True}}

    assert criteria_of(mapping) == (Criterion("tool_trajectory_avg_score", 1.0),)


REFUSED_HERE = {
    "threshold_above_one": "out of range",
    "judge_unknown_option": "no option of judge_model_options named 'nope'",
}
"""What ADK takes and we do not: a metric over its range can never pass, and a misspelt option never does anything."""


def test_configs_are_read_as_adk_reads_them() -> None:
    rows = golden("adk_metrics")["eval_configs"]
    assert len(rows) == 10

    for row in rows:
        data = json.dumps(row["config"]).encode()
        if "error" in row["adk"]:
            with pytest.raises(FormatError):
                read_criteria_file(data, source=row["id"])
            continue
        file = read_criteria_file(data, source=row["id"])
        wanted = [(name, threshold, given) for name, threshold, given in row["adk"]["metrics"] if given]
        assert [(each.metric, each.threshold) for each in file.criteria] == [(name, value) for name, value, _ in wanted]
        for criterion, (_, _, said) in zip(file.criteria, wanted, strict=True):
            assert criterion.options.items() <= said.items(), row["id"]
        asked = row["config"].get("user_simulator_config")
        assert file.user_simulator == asked
        assert json.loads(write_criteria_file(file)) == row["config"]
        if row["id"] in REFUSED_HERE:
            with pytest.raises(UsageError, match=REFUSED_HERE[row["id"]]):
                criteria_of(row["config"].get("criteria", {}))
        else:
            assert criteria_of(row["config"].get("criteria", {})) == file.criteria


def test_match_type_is_spelled_as_in_adk() -> None:
    for row in golden("adk_metrics")["match_type_spellings"]:
        mapping = {"tool_trajectory_avg_score": {"threshold": 1, "match_type": row["match_type"]}}
        if isinstance(row["adk"], dict):
            with pytest.raises(UsageError):
                criteria_of(mapping)
        else:
            assert len(criteria_of(mapping)) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_value_is_read_or_refused_by_our_own_error(value: Any) -> None:
    for wrapped in (value, {"criteria": value}, {"criteria": {"m": value}}, {"custom_metrics": {"m": value}}):
        data = json.dumps(wrapped).encode()
        try:
            file = read_criteria_file(data, source="x")
        except EvaldeskError:
            continue
        assert json.loads(write_criteria_file(file)) == wrapped

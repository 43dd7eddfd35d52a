"""Datasets, traces, grades and configs of agents-cli: read, edited in their own form, written from ADK's and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.desk.criteria.criteria import (
    find_criteria_file,
    holds_criteria,
    open_criteria_file,
    read_criteria,
    ready_criteria,
)
from evaldesk.errors import FormatError, UsageError
from evaldesk.formats import case_from_json, case_to_json, losses, read_evalset, write_evalset
from evaldesk.formats.files import read_file, recognised
from evaldesk.metrics import build_metric, score_trial
from evaldesk.model import (
    Case,
    Criterion,
    EvalSet,
    Event,
    Expected,
    SessionInit,
    ToolCall,
    Transcript,
    Turn,
    TurnRecord,
)
from evaldesk.settings import read_settings

SAMPLES = Path(__file__).parent / "exchange_samples"
DATASET = (SAMPLES / "agents-cli.dataset.json").read_bytes()
TRACES = json.loads((SAMPLES / "agents-cli-traces.traces.json").read_text())
GRADES = json.loads((SAMPLES / "agents-cli-results.grades.json").read_text())


def _dataset(*cases: dict[str, Any]) -> bytes:
    return json.dumps({"eval_cases": list(cases)}, indent=2).encode()


def _content(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": [{"text": text}]}


def _user(text: str, **more: Any) -> dict[str, Any]:
    return {"author": "user", "content": _content(text), **more}


def _reply(text: str, **more: Any) -> dict[str, Any]:
    return {"author": "desk", "content": _content(text, "model"), **more}


def _read(data: bytes) -> EvalSet:
    return read_evalset(data, source="tests/eval/datasets/basic-dataset.json")


CASES: dict[str, dict[str, Any]] = {
    "prompt": {"eval_case_id": "a", "prompt": _content("Hi")},
    "no id": {"prompt": _content("Hi")},
    "reference": {"eval_case_id": "a", "prompt": _content("Hi"), "reference": {"response": _content("Yes", "model")}},
    "bare reference": {"eval_case_id": "a", "prompt": _content("Hi"), "reference": _content("Yes", "model")},
    "camel case": {"evalCaseId": "a", "agentData": {"turns": [{"turnIndex": 0, "events": [_user("Hi")]}]}},
    "history": {
        "eval_case_id": "a",
        "conversation_history": [{"turn_id": "0", "author": "user", "content": _content("One")}],
        "prompt": _content("Two"),
    },
    "continued": {
        "eval_case_id": "a",
        "agent_data": {
            "agents": {"desk": {"agent_id": "desk"}},
            "turns": [{"turn_index": 0, "events": [_user("One"), _reply("Ok"), _user("Two")]}],
        },
    },
    "state": {
        "eval_case_id": "a",
        "agent_data": {"turns": [{"turn_index": 0, "events": [_user("One", state_delta={"seat": 4})]}]},
    },
    "session": {
        "eval_case_id": "a",
        "prompt": _content("Hi"),
        "session_input": {"app_name": "app", "user_id": "u", "state": {"seat": 4}},
    },
    "scenario": {"eval_case_id": "a", "user_scenario": {"starting_prompt": "Hi", "conversation_plan": "Ask twice."}},
    "no calls": {"eval_case_id": "a", "prompt": _content("Hi"), "reference_trajectory": []},
    "unknown keys": {"eval_case_id": "a", "prompt": _content("Hi"), "context": "Row 12.", "mine": {"x": [1]}},
    "tags": {"eval_case_id": "a", "prompt": _content("Hi"), "tags": ["slow"], "final_session_state": {"seat": 5}},
}


@pytest.mark.parametrize("raw", CASES.values(), ids=CASES)
def test_a_case_is_written_back_as_it_was(raw: dict[str, Any]) -> None:
    evalset = _read(_dataset(raw))

    assert json.loads(write_evalset(evalset, "agents-cli")) == {"eval_cases": [raw]}
    assert case_to_json(evalset.cases[0]) == raw
    assert case_from_json(raw, "case").turns == evalset.cases[0].turns
    assert losses(evalset, "agents-cli") == ()


@pytest.mark.parametrize("raw", CASES.values(), ids=CASES)
def test_a_case_comes_back_from_the_form_of_adk(raw: dict[str, Any]) -> None:
    case = _read(_dataset(raw)).cases[0]

    adk = read_evalset(write_evalset(EvalSet("s", cases=(case,)), "adk"), source="s.evalset.json")
    again = _read(write_evalset(adk, "agents-cli")).cases[0]

    assert _facts(again) == _facts(case)


def _facts(case: Case) -> tuple[Any, ...]:
    turns = [(turn.query, turn.expected.tool_calls, turn.expected.reference) for turn in case.turns]
    return case.id, turns, case.scenario, dict(case.initial_state), case.final_state, case.rubrics, case.tags


def test_the_state_of_a_session_comes_back_by_its_own_key_and_by_events_of_the_user() -> None:
    raw = {
        "eval_case_id": "a",
        "session_input": {"app_name": "app", "user_id": "u", "state": {"plan": "gold"}},
        "agent_data": {
            "turns": [
                {
                    "turn_index": 0,
                    "events": [
                        _user("One", state_delta={"seat": 4}),
                        _reply("Ok", state_delta={"seen": 1}),
                        _user("Two"),
                    ],
                }
            ]
        },
    }

    imported = read_file(_dataset(raw), "basic-dataset.json")

    assert imported.evalset
    assert imported.evalset.cases[0].initial_state == {"plan": "gold", "seat": 4}
    assert any(
        "starts with its state; Google's tools leave out that of session_input" in w for w in imported.understood
    )
    assert any("The earlier messages of 1 case are played again" in words for words in imported.understood)


def test_a_state_of_adk_is_set_by_the_event_that_agents_cli_sends() -> None:
    case = Case("a", (Turn("Hi", Expected(reference="Yes")),), initial_session=SessionInit("app", "u", {"seat": 4}))

    raw = json.loads(write_evalset(EvalSet("s", cases=(case,)), "agents-cli"))["eval_cases"][0]

    assert raw["agent_data"]["turns"][0]["events"][0]["state_delta"] == {"seat": 4}
    assert "prompt" not in raw
    assert raw["session_input"] == {"app_name": "app", "user_id": "u"}


def test_a_conversation_of_adk_has_its_references_as_history_and_keeps_all_expectations() -> None:
    call = ToolCall("book", {"seat": 4})
    turns = (
        Turn("One", Expected((call,), reference="Ok")),
        Turn("Two", Expected((), (("desk", "wait"),), "Done"), ({"rubric_id": "r", "rubric_content": {}},)),
    )

    data = write_evalset(EvalSet("s", cases=(Case("a", turns),)), "agents-cli")
    events = [event for turn in json.loads(data)["eval_cases"][0]["agent_data"]["turns"] for event in turn["events"]]

    assert [(event["author"], event["content"]["parts"][0]["text"]) for event in events] == [
        ("user", "One"),
        ("agent", "Ok"),
        ("user", "Two"),
    ]
    again = [(turn.query, turn.expected.tool_calls, turn.expected.intermediate) for turn in _read(data).cases[0].turns]
    assert [(query, calls and calls[0].args, texts) for query, calls, texts in again] == [
        ("One", {"seat": 4}, ()),
        ("Two", (), (("desk", "wait"),)),
    ]
    assert _read(data).cases[0].turns[1].rubrics[0]["rubric_id"] == "r"


def test_an_edit_leaves_the_rest_of_the_file_alone() -> None:
    evalset = _read(DATASET)
    first, second = evalset.cases
    turns = (replace(second.turns[0], query="An aisle seat."), second.turns[1])
    edited = replace(
        second,
        turns=turns,
        rubrics=(*second.rubrics, {"rubric_id": "b", "rubric_content": {"text_property": "Short."}}),
    )

    before = json.loads(DATASET)
    after = json.loads(write_evalset(replace(evalset, cases=(first, edited)), "agents-cli"))

    events = before["eval_cases"][1]["agent_data"]["turns"][0]["events"]
    events[0]["content"]["parts"][0]["text"] = "An aisle seat."
    before["eval_cases"][1]["rubric_groups"]["manners"]["rubrics"].append(
        {"rubric_id": "b", "content": {"property": {"description": "Short."}}}
    )
    assert after == before


def test_a_removed_message_takes_its_answers_along_and_a_new_one_is_a_turn() -> None:
    case = _read(_dataset(CASES["continued"])).cases[0]

    shorter = case_to_json(replace(case, turns=case.turns[1:]))
    longer = case_to_json(replace(case, turns=(*case.turns, Turn("Three"))))

    assert shorter["agent_data"]["turns"] == [{"turn_index": 0, "events": [_user("Two")]}]
    assert shorter["agent_data"]["agents"] == CASES["continued"]["agent_data"]["agents"]
    assert [turn["turn_index"] for turn in longer["agent_data"]["turns"]] == [0, 1]
    assert longer["agent_data"]["turns"][1]["events"][0]["content"]["parts"] == [{"text": "Three"}]


def test_a_prompt_that_becomes_a_conversation_moves_to_events() -> None:
    case = _read(_dataset(CASES["prompt"])).cases[0]

    raw = case_to_json(replace(case, turns=(*case.turns, Turn("And then?"))))

    assert "prompt" not in raw
    assert len(raw["agent_data"]["turns"]) == 2


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"eval_case_id": "a", "prompt": "Hi"}, "expected an object"),
        ({"eval_case_id": "a", "promt": _content("Hi")}, "unknown key 'promt'; did you mean 'prompt'?"),
        ({"eval_case_id": "a", "agent_data": {"turns": []}}, "expected a prompt"),
        (
            {"eval_case_id": "a", "prompt": _content("x"), "agent_data": {"turns": [{"events": [_user("y")]}]}},
            "keep one",
        ),
        ({"eval_case_id": "a", "prompt": _content("x"), "rubric_groups": {"g": {"rubrics": [{}]}}}, "description"),
        ({"eval_case_id": "a", "user_scenario": {"goal": "x"}}, "the scenario has no conversation_plan"),
    ],
    ids=["text prompt", "misspelt", "no message", "two messages", "rubric", "scenario"],
)
def test_a_wrong_case_is_refused_with_its_place(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(FormatError, match=r"eval_cases\[0\]") as error:
        _read(_dataset(raw))

    assert words in str(error.value)


def test_traces_are_a_run_with_calls_times_and_a_set_without_the_answers() -> None:
    imported = read_file(json.dumps(TRACES).encode(), "traces_1.json")

    run = imported.runs[0]
    assert run.agent == "atlas"
    assert [call.name for call in run.results[0].transcript.turns[0].tool_calls] == ["look_up"]
    assert run.results[0].transcript.turns[0].duration_ms == 2000
    assert run.results[0].verdict == "unscored"
    assert imported.evalset
    assert imported.evalset.cases[0].turns[0].expected.reference == "Paris"
    assert recognised(write_evalset(imported.evalset, "agents-cli"), "x.json") == "agents-cli"


def test_several_responses_are_trials_and_a_case_without_an_answer_has_none() -> None:
    both = {
        **TRACES["eval_cases"][0],
        "responses": [{"response": _content(text, "model")} for text in ("It is Paris.", "Lyon")],
    }
    traces = {"eval_cases": [both, CASES["prompt"]]}

    run = read_file(json.dumps(traces).encode(), "traces.json").runs[0]

    assert [(each.case_index, each.trial_index, each.transcript.turns[-1].answer) for each in run.results] == [
        (0, 0, "It is Paris."),
        (0, 1, "Lyon"),
    ]
    assert run.plan.n_planned == 4


def test_grades_keep_scores_reasons_and_errors_and_decide_nothing() -> None:
    run = read_file(json.dumps(GRADES).encode(), "results_20261001_100000.json").runs[0]

    scores = {score.metric: score for score in run.results[0].scores}
    assert scores["helpful"].value == 4.0
    assert scores["helpful"].reason == "It names the capital."
    assert scores["final_response_quality_v1"].reason == "city: met. Paris is a city."
    assert scores["grounding_v1"].error is not None
    assert run.results[0].transcript.turns[0].answer == "It is Paris."
    assert run.results[0].verdict in ("unscored", "errored")


def test_a_case_that_the_summary_counts_and_the_file_lacks_is_planned() -> None:
    summary = [{"metric_name": "helpful", "num_cases_total": 3, "num_cases_valid": 3, "mean_score": 4.0}]

    run = read_file(json.dumps({**GRADES, "summary_metrics": summary}).encode(), "results.json").runs[0]

    assert (run.plan.n_planned, len(run.results)) == (3, 2)


CONFIG = """\
metrics_to_run: [judge, turns, hallucination, multi_turn_task_success, prompted]
custom_metrics:
  - name: judge
    custom_function_file: judge.py
    threshold: 3
  - name: turns
    custom_function: |
      def evaluate(instance):
          return {"score": len(instance["agent_data"]["turns"]), "explanation": instance["prompt"]["parts"][0]["text"]}
  - name: prompted
    prompt_template: "Rate {response} to {prompt} as {score}."
    judge_model: gemini-2.5-pro
    judge_model_sampling_count: 3
    threshold: 4
"""
JUDGE = """\
def evaluate(instance):
    parts = [part for turn in instance["agent_data"]["turns"] for e in turn["events"] for part in e["content"]["parts"]]
    calls = [part["function_call"]["name"] for part in parts if "function_call" in part]
    wanted = instance["reference"]["response"]["parts"][0]["text"]
    return len(calls) + 4 * (instance["response"]["parts"][0]["text"] == wanted)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A project's config with its functions, beside a folder of datasets."""
    folder = tmp_path / "tests/eval"
    (folder / "datasets").mkdir(parents=True)
    (folder / "judge.py").write_text(JUDGE)
    (folder / "datasets/basic-dataset.json").write_bytes(DATASET)
    path = folder / "eval_config.yaml"
    path.write_text(CONFIG)
    return path


def test_a_config_of_agents_cli_is_found_above_its_datasets_and_read_as_criteria(config: Path) -> None:
    assert find_criteria_file(config.parent / "datasets/basic-dataset.json") == config
    assert holds_criteria(config)

    criteria = {each.metric: each for each in read_criteria(config)}

    assert list(criteria) == ["judge", "turns", "hallucinations_v1", "rubric_score/prompted"]
    assert criteria["judge"].threshold == 3
    assert criteria["turns"].threshold is None
    assert open_criteria_file(config).left_out == (
        "multi_turn_task_success: only Google's evaluation service computes it",
    )
    assert criteria["rubric_score/prompted"] == Criterion(
        "rubric_score/prompted",
        0.75,
        {
            "rubric": "Rate ANSWER to QUESTION as {score}.",
            "score_min": 1.0,
            "score_max": 5.0,
            "judge_model": "gemini-2.5-pro",
            "num_samples": 3,
        },
    )
    build_metric(criteria["rubric_score/prompted"])


@pytest.mark.usefixtures("own_imports")
def test_functions_of_a_config_get_the_instance_that_agents_cli_gives(config: Path) -> None:
    call = ToolCall("look_up", {"x": 1})
    events = (
        Event("user_message", author="user", text="Hi"),
        Event("tool_call", call=call),
        Event("tool_result", call=call, result={"y": 2}),
        Event("agent_message", author="desk", text="Yes"),
    )
    transcript = Transcript((TurnRecord("Hi", events),))
    case = Case("a", (Turn("Hi", Expected(reference="Yes")),))

    scores = score_trial(transcript, case, read_criteria(config)[:2])

    assert [(score.metric, score.value, score.passed) for score in scores] == [
        ("judge", 5.0, True),
        ("turns", 1.0, None),
    ]
    assert scores[1].reason == "Hi"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metrics_to_run: [a\n", ":2: this is not YAML"),
        ("metrics_to_run: []\n", "metrics_to_run names no metric"),
        ("metrics_to_run: [safety]\n", "only Google's evaluation service computes it"),
        ("metrics_to_run: [a]\ncustom_metrics: [{name: a, custom_function_file: gone.py}]\n", "gone.py is not there"),
        ("metrics_to_run: [a]\ncustom_metrics: [{name: a, prompt_template: b, score_min: 6}]\n", "over score_min"),
    ],
    ids=["yaml", "empty", "managed", "no file", "scale"],
)
def test_a_wrong_config_is_refused(config: Path, text: str, words: str) -> None:
    config.write_text(text)

    with pytest.raises(FormatError) as error:
        read_criteria(config)

    assert words in str(error.value)


def test_a_source_that_is_no_python_is_refused_before_a_run(tmp_path: Path) -> None:
    criterion = Criterion("m", None, {"function": "m:evaluate", "source": "def evaluate(:"})

    with pytest.raises(UsageError, match="the source of m, line 1"):
        ready_criteria([criterion], read_settings(tmp_path, (), environment={}), "")

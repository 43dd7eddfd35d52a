"""The parts of OpenHands that benchmarks import: events, runtime, user, selection of instances."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from evaldesk.agents.workspaces import open_workspace
from evaldesk.errors import AgentError, UsageError
from evaldesk.integrations.openhands.kit import controller, trial
from evaldesk.integrations.openhands.kit.config import (
    LLMConfig,
    OpenHandsConfig,
    get_evaluation_parser,
    get_llm_config_arg,
    get_parser,
)
from evaldesk.integrations.openhands.kit.controller import ControllerRun, call_async_from_sync
from evaldesk.integrations.openhands.kit.events import (
    Action,
    CmdOutputObservation,
    CmdRunAction,
    ErrorObservation,
    Event,
    FileEditAction,
    FileReadAction,
    FileReadObservation,
    FileWriteAction,
    IPythonRunCellAction,
    MessageAction,
    NullObservation,
    Observation,
    event_from_dict,
    event_to_dict,
    get_pairs_from_events,
)
from evaldesk.integrations.openhands.kit.logger import openhands_logger
from evaldesk.integrations.openhands.kit.runtime import Runtime
from evaldesk.integrations.openhands.kit.shared import (
    EvalMetadata,
    EvalOutput,
    codeact_user_response,
    importable,
    make_metadata,
    prepare_dataset,
)
from evaldesk.integrations.openhands.kit.state import State
from evaldesk.integrations.openhands.metadata import Options, Task, profile_of
from evaldesk.integrations.openhands.recorded_rows import read_usages
from evaldesk.integrations.openhands.standins import EVALUATION, OPENHANDS
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.model import ModelOptions, Usage
from evaldesk.reading.strict_json import Document, JsonPosition


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    workspace = open_workspace(os.environ)
    trial.begin_trial(trial.InstanceTrial(workspace, None, print))
    found = Runtime(OpenHandsConfig())
    yield found
    found.close()
    workspace.close()
    trial._current.clear()


def run(runtime: Runtime, command: str) -> CmdOutputObservation:
    observed = runtime.run_action(CmdRunAction(command))
    assert isinstance(observed, CmdOutputObservation)
    return observed


def test_folder_and_variables_last_from_command_to_command(runtime: Runtime) -> None:
    run(runtime, "mkdir deep && cd deep && export WHO=me")

    observed = run(runtime, "pwd; echo $WHO")

    assert observed.content.split() == ["/workspace/deep", "me"]
    assert (observed.exit_code, observed.success) == (0, True)


def test_the_folder_of_the_container_is_the_workspace(runtime: Runtime) -> None:
    run(runtime, "echo hello > /workspace/a.txt")

    assert (runtime.workspace_root / "a.txt").read_text() == "hello\n"
    assert run(runtime, "cat '/workspace/a.txt'").content == "hello\n"
    assert run(runtime, "echo /workspaces /my/workspace").content == "/workspaces /my/workspace\n"


def test_a_command_that_fails_or_takes_too_long_says_so(runtime: Runtime) -> None:
    late = CmdRunAction("sleep 60")
    late.set_hard_timeout(0.2)

    assert run(runtime, "exit 3").exit_code == 3
    observed = runtime.run_action(late)
    assert isinstance(observed, CmdOutputObservation)
    assert (observed.exit_code, "killed at its time limit" in observed.content) == (-1, True)


def test_files_are_written_read_and_edited(runtime: Runtime) -> None:
    runtime.run_action(FileWriteAction("/workspace/a.py", "one\ntwo\n"))
    runtime.run_action(FileEditAction("/workspace/a.py", "str_replace", old_str="two", new_str="three"))
    runtime.run_action(FileEditAction("/workspace/a.py", "insert", new_str="zero", insert_line=0))

    observed = runtime.run_action(FileReadAction("/workspace/a.py"))

    assert isinstance(observed, FileReadObservation)
    assert observed.content == "zero\none\nthree\n"
    assert run(runtime, "python3 a.py").exit_code != 0
    assert runtime.run_action(IPythonRunCellAction("print(1 + 1)")).content == "2\n"


@pytest.mark.parametrize("action", [FileReadAction("../../etc/passwd"), FileWriteAction("/workspace/../../x", "no")])
def test_paths_outside_of_the_workspace_are_refused(runtime: Runtime, action: Action) -> None:
    observed = runtime.run_action(action)

    assert isinstance(observed, ErrorObservation)
    assert "outside of the workspace" in observed.content


def test_a_runtime_outside_of_a_trial_is_refused() -> None:
    with pytest.raises(AgentError, match="only while process_instance runs"):
        Runtime()


EVENTS: list[Event] = [
    MessageAction("hello", wait_for_response=True),
    CmdRunAction("ls", thought="I look"),
    CmdOutputObservation("a.txt", command="ls"),
    FileReadAction("a.txt"),
    ErrorObservation("no"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_read_back_from_its_dict(event: Event) -> None:
    event.join(4, "agent", cause=3 if isinstance(event, Observation) else None)

    again = event_from_dict(json.loads(json.dumps(event_to_dict(event))))

    assert again == event
    assert (again.id, again.source, again.cause) == (4, event.source, event.cause)


def test_actions_are_paired_with_their_observations() -> None:
    state = State()
    for event, cause in ((MessageAction("do it"), None), (CmdRunAction("ls"), None), (CmdOutputObservation("a"), 1)):
        state.join(event, "agent", cause)

    pairs = get_pairs_from_events(state.history)

    assert [(type(action), type(seen)) for action, seen in pairs] == [
        (MessageAction, NullObservation),
        (CmdRunAction, CmdOutputObservation),
    ]


def test_the_user_offers_to_give_up_from_the_second_message_on() -> None:
    state = State()
    state.join(MessageAction("the task"), "user")
    assert "give up" not in codeact_user_response(state)

    state.join(MessageAction("and?"), "user")

    assert "give up" in codeact_user_response(state)
    state.join(MessageAction("42"), "agent")
    assert codeact_user_response(state, try_parse=lambda action: action.content) == "/exit"


def test_a_run_of_the_agent_is_awaited_or_read_as_its_state() -> None:
    async def work() -> State:
        await asyncio.sleep(0)
        return State(iteration=3)

    assert asyncio.run(ControllerRun(work())).iteration == 3
    assert ControllerRun(work()).iteration == 3
    assert call_async_from_sync(lambda: ControllerRun(work())).iteration == 3


def test_the_model_call_has_the_run_options_and_cached_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[ModelCall] = []

    async def complete(call: ModelCall, **_: Any) -> ModelReply:
        asked.append(call)
        return ModelReply("done", (), Usage("m", tokens_in=9, tokens_out=1, tokens_cached=4))

    monkeypatch.setattr(controller, "complete", complete)
    options = ModelOptions(reasoning_effort="low", extra={"top_k": 3})
    task = Task("m:f", "", (), Options(), {}, "", {}, model="m", model_options=options)
    group = LLMConfig.model_validate({"model": "m", "reasoning_effort": "high", "ollama_base_url": "http://x"})
    workspace = open_workspace(os.environ)
    try:
        for profile, config in ((profile_of(task), None), (None, group)):
            trial.begin_trial(trial.InstanceTrial(workspace, profile, print))
            given = OpenHandsConfig(llms={"llm": config} if config else {})
            metrics = controller.run_controller(given, MessageAction("go")).metrics.get()
    finally:
        workspace.close()
        trial._current.clear()

    assert [(call.reasoning_effort, call.extra) for call in asked] == [("low", {"top_k": 3}), ("high", {})]
    assert [usage.tokens_cached for usage in read_usages(JsonPosition(Document(metrics)), metrics)] == [4]


def test_a_finished_run_may_be_awaited_or_read_again() -> None:
    async def work() -> State:
        return State(iteration=3)

    async def awaited() -> State:
        return await ended

    ended = ControllerRun(work())
    ended.finish()

    assert ended.finish().iteration == asyncio.run(ended).iteration == asyncio.run(awaited()).iteration == 3


def test_instances_are_drawn_as_openhands_draws_them(tmp_path: Path) -> None:
    import pandas as pd  # takes a second, also of the workers that play other tests

    table = pd.DataFrame({"instance_id": [f"i{n}" for n in range(10)]})
    output = tmp_path / "output.jsonl"
    output.write_text('{"instance_id": "i8", "error": null}\n{"instance_id": "i1", "error": "broken"}\n{"inst')

    drawn = prepare_dataset(table, str(output), 4)

    expected = [each for each in table.sample(4, random_state=42)["instance_id"] if each != "i8"]
    assert list(drawn["instance_id"]) == expected
    named = prepare_dataset(table, str(output), 1, eval_ids=["i1", "i8", "i3"])
    assert list(named["instance_id"]) == ["i1", "i3"]
    with pytest.raises(ValueError, match="no instance nobody"):
        prepare_dataset(table, str(output), None, eval_ids=["nobody"])


def test_metadata_names_the_folder_and_no_key(tmp_path: Path) -> None:
    llm = LLMConfig(model="openai/gpt:4", api_key=SecretStr("sk-a-key-that-is-secret"))

    found = make_metadata(llm, "Set", "CodeActAgent", 7, "try", str(tmp_path))

    assert found.eval_output_dir == str(tmp_path / "Set/CodeActAgent/gpt_4_maxiter_7_N_try")
    assert found.start_time
    assert "sk-a-key" not in found.model_dump_json() + repr(found)
    found.llm_config.temperature = 0.3  # type: ignore[union-attr]
    again = EvalMetadata.model_validate_json(found.model_dump_json())
    assert again.llm_config is not None
    assert again.llm_config.temperature == 0.3


def test_a_group_of_models_is_read_under_each_of_its_names(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[llm]\ntemperature = 0.1\n[llm.small]\nmodel = "openai/small"\nmodify_params = false\n')

    found = [get_llm_config_arg(name, str(file)) for name in ("small", "llm.small", "[llm.small]")]

    assert [each.model for each in found if each] == ["openai/small"] * 3
    assert found[0] is not None
    assert (found[0].temperature, found[0].modify_params) == (0.1, False)
    assert get_llm_config_arg("nobody", str(file)) is None


def test_the_arguments_of_the_main_program_are_those_of_the_guide() -> None:
    found = get_parser().parse_args(["-i", "10", "-t", "say hello", "-c", "CodeActAgent", "-l", "llm"])

    assert (found.max_iterations, found.task, found.agent_cls, found.llm_config) == (
        10,
        "say hello",
        "CodeActAgent",
        "llm",
    )


def test_the_score_key_is_an_argument_of_plain_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALDESK_SCORE_KEY", "x")
    del os.environ["EVALDESK_SCORE_KEY"]

    without = get_evaluation_parser().parse_args([])
    assert "EVALDESK_SCORE_KEY" not in os.environ
    get_evaluation_parser().parse_args(["--score-key", "resolved"])

    assert without.score_key is None
    assert os.environ["EVALDESK_SCORE_KEY"] == "resolved"


def test_a_wrong_group_of_models_is_answered_with_the_groups(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[llm]\nmodel = "m"\n[llm.eval_gpt]\nmodel = "n"\n')

    with caplog.at_level("ERROR", logger=openhands_logger.name):
        openhands_logger.addHandler(caplog.handler)
        assert get_llm_config_arg("nope", str(file)) is None
        openhands_logger.removeHandler(caplog.handler)

    assert "there are: [llm], [llm.eval_gpt]" in caplog.text


def test_a_script_without_a_number_of_iterations_ends_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_metadata(LLMConfig(model="m"), "d", "CodeActAgent", None, None, "outputs")

    assert ended.value.code == 2
    assert "add -i N, such as -i 30" in capsys.readouterr().err


def test_a_function_that_no_other_process_can_import_is_refused() -> None:
    def inside() -> None:
        """Is at no module's top."""

    for function in (inside, lambda: None):
        with pytest.raises(UsageError, match="top level"):
            importable(function)
    assert importable(run)[0].endswith("test_openhands_kit:run")


def test_every_name_of_a_standin_exists() -> None:
    for package in (OPENHANDS, EVALUATION):
        for sources in package.modules.values():
            for name in sources:
                module = importlib.import_module(f"{package.kit}.{name}")
                assert all(hasattr(module, public) for public in module.__all__)


def test_a_result_needs_an_id_and_a_test_result() -> None:
    rows: list[dict[str, Any]] = [{"instance_id": "a", "test_result": {}, "status": "error"}]

    assert EvalOutput(**rows[0]).model_dump()["test_result"] == {}
    with pytest.raises(ValueError, match="test_result"):
        EvalOutput(instance_id="a")  # type: ignore[call-arg]

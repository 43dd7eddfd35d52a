"""The script of a benchmark in the shape that OpenHands' own benchmarks have."""

SCRIPT = """
import asyncio
import os

import pandas as pd

import openhands.agenthub
from evaluation.utils.shared import (
    EvalMetadata,
    EvalOutput,
    codeact_user_response,
    compatibility_for_eval_history_pairs,
    get_default_sandbox_config_for_eval,
    make_metadata,
    prepare_dataset,
    reset_logger_for_multiprocessing,
    run_evaluation,
)
from openhands.controller.state.state import State
from openhands.core.config import OpenHandsConfig, get_evaluation_parser, get_llm_config_arg
from openhands.core.logger import openhands_logger as logger
from openhands.core.main import create_runtime, run_controller
from openhands.events.action import CmdRunAction, MessageAction
from openhands.events.observation import CmdOutputObservation, ErrorObservation
from openhands.runtime.base import Runtime
from openhands.utils.async_utils import call_async_from_sync

AGENT_CLS_TO_FAKE_USER_RESPONSE_FN = {"CodeActAgent": codeact_user_response}


def get_config(metadata: EvalMetadata) -> OpenHandsConfig:
    sandbox_config = get_default_sandbox_config_for_eval()
    sandbox_config.base_container_image = "python:3.12-bookworm"
    config = OpenHandsConfig(
        default_agent=metadata.agent_class,
        run_as_openhands=False,
        runtime=os.environ.get("RUNTIME", "docker"),
        max_iterations=metadata.max_iterations,
        sandbox=sandbox_config,
        workspace_base=None,
        workspace_mount_path=None,
    )
    config.set_llm_config(metadata.llm_config)
    agent_config = config.get_agent_config(metadata.agent_class)
    agent_config.enable_prompt_extensions = False
    return config


def initialize_runtime(runtime: Runtime, instance: pd.Series):
    logger.info("BEGIN Runtime Initialization Fn")
    obs: CmdOutputObservation
    obs = runtime.run_action(CmdRunAction(command="mkdir -p /workspace/src && cd /workspace/src"))
    assert obs.exit_code == 0
    obs = runtime.run_action(CmdRunAction(command=f"echo {instance.number} > number.txt && pwd"))
    assert obs.exit_code == 0 and obs.content.strip() == "/workspace/src", obs.content


def complete_runtime(runtime: Runtime, instance: pd.Series):
    obs = runtime.run_action(CmdRunAction(command="cat /workspace/src/answer.txt"))
    answer = obs.content.strip() if isinstance(obs, CmdOutputObservation) and obs.exit_code == 0 else ""
    return {"answer": answer, "resolved": answer == str(instance["number"] * 2)}


def process_instance(instance: pd.Series, metadata: EvalMetadata, reset_logger: bool = True) -> EvalOutput:
    config = get_config(metadata)
    assert isinstance(instance, pd.Series)
    if reset_logger:
        log_dir = os.path.join(metadata.eval_output_dir, "infer_logs")
        reset_logger_for_multiprocessing(logger, instance.instance_id, log_dir)
    else:
        logger.info(f"Starting evaluation for instance {instance.instance_id}.")
    metadata.llm_config.temperature = 0.5
    instruction = f"Write twice the number in number.txt to answer.txt. {metadata.details['mode']}"

    runtime = create_runtime(config)
    call_async_from_sync(runtime.connect)
    initialize_runtime(runtime, instance)

    state: State | None = asyncio.run(
        run_controller(
            config=config,
            initial_user_action=MessageAction(content=instruction),
            runtime=runtime,
            fake_user_response_fn=AGENT_CLS_TO_FAKE_USER_RESPONSE_FN[metadata.agent_class],
        )
    )
    if state is None:
        raise ValueError("State should not be None.")
    test_result = complete_runtime(runtime, instance)
    runtime.close()

    return EvalOutput(
        instance_id=str(instance.instance_id),
        instance=instance.to_dict(),
        instruction=instruction,
        metadata=metadata,
        history=compatibility_for_eval_history_pairs(state.history),
        metrics=state.metrics.get() if state.metrics else None,
        error=state.last_error if state and state.last_error else None,
        test_result=test_result,
    )


if __name__ == "__main__":
    parser = get_evaluation_parser()
    parser.add_argument("--mode", type=str, default="plain")
    args, _ = parser.parse_known_args()

    dataset = pd.read_json("numbers.jsonl", lines=True)
    llm_config = None
    if args.llm_config:
        llm_config = get_llm_config_arg(args.llm_config)
        llm_config.modify_params = False
    if llm_config is None:
        raise ValueError(f"Could not find LLM config: --llm_config {args.llm_config}")

    metadata = make_metadata(
        llm_config, "Numbers", args.agent_cls, args.max_iterations, args.eval_note, args.eval_output_dir,
        details={"mode": args.mode},
    )
    output_file = os.path.join(metadata.eval_output_dir, "output.jsonl")
    eval_ids = args.eval_ids.split(",") if args.eval_ids else None
    instances = prepare_dataset(dataset, output_file, args.eval_n_limit, eval_ids=eval_ids)
    run_evaluation(instances, metadata, output_file, args.eval_num_workers, process_instance)
"""

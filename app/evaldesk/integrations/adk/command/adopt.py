"""Projects of ADK: their parts, the commands and imports that change, and the differences for their users."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from evaldesk.desk.adopting import PartKind, ToolPackage, ToolProject, text_of

_WITHOUT_OPTIONS_OF_ADK_ALONE = r"(?!(?:[^\n;&|#]|\\\n){0,500}--(?:eval_storage_uri|log_level)\b)"
"""A command with an option that ours does not have stays as it is, also on a continued line."""
_AGENTS_CLI = re.compile(r"\bagents-cli eval run(?P<arguments>(?:[ \t]+[^\s;&|#]+)*)")
_MANIFEST = re.compile(r"(^|/)agents-cli-manifest\.yaml$")
_AGENT_FOLDER = re.compile(r"^agent_directory:[ \t]*[\"']?(?P<name>[\w./-]+)", re.MULTILINE)
_DATASET_OF_PROJECT = "tests/eval/datasets/basic-dataset.json"


def command_rewriter(folder: Path, names: Sequence[str]) -> Callable[[str], str]:
    """The change of commands of agents-cli, whose agent is in the folder that its manifest names."""
    manifests = (_AGENT_FOLDER.search(text_of(folder / name)) for name in names if _MANIFEST.search(name))
    agent = next((match["name"] for match in manifests if match), "app")
    return partial(_AGENTS_CLI.sub, partial(_own_eval_command, agent))


def _own_eval_command(agent: str, match: re.Match[str]) -> str:
    """The command of ours for an `agents-cli eval run`; the same text where an option has no equivalent."""
    words = match["arguments"].split()
    values: dict[str, str] = {}
    while words:
        option, is_joined, value = words.pop(0).partition("=")
        if not is_joined and words:
            value = words.pop(0)
        if option not in ("--dataset", "--config") or not value or option in values:
            return match[0]
        values[option] = value
    config = f" --config-file-path {values['--config']}" if "--config" in values else ""
    return f"evaldesk eval {agent} {values.get('--dataset', _DATASET_OF_PROJECT)}{config}"


PROJECT = ToolProject(
    parts=(
        PartKind(
            "agent", re.compile(r"(^|/)(agent|__init__)\.py$"), re.compile(r"^(root_agent|app)\b.*=", re.MULTILINE)
        ),
        PartKind("agent", re.compile(r"(^|/)root_agent\.yaml$")),
        PartKind("eval set", re.compile(r"\.(evalset|test)\.json$|(^|/)eval/datasets/[^/]+\.json$")),
        PartKind("criteria", re.compile(r"(^|/)(test_config\.json|eval/eval_config\.(ya?ml|json))$")),
        PartKind("project of agents-cli", re.compile(r"(^|/)agents-cli-manifest\.yaml$")),
        PartKind("sessions", re.compile(r"(^|/)\.adk/session\.db$|\.session\.json$")),
        PartKind("result", re.compile(r"\.evalset_result\.json$"), is_history=True),
        PartKind("result", re.compile(r"(^|/)artifacts/grade_results/[^/]+\.json$"), is_history=True),
        PartKind("traces", re.compile(r"(^|/)artifacts/traces/[^/]+\.json$"), is_history=True),
        PartKind("test module", re.compile(r"\.py$"), re.compile(r"google\.adk\.evaluation")),
    ),
    package=ToolPackage(
        "google-adk",
        "evaldesk[adk]",
        "eval",
        re.compile(r"\bgoogle\.adk\.(evaluation|optimization)\b|\badk (eval|eval_set|optimize)\b"),
    ),
    differences=(
        "`tool_trajectory_avg_score` is that of ADK 2.13: a turn scores 1 or 0. The document describes single"
        " steps, which `tool_recall` and `tool_precision` count.",
        "A metric that crashed makes its trial errored, and the run undecided (exit code 3); `adk eval` "
        "ignores the metric and passes. Where the verdicts of ADK differ, the line says why; `--compat adk` "
        "gives ADK's own.",
        "An expected call without `args` asks for no arguments, as `{}` does. ADK compares null, which no call of "
        "an agent equals; `--compat adk` does so too.",
        "A turn that reports no model call has no `inference_call_count_v1`, and the mean leaves it out. ADK counts "
        "it as 0; `--compat adk` does so too.",
        "Each trial has a verdict of its own, so a case that fails one run in two does not pass. `AgentEvaluator` "
        "pools its `num_runs`; `--compat adk-pooled --n 2` does so too.",
    ),
    commands=(
        (re.compile(rf"\badk eval(?=\s){_WITHOUT_OPTIONS_OF_ADK_ALONE}"), "evaldesk eval"),
        (
            re.compile(rf"\badk eval_set(?=[ \t]+(?:create|add_eval_case)\s){_WITHOUT_OPTIONS_OF_ADK_ALONE}"),
            "evaldesk eval_set",
        ),
        (re.compile(r"\badk web(?=\s|$)"), "evaldesk ui"),
    ),
    imports=(
        (
            re.compile(
                r"^([ \t]*)from google\.adk\.evaluation(?:\.agent_evaluator)? import AgentEvaluator[ \t]*$",
                re.MULTILINE,
            ),
            r"\1from evaldesk import AgentEvaluator",
        ),
    ),
    command_rewriter=command_rewriter,
)

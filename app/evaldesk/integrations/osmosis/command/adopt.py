"""Projects of Osmosis: their parts, the commands that change, and the differences for their users."""

from __future__ import annotations

import re

from evaldesk.desk.adopting import PartKind, ToolPackage, ToolProject

PROJECT = ToolProject(
    parts=(
        PartKind(
            "agent",
            re.compile(r"\.py$"),
            re.compile(r"^class \w+\(.*\b(RolloutAgentLoop|AgentWorkflow)\b", re.MULTILINE),
        ),
        PartKind("data set", re.compile(r"\.(jsonl|json|parquet|csv)$"), re.compile(r'"?user_prompt"?\s*[:,]')),
        PartKind("run file", re.compile(r"\.toml$"), re.compile(r"^\[experiment\]", re.MULTILINE)),
        PartKind(
            "eval function",
            re.compile(r"\.py$"),
            re.compile(r"^@osmosis_reward|^(async )?def \w+\(solution_str\b", re.MULTILINE),
        ),
        PartKind("cache", re.compile(r"(^|/)\.osmosis/cache/eval/.+\.json$"), is_history=True),
        PartKind("result", re.compile(r"\.json$"), re.compile(r'"(eval_fns|config_hash)"\s*:'), is_history=True),
        PartKind("result", re.compile(r"(^|/)\.osmosis/evals/[^/]+/index\.jsonl$"), is_history=True),
    ),
    package=ToolPackage("osmosis-ai", "evaldesk"),
    differences=(
        "A run in which trials broke off ends with exit code 3, and errors are not zeros; Osmosis ends with 0."
        " `--compat osmosis` answers as Osmosis does.",
        "An eval function that raised is an error of its trial; with `--compat osmosis` its score is 0 and "
        "stands in `scores`.",
        "A trial ends after 120 seconds, or after `--timeout`; Osmosis waits for a rollout without a limit. A trial "
        "that ended so has `success: false`.",
        "Without `limit` a terminal asks, and `--yes` means all rows; `--sample` draws 10 %, always the same "
        "rows. The platform draws a new 10 % each time.",
        "The code comes from the checkout on your machine, without a push. `commit_sha` and `branch` play "
        "that revision, from a git worktree of it.",
    ),
    commands=((re.compile(r"\bosmosis (eval|eval-rubric)(?=\s)"), r"evaldesk \1"),),
)

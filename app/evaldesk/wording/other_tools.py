"""Differences for users of other tools; docs/coming-from.md has the same sentences, each held by a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DIFFERENCES: Mapping[str, Sequence[str]] = {
    "adk": (
        "`tool_trajectory_avg_score` is that of ADK 2.13: a turn scores 1 or 0. The document describes single"
        " steps, which `tool_recall` and `tool_precision` count.",
        "A metric that crashed makes its trial errored, and the run undecided (exit code 3); `adk eval` "
        "ignores the metric and passes. Where the verdicts of ADK differ, the line says why; `--compat adk` "
        "gives ADK's own.",
    ),
    "osmosis": (
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
    "openhands": (
        "`openhands/core/main.py` is not a program of Evaldesk; its flags `-i -t -c -l` are those of the "
        "argument parsers that scripts import.",
        "There is no container, no browser and no delegation; commands run as you. The key of `test_result` "
        "that decides is named by `--score-key`.",
        "An instance that raises is errored after one attempt, and a second start plays it again; OpenHands plays "
        "it up to five times more at once (`max_retries`).",
    ),
}

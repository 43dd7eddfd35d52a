"""What `AgentEvaluator` says of its runs: details, rows, warnings, and the failure. (docs/ci.md, "As ADK judges")"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaldesk.desk.adk_verdict import adk_failures, pooled_scores
from evaldesk.report.run_result import CaseResult, RunResult
from evaldesk.report.turn_text import first_words, trial_text

POOLED = "As ADK judges: each metric by its mean over all turns of all runs."


class NotJudgedWarning(UserWarning):
    """A case passed although some of its turns could not be judged: ADK leaves those out of the mean."""


def conclude(
    agent_module: str, results: Sequence[RunResult], is_detailed: bool, output_file: str | os.PathLike[str] | None
) -> None:
    """Say and write what was asked for, and raise when ADK would."""
    __tracebackhide__ = True
    if is_detailed:
        sys.stdout.write("".join(_details(result) for result in results))
    if output_file is not None:
        from evaldesk.report.adk_rows import append_adk_rows

        append_adk_rows(Path(output_file), results)
    failures = [failure for result in results for case in result if (failure := failure_text(case, result))]
    if failures:
        raise AssertionError("\n\n".join([f"{agent_module} did not pass. {POOLED}", *failures]))
    for said in (said for result in results for case in result for said in _missing(case, result)):
        warnings.warn(said, NotJudgedWarning, stacklevel=2)


def failure_text(case: CaseResult, result: RunResult) -> str:
    """Why ADK would fail a case, and the turns of its first trial that differ; empty when it would pass it."""
    reasons = adk_failures(case, result.config.criteria)
    if not reasons:
        return ""
    said = "\n".join([f"{result.config.evalset_id} / {case.id}: {case.n_passed} of {case.n_planned} passed", *reasons])
    first = next((trial for trial in case if trial.verdict != "passed"), None)
    if first is None:
        return said if len(case) else f"{said}; {result.reason or 'the run was stopped before they were played'}"
    head = f"{said}\ntrial {first.trial_index + 1} {first.verdict}: {first_words(case.case, first)}"
    return f"{head}\n{trial_text(case.case, first)}"


def _missing(case: CaseResult, result: RunResult) -> Iterator[str]:
    for each in pooled_scores(case, result.config.criteria):
        if each.n_missing:
            yield (
                f"{result.config.evalset_id} / {case.id}: {each.metric} could not judge {each.n_missing} of "
                f"{each.n_turns} turns; as in ADK the mean leaves them out"
            )


def _details(result: RunResult) -> str:
    lines = [f"{result.config.evalset_id}: {result}"]
    for case in result:
        lines.append(f"{case.id}: {case.n_passed} of {case.n_planned} passed")
        lines += [each.sentence(case.n_planned) for each in pooled_scores(case, result.config.criteria)]
        lines += [f"trial {trial.trial_index + 1} {trial.verdict}\n{case.diff(at)}" for at, trial in enumerate(case)]
    return "\n".join(lines) + "\n"

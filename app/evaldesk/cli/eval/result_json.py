"""Runs and gates as JSON: of `evaldesk eval --json`, and the input of a later `--baseline`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from evaldesk import __version__
from evaldesk.cli.eval.playing import Played
from evaldesk.desk.runs.baseline import VERSION, bar_object, case_object, days_object
from evaldesk.desk.runs.gates.bars import bars_of
from evaldesk.desk.runs.gates.conclusion import CaseNumbers
from evaldesk.desk.runs.shard_files import shard_object
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.gate_options import GATES_BY_NAME
from evaldesk.model import Conclusion
from evaldesk.model.comparison import CaseChange, PlayedCase, RunChange
from evaldesk.pages.runs.objects import agent_objects, conclusion_object, counts_object, metric_objects, run_object
from evaldesk.wording.comparison import change_sentence


def result_json(
    runs: StoredRuns, played_runs: Sequence[Played], conclusion: Conclusion, change: RunChange | None = None
) -> str:
    """The runs with their cases and the conclusion, as one JSON object; `change` is against the baseline."""
    result: dict[str, Any] = {"evaldesk_version": __version__, "version": VERSION, **conclusion_object(conclusion)}
    if change is not None:
        result["baseline"] = baseline_object(change)
    cases = iter(runs.played_cases([each.run for each in played_runs]))
    result["runs"] = [_run_object(runs, each, list(islice(cases, each.run.n_cases))) for each in played_runs]
    return json.dumps(result, indent=2, ensure_ascii=False)


def baseline_object(change: RunChange) -> dict[str, Any]:
    """The change of each case since the baseline."""
    regressed, again = ({case.key.place for case in cases} for cases in (change.regressions, change.played_again))
    return {
        "name": change.name,
        "rule": change.rule,
        "confirm": None if change.rule != "confirm" else GATES_BY_NAME["confirm"].value_words(change.confirm),
        "sentence": change_sentence(change),
        "n_regressed": len(change.regressions),
        "suites": [asdict(suite) for suite in change.suites],
        "cases": [
            {
                "evalset": case.key.evalset,
                "case_id": case.key.case_id,
                "ordinal": case.key.ordinal,
                "state": case.state,
                "is_regression": case.key.place in regressed,
                **({} if case.chance is None else {"chance": case.chance}),
                **({"confirming": _confirming_object(case)} if case.key.place in again else {}),
            }
            for case in change.cases
        ],
    }


def _confirming_object(case: CaseChange) -> dict[str, int]:
    """The fresh trials of a case that seems to have regressed; they are in no other number."""
    letters = case.after.confirming if case.after else ""
    return {"n_passed": letters.count("p"), "n_failed": letters.count("f"), "n_planned": len(letters)}


def _run_object(runs: StoredRuns, played: Played, played_cases: Sequence[PlayedCase]) -> dict[str, Any]:
    run = played.run
    numbers = runs.numbers(run)
    played_cases, days = runs.with_history(run, played_cases)
    others = [asdict(verdict) for verdict in runs.by_other_tools(run).verdicts]
    pairs = zip(played_cases, runs.case_numbers(run), strict=True)
    authors = run.config.tag_authors
    cases = [case_object(each) | _case_object(case, authors.get(case.key.case_id)) for each, case in pairs]
    measures = {
        "capture": list(runs.captures(run)),
        "metrics": metric_objects(runs, run),
        "agents": agent_objects(runs, run),
    }
    criteria = [bar_object(bar) for bar in bars_of(run.config.criteria)]
    of_later = {"criteria": criteria, "history_days": days_object(days)}
    result = {**run_object(run, numbers), **measures, **of_later, "cases": cases, "other_verdicts": others}
    return result | ({"shard": shard_object(runs, run, played.job.evalset)} if run.config.shard else {})


def _case_object(case: CaseNumbers, tag_author: str | None) -> dict[str, Any]:
    return {
        **({} if tag_author is None else {"tag_author": tag_author}),
        "case_id": case.key.case_id,
        "is_passed": case.is_passed,
        **counts_object(case.counts),
        "pass_rate": case.counts.rate,
    }

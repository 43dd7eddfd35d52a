"""Trials as rows of a table: for pandas, CSV, JSON lines and Parquet alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TypeAlias

from evaldesk.model import Case, RunConfig, Score, TrialResult
from evaldesk.model.agent_tree import AgentActions, several_agents

Cell: TypeAlias = str | int | float | bool | None

_OF_TRIAL: Mapping[str, Callable[[Case, TrialResult, RunConfig], Cell]] = {
    "run_id": lambda _, trial, __: trial.run_id,
    "evalset_id": lambda _, __, config: config.evalset_id,
    "case_id": lambda case, *_: case.id,
    "trial_index": lambda _, trial, __: trial.trial_index,
    "verdict": lambda _, trial, __: trial.verdict,
    "status": lambda _, trial, __: trial.status,
    "stop_reason": lambda _, trial, __: trial.stop_reason,
    "attempt": lambda _, trial, __: trial.attempt,
    "duration_ms": lambda _, trial, __: trial.duration_ms,
    "tokens": lambda _, trial, __: trial.tokens,
    "cost": lambda _, trial, __: trial.cost,
    "is_least": lambda _, trial, __: trial.is_least,
    "n_replayed": lambda _, trial, __: sum(usage.is_replayed for usage in trial.usages),
    "capture": lambda _, trial, __: ",".join(trial.transcript.captures) or None,
    "agents": lambda _, trial, __: ",".join(agent.name for agent in several_agents(trial.transcript.turns)) or None,
    "error_kind": lambda _, trial, __: trial.error.kind if trial.error else None,
    "error_message": lambda _, trial, __: trial.error.message if trial.error else None,
    "answer": lambda _, trial, __: trial.transcript.turns[-1].answer if trial.transcript.turns else None,
}
_OF_SCORE: Mapping[str, Callable[[Score], Cell]] = {
    "turn": lambda score: None if score.turn is None else score.turn + 1,
    "metric": lambda score: score.metric,
    "value": lambda score: score.value,
    "threshold": lambda score: score.threshold,
    "passed": lambda score: score.passed,
    "reason": lambda score: score.reason,
    "error": lambda score: score.error.message if score.error else None,
}
_OF_AGENT = tuple(each.name for each in fields(AgentActions) if each.name not in ("name", "depth"))
_KEY = ("run_id", "evalset_id", "case_id", "trial_index")
TRIAL_COLUMNS, SCORE_COLUMNS = tuple(_OF_TRIAL), (*_KEY, *_OF_SCORE)
AGENT_COLUMNS = (*_KEY, "verdict", "agent", *_OF_AGENT)


def trial_row(case: Case, trial: TrialResult, config: RunConfig) -> dict[str, Cell]:
    """One trial: `TRIAL_COLUMNS`, then one column for each criterion with its value, None where it is unscored.

    `n_replayed` counts the model calls that a recording answered: such a trial is no repeat of its own.
    The `tokens` are a lower bound, and the cost is not known whole, where the trial `is_least`.
    `capture` are the ways by which calls and tokens became known, None where that was not noted.
    `agents` are those that acted, separated by commas; None where one agent acted.
    """
    values = {score.metric: score.value for score in trial.scores if score.turn is None}
    row = {name: cell_of(case, trial, config) for name, cell_of in _OF_TRIAL.items()}
    return row | {criterion.metric: values.get(criterion.metric) for criterion in config.criteria}


def score_row(case: Case, trial: TrialResult, score: Score, config: RunConfig) -> dict[str, Cell]:
    """One score: `SCORE_COLUMNS`; `turn` counts from 1 and is None for the score of the whole trial."""
    key = {name: _OF_TRIAL[name](case, trial, config) for name in _KEY}
    return key | {name: cell_of(score) for name, cell_of in _OF_SCORE.items()}


def agent_rows(case: Case, trial: TrialResult, config: RunConfig) -> Iterator[dict[str, Cell]]:
    """`AGENT_COLUMNS` of each agent of a trial in which several acted; amounts are without those of agents below."""
    key = {name: _OF_TRIAL[name](case, trial, config) for name in (*_KEY, "verdict")}
    for agent in several_agents(trial.transcript.turns):
        yield key | {"agent": agent.name} | {name: getattr(agent, name) for name in _OF_AGENT}

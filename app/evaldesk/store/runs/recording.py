"""Write results of trials, and keep every total up to date in the same transaction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from sqlalchemy import (
    Connection,
    Integer,
    Table,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)

from evaldesk.errors import TEXT_LIMIT
from evaldesk.model import ErrorRecord, Score, TrialResult, TurnRecord
from evaldesk.model.agent_tree import several_agents
from evaldesk.model.media import Media
from evaldesk.model.trial_turns import is_in_blocks
from evaldesk.store import media
from evaldesk.store.database import Clock, execute_many
from evaldesk.store.runs import totals
from evaldesk.store.runs.facets import add_tools
from evaldesk.store.runs.shared_states import add_shared_states
from evaldesk.store.tables.columns import adding, pack, pack_json, replacing, upsert
from evaldesk.store.tables.runs import (
    CASE_METRIC,
    ERROR_GROUP,
    LETTERS,
    N_OF_CASE,
    RUN,
    RUN_CASE,
    SCORE,
    TRANSCRIPT,
    TRIAL,
    TRIAL_AGENT,
    TRIAL_PROMPTS,
)
from evaldesk.wire import to_json

if TYPE_CHECKING:
    from evaldesk.diff.divergence import Divergence

Values: TypeAlias = dict[str, Any]

COUNTERS = (
    "n_passed",
    "n_failed",
    "n_errored",
    "n_unscored",
    "n_unpriced",
    "n_uncounted",
    "n_timed",
    "tokens_in",
    "tokens_out",
    "cost",
    "duration_ms",
)
COSTS = ("n_unpriced", "n_uncounted", "tokens_in", "tokens_out", "cost")
MESSAGE_LENGTH = 200
MAX_AGENTS = 50
"""Agents of one trial that are counted for its run."""
SUMS = ("n", "n_passed", "total", "total_squares")


class Storable(NamedTuple):
    """A result with its rows, which are made before the transaction, so that the write lock is held briefly.

    `divergence` is the first one of a failed trial in words; None where it is not known.
    """

    result: TrialResult
    transcript: Values
    prompts: Values | None = None
    media: tuple[Media, ...] = ()
    divergence: str | None = None
    agents: tuple[Values, ...] = ()


def record(connection: Connection, results: Sequence[Storable], clock: Clock) -> int:
    """Write results and return the number that counted.

    A result does not count when its trial has one already, or has been given to a later attempt; its content is kept as
    evidence. One for a trial that does not exist, its run deleted meanwhile, is dropped.
    """
    counted_results, late_results = _sort(results, _to_do(connection, (each.result for each in results)))
    rows = [trial_key(each.result) | outcome(each.result) | {"divergence": each.divergence} for each in counted_results]
    rules, n_planned = _rules(connection, rows), _n_planned(connection, rows)
    ended_rows = [row for row in rows if row["verdict"] is not None]
    planned_rows = [row for row in ended_rows if row["trial_index"] < n_planned[_case_key(row)]]
    confirming = [row for row in ended_rows if row["trial_index"] >= n_planned[_case_key(row)]]
    values = [
        score
        for result in (each.result for each in counted_results)
        if result.status != "cancelled" and result.trial_index < n_planned[result.run_id, result.case_index]
        for score in scores(result)
    ]

    before = totals.read_rows(connection, _cases_of(planned_rows))
    with totals.label_totals_carried(connection, totals.labelled(connection, rows)):
        execute_many(connection, _UPDATE_TRIAL, [_at(row, "trial_index") | {"recorded_at": clock()} for row in rows])
    execute_many(connection, SCORE.insert(), values)
    _keep(
        connection,
        TRANSCRIPT,
        [each.transcript for each in counted_results],
        [each.transcript for each in late_results],
    )
    _keep(
        connection,
        TRIAL_PROMPTS,
        [each.prompts for each in counted_results if each.prompts],
        [each.prompts for each in late_results if each.prompts],
    )
    _keep_agents(connection, counted_results)
    for each in (*counted_results, *late_results):
        media.keep(connection, {"run_id": each.result.run_id}, media.bytes_of(each.media), clock)
    execute_many(connection, _ADD_TO_CASE, [_at(row) | _gain([row]) | _letter(row, rules) for row in planned_rows])
    execute_many(connection, _ADD_CONFIRMING, [_at(row) | _gain([], [row]) for row in confirming])
    add_scores(connection, values)
    totals.carry(connection, before)
    add_tools(connection, (each.result for each in counted_results))
    add_errors(connection, [row for row in ended_rows if row["verdict"] == "errored"])
    n_late = Counter(each.result.run_id for each in late_results)
    results_again = (
        each.result for each in counted_results if each.result.losses and each.result.status != "cancelled"
    )
    n_again = Counter(result.run_id for result in results_again)
    for run_id in {row["run_id"] for row in rows} | set(n_late):
        own, fresh = ([row for row in some if row["run_id"] == run_id] for some in (planned_rows, confirming))
        more: Values = {"add_n_duplicates": n_late[run_id], "add_n_played_again": n_again[run_id]}
        more["add_start_ms"] = fsum(each.result.start_ms for each in counted_results if each.result.run_id == run_id)
        _add_to_run(connection, run_id, own, fresh, more, clock)
    add_shared_states(connection, (each.result for each in counted_results))
    return len(counted_results)


def _rules(connection: Connection, rows: Iterable[Values]) -> dict[int, bool]:
    """Whether errors are failures, by run."""
    run_rows = connection.execute(_FIND_CONFIG, {"run_ids": sorted({row["run_id"] for row in rows})})
    return {row.id: totals.are_errors_failures(row.config) for row in run_rows}


def _case_key(row: Values) -> tuple[int, int]:
    return row["run_id"], row["case_index"]


def _n_planned(connection: Connection, rows: Iterable[Values]) -> dict[tuple[int, int], int]:
    """The planned trials of each case, by run and case; later trials confirm a regression."""
    columns = [sorted(set(column)) for column in zip(*map(_case_key, rows), strict=True)]
    case_rows = connection.execute(_FIND_N, dict(zip(("runs", "cases"), columns, strict=True))) if columns else ()
    return {(run_id, case_index): n for run_id, case_index, n in case_rows}


def _cases_of(rows: Iterable[Values]) -> dict[int, set[int]]:
    """The cases of trials, by run."""
    cases_by_run: dict[int, set[int]] = {}
    for row in rows:
        cases_by_run.setdefault(row["run_id"], set()).add(row["case_index"])
    return cases_by_run


def _to_do(connection: Connection, results: Iterable[TrialResult]) -> dict[Key, tuple[bool, int]]:
    """Whether each trial is to do, and its attempt."""
    columns = [sorted(set(column)) for column in zip(*map(_key, results), strict=True)]
    rows = connection.execute(_FIND_TRIALS, dict(zip(("runs", "cases", "trials"), columns, strict=True)))
    return {(run, case, trial): (verdict is None, attempt) for run, case, trial, verdict, attempt in rows}


def _sort(results: Sequence[Storable], trials: dict[Key, tuple[bool, int]]) -> tuple[list[Storable], list[Storable]]:
    counted_results, late_results = [], []
    for each in results:
        result = each.result
        if _key(result) not in trials:
            continue
        is_to_do, attempt = trials[_key(result)]
        if not is_to_do or result.attempt < attempt:
            late_results.append(each)
            continue
        counted_results.append(each)
        trials[_key(result)] = (result.status == "cancelled", result.attempt)
    return counted_results, late_results


def _keep(connection: Connection, table: Table, counted_rows: Sequence[Values], late_rows: Sequence[Values]) -> None:
    dialect = connection.dialect.name
    execute_many(connection, replacing(dialect, table), counted_rows)
    execute_many(connection, upsert(dialect, table).on_conflict_do_nothing(), late_rows)


def _keep_agents(connection: Connection, results: Iterable[Storable]) -> None:
    """Write the agents of the trials, in place of those of an earlier attempt."""
    again = [trial_key(each.result) for each in results if each.result.attempt > 1]
    execute_many(connection, _DELETE_AGENTS, [{f"at_{name}": value for name, value in key.items()} for key in again])
    execute_many(connection, TRIAL_AGENT.insert(), [row for each in results for row in each.agents])


def _add_to_run(
    connection: Connection,
    run_id: int,
    planned_rows: Sequence[Values],
    confirming: Sequence[Values],
    more: Values,
    clock: Clock,
) -> None:
    ticked_at, now = connection.execute(_FIND_TICK, {"run_id": run_id}).scalar_one(), clock()
    ms = clock.lap(run_id, ticked_at, now) if ticked_at else None
    more |= {"add_active_ms": ms or 0.0, "ticked_at": ticked_at if ms is None else now}
    more |= {"add_n_confirming_todo": -len(confirming)}
    more |= {"add_n_confirming_errored": sum(row["verdict"] == "errored" for row in confirming)}
    connection.execute(ADD_TO_RUN, {"at_run_id": run_id} | _gain(planned_rows, confirming) | more)


def _key(result: TrialResult) -> Key:
    return result.run_id, result.case_index, result.trial_index


def _at(row: Values, *names: str) -> Values:
    """`row` with its key under the names that an UPDATE looks for."""
    keys = ("run_id", "case_index", *names)
    return {f"at_{name}": row[name] for name in keys} | {name: row[name] for name in row if name not in keys}


def _gain(rows: Sequence[Values], confirming: Sequence[Values] = ()) -> Values:
    """The gain of the counters by rows. Confirming trials cost something, and are in no count and no mean time."""
    gains = [counters(row) for row in rows]
    gains += [dict.fromkeys(COUNTERS, 0) | {name: counters(row)[name] for name in COSTS} for row in confirming]
    return {f"add_{name}": sum(gain[name] for gain in gains) for name in COUNTERS}


def _letter(row: Values, rules: Mapping[int, bool]) -> Values:
    place = {"n_before": row["trial_index"], "after": row["trial_index"] + 2}
    return place | {"letter": LETTERS[row["verdict"]], "errors_are_failures": int(rules[row["run_id"]])}


_TRIAL_KEY = (TRIAL.c.run_id, TRIAL.c.case_index, TRIAL.c.trial_index)
# Column by column and so a few too many: for a list of whole keys SQLite reads the table from end to end.
_FIND_TRIALS = select(*_TRIAL_KEY, TRIAL.c.verdict, TRIAL.c.attempt).where(
    TRIAL.c.run_id.in_(bindparam("runs", expanding=True)),
    TRIAL.c.case_index.in_(bindparam("cases", expanding=True)),
    TRIAL.c.trial_index.in_(bindparam("trials", expanding=True)),
)
_FIND_TICK = select(RUN.c.ticked_at).where(RUN.c.id == bindparam("run_id"))
_FIND_CONFIG = select(RUN.c.id, RUN.c.config).where(RUN.c.id.in_(bindparam("run_ids", expanding=True)))
_FIND_N = select(RUN_CASE.c.run_id, RUN_CASE.c.case_index, N_OF_CASE).where(
    RUN_CASE.c.run_id.in_(bindparam("runs", expanding=True)),
    RUN_CASE.c.case_index.in_(bindparam("cases", expanding=True)),
)
_UPDATE_TRIAL = update(TRIAL).where(
    TRIAL.c.run_id == bindparam("at_run_id"),
    TRIAL.c.case_index == bindparam("at_case_index"),
    TRIAL.c.trial_index == bindparam("at_trial_index"),
)
_ADD_CONFIRMING = (
    update(RUN_CASE)
    .where(RUN_CASE.c.run_id == bindparam("at_run_id"), RUN_CASE.c.case_index == bindparam("at_case_index"))
    .values({name: RUN_CASE.c[name] + bindparam(f"add_{name}") for name in COUNTERS})
)
_AFTER = [RUN_CASE.c[name] + bindparam(f"add_{name}") for name in totals.OUTCOME]
_ADD_TO_CASE = _ADD_CONFIRMING.values(
    worst=totals.worst_of(_AFTER, _AFTER[0] + _AFTER[1] + _AFTER[2] * bindparam("errors_are_failures", type_=Integer)),
    strip=func.substr(RUN_CASE.c.strip, 1, bindparam("n_before"))
    .concat(bindparam("letter"))
    .concat(func.substr(RUN_CASE.c.strip, bindparam("after"))),
)
_DELETE_AGENTS = delete(TRIAL_AGENT).where(
    *(TRIAL_AGENT.c[name] == bindparam(f"at_{name}") for name in ("run_id", "case_index", "trial_index"))
)
_OF_RUN_ONLY = ("active_ms", "start_ms", "n_duplicates", "n_confirming_todo", "n_confirming_errored", "n_played_again")
ADD_TO_RUN = (
    update(RUN)
    .where(RUN.c.id == bindparam("at_run_id"))
    .values({name: RUN.c[name] + bindparam(f"add_{name}") for name in (*COUNTERS, *_OF_RUN_ONLY)})
)


def trial_key(result: TrialResult) -> Values:
    """The three columns that name the trial."""
    return {"run_id": result.run_id, "case_index": result.case_index, "trial_index": result.trial_index}


def outcome(result: TrialResult) -> Values:
    """The columns of `trial` for its result; a cancelled trial gets no verdict and stays to do."""
    error = _error(result)
    return {
        "status": result.status,
        "attempt": result.attempt,
        "verdict": result.verdict if result.status != "cancelled" else None,
        "n_calls": len(result.usages),
        "tokens_in": sum(usage.tokens_in for usage in result.usages),
        "tokens_out": sum(usage.tokens_out for usage in result.usages),
        "cost": result.cost,
        "duration_ms": result.duration_ms,
        "error_kind": error.kind if error else None,
        "error_message": error.message if error else None,
        "place": result.place or None,
        "is_least": result.is_least,
    }


def counters(row: Values) -> Values:
    """The contribution of a trial with a verdict to the COUNTERS of its case and its run."""
    verdicts = {f"n_{verdict}": int(row["verdict"] == verdict) for verdict in LETTERS}
    return verdicts | {
        "n_unpriced": int(row["cost"] is None and row["n_calls"] > 0),
        "n_uncounted": int(row["is_least"]),
        "n_timed": int(row["duration_ms"] > 0),
        "tokens_in": row["tokens_in"],
        "tokens_out": row["tokens_out"],
        "cost": row["cost"] or 0.0,
        "duration_ms": row["duration_ms"],
    }


def scores(result: TrialResult) -> list[Values]:
    """Rows of `score`: each metric's value for the whole trial, where it has one."""
    trial_scores = {score.metric: score for score in result.scores if score.turn is None and _is_number(score)}
    return [
        trial_key(result) | {"metric": score.metric, "value": score.value, "passed": score.passed}
        for score in trial_scores.values()
    ]


def error_group(row: Values) -> tuple[str, str]:
    """The kind and the normalised message under which an errored trial is counted."""
    return row["error_kind"] or row["status"], normalised(row["error_message"] or "")


def normalised(message: str) -> str:
    """The first line of `message` without the parts that differ each time: addresses, ids and numbers read `#`."""
    line = next(iter(message.strip().splitlines()), "")
    line = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-f]{16,}\b", "#", line)
    return re.sub(r"\d+(?:\.\d+)?", "#", " ".join(line.split()))[:MESSAGE_LENGTH]


def _is_number(score: Score) -> bool:
    return score.value is not None and isfinite(score.value)


def _error(result: TrialResult) -> ErrorRecord | None:
    errors: Sequence[ErrorRecord | None] = (result.error, *(score.error for score in result.scores))
    return next((error for error in errors if error), None)


def add_scores(connection: Connection, scores: Sequence[Values]) -> None:
    """Add rows of `score` to the totals of their metric in their case."""
    execute_many(connection, _add_score(connection.dialect.name), [_first(score) for score in scores])


def add_errors(connection: Connection, trials: Sequence[Values]) -> None:
    """Count errored trials among the errors of their run that say the same."""
    execute_many(connection, adding(connection.dialect.name, ERROR_GROUP, "n"), [_group(trial) for trial in trials])


@cache
def _add_score(dialect: str) -> Any:
    statement = upsert(dialect, CASE_METRIC)
    columns, new_row = CASE_METRIC.c, statement.excluded
    sums = {name: columns[name] + new_row[name] for name in SUMS}
    low = case((new_row.low < columns.low, new_row.low), else_=columns.low)
    high = case((new_row.high > columns.high, new_row.high), else_=columns.high)
    fresh = sums | {"low": low, "high": high}
    return statement.on_conflict_do_update(index_elements=list(CASE_METRIC.primary_key), set_=fresh)


def _first(score: Values) -> Values:
    value = score["value"]
    key = {name: score[name] for name in ("run_id", "case_index", "metric")}
    sums = {"n": 1, "n_passed": int(score["passed"] is True), "total": value, "total_squares": value * value}
    return key | sums | {"low": value, "high": value}


def _group(trial: Values) -> Values:
    kind, message = error_group(trial)
    first = {name: trial[name] for name in ("run_id", "case_index", "trial_index")}
    return first | {"kind": kind, "message": message, "example": trial["error_message"] or "", "n": 1}


Key: TypeAlias = tuple[int, int, int]


MAX_INTEGER = 2**63 - 1
KIND = "unstorable"
_ENCODING_FAULTS = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)


Compared: TypeAlias = Callable[[TrialResult], "Divergence | None"]
"""Gives the first divergence of a trial and its case; raises NotFoundError where they cannot be compared."""


Worded: TypeAlias = Callable[[TrialResult], str | None]
"""Gives the words of the first divergence of a failed trial; None where it is not known."""


def storable_rows(
    results: Iterable[TrialResult], compare: Compared | None = None, words_of: Worded | None = None
) -> list[Storable]:
    """Each result with its rows; a result that the database cannot hold becomes an errored one with the reason.

    `compare` compares a trial of many turns with its case, so that its page need not read all of them.
    """
    rows = [_storable(result, compare) for result in results]
    if words_of is None:
        return rows
    return [
        each._replace(divergence=words_of(each.result)) if each.result.verdict == "failed" else each for each in rows
    ]


def unstorable(result: TrialResult, reason: str) -> Storable:
    """The errored result in place of one too large or odd for the database, and its row."""
    errored_result = result.without_content(ErrorRecord(KIND, f"the result cannot be stored: {reason}"))
    return Storable(errored_result, transcript_row(errored_result))


def transcript_row(result: TrialResult) -> Values:
    """The whole result as a row, without its prompts, which have one of their own."""
    return _row(result, media.turns_apart(result.transcript.turns), None)


def _row(result: TrialResult, turns: tuple[TurnRecord, ...], compare: Compared | None) -> Values:
    stored_result = replace(result, prompts=None, transcript=replace(result.transcript, turns=turns))
    codec, data = _pack(stored_result, compare)
    return trial_key(result) | {"attempt": result.attempt, "codec": codec, "data": data}


def _pack(result: TrialResult, compare: Compared | None) -> tuple[int, bytes]:
    if not is_in_blocks(result):
        return pack_json(to_json(result))
    from evaldesk.store.runs.long_trials import packed_trial

    return packed_trial(result, compare)


def _prompts_row(result: TrialResult) -> Values | None:
    if result.prompts is None:
        return None
    codec, data = pack(result.prompts)
    n_calls = len(result.prompts.calls)
    return trial_key(result) | {"attempt": result.attempt, "n_calls": n_calls, "codec": codec, "data": data}


def _storable(result: TrialResult, compare: Compared | None) -> Storable:
    try:
        fault = _fault(result)
        if fault is None:
            turns = result.transcript.turns
            apart = media.turns_apart(turns)
            has_media = any(own is not turn for own, turn in zip(apart, turns, strict=True))
            all_media = (*result.transcript.media, *media.result_images(turns)) if has_media else ()
            return Storable(
                result, _row(result, apart, compare), _prompts_row(result), all_media, agents=agent_rows(result)
            )
    except _ENCODING_FAULTS as error:
        fault = f"{type(error).__name__}: {str(error)[:TEXT_LIMIT]}"
    return unstorable(result, fault)


def agent_rows(result: TrialResult) -> tuple[Values, ...]:
    """A row for each agent of a trial in which several acted."""
    if result.status == "cancelled":
        return ()
    agents = several_agents(result.transcript.turns)
    columns = ("parent", "tool", "depth", "n_entries", "n_calls", "n_errors", "n_model_calls", "tokens", "cost")
    return tuple(
        trial_key(result)
        | {"position": position, "name": agent.name, "duration_ms": agent.duration_ms}
        | {name: getattr(agent, name) for name in columns}
        for position, agent in enumerate(agents[:MAX_AGENTS])
    )


def _fault(result: TrialResult) -> str | None:
    """The first column that SQLite refuses or would change, by name; None when there is none."""
    columns = ((name, value) for row in (outcome(result), *scores(result)) for name, value in row.items())
    return next(filter(None, (_fault_of_value(name, value) for name, value in columns)), None)


def _fault_of_value(name: str, value: object) -> str | None:
    if isinstance(value, int) and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        return f"{name} is an integer of {value.bit_length()} bits; at most 2**63 - 1 is stored"
    if isinstance(value, float) and not isfinite(value):
        return f"{name} is {value}; only finite numbers are stored"
    if isinstance(value, str) and not value.isascii() and _has_half_character(value):
        return f"{name} holds half of a character (a lone surrogate)"
    return None


def _has_half_character(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False

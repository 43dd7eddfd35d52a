"""The tables of runs, their cases, trials, scores and labels.

Verdicts of a case's trials are in its column `strip`: one character a trial, `.` to do, `p` `f` `e` `u` for the four
verdicts. Its length is the number of trials that the case has; a run with a budget gives some cases more. Fresh
trials that confirm a regression have indexes after the planned ones. They are in no strip, no count of verdicts and no
score; `n_confirming`, `n_confirming_todo` and `n_confirming_errored` of the run count them.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Index, LargeBinary, Text, false, func
from sqlmodel import Field

from evaldesk.store.tables.columns import OfCase, OfRun, OfTrial, Row, UtcTime, of_case, of_run, of_trial

TO_DO = "."
ZERO = {"server_default": "0"}
EMPTY = {"server_default": ""}
"""Of columns that were added to a table with rows."""
LETTERS = {"passed": "p", "failed": "f", "errored": "e", "unscored": "u"}


class Run(Row, table=True):
    """A run with its totals. `ticked_at` is when `active_ms` was last brought up to date, None while it rests.

    `deleted_at` hides the run, since its deletion or until its import is finished. `lease` grows each time a process
    takes the run; who holds an older one writes nothing. `leased_until` is in seconds of the database's own clock. Of
    its cases the first `n_totalled` are in `run_outcome` and `run_metric`; a run of an earlier version has fewer there
    than it has cases. By `stop_rule` the run ends before its last trial, once its gates are decided; `stop` says why
    it did. `places` is where its trials are played, as JSON, as old as the lease; empty before it is told. `n` is the
    most trials of a case, `n_least` the fewest, `n_trials` the planned ones of all cases. Runs of one `history_class`
    are the history of their cases; empty where a run is part of none. `shared_state` is what its trials were seen to
    share, as JSON; empty for nothing. `experiment_id` and `variant_index` are its place in an experiment, None outside.
    Facets and first divergences are known of its first `n_faceted` cases. `set_version` is that of the whole eval set;
    empty where it is not known. The `parent_` columns are the point of a fork in a trial of another run, which may have
    been deleted since; None for other runs.
    """

    __table_args__ = (
        Index(None, "status", "id"),
        Index(None, "agent_id", "id"),
        Index(None, "evalset_id", "id"),
        Index(None, "history_class", "id"),
        Index(None, "experiment_id", "variant_index"),
        Index(None, "parent_run", "parent_case", "parent_trial"),
        Index(None, "fork_fingerprint"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    status: str
    agent_id: str
    evalset_id: str
    n: int
    n_cases: int
    n_passed: int = 0
    n_failed: int = 0
    n_errored: int = 0
    n_unscored: int = 0
    n_duplicates: int = 0
    n_unpriced: int = 0
    tokens_in: int = Field(default=0, sa_type=BigInteger)
    tokens_out: int = Field(default=0, sa_type=BigInteger)
    cost: float = 0.0
    duration_ms: float = 0.0
    active_ms: float = 0.0
    ticked_at: datetime | None = Field(default=None, sa_type=UtcTime)
    created_at: datetime = Field(sa_type=UtcTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcTime)
    deleted_at: datetime | None = Field(default=None, sa_type=UtcTime)
    driver: str = ""
    reason: str = Field(default="", sa_type=Text)
    note: str = Field(default="", sa_type=Text)
    config: str = Field(sa_type=Text)
    n_confirming: int = Field(default=0, sa_column_kwargs=ZERO)
    n_confirming_todo: int = Field(default=0, sa_column_kwargs=ZERO)
    n_confirming_errored: int = Field(default=0, sa_column_kwargs=ZERO)
    lease: int = Field(default=0, sa_column_kwargs=ZERO)
    leased_until: float | None = None
    n_totalled: int = Field(default=0, sa_column_kwargs=ZERO)
    stop_rule: str = Field(default="", sa_column_kwargs={"server_default": ""})
    stop: str | None = Field(default=None, sa_type=Text)
    places: str = Field(default="", sa_type=Text, sa_column_kwargs={"server_default": ""})
    n_played_again: int = Field(default=0, sa_column_kwargs=ZERO)
    started_by: str = Field(default="", sa_column_kwargs=EMPTY)
    started_on: str = Field(default="", sa_column_kwargs=EMPTY)
    n_least: int = Field(default=0, sa_column_kwargs=ZERO)
    n_trials: int = Field(default=0, sa_column_kwargs=ZERO)
    n_uncounted: int = Field(default=0, sa_column_kwargs=ZERO)
    n_timed: int = Field(default=0, sa_column_kwargs=ZERO)
    history_class: str = Field(default="", sa_column_kwargs=EMPTY)
    start_ms: float = Field(default=0.0, sa_column_kwargs=ZERO)
    shared_state: str = Field(default="", sa_type=Text, sa_column_kwargs=EMPTY)
    experiment_id: int | None = None
    variant_index: int | None = None
    n_faceted: int = Field(default=0, sa_column_kwargs=ZERO)
    set_version: str = Field(default="", sa_column_kwargs=EMPTY)
    parent_run: int | None = None
    parent_case: int | None = None
    parent_trial: int | None = None
    parent_turn: int | None = None
    parent_call: int | None = None
    fork_fingerprint: str | None = None


class RunSource(OfRun, table=True):
    """A run that scores the stored trials of another again; the other may have been deleted since."""

    __table_args__ = (of_run(), Index(None, "source_id", "run_id"), {"sqlite_with_rowid": False})

    source_id: int


class RunBaseline(OfRun, table=True):
    """The cases of the earlier run that a run is compared with, as they were when it started."""

    __table_args__ = (of_run(),)

    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class RunCase(OfCase, table=True):
    """A case of a run with the totals of its trials; `digest` is its `case_version`.

    `worst` is its place among the worst cases, None where it is not in the totals of the run. `pooled_failure` says why
    its trials together fail, in a run that judges them so; it is empty where they pass.
    """

    __table_args__ = (of_run(), {"sqlite_with_rowid": False})

    case_id: str
    digest: str
    strip: str = Field(sa_type=Text)
    n_passed: int = 0
    n_failed: int = 0
    n_errored: int = 0
    n_unscored: int = 0
    n_unpriced: int = 0
    tokens_in: int = Field(default=0, sa_type=BigInteger)
    tokens_out: int = Field(default=0, sa_type=BigInteger)
    cost: float = 0.0
    duration_ms: float = 0.0
    worst: float | None = 3.0
    n_uncounted: int = Field(default=0, sa_column_kwargs=ZERO)
    n_timed: int = Field(default=0, sa_column_kwargs=ZERO)
    pooled_failure: str | None = Field(default=None, sa_type=Text)


class CaseSnapshot(OfCase, table=True):
    """The case as it was run; beside `run_case` so that a page of rows does not read it."""

    __table_args__ = (of_case(),)

    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class LastRun(Row, table=True):
    """The newest run in which a case of an eval set took part."""

    __table_args__ = (of_case(), Index(None, "run_id", "case_index"), {"sqlite_with_rowid": False})

    evalset_id: str = Field(primary_key=True)
    case_id: str = Field(primary_key=True)
    run_id: int
    case_index: int


class CaseMetric(OfCase, table=True):
    """The totals of the scores of one metric in one case."""

    __table_args__ = (of_case(), {"sqlite_with_rowid": False})

    metric: str = Field(primary_key=True)
    n: int
    n_passed: int
    total: float
    total_squares: float
    low: float
    high: float


class CaseFacet(OfRun, table=True):
    """A property of a case by which a table is filtered: a tag of the case, or a tool that one of its trials called."""

    __table_args__ = (of_run(), {"sqlite_with_rowid": False})

    kind: str = Field(primary_key=True)
    value: str = Field(primary_key=True)
    case_index: int = Field(primary_key=True)


class RunMetric(OfRun, table=True):
    """The scores of one metric in all cases of a run; `sums` and `kinds` as `store.runs.totals` packs them."""

    __table_args__ = (of_run(), {"sqlite_with_rowid": False})

    metric: str = Field(primary_key=True)
    n: int
    n_passed: int
    n_cases: int
    low: float
    high: float
    sums: str = Field(sa_type=Text)
    kinds: str | None = Field(default=None, sa_type=Text)


class RunOutcome(OfRun, table=True):
    """The number of cases of a run with these numbers of trials of each verdict."""

    __table_args__ = (of_run(), {"sqlite_with_rowid": False})

    n_passed: int = Field(primary_key=True)
    n_failed: int = Field(primary_key=True)
    n_errored: int = Field(primary_key=True)
    n_unscored: int = Field(primary_key=True)
    n_cases: int


class ErrorGroup(OfRun, table=True):
    """Errors of a run that say the same; `message` without its numbers, `example` as the first one said it."""

    __table_args__ = (of_run(), {"sqlite_with_rowid": False})

    kind: str = Field(primary_key=True)
    message: str = Field(primary_key=True)
    n: int
    case_index: int
    trial_index: int
    example: str = Field(sa_type=Text)


class Trial(OfTrial, table=True):
    """A trial, planned from the start of the run. `verdict` is None while it is to do: planned, or cancelled.

    `place` is the host that played it; None for the machine of the driver. Its tokens and cost may be lower bounds: it
    `is_least`. Cases and runs count such trials as `n_uncounted`, and those whose time is known as `n_timed`.
    `divergence` is the first divergence of a failed trial in words, empty where nothing diverges.
    """

    __table_args__ = (of_case(), {"sqlite_with_rowid": False})

    status: str
    attempt: int
    verdict: str | None = None
    n_calls: int = 0
    tokens_in: int = Field(default=0, sa_type=BigInteger)
    tokens_out: int = Field(default=0, sa_type=BigInteger)
    cost: float | None = None
    duration_ms: float = 0.0
    error_kind: str | None = None
    error_message: str | None = Field(default=None, sa_type=Text)
    recorded_at: datetime | None = Field(default=None, sa_type=UtcTime)
    place: str | None = None
    is_least: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    divergence: str | None = Field(default=None, sa_type=Text)


class Score(OfTrial, table=True):
    """The value of one metric for a whole trial; scores of turns are in the transcript."""

    __table_args__ = (of_trial(), {"sqlite_with_rowid": False})

    metric: str = Field(primary_key=True)
    value: float
    passed: bool | None = None


class TrialAgent(OfTrial, table=True):
    """The actions of one agent in a trial with several, by its `position` in their tree; `cost` is None if unknown."""

    __table_args__ = (of_trial(), {"sqlite_with_rowid": False})

    position: int = Field(primary_key=True)
    name: str
    parent: str
    tool: str
    depth: int
    n_entries: int
    n_calls: int
    n_errors: int
    n_model_calls: int
    tokens: int = Field(sa_type=BigInteger)
    cost: float | None
    duration_ms: float


class Transcript(OfTrial, table=True):
    """A whole TrialResult, one for each attempt that ended; superseded attempts are kept as evidence."""

    __table_args__ = (of_trial(),)

    attempt: int = Field(primary_key=True)
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class TrialPrompts(OfTrial, table=True):
    """The model calls of an attempt as they were sent; beside `transcript`, which is read without them."""

    __table_args__ = (of_trial(),)

    attempt: int = Field(primary_key=True)
    n_calls: int
    codec: int
    data: bytes = Field(sa_type=LargeBinary)


class Label(OfTrial, table=True):
    """A person's verdict or note on a trial, or on one turn of it: `turn` is -1 for the whole trial."""

    __table_args__ = (of_trial(), Index(None, "labelled_at"), {"sqlite_with_rowid": False})

    turn: int = Field(primary_key=True)
    labeller: str = Field(primary_key=True)
    verdict: str | None = None
    note: str = Field(default="", sa_type=Text)
    labelled_at: datetime = Field(sa_type=UtcTime)


class LabelTotal(OfRun, table=True):
    """The number of labels of each person in a run, by verdict; `verdict` is empty for notes alone.

    `is_disagreement` marks labels on whole trials with the opposite verdict of the metrics.
    """

    __table_args__ = (of_run(), {"sqlite_with_rowid": False})

    labeller: str = Field(primary_key=True)
    verdict: str = Field(primary_key=True)
    is_disagreement: bool = Field(primary_key=True)
    n: int


RUN = Row.metadata.tables["run"]
RUN_BASELINE = Row.metadata.tables["run_baseline"]
RUN_SOURCE = Row.metadata.tables["run_source"]
RUN_CASE = Row.metadata.tables["run_case"]
CASE_SNAPSHOT = Row.metadata.tables["case_snapshot"]
LAST_RUN = Row.metadata.tables["last_run"]
CASE_FACET = Row.metadata.tables["case_facet"]
CASE_METRIC = Row.metadata.tables["case_metric"]
RUN_METRIC = Row.metadata.tables["run_metric"]
RUN_OUTCOME = Row.metadata.tables["run_outcome"]
ERROR_GROUP = Row.metadata.tables["error_group"]
TRIAL = Row.metadata.tables["trial"]
SCORE = Row.metadata.tables["score"]
TRIAL_AGENT = Row.metadata.tables["trial_agent"]
TRANSCRIPT = Row.metadata.tables["transcript"]
TRIAL_PROMPTS = Row.metadata.tables["trial_prompts"]
LABEL = Row.metadata.tables["label"]
LABEL_TOTAL = Row.metadata.tables["label_total"]

Index("ix_run_case_digest_run_id", RUN_CASE.c.digest, RUN_CASE.c.run_id)
Index("ix_run_case_worst", RUN_CASE.c.run_id, RUN_CASE.c.worst, RUN_CASE.c.n_errored.desc(), RUN_CASE.c.case_index)

_IS_KNOWN = TRIAL.c.divergence.is_not(None)
Index("ix_trial_divergence", TRIAL.c.run_id, TRIAL.c.divergence, sqlite_where=_IS_KNOWN, postgresql_where=_IS_KNOWN)

N_OF_CASE = func.length(RUN_CASE.c.strip)
"""The planned trials of a case; the indexes from there on are of fresh ones that confirm a regression."""
OF_CASE = (RUN_CASE.c.run_id == TRIAL.c.run_id) & (RUN_CASE.c.case_index == TRIAL.c.case_index)
"""The one condition that joins a trial with its case."""

_IS_NO_FORK = RUN.c.parent_run.is_(None)
# An import is stored hidden and shown at once: decision 051.
VISIBLE = RUN.c.deleted_at.is_(None)
"""The one condition on runs that are shown: neither deleted nor part of an unfinished import."""

# Forks answer another question than the runs of a set: decision 513.
LISTED = VISIBLE & _IS_NO_FORK
"""The condition on runs that are shown and that lists, trends, histories and baselines have: no forks of trials."""

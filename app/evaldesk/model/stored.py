"""The store's results: frozen values, never rows; all floors show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import sqrt
from pathlib import Path
from typing import Literal, TypeAlias

from evaldesk.model import AskedBy, Counted, Counts, Event, JsonObject, RunConfig, RunStatus, TurnRecord
from evaldesk.model.conclusion import Stop, StopRule
from evaldesk.model.media import Media
from evaldesk.model.run import NOTHING_SHARED, Place, SharedState

CaseSort: TypeAlias = Literal["worst", "flaky", "slow", "cost", "file"]
CaseFilter: TypeAlias = Literal["failed", "errored", "unscored", "flaky", "passed"]
ImportStatus: TypeAlias = Literal["importing", "done", "failed", "cancelled"]
ImportStage: TypeAlias = Literal["storing", "ready", "naming"]
TrialKey: TypeAlias = tuple[int, int]
"""The case index and the trial index of a trial within its run."""
Draft: TypeAlias = Mapping[str, str]
"""Instructions in place of the agent's own, by the name of their option of a variant."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """An import of runs, under way or over. `n_total` counts cases and trials, `n_done` the stored ones.

    `set_id`, `set_path` and `set_version` are of the eval set of the file; empty without one. `run_ids` are the runs
    that it gave and that are shown; `owner` is the process that imports. `is_leased` says whether that renewed it in
    time; None for an import of an older Evaldesk.
    """

    id: int
    status: ImportStatus
    stage: ImportStage
    source: str
    owner: str
    set_id: str
    set_path: str
    set_version: str
    n_total: int
    n_done: int
    reason: str
    created_at: datetime
    finished_at: datetime | None
    run_ids: tuple[int, ...] = ()
    is_leased: bool | None = None


@dataclass(frozen=True, slots=True)
class Sums(Counted):
    """The sums over the trials of a run, or of one of its cases.

    `duration_ms` is that of the `n_timed` trials whose time is known. Tokens and cost, in US dollars, are lower bounds
    where `n_uncounted` trials do not tell every call. `n_unpriced` trials called a model of unknown price.
    """

    n_unpriced: int
    n_uncounted: int
    n_timed: int
    tokens_in: int
    tokens_out: int
    cost: float
    duration_ms: float

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.tokens_in + self.tokens_out

    @property
    def is_cost_unknown(self) -> bool:
        """Whether some trials cost more than is known; not their number, since a trial may be in both counts."""
        return self.n_unpriced + self.n_uncounted > 0

    @property
    def mean_ms(self) -> float | None:
        """The mean time of a trial; None where no time is known."""
        return self.duration_ms / self.n_timed if self.n_timed else None


@dataclass(frozen=True, slots=True)
class RunSummary(Sums):
    """A run and its totals.

    `active_ms` is how long the run went on, over resumes, the machine being awake.
    `n_duplicates` counts results that came for a trial that had one already. `note` may be edited after the start,
    unlike the one in `config`. `n_confirming_todo` and `n_confirming_errored` are fresh trials that confirm a
    regression; they are in no other count. `lease` counts the times a process took the run, and `leased_until`, by the
    clock of the database, is when others may take it; None for a run of an older Evaldesk. By `stop_rule` it ends once
    its gates are decided, and `stop` says why it did; resumed after that it plays every trial. `places` are where its
    trials were played when that was last told. Of its trials `n_played_again` had been lost with a worker or a host. A
    case has from `n_least` to `n_most` trials; a run with a budget gives some cases more than others.
    `start_ms` is how long its players took to start, which is in no time of a trial. `shared_state` is what its trials
    were seen to share.
    `started_by` is the name of a person, and `started_on` that of the machine; both empty where nobody was named.
    """

    id: int
    status: RunStatus
    config: RunConfig
    n_cases: int
    n_least: int
    n_most: int
    counts: Counts
    n_duplicates: int
    active_ms: float
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    driver: str
    reason: str
    note: str = ""
    n_confirming_todo: int = 0
    n_confirming_errored: int = 0
    lease: int = 0
    leased_until: float | None = None
    stop_rule: StopRule | None = None
    stop: Stop | None = None
    places: tuple[Place, ...] = ()
    n_played_again: int = 0
    started_by: str = ""
    started_on: str = ""
    start_ms: float = 0.0
    shared_state: SharedState = NOTHING_SHARED

    @property
    def is_uneven(self) -> bool:
        """Whether cases have different numbers of trials."""
        return self.n_least < self.n_most

    @property
    def n_equal(self) -> int:
        """The trials that every case has; of a run that was decided those of its whole blocks."""
        return self.stop.n_equal(self.n_least) if self.stop else self.n_least

    @property
    def n_trials(self) -> int:
        """Trials that were planned."""
        return self.counts.planned

    @property
    def n_todo(self) -> int:
        """Trials still to play, with cancelled ones and fresh ones that confirm a regression."""
        return self.counts.unplayed + self.n_confirming_todo

    @property
    def n_to_retry(self) -> int:
        """Errored trials, fresh ones that confirm a regression included."""
        return self.counts.errored + self.n_confirming_errored

    @property
    def has_models(self) -> bool:
        """Whether a model call was seen; where none was, the cost is not known."""
        return self.tokens + self.n_unpriced > 0 or self.cost > 0

    def known_cost(self, part: Sums) -> float | None:
        """US dollars of the run or a part of it, as far as they are known; None where none are, as without a model."""
        return part.cost if self.has_models and (part.cost or not part.is_cost_unknown) else None

    @property
    def whole_cost(self) -> float | None:
        """US dollars of all trials; None where not every call and price is known, or no model call was seen."""
        return self.cost if self.has_models and not self.is_cost_unknown else None


@dataclass(frozen=True, slots=True)
class CaseRow(Sums):
    """A case of a run and its totals; `digest` is of the case as it was run.

    `verdicts` has a letter for each planned trial, and `confirming`, where a case is compared, one for each fresh trial
    that confirms a regression. `means` has no entry for a metric that gave no value. `cursor` continues the page of
    which this is a line.
    """

    case_index: int
    case_id: str
    digest: str
    verdicts: str
    counts: Counts
    means: Mapping[str, float]
    confirming: str = ""
    cursor: str = ""


CaseScores: TypeAlias = tuple[int, float, int]
"""Cases that scored the same: values of each, their sum, how many such cases."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """The scores of one metric over a run.

    `n` values from `n_cases` cases. `cluster_squares` is the sum over cases of (sum of its values - n of its values
    x mean) squared, `cluster_cubes` and `cluster_fourths` those of its higher powers, from which an interval clustered
    by case is made; the squares add up to `squares` around the mean. `kinds` are the cases by their scores, for a
    run of few cases or one in which few of them make the difference; empty for others.
    """

    metric: str
    threshold: float | None
    n: int
    n_passed: int
    n_cases: int
    mean: float
    low: float
    high: float
    squares: float
    cluster_squares: float
    cluster_cubes: float = 0.0
    cluster_fourths: float = 0.0
    kinds: tuple[CaseScores, ...] = ()

    @property
    def std(self) -> float:
        """Standard deviation of the values as the whole population (n), as Osmosis' results have it."""
        return sqrt(self.squares / self.n)


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Errors of a run that say the same but for their numbers; `first` is where one was seen first."""

    kind: str
    message: str
    n: int
    first: TrialKey
    example: str


@dataclass(frozen=True, slots=True)
class PendingTrial:
    """A trial to play; `attempt` is the number of the attempt to come."""

    case_index: int
    trial_index: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Where the keys of the trial page lead; None at an end. A mismatch is a trial that is done and did not pass."""

    previous_trial: TrialKey | None
    next_trial: TrialKey | None
    previous_mismatch: TrialKey | None
    next_mismatch: TrialKey | None


@dataclass(frozen=True, slots=True)
class LastVerdicts:
    """A case in the newest run it took part in; `verdicts` has a letter for each of its trials."""

    run_id: int
    case_index: int
    verdicts: str
    errors_are_failures: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """A person's label of a trial, or of the turn that `turn` counts from 0; `verdict` None is a note only."""

    labeller: str
    verdict: str | None
    note: str
    turn: int | None
    labelled_at: datetime


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """Which labels to list; None is any. A disagreement is with the verdict that the metrics gave the trial."""

    run_id: int | None = None
    labeller: str | None = None
    verdict: str | None = None
    is_disagreement: bool = False


@dataclass(frozen=True, slots=True)
class LabelledTrial:
    """A label with the trial it is of; `trial_verdict` is that of the metrics."""

    label: Label
    run_id: int
    key: TrialKey
    case_id: str
    evalset_id: str
    trial_verdict: str | None

    @property
    def is_disagreement(self) -> bool:
        """Whether the label of the whole trial and the metrics contradict each other."""
        return self.label.turn is None and {self.trial_verdict, self.label.verdict} == {"passed", "failed"}


@dataclass(frozen=True, slots=True)
class TurnLabel:
    """A person's verdict on one turn of a trial; `turn` counts from 0."""

    labeller: str
    run_id: int
    key: TrialKey
    turn: int
    is_good: bool


@dataclass(frozen=True, slots=True)
class LabelPair:
    """A person's verdict on a trial beside a metric's, or the trial's own where `metric` is empty.

    `trial` is run, case and trial index, and the turn where the label is of one. `is_passed` is None where the metrics
    gave no verdict.
    """

    labeller: str
    trial: tuple[int, ...]
    is_good: bool
    metric: str
    is_passed: bool | None


@dataclass(frozen=True, slots=True)
class AddedCase:
    """A case that was made from a session."""

    evalset_id: str
    case_id: str
    added_at: datetime


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A chat session as one line of a list. `has_draft`: it is with a drafted instruction, not the agent's own."""

    id: str
    agent_id: str
    title: str
    n_turns: int
    ended_in_error: bool
    created_at: datetime
    updated_at: datetime
    started_by: str = ""
    has_draft: bool = False


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that is being played, or was when its process died; `events` are the stored ones.

    `is_leased` says whether its process renewed it in time; None for an import of an older Evaldesk.
    """

    turn_index: int
    owner: str
    message: str
    model: str
    asked_by: AskedBy
    started_at: datetime
    events: tuple[Event, ...] = ()
    media: tuple[Media, ...] = ()
    is_leased: bool | None = None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A chat session with its turns, as it is reopened; `open_turn` comes after them.

    Of a session of many turns a page reads the last ones: `first` is the index of the first of `turns`. A branch has
    the turns before the index `branch_turn` of the session `branch_of`, and others from there on. `draft` is empty in a
    session with the agent's own instructions.
    """

    id: str
    agent_id: str
    title: str
    initial_state: JsonObject
    state: JsonObject
    turns: tuple[TurnRecord, ...]
    added_to: tuple[AddedCase, ...]
    created_at: datetime
    updated_at: datetime
    open_turn: OpenTurn | None = None
    first: int = 0
    branch_of: str = ""
    branch_turn: int = 0
    draft: Draft = field(default_factory=dict)

    @property
    def n_turns(self) -> int:
        """The number of turns, unread earlier ones included."""
        return self.first + len(self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSetFacts:
    """The list facts of an eval set file. `error` is the reason why it cannot be read.

    `app_names` are the agents that its cases name.
    """

    version: str = ""
    format: str = ""
    evalset_id: str = ""
    title: str | None = None
    description: str | None = None
    n_cases: int = 0
    n_turns: int = 0
    tags: tuple[str, ...] = ()
    app_names: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class EvalSetFile(EvalSetFacts):
    """The line of a list for one file; while it `is_reading`, its contents are not known yet.

    `place` is the path under the folder that was searched; `modified_ns` is the file's own time.
    """

    id: str
    name: str
    place: str
    path: Path
    size: int
    modified_ns: int
    is_reading: bool = False


def host_of(owner: str) -> str:
    """The machine of a process that owns a run or a turn; empty for a text that names no process."""
    pid, _, tail = owner.partition(" ")
    return tail.rpartition(" ")[0] if pid.isdecimal() else ""


@dataclass(frozen=True, slots=True)
class Preset:
    """The form of a run under a name; `fields` are pairs of a field and its text, in the order of the form."""

    id: int
    agent_id: str
    name: str
    fields: Sequence[tuple[str, str]]

"""From scores to the result of a run: the verdict of a trial, the counts of verdicts, the gates, the conclusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Literal, Protocol, TypeAlias, get_args

from evaldesk.model.evalset import JsonObject
from evaldesk.model.transcript import ErrorRecord, TurnRecord
from evaldesk.run_options import ADK_POOLED, OWN

Verdict: TypeAlias = Literal["passed", "failed", "errored", "unscored"]
ScoreVerdict: TypeAlias = Verdict | Literal["not_applicable"]
VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "errored", "unscored")


@dataclass(frozen=True, slots=True)
class Criterion:
    """A metric with its threshold and options. `threshold` is inclusive; None means the metric informs only."""

    metric: str
    threshold: float | None = None
    options: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Score:
    """The value of one metric for a turn, or for the whole trial when `turn` is None.

    `turn` counts from 0. `value` is None when the metric could not judge: `reason` then says why, and `error`
    is set when that was a failure of the metric rather than something missing. `is_applicable` is False where the case
    asserts nothing that the metric could judge; such a score counts in no verdict and in no mean. `passed` is None
    without a value or a threshold. `details` feeds the page that explains the score.
    """

    metric: str
    value: float | None = None
    turn: int | None = None
    threshold: float | None = None
    passed: bool | None = None
    reason: str = ""
    details: JsonObject = field(default_factory=dict)
    error: ErrorRecord | None = None
    is_applicable: bool = True

    @property
    def verdict(self) -> ScoreVerdict:
        """The verdict of this score alone."""
        if self.error:
            return "errored"
        if not self.is_applicable:
            return "not_applicable"
        if self.passed is None:
            return "unscored"
        return "passed" if self.passed else "failed"


def trial_verdict(scores: Sequence[Score], criteria: Sequence[Criterion], error: ErrorRecord | None) -> Verdict:
    """Any error makes a trial errored; else any applicable gating criterion without a value makes it unscored.

    Else all of them must pass. A trial to which no gating criterion applies is unscored. (DESIGN.md section 6)
    """
    gating = {criterion.metric for criterion in criteria if criterion.threshold is not None}
    trial_scores = [score for score in scores if score.turn is None and score.metric in gating]
    if error or any(score.error for score in trial_scores):
        return "errored"
    applicable = gating - {score.metric for score in trial_scores if not score.is_applicable}
    decided_scores = [score for score in trial_scores if score.passed is not None]
    if not applicable or {score.metric for score in decided_scores} != applicable:
        return "unscored"
    return "passed" if all(score.passed for score in decided_scores) else "failed"


def turn_verdict(record: TurnRecord | None, scores: Sequence[Score]) -> Verdict | Literal["unplayed"]:
    """How one turn ended, from the scores of that turn: any error makes it errored, else all that judge it must pass.

    `record` is None where the agent never came to the turn.
    """
    if record is None:
        return "unplayed"
    if record.error or any(score.error for score in scores):
        return "errored"
    verdicts = [score.passed for score in scores if score.passed is not None]
    if not verdicts:
        return "unscored"
    return "passed" if all(verdicts) else "failed"


def adk_verdict(scores: Sequence[Score]) -> Verdict:
    """ADK's verdict on the same scores: criteria that were not evaluated are ignored. (reference/adk.md 2.4)"""
    verdicts = [score.passed for score in scores if score.turn is None and score.passed is not None]
    if not verdicts:
        return "unscored"
    return "passed" if all(verdicts) else "failed"


RegressionRule: TypeAlias = Literal["any", "confirm", "likely"]
CONFIRM = (0, 5)
"""The fresh trials of the rule "confirm" that must pass, 0 where the history of the cases judges, and all of them."""
REGRESSION_RULES: tuple[RegressionRule, ...] = get_args(RegressionRule)


def is_by_history(rule: RegressionRule, confirm: tuple[int, int]) -> bool:
    """Whether a rule on regressions takes its bar from the history of the cases, not from a fixed number of passes."""
    return rule == "likely" or (rule == "confirm" and not confirm[0])


NewCases: TypeAlias = Literal["must-pass", "undecided", "inform"]
NEW_CASES: tuple[NewCases, ...] = get_args(NewCases)
"""What a case asks of a run that its baseline does not account for."""
Undecided: TypeAlias = Literal["pass", "fail", "neutral"]
UNDECIDED: tuple[Undecided, ...] = get_args(Undecided)
"""What a gate counts as whose number is too close to its threshold to be sure."""
StopRule: TypeAlias = Literal["exact", "likely"]
STOP_RULES: tuple[StopRule, ...] = get_args(StopRule)
"""When the answer of a run counts as decided before its last trial."""
Outcome: TypeAlias = Literal["passed", "failed", "neutral", "undecided", "interrupted"]
Answer: TypeAlias = Literal["held", "failed", "undecided"]
EXIT_CODES: dict[Outcome, int] = {"passed": 0, "failed": 1, "undecided": 3, "neutral": 4, "interrupted": 130}
EVIDENCE_GATES = frozenset({"--max-error-rate", "--max-unscored-rate", "--min-scored"})
"""Gates that ask whether there is enough to judge. One that fails leaves the run undecided."""


def counted(n: float, noun: str) -> str:
    """`1 case`, `2,000 cases`, `2.5 tool calls`, `3 rows of trials`."""
    number = f"{n:,}" if isinstance(n, int) else f"{n:,.0f}" if n == int(n) else f"{n:,.1f}"
    return f"{number} {noun if n == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`cases`, `searches`, `rows of trials`."""
    thing, of, tail = noun.partition(" of ")
    return f"{thing}{'es' if thing.endswith(('s', 'x', 'ch', 'sh')) else 's'}{of}{tail}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Planned trials by how they ended: `planned` is the sum of the four verdicts and `unplayed`.

    `not_applicable` counts the planned trials of cases to which some criterion does not apply, however they end. With
    `errors_are_failures` errored trials are scored. `case_rate` is set where cases have different numbers of trials:
    the mean of their pass rates, since each case weighs the same.
    """

    planned: int = 0
    passed: int = 0
    failed: int = 0
    errored: int = 0
    unscored: int = 0
    not_applicable: int = 0
    errors_are_failures: bool = False
    case_rate: float | None = None

    @property
    def done(self) -> int:
        """Trials with a verdict."""
        return self.passed + self.failed + self.errored + self.unscored

    @property
    def unplayed(self) -> int:
        """Trials without a verdict; a cancelled one is to play again."""
        return self.planned - self.done

    @property
    def scored(self) -> int:
        """The denominator of the pass rate."""
        return self.passed + self.failed + (self.errored if self.errors_are_failures else 0)

    @property
    def rate(self) -> float | None:
        """The share of scored trials that passed, each case weighing the same; None when none was scored."""
        if not self.scored:
            return None
        return self.passed / self.scored if self.case_rate is None else self.case_rate

    @property
    def all_passed(self) -> bool:
        """Whether there are trials, and every planned one passed."""
        return 0 < self.passed == self.planned

    @property
    def asides(self) -> tuple[tuple[str, int], ...]:
        """Trials that neither passed nor failed, by the word for them; those that do not occur are left out."""
        all_asides = (("errored", self.errored), ("unscored", self.unscored), ("not played", self.unplayed))
        return tuple((word, n) for word, n in all_asides if n)

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.planned + other.planned,
            self.passed + other.passed,
            self.failed + other.failed,
            self.errored + other.errored,
            self.unscored + other.unscored,
            self.not_applicable + other.not_applicable,
            self.errors_are_failures or other.errors_are_failures,
            self.case_rate if not other.planned else other.case_rate if not self.planned else None,
        )

    def times(self, n: int) -> Counts:
        """The counts of `n` cases that ended so."""
        return Counts(
            n * self.planned,
            n * self.passed,
            n * self.failed,
            n * self.errored,
            n * self.unscored,
            n * self.not_applicable,
            self.errors_are_failures,
        )

    def of_cases(self, cases: Iterable[tuple[int, int, int]]) -> Counts:
        """The same with the rate over cases that have different numbers of trials.

        `cases` are scored trials of each, passed trials of each, and how many such cases.
        """
        rates = [(passed / n, times) for n, passed, times in cases if n and times]
        n_cases = sum(times for _, times in rates)
        return replace(self, case_rate=fsum(rate * times for rate, times in rates) / n_cases if n_cases else 0.0)

    @classmethod
    def of_verdicts(cls, verdicts: Iterable[str], *, errors_are_failures: bool) -> Counts:
        """The counts of trials with these verdicts; an empty one was not played."""
        n = Counter(verdicts)
        n_passed, n_failed, n_errored, n_unscored = (n[verdict] for verdict in VERDICTS)
        return cls(n.total(), n_passed, n_failed, n_errored, n_unscored, errors_are_failures=errors_are_failures)

    @classmethod
    def total(cls, parts: Iterable[Counts]) -> Counts:
        """The sum of `parts`."""
        return sum(parts, cls())

    @classmethod
    def total_of_cases(cls, cases: Sequence[Counts]) -> Counts:
        """The sum over the cases of a run, which may have different numbers of trials."""
        total = cls.total(cases)
        is_uneven = len({each.planned for each in cases}) > 1
        return total.of_cases([(each.scored, each.passed, 1) for each in cases]) if is_uneven else total


def scored_and_passed(letters: str, *, errors_are_failures: bool) -> tuple[int, int]:
    """The scored trials and the passed ones among the letters of their verdicts."""
    passed = letters.count("p")
    return passed + letters.count("f") + (letters.count("e") if errors_are_failures else 0), passed


class HasCounts(Protocol):
    """A value with counts."""

    @property
    def counts(self) -> Counts:
        """The planned trials by how they ended."""


class Counted:
    """The names by which users of the Python API ask a value with `counts`."""

    __slots__ = ()

    @property
    def n_passed(self: HasCounts) -> int:
        """Trials that passed."""
        return self.counts.passed

    @property
    def n_failed(self: HasCounts) -> int:
        """Trials that failed."""
        return self.counts.failed

    @property
    def n_errored(self: HasCounts) -> int:
        """Trials that broke off, or could not be judged because of an error."""
        return self.counts.errored

    @property
    def n_unscored(self: HasCounts) -> int:
        """Trials that some criterion had nothing to say about."""
        return self.counts.unscored

    @property
    def n_done(self: HasCounts) -> int:
        """Trials with a verdict."""
        return self.counts.done

    @property
    def n_scored(self: HasCounts) -> int:
        """The denominator of `pass_rate`."""
        return self.counts.scored

    @property
    def pass_rate(self: HasCounts) -> float | None:
        """The share of scored trials that passed; None when none was scored."""
        return self.counts.rate


@dataclass(frozen=True, slots=True)
class Gates:
    """The conditions of a run; None is no condition. `pass_at` and `pass_hat` are pairs of k and the least mean.

    Errored and unscored trials are tolerated up to `max_error_rate` and `max_unscored_rate` only. Unless another gate
    asks for verdicts, or `all_must_pass` is off, every trial must pass, or with a `pass_threshold` below 1 that
    share of the trials of each case; `unscored_are_failures` lets unscored ones fail
    the run then. `baseline` names an earlier run: so many cases as `max_regressions` may have regressed since, and by
    as much as `margin`, a share, the mean pass rate of the cases may drop. By `regression_rule` a case regressed
    when its verdict flipped ("any"), when it or the suite passes fewer trials than its history allows ("likely"), or
    fewer also when it is played again ("confirm"; `confirm` is how many of how many fresh trials must pass, 0 of them
    where the history judges).
    By `new_cases` a case that the baseline does not account for must pass by itself, leaves the run undecided where it
    does not, or informs only.
    With `undecided` a gate on a rate is undecided while its threshold lies inside the interval; it counts as this says.
    With `stop_when_decided` no more trials begin once the others cannot change the answers of the gates ("exact"), or
    are not likely to ("likely").
    Where the gates are `is_pooled`, every case must reach the thresholds in the means over its trials, as in ADK's
    `AgentEvaluator`, and no other gate asks for verdicts.
    """

    min_pass_rate: float | None = None
    min_case_pass_rate: float | None = None
    pass_at: tuple[tuple[int, float], ...] = ()
    pass_hat: tuple[tuple[int, float], ...] = ()
    min_scored: int | None = None
    max_error_rate: float = 0.0
    max_unscored_rate: float = 0.0
    max_cost: float | None = None
    max_regressions: int | None = None
    margin: float | None = None
    baseline: str = ""
    regression_rule: RegressionRule = "any"
    confirm: tuple[int, int] = CONFIRM
    new_cases: NewCases = "must-pass"
    undecided: Undecided | None = None
    stop_when_decided: StopRule | None = None
    all_must_pass: bool = True
    unscored_are_failures: bool = False
    pass_threshold: float = 1.0
    is_pooled: bool = False

    @property
    def asks_for_verdicts(self) -> bool:
        """Whether a gate other than the default one is about the verdicts of trials."""
        numbers = (self.min_pass_rate, self.min_case_pass_rate, self.max_regressions, self.margin)
        return any(number is not None for number in numbers) or bool(self.pass_at or self.pass_hat)

    @property
    def is_by_history(self) -> bool:
        """Whether its rule on regressions takes its bar from the history of the cases."""
        return is_by_history(self.regression_rule, self.confirm)

    @property
    def compares(self) -> bool:
        """Whether a gate asks for a baseline."""
        return self.max_regressions is not None or self.margin is not None

    @property
    def asks_nothing(self) -> bool:
        """Whether only the default gates are left."""
        return not self.asks_for_verdicts and self.max_cost is None and self.min_scored is None

    def as_tool(self, tool: str) -> Gates:
        """The gates of a run that is judged as the tool does, where no gate asks for verdicts.

        `adk eval` fails when anything did not pass, including turns that it could not evaluate; the others never do.
        """
        if tool == OWN or self.asks_for_verdicts:
            return self
        tolerant = replace(self, max_unscored_rate=1.0, is_pooled=tool == ADK_POOLED)
        if tool in ("adk", ADK_POOLED):
            return replace(tolerant, all_must_pass=True, unscored_are_failures=True)
        return replace(tolerant, all_must_pass=False)


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """The answer of one gate: `name` is its option, `names` are the cases that it is about.

    `counts_as` is set for a gate that is undecided because its number is too close to the threshold.
    """

    name: str
    answer: Answer
    sentence: str
    names: tuple[str, ...] = ()
    # Too close to the threshold is an answer of its own: decision 084.
    counts_as: Undecided | None = None

    @property
    def is_held(self) -> bool:
        """Whether it held, or counts as held; another gate that is undecided did not."""
        return self.answer == "held" or self.counts_as == "pass"

    @property
    def is_failed(self) -> bool:
        """Whether it failed, or counts as failed."""
        return self.answer == "failed" or self.counts_as == "fail"

    @property
    def is_neutral(self) -> bool:
        """Whether it is too close to tell, and counts neither as held nor as failed."""
        return self.counts_as == "neutral"

    @property
    def word(self) -> str:
        """`held`, `failed`, or `open` where it is undecided."""
        return "open" if self.answer == "undecided" else self.answer

    @property
    def is_of_evidence(self) -> bool:
        """Whether it asks for enough to judge, so that the run is undecided when it fails."""
        return self.name in EVIDENCE_GATES


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ended before its last trial: `answers` are those of its gates after `n_blocks` whole blocks of trials.

    A block is one trial of every case; where a run has one trial a case, it is one case. `n_trials` are those of the
    blocks; some that had begun by then were played beside them. A run that scores a stopped one again has its stop
    without `answers`.
    """

    rule: StopRule
    n_blocks: int
    n_trials: int
    answers: tuple[GateOutcome, ...]

    def n_equal(self, n_least: int) -> int:
        """The trials that all cases have, or all that were played, in a run of at least `n_least` of each case."""
        return min(self.n_blocks, n_least)


def has_too_many_errors(gates: Iterable[GateOutcome]) -> bool:
    """Whether more trials errored than are tolerated, so that the others say nothing."""
    return any(each.name == "--max-error-rate" and not each.is_held for each in gates)


WITHOUT = "--without"
"""The name beside the gates under which a conclusion has the cases that no gate asks for."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The outcome of a run, and why. `reasons` are sentences; there are none when it passed."""

    outcome: Outcome
    counts: Counts
    gates: tuple[GateOutcome, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def is_passed(self) -> bool:
        """Whether every gate held over every planned trial."""
        return self.outcome == "passed"

    @property
    def is_neutral(self) -> bool:
        """Whether a gate is too close to tell, and every other one held over every planned trial."""
        return self.outcome == "neutral"

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 undecided, 4 neutral, 130 interrupted. (docs/ci.md)"""
        return EXIT_CODES[self.outcome]

    @property
    def case_ids_in_no_gate(self) -> tuple[str, ...]:
        """The ids of the cases in quarantine, in order."""
        return next((gate.names for gate in self.gates if gate.name == WITHOUT), ())

    @property
    def headline(self) -> str:
        """The outcome and the number of cases in quarantine: `passed, without 2 cases in quarantine`."""
        n = len(self.case_ids_in_no_gate)
        return f"{self.outcome}, without {counted(n, 'case')} in quarantine" if n else self.outcome

    @property
    def reason(self) -> str:
        """The first reason; empty when it passed."""
        return self.reasons[0] if self.reasons else ""

    def reasons_beside(self, gates: Sequence[GateOutcome]) -> tuple[str, ...]:
        """The reasons that the lines of these gates do not say."""
        return tuple(reason for reason in self.reasons if not any(reason.endswith(gate.sentence) for gate in gates))


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value probably lies, 95 %."""

    low: float
    high: float

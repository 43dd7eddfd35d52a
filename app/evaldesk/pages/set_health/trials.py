"""Findings that need trials: cases that never fail or never pass, flaky ones, broken judges, and their worth. Pure.

(reference/sets.md 4)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from evaldesk.model.conclusion import Interval, counted
from evaldesk.pages.set_health.finding import Finding
from evaldesk.statistics.case_worth import (
    LEAST_AGENTS,
    LEAST_RUNS,
    Discrimination,
    discriminations,
    information_per_dollar,
)
from evaldesk.statistics.intervals import failure_bound, wilson
from evaldesk.store.runs.set_outcomes import CaseOutcome, SetRun
from evaldesk.wording.words import passed_words

SATURATED_TRIALS, SATURATED_RUNS, NEVER_TRIALS, FEWEST_VERSIONS = 50, 5, 20, 2
FLAKY_RUNS, MIXED_RUNS = 5, 3
UNSCORED_SHARE = 0.2


@dataclass(slots=True)
class CaseTrials:
    """The trials of one case over the newest runs, while its content was the same; newest runs first.

    `cost` is that of all trials whose cost is known: `n_priced`.
    """

    case_id: str
    n_scored: int = 0
    n_passed: int = 0
    n_unscored: int = 0
    n_done: int = 0
    cost: float = 0.0
    n_priced: int = 0
    run_ids: list[int] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    is_mixed: list[tuple[str, bool]] = field(default_factory=list)
    """For each run with two scored trials or more: its agent version, and whether some passed and some did not."""

    @property
    def words(self) -> str:
        """`145 of 195 passed`."""
        return passed_words(self.n_passed, self.n_scored)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of its pass rate; None without a scored trial."""
        return wilson(self.n_passed, self.n_scored) if self.n_scored else None

    @property
    def is_saturated(self) -> bool:
        """Whether it passed so often, over runs and agent versions, that it hardly ever fails."""
        is_often = self.n_scored >= SATURATED_TRIALS and len(self.run_ids) >= SATURATED_RUNS
        return is_often and self.n_passed == self.n_scored and len(self.agents) >= FEWEST_VERSIONS

    @property
    def is_never_passed(self) -> bool:
        """Whether none of many trials of several agent versions passed."""
        return not self.n_passed and self.n_scored >= NEVER_TRIALS and len(self.agents) >= FEWEST_VERSIONS

    @property
    def is_flaky(self) -> bool:
        """Whether it passed and failed within 3 of the last 5 runs of one agent version."""
        by_agent: dict[str, list[bool]] = defaultdict(list)
        for agent, is_mixed in self.is_mixed:
            by_agent[agent].append(is_mixed)
        return any(sum(runs[:FLAKY_RUNS]) >= MIXED_RUNS for runs in by_agent.values() if len(runs) >= FLAKY_RUNS)

    @property
    def has_broken_judge(self) -> bool:
        """Whether a fifth of its trials is unscored."""
        return self.n_done > 0 and self.n_unscored >= UNSCORED_SHARE * self.n_done

    @property
    def trial_cost(self) -> float | None:
        """The cost of a trial in US dollars; None where none is known to cost anything."""
        return self.cost / self.n_priced if self.n_priced and self.cost > 0 else None

    @property
    def information(self) -> float | None:
        """Its information a dollar; None where its cost is not known."""
        cost = self.trial_cost
        return information_per_dollar(self.n_passed, self.n_scored, cost) if cost and self.n_scored else None


@dataclass(frozen=True, slots=True)
class CaseWorth:
    """A case with its trials, and how well it tells agents apart: None where it cannot be said."""

    trials: CaseTrials
    discrimination: Discrimination | None
    n_runs_missing: int

    @property
    def bearing_words(self) -> str:
        """Why nothing is said of how it tells agents apart; empty where something is."""
        if self.discrimination is not None and not self.n_runs_missing:
            return ""
        if self.n_runs_missing:
            return f"{counted(self.n_runs_missing, 'more run')}"
        rate = self.trials.n_passed / self.trials.n_scored if self.trials.n_scored else None
        return "always passed" if rate == 1 else "never passed" if rate == 0 else "the rest never varies"

    @property
    def word(self) -> str:
        """Its finding in a word."""
        if not self.bearing_words and self.discrimination is not None:
            if self.discrimination.bearing == "tells agents apart":
                return "tells apart"
            if self.discrimination.bearing == "points the wrong way":
                return "wrong way"
        each = self.trials
        words = (
            (each.is_never_passed, "never passed"),
            (each.is_flaky, "flaky"),
            (each.is_saturated, "never fails"),
            (each.has_broken_judge, "broken judge"),
        )
        return next((word for holds, word in words if holds), "")


class CaseKeys:
    """The cases of a set by their ids and versions of now, to find them in its runs."""

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        self.ids = [case_id for case_id, _ in keys]
        self._named = frozenset(keys)
        self._ids_by_digest: dict[str, list[str]] = defaultdict(list)
        for case_id, digest in keys:
            self._ids_by_digest[digest].append(case_id)

    def of_run(self, run: SetRun) -> Iterator[tuple[str, CaseOutcome]]:
        """The cases of a run that have the content of now, each by its id of now."""
        seen_ids: set[str] = set()
        for outcome in run.cases:
            if (outcome.case_id, outcome.digest) in self._named:
                case_id = outcome.case_id
            else:
                ids = self._ids_by_digest.get(outcome.digest, ())
                case_id = ids[0] if len(ids) == 1 else ""
            if case_id and case_id not in seen_ids:
                seen_ids.add(case_id)
                yield case_id, outcome


def case_trials(keys: CaseKeys, runs: Sequence[SetRun]) -> dict[str, CaseTrials]:
    """The trials of each case with its content of now, by its id; a renamed case keeps those of its content."""
    trials = {case_id: CaseTrials(case_id) for case_id in keys.ids}
    for run in runs:
        for case_id, outcome in keys.of_run(run):
            each = trials[case_id]
            scored = [letter for letter in outcome.verdicts if letter in run.letters]
            n_done = len(outcome.verdicts) - outcome.verdicts.count(".")
            each.n_scored += len(scored)
            each.n_passed += scored.count("p")
            each.n_unscored += outcome.verdicts.count("u")
            each.n_done += n_done
            each.cost += outcome.cost
            each.n_priced += max(0, n_done - outcome.n_unpriced)
            if scored:
                each.run_ids.append(run.run_id)
                each.agents.add(run.agent)
            if len(scored) > 1:
                each.is_mixed.append((run.agent, 0 < scored.count("p") < len(scored)))
    return trials


def case_worths(keys: CaseKeys, runs: Sequence[SetRun], trials: dict[str, CaseTrials]) -> list[CaseWorth]:
    """The worth of each played case: most information a dollar first, cases of unknown cost last."""
    rates: list[dict[str, float]] = []
    agents_of: dict[str, set[str]] = defaultdict(set)
    n_of: dict[str, int] = defaultdict(int)
    for run in runs:
        of_run: dict[str, float] = {}
        for case_id, outcome in keys.of_run(run):
            scored = [letter for letter in outcome.verdicts if letter in run.letters]
            if scored:
                of_run[case_id] = scored.count("p") / len(scored)
        rates.append(of_run)
        for case_id in of_run if len(of_run) > 1 else ():
            agents_of[case_id].add(run.agent)
            n_of[case_id] += 1
    by_case = discriminations(rates)
    worths = []
    for case_id, each in trials.items():
        if each.n_scored:
            n_missing = max(0, LEAST_RUNS - n_of[case_id], LEAST_AGENTS - len(agents_of[case_id]))
            worths.append(CaseWorth(each, by_case.get(case_id), n_missing))
    return sorted(worths, key=lambda worth: -(worth.trials.information or -1.0))


def trial_findings(
    worths: Sequence[CaseWorth], trials: Iterable[CaseTrials], asserts: Callable[[str], bool]
) -> Iterator[Finding]:
    """The findings that need trials; `asserts` says whether a case with that id asserts anything."""
    played = [each for each in trials if each.n_done]
    saturated = [each for each in played if each.is_saturated]
    ceiling = max((failure_bound(each.n_scored) for each in saturated), default=0.0)
    detail = f"each fails less than {100 * ceiling:.1f} % of the time" if saturated else ""
    yield _of_cases("saturated", [each.case_id for each in saturated], detail)
    yield _of_cases("never_passed", [each.case_id for each in played if each.is_never_passed])
    yield _of_cases("flaky", [each.case_id for each in played if each.is_flaky])
    broken = [each.case_id for each in played if each.has_broken_judge and asserts(each.case_id)]
    yield _of_cases("broken_judge", broken)
    clear = [worth for worth in worths if worth.discrimination and not worth.n_runs_missing]
    for kind, bearing in (("tells_agents_apart", "tells agents apart"), ("wrong_way", "points the wrong way")):
        ids = [
            worth.trials.case_id
            for worth in clear
            if worth.discrimination is not None and worth.discrimination.bearing == bearing
        ]
        yield _of_cases(kind, ids)


def _of_cases(kind: str, ids: Sequence[str], detail: str = "") -> Finding:
    return Finding(kind, tuple(ids), tuple(ids), detail)


def missing_words(runs: Sequence[SetRun]) -> str:
    """The rows with too few runs, and the number of missing runs."""
    n_runs, n_agents = len(runs), len({run.agent for run in runs})
    needs = (
        ("flaky", FLAKY_RUNS, 1),
        ("never fails", SATURATED_RUNS, FEWEST_VERSIONS),
        ("tells agents apart", LEAST_RUNS, LEAST_AGENTS),
    )
    words = [
        f"“{name}” {counted(max(least - n_runs, versions - n_agents), 'more run')}"
        for name, least, versions in needs
        if n_runs < least or n_agents < versions
    ]
    return f"{', '.join(words)} at least" if words else ""

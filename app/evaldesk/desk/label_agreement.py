"""How far metrics agree with what people said, and people with one another, on whole trials and on single turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaldesk.desk.run_view import short_title
from evaldesk.report import (
    agreement,
    alpha_sentence,
    corrected_sentence,
    enough_sentence,
    judge_skill,
    kappa_words,
    nominal_alpha,
    skill_sentence,
)
from evaldesk.store import LabelPair, Store, TrialKey, TurnLabel

MAX_TRIALS = 100
"""Whose transcripts are read for the scores of turns: those labelled last."""


@dataclass(frozen=True, slots=True)
class MetricAgreement:
    """How far a metric agrees with the labels, in words; the last two may be empty."""

    title: str
    skill: str
    kappa: str
    enough: str
    corrected: str


def metric_agreements(pairs: Sequence[LabelPair], rates: Mapping[str, float]) -> list[MetricAgreement]:
    """Each metric against the labels, the verdict of the whole trial first; `rates` are how often they pass."""
    by_metric: dict[str, list[LabelPair]] = defaultdict(list)
    for pair in pairs:
        if pair.is_passed is not None:
            by_metric[pair.metric].append(pair)
    return [_agreement(metric, of_metric, rates) for metric, of_metric in sorted(by_metric.items())]


def people_words(pairs: Sequence[LabelPair], noun: str = "trial") -> str:
    """Agreement of people with one another, over what more than one of them labelled."""
    units: dict[tuple[int, ...], dict[str, bool]] = defaultdict(dict)
    for pair in pairs:
        if not pair.metric:
            units[pair.trial][pair.labeller] = pair.is_good
    shared = [unit for unit in units.values() if len(unit) > 1]
    return alpha_sentence(len({who for unit in shared for who in unit}), len(shared), nominal_alpha(shared), noun)


def turn_pairs(store: Store, labelled_run: int | None, scored_run: int | None = None) -> list[LabelPair]:
    """Every verdict of a person on a turn, and beside it what each metric said of that turn.

    Of one run, whose trials `scored_run` may have scored again, or of all; of the MAX_TRIALS trials labelled last.
    """
    labels = store.labels.of_turns(labelled_run, MAX_TRIALS)
    keys: dict[int, set[TrialKey]] = defaultdict(set)
    for each in labels:
        keys[each.run_id].add(each.key)
    scores: dict[tuple[int, ...], dict[str, bool]] = defaultdict(dict)
    for run_id, of_run in keys.items():
        for key, result in store.runs.trials(scored_run or run_id, sorted(of_run)).items():
            for score in result.scores:
                if score.turn is not None and score.passed is not None:
                    scores[run_id, *key, score.turn][score.metric] = score.passed
    return [pair for each in labels for pair in _pairs(each, scores)]


def bound_words(pairs: Sequence[LabelPair]) -> str:
    """That older labels of turns are left out; empty where there are none."""
    n = len({pair.trial[:3] for pair in pairs})
    return f"Compared are the {MAX_TRIALS} trials with such labels that were labelled last." if n >= MAX_TRIALS else ""


def _pairs(label: TurnLabel, scores: Mapping[tuple[int, ...], Mapping[str, bool]]) -> Iterator[LabelPair]:
    place = (label.run_id, *label.key, label.turn)
    yield LabelPair(label.labeller, place, label.is_good, "", None)
    for metric, is_passed in scores.get(place, {}).items():
        yield LabelPair(label.labeller, place, label.is_good, metric, is_passed)


def _agreement(metric: str, pairs: Sequence[LabelPair], rates: Mapping[str, float]) -> MetricAgreement:
    title = short_title(metric) if metric else "The verdict"
    said = _by_majority(pairs)
    compared = [(is_passed, said[trial]) for trial, is_passed in _passed(pairs).items() if trial in said]
    skill = judge_skill(compared)
    corrected = skill.corrected(rates[metric]) if metric in rates and skill.n_good and skill.n_bad else None
    return MetricAgreement(
        title=title,
        skill=skill_sentence(title, skill),
        kappa=kappa_words(agreement(compared)),
        enough=enough_sentence(skill),
        corrected=corrected_sentence(corrected, title) if corrected else "",
    )


def _by_majority(pairs: Sequence[LabelPair]) -> dict[tuple[int, ...], bool]:
    """One verdict of people on each thing; where they are evenly split there is none."""
    votes: dict[tuple[int, ...], list[bool]] = defaultdict(list)
    for pair in pairs:
        votes[pair.trial].append(pair.is_good)
    return {trial: 2 * sum(said) > len(said) for trial, said in votes.items() if 2 * sum(said) != len(said)}


def _passed(pairs: Sequence[LabelPair]) -> dict[tuple[int, ...], bool]:
    return {pair.trial: pair.is_passed for pair in pairs if pair.is_passed is not None}

"""The scores that the other scorings of a run gave to the same trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaldesk.desk.rescoring import scorings
from evaldesk.desk.run_view import needs_words, short_title
from evaldesk.desk.trial_turns import said_verdict, shown_value
from evaldesk.errors import NotFoundError
from evaldesk.store import RunStore, TrialKey

MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ScoreBeside:
    """One metric of another scoring; `verdict` is empty where it only informs."""

    title: str
    value: str
    needs: str
    verdict: str


@dataclass(frozen=True, slots=True)
class ScoringBeside:
    """The same trial in another run that scores it."""

    run_id: int
    words: str
    href: str
    verdict: str
    scores: Sequence[ScoreBeside]


def scores_beside(runs: RunStore, run_id: int, key: TrialKey) -> list[ScoringBeside]:
    """The other scorings of a trial, the one it was played with first; none where it was scored once."""
    return list(_beside(runs, run_id, key))


def _beside(runs: RunStore, run_id: int, key: TrialKey) -> Iterator[ScoringBeside]:
    others = [each for each in scorings(runs, runs.summary(run_id)) if not each.is_current]
    for other in others[:MAX_SHOWN]:
        try:
            result = runs.trial(other.run_id, *key)
        except NotFoundError:
            continue
        yield ScoringBeside(
            run_id=other.run_id,
            words="as it was played" if other.is_played else "again",
            href=f"/runs/{other.run_id}/cases/{key[0]}/trials/{key[1]}",
            verdict=result.verdict,
            scores=tuple(
                ScoreBeside(
                    title=short_title(score.metric),
                    value=shown_value(score),
                    needs=needs_words(score.metric, score.threshold),
                    verdict=said_verdict(score),
                )
                for score in result.scores
                if score.turn is None
            ),
        )

"""The scores that the other scorings of a run gave to the same trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.errors import NotFoundError
from evaldesk.model.stored import TrialKey
from evaldesk.pages.run_view import scorings
from evaldesk.pages.trial_turns import shown_needs, shown_value, verdict_words
from evaldesk.store import RunStore
from evaldesk.wording.words import short_title

MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class OtherScore:
    """One metric of another scoring; `verdict` is empty where it only informs."""

    title: str
    value: str
    needs: str
    verdict: str


@dataclass(frozen=True, slots=True)
class OtherScoring:
    """The same trial in another run that scores it."""

    run_id: int
    words: str
    href: str
    verdict: str
    scores: Sequence[OtherScore]


def read_other_scorings(desk: Desk, run_id: int, key: TrialKey) -> list[OtherScoring]:
    """The other scorings of a trial, the one it was played with first; none where it was scored once."""
    return list(_other_scorings(desk.store.runs, run_id, key))


def _other_scorings(runs: RunStore, run_id: int, key: TrialKey) -> Iterator[OtherScoring]:
    others = [each for each in scorings(runs, runs.summary(run_id)) if not each.is_current]
    for other in others[:MAX_SHOWN]:
        try:
            result = runs.trial(other.run_id, *key)
        except NotFoundError:
            continue
        yield OtherScoring(
            run_id=other.run_id,
            words="original scores" if other.is_played else "re-scored",
            href=f"/runs/{other.run_id}/cases/{key[0]}/trials/{key[1]}",
            verdict=result.verdict,
            scores=tuple(
                OtherScore(
                    title=short_title(score.metric),
                    value=shown_value(score),
                    needs=shown_needs(score),
                    verdict=verdict_words(score),
                )
                for score in result.scores
                if score.turn is None
            ),
        )

"""`intermediate_response_match`: the messages of agents on the way to the answer, against the expected ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evaldesk.metrics.metric import Judgement, MetricInfo, has_intermediate, score_turns
from evaldesk.metrics.responses.rouge import rouge1
from evaldesk.model import Case, Expected, JsonObject, Score, Transcript, TurnRecord


@dataclass(frozen=True, slots=True)
class IntermediateResponseMatch:
    """Mean over the expected intermediate responses of their ROUGE-1 with the agent's message in their place.

    Messages are paired in order and by author, so that the sum is greatest; an expected response without an author
    goes with any. Further messages of the agent do not count.
    """

    info: ClassVar[MetricInfo] = MetricInfo(
        "intermediate_response_match",
        "Intermediate response match",
        "Expected intermediate responses found in order among the messages of agents (ROUGE-1).",
        needs="intermediate",
        default_threshold=0.8,
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The match of each turn with expected intermediate responses, and their mean."""
        return score_turns(self.info.name, transcript, case, has_intermediate, _judge)


def _judge(expected: Expected, record: TurnRecord) -> Judgement:
    matches = _match_shares(expected.intermediate, record.intermediate)
    value = sum(matches) / len(matches)
    details: JsonObject = {"n_expected": len(matches), "n_given": len(record.intermediate), "matches": list(matches)}
    if not record.intermediate:
        return 0.0, "The agent gave no intermediate response.", details
    worst = min(range(len(matches)), key=matches.__getitem__)
    author, text = expected.intermediate[worst]
    who = f" of {author}" if author else ""
    reason = (
        f"{len(matches)} expected, {len(record.intermediate)} given; lowest is {matches[worst]:.2f}{who}: {text:.80}"
    )
    return value, reason, details


def _match_shares(expected: Sequence[tuple[str, str]], actual: Sequence[tuple[str, str]]) -> tuple[float, ...]:
    """The ROUGE-1 of each expected response with its partner, 0 for one without."""
    best: list[list[tuple[float, tuple[float, ...]]]] = [[(0.0, ())] * (len(actual) + 1)]
    for author, text in expected:
        before, row = best[-1], [(best[-1][0][0], (*best[-1][0][1], 0.0))]
        for place, (speaker, message) in enumerate(actual):
            alone = (before[place + 1][0], (*before[place + 1][1], 0.0))
            match = rouge1(text, message) if author in ("", speaker) else 0.0
            together = (before[place][0] + match, (*before[place][1], match))
            row.append(max(alone, row[place], together, key=lambda alternative: alternative[0]))
        best.append(row)
    return best[-1][-1][1]

"""`response_regex`: answers in which a regular expression is found, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from evaldesk.matching import check_pattern, has_match
from evaldesk.metrics.metric import Judgement, MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import TURNS, Turns, score_answers
from evaldesk.model import Case, Score, Transcript, TurnRecord

_WANTS = (("found", "somewhere in it"), ("whole", "all of it"), ("absent", "nowhere in it"))


@dataclass(frozen=True, slots=True)
class ResponseRegex:
    """1 for each answer that the pattern is found in, matches as a whole, or is absent from; else 0.

    Patterns are those of the package `regex`: Python's own, and more. A search of over a second is an error.
    """

    pattern: str = option(
        "", "text", "Pattern", "A regular expression; (?i) in front ignores case.", example=r"order \d{6}"
    )
    want: Literal["found", "whole", "absent"] = option(
        "found", "choice", "Wanted", "Where in the answer it has to be.", choices=_WANTS
    )
    turns: Turns = option("each", "choice", "Of", "Which answers are looked at.", choices=TURNS)

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_regex",
        "Response, pattern",
        "Share of answers in which a regular expression is found, or is not.",
        required=("pattern",),
    )

    def __post_init__(self) -> None:
        if self.pattern:
            check_pattern(self.pattern, "the pattern", field="pattern")

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """1 or 0 for each answer, and their mean."""
        return score_answers(self.info.name, transcript, case, self.turns, self._judge)

    def _judge(self, record: TurnRecord) -> Judgement:
        answer = record.answer.strip()
        if not answer:
            return 0.0, "The agent gave no answer.", {}
        matches = has_match(self.pattern, answer, is_whole=self.want == "whole")
        value = float(matches != (self.want == "absent"))
        if self.want == "whole":
            return value, f"The pattern {'matches' if matches else 'does not match'} the whole answer.", {}
        return value, f"The pattern is {'' if matches else 'not '}found in the answer.", {}

"""`failure_mode`: judges say whether a trial shows one kind of failure, and prove it by a quote.

The options hold all texts of the failure mode, so that a run keeps the definition of its start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from evaldesk.metrics.judges.judge_metric import JudgeMetric, verdict_words
from evaldesk.metrics.judges.judged_turns import Judgement
from evaldesk.metrics.judges.material import conversation_text, earlier_section
from evaldesk.metrics.judges.panel import Sample, Task, problems, sample_rows
from evaldesk.metrics.judges.replies import Occurrence
from evaldesk.metrics.judges.voting import count
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import NO_TURN
from evaldesk.model import Case, JsonValue, Score, Transcript
from evaldesk.wire import plain_text

TASK = Task(
    """
CONVERSATION is a whole dialogue between a user and an agent, with the agent's tool calls and their results. FAILURE \
names one kind of failure; DEFINITION, EXAMPLE THAT COUNTS and EXAMPLE THAT DOES NOT, where they are there, say what \
it is. Decide whether the conversation shows this kind of failure; any other failure is no. Verdict yes means that it \
is there; then copy, as quote, the shortest passage of CONVERSATION that shows it, letter by letter. Verdict no means \
that it is not there; then the quote is empty.
""",
    Occurrence,
)
NO_QUOTE = "by a quote that is not in the conversation"
WORDS = {True: "present", False: "absent"}
MAX_QUOTE = 200


# A yes without a verbatim quote is no vote: decision 202.
@dataclass(frozen=True, slots=True, kw_only=True)
class FailureMode(JudgeMetric):
    """1 where most judges find that the trial does not show the kind of failure, 0 where it does."""

    failure: str = option("", "text", "Kind of failure", "Its name.", example="wrong date")
    definition: str = option("", "long_text", "What counts", "When a trial shows this kind of failure.")
    example_yes: str = option("", "long_text", "Example that counts", "A case of it.")
    example_no: str = option("", "long_text", "Example that does not", "A case that is easily taken for it.")

    kind: str = ""
    """The key of the kind in the workspace that made the judge; it is not shown to the judge."""

    info: ClassVar[MetricInfo] = MetricInfo(
        "failure_mode",
        "Kind of failure, judged",
        "Whether a judge finds the trial free of one kind of failure; each yes is proved by a quote.",
        has_judge=True,
        required=("failure",),
    )

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The score of the trial, and the same for its last turn, where a page shows the replies."""
        if not transcript.turns:
            return [Score(self.info.name, 0.0, reason=NO_TURN)]
        judgement = await self._judge(conversation_text(transcript.turns, with_steps=True))
        return [
            Score(self.info.name, judgement.value, turn, reason=judgement.reason, details=judgement.details)
            for turn in (len(transcript.turns) - 1, None)
        ]

    async def _judge(self, conversation: str) -> Judgement:
        texts = {
            "FAILURE": self.failure,
            "DEFINITION": self.definition,
            "EXAMPLE THAT COUNTS": self.example_yes,
            "EXAMPLE THAT DOES NOT": self.example_no,
        }
        sections = {name: text for name, text in texts.items() if text.strip()}
        sections |= earlier_section() | {"CONVERSATION": conversation}
        panel, judge_text = self.panel(), plain_text(conversation)
        samples = [_check_quote(sample, judge_text) for sample in await panel.ask(TASK, sections)]
        votes = count(sample.answer.vote if sample.answer else None for sample in samples)
        details: dict[str, JsonValue] = {
            **panel.record(TASK, samples),
            "votes": {WORDS[True]: votes.n_yes, WORDS[False]: votes.n_no},
            "samples": sample_rows(samples, lambda answer: (WORDS[answer.vote], _reasons(answer))),
        }
        n_unproved = sum(sample.problem == NO_QUOTE for sample in samples)
        if not votes.value and votes.n_yes + n_unproved > votes.n_no:  # with a proof they would decide otherwise
            why = f"No verdict: {n_unproved} of {len(samples)} judged {WORDS[True]}, {NO_QUOTE}."
            return Judgement(None, why, details)
        if votes.value is None:
            return Judgement(None, problems(samples), details)
        is_there = bool(votes.value)
        reasons = [_reasons(each.answer) for each in samples if each.answer and each.answer.vote is is_there]
        words = verdict_words(f"Judged {WORDS[is_there]} by {votes.words}", reasons)
        return Judgement(1.0 - votes.value, words, details)


def _check_quote(sample: Sample[Occurrence], judge_text: str) -> Sample[Occurrence]:
    """The sample; without its answer where that is a yes whose quote does not occur word for word."""
    answer = sample.answer
    if answer is None or not answer.vote or (answer.quote.strip() and answer.quote in judge_text):
        return sample
    return replace(sample, answer=None, problem=NO_QUOTE)


def _reasons(answer: Occurrence) -> str:
    if not answer.vote:
        return answer.reasoning
    quote = answer.quote if len(answer.quote) <= MAX_QUOTE else f"{answer.quote[:MAX_QUOTE]}…"
    return f"“{quote}”. {answer.reasoning}".strip()

"""`required_outputs`: texts that the agent must tell the user somewhere in the conversation. (tau-bench's `outputs`)"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from evaldesk.errors import NAME_LIMIT
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import part_of
from evaldesk.model import Case, JsonObject, Score, Transcript

_MATCHES = (("token", "whole words and numbers"), ("substring", "any piece of text, as in tau-bench"))


@dataclass(frozen=True, slots=True)
class RequiredOutputs:
    """Share of the required texts that the agent says to the user, in any turn.

    Case and commas are left out on both sides, so that 1,234 says 1234. As a `token`, 5 is not said by 15, 5.50 or
    A5; as a `substring` it is. Without the option, a case brings its own under `required_outputs`, `outputs`
    (tau-bench) or `evaluation_criteria.communicate_info` (tau2) of its extra keys.
    """

    outputs: list[str] = option(
        [],
        "list",
        "Texts",
        "The required texts, one a line; empty for those of each case.",
        example="refund of 54.04",
    )
    match: Literal["token", "substring"] = option(
        "token", "choice", "Found as", "Whether a piece of a longer word or number counts.", choices=_MATCHES
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "required_outputs", "Required outputs", "Share of the required texts that the agent says to the user."
    )

    def missing(self, case: Case) -> str | None:
        """A case without a list of its own needs the option."""
        return None if self._outputs_of(case) is not None else "The case does not say which texts are required."

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        outputs = self._outputs_of(case) or []
        if len(transcript.turns) < len(case.turns):
            return [Score(self.info.name, 0.0, reason=f"Turn {len(transcript.turns) + 1} was never played.")]
        if not outputs:
            return [Score(self.info.name, 1.0, reason="No text is required.")]
        present = [text for text in outputs if self._is_in_answers(text, transcript)]
        silent = [text for text in outputs if text not in present]
        kind = "whole tokens" if self.match == "token" else "substrings"
        reason = f"{part_of(len(present), len(outputs), 'required text', 'is said', 'are said')}, as {kind}"
        reason += f"; not said: {_quotes(silent)}." if silent else "."
        details: JsonObject = {"said": [*present], "silent": [*silent]}
        return [Score(self.info.name, len(present) / len(outputs), reason=reason, details=details)]

    def _outputs_of(self, case: Case) -> list[str] | None:
        return self.outputs or case_outputs(case)

    def _is_in_answers(self, text: str, transcript: Transcript) -> bool:
        required_text = _fold(text)
        messages = (
            _fold(event.text)
            for turn in transcript.turns
            for event in turn.own_events
            if event.kind == "agent_message" and not event.is_partial
        )
        if self.match == "substring":
            return any(required_text in message for message in messages)
        token = re.compile(rf"(?<!\w)(?<![0-9]\.){re.escape(required_text)}(?!\w)(?!\.[0-9])")
        return any(token.search(message) for message in messages)


def case_outputs(case: Case) -> list[str] | None:
    """The texts that the case itself requires; None when it does not say."""
    criteria = case.extra.get("evaluation_criteria")
    communicated = criteria.get("communicate_info") if isinstance(criteria, dict) else None
    for outputs in (case.extra.get("required_outputs"), case.extra.get("outputs"), communicated):
        if isinstance(outputs, list):
            return [str(text) for text in outputs]
    return None


def _fold(text: str) -> str:
    return text.replace(",", "").casefold().strip()


def _quotes(texts: Sequence[str]) -> str:
    quotes = ", ".join(f"“{text[:NAME_LIMIT]}”" for text in texts[:3])
    return f"{quotes} and {len(texts) - 3} more" if texts[3:] else quotes

"""In words: how a conversation ended, how often models were asked again, and how much was recorded or cached."""

from __future__ import annotations

from collections.abc import Mapping

from evaldesk.model import TrialResult
from evaldesk.model.transcript import AWAITING, BOUNDS

ENDINGS: Mapping[str, str] = {
    "user_satisfied": "The simulated user ended the conversation, satisfied.",
    "user_gave_up": "The simulated user gave up.",
    "user_out_of_scope": "The simulated user ended the conversation: its plan does not cover this situation.",
    "user_transferred": "The simulated user ended the conversation after a handover.",
    "user_cap": "The simulated user reached its message limit.",
    "user_error": "The simulated user failed; the agent did not.",
}

AWAITS = "The agent waits for a decision of a person. A tool call without a result counts as not made."
CUT = "An answer of the model was cut at its token limit (finish_reason length)."
NEVER_ANSWERED = "The agent reached its limit of model calls without an answer. Its transcript is scored."


def ending_sentence(result: TrialResult | None) -> str:
    """Empty for a trial with scripted turns and answers of its own, the last of which was given, all at once."""
    if result is None:
        return ""
    without_answer = dict.fromkeys(BOUNDS, NEVER_ANSWERED) | {AWAITING: AWAITS}
    text = without_answer.get(result.stop_reason) or ENDINGS.get(result.stop_reason, "")
    n_replayed = sum(usage.is_replayed for usage in result.usages)
    if n_replayed:
        share = "All" if n_replayed == len(result.usages) else f"{n_replayed:,} of {len(result.usages):,}"
        text = f"{text} {share} model calls were answered from a recording or a cache."
    if any(turn.is_cut for turn in result.transcript.turns):
        text = f"{text} {CUT}"
    n_again = sum(max(usage.n_attempts - 1, 0) for usage in result.usages)
    if n_again:
        text = (
            f"{text} Model calls retried {'once' if n_again == 1 else f'{n_again:,} times'}; the log has the reasons."
        )
    return text.strip()

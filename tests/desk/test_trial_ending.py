"""How the end of a simulated conversation, and replayed answers, are put in words."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from evaldesk.model import Transcript, TrialResult, TurnRecord, Usage
from evaldesk.model.options import UserStop
from evaldesk.wording.words import ENDINGS, ending_sentence


def result(stop_reason: str = "answered", *replayed: bool) -> TrialResult:
    usages = tuple(Usage("m", is_replayed=each) for each in replayed)
    return TrialResult(1, 0, 0, "finished", "passed", stop_reason, usages=usages)


def test_every_reason_of_a_user_has_its_words() -> None:
    assert set(ENDINGS) == set(get_args(UserStop))
    assert len(set(ENDINGS.values())) == len(ENDINGS)


def test_a_scripted_trial_with_its_own_answers_says_nothing() -> None:
    assert ending_sentence(None) == ending_sentence(result("answered", False)) == ""


def test_an_agent_at_its_bound_never_answered() -> None:
    assert ending_sentence(result("max_turns")) == ending_sentence(result("max_iterations"))
    assert "without an answer" in ending_sentence(result("max_turns"))


def test_a_file_that_ends_in_a_call_says_that_it_counts_as_not_made() -> None:
    cut = replace(result(), transcript=Transcript((TurnRecord("q", stop_reason="interrupted"),)))

    assert ending_sentence(cut).startswith("The file ends a turn before a result and an answer.")


def test_replayed_calls_are_counted() -> None:
    assert (
        ending_sentence(result("answered", True, True)) == "All model calls were answered from a recording or a cache."
    )
    assert ending_sentence(result("user_cap", True, False)) == (
        "The simulated user reached its message limit. 1 of 2 model calls were answered from a recording or a cache."
    )


def test_further_attempts_are_counted() -> None:
    def tried(*n_attempts: int) -> TrialResult:
        return TrialResult(1, 0, 0, "finished", "passed", usages=tuple(Usage("m", n_attempts=n) for n in n_attempts))

    assert ending_sentence(tried(1, 2)) == "Model calls retried once; the log has the reasons."
    assert ending_sentence(tried(3, 1, 2)) == "Model calls retried 3 times; the log has the reasons."

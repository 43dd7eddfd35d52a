"""The same metric more than once in a run, told apart by labels."""

from __future__ import annotations

import pytest

from evaldesk.desk.criteria.criteria import criteria_of
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.metrics import METRICS, check_criteria, is_metric, metric_info, metric_options, score_trial
from evaldesk.model import Case, Criterion, Event, ToolCall, Transcript, Turn, TurnRecord, trial_verdict
from evaldesk.wording.words import needs_words, short_title

CASE = Case("c", (Turn("q"),))
PLAYED = Transcript((TurnRecord("q", (Event("tool_call", call=ToolCall("search", {})),)),))
TWO = (
    Criterion("tool_used/search", 1.0, {"tool": "search"}),
    Criterion("tool_used/book", 1.0, {"tool": "book"}),
)


def test_each_label_has_options_a_score_and_a_vote_of_its_own() -> None:
    check_criteria(TWO)

    scores = score_trial(PLAYED, CASE, TWO)

    assert [(score.metric, score.value, score.passed) for score in scores] == [
        ("tool_used/search", 1.0, True),
        ("tool_used/book", 0.0, False),
    ]
    assert scores[1].reason == "book was not called, wanted once or more."
    assert trial_verdict(scores, TWO, None) == "failed"


def test_a_label_is_said_with_all_that_the_metric_says_of_itself() -> None:
    assert short_title("tool_used/search") == "Tool used: search"
    assert metric_options("tool_used/search") == metric_options("tool_used")
    assert metric_info("cost/cheap").is_higher_better is False
    assert needs_words("cost/cheap", 0.5) == "at most 0.50"
    assert metric_info("tool_used").name == "tool_used"


def test_a_criteria_file_names_a_metric_with_its_label() -> None:
    found = criteria_of({"tool_used/search": {"threshold": 1.0, "tool": "search"}, "response_contains/end": 1})

    assert found == (TWO[0], Criterion("response_contains/end", 1.0))


@pytest.mark.parametrize("label", ["", "two words", "a/b", "x" * 41, "a.b", "a:b", "<b>"])
def test_a_label_that_cannot_be_is_refused_in_words(label: str) -> None:
    name = f"tool_used/{label}"

    assert not is_metric(name)
    with pytest.raises(UsageError, match="the label behind tool_used/ is 1 to 40 letters"):
        metric_info(name)


def test_the_metric_before_the_label_is_looked_up_and_never_imported() -> None:
    with pytest.raises(NotFoundError, match="no metric named 'tool_usd/search'; did you mean 'tool_used'"):
        check_criteria([Criterion("tool_usd/search", 1.0)])
    with pytest.raises(NotFoundError):
        metric_info("os:system/x")


def test_a_metric_named_twice_is_told_of_labels() -> None:
    with pytest.raises(UsageError, match=r"tool_used/search is named twice; .* label of its own: tool_used/2"):
        check_criteria([TWO[0], TWO[0]])


def test_no_metric_of_the_table_looks_labelled_itself() -> None:
    assert not [name for name in METRICS if "/" in name]
    assert not [name for name in METRICS for option in metric_options(name) if option.name in ("label", "another")]

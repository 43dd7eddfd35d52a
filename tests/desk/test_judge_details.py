"""What a page shows of judges: votes, replies read and unread, rubrics and sentences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.pages.trial_turns import judge_panel

RECORD = {"judges": ["a/b", "c/d"], "prompt": "0123456789abcdef", "n_samples": 3, "n_read": 2}


def test_votes_and_replies_are_shown() -> None:
    samples = [
        {"judge": "a/b", "verdict": "valid", "reasoning": "Because."},
        {"judge": "c/d", "problem": "the reply contains no JSON object", "reply": "Well."},
    ]

    panel = judge_panel({**RECORD, "votes": {"valid": 2, "invalid": 0}, "samples": samples})

    assert panel is not None
    assert panel.summary == "Judged by a/b, c/d: 3 replies, 1 could not be read"
    assert (panel.votes, panel.prompt) == ("2 valid, 0 invalid", "0123456789abcdef")
    assert [(reply.verdict, reply.problem, reply.raw) for reply in panel.replies] == [
        ("valid", "", ""),
        ("", "the reply contains no JSON object", "Well."),
    ]


@pytest.mark.parametrize(
    ("key", "row", "item", "shown"),
    [
        (
            "rubrics",
            {"id": "r", "text": "Short.", "value": 1.0, "votes": {"yes": 2, "no": 1}, "rationale": "so"},
            "Rubric",
            ("r", "Short.", "met", "passed", "2 yes, 1 no", "so"),
        ),
        (
            "rubrics",
            {"id": "r", "text": "Short.", "value": None},
            "Rubric",
            ("r", "Short.", "no verdict", "unscored", "", ""),
        ),
        (
            "sentences",
            {"sentence": "It is 3.", "value": 0.0, "label": "not_applicable", "rationale": "no"},
            "Sentence",
            ("", "It is 3.", "not applicable", "failed", "", "no"),
        ),
    ],
)
def test_rubrics_and_sentences_are_shown_one_by_one(
    key: str, row: dict[str, Any], item: str, shown: tuple[str, ...]
) -> None:
    panel = judge_panel({**RECORD, key: [row]})

    assert panel is not None
    (found,) = panel.items
    assert panel.item == item
    assert (found.name, found.text, found.verdict, found.status, found.votes, found.reasons) == shown


def test_the_spread_of_grades_is_shown() -> None:
    panel = judge_panel({**RECORD, "spread": {"mean": 4.0, "std": 0.8165, "low": 3.0, "high": 5.0}})

    assert panel is not None
    assert panel.votes == "mean 4.00, 3 to 5, deviation 0.82"


def test_other_metrics_have_no_judges() -> None:
    assert judge_panel({}) is None
    assert judge_panel({"n_expected": 1, "rubrics": [{"id": "x"}]}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["votes", "rubrics", "sentences", "samples", "spread", "prompt", "n_read"]), JSON)
)
def test_whatever_was_stored_can_be_shown(details: dict[str, Any]) -> None:
    assert judge_panel({"judges": ["a/b"], **details}) is not None

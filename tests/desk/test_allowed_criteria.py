"""What a browser may choose to score by, and what a run then keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaldesk.desk.criteria.criteria import allowed_criteria, ready_criteria
from evaldesk.errors import UsageError
from evaldesk.model import Criterion
from evaldesk.settings import CONFIG_NAME, Settings, read_settings

JUDGED = "final_response_match_v2"


def settings(tmp_path: Path, **fields: object) -> Settings:
    return Settings(tmp_path, (), **fields)  # type: ignore[arg-type]


def test_a_page_names_a_function_as_the_settings_do(tmp_path: Path) -> None:
    allowed = settings(tmp_path, functions={"exact": "rewards:exact"})

    (found,) = allowed_criteria([Criterion("exact", 0.5)], allowed)

    assert found == Criterion("exact", 0.5, {"function": "rewards:exact"})


def test_a_page_names_a_function_of_the_run_it_scores_again(tmp_path: Path) -> None:
    played = Criterion("rewards:f", 1.0, {"function": "rewards:f", "root": "/r", "compat": "osmosis"})

    (found,) = allowed_criteria([Criterion("rewards:f", 0.5)], settings(tmp_path), [played])

    assert found == Criterion("rewards:f", 0.5, played.options)


def test_a_run_is_scored_again_by_the_judges_it_had(tmp_path: Path) -> None:
    played = Criterion(JUDGED, 0.8, {"judge_model_options": {"judge_model": "c/d", "base_url": "http://127.0.0.1:1"}})

    assert allowed_criteria([replace(played, threshold=0.5)], settings(tmp_path), [played])
    with pytest.raises(UsageError, match="for criteria files"):
        allowed_criteria([played], settings(tmp_path, judges=("c/d",)))


def test_more_judges_vote_with_the_first_of_the_allowed_ones(tmp_path: Path) -> None:
    two = Criterion(JUDGED, 1, {"more_judges": ["c/d"]})
    allowed = settings(tmp_path, judges=("a/b", "c/d"))

    (found,) = ready_criteria(allowed_criteria([two], allowed), allowed, "")

    assert found.options == {"judge_model": "a/b", "more_judges": ["c/d"]}


@pytest.mark.parametrize(
    ("criterion", "field", "message"),
    [
        (Criterion("os:system"), "metric", "no metric named 'os:system'"),
        (Criterion("exakt"), "metric", "did you mean 'exact'?"),
        (Criterion("exact", 1, {"function": "os:system"}), "metric", "a page cannot name a function by its module"),
        (Criterion("tool_f1", 1, {"function": "os:system"}), "metric", "a page cannot name a function by its module"),
        (Criterion(JUDGED, 1, {"judge_model": "evil/x"}), f"{JUDGED}.judge_model", "not among the allowed judges: a/b"),
        (
            Criterion(f"{JUDGED}/two", 1, {"more_judges": ["a/b", "evil/x"]}),
            f"{JUDGED}/two.more_judges",
            "'evil/x' is not among the allowed judges: a/b",
        ),
        (
            Criterion(JUDGED, 1, {"judge_model_options": {"base_url": "http://evil.invalid"}}),
            f"{JUDGED}.judge_model",
            "judge_model_options are for criteria files",
        ),
    ],
)
def test_a_page_can_choose_nothing_else(tmp_path: Path, criterion: Criterion, field: str, message: str) -> None:
    allowed = settings(tmp_path, judges=("a/b",), functions={"exact": "rewards:exact"})

    with pytest.raises(UsageError, match=message) as caught:
        allowed_criteria([criterion], allowed)

    assert caught.value.field == field


def test_without_an_allowed_judge_a_page_cannot_have_anything_judged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"name one under judges in evaldesk\.toml"):
        allowed_criteria([Criterion(JUDGED, 1)], settings(tmp_path))


def test_a_run_keeps_where_functions_are_found_and_who_judges(tmp_path: Path) -> None:
    agents, own = tmp_path / "agents", tmp_path / "own"
    for folder, name in ((agents, "found_rewards"), (own, "found_g")):
        folder.mkdir()
        (folder / f"{name}.py").write_text("def f(solution_str): ...\n")
    given = [
        Criterion("rewards", 1.0, {"function": "found_rewards:f"}),
        Criterion("g", 1.0, {"function": "found_g:f", "root": str(own)}),
        Criterion(JUDGED, 0.8),
        Criterion("safety_v1", 0.8, {"judge_model_options": {"judge_model": "c/d"}}),
        Criterion("tool_f1", 1.0),
    ]

    ready = ready_criteria(given, settings(tmp_path, models=("a/b", "x/y")), str(agents))

    assert [dict(each.options) for each in ready] == [
        {"function": "found_rewards:f", "root": str(agents)},
        {"function": "found_g:f", "root": str(own)},
        {"judge_model": "a/b"},
        {"judge_model_options": {"judge_model": "c/d"}},
        {},
    ]


def test_the_settings_name_functions_and_judges(tmp_path: Path) -> None:
    toml = 'judges = ["a/b"]\n[metrics]\nexact = "rewards:exact"\n'
    (tmp_path / CONFIG_NAME).write_text(toml)

    found = read_settings(tmp_path, (), environment={"EVALDESK_JUDGES": "c/d, a/b"})

    assert (found.judges, found.allowed_judges, found.functions) == (
        ("a/b", "c/d"),
        ("a/b", "c/d"),
        {"exact": "rewards:exact"},
    )


@pytest.mark.parametrize("line", ['exact = "rewards"', "exact = 3", '"a b" = "a:b"', '"../x" = "a:b"'])
def test_a_function_of_another_form_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / CONFIG_NAME).write_text(f"[metrics]\n{line}\n")

    with pytest.raises(UsageError, match=r"evaldesk\.toml: \[metrics\]: .* is not of the form"):
        read_settings(tmp_path, (), environment={})

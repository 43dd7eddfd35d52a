"""The graders of OpenAI Evals that are computed here, against plain scripts."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from typing import Any

import pytest

from evaldesk.errors import MetricError
from evaldesk.integrations.openai_evals.formulas import calculate
from evaldesk.integrations.openai_evals.scoring import fuzzy_ratio, is_computed, rouge, score

WORDS = ["the", "cat", "sat", "on", "mat", "Cat", "a", "dog's", "42"]
ANSWER, REFERENCE = "{{ sample.output_text }}", "{{ item.answer }}"


def rows(n: int) -> list[tuple[str, str]]:
    chance = random.Random(20261129)
    return [tuple(" ".join(chance.choices(WORDS, k=chance.randint(0, 9))) for _ in range(2)) for _ in range(n)]  # type: ignore[misc]


def check(operation: str, answer: str, reference: str) -> float:
    grader = {"type": "string_check", "input": ANSWER, "reference": REFERENCE, "operation": operation}
    return score(grader, {"item": {"answer": reference}, "sample": {"output_text": answer}})


def test_string_checks_are_those_of_a_plain_script() -> None:
    for answer, reference in rows(500):
        assert check("eq", answer, reference) == (answer == reference)
        assert check("ne", answer, reference) == (answer != reference)
        assert check("like", answer, reference) == (reference in answer)
        assert check("ilike", answer, reference) == (reference.lower() in answer.lower())


def test_fuzzy_match_is_that_of_a_plain_script() -> None:
    def plain(a: str, b: str) -> float:
        row = [0] * (len(b) + 1)
        for letter in a:
            before = row
            row = [0]
            for at, other in enumerate(b):
                row.append(before[at] + 1 if letter == other else max(row[at], before[at + 1]))
        return 2 * row[-1] / (len(a) + len(b)) if a or b else 1.0

    assert all(fuzzy_ratio(a, b) == plain(a, b) for a, b in rows(500))
    assert fuzzy_ratio("this is a test", "this is a test!") == pytest.approx(0.9655, abs=1e-4)


@pytest.mark.parametrize("n", range(1, 6))
def test_rouge_n_is_that_of_a_plain_script(n: int) -> None:
    def plain(a: str, b: str) -> float:
        grams = []
        for text in (a, b):
            words = re.findall("[a-z0-9]+", text.lower())
            grams.append(Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1)))
        shared, total = (grams[0] & grams[1]).total(), grams[0].total() + grams[1].total()
        return 2 * shared / total if shared else 0.0

    assert all(rouge(f"rouge_{n}", a, b) == pytest.approx(plain(a, b)) for a, b in rows(500))


def test_rouge_l_follows_the_order_of_words() -> None:
    assert rouge("rouge_l", "the cat sat on the mat", "the cat on the mat sat") == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("a + 2 * b", 2.5),
        ("(a + b) / 2", 0.75),
        ("max(a, b, 3) - min(a, b)", 2.5),
        ("b-a", 0.5),
        ("-a + abs(-2)", 1.5),
        ("floor(1.7) + ceil(1.2)", 3.0),
        ("sqrt(4) * exp(0) + log(1)", 2.0),
        ("name-of-it * 1e1", 2.5),
        ("2 - 1 - 1", 0.0),
        ("8 / 2 / 2", 2.0),
    ],
)
def test_a_formula_is_calculated_by_precedence(formula: str, value: float) -> None:
    assert calculate(formula, {"a": 0.5, "b": 1.0, "name-of-it": 0.25}) == value


def test_random_formulas_are_those_of_python() -> None:
    chance = random.Random(5)

    def formula(depth: int) -> str:
        if not depth:
            return chance.choice(["a", "b", "0.5", "3"])
        kind = chance.choice(["+", "-", "*", "min", "max", "abs"])
        if kind in "+-*":
            return f"({formula(depth - 1)} {kind} {formula(depth - 1)})"
        more = "" if kind == "abs" else f", {formula(depth - 1)}"
        return f"{kind}({formula(depth - 1)}{more})"

    for _ in range(300):
        text = formula(3)
        expected = eval(text, {"a": 0.25, "b": -1.5, "min": min, "max": max, "abs": abs})  # noqa: S307 - of this test
        assert math.isclose(calculate(text, {"a": 0.25, "b": -1.5}), expected)


@pytest.mark.parametrize(
    "formula",
    [
        *("", "a +", "a b", "gone", "(a", "a)", "min(", "1 / 0", "sqrt(-1)", "log(0)", "exp(1e9)", "a ** 2", "a.b"),
        *("__import__('os')", "a; b", "(" * 1500, "1" * 3000, "abs", "abs(1, 2)"),
    ],
)
def test_a_formula_without_a_value_is_refused(formula: str) -> None:
    with pytest.raises(MetricError, match="formula"):
        calculate(formula, {"a": 1.0})


def test_multi_combines_the_graders_it_names() -> None:
    equal = {"type": "string_check", "input": ANSWER, "reference": REFERENCE, "operation": "eq"}
    near = {"type": "text_similarity", "input": ANSWER, "reference": REFERENCE, "evaluation_metric": "fuzzy_match"}
    multi: dict[str, Any] = {"type": "multi", "graders": {"equal": equal, "near": near}}
    values = {"item": {"answer": "abcd"}, "sample": {"output_text": "abce"}}

    assert is_computed(multi)
    assert score({**multi, "calculate_output": "0.5 * equal + 0.5 * near"}, values) == 0.375
    assert not is_computed({"type": "multi", "graders": {"equal": equal, "judge": {"type": "score_model"}}})


@pytest.mark.parametrize("measure", ["bleu", "gleu", "meteor", "cosine"])
def test_other_measures_have_given_scores_only(measure: str) -> None:
    assert not is_computed({"type": "text_similarity", "evaluation_metric": measure})


def test_an_item_without_the_field_is_an_error_and_no_zero() -> None:
    grader = {"type": "string_check", "input": ANSWER, "reference": REFERENCE, "operation": "eq"}

    with pytest.raises(MetricError, match=r"no value for item\.answer"):
        score(grader, {"item": {}, "sample": {"output_text": "x"}})

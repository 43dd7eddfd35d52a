"""Answers against references: word pairs, word order, text, JSON, numbers."""

from __future__ import annotations

import pytest

from evaldesk.errors import MetricError
from evaldesk.metrics import score_trial
from evaldesk.metrics.responses.number import last_number
from evaldesk.metrics.responses.rouge import score_rouge2, score_rouge_l
from evaldesk.model import Case, Criterion, Event, Expected, Score, Transcript, Turn, TurnRecord


def scored(metric: str, reference: str, answer: str, **options: bool | float) -> Score:
    case = Case("c", (Turn("q", Expected(reference=reference)),))
    transcript = Transcript((TurnRecord("q", (Event("agent_message", text=answer),)),))
    return score_trial(transcript, case, [Criterion(metric, 1.0, options)])[0]


@pytest.mark.parametrize(
    ("reference", "answer", "rouge_2", "rouge_l"),
    [
        pytest.param("the cat sat", "the cat sat", 1.0, 1.0, id="same"),
        pytest.param("the cat sat", "sat the cat", 0.5, 2 / 3, id="moved"),
        pytest.param("police killed the gunman", "police kill the gunman", 1.0, 1.0, id="stemmed"),
        pytest.param("police killed the gunman", "the gunman killed police", 1 / 3, 0.5, id="lin-2004"),
        pytest.param("a b c d", "a x c d e", 2 / 7, 6 / 9, id="gap"),
        pytest.param("我喜欢猫", "我喜欢狗", 2 / 3, 0.75, id="chinese-by-character"),
        pytest.param("one", "one", 0.0, 1.0, id="one-word-has-no-pair"),
        pytest.param("", "one", 0.0, 0.0, id="empty-reference"),
        pytest.param("one", "", 0.0, 0.0, id="no-answer"),
    ],
)
def test_rouge_of_pairs_and_of_order(reference: str, answer: str, rouge_2: float, rouge_l: float) -> None:
    assert scored("response_rouge_2", reference, answer).value == pytest.approx(rouge_2)
    assert scored("response_rouge_l", reference, answer).value == pytest.approx(rouge_l)
    assert score_rouge2(reference, answer).fmeasure == pytest.approx(rouge_2)
    assert score_rouge_l(reference, answer).fmeasure == pytest.approx(rouge_l)


def test_rouge_l_refuses_what_would_fill_the_memory() -> None:
    with pytest.raises(MetricError, match="3,000 words against 3,000 are too many"):
        score_rouge_l("a " * 3000, "b " * 3000)

    assert scored("response_rouge_l", "a " * 3000, "b " * 3000).verdict == "errored"


@pytest.mark.parametrize(
    ("metric", "reference", "answer", "reason"),
    [
        ("response_rouge_2", "a b c", "a b d", "1 of 2 expected pairs of words, 2 given."),
        ("response_rouge_2", "one", "one", "The reference has no pairs of words to compare with."),
        ("response_rouge_l", "a b c", "c a b x", "2 of 3 expected words in their order, 4 given."),
        ("response_rouge_l", "a", "🎲", "The answer has no words to compare."),
        ("response_rouge_l", "a", " ", "The agent gave no answer."),
        ("response_exact", "a", " ", "The agent gave no answer."),
        ("response_contains", "a", " ", "The agent gave no answer."),
        ("response_json", "1", " ", "The agent gave no answer."),
        ("response_number", "1", " ", "The agent gave no answer."),
    ],
)
def test_the_reason_says_what_was_compared(metric: str, reference: str, answer: str, reason: str) -> None:
    assert scored(metric, reference, answer).reason == reason


@pytest.mark.parametrize(
    ("reference", "answer", "ignore_case", "value", "reason"),
    [
        ("Yes.", "  Yes.\n", False, 1.0, "The answer is the reference."),
        ("Yes.", "yes.", False, 0.0, "They part at character 1: the answer has “yes.”, the reference “Yes.”."),
        ("Straße", "STRASSE", True, 1.0, "The answer is the reference."),
        ("abc", "abcd", False, 0.0, "They part at character 4: the answer has “d”, the reference nothing more."),
        ("", "", False, 1.0, "The answer is the reference."),
    ],
)
def test_exact_answers(reference: str, answer: str, ignore_case: bool, value: float, reason: str) -> None:
    score = scored("response_exact", reference, answer, ignore_case=ignore_case)

    assert (score.value, score.reason) == (value, reason)


@pytest.mark.parametrize(
    ("reference", "answer", "ignore_case", "value", "reason"),
    [
        (" 17 ", "You rolled a 17.", False, 1.0, "The answer contains the reference."),
        ("Seventeen", "It is seventeen.", False, 0.0, "The answer does not contain “Seventeen”."),
        ("Seventeen", "It is seventeen.", True, 1.0, "The answer contains the reference."),
        ("x" * 31, "y", False, 0.0, f"The answer does not contain “{'x' * 30}…”."),
        ("", "y", False, 1.0, "The reference is empty, and every answer contains that."),
    ],
)
def test_answers_that_contain(reference: str, answer: str, ignore_case: bool, value: float, reason: str) -> None:
    score = scored("response_contains", reference, answer, ignore_case=ignore_case)

    assert (score.value, score.reason) == (value, reason)


SAME = "The answer is the same JSON value."


@pytest.mark.parametrize(
    ("reference", "answer", "value", "reason"),
    [
        ('{"a": 1, "b": [2]}', '{"b": [2.0], "a": 1}', 1.0, SAME),
        ("[1, 2]", "```json\n[1, 2]\n```", 1.0, SAME),
        ("```\n[1, 2]\n```", "[1,2]", 1.0, SAME),
        ("[1, 2]", "[2, 1]", 0.0, "The values differ."),
        ("1", "true", 0.0, "The answer is true or false, expected a number."),
        ('{"a": 1}', "null", 0.0, "The answer is null, expected an object."),
        ('{"a": {"b": 1}, "c": 2}', '{"a": {"b": 2}}', 0.0, "The values differ at /a/b, /c."),
        ('{"a":1,"b":1,"c":1,"d":1}', "{}", 0.0, "The values differ at /a, /b, /c and 1 more."),
        ('{"a": 1}', '{"a": 1, "a": 1}', 0.0, "The answer is not JSON: the key 'a' comes twice."),
        ("1", "NaN", 0.0, "The answer is not JSON: NaN is not a JSON number."),
        ("1", "[" * 100_000, 0.0, "The answer is not JSON: it is nested too deep."),
        ("[1]", "Here: [1]", 0.0, "The answer is not JSON: Expecting value: line 1 column 1 (char 0)."),
    ],
)
def test_json_answers(reference: str, answer: str, value: float, reason: str) -> None:
    score = scored("response_json", reference, answer)

    assert (score.value, score.reason) == (value, reason)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It is 42.", "42"),
        ("1,234,567.89 in all", "1234567.89"),
        ("1'234'567", "1234567"),
        ("12\u202f500 €", "12500"),
        ("first 3, then 4", "4"),
        ("1,23", "23"),
        ("1234,567", "567"),
        ("it fell by -5", "-5"),
        ("it fell by \u22125.5%", "-5.5"),
        ("you owe -$1,200", "-1200"),
        ("10-5", "5"),
        ("2026-11-21", "21"),
        ("about 1.5e3", "1500"),
        (".5", "0.5"),
        ("none", None),
        ("", None),
    ],
)
def test_the_last_number_of_a_text(text: str, number: str | None) -> None:
    found = last_number(text)

    assert (None if found is None else float(found)) == (None if number is None else float(number))


@pytest.mark.parametrize(
    ("reference", "answer", "tolerance", "value", "reason"),
    [
        ("3.10", "So it is 3.1", 0.0, 1.0, "The last number is 3.1, as expected."),
        ("1200", "$1,200", 0.0, 1.0, "The last number is 1200, as expected."),
        ("0.2", "0.3", 0.1, 1.0, "The last number is 0.3, expected 0.2: within 0.1 of it."),
        ("0.2", "0.31", 0.1, 0.0, "The last number is 0.31, expected 0.2: not within 0.1 of it."),
        ("42", "41", 0.0, 0.0, "The last number is 41, expected 42."),
        ("42", "none", 0.0, 0.0, "The answer has no number."),
    ],
)
def test_numeric_answers(reference: str, answer: str, tolerance: float, value: float, reason: str) -> None:
    score = scored("response_number", reference, answer, tolerance=tolerance)

    assert (score.value, score.reason) == (value, reason)


def test_numbers_of_any_length_are_told_apart_exactly() -> None:
    assert scored("response_number", "9" * 5000, "9" * 4999 + "8").value == 0.0
    assert scored("response_number", "9" * 5000, "9" * 4999 + "8", tolerance=1.0).value == 1.0
    assert scored("response_number", "1e999", "1e-999", tolerance=1.0).value == 0.0


@pytest.mark.parametrize("metric", ["response_json", "response_number"])
def test_turns_whose_reference_cannot_be_read_are_left_out(metric: str) -> None:
    case = Case("c", tuple(Turn("q", Expected(reference=text)) for text in ("prose", "7")))
    record = TurnRecord("q", (Event("agent_message", text="7"),))

    *turns, whole = score_trial(Transcript((record, record)), case, [Criterion(metric, 1.0)])

    assert [(score.turn, score.is_applicable) for score in turns] == [(0, False), (1, True)]
    assert (whole.value, whole.passed) == (1.0, True)

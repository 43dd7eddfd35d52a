"""The situations in which ADK tests its own metrics without a model: equal here, or the difference is explained.

The numbers are those of google/adk-python, tests/unittests/evaluation (test_trajectory_evaluator.py,
test_final_response_match_v1.py, test_efficiency_evaluators.py); names and words are ours. A call is written `a`, or
`a1` with the argument 1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.metrics.test_adk_metrics import RESPONSE, TRAJECTORY, asked, played, scored, status

from evaldesk.desk.criteria.criteria import read_criteria
from evaldesk.errors import UsageError
from evaldesk.metrics import build_metric, rouge1, score_trial
from evaldesk.model import Case, Criterion, Event, ToolCall, Transcript, Turn, TurnRecord, Usage
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.adk import AdkEvents

DOCS = Path(__file__).resolve().parents[2] / "docs" / "coming-from.md"


def calls(words: str) -> list[list[Any]]:
    return [[word[0], {"x": int(word[1:])} if word[1:] else {}] for word in words.split()]


TRAJECTORIES = [
    # match type, ignored arguments, calls that each turn expects, calls that it makes, mean over the turns
    ("EXACT", False, ["a1"], ["a1"], 1.0),
    ("EXACT", False, ["a1"], ["b1"], 0.0),
    ("EXACT", False, ["a2"], ["a1"], 0.0),
    ("EXACT", False, ["a1 a1"], ["a1"], 0.0),
    ("EXACT", False, [""], [""], 1.0),
    ("EXACT", False, ["a1", "b1"], ["a1", "a1"], 0.5),
    ("IN_ORDER", False, ["a b c"], ["a d b e c f"], 1.0),
    ("IN_ORDER", False, ["a b g"], ["a d b e f"], 0.0),
    ("IN_ORDER", False, ["a b c"], ["a c b"], 0.0),
    ("ANY_ORDER", False, ["a b c"], ["b e a d c f"], 1.0),
    ("ANY_ORDER", False, ["b a"], ["a b"], 1.0),
    ("ANY_ORDER", False, ["a b g"], ["a d b e f"], 0.0),
    ("ANY_ORDER", False, ["a b a"], ["a b c a"], 1.0),
    ("ANY_ORDER", False, ["a b a"], ["a b c"], 0.0),
    ("EXACT", False, [], [], None),
    ("EXACT", True, ["a9 b8"], ["a1 b2"], 1.0),
    ("EXACT", True, ["b"], ["a"], 0.0),
    ("EXACT", True, ["a"], ["a b"], 0.0),
    ("EXACT", True, [""], [""], 1.0),
    ("IN_ORDER", True, ["a9 b8"], ["a1 d b2"], 1.0),
    ("IN_ORDER", True, ["a b"], ["b a"], 0.0),
    ("IN_ORDER", True, ["a b"], ["a"], 0.0),
    ("ANY_ORDER", True, ["a9 b8"], ["b2 a1"], 1.0),
    ("ANY_ORDER", True, ["a b"], ["a"], 0.0),
    ("EXACT", True, ["a9", "b"], ["a1", "a"], 0.5),
]


@pytest.mark.parametrize(("order", "ignore_args", "expected", "actual", "mean"), TRAJECTORIES)
def test_a_trajectory_scores_as_in_adks_own_tests(
    order: str, ignore_args: bool, expected: list[str], actual: list[str], mean: float | None
) -> None:
    options: dict[str, Any] = {"match_type": order, "ignore_args": ignore_args}
    turns, records = [asked(calls(each)) for each in expected], [played(calls(each)) for each in actual]

    by_turn, whole = scored(turns, records, Criterion(TRAJECTORY, 0.5, options))

    assert whole.value == mean
    assert status(whole) == {None: "NOT_EVALUATED", 0.0: "FAILED"}.get(mean, "PASSED")
    assert len(by_turn) == len(expected)
    assert [score.value for score in by_turn] == ([1.0, 0.0] if mean == 0.5 else [mean] * len(expected))


@pytest.mark.parametrize(("order", "ignore_args", "expected", "actual", "mean"), TRAJECTORIES)
def test_google_adk_gives_these_scores(
    order: str, ignore_args: bool, expected: list[str], actual: list[str], mean: float | None
) -> None:
    skip_without("google.adk")
    from google.adk.evaluation import eval_case, eval_metrics
    from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator
    from tests.metrics.test_golden_adk import invocation

    criterion = eval_metrics.ToolTrajectoryCriterion(
        threshold=0.5, match_type=eval_metrics.ToolTrajectoryCriterion.MatchType[order], ignore_args=ignore_args
    )
    metric = eval_metrics.EvalMetric(metric_name=TRAJECTORY, criterion=criterion)
    both = ([invocation((eval_case, eval_metrics), calls(each)) for each in side] for side in (actual, expected))

    assert TrajectoryEvaluator(eval_metric=metric).evaluate_invocations(*both).overall_score == mean


ORDERS = {(1, 0, 0): "EXACT", (1, 1, 0): "IN_ORDER", (1, 1, 1): "ANY_ORDER"}
"""Orders by the scores of equal calls, of calls with another one between, and of these turned around."""


SPELLINGS = [
    *((word, "EXACT") for word in ("exact", "EXACT", " exact ")),
    *((word, "IN_ORDER") for word in ("in order", "IN ORDER", "In OrDeR", "in-order", "IN-ORDER", "in_order")),
    *((word, "ANY_ORDER") for word in ("any order", "ANY ORDER", "any-order", "ANY-ORDER", "any_order")),
]


@pytest.mark.parametrize(("spelling", "order"), SPELLINGS)
def test_an_order_is_read_however_it_is_spelled(spelling: str, order: str) -> None:
    criterion = Criterion(TRAJECTORY, 0.5, {"match_type": spelling})

    values = [
        scored([asked(calls("a b"))], [played(calls(each))], criterion)[1].value for each in ("a b", "a c b", "b c a")
    ]

    assert ORDERS[tuple(map(int, filter(lambda value: value is not None, values)))] == order  # type: ignore[arg-type, index]


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(UsageError, match="match_type"):
        build_metric(Criterion(TRAJECTORY, 0.5, {"match_type": "random string"}))


@pytest.mark.parametrize("keys", [("match_type", "ignore_args"), ("matchType", "ignoreArgs")], ids=["snake", "camel"])
def test_a_file_names_the_options_in_both_spellings(tmp_path: Path, keys: tuple[str, str]) -> None:
    path = tmp_path / "test_config.json"
    path.write_text(json.dumps({"criteria": {TRAJECTORY: {"threshold": 0.5, keys[0]: "EXACT", keys[1]: True}}}))

    (criterion,) = read_criteria(path)

    assert scored([asked(calls("a9"))], [played(calls("a1"))], criterion)[1].value == 1.0


RESPONSES = [
    # answer, reference, F of their words
    ("", "", 0.0),
    ("", "We open at nine today.", 0.0),
    ("We open at nine in summer.", "", 0.0),
    ("We open at nine every day.", "We open at nine today.", 8 / 11),
    ("Five brown birds sing loudly.", "Five brown birds sing over the old barn.", 8 / 13),
    ("Same words", "Same words", 1.0),
    ("Nothing alike here.", "Completely different text.", 0.0),
    ("สวัสดี", "สวัสดี", 1.0),
    ("สวัสดี ครับ", "สวัสดี ค่ะ", 8 / 13),
    ("你好世界", "你好世界", 1.0),
    ("苹果 橙子", "汽车 飞机", 0.0),
    ("مرحبا بالعالم", "مرحبا بالعالم", 1.0),
    ("こんにちは", "こんにちは", 1.0),
    ("안녕하세요", "안녕하세요", 1.0),
    ("Você está bem hoje?", "Você está bem hoje?", 1.0),
    ("She is singing", "She is sing", 1.0),
    ("The dogs are running", "The dog is run", 0.75),
    ("Olá, tudo bem?", "Olá, tudo bom?", 2 / 3),
    ("Le café est fermé", "Le café est ouvert", 0.75),
    ("Größe und Übung", "Größe und Übungen", 2 / 3),
    ("สวัสดี เพื่อน วันนี้", "สวัสดี เพื่อน พรุ่งนี้", 18 / 23),
    ("你好 朋友", "你好 老师", 0.5),
    ("مرحبا يا صديقي", "مرحبا يا جاري", 2 / 3),
    ("これ は 本 です", "これ は 車 です", 5 / 6),
    ("오늘 집에 갑니다", "오늘 학교에 갑니다", 0.8),
    ("12345", "12345", 1.0),
    ("!@#$%", "!@#$%", 0.0),
    ("Hello 你好 worlds apart", "Hello 你好 world apart", 1.0),
    ("你好世界 runs", "你好世界 run", 1.0),
    ("明天 我们 开会", "明天 我们 休息", 2 / 3),
    ("Gosto muito de ler", "Gosto muito de correr", 0.75),
    ("Où est la gare, s'il te plaît ?", "Où est la poste, s'il te plaît ?", 7 / 8),
    ("Ich möchte Brötchen", "Ich möchte Käse", 2 / 3),
    ("¿Dónde está? Estoy listo", "¿Dónde está? Estoy cansado", 0.75),
    ("Cats were jumping happily", "Cat was jump happy", 0.5),
    ("Exactly the same words", "Exactly the same words", 1.0),
    ("Hello 世界 from Lyon", "Hello 世界 from Nice", 0.8),
    ("订单 12345 已确认", "订单 12345 已发货", 2 / 3),
]


@pytest.mark.parametrize(("answer", "reference", "value"), RESPONSES)
def test_an_answer_scores_as_in_adks_own_tests(answer: str, reference: str, value: float) -> None:
    assert rouge1(answer, reference) == pytest.approx(value)


@pytest.mark.parametrize(("answer", "reference", "value"), RESPONSES)
def test_google_adk_gives_these_values(answer: str, reference: str, value: float) -> None:
    skip_without("google.adk")
    from google.adk.evaluation.final_response_match_v1 import _calculate_rouge_1_scores

    assert _calculate_rouge_1_scores(answer, reference).fmeasure == pytest.approx(value)


MEANS = [
    ([RESPONSES[4], RESPONSES[5]], (8 / 13 + 1) / 2, "PASSED"),
    ([RESPONSES[3], RESPONSES[6]], 4 / 11, "FAILED"),
    ([RESPONSES[6], RESPONSES[6]], 0.0, "FAILED"),
    ([RESPONSES[5], RESPONSES[5]], 1.0, "PASSED"),
]


@pytest.mark.parametrize(("pairs", "mean", "word"), MEANS)
def test_the_answers_of_several_turns_are_judged_by_their_mean(pairs: list[Any], mean: float, word: str) -> None:
    turns, records = [asked(reference=pair[1]) for pair in pairs], [played(answer=pair[0]) for pair in pairs]

    _, whole = scored(turns, records, Criterion(RESPONSE, 0.8))

    assert whole.value == pytest.approx(mean)
    assert status(whole) == word


def usage(tokens_in: int, tokens_out: int) -> Event:
    return Event("usage", usage=Usage("m", tokens_in=tokens_in, tokens_out=tokens_out))


def tool(name: str) -> Event:
    return Event("tool_call", call=ToolCall(name))


COSTS: list[tuple[str, list[list[Event]], float | None]] = [
    ("tool_call_count_v1", [[tool("a"), tool("b")], [tool("a")]], 1.5),
    ("tool_call_count_v1", [[tool("a"), tool("b"), tool("c")]], 3.0),
    ("tool_call_count_v1", [], None),
    ("inference_call_count_v1", [[usage(0, 0), usage(0, 0)]], 2.0),
    ("inference_call_count_v1", [[]], None),
    ("token_usage_v1", [[usage(60, 40), usage(200, 50)]], 350.0),
    ("token_usage_v1", [[usage(50, 50)], [usage(200, 100)]], 200.0),
    ("token_usage_v1", [[usage(720, 280)]], 1000.0),
    ("token_usage_v1", [[]], None),
]


@pytest.mark.parametrize(("metric", "turns", "mean"), COSTS)
def test_a_cost_is_that_of_adks_own_tests(metric: str, turns: list[list[Event]], mean: float | None) -> None:
    records = tuple(TurnRecord("q", tuple(events)) for events in turns)

    *_, whole = score_trial(Transcript(records), Case("c", tuple(Turn("q") for _ in turns)), [Criterion(metric)])

    assert (whole.value, whole.passed) == (mean, None)


TOKENS: list[tuple[list[dict[str, int]], int, int]] = [
    # counts of each model call as ADK's events tell them, tokens in, tokens out
    ([{"prompt": 100, "candidates": 20, "thoughts": 5, "total": 9999}], 100, 25),
    ([{"prompt": 700, "cached_content": 100, "tool_use_prompt": 20, "candidates": 200, "thoughts": 80}], 720, 280),
    ([{"prompt": 368, "candidates": 28, "thoughts": 80}, {"prompt": 483, "candidates": 8}], 851, 116),
    ([{"prompt": 470, "tool_use_prompt": 30}, {"prompt": 488, "tool_use_prompt": 12}], 1000, 0),
]


@pytest.mark.parametrize(("counts", "tokens_in", "tokens_out"), TOKENS)
def test_the_tokens_of_model_calls_add_up_as_in_adks_own_tests(
    counts: list[dict[str, int]], tokens_in: int, tokens_out: int
) -> None:
    raw = [
        {"usage_metadata": {f"{name}_token_count": value for name, value in each.items()}, "author": "agent"}
        for each in counts
    ]
    events = tuple(event for each in raw for event in AdkEvents().read(JsonPosition(Document(None)), each))

    *_, whole = score_trial(
        Transcript((TurnRecord("q", events),)), Case("c", (Turn("q"),)), [Criterion("token_usage_v1")]
    )

    assert whole.value == tokens_in + tokens_out
    assert (whole.details["input_tokens"], whole.details["output_tokens"]) == (tokens_in, tokens_out)


THRESHOLDS = (
    "Efficiency metrics take a threshold, and measure stored trials again without one; ADK never decides by them."
)
NO_CALLS = "A turn that reports no model call has no `inference_call_count_v1`, and the mean leaves it out."
BREAKDOWN = "not imported; a run here has times by turn and tokens by model call"
RANGES = "kept in a file of criteria; ranges are those of our metrics"


@pytest.mark.parametrize("words", [THRESHOLDS, NO_CALLS, BREAKDOWN, RANGES], ids=lambda words: words[:30])
def test_a_situation_with_another_answer_is_explained(words: str) -> None:
    assert words in DOCS.read_text("utf-8")


def test_the_metric_of_single_arguments_is_in_no_version_of_the_registry_yet() -> None:
    """ADK's checkout tests it in seven situations; a version with it needs rows here and in docs/coming-from.md."""
    skip_without("google.adk")
    from google.adk.evaluation.eval_metrics import PrebuiltMetrics

    assert "tool_parameter_match" not in {each.value for each in PrebuiltMetrics}


def response(text: str) -> Any:
    """The row of the answer that begins so."""
    return next(row for row in RESPONSES if row[0].startswith(text))


SITUATIONS: dict[str, list[Any]] = {
    # each situation of a file of ADK's: the row or the test that holds it equal here, or the sentence that explains it
    "test_trajectory_evaluator.py": [
        SPELLINGS[8],  # an order as a text
        *SPELLINGS,
        test_an_unknown_order_is_refused,
        TRAJECTORIES[10],  # the order in a criterion that is a dictionary
        *TRAJECTORIES[:6],
        *TRAJECTORIES[6:10],
        *TRAJECTORIES[11:14],
        TRAJECTORIES[14],  # no invocations
        *TRAJECTORIES[15:24],
        TRAJECTORIES[2],  # arguments count by default
        TRAJECTORIES[24],
        test_a_file_names_the_options_in_both_spellings,
    ],
    "test_final_response_match_v1.py": [
        *RESPONSES[:4],
        *MEANS,
        RANGES,
        # the scripts that decide on stemming: nothing, English, Portuguese, French, German
        *(RESPONSES[0], response("The dogs"), response("Olá"), response("Le café"), response("Größe")),
        # Thai, Chinese, Arabic, Japanese, Korean
        *(response("สวัสดี เพ"), response("你好 朋"), response("مرحبا يا"), response("これ"), response("오늘")),
        # numbers, punctuation, two scripts
        *(response("12345"), response("!@"), response("Hello 你好"), response("你好世界 runs")),
        # scores in Thai, Chinese, Arabic, Japanese, Korean
        *(RESPONSES[7], response("สวัสดี เพ"), RESPONSES[8]),
        *(RESPONSES[9], response("明天"), RESPONSES[10]),
        *(RESPONSES[11], response("مرحبا يا"), RESPONSES[12], response("これ"), RESPONSES[13], response("오늘")),
        # Portuguese, French, German, Spanish
        *(RESPONSES[14], response("Gosto"), response("Où"), response("Ich"), response("¿Dónde")),
        # stems, two scripts, numbers
        *(RESPONSES[15], response("Cats"), response("Exactly"), response("Hello 世界"), response("订单")),
    ],
    "test_efficiency_evaluators.py": [
        *COSTS[:2],
        *[THRESHOLDS] * 4,
        *COSTS[2:5],
        NO_CALLS,
        COSTS[5],
        *TOKENS[:2],
        BREAKDOWN,  # each count is filled
        TOKENS[2],
        *[BREAKDOWN] * 2,  # a count that is not told, and the names of telemetry
        COSTS[8],
        *[BREAKDOWN] * 3,  # all counts, by invocation, and none as 0
        COSTS[6],
        TOKENS[3],
    ],
    "test_tool_parameter_match_evaluator.py": [test_the_metric_of_single_arguments_is_in_no_version_of_the_registry_yet]
    * 7,
}
N_SITUATIONS = {
    "test_trajectory_evaluator.py": 43,
    "test_final_response_match_v1.py": 45,
    "test_efficiency_evaluators.py": 23,
    "test_tool_parameter_match_evaluator.py": 7,
}
"""Counted in ADK's repository with each set of parameters: 118."""


def test_each_situation_is_equal_or_explained() -> None:
    rows = [*TRAJECTORIES, *SPELLINGS, *RESPONSES, *MEANS, *COSTS, *TOKENS]
    explanations = {THRESHOLDS, NO_CALLS, BREAKDOWN, RANGES}

    assert {name: len(each) for name, each in SITUATIONS.items()} == N_SITUATIONS
    for situations in SITUATIONS.values():
        for each in situations:
            assert callable(each) or (each in explanations if isinstance(each, str) else each in rows)
    explained = [each for situations in SITUATIONS.values() for each in situations if isinstance(each, str)]
    assert len(explained) == 12

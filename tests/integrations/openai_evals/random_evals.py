"""Random evals of many kinds of graders, as `openai.types.evals` has them, with runs that count their own rows."""

from __future__ import annotations

import random
from typing import Any

MESSAGE = {"type": "message", "role": "user", "content": {"type": "input_text", "text": "{{item.q}}"}}
ANSWER, REFERENCE = "{{sample.output_text}}", "{{item.answer}}"
CHECK = {"type": "string_check", "name": "inner", "input": ANSWER, "reference": REFERENCE, "operation": "eq"}
MEASURES = ["fuzzy_match", "bleu", "gleu", "meteor", "cosine", *(f"rouge_{n}" for n in range(1, 6)), "rouge_l"]


def types_of_openai() -> dict[str, Any]:
    """The types of the objects by their kind, of the package `openai`."""
    from openai.types import EvalRetrieveResponse
    from openai.types.evals import RunRetrieveResponse
    from openai.types.evals.runs import OutputItemRetrieveResponse

    return {
        "eval": EvalRetrieveResponse,
        "eval.run": RunRetrieveResponse,
        "eval.run.output_item": OutputItemRetrieveResponse,
    }


def random_eval(chance: random.Random) -> dict[str, Any]:
    """An eval with one to five graders of random kinds; two may have one name, as the API allows, by two ids."""
    kinds: list[dict[str, Any]] = [
        {**CHECK, "operation": chance.choice(["eq", "ne", "like", "ilike"])},
        {
            "type": "text_similarity",
            "input": ANSWER,
            "reference": REFERENCE,
            "evaluation_metric": chance.choice(MEASURES),
            "pass_threshold": chance.random(),
        },
        {"type": "label_model", "model": "m", "labels": ["a", "b"], "passing_labels": ["a"], "input": [MESSAGE]},
        {
            "type": "score_model",
            "model": "m",
            "input": [MESSAGE],
            "range": [1.0, 7.0],
            "pass_threshold": chance.choice([3.5, None]),
        },
        {"type": "python", "source": "def grade(sample, item):\n    return 1.0\n", "image_tag": "2025-05-08"},
    ]
    graders = []
    for number in range(chance.randint(1, 5)):
        name = f"grader {number}"
        grader = {**chance.choice(kinds), "name": name}
        graders.append({**grader, "id": f"{name}-{chance.randrange(10**6)}"})
    return {
        "object": "eval",
        "id": "eval_1",
        "name": f"support {chance.randrange(100)}",
        "created_at": 1,
        "metadata": {},
        "data_source_config": {"type": "custom", "schema": {"type": "object"}},
        "testing_criteria": graders,
    }


def random_run(chance: random.Random, own_eval: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """A run object and its output items."""
    run_id = f"run_{number}"
    items = [_output(chance, own_eval, run_id, at) for at in range(chance.randint(1, 8))]
    words = [item["status"] for item in items]
    passes = [
        {
            "testing_criteria": grader["id"],
            "passed": sum(result["passed"] for item in items for result in item["results"] if _is_of(result, grader)),
            "failed": sum(
                not result["passed"] for item in items for result in item["results"] if _is_of(result, grader)
            ),
        }
        for grader in own_eval["testing_criteria"]
    ]
    template = {"type": "template", "template": [{**MESSAGE, "role": "developer"}, MESSAGE]}
    run = {
        "object": "eval.run",
        "id": run_id,
        "eval_id": own_eval["id"],
        "name": f"run {number}",
        "created_at": 2,
        "status": "completed",
        "model": chance.choice(["gpt-4o-mini", "o4"]),
        "error": {"code": "", "message": ""},
        "metadata": {},
        "report_url": "",
        "per_model_usage": [],
        "per_testing_criteria_results": passes,
        "result_counts": {
            "total": len(items),
            "passed": words.count("pass"),
            "failed": words.count("fail"),
            "errored": words.count("error"),
        },
        "data_source": {
            "type": "completions",
            "model": "gpt-4o-mini",
            "source": {"type": "file_id", "id": "file-1"},
            "input_messages": template,
        },
    }
    return [run, *items]


def _is_of(result: dict[str, Any], grader: dict[str, Any]) -> bool:
    return bool(result["name"] == grader["id"])


def _output(chance: random.Random, own_eval: dict[str, Any], run_id: str, number: int) -> dict[str, Any]:
    """An output item; one that errored has no results."""
    status = chance.choice(["pass", "fail", "error"])
    question, answer = f"question {number}", chance.choice(["yes", "no", "ÿ€s", ""])
    results = [
        {
            "name": grader["id"],
            "score": (score := chance.choice([0.0, 0.25, 1.0])),
            "passed": score > 0.5,
            "sample": None,
        }
        for grader in own_eval["testing_criteria"]
    ]
    error = {"code": "server_error", "message": "No answer."} if status == "error" else {"code": "", "message": ""}
    return {
        "object": "eval.run.output_item",
        "id": f"{run_id}_item_{number}",
        "eval_id": own_eval["id"],
        "run_id": run_id,
        "created_at": 3,
        "status": status,
        "datasource_item_id": number,
        "datasource_item": {"q": question, "answer": "yes"},
        "results": [] if status == "error" else results,
        "sample": {
            "input": [{"role": "developer", "content": question}, {"role": "user", "content": question}],
            "output": [] if status == "error" else [{"role": "assistant", "content": answer}],
            "model": "gpt-4o-mini",
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "cached_tokens": 0},
            "finish_reason": "stop",
            "error": error,
            "temperature": 1.0,
            "top_p": 1.0,
            "seed": 1,
            "max_completion_tokens": 10,
        },
    }

"""Judges of OpenAI Evals, `label_model` and `score_model`, as options of `rubric_score`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evaldesk.model import JsonObject
from evaldesk.transcripts.recorded import read_number

_ANSWER = re.compile(r"\{\{\s*sample\.output_text\s*\}\}")
MAJORITY = 0.5


def judge_options(raw: Mapping[str, Any]) -> JsonObject:
    """The criterion of a judge with its prompt as rubric; empty for one without a text or a scale.

    Fields of the item stay in the rubric, which takes them from each case. `ANSWER` stands for the output.
    """
    messages = raw.get("input")
    texts = [message_text(each) for each in messages] if isinstance(messages, list) else []
    prompt = _ANSWER.sub("ANSWER", "\n\n".join(text for text in texts if text))
    if not prompt:
        return {}
    if raw.get("type") == "label_model":
        labels, good = _names(raw.get("labels")), _names(raw.get("passing_labels"))
        if not good:
            return {}
        ask = f"Choose one of the labels {json.dumps(labels, ensure_ascii=False)}. The grade is 1 if it is one of "
        options = {"rubric": f"{prompt}\n\n{ask}{json.dumps(good, ensure_ascii=False)}, and 0 otherwise."}
        return {"threshold": MAJORITY, **options, **_judge(raw)}
    bounds = raw.get("range")
    numbers = [read_number(each) for each in bounds] if isinstance(bounds, list) else []
    low, high = (numbers[0], numbers[1]) if len(numbers) == 2 else (0.0, 1.0)
    if low is None or high is None or low >= high:
        return {}
    bar = read_number(raw.get("pass_threshold"))
    share = None if bar is None else (bar - low) / (high - low)
    return {"threshold": share, "rubric": prompt, "score_min": low, "score_max": high, **_judge(raw)}


def message_text(message: object) -> str:
    """The text of a message of a grader's prompt."""
    if not isinstance(message, Mapping):
        return ""
    content = message.get("content")
    text = content.get("text") if isinstance(content, Mapping) else content
    return text if isinstance(text, str) else ""


def _names(raw: object) -> Sequence[str]:
    return [each for each in raw if isinstance(each, str)] if isinstance(raw, list) else []


def _judge(raw: Mapping[str, Any]) -> JsonObject:
    model = raw.get("model")
    if not isinstance(model, str) or not model:
        return {}
    return {"judge_model": model if "/" in model else f"openai/{model}"}

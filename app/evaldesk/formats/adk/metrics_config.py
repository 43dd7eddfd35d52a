"""`eval_config.yaml` of agents-cli as criteria. (google-agents-cli 1.11 eval/eval_utils.py)

    metrics_to_run: [response_quality, hallucination]
    custom_metrics:
      - name: response_quality
        custom_function_file: response_quality.py
        threshold: 4

A metric has no threshold there, so its score informs; `threshold` is our own key, over which agents-cli passes for a
function. Code and prompts stand in the file or beside it. A `prompt_template` names its scale in words only, so it is
1 to 5 unless our own keys `score_min` and `score_max` say another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.criteria_file import CriteriaFile
from evaldesk.model import Criterion
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.reading.values import read_list, read_mapping, read_optional_number, read_text
from evaldesk.reading.yaml_text import YAML_SUFFIXES, read_yaml

KEY = "metrics_to_run"
NEAR: Mapping[str, str] = {
    "final_response_match": "final_response_match_v2",
    "final_response_quality": "rubric_based_final_response_quality_v1",
    "final_response_reference_free": "rubric_based_final_response_quality_v1",
    "hallucination": "hallucinations_v1",
    "tool_use_quality": "rubric_based_tool_use_quality_v1",
}
"""Metrics of Google's service and the metric here that judges the same, by other prompts."""
JUDGED = "rubric_score"
SECTIONS: Mapping[str, str] = {
    "prompt": "QUESTION",
    "response": "ANSWER",
    "reference": "REFERENCE",
    "agent_data": "EARLIER CONVERSATION, QUESTION and ANSWER",
}
"""Fields of a prompt and the sections of ours that hold their values."""
_FIELD = re.compile(r"\{(" + "|".join(SECTIONS) + r")\}")
_VERSION = re.compile(r"_v\d+\Z")


def is_metrics_config(data: bytes, name: str) -> bool:
    """Whether the bytes mean to be such a config, by the name of the file and its first keys."""
    is_yaml = name.lower().endswith(YAML_SUFFIXES)
    has_key = re.search(rb'(?m)^[ \t{,]*"?metrics_to_run"?[ \t]*:', data) is not None
    return has_key and (is_yaml or name.lower().endswith(".json"))


def read_metrics_config(data: bytes, *, source: str) -> CriteriaFile:
    """The criteria of the config at the path `source`. Raises FormatError with the place."""
    document = Document(_parse(data, source), "", source)
    place = JsonPosition(document)
    values = read_mapping(place, document.value)
    entries = {}
    for at, item in enumerate(read_list(place.at("custom_metrics"), values.get("custom_metrics") or [], read_mapping)):
        here = place.at("custom_metrics", at)
        entries[read_text(here.at("name"), item.get("name"))] = (here, item)
    criteria: list[Criterion] = []
    left_out: list[str] = []
    for name in read_list(place.at(KEY), values.get(KEY) or [], read_text):
        entry = entries.get(name)
        criterion = _custom(*entry, Path(source).parent) if entry else _managed(name, None)
        if isinstance(criterion, str):
            left_out.append(criterion)
        elif all(each.metric != criterion.metric for each in criteria):
            criteria.append(criterion)
    if not criteria:
        names = "; ".join(left_out) or f"{KEY} names no metric"
        raise place.error(f"{names}; name criteria with --criterion, such as response_match_score=0.8")
    return CriteriaFile(tuple(criteria), document=document, left_out=tuple(left_out))


def _parse(data: bytes, source: str) -> Any:
    """The value of the file, which uses only the names that it knows: an alias is never written out."""
    documents = read_yaml(data, source, takes_aliases=True)
    if len(documents) > 1:
        raise FormatError(f"a file of {len(documents)} YAML documents; keep the one with the metrics", source=source)
    return documents[0] if documents else None


def _custom(place: JsonPosition, entry: Mapping[str, Any], folder: Path) -> Criterion | str:
    """The criterion of an entry, or why there is none."""
    name = str(entry["name"])
    threshold = read_optional_number(place.at("threshold"), entry.get("threshold"))
    if "custom_function" in entry and "custom_function_file" in entry:
        raise place.error("name custom_function or custom_function_file, not both")
    if "custom_function_file" in entry:
        path = folder / read_text(place.at("custom_function_file"), entry["custom_function_file"])
        if not path.is_file():
            raise place.at("custom_function_file").error(f"{path} is not there")
        return Criterion(name, threshold, {"function": f"{path.stem}:evaluate", "root": str(path.parent)})
    if "custom_function" in entry:
        source = read_text(place.at("custom_function"), entry["custom_function"])
        return Criterion(name, threshold, {"function": f"{_module(name)}:evaluate", "source": source})
    if "remote_custom_function" in entry:
        return f"{name}: its remote_custom_function runs at Google only"
    if "prompt_template" in entry:
        return _prompted(place, name, threshold, entry)
    return _managed(name, threshold)


def _prompted(place: JsonPosition, name: str, threshold: float | None, entry: Mapping[str, Any]) -> Criterion:
    """The prompt as the rubric of a judge here; `threshold` is on the scale of the prompt."""
    prompt = read_text(place.at("prompt_template"), entry["prompt_template"])
    bounds = (read_optional_number(place.at(key), entry.get(key)) for key in ("score_min", "score_max"))
    low, high = (default if bound is None else bound for bound, default in zip(bounds, (1.0, 5.0), strict=True))
    if low >= high:
        raise place.at("score_max").error(f"it must be over score_min, got {low:g} and {high:g}")
    options: dict[str, Any] = {
        "rubric": _FIELD.sub(lambda field: SECTIONS[field[1]], prompt),
        "score_min": low,
        "score_max": high,
    }
    if entry.get("judge_model"):
        options["judge_model"] = read_text(place.at("judge_model"), entry["judge_model"])
    count = read_optional_number(place.at("judge_model_sampling_count"), entry.get("judge_model_sampling_count"))
    if count is not None:
        options["num_samples"] = int(count)
    share = None if threshold is None else (threshold - low) / (high - low)
    return Criterion(f"{JUDGED}/{re.sub(r'[^a-zA-Z0-9_-]', '-', name)[:40]}", share, options)


def _module(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _managed(name: str, threshold: float | None) -> Criterion | str:
    near = NEAR.get(_VERSION.sub("", name.lower()))
    if near is None:
        return f"{name}: only Google's evaluation service computes it"
    return Criterion(near, threshold)

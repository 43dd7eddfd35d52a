"""Assertions of promptfoo as criteria of an eval set, and as expectations of its cases.

(promptfoo/promptfoo site/docs/configuration/expected-outputs, 0.123)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.matching import check_pattern
from evaldesk.model import JsonObject, ToolCall
from evaldesk.model.evalset import CRITERIA
from evaldesk.model.json_text import json_or_text
from evaldesk.transcripts.recorded import read_number

MAX_CRITERIA = 200
"""Criteria of one eval set; the assertions of further patterns are left out."""
MAX_SETS = 20
NO_ASSERTION = "response_exact"
"""The criterion of a case that no other one may judge: without a reference it has nothing to judge."""
_NOT = "not-"
_RUBRIC = "rubric_based_final_response_quality_v1"
_RUBRICS = ("llm-rubric", "model-graded-closedqa")
_TEXTS = ("contains", "contains-all", "contains-any", "starts-with")
_MOST = {"cost": ("cost", 1.0), "latency": ("invocation_duration_v1", 0.001)}
"""Assertions of a most, each with the metric and its unit: promptfoo has US dollars and milliseconds."""
_REFERENCES = {"equals": "response_exact", "factuality": "final_response_match_v2"}
_ROUGE_METRIC, _ROUGE = "response_match_score", 0.75
"""The metric of `rouge-n`, and the threshold where the assertion has none."""
_ANY_JSON: JsonObject = {"title": "any JSON"}
_REACHES = ("provider", "rubricPrompt", "transform", "contextTransform", "config")
"""Keys of an assertion that change the judged text or the judge."""


@dataclass(slots=True)
class SetCriteria:
    """The criteria that the tests of one file need, in the form of `test_config.json`; equal ones are one."""

    by_name: dict[str, JsonObject] = field(default_factory=dict)

    def add(self, metric: str, label: str, options: JsonObject, threshold: float) -> str:
        """The name of the criterion with these options, of any threshold; empty where the set has too many."""
        base = f"{metric}/{label}" if label else metric
        number, name = 1, base
        while name in self.by_name:
            if self.by_name[name] == {**options, "threshold": self.by_name[name]["threshold"]}:
                return name
            number, name = number + 1, f"{base}-{number + 1}"
        if len(self.by_name) >= MAX_CRITERIA and name != NO_ASSERTION:
            return ""
        self.by_name[name] = {"threshold": threshold, **options}
        return name


@dataclass(slots=True)
class TestExpectations:
    """The assertions of one test: criteria with own thresholds, a reference, calls, rubrics, texts.

    `unjudged` are the types of assertions that no metric here judges.
    """

    criteria: SetCriteria
    thresholds: dict[str, float] = field(default_factory=dict)
    reference: str | None = None
    calls: tuple[ToolCall, ...] | None = None
    comparison: tuple[str, str] = ("", "")
    rubrics: list[JsonObject] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)

    def add(self, assertion: Mapping[str, Any], name: str, depth: int = 0) -> None:
        """Take one assertion, whose value is rendered; those of a set without a threshold one by one."""
        kind = str(assertion.get("type") or "assertion")
        inner = assertion.get("assert")
        if kind == "assert-set" and isinstance(inner, list) and inner and assertion.get("threshold") is None:
            for place, each in enumerate(inner, 1):
                if isinstance(each, Mapping) and depth < MAX_SETS:
                    self.add(each, f"{name}_{place}", depth + 1)
                else:
                    self.unjudged.append(kind)
            return
        is_plain = not any(assertion.get(key) for key in _REACHES)
        if not (is_plain and self._is_judged(kind, assertion.get("value"), assertion.get("threshold"), name)):
            self.unjudged.append(kind)

    @property
    def own_criteria(self) -> JsonObject:
        """The key `criteria` of the case; one that no criterion judges names one that finds nothing in it."""
        if not self.thresholds and self.reference is None:
            self._judges(NO_ASSERTION, "", {})
        return {CRITERIA: {**self.thresholds}}

    def _is_judged(self, kind: str, value: Any, threshold: object, name: str) -> bool:
        """Whether the assertion became a part of the expectation."""
        if kind in _REFERENCES:
            metric = "response_json" if kind == "equals" and isinstance(value, dict | list) else _REFERENCES[kind]
            return self._takes_reference(value) and self._judges(metric, "", {})
        if kind == "rouge-n":
            bar = _ROUGE if threshold is None else read_number(threshold)
            return bar is not None and self._takes_reference(value) and self._judges(_ROUGE_METRIC, "", {}, bar)
        if kind in _RUBRICS:
            return threshold is None and self._has_rubric(value, name)
        if kind in _MOST:
            metric, unit = _MOST[kind]
            most = read_number(threshold)
            return most is not None and most >= 0 and self._judges(metric, "", {}, most * unit)
        if kind in ("icontains", "icontains-all"):
            texts = _texts(value, kind)
            self.outputs += texts or ()
            return bool(texts) and self._judges("required_outputs", "", {"match": "substring"})
        if kind == "is-json":
            schema = _ANY_JSON if value is None else value
            return isinstance(schema, Mapping) and self._judges("response_json_schema", kind, {"schema": {**schema}})
        if kind.removeprefix(_NOT) == "trajectory:tool-used":
            return self._uses_tools(value, is_negated=kind.startswith(_NOT))
        if kind.startswith("trajectory:"):
            return self._has_calls(kind, value)
        pattern = _pattern(kind.removeprefix(_NOT), value)
        want = "absent" if kind.startswith(_NOT) else "found"
        return bool(pattern) and self._judges("response_regex", kind, {"pattern": pattern, "want": want})

    def _judges(self, metric: str, label: str, options: JsonObject, threshold: float = 1.0) -> bool:
        name = self.criteria.add(metric, label, options, threshold)
        if name:
            self.thresholds[name] = threshold
        return bool(name)

    def _takes_reference(self, value: Any) -> bool:
        """Whether the value is the reference; a case has one."""
        text = None if value is None else json_or_text(value)
        if text is None or text.startswith("file://") or self.reference not in (None, text):
            return False
        self.reference = text
        return True

    def _has_rubric(self, value: Any, name: str) -> bool:
        if not isinstance(value, str) or not value or value.startswith("file://"):
            return False
        self.rubrics.append({"rubric_id": name, "rubric_content": {"text_property": value}})
        return self._judges(_RUBRIC, "", {})

    def _uses_tools(self, value: Any, *, is_negated: bool) -> bool:
        counts = value if isinstance(value, Mapping) else {}
        named = counts.get("name", counts.get("pattern")) if counts else value
        tools = [named] if isinstance(named, str) else named
        low, high = counts.get("min", 1), counts.get("max")
        if not isinstance(tools, list) or not tools or not all(map(_is_name, tools)) or (is_negated and counts):
            return False
        if not _is_count(low) or not (high is None or (_is_count(high) and high >= low)):
            return False
        limits = {"at_least": 0, "at_most": 0} if is_negated else {"at_least": low, "at_most": high}
        options = {key: each for key, each in limits.items() if each is not None}
        return all(self._judges("tool_used", _label(tool), {"tool": tool, **options}) for tool in tools)

    def _has_calls(self, kind: str, value: Any) -> bool:
        """Whether the value is a sequence of tools, or the arguments of a call, as a turn expects them."""
        own = value if isinstance(value, Mapping) else {}
        mode, steps = own.get("mode"), own.get("steps") if own else value
        arguments = own.get("args", own.get("arguments"))
        if kind == "trajectory:tool-sequence" and isinstance(steps, list) and steps and all(map(_is_name, steps)):
            metric = {None: "tool_in_order", "in_order": "tool_in_order", "exact": "tool_exact"}.get(mode)
            calls = tuple(ToolCall(name) for name in steps)
            return metric is not None and self.calls is None and self._expects_calls(calls, metric, "ignore")
        is_match = kind == "trajectory:tool-args-match" and _is_name(own.get("name")) and isinstance(arguments, dict)
        if not is_match or mode not in (None, "partial", "exact") or own.get("defaults") or own.get("ignore"):
            return False
        comparison = "exact" if mode == "exact" else "superset"
        if self.calls is not None and self.comparison != ("tool_any_order", comparison):
            return False
        return self._expects_calls(
            (*(self.calls or ()), ToolCall(own["name"], arguments)), "tool_any_order", comparison
        )

    def _expects_calls(self, calls: tuple[ToolCall, ...], metric: str, arguments: str) -> bool:
        self.calls, self.comparison = calls, (metric, arguments)
        return self._judges(metric, arguments, {"args": arguments})


def _texts(value: Any, kind: str) -> list[str]:
    """The texts that are searched; numbers are text. None of them for a value of another form."""
    values = value if kind.endswith(("-all", "-any")) and isinstance(value, list) else [value]
    if not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in values):
        return []
    texts = [json_or_text(each) for each in values]
    return [] if any(not text or text.startswith("file://") for text in texts) else texts


def _pattern(kind: str, value: Any) -> str:
    """The regular expression that is found where the assertion holds; empty where there is none."""
    plain = kind.removeprefix("i") if kind.startswith("icontains") else kind
    if plain == "regex":
        pattern = value if isinstance(value, str) and not value.startswith("file://") else ""
    else:
        texts = _texts(value, kind) if plain in _TEXTS else []
        pattern = _joined_pattern(plain, [re.escape(text).replace(r"\ ", " ") for text in texts]) if texts else ""
    pattern = f"(?i){pattern}" if pattern and plain != kind else pattern
    try:
        check_pattern(pattern, "the pattern", field="pattern")
    except UsageError:
        return ""
    return pattern


def _joined_pattern(kind: str, parts: Sequence[str]) -> str:
    if kind == "starts-with":
        return rf"\A{parts[0]}"
    if kind == "contains-all":
        return r"(?s:\A" + "".join(f"(?=.*{part})" for part in parts) + ")"
    return "|".join(parts)


def _label(text: str) -> str:
    """A label of a criterion: letters, digits, `_` and `-`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:40].strip("-") or "tool"


def _is_name(value: Any) -> bool:
    """Whether the value is the name of a tool, without the `*` and `?` of a pattern."""
    return isinstance(value, str) and bool(value.strip()) and not set(value) & set("*?")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6

"""The rubrics a trial is judged by: of the criterion, of the case and of the turn. (reference/adk.md 2.3)"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evaldesk.errors import NAME_LIMIT, MetricError, UsageError
from evaldesk.metrics.judges.replies import Properties, ReplyError
from evaldesk.model import Case, JsonObject, Turn

_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-"})
_LINE = re.compile(r"(?P<id>[\w.-]{1,64}): +(?P<text>\S.*)", re.DOTALL)
_DECORATION = " *_`#>-\u2022\"'"


@dataclass(frozen=True, slots=True)
class Rubric:
    """A property that an answer or a conversation should have."""

    id: str
    text: str

    @property
    def line(self) -> str:
        """`id: text`, on one line, as forms and judges are shown it."""
        return f"{self.id}: {' '.join(self.text.split())}"


def read_rubric(raw: object, number: int) -> Rubric:
    """A rubric as a criterion or a case holds it: ADK's object, or a line with or without an id. Raises UsageError."""
    if isinstance(raw, str) and raw.strip():
        match = _LINE.fullmatch(raw.strip())
        return Rubric(match["id"], match["text"]) if match else Rubric(f"rubric_{number}", raw.strip())
    fields: dict[str, Any] = {_snake(key): value for key, value in raw.items()} if isinstance(raw, dict) else {}
    content = fields.get("rubric_content")
    text = content.get("text_property", content.get("textProperty")) if isinstance(content, dict) else content
    if not isinstance(text, str) or not text.strip():
        raise UsageError(
            f'rubric {number} says nothing: wanted a text, or {{"rubric_id": "...", "rubric_content": '
            '{"text_property": "..."}}',
            field="rubrics",
        )
    return Rubric(str(fields.get("rubric_id") or f"rubric_{number}"), text.strip())


def rubric_line(raw: object, number: int) -> str:
    """A rubric as `id: text`, on one line. Raises UsageError for an invalid one."""
    return read_rubric(raw, number).line


def rubrics_for(criterion_rubrics: Sequence[object], case: Case, turn: Turn | None, kind: str) -> tuple[Rubric, ...]:
    """The rubrics of a turn: the criterion's, and those of the case and the turn that are of `kind` or of none.

    ADK itself passes over those without a type. Raises MetricError for an id that is there twice.
    """
    scopes = (
        ("the criterion", criterion_rubrics),
        ("the case", _of_kind(case.rubrics, kind)),
        ("the turn", _of_kind(turn.rubrics if turn else (), kind)),
    )
    rubrics_by_id: dict[str, tuple[str, Rubric]] = {}
    for scope, items in scopes:
        for number, raw in enumerate(items, 1):
            rubric = read_rubric(raw, number if scope == "the criterion" else len(rubrics_by_id) + 1)
            if rubric.id in rubrics_by_id:
                raise MetricError(f"rubric {rubric.id!r} of {scope} is there already, in {rubrics_by_id[rubric.id][0]}")
            rubrics_by_id[rubric.id] = (scope, rubric)
    return tuple(rubric for _, rubric in rubrics_by_id.values())


def verdicts_of(answer: Properties, rubrics: Sequence[Rubric]) -> dict[str, tuple[float, str]]:
    """Verdict, 1 or 0, and rationale by rubric. Raises ReplyError when one is missing or judged in two ways.

    A judge that wrote the text of a rubric instead of its id is understood.
    """
    by_text = {normalise(rubric.text): rubric.id for rubric in rubrics}
    rubric_ids = {rubric.id for rubric in rubrics}
    verdicts: dict[str, tuple[float, str]] = {}
    for each in answer.rubrics:
        rubric_id = each.id if each.id in rubric_ids else by_text.get(normalise(each.id))
        if rubric_id is None:
            raise ReplyError(f"it judges a rubric {each.id[:NAME_LIMIT]!r} that was not asked for")
        verdict = float(each.verdict == "yes")
        if rubric_id in verdicts and verdicts[rubric_id][0] != verdict:
            raise ReplyError(f"it says both yes and no of rubric {rubric_id!r}")
        verdicts[rubric_id] = (verdict, each.rationale)
    rubrics_left_out = [rubric.id for rubric in rubrics if rubric.id not in verdicts]
    if rubrics_left_out:
        raise ReplyError(f"it leaves out rubric {rubrics_left_out[0]!r}")
    return verdicts


def normalise(text: str) -> str:
    """The text without the decoration of judges that repeat it: markup, bullets, other quotes and spaces."""
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    return " ".join(text.split()).strip(_DECORATION).lower()


def _of_kind(rubrics: Iterable[JsonObject], kind: str) -> list[JsonObject]:
    return [rubric for rubric in rubrics if not rubric.get("type") or rubric.get("type") == kind]


def _snake(key: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower()

"""Expectations of a case as text: a line for each required text, each rubric and each value that it also accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from evaldesk.errors import NAME_LIMIT, FormatError, UsageError
from evaldesk.matching import Origins, read_allowances, renumber_allowances
from evaldesk.matching.allowed import ALSO_ACCEPTED
from evaldesk.metrics import case_outputs, rubric_line
from evaldesk.metrics.outcome import expected_outcomes, outcome_entry, outcome_line
from evaldesk.model import Case, JsonObject, JsonValue
from evaldesk.model.evalset import EXPECTED_OUTCOMES
from evaldesk.model.json_text import json_line
from evaldesk.model.pinned import n_pinned, pinning
from evaldesk.pages.typed import Problems
from evaldesk.reading.strict_json import parse_json

OUTPUTS = ("required_outputs", "outputs")
"""The keys of a case under which its required texts stand, ours first; the other is tau-bench's."""
ACCEPTED = "accepted"
OUTCOMES = "outcomes"
MAX_LINES = 100
MAX_ACCEPTED = 20_000
"""Characters of accepted values that the form shows; more are edited as raw JSON."""


def outputs_text(case: Case) -> str:
    """The texts that the agent has to say somewhere, one a line."""
    return "\n".join(" ".join(text.split()) for text in case_outputs(case) or ())


def rubrics_text(case: Case) -> str:
    """The rubrics of the case, one a line with its id."""
    return "\n".join(_line(raw, number) for number, raw in enumerate(case.rubrics, 1))


def accepted_keys(case: Case) -> tuple[str, ...]:
    """The key of the accepted alternatives, where the form shows them."""
    return () if accepted_text(case) is None else (ALSO_ACCEPTED,)


def accepted_text(case: Case) -> str | None:
    """The accepted alternatives, an entry a line as JSON; None where the form cannot hold them."""
    alternatives = case.extra.get(ALSO_ACCEPTED, [])
    if not isinstance(alternatives, list):
        return None
    text = "\n".join(map(json_line, alternatives))
    return text if len(text) <= MAX_ACCEPTED and len(alternatives) <= MAX_LINES else None


def outcomes_keys(case: Case) -> tuple[str, ...]:
    """The key of the expected outcomes, where the form shows them."""
    return () if outcomes_text(case) is None else (EXPECTED_OUTCOMES,)


def outcomes_text(case: Case) -> str | None:
    """The expected outcomes of turns, one a line; None where the form cannot hold them."""
    try:
        lines = [outcome_line(each) for each in expected_outcomes(case)]
    except UsageError:
        return None
    return "\n".join(lines) if len(lines) <= MAX_LINES else None


def with_whole(
    before: Case,
    case: Case,
    origins: Origins,
    texts: tuple[str | None, str | None],
    problems: Problems,
    accepted_lines: str | None = None,
    outcome_lines: str | None = None,
) -> Case:
    """The case with the typed outputs, rubrics, accepted values and outcomes, None where the form has no such field.

    Unchanged parts stay as in the file. Accepted alternatives and outcomes move with turns, by their places `before`;
    once they were changed, their lines name turns and calls as they stand now.
    """
    (outputs, rubrics), case = texts, _move_pinned(renumber_allowances(before, case, origins), origins)
    if outcome_lines is not None and _lines(outcome_lines) != _lines(outcomes_text(before) or ""):
        lines = _limit_lines(outcome_lines, OUTCOMES, "Expected outcomes", problems)
        case = _with_outcomes(case, lines, problems)
    else:
        case = _renumber_outcomes(before, case, origins)
    if accepted_lines is not None and _lines(accepted_lines) != _lines(accepted_text(before) or ""):
        case = _with_accepted(case, _limit_lines(accepted_lines, ACCEPTED, "Also accepted", problems), problems)
    if outputs is not None and _lines(outputs) != _lines(outputs_text(case)):
        case = _with_outputs(case, _limit_lines(outputs, "outputs", "Required texts", problems))
    if rubrics is not None and _lines(rubrics) != _lines(rubrics_text(case)):
        case = replace(case, rubrics=_rubrics(case, _limit_lines(rubrics, "rubrics", "Rubrics", problems), problems))
    return case


def _move_pinned(case: Case, origins: Origins) -> Case:
    """The case with the pinned turns that still come first, in the order of the conversation."""
    n = n_pinned(case)
    if not n or case.scenario is not None:
        return case
    numbers = takewhile(lambda origin: origin is not None and origin < n, (origin for origin, _ in origins))
    return pinning(case, [number for number in numbers if number is not None])


def _with_accepted(case: Case, lines: list[str], problems: Problems) -> Case:
    extra = {key: value for key, value in case.extra.items() if key != ALSO_ACCEPTED}
    try:
        entries = [
            parse_json(line.encode("utf-8", "surrogatepass"), source=f"line {at}").value
            for at, line in enumerate(lines, 1)
        ]
        result = replace(case, extra={**extra, ALSO_ACCEPTED: entries} if entries else extra)
        read_allowances(result)
    except (FormatError, UsageError) as error:
        problems.add(ACCEPTED, "Also accepted", f"{error}")
        return case
    return result


def _with_outcomes(case: Case, lines: list[str], problems: Problems) -> Case:
    extra = {key: value for key, value in case.extra.items() if key != EXPECTED_OUTCOMES}
    try:
        entries: list[JsonValue] = [dict(outcome_entry(line)) for line in lines]
    except UsageError as error:
        problems.add(OUTCOMES, "Expected outcomes", f"{error}")
        return case
    too_late = next((line for line, raw in zip(lines, entries, strict=True) if _turn_of(raw) > len(case.turns)), None)
    if too_late:
        problems.add(OUTCOMES, "Expected outcomes", f"{too_late[:NAME_LIMIT]!r}: the case has {len(case.turns)} turns.")
    return replace(case, extra={**extra, EXPECTED_OUTCOMES: entries} if entries else extra)


def _renumber_outcomes(before: Case, case: Case, origins: Origins) -> Case:
    """The case with the outcomes at the new places of their turns; those of a removed turn go."""
    entries = before.extra.get(EXPECTED_OUTCOMES)
    places = {origin: place for place, (origin, _) in enumerate(origins) if origin is not None}
    if outcomes_text(before) is None or not isinstance(entries, list):
        return case
    if all(places.get(place) == place for place in range(len(before.turns))):
        return case
    moved_entries: list[JsonValue] = [
        {**raw, "turn": places[_turn_of(raw) - 1] + 1} if _turn_of(raw) else raw
        for raw in entries
        if isinstance(raw, Mapping) and (not _turn_of(raw) or _turn_of(raw) - 1 in places)
    ]
    extra = {key: value for key, value in case.extra.items() if key != EXPECTED_OUTCOMES}
    return replace(case, extra={**extra, EXPECTED_OUTCOMES: moved_entries} if moved_entries else extra)


def _turn_of(raw: JsonValue) -> int:
    """The number of the turn of an entry, from 1; 0 for the last turn."""
    turn = raw.get("turn") if isinstance(raw, Mapping) else None
    return turn if isinstance(turn, int) else 0


def _with_outputs(case: Case, texts: list[str]) -> Case:
    """Under the key that the case has; without texts the key goes, unless the case would then say others."""
    name = next((key for key in OUTPUTS if key in case.extra), OUTPUTS[0])
    without_outputs = replace(case, extra={key: value for key, value in case.extra.items() if key != name})
    if not texts and case_outputs(without_outputs) is None:
        return without_outputs
    return replace(case, extra={**case.extra, name: [*texts]})


def _rubrics(case: Case, lines: list[str], problems: Problems) -> tuple[JsonObject, ...]:
    """Unchanged lines keep the other keys that the file has beside the text."""
    rubric_of_line = {_line(raw, number): raw for number, raw in enumerate(case.rubrics, 1)}
    rubrics = [
        rubric_of_line[line] if line in rubric_of_line else _rubric(line, number)
        for number, line in enumerate(lines, 1)
    ]
    ids = [str(raw.get("rubric_id", raw.get("rubricId"))) for raw in rubrics]
    twice = next((each for each in ids if ids.count(each) > 1), None)
    if twice:
        problems.add("rubrics", "Rubrics", f"{twice} is there twice; write another id before the colon.")
    return tuple(rubrics)


def _rubric(line: str, number: int) -> JsonObject:
    name, _, text = rubric_line(line, number).partition(": ")
    return {"rubric_id": name, "rubric_content": {"text_property": text}}


def _line(raw: JsonObject, number: int) -> str:
    try:
        return rubric_line(raw, number)
    except UsageError:
        return json_line(raw)


def _limit_lines(text: str, name: str, label: str, problems: Problems) -> list[str]:
    lines = _lines(text)
    if len(lines) > MAX_LINES:
        problems.add(name, label, f"At most {MAX_LINES} lines; these are {len(lines)}.")
    return lines[:MAX_LINES]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]

"""The format "adk-scenarios": the input of `adk eval_set add_eval_case`. (google-adk 2.13 conversation_scenarios.py)"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.adk.old import stem
from evaldesk.formats.exchange import Holding, Imported
from evaldesk.model import Case, EvalSet, JsonObject
from evaldesk.reading.json_text import to_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import JsonPosition, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_text, snake_case
from evaldesk.transcripts.recorded import RecordedRun

_REQUIRED_KEYS = ("starting_prompt", "conversation_plan")


class AdkScenarios:
    """`{"scenarios": [{"starting_prompt", "conversation_plan", "user_persona"?}]}`, or one scenario alone."""

    title = "ADK conversation scenarios"
    suffixes = (".scenarios.json", ".json")
    writes: tuple[Holding, ...] = ("evalset",)

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is an object with scenarios, or with the keys of one scenario."""
        value = peek(data).document
        if not isinstance(value, dict):
            return False
        keys = {snake_case(key) for key in value}
        return "scenarios" in keys or set(_REQUIRED_KEYS) <= keys

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """An eval set with one case for each scenario. Raises FormatError."""
        document = parse_json(data, source=source)
        raw = read_mapping(JsonPosition(document), document.value)
        notes, extra = Notes(), dict[str, Any]()
        if "scenarios" in raw:
            cases = read_list(JsonPosition(document).at("scenarios"), raw["scenarios"], _read_case)
            extra = notes.unknown_keys(JsonPosition(document), raw, ("scenarios",))
        else:
            cases = (_read_case(JsonPosition(document), raw),)
        evalset = EvalSet(stem(source).removesuffix(".scenarios"), cases=cases, extra=extra)
        return Imported("adk-scenarios", evalset, refused=notes.sentences)

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The scenarios of an eval set. Raises FormatError when a case has turns."""
        if isinstance(what, RecordedRun):
            raise FormatError("a list of scenarios contains no run")
        case_id = next((case.id for case in what.cases if case.scenario is None), None)
        if case_id is not None:
            raise FormatError(f"case {case_id!r} has turns; a list of scenarios holds only cases with a scenario")
        return to_text({**what.extra, "scenarios": [case.scenario for case in what.cases]}, {}, what.id)


def _read_case(place: JsonPosition, raw: Any) -> Case:
    scenario = read_mapping(place, raw)
    spelled = {snake_case(key): key for key in scenario}
    for key in _REQUIRED_KEYS:
        read_text(place.at(spelled.get(key, key)), scenario.get(spelled.get(key, key), ABSENT))
    return Case(scenario_id(scenario), scenario=scenario)


def scenario_id(scenario: JsonObject) -> str:
    """The id that google-adk gives the case of a scenario: a second addition of the same one adds nothing."""
    fields = {"user_persona": None, **scenario}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:8]

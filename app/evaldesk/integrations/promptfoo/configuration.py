"""The format "promptfoo-config": the configuration of promptfoo, as YAML or JSON, or a file of its tests.

Tests become cases with the ids and words that the results of the same file have; assertions become criteria of the set.
(promptfoo/promptfoo site/docs/configuration/reference.md, 0.123)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

from evaldesk.errors import NAME_LIMIT
from evaldesk.formats.exchange import Imported, ReadOnly
from evaldesk.formats.mapped_rows import yaml_value
from evaldesk.integrations.promptfoo.assertions import SetCriteria, TestExpectations
from evaldesk.integrations.promptfoo.results import prompt_messages
from evaldesk.model import Case, EvalSet, Expected, JsonValue, Turn
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import CRITERIA, for_review
from evaldesk.model.json_text import json_or_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, JsonPosition, parse_json
from evaldesk.reading.values import read_mapping, text_of
from evaldesk.reading.yaml_text import YAML_SUFFIXES
from evaldesk.transcripts.messages.chat import NO_TEXT
from evaldesk.transcripts.recorded import file_stem, free_name, read_number
from evaldesk.transcripts.recorded_sessions import lost_words

MAX_TESTS = 20_000
"""Cases of one file: each list among the variables of a test multiplies them."""
MAX_LEVELS = 20
_TARGETS = ("prompts", "providers", "targets")
_TOP_KEY = re.compile(rb"^[\"']?(?P<key>[A-Za-z]{4,12})[\"']?[ \t]*:", re.MULTILINE)
_FIRST_TEST = re.compile(rb"\A(?:\xef\xbb\xbf)?(?:\s*(?:#[^\n]*|---[^\n]*)\n)*-[ \t]+(?:[\"']?[A-Za-z]+[\"']?[ \t]*:)")
_TEST_KEY = re.compile(rb"^[- ] {1,8}[\"']?vars[\"']?[ \t]*:", re.MULTILINE)
_VARIABLE = re.compile(r"\{\{-?\s*(?P<path>[A-Za-z_][\w.]*)\s*-?\}\}")
_TEMPLATE = re.compile(r"\{[{%#]")
_FILE = re.compile(
    r"\A(?:file|exec|https?|python|package|langfuse|portkey)[:/]|\A\S+\.(?:txt|json|jsonl|yaml|yml|md|j2|py|js|ts|csv)\Z"
)
_USUAL_VARIABLES = ("question", "query", "input", "prompt", "message", "user_input", "user_message", "text", "request")
_KEPT = ("metadata", "options", "threshold")
_SETTINGS = ("nunjucksFilters", "extensions", "evaluateOptions", "derivedMetrics", "redteam", "tracing", "env")
"""Settings of promptfoo that change its run and say nothing of a case."""
_CHANGES = ("transform", "prefix", "suffix", "postprocess")
"""Options of a test that change the prompt or the judged answer."""


class PromptfooConfig(ReadOnly):
    """The format "promptfoo-config"."""

    title = "promptfoo configuration"
    suffixes = (".yaml", ".yml", ".json")
    instead = "write an eval set as adk"

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the file has tests beside prompts or targets, or is a list of tests with variables."""
        if source.lower().endswith(YAML_SUFFIXES):
            keys = {match["key"].decode() for match in _TOP_KEY.finditer(data)}
            is_config = bool(keys & {"tests", "scenarios"} and keys & set(_TARGETS))
            return is_config or bool(_FIRST_TEST.match(data) and _TEST_KEY.search(data))
        value = peek(data).document
        return isinstance(value, dict) and bool(value.keys() & {"tests", "scenarios"} and value.keys() & set(_TARGETS))

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The tests as cases. Raises FormatError, also for a file without a test of its own."""
        is_yaml = source.lower().endswith(YAML_SUFFIXES)
        value = yaml_value(data, source) if is_yaml else parse_json(data, source=source).value
        place = JsonPosition(Document(value, source=source))
        config = {"tests": value} if isinstance(value, list) else read_mapping(place, value)
        return _Configuration(place, config, Notes()).build_import(file_stem(source))


@dataclass(slots=True)
class _Configuration:
    """A configuration while its tests become cases."""

    place: JsonPosition
    config: dict[str, Any]
    notes: Notes
    criteria: SetCriteria = field(default_factory=SetCriteria)

    def build_import(self, name: str) -> Imported:
        """The eval set with its criteria. Raises FormatError."""
        prompt = self._prompt()
        used_names: dict[str, int] = {}
        cases = []
        for number, (place, test) in enumerate(islice(self._tests(), MAX_TESTS + 1), 1):
            if number > MAX_TESTS:
                raise self.place.error(f"the file stands for more than {MAX_TESTS:,} tests; split it")
            cases.append(self._case(place, test, prompt, free_name(_title(test) or f"test_{number}", used_names)))
        if not cases:
            raise self.place.error(
                "the configuration has no test of its own; import the file that its tests name, with --map"
            )
        for key in _SETTINGS:
            if self.config.get(key):
                self.notes.refuse(f"{key}, a setting of promptfoo", self.place.at(key))
        criteria: dict[str, JsonValue] = {name: {**options} for name, options in self.criteria.by_name.items()}
        words = (
            f"The assertions are {counted(len(criteria), 'metric')} in the criteria of the set, chosen by each case."
        )
        evalset = EvalSet(name, cases=tuple(cases), extra={CRITERIA: criteria})
        return Imported("promptfoo-config", evalset, understood=(words,), refused=self.notes.sentences)

    def _prompt(self) -> str:
        """The template of the message: the first prompt that stands in the file; empty for none."""
        raw = self.config.get("prompts")
        entries = raw if isinstance(raw, list) else [] if raw is None else [raw]
        templates = []
        for index, entry in enumerate(entries):
            own = entry.get("raw", entry.get("id")) if isinstance(entry, dict) else entry
            text = json.dumps(own, ensure_ascii=False) if isinstance(own, list) else text_of(own)
            if text and not _FILE.search(text.strip()):
                templates.append(text)
            else:
                self.notes.refuse("a prompt in another file", self.place.at("prompts", index))
        for _ in templates[1:]:
            self.notes.refuse("a further prompt: the agent has its own, and the first gives the message", self.place)
        return templates[0] if templates else ""

    def _tests(self) -> Iterator[tuple[JsonPosition, dict[str, Any]]]:
        """The tests with the defaults, one for each combination of their variables."""
        defaults = self.config.get("defaultTest")
        if defaults is not None and not isinstance(defaults, dict):
            self.notes.refuse("the defaults of tests in another file", self.place.at("defaultTest"))
        base = defaults if isinstance(defaults, dict) else {}
        for place, raw in self._raw_tests(self.place.at("tests"), self.config.get("tests")):
            for test in _expanded(_merged(base, raw)):
                yield place, test
        scenarios = self.config.get("scenarios")
        for index, scenario in enumerate(scenarios if isinstance(scenarios, list) else ()):
            at = self.place.at("scenarios", index)
            if not isinstance(scenario, dict):
                self.notes.refuse("a scenario in another file", at)
                continue
            configs = [*self._raw_tests(at.at("config"), scenario.get("config"))]
            tests = [*self._raw_tests(at.at("tests"), scenario.get("tests"))] or [(at, {})]
            for (_, config), (place, raw) in product(configs, tests):
                for test in _expanded(_merged(_merged(base, config), raw)):
                    yield place, test

    def _raw_tests(self, place: JsonPosition, raw: Any) -> Iterator[tuple[JsonPosition, dict[str, Any]]]:
        for index, test in enumerate(raw if isinstance(raw, list) else [] if raw is None else [raw]):
            if isinstance(test, dict) and not ("path" in test and "vars" not in test):
                yield place.at(index), test
            else:
                self.notes.refuse("tests in another file, which is imported by itself", place.at(index))

    def _case(self, place: JsonPosition, test: dict[str, Any], prompt: str, case_id: str) -> Case:
        own = test.get("vars")
        variables: dict[str, Any] = own if isinstance(own, dict) else {}
        n_lost = -self.notes.count(NO_TEXT)
        queries, problem = self._queries(place, variables, prompt)
        n_lost += self.notes.count(NO_TEXT)
        expectations = TestExpectations(self.criteria)
        options = test.get("options")
        is_changed = isinstance(options, dict) and any(options.get(key) for key in _CHANGES)
        for number, assertion in enumerate(test["assert"], 1):
            self._expect(place.at("assert", number - 1), expectations, assertion, variables, number, is_changed)
        for key in ("provider", "providers", "prompts", "providerOutput"):
            if test.get(key):
                self.notes.refuse(f"the {key} of a test", place)
        if test.get("threshold") is not None:
            self.notes.refuse("the threshold of a test: here each of its criteria has to pass", place)
        extra: dict[str, JsonValue] = {key: test[key] for key in _KEPT if test.get(key)}
        extra |= {"vars": variables} if variables else {}
        extra |= {"assert": test["assert"]} if test["assert"] else {}
        extra |= {"required_outputs": [*expectations.outputs]} if expectations.outputs else {}
        extra |= expectations.own_criteria
        *before, last = queries
        expected = Expected(expectations.calls, reference=expectations.reference)
        turns = (*(Turn(query) for query in before), Turn(last, expected))
        case = Case(case_id, turns, rubrics=tuple(expectations.rubrics), extra=extra)
        reasons = [problem] if problem else []
        reasons += [lost_words(n_lost)] if n_lost else []
        if expectations.unjudged:
            names = ", ".join(dict.fromkeys(kind[:NAME_LIMIT] for kind in expectations.unjudged[:5]))
            reasons.append(f"no metric here judges its assertion {names}")
        return for_review(case, "; ".join(reasons)) if reasons else case

    def _expect(
        self,
        place: JsonPosition,
        expectations: TestExpectations,
        raw: Any,
        variables: Mapping[str, Any],
        number: int,
        is_changed: bool,
    ) -> None:
        """Add one assertion to the expectations of its test, or note that it is left out."""
        assertion = self._referenced(raw)
        if read_number(assertion.get("weight")) == 0:
            self.notes.refuse("an assertion of weight 0, which decides nothing", place)
            return
        n_before = len(expectations.unjudged)
        try:
            rendered = {**assertion, **_rendered({key: assertion.get(key) for key in ("value", "assert")}, variables)}
        except ValueError:
            expectations.unjudged.append(str(assertion.get("type")))
        else:
            if is_changed:
                expectations.unjudged.append(f"{assertion.get('type')} of a changed answer")
            else:
                expectations.add(rendered, f"assert_{number}")
        for kind in expectations.unjudged[n_before:]:
            self.notes.refuse(f"the assertion {kind[:NAME_LIMIT]!r}, which no metric here judges", place)

    def _referenced(self, raw: Any) -> dict[str, Any]:
        """The assertion, or the one that it names in `assertionTemplates`."""
        reference = raw.get("$ref") if isinstance(raw, dict) else None
        if isinstance(reference, str):
            templates = self.config.get("assertionTemplates")
            template = templates.get(reference.rpartition("/")[2]) if isinstance(templates, dict) else None
            raw = {**template, **{key: raw[key] for key in raw if key != "$ref"}} if isinstance(template, dict) else {}
        return raw if isinstance(raw, dict) else {"type": f"{raw}"} if isinstance(raw, str) else {}

    def _queries(self, place: JsonPosition, variables: Mapping[str, Any], prompt: str) -> tuple[tuple[str, ...], str]:
        """The messages of the user, and why a person has to look at them; empty where the prompt gave them."""
        text = None
        if prompt:
            try:
                text = _rendered(prompt, variables)
            except ValueError:
                self.notes.refuse("a template with more than variables", place)
        if text is not None:
            messages = prompt_messages(place.at("prompts"), text, self.notes)
            queries = tuple(message.text for message in messages if message.speaker == "user")
            if queries:
                return queries, ""
        name = next((name for name in _USUAL_VARIABLES if name in variables), next(iter(variables), ""))
        value = variables.get(name)
        if value is None or value == "":
            return ("",), "its message is not in the file"
        words = json_or_text(value)
        if words.startswith("file://"):
            return (words,), f"its variable {name[:NAME_LIMIT]!r} is in another file"
        is_clear = len(variables) == 1 or name in _USUAL_VARIABLES
        return (
            words,
        ), "" if is_clear else f"its message is the variable {name[:NAME_LIMIT]!r}, since no prompt is known"


def _title(test: Mapping[str, Any]) -> str:
    return text_of(test.get("description")).strip()


def _merged(base: Mapping[str, Any], test: Mapping[str, Any]) -> dict[str, Any]:
    """The test with the defaults: variables, options and metadata one by one, and both lists of assertions."""
    both = {**base, **test}
    for key in ("vars", "options", "metadata"):
        parts = [each[key] for each in (base, test) if isinstance(each.get(key), dict)]
        if parts:
            both[key] = {name: value for part in parts for name, value in part.items()}
    is_alone = isinstance(both.get("options"), dict) and both["options"].get("disableDefaultAsserts") is True
    lists = (() if is_alone else base.get("assert"), test.get("assert"))
    both["assert"] = [each for own in lists for each in (own if isinstance(own, list) else ())]
    return both


def _expanded(test: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The test for each combination of the variables that are lists."""
    variables, options = test.get("vars"), test.get("options")
    is_whole = isinstance(options, dict) and bool(options.get("disableVarExpansion"))
    if not isinstance(variables, dict) or is_whole:
        yield test
        return
    lists = {name: value for name, value in variables.items() if isinstance(value, list) and value}
    for values in product(*lists.values()):
        yield {**test, "vars": {**variables, **dict(zip(lists, values, strict=True))}}


def _rendered(value: Any, variables: Mapping[str, Any], depth: int = 0) -> Any:
    """The value with its variables. Raises ValueError for any other template, and for an unknown variable."""
    if isinstance(value, dict) and depth < MAX_LEVELS:
        return {key: _rendered(each, variables, depth + 1) for key, each in value.items()}
    if isinstance(value, list) and depth < MAX_LEVELS:
        return [_rendered(each, variables, depth + 1) for each in value]
    if not isinstance(value, str):
        return value
    return _template_text(value, variables)


def _template_text(template: str, variables: Mapping[str, Any]) -> str:
    def value_of(match: re.Match[str]) -> str:
        value: Any = variables
        for key in match["path"].split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise ValueError(f"no variable {match['path']}")
            value = value[key]
        return json_or_text(value)

    # Templates that are no variable are looked for in the template alone: a value may have braces of its own.
    if _TEMPLATE.search(_VARIABLE.sub("", template)):
        raise ValueError("a template with more than variables")
    return _VARIABLE.sub(value_of, template)

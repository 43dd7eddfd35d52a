"""`response_json_schema`: answers that are JSON and keep to a schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any, ClassVar

from evaldesk.errors import MetricError, UsageError
from evaldesk.matching import has_match
from evaldesk.metrics.metric import Judgement, MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import TURNS, Turns, score_answers
from evaldesk.metrics.responses.json_match import judge_json
from evaldesk.model import Case, JsonValue, Score, Transcript, TurnRecord

MAX_ERRORS = 20
MAX_WORDS = 200


@dataclass(frozen=True)
class ResponseJsonSchema:
    """1 for each answer that is JSON, a ```json fence left out, and keeps to the schema; else 0.

    The draft is that of `$schema`, else 2020-12. A `$ref` leads into the schema itself or to a draft, never into the
    network.
    """

    schema: dict[str, JsonValue] = option(
        {}, "json", "Schema", "A JSON Schema, draft 4 to 2020-12.", example='{"type": "object", "required": ["total"]}'
    )
    turns: Turns = option("each", "choice", "Of", "Which answers are looked at.", choices=TURNS)

    info: ClassVar[MetricInfo] = MetricInfo(
        "response_json_schema",
        "Response, JSON schema",
        "Share of answers that are JSON and keep to a schema.",
        required=("schema",),
    )

    def __post_init__(self) -> None:
        if self.schema:
            _ = self._validator

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """1 or 0 for each answer, and their mean."""
        return score_answers(self.info.name, transcript, case, self.turns, self._judge)

    @cached_property
    def _validator(self) -> Any:
        return _validator(self.schema)

    def _judge(self, record: TurnRecord) -> Judgement:
        return judge_json(record, self._check)

    def _check(self, answer: JsonValue) -> Judgement:
        errors = _errors(self._validator, answer)
        if not errors:
            return 1.0, "The answer matches the schema.", {}
        pointer, words = errors[0]
        more = f", and {len(errors) - 1} more" if errors[1:] else ""
        return 0.0, f"At {pointer or 'the top'}: {words}{more}.", {"differing": [pointer for pointer, _ in errors]}


def _validator(schema: dict[str, JsonValue]) -> Any:
    from jsonschema import SchemaError, validators
    from jsonschema.validators import Draft202012Validator
    from jsonschema_specifications import REGISTRY

    kind = validators.validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path)) or "the top"
        raise UsageError(
            f"this is not a JSON Schema: at {place}, {error.message[:MAX_WORDS]}", field="schema"
        ) from error
    keywords = {"pattern": _pattern, "patternProperties": _pattern_properties}
    keywords["additionalProperties"] = partial(_additional_properties, kind.VALIDATORS["additionalProperties"])
    return validators.extend(kind, keywords)(schema, registry=REGISTRY)


def _errors(validator: Any, answer: JsonValue) -> list[tuple[str, str]]:
    """Pointer and sentence of the first differences, in the order of their places."""
    from referencing.exceptions import Unresolvable

    try:
        errors = list(islice(validator.iter_errors(answer), MAX_ERRORS))
    except Unresolvable as error:
        raise MetricError(f"the schema refers to {error.ref!r}, which is not in it") from error
    except RecursionError:
        raise MetricError("the answer or the schema is nested too deep to check") from None
    errors.sort(key=lambda error: [str(part) for part in error.absolute_path])
    return [(_pointer(error.absolute_path), error.message[:MAX_WORDS].rstrip(".")) for error in errors]


def _pointer(path: Any) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _pattern(validator: Any, pattern: str, instance: object, schema: object) -> Iterator[Any]:
    """The keyword `pattern`, bounded in time."""
    from jsonschema import ValidationError

    if isinstance(instance, str) and not has_match(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: object, schema: object) -> Iterator[Any]:
    """The keyword `patternProperties`, bounded in time."""
    for key, value in instance.items() if isinstance(instance, dict) else ():
        for pattern, subschema in patterns.items():
            if has_match(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(
    keyword: Any, validator: Any, subschema: object, instance: object, schema: Any
) -> Iterator[Any]:
    """The keyword `additionalProperties` as it is, for the keys that no pattern takes."""
    patterns = schema.get("patternProperties")
    if patterns and isinstance(instance, dict):
        instance = {key: instance[key] for key in instance if not any(has_match(each, key) for each in patterns)}
        schema = {key: schema[key] for key in schema if key != "patternProperties"}
    yield from keyword(validator, subschema, instance, schema) or ()

"""`state_path`: the values that a JSON path finds in the state at the end of the session."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, ClassVar, Literal

from evaldesk.errors import MetricError, UsageError
from evaldesk.matching import json_equal
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.tools.call_words import short_json
from evaldesk.model import Case, JsonValue, Score, Transcript

MAX_VALUES = 10_000

_WANTS = (
    ("exists", "something is found"),
    ("absent", "nothing is found"),
    ("every", "all that is found is the value"),
    ("some", "the value is among the values found"),
)


@dataclass(frozen=True)
class StatePath:
    """1 when the path finds the wanted value in the final state, else 0. Paths are those of RFC 9535.

    The files that the agent made are under `artifacts`. `every` wants at least one find. The functions `match` and
    `search` are missing: a regular expression on an agent's text may take very long.
    """

    path: str = option("", "text", "Path", "A JSON path into the final state.", example="$.cart.items[*].id")
    want: Literal["exists", "absent", "every", "some"] = option(
        "exists", "choice", "Wanted", "What has to be found there.", choices=_WANTS
    )
    value: JsonValue = option(None, "json", "Value", "What is compared with, as JSON.", example='"paid"')

    info: ClassVar[MetricInfo] = MetricInfo(
        "state_path",
        "State at a path",
        "Whether a JSON path finds the wanted value in the final state.",
        required=("path",),
        reads_state=True,
    )

    def __post_init__(self) -> None:
        if self.path:
            _compile(self.path)

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        if len(transcript.turns) < len(case.turns):
            return [Score(self.info.name, 0.0, reason=f"Turn {len(transcript.turns) + 1} was never played.")]
        artifacts = transcript.artifacts
        own = {"artifacts": artifacts} if artifacts else {}
        values = _find(self.path, {**own, **transcript.final_state})
        n_equal = sum(json_equal(value, self.value) for value in values)
        is_met = {
            "exists": bool(values),
            "absent": not values,
            "every": 0 < len(values) == n_equal,
            "some": n_equal > 0,
        }[self.want]
        details = {"n_found": len(values), "n_equal": n_equal}
        return [Score(self.info.name, float(is_met), reason=self._reason(values, n_equal), details=details)]

    def _reason(self, values: list[JsonValue], n_equal: int) -> str:
        n = len(values)
        finds = f"{self.path} finds {'nothing' if not n else 'one value' if n == 1 else f'{n} values'}"
        if self.want in ("exists", "absent") or not n:
            return f"{finds}."
        if n == 1:
            is_it = "as wanted" if n_equal else f"wanted {short_json(self.value)}"
            return f"{finds}, {short_json(values[0])}, {is_it}."
        return f"{finds}, {n_equal} of them {short_json(self.value)}."


def _find(path: str, state: Any) -> list[JsonValue]:
    from jsonpath import JSONPathError

    try:
        values = [match.obj for match in islice(_compile(path).finditer(state), MAX_VALUES + 1)]
    except (JSONPathError, RecursionError) as error:
        raise MetricError(f"{path} cannot be followed in this state: {str(error).splitlines()[0]}") from error
    if len(values) > MAX_VALUES:
        raise MetricError(f"{path} finds more than {MAX_VALUES:,} values; name a narrower path")
    return values


def _compile(path: str) -> Any:
    from jsonpath import JSONPathError

    try:
        return _environment().compile(path)
    except (JSONPathError, RecursionError) as error:
        raise UsageError(
            f"{path!r:.100} is not a JSON path such as $.cart.items[0].id: {str(error).splitlines()[0]}", field="path"
        ) from error


@cache
def _environment() -> Any:
    from jsonpath import JSONPathEnvironment

    environment = JSONPathEnvironment(strict=True)
    for name in ("match", "search"):
        del environment.function_extensions[name]
    return environment

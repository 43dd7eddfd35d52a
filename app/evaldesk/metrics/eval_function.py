"""`EvalFunction`: a function of the user as a metric. (reference/osmosis.md 2)

A criterion with the option `function` is one, whatever its name. That option comes from the command line, a criteria
file or `evaldesk.toml`, never from a browser: it is what reaches an import, in the worker.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec

from evaldesk.errors import MetricError, NotFoundError, UsageError
from evaldesk.metrics.adk_custom import adk_arguments, adk_scores
from evaldesk.metrics.function_inputs import arguments_of
from evaldesk.metrics.function_loading import Function, load_function, mode_of
from evaldesk.metrics.metric import Metric, MetricInfo
from evaldesk.model import Case, Criterion, JsonObject, Score, Transcript
from evaldesk.wire import plain

FUNCTION_OPTION = "function"
_OPTIONS = (FUNCTION_OPTION, "root", "compat", "low", "high", "description")


@dataclass(frozen=True, slots=True)
class EvalFunction:
    """Calls `function`, a `module:attr` found from `root`, and takes what it returns for the value of the trial.

    A value is any finite number unless `low` and `high` bound it. What the function raises, None, NaN and infinity
    are errors; with `compat = "osmosis"` each of them counts as 0, as Osmosis has it, and the reason says so.
    """

    name: str
    function: str
    root: str = ""
    compat: Literal["", "osmosis"] = ""
    low: float | None = None
    high: float | None = None
    description: str = ""
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise UsageError(f"low must lie under high, got {self.low:g} and {self.high:g}")

    @property
    def info(self) -> MetricInfo:
        """What is known of the function without importing it."""
        return MetricInfo(
            self.name,
            self.name,
            self.description or f"What {self.function} says of the trial.",
            low=-math.inf if self.low is None else self.low,
            high=math.inf if self.high is None else self.high,
        )

    async def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """What the function says. Raises MetricError, and whatever the function raises."""
        if not self.compat:
            return await self._scores(transcript, case)
        try:
            return await self._scores(transcript, case)
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {error}"
            reason = f"Counted as 0, as Osmosis does: {said}."
            return [Score(self.name, 0.0, reason=reason, details={"osmosis": plain(said)})]

    async def _scores(self, transcript: Transcript, case: Case) -> list[Score]:
        function = load_function(self.function, self.root)
        mode = mode_of(function)
        if mode == "adk":
            found = await _called(function, adk_arguments(transcript, case, self.name, self.threshold))
            return adk_scores(self.name, found, len(transcript.turns))
        is_osmosis = bool(self.compat)
        found = await _called(function, arguments_of(mode, function, transcript, case, is_osmosis=is_osmosis))
        if isinstance(found, Score):
            return [found]
        if isinstance(found, list) and found and all(isinstance(item, Score) for item in found):
            return found
        return [self._score(_number(found))]

    def _score(self, value: float) -> Score:
        return Score(self.name, value, reason=f"{self.function} gave {value:g}.")


def build_function(criterion: Criterion) -> Metric:
    """The function that the criterion names, not imported yet. Raises UsageError naming the option at fault."""
    for option in criterion.options:
        if option not in _OPTIONS:
            unknown = NotFoundError.among(f"option of {criterion.metric}", option, _OPTIONS)
            unknown.field = f"{criterion.metric}.{option}"
            raise unknown
    given = {**criterion.options, "name": criterion.metric, "threshold": criterion.threshold}
    try:
        return cast("Metric", msgspec.convert(given, EvalFunction))
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{criterion.metric}: {error}", field=criterion.metric) from error


def is_function(criterion: Criterion) -> bool:
    """Whether the criterion names a function of the user."""
    return FUNCTION_OPTION in criterion.options


def load_function_of(criterion: Criterion) -> None:
    """Import the function that the criterion names, before anything is spent on the trial it is to score.

    Raises MetricError when it cannot be called as one, and whatever its import raises.
    """
    options = criterion.options
    mode_of(load_function(str(options[FUNCTION_OPTION]), str(options.get("root", ""))))


def function_options(function: str, **options: Any) -> JsonObject:
    """The options of a criterion that calls `function`; those that are empty are left out."""
    found: Mapping[str, Any] = {FUNCTION_OPTION: function, **options}
    return {name: value for name, value in found.items() if value not in (None, "")}


async def _called(function: Function, arguments: Mapping[str, Any]) -> object:
    found = function(**arguments)
    return await found if inspect.isawaitable(found) else found


def _number(found: object) -> float:
    if isinstance(found, bool | int | float) and math.isfinite(found):
        return float(found)
    said = f"{found!r:.80}" if isinstance(found, int | float) or found is None else type(found).__name__
    raise MetricError(f"the function returned {said}; wanted true, false or a finite number")

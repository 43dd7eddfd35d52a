"""`final_state_match`: the session ends in the expected state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from evaldesk.matching import covers, json_equal
from evaldesk.metrics.metric import MetricInfo
from evaldesk.metrics.option import option
from evaldesk.metrics.responses.answers import part_of
from evaldesk.model import Case, JsonObject, Score, Transcript

MAX_NAMED = 5

_COMPARES = (
    ("keys", "the expected keys, others free"),
    ("superset", "the expected keys at every depth"),
    ("equal", "the whole state"),
)


@dataclass(frozen=True, slots=True)
class FinalStateMatch:
    """1 when the session ends in the expected state, else 0.

    `keys`: every expected key has its very value. `superset`: it has at least the expected parts, also inside objects.
    `equal`: and there are no other keys. Keys named in `ignore` do not count.
    """

    compare: Literal["keys", "superset", "equal"] = option(
        "keys", "choice", "Compared", "Whether more may stand in the state than is expected.", choices=_COMPARES
    )
    ignore: list[str] = option(
        [], "list", "Ignored keys", "Top-level keys that play no part, one a line.", example="last_seen"
    )

    info: ClassVar[MetricInfo] = MetricInfo(
        "final_state_match",
        "Final state",
        "Whether the session ends with the expected values in its state.",
        needs="final_state",
    )

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """One score for the trial."""
        if case.final_state is None:
            return [Score(self.info.name, reason="The case has no expected final state.")]
        if len(transcript.turns) < len(case.turns):
            return [Score(self.info.name, 0.0, reason=f"Turn {len(transcript.turns) + 1} was never played.")]
        expected_state, state = self._without_ignored(case.final_state), self._without_ignored(transcript.final_state)
        is_same = covers if self.compare == "superset" else json_equal
        absent = [key for key in expected_state if key not in state]
        other = [key for key in expected_state if key in state and not is_same(state[key], expected_state[key])]
        extra = [key for key in state if key not in expected_state] if self.compare == "equal" else []
        n_equal = len(expected_state) - len(absent) - len(other)
        details: JsonObject = {
            "n_equal": n_equal,
            "n_expected": len(expected_state),
            "absent": [*absent],
            "other": [*other],
            "extra": [*extra],
        }
        value = float(not (absent or other or extra))
        return [Score(self.info.name, value, reason=_reason(n_equal, absent, other, extra), details=details)]

    def _without_ignored(self, state: JsonObject) -> JsonObject:
        return {key: value for key, value in state.items() if key not in self.ignore}


def _reason(n_equal: int, absent: list[str], other: list[str], extra: list[str]) -> str:
    n_keys = n_equal + len(absent) + len(other)
    groups: Mapping[str, list[str]] = {"not as expected": other, "not set": absent, "not expected": extra}
    parts = "; ".join(f"{_key_list(keys)} {word}" for word, keys in groups.items() if keys)
    if not n_keys:
        return f"The expected state names no keys{': ' if parts else ''}{parts}."
    equal_words = part_of(n_equal, n_keys, "expected key", "has its value", "have their value")
    return f"{equal_words} at the end{': ' if parts else ''}{parts}."


def _key_list(keys: list[str]) -> str:
    more = f" and {len(keys) - MAX_NAMED} more" if keys[MAX_NAMED:] else ""
    return ", ".join(keys[:MAX_NAMED]) + more

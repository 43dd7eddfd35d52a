"""Decisions of a person on requests of an agent, also scripted ones of a case.

A case says so under `human_decisions` (docs/approvals.md):

    [{"turn": 1, "tool": "refund", "decision": "approve"},
     {"tool": "refund", "decision": "deny", "reason": "Too much."},
     {"turn": 2, "decision": "answer", "answer": {"ticket": 7}}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeGuard, get_args

from evaldesk.errors import UsageError
from evaldesk.model.evalset import DECISIONS, Case, JsonObject, JsonValue

Choice: TypeAlias = Literal["approve", "deny", "answer"]
APPROVAL: tuple[Choice, ...] = ("approve", "deny")
ANSWER: tuple[Choice, ...] = ("answer",)
ANY: tuple[Choice, ...] = (*APPROVAL, *ANSWER)
UNUSED = "a decision of the case was not used: "
"""How the note on a decision begins that nobody asked for."""


# One shape for the requests of all frameworks: decision 162.
@dataclass(frozen=True, slots=True)
class Waiting:
    """Something that waits for a person: a call of a tool, or a question of the agent itself.

    The agent knows it by its `id`; `tool` is the name of the tool or of the question. `choices` can be decided. What
    `takes_message` is answered by the next message as well: a turn that ends with it is answered.
    """

    id: str
    tool: str
    args: JsonObject = field(default_factory=dict)
    choices: tuple[Choice, ...] = ANY
    question: JsonValue = None
    takes_message: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision: `answer` is the value of an answer, `reason` the text of a denial for the agent.

    `tool` is empty where it is about any request.
    """

    decision: Choice
    tool: str = ""
    answer: JsonValue = None
    reason: str = ""


Decided: TypeAlias = tuple[Waiting, Decision]


@dataclass(frozen=True, slots=True)
class ScriptedDecision:
    """A decision of a case: for the turn of that index, once, or without one for every turn, as often as it waits."""

    decision: Decision
    turn: int | None = None


def scripted_decisions(case: Case) -> tuple[ScriptedDecision, ...]:
    """The decisions that the case scripts, in order. Raises UsageError that says which one cannot be read."""
    entries = case.extra.get(DECISIONS)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise UsageError(f"{DECISIONS} must be a list of decisions, got {type(entries).__name__}")
    return tuple(_read(raw, f"{DECISIONS}[{index}]") for index, raw in enumerate(entries))


def scripts_turns(case: Case) -> bool:
    """Whether the case scripts a decision that belongs to a turn."""
    entries = case.extra.get(DECISIONS)
    return isinstance(entries, list) and any(isinstance(each, Mapping) and each.get("turn") for each in entries)


def turn_decisions(case: Case) -> dict[int, list[Decision]]:
    """The scripted decisions that belong to a turn, by its index. Raises UsageError as `scripted_decisions` does."""
    by_turn: dict[int, list[Decision]] = {}
    for each in scripted_decisions(case):
        if each.turn is not None:
            by_turn.setdefault(each.turn, []).append(each.decision)
    return by_turn


def readable_decisions(case: Case) -> dict[int, list[Decision]]:
    """As `turn_decisions`; none where the case has a list that cannot be read, which ends its trials."""
    try:
        return turn_decisions(case)
    except UsageError:
        return {}


def with_decisions(case: Case, scripted: Iterable[ScriptedDecision]) -> Case:
    """The case with these decisions in place of its own."""
    entries: list[JsonValue] = [_json_of_decision(each) for each in scripted]
    extra = {key: value for key, value in case.extra.items() if key != DECISIONS}
    return replace(case, extra={**extra, **({DECISIONS: entries} if entries else {})})


@dataclass(slots=True)
class Script:
    """The decisions of one trial while it is played: those of a turn are used once, in order, the others always."""

    scripted: tuple[ScriptedDecision, ...]
    _used_places: set[int] = field(default_factory=set)

    def take_decisions(self, turn: int, requests: Sequence[Waiting]) -> tuple[Decided, ...] | None:
        """A decision for each of the things that wait; None, and nothing is used, where one has none."""
        places: set[int] = set()
        pairs = [(each, self._take(turn, each, places)) for each in requests]
        decided = tuple((each, decision) for each, decision in pairs if decision)
        if not decided or len(decided) < len(pairs):
            return None
        self._used_places |= places
        return decided

    def unused_decisions(self, turn: int) -> list[Decision]:
        """The decisions for that turn that nobody asked for."""
        return [
            each.decision
            for index, each in enumerate(self.scripted)
            if each.turn == turn and index not in self._used_places
        ]

    def _take(self, turn: int, request: Waiting, places: set[int]) -> Decision | None:
        of_turn = [index for index, each in enumerate(self.scripted) if each.turn == turn]
        standing = [index for index, each in enumerate(self.scripted) if each.turn is None]
        for index in (*(index for index in of_turn if index not in self._used_places | places), *standing):
            if fits(self.scripted[index].decision, request):
                places.add(index)
                return self.scripted[index].decision
        return None


def fits(decision: Decision, request: Waiting) -> bool:
    """Whether the decision is about that, and can be made there."""
    return decision.tool in ("", request.tool) and decision.decision in request.choices


def decision_words(decision: Decision, tool: str = "") -> str:
    """`approve refund`, as a person says it."""
    return f"{decision.decision} {tool or decision.tool or 'the next question'}"


def _read(raw: object, place: str) -> ScriptedDecision:
    if not isinstance(raw, Mapping):
        raise UsageError(f"{place} must be an object, got {type(raw).__name__}")
    unknown = [str(key) for key in raw if key not in _KEYS]
    if unknown:
        raise UsageError(f"{place} has no key {unknown[0]!r}; there are: {', '.join(_KEYS)}")
    kind, turn = raw.get("decision"), raw.get("turn")
    if not _is_choice(kind):
        raise UsageError(f"{place}.decision must be approve, deny or answer, got {kind!r}")
    if turn is not None and (not isinstance(turn, int) or isinstance(turn, bool) or turn < 1):
        raise UsageError(f"{place}.turn must be the number of a turn, from 1, got {turn!r}")
    if (kind == "answer") != ("answer" in raw):
        raise UsageError(f"{place}: an answer has the key answer, and nothing else has it")
    if "reason" in raw and kind != "deny":
        raise UsageError(f"{place}: only a denial has a reason")
    decision = Decision(kind, _text(raw, "tool", place), raw.get("answer"), _text(raw, "reason", place))
    return ScriptedDecision(decision, None if turn is None else turn - 1)


_KEYS = ("turn", "tool", "decision", "answer", "reason")


def _is_choice(kind: object) -> TypeGuard[Choice]:
    return kind in get_args(Choice)


def _text(raw: Mapping[Any, Any], key: str, place: str) -> str:
    value = raw.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{place}.{key} must be text, got {type(value).__name__}")
    return value


def _json_of_decision(scripted: ScriptedDecision) -> dict[str, JsonValue]:
    decision = scripted.decision
    return {
        **({} if scripted.turn is None else {"turn": scripted.turn + 1}),
        **({"tool": decision.tool} if decision.tool else {}),
        "decision": decision.decision,
        **({"answer": decision.answer} if decision.decision == "answer" else {}),
        **({"reason": decision.reason} if decision.reason else {}),
    }

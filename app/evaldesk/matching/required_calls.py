"""Calls that a case requires somewhere in its conversation, as tau2 asks for them: in any order, beside any others.

    {"name": "close_account", "arguments": {"id": 7, "why": "asked"}, "compare_args": ["id"]}

(sierra-research/tau2-bench data_model/tasks.py Action, evaluator/evaluator_action.py)
"""

from __future__ import annotations

from dataclasses import dataclass

from evaldesk.model import Case, JsonObject, JsonValue, ToolCall

REQUIRED_CALLS = "required_calls"
"""The key of a case with its list; tau2's stands under `evaluation_criteria`, where its reward asks for it."""


@dataclass(frozen=True, slots=True)
class RequiredCall:
    """A call that must be made; `compared_args` are the arguments that count, None for all of the actual call.

    `by_user` is set for a call of the simulated user's own tools, which no transcript here has.
    """

    name: str
    args: JsonObject
    compared_args: tuple[str, ...] | None = None
    by_user: bool = False

    def is_made_by(self, call: ToolCall) -> bool:
        """Whether this call of the agent is the required one, by Python's `==` as in tau2.

        Without `compared_args` an argument that the call leaves out is not missed, and one that it has too many is.
        """
        if call.name != self.name:
            return False
        keys = call.args.keys() if self.compared_args is None else self.compared_args
        expected, actual = ({key: args[key] for key in keys if key in args} for args in (self.args, call.args))
        return expected == actual


def required_calls(case: Case) -> tuple[RequiredCall, ...] | None:
    """The calls that the case requires; None where it requires none of its own, or a list that cannot be read."""
    own = case.extra.get(REQUIRED_CALLS)
    return read_calls(own if own is not None else rewarded_actions(case.extra))


def rewarded_actions(extra: JsonObject) -> JsonValue:
    """The actions of a task of tau2 whose reward asks for them, not only for the database that they lead to; or None.

    A task without actions is rewarded for each trial.
    """
    criteria = extra.get("evaluation_criteria")
    basis = criteria.get("reward_basis") if isinstance(criteria, dict) else None
    if not isinstance(criteria, dict) or not isinstance(basis, list) or "ACTION" not in basis:
        return None
    actions = criteria.get("actions")
    return [] if actions is None else actions


def read_calls(raw: JsonValue) -> tuple[RequiredCall, ...] | None:
    """The calls of a list; None without one, and where one of them is not a call."""
    if not isinstance(raw, list):
        return None
    items = [_call(each) for each in raw]
    calls = tuple(each for each in items if each is not None)
    return calls if len(calls) == len(items) else None


def _call(raw: JsonValue) -> RequiredCall | None:
    if not isinstance(raw, dict):
        return None
    name, args, compare_args = raw.get("name"), raw.get("arguments", {}), raw.get("compare_args")
    is_list = isinstance(compare_args, list) and all(isinstance(key, str) for key in compare_args)
    if not (isinstance(name, str) and isinstance(args, dict) and (compare_args is None or is_list)):
        return None
    keys = tuple(map(str, compare_args)) if isinstance(compare_args, list) else None
    return RequiredCall(name, args, keys, by_user=raw.get("requestor") == "user")

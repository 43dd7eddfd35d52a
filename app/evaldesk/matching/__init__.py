"""Expected tool calls against actual ones: equality, matching, alignment, differences of arguments.

Calls are equal by name and arguments; ids, results and other keys play no part. (reference/reliability_stats.md D)
"""

from evaldesk.matching.alignment import Op, Step, align
from evaldesk.matching.allowed import (
    ALSO_ACCEPTED,
    AcceptedCall,
    Allowance,
    Origins,
    allowances_after_edit,
    apply_allowances,
    compared_state,
    read_allowances,
    renumber_allowances,
    steps_of,
    with_allowances,
)
from evaldesk.matching.json_equality import covers, diff_args, differing_keys, json_equal, json_key
from evaldesk.matching.required_calls import read_calls, required_calls, rewarded_actions
from evaldesk.matching.rule import ARGS_MODES, CallRule
from evaldesk.matching.tolerance import Tolerance, check_pattern, distance, has_match
from evaldesk.matching.trajectory import ORDERS, Order, TrajectoryMatch, match_by_rule, match_trajectory
from evaldesk.matching.value_types import type_of

__all__ = [
    "ALSO_ACCEPTED",
    "ARGS_MODES",
    "ORDERS",
    "AcceptedCall",
    "Allowance",
    "CallRule",
    "Op",
    "Order",
    "Origins",
    "Step",
    "Tolerance",
    "TrajectoryMatch",
    "align",
    "allowances_after_edit",
    "apply_allowances",
    "check_pattern",
    "compared_state",
    "covers",
    "diff_args",
    "differing_keys",
    "distance",
    "has_match",
    "json_equal",
    "json_key",
    "match_by_rule",
    "match_trajectory",
    "read_allowances",
    "read_calls",
    "renumber_allowances",
    "required_calls",
    "rewarded_actions",
    "steps_of",
    "type_of",
    "with_allowances",
]

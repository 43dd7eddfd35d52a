"""Expected tool calls against actual ones: equality, matching, alignment, differences of arguments.

Calls are equal by name and arguments; ids, results and other keys play no part. (reference/reliability_stats.md D)
"""

from evaldesk.matching.alignment import Op, Step, align
from evaldesk.matching.calls import AnyCall
from evaldesk.matching.json_equality import ArgChange, diff_args, json_equal
from evaldesk.matching.trajectory import ARGS_MODES, ORDERS, ArgsMode, Order, TrajectoryMatch, match_trajectory

__all__ = [
    "ARGS_MODES",
    "ORDERS",
    "AnyCall",
    "ArgChange",
    "ArgsMode",
    "Op",
    "Order",
    "Step",
    "TrajectoryMatch",
    "align",
    "diff_args",
    "json_equal",
    "match_trajectory",
]

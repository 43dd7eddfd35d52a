"""The form of a new run: what was typed, what it means, and what is said beside each field."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import ImmutableMultiDict

from evaldesk.desk.run_estimate import Estimate
from evaldesk.desk.run_plan import MAX_CONCURRENCY, MAX_N, RunOptions, foresee_unscored
from evaldesk.desk.run_view import short_title
from evaldesk.errors import UsageError
from evaldesk.model import Case, Criterion, EvalSet
from evaldesk.store import RunSummary
from evaldesk.web.criteria_form import (
    FILLED,
    Typed,
    number_typed,
    read_criteria,
    text_typed,
    ticked_metrics,
    typed_criterion,
    write_criteria,
)
from evaldesk.web.metric_form import MAX_NAMED, MetricGroup
from evaldesk.web.metric_labels import check_labels
from evaldesk.web.option_text import number_text

MAX_LISTED = 500
_PLAIN_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunForm:
    """All that the template shows."""

    agents: Sequence[tuple[str, str]]
    evalsets: Sequence[tuple[str, str]]
    agent: str
    evalset: str
    own_model: str
    models: Sequence[str]
    values: Mapping[str, str]
    is_selection: bool
    choices: Sequence[tuple[str, bool]]
    n_all: int
    n_selected: int
    groups: Sequence[MetricGroup] = ()
    unscored: Sequence[str] = ()
    estimate: Estimate | None = None
    problems: Mapping[str, str] = field(default_factory=lambda: defaultdict(str))
    problem: str = ""
    is_checked: bool = False
    max_n: int = MAX_N
    max_concurrency: int = MAX_CONCURRENCY

    @property
    def fault(self) -> str:
        """The field that the problem is about, for a link to it; empty where it has no plain name."""
        return next(
            (name for name, said in self.problems.items() if self.problem and said and _PLAIN_NAME.fullmatch(name)), ""
        )


DEFAULTS: Mapping[str, str] = {
    "n": "5",
    "concurrency": "4",
    "timeout_s": "120",
    "pass_threshold": "1",
    "model": "",
    "note": "",
    "errors_are_failures": "",
}


def typed_values(typed: Typed) -> dict[str, str]:
    """What was typed into the plain fields, or their defaults."""
    return {name: text_typed(typed, name, default) for name, default in DEFAULTS.items()}


def read_options(typed: Typed) -> RunOptions:
    """The options that were typed. Raises UsageError naming the first field that cannot be read."""
    check_labels(typed)
    values = typed_values(typed)
    is_selection = text_typed(typed, "cases", "all") == "selected"
    return RunOptions(
        case_ids=tuple(str(case_id) for case_id in typed.getlist("case")) if is_selection else None,
        n=_whole(values, "n", "trials of each case"),
        criteria=read_criteria(typed),
        pass_threshold=number_typed(values["pass_threshold"], "pass_threshold"),
        concurrency=_whole(values, "concurrency", "trials at once"),
        timeout_s=number_typed(values["timeout_s"], "timeout_s"),
        model=values["model"] or None,
        note=values["note"],
        errors_are_failures=bool(values["errors_are_failures"]),
    )


def chosen_of(typed: Typed, evalset: EvalSet | None) -> tuple[bool, set[str]]:
    """Whether only some cases are to run, and which are ticked; a link that names cases means these."""
    ids = {case.id for case in evalset.cases} if evalset else set()
    ticked = {str(case_id) for case_id in typed.getlist("case")} & ids
    kind = text_typed(typed, "cases", "selected" if ticked else "all")
    return kind == "selected", ticked


def unscored_lines(typed: Typed, cases: Sequence[Case]) -> list[str]:
    """`2 of 8 cases will be unscored by Final state because …`, for the ticked metrics; empty when all can be judged.

    A metric whose options cannot be read says so instead.
    """
    lines = []
    for name in ticked_metrics(typed):
        try:
            criterion = typed_criterion(typed, name)
            foreseen = foresee_unscored(cases, [criterion])
        except UsageError as error:
            lines.append(f"{short_title(name)} cannot be checked yet: {error}.")
            continue
        lines += [_unscored_line(criterion, each.reason, each.case_ids, len(cases)) for each in foreseen]
    return lines


def _unscored_line(criterion: Criterion, reason: str, case_ids: Sequence[str], n_cases: int) -> str:
    n = len(case_ids)
    cases = f"{n:,} of {n_cases:,} {'case' if n_cases == 1 else 'cases'}"
    so = " and cannot pass" if criterion.threshold is not None else ""
    named = ", ".join(case_ids[:MAX_NAMED]) + (" and more" if case_ids[MAX_NAMED:] else "")
    which = "" if n == n_cases else f" ({named})"
    return f"{cases} will be unscored by {short_title(criterion.metric)}{so}{which}: {reason}"


def like_run(summary: RunSummary, case_ids: Iterable[str] = ()) -> Typed:
    """The form as it was filled for an earlier run; without `case_ids`, with all cases that the eval set has now."""
    config = summary.config
    typed: list[tuple[str, object]] = [
        (FILLED, "1"),
        ("agent", config.agent.id),
        ("evalset", config.evalset_id),
        ("n", str(config.n)),
        ("concurrency", str(config.concurrency)),
        ("timeout_s", number_text(config.limits.trial_timeout_s)),
        ("pass_threshold", number_text(config.pass_threshold)),
        ("model", config.model or ""),
        ("errors_are_failures", "1" if config.errors_are_failures else ""),
    ]
    typed += [("case", case_id) for case_id in case_ids]
    typed += write_criteria(config.criteria)
    return ImmutableMultiDict(typed)


def _whole(values: Mapping[str, str], name: str, words: str) -> int:
    text = values[name].strip()
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 9:
        raise UsageError(f"{words}: a whole number, not {text[:20]!r}", field=name)
    return int(text)

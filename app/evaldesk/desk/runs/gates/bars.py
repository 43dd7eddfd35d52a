"""The criteria of two runs compared: a case may fail more and pass where those of now ask for less."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from evaldesk.codec import msgspec
from evaldesk.metrics import known_metric, missing_reasons
from evaldesk.model import Case, Criterion
from evaldesk.model.comparison import ROUNDING, Bar, Baseline, RunChange

_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=repr)


def bars_of(criteria: Sequence[Criterion]) -> tuple[Bar, ...]:
    """The bars that the criteria set for a trial; informing ones set none."""
    return tuple(Bar(each.metric, each.threshold, _digest(each)) for each in criteria if each.threshold is not None)


def _digest(criterion: Criterion) -> str:
    """The digest of a criterion's options, without the folder of a function, which differs between machines."""
    options = {name: value for name, value in criterion.options.items() if name != "root"}
    return hashlib.sha256(_encoder.encode(options)).hexdigest()[:16] if options else ""


def is_asserted(cases: Callable[[], Sequence[Case]], metric: str) -> bool:
    """Whether the metric applies to any case; true for a metric that is not known here."""
    if known_metric(metric) is None:
        return True
    return len(missing_reasons(Criterion(metric, 0.0), current_cases := cases())) < len(current_cases)


def weaker_words(
    change: RunChange, before: Baseline, now: Mapping[str, Sequence[Bar]], applies: Callable[[str], bool]
) -> tuple[str, ...]:
    """The ways in which the bars are lower than in the baseline, a phrase each; none where they are not.

    `now` are the bars by eval set, and `applies` says of a metric that is gone whether any case of now asserts what it
    judges. Metrics that are new or ask for more hide nothing.
    """
    pairs = [(case.before, case.after) for case in change.cases if case.is_same_case]
    sets = {
        (before_case.key.evalset, after_case.key.evalset)
        for before_case, after_case in pairs
        if before_case and after_case
    }
    words = [
        phrase
        for before_case, after_case in sorted(sets)
        for phrase in _weaker(before.bars.get(before_case, ()), now.get(after_case, ()), applies)
    ]
    thresholds = {
        (before_case.pass_threshold, after_case.pass_threshold)
        for before_case, after_case in pairs
        if before_case and after_case
    }
    for was, threshold in sorted(thresholds):
        if threshold < was - ROUNDING:
            words.append(f"a case passes with {threshold:g} of its trials, {was:g} before")
    if any(
        before_case.errors_are_failures and not after_case.errors_are_failures
        for before_case, after_case in pairs
        if before_case and after_case
    ):
        words.append("errors count as failures no more")
    return tuple(dict.fromkeys(words))


def _weaker(before: Sequence[Bar], now: Sequence[Bar], applies: Callable[[str], bool]) -> Iterator[str]:
    current_bars = {each.metric: each for each in now}
    for bar in before:
        current_bar = current_bars.get(bar.metric)
        if current_bar is None:
            if applies(bar.metric):
                yield f"{bar.metric} is not a criterion now"
        elif current_bar.threshold < bar.threshold - ROUNDING:
            yield f"{bar.metric} passes with {current_bar.threshold:g}, {bar.threshold:g} before"
        elif current_bar.options != bar.options:
            yield f"{bar.metric} has other options"

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
    """Of its options, without the folder of a function: it is another one on another machine."""
    options = {name: value for name, value in criterion.options.items() if name != "root"}
    return hashlib.sha256(_encoder.encode(options)).hexdigest()[:16] if options else ""


def is_asserted(cases: Callable[[], Sequence[Case]], metric: str) -> bool:
    """Whether the metric applies to any case; true for a metric that is not known here."""
    if known_metric(metric) is None:
        return True
    return len(missing_reasons(Criterion(metric, 0.0), asked := cases())) < len(asked)


def weaker_words(
    change: RunChange, before: Baseline, now: Mapping[str, Sequence[Bar]], applies: Callable[[str], bool]
) -> tuple[str, ...]:
    """The ways in which the bars are lower than in the baseline, a phrase each; none where they are not.

    `now` are the bars by eval set, and `applies` says of a metric that is gone whether any case of now asserts what it
    judges. Metrics that are new or ask for more hide nothing.
    """
    pairs = [(case.before, case.after) for case in change.cases if case.is_same_case]
    sets = {(old.key.evalset, new.key.evalset) for old, new in pairs if old and new}
    words = [
        phrase for old, new in sorted(sets) for phrase in _weaker(before.bars.get(old, ()), now.get(new, ()), applies)
    ]
    thresholds = {(old.pass_threshold, new.pass_threshold) for old, new in pairs if old and new}
    for was, asked in sorted(thresholds):
        if asked < was - ROUNDING:
            words.append(f"a case passes with {asked:g} of its trials, {was:g} before")
    if any(old.errors_are_failures and not new.errors_are_failures for old, new in pairs if old and new):
        words.append("errors count as failures no more")
    return tuple(dict.fromkeys(words))


def _weaker(before: Sequence[Bar], now: Sequence[Bar], applies: Callable[[str], bool]) -> Iterator[str]:
    asked = {each.metric: each for each in now}
    for bar in before:
        found = asked.get(bar.metric)
        if found is None:
            if applies(bar.metric):
                yield f"{bar.metric} is not a criterion now"
        elif found.threshold < bar.threshold - ROUNDING:
            yield f"{bar.metric} passes with {found.threshold:g}, {bar.threshold:g} before"
        elif found.options != bar.options:
            yield f"{bar.metric} has other options"

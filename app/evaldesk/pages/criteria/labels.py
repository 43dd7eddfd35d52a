"""The same metric more than once on a form: one more is asked for, and each has a label of its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from starlette.datastructures import ImmutableMultiDict

from evaldesk.errors import UsageError
from evaldesk.metrics import is_label, is_metric, metric_kind, metric_label
from evaldesk.pages.criteria.form import LABEL, Typed, text_typed, ticked_metrics

ANOTHER = "another"
"""The button that asks for one more; its value is the metric."""


def labelled(typed: Typed) -> Typed:
    """The typed form, with each metric under the label that was typed for it.

    A label that cannot be, or that another one has, stays where it was typed, to be refused there.
    """
    renamed = _renamed(typed)
    return ImmutableMultiDict([_moved(key, value, renamed) for key, value in typed.multi_items()])


def with_another(typed: Typed) -> Typed:
    """The form with one more of the metric that the button names, ticked; as it was for any other name."""
    kind = metric_kind(text_typed(typed, ANOTHER, ""))
    if not is_metric(kind):
        return typed
    taken = {*ticked_metrics(typed)}
    name = next(name for number in count(2) if (name := f"{kind}/{number}") not in taken)
    items = [(key, value) for key, value in typed.multi_items() if key != ANOTHER and not key.startswith(f"{name}.")]
    return ImmutableMultiDict([*items, ("metric", name)])


def check_labels(typed: Typed) -> None:
    """Raise UsageError naming the field of the first label that cannot be."""
    for name in ticked_metrics(typed):
        label = _typed_label(typed, name)
        if label == metric_label(name):
            continue
        place = f"{name}.{LABEL}"
        if not is_label(label):
            raise UsageError(f"a name of 1 to 40 letters, digits, _ or -, not {label[:50]!r}", field=place)
        raise UsageError(f"{metric_kind(name)}/{label} is there already; name this one otherwise", field=place)


def _renamed(typed: Typed) -> Mapping[str, str]:
    """Old name -> new name of the metrics whose label was changed to a valid one."""
    taken = {*ticked_metrics(typed)}
    found: dict[str, str] = {}
    for name in ticked_metrics(typed):
        new = f"{metric_kind(name)}/{_typed_label(typed, name)}"
        if metric_label(name) and is_metric(new) and new not in taken:
            found[name] = new
            taken.add(new)
    return found


def _typed_label(typed: Typed, name: str) -> str:
    label = metric_label(name)
    return text_typed(typed, f"{name}.{LABEL}", label).strip() if label and is_metric(name) else label


def _moved(key: str, value: object, renamed: Mapping[str, str]) -> tuple[str, object]:
    if key == "metric":
        return key, renamed.get(str(value), value)
    name, dot, field = key.partition(".")
    if name not in renamed:
        return key, value
    return f"{renamed[name]}{dot}{field}", metric_label(renamed[name]) if field == LABEL else value

"""The same metric more than once on a form: one more is asked for, and each has a label of its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from starlette.datastructures import ImmutableMultiDict

from evaldesk.errors import NAME_LIMIT, UsageError
from evaldesk.metrics import is_label, is_metric, metric_kind, metric_label
from evaldesk.pages.criteria.form import LABEL, Typed, text_typed, ticked_metrics

ANOTHER = "another"
"""The button that asks for one more; its value is the metric."""


def labelled(form: Typed) -> Typed:
    """The typed form, with each metric under the label that was typed for it.

    A label that cannot be, or that another one has, stays where it was typed, to be refused there.
    """
    new_names = _new_names(form)
    return ImmutableMultiDict([_rename_field(key, value, new_names) for key, value in form.multi_items()])


def with_another(form: Typed) -> Typed:
    """The form with one more of the metric that the button names, ticked; as it was for any other name."""
    kind = metric_kind(text_typed(form, ANOTHER, ""))
    if not is_metric(kind):
        return form
    names_in_use = {*ticked_metrics(form)}
    name = next(name for number in count(2) if (name := f"{kind}/{number}") not in names_in_use)
    items = [(key, value) for key, value in form.multi_items() if key != ANOTHER and not key.startswith(f"{name}.")]
    return ImmutableMultiDict([*items, ("metric", name)])


def check_labels(form: Typed) -> None:
    """Raise UsageError naming the field of the first label that cannot be."""
    for name in ticked_metrics(form):
        label = _typed_label(form, name)
        if label == metric_label(name):
            continue
        place = f"{name}.{LABEL}"
        if not is_label(label):
            raise UsageError(f"a name of 1 to 40 letters, digits, _ or -, not {label[:NAME_LIMIT]!r}", field=place)
        raise UsageError(f"{metric_kind(name)}/{label} is there already; name this one otherwise", field=place)


def _new_names(form: Typed) -> Mapping[str, str]:
    """Old name -> new name of the metrics whose label was changed to a valid one."""
    names_in_use = {*ticked_metrics(form)}
    new_names: dict[str, str] = {}
    for name in ticked_metrics(form):
        new_name = f"{metric_kind(name)}/{_typed_label(form, name)}"
        if metric_label(name) and is_metric(new_name) and new_name not in names_in_use:
            new_names[name] = new_name
            names_in_use.add(new_name)
    return new_names


def _typed_label(form: Typed, name: str) -> str:
    label = metric_label(name)
    return text_typed(form, f"{name}.{LABEL}", label).strip() if label and is_metric(name) else label


def _rename_field(key: str, value: object, new_names: Mapping[str, str]) -> tuple[str, object]:
    if key == "metric":
        return key, new_names.get(str(value), value)
    name, dot, field = key.partition(".")
    if name not in new_names:
        return key, value
    return f"{new_names[name]}{dot}{field}", metric_label(new_names[name]) if field == LABEL else value

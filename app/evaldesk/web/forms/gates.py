"""The gates of the form of a new run: their fields, the typed values, and the settings of a button."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import ImmutableMultiDict

from evaldesk.errors import NAME_LIMIT, UsageError
from evaldesk.gate_options import GATE_OPTIONS, asked_of, gates_of, title_of
from evaldesk.model import Gates
from evaldesk.model.stored import RunSummary
from evaldesk.pages.criteria.form import Typed, text_typed
from evaldesk.pages.gate_figures import GateFigures
from evaldesk.run_options import BY_NAME, RunOption, has_door
from evaldesk.web.forms.fields import number_of

USE = "use"
"""The button of a better gate; its value has the flags of the gate."""
BASELINE = "baseline"

_FORM_GATES = tuple(option for option in GATE_OPTIONS if has_door(option, "form"))
_BY_FLAG: Mapping[str, RunOption] = {option.flags[0]: option for option in (BY_NAME["n"], *_FORM_GATES)}


@dataclass(frozen=True, slots=True)
class GateField:
    """One gate as a field of the form; `open` is the meaning of an empty field."""

    option: RunOption
    value: str
    open: str
    is_required: bool = False

    @property
    def label(self) -> str:
        """The name of the field."""
        return self.option.title

    @property
    def choices(self) -> Sequence[str]:
        """The values to choose from; empty where it is typed."""
        return self.option.choices

    @property
    def low(self) -> str:
        """The least number."""
        return f"{self.option.low:g}"

    @property
    def high(self) -> str:
        """The greatest number."""
        return f"{self.option.high:.10g}"


@dataclass(frozen=True, slots=True)
class GateForm:
    """The gates in the form. `baselines` are the runs to compare with: number, and words.

    `n_in_quarantine` cases are in no gate with the tick `is_without`; without such cases there is no tick.
    """

    fields: Mapping[str, GateField]
    baselines: Sequence[tuple[str, str]] = ()
    figures: Sequence[GateFigures] = ()
    from_run: int | None = None
    problem: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)
    n_in_quarantine: int = 0
    is_without: bool = True

    @property
    def n_set(self) -> int:
        """The number of requested gates."""
        return sum(bool(each.value) for each in self.fields.values())

    @property
    def is_open(self) -> bool:
        """Whether the fields are shown at once."""
        return self.n_set > 0 or any(self.problems.get(name) for name in self.fields)


def gate_fields(form_values: Typed) -> dict[str, GateField]:
    """The gates of the table as they were typed."""
    return {
        option.name: GateField(option, text_typed(form_values, option.name, ""), option.value_words(option.default))
        for option in _FORM_GATES
    }


def typed_gates(gates: Gates) -> list[tuple[str, object]]:
    """The gates of an earlier run, as they stand in the form."""
    values = asked_of(gates)
    if not str(values.get(BASELINE, "0")).isdecimal():  # a file, which no page opens
        for name in (BASELINE, "max_regressions", "margin", "regression_rule", "confirm", "new_cases"):
            values.pop(name, None)
    options = {option.name: option for option in _FORM_GATES}
    return [
        (name, options[name].value_words(value).removeprefix("$").strip())
        for name, value in values.items()
        if name in options
    ]


def read_gates(form_values: Typed, *, n: int, compat: str) -> Gates:
    """The gates that were typed, over `n` trials of each case. Raises UsageError naming the first field at fault."""
    options = {
        option.name: option.read(text_typed(form_values, option.name, ""), option.title) for option in _FORM_GATES
    }
    if options[BASELINE]:
        baseline_id(form_values)
    return gates_of(options, n=n, compat=compat, name_of=title_of)


def baseline_id(form_values: Typed) -> int | None:
    """The number of the run to compare with. Raises UsageError for anything else."""
    text = text_typed(form_values, BASELINE, "").strip()
    if not text:
        return None
    if (run_id := number_of(text)) is None:
        raise UsageError(f"choose a run by its number, not {text[:NAME_LIMIT]!r}", field=BASELINE)
    return run_id


def with_better_gate(form_values: Typed) -> Typed:
    """The form with the better gate of the button that was pressed; as it was for anything else."""
    flags = text_typed(form_values, USE, "")
    try:
        words = shlex.split(flags)
    except ValueError:
        return form_values
    gate_values = {
        _BY_FLAG[flag].name: value for flag, value in zip(words[::2], words[1::2], strict=False) if flag in _BY_FLAG
    }
    if not gate_values:
        return form_values
    if "n" in gate_values:  # its trials are of every case, and no budget's
        gate_values |= {"budget": "", "allocate": ""}
    other_values = [
        (name, value) for name, value in form_values.multi_items() if name != USE and name not in gate_values
    ]
    return ImmutableMultiDict([*other_values, *gate_values.items()])


def baselines_of(runs: Sequence[RunSummary]) -> list[tuple[str, str]]:
    """The runs that a new run may be compared with: those with scored trials, newest first."""
    return [(str(run.id), f"run {run.id}, {run.started_at:%d %b}") for run in runs if run.n_scored and run.started_at]

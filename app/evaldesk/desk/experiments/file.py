"""Experiment files: `[experiment]` with an agent and an eval set, and `[[variants]]` or a grid."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.run_options import BY_NAME, Asked
from evaldesk.toml_text import parse_toml

TEXTS = ("agent", "evalset", "name", "baseline", "criteria")
SWITCHES = ("drop_worse", "allow_equal")
KEYS = (*TEXTS, *SWITCHES, "vary")
SECTIONS = ("experiment", "variants", "evaldesk")


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """The request of a file: either a grid (`vary`, as of the command) or listed `variants`.

    Places are whole paths where they are of a file beside it.
    """

    agent: str
    evalset: str
    name: str | None = None
    baseline: str | None = None
    criteria: str | None = None
    drop_worse: bool = False
    allow_equal: bool = False
    vary: tuple[str, ...] = ()
    variants: tuple[Mapping[str, object], ...] = ()
    run_options: Asked = field(default_factory=Asked)


def is_experiment_file(path: Path) -> bool:
    """Whether the TOML at `path` asks for variants, or names an agent and an eval set; another file is none."""
    try:
        table = _read_table(path)
    except UsageError:  # read as a run file, it is refused with what is wrong
        return False
    experiment = table.get("experiment")
    own_keys = {"agent", "evalset", "vary"}
    return "variants" in table or (isinstance(experiment, Mapping) and bool(own_keys & experiment.keys()))


def read_experiment_file(path: Path) -> ExperimentFile:
    """The request of the file. Raises UsageError that names each wrong key, unknown ones with the nearest."""
    table = _read_table(path)
    if issues := list(_issues(table)):
        lines = "".join(f"\n  - {issue}" for issue in issues)
        raise UsageError(f"{path}: {issues[0]}" if len(issues) == 1 else f"{path}:{lines}")
    experiment, folder = table["experiment"], path.resolve().parent
    texts = {name: str(experiment[name]) for name in TEXTS if name in experiment}
    for name in ("agent", "evalset", "criteria"):
        if name in texts:
            texts[name] = _beside(texts[name], folder)
    return ExperimentFile(
        **texts,  # type: ignore[arg-type]
        **{name: experiment[name] for name in SWITCHES if name in experiment},
        vary=tuple(
            f"{name}={','.join(_text(_placed(name, each, folder)).replace(',', chr(92) + ',') for each in values)}"
            for name, values in experiment.get("vary", {}).items()
        ),
        variants=tuple(
            {name: _placed(name, value, folder) for name, value in variant.items()}
            for variant in table.get("variants", ())
        ),
        run_options=cast("Asked", dict(table.get("evaldesk", {}))),
    )


def _read_table(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_regular_file(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file such as experiment.toml") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"Invalid TOML in {path}: {error}") from error


def _issues(table: Mapping[str, Any]) -> Iterator[str]:
    for name in table:
        if name not in SECTIONS:
            yield str(NotFoundError.among("section", name, SECTIONS))
    experiment = table.get("experiment")
    if not isinstance(experiment, Mapping):
        yield "[experiment] is missing; it names the agent and the evalset"
        return
    yield from (f"experiment.{name} is missing" for name in ("agent", "evalset") if name not in experiment)
    for name, value in experiment.items():
        if name not in KEYS:
            yield f"experiment.{name}: {NotFoundError.among('key', name, KEYS)}"
        elif name in TEXTS and not (isinstance(value, str) and value.strip()):
            yield f"experiment.{name}: must be text, got {value!r:.60}"
        elif name in SWITCHES and not isinstance(value, bool):
            yield f"experiment.{name}: must be true or false, got {value!r:.60}"
    yield from _variant_issues(experiment.get("vary", {}), table.get("variants", []))
    yield from _option_issues(table.get("evaldesk", {}))


def _variant_issues(vary: Any, variants: Any) -> Iterator[str]:
    if not isinstance(vary, Mapping) or not all(isinstance(values, list) and values for values in vary.values()):
        yield 'experiment.vary: must be a table of lists, such as model = ["a", "b"]'
    if not isinstance(variants, list) or not all(isinstance(each, Mapping) for each in variants):
        yield "variants: must be tables, each under [[variants]]"
    if bool(vary) == bool(variants):
        yield "name the variants either by [[variants]] or by experiment.vary"


def _option_issues(options: Any) -> Iterator[str]:
    if not isinstance(options, Mapping):
        yield f"evaldesk: must be a table, got {options!r:.60}"
        return
    for name, value in options.items():
        if name not in BY_NAME:
            yield f"evaldesk.{name}: {NotFoundError.among('run option', name, BY_NAME)}"
            continue
        try:
            BY_NAME[name].check(value, f"evaldesk.{name}")
        except UsageError as error:
            yield str(error)


def _placed(name: str, value: object, folder: Path) -> object:
    """A value with the whole path of a file beside the experiment file."""
    option = name.partition("@")[0]
    if not isinstance(value, str):
        return value
    if option == "instruction" and value.startswith("@"):
        return f"@{folder / value[1:]}"
    return _beside(value, folder) if option in ("agent", "evalset") else value


def _beside(text: str, folder: Path) -> str:
    """The place in the folder of the file where there is one of that name; else the text, such as `module:attr`."""
    place, colon, cases = text.partition(":")
    return f"{folder / place}{colon}{cases}" if place and (folder / place).exists() else text


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)

"""Experiment files: `[experiment]` with an agent and an eval set, or a run file of Osmosis, and its variants."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from evaldesk.desk.runs.file import EXPERIMENT, OWN_KEYS, RunFile, run_file_of
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.reading.regular_file import read_regular_file
from evaldesk.run_options import BY_NAME, Asked
from evaldesk.toml_text import parse_toml

PLACES = ("agent", "evalset", "criteria")
TEXTS = ("agent", "evalset", "name", "baseline", "criteria")
SWITCHES = ("drop_worse", "allow_equal")
KEYS = (*TEXTS, *SWITCHES, "vary")
SECTIONS = ("experiment", "variants", "evaldesk")
KEYS_BESIDE = tuple(name for name in KEYS if name not in PLACES)
"""The keys of an experiment beside those of a run file, which names the agent, the data set and the criteria."""
NAMES_OF_OSMOSIS = {"model_path": "model", **{key: each.name for key, each in OWN_KEYS.items()}}
"""The option that a variant of a run file of Osmosis names as the file does."""


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """The request of a file: either a grid (`vary`, as of the command) or listed `variants`.

    Places are whole paths where they are of a file beside it. A run file of Osmosis stands in `run_file`, and names the
    agent, the data set and the options of a run.
    """

    agent: str = ""
    evalset: str = ""
    name: str | None = None
    baseline: str | None = None
    criteria: str | None = None
    drop_worse: bool = False
    allow_equal: bool = False
    vary: tuple[str, ...] = ()
    variants: tuple[Mapping[str, object], ...] = ()
    run_options: Asked = field(default_factory=Asked)
    run_file: RunFile | None = None


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
    if _is_of_osmosis(table):
        return _read_osmosis(table, path)
    if issues := list(_issues(table)):
        lines = "".join(f"\n  - {issue}" for issue in issues)
        raise UsageError(f"{path}: {issues[0]}" if len(issues) == 1 else f"{path}:{lines}")
    experiment, folder = table["experiment"], path.resolve().parent
    places = {name: _beside(str(experiment[name]), [folder]) for name in PLACES if name in experiment}
    file = _with_variants(table, [folder])
    return replace(file, **places, run_options=cast("Asked", dict(table.get("evaldesk", {}))))  # type: ignore[arg-type]


def _is_of_osmosis(table: Mapping[str, Any]) -> bool:
    """Whether the file names the agent as a run file of Osmosis does."""
    experiment = table.get("experiment")
    return isinstance(experiment, Mapping) and bool(set(EXPERIMENT) & experiment.keys())


def _read_osmosis(table: Mapping[str, Any], path: Path) -> ExperimentFile:
    """The variants of a run file of Osmosis; a model that all variants name may be left out of its experiment.

    Raises UsageError as `run_file_of`, for the variants as well.
    """
    experiment = table["experiment"]
    issues = [*_beside_issues(experiment), *_variant_issues(experiment.get("vary", {}), table.get("variants", []))]
    issues += () if issues else _twice_issues(experiment.get("vary", {}), table.get("variants", []))
    of_run = {name: value for name, value in experiment.items() if name not in KEYS_BESIDE}
    renamed: dict[str, Any] = {**table, "experiment": experiment}
    if not issues:
        renamed["experiment"] = {**experiment, "vary": _renamed(experiment.get("vary", {}))}
        renamed["variants"] = [_renamed(variant) for variant in table.get("variants", [])]
        models = [variant.get("model") for variant in renamed["variants"]] or renamed["experiment"]["vary"].get("model")
        if models and all(models):
            of_run.setdefault("model_path", models[0])
    rest = {name: value for name, value in table.items() if name not in ("experiment", "variants")}
    run_file = run_file_of({"experiment": of_run, **rest}, path, issues)
    return replace(_with_variants(renamed, [path.resolve().parent, run_file.root]), run_file=run_file)


def _renamed(options: Mapping[str, Any]) -> dict[str, Any]:
    return {NAMES_OF_OSMOSIS.get(name, name): value for name, value in options.items()}


def _with_variants(table: Mapping[str, Any], folders: Sequence[Path]) -> ExperimentFile:
    """The keys and the variants of an experiment, whose places are below the first folder that has them."""
    experiment = table["experiment"]
    return ExperimentFile(
        **{name: experiment[name] for name in KEYS_BESIDE if name in experiment and name != "vary"},
        vary=tuple(
            f"{name}={','.join(_text(_placed(name, each, folders)).replace(',', chr(92) + ',') for each in values)}"
            for name, values in experiment.get("vary", {}).items()
        ),
        variants=tuple(
            {name: _placed(name, value, folders) for name, value in variant.items()}
            for variant in table.get("variants", ())
        ),
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
    yield from (
        f"experiment.{name}: {NotFoundError.among('key', name, KEYS)}" for name in experiment if name not in KEYS
    )
    yield from _beside_issues(experiment, TEXTS)
    yield from _variant_issues(experiment.get("vary", {}), table.get("variants", []))
    yield from _option_issues(table.get("evaldesk", {}))


def _beside_issues(experiment: Mapping[str, Any], texts: Sequence[str] = ("name", "baseline")) -> Iterator[str]:
    """Wrong values of the keys that hold texts and switches."""
    for name, value in experiment.items():
        if name in texts and not (isinstance(value, str) and value.strip()):
            yield f"experiment.{name}: must be text, got {value!r:.60}"
        elif name in SWITCHES and not isinstance(value, bool):
            yield f"experiment.{name}: must be true or false, got {value!r:.60}"


def _twice_issues(vary: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Options that a variant names by both of their names."""
    for place, options in (
        ("experiment.vary", vary),
        *((f"variant {at}", each) for at, each in enumerate(variants, 1)),
    ):
        for name, same in NAMES_OF_OSMOSIS.items():
            if name != same and {name, same} <= options.keys():
                yield f"{place}: {name} and {same} are one option; name it once"


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


def _placed(name: str, value: object, folders: Sequence[Path]) -> object:
    """A value with the whole path of a file beside the experiment file."""
    option = name.partition("@")[0]
    if not isinstance(value, str):
        return value
    if option == "instruction" and value.startswith("@"):
        folder = next((each for each in folders if _is_there(each / value[1:])), folders[0])
        return f"@{folder / value[1:]}"
    return _beside(value, folders) if option in ("agent", "evalset") else value


def _beside(text: str, folders: Sequence[Path]) -> str:
    """The place in the first of the folders where there is one of that name; else the text, such as `module:attr`."""
    place, colon, cases = text.partition(":")
    folder = next((each for each in folders if place and _is_there(each / place)), None)
    return text if folder is None else f"{folder / place}{colon}{cases}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a name of a file
        return False


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)

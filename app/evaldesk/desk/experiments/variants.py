"""The variants of a request: options with several values, the grid that they span, and the checks of it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, cast

from evaldesk.desk.experiments.revisions import is_revision
from evaldesk.errors import NAME_LIMIT, VALUE_LIMIT, NotFoundError, UsageError
from evaldesk.model.experiment import ExperimentPlan, Factor, Variant
from evaldesk.run_options import BY_NAME
from evaldesk.store.runs.histories import history_class

if TYPE_CHECKING:
    from evaldesk.desk.runs.plan import RunOptions, RunPlan
    from evaldesk.model.evalset import JsonObject

FEWEST_VARIANTS, MOST_VARIANTS = 2, 60
MOST_NAME = 200
AGENT, EVALSET = "agent", "evalset"
OF_EXPERIMENT = frozenset({"budget", "allocate", "concurrency", "seed", "note"})
"""Options that an experiment has once for all variants."""
AS_IT_IS = "as it is"
"""The value of an option that a variant leaves to the agent or to the run."""
MOST_LEVEL_NAME = 60
_NAMING = frozenset({"model", "instruction", AGENT, EVALSET, "environment"})
"""Options whose values are names."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, ends of lines, marks that turn the direction of a text, and halves of characters."""
_COMMA = re.compile(r"(?<!\\),")


@dataclass(frozen=True, slots=True)
class Level:
    """A value of an option that varies, as a person typed it, and its name."""

    name: str
    text: str


def varied_option(text: str) -> tuple[str, tuple[Level, ...]]:
    """The name and the values of `model=a,b`; `\\,` is a comma inside a value, `@FILE` the text of a file.

    The value `as it is` leaves the option to the agent.

    Raises UsageError.
    """
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise UsageError(
            f"--vary {text[:VALUE_LIMIT]!r}: wanted OPTION=VALUE,VALUE, such as --vary model=a,b", field="vary"
        )
    option, at, agent = name.partition("@")
    name = f"{option.replace('-', '_')}{at}{agent}"
    _check_option(name)
    return name, levels_of(name, [each.replace("\\,", ",").strip() for each in _COMMA.split(values)])


def levels_of(option: str, values: Sequence[str]) -> tuple[Level, ...]:
    """The values with their names, each different. Raises UsageError for an empty one and an unreadable file."""
    levels = []
    for value in values:
        if not value:
            raise UsageError(f"{option}: one of its values is empty; leave the comma out", field="vary")
        text = _file_text(option, value[1:]) if value.startswith("@") else value
        levels.append(Level(_level_name(option, value), text))
    names = {value: level.name for level, value in zip(levels, values, strict=True)}
    if len(set(names.values())) < len(names):  # different values, such as files of two folders
        levels = [replace(level, name=value.lstrip("@")) for level, value in zip(levels, values, strict=True)]
    return tuple(_numbered(level, levels[:at]) for at, level in enumerate(levels))


def _numbered(level: Level, earlier_levels: Sequence[Level]) -> Level:
    """The level; one that stands there already is the second of its name, as to compare a variant with itself."""
    n_earlier = sum(each.name == level.name for each in earlier_levels)
    return replace(level, name=f"{level.name} ({n_earlier + 1})") if n_earlier else level


def list_of(options: Sequence[tuple[str, Sequence[Level]]]) -> tuple[Variant, ...]:
    """A variant for each place: the first one has the first level of every option, and so on.

    An option without a level at a place is left to the agent there. Raises UsageError as `grid_of`.
    """
    missing_level = Level(AS_IT_IS, AS_IT_IS)
    _check_once([name for name, _ in options])
    variants = []
    for levels in zip_longest(*(levels for _, levels in options), fillvalue=missing_level):
        values = {name: level.text for (name, _), level in zip(options, levels, strict=True) if level.text != AS_IT_IS}
        variants.append(Variant("/".join(level.name for level in levels), values))
    return tuple(variants)


def _check_once(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"{twice} is varied twice; name all of its values at one place", field="vary")


def grid_of(options: Sequence[tuple[str, Sequence[Level]]]) -> tuple[tuple[Factor, ...], tuple[Variant, ...]]:
    """The factors and the variants of a full grid, the last option varying first; a single option is no factor.

    Raises UsageError for an option that is named twice, and above `MOST_VARIANTS`.
    """
    names = [name for name, _ in options]
    _check_once(names)
    n_variants = 1
    for _, levels in options:
        n_variants *= len(levels)
    if n_variants > MOST_VARIANTS:
        sizes = " x ".join(str(len(levels)) for _, levels in options)
        raise UsageError(
            f"{sizes} = {n_variants:,} variants are more than {MOST_VARIANTS}; vary fewer values, or play two "
            "experiments",
            field="vary",
        )
    factors = tuple(Factor(name, tuple(level.name for level in levels)) for name, levels in options)
    has_factors = len(factors) > 1
    variants = []
    for combination in product(*(levels for _, levels in options)):
        level_names = tuple(level.name for level in combination)
        values = {name: level.text for name, level in zip(names, combination, strict=True) if level.text != AS_IT_IS}
        variants.append(Variant("/".join(level_names), values, level_names if has_factors else ()))
    return factors if has_factors else (), tuple(variants)


def listed_variants(
    variants: Sequence[Variant | Mapping[str, object]],
) -> tuple[tuple[Factor, ...], tuple[Variant, ...]]:
    """Variants from their options by name, with the factors where they are a full grid.

    A mapping may have a `name` of its own; else its options name it. `@FILE` or a path is the text of an instruction.
    Raises UsageError.
    """
    named_variants, level_names = [], []
    for place, variant in enumerate(variants, 1):
        levels = _listed_levels(variant, place)
        names = {option: level.name for option, (level, _) in levels.items()}
        own_name = variant.name if isinstance(variant, Variant) else variant.get("name")
        if own_name is not None and not isinstance(own_name, str):
            raise UsageError(f"variant {place}: name must be text, got {own_name!r:.80}", field="variants")
        name = "/".join(names.values()) if own_name is None else own_name
        given_options = {option: value for option, (_, value) in levels.items() if value != AS_IT_IS}
        options = cast("JsonObject", given_options)
        named_variants.append(Variant(name, options))
        level_names.append(names)
    factors = _factors_of(level_names)
    return factors, tuple(
        replace(variant, levels=tuple(names[factor.name] for factor in factors))
        for variant, names in zip(named_variants, level_names, strict=True)
    )


def _listed_levels(variant: Variant | Mapping[str, object], place: int) -> dict[str, tuple[Level, object]]:
    """Each option of a variant with the name of its level and its value."""
    if not isinstance(variant, Variant | Mapping):
        raise UsageError(
            f'variant {place} must be a mapping of options, such as {{"model": "a"}}, got {type(variant).__name__}',
            field="variants",
        )
    options = (
        variant.options if isinstance(variant, Variant) else {key: variant[key] for key in variant if key != "name"}
    )
    levels: dict[str, tuple[Level, object]] = {}
    for option, given_value in options.items():
        _check_option(str(option))
        is_instruction, value = option.partition("@")[0] == "instruction", given_value
        if isinstance(given_value, os.PathLike):
            value = f"@{os.fspath(given_value)}" if is_instruction else os.fspath(given_value)
        if isinstance(value, str) and is_instruction:
            (level,) = levels_of(option, [value])
            levels[option] = level, level.text
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            levels[option] = Level(_level_name(option, text), text), value
    return levels


def _factors_of(level_names: Sequence[Mapping[str, str]]) -> tuple[Factor, ...]:
    """The factors of variants by the names of their levels; none where these are no full grid of two or more."""
    options = list(level_names[0]) if level_names else []
    if any(list(names) != options for names in level_names):
        return ()
    levels = {option: tuple(dict.fromkeys(names[option] for names in level_names)) for option in options}
    factors = tuple(Factor(option, each) for option, each in levels.items() if len(each) > 1)
    combinations = {tuple(names[factor.name] for factor in factors) for names in level_names}
    n_combinations = 1
    for factor in factors:
        n_combinations *= len(factor.levels)
    is_grid = len(factors) > 1 and len(combinations) == len(level_names) == n_combinations
    return factors if is_grid else ()


def plan_experiment(
    name: str,
    variants: Sequence[Variant],
    run_plans: Sequence[RunPlan],
    *,
    factors: Sequence[Factor] = (),
    baseline: str | None = None,
    budget: str | None = None,
    drops_worse: bool = False,
    allows_equal: bool = False,
    gate_variants: Sequence[str] = (),
) -> ExperimentPlan:
    """The plan of an experiment of these runs. Raises UsageError for variants that cannot be compared, and for a name.

    `name` is the one that a person gave, or `usual_name`.
    """
    check_experiment_name(name)
    plan = ExperimentPlan(
        name=name,
        variants=tuple(map(_with_numbers, variants)),
        seed=run_plans[0].config.seed,
        concurrency=run_plans[0].config.concurrency,
        baseline=baseline_index([each.name for each in variants], baseline),
        budget=budget,
        drops_worse=drops_worse,
        n_looks=max(each.config.n for each in run_plans),
        factors=tuple(factors),
        gate_variants=tuple(gate_variants),
    )
    check_variants(plan, run_plans, allows_equal=allows_equal)
    names = [variant.name for variant in plan.variants]
    check_unused_options(plan.variants, dict(zip(names, run_plans, strict=True)))
    return plan


def _with_numbers(variant: Variant) -> Variant:
    """The variant with numbers and switches in their own type, also where a shell or a form gave texts."""
    options = {
        name: BY_NAME[name].read(value)
        if isinstance(value, str) and name in BY_NAME and BY_NAME[name].kind in ("whole", "number", "switch")
        else value
        for name, value in variant.options.items()
    }
    return replace(variant, options=options)


def variant_options(options: RunOptions, variant: Variant) -> RunOptions:
    """The options of a run with those of the variant. Raises UsageError naming the variant at fault."""
    overrides: dict[str, object] = {}
    instructions: dict[str, str] = {}
    for name, value in variant.options.items():
        option, at, agent = name.partition("@")
        if option in (AGENT, EVALSET):
            continue
        if at:
            instructions[agent] = str(value)
            continue
        try:
            overrides[name] = BY_NAME[name].read(value) if isinstance(value, str) else BY_NAME[name].check(value)
        except UsageError as error:
            raise UsageError(f"variant {variant.name!r}: {error}", field=name) from error
    if instructions:
        overrides["instructions"] = {**(options.value("instructions") or {}), **instructions}
    return options.but(**overrides)  # type: ignore[arg-type]


def check_unused_options(all_variants: Sequence[Variant], run_plans: Mapping[str, RunPlan]) -> None:
    """Raise UsageError for an option that differs between variants and changes nothing: they would differ by chance.

    `run_plans` are those of the variants to play, by their names.
    """
    for variant in all_variants:
        unused = run_plans[variant.name].unused_options if variant.name in run_plans else {}
        for name in variant.options:
            if name in unused and len({str(each.options.get(name)) for each in all_variants}) > 1:
                raise UsageError(f"variant {variant.name!r}: {unused[name]}, or leave {name} out", field=name)


def check_overridden_options(options: RunOptions, variants: Sequence[Variant]) -> None:
    """Raise UsageError for an option of the whole experiment that no variant would be played with."""
    own = [variant_options(options, variant) for variant in variants]
    for name, value in options.overrides.items():
        if all(name in variant.options for variant in variants) and value not in [each.value(name) for each in own]:
            raise UsageError(
                f"{name} is {str(value)[:VALUE_LIMIT]!r} and has another value in every variant, so that this one "
                "would not be played; leave it out, or name it among the variants",
                field=name,
            )


def check_variants(plan: ExperimentPlan, run_plans: Sequence[RunPlan], *, allows_equal: bool = False) -> None:
    """Raise UsageError for too few or too many variants, names that cannot be shown, and equal or unlike ones."""
    check_names([variant.name for variant in plan.variants])
    versions: dict[str, str] = {}
    for run_plan in run_plans:
        path, version = run_plan.config.evalset_path, run_plan.config.evalset_version
        if version != versions.setdefault(path, version):
            raise UsageError(f"{path} was changed while the variants were planned; start again", field="evalset")
    earlier_names: dict[tuple[str, ...], str] = {}
    for variant, run_plan in zip(plan.variants, run_plans, strict=True):
        config = run_plan.config
        of_class = history_class(config) or f"{config.model} {config.model_options} {config.recording.mode}"
        measured = (of_class, config.evalset_version)
        if not allows_equal and measured in earlier_names:
            raise UsageError(
                f"variants: {variant.name} is the same as {earlier_names[measured]}; leave one out, or say "
                "--allow-equal to compare a variant with itself",
                field="variants",
            )
        earlier_names.setdefault(measured, variant.name)
        if run_plan.config.gates.stop_when_decided:
            raise UsageError(
                "an experiment plays all trials of all variants; leave out --stop-when-decided",
                field="stop_when_decided",
            )


def check_names(names: Sequence[str]) -> None:
    """Raise UsageError for fewer than 2 variants, more than 60, and names that are empty, equal or unprintable."""
    if len(names) < FEWEST_VARIANTS:
        raise UsageError(
            f"an experiment has at least 2 variants, and this has {len(names)}; add a value: --vary model=a,b",
            field="variants",
        )
    if len(names) > MOST_VARIANTS:
        raise UsageError(
            f"an experiment has at most {MOST_VARIANTS} variants, and this has {len(names)}; play two of them",
            field="variants",
        )
    for name in names:
        if not name.strip():
            raise UsageError("a variant has no name; give each one", field="variants")
        _check_printable(name, "a variant", "variants")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageError(f"two variants are named {twice!r}; give each its own name", field="variants")


def check_experiment_name(name: str) -> None:
    """Raise UsageError for the name of an experiment that is empty, too long, or cannot be shown."""
    if not name.strip():
        raise UsageError("the experiment has no name; give it one, or leave the option out", field="experiment")
    _check_printable(name, "the experiment", "experiment")


def usual_name(text: str) -> str:
    """The name of an experiment after something that a person did not name for it, such as its eval set."""
    line = " ".join(_CONTROL.sub(" ", text).split()) or "experiment"
    return line if len(line) <= MOST_NAME else f"{line[: MOST_NAME - 1]}…"


def _check_printable(name: str, owner: str, field: str) -> None:
    if len(name) > MOST_NAME:
        raise UsageError(
            f"the name of {owner} has {len(name):,} characters; {MOST_NAME} fit: {name[:NAME_LIMIT]!r}…", field=field
        )
    if _CONTROL.search(name):
        raise UsageError(
            f"the name {name[:NAME_LIMIT]!r} of {owner} has control characters; leave them out", field=field
        )


def baseline_index(names: Sequence[str], baseline: str | None) -> int:
    """The place of the baseline; the first variant where none is named. Raises NotFoundError with the nearest name."""
    if baseline is None:
        return 0
    if baseline not in names:
        raise NotFoundError.among("variant", baseline, names)
    return names.index(baseline)


def _check_option(name: str) -> None:
    option, at, agent = name.partition("@")
    if option in (AGENT, EVALSET) and not at:
        return
    if option in OF_EXPERIMENT:
        raise UsageError(f"{option} is one for all variants; say --{option.replace('_', '-')}", field="vary")
    if option not in BY_NAME:
        raise UsageError(str(NotFoundError.among("option", option, [*BY_NAME, AGENT, EVALSET])), field="vary")
    if at and (option != "instruction" or not agent):
        raise UsageError(f"{name}: only an instruction is of one agent of a tree: instruction@NAME=@p.md", field="vary")


def _file_text(option: str, name: str) -> str:
    """The text of a file. Raises UsageError."""
    try:
        text = Path(name).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}=@{name}: {error}", field="vary") from error
    if not text.strip():
        raise UsageError(f"{option}=@{name}: the file is empty", field="vary")
    return text


def _level_name(option: str, value: str) -> str:
    """`p1` of `@prompts/p1.md`, `temperature=0.5`; of a long text its beginning."""
    name = Path(value[1:]).stem if value.startswith("@") else " ".join(value.split())
    name = name if option.partition("@")[0] in _NAMING else f"{option}={name}"
    name = Path(value).name if option in (AGENT, EVALSET) and not is_revision(value) else name
    return name if len(name) <= MOST_LEVEL_NAME else f"{name[: MOST_LEVEL_NAME - 1]}…"

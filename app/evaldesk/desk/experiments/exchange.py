"""An experiment as one JSON file: its plan and the trials of all variants, written and read back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, product
from math import prod

import msgspec

from evaldesk.desk.evalsets.exporting import recorded_run
from evaldesk.desk.experiments.variants import baseline_index, check_experiment_name, check_names
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import FormatError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.model.experiment import ExperimentPlan
from evaldesk.model.run import MAX_TRIALS, ExperimentPart
from evaldesk.store import Store
from evaldesk.store.experiments import NewExperiment
from evaldesk.store.runs.imports import NewRun
from evaldesk.transcripts.recorded import RecordedRun, digest_of
from evaldesk.wire import from_json, to_json

VERSION = 1


@dataclass(frozen=True, slots=True)
class ExportedVariant:
    """The run of a variant by its index in the plan, and the settings that the analysis of its trials rests on."""

    index: int
    n: int
    pass_threshold: float
    errors_are_failures: bool
    run: RecordedRun


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """All of a file. A variant whose run was deleted is in the plan and not among `variants`."""

    evaldesk_experiment: int
    plan: ExperimentPlan
    created_at: datetime
    dropped: Mapping[int, int]
    variants: tuple[ExportedVariant, ...]


def experiment_parts(store: Store, experiment_id: int) -> Iterator[bytes]:
    """The file of an experiment, a variant at a time. Raises NotFoundError."""
    experiment, runs = store.experiments.get(experiment_id), StoredRuns(store.runs)
    head = ExperimentFile(VERSION, experiment.plan, experiment.created_at, experiment.dropped, ())
    before, _, after = to_json(head).rpartition(b'"variants":[')  # those of the plan come first
    yield before + b'"variants":['
    members = [each for each in experiment.members if each.run_id is not None and not each.is_deleted]
    for number, member in enumerate(members):
        config = runs.summary(member.run_id or 0).config
        run = recorded_run(runs, member.run_id or 0)
        whole_run = replace(run, cases=tuple(run.cases), results=tuple(run.results))
        variant = ExportedVariant(
            member.variant_index, config.n, config.pass_threshold, config.errors_are_failures, whole_run
        )
        yield (b"," if number else b"") + to_json(variant)
    yield after


def read_experiment(data: bytes, source: str) -> ExperimentFile:
    """The experiment in a file. Raises FormatError with the place of the first fault, UsageError for its variants."""
    try:
        file = from_json(data, ExperimentFile)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise FormatError(
            f"this file is not of `evaldesk experiment export`: {error}; export the experiment again", source=source
        ) from error
    if not file.plan.factors:  # files of earlier versions have levels of a single option
        variants = tuple(replace(each, levels=()) for each in file.plan.variants)
        file = replace(file, plan=replace(file.plan, variants=variants))
    if file.evaldesk_experiment != VERSION:
        raise FormatError(
            f"evaldesk_experiment is {file.evaldesk_experiment}, wanted {VERSION}; update Evaldesk", source=source
        )
    names = [each.name for each in file.plan.variants]
    check_names(names)
    check_experiment_name(file.plan.name)
    indexes = [each.index for each in file.variants]
    if not indexes or len(set(indexes)) < len(indexes) or not {*indexes, file.plan.baseline} <= set(range(len(names))):
        raise FormatError("variants: each needs an index of its own, of a variant in the plan", source=source)
    baseline_index(names, names[file.plan.baseline])
    _check_values(file, source)
    return file


def _check_values(file: ExperimentFile, source: str) -> None:
    """Raise FormatError for values that no experiment has, and that its pages could not show."""
    plan = file.plan
    wrong_n = next((each.n for each in file.variants if not 1 <= each.n <= MAX_TRIALS), None)
    if wrong_n is not None:
        raise FormatError(f"variants: n must be from 1 to {MAX_TRIALS:,}, got {wrong_n:,}", source=source)
    if not (plan.n_looks >= 1 and plan.concurrency >= 1):
        raise FormatError("plan: n_looks and concurrency must be 1 or more", source=source)
    if not set(file.dropped) <= set(range(len(plan.variants))):
        raise FormatError("dropped: each key must be the index of a variant", source=source)
    cells = [each.levels for each in plan.variants if each.levels]
    n_cells = prod(len(factor.levels) for factor in plan.factors) if plan.factors else 0
    if sorted(cells) != sorted(product(*(each.levels for each in plan.factors)) if n_cells == len(cells) > 0 else ()):
        raise FormatError("plan.variants: levels must be one of each combination of the factors' levels", source=source)
    try:
        file.created_at.astimezone(UTC)
    except OverflowError as error:
        raise FormatError(
            f"created_at {file.created_at} cannot be stored: it is outside of the calendar", source=source
        ) from error


def import_experiment(
    store: Store, imports: ImportDesk, file: ExperimentFile, source: str, *, again: bool = False
) -> int:
    """Store the experiment of a file with its runs; gives its id here.

    Raises AlreadyImportedError for a file whose runs are all there, unless `again`, and UsageError for one without a
    trial; a failure leaves nothing.
    """
    if not any(each.run.results for each in file.variants):
        raise UsageError("the file contains no trial; there is nothing to store as an experiment")
    variants = iter(file.variants)

    def as_variant(run: NewRun) -> NewRun:
        variant = next(variants)
        part = ExperimentPart(0, variant.index, file.plan.variants[variant.index].name)
        config = replace(
            run.config,
            experiment=part,
            n=variant.n,
            pass_threshold=variant.pass_threshold,
            errors_are_failures=variant.errors_are_failures,
        )
        return replace(run, config=config)

    runs = tuple(each.run for each in file.variants)
    whole_digest = hashlib.sha256("".join(chain.from_iterable(digest_of(run) for run in runs)).encode()).hexdigest()
    digests = [hashlib.sha256(f"{whole_digest} {each.index}".encode()).hexdigest() for each in file.variants]
    # Where some were deleted, it comes whole again: a variant without its run has nothing to be compared with.
    is_whole = all(store.imports.find_run(digest) is not None for digest in digests)
    start = imports.begin(
        Imported("", runs=runs),
        source=source,
        name="",
        again=again or not is_whole,
        digests=digests,
        change=as_variant,
        may_be_empty=True,  # a budget can end before the first trial of a variant
        experiment=NewExperiment(file.plan, file.created_at, file.dropped),
    )
    imports.finish(start)
    part = store.runs.summary(start.run_ids[0]).config.experiment
    return part.experiment_id if part else 0

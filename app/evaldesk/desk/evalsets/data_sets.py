"""Data sets: their files are too large to be changed by steps, so the tags that a person gives are in the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evaldesk.formats import case_from_text, case_to_json
from evaldesk.model import Case, EvalSet
from evaldesk.model.tagged_cases import TagChange, TaggedCases, with_tag_changes
from evaldesk.store import Store
from evaldesk.store.evalsets.large import is_data_set
from evaldesk.wire import to_json


def tag_changes(store: Store, evalset_id: str, path: Path) -> Mapping[str, TagChange]:
    """The tags of a data set that are not in its file, by the ids of its cases; none of any other set."""
    try:
        n_bytes = path.stat().st_size
    except OSError:  # a file that is gone has no cases that could be chosen
        return {}
    return store.case_tags.changes(evalset_id) if is_data_set(n_bytes) else {}


def tagged_set(evalset: EvalSet, changes: Mapping[str, TagChange]) -> EvalSet:
    """The set with these changes of the tags of its cases."""
    return replace(evalset, cases=with_tag_changes(evalset.cases, changes)) if changes else evalset


def cases_for_file(cases: Sequence[Case]) -> Iterator[Case]:
    """The cases with their tags as another file will have them: the place of a key in its JSON is part of a case."""
    changes = cases.changes if isinstance(cases, TaggedCases) else {}
    for case in cases:
        yield case_from_text(to_json(case_to_json(case)).decode(), case.id) if case.id in changes else case

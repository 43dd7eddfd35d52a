"""Criteria as a person gives them: a mapping as in `test_config.json`, such a file, or the values themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from evaldesk.desk.criteria import criteria_of, read_criteria, read_user
from evaldesk.metrics import check_criteria
from evaldesk.model import Criterion
from evaldesk.model.user import UserConfig

GivenCriteria: TypeAlias = Mapping[str, object] | Sequence[Criterion] | str | os.PathLike[str]


def given_criteria(given: GivenCriteria) -> tuple[Criterion, ...]:
    """The criteria, checked. Raises UsageError or FormatError saying which criterion cannot be."""
    if isinstance(given, str | os.PathLike):
        return read_criteria(Path(given))
    if isinstance(given, Mapping):
        return criteria_of(given)
    check_criteria(given)
    return tuple(given)


def given_user(given: GivenCriteria) -> UserConfig | None:
    """The simulated user that a file of criteria names; None otherwise. Raises UsageError, FormatError."""
    return read_user(Path(given)) if isinstance(given, str | os.PathLike) else None

"""Samples of what the documents of the three systems print, and a folder in which commands are run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cli.conftest import in_process, place
from tests.documents.statements import sample_text, samples_of

__all__ = ["in_process", "place"]

Snippets = Callable[[str], dict[str, list[str]]]


@pytest.fixture(scope="session")
def document() -> Callable[[str], str]:
    """The text of a sample, by the name of its document."""
    return sample_text


@pytest.fixture(scope="session")
def snippets() -> Snippets:
    """The named snippets of a sample."""
    return samples_of

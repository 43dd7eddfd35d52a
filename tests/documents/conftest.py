"""The documents of the three systems, and a folder in which commands are run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import in_process, place
from tests.documents.statements import rows_of, snippets_of

__all__ = ["in_process", "place"]

Snippets = Callable[[str], dict[str, list[str]]]


@pytest.fixture(scope="session")
def document(shared: Path) -> Callable[[str], str]:
    """The text of a document, by its name."""

    def read(name: str) -> str:
        return (shared / "documents" / f"{name}.txt").read_text("utf-8")

    return read


@pytest.fixture(scope="session")
def snippets(document: Callable[[str], str]) -> Snippets:
    """The named snippets of a document."""

    def read(name: str) -> dict[str, list[str]]:
        return snippets_of(document(name), rows_of(name))

    return read

"""The forms in which a file of the eval set folder is kept, and the one that a document has."""

from __future__ import annotations

from evaldesk.errors import NotFoundError
from evaldesk.formats.adk.dataset import Dataset
from evaldesk.formats.adk.evalset import Adk
from evaldesk.formats.adk.form import AdkForm
from evaldesk.formats.adk.old import FlatList, OldList
from evaldesk.model import EvalSet
from evaldesk.process_setup import gc_paused
from evaldesk.reading.refusals import refusal
from evaldesk.reading.strict_json import Document, parse_json

EVALSET_FORMS: dict[str, type[AdkForm]] = {form.name: form for form in (Adk, Dataset, OldList, FlatList)}
"""Those of `FORMATS` in which a file of the eval set folder is kept: it is edited there, so nothing may be lost."""


def read_evalset(data: bytes, *, source: str) -> EvalSet:
    """The eval set that a file holds. Raises FormatError with line and JSON path."""
    with gc_paused():
        document = parse_json(data, source=source)
        return form_of_document(document).evalset_in(document)


def form_of_document(document: Document) -> type[AdkForm]:
    """The form of a document. Raises FormatError where it is no eval set."""
    form = next((form for form in EVALSET_FORMS.values() if form.is_form_of(document.value)), None)
    if form is None:
        raise document.error(refusal(document.value))
    return form


def form_named(name: str) -> type[AdkForm]:
    """The form of that name. Raises NotFoundError with the names that there are."""
    if name not in EVALSET_FORMS:
        raise NotFoundError.among("format", name, EVALSET_FORMS)
    return EVALSET_FORMS[name]

"""The codebook and its findings as a JSON file, and back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import MAX_FINDING, MAX_QUOTE, FailureDesk, TypedMode, checked_texts
from evaldesk.errors import UsageError
from evaldesk.model.failures import Anchor, FindingDraft
from evaldesk.reading.strict_json import Document, Place, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_text
from evaldesk.secrets import scrubber
from evaldesk.wire import to_json

VERSION = 1
_TEXTS = ("definition", "example_yes", "example_no")


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What an import stored; `n_elsewhere` findings are on trials that this workspace does not have."""

    n_modes: int
    n_findings: int
    n_elsewhere: int


@dataclass(frozen=True, slots=True)
class _Read:
    run_id: int
    case_id: str
    trial_index: int
    mode: str
    note: str
    author: str
    anchor: Anchor


def export_modes(desk: Desk) -> bytes:
    """All modes in use and all counted findings, secrets masked, as JSON."""
    mask, store = scrubber(os.environ), desk.store
    modes = [mode for mode in store.failures.modes() if mode.is_active]
    names = {mode.id: mode.name for mode in store.failures.modes()}
    found = store.failures.list()
    cases = {run_id: store.runs.case_ids(run_id) for run_id in {each.run_id for each in found}}
    findings: list[dict[str, Any]] = [
        {
            "run": each.run_id,
            "case": cases[each.run_id].get(each.case_index, ""),
            "trial_index": each.trial_index,
            "mode": mask(names.get(each.mode_id or 0, "")),
            "note": mask(each.note),
            "author": each.author,
            "turn": each.anchor.turn,
            "event": each.anchor.event,
            "start": each.anchor.start,
            "end": each.anchor.end,
            "quote": mask(each.anchor.quote),
            "created_at": each.created_at.isoformat(),
        }
        for each in found
    ]
    codebook = [
        {"name": mask(mode.name), "life": mode.life} | {name: mask(getattr(mode, name)) for name in _TEXTS}
        for mode in modes
    ]
    return to_json({"evaldesk_failures": VERSION, "modes": codebook, "findings": findings}) + b"\n"


def import_modes(desk: Desk, data: bytes, source: str, author: str) -> TakenIn:
    """Create the modes that are not there yet, and add the findings of trials that are, in one transaction.

    Known modes keep their texts; a finding that is there already is not stored again. Raises FormatError, UsageError.
    """
    store, by = desk.store, desk.failures.checked_author(author)
    document = parse_json(data, source=source)
    whole = read_mapping(Place(document), document.value)
    if whole.get("evaldesk_failures") != VERSION:
        raise document.error(f'expected a file of `evaldesk mode export` with "evaldesk_failures": {VERSION}')
    modes = [_mode(*each) for each in read_list(*_list_of(document, whole, "modes"), _mapping)]
    rows = [_finding(*each) for each in read_list(*_list_of(document, whole, "findings"), _mapping)]
    drafts, n_elsewhere = [], 0
    cases: dict[int, dict[str, int]] = {}
    for row in rows:
        if row.run_id not in cases:
            found = store.failures.verdicts(row.run_id)
            cases[row.run_id] = {case_id: at for at, (case_id, strip) in enumerate(found) if strip}
        case_index = cases[row.run_id].get(row.case_id)
        if case_index is None:
            n_elsewhere += 1
            continue
        drafts.append(
            (FindingDraft(row.run_id, case_index, row.trial_index, row.note, anchor=row.anchor), row.author, row.mode)
        )
    n_modes, n_findings, n_missing = store.failures.take_in(modes, drafts, by)
    return TakenIn(n_modes, n_findings, n_elsewhere + n_missing)


def _list_of(document: Document, whole: dict[str, Any], key: str) -> tuple[Place, Any]:
    return Place(document, (key,)), whole.get(key, ABSENT)


def _mapping(place: Place, raw: Any) -> tuple[Place, dict[str, Any]]:
    return place, read_mapping(place, raw)


def _mode(place: Place, raw: dict[str, Any]) -> dict[str, str]:
    name, *texts = (read_text(place.at(key), raw.get(key, "")) for key in ("name", *_TEXTS))
    return _checked(place, TypedMode(name, *texts))


def _checked(place: Place, typed: TypedMode) -> dict[str, str]:
    try:
        return checked_texts(typed)
    except UsageError as error:
        raise place.error(str(error)) from None


def _finding(place: Place, raw: dict[str, Any]) -> _Read:
    case_id, mode, note, author, quote = (
        read_text(place.at(key), raw.get(key, "")) for key in ("case", "mode", "note", "author", "quote")
    )
    if len(note) > MAX_FINDING or len(quote) > MAX_QUOTE:
        raise place.error(f"the note or the quote is too long; {MAX_FINDING:,} and {MAX_QUOTE:,} characters fit")
    try:
        author = FailureDesk.checked_author(author)
    except UsageError as error:
        raise place.at("author").error(str(error)) from None
    if mode:
        mode = _checked(place.at("mode"), TypedMode(mode))["name"]
    run_id, trial_index = (_number(place.at(key), raw.get(key)) for key in ("run", "trial_index"))
    turn, event, start, end = (
        None if raw.get(key) is None else _number(place.at(key), raw[key]) for key in ("turn", "event", "start", "end")
    )
    if not note and not mode:
        raise place.error("a finding needs a note or a mode")
    return _Read(run_id, case_id, trial_index, mode, note, author, Anchor(turn, event, start, end, quote))


def _number(place: Place, raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw < 10**15:
        raise place.error("expected a whole number, at least 0")
    return raw

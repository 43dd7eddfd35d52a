"""The codebook and its findings as a JSON file, and back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import MAX_FINDING, MAX_QUOTE, FailureDesk, TypedMode, checked_texts
from evaldesk.errors import UsageError
from evaldesk.model.failures import TRIALS, Anchor, FindingDraft, Mode
from evaldesk.reading.strict_json import Document, Place, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_text, read_text
from evaldesk.secrets import scrubber
from evaldesk.wire import to_json

VERSION = 1
_TEXTS = ("definition", "example_yes", "example_no")
_RUNS = ("fixed_in", "reopened_in")


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What an import stored; `n_elsewhere` findings are on trials that this workspace does not have."""

    n_modes: int
    n_findings: int
    n_clear: int
    n_elsewhere: int


def export_modes(desk: Desk) -> bytes:
    """All modes but merged ones, all counted findings and the trials with nothing wrong, secrets masked, as JSON."""
    mask, store = scrubber(os.environ), desk.store
    modes = {mode.id: mode for mode in store.failures.modes() if mode.merged_into is None}
    found = store.failures.list()
    clear = {run_id: store.failures.read_trials(run_id).clear for run_id in sorted(store.failures.read_runs())}
    cases = {run_id: store.runs.case_ids(run_id) for run_id in {*clear, *(each.run_id for each in found)}}
    findings: list[dict[str, Any]] = [
        {
            "run": each.run_id,
            "case": cases[each.run_id].get(each.case_index, ""),
            "trial_index": each.trial_index,
            "mode": mask(mode.name if mode else ""),
            "mode_retired_at": _moment(mode),
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
        for mode in [modes.get(each.mode_id or 0)]
    ]
    codebook = [
        {"name": mask(mode.name), "life": mode.life, "retired_at": _moment(mode)}
        | {name: getattr(mode, name) for name in _RUNS}
        | {name: mask(getattr(mode, name)) for name in _TEXTS}
        for mode in modes.values()
    ]
    nothing_wrong = [
        {"run": run_id, "case": cases[run_id].get(trial // TRIALS, ""), "trial_index": trial % TRIALS, "author": reader}
        for run_id, by_reader in clear.items()
        for reader, trials in sorted(by_reader.items())
        for trial in sorted(trials)
    ]
    whole = {"modes": codebook, "findings": findings, "nothing_wrong": nothing_wrong}
    return to_json({"evaldesk_failures": VERSION} | whole) + b"\n"


def import_modes(desk: Desk, data: bytes, source: str, author: str) -> TakenIn:
    """Create the modes that are not there yet, and add the findings of trials that are, in one transaction.

    Known modes keep their texts; a finding that is there already is not stored again. Raises FormatError, UsageError.
    """
    store, by = desk.store, desk.failures.checked_author(author)
    document = parse_json(data, source=source)
    whole = read_mapping(Place(document), document.value)
    if whole.get("evaldesk_failures") != VERSION:
        raise document.error(f'expected a file of `evaldesk mode export` with "evaldesk_failures": {VERSION}')
    modes = [_mode(*each) for each in _rows(document, whole, "modes")]
    rows = [_finding(*each) for each in _rows(document, whole, "findings")]
    rows += [_finding(*each, is_clear=True) for each in _rows(document, {"nothing_wrong": []} | whole, "nothing_wrong")]
    drafts, n_elsewhere = [], 0
    cases: dict[int, dict[str, int]] = {}
    for case_id, draft, reader, name, retired_at in rows:
        if draft.run_id not in cases:
            found = store.failures.verdicts(draft.run_id)
            cases[draft.run_id] = {case_id: at for at, (case_id, strip) in enumerate(found) if strip}
        case_index = cases[draft.run_id].get(case_id)
        if case_index is None:
            n_elsewhere += 1
            continue
        drafts.append((replace(draft, case_index=case_index), reader, name, retired_at))
    if not drafts or n_elsewhere:  # the numbers of runs are those of another workspace
        modes = [mode | dict.fromkeys(_RUNS) for mode in modes]
    n_modes, n_findings, n_clear, n_missing = store.failures.take_in(modes, drafts, by)
    return TakenIn(n_modes, n_findings, n_clear, n_elsewhere + n_missing)


def _rows(document: Document, whole: dict[str, Any], key: str) -> Sequence[tuple[Place, dict[str, Any]]]:
    return read_list(Place(document, (key,)), whole.get(key, ABSENT), lambda *row: (row[0], read_mapping(*row)))


def _mode(place: Place, raw: dict[str, Any]) -> dict[str, Any]:
    name, *texts = (read_text(place.at(key), raw.get(key, "")) for key in ("name", *_TEXTS))
    runs = {key: _optional_number(place, raw, key) for key in _RUNS}
    return _checked(place, TypedMode(name, *texts)) | runs | {"retired_at": _time(place, raw, "retired_at")}


def _checked(place: Place, typed: TypedMode) -> dict[str, str]:
    try:
        return checked_texts(typed)
    except UsageError as error:
        raise place.error(str(error)) from None


def _finding(
    place: Place, raw: dict[str, Any], *, is_clear: bool = False
) -> tuple[str, FindingDraft, str, str, datetime | None]:
    """The id of its case, whose place in the run is not known yet, the finding, its author, its mode and its end."""
    if is_clear:
        raw = {key: raw[key] for key in ("run", "case", "trial_index", "author") if key in raw}
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
    turn, event, start, end = (_optional_number(place, raw, key) for key in ("turn", "event", "start", "end"))
    if not note and not mode and not is_clear:
        raise place.error("a finding needs a note or a mode")
    anchor, created_at = Anchor(turn, event, start, end, quote), _time(place, raw, "created_at")
    draft = FindingDraft(run_id, 0, trial_index, note, anchor=anchor, created_at=created_at)
    return case_id, draft, author, mode, _time(place, raw, "mode_retired_at")


def _moment(mode: Mode | None) -> str | None:
    return mode.retired_at.isoformat() if mode and mode.retired_at else None


def _time(place: Place, raw: dict[str, Any], key: str) -> datetime | None:
    if (text := read_optional_text(place.at(key), raw.get(key))) is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise place.at(key).error('expected a moment such as "2026-11-26T10:00:00+00:00"') from None


def _optional_number(place: Place, raw: dict[str, Any], key: str) -> int | None:
    return None if raw.get(key) is None else _number(place.at(key), raw[key])


def _number(place: Place, raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw < 10**15:
        raise place.error("expected a whole number, at least 0")
    return raw

"""The codebook and its findings as a file, and back."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.exporting import ExportStream
from evaldesk.desk.evalsets.masking import masked_words
from evaldesk.desk.evalsets.names import slug
from evaldesk.desk.failures import (
    MAX_FINDING,
    MAX_QUOTE,
    SIGNED_AT_ONCE,
    TypedMode,
    checked_texts,
    excerpt,
)
from evaldesk.desk.labels import checked_name
from evaldesk.errors import VALUE_LIMIT, FormatError, NotFoundError, UsageError
from evaldesk.model.conclusion import counted
from evaldesk.model.failures import FORMS, TRIALS, Anchor, Finding, FindingDraft, Mode
from evaldesk.reading.json_lines import read_lines
from evaldesk.reading.strict_json import Document, JsonPosition, parse_json
from evaldesk.reading.values import ABSENT, read_list, read_mapping, read_optional_text, read_text
from evaldesk.secrets import known_values, scrubber_of
from evaldesk.wire import to_json
from evaldesk.wording.printable import markdown_text

VERSION = 1
_TEXTS = ("definition", "example_yes", "example_no")
_RUNS = ("fixed_in", "reopened_in")


Row: TypeAlias = tuple[str, FindingDraft, str, str, datetime | None]
"""The id of a case, whose place in the run is not known yet, the finding, its author, its mode and its end."""


@dataclass(frozen=True, slots=True)
class TakenIn:
    """The result of an import; `n_named` notes got a mode, `n_elsewhere` findings are on trials that are not here."""

    n_modes: int
    n_findings: int
    n_named: int
    n_clear: int
    n_elsewhere: int

    @property
    def words(self) -> str:
        """`Imported 2 new kinds of failure and 1 new finding.`, and the other parts."""
        parts = [f"{counted(self.n_modes, 'new kind')} of failure", counted(self.n_findings, "new finding")]
        parts += [f"a kind for {counted(self.n_named, 'note')}"] if self.n_named else []
        parts += [f"{counted(self.n_clear, 'trial')} with nothing wrong"] if self.n_clear else []
        elsewhere = f"{counted(self.n_elsewhere, 'finding')} {'is' if self.n_elsewhere == 1 else 'are'}"
        more = f" {elsewhere} on trials that are not in this workspace." if self.n_elsewhere else ""
        return f"Imported {', '.join(parts[:-1])} and {parts[-1]}.{more}"


def export_failures(desk: Desk, form: str = "json", mode: Mode | None = None) -> ExportStream:
    """All modes but merged ones and all counted findings, or those of one mode, secrets masked.

    JSON is what an import takes in whole, with the trials that have nothing wrong; JSON lines have a finding
    each, with an excerpt of its trial; Markdown is the codebook. Raises NotFoundError for another format.
    """
    if form not in FORMS:
        raise NotFoundError.among("format", form[:VALUE_LIMIT], [*FORMS])
    modes = [each for each in desk.store.failures.modes() if each.merged_into is None]
    findings = desk.store.failures.list()
    if mode:
        modes, findings = [mode], [each for each in findings if each.mode_id == mode.id]
    n_masked: Counter[str] = Counter()
    scrub = scrubber_of(known_values(os.environ), n_masked)
    export = _Export(desk, scrub, {each.id: each for each in modes}, findings, is_whole=mode is None)
    parts = {"json": export.document, "jsonl": export.lines, "markdown": export.codebook}
    file = ExportStream(f"{slug(mode.name) if mode else 'failures'}{FORMS[form][0]}", iter(()))
    file.parts = _with_masking_note(parts[form](), n_masked, file)
    return file


def _with_masking_note(parts: Iterator[bytes], n_masked: Counter[str], file: ExportStream) -> Iterator[bytes]:
    yield from parts
    file.masking_note = masked_words(n_masked, {}) if n_masked else ""


@dataclass(frozen=True)
class _Export:
    """The text to write, in each of the forms; `is_whole` where it is not one mode alone."""

    desk: Desk
    mask: Callable[[str], str]
    modes: Mapping[int, Mode]
    findings: Sequence[Finding]
    is_whole: bool

    def document(self) -> Iterator[bytes]:
        failures = self.desk.store.failures
        run_ids = sorted(failures.read_runs()) if self.is_whole else ()
        nothing_wrong = [
            {
                "run": run_id,
                "case": self._case(run_id, trial // TRIALS),
                "trial_index": trial % TRIALS,
                "author": reader,
            }
            for run_id in run_ids
            for reader, trials in sorted(failures.read_trials(run_id).clear.items())
            for trial in sorted(trials)
        ]
        modes = [
            {"name": self.mask(mode.name), "life": mode.life, "retired_at": _retirement_time(mode)}
            | {name: getattr(mode, name) for name in _RUNS}
            | {name: self.mask(getattr(mode, name)) for name in _TEXTS}
            for mode in self.modes.values()
        ]
        findings = [self._row(each) for each in self.findings]
        content = {"modes": modes, "findings": findings, "nothing_wrong": nothing_wrong}
        yield to_json({"evaldesk_failures": VERSION} | content) + b"\n"

    def lines(self) -> Iterator[bytes]:
        yield from (to_json(row) + b"\n" for row in self._excerpts())

    def codebook(self) -> Iterator[bytes]:
        yield b"# Kinds of failure\n"
        for mode_id, mode in [*self.modes.items(), *([(None, None)] if self.is_whole else [])]:
            rows = [self._row(each) for each in self.findings if each.mode_id == mode_id]
            if mode or rows:
                lines = [*_mode_lines(mode, self.mask), *(line for row in rows for line in _finding_lines(row))]
                yield "\n".join(("", *lines, "")).encode("utf-8", "replace")

    def _row(self, each: Finding) -> dict[str, Any]:
        mode, anchor = self.modes.get(each.mode_id or 0), asdict(each.anchor)
        return {
            "run": each.run_id,
            "case": self._case(each.run_id, each.case_index),
            "trial_index": each.trial_index,
            "mode": self.mask(mode.name if mode else ""),
            "mode_retired_at": _retirement_time(mode),
            "note": self.mask(each.note),
            "author": each.author,
            **anchor,
            "quote": self.mask(each.anchor.quote),
            "created_at": each.created_at.isoformat(),
        }

    def _excerpts(self) -> Iterator[dict[str, Any]]:
        """The rows, each with the text of its trial around the mark; some trials are read at a time."""
        for first in range(0, len(self.findings), SIGNED_AT_ONCE):
            some = self.findings[first : first + SIGNED_AT_ONCE]
            results = {
                (run_id, key): result
                for run_id in {each.run_id for each in some}
                for key, result in self.desk.store.runs.trials(
                    run_id, sorted({(each.case_index, each.trial_index) for each in some if each.run_id == run_id})
                ).items()
            }
            for each in some:
                result = results.get((each.run_id, (each.case_index, each.trial_index)))
                yield self._row(each) | {
                    "excerpt": self.mask(excerpt(each.anchor, result.transcript) if result else "")
                }

    def _case(self, run_id: int, case_index: int) -> str:
        return self._case_ids[run_id].get(case_index, "")

    @cached_property
    def _case_ids(self) -> Mapping[int, Mapping[int, str]]:
        store = self.desk.store
        runs = {*store.failures.read_runs(), *(each.run_id for each in self.findings)}
        return {run_id: store.runs.case_ids(run_id) for run_id in runs}


def _mode_lines(mode: Mode | None, mask: Callable[[str], str]) -> Iterator[str]:
    yield f"## {markdown_text(mask(mode.name)) if mode else 'Without a kind'}"
    if mode:
        yield from ("", f"{mode.life_words[0].upper()}{mode.life_words[1:]}{', retired' if mode.retired_at else ''}.")
        texts = zip(("Counts", "Example that counts", "Example that does not"), _TEXTS, strict=True)
        for title, text in ((title, mask(getattr(mode, name))) for title, name in texts):
            yield from ("", f"{title}: {markdown_text(text)}") if text else ()
    yield ""


def _finding_lines(row: Mapping[str, Any]) -> Iterator[str]:
    turn = "" if row["turn"] is None else f", turn {row['turn'] + 1}"
    place = f"run {row['run']}, {markdown_text(row['case'])}, trial {row['trial_index'] + 1}{turn}"
    yield f"- {markdown_text(row['note']) or 'No note'} ({markdown_text(row['author'])}, {place})"
    if row["quote"]:
        yield f"  > {markdown_text(row['quote'])}"


def import_modes(desk: Desk, data: bytes, source: str, author: str) -> TakenIn:
    """Create the modes that are not there yet, and add the findings of trials that are, in one transaction.

    Known modes keep their texts; a finding that is there already is not stored again. Raises FormatError, UsageError.
    """
    store, by = desk.store, checked_name(author)
    if Path(source).suffix.lower() == ".csv":
        reason = "findings come in as JSON or JSON lines of `evaldesk mode export`, not as CSV"
        raise FormatError(reason, source=source)
    modes, rows = _read_rows(data, source) if Path(source).suffix.lower() == ".jsonl" else _read_whole(data, source)
    drafts, n_elsewhere = [], 0
    cases: dict[int, dict[str, int]] = {}
    for case_id, draft, reader, name, retired_at in rows:
        if draft.run_id not in cases:
            verdicts = store.failures.verdicts(draft.run_id)
            cases[draft.run_id] = {case_id: at for at, (case_id, strip) in enumerate(verdicts) if strip}
        case_index = cases[draft.run_id].get(case_id)
        if case_index is None:
            n_elsewhere += 1
            continue
        drafts.append((replace(draft, case_index=case_index), reader, name, retired_at))
    if not drafts or n_elsewhere:  # the numbers of runs are those of another workspace
        modes = [mode | dict.fromkeys(_RUNS) for mode in modes]
    n_modes, n_findings, n_named, n_clear, n_missing = store.failures.take_in(modes, drafts, by)
    return TakenIn(n_modes, n_findings, n_named, n_clear, n_elsewhere + n_missing)


def _read_whole(data: bytes, source: str) -> tuple[list[dict[str, Any]], list[Row]]:
    document = parse_json(data, source=source)
    content = read_mapping(JsonPosition(document), document.value)
    if content.get("evaldesk_failures") != VERSION:
        raise document.error(f'expected a file of `evaldesk mode export` with "evaldesk_failures": {VERSION}')
    modes = [_mode(*each) for each in _rows(document, content, "modes")]
    rows = [_finding(*each) for each in _rows(document, content, "findings")]
    clear = _rows(document, {"nothing_wrong": []} | content, "nothing_wrong")
    return modes, [*rows, *(_finding(*each, is_clear=True) for each in clear)]


def _read_rows(data: bytes, source: str) -> tuple[list[dict[str, Any]], list[Row]]:
    """A finding in each line; the kinds that they name have no other texts."""
    rows = [
        _finding(JsonPosition(line), read_mapping(JsonPosition(line), line.value)) for line in read_lines(data, source)
    ]
    mode_names = dict.fromkeys((name, retired_at) for *_, name, retired_at in rows if name)
    empty = dict.fromkeys(_TEXTS, "") | dict.fromkeys(_RUNS)
    return [{"name": name, "retired_at": retired_at} | empty for name, retired_at in mode_names], rows


def _rows(document: Document, content: dict[str, Any], key: str) -> Sequence[tuple[JsonPosition, dict[str, Any]]]:
    return read_list(
        JsonPosition(document, (key,)), content.get(key, ABSENT), lambda *row: (row[0], read_mapping(*row))
    )


def _mode(place: JsonPosition, raw: dict[str, Any]) -> dict[str, Any]:
    name, *texts = (read_text(place.at(key), raw.get(key, "")) for key in ("name", *_TEXTS))
    runs = {key: _optional_number(place, raw, key) for key in _RUNS}
    return _check_texts(place, TypedMode(name, *texts)) | runs | {"retired_at": _time(place, raw, "retired_at")}


def _check_texts(place: JsonPosition, form: TypedMode) -> dict[str, str]:
    try:
        return checked_texts(form)
    except UsageError as error:
        raise place.error(str(error)) from None


def _finding(place: JsonPosition, raw: dict[str, Any], *, is_clear: bool = False) -> Row:
    if is_clear:
        raw = {key: raw[key] for key in ("run", "case", "trial_index", "author") if key in raw}
    case_id, mode, note, author, quote = (
        read_text(place.at(key), raw.get(key, "")) for key in ("case", "mode", "note", "author", "quote")
    )
    if len(note) > MAX_FINDING or len(quote) > MAX_QUOTE:
        raise place.error(f"the note or the quote is too long; {MAX_FINDING:,} and {MAX_QUOTE:,} characters fit")
    try:
        author = checked_name(author)
    except UsageError as error:
        raise place.at("author").error(str(error)) from None
    if mode:
        mode = _check_texts(place.at("mode"), TypedMode(mode))["name"]
    run_id, trial_index = (_number(place.at(key), raw.get(key)) for key in ("run", "trial_index"))
    turn, event, start, end = (_optional_number(place, raw, key) for key in ("turn", "event", "start", "end"))
    if not note and not mode and not is_clear:
        raise place.error("a finding needs a note or a mode")
    anchor, created_at = Anchor(turn, event, start, end, quote), _time(place, raw, "created_at")
    draft = FindingDraft(run_id, 0, trial_index, note, anchor=anchor, created_at=created_at)
    return case_id, draft, author, mode, _time(place, raw, "mode_retired_at")


def _retirement_time(mode: Mode | None) -> str | None:
    return mode.retired_at.isoformat() if mode and mode.retired_at else None


def _time(place: JsonPosition, raw: dict[str, Any], key: str) -> datetime | None:
    if (text := read_optional_text(place.at(key), raw.get(key))) is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise place.at(key).error('expected a moment such as "2026-11-26T10:00:00+00:00"') from None


def _optional_number(place: JsonPosition, raw: dict[str, Any], key: str) -> int | None:
    return None if raw.get(key) is None else _number(place.at(key), raw[key])


def _number(place: JsonPosition, raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw < 10**15:
        raise place.error("expected a whole number, at least 0")
    return raw

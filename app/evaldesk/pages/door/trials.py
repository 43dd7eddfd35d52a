"""Trials as text, and the search over them, for coding agents, `evaldesk run trial` and `evaldesk search`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.serving import desk_address
from evaldesk.diff.divergence import first_divergence
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import Case, TrialResult, TurnRecord
from evaldesk.model.json_text import short_json
from evaldesk.model.stored import CaseFilter, CaseRow, TrialKey
from evaldesk.pages.door.filters import read_choice, read_filter
from evaldesk.pages.runs.view import trial_href
from evaldesk.wire import to_json
from evaldesk.wording.shortened import shortened
from evaldesk.wording.trial_text import first_words, trial_text

Detail: TypeAlias = Literal["line", "turns", "full"]
DETAILS: tuple[Detail, ...] = get_args(Detail)
VERDICTS = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}
TRIAL_KEYS = ("verdict", "case")
N_TRIALS, N_EVENTS, N_HITS = 50, 100, 20
PAGE_CHARACTERS, LONGEST_EVENT, LONGEST_TURN = 12_000, 4_000, 800
CASES_AT_ONCE = 200
MOST_INDEXED_S = 3.0
"""How long a search works at the index before it answers."""


def trial_items(desk: Desk, name: str, text: str = "", cursor: int = 0, limit: int = N_TRIALS) -> dict[str, Any]:
    """A page of the trials of a run in the order of its cases; the filter has `verdict:`, `case:` and words."""
    text_filter = read_filter(text, TRIAL_KEYS)
    verdict = read_choice(text_filter, "verdict", VERDICTS.values())
    part = " ".join(filter(None, (text_filter.value("case"), text_filter.text)))
    run = desk.stored_runs.find_by_name(name)
    places = list(islice(_places(desk, run.id, verdict, part.casefold()), cursor, cursor + limit + 1))
    rows = places[:limit]
    indexes = sorted({row.case_index for row, _ in rows})
    words = desk.store.runs.first_divergences({run.id: indexes})[run.id] if rows else {}
    return {
        "run": run.id,
        "items": [_item(run.id, row, at, words) for row, at in rows],
        "next_cursor": cursor + limit if len(places) > limit else None,
        "page": f"/runs/{run.id}",
    }


def _places(desk: Desk, run_id: int, verdict: str | None, part: str) -> Iterator[tuple[CaseRow, int]]:
    only: CaseFilter | None = None if verdict in (None, "unscored", "passed") else verdict  # type: ignore[assignment]
    after = ""
    while rows := desk.store.runs.case_rows(run_id, sort="file", only=only, after=after, limit=CASES_AT_ONCE):
        for row in rows:
            if part and part not in row.case_id.casefold():
                continue
            for at, letter in enumerate(row.verdicts):
                if letter in VERDICTS and verdict in (None, VERDICTS[letter]):
                    yield row, at
        after = rows[-1].cursor


def _item(run_id: int, row: CaseRow, at: int, words: dict[TrialKey, str]) -> dict[str, Any]:
    key = (row.case_index, at)
    return {
        "case_id": row.case_id,
        "case_index": row.case_index,
        "trial": at,
        "verdict": VERDICTS[row.verdicts[at]],
        "first_divergence": words.get(key, ""),
        "page": trial_href(run_id, key),
    }


def find_trial(desk: Desk, name: str, case_id: str, trial: int) -> tuple[int, TrialKey, Case, TrialResult]:
    """A trial by its run, the id of its case and its number from 0, as its page counts. Raises NotFoundError."""
    run = desk.stored_runs.find_by_name(name)
    ids_by_index = desk.store.runs.cases_named(run.id, case_id, limit=CASES_AT_ONCE)
    index = next((index for index, each in ids_by_index.items() if each == case_id), None)
    if index is None:
        case_ids = desk.store.runs.case_ids(run.id)
        raise NotFoundError.among(f"case of run {run.id}", case_id, islice(case_ids.values(), 2_000))
    key = (index, trial)
    row = desk.store.runs.case_row(run.id, index)
    if not 0 <= trial < len(row.verdicts):
        raise NotFoundError(
            f"run {run.id}, case {case_id!r} has no trial {trial}; its trials are 0 to {len(row.verdicts) - 1}"
        )
    return run.id, key, desk.store.runs.case(run.id, index), desk.store.runs.trial(run.id, *key)


def trial_answer(
    desk: Desk, name: str, case_id: str, trial: int, part: int | None = None, detail: str = "turns", cursor: int = 0
) -> dict[str, Any]:
    """A trial as text: a line a turn, expected beside actual, or its events from `cursor` on; `part` is one turn."""
    if detail not in DETAILS:
        raise UsageError(f"detail {detail!r} is none of {', '.join(DETAILS)}", field="detail")
    run_id, key, case, result = find_trial(desk, name, case_id, trial)
    n_turns = len(result.transcript.turns)
    if part is not None and not 0 <= part < max(1, n_turns):
        raise NotFoundError(f"the trial has no turn {part}; it has 0 to {n_turns - 1}")
    lines, next_cursor = _lines(case, result, part, detail, cursor)
    return {
        "run": run_id,
        "case_id": case.id,
        "trial": trial,
        "verdict": result.verdict,
        "first_divergence": first_words(case, result) if result.verdict != "passed" else "",
        "divergent_turn": _divergent_turn(case, result) if detail == "turns" and part is None else "",
        "n_turns": n_turns,
        "detail": detail,
        "text": "\n".join(lines),
        "next_cursor": next_cursor,
        "page": trial_href(run_id, key),
    }


def _lines(case: Case, result: TrialResult, part: int | None, detail: str, cursor: int) -> tuple[list[str], int | None]:
    if detail == "turns":
        text = trial_text(case, result, is_whole=True).splitlines()
        return (text if part is None else _lines_of_turn(text, part)), None
    turns = list(enumerate(result.transcript.turns))
    turns = turns if part is None else turns[part : part + 1]
    if detail == "line":
        return [
            f"turn {at}: {short_json(record.query)} -> {short_json(record.answer or '')}" for at, record in turns
        ], None
    page: list[str] = []
    for number, line in enumerate(islice(_events(turns), cursor, None)):
        if page and (number == N_EVENTS or sum(map(len, page)) > PAGE_CHARACTERS):
            return page, cursor + number
        page.append(shortened(line, LONGEST_EVENT))
    return page, None


def _divergent_turn(case: Case, result: TrialResult) -> str:
    """The turn of the first divergence, expected beside actual: a long trial has it far below."""
    divergence = None if result.verdict == "passed" else first_divergence(case, result.transcript, result.scores)
    if divergence is None or result.error:
        return ""
    text = trial_text(case, result, is_whole=True).splitlines()
    return shortened("\n".join(_lines_of_turn(text, divergence.turn - 1)), LONGEST_TURN)


def _lines_of_turn(lines: list[str], part: int) -> list[str]:
    starts = [at for at, line in enumerate(lines) if line.startswith("turn ")]
    return lines[starts[part] : starts[part + 1] if part + 1 < len(starts) else None] if part < len(starts) else []


def _events(turns: list[tuple[int, TurnRecord]]) -> Iterator[str]:
    for at, record in turns:
        yield f"turn {at} user: {record.query}"
        for number, event in enumerate(record.events):
            yield f"turn {at} event {number}: {to_json(event).decode('utf-8', 'replace')}"


def search_answer(desk: Desk, text: str, limit: int = N_HITS) -> dict[str, Any]:
    """The trials, cases of runs and notes that hold all words of a text.

    Without an open desk each search makes the index for MOST_INDEXED_S, newest runs first; `behind` says what is left.
    """
    if not text.strip():
        raise UsageError("search: name the words to look for", field="text")
    if not (desk.is_read_only or desk.is_restricted or desk_address(desk.settings)):
        desk.search.catch_up(0, MOST_INDEXED_S)  # an open desk does so all the time
    hits = desk.search.find(text, limit)
    return {
        "items": [_hit(hit) for hit in hits.texts],
        "notes": [_hit(hit) | {"author": hit.author} for hit in hits.notes],
        "behind": hits.behind,
        "page": f"/search?{urlencode({'q': text})}",
    }


def _hit(hit: Any) -> dict[str, Any]:
    place = hit.place
    trial = place.trial_index
    return {
        "run": place.run_id,
        "case_id": hit.case_id,
        "trial": trial,
        "text": "".join(hit.text),
        "page": trial_href(place.run_id, (place.case_index, trial or 0)),
    }

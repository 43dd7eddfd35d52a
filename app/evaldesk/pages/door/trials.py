"""Trials as text, and the search over them, for coding agents, `evaldesk run trial` and `evaldesk search`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlencode

from evaldesk.desk.desk import Desk
from evaldesk.desk.serving import desk_address
from evaldesk.diff.divergence import first_divergence
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import Case, TrialResult
from evaldesk.model.json_text import short_json
from evaldesk.model.stored import CaseFilter, CaseRow, TrialKey
from evaldesk.pages.door.filters import read_choice, read_filter
from evaldesk.pages.door.fit import USUAL_TOKENS, bytes_within, size
from evaldesk.pages.door.text_pages import MAX_CURSOR, Line, page_of_lines
from evaldesk.pages.runs.view import trial_href
from evaldesk.secrets import scrubber
from evaldesk.wire import json_scrubber, to_json
from evaldesk.wording.shortened import shortened
from evaldesk.wording.trial_text import difference_text, first_words, trial_text

Detail: TypeAlias = Literal["line", "turns", "full"]
DETAILS: tuple[Detail, ...] = get_args(Detail)
VERDICTS = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}
TRIAL_KEYS = ("verdict", "case")
N_TRIALS, N_HITS = 50, 20
LONGEST_TURN = 800
WHOLE_TEXTS = "detail full has the actual one, get_case the expected one"
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
        "trial": at + 1,
        "verdict": VERDICTS[row.verdicts[at]],
        "first_divergence": words.get(key, ""),
        "page": trial_href(run_id, key),
    }


def find_trial(desk: Desk, name: str, case_id: str, trial: int) -> tuple[int, TrialKey, Case, TrialResult]:
    """A trial by its run, the id of its case and its number from 1, as on its page. Raises NotFoundError."""
    run = desk.stored_runs.find_by_name(name)
    index = desk.store.runs.find_case(run.id, case_id)
    if index is None:
        case_ids = desk.store.runs.case_ids(run.id)
        raise NotFoundError.among(f"case of run {run.id}", case_id, islice(case_ids.values(), 2_000))
    key = (index, trial - 1)
    row = desk.store.runs.case_row(run.id, index)
    if not 1 <= trial <= len(row.verdicts):
        raise NotFoundError(
            f"run {run.id}, case {case_id!r} has no trial {trial}; its trials are 1 to {len(row.verdicts)}"
        )
    return run.id, key, desk.store.runs.case(run.id, index), desk.store.runs.trial(run.id, *key)


def trial_answer(
    desk: Desk,
    name: str,
    case_id: str,
    trial: int,
    part: int | None = None,
    detail: str = "turns",
    cursor: int = 0,
    max_tokens: int | None = None,
) -> dict[str, Any]:
    """A trial as text: a line a turn, expected beside actual, or its events; `part` is one turn, counted from 1.

    The text is a page from `cursor` on. Without `max_tokens` it has all lines but those of `full`, which are in pages
    for USUAL_TOKENS. Raises UsageError, NotFoundError.
    """
    if detail not in DETAILS:
        raise UsageError(f"detail {detail!r} is none of {', '.join(DETAILS)}", field="detail")
    run_id, key, case, result = find_trial(desk, name, case_id, trial)
    n_turns = len(result.transcript.turns)
    if part is not None and not 1 <= part <= max(1, n_turns):
        raise NotFoundError(f"the trial has no turn {part}; it has 1 to {n_turns}")
    environment = desk.settings.environment
    n_bytes = bytes_within(max_tokens or USUAL_TOKENS)
    first = first_words(case, result) if result.verdict != "passed" else ""
    divergent = _divergent_turn(case, result) if detail == "turns" and part is None and not cursor else ""
    if max_tokens:
        first, divergent = (_within(scrubber(environment)(each), n_bytes // 4) for each in (first, divergent))
    answer: dict[str, Any] = {
        "run": run_id,
        "case_id": case.id,
        "trial": trial,
        "verdict": result.verdict,
        "first_divergence": first,
        "divergent_turn": divergent,
        "n_turns": n_turns,
        "detail": detail,
        "text": "",
        "next_cursor": MAX_CURSOR,
        "page": trial_href(run_id, key),
    }
    lines = _lines(case, result, part, detail, environment)
    if max_tokens or detail == "full":
        answer["text"], answer["next_cursor"] = page_of_lines(lines, cursor, n_bytes - size(answer))
    else:
        answer |= {"text": "\n".join(line() for line in islice(lines, cursor, None)), "next_cursor": None}
    if cursor and not answer["text"]:
        raise UsageError(f"the trial has no text from cursor {cursor} on; begin without a cursor", field="cursor")
    return answer


def _lines(
    case: Case, result: TrialResult, part: int | None, detail: str, environment: Mapping[str, str]
) -> Iterator[Line]:
    """The lines of a text without secrets, which no pattern finds once a line is cut; each is made when it is read."""
    scrub = scrubber(environment)
    if detail == "turns":
        text = trial_text(case, result, is_whole=True, hint=WHOLE_TEXTS).split("\n")
        for each in text if part is None else _lines_of_turn(text, part):
            yield partial(scrub, each)
        return
    turns = list(enumerate(result.transcript.turns, 1))
    turns = turns if part is None else turns[part - 1 : part]
    if detail == "line":
        for at, record in turns:
            yield partial(scrub, f"turn {at}: {short_json(record.query)} -> {short_json(record.answer or '')}")
        return
    scrub_json = json_scrubber(environment)

    def line_of(head: str, value: object) -> str:
        return f"{head}: {scrub_json(to_json(value)).decode('utf-8', 'replace')}"

    for at, record in turns:
        yield partial(scrub, f"turn {at} user: {record.query}")
        for number, event in enumerate(record.events, 1):
            yield partial(line_of, f"turn {at} event {number}", event)
        if record.error:
            yield partial(line_of, f"turn {at} error", record.error)
    if part is None:
        rest = (("error", result.error), ("final state", result.transcript.final_state or None))
        yield from (partial(line_of, head, value) for head, value in rest if value)
        for score in result.scores:
            at_turn = score if score.turn is None else replace(score, turn=score.turn + 1)  # from 1, as all turns here
            yield partial(line_of, "score", at_turn)


def _within(text: str, n_bytes: int) -> str:
    """The text, shortened to LONGEST_TURN characters and then until an answer has it in so many bytes."""
    longest = LONGEST_TURN
    while size(short_text := shortened(text, longest)) > n_bytes and longest > 20:
        longest //= 2
    return short_text


def _divergent_turn(case: Case, result: TrialResult) -> str:
    """The turn of the first divergence, expected beside actual, without equal calls where it is long.

    A long trial has it far below.
    """
    divergence = None if result.verdict == "passed" else first_divergence(case, result.transcript, result.scores)
    if divergence is None or result.error:
        return ""
    whole_text = "\n".join(_lines_of_turn(trial_text(case, result, is_whole=True).splitlines(), divergence.turn))
    if len(whole_text) <= LONGEST_TURN:
        return whole_text
    return shortened(difference_text(case, result, divergence.turn, LONGEST_TURN // 5), LONGEST_TURN)


def _lines_of_turn(lines: list[str], part: int) -> list[str]:
    """The lines of a turn, counted from 1."""
    starts = [at for at, line in enumerate(lines) if line.startswith("turn ")]
    return lines[starts[part - 1] : starts[part] if part < len(starts) else None] if part <= len(starts) else []


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
    trial_index = place.trial_index
    return {
        "run": place.run_id,
        "case_id": hit.case_id,
        "trial": None if trial_index is None else trial_index + 1,
        "text": "".join(hit.text),
        "page": trial_href(place.run_id, (place.case_index, trial_index or 0)),
    }

"""Places of a workspace that match a typed text: by name, and by the text of trials and notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias
from urllib.parse import quote

from evaldesk.desk.desk import Desk
from evaldesk.desk.evalsets.cases import keys_of
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.desk.search import Hit
from evaldesk.errors import EvaldeskError, NotFoundError
from evaldesk.model import Case
from evaldesk.model.evalset import LargeCases, case_pieces
from evaldesk.model.stored import EvalSetFile
from evaldesk.pages.runs.view import trial_href

MAX_EACH = 5
"""Places of one kind that are shown while one types."""
# The answer says how many sets are left out: decision 120.
MAX_CASES = 10_000
"""Cases of eval set files that one search reads, so that it answers while one types."""
AROUND = 20
"""Letters of a long text before its match."""

_TRIALS = re.compile(r"(?:run\s+)?(\d{1,15})(?:\s*:\s*|\s+)(.*?)(?:\s*:\s*(\d{1,9}))?", re.IGNORECASE)
_RUN = re.compile(r"(?:run\s*)?#?(\d{1,15})(?:,.*)?", re.IGNORECASE | re.ASCII)
"""A run as people call it, and as its page is headed: `61`, `run 61`, `Run 61, hello_world`."""

PAGES: tuple[tuple[str, str, str], ...] = (
    ("New chat", "/sessions/new", "chat"),
    ("New run", "/runs/new", "run"),
    ("New eval set", "/evalsets/new", "add"),
    ("Import a file", "/imports", "import"),
    ("Home", "/", "mark"),
    ("Chat", "/sessions", "chat"),
    ("Eval sets", "/evalsets", "set"),
    ("Runs", "/runs", "run"),
    ("Experiments", "/experiments", "compare"),
    ("Failures", "/failures", "failed"),
    ("Review queues", "/queues", "label"),
    ("Gates", "/gates", "passed"),
    ("Labels", "/labels", "label"),
    ("Agents", "/agents", "agent"),
    ("Compare runs", "/compare", "compare"),
    ("Trash", "/trash", "delete"),
)
"""Name, address and icon. The first N_ACTIONS begin something."""
N_ACTIONS = 4


Parts: TypeAlias = tuple[str, str, str]
"""A text before, in and after its match."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One place: its address, and its name in three parts with the typed text in the middle."""

    address: str
    icon: str
    name: Parts
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Places of one kind."""

    title: str
    places: Sequence[Destination]


@dataclass(frozen=True, slots=True)
class Found:
    """The matches of `text`. `unread` names files that were too large to search."""

    text: str
    groups: Sequence[Group]
    unread: str = ""

    @property
    def n(self) -> int:
        """The number of shown places."""
        return sum(len(group.places) for group in self.groups)


def find(desk: Desk, query: str, n_each: int = MAX_EACH) -> Found:
    """The places that fit `query`; after `>` only actions. `61:roll_16:3` is a trial. Reads files and the database.

    At most `n_each` places of one kind are found.

    Of a workspace that waits for the answer of a person only the pages of Evaldesk are found.
    """
    text = query.strip()
    if text.startswith(">"):
        return Found(text, _filled([Group("Actions", _pages(text[1:].strip(), PAGES[:N_ACTIONS]))]))
    actions, pages = Group("Actions", _pages(text, PAGES[:N_ACTIONS])), Group("Pages", _pages(text, PAGES[N_ACTIONS:]))
    if not text or (desk.is_restricted and not desk.trust.is_look_only):
        return Found(text, _filled([actions, pages]))
    files = [file for file in desk.evalsets.list() if not file.error]
    searched, unread = _within_bounds(desk, files)
    hits = desk.search.find(text, n_each)
    groups = [
        actions,
        Group("Trials", list(_trials(desk, text, n_each))),
        Group("Cases", list(islice(_cases(desk, searched, text, n_each, _in_id), n_each))),
        Group("Runs", _runs(desk, text, n_each)),
        Group("Eval sets", _evalsets(files, text, n_each)),
        Group("Chats", _chats(desk, text, n_each)),
        Group("Agents", _agents(desk, text, n_each)),
        Group("Kinds of failure", _modes(desk, text, n_each)),
        pages,
        Group("Said in cases", list(islice(_cases(desk, searched, text, n_each, _in_text), n_each))),
        Group("Notes", [_of_hit(hit) for hit in hits.notes]),
        Group("Said in runs", [_of_hit(hit) for hit in hits.texts]),
    ]
    return Found(text, _filled(groups), " ".join(filter(None, (unread, hits.behind))))


def _filled(groups: Sequence[Group]) -> list[Group]:
    return [group for group in groups if group.places]


def _pages(text: str, pages: Sequence[tuple[str, str, str]]) -> list[Destination]:
    return [Destination(address, icon, parts) for name, address, icon in pages if (parts := _match_parts(name, text))]


def _agents(desk: Desk, text: str, limit: int) -> list[Destination]:
    matches = ((agent, _match_parts(agent.id, text)) for agent in desk.agents.list())
    return [
        Destination(f"/agents#agent-{quote(agent.id, safe='')}", "agent", parts, "agent")
        for agent, parts in matches
        if parts
    ][:limit]


def _evalsets(files: Sequence[EvalSetFile], text: str, limit: int) -> list[Destination]:
    matches = [(file, parts) for file in files if (parts := _match_parts(file.name, text))]
    return [
        Destination(
            f"/evalsets/{file.id}", "set", parts, "being read" if file.is_reading else f"{file.n_cases:,} cases"
        )
        for file, parts in matches[:limit]
    ]


def _chats(desk: Desk, text: str, limit: int) -> list[Destination]:
    matches = ((chat, _match_parts(chat.title, text)) for chat in desk.store.sessions.list(text=text, limit=limit))
    return [
        Destination(f"/sessions/{each.id}", "chat", parts or (each.title, "", ""), each.agent_id)
        for each, parts in matches
    ]


def _runs(desk: Desk, text: str, limit: int) -> list[Destination]:
    summaries = desk.store.runs.list(text=text, limit=limit)
    if match := _RUN.fullmatch(text):
        try:
            exact = desk.store.runs.summary(int(match[1]))
        except NotFoundError:
            exact = None
        summaries = [*([exact] if exact else []), *(each for each in summaries if each != exact)]
    names = {run.id: run_title(run) for run in summaries[:limit]}
    return [
        Destination(f"/runs/{run.id}", "run", _match_parts(names[run.id], text) or (names[run.id], "", ""), run.note)
        for run in summaries[:limit]
    ]


def _modes(desk: Desk, text: str, limit: int) -> list[Destination]:
    modes = [mode for mode in desk.store.failures.modes() if mode.merged_into is None and mode.retired_at is None]
    matches = ((mode, _match_parts(mode.name, text) or _match_parts(mode.definition, text)) for mode in modes)
    return [Destination(f"/failures/{mode.id}", "failed", parts, mode.name) for mode, parts in matches if parts][:limit]


def _of_hit(hit: Hit) -> Destination:
    place = hit.place
    address = trial_href(place.run_id, (place.case_index, place.trial_index or 0))
    if place.trial_index is None:
        return Destination(address, "set", hit.text, f"{hit.case_id}, run {place.run_id}")
    where = f"{hit.case_id}, run {place.run_id}, trial {place.trial_index + 1}"
    note = f"{hit.author}, {where}" if hit.author else where
    return Destination(address, "label" if hit.author else "run", hit.text, note)


def _trials(desk: Desk, text: str, limit: int) -> Iterator[Destination]:
    """The trials of a run that are asked for as `RUN:CASE:TRIAL`; the first trial where none is named."""
    match = _TRIALS.fullmatch(text)
    if match is None:
        return
    run_id, case_text, trial = int(match[1]), match[2], int(match[3] or 1)
    try:
        run = desk.store.runs.summary(run_id)
    except NotFoundError:
        return
    if not 1 <= trial <= run.n_most:
        return
    for case_index, case_id in desk.store.runs.cases_named(run_id, case_text, limit=limit).items():
        parts = _match_parts(case_id, case_text)
        if parts and trial <= desk.store.runs.case_row(run_id, case_index).counts.planned:
            yield Destination(trial_href(run_id, (case_index, trial - 1)), "run", parts, f"run {run_id}, trial {trial}")


def _within_bounds(desk: Desk, files: Sequence[EvalSetFile]) -> tuple[list[EvalSetFile], str]:
    """The eval sets whose cases are searched, the last changed first, and the others in words."""
    searched: list[EvalSetFile] = []
    n_cases = n_left = 0
    for file in sorted(files, key=lambda file: -file.modified_ns):
        n_read = 0 if desk.evalsets.is_indexed(file) else file.n_cases
        if file.is_reading or n_cases + n_read > MAX_CASES:
            n_left += 1
            continue
        n_cases += n_read
        searched.append(file)
    if not n_left:
        return searched, ""
    sets = "1 large eval set" if n_left == 1 else f"{n_left:,} large eval sets"
    return searched, f"The cases of {sets} are not searched here; the page of an eval set searches its cases."


def _cases(
    desk: Desk,
    files: Sequence[EvalSetFile],
    text: str,
    limit: int,
    match: Callable[[Case, str], Parts | None],
) -> Iterator[Destination]:
    """The cases that `match`: those by their ids and those by their texts are apart, so that names come first."""
    for file in files:
        try:
            cases = desk.evalsets.evalset(file.id).cases
        except EvaldeskError:  # it changed or went a moment ago
            continue
        numbers: Sequence[int] = range(len(cases))
        if isinstance(cases, LargeCases):
            _, numbers = cases.search(text.casefold(), "", None, 0, limit)
        parts_by_number = {number: parts for number in numbers if (parts := match(cases[number], text))}
        for key, (number, parts) in zip(keys_of(cases, list(parts_by_number)), parts_by_number.items(), strict=True):
            case_id = cases[number].id
            is_id = "".join(parts) == case_id
            note = file.name if is_id else f"{case_id}, {file.name}"
            yield Destination(f"/evalsets/{file.id}/cases/{key}", "set", parts, note)


def _in_id(case: Case, text: str) -> Parts | None:
    return _match_parts(case.id, text)


def _in_text(case: Case, text: str) -> Parts | None:
    """The first text of a case that holds `text`; None where its id does."""
    pieces = case_pieces(case)
    return None if _in_id(case, text) else next((parts for each in pieces if (parts := _match_parts(each, text))), None)


def _match_parts(name: str, text: str) -> Parts | None:
    """`name` before, in and after its first match; None where there is none. A long text is cut around its match."""
    match = re.search(re.escape(text), name, re.IGNORECASE)
    if match is None:
        return None
    start = max(0, match.start() - AROUND)
    before, after = name[start : match.start()], name[match.end() : match.end() + 6 * AROUND]
    return ("…" if start else "") + before, match[0], after

"""Add a session to an eval set: the page shows all data that will be saved, and every part may be edited or left out.

The session is one of the chat, or one of `adk web` in its database. The form is that of the case editor with a tick at
each turn, call and message. `op` changes the form's shape, anything else saves; a case name that is taken is answered
with a choice. A session that is too long for a form is added whole: its form has the name of the case alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.chat.recording import Recording, record_session
from evaldesk.desk.chat.replays import seconds_of
from evaldesk.desk.evalsets.cases import CaseIds, CaseNameTakenError, FoundCase
from evaldesk.desk.evalsets.evalsets import SetNameTakenError
from evaldesk.desk.evalsets.names import free_name, slug
from evaldesk.errors import LossError, UsageError
from evaldesk.model import Case
from evaldesk.model.conclusion import counted
from evaldesk.model.stored import AddedCase, EvalSetFile
from evaldesk.pages.case_text import case_text
from evaldesk.pages.large_state import LargeState, large_state
from evaldesk.pages.repeating import MAX_PLACES, NOTHING, RECORDED, Repeats, read_repeats
from evaldesk.pages.typed import Problems
from evaldesk.secrets import scrubber
from evaldesk.web.cases.checks import case_from
from evaldesk.web.cases.drafts import CaseDraft, apply_op, draft_of, fits_form, read_draft
from evaldesk.web.forms.fields import SHOW_TOP, leave, read_form, text_of
from evaldesk.web.render import desk_of, page, target_of
from evaldesk.web.routes.new_run import GONE, run_case

EDITOR = "editor"
MAX_SECRETS = 20
MAX_SHOWN = 100_000
NEW_SET = "new"
REPEAT_OPS = ("play", "look")
"""Buttons that play the session again, and that show what was found meanwhile."""


@dataclass(frozen=True, slots=True)
class Source:
    """The session of the page: its name, the address of the page it was chosen on, and the address of the form.

    `session_id` names a session of the chat, which remembers the cases that were made of it.
    """

    title: str
    back: str
    address: str
    agent_id: str
    record: Callable[[Container[str]], Recording]
    has_turns: bool = True
    added_to: Sequence[AddedCase] = ()
    session_id: str = ""


@dataclass(frozen=True)  # without slots, for the property that is read twice
class Adding:
    """The contents of the page; `set_id` is NEW_SET when `set_name` is to be made.

    `is_whole` says that the session is too long for a form: its turns and states are saved as they are.
    """

    source: Source
    recording: Recording
    sets: Sequence[EvalSetFile]
    set_id: str
    set_name: str
    draft: CaseDraft
    case: Case
    problems: Problems
    focus: str = ""
    running_message: str = ""
    secrets: tuple[str, ...] = ()
    name_error: CaseNameTakenError | None = None
    losses: tuple[str, ...] = ()
    is_run_next: bool = False
    large_initial: LargeState | None = None
    large_final: LargeState | None = None
    is_whole: bool = False
    repeats: Repeats | None = None

    @property
    def file(self) -> EvalSetFile | None:
        """The eval set that was chosen, None for a new one."""
        return next((each for each in self.sets if each.id == self.set_id), None)

    @property
    def set_title(self) -> str:
        """How the chosen set is called."""
        return self.file.name if self.file else self.set_name

    @property
    def calls_in_words(self) -> str:
        """`2, none in 1 turn, 1 turn not asserted`."""
        expected = [turn.expected.tool_calls for turn in self.case.turns]
        n_calls, n_unasserted = sum(len(calls or ()) for calls in expected), expected.count(None)
        parts = [str(n_calls)] if n_calls else []
        parts += [f"none in {counted(expected.count(()), 'turn')}"] if () in expected else []
        parts += [f"{counted(n_unasserted, 'turn')} not asserted"] if n_unasserted else []
        return ", ".join(parts) or "0"

    @property
    def n_references(self) -> int:
        """Turns with a reference answer."""
        return sum(turn.expected.reference is not None for turn in self.case.turns)

    @cached_property
    def json_text(self) -> str:
        """The case as it will stand in the file, as much of it as a page shows."""
        text = case_text(self.case)
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}\n… {len(text) - MAX_SHOWN:,} more characters"


async def show(request: Request) -> Response:
    """GET /sessions/{id}/case and /adk-sessions/{id}/case: the proposal."""
    source = await _source(request)
    sets = await _sets(request)
    requested_id = request.query_params.get("evalset") or ""
    set_id = requested_id or await run_in_threadpool(_usual_set, request, source, sets)
    recording = source.record(await _used_names(request, set_id, sets))
    draft = _proposed_draft(recording)
    free = await run_in_threadpool(desk_of(request).evalsets.free_name, slug(source.agent_id, default="evalset"))
    adding = _adding(request, source, recording, sets, set_id, free, draft, is_whole=not fits_form(draft))
    adding = await run_in_threadpool(_with_repeats, request, adding, {})
    return _render(request, adding, 404 if adding.problems else 200)


async def save(request: Request) -> Response:
    """POST to the same addresses: add the case, or change the form's shape."""
    form = await read_form(request)
    adding = await _read_adding(request, form)
    if text_of(form, "op") in REPEAT_OPS:
        return _render(request, await _play_again(request, form, adding))
    if text_of(form, "op"):
        focus = apply_op(adding.draft, text_of(form, "op"))
        case, _ = case_from(adding.draft, source=adding.recording.case)
        secrets = _secrets(case, desk_of(request).settings.environment)
        return _render(request, _as_asserted(replace(adding, focus=focus, case=case, secrets=secrets)))
    choice, _, then = text_of(form, "choice").partition(" ")
    adding = replace(adding, is_run_next="run" in (then, text_of(form, "then")))
    case, problems = case_from(adding.draft, source=adding.recording.case)
    for name, label, message in adding.problems:
        problems.add(name, label, message)
    await run_in_threadpool(_check_set, request, adding, problems)
    if problems:
        return _render(request, replace(adding, case=case, problems=problems), 422)
    adding = _as_asserted(replace(adding, case=case))
    try:
        set_id, saved_case = await run_in_threadpool(_store, request, adding, choice, form)
    except SetNameTakenError as error:
        sentence = f"There is an eval set named {error.name} already: choose it above, or name this one {error.free}."
        problems.add("new-set", "New eval set", sentence)
        return _render(request, replace(adding, problems=problems), 409)
    except LossError as error:
        return _render(request, replace(adding, losses=error.losses), 409)
    except CaseNameTakenError as error:
        problems.add("case", "Case", f"{adding.set_title} has a case named {error.case_id} already.")
        return _render(request, replace(adding, problems=problems, name_error=error), 409)
    if adding.is_run_next:
        return leave(request, await run_case(request, set_id, saved_case.case, adding.source.agent_id), EDITOR)
    query = urlencode({"added": saved_case.key, "agent": adding.source.agent_id})
    return leave(request, f"/evalsets/{set_id}?{query}", EDITOR)


async def preview(request: Request) -> Response:
    """POST .../case/preview: the case that the form would save now; saves nothing."""
    adding = await _read_adding(request, await read_form(request))
    return page(request, "cases/add.html", block="saved", adding=adding, is_swap=False)


def _store(request: Request, adding: Adding, choice: str, form: FormData) -> tuple[str, FoundCase]:
    desk, case, set_id = desk_of(request), adding.case, adding.set_id
    if adding.file is None:
        set_id = desk.evalsets.create(adding.set_name)
    if choice == "free":
        evalset, _, _ = desk.evalsets.read(set_id)
        case = replace(case, id=free_name(case.id, {each.id for each in evalset.cases}))
    case = desk.sessions.whole_case(case)
    save_case = desk.evalsets.cases.put if choice == "overwrite" else desk.evalsets.cases.add
    saved_case = save_case(set_id, case, as_new_form=text_of(form, "form") == "adk")
    if adding.source.session_id:
        desk.sessions.note_case(adding.source.session_id, set_id, case.id)
    played_case, recorded_at = adding.recording.playable_case, seconds_of(adding.recording.recorded_at)
    desk.replays.note_case(played_case, adding.source.agent_id, (set_id, saved_case.key), recorded_at)
    return set_id, saved_case


async def _read_adding(request: Request, form: FormData) -> Adding:
    source = await _source(request)
    sets = await _sets(request)
    recording, draft = source.record(()), read_draft(form)
    is_whole = text_of(form, "whole") == "1"
    if is_whole:
        draft = replace(_proposed_draft(recording), case_id=draft.case_id, tags=draft.tags)
    set_id, set_name = text_of(form, "evalset") or NEW_SET, text_of(form, "new-set").strip()
    adding = _adding(request, source, recording, sets, set_id, set_name, draft, is_whole=is_whole)
    return await run_in_threadpool(_with_repeats, request, adding, _read_ways(form))


async def repeats(request: Request) -> Response:
    """POST .../case/repeats: start the replays that the form starts alone, or show what they found; saves nothing."""
    form = await read_form(request)
    adding = await _play_again(request, form, await _read_adding(request, form))
    return page(request, "cases/add.html", block="repeats", adding=adding, is_swap=target_of(request) == "repeats")


async def _play_again(request: Request, form: FormData, adding: Adding) -> Adding:
    """The page with its replays as they stand, started now where the button or the page asks for it."""
    recording, agent_id = adding.recording, adding.source.agent_id
    if "play" in (text_of(form, "op"), request.query_params.get("start")):
        reason = desk_of(request).replays.start(recording.playable_case, agent_id)
        if reason and adding.repeats:
            return replace(adding, repeats=replace(adding.repeats, reason=reason))
    return adding


def _read_ways(form: FormData) -> dict[str, str]:
    """The chosen ways by the keys of their places: as recorded where that is ticked."""
    ways: dict[str, str] = {}
    while (key := text_of(form, f"repeat-{len(ways)}-key")) and len(ways) < MAX_PLACES:
        place = f"repeat-{len(ways)}"
        ways[key] = RECORDED if f"{place}-kept" in form else text_of(form, f"{place}-way") or NOTHING
    return ways


def _with_repeats(request: Request, adding: Adding, ways: Mapping[str, str]) -> Adding:
    """The page with the changing values of its session, and the case with the chosen matchers."""
    source = adding.source
    return _as_asserted(
        replace(
            adding,
            repeats=read_repeats(desk_of(request), adding.recording, source.agent_id, source.session_id, ways),
        )
    )


def _as_asserted(adding: Adding) -> Adding:
    """The page with its case as it is saved: changing values by their chosen ways."""
    if adding.repeats is None:
        return adding
    origins = [
        (turn.origin, [at for at, call in enumerate(turn.calls) if call.is_kept] if turn.calls_mode == "calls" else [])
        for turn in adding.draft.turns
        if turn.is_kept
    ]
    return replace(adding, case=adding.repeats.asserted(adding.recording.case, adding.case, origins))


def _proposed_draft(recording: Recording) -> CaseDraft:
    """The recorded case in the form, with ticks at the turns that were finished."""
    draft = draft_of(recording.case)
    for turn, recorded_turn in zip(draft.turns, recording.turns, strict=True):
        turn.is_kept = not recorded_turn.why_left_out
    return draft


def _adding(
    request: Request,
    source: Source,
    recording: Recording,
    sets: Sequence[EvalSetFile],
    set_id: str,
    set_name: str,
    draft: CaseDraft,
    *,
    is_whole: bool,
) -> Adding:
    case, _ = case_from(draft, source=recording.case)
    desk = desk_of(request)
    problems = Problems()
    if set_id != NEW_SET and not any(each.id == set_id for each in sets):
        problems.add("evalset", "Eval set", GONE)
        set_id = NEW_SET
    running_turn = desk.sessions.find_running_turn(source.session_id)
    large_states = [large_state(state) for state in (recording.initial_state, recording.final_state)]
    return Adding(
        source,
        recording,
        sets,
        set_id,
        set_name,
        draft,
        case,
        problems,
        running_message=running_turn.message if running_turn else "",
        secrets=_secrets(case, desk.settings.environment),
        large_initial=large_states[0],
        large_final=large_states[1],
        is_whole=is_whole,
    )


def _secrets(case: Case, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The lines of the case that hold a text like a key or a password, with that text masked."""
    scrubbed, text = scrubber(environment), case_text(case)
    if scrubbed(text) == text:
        return ()
    lines = ((line.strip(), scrubbed(line.strip())) for line in text.splitlines())
    return tuple(islice((masked[:160] for line, masked in lines if masked != line), MAX_SECRETS))


def _check_set(request: Request, adding: Adding, problems: Problems) -> None:
    """A name that is taken is left to the saving, which answers it with 409."""
    if adding.file is not None or problems.get("evalset"):
        return
    try:
        desk_of(request).evalsets.check_new_name(adding.set_name)
    except SetNameTakenError:
        return
    except UsageError as error:
        problems.add("new-set", "New eval set", str(error))


def _usual_set(request: Request, source: Source, sets: Sequence[EvalSetFile]) -> str:
    """The set that this session was added to last, else the usual one of its agent, else a new one.

    One whose form cannot hold the case is passed over, such as a flat list of ADK, which is one case.
    """
    evalsets = desk_of(request).evalsets
    fits = partial(evalsets.fits, case=source.record(()).case)
    before = {addition.evalset_id: at for at, addition in enumerate(source.added_to)}
    added_to = sorted((each for each in sets if each.id in before), key=lambda each: before[each.id], reverse=True)
    last = next(filter(fits, added_to), None)
    return last.id if last else evalsets.propose_evalset_id(source.agent_id, fits) or NEW_SET


async def _source(request: Request) -> Source:
    read_source = _of_adk if "adk_session_id" in request.path_params else _of_chat
    return await run_in_threadpool(read_source, request)


def _of_chat(request: Request) -> Source:
    session = desk_of(request).sessions.get(str(request.path_params["session_id"]))
    address = f"/sessions/{session.id}"
    return Source(
        session.title or "Session",
        address,
        f"{address}/case",
        session.agent_id,
        lambda names: record_session(session, app_name=session.agent_id, used_ids=names),
        has_turns=bool(session.turns),
        added_to=session.added_to,
        session_id=session.id,
    )


def _of_adk(request: Request) -> Source:
    session = desk_of(request).adk_sessions.get(str(request.path_params["adk_session_id"]))
    back = f"/adk-sessions{_set_query(request.query_params.get('evalset', ''))}"
    return Source("ADK sessions", back, f"/adk-sessions/{session.id}/case", session.app_name, session.record)


async def _sets(request: Request) -> list[EvalSetFile]:
    files = await run_in_threadpool(desk_of(request).evalsets.list)
    return [each for each in files if not each.error]


async def _used_names(request: Request, set_id: str, sets: Sequence[EvalSetFile]) -> Container[str]:
    if not any(each.id == set_id for each in sets):
        return set()
    evalset, _, _ = await run_in_threadpool(desk_of(request).evalsets.read, set_id)
    return CaseIds(evalset.cases)


def _render(request: Request, adding: Adding, status: int = 200) -> Response:
    headers = SHOW_TOP if status != 200 else {}
    return page(request, "cases/add.html", block=EDITOR, status=status, headers=headers, adding=adding, is_swap=False)


def _set_query(set_id: str) -> str:
    """The part of an address that keeps the eval set a person came from."""
    return f"?{urlencode({'evalset': set_id})}" if set_id else ""


async def adk_sessions(request: Request) -> Response:
    """GET /adk-sessions: the session databases of `adk web`, and the sessions in them."""
    database_id, older = (request.query_params.get(name, "") for name in ("database", "older"))
    databases = await run_in_threadpool(desk_of(request).adk_sessions.list, database_id, older)
    query = _set_query(request.query_params.get("evalset", ""))
    return page(request, "sessions/adk.html", databases=databases, query=query, is_older=bool(older))


routes = [
    Route("/adk-sessions", adk_sessions),
    Route("/adk-sessions/{adk_session_id}/case", show),
    Route("/adk-sessions/{adk_session_id}/case", save, methods=["POST"]),
    Route("/adk-sessions/{adk_session_id}/case/preview", preview, methods=["POST"]),
    Route("/adk-sessions/{adk_session_id}/case/repeats", repeats, methods=["POST"]),
    Route("/sessions/{session_id}/case", show),
    Route("/sessions/{session_id}/case", save, methods=["POST"]),
    Route("/sessions/{session_id}/case/preview", preview, methods=["POST"]),
    Route("/sessions/{session_id}/case/repeats", repeats, methods=["POST"]),
]

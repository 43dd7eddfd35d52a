"""From a draft to a case: every field is checked, and keys that the form does not show are kept from the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from evaldesk.desk.evalsets.names import check_case_id
from evaldesk.errors import UsageError
from evaldesk.model import Case, Decision, Expected, JsonObject, JsonValue, SessionInit, ToolCall, Turn
from evaldesk.model.decisions import ScriptedDecision, with_decisions
from evaldesk.pages.case_whole import with_whole
from evaldesk.pages.large_state import Held, held_values
from evaldesk.pages.typed import Problems, json_object, json_value, typed_value
from evaldesk.web.cases.drafts import CallDraft, CaseDraft, DecisionDraft, MessageDraft, TurnDraft, shown_decisions

MAX_TAGS = 50

T = TypeVar("T")
Values: TypeAlias = Mapping[str, JsonValue]
"""The values that the form names by their digest."""

CHANGED = "This value changed meanwhile, and its new form is not here. Open this page again."


def case_from(draft: CaseDraft, original: Case | None = None, *, source: Case | None = None) -> tuple[Case, Problems]:
    """The case that `draft` describes, and its faults; save it only when there are none.

    Keys that the form does not show are those of `original`. Removed parts are left out. Texts that were not changed,
    and values that are too large for the form, are those of `source`, by default of `original`.
    """
    problems = Problems()
    holder = source or original or Case(id="")
    values = held_values(holder)
    base = original or Case(id="")
    case_id = _as_before(draft.case_id, base.id)
    if case_id != base.id or not original:
        try:
            check_case_id(case_id)
        except UsageError as error:
            problems.add("case", "Case", str(error))
    kept = [(index, turn) for index, turn in enumerate(draft.turns) if turn.is_kept]
    if not kept:
        problems.add("turns", "Turns", "A case needs at least one turn.")
    case = replace(
        base,
        id=case_id,
        turns=tuple(_turn(index, turn, (base, holder), values, problems) for index, turn in kept),
        initial_session=_session(draft, base.initial_session, values, problems),
        final_state=_final_state(draft, values, problems),
        tags=_tags(draft.tags, problems),
    )
    if draft.shows_decisions:
        scripted = list(_decisions(draft, [index for index, _ in kept], problems))
        before = sorted(shown_decisions(base) or (), key=lambda each: (each.turn is None, each.turn or 0))
        case = case if scripted == before else with_decisions(case, scripted)
    origins = [(turn.origin, [call.origin for call in turn.calls if call.is_kept]) for _, turn in kept]
    return with_whole(base, case, origins, (draft.outputs, draft.rubrics), problems, draft.accepted), problems


def _decisions(draft: CaseDraft, kept: list[int], problems: Problems) -> Iterator[ScriptedDecision]:
    """The decisions of the turns that are kept, which are numbered anew, then those of every turn."""
    for number, index in enumerate(kept):
        for at, each in enumerate(draft.turns[index].decisions):
            prefix, label = f"turn-{index}-decision-{at}", f"Turn {index + 1}, decision {at + 1}"
            yield ScriptedDecision(_decision(each, prefix, label, problems), number)
    for at, each in enumerate(draft.decisions):
        yield ScriptedDecision(_decision(each, f"decision-{at}", f"Decision {at + 1}", problems))


def _decision(draft: DecisionDraft, prefix: str, label: str, problems: Problems) -> Decision:
    value = _line_ends(draft.value)
    if draft.decision == "answer":
        if not value.strip():
            problems.add(f"{prefix}-value", label, "Enter the answer: JSON, or text.")
        return Decision("answer", draft.tool, answer=typed_value(value))
    if draft.decision == "deny":
        return Decision("deny", draft.tool, reason=value)
    return Decision("approve", draft.tool)


def _turn(index: int, draft: TurnDraft, cases: tuple[Case, Case], values: Values, problems: Problems) -> Turn:
    """The turn of `draft`; `cases` hold the keys that the form does not show, and the texts as they were."""
    prefix, number = f"turn-{index}", index + 1
    before, shown = (_at(case.turns, draft.origin) or Turn(query="") for case in cases)
    label = f"Turn {number}, user message"
    query = _as_before(draft.query, shown.query)
    if draft.query_held:
        query = _held_text(draft.query_held, f"{prefix}-query", label, values, problems)
    elif not query.strip() and (draft.origin is None or (shown.query.strip() and not shown.media)):
        problems.add(f"{prefix}-query", label, "Enter the message of the user in this turn.")
    expected = replace(
        before.expected,
        tool_calls=_calls(prefix, number, draft, before.expected, values, problems),
        intermediate=_intermediate(prefix, number, draft.intermediate, shown.expected.intermediate, values, problems),
        reference=_reference(prefix, number, draft, shown.expected.reference, values, problems),
    )
    media = tuple(item for at, item in enumerate(shown.media) if at not in draft.left_out_media)
    return replace(before, query=query, expected=expected, media=media)


def _reference(
    prefix: str, number: int, draft: TurnDraft, before: str | None, values: Values, problems: Problems
) -> str | None:
    """An empty field means no reference, unless the file says that the reference is empty."""
    if held := draft.reference_held:
        label = f"Turn {number}, reference answer"
        return _held_text(held, f"{prefix}-reference", label, values, problems) if held.is_kept else None
    found = _as_before(draft.reference, before or "")
    return found if found or before == "" else None


def _calls(
    prefix: str, number: int, draft: TurnDraft, origin: Expected, values: Values, problems: Problems
) -> tuple[ToolCall, ...] | None:
    if draft.calls_mode == "not_asserted":
        return None
    if draft.calls_mode == "no_tool":
        return ()
    kept = [(index, call) for index, call in enumerate(draft.calls) if call.is_kept]
    if not kept:
        label = f"Turn {number}, tool calls"
        sentence = "Add a call, or choose “No tool may be called” or “Not asserted”."
        problems.add(f"{prefix}-calls", label, sentence)
    calls = origin.tool_calls or ()
    return tuple(
        _call(f"{prefix}-call-{index}", f"Turn {number}, call {index + 1}", call, calls, values, problems)
        for index, call in kept
    )


def _call(
    prefix: str, label: str, draft: CallDraft, originals: tuple[ToolCall, ...], values: Values, problems: Problems
) -> ToolCall:
    if not draft.name:
        problems.add(f"{prefix}-name", label, "Name the tool.")
    args: dict[str, JsonValue] = {}
    for index, arg in enumerate(draft.args):
        place = f"{prefix}-arg-{index}"
        if not arg.name and not arg.value.strip() and not arg.held:
            continue
        if not arg.name:
            problems.add(f"{place}-name", f"{label}, argument {index + 1}", "Name the argument.")
        elif arg.name in args:
            problems.add(f"{place}-name", f"{label}, {arg.name}", f"The argument {arg.name} is named twice.")
        if arg.held:
            args[arg.name] = _held(arg.held, f"{place}-value", f"{label}, {arg.name or 'argument'}", values, problems)
            continue
        try:
            args[arg.name] = json_value(arg.value)
        except UsageError as error:
            sentence = 'This is not JSON. Text stands in quotes, as in "Paris". ' + str(error)
            problems.add(f"{place}-value", f"{label}, {arg.name or 'argument'}", sentence)
            args[arg.name] = None
    origin = _at(originals, draft.origin) or ToolCall(name="")
    return replace(origin, name=draft.name, args=args)


def _intermediate(
    prefix: str,
    number: int,
    drafts: list[MessageDraft],
    before: tuple[tuple[str, str], ...],
    values: Values,
    problems: Problems,
) -> tuple[tuple[str, str], ...]:
    """Empty rows are left out; line ends stay as the file has them where nothing was changed."""
    known = {(author.strip(), _line_ends(text)): (author, text) for author, text in before}
    found = []
    for index, draft in enumerate(drafts):
        text = draft.text
        if draft.held and draft.is_kept:
            label = f"Turn {number}, intermediate response {index + 1}"
            held = _held_text(draft.held, f"{prefix}-intermediate-{index}-text", label, values, problems)
            text = _line_ends(held)
            known.setdefault((draft.author, text), (draft.author, held))
        if draft.is_kept and (draft.author or text):
            found.append(known.get((draft.author, text), (draft.author, text)))
    return tuple(found)


def _session(draft: CaseDraft, before: SessionInit | None, values: Values, problems: Problems) -> SessionInit | None:
    state = _held_state(draft.initial_held, "initial", "Initial state", values, problems)
    if draft.initial_held is None:
        state = _object(draft.initial, "initial", "Initial state", problems)
    base = before or SessionInit()
    found = replace(
        base,
        app_name=_as_before(draft.app_name, base.app_name),
        user_id=_as_before(draft.user_id, base.user_id),
        state=state or {},
    )
    return None if before is None and found == SessionInit() else found


def _final_state(draft: CaseDraft, values: Values, problems: Problems) -> JsonObject | None:
    if draft.final_held:
        return _held_state(draft.final_held, "final", "Expected final state", values, problems)
    return _object(draft.final, "final", "Final state", problems) if draft.final.strip() else None


def _object(text: str, name: str, label: str, problems: Problems) -> JsonObject:
    try:
        return json_object(text)
    except UsageError as error:
        problems.add(name, label, str(error))
        return {}


def _held_state(held: Held | None, name: str, label: str, values: Values, problems: Problems) -> JsonObject | None:
    """The state that stayed at the server; None where there is none, and where it is left out."""
    if held is None or not held.is_kept:
        return None
    found = _held(held, name, label, values, problems)
    return found if isinstance(found, dict) else None


def _held(held: Held, name: str, label: str, values: Values, problems: Problems) -> JsonValue:
    if held.digest not in values:
        problems.add(name, label, CHANGED)
    return values.get(held.digest)


def _held_text(held: Held, name: str, label: str, values: Values, problems: Problems) -> str:
    found = _held(held, name, label, values, problems)
    return found if isinstance(found, str) else ""


def _tags(text: str, problems: Problems) -> tuple[str, ...]:
    tags = tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))
    if len(tags) > MAX_TAGS:
        problems.add("tags", "Tags", f"At most {MAX_TAGS} tags; these are {len(tags)}.")
    return tags


def _as_before(text: str, before: str) -> str:
    """`before` where a browser could have made `text` of it: an edit elsewhere changes nothing here."""
    return before if text in {_line_ends(before), _line_ends(before).strip()} else text


def _line_ends(text: str) -> str:
    """`text` as a form gives it back: its line ends, and no NUL, which a page cannot hold."""
    return text.replace("\0", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")


def _at(parts: tuple[T, ...], index: int | None) -> T | None:
    return parts[index] if index is not None and index < len(parts) else None

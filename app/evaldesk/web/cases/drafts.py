"""A case while it is typed: every field as text, the buttons that change its shape, and the way back to a case.

Field names say where they stand: `turn-0-call-1-arg-0-value`. A turn and a call carry `origin`, their place in the
case as the file has it, so that keys we do not know are taken from the file and never travel through the browser. A
large value or text does not travel either: the form has its digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import takewhile
from typing import TypeAlias

from starlette.datastructures import FormData

from evaldesk.errors import VALUE_LIMIT, UsageError
from evaldesk.model import Case, Decision, JsonObject, JsonValue, ToolCall, Turn
from evaldesk.model.decisions import ANY, ScriptedDecision, scripted_decisions
from evaldesk.model.evalset import CRITERIA, DECISIONS, TRIALS, own_bars
from evaldesk.model.json_text import json_line
from evaldesk.model.media import MAX_MEDIA_COUNT
from evaldesk.pages.case_scenario import ScenarioTexts, required_actions, scenario_texts
from evaldesk.pages.case_whole import accepted_text, outcomes_text, outputs_text, rubrics_text
from evaldesk.pages.large_state import HEAD, Held, held_value, typed_limit
from evaldesk.web.forms.fields import MAX_FIELDS, number_of, text_of
from evaldesk.web.guard import MAX_BODY
from evaldesk.wording.json_layout import as_json

MAX_TURNS = 200
MAX_DECISIONS = 100_000
MAX_PARTS = 100
MAX_ENCODED = 3
"""A byte is sent as up to three: `%C3`. The names of the fields are shorter than those of the draft in JSON."""
MAX_FIELDS_OF_PART = 12
ROOM_TO_TYPE = 2 * 1024 * 1024
CALLS = ("calls", "no_tool", "not_asserted")


@dataclass(slots=True)
class ArgDraft:
    """One argument of an expected call; `value` is JSON text, unless the value is held."""

    name: str = ""
    value: str = ""
    held_value: Held | None = None


@dataclass(slots=True)
class CallDraft:
    """One expected call; `is_kept` is the tick beside a recorded one."""

    name: str = ""
    args: list[ArgDraft] = field(default_factory=list)
    origin: int | None = None
    is_kept: bool = True


@dataclass(slots=True)
class MessageDraft:
    """A message of an agent before its answer; `text` is empty where it is held."""

    author: str = ""
    text: str = ""
    is_kept: bool = True
    held_value: Held | None = None


@dataclass(slots=True)
class DecisionDraft:
    """A decision of a person; `value` is the answer, JSON or text, or the reason of a denial."""

    tool: str = ""
    decision: str = "approve"
    value: str = ""


@dataclass(slots=True)
class TurnDraft:
    """One turn; `calls_mode` is one of CALLS, `query` and `reference` are empty where they are held.

    `media` are the titles of its images and files, which stay at the server; `left_out_media` their indexes that go.
    """

    query: str = ""
    calls_mode: str = "not_asserted"
    calls: list[CallDraft] = field(default_factory=list)
    intermediate: list[MessageDraft] = field(default_factory=list)
    reference: str = ""
    origin: int | None = None
    is_kept: bool = True
    query_held: Held | None = None
    reference_held: Held | None = None
    media: list[str] = field(default_factory=list)
    left_out_media: list[int] = field(default_factory=list)
    decisions: list[DecisionDraft] = field(default_factory=list)


@dataclass(slots=True)
class CaseDraft:
    """One case; `initial` and `final` are JSON text, unless they are held; `tags` are separated by commas.

    `trials` is its own number of trials, `criteria` are its own; None where the form has no such field.

    `outputs`, `rubrics`, `accepted` and `outcomes` have one a line; None where the form has no such field. `decisions`
    hold in every turn; without `shows_decisions` those of the case are not in the form. A case with a `scenario` has no
    turns; `actions` are those that it requires, in the form with `shows_actions`.
    """

    case_id: str = ""
    tags: str = ""
    trials: str | None = None
    criteria: str | None = None
    app_name: str = ""
    user_id: str = ""
    initial: str = ""
    final: str = ""
    initial_held: Held | None = None
    final_held: Held | None = None
    outputs: str | None = None
    rubrics: str | None = None
    accepted: str | None = None
    outcomes: str | None = None
    turns: list[TurnDraft] = field(default_factory=list)
    decisions: list[DecisionDraft] = field(default_factory=list)
    shows_decisions: bool = False
    scenario: ScenarioTexts | None = None
    actions: list[CallDraft] = field(default_factory=list)
    shows_actions: bool = False


DraftPart: TypeAlias = CaseDraft | TurnDraft | CallDraft | MessageDraft | ArgDraft | DecisionDraft
_PARTS: Mapping[tuple[type[DraftPart], str], tuple[str, type[DraftPart]]] = {
    (CaseDraft, "turn"): ("turns", TurnDraft),
    (CaseDraft, "decision"): ("decisions", DecisionDraft),
    (CaseDraft, "action"): ("actions", CallDraft),
    (TurnDraft, "call"): ("calls", CallDraft),
    (TurnDraft, "intermediate"): ("intermediate", MessageDraft),
    (TurnDraft, "decision"): ("decisions", DecisionDraft),
    (CallDraft, "arg"): ("args", ArgDraft),
}
"""What a part has, by the name that fields and buttons give it: the attribute, and the kind of its parts."""


def draft_of(case: Case) -> CaseDraft:
    """`case` as it stands in the form."""
    session, limit = case.initial_session, typed_limit(case)
    scripted = shown_decisions(case)
    large_initial = held_value(dict(case.initial_state), limit)
    large_final = held_value(dict(case.final_state or {}), limit)
    is_scenario = case.scenario is not None
    actions = required_actions(case) if is_scenario else None
    return CaseDraft(
        case_id=case.id,
        tags=", ".join(case.tags),
        trials=shown_trials(case),
        criteria=shown_criteria(case),
        app_name=session.app_name if session else "",
        user_id=session.user_id if session else "",
        initial=json_text(session.state) if session and not large_initial else "",
        final="" if case.final_state is None or large_final else json_text(case.final_state),
        initial_held=large_initial,
        final_held=large_final,
        outputs=outputs_text(case),
        rubrics=rubrics_text(case),
        accepted=None if is_scenario else accepted_text(case),
        outcomes=None if is_scenario else outcomes_text(case),
        turns=[
            _turn_draft(turn, index, limit, _decision_drafts(scripted or (), index))
            for index, turn in enumerate(case.turns)
        ],
        decisions=_decision_drafts(scripted or (), None),
        shows_decisions=scripted is not None,
        scenario=scenario_texts(case) if is_scenario else None,
        actions=[_call_draft(call, index, MAX_BODY) for index, call in enumerate(actions or ())],
        shows_actions=actions is not None,
    )


def shown_trials(case: Case) -> str | None:
    """The own number of trials of the case; None where its file has another value under that key."""
    n = case.extra.get(TRIALS, "")
    return str(n) if n == "" or (isinstance(n, int) and not isinstance(n, bool)) else None


def shown_criteria(case: Case) -> str | None:
    """The criteria that the case names among those of its runs; None where its file has another value there."""
    value = case.extra.get(CRITERIA)
    if value is None:
        return ""
    bars = own_bars(case)
    is_plain = isinstance(value, list | tuple | Mapping) and len(bars) == len(value) > 0
    has_options = isinstance(value, Mapping) and any(not is_bar(each) for each in value.values())
    if not is_plain or has_options or any("," in name or "=" in name for name in bars):
        return None
    return ", ".join(name if bar is None else f"{name} = {bar:g}" for name, bar in bars.items())


def is_bar(value: object) -> bool:
    """Whether a value is a threshold alone, or none."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def shown_decisions(case: Case) -> tuple[ScriptedDecision, ...] | None:
    """The decisions of the case that the form shows; None where they cannot be read, or are of turns that are gone."""
    try:
        decisions = scripted_decisions(case)
    except UsageError:
        return None
    is_large = len(decisions) > MAX_PARTS or len(json_line(case.extra.get(DECISIONS))) > MAX_DECISIONS
    is_lost = any(each.turn is not None and each.turn >= len(case.turns) for each in decisions)
    return None if is_large or is_lost else decisions


def _decision_drafts(scripted: Sequence[ScriptedDecision], turn: int | None) -> list[DecisionDraft]:
    return [_decision_draft(each.decision) for each in scripted if each.turn == turn]


def _decision_draft(decision: Decision) -> DecisionDraft:
    value = json_line(decision.answer) if decision.decision == "answer" else decision.reason
    return DecisionDraft(decision.tool, decision.decision, value)


def fits_form(draft: CaseDraft) -> bool:
    """Whether a form can send `draft`: its bytes, its fields and the parts in each place are within their limits."""
    calls = [*draft.actions, *(call for turn in draft.turns for call in turn.calls)]
    n_decisions = len(draft.decisions) + sum(len(turn.decisions) for turn in draft.turns)
    sizes = [len(call.args) for call in calls]
    sizes += [len(parts) for turn in draft.turns for parts in (turn.calls, turn.intermediate)]
    if len(draft.turns) > MAX_TURNS or len(draft.actions) > MAX_PARTS or max(sizes, default=0) > MAX_PARTS:
        return False
    n_parts = 1 + len(draft.turns) + len(calls) + sum(sizes) + n_decisions
    data = json.dumps(asdict(draft), ensure_ascii=False).encode("utf-8", "replace")
    return n_parts * MAX_FIELDS_OF_PART <= MAX_FIELDS and MAX_ENCODED * len(data) <= MAX_BODY - ROOM_TO_TYPE


def _turn_draft(turn: Turn, origin: int, limit: int, decisions: list[DecisionDraft]) -> TurnDraft:
    calls, reference = turn.expected.tool_calls, turn.expected.reference or ""
    large_query, large_reference = held_value(turn.query, limit), held_value(reference, limit)
    return TurnDraft(
        query="" if large_query else turn.query,
        calls_mode="not_asserted" if calls is None else "calls" if calls else "no_tool",
        calls=[_call_draft(call, index, limit) for index, call in enumerate(calls or ())],
        intermediate=[_message_draft(author, text, limit) for author, text in turn.expected.intermediate],
        reference="" if large_reference else reference,
        origin=origin,
        query_held=large_query,
        reference_held=large_reference,
        media=[item.title() for item in turn.media],
        decisions=decisions,
    )


def _message_draft(author: str, text: str, limit: int) -> MessageDraft:
    large_text = held_value(text, limit)
    return MessageDraft(author, "" if large_text else text, held_value=large_text)


def _call_draft(call: ToolCall, origin: int, limit: int) -> CallDraft:
    return CallDraft(call.name, [_arg_draft(name, value, limit) for name, value in call.args.items()], origin)


def _arg_draft(name: str, value: JsonValue, limit: int) -> ArgDraft:
    large_value = held_value(value, limit)
    return ArgDraft(name, "" if large_value else json_line(value), large_value)


def json_text(value: JsonObject) -> str:
    """A state as it stands in its field: readable JSON, short lists on one line."""
    lines = [f"  {json_line(key)}: {_entry(item)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + "\n}" if lines else "{}"


def _entry(value: JsonValue) -> str:
    line = json_line(value)
    return line if len(line) <= 60 else as_json(value).replace("\n", "\n  ")


def read_draft(form: FormData) -> CaseDraft:
    """The draft that was posted. Raises UsageError when it has more parts than a case may have."""
    return CaseDraft(
        case_id=text_of(form, "case").strip(),
        tags=text_of(form, "tags"),
        trials=text_of(form, "trials") if "trials" in form else None,
        criteria=text_of(form, "criteria") if "criteria" in form else None,
        app_name=text_of(form, "app").strip(),
        user_id=text_of(form, "user").strip(),
        initial=text_of(form, "initial"),
        final=text_of(form, "final"),
        initial_held=_read_held_value(form, "initial"),
        final_held=_read_held_value(form, "final"),
        outputs=text_of(form, "outputs") if "outputs" in form else None,
        rubrics=text_of(form, "rubrics") if "rubrics" in form else None,
        accepted=text_of(form, "accepted") if "accepted" in form else None,
        outcomes=text_of(form, "outcomes") if "outcomes" in form else None,
        turns=[_read_turn(form, prefix) for prefix in _prefixes(form, "turn", "query", MAX_TURNS)],
        decisions=[_read_decision(form, name) for name in _prefixes(form, "decision", "tool")],
        shows_decisions="decisions" in form,
        scenario=_read_scenario(form) if "scenario" in form else None,
        actions=[_read_call(form, name) for name in _prefixes(form, "action", "name")],
        shows_actions="actions" in form,
    )


def _read_scenario(form: FormData) -> ScenarioTexts:
    names = (each.name for each in fields(ScenarioTexts) if each.type == "str")
    return ScenarioTexts(**{name: text_of(form, name) for name in names}, has_sections="known" in form)


def _read_decision(form: FormData, prefix: str) -> DecisionDraft:
    choice = text_of(form, f"{prefix}-choice")
    return DecisionDraft(
        text_of(form, f"{prefix}-tool").strip(),
        choice if choice in ANY else "approve",
        text_of(form, f"{prefix}-value"),
    )


def _read_turn(form: FormData, prefix: str) -> TurnDraft:
    mode = text_of(form, f"{prefix}-calls")
    media = list(takewhile(lambda name: name in form, (f"{prefix}-media-{at}" for at in range(MAX_MEDIA_COUNT))))
    return TurnDraft(
        query=text_of(form, f"{prefix}-query"),
        calls_mode=mode if mode in CALLS else "not_asserted",
        calls=[_read_call(form, name) for name in _prefixes(form, f"{prefix}-call", "name")],
        intermediate=[_read_message(form, name) for name in _prefixes(form, f"{prefix}-intermediate", "text")],
        reference=text_of(form, f"{prefix}-reference"),
        origin=_origin(form, prefix),
        is_kept=_is_kept(form, prefix),
        query_held=_read_held_value(form, f"{prefix}-query"),
        reference_held=_read_held_value(form, f"{prefix}-reference"),
        media=[text_of(form, name) for name in media],
        left_out_media=[at for at, name in enumerate(media) if f"{name}-kept" not in form],
        decisions=[_read_decision(form, name) for name in _prefixes(form, f"{prefix}-decision", "tool")],
    )


def _read_call(form: FormData, prefix: str) -> CallDraft:
    names = _prefixes(form, f"{prefix}-arg", "name")
    args = [_read_arg(form, name) for name in names]
    return CallDraft(text_of(form, f"{prefix}-name").strip(), args, _origin(form, prefix), _is_kept(form, prefix))


def _read_arg(form: FormData, prefix: str) -> ArgDraft:
    name, value = text_of(form, f"{prefix}-name").strip(), text_of(form, f"{prefix}-value")
    return ArgDraft(name, value, _read_held_value(form, f"{prefix}-value"))


def _read_held_value(form: FormData, name: str) -> Held | None:
    digest, size = text_of(form, f"{name}-digest"), text_of(form, f"{name}-size")
    if not digest:
        return None
    return Held(digest[:64], number_of(size) or 0, _is_kept(form, name), text_of(form, f"{name}-head")[:HEAD])


def _read_message(form: FormData, prefix: str) -> MessageDraft:
    author, text = text_of(form, f"{prefix}-author").strip(), text_of(form, f"{prefix}-text")
    return MessageDraft(author, text, _is_kept(form, prefix), _read_held_value(form, f"{prefix}-text"))


def _prefixes(form: FormData, name: str, first: str, limit: int = MAX_PARTS) -> list[str]:
    prefixes: list[str] = []
    while f"{name}-{len(prefixes)}-{first}" in form or f"{name}-{len(prefixes)}-{first}-digest" in form:
        prefixes.append(f"{name}-{len(prefixes)}")
        if len(prefixes) > limit:
            raise UsageError(f"more than {limit} parts in one place; edit this case as raw JSON instead")
    return prefixes


def _origin(form: FormData, prefix: str) -> int | None:
    return number_of(text_of(form, f"{prefix}-origin"))


def _is_kept(form: FormData, prefix: str) -> bool:
    """A form without ticks keeps everything; `-tick` says that there is one, since an unticked one is not sent."""
    return f"{prefix}-tick" not in form or f"{prefix}-kept" in form


OP = re.compile(r"(?P<owner>(?:[a-z]{1,40}-\d{1,4}-)*)(?P<part>[a-z]+)(?:-(?P<index>\d{1,4}))?-(?P<verb>[a-z]+)")


def apply_op(draft: CaseDraft, op: str) -> str:
    """Apply a button of the form, in place; returns the id of the field to go on with.

    `turn-add`, `turn-1-up`, `turn-1-call-0-delete`, `turn-0-call-0-arg-2-quote`. Raises UsageError for anything else.
    """
    match = OP.fullmatch(op)
    if not match:
        raise UsageError(f"no button does {op[:VALUE_LIMIT]!r}")
    owner: DraftPart = draft
    for name, index in re.findall(r"([a-z]{1,40})-(\d{1,4})-", match["owner"]):
        owner = _at(_parts(owner, name, op)[0], int(index), op)
    parts, kind = _parts(owner, match["part"], op)
    verb, prefix = match["verb"], f"{match['owner']}{match['part']}"
    if match["index"] is None and verb == "add":
        parts.append(kind())
        if isinstance(owner, TurnDraft) and kind is CallDraft:
            owner.calls_mode = "calls"
        return f"{prefix}-{len(parts) - 1}-{_first_field(kind)}"
    if match["index"] is None:
        raise UsageError(f"no button does {op[:VALUE_LIMIT]!r}")
    index = int(match["index"])
    part = _at(parts, index, op)
    return f"{prefix}-{_rearrange(parts, part, index, verb, op)}-{_first_field(kind)}"


def _rearrange(parts: list[DraftPart], part: DraftPart, index: int, verb: str, op: str) -> int:
    """Where to look afterwards, as an index into `parts`."""
    if verb == "quote" and isinstance(part, ArgDraft):
        part.value = json_line(part.value)
        return index
    if verb == "delete":
        del parts[index]
        return max(min(index, len(parts) - 1), 0)
    if verb in {"up", "down"}:
        target = max(0, min(len(parts) - 1, index + (1 if verb == "down" else -1)))
        parts.insert(target, parts.pop(index))
        return target
    raise UsageError(f"no button does {op[:VALUE_LIMIT]!r}")


def _parts(owner: DraftPart, name: str, op: str) -> tuple[list[DraftPart], type[DraftPart]]:
    if (type(owner), name) not in _PARTS:
        raise UsageError(f"no button does {op[:VALUE_LIMIT]!r}")
    attribute, kind = _PARTS[type(owner), name]
    return getattr(owner, attribute), kind


def _at(parts: Sequence[DraftPart], index: int, op: str) -> DraftPart:
    if index >= len(parts):
        raise UsageError(f"no button does {op[:VALUE_LIMIT]!r}: that part is gone")
    return parts[index]


def _first_field(kind: type[DraftPart]) -> str:
    names = {TurnDraft: "query", CallDraft: "name", ArgDraft: "name", MessageDraft: "author", DecisionDraft: "tool"}
    return names.get(kind, "")

"""From a draft to a case: every field is checked, and keys that the form does not show are kept from the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from evaldesk.desk.criteria.criteria import bars_of_text
from evaldesk.desk.evalsets.names import check_case_id
from evaldesk.errors import UsageError
from evaldesk.model import Case, Decision, Expected, JsonObject, JsonValue, SessionInit, ToolCall, Turn
from evaldesk.model.decisions import ScriptedDecision, with_decisions
from evaldesk.model.evalset import CRITERIA, MOST_OWN_TRIALS, TRIALS
from evaldesk.pages.case_scenario import ScenarioTexts, required_actions, with_required_actions, with_scenario
from evaldesk.pages.case_whole import with_whole
from evaldesk.pages.large_state import Held, held_values
from evaldesk.pages.typed import Problems, json_object, json_value, typed_value
from evaldesk.web.cases.drafts import (
    CallDraft,
    CaseDraft,
    DecisionDraft,
    MessageDraft,
    TurnDraft,
    shown_criteria,
    shown_decisions,
    shown_trials,
)

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
    reading = _Reading(held_values(holder), problems)
    base = original or Case(id="")
    case_id = _as_before(draft.case_id, base.id)
    if case_id != base.id or not original:
        try:
            check_case_id(case_id)
        except UsageError as error:
            problems.add("case", "Case", str(error))
    kept_turns = [(index, turn) for index, turn in enumerate(draft.turns) if turn.is_kept]
    if not kept_turns and draft.scenario is None:
        problems.add("turns", "Turns", "A case needs at least one turn.")
    case = replace(
        base,
        id=case_id,
        turns=tuple(reading.turn(index, turn, (base, holder)) for index, turn in kept_turns),
        initial_session=reading.session(draft, base.initial_session),
        final_state=reading.final_state(draft),
        tags=reading.tags(draft.tags),
    )
    case = reading.criteria(draft, reading.trials(draft, case))
    if draft.scenario is not None:
        case = reading.scenario(draft, base, case)
    if draft.shows_decisions:
        scripted = list(reading.decisions(draft, [index for index, _ in kept_turns]))
        before = sorted(shown_decisions(base) or (), key=lambda each: (each.turn is None, each.turn or 0))
        case = case if scripted == before else with_decisions(case, scripted)
    origins = [(turn.origin, [call.origin for call in turn.calls if call.is_kept]) for _, turn in kept_turns]
    return with_whole(
        base, case, origins, (draft.outputs, draft.rubrics), problems, draft.accepted, draft.outcomes
    ), problems


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads the parts of a form; `values` are those that it names by their digest, `problems` gathers its faults."""

    values: Values
    problems: Problems

    def trials(self, draft: CaseDraft, case: Case) -> Case:
        """The case with its own number of trials."""
        if draft.trials is None or draft.trials.strip() == shown_trials(case):
            return case
        extra = {key: value for key, value in case.extra.items() if key != TRIALS}
        if text := draft.trials.strip():
            if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_OWN_TRIALS):
                words = f"Enter a whole number from 1 to {MOST_OWN_TRIALS:,}, or nothing."
                self.problems.add("trials", "Trials", words)
                return case
            extra = {**extra, TRIALS: int(text)}
        return replace(case, extra=extra)

    def criteria(self, draft: CaseDraft, case: Case) -> Case:
        """The case with the criteria that it names, in the form of the file where they fit it."""
        if draft.criteria is None or draft.criteria.strip() == shown_criteria(case):
            return case
        extra = {key: value for key, value in case.extra.items() if key != CRITERIA}
        try:
            bars = bars_of_text(draft.criteria)
        except UsageError as error:
            self.problems.add("criteria", "Criteria", f"{error}.")
            return case
        if bars:
            has_bars = any(bar is not None for bar in bars.values())
            extra = {**extra, CRITERIA: {**bars} if has_bars else [*bars]}
        return replace(case, extra=extra)

    def scenario(self, draft: CaseDraft, before: Case, case: Case) -> Case:
        """The case with the scenario and the required actions of `draft`."""
        texts = draft.scenario or ScenarioTexts()
        scenario = with_scenario(replace(before, extra=case.extra), texts, self.problems)
        case = replace(case, turns=(), scenario=scenario.scenario, extra=scenario.extra)
        if not draft.shows_actions:
            return case
        originals = required_actions(before) or ()
        calls = [
            self.call(f"action-{at}", f"Required action {at + 1}", call, originals)
            for at, call in enumerate(draft.actions)
        ]
        return with_required_actions(before, case, calls, [call.origin for call in draft.actions])

    def decisions(self, draft: CaseDraft, turn_indexes: list[int]) -> Iterator[ScriptedDecision]:
        """The decisions of the turns that are kept, which are numbered anew, then those of every turn."""
        for number, index in enumerate(turn_indexes):
            for at, each in enumerate(draft.turns[index].decisions):
                prefix, label = f"turn-{index}-decision-{at}", f"Turn {index + 1}, decision {at + 1}"
                yield ScriptedDecision(self.decision(each, prefix, label), number)
        for at, each in enumerate(draft.decisions):
            yield ScriptedDecision(self.decision(each, f"decision-{at}", f"Decision {at + 1}"))

    def decision(self, draft: DecisionDraft, prefix: str, label: str) -> Decision:
        value = _line_ends(draft.value)
        if draft.decision == "answer":
            if not value.strip():
                self.problems.add(f"{prefix}-value", label, "Enter the answer: JSON, or text.")
            return Decision("answer", draft.tool, answer=typed_value(value))
        if draft.decision == "deny":
            return Decision("deny", draft.tool, reason=value)
        return Decision("approve", draft.tool)

    def turn(self, index: int, draft: TurnDraft, cases: tuple[Case, Case]) -> Turn:
        """The turn of `draft`; `cases` hold the keys that the form does not show, and the texts as they were."""
        prefix, number = f"turn-{index}", index + 1
        before, source_turn = (_at(case.turns, draft.origin) or Turn(query="") for case in cases)
        label = f"Turn {number}, user message"
        query = _as_before(draft.query, source_turn.query)
        if draft.query_held:
            query = self.held_text(draft.query_held, f"{prefix}-query", label)
        elif not query.strip() and (draft.origin is None or (source_turn.query.strip() and not source_turn.media)):
            self.problems.add(f"{prefix}-query", label, "Enter the message of the user in this turn.")
        expected = replace(
            before.expected,
            tool_calls=self.calls(prefix, number, draft, before.expected),
            intermediate=self.intermediate(prefix, number, draft.intermediate, source_turn.expected.intermediate),
            reference=self.reference(prefix, number, draft, source_turn.expected.reference),
        )
        media = tuple(item for at, item in enumerate(source_turn.media) if at not in draft.left_out_media)
        return replace(before, query=query, expected=expected, media=media)

    def reference(self, prefix: str, number: int, draft: TurnDraft, before: str | None) -> str | None:
        """An empty field means no reference, unless the file says that the reference is empty."""
        if large_value := draft.reference_held:
            label = f"Turn {number}, reference answer"
            return self.held_text(large_value, f"{prefix}-reference", label) if large_value.is_kept else None
        reference = _as_before(draft.reference, before or "")
        return reference if reference or before == "" else None

    def calls(self, prefix: str, number: int, draft: TurnDraft, origin: Expected) -> tuple[ToolCall, ...] | None:
        if draft.calls_mode == "not_asserted":
            return None
        if draft.calls_mode == "no_tool":
            return ()
        kept_calls = [(index, call) for index, call in enumerate(draft.calls) if call.is_kept]
        if not kept_calls:
            label = f"Turn {number}, tool calls"
            sentence = "Add a call, or choose “No tool may be called” or “Not asserted”."
            self.problems.add(f"{prefix}-calls", label, sentence)
        calls = origin.tool_calls or ()
        return tuple(
            self.call(f"{prefix}-call-{index}", f"Turn {number}, call {index + 1}", call, calls)
            for index, call in kept_calls
        )

    def call(self, prefix: str, label: str, draft: CallDraft, originals: tuple[ToolCall, ...]) -> ToolCall:
        if not draft.name:
            self.problems.add(f"{prefix}-name", label, "Name the tool.")
        args: dict[str, JsonValue] = {}
        for index, arg in enumerate(draft.args):
            place = f"{prefix}-arg-{index}"
            if not arg.name and not arg.value.strip() and not arg.held_value:
                continue
            if not arg.name:
                self.problems.add(f"{place}-name", f"{label}, argument {index + 1}", "Name the argument.")
            elif arg.name in args:
                self.problems.add(f"{place}-name", f"{label}, {arg.name}", f"The argument {arg.name} is named twice.")
            if arg.held_value:
                args[arg.name] = self.value_of(arg.held_value, f"{place}-value", f"{label}, {arg.name or 'argument'}")
                continue
            try:
                args[arg.name] = json_value(arg.value)
            except UsageError as error:
                sentence = 'This is not JSON. Text stands in quotes, as in "Paris". ' + str(error)
                self.problems.add(f"{place}-value", f"{label}, {arg.name or 'argument'}", sentence)
                args[arg.name] = None
        origin = _at(originals, draft.origin) or ToolCall(name="")
        return replace(origin, name=draft.name, args=args)

    def intermediate(
        self, prefix: str, number: int, drafts: list[MessageDraft], before: tuple[tuple[str, str], ...]
    ) -> tuple[tuple[str, str], ...]:
        """Empty rows are left out; line ends stay as the file has them where nothing was changed."""
        texts_before = {(author.strip(), _line_ends(text)): (author, text) for author, text in before}
        responses = []
        for index, draft in enumerate(drafts):
            text = draft.text
            if draft.held_value and draft.is_kept:
                label = f"Turn {number}, intermediate response {index + 1}"
                large_text = self.held_text(draft.held_value, f"{prefix}-intermediate-{index}-text", label)
                text = _line_ends(large_text)
                texts_before.setdefault((draft.author, text), (draft.author, large_text))
            if draft.is_kept and (draft.author or text):
                responses.append(texts_before.get((draft.author, text), (draft.author, text)))
        return tuple(responses)

    def session(self, draft: CaseDraft, before: SessionInit | None) -> SessionInit | None:
        state = self.held_state(draft.initial_held, "initial", "Initial state")
        if draft.initial_held is None:
            state = self.object(draft.initial, "initial", "Initial state")
        base = before or SessionInit()
        session = replace(
            base,
            app_name=_as_before(draft.app_name, base.app_name),
            user_id=_as_before(draft.user_id, base.user_id),
            state=state or {},
        )
        return None if before is None and session == SessionInit() else session

    def final_state(self, draft: CaseDraft) -> JsonObject | None:
        if draft.final_held:
            return self.held_state(draft.final_held, "final", "Expected final state")
        return self.object(draft.final, "final", "Final state") if draft.final.strip() else None

    def object(self, text: str, name: str, label: str) -> JsonObject:
        try:
            return json_object(text)
        except UsageError as error:
            self.problems.add(name, label, str(error))
            return {}

    def held_state(self, large_value: Held | None, name: str, label: str) -> JsonObject | None:
        """The state that stayed at the server; None where there is none, and where it is left out."""
        if large_value is None or not large_value.is_kept:
            return None
        value = self.value_of(large_value, name, label)
        return value if isinstance(value, dict) else None

    def value_of(self, large_value: Held, name: str, label: str) -> JsonValue:
        if large_value.digest not in self.values:
            self.problems.add(name, label, CHANGED)
        return self.values.get(large_value.digest)

    def held_text(self, large_value: Held, name: str, label: str) -> str:
        value = self.value_of(large_value, name, label)
        return value if isinstance(value, str) else ""

    def tags(self, text: str) -> tuple[str, ...]:
        tags = tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))
        if len(tags) > MAX_TAGS:
            self.problems.add("tags", "Tags", f"At most {MAX_TAGS} tags; these are {len(tags)}.")
        return tags


def _as_before(text: str, before: str) -> str:
    """`before` where a browser could have made `text` of it: an edit elsewhere changes nothing here."""
    return before if text in {_line_ends(before), _line_ends(before).strip()} else text


def _line_ends(text: str) -> str:
    """`text` as a form gives it back: its line ends, and no NUL, which a page cannot hold."""
    return text.replace("\0", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")


def _at(parts: tuple[T, ...], index: int | None) -> T | None:
    return parts[index] if index is not None and index < len(parts) else None

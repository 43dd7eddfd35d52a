"""Proposals of coding agents: stored beside everything, and accepted, edited, answered or refused by a person."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from evaldesk.desk.evalsets.cases import CaseIds, CaseNameTakenError, case_keys
from evaldesk.desk.evalsets.names import check_case_id, free_name
from evaldesk.desk.failures import (
    MAX_FINDING,
    MAX_QUOTE,
    MAX_TEXT,
    TypedFinding,
    TypedMode,
    checked_texts,
    literal_anchor,
)
from evaldesk.desk.labels import checked_name, checked_note
from evaldesk.desk.proposed_cases import adds_quarantine, check_proposed, check_quarantine
from evaldesk.desk.runs.accepting import Effect, effect_of, stage, trials_of, verdicts_by
from evaldesk.desk.runs.rescoring import played_run_id
from evaldesk.errors import BrokenRowError, ConflictError, EvaldeskError, FormatError, NotFoundError, UsageError
from evaldesk.formats import case_from_json, case_from_text, case_to_json
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case, JsonValue, TrialResult
from evaldesk.model.evalset import LargeCases
from evaldesk.model.proposals import (
    REVIEWER_MARK,
    UNKNOWN_CLIENT,
    Proposal,
    ProposalDraft,
    ProposalStatus,
    marked_client,
)
from evaldesk.model.stored import TrialKey
from evaldesk.reading.strict_json import parse_json
from evaldesk.secrets import scrubber
from evaldesk.wire import converted, json_scrubber, to_json

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk

MAX_CLIENT = 80
MAX_PATCH_DEPTH = 40
_OF_CASES = ("case", "edit", "expectation")
# Two clicks of a person are two threads of one process.
_answering = Lock()
_NEXT_STEP = "another program wrote it; correct or delete that row with SQL"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Made:
    """A stored proposal; `is_joined` to an equal open one, `is_masked` where a secret in it was masked."""

    id: int
    is_joined: bool
    is_masked: bool


@dataclass(frozen=True, slots=True)
class FindingTexts:
    """The content of a proposed finding; the turn counts from 0."""

    kind: str
    quote: str
    note: str
    turn: int | None


@dataclass(frozen=True, slots=True)
class ProposalEffect:
    """The effect of a proposed change alone on the trials of a case of a run, without the agent playing again.

    Where the case `is_edited` since the run, that edit is on both sides of the effect.
    """

    run: int
    effect: Effect
    case_index: int
    trials: Sequence[TrialResult]
    is_edited: bool = False


class ClientProposalDesk:
    """The proposals of a workspace. Works on files and the database: from pages, call it in a thread."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store.client_proposals
        self._scrub = json_scrubber(desk.settings.environment)
        self._scrub_text = scrubber(desk.settings.environment)

    def propose_case(self, client: str, evalset_id: str, case: JsonValue, why: str = "") -> Made:
        """Propose a new case at the end of an eval set. Raises FormatError, UsageError, CaseNameTakenError."""
        new_case = _read_case(case)
        check_case_id(new_case.id)
        check_proposed(new_case, None)
        evalset = self._desk.evalsets.evalset(evalset_id)
        if new_case.id in CaseIds(evalset.cases):
            raise ConflictError(f"the eval set has a case {new_case.id!r} already; propose_edit changes it")
        draft = ProposalDraft("case", _text(new_case), why=why, evalset_id=evalset_id, case_id=new_case.id)
        return self._store_draft(client_name(client), draft)

    def propose_edit(self, client: str, evalset_id: str, case_id: str, patch: JsonValue, why: str) -> Made:
        """Propose a change of a case as a JSON merge patch (RFC 7396) of its JSON. Raises FormatError, UsageError."""
        case = self._case(evalset_id, case_id)
        if not isinstance(patch, dict) or not patch:
            raise UsageError("patch must be a JSON object with the keys of the case that change", field="patch")
        after = _read_case(_merged(case_to_json(case), patch))
        if after.id != case.id:
            raise UsageError(f"a patch keeps the id of the case, {case.id!r}, got {after.id!r}", field="patch")
        check_proposed(after, case)
        return self._propose_change(client_name(client), "edit", evalset_id, case, after, why)

    def propose_expectation(
        self, client: str, run_id: int, case_id: str, trial_index: int, ways: Mapping[str, str], why: str = ""
    ) -> Made:
        """Propose values of a trial as expectations: keys and ways as `evaldesk accept` has them.

        Raises UsageError with the offered ones for others.
        """
        staged = stage(self._desk, self._desk.store.runs.summary(run_id), case_id, trial_index)
        if not staged.cases:
            raise UsageError(staged.refusals.get(case_id, "the trial has no difference to propose"))
        (staged_case,) = staged.cases
        ways_by_key = {change.key: change.ways for change in staged_case.offered}
        wrong_key = next((key for key, way in ways.items() if way not in ways_by_key.get(key, ())), None)
        if wrong_key is not None or not ways:
            offers = "; ".join(f"{key}: {', '.join(each)}" for key, each in ways_by_key.items())
            fault = "name at least one" if wrong_key is None else f"{wrong_key} is not offered"
            raise UsageError(f"parts: {fault}; offered are {offers}", field="parts")
        after = staged_case.with_changes(ways)  # type: ignore[arg-type]
        draft = ProposalDraft(run=run_id, kind="expectation", after="", trial=None)
        return self._propose_change(
            client_name(client), "expectation", staged.evalset_id, staged_case.case, after, why, draft, trial_index
        )

    def propose_answer(self, reader: str, run_id: int, key: TrialKey, turn: int, text: str) -> Made:
        """Propose the answer that a reader of a trial wrote as the reference of a turn, counted from 0.

        Raises UsageError naming the field, NotFoundError where the case is gone.
        """
        name = checked_name(reader)
        if not text.strip():
            raise UsageError("Write the correct answer.", field="answer")
        run = self._desk.store.runs.summary(run_id)
        case_id = self._desk.store.runs.case(run_id, key[0]).id
        evalset_id = self._desk.evalsets.id_of_run(run.config)
        if not evalset_id:
            raise UsageError("The eval set of this run is not in this workspace.", field="answer")
        case = self._case(evalset_id, case_id)
        if not 0 <= turn < len(case.turns):
            raise UsageError(f"Case {case_id!r} has no turn {turn + 1} with an expected answer.", field="turn")
        turns = list(case.turns)
        turns[turn] = replace(turns[turn], expected=replace(turns[turn].expected, reference=text.strip()))
        draft = ProposalDraft(run=run_id, kind="expectation", after="", trial=None)
        after = replace(case, turns=tuple(turns))
        made_by = f"{REVIEWER_MARK}{name}"
        return self._propose_change(made_by, "expectation", evalset_id, case, after, "", draft, key[1])

    def propose_finding(
        self, client: str, run_id: int, case_id: str, key: tuple[int, int], turn: int | None, texts: TypedFinding
    ) -> Made:
        """Propose a finding whose quote stands in its trial letter by letter; the turn counts from 0.

        Raises UsageError, NotFoundError.
        """
        run = self._desk.store.runs.summary(run_id)
        if not texts.quote.strip():
            raise UsageError("quote: copy words of the trial; blanks alone show nothing", field="quote")
        result = self._desk.store.runs.trial(run_id, *key)
        anchor = literal_anchor(result, texts.quote)
        if anchor is None:
            raise UsageError("quote: the trial has these words nowhere, letter by letter", field="quote")
        if turn is not None and anchor.turn != turn:
            only_turn = replace(
                result,
                transcript=replace(result.transcript, turns=result.transcript.turns[turn : turn + 1]),
                error=None,
            )
            if literal_anchor(only_turn, texts.quote) is None:
                raise UsageError(f"quote: turn {turn + 1} has these words nowhere, letter by letter", field="quote")
        name = checked_texts(TypedMode(texts.new_mode))["name"]
        note = checked_note(texts.note, MAX_FINDING, "note")
        at = anchor.turn if turn is None else turn
        content = {"kind": name, "quote": texts.quote, "note": note, "turn": at}
        draft = ProposalDraft(
            "finding",
            json.dumps(content, ensure_ascii=False),
            evalset_id=self._desk.evalsets.id_of_run(run.config) or run.config.evalset_id,
            case_id=case_id,
            run=run_id,
            trial=key,
        )
        return self._store_draft(client_name(client), draft)

    def propose_kind(self, client: str, texts: TypedMode) -> Made:
        """Propose a kind of failure. Raises UsageError, also for one that exists."""
        mode_texts = checked_texts(texts)
        with suppress(NotFoundError):
            mode = self._desk.failures.find_mode(mode_texts["name"])
            raise UsageError(f"there is a kind of failure “{mode.name}” already; propose_finding can name it")
        draft = ProposalDraft("kind", json.dumps(mode_texts, ensure_ascii=False), case_id=mode_texts["name"])
        return self._store_draft(client_name(client), draft)

    def _propose_change(
        self,
        made_by: str,
        kind: Any,
        evalset_id: str,
        before: Case,
        after: Case,
        why: str,
        of_trial: ProposalDraft | None = None,
        trial_index: int | None = None,
    ) -> Made:
        if after == before:
            raise UsageError("nothing would change: the case is so already")
        text = _text(before).encode()
        if self._scrub(text) != text:  # to accept it would write a mask over the secret
            raise UsageError(f"case {before.id!r} has a secret in its file; a person edits it")
        run = of_trial.run if of_trial else None
        trial = None
        if run is not None and trial_index is not None:
            index = self._desk.store.runs.find_case(run, before.id)
            trial = None if index is None else (index, trial_index)
        draft = ProposalDraft(kind, _text(after), _text(before), why, evalset_id, before.id, run, trial)
        return self._store_draft(made_by, draft)

    def _store_draft(self, made_by: str, draft: ProposalDraft) -> Made:
        why = checked_note(draft.why, MAX_TEXT, "why")
        after = self._scrub(draft.after.encode()).decode()
        stored = replace(draft, after=after, why=self._scrub_text(why), case_id=self._scrub_text(draft.case_id))
        is_masked = (stored.after, stored.why) != (draft.after, why)
        proposal_id, is_joined = self._store.propose(stored, made_by)
        return Made(proposal_id, is_joined, is_masked)

    def current(self, draft: ProposalDraft) -> Case:
        """The case of a proposal as its eval set has it now. Raises NotFoundError, FormatError."""
        return self._case(draft.evalset_id, draft.case_id)

    def _case(self, evalset_id: str, case_id: str) -> Case:
        evalset = self._desk.evalsets.evalset(evalset_id)
        cases = evalset.cases.with_ids([case_id]) if isinstance(evalset.cases, LargeCases) else evalset.cases
        case = next((each for each in cases if each.id == case_id), None)
        if case is None:
            raise NotFoundError.among("case", case_id, [each.id for each in evalset.cases[:2_000]])
        return case

    def list(
        self,
        status: ProposalStatus | None = "open",
        *,
        evalset_id: str | None = None,
        case_id: str | None = None,
        run: int | None = None,
    ) -> Sequence[Proposal]:
        """Proposals, the newest first."""
        return self._store.list(status, evalset_id=evalset_id, case_id=case_id, run=run)

    def get(self, proposal_id: int) -> Proposal:
        """A proposal; it follows an eval set that another program renamed. Raises NotFoundError."""
        self._desk.evalsets.list()
        return self._store.get(proposal_id)

    def effect(self, proposal: Proposal) -> ProposalEffect | None:
        """The verdicts of trials by the changed case, of its run, else of the newest run that has the case."""
        draft = proposal.draft
        if draft.kind not in ("edit", "expectation"):
            return None
        runs = self._desk.store.runs
        try:
            summaries = [runs.summary(draft.run)] if draft.run else runs.list(evalset_id=draft.evalset_id, limit=5)
            before, case = _case_before(draft), case_of(draft)
            for run in summaries:
                index = runs.find_case(run.id, draft.case_id)
                if index is None or not (trials := trials_of(self._desk, run, runs.case_row(run.id, index))):
                    continue
                played_case = runs.case(run.id, index)
                verdicts = verdicts_by(trials, before or played_case, run.config, played_case)
                is_edited = before is not None and case_version(before) != case_version(played_case)
                effect = effect_of(trials, case, run.config, verdicts)
                return ProposalEffect(run.id, effect, index, trials, is_edited)
        except (EvaldeskError, ValueError):  # the run or its eval set is gone
            return None
        return None

    def accept(
        self, proposal_id: int, author: str, seen: str, *, edited: str | None = None, is_new_case: bool = False
    ) -> Proposal:
        """Carry out a proposal in the name of a person; `seen` is the `draft_version` that the person looked at.

        `edited` is the content as JSON where the person changed it first. With `is_new_case` a changed case becomes
        another one beside its case. Raises UsageError without a name, ConflictError where it was decided, or it or its
        case changed meanwhile, FormatError for an edit that is no such content.
        """
        name = checked_name(author)
        with _answering:
            proposal = self.get(proposal_id)
            if proposal.status != "open":
                raise ConflictError(f"proposal {proposal_id} was {proposal.status} by {proposal.decided_by} already")
            if seen != draft_version(proposal.draft):
                raise ConflictError(f"proposal {proposal_id} is another than the one on the page; look at it again")
            if edited is not None:
                proposal = replace(proposal, edited=self._edited_text(proposal.draft, edited))
            self._desk.person.keep_typed_name(name)
            undo = self._add_beside(proposal) if is_new_case else self._carry_out(proposal, name)
            self._store.decide(proposal_id, "accepted", name, undo, proposal.edited)
        return self._store.get(proposal_id)

    def _add_beside(self, proposal: Proposal) -> str:
        """Add the changed case as another one of its eval set; gives the key that takes it back."""
        draft, cases = proposal.accepted_draft, self._desk.evalsets.cases
        if draft.kind not in ("edit", "expectation"):
            raise UsageError("only a change of a case can become a case beside it")
        after = case_of(draft)
        used_ids = CaseIds(self._desk.evalsets.evalset(draft.evalset_id).cases)
        return f"case {cases.add(draft.evalset_id, replace(after, id=free_name(after.id, used_ids))).key}"

    def _edited_text(self, draft: ProposalDraft, edited: str) -> str:
        """The content of a draft that a person wrote as JSON. Raises FormatError, UsageError."""
        value = parse_json(edited.encode("utf-8", "surrogatepass"), source="the proposal").value
        if draft.kind in _OF_CASES:
            case = _read_case(value)
            if case.id != draft.case_id:
                raise UsageError(f"the id of the case stays {draft.case_id!r}, got {case.id!r}", field="edited")
            return _text(case)
        texts: FindingTexts | TypedMode
        try:
            texts = converted(value, FindingTexts) if draft.kind == "finding" else converted(value, TypedMode)
        except msgspec.ValidationError as error:
            raise FormatError(f"the proposal: {error}") from error
        if isinstance(texts, TypedMode):
            return json.dumps(checked_texts(texts), ensure_ascii=False)
        run_id, key = self._trial(draft)
        trial = self._desk.store.runs.trial(run_id, *key)
        if not texts.quote.strip() or literal_anchor(trial, texts.quote) is None:
            raise UsageError("quote: the trial has these words nowhere, letter by letter", field="edited")
        checked_texts(TypedMode(texts.kind))
        checked_note(texts.note, MAX_FINDING, "note")
        if texts.turn is not None:
            n_turns = len(trial.transcript.turns)
            if not 1 <= texts.turn <= n_turns:
                raise UsageError(f"turn must be from 1 to {n_turns}, got {texts.turn}", field="edited")
            texts = replace(texts, turn=texts.turn - 1)
        return json.dumps(msgspec.to_builtins(texts), ensure_ascii=False)

    def reply(self, proposal_id: int, author: str, text: str) -> Proposal:
        """Answer the coding agent in words; get_case and the tools that propose give them. Raises UsageError."""
        name = checked_name(author)
        words = checked_note(text, MAX_TEXT, "reply").strip()
        if not words:
            raise UsageError("Write the answer.", field="reply")
        self._store.get(proposal_id)
        self._desk.person.keep_typed_name(name)
        self._store.reply(proposal_id, f"{name}: {self._scrub_text(words)}")
        return self._store.get(proposal_id)

    def _carry_out(self, proposal: Proposal, author: str) -> str:
        """Make the change, or find it made by a process that was killed then; gives the key that takes it back."""
        draft = proposal.accepted_draft
        if draft.kind == "finding":
            return f"finding {self._find(draft, author)}"
        if draft.kind == "kind":
            mode_id = self._mode_id(draft)
            return f"kind {self._desk.failures.create(mode_texts(draft), author) if mode_id is None else mode_id}"
        cases, after = self._desk.evalsets.cases, case_of(draft)
        if draft.kind == "case":
            if not proposal.edited:
                check_quarantine(after, None)
            with suppress(CaseNameTakenError):
                return f"case {cases.add(draft.evalset_id, after).key}"
            if self._case(draft.evalset_id, after.id) == after:
                return f"case {case_keys([after])[0]}"
            raise ConflictError(f"the eval set has another case {after.id!r} by now; refuse this one, or rename that")
        current = self.current(draft)
        found_case = cases.find(draft.evalset_id, case_keys([current])[0])
        before = found_case.case
        after = merged_case(draft, before)
        # The version of a case does not tell its tags, so a proposal from before would put it back without a word.
        if not proposal.edited and adds_quarantine(after, before):
            raise ConflictError(
                f"case {draft.case_id!r} was taken out of quarantine since it was proposed; make the change yourself, "
                "or refuse it"
            )
        if after == before and (token := self._token_of_edit(draft, after)):
            return f"edit {token}"
        token = cases.store_edits(draft.evalset_id, [(before, after)])
        try:
            cases.save(draft.evalset_id, found_case.key, after, found_case.version)
        except BaseException:
            cases.edits.discard(token)
            raise
        return f"edit {token}"

    def _token_of_edit(self, draft: ProposalDraft, after: Case) -> str:
        """The key of the edit that a process made before it was killed; empty where there is none."""
        files = self._desk.evalsets.cases.edits.files()
        tokens = (file.token for file in files if file.evalset_id == draft.evalset_id and _is_edit(file.rows, after))
        return next(tokens, "")

    def _find(self, draft: ProposalDraft, author: str) -> int:
        run_id, key = self._trial(draft)
        texts = finding_texts(draft)
        made_before = self._findings(draft, author)
        if made_before:
            return made_before[0]
        transcript = self._desk.store.runs.trial(run_id, *key).transcript
        turn = "" if texts.turn is None else str(texts.turn)
        # The person reads the name, so it is meant also where it begins that of another kind.
        form = TypedFinding(author, texts.note, "", texts.kind, turn, "", texts.quote, is_new=True)
        return self._desk.failures.add(run_id, key, form, transcript)

    def _trial(self, draft: ProposalDraft) -> tuple[int, TrialKey]:
        if draft.run is None or draft.trial is None:
            raise NotFoundError("the trial of this finding is not known")
        return played_run_id(self._desk.store.runs, draft.run), draft.trial

    def _findings(self, draft: ProposalDraft, author: str) -> Sequence[int]:
        """The findings of a person that a proposal would make, or made."""
        texts = finding_texts(draft)
        try:
            mode_id = self._desk.failures.find_mode(texts.kind).id
        except NotFoundError:
            return []
        fields = (author, mode_id, texts.note, "counted")
        quotes = ("", texts.quote.strip()[:MAX_QUOTE])
        return [
            each.id
            for each in self._desk.failures.of_trial(*self._trial(draft))
            if (each.author, each.mode_id, each.note, each.status) == fields and each.anchor.quote in quotes
        ]

    def _mode_id(self, draft: ProposalDraft) -> int | None:
        """The kind of failure in use with the texts of the proposal."""
        texts = mode_texts(draft)
        with suppress(NotFoundError):
            mode = self._desk.failures.find_mode(texts.name)
            if TypedMode(mode.name, mode.definition, mode.example_yes, mode.example_no) == texts:
                return mode.id
        return None

    def refuse(self, proposal_id: int, author: str) -> Proposal:
        """Refuse a proposal in the name of a person. Raises UsageError, NotFoundError, ConflictError."""
        name = checked_name(author)
        self._store.get(proposal_id)
        self._desk.person.keep_typed_name(name)
        self._store.decide(proposal_id, "refused", name)
        return self._store.get(proposal_id)

    def undo(self, proposal_id: int, author: str) -> Proposal:
        """Take back the answer to a proposal, with the change of an acceptance; it is open again.

        Raises ConflictError where that was edited since.
        """
        name = checked_name(author)
        proposal = self.get(proposal_id)
        if proposal.status == "open":
            raise ConflictError(f"proposal {proposal_id} is open; there is nothing to take back")
        if proposal.status == "accepted" and not self._is_taken_back(proposal):
            self._take_back(proposal, name)
        self._store.reopen(proposal_id, proposal.status)
        return self._store.get(proposal_id)

    def _is_taken_back(self, proposal: Proposal) -> bool:
        """Whether the change is gone: by the trash, by a person, or by an undo that was killed before the last step.

        Raises ConflictError where the change of an edit stands and its undo is used up.
        """
        draft, cases = proposal.accepted_draft, self._desk.evalsets.cases
        kind, _, key = proposal.undo.partition(" ")
        if kind == "case" and draft.kind in _OF_CASES:
            try:
                cases.find(draft.evalset_id, key)
            except NotFoundError:
                return True
        if kind == "edit" and draft.kind in ("edit", "expectation") and not cases.edits.rows(key, draft.evalset_id):
            self._check_taken_back(draft)
            return True
        if kind == "finding" and draft.kind == "finding" and key.isdecimal():
            return self._is_finding_gone(draft, int(key))
        return kind == "kind" and draft.kind == "kind" and key.isdecimal() and self._is_kind_gone(draft, int(key))

    def _take_back(self, proposal: Proposal, author: str) -> None:
        """Take the change back. The key is of the database, so it must lead to what the proposal says."""
        draft, cases = proposal.accepted_draft, self._desk.evalsets.cases
        kind, _, key = proposal.undo.partition(" ")
        if kind == "case" and draft.kind in _OF_CASES:
            case = cases.find(draft.evalset_id, key).case
            is_beside = draft.kind != "case" and case.id != draft.case_id
            if case != (replace(case_of(draft), id=case.id) if is_beside else case_of(draft)):
                raise ConflictError(f"case {draft.case_id!r} was edited since; delete it on its page")
            cases.delete(draft.evalset_id, [key])
        elif kind == "edit" and draft.kind in ("edit", "expectation"):
            edits = [(after.id, case_version(after)) for _, after in cases.edits.rows(key, draft.evalset_id)]
            if edits != [(draft.case_id, case_version(case_of(draft)))]:
                raise _broken_undo(proposal)
            cases.take_back(draft.evalset_id, key)
        elif kind == "finding" and draft.kind == "finding":
            findings = {str(each): each for each in self._findings(draft, proposal.decided_by)}
            if key not in findings:
                raise ConflictError("the finding was changed or taken away since; look at it on the page of its trial")
            self._desk.failures.remove(findings[key], author)
        elif kind == "kind" and draft.kind == "kind":
            mode_id = self._mode_id(draft)
            if key != str(mode_id) or mode_id is None:
                raise ConflictError("the kind of failure was changed since; retire it on its page")
            self._desk.failures.retire(mode_id, author)
        else:
            raise _broken_undo(proposal)

    def _check_taken_back(self, draft: ProposalDraft) -> None:
        """Raise ConflictError where the change of an accepted edit, whose undo is used up, still stands."""
        try:
            current = self.current(draft)
        except NotFoundError:  # deleted with its change
            return
        before, after = _case_before(draft), case_of(draft)
        if before is None:
            is_back = case_version(current) == draft.before
        else:
            values, old = _keys_of(current), _keys_of(before)
            is_back = all(values.get(key) == old.get(key) for key in changed_keys(before, after))
        if not is_back:
            raise ConflictError(
                f"the undo of this edit of case {draft.case_id!r} is no longer in the trash; edit the case on its page"
            )

    def _is_finding_gone(self, draft: ProposalDraft, finding_id: int) -> bool:
        """Whether no trial has the finding any more."""
        findings = (*self._desk.failures.of_trial(*self._trial(draft)), *self._desk.store.failures.list())
        return all(each.id != finding_id for each in findings)

    def _is_kind_gone(self, draft: ProposalDraft, mode_id: int) -> bool:
        """Whether the kind of failure with the texts of the proposal is in use no longer."""
        texts = mode_texts(draft)
        modes = [each for each in self._desk.store.failures.modes() if each.id == mode_id]
        return all(each.name == texts.name and not each.is_active for each in modes)


def merged_case(draft: ProposalDraft, current: Case) -> Case:
    """The case of now with the change of a proposal: the keys that it changes, and all others as people left them.

    Raises ConflictError where the content of the case, or a key that it changes, is another by now.
    """
    after = case_of(draft)
    before = _case_before(draft)
    if before is None:  # of an older desk: the version tells messages, expectations and session alone
        if current != after and case_version(current) != draft.before:
            raise _changed_since(draft)
        return after
    keys = changed_keys(before, after)
    values, values_before, values_after = (_keys_of(case) for case in (current, before, after))
    if all(values.get(key) == values_after.get(key) for key in keys):
        return current
    is_other = case_version(current) != case_version(before)
    if is_other or any(values.get(key) != values_before.get(key) for key in keys):
        raise _changed_since(draft)
    if values == values_before:
        return after
    names = [*values, *(key for key in values_after if key not in values)]
    wanted_values = {key: values_after if key in keys else values for key in names}
    return _read_case({key: source[key] for key, source in wanted_values.items() if key in source})


def changed_keys(before: Case, after: Case) -> frozenset[str]:
    """The keys of a case that differ, such as `conversation` and `tags`."""
    old, new = _keys_of(before), _keys_of(after)
    return frozenset(key for key in {**old, **new} if old.get(key) != new.get(key))


def _keys_of(case: Case) -> dict[str, Any]:
    return dict(case_to_json(case))


def _case_before(draft: ProposalDraft) -> Case | None:
    """The case as it was proposed on; None for a proposal of an older desk. Raises BrokenRowError."""
    if not draft.before.startswith("{"):
        return None
    try:
        return case_from_text(draft.before, "the case before")
    except FormatError as error:
        raise BrokenRowError(f"table proposal: {error}; {_NEXT_STEP}") from error


def _changed_since(draft: ProposalDraft) -> ConflictError:
    return ConflictError(
        f"case {draft.case_id!r} changed since it was proposed; make the change yourself, or refuse it"
    )


def _is_edit(rows: Sequence[tuple[Case, Case]], after: Case) -> bool:
    return len(rows) == 1 and rows[0][0] != after == rows[0][1]


def draft_version(draft: ProposalDraft) -> str:
    """The version of the content of a proposal: another one where a row was changed."""
    return hashlib.sha256(to_json(draft)).hexdigest()[:16]


def case_of(draft: ProposalDraft) -> Case:
    """The case that a stored proposal would make. Raises BrokenRowError for a row of somebody else."""
    if draft.kind not in _OF_CASES:
        raise BrokenRowError(f"table proposal: a proposal of the kind {draft.kind!r:.80} has no case; {_NEXT_STEP}")
    try:
        case = case_from_text(draft.after, "the proposal")
    except FormatError as error:
        raise BrokenRowError(f"table proposal: {error}; {_NEXT_STEP}") from error
    if case.id != draft.case_id:
        raise BrokenRowError(f"table proposal: after is of another case than {draft.case_id!r:.80}; {_NEXT_STEP}")
    return case


def content_of(draft: ProposalDraft) -> Any:
    """The case or the texts of a stored proposal as JSON, with turns from 1.

    Raises BrokenRowError for a row of somebody else.
    """
    if draft.kind in _OF_CASES:
        return case_to_json(case_of(draft))
    if draft.kind != "finding":
        return msgspec.to_builtins(mode_texts(draft))
    texts = finding_texts(draft)
    return msgspec.to_builtins(replace(texts, turn=None if texts.turn is None else texts.turn + 1))


def finding_texts(draft: ProposalDraft) -> FindingTexts:
    """The content of a proposed finding. Raises BrokenRowError for a row of somebody else."""
    return _texts(draft, "finding", FindingTexts)


def mode_texts(draft: ProposalDraft) -> TypedMode:
    """The content of a proposed kind of failure. Raises BrokenRowError for a row of somebody else."""
    return _texts(draft, "kind", TypedMode)


def _texts(draft: ProposalDraft, kind: str, texts: type[T]) -> T:
    try:
        if draft.kind != kind:
            raise FormatError(
                f"kind must be one of {', '.join((*_OF_CASES, 'finding', 'kind'))}, got {draft.kind!r:.80}"
            )
        return converted(parse_json(draft.after.encode("utf-8", "surrogatepass"), source="the proposal").value, texts)
    except (FormatError, msgspec.ValidationError) as error:
        raise BrokenRowError(f"table proposal: {error}; {_NEXT_STEP}") from error


def _broken_undo(proposal: Proposal) -> BrokenRowError:
    return BrokenRowError(
        f"table proposal, row id {proposal.id}: undo is not of this proposal, got {proposal.undo!r:.80}; {_NEXT_STEP}"
    )


def client_name(text: str) -> str:
    """The name of a coding agent in one line of MAX_CLIENT characters, marked so that it is no name of a person."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return marked_client(line)[:MAX_CLIENT].rstrip() if line else UNKNOWN_CLIENT


def _read_case(value: JsonValue) -> Case:
    """The case, that its file would have; Raises FormatError naming the place."""
    if not isinstance(value, dict):
        raise FormatError("case: must be a JSON object, as get_case gives it")
    return case_from_json(value, "case")


def _text(case: Case) -> str:
    return json.dumps(case_to_json(case), ensure_ascii=False)


def _merged(value: Any, patch: Any, depth: int = 0) -> Any:
    """The value with a merge patch: null takes a key away, an object is merged, all else replaces (RFC 7396)."""
    if depth > MAX_PATCH_DEPTH:
        raise UsageError(f"patch: more than {MAX_PATCH_DEPTH} objects within one another", field="patch")
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        if each is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), each, depth + 1)
    return result

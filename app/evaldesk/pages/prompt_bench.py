"""The prompt bench: the instructions of an agent as a draft, its difference to the files, its plan, earlier drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evaldesk.agents import AGENTS
from evaldesk.agents.own.instruction import placeholders
from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.desk import Desk
from evaldesk.desk.experiments.bench import (
    Instruction,
    TriedDraft,
    draft_estimate,
    instructions_of,
    read_draft,
    with_line_feeds,
)
from evaldesk.desk.experiments.prompts import ENDING, FOLDER, KeptPrompt, SavedDraft, names_by_text
from evaldesk.errors import FormatError, NotFoundError, UsageError
from evaldesk.model import AgentDescription
from evaldesk.model.draft import INSTRUCTION, OWN
from evaldesk.model.stored import Draft, EvalSetFile, StoredSession
from evaldesk.pages.analysis_plots import Forest, forest_of_differences
from evaldesk.pages.case_text import Line, changed_lines
from evaldesk.wording.experiments import drafts_sentence, shown_sentence, variant_difference_words
from evaldesk.wording.words import cost_words, duration_words

MOST_TYPED, MOST_DIGITS = 1_000, 6
"""Trials of a case."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A placeholder of an instruction, and whether the state has its key."""

    key: str
    is_missing: bool


@dataclass(frozen=True, slots=True)
class DraftText:
    """One instruction as it is drafted, with the lines that differ from the agent's own and its placeholders."""

    instruction: Instruction
    text: str
    lines: Sequence[Line]
    holes: Sequence[Hole]

    @property
    def is_changed(self) -> bool:
        """Whether it differs from the agent's own."""
        return self.text != with_line_feeds(self.instruction.text)

    @property
    def n_added(self) -> int:
        """Lines that only the draft has."""
        return sum(line.op == "+" for line in self.lines)

    @property
    def n_removed(self) -> int:
        """Lines that only the agent's own instruction has."""
        return sum(line.op == "-" for line in self.lines)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """A run of the draft against the original: trials of a case, detectable difference and cost in words."""

    n: int
    difference: str
    cost: str
    problem: str = ""

    @property
    def words(self) -> str:
        """`30 cases × 3 show 12 points, 4 times in 5. 30 × 3 × 2 = 180 trials, about $0.53.`, or the problem."""
        return self.problem or f"{self.difference}. {self.cost}."


@dataclass(frozen=True, slots=True)
class TriedRow:
    """A draft that was run: its answer, and in words its trials and the file in which it is kept."""

    name: str
    experiment_id: int
    word: str
    details: str
    words: str
    is_live: bool
    is_text_of_page: bool
    evalset: str
    n: int


@dataclass(frozen=True, slots=True)
class TriedPanel:
    """The drafts so far, newest first: one sentence, the plot of their differences, and a row of each."""

    sentence: str
    rest: str
    forest: Forest | None
    rows: Sequence[TriedRow]
    confirmed: TriedRow | None

    @property
    def is_live(self) -> bool:
        """Whether a draft is being played."""
        return any(row.is_live for row in self.rows)


@dataclass(frozen=True, slots=True)
class BenchDraft:
    """The draft of a person: where it was loaded from, the typed texts, and the choices of its run."""

    texts: Mapping[str, str]
    name: str = ""
    evalset: str = ""
    n: str = ""
    of: str = INSTRUCTION


@dataclass(frozen=True, slots=True)
class BenchPage:
    """All that the prompt bench shows of an agent. `problem` says why the draft cannot be used as it is."""

    agent: FoundAgent
    session: StoredSession | None
    texts: Sequence[DraftText]
    draft: Draft
    typed: BenchDraft
    evalsets: Sequence[EvalSetFile]
    plan: DraftPlan | None
    tried: TriedPanel
    prompts: Sequence[KeptPrompt]
    saved: SavedDraft | None = None
    problem: str = ""

    @property
    def is_other_chat(self) -> bool:
        """Whether the chat beside the draft was played with other instructions."""
        return self.session is not None and dict(self.session.draft) != dict(self.draft)

    @property
    def query(self) -> Mapping[str, str]:
        """The part of the address that names the agent and the chat."""
        return {"session": self.session.id} if self.session else {"agent": self.agent.id}


def read_bench(
    desk: Desk, agent: FoundAgent, session: StoredSession | None, typed: BenchDraft, *, with_tried: bool = True
) -> BenchPage:
    """The page of a draft. It reads eval sets and trials, so it may take a while."""
    instructions = instructions_of(agent.description) if agent.description else ()
    problem, draft = "", OWN
    try:
        draft = read_draft(instructions, typed.texts)
    except UsageError as error:
        problem = str(error)
    files = [file for file in desk.evalsets.list() if not file.error]
    asked_id = typed.evalset or desk.evalsets.propose_evalset_id(agent.id)
    evalset = asked_id if asked_id in {file.id for file in files} else files[0].id if files else ""
    prompts = desk.prompts.list()
    name = typed.name or desk.prompts.free_name(_kept_name(prompts, draft) or "draft")
    texts = draft_texts(agent.description, session, instructions, typed.texts) if agent.description else ()
    return BenchPage(
        agent,
        session,
        texts,
        draft,
        replace(typed, evalset=evalset, name=name),
        files,
        plan_of(desk, agent, evalset, typed.n) if evalset else None,
        tried_panel(desk.bench.tried(agent.id), prompts, draft) if with_tried else tried_panel((), prompts, draft),
        prompts,
        problem=problem,
    )


def draft_texts(
    agent: AgentDescription,
    session: StoredSession | None,
    instructions: Sequence[Instruction],
    texts: Mapping[str, str],
) -> Sequence[DraftText]:
    """The instructions with their drafts; placeholders are looked up in the state of the chat, or of a new one."""
    kind = AGENTS.find(agent.kind)
    fills = kind is not None and kind.fills_instruction
    keys = set(session.state if session else agent.initial_state)
    views = []
    for each in instructions:
        text = with_line_feeds(texts.get(each.option, each.text))
        holes = [Hole(key, key not in keys) for key in placeholders(text)] if fills else []
        views.append(DraftText(each, text, changed_lines(each.text, text), holes))
    return views


def plan_of(desk: Desk, agent: FoundAgent, evalset_id: str, typed_n: str) -> DraftPlan:
    """The plan of a run of the draft: the typed trials of a case, or the fewest that show a difference of 10 points."""
    try:
        evalset, _, _ = desk.evalsets.read(evalset_id)
    except (NotFoundError, FormatError) as error:
        return DraftPlan(1, "", "", str(error))
    n = int(typed_n) if typed_n.isdecimal() and len(typed_n) <= MOST_DIGITS else 0
    n_asked = n if 0 < n <= MOST_TYPED else None
    last = desk.stored_runs.find_last_run(agent.id, evalset_id)
    try:
        plan = draft_estimate(
            desk.stored_runs,
            agent.id,
            evalset_id,
            evalset.cases,
            n=n_asked,
            concurrency=last.config.concurrency if last else 1,
        )
    except ValueError as error:  # of a case with a number of trials that cannot be
        return DraftPlan(1, "", "", str(error))
    is_even = plan.n_trials == 2 * plan.n_cases * plan.n
    shape = f"{plan.n_cases:,} × {plan.n:,} × 2 = " if is_even else "2 variants, some cases with trials of their own: "
    parts = [f"{shape}{plan.n_trials:,} trials"]
    parts += [f"about {cost_words(plan.cost)}"] if plan.cost else []
    parts += [duration_words(plan.ms)] if plan.ms else []
    return DraftPlan(plan.n, shown_sentence(plan.n_cases, plan.n, plan.difference.either), ", ".join(parts))


def tried_panel(tried: Sequence[TriedDraft], prompts: Sequence[KeptPrompt], draft: Draft) -> TriedPanel:
    """The drafts that were run; the best of the better drafts is confirmed on fresh trials."""
    prompts_by_text = names_by_text(prompts)
    rows = [_row(each, prompts_by_text, draft) for each in tried]
    differences = [each.difference for each in tried if not each.is_live]
    sentence, rest = drafts_sentence(differences)
    better = [
        (each.difference.value or 0.0, row) for each, row in zip(tried, rows, strict=True) if row.word == "better"
    ]
    return TriedPanel(
        sentence,
        rest,
        forest_of_differences(differences, "the original", {}),
        rows,
        max(better, key=lambda pair: pair[0])[1] if better else None,
    )


def _row(tried: TriedDraft, prompts_by_text: Mapping[str, KeptPrompt], draft: Draft) -> TriedRow:
    run = tried.run
    parts = []
    if tried.is_live:
        both = [each for each in (tried.original, run) if each]
        n_done, n_planned = sum(each.n_done for each in both), sum(each.n_trials for each in both)
        parts.append(f"playing, {n_done:,} of {n_planned:,} trials")
    elif run is None or tried.original is None:
        parts.append("a run of it was deleted")
    else:
        parts.append(
            f"{run.counts.passed:,} of {run.counts.scored:,}; original {tried.original.counts.passed:,} of "
            f"{tried.original.counts.scored:,}"
        )
        measured = [cost_words(run.cost / run.n_done)] if run.n_done and run.whole_cost is not None else []
        measured += [duration_words(run.mean_ms)] if run.mean_ms is not None else []
        parts += [", ".join(measured)] if measured else []
    files = [prompts_by_text[text] for text in tried.draft.values() if text in prompts_by_text]
    parts.append(f"saved as {FOLDER}/{files[0].name}{ENDING}" if files else "not saved")
    return TriedRow(
        tried.name,
        tried.experiment_id,
        "playing" if tried.is_live else tried.difference.word,
        "; ".join(parts),
        variant_difference_words(tried.difference),
        tried.is_live,
        dict(tried.draft) == dict(draft),
        run.config.evalset_id if run else "",
        run.config.n if run else 1,
    )


def _kept_name(prompts: Sequence[KeptPrompt], draft: Draft) -> str:
    return next((prompt.name for prompt in prompts if prompt.text in draft.values()), "")

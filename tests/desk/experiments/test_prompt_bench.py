"""The prompt bench: a draft against the original, its plan, and the drafts so far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaldesk.desk.experiments.bench import (
    MOST_PLANNED,
    VISIBLE,
    PromptBench,
    instructions_of,
    planned_trials,
    read_draft,
)
from evaldesk.desk.experiments.estimates import ExperimentEstimate, VariantEstimate
from evaldesk.desk.experiments.experiments import ExperimentDesk
from evaldesk.desk.runs.plan import RunOptions, RunPlan, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import InlineExecutor
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentDescription, AgentRef, Case, EvalSet, Expected, Turn
from evaldesk.model.experiment import ExperimentPlan, Variant
from evaldesk.settings import Settings
from evaldesk.statistics.history.power import detectable
from evaldesk.store import Store

AGENT = """
def agent(message, instruction="Answer."):
    share = 2 + 5 * instruction.count("weekday")
    return message if int(message) % 10 < share else "no"

agent.tells_cost = True
"""
TREE = AgentDescription(
    "root",
    "adk",
    instruction="Plan.\nAsk.",
    takes_instruction=True,
    sub_agents=(
        AgentDescription("searcher", "LlmAgent", instruction="Search.", takes_instruction=True),
        AgentDescription(
            "loop",
            "LoopAgent",
            instruction="",
            sub_agents=(
                AgentDescription(
                    "made", "LlmAgent", instruction="made by f", takes_instruction=True, makes_instruction=True
                ),
            ),
        ),
    ),
)


class Bench:
    """A workspace with an agent whose pass rate is a function of its instruction."""

    def __init__(self, folder: Path) -> None:
        (folder / "echo_agent.py").write_text(AGENT)
        self.store = Store.open(folder / "evaldesk.db")
        self.runs = RunDesk(Settings(folder, ()), self.store, open_executor=lambda _: InlineExecutor(1))
        self.experiments = ExperimentDesk(self.store, self.runs)
        self.bench = PromptBench(self.store, self.experiments)
        cases = tuple(Case(f"c{at}", (Turn(str(at), Expected((), (), str(at))),)) for at in range(20))
        self.subject = RunSubject(
            AgentRef("echo", "echo_agent:agent", root=str(folder)), EvalSet("set", cases=cases), "set"
        )

    async def plan_run(self, options: RunOptions) -> RunPlan:
        return self.runs.plan_for(self.subject, options)

    async def play(self, name: str, text: str, n: int = 2) -> int:
        started = await self.bench.start(name, {"instruction": text}, RunOptions(n=n), self.plan_run)
        await self.experiments.play(started)
        return started


@pytest.fixture
def bench(tmp_path: Path, own_imports: None) -> Bench:
    return Bench(tmp_path)


@pytest.mark.anyio
async def test_the_draft_and_the_original_differ_as_their_instructions_do(bench: Bench) -> None:
    await bench.play("weekday", "Name the weekday.")
    await bench.play("short", "Be short.")

    short, weekday = bench.bench.tried("echo")

    assert (weekday.name, weekday.difference.word, weekday.difference.value) == ("weekday", "better", 0.5)
    assert (short.name, short.difference.word) == ("short", "cannot be told")
    assert weekday.run
    assert weekday.original
    assert (weekday.run.counts.passed, weekday.original.counts.passed) == (28, 8)
    assert weekday.run.config.seed == weekday.original.config.seed
    assert weekday.run.config.model_options.instruction == "Name the weekday."
    assert weekday.original.config.model_options.instruction is None
    assert bench.bench.draft_of(weekday.experiment_id) == ("weekday", {"instruction": "Name the weekday."})
    await bench.runs.close()


@pytest.mark.anyio
async def test_the_drafts_that_are_shown_together_are_adjusted_together(bench: Bench) -> None:
    await bench.play("weekday", "Name the weekday.")
    (alone,) = bench.bench.tried("echo")
    for at in range(4):
        await bench.play(f"other{at}", f"Other {at}.", n=1)

    *_, weekday = bench.bench.tried("echo")

    assert alone.difference.holm_p is not None
    assert weekday.difference.holm_p == pytest.approx(5 * alone.difference.holm_p)
    await bench.runs.close()


@pytest.mark.anyio
async def test_a_confirmation_has_seeds_of_its_own(bench: Bench) -> None:
    first = await bench.play("weekday", "Name the weekday.")
    name, draft = bench.bench.draft_of(first)
    await bench.play(name, draft["instruction"])

    again, before = bench.bench.tried("echo")

    assert again.run
    assert before.run
    assert again.run.config.seed != before.run.config.seed
    await bench.runs.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "draft", "words"),
    [
        ("a", {}, "The draft is the original"),
        ("original", {"instruction": "x"}, "two variants are named 'original'"),
        (" ", {"instruction": "x"}, "has no name"),
        ("a\x1bb", {"instruction": "x"}, "control characters"),
    ],
    ids=["no change", "name of the original", "no name", "control characters"],
)
async def test_a_draft_that_cannot_be_played_begins_nothing(
    bench: Bench, name: str, draft: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        await bench.bench.start(name, draft, RunOptions(n=1), bench.plan_run)

    assert bench.store.experiments.list() == []
    assert bench.store.runs.list() == []


def test_experiments_of_other_variants_are_no_drafts(bench: Bench) -> None:
    plans = [
        (Variant("a", {}), Variant("b", {"model": "m"})),
        (Variant("a", {"instruction": "x"}), Variant("b", {"instruction": "y"})),
        (Variant("a", {}), Variant("b", {"instruction": "y", "temperature": 1})),
        (Variant("a", {}), Variant("b", {"instruction": "y"}), Variant("c", {"instruction": "z"})),
    ]
    for variants in plans:
        number = bench.store.experiments.begin(ExperimentPlan("e", variants, 1, 1), [])
        with pytest.raises(NotFoundError):
            bench.bench.draft_of(number)


def test_every_agent_of_a_tree_with_an_instruction_is_offered() -> None:
    found = instructions_of(TREE)

    assert [(each.option, each.text, each.is_made) for each in found] == [
        ("instruction", "Plan.\nAsk.", False),
        ("instruction@searcher", "Search.", False),
        ("instruction@made", "", True),
    ]
    assert instructions_of(replace(TREE, takes_instruction=False, sub_agents=())) == ()


@pytest.mark.parametrize(
    ("texts", "draft"),
    [
        ({}, {}),
        ({"instruction": "Plan.\r\nAsk."}, {}),
        ({"instruction": "Plan.\r\nAsk first."}, {"instruction": "Plan.\nAsk first."}),
        ({"instruction@searcher": "Search well.", "instruction@made": ""}, {"instruction@searcher": "Search well."}),
    ],
    ids=["nothing typed", "line ends of a browser", "one line", "an agent of the tree"],
)
def test_a_draft_holds_the_instructions_that_differ(texts: dict[str, str], draft: dict[str, str]) -> None:
    assert read_draft(instructions_of(TREE), texts) == draft


def test_a_text_is_never_dropped_because_the_agent_changed_or_does_not_load() -> None:
    for instructions in (instructions_of(TREE), ()):
        with pytest.raises(UsageError, match="does not take 'instruction@nobody' now"):
            read_draft(instructions, {"instruction@nobody": "x"})


@pytest.mark.parametrize("text", ["", "  \n", "x" * 200_001], ids=["empty", "blank", "too long"])
def test_an_impossible_instruction_names_its_agent(text: str) -> None:
    with pytest.raises(UsageError, match="instruction of searcher"):
        read_draft(instructions_of(TREE), {"instruction@searcher": text})


@pytest.mark.parametrize(
    ("n_cases", "rate", "n"),
    [(500, 0.85, 1), (100, 0.85, 3), (10, 0.85, 10), (3, 0.85, 10), (60, 0.99, 2), (0, 0.5, 10)],
)
def test_the_fewest_trials_that_find_ten_points_are_planned(n_cases: int, rate: float, n: int) -> None:
    variants = (VariantEstimate("original", n_cases), VariantEstimate("draft", n_cases))
    rates = ((rate, 1.0),)
    estimate = ExperimentEstimate(
        variants, (), (2,), n_cases, 1, 1, detectable(n_cases, 1, rates, 1), n_history_trials=0, rates=rates
    )

    planned = planned_trials(estimate)

    assert planned == n
    assert planned == MOST_PLANNED or (estimate.at(n_cases, planned).either or 1) <= VISIBLE
    assert planned == 1 or (estimate.at(n_cases, planned - 1).either or 1) > VISIBLE

"""The runs before a proposal: changes of the files of each agent, and the warning that none stands behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.model.client_budget import MARK
from evaldesk.model.proposals import ProposalDraft
from evaldesk.pages.proposals.trace import steps_before
from evaldesk.store import Store
from evaldesk.store.database import Starter

CLIENT = "Claude Code"
LOUD = "proposed this: no agent change stands behind it"
Played = tuple[str, str]
"""The agent of a run, and the version of its files."""


def words_before(place: Path, runs: Sequence[Played], earlier_runs: Sequence[Played] = ()) -> list[str]:
    """The steps before a proposal that lets more trials pass; a person started the earlier runs."""
    for starter, note, all_of_one in (("ann", "", earlier_runs), (CLIENT, MARK, runs)):
        with Store.open(place / "evaldesk.db", starter=Starter(starter, "laptop")) as store:
            for agent, version in all_of_one:
                config = RunConfig(AgentRef(agent, f"{agent}:agent"), "calc", agent_version=version, note=note)
                store.runs.create(config, [Case("one", (Turn("Hello"),))])
    with Store.open(place / "evaldesk.db") as store:
        draft = ProposalDraft("edit", "{}", evalset_id="calc", case_id="one")
        proposal = store.client_proposals.get(store.client_proposals.propose(draft, CLIENT)[0])
        steps = steps_before(store, proposal, is_easier=True)
        assert not any(step.is_loud for step in steps_before(store, proposal, is_easier=False))
    assert [step.is_loud for step in steps] == [step.words == LOUD for step in steps]
    return [step.words for step in steps if not step.words.startswith("played one ")]


@pytest.mark.parametrize(
    ("earlier_runs", "runs", "words"),
    [
        ([], [("dice", "v1"), ("dice", "v1")], [LOUD]),
        ([("dice", "v1")], [("dice", "v2")], ["changed the files of dice", "proposed this"]),
        (
            [("dice", "v1")],
            [("dice", "v2"), ("dice", "v1")],
            ["changed the files of dice", "changed back the files of dice", LOUD],
        ),
        ([], [], ["proposed this"]),
        ([], [("dice", "")], ["proposed this"]),
        ([("dice", "v1")], [("dice", "")], ["proposed this"]),
        ([], [("dice", "v1"), ("cards", "v7"), ("dice", "v1")], [LOUD]),
        (
            [],
            [("dice", "v1"), ("cards", "v7"), ("cards", "v8"), ("dice", "v1")],
            ["changed the files of cards", "proposed this"],
        ),
    ],
    ids=["same", "changed", "back", "no run", "no version", "lost version", "two agents", "one of two changed"],
)
def test_the_warning_needs_runs_that_tell_the_files_of_each_agent(
    tmp_path: Path, earlier_runs: Sequence[Played], runs: Sequence[Played], words: Sequence[str]
) -> None:
    assert words_before(tmp_path, runs, earlier_runs) == words

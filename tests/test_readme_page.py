"""Every sentence of the README that promises something has tests, and each of them is there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.promised import TESTS, check_named, check_sentences, pairs, sentences

PAGE = (TESTS.parent / "README.md").read_text("utf-8")
JOURNEY = "e2e/test_journey.py: a chat becomes a case and a run that is read turn by turn"

SHOWN: Mapping[str, str] = {
    "You chat with your own agent": JOURNEY,
    "The session becomes a regression test": "web/evalsets/test_add_session.py: what is shown is what is saved",
    "You run the test n times": JOURNEY,
    "Then you read each trial turn by turn": (
        "web/runs/test_trial_page.py: a failed trial names the first divergence, calls arguments and words stand beside"
    ),
    "You need Python 3.11": "cli/test_readme_commands.py: an evaluation runs from the checkout, the command that is",
    "In any other environment": "cli/test_readme_commands.py: the command that is installed is there",
    "The pages need Chrome": "e2e/test_other_engines.py: a chat becomes a case and a run that is read",
    "`make run` prints one line": (
        "torture/test_servers.py: a second start prints the address; security/test_kept_private.py: "
        "the page that opens the browser is for its person alone"
    ),
    "Where port 8420 is taken": (
        "cli/test_handover.py: only a port that was not given moves on, a second start prints the address; "
        "web/test_server.py: two desks that start at once take two ports"
    ),
    "If the folder has no agent": "desk/test_agents.py: the samples are there when asked for or when nothing is found",
    "The page asks once whether you trust": (
        "security/test_trust.py: the option trusts from now on, another folder at the same path is asked about again"
    ),
    "They use a *scripted demo model*": (
        "agents/test_samples.py: the dice roller talks without a mistake, trials of the dice roller differ; "
        "cli/test_readme_commands.py: an evaluation runs from the checkout"
    ),
    "Chat with `hello_world`": f"{JOURNEY}; agents/test_demo_model.py: free words about dice are understood; "
    "e2e/test_long_run.py: every part of an answer is shown before the next is said",
    "Each tool call is a card": JOURNEY,
    "The panel on the right shows": JOURNEY,
    "Press Add current session": JOURNEY,
    "The form shows all the data": "web/evalsets/test_add_session.py: what is shown is what is saved, the preview says",
    "You can untick or edit": (
        "web/evalsets/test_add_session.py: what is unticked is left out and what is edited is saved"
    ),
    "Press Add and run 5 times": JOURNEY,
    "The run goes on in the background": "e2e/test_long_run.py: a run goes on without a browser and after its server",
    "Click a red square": JOURNEY,
    "The page shows expected beside actual": "web/runs/test_trial_page.py: a failed trial names the first divergence",
    "`n` goes to the next": "e2e/test_keys_and_ticks.py: every label set by key is stored when the next key",
    "`make run ARGS=": (
        "cli/test_readme_commands.py: every target is in the makefile; cli/test_served_folders.py: folder"
    ),
    "A folder is an agent when": "agents/test_find_agents.py: a folder; agents/test_agents_doc.py: ",
    "An agent that you already have": "agents/test_agent_contract.py: the description has name, a turn of text",
    "a plain function": "agents/test_python_agent.py: ; agents/test_agent_contract.py: a tool call has its result",
    "Google ADK:": "integrations/adk/test_adk_trees.py: a folder with only yaml, plugins and callbacks are honoured",
    "OpenAI Agents SDK, LangGraph": (
        "integrations/openai_agents/test_openai_agents.py: ; integrations/langgraph/test_langgraph_agent.py: ; "
        "integrations/pydantic_ai/test_pydantic_ai_agent.py: "
    ),
    "Osmosis: `RolloutAgentLoop`": (
        "integrations/osmosis/test_osmosis.py: a workflow asks the runs model; "
        "integrations/osmosis/test_osmosis_folder.py: "
    ),
    "OpenHands: `process_instance": (
        "integrations/openhands/test_documented_benchmark.py: the benchmark is played instance by instance"
    ),
    "an HTTP server, an ADK": (
        "agents/test_http_agents.py: ; integrations/adk/test_adk_server_agents.py: ; agents/test_command_agent.py: "
    ),
    "a recorded conversation": "agents/test_replay.py: replayed answers are marked and cost nothing",
    "`evaldesk agents` lists": "cli/test_agents_command.py: an agent is said with what it lacks",
    "`evaldesk doctor` reports": "cli/test_doctor_command.py: a missing key is named, an agent that does not load",
    "To run the samples on a real model": "agents/test_samples.py: ",
    "The eval set is a file": "cli/test_eval_command.py: all cases of all files, an eval set beside the agent is named",
    "Case ids may follow": "cli/test_eval_command.py: selectors choose cases; cli/test_small_faults.py: after a colon",
    "The engine, the database and": "torture/test_eval_command.py: a desk on the same workspace shows the run",
    "`evaldesk accept` makes": "desk/test_acceptable.py: what is accepted whole leaves no difference",
    "`evaldesk report` writes": "web/runs/test_report.py: ",
    "0 | passed": "cli/test_eval_command.py: without a gate every trial must pass, each gate is printed",
    "1 | failed": "cli/test_eval_command.py: without a gate every trial must pass, each gate is printed",
    "2 | wrong usage": "torture/test_eval_command.py: wrong usage is one sentence and plays nothing",
    "3 | no verdict": "cli/test_eval_command.py: more errors than tolerated have their own code",
    "4 | neutral": "cli/test_one_conclusion.py: a rate too close to its bar counts as is asked",
    "130 | interrupted": "torture/test_eval_command.py: an interrupted run keeps what is finished",
    "`evaldesk eval` also takes": (
        "cli/test_beside_adk_eval.py: the same verdicts; integrations/osmosis/test_eval_osmosis.py: ; "
        "integrations/openhands/test_eval_openhands.py: "
    ),
    "With `pytest --evaldesk-agent": "test_pytest_plugin.py: each case is an item",
    "In Python, `evaldesk.evaluate": (
        "test_python_api.py: a result is indexed by case; cli/test_docs_commands.py: the workflow runs step by step"
    ),
    "session | ": "agents/test_agent_contract.py: a tool call has its result and changes the state",
    "turn | ": "web/runs/test_trial_page.py: each metric speaks on the turn it judged",
    "run, trial": "store/test_runs.py: a run keeps the cases it ran",
    "verdict | ": ("cli/test_one_conclusion.py: every writer shows the same, a pytest item of which four of five"),
    "Every rate shows its counts": (
        "web/runs/test_words_of_a_run.py: ; report/test_against_scipy.py: intervals of one rate are those of scipy"
    ),
    "A finished trial is on disk": (
        "store/test_database_file.py: writes are durable; torture/test_eval_command.py: a killed run of"
    ),
    "Unknown keys in a file": "formats/test_format_properties.py: every readable file is written back in full",
    "Trials run in worker processes": "engine/test_executors.py: ; engine/test_host_workers.py: ",
    "A million stored trials": "web/runs/test_queries_of_pages.py: no page reads a whole table of trials",
    "The desk listens on loopback": (
        "torture/test_servers.py: what must not be served is refused; security/test_route_audit.py: nothing is served"
    ),
    "No field of a page": "security/test_browser_chooses_ids.py: a field that nobody offers, every field of every form",
    "[agents](docs": "cli/test_readme_commands.py: every link leads somewhere",
    "[metrics](docs": "cli/test_readme_commands.py: every link leads somewhere",
    "[coming from](docs": "cli/test_readme_commands.py: every link leads somewhere",
    "[inbox](docs": "cli/test_readme_commands.py: every link leads somewhere",
    "[formats](docs": "cli/test_readme_commands.py: every link leads somewhere",
    "[simulated users](docs": "cli/test_readme_commands.py: every link leads somewhere",
    "[CI](docs": "cli/test_readme_commands.py: every link leads somewhere",
    "[beyond one machine](docs": (
        "integrations/ray/test_ray.py: everything holds on a cluster; "
        "integrations/ray/test_executors_by_name.py: a server never opens"
    ),
    "[the store](docs": (
        "store/test_postgresql.py: migrations make the tables; cli/test_postgresql_workspace.py: two workspaces share"
    ),
    "[coding agents](docs": "cli/test_door_answers.py: each reading tool gives what its command prints",
    "[experiments](docs": "desk/experiments/test_order_of_play.py: the cells begin in the known order",
    "[forks](docs": "desk/forks/test_forks.py: turns before the point are not played again",
    "[security](docs": "security/test_security_page.py: every sentence outside of the table",
    "[performance](docs": "documents/test_performance_page.py: the page has each budget once and in their order",
    "[architecture](docs": "test_tree_checks.py: the picture of the floors is what the imports say",
    "[CONTRIBUTING]": "cli/test_readme_commands.py: every link leads somewhere",
}
"""The sentences that promise something by their beginnings, and their tests; a file alone stands for all its tests."""

PLAIN = (
    *(
        "Evaldesk is a local desk",
        "Start the desk with your folder",
        "![The page of a run",
        "agent | ",
        "eval set, case",
        "Ask questions in the issue tracker",
    ),
    *("metric, criterion", "You can trust the verdict", "Nothing is lost", "Nothing waits", "Nobody else gets in"),
)
"""The beginnings of the sentences that introduce, and of the terms that promise nothing by themselves."""

BY_CI = ("These commands install everything", "The first time takes")
"""What only a machine without anything shows: `.ci/run` sets up a checkout from nothing."""

NAMED = pairs(SHOWN)


def test_every_sentence_has_its_tests_or_promises_nothing() -> None:
    check_sentences(sentences(PAGE), (*SHOWN, *PLAIN, *BY_CI))


@pytest.mark.parametrize(("sentence", "file", "said"), NAMED, ids=[f"{row[1]}-{row[0][:30]}" for row in NAMED])
def test_every_test_that_is_named_is_there(sentence: str, file: str, said: str) -> None:
    check_named(sentence, TESTS / file, said)

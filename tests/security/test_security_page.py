"""Every sentence of docs/security.md that promises something has tests, and each of them is there."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from tests.promised import TESTS, check_named, check_sentences, pairs, sentences

PAGE = (TESTS.parent / "docs" / "security.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| (.*`[\w/]+\.py`.*) \|$", PAGE, re.MULTILINE)
TABLE = PAGE[PAGE.index("| Promise | Shown by |") : PAGE.index("## What is not promised")]
NAMED = [(promise, *pair) for promise, shown in ROWS for pair in re.findall(r"`([\w/]+\.py)`:? ?([^`;]*)", shown)]


SHOWN: Mapping[str, str] = {
    "A web page in your browser": "test_route_audit.py: nothing is written for another site, nothing is read by",
    "Another user or program on this machine": (
        "test_route_audit.py: nothing is served without the token; test_kept_private.py: what the desk keeps"
    ),
    "The author of a file that you open": (
        "test_uploads.py: the name of an upload, a link in the folder; test_kept_private.py: no code is made; "
        "test_hostile_text.py: hostile text adds no element"
    ),
    "The author of a folder that you open": "test_trust.py: nothing of a cloned repository runs, a desk takes up",
    "The model, a tool, a remote agent": (
        "test_hostile_text.py: hostile text is shown; test_said_to_a_terminal.py: printable text"
    ),
    "In a folder that you trust": "test_trust.py: after the answer everything; desk/test_agents.py: one agent is warm",
    "A folder that you have not trusted is shown": "test_trust.py: nothing of a cloned repository runs",
    "Nothing of it is imported": "test_trust.py: nothing of a cloned repository runs, every way to play is refused",
    "The first page lists the parts": "test_trust_question.py: the page lists what would run",
    "Trust this folder and Look only": "test_trust_question.py: look only, the button trusts",
    "`evaldesk agents`, `doctor` and": "test_trust_question.py: a command asks in the terminal",
    "Without a terminal they run nothing": "test_trust.py: nothing of a cloned repository runs",
    "press Trust this folder": "test_trust_question.py: the button, yes in the terminal; test_trust.py: the option",
    "set `EVALDESK_TRUST=1`": "test_trust.py: the variable trusts one process",
    "name an agent": "test_trust.py: a named agent runs, a forked command; test_settings_of_others.py: settings hold",
    "start the desk in an empty folder": (
        "test_trust.py: the samples ask nothing, an empty folder asks nothing, a repository cloned into a folder"
    ),
    "Where the named agent is from elsewhere": (
        "test_settings_of_others.py: no key goes, criteria that nobody named, criteria with metrics alone"
    ),
    "`--config-file-path` names a file": "test_settings_of_others.py: criteria that are named run",
    "pytest itself imports": "test_trust.py: pytest runs the conftest",
    "The runs of a database file that your desk made": "test_trust.py: a run that this user submitted",
    "A database that came with a repository": (
        "test_trust_question.py: a command asks in the terminal; test_hostile_colleague.py: the rows of a cloned "
        "workspace, a copy of a foreign database"
    ),
    "A waiting run in its `.evaldesk` goes on": "test_hostile_colleague.py: the rows of a cloned workspace",
    "A colleague who writes": "test_hostile_colleague.py: a pending run of a command, what reaches code",
    "A colleague may so let your own agent": "store/test_postgresql_roles.py: a reader sees everything",
    "The answers are in `$XDG_STATE_HOME": "test_trust.py: after the answer everything runs and it is kept outside",
    "A folder that was moved": "test_trust.py: another folder at the same path, a copy of a trusted folder",
    "They run as you, with your environment": "test_kept_private.py: a worker is not told",
    "Cookies do not know ports": "served/test_cookie_jar.py: wrong cookies of our name",
    "It does not find a secret of fewer": "agents/test_secrets.py: other variables and ordinary words",
    "States and cases that you type": "cli/test_masked_files.py: no secret variable leaves, an export lists",
    "The download of one large case": "web/evalsets/test_large_case.py: a large case is replaced by a file",
    "JSON, JSON lines and data sets": "test_uploads.py: numbers and text survive",
    "JSON that a command prints": "test_outgoing_text.py: json of a command",
    "Only terminal output, CSV": "test_said_to_a_terminal.py: a cell is no formula, a summary steers nothing",
    "They unpack answers as they like": "agents/test_llm_direct.py: a decompressed answer beyond the limit",
    "Redirects are refused in the clients": (
        "agents/test_redirects.py: a redirect is not followed, a redirect of another page"
    ),
    "They stand between marks that nobody can guess": (
        "metrics/test_judges.py: what the agent wrote stays inside its fence; metrics/test_judges_kinds.py: no message"
    ),
    "A page with charts allows": "web/guard/test_guard.py: every answer carries the headers",
    "Agents are not isolated unless you": (
        "engine/test_containers.py: an agent sees its image; engine/test_sandbox.py: an agent in a sandbox"
    ),
    "The random token and a key from the environment": (
        "test_kept_private.py: neither token nor key is in the command line, a worker is not told"
    ),
    "The run names those beside the functions": "engine/test_grading_files.py: a run names the data files",
    "Code, bytecode and installed packages are hidden": (
        "engine/test_sandbox_attacks.py: an agent in a sandbox does not read; "
        "engine/test_sandbox.py: copies of an eval set"
    ),
    "The network is open": "engine/test_sandbox_attacks.py: an agent in a sandbox does not read",
    "An agent object that a program gives": "engine/test_grading_files.py: an agent object that rewrites its function",
    "Agents of Osmosis, benchmarks": "test_cheating_agents.py: three kinds are given the case",
    "Inline scripts are never allowed": "test_route_audit.py: every answer of every route",
}
"""The sentences outside of the table that promise something, by how they begin, and their tests."""

PLAIN = (
    *("Evaldesk runs agents", "The desk is for one person", "It keeps out", "Evaldesk trusts you", "Each promise has"),
    *("They are files of", "`test_security_page.py` checks", "No encryption", "No users"),
    *("On an address beyond loopback", "Use a tunnel", "Every person with the token", "A `--token` or `--api-key`"),
    *("No protection from flooding", "They can use up", "A program on another port"),
    *("It can then get in", "Do not open pages", "Scrubbing knows", "Files for machines", "LiteLLM and the clients"),
    *(
        "pyarrow reads Parquet",
        "A file with false sizes",
        "An agent that looks for the file",
        "The search for copies is bounded",
        "Sets and git data beyond",
        "Data files that",
        "Keep them where",
        "The modules that a grader imports",
        "Trials that",
    ),
    *("What only the agent knows", "A function of yours that stands", "Commands and forked players are"),
    *("An agent learns with a message", "Trials of one case that share", "An agent that writes the frames"),
    *("All of them are the same agent", "An agent that stops the clock", "A judge is a model", "Hold a judge against"),
)
"""The beginnings of the sentences that promise nothing: they introduce, advise, or say what is not kept out."""


NAMED += pairs(SHOWN)


def test_the_table_has_a_row_for_every_promise() -> None:
    promised = PAGE.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line for line in promised.splitlines() if line.startswith("|")][2:]

    assert len(rows) > 20
    assert len(ROWS) == len(rows)


def test_every_sentence_outside_of_the_table_has_its_tests_or_promises_nothing() -> None:
    check_sentences(sentences(PAGE.replace(TABLE, "")), (*SHOWN, *PLAIN))


@pytest.mark.parametrize(("promise", "file", "said"), NAMED, ids=[f"{row[1]}-{row[2][:30]}" for row in NAMED])
def test_every_test_that_is_named_is_there(promise: str, file: str, said: str) -> None:
    path = next((path for path in (TESTS / "security" / file, TESTS / file) if path.is_file()), TESTS / file)

    check_named(promise, path, said)

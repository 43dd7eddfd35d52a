"""Eval sets, their cases, failures and health, for coding agents and for `evaldesk evalset`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.desk.desk import Desk
from evaldesk.desk.doctor import ask_agents
from evaldesk.desk.evalsets.cases import case_keys
from evaldesk.errors import FormatError, NotFoundError, UsageError
from evaldesk.formats import case_to_json
from evaldesk.model import Case, EvalSet
from evaldesk.model.evalset import LargeCases, case_pieces
from evaldesk.model.json_text import short_json
from evaldesk.model.stored import EvalSetFile, RunSummary
from evaldesk.pages.case_list import asserts_nothing
from evaldesk.pages.door.filters import read_choice, read_filter
from evaldesk.pages.door.fit import items_page
from evaldesk.pages.runs.divergences import NO_DIVERGENCE
from evaldesk.pages.set_health.coverage import ToolCoverage
from evaldesk.pages.set_health.health import read_health, usual_agent_id
from evaldesk.pages.set_health.trials import CaseWorth

N_CASES = 50
N_KINDS = 20
CASE_KEYS = ("id", "tag", "asserts")


def evalset_items(desk: Desk, cursor: int = 0, limit: int | None = None) -> dict[str, Any]:
    """The eval sets of the workspace, or a page of them."""
    files = desk.evalsets.list()
    items = [evalset_item(file) for file in files[cursor:][:limit]]
    return items_page(items, cursor, len(files)) | {"page": "/evalsets"}


def evalset_item(file: EvalSetFile) -> dict[str, Any]:
    """One eval set as an item of a list."""
    return {
        "id": file.id,
        "name": file.name,
        "place": file.place,
        "format": file.format,
        "n_cases": file.n_cases,
        "version": file.version,
        "error": str(file.error) if file.error else None,
        "page": f"/evalsets/{file.id}",
    }


def find_file(desk: Desk, name: str) -> EvalSetFile:
    """The eval set with this id, name or place. Raises NotFoundError naming the nearest."""
    files = desk.evalsets.list()
    matches = (
        [file for file in files if file.id == name]
        or [file for file in files if file.place == name]
        or [file for file in files if file.name == name]
    )
    if len(matches) > 1:
        places = [file.place for file in matches]
        word, names = ("place", places) if len(set(places)) == len(places) else ("id", [file.id for file in matches])
        raise UsageError(
            f"{len(matches)} eval sets are named {name!r}: {', '.join(names)}; give the {word}", field="set"
        )
    if not matches:
        raise NotFoundError.among("eval set", name, [file.name for file in files])
    if matches[0].is_reading:
        return desk.evalsets.file(matches[0].id)
    return matches[0]


def read_evalset(desk: Desk, name: str) -> tuple[EvalSetFile, EvalSet]:
    """The file and the content of an eval set. Raises NotFoundError, FormatError."""
    file = find_file(desk, name)
    if file.error:
        raise FormatError(file.error)
    return file, desk.evalsets.evalset(file.id)


def case_items(desk: Desk, name: str, text: str = "", cursor: int = 0, limit: int = N_CASES) -> dict[str, Any]:
    """A page of the cases of a set; the filter has words, `id:`, `tag:` and `asserts:no`."""
    text_filter = read_filter(text, CASE_KEYS)
    asserts = read_choice(text_filter, "asserts", ("yes", "no"))
    file, evalset = read_evalset(desk, name)
    words = text_filter.text.casefold()

    def is_meant(case: Case) -> bool:
        tag, part = text_filter.value("tag"), text_filter.value("id")
        if (tag and tag not in case.tags) or (part and part.casefold() not in case.id.casefold()):
            return False
        if asserts is not None and (asserts == "no") != asserts_nothing(case):
            return False
        return not words or any(words in piece.casefold() for piece in (case.id, *case_pieces(case)))

    indexes = (index for index, case in enumerate(evalset.cases) if is_meant(case))
    page_indexes = list(islice(indexes, cursor, cursor + limit + 1))
    keys = [] if isinstance(evalset.cases, LargeCases) else case_keys(evalset.cases)
    items = [_case_item(file, evalset.cases[index], keys[index] if keys else "") for index in page_indexes[:limit]]
    return {
        "evalset": file.name,
        "items": items,
        "n_cases": len(evalset.cases),
        "next_cursor": cursor + limit if len(page_indexes) > limit else None,
        "page": f"/evalsets/{file.id}",
    }


def _case_item(file: EvalSetFile, case: Case, key: str) -> dict[str, Any]:
    first = case.turns[0].query if case.turns else "; ".join(map(str, (case.scenario or {}).values()))
    return {
        "case_id": case.id,
        "first_message": short_json(first, 160),
        "n_turns": len(case.turns),
        "tags": list(case.tags),
        "asserts": not asserts_nothing(case),
        "page": f"/evalsets/{file.id}/cases/{key}" if key else f"/evalsets/{file.id}",
    }


def case_answer(desk: Desk, name: str, case_id: str) -> dict[str, Any]:
    """A case as it is in its file, with its version, proposals and newest verdicts."""
    file, evalset = read_evalset(desk, name)
    index, case = find_case(evalset, case_id)
    key = case_keys([case])[0] if isinstance(evalset.cases, LargeCases) else case_keys(evalset.cases)[index]
    found_case = desk.evalsets.cases.find(file.id, key)
    return {
        "evalset": file.name,
        "case_id": case.id,
        "version": found_case.version,
        "case": case_to_json(case),
        "proposals": [
            {
                "id": each.id,
                "kind": each.draft.kind,
                "client": each.client,
                "status": each.status,
                "why": each.draft.why,
                "reply": each.reply or None,
            }
            for each in ClientProposalDesk(desk).list(None, evalset_id=file.id, case_id=case.id)
            if each.status == "open" or each.reply
        ],
        "page": f"/evalsets/{file.id}/cases/{key}",
    }


def find_case(evalset: EvalSet, case_id: str) -> tuple[int, Case]:
    """The first case with this id, and its place. Raises NotFoundError naming the nearest."""
    for index, case in enumerate(evalset.cases):
        if case.id == case_id:
            return index, case
    raise NotFoundError.among("case", case_id, [case.id for case in islice(evalset.cases, 2_000)])


def failure_answer(desk: Desk, name: str) -> dict[str, Any]:
    """How trials of the newest run of a set fail, and the kinds of failure that people named."""
    file = find_file(desk, name)
    run = newest_run(desk, file)
    divergences = [] if run is None else desk.store.runs.divergence_counts(run.id)[:N_KINDS]
    return {
        "evalset": file.name,
        "run": None if run is None else run.id,
        "divergences": [
            {"words": each.words or NO_DIVERGENCE, "n_trials": each.n, "n_cases": each.n_cases, "case_id": each.case_id}
            for each in divergences
        ],
        "kinds": [
            {
                "name": mode.name,
                "definition": mode.definition,
                "life": mode.life_words,
                "n_trials": 0 if run is None else desk.store.failures.trials_by_run(mode.id).get(run.id, 0),
                "page": f"/failures/{mode.id}",
            }
            for mode in desk.store.failures.modes()
            if mode.is_active
        ],
        "page": f"/evalsets/{file.id}" if run is None else f"/failures?run={run.id}",
    }


def newest_run(desk: Desk, file: EvalSetFile) -> RunSummary | None:
    """The newest run of an eval set."""
    return next(iter(desk.store.runs.list(evalset_id=file.id, limit=1)), None)


async def health_answer(desk: Desk, name: str, agent: str = "") -> dict[str, Any]:
    """The findings about a set, the coverage of the tools of an agent, and the worth of each case.

    Without an `agent` the runs are those of the newest one, and no tools are looked at: an agent is loaded only where
    it is named.
    """
    file = find_file(desk, name)
    if file.error:
        raise FormatError(file.error)
    agents = await ask_agents(desk.settings, desk.trust) if agent else []
    own = next((each for each in agents if each.id == agent), None)
    agent_id = agent or await asyncio.to_thread(usual_agent_id, desk, file.id)
    if agent and own is None and agent not in desk.store.runs.agents():
        raise NotFoundError.among("agent", agent, [each.id for each in agents])
    health = await asyncio.to_thread(read_health, desk, file, own, agent_id)
    return {
        "evalset": file.name,
        "n_cases": health.n_cases,
        "agent": agent_id,
        "agent_error": health.agent_error if agent else "its tools are looked at where it is named",
        "sentence": "; ".join(filter(None, health.sentence)),
        "n_runs": len(health.run_ids),
        "n_agent_versions": health.n_agents,
        "missing": health.missing,
        "findings": [finding.as_json() for finding in health.findings],
        "tools": [_tool_item(tool) for tool in health.tools],
        "cases": [_worth_item(worth) for worth in health.worths],
        "page": f"/evalsets/{file.id}/health",
    }


def _tool_item(tool: ToolCoverage) -> dict[str, Any]:
    return {
        "name": tool.name,
        "n_expecting": len(tool.expected),
        "n_called_only": len(tool.seen - tool.expected),
        "arguments": {name: argument.state for name, argument in tool.arguments.items()},
    }


def _worth_item(worth: CaseWorth) -> dict[str, Any]:
    trials, correlation = worth.trials, worth.discrimination
    return {
        "case_id": trials.case_id,
        "passed": trials.n_passed,
        "scored": trials.n_scored,
        "information_per_dollar": trials.information,
        "correlation": None if correlation is None else [correlation.r, correlation.low, correlation.high],
        "n_runs_missing": worth.n_runs_missing,
        "word": worth.word,
    }


def case_ids_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """The ids in a list, or in a text with commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip()) if isinstance(text, str) else tuple(text)

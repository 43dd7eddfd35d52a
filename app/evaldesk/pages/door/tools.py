"""The table of the tools for coding agents: each with its inputs, its answer and the command that prints the same."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evaldesk.errors import VALUE_LIMIT, NotFoundError, UsageError
from evaldesk.pages.door.fit import USUAL_TOKENS
from evaldesk.process_setup import gc_paused

if TYPE_CHECKING:
    from evaldesk.desk.desk import Desk
    from evaldesk.model.client_budget import Budget

Group: TypeAlias = Literal["read", "run", "propose"]
Schema: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = Callable[..., Any]

MAX_TEXT, MAX_ITEMS, MAX_NAME = 100_000, 1_000, 200
LEAST_TOKENS, MOST_TOKENS = 500, 25_000

TEXT: Schema = {"type": "string", "maxLength": MAX_TEXT}
TRIAL: Schema = {"type": "integer", "minimum": 1, "description": "Counted from 1, as on its page."}
RUN: Schema = {"type": "string", "maxLength": 200, "description": "The number of a run, or its name."}
SET: Schema = {"type": "string", "maxLength": 1_000, "description": "The name, place or id of an eval set."}
CASE: Schema = {"type": "string", "maxLength": 1_000, "description": "The id of a case."}
CASES: Schema = {"type": "array", "items": CASE, "maxItems": MAX_ITEMS}
NAME: Schema = {"type": "string", "maxLength": 200}
N: Schema = {"type": "integer", "minimum": 1, "maximum": 20, "description": "Trials of each case."}
PLACE: Schema = {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "Counted from 1."}
PROPOSAL: Schema = {"type": "integer", "minimum": 1, "description": "The number of a proposal."}
OBJECT: Schema = {"type": "object"}
CURSOR: Schema = {"type": "integer", "minimum": 0, "description": "next_cursor of the page before."}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 200}
MAX_TOKENS: Schema = {
    "type": "integer",
    "minimum": LEAST_TOKENS,
    "maximum": MOST_TOKENS,
    "description": f"The most tokens of the answer; {USUAL_TOKENS:,} unless said.",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: the function behind it as `module:name`, its inputs, and the command with the same answer.

    `more` is the call for the parts that an answer had to leave out; empty for the same one with more tokens. The
    cursor of a page of items is their number, or the `cursor_key` of its last one. A tool with `makes_pages` is told
    the tokens of its answer.
    """

    name: str
    words: str
    target: str
    command: str
    group: Group = "read"
    inputs: Mapping[str, Schema] = field(default_factory=dict)
    required: Sequence[str] = ()
    more: str = ""
    cursor_key: str = ""
    makes_pages: bool = False
    needs_desk: bool = True
    needs_client: bool = False
    needs_budget: bool = False

    @property
    def answer(self) -> Answer:
        """The function, imported now."""
        module, _, name = self.target.partition(":")
        with gc_paused():
            return getattr(importlib.import_module(f"evaldesk.{module}"), name)  # type: ignore[no-any-return]

    def more_words(self, max_tokens: int) -> str:
        """The calls for the rest of an answer of so many tokens, and the command without such a bound."""
        call = self.more or (f"{self.name} with a larger max_tokens" if max_tokens < MOST_TOKENS else "")
        return "; ".join(filter(None, (call, f"`evaldesk {self.command}` prints all of it")))

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the inputs."""
        return {
            "type": "object",
            "properties": {**self.inputs, "max_tokens": MAX_TOKENS},
            "required": list(self.required),
            "additionalProperties": False,
        }


# One table for both doors: decision 510.
TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "status",
            "What is in the workspace, what is running, and what to do next.",
            "pages.door.runs:status_answer",
            "status --json",
        ),
        Tool(
            "list_agents",
            "The agents with kind, model, tools, sub-agents, missing keys and load errors.",
            "pages.door.agents:agent_items",
            "agents --json",
            inputs={"cursor": CURSOR, "limit": LIMIT},
            more="list_agents with cursor",
        ),
        Tool(
            "list_evalsets",
            "The eval sets.",
            "pages.door.evalsets:evalset_items",
            "evalset list --json",
            inputs={"cursor": CURSOR, "limit": LIMIT},
            more="list_evalsets with cursor",
        ),
        Tool(
            "list_cases",
            "The cases of an eval set. The filter has words, id:PART, tag:TAG and asserts:no.",
            "pages.door.evalsets:case_items",
            "evalset cases SET --json",
            inputs={"set": SET, "filter": TEXT, "cursor": CURSOR, "limit": LIMIT},
            required=("set",),
            more="list_cases with cursor",
        ),
        Tool(
            "get_case",
            "A case as it is in its file, and its open proposals.",
            "pages.door.evalsets:case_answer",
            "evalset case SET CASE --json",
            inputs={"set": SET, "case": CASE},
            required=("set", "case"),
        ),
        Tool(
            "list_runs",
            "The newest runs. The filter has words, status:, agent:, evalset: and model:.",
            "pages.door.runs:run_items",
            "run list --json",
            inputs={"filter": TEXT, "cursor": CURSOR, "limit": LIMIT},
            more="list_runs with cursor, or with a filter",
            cursor_key="id",
        ),
        Tool(
            "get_run",
            "A run: conclusion, rates with intervals, worst cases, first divergences, kinds of failure, and what "
            "changed in the eval set since the run before.",
            "pages.door.runs:run_answer",
            "run info RUN --json",
            inputs={"run": RUN},
            required=("run",),
        ),
        Tool(
            "compare",
            "2 to 20 runs against the first of them.",
            "pages.door.runs:compare_answer",
            "compare RUN RUN --json",
            inputs={"runs": {"type": "array", "items": RUN, "minItems": 2, "maxItems": 20}},
            required=("runs",),
            more="compare with fewer runs",
        ),
        Tool(
            "list_trials",
            "The finished trials of a run with their first divergences. The filter has words of the case, case:PART "
            "and verdict:failed.",
            "pages.door.trials:trial_items",
            "run trials RUN --json",
            inputs={"run": RUN, "filter": TEXT, "cursor": CURSOR, "limit": LIMIT},
            required=("run",),
            more="list_trials with cursor",
        ),
        Tool(
            "get_trial",
            "A trial as text. detail: line (a line a turn), turns (expected beside actual), full (every event, by "
            "cursor, a long one with the cursor of the rest of it); part is one turn, counted from 1.",
            "pages.door.trials:trial_answer",
            "run trial RUN CASE TRIAL --json",
            inputs={
                "run": RUN,
                "case": CASE,
                "trial": TRIAL,
                "part": PLACE,
                "detail": {"type": "string", "enum": ["line", "turns", "full"]},
                "cursor": CURSOR,
            },
            required=("run", "case", "trial"),
            more="get_trial with cursor, or with part",
            makes_pages=True,
        ),
        Tool(
            "search",
            "The trials, cases of runs and notes that hold all words of a text; of each case of a run one trial.",
            "pages.door.trials:search_answer",
            "search TEXT --json",
            inputs={"text": TEXT, "limit": LIMIT},
            required=("text",),
            more="search with more words",
        ),
        Tool(
            "get_failures",
            "How trials of the newest run of an eval set fail, and the kinds of failure that people named.",
            "pages.door.evalsets:failure_answer",
            "evalset failures SET --json",
            inputs={"set": SET},
            required=("set",),
            more="list_trials with verdict:failed",
        ),
        Tool(
            "explain_gate",
            "How often the gates of a run fail although nothing changed.",
            "pages.door.runs:gate_answer",
            "gate explain --from RUN --json",
            inputs={"run": RUN},
            required=("run",),
        ),
        Tool(
            "health",
            "Faults of an eval set: twins, contradictions, answers in prompts, cases that never, always or sometimes "
            "pass, and with an agent its untested tools, arguments and values.",
            "pages.door.evalsets:health_answer",
            "evalset health SET --json",
            inputs={"set": SET, "agent": NAME},
            required=("set",),
        ),
        Tool(
            "get_docs",
            "A page of the documentation, or its section as page#section; without a topic the list.",
            "pages.door.docs:docs_answer",
            "docs TOPIC --json",
            inputs={"topic": TEXT},
            more="get_docs with page#section",
            needs_desk=False,
        ),
        Tool(
            "list_proposals",
            "The proposals of coding agents, newest first, with what people answered: open, accepted, refused or all.",
            "pages.door.proposals:proposal_page",
            "proposals list --json",
            inputs={
                "status": {"type": "string", "enum": ["open", "accepted", "refused", "all"]},
                "set": SET,
                "cursor": CURSOR,
                "limit": LIMIT,
            },
            more="list_proposals with cursor",
        ),
        Tool(
            "get_proposal",
            "A proposal with its content, what people answered, and its effect on stored trials.",
            "pages.door.proposals:proposal_answer",
            "proposals show ID --json",
            inputs={"proposal": PROPOSAL},
            required=("proposal",),
        ),
        Tool(
            "start_run",
            "Start a run within the day's budget, by the criteria of the eval set; its number comes at once. options "
            "may have concurrency, timeout_s, seed and rows.",
            "pages.door.playing:start_answer",
            "run start AGENT SET --json",
            "run",
            {"agent": NAME, "set": SET, "cases": CASES, "n": N, "options": OBJECT},
            ("agent", "set"),
            needs_client=True,
            needs_budget=True,
        ),
        Tool(
            "wait",
            "Wait until a run ends, for at most 50 seconds.",
            "pages.door.playing:wait_answer",
            "run wait RUN --json",
            "run",
            {"run": RUN, "seconds": {"type": "number", "minimum": 0, "maximum": 50}},
            ("run",),
        ),
        Tool(
            "stop_run",
            "Stop a run that a coding agent started; finished trials count.",
            "pages.door.playing:stop_answer",
            "run stop RUN --json",
            "run",
            {"run": RUN},
            ("run",),
        ),
        Tool(
            "try_case",
            "Start a run of one case within the day's budget.",
            "pages.door.playing:try_answer",
            "run start AGENT SET --case CASE --json",
            "run",
            {"agent": NAME, "set": SET, "case": CASE, "n": N},
            ("agent", "set", "case"),
            needs_client=True,
            needs_budget=True,
        ),
        Tool(
            "fork",
            "Play a trial on from before a turn, counted from 1, within the day's budget; its plan and its run come at "
            "once. An edit has a kind (message, drop_turn, insert_turn, state, tool_result, assistant, instruction, "
            "model, double or agent) and text, name, call, value or error.",
            "pages.door.playing:fork_answer",
            "fork RUN:CASE:TRIAL@TURN --yes --json",
            "run",
            {
                "run": RUN,
                "case": CASE,
                "trial": TRIAL,
                "turn": PLACE,
                "call": PLACE,
                "n": N,
                "edits": {"type": "array", "items": OBJECT, "maxItems": 20},
                "say": TEXT,
            },
            ("run", "case", "turn"),
            needs_client=True,
            needs_budget=True,
        ),
        Tool(
            "blame",
            "The newest search for the decisive turn of a failed trial, as far as it is; begun within the day's budget "
            "where there is none, or with again. forks are the most that it plays.",
            "pages.door.playing:blame_answer",
            "blame RUN:CASE:TRIAL --json",
            "run",
            {
                "run": RUN,
                "case": CASE,
                "trial": TRIAL,
                "forks": {"type": "integer", "minimum": 1, "maximum": 2_000},
                "again": {"type": "boolean"},
            },
            ("run", "case", "trial"),
            needs_client=True,
            needs_budget=True,
        ),
        Tool(
            "propose_case",
            "Propose a new case of an eval set, as JSON in the form of get_case. A person accepts or refuses it.",
            "pages.door.proposals:propose_case",
            "propose case SET FILE --json",
            "propose",
            {"set": SET, "case": OBJECT, "why": TEXT},
            ("set", "case"),
            needs_client=True,
        ),
        Tool(
            "propose_edit",
            "Propose a change of a case as a JSON merge patch of the case in get_case, with the reason.",
            "pages.door.proposals:propose_edit",
            "propose edit SET CASE FILE --why TEXT --json",
            "propose",
            {"set": SET, "case": CASE, "patch": OBJECT, "why": TEXT},
            ("set", "case", "patch", "why"),
            needs_client=True,
        ),
        Tool(
            "propose_expectation",
            "Propose values of a trial as expectations of its case: parts has a way for each difference; without them "
            "the answer names those that are offered.",
            "pages.door.proposals:propose_expectation",
            "propose expectation RUN CASE TRIAL KEY=WAY --json",
            "propose",
            {"run": RUN, "case": CASE, "trial": TRIAL, "parts": OBJECT, "why": TEXT},
            ("run", "case", "trial", "parts"),
            needs_client=True,
        ),
        Tool(
            "propose_finding",
            "Propose what went wrong in a trial: the name of a kind of failure, and words that stand in the trial "
            "letter by letter; turn counts from 1.",
            "pages.door.proposals:propose_finding",
            "propose finding RUN CASE TRIAL --kind NAME --quote TEXT --json",
            "propose",
            {
                "run": RUN,
                "case": CASE,
                "trial": TRIAL,
                "turn": PLACE,
                "kind": TEXT,
                "quote": TEXT,
                "note": TEXT,
            },
            ("run", "case", "trial", "kind", "quote"),
            needs_client=True,
        ),
        Tool(
            "propose_kind",
            "Propose a kind of failure: its name, and one sentence that tells when a trial shows it.",
            "pages.door.proposals:propose_kind",
            "propose kind NAME --definition TEXT --json",
            "propose",
            {"kind": TEXT, "definition": TEXT, "example_yes": TEXT, "example_no": TEXT},
            ("kind", "definition"),
            needs_client=True,
        ),
    )
}

PARAMETERS: Mapping[str, str] = {"run": "name", "runs": "names", "set": "name", "filter": "text", "case": "case_id"}
"""Inputs that the functions behind the tools call otherwise."""

FOR_PERSONS: Mapping[str, str] = {
    "accept_proposal": "evaldesk proposals accept ID",
    "refuse_proposal": "evaldesk proposals refuse ID",
    "accept_actual": "evaldesk accept RUN",
    "edit_expectation": "evaldesk ui, and the page of the case",
    "edit_case": "evaldesk ui, and the page of the case",
    "delete_case": "evaldesk ui, and the page of the eval set",
    "quarantine_case": "evaldesk ui, and the page of the eval set",
    "label_trial": "evaldesk ui, and the page of the trial",
    "set_criteria": "evaldesk eval AGENT SET --config-file-path FILE",
    "drop_criterion": "evaldesk eval AGENT SET --config-file-path FILE",
    "set_threshold": "evaldesk eval AGENT SET --config-file-path FILE",
    "set_gate": "evaldesk eval AGENT SET --min-pass-rate R",
    "set_baseline": "evaldesk eval AGENT SET --baseline RUN",
    "trust_folder": "evaldesk agents --trust",
    "delete_run": "evaldesk run rm RUN",
    "delete_evalset": "evaldesk ui, and the page of the eval set",
    "undo_proposal": "evaldesk proposals undo ID",
    "change_finding": "evaldesk ui, and the page of the trial",
    "change_kind": "evaldesk ui, and the page of the failures",
    "rescore_run": "evaldesk run rescore RUN --config-file-path FILE",
}
"""Actions of a person only, each with its command or page."""
VERBS: Mapping[str, str] = {
    **dict.fromkeys(("approve", "confirm", "apply", "merge"), "accept"),
    **dict.fromkeys(("reject", "decline", "dismiss"), "refuse"),
    **dict.fromkeys(("update", "modify", "change", "write", "save", "patch", "replace", "rename"), "edit"),
    **dict.fromkeys(("remove", "rm", "drop", "purge", "clear"), "delete"),
    **dict.fromkeys(("skip", "disable", "exclude", "mute", "release"), "quarantine"),
    **dict.fromkeys(("annotate", "grade", "mark", "judge", "override", "pass", "fail"), "label"),
    **dict.fromkeys(("lower", "raise", "move", "relax"), "set"),
    **dict.fromkeys(("allow", "authorize"), "trust"),
}
NOUNS: Mapping[str, str] = {
    **dict.fromkeys(("criteria", "metric", "config"), "criterion"),
    **dict.fromkeys(("set", "dataset", "benchmark"), "evalset"),
    **dict.fromkeys(("verdict", "score"), "trial"),
    **dict.fromkeys(("test", "example"), "case"),
    **dict.fromkeys(("workspace", "directory", "project"), "folder"),
}
"""Words in names of tools that are not there, each with the word of `FOR_PERSONS` for it."""
BARS: Mapping[str, str] = {
    "threshold": "set_threshold",
    "criterion": "set_criteria",
    "gate": "set_gate",
    "baseline": "set_baseline",
    "quarantine": "quarantine_case",
    "unquarantine": "quarantine_case",
    "trust": "trust_folder",
    "label": "label_trial",
    "finding": "change_finding",
    "kind": "change_kind",
}
"""Things that only a person changes, whatever the verb."""
READING_VERBS = frozenset(("get", "list", "read", "show", "find", "search", "explain", "describe", "count", "propose"))
WHATEVER = frozenset(("accept", "refuse", "undo", "label"))
"""Verbs that decide whatever they are of."""


def tools_of(allowed: frozenset[str]) -> Mapping[str, Tool]:
    """The tools that are there with these groups beside `read`."""
    return {name: tool for name, tool in TOOLS.items() if tool.group == "read" or tool.group in allowed}


def find_tool(name: str, allowed: frozenset[str]) -> Tool:
    """The tool of that name. Raises UsageError with the command of a person, or the nearest tool."""
    tools = tools_of(allowed)
    if name in tools:
        return tools[name]
    if name in TOOLS:
        group = TOOLS[name].group
        budget = " --budget 5usd/day" if group == "run" else ""
        raise UsageError(f"{name} is not allowed here; a person starts `evaldesk mcp --allow {group}{budget}` for it")
    if command := _command_of_person(name):
        raise UsageError(f"no tool does {name[:VALUE_LIMIT]}: that is for a person, with `{command}`")
    raise NotFoundError.among("tool", name, tools)


def _command_of_person(name: str) -> str:
    """The command or page of a person for a name such as `approve_proposals`; empty for one that decides nothing."""
    if name in FOR_PERSONS:
        return FOR_PERSONS[name]
    verb, *others = _words_of(name)
    if verb in READING_VERBS:
        return ""
    bar = next((BARS[word] for word in (*others, verb) if word in BARS), None)
    if bar:
        return FOR_PERSONS[bar]
    same_verb = [each for each in FOR_PERSONS if _words_of(each)[0] == verb]
    nearest = next((each for each in same_verb if set(others) & {*_words_of(each)[1:]}), None)
    if nearest is None and same_verb and (verb in WHATEVER or not others):
        nearest = same_verb[0]
    return FOR_PERSONS[nearest] if nearest else ""


def _words_of(name: str) -> list[str]:
    """The words of a name in snake or camel case, each as `FOR_PERSONS` has it."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name[:MAX_NAME])
    verb, *nouns = [word.lower() for word in words] or [""]
    return [VERBS.get(verb, verb), *(NOUNS.get(noun, noun) for noun in (each.removesuffix("s") for each in nouns))]


def checked_inputs(tool: Tool, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a call by the schema of the tool. Raises UsageError with the place."""
    schemas = tool.schema["properties"]
    for name in inputs:
        if name not in schemas:
            raise NotFoundError.among(f"input of {tool.name}", name, schemas)
    absent_names = [name for name in tool.required if inputs.get(name) is None]
    if absent_names:
        raise UsageError(f"{tool.name}: {absent_names[0]} is missing", field=absent_names[0])
    values = {name: value for name, value in inputs.items() if value is not None}
    for name, value in values.items():
        _check(f"{tool.name}: {name}", value, schemas[name])
    return values


_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "array": list,
    "object": dict,
    "boolean": bool,
}


def _check(place: str, value: Any, schema: Schema) -> None:
    kind: str = schema["type"]
    is_of_kind = isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")
    if not is_of_kind:
        raise UsageError(f"{place} must be {'an' if kind[0] in 'aio' else 'a'} {kind}, got {type(value).__name__}")
    if "enum" in schema and value not in schema["enum"]:
        raise UsageError(f"{place} must be one of {', '.join(schema['enum'])}, got {str(value)[:VALUE_LIMIT]!r}")
    if kind in ("integer", "number"):
        least, most = schema.get("minimum", float("-inf")), schema.get("maximum", 2**53)
        if not least <= value <= most:
            raise UsageError(f"{place} must be from {least:,} to {most:,}, got {value:,}")
    if kind == "string" and len(value) > schema.get("maxLength", MAX_TEXT):
        raise UsageError(
            f"{place} has {len(value):,} characters; at most {schema.get('maxLength', MAX_TEXT):,} are read"
        )
    if kind == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems", MAX_ITEMS)
        if not least <= len(value) <= most:
            raise UsageError(f"{place} must have {least:,} to {most:,} items, got {len(value):,}")
        for number, each in enumerate(value):
            _check(f"{place}[{number}]", each, schema["items"])


def check_open(desk: Desk, name: str) -> None:
    """Raise UsageError for a tool or command that writes, where the workspace is not trusted or read-only."""
    if desk.is_read_only:
        raise UsageError(f"{name}: this workspace is read-only; only the reading tools work")
    if desk.is_restricted:
        raise UsageError(f"{name}: a person has not trusted this workspace; only the reading tools work until then")


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: the name of the client, the groups of tools that a person allowed, and the budget of a day."""

    client: str = "a coding agent"
    allowed: frozenset[str] = frozenset()
    budget: Budget | None = None


async def call(
    tool: Tool, desk: Desk | None, inputs: Mapping[str, Any], caller: Caller | None = None
) -> dict[str, Any]:
    """The answer of a tool; reading happens in a thread. A tool that needs no desk takes None. Raises EvaldeskError."""
    caller = caller or Caller()
    values = {
        name if tool.inputs.get(name) is OBJECT else PARAMETERS.get(name, name): value
        for name, value in checked_inputs(tool, inputs).items()
    }
    max_tokens = values.pop("max_tokens", USUAL_TOKENS)
    values |= {"max_tokens": max_tokens} if tool.makes_pages else {}
    values |= {"client": caller.client} if tool.needs_client else {}
    values |= {"budget": caller.budget} if tool.needs_budget else {}
    answer = functools.partial(tool.answer, desk) if tool.needs_desk else tool.answer
    if inspect.iscoroutinefunction(tool.answer):
        return await answer(**values)  # type: ignore[no-any-return]
    return await asyncio.to_thread(answer, **values)

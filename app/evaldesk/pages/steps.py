"""The decisive steps of a code agent's trial, chosen by rule, and between them the others, folded to a line each.

Decisive are the task, the last edit of a file in a row, test runs, the first error of each kind, the words before the
first edit that name a cause, and the last message. No model reads them. A reader may ask for all steps, for the edits,
or for the failed ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from evaldesk.model import Case, Event, ToolCall, TrialResult
from evaldesk.model.agent_tree import several_agents
from evaldesk.model.conclusion import counted
from evaldesk.model.transcript import call_key
from evaldesk.pages.conversation import call_line, value_text
from evaldesk.pages.json_tree import cut
from evaldesk.pages.prose import Markdown, Prose
from evaldesk.wording.words import ending_sentence

# Rules, so that two readers see the same trial: decision 320.
LEAST = 10
"""A trial of fewer steps is read as it is."""
MAX_SHOWN = 60
MAX_LINE = 160
MAX_SAID = 600
MAX_READ = 20_000
Hunks: TypeAlias = Callable[[str], tuple[str, ...] | None]
Kind: TypeAlias = Literal["task", "message", "thought", "read", "search", "command", "tests", "edit", "finish", "call"]
NOUNS: dict[Kind, tuple[str, str]] = {
    "task": ("message of the user", "messages of the user"),
    "message": ("message", "messages"),
    "thought": ("thought", "thoughts"),
    "read": ("file read", "files read"),
    "search": ("search", "searches"),
    "command": ("command", "commands"),
    "tests": ("test run", "test runs"),
    "edit": ("edit", "edits"),
    "finish": ("end", "ends"),
    "call": ("other call", "other calls"),
}
_PATHS = ("path", "file_path", "filename", "file", "target_file")
_COMMANDS = ("command", "cmd", "code", "script")
_PREFIX = (
    r"^(?:\w+=\S*\s+)*(?:(?:sudo|time|timeout\s+\S+|uv\s+run|poetry\s+run|npx|bundle\s+exec"
    r"|python[\d.]*(?:\s+-\S+)*)\s+)*"
)
_TESTS = re.compile(
    _PREFIX
    + r"(?:\S*/)?(?:pytest|py\.test|unittest|tox|nox|nosetests|runtests\.py|jest|vitest|mocha|rspec|phpunit|ctest"
    r"|bin/test|(?:manage\.py|npm|yarn|pnpm|go|cargo|mvn|gradlew?|dotnet|rake|make|mix|swift)(?:\s+\S+){0,3}?\s+(?:test|check)\S*)"
    r"(?:\s|$)"
)
_SEARCH = re.compile(_PREFIX + r"(?:grep|rg|ag|find|ls|tree|which|pwd|git\s+(?:log|status|diff|show|grep|blame))\b")
_READ = re.compile(_PREFIX + r"(?:cat|head|tail|less|nl|wc|sed\s+-n)\b")
_EDITS = re.compile(r"\bsed\s+-i\s")
_WRITES = re.compile(r"^(?:cat|echo|printf|tee)\b[^|]*?>>?\s*([\w./-]+)")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Update|Add) File: |\+\+\+ (?:b/)?)(\S+)", re.MULTILINE)
_CAUSE = re.compile(
    r"\b(?:root cause|(?:the|this) (?:cause|problem|issue|bug|fault|reason)\b"
    r"[^.,;:\n]{0,60}?\b(?:is|was|lies|seems)\b)",
    re.IGNORECASE,
)
_SUMMARY = re.compile(r"^[= ]*((?:\d+ [a-z]+(?:, )?)+) in \d[\d.]*s\b|^(OK|FAILED)(?: \(.*\))?$", re.MULTILINE)
_HARNESS = re.compile(r"^\[(?:The command completed|Current working directory|Python [Ii]nterpreter).*\]$")
_FAILED_EDIT = re.compile(r"\s*(?:ERROR\b|Error\b|No replacement was performed)")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the agent: `line` is its action, `words` its message, `output` the result.

    `agent` is empty where one agent acts; `within` is the tool inside of which it acted.
    """

    number: int
    kind: Kind
    line: str
    href: str
    words: str = ""
    file: str = ""
    change: str = ""
    output: str = ""
    verdict: Literal["", "passed", "failed", "errored"] = ""
    agent: str = ""
    within: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A decisive step, or as `folded` the steps between two of them, counted in the title.

    `code` is its edit, or its command with the end of the output. `to` are the hunks of the patch that an edit
    may have made, by their addresses.
    """

    title: str
    step: Step | None = None
    prose: Prose = field(default_factory=lambda: Prose(""))
    code: str = ""
    note: str = ""
    to: Sequence[str] = ()
    folded: Sequence[Step] = ()


@dataclass(frozen=True, slots=True)
class Walk:
    """The requested ones of `n` steps, with folded ones between them; `asked` is one of `counts`."""

    entries: Sequence[Entry]
    n: int
    filter_name: str
    counts: Mapping[str, int]

    @property
    def words(self) -> str:
        """The number of shown steps."""
        n = self.n if self.filter_name == "all" else sum(entry.step is not None for entry in self.entries)
        return f"{n:,} of {self.n:,}"


def walk_of(case: Case, result: TrialResult, hunks: Hunks, filter_name: str = "decisive") -> Walk | None:
    """The walk through a trial that edits files or runs tests in many steps; None for any other.

    `hunks` gives the addresses of the hunks that the patch has of a file, None without a patch. `filter_name` is
    all, edits or errors; anything else is decisive.
    """
    steps = list(_steps(result))
    if len(steps) < LEAST or not any(step.kind in ("edit", "tests") for step in steps):
        return None
    some = {
        "all": [],
        "edits": [at for at, step in enumerate(steps) if step.kind == "edit"],
        "errors": [at for at, step in enumerate(steps) if step.verdict in ("failed", "errored")],
    }
    counts = {"decisive": 0, **{name: len(step_indexes) for name, step_indexes in some.items()}}
    if filter_name == "all":
        return Walk([_fold(steps)], len(steps), filter_name, counts)
    is_decisive = filter_name not in some
    rows_by_step = _decisive_steps(steps, hunks) if is_decisive else {at: list[int]() for at in some[filter_name]}
    indexes_shown = sorted(rows_by_step)
    indexes_shown = (
        indexes_shown
        if len(indexes_shown) <= MAX_SHOWN
        else [*indexes_shown[: MAX_SHOWN // 2], *indexes_shown[-MAX_SHOWN // 2 :]]
    )
    entries, at, markdown, edited_files = list[Entry](), 0, Markdown(), set[str]()
    for index in indexes_shown:
        if index > at and is_decisive:
            entries.append(_fold(steps[at:index]))
        step, is_last = steps[index], index == len(steps) - 1
        entries.append(_entry(case, step, rows_by_step[index], edited_files, hunks, markdown, is_last=is_last))
        at = index + 1
    if at < len(steps) and is_decisive:
        entries.append(_fold(steps[at:]))
    if steps[-1].kind not in ("message", "finish") and is_decisive:
        why = result.error.message if result.error else ending_sentence(result)
        entries.append(Entry("Ended without a last message", note=cut(why, MAX_SAID)))
    return Walk(entries, len(steps), "decisive" if is_decisive else filter_name, counts)


def _steps(result: TrialResult) -> Iterator[Step]:
    """Each message and each call of the agents, with its result; words of the same agent before a call belong to it."""
    number, has_agents = 0, bool(several_agents(result.transcript.turns))
    for turn, record in enumerate(result.transcript.turns, 1):
        number += 1
        yield Step(number, "task", cut(record.query, MAX_LINE), f"#turn-{turn}", record.query)
        steps = list[Step]()
        message: Step | None = None
        calls: dict[str, int] = {}
        for at, event in enumerate(record.events):
            href = f"#turn-{turn}-event-{at}"
            if event.is_partial:
                continue
            agent, within = event.author if has_agents else "", event.within
            if event.kind == "agent_message" and event.text.strip():
                steps += [message] if message else []
                message = Step(
                    0,
                    "message",
                    cut(event.text.strip(), MAX_LINE),
                    href,
                    event.text[:MAX_READ],
                    agent=agent,
                    within=within,
                )
                if steps and steps[-1].kind == "finish" and steps[-1].within == within:
                    steps[-1], message = replace(steps[-1], words=message.words), None
            elif event.kind == "tool_call" and event.call:
                if message and (message.agent, message.within) != (agent, within):
                    steps.append(message)
                    message = None
                step = _call(event.call, href, message.words if message else "")
                calls[call_key(event.call)] = len(steps)
                steps.append(replace(step, agent=agent, within=within))
                message = None
            elif event.kind == "tool_result" and event.call:
                index = calls.pop(call_key(event.call), None)
                if index is not None:
                    steps[index] = _with_output(steps[index], event)
        for step in [*steps, *([message] if message else [])]:
            number += 1
            yield replace(step, number=number)


def _call(call: ToolCall, href: str, words: str) -> Step:
    """The kind of step of a call, by its name and its arguments."""
    names = set(re.findall(r"[a-z]+", call.name.lower()))
    texts = {key: value for key, value in call.args.items() if isinstance(value, str)}
    path = next((texts[key] for key in _PATHS if key in texts), "")
    command = next((texts[key] for key in _COMMANDS if key in texts), "")
    line = cut(f"{call.name} {path}" if path else call_line(call.name, call.args), MAX_LINE)
    if names & {"think", "thought"}:
        text = next(iter(texts.values()), "")
        return Step(0, "thought", cut(text, MAX_LINE), href, text[:MAX_READ] or words)
    if names & {"finish", "submit", "complete"}:
        return Step(
            0, "finish", line, href, next((texts[key] for key in ("message", "final_thought") if key in texts), "")
        )
    if path and command in ("view", "create", "str_replace", "insert", "undo_edit"):
        kind: Kind = "read" if command == "view" else "edit"
    elif names & {"edit", "write", "replace", "patch", "create", "insert"}:
        kind, path = "edit", path or next(iter(_PATCHED.findall("\n".join(texts.values())[:MAX_READ])), "")
    elif names & {"read", "view", "open", "cat", "goto", "scroll"}:
        kind = "read"
    elif names & {"search", "grep", "find", "glob", "ls", "list"}:
        kind = "search"
    elif command:
        kind, path = _shell(command[:2_000])
        line = cut(f"$ {command.strip()}", MAX_LINE)
    else:
        kind = "call"
    return Step(0, kind, line, href, words, path if kind == "edit" else "", _change(texts) if kind == "edit" else "")


def _shell(command: str) -> tuple[Kind, str]:
    """The kind of a shell command by its parts, and the file that it writes."""
    parts = [part.strip() for part in re.split(r"&&|\|\||[;|\n]", command) if part.strip()]
    if any(_TESTS.match(part) for part in parts):
        return "tests", ""
    first = command.strip().partition("\n")[0]
    if _EDITS.search(first):
        return "edit", first.split()[-1]
    if wrote := _WRITES.search(first):
        return "edit", wrote[1]
    parts = [part for part in parts if not part.startswith(("cd ", "export "))]
    kinds: tuple[tuple[Kind, re.Pattern[str]], ...] = (("search", _SEARCH), ("read", _READ))
    return next((kind for kind, pattern in kinds if parts and pattern.match(parts[0])), "command"), ""


def _change(texts: dict[str, str]) -> str:
    """The first lines that an edit takes away and adds."""
    old_lines, new_lines = (
        [
            line
            for line in next((texts[key] for key in keys if key in texts), "")[:MAX_READ].splitlines()
            if line.strip()
        ]
        for keys in (("old_str", "old_string", "search"), ("new_str", "new_string", "replace", "file_text", "content"))
    )
    removed_lines, added_lines = (
        [line for line in old_lines if line not in new_lines],
        [line for line in new_lines if line not in old_lines],
    )
    n_more = len(removed_lines[3:]) + len(added_lines[3:])
    lines = [
        *(f"− {cut(line, MAX_LINE)}" for line in removed_lines[:3]),
        *(f"+ {cut(line, MAX_LINE)}" for line in added_lines[:3]),
    ]
    return "\n".join([*lines, *([f"… {counted(n_more, 'more line')}"] if n_more else [])])


def _with_output(step: Step, event: Event) -> Step:
    if step.kind != "tests" and not event.is_error and not (step.kind == "edit" and isinstance(event.result, str)):
        return step
    text = value_text(event.result)[-MAX_READ:]
    lines = [line for line in text.splitlines() if line.strip() and not _HARNESS.match(line)]
    output = "\n".join(cut(line, MAX_LINE) for line in lines[-3:])
    is_failed = event.is_error or (step.kind == "edit" and _FAILED_EDIT.match(text) is not None)
    if step.kind != "tests":
        return replace(step, output=output, verdict="errored" if is_failed else "")
    summaries = ["".join(groups) for groups in _SUMMARY.findall(text)]
    if not summaries:
        return replace(step, output=output, verdict="failed" if is_failed else "")
    return replace(
        step, output=output, verdict="failed" if re.search(r"fail|error", summaries[-1], re.IGNORECASE) else "passed"
    )


def _decisive_steps(steps: Sequence[Step], hunks: Hunks) -> dict[int, list[int]]:
    """The decisive steps by index; each edit with the earlier edits of the same file in a row."""
    rows_by_step, errors, row = {0: list[int]()}, set[str](), list[int]()

    def close() -> None:
        if row:
            rows_by_step[([at for at in row if not steps[at].verdict] or row)[-1]] = list(row)
        row.clear()

    for at, step in enumerate(steps):
        if step.kind == "edit" and (not step.file or hunks(step.file) != ()):
            if row and steps[row[0]].file != step.file:
                close()
            row.append(at)
        elif step.kind == "tests" or (step.kind in ("command", "call") and step.verdict and step.output not in errors):
            errors.add(step.output)
            close()
            rows_by_step[at] = []
    close()
    first = min((at for at in rows_by_step if steps[at].kind == "edit"), default=len(steps))
    if cause := [at for at in range(1, first + 1) if at < len(steps) and _CAUSE.search(steps[at].words)]:
        rows_by_step.setdefault(cause[-1], [])
    if steps[-1].kind in ("message", "finish"):
        rows_by_step[len(steps) - 1] = []
    return rows_by_step


def _entry(
    case: Case,
    step: Step,
    row: Sequence[int],
    edited_files: set[str],
    hunks: Hunks,
    markdown: Markdown,
    *,
    is_last: bool,
) -> Entry:
    words, code, note = step.words, "\n".join(filter(None, (step.line, step.output))), ""
    name = step.file.rpartition("/")[2]
    cause = _CAUSE.search(words)
    if step.kind == "task":
        title, words, code = "Task" if step.number == 1 else "Asked", _task(case, step), ""
    elif step.kind in ("message", "finish"):
        title, code = "Last message" if is_last else "Named a cause", ""
    elif step.kind == "edit":
        verb = "Edit failed" if step.verdict else "Edited again" if step.file in edited_files else "Edited"
        title, code = f"{verb}: {name}".rstrip(": "), code if step.verdict else step.change
        edited_files.add(step.file)
        note = f"The last of {len(row)} edits in a row." if len(row) > 1 else ""
    elif step.kind == "tests":
        title = {"passed": "Tests passed", "failed": "Tests failed"}.get(step.verdict, "Ran tests")
    elif step.verdict and (step.kind in ("command", "call") or not cause):
        title = "Error"
    else:
        title, code = "Named a cause", ""
    if step.kind not in ("task", "message", "finish"):
        words = words[max(0, words.rfind(". ", 0, cause.start()) + 1) :] if cause else ""
    prose = markdown.prose(cut(words.strip(), MAX_SAID))
    return Entry(title, step, prose, code, note, hunks(step.file) or () if name and not step.verdict else ())


def _task(case: Case, step: Step) -> str:
    """The problem that a benchmark states in its task; else the task."""
    instance = case.extra.get("instance")
    stated = instance.get("problem_statement") if isinstance(instance, dict) else None
    return stated if step.number == 1 and isinstance(stated, str) and stated.strip() else step.words


def _fold(steps: Sequence[Step]) -> Entry:
    kinds = dict.fromkeys(step.kind for step in steps)
    counts = ((sum(step.kind == kind for step in steps), *NOUNS[kind]) for kind in kinds)
    words = (f"{n:,} {one if n == 1 else many}" for n, one, many in counts)
    n_failed = sum(step.verdict == "errored" for step in steps)
    failed = f", {n_failed:,} failed" if n_failed else ""
    return Entry(f"{counted(len(steps), 'step')}: {', '.join(words)}{failed}", folded=steps)

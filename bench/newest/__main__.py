"""Play each framework at its newest version, and write the table of docs/agents.md; fails on a cell that was green.

The newest seed tools are read, too: each metric, option and field has a row in docs/coming-from.md.

`python -m bench.newest [NAME ...]` plays those whose name contains a word. The exchanges with the endpoint go to
`tests/agents/exchanges`, without the words of the framework. It downloads packages, so it is no part of `.ci/run`.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uv

from bench.newest.endpoint import TOKENS_IN, TOKENS_OUT, TOOL, WANTS_ROLL, Exchange, FakeEndpoint, fake_endpoint
from bench.newest.frameworks import FRAMEWORKS, Framework
from bench.newest.seed_tools import SEED_TOOLS, download, problems_of
from evaldesk.engine import LocalExecutor
from evaldesk.engine.executors import drive
from evaldesk.engine.launch import ProcessLauncher
from evaldesk.model import AgentRef, Case, Event, Limits, TrialResult, TrialSpec, Turn
from evaldesk.model.evalset import DECISIONS

REPOSITORY = Path(__file__).resolve().parents[2]
DOC = REPOSITORY / "docs" / "agents.md"
SEED_DOC = REPOSITORY / "docs" / "coming-from.md"
EXCHANGES = REPOSITORY / "tests" / "agents" / "exchanges"
BEGIN, END = "<!-- newest: begin -->", "<!-- newest: end -->"
GREEN, RED, NONE = "yes", "no", "–"
HELLO = "hello?"


def main(words: Sequence[str]) -> int:
    """The exit code: 1 where a cell that was green is red."""
    text = DOC.read_text("utf-8")
    cells = _cells(text)
    known_green = {key for key, cell in cells.items() if cell == GREEN}
    reasons: dict[tuple[str, str], str] = {}
    versions = _versions(text)
    with tempfile.TemporaryDirectory(prefix="evaldesk-newest-") as folder:
        for framework in FRAMEWORKS:
            if words and not any(word.lower() in framework.name.lower() for word in words):
                continue
            print(f"{framework.name} ...", flush=True)
            try:
                python = _environment(framework, Path(folder))
            except subprocess.CalledProcessError as error:
                reasons |= {(framework.name, shape): error.stderr[-500:] for shape in SHAPES}
                cells |= {(framework.name, shape): RED for shape in SHAPES}
                continue
            version = _version(framework, python)
            versions[framework.name] = (version, datetime.now(UTC).date().isoformat())
            for shape, problem in _played(framework, python, Path(folder), version).items():
                cells[framework.name, shape] = NONE if problem is None else RED if problem else GREEN
                if problem:
                    reasons[framework.name, shape] = problem
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    DOC.write_text(f"{before}{BEGIN}\n{_table(cells, versions)}\n{END}{after}", "utf-8")
    for (name, shape), reason in reasons.items():
        print(f"{name}: {shape}: {reason}", file=sys.stderr)
    problems = _seed_problems(words)
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(known_green & reasons.keys() or problems))


def _seed_problems(words: Sequence[str]) -> list[str]:
    """The names of the seed tools without a row in docs/coming-from.md, and rows of names that are no more."""
    problems = list[str]()
    page = SEED_DOC.read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="evaldesk-seed-tools-") as folder:
        for tool in SEED_TOOLS:
            if words and not any(word.lower() in tool.name.lower() for word in words):
                continue
            print(f"{tool.name}, its names ...", flush=True)
            try:
                problems += problems_of(page, tool, download(tool, Path(folder)))
            except subprocess.CalledProcessError as error:
                problems.append(f"{tool.name}: {error.stderr[-500:]}")
    return problems


def _environment(framework: Framework, folder: Path) -> str:
    """The interpreter of a new environment with the newest versions. Raises CalledProcessError."""
    home = folder / re.sub(r"\W+", "-", "-".join(framework.packages))
    python = home / "bin" / "python"
    if not python.exists():
        for command in (
            [uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, str(home)],
            [uv.find_uv_bin(), "pip", "install", "--quiet", "--upgrade", "--python", str(python), *framework.packages],
        ):
            subprocess.run(command, capture_output=True, text=True, check=True)
    return str(python)


def _version(framework: Framework, python: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({framework.package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _played(framework: Framework, python: str, folder: Path, version: str) -> dict[str, str | None]:
    """The problem of each shape; empty for none, None where the shape is none of the framework's."""
    problems: dict[str, str | None] = {}
    for shape, (extra, queries, judge) in SHAPES.items():
        if framework.has_adapter and DECISIONS in extra:
            problems[shape] = None  # its approvals are its own: docs/approvals.md
            continue
        home = Path(tempfile.mkdtemp(dir=folder))
        with fake_endpoint() as endpoint:
            source = framework.source.replace("{address}", endpoint.address).replace("{folder}", str(home / "own"))
            (home / "agent.py").write_text(source)
            values = json.loads(json.dumps(extra).replace(TOOL, framework.tool))
            try:
                result = asyncio.run(_trial(framework, python, home, values, queries))
            except Exception as error:  # a framework may fail in any way
                problems[shape] = f"{type(error).__name__}: {error}"[:500]
                continue
            problem = f"{result.error.kind}: {result.error.message}"[:500] if result.error else ""
            problems[shape] = problem or judge(framework, result, endpoint)
        if not extra and not problems[shape]:
            _keep_exchanges(framework, version, result, endpoint.exchanges)
    return problems


async def _trial(
    framework: Framework, python: str, home: Path, extra: Mapping[str, Any], queries: Sequence[str]
) -> TrialResult:
    ref = AgentRef("newest", "agent:root_agent", str(home), str(home), python=python)
    case = Case("c", tuple(map(Turn, queries)), extra=extra)
    executor = LocalExecutor(1, 1, launcher=ProcessLauncher(python))
    try:
        async for result in drive([TrialSpec(1, 0, 0, case, ref, limits=Limits(240))], executor, 1):
            return result
    finally:
        await executor.close()
    raise AssertionError("no result")


def _judge_call(framework: Framework, result: TrialResult, endpoint: FakeEndpoint) -> str:
    """A problem with the call, its result, the tokens or the second message."""
    first, second = result.transcript.turns
    calls = [(call.name, dict(call.args)) for call in first.tool_calls]
    if calls != [(framework.tool, {"sides": 6})]:
        return f"the calls are {calls}"
    if [str(value) for value in _results(first.events)] != ["6"]:
        return f"the results are {_results(first.events)}"
    if "6" not in str(first.answer) or second.answer != "hello 2":
        return f"the answers are {first.answer!r} and {second.answer!r}"
    usages = [(usage.tokens_in, usage.tokens_out) for turn in result.transcript.turns for usage in turn.usages]
    if usages != [(TOKENS_IN, TOKENS_OUT)] * len(endpoint.exchanges):
        return f"{len(endpoint.exchanges)} requests, and the usages are {usages}"
    return ""


def _judge_answer(wanted: str) -> Callable[[Framework, TrialResult, FakeEndpoint], str]:
    def judge(framework: Framework, result: TrialResult, endpoint: FakeEndpoint) -> str:
        [turn] = result.transcript.turns
        if [call.name for call in turn.tool_calls] != [framework.tool]:
            return f"the calls are {[call.name for call in turn.tool_calls]}"
        results = [str(value) for value in _results(turn.events)]
        if len(results) != 1 or wanted not in results[0]:
            return f"the results are {results}"
        return "" if wanted in str(turn.answer) else f"the answer is {turn.answer!r}"

    return judge


def _results(events: Sequence[Event]) -> list[Any]:
    return [event.result for event in events if event.kind == "tool_result"]


SHAPES: Mapping[str, tuple[Mapping[str, Any], Sequence[str], Callable[[Framework, TrialResult, FakeEndpoint], str]]] = {
    "calls, results, tokens, session": ({}, (WANTS_ROLL, HELLO), _judge_call),
    "a tool double": ({"tool_doubles": {"tools": {TOOL: [{"result": 4}]}}}, (WANTS_ROLL,), _judge_answer("4")),
    "a refusal of the case": (
        {DECISIONS: [{"tool": TOOL, "decision": "deny", "reason": "Not today"}]},
        (WANTS_ROLL,),
        _judge_answer("Not today"),
    ),
}


def _keep_exchanges(framework: Framework, version: str, result: TrialResult, exchanges: Sequence[Exchange]) -> None:
    """Write the exchanges without the framework's own words: instructions, descriptions, settings."""
    kept = [{"path": each.path, "request": _without_words(each.request), "answer": each.answer} for each in exchanges]
    EXCHANGES.mkdir(exist_ok=True)
    name = re.sub(r"\W+", "_", framework.name.lower()).strip("_")
    value = {"framework": framework.name, "version": version, "tool": framework.tool, "exchanges": kept}
    (EXCHANGES / f"{name}.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _without_words(request: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: request[key] for key in ("model", "stream", "tool_choice") if key in request}
    key = "messages" if "messages" in request else "input"
    messages = request[key] if isinstance(request[key], list) else [{"role": "user", "content": request[key]}]
    return {**own, key: [_without_instruction(each) for each in messages]}


def _without_instruction(message: Mapping[str, Any]) -> dict[str, Any]:
    if message.get("role") in ("system", "developer"):
        return {**message, "content": "You roll dice."}
    content = message.get("content")
    if message.get("role") == "user" and isinstance(content, list):
        parts = [part for part in content if part.get("type") != "text" or _is_ours(str(part.get("text")))]
        return {**message, "content": parts or "Go on."}
    return dict(message)


def _is_ours(text: str) -> bool:
    return len(text) < 100 and "<" not in text


def _table(cells: Mapping[tuple[str, str], str], versions: Mapping[str, tuple[str, str]]) -> str:
    lines = [f"| framework | version | played | {' | '.join(SHAPES)} |", f"|---|---|---|{'---|' * len(SHAPES)}"]
    for framework in FRAMEWORKS:
        row = [cells.get((framework.name, shape), NONE) for shape in SHAPES]
        version, played = versions.get(framework.name, (NONE, NONE))
        lines.append(f"| {framework.name} | {version} | {played} | {' | '.join(row)} |")
    return "\n".join(lines)


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.partition(BEGIN)[2].partition(END)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 + len(SHAPES) and cells[0] not in ("framework", "---"):
            yield cells


def _cells(text: str) -> dict[tuple[str, str], str]:
    return {(name, shape): cell for name, _, _, *row in _rows(text) for shape, cell in zip(SHAPES, row, strict=True)}


def _versions(text: str) -> dict[str, tuple[str, str]]:
    return {name: (version, played) for name, version, played, *_ in _rows(text)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

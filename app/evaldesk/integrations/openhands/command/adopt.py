"""Projects of OpenHands: their parts, the commands that change, and the differences for their users."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from evaldesk.desk.adopting import PartKind, ToolPackage, ToolProject, text_of

_MODULE_OF_BENCHMARK = re.compile(r"\bpython3? -m (?P<module>[\w.]+\.run_infer)\b(?!\.)")
_SCRIPTS = re.compile(r"^\[project\.scripts\](?P<lines>(?:\n(?!\[).*)*)", re.MULTILINE)
_SCRIPT_OF_BENCHMARK = re.compile(r"^(?P<name>[\w-]+)[ \t]*=[ \t]*[\"'](?P<module>[\w.]+\.run_infer):", re.MULTILINE)


def command_rewriter(folder: Path, names: Sequence[str]) -> Callable[[str], str]:
    """The change of commands that start a benchmark as a module, or by a script of the project's `pyproject.toml`."""
    return partial(_with_own_benchmarks, scripts=_scripts_of_benchmarks(text_of(folder / "pyproject.toml")))


def _scripts_of_benchmarks(text: str) -> dict[str, str]:
    """The module of each command of a `pyproject.toml` that starts a benchmark."""
    lines = (match["lines"] for match in _SCRIPTS.finditer(text))
    return {match["name"]: match["module"] for part in lines for match in _SCRIPT_OF_BENCHMARK.finditer(part)}


def _with_own_benchmarks(text: str, scripts: Mapping[str, str]) -> str:
    """The text with our command for benchmarks that are started as a module, or by a command of the project."""

    def own(module: str) -> str:
        return f"evaldesk benchmark {module.replace('.', '/')}.py"

    text = _MODULE_OF_BENCHMARK.sub(lambda match: own(match["module"]), text)
    names = "|".join(map(re.escape, scripts))
    command = re.compile(rf"(?<![\w./-])({names})(?=[ \t\\]|$)", re.MULTILINE)
    return command.sub(lambda match: own(scripts[match[1]]), text) if names else text


PROJECT = ToolProject(
    parts=(
        PartKind("agent", re.compile(r"\.py$"), re.compile(r"^(async )?def process_instance\(", re.MULTILINE)),
        PartKind(
            "agent",
            re.compile(r"(^|/)run_infer\.py$"),
            re.compile(r"^class \w+\((?:[\w.]+,[ ]*){0,9}(?:[\w.]+\.)?Evaluation\b", re.MULTILINE),
        ),
        PartKind("models", re.compile(r"(^|/)config\.toml$"), re.compile(r"^\[llm", re.MULTILINE)),
        PartKind("models", re.compile(r"(^|/)\.llm_config/[^/]+\.json$")),
        PartKind("result", re.compile(r"(^|/)output\.jsonl$"), is_history=True),
    ),
    package=ToolPackage("openhands-(?:ai|sdk)", "evaldesk"),
    differences=(
        "`openhands/core/main.py` is not a program of Evaldesk; its flags `-i -t -c -l` are those of the "
        "argument parsers that scripts import.",
        "There is no container, no browser and no delegation; commands run as you. The key of `test_result` "
        "that decides is named by `--score-key`.",
        "An instance that raises is errored after one attempt, and a second start plays it again; OpenHands plays "
        "it up to five times more at once (`max_retries`).",
    ),
    commands=((re.compile(r"\b(?:poetry run )?python3? (\S*run_infer\.py)\b"), r"evaldesk benchmark \1"),),
    command_rewriter=command_rewriter,
)

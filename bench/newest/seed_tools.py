"""The metrics, options and fields of the three seed tools at their newest versions, read from their sources.

Nothing of a package is imported: its syntax tree tells the members of an enum, the fields of its models and the
options of its commands.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import uv


@dataclass(frozen=True)
class NameSource:
    """A file of a package, and how its names are read.

    `kind` is a metric (values of an enum), an option (of commands, by their functions) or a field (of classes);
    `owners` are these classes or functions, all of them where it is empty.
    """

    kind: str
    path: str
    owners: tuple[str, ...] = ()


@dataclass(frozen=True)
class SeedTool:
    """One tool with the places of its names; `package` is called so in the registry."""

    name: str
    package: str
    sources: tuple[NameSource, ...]


SEED_TOOLS = (
    SeedTool(
        "ADK",
        "google-adk",
        (
            NameSource("metric", "google/adk/evaluation/eval_metrics.py", ("PrebuiltMetrics",)),
            NameSource("field", "google/adk/evaluation/eval_metrics.py"),
            NameSource("field", "google/adk/evaluation/eval_case.py"),
            NameSource("field", "google/adk/evaluation/eval_set.py"),
            NameSource("field", "google/adk/evaluation/eval_config.py"),
            NameSource("field", "google/adk/evaluation/eval_rubrics.py"),
            NameSource("field", "google/adk/evaluation/conversation_scenarios.py"),
            NameSource("field", "google/adk/evaluation/eval_result.py"),
            NameSource("option", "google/adk/cli/cli_tools_click.py", ("cli_eval", "eval_options")),
        ),
    ),
    SeedTool(
        "Osmosis",
        "osmosis-ai",
        (
            NameSource("option", "osmosis_ai/cli/commands/eval.py"),
            NameSource("field", "osmosis_ai/platform/cli/eval_config.py"),
            NameSource("field", "osmosis_ai/platform/cli/shared_config.py", ("ExperimentSection",)),
            NameSource("field", "osmosis_ai/eval/local/results.py", ("RunIdentity",)),
            NameSource("field", "osmosis_ai/eval/rubric/types.py"),
        ),
    ),
    SeedTool(
        "OpenHands",
        "openhands-sdk",
        (
            NameSource("field", "openhands/sdk/llm/llm.py", ("LLM",)),
            NameSource("field", "openhands/sdk/critic/result.py"),
        ),
    ),
)


def download(tool: SeedTool, folder: Path) -> Path:
    """The newest package of a tool, unpacked. Raises CalledProcessError."""
    home = folder / tool.package
    command = [uv.find_uv_bin(), "pip", "install", "--quiet", "--upgrade", "--no-deps", "--target", str(home)]
    # Its sources are read and never run, so it may want a newer Python than this one.
    subprocess.run([*command, "--python-version", "3.13", tool.package], capture_output=True, text=True, check=True)
    return home


def names_of(tool: SeedTool, home: Path) -> Mapping[str, set[str]]:
    """The names of a tool by kind. Raises OSError for a file that is no more, and ValueError for one without names."""
    names: dict[str, set[str]] = {}
    for source in tool.sources:
        own = set(_names(source, _tree((home / source.path).read_text("utf-8"))))
        if not own:
            raise ValueError(f"{tool.package}: {source.path} has no {source.kind}; has it moved?")
        names.setdefault(source.kind, set()).update(own)
    return names


_TYPE_PARAMETERS = re.compile(r"(?m)^(\s*(?:async )?(?:def|class) \w+)\[[^\]\n]*\]")


def _tree(text: str) -> ast.Module:
    """The syntax tree; of a newer Python without its type parameters, which no name needs."""
    return ast.parse(_TYPE_PARAMETERS.sub(r"\1", text))


def _names(source: NameSource, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if source.owners and node.name not in source.owners:
            continue
        if not isinstance(node, ast.ClassDef):
            yield from _options(node) if source.kind == "option" else ()
        elif source.kind != "option":
            yield from _values(node) if source.kind == "metric" else _fields(node)


def _values(node: ast.ClassDef) -> Iterator[str]:
    for part in node.body:
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str):
            yield part.value.value


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            is_constant = "ClassVar" in ast.dump(part.annotation)
            if not part.target.id.startswith("_") and not is_constant:
                yield part.target.id


def _options(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The long options in the decorators and defaults of a function, or in those that it makes."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            first = part.value.partition("/")[0]
            if first.startswith("--") and first[2:].replace("-", "").replace("_", "").isalnum():
                yield first


def rows_of(page: str, tool: SeedTool) -> Mapping[str, set[str]]:
    """The names by kind in the table of a tool; empty without a table."""
    table = page.partition(f"| {tool.name}: kind | names | here |\n")[2].partition("\n\n")[0]
    names: dict[str, set[str]] = {}
    for line in table.splitlines():
        kind, cell, here = (part.strip() for part in line.strip("|").split("|"))
        if here and not kind.startswith("---"):
            names.setdefault(kind, set()).update(re.findall(r"`([^`]+)`", cell))
    return names


def problems_of(page: str, tool: SeedTool, home: Path) -> Iterator[str]:
    """A sentence for each kind with names that the page, or the package, does not have."""
    rows = rows_of(page, tool)
    try:
        newest = names_of(tool, home)
    except (OSError, ValueError) as error:
        yield f"{tool.name}: {error}"
        return
    for kind in sorted({*newest, *rows}):
        own, written = newest.get(kind, set()), rows.get(kind, set())
        if own - written:
            yield f"{tool.name}: no row for the {kind} {', '.join(sorted(own - written))}"
        if written - own:
            yield f"{tool.name}: {tool.package} has no {kind} {', '.join(sorted(written - own))}"


def main() -> int:
    """Print the names, for a person who writes their rows."""
    with tempfile.TemporaryDirectory(prefix="evaldesk-seed-tools-") as folder:
        for tool in SEED_TOOLS:
            for kind, names in names_of(tool, download(tool, Path(folder))).items():
                print(tool.name, kind, len(names), ", ".join(sorted(names)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

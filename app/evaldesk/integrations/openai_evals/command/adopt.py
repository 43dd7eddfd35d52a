"""`evaldesk adopt openai-evals DIR`: a folder of exports becomes eval sets, runs, criteria, prompts and agents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evaldesk.cli.files.exchange_files import visible
from evaldesk.desk.evalsets.names import free_name, slug
from evaldesk.desk.imports.files import FolderOnDisk
from evaldesk.desk.imports.importing import open_imports
from evaldesk.durable_files import make_folder, replace_file
from evaldesk.errors import EvaldeskError, FormatError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.large_runs import TrialRowsOnDisk
from evaldesk.integrations.openai_evals.archive import text
from evaldesk.integrations.openai_evals.evals import FORMAT, ReadEval, read_evals
from evaldesk.integrations.openai_evals.exports import ExportObjects
from evaldesk.integrations.openai_evals.judges import judge_options, message_text
from evaldesk.integrations.openai_evals.templates import as_instruction
from evaldesk.model import EvalSet, JsonObject
from evaldesk.model.conclusion import counted
from evaldesk.reading.notes import Notes
from evaldesk.secrets import scrubber
from evaldesk.settings import Settings
from evaldesk.transcripts.recorded import read_number
from evaldesk.wording.printable import printable
from evaldesk.wording.writer import show

MAX_FILES = 50_000
ENDINGS = (".json", ".jsonl")


def adopt_folder(folder: Path, settings: Settings, *, is_written: bool) -> None:
    """Import every eval of the folder, and show or write the files beside it. Raises UsageError."""
    notes, faulty = Notes(), set[str]()

    def report(path: str, error: FormatError) -> None:
        if path not in faulty:
            show(f"{visible(path)}: {printable(str(error))}", err=True)
        faulty.add(path)

    objects = ExportObjects(FolderOnDisk(folder, str(folder), [*_files(folder)]), report)
    evals, archive = read_evals(objects, slug(folder.resolve().name, default="evals"), notes, rows=TrialRowsOnDisk)
    if not evals and faulty:
        n_files = counted(len(faulty), "file")
        raise UsageError(
            f"{folder}: without {n_files} that cannot be read there are no rows; mend or export them again"
        )
    if not evals:
        raise UsageError(f"{folder} has no objects of OpenAI Evals; name the folder of the export")
    with open_imports(settings) as imports:
        for each in evals:
            name = slug(each.name, default="eval")
            _show_eval(each)
            contents = Imported(FORMAT, EvalSet(name, name=each.name, cases=each.cases), tuple(each.runs))
            try:
                runs_in_store = imports.take_in(contents, source=folder.name, name=name)
            except EvaldeskError as error:
                show(f"  not imported: {printable(str(error))}")
            else:
                runs = ", ".join(map(str, runs_in_store.run_ids)) or "none"
                show(f"  imported: {counted(len(each.cases), 'case')}, runs {runs}")
            _write_files(_planned_files(each, name, settings), is_written=is_written)
    for page in archive.missing_pages:
        show(f"A page is missing after {printable(page) or 'the last object'}: has_more is true.")
    for sentence in notes.sentences:
        show(printable(sentence))


def _files(folder: Path) -> Iterator[str]:
    """The paths of the files that may be of an export, in the folder. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; name that of the export")
    paths = (Path(at) / name for at, _, names in os.walk(folder) for name in sorted(names) if name.endswith(ENDINGS))
    for number, path in enumerate(paths):
        if number == MAX_FILES:
            raise UsageError(f"{folder} has more than {MAX_FILES:,} files; name the folder of the export itself")
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder).as_posix()


def _show_eval(each: ReadEval) -> None:
    show(f"\n{printable(each.name)}:")
    for grader in each.graders:
        show(f"  {printable(grader.name)} ({printable(grader.kind)}): {printable(grader.words)}")
    for words in (*each.words, *each.replaced_words):
        show(f"  {printable(words)}")


def _planned_files(each: ReadEval, name: str, settings: Settings) -> dict[Path, str]:
    """The files beside the eval set with their contents."""
    folder = settings.evalset_folder
    module, agents = f"{name}_graders", settings.workspace / "agents"
    criteria: dict[str, float | JsonObject] = {}
    functions: list[str] = []
    used_names: set[str] = set()
    files = {folder / f"{name}.openai-evals.md": _page(each)}
    for number, (raw, grader) in enumerate(zip(each.criteria, each.graders, strict=True), 1):
        function = free_name(f"grade_{slug(grader.name, default=str(number))}", used_names)
        used_names.add(function)
        source = text(raw.get("source")) if grader.kind == "python" else ""
        if source:
            files[agents / f"{name}_{function}.py"] = source
        if source or grader.is_computed:
            functions.append(_function(function, raw, f"{name}_{function}" if source else ""))
            criteria[f"{module}:{function}"] = 1.0 if grader.threshold is None else grader.threshold
        elif grader.kind in ("label_model", "score_model"):
            files[folder / f"{name}.prompts" / f"{function}.md"] = _prompt(raw)
            if judge := judge_options(raw):
                criteria[f"rubric_score/{function[:40]}"] = judge
    if functions:
        files[agents / f"{module}.py"] = _HEAD.format(name=each.name.replace('"', "'")) + "".join(functions)
    files[folder / f"{name}.criteria.json"] = json.dumps({"criteria": criteria}, indent=2) + "\n"
    if each.model:
        files[settings.workspace / "agents" / name / "agent.py"] = _agent(each)
    scrubbed = scrubber(settings.environment)
    return {path: scrubbed(content) for path, content in files.items()}


_HEAD = '''"""Graders of {name}, from OpenAI Evals: metrics of new runs."""

from evaldesk.integrations.openai_evals.scoring import grade, sample_of
'''


def _function(name: str, raw: Mapping[str, Any], module: str) -> str:
    """A metric that grades as the criterion does; one of source code calls its module."""
    if module:
        call = "own_grade(sample_of(transcript), case.extra['item'])"
        body = f"    from {module} import grade as own_grade\n\n    return {call}\n"
    else:
        body = f"    return grade({dict(raw)!r}, transcript, case)\n"
    return f"\n\ndef {name}(transcript, case):\n{body}"


def _page(each: ReadEval) -> str:
    lines = [f"# {each.name}, from OpenAI Evals", ""]
    lines += ["| grader | type | here |", "|---|---|---|"]
    cells = ((grader.name, grader.kind, grader.words) for grader in each.graders)
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in cells]
    lines += ["", "The verdicts and scores of imported runs are those that OpenAI Evals gave."]
    return "\n".join((*lines, *each.words, *each.replaced_words)) + "\n"


def _prompt(raw: Mapping[str, Any]) -> str:
    settings = {key: raw[key] for key in ("model", "labels", "passing_labels", "range", "pass_threshold") if key in raw}
    parts = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    messages = raw.get("input")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            parts.append(f"\n## {message.get('role')}\n\n{message_text(message)}")
    return "\n".join(parts) + "\n"


def _agent(each: ReadEval) -> str:
    model = each.model if "/" in each.model else f"openai/{each.model}"
    name = slug(each.name, default="agent")
    instruction, keys = as_instruction(each.instruction)
    values: dict[str, Any] = {"name": name, "model": model, "instruction": instruction, **_sampling(each.sampling)}
    if keys:
        values["initial_state"] = keys
    fields = "".join(f"    {key}={value!r},\n" for key, value in values.items())
    return f"from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(\n{fields})\n"


def _sampling(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling parameters as fields of an agent; those without a field of their own are sent along."""
    numbers = {name: read_number(raw.get(key)) for key, name in _SAMPLING.items()}
    values: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    if "max_tokens" in values:
        values["max_tokens"] = int(values["max_tokens"])
    more = {key: raw[key] for key in ("seed", "reasoning_effort", "response_format") if raw.get(key) is not None}
    return {**values, **({"extra": more} if more else {})}


_SAMPLING = {"temperature": "temperature", "top_p": "top_p", "max_completion_tokens": "max_tokens"}


def _write_files(files: Mapping[Path, str], *, is_written: bool) -> None:
    show("  written:" if is_written else "  written with --write:")
    for path, content in files.items():
        if path.exists():
            show(f"    {visible(str(path))} is there already, and stays")
            continue
        if is_written:
            make_folder(path.parent)
            replace_file(path, content.encode("utf-8", "replace"))
        show(f"    {visible(str(path))}")

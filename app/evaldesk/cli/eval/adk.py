"""`evaldesk eval AGENT EVALSET[:CASE,CASE]...`, as `adk eval`. (reference/adk.md section 4)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaldesk import paths
from evaldesk.cli.eval.outcome import play_and_judge
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.desk.criteria.criteria import find_criteria_file, read_criteria, read_user
from evaldesk.desk.imports.files import read_path
from evaldesk.desk.named_agents import named_agent
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import EvalSet
from evaldesk.wording.writer import show

MOST_LISTED = 50


def eval_adk(request: EvalRequest) -> int:
    """Run every eval set that was named; gives the exit code. Raises UsageError, FormatError."""
    if len(request.words) < 2:
        missing = "an agent and an eval set" if not request.words else "an eval set"
        raise UsageError(f"name {missing}, such as: evaldesk eval samples/hello_world hello_world")
    place = (request.python, request.image, request.value("environment"))
    agent = named_agent(request.words[0], request.workspace, *place)
    chosen = _chosen(request.words[1:], paths.folder_of_names(agent.folder))
    config = _config(request, chosen)
    found = None if request.config_file_path else config
    criteria, user = (read_criteria(config), read_user(config)) if config else ((), None)
    if config and not criteria:
        raise UsageError(f'{config} names no criteria; add them, such as "criteria": {{"response_match_score": 0.8}}')
    criteria = request.named_criteria or criteria
    jobs = []
    for path, case_ids in chosen.items():
        evalset = read_evalset_file(path)
        _check_names(path, case_ids, [case.id for case in evalset.cases])
        jobs.append(Job(agent, evalset, path, request.options(case_ids, criteria).but(user=user), found_criteria=found))
    return play_and_judge(request, jobs)


def _config(request: EvalRequest, chosen: Mapping[Path, object]) -> Path | None:
    """The criteria file that was named, or stands beside the eval set. Raises UsageError."""
    if request.config_file_path:
        if request.criteria:
            raise UsageError("--criterion and --config-file-path: name the criteria by one of them")
        return Path(request.config_file_path)
    return None if request.criteria else _config_beside(chosen)


def _config_beside(chosen: Mapping[Path, object]) -> Path | None:
    """The `test_config.json` beside the eval set, where there is only one; says whether it is taken."""
    from evaldesk.wording.printable import in_one_line

    found = next((file for path in chosen if (file := find_criteria_file(path))), None)
    if found and len(chosen) > 1:
        words = f"Several eval sets have the default criteria, not those of {found}; --config-file-path names a file"
        show(in_one_line(f"{words} for all."), err=True)
        return None
    if found:
        show(in_one_line(f"The criteria are those of {found}."), err=True)
    return found


def read_evalset_file(path: Path) -> EvalSet:
    """The eval set of a file in any format that holds one. Raises FormatError, UsageError."""
    imported = read_path(path)
    if imported.evalset is None:
        raise UsageError(f"{path} holds a run, not an eval set; `evaldesk import {path}` takes it in")
    return imported.evalset


def _chosen(words: Sequence[str], folder: Path | None) -> dict[Path, tuple[str, ...] | None]:
    """The files with their cases, None for all; a file that is named twice runs the cases of both."""
    chosen: dict[Path, tuple[str, ...] | None] = {}
    for word in words:
        path, names = paths.selected_cases(word, folder)
        earlier = chosen.get(path, ())
        both = None if names is None or earlier is None else tuple(dict.fromkeys((*earlier, *names)))
        chosen[path] = both
    return chosen


def _check_names(path: Path, names: Sequence[str] | None, known: Sequence[str]) -> None:
    """Raise NotFoundError for names that lead nowhere, with the nearest and with all there are."""
    unknown = [name for name in names or () if name not in known]
    if not unknown:
        return
    message = "; ".join(str(NotFoundError.among("case", name, known)) for name in unknown)
    if "there are: " in message:
        raise NotFoundError(f"{path}: {message}")
    more = ", …" if len(known) > MOST_LISTED else ""
    raise NotFoundError(f"{path}: {message} There are: {', '.join(known[:MOST_LISTED])}{more}")

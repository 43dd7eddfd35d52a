"""`evaldesk eval AGENT EVALSET[:CASE,CASE]...`, as `adk eval`. (reference/adk.md section 4)"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from evaldesk import paths
from evaldesk.cli.door.set_versions import set_at_version
from evaldesk.cli.eval.outcome import play_and_judge
from evaldesk.cli.eval.request import EvalRequest, Job
from evaldesk.desk.criteria.criteria import find_criteria_file, open_criteria_file, read_criteria, read_live, read_user
from evaldesk.desk.imports.files import read_path
from evaldesk.desk.named_agents import named_agent
from evaldesk.desk.runs.plan import is_judged_by_set
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import EvalSet
from evaldesk.run_options import OF_NAMED_RUN
from evaldesk.wording.printable import printable
from evaldesk.wording.writer import show

MOST_LISTED = 50


def eval_adk(request: EvalRequest) -> int:
    """Run every eval set that was named; gives the exit code. Raises UsageError, FormatError."""
    if len(request.words) < 2:
        _refuse_verb(request)
        missing_words = "an agent and an eval set" if not request.words else "an eval set"
        raise UsageError(f"name {missing_words}, such as: evaldesk eval samples/hello_world hello_world")
    place = (request.python, request.image, request.value("environment"))
    try:
        agent = named_agent(request.words[0], request.workspace, *place)
    except UsageError:
        _refuse_verb(request)
        raise
    cases_by_file, versions = _choose_cases(request.words[1:], paths.folder_of_names(agent.folder))
    config = criteria_file_of(request, cases_by_file)
    criteria_file = None if request.config_file_path else config
    criteria, user = (read_criteria(config), read_user(config)) if config else ((), None)
    asked_live = read_live(config) if config and request.run_options.get("live") is None else {}
    for sentence in open_criteria_file(config).left_out if config else ():
        show(f"Left out: {printable(sentence)}.", err=True)
    if config and not criteria:
        raise UsageError(f'{config} names no criteria; add them, such as "criteria": {{"response_match_score": 0.8}}')
    criteria = request.named_criteria or criteria
    jobs = []
    for path, case_ids in cases_by_file.items():
        version = versions.get(path, "")
        evalset = set_at_version(request.workspace, path, version) if version else read_evalset_file(path)
        check_names(path, case_ids, [case.id for case in evalset.cases])
        options = request.options(case_ids, criteria).but(is_by_file=bool(config) and not request.named_criteria)
        if criteria_file and not request.named_criteria and is_judged_by_set(options, evalset):
            from evaldesk.wording.printable import in_one_line

            show(in_one_line(f"{path.name} has criteria of its own, which decide."), err=True)
            options = request.options(case_ids)
        jobs.append(
            Job(
                agent,
                evalset,
                path,
                options.but(user=user, **asked_live),
                found_criteria=criteria_file,
                is_stored=bool(version),
            )
        )
    if request.rows is not None and len(jobs) > 1:
        raise UsageError(f"--rows is for one eval set, and {len(jobs)} are named; name cases, as in FILE:CASE,CASE")
    if request.value("shard") and len(jobs) > 1:
        raise UsageError(f"--shard is of one eval set, and {len(jobs)} are named; shard each by a command of its own")
    if request.value("shard") and request.is_experiment:
        raise UsageError("--shard is of one run, and --vary plays several; leave one out")
    named_option = next((name for name in OF_NAMED_RUN if request.value(name)), None)
    if named_option and request.is_experiment:
        flag = named_option.replace("_", "-")
        raise UsageError(f"--{flag} is of one run, and --vary plays several; name them by --experiment")
    if request.is_experiment:
        from evaldesk.cli.eval.experiment import play_experiment  # most commands play one run

        return play_experiment(request, jobs)
    _refuse_without_variants(request)
    return play_and_judge(request, jobs)


_VERB = re.compile(r"[a-z][a-z_-]{1,30}")
SYNONYMS = {
    "cancel": "run stop",
    "delete": "run rm",
    "diff": "compare",
    "download": "run export",
    "history": "run list",
    "ls": "run list",
    "ps": "run list",
    "remove": "run rm",
    "rerun": "run resume",
    "results": "run info",
    "show": "run info",
    "start": "run submit",
    "view": "open",
    "web": "ui",
}
"""Verbs that other tools have, with the command here."""
LIKENESS = 0.75


def _refuse_verb(request: EvalRequest) -> None:
    """Raise UsageError with the equivalent command where the first word is a verb and no agent."""
    word = request.words[0] if request.words else ""
    settings = request.settings() if _VERB.fullmatch(word) and not Path(word).exists() else None
    if settings is None or word in settings.agents:
        return
    from evaldesk.cli import COMMANDS
    from evaldesk.cli.runs.group import COMMANDS as RUN_COMMANDS

    commands = {**{name: f"run {name}" for name in RUN_COMMANDS}, **{name: name for name in COMMANDS}, **SYNONYMS}
    nearest = [word] if word in commands else get_close_matches(word, commands, n=1, cutoff=LIKENESS)
    if not nearest:
        return
    command = f"`evaldesk {commands[nearest[0]]}`"
    raise UsageError(
        f"eval {word} is not a command, and no agent is called {word!r}: use {command}; an agent is a folder, "
        "module:attr or samples/NAME",
        field="agent",
    )


def _refuse_without_variants(request: EvalRequest) -> None:
    """Raise UsageError for an option of an experiment in a command that plays none."""
    for value, name in (
        (request.experiment, "--experiment"),
        (request.baseline_variant, "--baseline-variant"),
        (request.gate_variants, "--gate-variant"),
        (request.allow_equal, "--allow-equal"),
        (request.drop_worse, "--drop-worse"),
    ):
        if value:
            raise UsageError(f"{name} is of an experiment; add its variants: --vary model=a,b", field="vary")


def criteria_file_of(request: EvalRequest, cases_by_file: Mapping[Path, object]) -> Path | None:
    """The criteria file that was named, or stands beside the eval set. Raises UsageError."""
    if request.config_file_path:
        if request.criteria:
            raise UsageError("--criterion and --config-file-path: name the criteria by one of them")
        return Path(request.config_file_path)
    return None if request.criteria else _config_beside(cases_by_file)


def _config_beside(cases_by_file: Mapping[Path, object]) -> Path | None:
    """The `test_config.json` beside the eval set, where there is only one; says whether it is taken."""
    from evaldesk.wording.printable import in_one_line

    criteria_file = next((file for path in cases_by_file if (file := find_criteria_file(path))), None)
    if criteria_file and len(cases_by_file) > 1:
        words = f"Several eval sets have the default criteria, not those of {criteria_file}; --config-file-path"
        show(in_one_line(f"{words} names a file for all."), err=True)
        return None
    if criteria_file:
        show(in_one_line(f"The criteria are those of {criteria_file}."), err=True)
    return criteria_file


def read_evalset_file(path: Path) -> EvalSet:
    """The eval set of a file in any format that holds one. Raises FormatError, UsageError."""
    imported_file = read_path(path)
    if imported_file.evalset is None:
        raise UsageError(f"{path} holds a run, not an eval set; `evaldesk import {path}` takes it in")
    return imported_file.evalset


_AT_VERSION = re.compile(r"(?P<name>.+)@(?P<version>[0-9a-fA-F]{4,40})(?P<cases>:.*)?")


def _choose_cases(
    words: Sequence[str], folder: Path | None
) -> tuple[dict[Path, tuple[str, ...] | None], dict[Path, str]]:
    """The files with their cases, None for all, and the versions that are named of them, as in SET@VERSION:CASE.

    A file that is named twice runs the cases of both. Raises UsageError for two versions of one file.
    """
    cases_by_file: dict[Path, tuple[str, ...] | None] = {}
    versions: dict[Path, str] = {}
    for word in words:
        match = None if Path(word).exists() else _AT_VERSION.fullmatch(word)
        version = match["version"] if match else ""
        path, names = paths.selected_cases(f"{match['name']}{match['cases'] or ''}" if match else word, folder)
        if path in cases_by_file and versions.get(path, "") != version:
            raise UsageError(f"{path} is named in two versions; play each by a command of its own", field="evalset")
        if version:
            versions[path] = version
        earlier = cases_by_file.get(path, ())
        both = None if names is None or earlier is None else tuple(dict.fromkeys((*earlier, *names)))
        cases_by_file[path] = both
    return cases_by_file, versions


def check_names(path: Path, names: Sequence[str] | None, case_ids: Sequence[str]) -> None:
    """Raise NotFoundError for names that lead nowhere, with the nearest and with all there are."""
    unknown = [name for name in names or () if name not in case_ids]
    if not unknown:
        return
    message = "; ".join(str(NotFoundError.among("case", name, case_ids)) for name in unknown)
    if "there are: " in message:
        raise NotFoundError(f"{path}: {message}")
    more = ", …" if len(case_ids) > MOST_LISTED else ""
    raise NotFoundError(f"{path}: {message} There are: {', '.join(case_ids[:MOST_LISTED])}{more}")

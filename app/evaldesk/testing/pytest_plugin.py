"""The pytest plugin: `pytest --evaldesk-agent samples/hello_world evalsets/` runs the cases of eval sets as tests.

pytest loads this module in every test run of an environment that has Evaldesk. It imports the table of run options,
which needs the standard library only; everything else comes with the option.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from evaldesk.run_options import RUN_OPTIONS, offered

OPTIONS = (
    (
        "agent",
        None,
        "AGENT",
        "Run eval sets with this agent: a folder, module:attr, samples/NAME, or a name in evaldesk.toml.",
    ),
    ("python", "", "FILE", "The interpreter of the agent; that of its project unless given."),
    ("image", "", "NAME", "Play the agent in containers of this image."),
    (
        "min-pass-rate",
        "",
        "R",
        "Share of the scored trials of a case that must pass; default 1, none with a baseline.",
    ),
    ("max-unscored-rate", "0", "R", "Share of the trials of a case that may be unscored."),
    ("min-scored", "1", "N", "Trials of a case that must be scored."),
    ("baseline", "", "RUN|FILE", "An earlier run, by number or by its JSON output: a case fails when it regressed."),
    (
        "regression-rule",
        "",
        "RULE",
        "A case regressed when its verdict flipped (any), passes fewer trials than its history allows (likely), "
        "or flipped and also passes too few fresh ones (confirm).",
    ),
    ("confirm", "", "R|M/R", "With confirm: fresh trials of a case, default 5; with M/R, M of them must pass."),
    (
        "new-cases",
        "",
        "ANSWER",
        "A case that the baseline does not account for: must-pass by itself (default), undecided, or inform (skipped).",
    ),
    ("undecided", "", "ANSWER", "A pass rate too close to its threshold counts as pass, fail or neutral (skipped)."),
    ("config", "", "FILE", "The criteria; the test_config.json or eval_config.json beside each eval set unless given."),
)
DEFAULTS = {"seed": "0"}
"""A test run again is the same test, so its seed is not one by chance."""


def all_options() -> list[tuple[str, str | None, str, str]]:
    """Name, default, metavar and help of each option: those of the plugin, then those of the table of run options."""
    own = [
        (option.flags[0].removeprefix("--"), DEFAULTS.get(option.name, ""), option.metavar or "MODE", option.help)
        for option in offered("pytest")
    ]
    return [*OPTIONS, *own]


def pytest_addoption(parser: Any) -> None:
    """`--evaldesk-agent` and the like, each also as `evaldesk_agent` in the ini file."""
    group = parser.getgroup("evaldesk", "evaluation of agents")
    for name, default, metavar, words in all_options():
        group.addoption(f"--evaldesk-{name}", metavar=metavar, help=words)
        parser.addini(f"evaldesk_{name.replace('-', '_')}", help=words, default=default)


def _refuse_repeats(arguments: Iterable[str]) -> None:
    """Raise UsageError for an option of ours that the command line gives twice; one in `addopts` is overridden."""
    n_by_option = Counter(argument.partition("=")[0] for argument in arguments)
    for name, *_ in all_options():
        if n_by_option[f"--evaldesk-{name}"] > 1:
            import pytest

            raise pytest.UsageError(f"--evaldesk-{name} is given twice; leave one out")


def pytest_load_initial_conftests(args: Iterable[str]) -> None:
    """Say why an option of `evaldesk eval` is none of pytest, which itself would only not know it."""
    option_names = {argument.partition("=")[0] for argument in args if argument.startswith("--evaldesk-")}
    unknown = option_names - {f"--evaldesk-{name}" for name, *_ in all_options()}
    if not unknown:
        return
    import pytest

    from evaldesk.gate_options import GATE_OPTIONS

    for option in (*RUN_OPTIONS, *GATE_OPTIONS):
        name = f"--evaldesk-{option.flags[0].removeprefix('--')}" if option.flags else ""
        if name in unknown and "pytest" in option.left_out:
            raise pytest.UsageError(f"{name} is not there: {option.left_out['pytest']}; leave it out")


def pytest_configure(config: Any) -> None:
    """Collect eval sets where an agent is named; else do nothing."""
    config.addinivalue_line("markers", "evaldesk: a case of an eval set, run by Evaldesk")
    _refuse_repeats(str(argument) for argument in config.invocation_params.args)
    if config.getoption("--evaldesk-agent") or config.getini("evaldesk_agent"):
        from evaldesk.testing.pytest_items import EvalSetCollecting

        config.pluginmanager.register(EvalSetCollecting(config), "evaldesk-collecting")

"""The pytest plugin: `pytest --evaldesk-agent samples/hello_world evalsets/` runs the cases of eval sets as tests.

pytest loads this module in every test run of an environment that has Evaldesk. It imports nothing: what it needs
comes with the option.
"""

from __future__ import annotations

from typing import Any

OPTIONS = (
    (
        "agent",
        None,
        "AGENT",
        "Run eval sets with this agent: a folder, module:attr, samples/NAME, or a name in evaldesk.toml.",
    ),
    ("n", "1", "N", "Trials of each case."),
    ("min-pass-rate", "1", "R", "Share of the scored trials of a case that must pass."),
    ("config", "", "FILE", "The criteria; the test_config.json or eval_config.json beside each eval set unless given."),
    ("model", "", "MODEL", "The model of the agent, by its LiteLLM name."),
    ("user-model", "", "MODEL", "The model that plays the user of cases with a scenario."),
    ("timeout", "120", "S", "Seconds for one trial."),
    ("concurrency", "4", "N", "Trials of a case at once."),
    ("seed", "0", "N", "Seed of all trials."),
)


def pytest_addoption(parser: Any) -> None:
    """`--evaldesk-agent` and the like, each also as `evaldesk_agent` in the ini file."""
    group = parser.getgroup("evaldesk", "evaluation of agents")
    for name, default, metavar, words in OPTIONS:
        group.addoption(f"--evaldesk-{name}", metavar=metavar, help=words)
        parser.addini(f"evaldesk_{name.replace('-', '_')}", help=words, default=default)


def pytest_configure(config: Any) -> None:
    """Collect eval sets where an agent is named; else do nothing."""
    config.addinivalue_line("markers", "evaldesk: a case of an eval set, run by Evaldesk")
    if config.getoption("--evaldesk-agent") or config.getini("evaldesk_agent"):
        from evaldesk.pytest_items import EvalSetCollecting

        config.pluginmanager.register(EvalSetCollecting(config), "evaldesk-collecting")

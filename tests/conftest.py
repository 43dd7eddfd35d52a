"""What every test may use."""

from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from _pytest.pytester import SysModulesSnapshot
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.distribution import (
    SILENCE_S,
    Watchdog,
    import_ahead,
    is_worker,
    put_first,
    pytest_configure_node,
    pytest_exception_interact,
    pytest_runtest_protocol,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
    seed_of_controller,
)
from tests.leftovers import nothing_left, own_imports
from tests.processor_time import ProcessorTime
from tests.selection import Outcomes, SkippedFiles, keep_failed, leave_out_played, shuffle

from evaldesk.process_setup import prepare_litellm

__all__ = [
    "nothing_left",
    "own_imports",
    "pytest_configure_node",
    "pytest_exception_interact",
    "pytest_runtest_protocol",
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
]

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from tests.forked_commands import ForkedCommands
    from tests.forked_python import ForkedPython

    from evaldesk.settings import DatabaseUrl

prepare_litellm()

# The folders that tests make are trusted, but for the tests of trust; no test writes into the state of a person.
os.environ["EVALDESK_TRUST"] = "1"
if not os.environ.get("EVALDESK_TEST_STATE"):
    _STATE = tempfile.TemporaryDirectory(prefix="evaldesk-state-")
    os.environ["EVALDESK_TEST_STATE"] = os.environ["XDG_STATE_HOME"] = _STATE.name

# Hundreds of processes import the same modules: without bytecode each compiles them again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test is timed, and none is chance: the machines that run them are shared, and each plays the same examples.
settings.register_profile(
    "evaldesk", max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("evaldesk")
# Hypothesis draws constants of the modules that a process has imported so far: it parses a thousand files in each fork
# for that, and examples would depend on the order of the tests.
providers._get_local_constants = lambda: providers._local_constants

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-gpu-compositing",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--no-lazy-feedback-allocation",  # a page is looked at once: what warms up slowly stays cold
]
# The files that take longest, first the longest: they begin, so that all workers end at the same time.
LONGEST = (
    "test_other_engines.py",
    "test_ray.py",
    "test_every_page.py",
    "test_keys_and_ticks.py",
    "test_evalset_files.py",
    "test_hostile_agents.py",
    "test_copying.py",
    "test_journey.py",
    "test_one_conclusion.py",
    "test_fuzz.py",
    "test_two_desks.py",
    "test_eval_command.py",
    "test_servers.py",
    "test_long_run.py",
    "test_hostile_text.py",
    "test_trust.py",
    "test_executors.py",
    "test_crashes.py",
    "test_own_interpreter.py",
    "test_import_steps.py",
    "test_deciding.py",
    "test_pytest_plugin.py",
    "test_changed_process.py",
    "test_hostile_pages.py",
    "test_evalset_faults.py",
    "test_beside_adk_eval.py",
    "test_recovery.py",
    "test_streamed_files.py",
    "test_large_sets.py",
    "test_readme_commands.py",
    "test_agent_contract.py",
    "test_docs_played.py",
    "test_format_properties.py",
)
# The first is the same browser without its window, which takes a third of the time to open a page.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


GARBAGE_THRESHOLDS = (50_000, 20, 20)
"""Those of Python, 700 and ten, have the tests spend a tenth of their time on looking for garbage."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `.ci/run` ask for a random order and for the tests that an earlier run left out."""
    parser.addoption("--random-order", type=int, nargs="?", const=0, help="play in a random order, of this seed")
    parser.addoption("--outcomes", metavar="FILE", help="write the outcome of each test, as JSON lines")
    parser.addoption(
        "--cpu-by-file", metavar="FILE", help="write the CPU seconds of each test, and show the dearest files"
    )
    parser.addoption("--but-passed", metavar="FILE", help="play what did not pass in a run that wrote this file")
    parser.addoption("--failed-in", metavar="FILE", help="play the few tests that failed in a run that wrote this file")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the seed of the order, with which it is played again."""
    if seed := terminalreporter.config.option.random_order:
        terminalreporter.write_line(f"in a random order; again with --random-order={seed}")


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the processes under test, also where a shell started the tests in its background."""
    if is_worker(config):
        config.option.random_order = seed_of_controller(config)
    elif config.option.random_order == 0:
        config.option.random_order = random.randrange(1, 10_000)
    if not is_worker(config):
        config.pluginmanager.register(Watchdog(SILENCE_S))
    if config.option.outcomes:
        config.pluginmanager.register(SkippedFiles() if is_worker(config) else Outcomes(config.option.outcomes))
    if config.option.cpu_by_file:
        config.pluginmanager.register(ProcessorTime(config.option.cpu_by_file, in_worker=is_worker(config)))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage neither while thousands of tests are collected nor, later, among them.

    So no test calls `gc.unfreeze`: each full collection after it takes a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # then pytest brings those together that share a fixture of their file
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs PostgreSQL, leave out what passed before, and bring the rest into the order asked for."""
    for item in items:
        if "postgresql" in getattr(item, "fixturenames", ()):
            item.add_marker("server")
    if config.option.but_passed:
        leave_out_played(config, items, config.option.but_passed)
    if config.option.failed_in:
        keep_failed(config, items, config.option.failed_in)
    if config.option.random_order:
        shuffle(items, config.option.random_order)
    if is_worker(config):
        put_first(items, LONGEST)
        import_ahead(items)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Nothing that the tests write waits for the disk."""
    from tests.unsynced import unsynced

    with unsynced():
        yield


@pytest.fixture(scope="session", autouse=True)
def databases_are_copies() -> Iterator[None]:
    """A new database is a copy of one that has been made."""
    from tests.template_database import copied_databases

    with copied_databases():
        yield


@pytest.fixture
def databases_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new database is made, as the product makes it."""
    from tests.template_database import MAKE

    monkeypatch.setattr("evaldesk.store.store.create", MAKE)


@pytest.fixture(scope="session", autouse=True)
def forked_python() -> Iterator[ForkedPython]:
    """Workers are forks of one that has imported what they need."""
    from tests.forked_python import ForkedPython

    forked = ForkedPython()
    with forked.standing_in():
        forked.start_ahead()
        yield forked


@pytest.fixture
def started_anew(forked_python: ForkedPython) -> Iterator[None]:
    """Workers start with Python itself."""
    with forked_python.switched_off():
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests (`pytest.mark.anyio`) run on asyncio only, as the product does."""
    return "asyncio"


@pytest.fixture(scope="session")
def commands() -> Iterator[ForkedCommands]:
    """Runs commands of Evaldesk, each in a process of its own that has imported them already."""
    from tests.forked_commands import ForkedCommands

    opened = ForkedCommands()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium, gone with its module: while Playwright runs, no test may have a loop in this thread."""
    from playwright.sync_api import sync_playwright

    executable = _chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


def _chromium() -> str:
    found = os.environ.get("EVALDESK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    reason = "no Chromium on this machine; run `make packages`"
    if os.environ.get("EVALDESK_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


class _InstalledModulesKept(SysModulesSnapshot):
    """Forgets only the modules of a test project: a package that is imported twice has two classes of each name."""

    def __init__(self, preserve: object = None) -> None:
        super().__init__(preserve=_is_installed)


_KEPT = {*sys.stdlib_module_names, "evaldesk", "tests"}
_INSTALLED = f"{sys.prefix}{os.sep}"


def _is_installed(name: str) -> bool:
    package = name.partition(".")[0]
    if package in _KEPT:
        return True
    file = getattr(sys.modules[name], "__file__", None)
    return not file or file.startswith(_INSTALLED)


@pytest.fixture(scope="session")
def installed_modules_kept() -> Iterator[None]:
    """A test run within a test forgets the modules of its project only."""
    with suppress(ImportError):  # it replaces a finder of `sys.meta_path` once, which a run within a test restores
        importlib.import_module("importlib_metadata")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("_pytest.pytester.SysModulesSnapshot", _InstalledModulesKept)
        yield


@pytest.fixture(scope="session")
def postgresql() -> Iterator[DatabaseUrl]:
    """A database with the tables of Evaldesk; each process that plays tests has a server of its own."""
    from tests.postgresql_server import running_server

    from evaldesk.store import Store

    with running_server() as url:
        Store.open(url).close()
        yield url

"""The collector rests during large imports, and is as it was afterwards; how a process ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from evaldesk import process_setup
from evaldesk.process_setup import end_process, gc_paused


@pytest.fixture(autouse=True)
def awake() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_inside_also_when_it_is_nested_or_fails() -> None:
    with gc_paused():
        with pytest.raises(ImportError), gc_paused():
            raise ImportError
        assert not gc.isenabled()

    assert gc.isenabled()


def test_a_collector_that_somebody_switched_off_stays_off() -> None:
    gc.disable()

    with gc_paused():
        pass

    assert not gc.isenabled()


@pytest.mark.server
def test_a_command_that_plays_is_imported_without_a_collection() -> None:
    source = (
        "import gc\nfrom evaldesk.process_setup import UNTIL_TRIALS, collect_seldom\ncollect_seldom(UNTIL_TRIALS)\n"
        "before = gc.get_stats()\nimport evaldesk.cli.eval.adk\nassert gc.get_stats() == before, gc.get_stats()"
    )

    subprocess.run([sys.executable, "-c", source], check=True)


@pytest.mark.parametrize(("libraries", "at_once"), [(set(), []), ({"ray"}, [3])], ids=["waits", "at once"])
def test_a_process_waits_for_no_thread_that_holds_it_up(
    monkeypatch: pytest.MonkeyPatch, libraries: set[str], at_once: list[int]
) -> None:
    ended: list[int] = []
    frozen: list[int] = []
    monkeypatch.setattr(process_setup, "NOT_WAITED_FOR", libraries)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))

    with pytest.raises(SystemExit) as exit_:
        end_process(3)

    assert (ended, exit_.value.code) == (at_once, 3)
    assert frozen  # else the collector looks through all modules once more, which takes 200 ms


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
def test_matrices_are_multiplied_in_one_thread_and_programs_that_are_started_see_nothing_of_it() -> None:
    code = """if True:
    import os
    from evaldesk.process_setup import prepare_numpy
    prepare_numpy()
    import numpy
    numpy.ones((600, 600)) @ numpy.ones((600, 600))
    print(len(os.listdir("/proc/self/task")), flush=True)
    os.execvp("sh", ["sh", "-c", "echo [$OPENBLAS_NUM_THREADS]"])
    """
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=60
    )

    assert done.stdout.split() == ["1", "[]"], done.stderr

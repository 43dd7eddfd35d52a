"""Starts a player on the agent's own interpreter: `PYTHON boot.py PARENT_PID PURPOSE`, with nothing installed there.

Only the package `evaldesk` is found, where this file is: what is installed beside it stays unseen, so the agent imports
the versions of its own interpreter.
"""

from __future__ import annotations

import importlib.util
import os
import sys

OLDEST = (3, 10)


def find_package() -> None:
    """Let `import evaldesk` find this Evaldesk whatever that interpreter has, in spawned processes as well."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    place = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("evaldesk", place, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError("no Evaldesk at " + folder)
    module = sys.modules["evaldesk"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ in {"__main__", "__mp_main__"}:  # the latter is a process that multiprocessing spawned
    if sys.version_info < OLDEST:
        sys.exit("a player needs Python 3.10 or newer, this is " + sys.version.split()[0])
    find_package()

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    from evaldesk.engine.worker.main import main

    main()

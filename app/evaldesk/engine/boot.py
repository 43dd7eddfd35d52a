"""Starts a player on the agent's own interpreter, or in a sandbox or a container:
`PYTHON boot.py [--sandbox PLAN] [--copy FROM TO] [--door FOLDER] PARENT_PID PURPOSE`.

Nothing needs to be installed there. Only the package `evaldesk` is found, where this file is: what is installed beside
it stays unseen, so the agent imports the versions of its own interpreter. In a container the agent's files are copied
first, so that it can write beside them, and a door to models is opened before anything of the agent is imported.
`PYTHON boot.py --module NAME` runs another module of ours in the same way.
"""

import importlib.util
import os
import runpy
import shutil
import stat
import sys

OLDEST = (3, 10)
LEFT_OUT = (".git", ".venv", "venv", "node_modules", "__pycache__", ".evaldesk")
"""Folders of a project that its agent does not need in a container: environments of another machine, and our own."""


def find_package() -> None:
    """Let `import evaldesk` find this Evaldesk on any interpreter, in spawned processes as well."""
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


def is_covered(path):  # type: (str) -> bool
    """Whether the null device stands for a file of an eval set, or an empty file system for a folder of them."""
    return stat.S_ISCHR(os.lstat(path).st_mode) or os.path.ismount(path)


def copy_files(source: str, target: str) -> None:
    """Copy the agent's files but for covered ones; links stay links."""
    patterns = shutil.ignore_patterns(*LEFT_OUT)

    def left_out(folder, names):  # type: (str, list[str]) -> set[str]
        return patterns(folder, names) | {name for name in names if is_covered(os.path.join(folder, name))}

    try:
        shutil.copytree(source, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        first = error.args[0][0] if isinstance(error, shutil.Error) and error.args[0] else error
        sys.exit("the agent's files cannot be copied into the container: " + str(first))


if __name__ == "__main__":
    if sys.argv[1] == "--sandbox":
        from evaldesk.engine.sandbox import enter

        enter(sys.argv[2])
        del sys.argv[1:3]
    if sys.argv[1] == "--copy":
        copy_files(*sys.argv[2:4])
        del sys.argv[1:4]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    if sys.argv[1] == "--door":
        from evaldesk.engine.model_door import carry

        os.environ.update(carry(sys.argv[2]))
        del sys.argv[1:3]
    if sys.argv[1] == "--module":
        runpy.run_module(sys.argv[2], run_name="__main__", alter_sys=True)
        sys.exit()
    from evaldesk.engine.worker.main import main

    main()

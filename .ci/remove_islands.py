"""Show that the folder of a tool can be removed: copy the tree without it and its tests, and collect or play the rest.

`.ci/remove_islands.py [TOOL ...] [--play] [PYTEST ARGUMENT ...]`: each tool in turn, all without a name; `all` removes
every folder at once. The tests of the rest are collected, or played with `--play`. Ends with 1 if one of them breaks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("app/evaldesk/integrations", "tests/integrations")
TOOLS = sorted(each.parent.name for each in (ROOT / FOLDERS[0]).glob("*/__init__.py"))
BARE = "not torture and not browser and not server and not long"


def main(arguments: list[str]) -> int:
    """Print one line for each removed folder; with `--play` the report of pytest, too."""
    is_played = "--play" in arguments
    names = [each for each in arguments if each in {*TOOLS, "all"}] or TOOLS
    more = [each for each in arguments if each not in {*TOOLS, "all", "--play"}]
    n_broken = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            tree = _copy(Path(folder) / "tree")
            for each in TOOLS if name == "all" else [name]:
                for place in FOLDERS:
                    shutil.rmtree(tree / place / each)
            how = ["-n", "auto", "--tb=short"] if is_played else ["--collect-only", "--quiet"]
            command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", BARE, *how, *more]
            environment = {**os.environ, "PYTHONPATH": str(tree / "app")}
            done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        is_whole = done.returncode == 0
        n_broken += not is_whole
        sys.stdout.write(f"without {name}: {'nothing breaks' if is_whole else 'broken'}\n")
        if is_played or not is_whole:
            sys.stdout.write(done.stdout)
        sys.stdout.flush()
    return min(1, n_broken)


def _copy(tree: Path) -> Path:
    """The files that git knows, as they are on the disk."""
    git = shutil.which("git") or "git"
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    subprocess.run([git, "init", "--quiet"], cwd=tree, check=True)  # a check asks git for the files
    return tree


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

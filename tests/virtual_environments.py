"""Virtual environments for tests, made without a package index: an interpreter, and packages that are written there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def make_environment(folder: Path, python: str = sys.executable, **packages: str) -> Path:
    """An environment in `folder` with those packages, name and version; the path of its interpreter.

    Each package has a module of its name with `VERSION`, as an installed one has, and nothing else.
    """
    base = "import sys; print(getattr(sys, '_base_executable', sys.executable))"
    root = subprocess.run([python, "-c", base], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([root, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    for name, version in packages.items():
        install(folder, name, version)
    return folder / "bin" / "python"


def install(environment: Path, name: str, version: str, source: str = "") -> None:
    """Write a package of that version into the environment."""
    site = next(environment.glob("lib/python3*/site-packages"))
    (site / f"{name}.py").write_text(source or f'VERSION = "{version}"\n')
    facts = site / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "RECORD").write_text("")


def interpreter(version: str) -> str | None:
    """The Python of that version which this machine has, on the path or among those of pyenv."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    places = [shutil.which(f"python{version}"), *sorted(map(str, root.glob(f"{version}.*/bin/python")))]
    return next((place for place in places if place and _version_of(place) == version), None)


def _version_of(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()

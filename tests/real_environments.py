"""Environments with real packages that cannot be installed beside Evaldesk, made once and kept.

Only with EVALDESK_REAL_PACKAGES=1, since they are downloaded; else, and where that fails, their tests are skipped.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import uv

VARIABLE = "EVALDESK_REAL_PACKAGES"


def python_with(*packages: str) -> str:
    """The interpreter of an environment with these packages."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE}=1 downloads {', '.join(packages)} and plays with them")
    digest = hashlib.sha256("\n".join((sys.version, *packages)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"evaldesk-real-{os.getuid()}", digest)
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        made = [
            subprocess.run(command, capture_output=True, text=True, check=False)
            for command in (
                [uv.find_uv_bin(), "venv", "--clear", "--python", sys.executable, str(folder)],
                [uv.find_uv_bin(), "pip", "install", "--python", str(python), *packages],
            )
        ]
        if any(done.returncode for done in made):
            pytest.skip(f"no environment with {', '.join(packages)}: {made[-1].stderr[-300:]}")
        (folder / "made").touch()
    return str(python)

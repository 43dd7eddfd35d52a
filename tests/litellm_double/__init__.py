"""The folder that a process has first on its path where LiteLLM itself is not what is tested."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def with_litellm_double(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that finds the double of LiteLLM, and no real one."""
    path = (str(Path(__file__).parent), environment.get("PYTHONPATH", ""))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}

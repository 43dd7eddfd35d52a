"""Whether a framework is there, asked without the seconds that importing it takes."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def skip_without(package: str) -> None:
    """Skip the test, or the module that asks while it is collected, where the package is not installed."""
    name = package.partition(".")[0]
    if find_spec(name) is None or find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make adapters` installs it", allow_module_level=True)

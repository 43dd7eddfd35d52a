"""Known answers, computed once by other means than ours: `tests/golden`, whose README says by which."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"


@cache
def golden(name: str) -> dict[str, Any]:
    """The known answers of a file of the folder; callers do not change them."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_bytes())
    return found

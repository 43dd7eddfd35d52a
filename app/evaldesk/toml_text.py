"""TOML text, read with one exception for every fault."""

from __future__ import annotations

import tomllib
from typing import Any


def parse_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises tomllib.TOMLDecodeError, also for a depth and digits that tomllib trips over."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError("the values are nested too deep") from None
    except ValueError:  # of Python's limit for digits
        raise tomllib.TOMLDecodeError("a number has too many digits") from None

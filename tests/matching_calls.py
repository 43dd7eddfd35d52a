"""Calls and known answers, for tests of matching."""

from __future__ import annotations

from typing import Any

Call = dict[str, Any]


def call(name: str, **args: object) -> Call:
    return {"name": name, "args": args}

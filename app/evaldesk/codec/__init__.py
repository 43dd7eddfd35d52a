"""The codec of frames and files: msgspec, or a substitute in the standard library. (decision 002)

A player runs on the agent's own interpreter, where msgspec may be missing or of another version. Every module in the
imports of a player takes `msgspec` from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["msgspec"]

if TYPE_CHECKING:
    import msgspec
else:
    try:
        import msgspec

        has_all = hasattr(msgspec, "json") and hasattr(msgspec.json, "schema_components")
    except ImportError:
        has_all = False
    if not has_all:
        from evaldesk.codec import stdlib as msgspec

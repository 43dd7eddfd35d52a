"""The codec of frames and files: msgspec, or what we use of it made of the standard library.

A player runs on the agent's own interpreter, which need not have msgspec, or has one of another age. Every module that
such a player imports takes `msgspec` from here.
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

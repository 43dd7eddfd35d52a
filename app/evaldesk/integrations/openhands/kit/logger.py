"""The logger of OpenHands: its lines go to the log of the trial."""

from __future__ import annotations

import logging
import sys

__all__ = ["LOG_DIR", "openhands_logger"]

LOG_DIR = "logs"


class _StderrHandler(logging.Handler):
    """Prints to the current `sys.stderr`, which belongs to the trial."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        sys.stderr.write(f"{record.levelname}: {record.getMessage()}\n")


openhands_logger = logging.getLogger("openhands")
openhands_logger.setLevel(logging.INFO)
openhands_logger.propagate = False
if not openhands_logger.handlers:
    openhands_logger.addHandler(_StderrHandler())

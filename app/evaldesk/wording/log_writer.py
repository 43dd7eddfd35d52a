"""Records of logs on the stream for errors, by the one writer: they quote agents, files and addresses."""

from __future__ import annotations

import logging
import os

from evaldesk.secrets import scrub
from evaldesk.wording.writer import show


class LogWriter(logging.Handler):
    """Writes records as `show` writes text, without secrets."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            show(scrub(self.format(record), os.environ), err=True)
        except Exception:
            self.handleError(record)


def write_logs() -> None:
    """Send the warnings of loggers without a handler of their own through the writer."""
    logging.lastResort = LogWriter(logging.WARNING)

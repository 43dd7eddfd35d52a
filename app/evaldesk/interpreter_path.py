"""The interpreter that a person names for an agent: its path, a folder, a command, or Evaldesk's own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from evaldesk.errors import UsageError

OURS = "evaldesk"
"""The name of the interpreter that Evaldesk itself runs on."""


def interpreter_path(text: str, folder: Path) -> str:
    """The path of the interpreter that `python = "..."` names, seen from `folder`; OURS and the empty text as they are.

    A folder is that of an environment, a bare name is looked up on PATH. Raises UsageError where there is none.
    """
    if text in ("", OURS):
        return text
    path = folder / Path(text).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    elif os.sep not in text and not path.exists():
        path = Path(shutil.which(text) or path)
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise UsageError(f"python = {text!r}: there is no interpreter at {path}", field="python")
    return str(path.parent.resolve() / path.name)  # the file itself may link out of its environment

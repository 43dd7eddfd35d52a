"""How a worker process comes to be: the beginning of its command, and its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evaldesk.llm.price_list import VARIABLE as PRICE_LIST
from evaldesk.llm.price_list import price_list

SECRETS = ("EVALDESK_TOKEN",)
BOOT = str(Path(__file__).resolve().with_name("boot.py"))
OF_OUR_PYTHON = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables that lead an interpreter to the packages of another one."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts workers on Evaldesk's own interpreter, or on the agent's, whose path is `python`."""

    python: str = ""

    def command(self) -> tuple[str, ...]:
        """The command of a worker, without its arguments."""
        if self.python:
            return self.python, "-X", "faulthandler", BOOT
        return sys.executable, "-P", "-X", "faulthandler", "-m", "evaldesk.engine.worker.main"

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of a worker: on the agent's interpreter that of its activated virtual environment."""
        left_out = (*SECRETS, *OF_OUR_PYTHON) if self.python else SECRETS
        found = {name: value for name, value in given.items() if name not in left_out}
        if self.python:
            folder = os.path.dirname(self.python)
            found["PATH"] = os.pathsep.join(filter(None, (folder, given.get("PATH"))))
            if Path(folder).with_name("pyvenv.cfg").is_file():
                found["VIRTUAL_ENV"] = os.path.dirname(folder)
            found[PRICE_LIST] = price_list()
        return found


OWN = Launcher()

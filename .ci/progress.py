"""Run an installer and show one line of progress: the size of its downloads and the seconds.

`python .ci/progress.py uv pip sync requirements.txt` ends with the exit code of the installer. What the installer
prints is shown only if it fails. It uses the standard library alone, since it runs before anything is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from typing import TextIO

TICK_S = 1.0
TICKS_A_LINE = 5
"""Seconds between two lines where the output is no terminal, so that a log stays short."""
MIB = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
# uv names each package above 1 MiB when its download starts and when it ends; the smaller ones take no time.
STARTED = re.compile(r"^Downloading (\S+) \(([\d.]+)(KiB|MiB|GiB)\)")
ENDED = re.compile(r"^ ?Downloaded (\S+)")
PHASES = {"Prepared": "installing", "Installed": "compiling bytecode"}


class Progress:
    """The state of an installation, from the lines that uv prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._sizes_mib: dict[str, float] = {}
        self._downloaded: set[str] = set()
        self._phase = "resolving"

    def read(self, lines: Iterable[str]) -> None:
        """Follow the lines to their end."""
        for line in lines:
            self.lines.append(line)
            if started := STARTED.match(line):
                self._phase = "downloading"
                self._sizes_mib[started[1]] = float(started[2]) * MIB[started[3]]
            elif ended := ENDED.match(line):
                self._downloaded.add(ended[1])
            else:
                self._phase = PHASES.get(line.partition(" ")[0], self._phase)

    def line(self, seconds: float) -> str:
        """The line of progress after so many seconds."""
        done = sum(self._sizes_mib[name] for name in self._downloaded & self._sizes_mib.keys())
        total = sum(self._sizes_mib.values())
        size = f"{done:.0f} of {total:.0f} MiB, " if total else ""
        return f"  {self._phase}: {size}{seconds:.0f} s"

    def summary(self, seconds: float) -> str:
        """The last line."""
        installed = next((line.partition(" in ")[0] for line in self.lines if line.startswith("Installed ")), "Ready")
        total = sum(self._sizes_mib.values())
        return f"  {installed}: {f'{total:.0f} MiB downloaded, ' if total else ''}{seconds:.0f} s"


def install(command: Sequence[str], out: TextIO, clock: Callable[[], float] = time.monotonic) -> int:
    """Run `command` to its end and write its progress to `out`; gives its exit code."""
    started, progress = clock(), Progress()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    reader = Thread(target=progress.read, args=[process.stdout])
    reader.start()
    n_ticks, is_terminal = 0, out.isatty()
    with process:
        while reader.is_alive():
            reader.join(TICK_S)
            n_ticks += 1
            if is_terminal:
                out.write(f"\r{progress.line(clock() - started)}\x1b[K")
            elif n_ticks % TICKS_A_LINE == 0:
                out.write(f"{progress.line(clock() - started)}\n")
            out.flush()
    code = process.returncode
    out.write("\r\x1b[K" if is_terminal else "")
    out.writelines(progress.lines if code else [f"{progress.summary(clock() - started)}\n"])
    out.flush()
    return code


if __name__ == "__main__":
    try:
        sys.exit(install(sys.argv[1:], sys.stderr))
    except KeyboardInterrupt:  # the installer has it too, and has ended
        sys.exit(130)

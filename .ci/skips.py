"""The tests that no part of `.ci/run` played: by reasons of the machine, which skips.toml lists, and by any other.

Usage: skips.py OUTCOMES... - the files that `pytest --outcomes` wrote, one for each part. Exit code 1: a test was
skipped in every part, for a reason that is not in the list.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

LIST = Path(__file__).with_name("skips.toml")


def main(files: Sequence[str]) -> int:
    """Print both lists."""
    rows = [json.loads(line) for file in files for line in Path(file).read_text("utf-8").splitlines()]
    allowed = tomllib.loads(LIST.read_text("utf-8"))["skip"]
    of_machine: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for test, reason in unplayed(rows).items():
        entry = next((each for each in allowed if re.search(each["pattern"], reason)), None)
        if entry:
            of_machine[f"{entry['kind']}: {reason} ({entry['why']})"] += 1
        else:
            others[f"{test}: {reason}"] += 1
    _print("skipped for reasons of this machine", of_machine)
    _print("skipped for any other reason, and played by no part of the gate", others)
    return 1 if others else 0


def unplayed(rows: Iterable[dict[str, str]]) -> dict[str, str]:
    """The tests, and files skipped while they were collected, that were skipped in every part, with the reason."""
    played: set[str] = set()
    skipped: dict[str, str] = {}
    for row in rows:
        if row["outcome"] == "skipped":
            skipped[row["id"]] = row["reason"]
        else:
            played |= {row["id"], row["id"].partition("::")[0]}
    return {test: reason for test, reason in skipped.items() if test not in played}


def _print(title: str, counts: Counter[str]) -> None:
    sys.stdout.write(f"{counts.total()} tests {title}\n")
    sys.stdout.writelines(f"{n:7,}  {what}\n" for what, n in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Whether a run records the answers of models and tools, or answers from a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

RecordingMode: TypeAlias = Literal["off", "record", "replay", "auto"]
MODES: tuple[RecordingMode, ...] = ("off", "record", "replay", "auto")


@dataclass(frozen=True, slots=True)
class Recording:
    """`record` asks and keeps the answers, `replay` never asks, `auto` asks only for answers that are not recorded yet.

    `folder` is where the answers are; the desk fills it. `tools` says whether tool calls are recorded as well.
    """

    mode: RecordingMode = "off"
    folder: str = ""
    tools: bool = True

    @property
    def may_replay(self) -> bool:
        """Whether answers of the run may come from a recording."""
        return self.mode in {"replay", "auto"}

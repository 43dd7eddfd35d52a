"""Presets: the filled form of a run with a name, for one agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model.stored import Preset
from evaldesk.store.database import StorePart
from evaldesk.store.failure_steps import folded_name
from evaldesk.store.tables.presets import PRESET

MAX_PRESETS = 50
"""Of one agent: a list to choose from has an end."""


# A preset is the text of a form, so that every check is made again: decision 192.
class PresetStore(StorePart):
    """The presets of a workspace. An agent that is gone leaves its presets: it may come back."""

    def names(self, agent_id: str) -> list[tuple[int, str]]:
        """The presets of an agent by name."""
        rows = select(PRESET.c.id, PRESET.c.name).where(PRESET.c.agent_id == agent_id).order_by(PRESET.c.folded)
        with self._database.reading() as connection:
            return [(row.id, row.name) for row in connection.execute(rows)]

    def get(self, preset_id: int) -> Preset:
        """A preset. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(select(PRESET).where(PRESET.c.id == preset_id)).first()
        if row is None:
            raise NotFoundError("this preset is not there any more")
        return _preset(row)

    def find(self, agent_id: str, name: str) -> Preset:
        """The preset of an agent with this name, case ignored. Raises NotFoundError naming the existing ones."""
        at = (PRESET.c.agent_id == agent_id) & (PRESET.c.folded == folded_name(name))
        with self._database.reading() as connection:
            row = connection.execute(select(PRESET).where(at)).first()
        if row is None:
            raise NotFoundError.among("preset", name, [preset_name for _, preset_name in self.names(agent_id)])
        return _preset(row)

    def save(self, agent_id: str, name: str, fields: Sequence[tuple[str, str]], shown_id: int | None = None) -> int:
        """Store a form under a name. A preset of that name is replaced if it was the shown one.

        Raises ConflictError for another, and UsageError when the agent has MAX_PRESETS.
        """
        values = {"name": name, "fields": json.dumps(fields, ensure_ascii=False), "saved_at": self._clock()}
        folded = folded_name(name)
        with self._database.writing() as connection:
            mine = PRESET.c.agent_id == agent_id
            old_id: int | None = connection.scalar(select(PRESET.c.id).where(mine, PRESET.c.folded == folded))
            if old_id is not None and old_id != shown_id:
                raise ConflictError(f"There is a preset “{name}”; fill it in first to replace it, or use another name.")
            if old_id is not None:
                connection.execute(update(PRESET).where(PRESET.c.id == old_id).values(values))
                return old_id
            if (connection.scalar(select(func.count()).where(mine)) or 0) >= MAX_PRESETS:
                raise UsageError(f"This agent has {MAX_PRESETS} presets; delete one first.", field="preset-name")
            row = values | {"agent_id": agent_id, "folded": folded}
            preset_id: int = connection.execute(insert(PRESET).values(row).returning(PRESET.c.id)).scalar_one()
            return preset_id

    def remove(self, preset_id: int) -> None:
        """Delete a preset, if it is there."""
        with self._database.writing() as connection:
            connection.execute(delete(PRESET).where(PRESET.c.id == preset_id))


def _preset(row: Any) -> Preset:
    return Preset(row.id, row.agent_id, row.name, [(name, text) for name, text in json.loads(row.fields)])

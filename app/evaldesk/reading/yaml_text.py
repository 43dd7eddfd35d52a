"""YAML as plain values, read so that a hostile file costs no more than its size."""

from __future__ import annotations

from typing import Any

from evaldesk.errors import FormatError
from evaldesk.reading.strict_json import decode_text

YAML_SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 1024 * 1024
"""Of a file, whose reader in Python takes some ten seconds for as many; libyaml, not everywhere, has other words."""
MAX_DEPTH = 64
"""Levels of lists and objects; each one slows down the reader for all that follows."""


def read_yaml(data: bytes, source: str, *, takes_aliases: bool = False) -> list[Any]:
    """The documents of a file. Raises FormatError with the line.

    Aliases are refused unless the caller `takes_aliases` and writes no value out: a few of them stand for gigabytes.
    """
    import yaml  # slow to import

    if len(data) > MAX_BYTES:
        raise FormatError(f"a YAML file has at most {MAX_BYTES // 2**20} MiB; write JSON instead", source=source)
    text = decode_text(data, source)
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent) and not takes_aliases:
                raise FormatError("YAML with aliases is not read; write the values out", source=source, line=line)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise FormatError(f"nested more than {MAX_DEPTH} levels deep", source=source, line=line)
        return [*yaml.safe_load_all(text)]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or (str(error).splitlines() or ["it cannot be read"])[0]
        line = mark.line + 1 if mark else None
        raise FormatError(f"this is not YAML: {reason}", source=source, line=line) from None

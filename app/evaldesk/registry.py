"""Tables of plug-ins: a name and the `package.module:attr` that is imported when the name is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec

from evaldesk.errors import NotFoundError, UsageError


def import_target(target: str) -> object:
    """The object that `package.module:attr` names; the attribute may be dotted.

    Raises UsageError when `target` is not of that form or the attribute is missing; errors of the import itself
    pass through, since they belong to the code that is imported.
    """
    module_name, separator, attribute = target.partition(":")
    if not (module_name and separator and attribute):
        raise UsageError(f"{target!r} is not of the form module:attr")
    value: object = import_module(module_name)
    for part in attribute.split("."):
        if not hasattr(value, part):
            nearest = get_close_matches(part, dir(value), n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            raise UsageError(f"module {module_name!r} has no attribute {attribute!r}{hint}")
        value = getattr(value, part)
    return value


ISLANDS = "evaldesk.integrations."
"""The folders of tools, each of which may be removed (decision 503)."""


def is_present(target: str) -> bool:
    """Whether the module of a row is here: False for an island whose folder was removed. Nothing is imported."""
    return not target.startswith(ISLANDS) or _has_island(target.removeprefix(ISLANDS).partition(".")[0])


@cache
def _has_island(tool: str) -> bool:
    try:
        return find_spec(f"{ISLANDS}{tool}") is not None
    except ImportError:  # not even the folder of all islands
        return False


def is_installed(package: str) -> bool:
    """Whether an installer put the package here: a folder of the user's that has the name of its module is not it."""
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


class Registry:
    """One kind of plug-in: present built-ins, then installed entry points of `group`, then any `module:attr`."""

    def __init__(self, kind: str, group: str, builtins: Mapping[str, str]) -> None:
        self.kind = kind
        self.group = group
        self._targets = {name: target for name, target in builtins.items() if is_present(target)}
        self._builtins = frozenset(self._targets)
        self._has_entry_points = False

    def __iter__(self) -> Iterator[str]:
        self._add_entry_points()
        return iter(self._targets)

    def __contains__(self, name: str) -> bool:
        return name in self._targets or name in set(self)

    def load(self, name: str) -> object:
        """The plug-in called `name`; a name with a colon is imported as it stands. Raises NotFoundError."""
        if name not in self._targets:
            self._add_entry_points()
        if name in self._targets:
            return import_target(self._targets[name])
        if ":" in name:
            return import_target(name)
        raise NotFoundError.among(self.kind, name, self._targets)

    def target(self, name: str) -> str:
        """The `package.module:attr` of the plug-in called `name`. Raises NotFoundError."""
        if name not in self:
            raise NotFoundError.among(self.kind, name, self._targets)
        return self._targets[name]

    def plugin_targets(self) -> dict[str, str]:
        """The names that installed packages give, with their targets."""
        return {name: self._targets[name] for name in self if name not in self._builtins}

    def settle(self, targets: Mapping[str, str]) -> None:
        """Have the built-ins and these names only: entry points of packages are not read any more."""
        self._targets = {**targets, **{name: self._targets[name] for name in self._builtins}}
        self._has_entry_points = True

    def _add_entry_points(self) -> None:
        if self._has_entry_points:
            return
        targets = dict(self._targets)  # other threads ask meanwhile
        for entry in entry_points(group=self.group):
            targets.setdefault(entry.name, entry.value)
        self._targets.update(targets)
        self._has_entry_points = True

"""What the trials of one player share: module globals that they change, and objects that are bound to one event loop.

Only modules of the agent's project are looked at, never those of packages. (decision 074)
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from itertools import islice
from threading import Lock
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from evaldesk.model import AgentRef, ErrorRecord, TrialResult, TurnRecord
from evaldesk.model.run import SharedState

MAX_VALUES, MAX_VALUES_OF_ONE = 20_000, 4_000
MAX_OBJECTS, MAX_OBJECTS_OF_ONE = 20_000, 5_000
"""The values that are compared and the objects that are followed at most, together and below one global: 50 ms."""
FIRST_TRIALS = 3
"""After these each trial is followed by a look; then those of a power of two."""
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", f"{os.sep}lib{os.sep}python3")
_LOOP_ERRORS = (
    "attached to a different loop",
    "bound to a different event loop",
    "Event loop is closed",
    "cancel scope in a different task",
)
_PRIMITIVES = (asyncio.Lock, asyncio.Event, asyncio.Condition, asyncio.Semaphore, asyncio.Queue)


@dataclass(slots=True)
class _Global:
    """A module global as it was seen last: a hash of its content, and whether it had none yet."""

    content: int
    is_empty: bool


class SharedStateWatch:
    """Looks at an agent's modules after trials of this process that may share them with others."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ref: AgentRef | None = None
        self._globals: dict[tuple[str, str], _Global] = {}
        self._changed: dict[tuple[str, str], None] = {}
        self._loops: set[int] = set()
        self._n_begun = 0
        self._n_ended = 0

    def begin(self, ref: AgentRef) -> None:
        """Note a trial that begins in the running loop; the first one finds the agent as it was imported."""
        with self._lock:
            self._n_begun += 1
            self._loops.add(id(asyncio.get_running_loop()))
            if self._ref is None:
                self._ref = ref
                self._globals = dict(self._look())

    def observe(self, result: TrialResult) -> TrialResult:
        """The result with what its trial shares with the others of this process."""
        with self._lock:
            self._n_ended += 1
            if self._ref is None:
                return result
            n = self._n_ended
            if n <= FIRST_TRIALS or n & (n - 1) == 0:
                self._compare()
            names = tuple(map(".".join, self._changed)) if self._n_begun > 1 else ()
            is_followed = n <= FIRST_TRIALS or result.error is not None
            loop_bound = self.loop_bound(result.transcript.turns, result.error) if is_followed else ""
            return replace(result, shared_state=SharedState(loop_bound, names).bounded())

    def _compare(self) -> None:
        """Note globals that changed; the first filling of an empty one, as of a cache or a client, is none."""
        for key, now in self._look():
            before = self._globals.get(key)
            self._globals[key] = now
            if before is not None and before.content != now.content and not before.is_empty:
                self._changed[key] = None

    def _look(self) -> Iterator[tuple[tuple[str, str], _Global]]:
        modules = self._modules()
        content = _Content({module.__name__ for module in modules})
        for module in modules:
            for name, value in list(vars(module).items()):
                if not name.startswith("__") and not _is_a(value, ModuleType):
                    is_empty = value is None or value is False or _is_empty(value)
                    yield (module.__name__, name), _Global(content.of_global(value), is_empty)

    def _modules(self) -> list[ModuleType]:
        """The imported modules of the project: those below the agent's folder, or its root."""
        if self._ref is None:
            return []
        roots = tuple(os.path.join(os.path.abspath(each), "") for each in (self._ref.root, self._ref.folder) if each)

        def is_own(name: str, module: object) -> bool:
            path = None
            with suppress(Exception):  # a lazy module imports what is missing here
                path = getattr(module, "__file__", None) if _is_a(module, ModuleType) else None
            return (
                isinstance(path, str)
                and path.startswith(roots)
                and not any(each in path for each in _PACKAGES)
                and name.partition(".")[0] != "evaldesk"
            )

        return [module for name, module in list(sys.modules.items()) if is_own(name, module)]

    def loop_bound(self, turns: Sequence[TurnRecord], error: ErrorRecord | None) -> str:
        """The object of the agent which works in one event loop only, in words, after these turns; empty for none.

        A lock that nobody waited for is bound to no loop yet; it counts where the project's own values hold it.
        """
        modules = self._modules()
        own_names = {module.__name__ for module in modules}
        seen_ids: set[int] = set()
        for module in modules:
            for name, value in list(vars(module).items()):
                if not name.startswith("__"):
                    holder = _bound_part(value, own_names, self._loops, seen_ids)
                    if holder is not None:
                        verb = "is" if holder is value else "holds"
                        return f"{module.__name__}.{name} {verb} an object of one event loop ({_kind_name(holder)})"
        return _loop_error(turns, error)


_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, deque, set, frozenset)
_SIZED: tuple[Any, ...] = (*_CONTAINERS, str, bytes, bytearray)


# `isinstance` asks the object for its class, and a lazy one, as of settings or of a request, raises anything then.
def _is_a(value: object, kinds: Any) -> bool:
    """Whether the type of the value is one of these, without calling code of the project."""
    return issubclass(type(value), kinds)


def _base(value: object, kinds: tuple[Any, ...] = _CONTAINERS) -> Any:
    """The builtin class of the value, by whose methods it is read: a class of the project may have others."""
    return next((kind for kind in kinds if _is_a(value, kind)), None)


def _is_empty(value: object) -> bool:
    base = _base(value, _SIZED)
    return base is not None and not base.__len__(value)


class _Content:
    """Hashes over the content of plain values and of objects of the project's own classes; others count as one."""

    def __init__(self, own_modules: set[str]) -> None:
        self._own = own_modules
        self._n_left = 0
        self._n_all = MAX_VALUES
        self._open: set[int] = set()

    def of_global(self, value: Any) -> int:
        """As `of`, up to the bound of one global."""
        room = self._n_left = min(self._n_all, MAX_VALUES_OF_ONE)
        content = self.of(value)
        self._n_all -= room - max(self._n_left, 0)
        return content

    def of(self, value: Any) -> int:
        """A hash that differs where the content does, within this process."""
        self._n_left -= 1
        kind = type(value)
        if value is None or kind is bool or self._n_left < 0:
            return hash(("plain", value if self._n_left >= 0 else None))
        if kind is int:
            return hash(hex(value))  # -1 and -2 have one hash
        if kind in (str, bytes, float, complex):
            return hash((kind.__name__, value))
        if kind is bytearray:
            return hash(bytes(value))
        if id(value) in self._open:
            return 0
        self._open.add(id(value))
        try:
            return self._of_parts(value)
        except (RuntimeError, RecursionError):  # another thread changes it, or it is too deep
            return 1
        finally:
            self._open.discard(id(value))

    def _of_parts(self, value: Any) -> int:
        base = _base(value)
        if type(value) is itertools.count:
            return hash(("count", *map(self.of, value.__reduce__()[1])))
        if base is dict:
            pairs = list(islice(dict.items(value), max(self._n_left, 0)))
            return hash(("dict", dict.__len__(value), tuple((self.of(key), self.of(each)) for key, each in pairs)))
        if base is not None:
            parts = map(self.of, list(islice(base.__iter__(value), max(self._n_left, 0))))
            return hash((base.__len__(value), frozenset(parts) if base in (set, frozenset) else tuple(parts)))
        if _is_a(value, (FunctionType, type)):
            return self._of_code(value) if value.__module__ in self._own else 2
        if type(value).__module__ in self._own:
            return hash(("object", tuple(map(self.of, _attributes(value).items()))))
        return 2

    def _of_code(self, value: Any) -> int:
        """Of a function its defaults and attributes, of a class its values."""
        if _is_a(value, FunctionType):
            cells = []
            for cell in value.__closure__ or ():
                with suppress(ValueError):  # an empty one
                    cells.append(cell.cell_contents)
            return hash(tuple(map(self.of, (value.__defaults__, value.__kwdefaults__, value.__dict__, cells))))
        values = [(name, each) for name, each in list(vars(value).items()) if not name.startswith("__")]
        return hash(tuple(map(self.of, (each for each in values if not callable(each[1])))))


def _attributes(value: object) -> Mapping[str, Any]:
    """The attributes of an object, without calling code of its class."""
    attributes: dict[str, Any] = {}
    with suppress(AttributeError):
        attributes |= object.__getattribute__(value, "__dict__")
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with suppress(AttributeError):
                attributes[name] = object.__getattribute__(value, name)
    return attributes


_NOT_FOLLOWED = (
    *(ModuleType, type, CodeType, FrameType, BuiltinFunctionType, Context, ContextVar),
    *(str, bytes, int, float, type(None)),
)


def _bound_part(value: object, own_modules: set[str], loops: set[int], seen_ids: set[int]) -> object:
    """The object in or below `value` that belongs to a loop of trials; None without any."""
    queue: deque[tuple[object, bool, object]] = deque([(value, True, value)])
    most = min(MAX_OBJECTS, len(seen_ids) + MAX_OBJECTS_OF_ONE)
    while queue and len(seen_ids) < most:
        item, is_own, holder = queue.popleft()
        if _is_a(item, _NOT_FOLLOWED) or id(item) in seen_ids or _is_ours(item):
            continue
        seen_ids.add(id(item))
        if _is_a(item, asyncio.AbstractEventLoop):
            if id(item) in loops:
                return holder
            continue
        if is_own and _is_a(item, _PRIMITIVES) and getattr(item, "_loop", None) is None:
            return item
        is_holder = type(item).__module__ not in ("builtins", "types")
        for part in filter(gc.is_tracked, _parts(item)):  # no other object refers to a loop
            is_plain = _is_a(item, (dict, list, tuple, set, deque)) or type(item).__module__ in own_modules
            queue.append((part, is_own and is_plain, item if is_holder else holder))
    return None


def _is_ours(item: Any) -> bool:
    """Whether it is a part of Evaldesk, which knows the loop of each trial."""
    module = item.__module__ if _is_a(item, FunctionType) else type(item).__module__
    return isinstance(module, str) and module.partition(".")[0] == "evaldesk"


def _parts(item: Any) -> Iterable[object]:
    if _is_a(item, FunctionType):  # not its module, from where all is in reach
        return [item.__defaults__, item.__kwdefaults__, item.__closure__, item.__dict__]
    if _is_a(item, MethodType):
        return [item.__self__, item.__func__]
    return gc.get_referents(item)


def _kind_name(item: object) -> str:
    kind = type(item)
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__.lstrip('_')}"


def _loop_error(turns: Sequence[TurnRecord], error: ErrorRecord | None) -> str:
    """The error of another trial's event loop that these turns or one of their tools met; empty for none."""
    texts = [error.message, error.trace] if error else []
    for turn in turns:
        for event in turn.events:
            if event.kind == "tool_result":
                values = event.result.values() if isinstance(event.result, dict) else (event.result,)
                texts += [each for each in values if isinstance(each, str)]
            elif event.error:
                texts.append(event.error.message)
    return next((f"a trial met the error {each!r}" for each in _LOOP_ERRORS if any(each in text for text in texts)), "")

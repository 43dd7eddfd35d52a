"""Refuse regular expressions that take more than linear time on some text.

    python .ci/check_patterns.py [NAME ...]      only patterns whose place has NAME in it

Each pattern of the package, and each rule of secrets, is played with texts that are made of its own parts: a sample of
what may be repeated, again and again, alone, behind a sample of what comes before, and together with it, with an end
that fits nowhere. A pattern is refused where four times the text takes more than seven times the CPU. No static tool is
used: they flag bounded repeats, and ignore that `re` searches from each place of a text.
"""

from __future__ import annotations

import ast
import importlib
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _constants as kinds  # type: ignore[attr-defined] # texts are made of parsed patterns
from re import _parser as parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1] / "app"
FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
ANCHORED = {"match", "fullmatch"}
FIRST, GROWTH, MOST_GROWTH, LEAST_S, LIMIT_S = 4_000, 4, 7.0, 0.02, 1.5
LONG_REPEAT = 200
"""A repeat with a smaller bound multiplies the time by that bound at most."""

# Patterns that are made of values of a call, each with examples of what it becomes.
WORD, ANY_CASE = [r"a\ word"], ["(?i)a|bc"]
EXAMPLES: dict[str, list[str]] = {
    "agents/discovery.py:_imports_from": [r"(?m)^[ \t]*(?:from|import)[ \t]+package\b(?!\s*=)"],
    "agents/users/users.py:ModelUser._read": ANY_CASE,
    "matching/case_facts.py:_SearchText.has": WORD,
    "demo_model/trips.py:read_wishes": [r"\bmay\b"],
    "demo_model/trips.py:_cities": [r"(?i)\brome\b"],
    "desk/adopting.py:_add_package": WORD,
    "desk/search.py:snippet": WORD,
    "diff/repetition.py:pattern_of": [r"\d+", "[0-9a-f]+", "[0-9A-Za-z]+", r"[\w:./-]+"],
    "integrations/openhands/command/adopt.py:_with_own_benchmarks": [
        r"(?m)(?<![\w./-])(swebench\-infer|gaia\-infer)(?=[ \t\\]|$)"
    ],
    "integrations/openai_evals/formulas.py:_tokens": [r"\s*(a|b)(?!\w)"],
    "llm/price_list.py:is_unlisted": [r"(?i)(?:^|[/.:@])gpt\-4o(?:$|[/.:@])"],
    "llm/refusals.py:Strictness.learn": [r"\btop_p\b"],
    "metrics/responses/required_outputs.py:RequiredOutputs._is_in_answers": [r"(?<!\w)(?<![0-9]\.)12(?!\w)(?!\.[0-9])"],
    "pages/finding.py:_match_parts": WORD,
    "secret_shapes.py:Shape.compiled": [],  # each shape is played by itself
    "secret_shapes.py:Shape.loose": [],
    "secrets.py:_searches": ["(?<=sk_)live"],
    "secrets.py:scrubber_of": WORD,
}
# Patterns that take more than linear time on texts that they never meet, each with its reason.
ACCEPTED = {
    "demo_model/judge.py:_sections": "the mark of the sections is drawn for each prompt, so no answer can have it",
    "integrations/openai_evals/formulas.py:": "tried at one place of a formula, which has at most 2,000 characters",
    "integrations/openai_evals/formulas.py:_tokens": "tried at one place of such a formula, too",
    "web/live.py:split": "the mark stands in our own templates; text of others is escaped",
    "web/report.py:": "our own file of icons",
}


class Found(NamedTuple):
    """A pattern and its place; `is_anchored` where it is tried at one place of a text only."""

    place: str
    pattern: str | bytes
    flags: int
    is_anchored: bool


class TooLongError(Exception):
    """A search took more than LIMIT_S."""


def main(names: list[str]) -> int:
    """Print every pattern of more than linear time; 1 when there is one."""
    sys.path.insert(0, str(ROOT))
    warnings.simplefilter("ignore")
    found, unknown = patterns()
    refused = [f"{place}: a pattern of unknown parts; add an example to EXAMPLES" for place in unknown]
    for each in found:
        if not names or any(name in each.place for name in names):
            slow = slow_text(each)
            if slow is not None and each.place not in ACCEPTED:
                refused.append(f"{each.place}: {each.pattern!r} takes more than linear time on {slow[:60]!r} ...")
    for line in refused:
        print(line)  # noqa: T201
    print(f"{len(found)} patterns, {len(refused)} refused")  # noqa: T201
    return 1 if refused else 0


def patterns() -> tuple[list[Found], list[str]]:
    """All patterns of the package, and the places of those that cannot be known from its text."""
    found: dict[tuple[str | bytes, int, bool], Found] = {}
    unknown = []
    for path in sorted((ROOT / "evaldesk").rglob("*.py")):
        text = path.read_text("utf-8")
        if not re.search(r"\bre\.|secret_shapes", text):
            continue
        module = _module(path)
        tree = ast.parse(text)
        name = path.relative_to(ROOT / "evaldesk").as_posix()
        for place, call, used in _calls(tree, name):
            if place in EXAMPLES:
                values = EXAMPLES[place]
            else:
                value = _value(call.args[0], module)
                values = [] if value is None else [value]
                is_object = place.endswith(":") and module is not None  # found below, by its name or in a table
                is_known = is_object or place in ACCEPTED or isinstance(call.args[0], ast.Name | ast.Attribute)
                if value is None and not is_known:
                    unknown.append(place)
            for each in values:
                flags = _flags(call, module)
                found.setdefault(
                    (each, flags, used <= ANCHORED), Found(place, each, flags, bool(used) and used <= ANCHORED)
                )
        for each in _objects(vars(module) if module else {}, 0):
            if not any(key[0] == each.pattern for key in found):
                found[each.pattern, each.flags, False] = Found(name, each.pattern, each.flags & ~re.UNICODE, False)
    for each in _made_patterns():
        found[each.pattern, each.flags, False] = each
    return list(found.values()), unknown


def _made_patterns() -> Iterator[Found]:
    """The patterns that functions make of data of the package."""
    from evaldesk.desk import adopting  # noqa: PLC0415 - the path is known now
    from evaldesk.secret_shapes import shapes  # noqa: PLC0415

    for tool in adopting.project_tools():
        package = adopting.load_project(tool).package
        for pattern in adopting.requirement_patterns(package):
            yield Found(f"desk/adopting.py:{package.name}", pattern, int(re.IGNORECASE), False)
    for shape in shapes():
        yield Found(f"secret_shapes.py:{shape.name}", shape.compiled.pattern, int(re.ASCII), False)
        yield Found(f"secret_shapes.py:{shape.name}, loose", shape.loose.pattern, int(re.ASCII), False)


def _module(path: Path) -> ModuleType | None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    try:
        return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    except BaseException:
        return None


def _calls(tree: ast.Module, name: str) -> Iterator[tuple[str, ast.Call, set[str]]]:
    """The calls of `re` with a pattern, their places, and by which methods each pattern of a name is used."""
    uses: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            uses.setdefault(owner, set()).add(node.attr)
    lone = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    bare = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in attributes
    }
    owners: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id in lone and target.id not in bare:
                owners[id(node.value)] = target.id

    def walk(node: ast.AST, where: str) -> Iterator[tuple[str, ast.Call, set[str]]]:
        for child in ast.iter_child_nodes(node):
            inner = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{where}.{child.name}".removeprefix(".")
            if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and _is_of_re(child.func):
                called = child.func.attr
                used = uses.get(owners.get(id(child), ""), set()) if called == "compile" else {called}
                yield f"{name}:{inner}", child, used & FUNCTIONS
            yield from walk(child, inner)

    return walk(tree, "")


def _is_of_re(called: ast.Attribute) -> bool:
    return getattr(called.value, "id", "") == "re" and called.attr in FUNCTIONS


def _value(node: ast.expr, module: ModuleType | None) -> Any:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str | bytes) else None
    try:
        code = compile(ast.Expression(node), "pattern", "eval")
        value = eval(code, dict(vars(module)) if module else {"re": re})  # noqa: S307 - our own source
    except Exception:
        return None
    value = value.pattern if isinstance(value, re.Pattern) else value
    return value if isinstance(value, str | bytes) else None


def _flags(call: ast.Call, module: ModuleType | None) -> int:
    nodes = [keyword.value for keyword in call.keywords if keyword.arg == "flags"]
    if call.func.attr == "compile" and len(call.args) > 1:  # type: ignore[attr-defined]
        nodes.append(call.args[1])
    for node in nodes:
        return int(eval(compile(ast.Expression(node), "flags", "eval"), {"re": re}))  # noqa: S307 - our own source
    return 0


def _objects(value: Any, depth: int) -> Iterator[re.Pattern[Any]]:
    """The patterns in values of a module."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from _objects(item, depth + 1)
    elif depth < 4 and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _objects(item, depth + 1)


def slow_text(found: Found) -> str | None:
    """The part of a text on which the pattern takes more than linear time; None where there is none."""
    signal.signal(signal.SIGVTALRM, _stop)
    compiled = re.compile(found.pattern, found.flags)
    parsed = parser.parse(found.pattern, found.flags)
    is_bytes = isinstance(found.pattern, bytes)
    for head, unit, tail in _texts(parsed):

        def text(n: int, parts: tuple[str, str, str] = (head, unit, tail)) -> str | bytes:
            whole = parts[0] + parts[1] * (n // len(parts[1])) + parts[2]
            return whole.encode("latin-1", "replace") if is_bytes else whole

        if is_slow(compiled, text, is_anchored=found.is_anchored):
            return head + unit * 3 + tail
    return None


def is_slow(compiled: re.Pattern[Any], text: Callable[[int], str | bytes], *, is_anchored: bool = False) -> bool:
    """Whether the time of all matches grows faster than the text."""
    try:
        return _grows(compiled, text, is_anchored)
    except TooLongError:  # it came while the clock was being stopped
        return True


def _grows(compiled: re.Pattern[Any], text: Callable[[int], str | bytes], is_anchored: bool) -> bool:
    size = FIRST
    first = _seconds(compiled, text(size), is_anchored)
    if first < LEAST_S / 100:
        return False
    if first < LEAST_S / 4:  # `.*` takes a nanosecond a letter: 1 ms for this text, and a minute for 1 MB
        size = FIRST * GROWTH**2
        first = _seconds(compiled, text(size), is_anchored)
        if first < LEAST_S / 4:
            return False
    if first >= LIMIT_S:
        return True
    long = _seconds(compiled, text(size * GROWTH), is_anchored)
    if long >= LIMIT_S or long < LEAST_S or long < MOST_GROWTH * first:
        return long >= LIMIT_S
    # Beside other processes a single time may be twice the usual one: the least of several is the pattern's own.
    short, long = (min(_seconds(compiled, text(n), is_anchored) for _ in range(6)) for n in (size, size * GROWTH))
    if long <= MOST_GROWTH * short:
        return False
    # More than linear time grows on: a busy machine is slow at one length, and seldom at three.
    longest = min(_seconds(compiled, text(size * GROWTH**2), is_anchored) for _ in range(3))
    return longest >= LIMIT_S or longest > MOST_GROWTH * long


def _seconds(compiled: re.Pattern[Any], text: str | bytes, is_anchored: bool) -> float:
    start = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        if is_anchored:
            compiled.match(text)
        else:
            for _ in compiled.finditer(text):
                pass
    except TooLongError:
        return float(LIMIT_S)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return time.process_time() - start


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLongError


ENDS = ("\0", "!", "\n", "")


def _texts(parsed: Any) -> Iterator[tuple[str, str, str]]:
    """Beginning, repeated part and end of texts that may be slow."""
    seen = set()
    units = dict.fromkeys(each for each in _units(parsed, "") if each[1])
    apart = "\n ," if _looks_back(parsed) else ""
    for before, unit in units:
        anew = [("", separator + before + unit) for separator in apart] if before else []
        for head, repeated in (("", unit), (before, unit), ("", before + unit), *anew):
            for end in ENDS[:2] if len(unit) > 1 else ENDS:
                if (head, repeated, end) not in seen and len(repeated) < 400:
                    seen.add((head, repeated, end))
                    yield head, repeated, end


def _looks_back(parsed: Any) -> bool:
    """Whether a pattern begins at certain places only, as at a word or a line, so that its beginnings do not touch."""
    for kind, value in parsed:
        if kind is kinds.AT or (kind in (kinds.ASSERT, kinds.ASSERT_NOT) and value[0] < 0):
            return True
        if kind is kinds.SUBPATTERN and _looks_back(value[-1]):
            return True
        if kind is kinds.BRANCH and any(map(_looks_back, value[1])):
            return True
    return False


def _units(parsed: Any, before: str) -> Iterator[tuple[str, str]]:
    """A sample of each part that is repeated without a small bound, and of what comes before it."""
    for kind, value in parsed:
        if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
            _, most, inner = value
            if most > LONG_REPEAT:
                yield from ((before, sample) for sample in _samples(inner))
            yield from _units(inner, before)
        elif kind is kinds.SUBPATTERN:
            yield from _units(value[-1], before)
        elif kind is kinds.ATOMIC_GROUP:
            yield from _units(value, before)
        elif kind is kinds.BRANCH:
            for each in value[1]:
                yield from _units(each, before)
        elif kind in (kinds.ASSERT, kinds.ASSERT_NOT):
            yield from _units(value[1], before)
        before += _sample(kind, value, 0)
    yield ("", before) if before else ("", "")


def _samples(parsed: Any) -> set[str]:
    """Texts of a part that is repeated: each kind of letter alone, and all letters that it may be."""
    found = {"".join(_sample(kind, value, at) for kind, value in parsed) for at in range(6)}
    single = sorted(each for each in found if len(each) == 1)
    return {each for each in found if each} | {a + b for a in single[:3] for b in single[:4] if a != b}


def _sample(kind: Any, value: Any, at: int) -> str:
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.NOT_LITERAL:
        return next(each for each in " a0" if ord(each) != value)
    if kind is kinds.ANY:
        return " a"[at % 2]
    if kind is kinds.IN:
        letters = _letters(value)
        return letters[at % len(letters)] if letters else ""
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, most, inner = value
        n = least or int(most > 0 and at % 2 == 0)
        return "".join(_sample(*part, at) for part in inner) * min(n, 40)
    if kind is kinds.SUBPATTERN:
        return "".join(_sample(*part, at) for part in value[-1])
    if kind is kinds.ATOMIC_GROUP:
        return "".join(_sample(*part, at) for part in value)
    if kind is kinds.BRANCH:
        return "".join(_sample(*part, at) for part in value[1][at % len(value[1])])
    return ""


CANDIDATES = "a A0_ -\n\t./,;:'\"\\(<[{=#*&@$%é"


def _letters(options: Any) -> str:
    """Letters of different kinds that a class has."""
    tested = re.compile(_class(options))
    found = [each for each in CANDIDATES if tested.match(each)]
    return "".join(dict.fromkeys(found))[:6] or next((chr(at) for at in range(0x3000) if tested.match(chr(at))), "")


def _class(options: Any) -> str:
    names = {
        kinds.CATEGORY_DIGIT: r"\d",
        kinds.CATEGORY_NOT_DIGIT: r"\D",
        kinds.CATEGORY_SPACE: r"\s",
        kinds.CATEGORY_NOT_SPACE: r"\S",
        kinds.CATEGORY_WORD: r"\w",
        kinds.CATEGORY_NOT_WORD: r"\W",
    }
    text = ""
    for kind, value in options:
        if kind is kinds.NEGATE:
            text += "^"
        elif kind is kinds.LITERAL:
            text += re.escape(chr(value))
        elif kind is kinds.RANGE:
            text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            text += names[value]
    return f"[{text}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

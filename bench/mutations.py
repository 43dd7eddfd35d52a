"""The share of small changes of a module that its tests notice.

`python -m bench.mutations evaldesk.store.runs.totals tests/store/test_totals.py` collects the tests once and plays them
in a fork for each mutant, up to the first failure. A mutant is a module with one change in the body of a function: a
comparison, an operator of a sum, a boolean word, a number, a truth value or a `not`. Its functions get the changed code
in place, so that modules that imported them before play it too. The seed draws the mutants. With `--shared-with FILE`,
the same module at another commit, only changes that both allow are drawn, the same ones from either side: two commits
can then be compared. Names of variables may differ between them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import inspect
import os
import random
import signal
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

SEED = 20261128
N = 15
PATIENCE_S = 300
OTHERS: Mapping[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutants:
    """Plays the collected tests once for each mutant instead of once, and counts the mutants that a test noticed."""

    def __init__(self, module: str, n: int, seed: int, other: Path | None) -> None:
        self._module, self._n, self._seed, self._other = module, n, seed, other
        self.survivors: list[str] = []
        self.n_played = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Play them, each in a fork."""
        module = importlib.import_module(self._module)
        tree = ast.parse(inspect.getsource(module))
        places = [f"{getattr(node, 'lineno', 0)} {ast.unparse(node)[:60]}" for _, node, _ in _changes(tree)]
        for at in self._draw(tree):
            self.n_played += 1
            child = os.fork()
            if not child:
                signal.alarm(PATIENCE_S)
                _replace_code(module, _changed(tree, at))
                os._exit(_first_failure(session))
            if os.waitpid(child, 0)[1] == 0:
                self.survivors.append(f"{self._module}:{places[at]}")
        return True

    def _draw(self, tree: ast.Module) -> list[int]:
        by_key = _by_key(tree)
        keys = list(by_key)
        if self._other:
            keys = sorted(by_key.keys() & _by_key(ast.parse(self._other.read_text("utf-8"))))
        return sorted(by_key[key] for key in random.Random(self._seed).sample(keys, min(self._n, len(keys))))


def _by_key(tree: ast.Module) -> dict[tuple[str, str, int], int]:
    """The number of each change by its function, its code without names of variables, and its place among equals.

    The code of a number or truth value is the expression around it.
    """
    found: dict[tuple[str, str, int], int] = {}
    n_equal = Counter[tuple[str, str]]()
    around = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for at, (function, node, _) in enumerate(_changes(tree)):
        parent = around[id(node)]
        code = parent if isinstance(node, ast.Constant) and isinstance(parent, ast.expr) else node
        unnamed = copy.deepcopy(code)
        for each in ast.walk(unnamed):
            if isinstance(each, ast.Name):
                each.id = ""
        key = (function, ast.dump(unnamed))
        found[(*key, n_equal[key])] = at
        n_equal[key] += 1
    return found


def _first_failure(session: pytest.Session) -> int:
    failed: list[str] = []

    class Watch:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            failed.extend([report.nodeid] if report.failed else [])

    session.config.pluginmanager.unregister(name="terminalreporter")
    session.config.pluginmanager.register(Watch())
    for place, item in enumerate(session.items):
        following = session.items[place + 1] if place + 1 < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            return 1
    return 0


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.AST, Callable[[], None]]]:
    """Every change that can be made, with its function and what it changes."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    seen: set[int] = set()
    for function in functions:
        for node in (each for statement in function.body for each in ast.walk(statement)):
            if id(node) in seen:
                continue
            seen.add(id(node))
            for change in _changes_of(node):
                yield function.name, node, change


def _changes_of(node: ast.AST) -> Iterator[Callable[[], None]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHERS:
        yield lambda: node.ops.__setitem__(0, OTHERS[type(node.ops[0])]())  # type: ignore[call-overload]
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHERS:
        yield lambda: setattr(node, "op", OTHERS[type(node.op)]())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield lambda: setattr(node, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield lambda: setattr(node, "value", node.value + 1)  # type: ignore[operator]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda: node.__dict__.update(op=ast.UAdd(), operand=_truth(node.operand))


def _truth(node: ast.expr) -> ast.expr:
    call = ast.Call(func=ast.Name("bool", ast.Load()), args=[node], keywords=[])
    return ast.fix_missing_locations(ast.copy_location(call, node))


def _changed(tree: ast.Module, at: int) -> ast.Module:
    found = copy.deepcopy(tree)
    [*_changes(found)][at][2]()
    return ast.fix_missing_locations(found)


def _replace_code(module: types.ModuleType, tree: ast.Module) -> None:
    """Give each function of the module the code of its namesake in the tree."""
    code = compile(tree, str(module.__file__), "exec")
    new = dict(_codes(code.co_consts))
    for value in [*vars(module).values()]:
        owned = [*vars(value).values()] if inspect.isclass(value) else [value]
        for each in owned:
            function = inspect.unwrap(_function_of(each))
            if getattr(function, "__module__", "") == module.__name__ and inspect.isfunction(function):
                place = (function.__code__.co_qualname, function.__code__.co_firstlineno)
                if place in new and new[place].co_freevars == function.__code__.co_freevars:
                    function.__code__ = new[place]


def _function_of(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", None) or getattr(value, "func", None) or value


def _codes(consts: Sequence[object]) -> Iterator[tuple[tuple[str, int], types.CodeType]]:
    for each in consts:
        if isinstance(each, types.CodeType):
            yield (each.co_qualname, each.co_firstlineno), each
            yield from _codes(each.co_consts)


def main() -> int:
    """Print the score and the mutants that no test noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("-n", type=int, default=N, help="so many mutants")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--shared-with", type=Path, metavar="FILE", help="the same module at another commit")
    asked = parser.parse_args()
    mutants = Mutants(asked.module, asked.n, asked.seed, asked.shared_with)
    pytest.main(["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", *asked.tests], plugins=[mutants])
    n_noticed = mutants.n_played - len(mutants.survivors)
    sys.stdout.write(f"{asked.module}: {n_noticed} of {mutants.n_played} noticed\n")
    sys.stdout.writelines(f"  not noticed: {each}\n" for each in mutants.survivors)
    return 0


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])
    sys.exit(main())

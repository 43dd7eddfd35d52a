"""Functions are looked for without being imported, and a name that leads nowhere is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from evaldesk.desk.criteria.criteria import ready_criteria
from evaldesk.errors import UsageError
from evaldesk.metrics import check_function, function_options
from evaldesk.model import Criterion
from evaldesk.settings import Settings

SOURCE = '''
"""Rewards."""
from os import path as place
import json.decoder
PREFIX: str = "x"
first, second = 1, 2
if PREFIX:
    def guarded(solution_str): ...
else:
    other = None
try:
    import orjson as fast
except ImportError:
    fast = None

class Judge: ...

async def later(solution_str): ...

def exact(solution_str): ...

raise RuntimeError("never imported here")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sought.py").write_text(SOURCE)
    inner = tmp_path / "package" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text("raise RuntimeError")
    (inner / "__init__.py").write_text("")
    (inner / "deep.py").write_text("def f(messages): ...")
    (tmp_path / "dynamic.py").write_text("globals().update(f=print)")
    (tmp_path / "starred.py").write_text("from sought import *")
    (tmp_path / "lazy.py").write_text("def __getattr__(name): ...")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    return tmp_path


@pytest.mark.parametrize(
    "target",
    [
        *(f"sought:{name}" for name in ("exact", "later", "guarded", "other", "fast", "place", "json", "second")),
        "sought:Judge.__call__",
        "package.inner.deep:f",
        "dynamic:f",
        "starred:exact",
        "lazy:whatever",
    ],
)
def test_what_is_there_is_found_and_not_imported(folder: Path, target: str) -> None:
    before = set(sys.modules)

    check_function(target, str(folder), folder)
    check_function(target, "", folder)

    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("sought:exakt", "Module 'sought' has no attribute 'exakt'; did you mean 'exact'?"),
        ("sought:zzz", "Module 'sought' has no attribute 'zzz'. Available: ["),
        ("nowhere_at_all:f", "Cannot import module 'nowhere_at_all': no nowhere_at_all.py in "),
        ("package.inner.gone:f", "Cannot import module 'package.inner.gone'"),
        ("sought.exact:f", "Cannot import module 'sought.exact'"),
        ("wrong:f", "wrong.py, line 1: "),
        ("sought", "Invalid eval function path 'sought'"),
        (":f", "Invalid eval function path ':f'"),
    ],
)
def test_what_leads_nowhere_is_refused(folder: Path, target: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        check_function(target, str(folder), folder)

    assert caught.value.field == "metric"


SIGNATURES = """
def wrong(answer, truth): ...
def bare(): ...
def needs(solution_str, ground_truth, extra_info, other): ...
def keyword(solution_str, *, tolerance): ...
def placed(solution_str, ground_truth="", /, **kwargs): ...
def good(solution_str, ground_truth, extra_info=None, tolerance=0.1, **kwargs): ...
async def trial(case, state, transcript): ...
def decorate(function): return function
@decorate
def decorated(whatever): ...
def rest(*args, **kwargs): ...
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wrong", "Cannot detect eval function mode: first parameter is 'answer'"),
        ("bare", "Eval function has no parameters"),
        ("needs", "the eval function needs other, which it is never given"),
        ("keyword", "the eval function needs tolerance, which it is never given"),
        ("placed", "the eval function is called by keyword; take out the `/` after ground_truth"),
    ],
)
def test_a_wrong_signature_is_refused_without_an_import(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "signed.py").write_text(SIGNATURES)

    with pytest.raises(UsageError, match=re.escape(said)):
        check_function(f"signed:{name}", str(tmp_path), tmp_path)

    assert "signed" not in sys.modules


def test_a_function_is_imported_from_where_it_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, code = tmp_path / "project", "def f(case): return 1"
    project.mkdir()
    monkeypatch.chdir(tmp_path)
    Path("beside_project.py").write_text(code)
    wanted = (Criterion("beside_project:f", 0.5, function_options("beside_project:f")),)
    settings = Settings(tmp_path, ())

    assert ready_criteria(wanted, settings, str(project))[0].options["root"] == str(tmp_path)
    (project / "beside_project.py").write_text(code)
    assert ready_criteria(wanted, settings, str(project))[0].options["root"] == str(project)


@pytest.mark.parametrize("target", ["json:dumps", "math:floor"])
def test_a_wrong_signature_in_a_loaded_module_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(UsageError, match="Cannot detect eval function mode"):
        check_function(target, "", tmp_path)


@pytest.mark.parametrize("name", ["good", "trial", "decorated", "rest"])
def test_a_signature_that_may_be_right_is_left_to_the_import(tmp_path: Path, name: str) -> None:
    (tmp_path / "signed.py").write_text(SIGNATURES)

    check_function(f"signed:{name}", str(tmp_path), tmp_path)


@pytest.mark.parametrize("target", [r"C:\rewards.py:score", r"C:\rewards.py", "D:/own/rewards.py:score"])
def test_a_path_of_windows_is_answered_with_the_form_that_is_wanted(target: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is the path of a file; name the function as module:function"):
        check_function(target, str(tmp_path), tmp_path)

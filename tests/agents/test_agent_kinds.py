"""One table says all that is known of a kind of agent before it is imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk import registry
from evaldesk.agents import AGENTS, AgentKind, agent_ref, declared_refs, load_agent, missing_packages
from evaldesk.agents.agent import AgentKinds
from evaldesk.agents.loading import adapt_object
from evaldesk.agents.missing_packages import missing_package
from evaldesk.errors import AgentError
from evaldesk.model import AgentRef
from evaldesk.pages.agents import kind_words

REPOSITORY = Path(__file__).resolve().parents[2]

BROUGHT = """
from evaldesk.agents import AgentKind

CREW = AgentKind("any", "Crew", "crew_kind:adapt", sees_tools=True)
WIRE = AgentKind("any", "Wire", "crew_kind:adapt", "address", prefix="elsewhere")


class Crew:
    pass


def adapt(found, ref):
    from evaldesk.agents.python import PythonAgent

    return PythonAgent(lambda message: message, ref) if isinstance(found, Crew) or found is None and ref.kind else None
"""


@pytest.fixture(params=list(AGENTS))
def kind(request: pytest.FixtureRequest) -> AgentKind:
    return AGENTS[request.param]


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentKinds]:
    (tmp_path / "crew_kind.py").write_text(BROUGHT)
    monkeypatch.syspath_prepend(tmp_path)
    targets = {
        "crew": "crew_kind:CREW",
        "wire": "crew_kind:WIRE",
        "bare": "crew_kind:adapt",
        "gone": "no_such_package:kind",
    }
    points = [EntryPoint(name, target, "evaldesk.agents") for name, target in targets.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    yield AgentKinds(AGENTS.builtin)
    sys.modules.pop("crew_kind", None)


def test_kinds_of_packages_are_complete_while_another_thread_loads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, seen = AgentKinds(AGENTS.builtin), list[bool]()

    def look(group: str) -> Iterator[EntryPoint]:
        yield EntryPoint("crew", "crew_kind:CREW", group)
        if not seen:
            seen.append(False)
            seen.append("wire" in kinds)
        yield EntryPoint("wire", "crew_kind:WIRE", group)

    monkeypatch.setattr(registry, "entry_points", look)

    assert list(kinds) == [kind.name for kind in AGENTS.builtin] + ["crew", "wire"]
    assert seen[1]


def test_every_kind_has_a_title_of_its_own_and_an_adapter(kind: AgentKind) -> None:
    titles = [AGENTS[name].title for name in AGENTS]

    assert titles.count(kind.title) == 1
    assert kind_words(kind.name) == kind.title
    assert callable(kind.adapt())


def test_only_a_remote_kind_has_a_prefix_and_it_is_its_own(kind: AgentKind) -> None:
    prefixes = [AGENTS[name].prefix for name in AGENTS]

    assert bool(kind.prefix) == kind.is_remote
    assert not kind.prefix or prefixes.count(kind.prefix) == 1


def test_a_remote_kind_is_named_by_its_prefix_and_an_object_never_is(kind: AgentKind, tmp_path: Path) -> None:
    (tmp_path / "recorded.json").write_text("[]")
    targets = {"address": "http://127.0.0.1:8000/dice", "command": "run dice", "file": str(tmp_path / "recorded.json")}

    if not kind.is_remote:
        assert AGENTS.at_prefix(kind.name) != kind
        return
    named = agent_ref(f"{kind.prefix}:{targets[kind.target]}")
    table = {"kind": kind.prefix, "command" if kind.target != "address" else "url": targets[kind.target]}
    [declared] = declared_refs({"dice": table}, tmp_path)

    assert (named.kind, declared.kind) == (kind.name, kind.name)
    assert named.target == declared.target == targets[kind.target]


@pytest.mark.parametrize(
    ("address", "name"),
    [("http://127.0.0.1:8000/v1", "http_chat"), ("http://127.0.0.1/v1/", "http_chat"), ("http://127.0.0.1/x", "http")],
)
def test_the_end_of_an_address_decides_its_kind(address: str, name: str) -> None:
    assert agent_ref(address).kind == AGENTS.at_address(address).name == name


def test_an_extra_exists_and_installs_the_package(kind: AgentKind) -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert bool(kind.package) == bool(kind.modules) >= bool(kind.extra)
    if kind.extra:
        assert any(wanted.startswith(kind.package) for wanted in extras[kind.extra])


def test_a_missing_framework_is_named_with_its_extra(kind: AgentKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_packages, "is_installed", lambda package: False)

    for module in kind.modules:
        for name in (module, module.partition(".")[0]):
            monkeypatch.delitem(sys.modules, name, raising=False)
        error = ModuleNotFoundError(name=f"{module}.inner")
        assert missing_package(error) == f"it needs {kind.package}: pip install {wanted_package(kind)}"


def wanted_package(kind: AgentKind) -> str:
    return f"'evaldesk[{kind.extra}]'" if kind.extra else kind.package


FRAMEWORKS = [kind for kind in AGENTS.builtin if kind.modules]
IMPORTS = {
    "a name": "from {module} import Agent",
    "a module": "from {module}.anything.deeper import Agent",
    "an attribute": "import {module}\n{module}.Agent",
}


@pytest.mark.parametrize("statement", IMPORTS.values(), ids=list(IMPORTS))
@pytest.mark.parametrize("near", [None, "", "__init__.py", "agent.py"], ids=["nothing", "folder", "package", "agent"])
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=[kind.name for kind in FRAMEWORKS])
def test_a_missing_framework_shadowed_by_a_folder_is_named(
    framework: AgentKind, near: str | None, statement: str, loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = framework.modules[0].partition(".")[0]
    folder = tmp_path / "root1" / top  # beside the agent that is loaded
    if near is not None:
        folder.mkdir(parents=True)
    if near:
        (folder / near).touch()
    monkeypatch.setattr(missing_packages, "is_installed", lambda package: False)
    for name in [name for name in sys.modules if name.partition(".")[0] == top]:
        monkeypatch.delitem(sys.modules, name)
    elsewhere = [place for place in sys.path if not Path(place, top).exists()]
    monkeypatch.setattr(sys, "path", elsewhere)

    with pytest.raises(AgentError) as refused:
        loaded(statement.replace("{module}", top))
    for name in [name for name in sys.modules if name.partition(".")[0] == top]:
        del sys.modules[name]

    assert "some_agent/agent.py, line " in str(refused.value)
    assert f"needs {framework.package}: pip install {wanted_package(framework)}" in str(refused.value)
    assert (f"({top!r} is {folder}" in str(refused.value)) == (near is not None)


def test_a_missing_module_of_an_installed_framework_has_pythons_message(
    loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_packages, "is_installed", lambda package: True)

    with pytest.raises(AgentError, match="ModuleNotFoundError: No module named 'agents"):
        loaded("import agents.anything")


def test_a_missing_name_in_the_users_own_package_has_pythons_message(
    loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_packages, "is_installed", lambda package: False)
    own = tmp_path / "root1" / "langgraph" / "prices"
    own.mkdir(parents=True)
    (own / "__init__.py").touch()
    (own.parent / "__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "langgraph"]:
        monkeypatch.delitem(sys.modules, name)

    with pytest.raises(AgentError, match=r"ImportError: cannot import name 'nett' from 'langgraph\.prices'"):
        loaded("from langgraph.prices import nett")
    for name in ("langgraph.prices", "langgraph"):
        del sys.modules[name]


def test_the_traits_are_read_without_a_framework_or_an_adapter() -> None:
    code = (
        "import sys; from evaldesk.agents import AGENTS; [AGENTS[name] for name in AGENTS]; "
        "kinds = [AGENTS[name] for name in AGENTS]; "
        "adapters = {kind.adapter.partition(':')[0] for kind in kinds}; "
        "tops = {top for kind in kinds for top in kind.modules}; "
        "print(sorted((adapters | tops) & set(sys.modules)), 'litellm' in sys.modules)"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["[]", "False"]


def test_a_package_brings_a_kind_with_its_traits(brought: AgentKinds) -> None:
    crew = brought["crew"]

    assert (crew.name, crew.title, crew.sees_tools, crew.prices_calls) == ("crew", "Crew", True, False)
    assert brought.title("crew") == "Crew"
    assert list(brought)[-4:] == ["crew", "wire", "bare", "gone"]


def test_a_package_that_brings_an_adapter_alone_has_the_careful_traits(brought: AgentKinds) -> None:
    bare = brought["bare"]

    assert (bare.title, bare.is_remote, bare.sees_tools, bare.prices_calls) == ("bare", False, False, False)
    assert callable(bare.adapt())


def test_a_remote_kind_of_a_package_has_its_name_as_prefix(
    brought: AgentKinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("discovery", "loading"):
        monkeypatch.setattr(f"evaldesk.agents.{module}.AGENTS", brought)

    ref = agent_ref("wire:http://127.0.0.1:8000/dice")

    assert (ref.kind, ref.target) == ("wire", "http://127.0.0.1:8000/dice")
    assert load_agent(ref).describe().kind == "python"  # as what it was made of says


def test_an_object_is_looked_at_by_the_kinds_of_packages_before_plain_python(brought: AgentKinds) -> None:
    order = [kind.name for kind in brought.kinds_for(object())]

    assert order[-3:] == ["crew", "bare", "python"]  # not the package that cannot be imported, nor a remote kind


def test_a_kind_that_an_agent_claims_is_never_imported_by_its_words(brought: AgentKinds) -> None:
    assert brought.find("crew_kind:adapt") is None
    assert brought.title("crew_kind:adapt") == "crew_kind:adapt"
    assert "crew_kind" not in sys.modules
    assert brought.find("gone") is None  # its package cannot be imported


def test_there_is_no_second_list_of_kinds() -> None:
    lists: dict[str, Any] = {}
    names = set(AGENTS)
    for path in (REPOSITORY / "app" / "evaldesk").rglob("*.py"):
        found = {name for name in names if f'"{name}"' in path.read_text("utf-8")} - {
            "command",
            "http",
            "adk",
            "python",
        }
        if len(found) > 3 and path.name != "agent.py":
            lists[str(path)] = found

    assert not lists


def test_the_kind_of_an_object_needs_no_name(loaded: Any) -> None:
    assert adapt_object(lambda message: message, AgentRef("a", "a:b")).describe().kind == "python"


def test_no_adapter_of_a_framework_is_imported_for_a_function() -> None:
    code = (
        "import sys; from evaldesk.agents import AGENTS, adapt_object; from evaldesk.model import AgentRef; "
        "kind = adapt_object(lambda message: message, AgentRef('a', 'a:b')).describe().kind; "
        "adapters = {AGENTS[name].adapter.partition(':')[0]: name for name in AGENTS}; "
        "print(kind, *(adapters[module] for module in adapters if module in sys.modules))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["python", "python"]


def test_a_kind_with_a_home_adapts_no_object_before_its_import(
    kind: AgentKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in kind.home:
        monkeypatch.delitem(sys.modules, module, raising=False)

    assert kind.may_take(object()) == (not kind.home and not kind.is_remote and not kind.first_parameter)


@of_tools("openhands")
def test_the_first_parameter_decides_the_kind_of_a_function() -> None:
    assert adapt_object(lambda instance, metadata: None, AgentRef("a", "a:b")).describe().kind == "benchmark"

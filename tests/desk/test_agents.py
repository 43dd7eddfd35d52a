"""The agents of a desk: found without an import, asked once for each edition of their files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from evaldesk.desk.agents import AgentDesk, FoundAgent
from evaldesk.errors import AgentError, NotFoundError
from evaldesk.model import AgentDescription, AgentRef
from evaldesk.settings import Settings

pytestmark = pytest.mark.anyio


class Describer:
    """Says of an agent that it is there; of one called `broken` that it is not."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.warmed: list[str] = []

    async def describe(self, ref: AgentRef) -> AgentDescription:
        self.asked.append(ref.id)
        if ref.id == "broken":
            raise AgentError("no root_agent\nmore", trace="the trace with s3cret-value")
        return AgentDescription(name=ref.id.upper(), kind="llm")

    async def warm(self, ref: AgentRef) -> None:
        self.warmed.append(ref.id)


def write_agent(root: Path, name: str, source: str = "root_agent = None\n") -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "agent.py").write_text(source)


def agent_desk(root: Path, host: Describer, *, is_demo: bool = False) -> AgentDesk:
    environment = {"MY_API_KEY": "s3cret-value"}
    return AgentDesk(Settings(workspace=root, roots=(root,), is_demo=is_demo, environment=environment), host)


async def test_an_agent_is_known_by_its_folder_until_it_describes_itself(tmp_path: Path) -> None:
    write_agent(tmp_path, "dice", "raise SystemExit('the server imported me')\nroot_agent = None\n")
    desk = agent_desk(tmp_path, Describer())

    before = desk.get("dice")
    after = await desk.get_described_agent("dice")

    assert (before.state, before.name) == ("unknown", "dice")
    assert (after.state, after.name, after.own_name) == ("ready", "dice", "DICE")


@pytest.mark.parametrize(("own", "shown"), [("Dicey", "Dicey"), ("root_agent", ""), ("", ""), ("dice", "")])
async def test_an_agent_has_the_name_of_its_folder_and_its_own_one_where_that_tells_more(own: str, shown: str) -> None:
    agent = FoundAgent(AgentRef("dice", "dice.agent:root_agent"), "ready", AgentDescription(name=own, kind="python"))

    assert (agent.name, agent.own_name) == ("dice", shown)


async def test_an_agent_that_fails_has_the_first_line_and_a_scrubbed_trace(tmp_path: Path) -> None:
    write_agent(tmp_path, "broken")

    agent = await agent_desk(tmp_path, Describer()).get_described_agent("broken")

    assert agent.state == "failed"
    assert agent.error is not None
    assert agent.error.message == "no root_agent"
    assert agent.error.trace == "the trace with [MY_API_KEY]"


async def test_an_agent_is_asked_again_only_when_its_files_changed(tmp_path: Path) -> None:
    write_agent(tmp_path, "dice")
    host = Describer()
    desk = agent_desk(tmp_path, host)
    await desk.get_described_agent("dice")

    await desk.look_again()
    await desk.get_described_agent("dice")
    n_before = len(host.asked)
    write_agent(tmp_path, "dice", "root_agent = 'edited'\n")
    await desk.look_again()
    edited = await desk.get_described_agent("dice")

    assert n_before == 1
    assert host.asked == ["dice", "dice"]
    assert edited.state == "ready"


async def test_a_name_that_leads_nowhere_names_the_nearest(tmp_path: Path) -> None:
    write_agent(tmp_path, "dice")

    with pytest.raises(NotFoundError, match="did you mean 'dice'"):
        agent_desk(tmp_path, Describer()).get("dise")


@pytest.mark.parametrize("is_demo", [True, False], ids=["asked for", "nothing found"])
async def test_the_samples_are_there_when_asked_for_or_when_nothing_is_found(tmp_path: Path, is_demo: bool) -> None:
    if is_demo:
        write_agent(tmp_path, "dice")

    desk = agent_desk(tmp_path, Describer(), is_demo=is_demo)

    assert desk.is_sample
    assert "dice" not in [agent.id for agent in desk.list()]


async def test_closing_stops_asking(tmp_path: Path) -> None:
    write_agent(tmp_path, "dice")
    host = Describer()
    never = asyncio.Event()

    async def wait(ref: AgentRef) -> AgentDescription:
        await never.wait()
        raise AssertionError(ref)

    host.describe = wait  # type: ignore[method-assign]
    desk = agent_desk(tmp_path, host)
    await desk.start()

    await desk.close()

    assert desk.get("dice").state == "loading"


async def test_one_agent_is_warm_at_the_start_and_another_once_somebody_turns_to_it(tmp_path: Path) -> None:
    for name in ("dice", "trips", "words"):
        write_agent(tmp_path, name)
    host = Describer()
    desk = agent_desk(tmp_path, host)

    await desk.start()
    await desk.wait_until_ready()
    at_start = list(host.warmed)
    desk.warm("trips")
    await desk.wait_until_ready()

    assert (sorted(host.asked), at_start, host.warmed) == (["dice", "trips", "words"], ["dice"], ["dice", "trips"])

"""Agents that are plain Python."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evaldesk.errors import AgentError
from evaldesk.model import Session

pytestmark = pytest.mark.anyio

SHAPES = {
    "function": "def root_agent(message): return f'you said {message}'",
    "other-name": "def root_agent(prompt): return f'you said {prompt}'",
    "async": "async def root_agent(message): return f'you said {message}'",
    "generator": "def root_agent(message):\n    yield f'you said {message}'",
    "async-generator": "async def root_agent(message):\n    yield f'you said {message}'",
    "session": "def root_agent(session, message): return f'you said {message}'",
    "object": "class A:\n    def reply(self, message): return f'you said {message}'\nroot_agent = A()",
    "async-object": "class A:\n    async def reply(self, message): return f'you said {message}'\nroot_agent = A()",
    "class": "class root_agent:\n    def reply(self, message): return f'you said {message}'",
    "callable": "class A:\n    def __call__(self, message): return f'you said {message}'\nroot_agent = A()",
    "lambda": "root_agent = lambda message: f'you said {message}'",
    "partial": (
        "import functools\ndef f(a, message): return f'{a} said {message}'\nroot_agent = functools.partial(f, 'you')"
    ),
    "list-of-parts": "def root_agent(message):\n    return iter([None, f'you said {message}'])",
}


@pytest.mark.parametrize("source", SHAPES.values(), ids=SHAPES.keys())
async def test_every_shape_answers(loaded: Any, play: Any, source: str) -> None:
    events = await play(loaded(source), Session("s"), "hi")

    assert [(event.kind, event.text) for event in events] == [("agent_message", "you said hi")]


async def test_consecutive_strings_are_one_answer(loaded: Any, play: Any) -> None:
    session = Session("s")

    await play(loaded("def root_agent(message):\n    yield 'all '\n    yield 'done'"), session, "hi")

    assert session.turns[0].answer == "all done"
    assert session.turns[0].intermediate == ()


async def test_strings_before_an_event_are_an_intermediate_message(loaded: Any, play: Any) -> None:
    session = Session("s")
    code = "from evaldesk.model import Event, ToolCall\ndef root_agent(message):\n    yield 'one moment'\n"
    code += "    yield Event('tool_call', call=ToolCall('look'))\n    yield 'done'"

    await play(loaded(code), session, "hi")

    assert session.turns[0].answer == "done"
    assert [text for _, text in session.turns[0].intermediate] == ["one moment"]


async def test_an_agent_may_change_the_state(loaded: Any, play: Any) -> None:
    session = Session("s", state={"n": 1})

    await play(loaded("def root_agent(message, state):\n    state['n'] += 1\n    return 'ok'"), session, "hi")

    assert session.state == {"n": 2}


async def test_a_class_lives_as_long_as_its_session(loaded: Any, play: Any) -> None:
    agent = loaded(
        "class root_agent:\n    n = 0\n    def reply(self, message):\n        self.n += 1\n        return str(self.n)"
    )
    one, other = Session("one"), Session("other")

    answers = [(await play(agent, session, "hi"))[-1].text for session in (one, one, other)]

    assert answers == ["1", "2", "1"]


async def test_events_pass_and_their_values_become_plain(loaded: Any, play: Any) -> None:
    source = """
from evaldesk.model import Event, ToolCall
def root_agent(message):
    call = ToolCall("look", {"at": (1, 2)})
    yield Event("tool_call", call=call)
    yield Event("tool_result", call=call, result={1, })
    yield "seen"
"""

    called, given, said = await play(loaded(source), Session("s"), "hi")

    assert (called.call.args, given.result, said.text) == ({"at": [1, 2]}, [1], "seen")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (
            "def root_agent(message): return 42",
            "returned int, wanted a str, an Event, or an object of docs/protocol.md",
        ),
        ("async def root_agent(message):\n    yield {'answer': 1}", "returned dict, wanted a str, an Event"),
        ("def root_agent(): return 'hi'", "must take a message"),
        (
            "from evaldesk.model import Event\ndef root_agent(message):\n    yield Event('tool_call')",
            "tool_call event without its call",
        ),
    ],
)
async def test_an_invalid_return_value_is_an_error(loaded: Any, play: Any, source: str, says: str) -> None:
    with pytest.raises(AgentError, match=says):
        await play(loaded(source), Session("s"), "hi")


async def test_events_have_public_names_or_are_objects_of_the_protocol(loaded: Any, play: Any) -> None:
    public = """
from evaldesk import Event, ToolCall, Usage
def root_agent(message, state):
    call = ToolCall("look", {"at": 1})
    yield Event("tool_call", call=call)
    yield Event("usage", usage=Usage("small", tokens_in=3))
    state["n"] = 1
    yield "seen"
"""
    plain = """
def root_agent(message):
    yield {"kind": "tool_call", "name": "look", "args": {"at": 1}}
    yield {"kind": "usage", "model": "small", "tokens_in": 3}
    yield {"kind": "state", "state": {"n": 1}}
    yield {"kind": "message", "text": "seen"}
"""
    sessions = Session("a"), Session("b")

    told = [
        await play(loaded(source), session, "hi") for source, session in zip((public, plain), sessions, strict=True)
    ]

    assert told[0] == told[1]
    assert [event.kind for event in told[0]] == ["tool_call", "usage", "agent_message"]
    assert [session.state for session in sessions] == [{"n": 1}, {"n": 1}]


async def test_none_is_no_answer(loaded: Any, play: Any) -> None:
    assert await play(loaded("def root_agent(message): return None"), Session("s"), "hi") == []


def test_the_description_has_name_and_docstring(loaded: Any) -> None:
    described = loaded("def root_agent(message):\n    '''Says it\n    again.\n\n    More.\n    '''").describe()

    assert (described.name, described.kind, described.description) == ("root_agent", "python", "Says it again.")


ASKING = """
from openai import AsyncOpenAI

async def root_agent(message):
    client = AsyncOpenAI(base_url="{address}", api_key="k")
    await client.chat.completions.create(model="small", messages=[{"role": "user", "content": message}])
"""


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        pytest.param(401, "Incorrect API key provided", "authentication", id="key"),
        pytest.param(404, "The model `small` does not exist", "unknown_model", id="model"),
        pytest.param(404, "No such file object", "agent_raised", id="another-thing"),
        pytest.param(400, "Too hot", "agent_raised", id="another-fault"),
    ],
)
async def test_refusals_of_a_functions_own_client_are_classified(
    endpoint: Any, loaded: Any, played: Any, status: int, said: str, kind: str
) -> None:
    agent = loaded(ASKING.replace("{address}", endpoint.address))
    endpoint.fails(status, said)

    turn = await played(agent, Session("s"), "hi")

    assert turn.error.kind == kind
    assert said in turn.error.message
    assert "root_agent" in turn.error.trace


@pytest.mark.parametrize("kind", ["function", "generator"])
async def test_a_function_may_start_a_loop_of_its_own_as_in_a_script(loaded: Any, played: Any, kind: str) -> None:
    said = "asyncio.run(answer(message))"
    body = f"return {said}" if kind == "function" else f"yield 'and '\n    yield {said}"
    source = f"""
import asyncio

async def answer(message):
    await asyncio.sleep(0)
    return message.upper()

def root_agent(message):
    {body}
"""
    agent = loaded(source)

    turns = [await played(agent, Session("s"), "hi") for _ in range(2)]

    assert [(turn.error, turn.answer) for turn in turns] == [(None, "HI" if kind == "function" else "and HI")] * 2


async def test_the_event_loop_is_restored_after_an_exception(loaded: Any, played: Any) -> None:
    turn = await played(loaded("def root_agent(message):\n    raise ValueError('no')\n"), Session("s"), "hi")

    assert turn.error
    await asyncio.sleep(0)
    assert asyncio.current_task() is not None


async def test_a_semaphore_bound_to_another_loop_is_an_error_with_a_hint(loaded: Any, played: Any) -> None:
    source = """
import asyncio
from threading import Thread

slots = asyncio.Semaphore(1)

async def held():
    async with slots:
        waiting = asyncio.ensure_future(slots.acquire())
        await asyncio.sleep(0)
        waiting.cancel()

other = Thread(target=lambda: asyncio.run(held()))
other.start()
other.join()

async def root_agent(message):
    async with slots:
        await slots.acquire()
"""

    turn = await played(loaded(source), Session("s"), "hi")

    assert turn.error.message.endswith(
        "different event loop; each trial has a loop of its own: use --isolation process"
    )

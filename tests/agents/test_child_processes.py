"""Model calls of processes that a function starts: seen on their way, each in the turn that it belongs to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Answer, Endpoint, chunks
from tests.agents.test_wire_calls import GET_ORDER, story

from evaldesk.agents import load_agent
from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, Expected, Limits, Session, ToolCall, TrialSpec, Turn, TurnRecord
from evaldesk.model.options import Recording

pytestmark = pytest.mark.anyio

CLIENT = """
import json, os, sys, urllib.request

def ask(messages, **options):
    body = json.dumps({"model": "small", "messages": messages, "tools": TOOLS, **options}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
    request.add_header("authorization", "Bearer " + os.environ.get("OPENAI_API_KEY", ""))
    with urllib.request.urlopen(request) as answer:
        return answer.read()

TOOLS = [{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object", "properties": {}}}}]

def solve(question):
    messages = [{"role": "user", "content": question}]
    while True:
        answer = json.loads(ask(messages))["choices"][0]["message"]
        if not answer.get("tool_calls"):
            return answer["content"]
        messages.append(answer)
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "on its way"} for c in answer["tool_calls"]]
"""
ONCE = CLIENT + "\nprint(solve(sys.argv[1]), end='')\n"
SERVER = CLIENT + "\nfor line in sys.stdin:\n    print(solve(line.strip()), flush=True)\n"
STREAM = (
    CLIENT
    + """
ask([{"role": "user", "content": sys.argv[1]}], stream=True)
print("It comes.", end="")
"""
)
HEAD = """
import asyncio, os, subprocess, sys, threading
COMMAND = [sys.executable, "-S", {script!r}]
"""
RUN = """
def root_agent(message):
    return subprocess.run([*COMMAND, message], capture_output=True, text=True, check=True).stdout
"""
ASYNC = """
async def root_agent(message):
    process = await asyncio.create_subprocess_exec(*COMMAND, message, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()
"""
OWN_ENVIRONMENT = """
ADDRESS = os.environ.pop("OPENAI_BASE_URL")

def root_agent(message):
    env = {"OPENAI_BASE_URL": ADDRESS, "OPENAI_API_KEY": "a-key"}
    return subprocess.run([*COMMAND, message], capture_output=True, text=True, check=True, env=env).stdout
"""
THREAD = """
def root_agent(message):
    texts = []
    run = lambda: texts.append(subprocess.run([*COMMAND, message], capture_output=True, text=True).stdout)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return texts[0]
"""
SPAWNED = """
def root_agent(message):
    reader, writer = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_CLOSE, reader)]
    pid = {spawn}([*COMMAND, message], os.environ, file_actions=actions)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text
"""
BY_PATH = SPAWNED.replace("{spawn}(", "os.posix_spawn(COMMAND[0], ")
INHERITED = """
def spawn(*args, **options):
    try:
        return os.posix_spawn(COMMAND[0], args[0], None, **options)
    except TypeError:  # before Python 3.13
        return os.posix_spawn(COMMAND[0], *args, **options)
""" + SPAWNED.replace("{spawn}", "spawn")
BY_NAME = SPAWNED.replace("{spawn}(", "os.posix_spawnp(COMMAND[0], ")
WORKER = """
def ask(message, queue):
    queue.put(solved(message))

def solved(message):
    source = open(COMMAND[-1]).read().partition("print(solve")[0]
    values = {}
    exec(source, values)
    return values["solve"](message)

def root_agent(message):
    import multiprocessing
    context = multiprocessing.get_context("{method}")
    queue = context.SimpleQueue()
    process = context.Process(target=ask, args=(message, queue))
    process.start()
    text = queue.get()
    process.join()
    return text
"""
WITH_A_POOL = """
from concurrent.futures import ProcessPoolExecutor

def root_agent(message):
    import multiprocessing
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(solved, message).result()
"""
FORKED, FRESH = (WORKER.replace("{method}", name) for name in ("fork", "spawn"))
KEPT = """
class root_agent:
    def __init__(self):
        self.process = subprocess.Popen(COMMAND, stdin=-1, stdout=-1, text=True)

    def reply(self, message):
        self.process.stdin.write(message + "\\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if message == "Bye.":
            self.process.communicate()
        return answer
"""
SHARED = (
    KEPT.replace("class root_agent", "class Client")
    + """
client = None

def root_agent(message):
    global client
    client = client or Client()
    return client.reply(message)
"""
)
EXPECTED = [("get_order", {"order": "A7"}), "on its way", "It comes."]


@pytest.fixture
def loaded_with(loaded: Any, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.address)

    def load(source: str, script: str = ONCE) -> Any:
        path = tmp_path / "client.py"
        path.write_text(script)
        return loaded(HEAD.format(script=str(path)) + source)

    return load


@pytest.mark.parametrize(
    "source",
    [RUN, ASYNC, OWN_ENVIRONMENT, THREAD, BY_PATH, INHERITED, BY_NAME, FORKED, FRESH, WORKER + WITH_A_POOL],
    ids=[
        "subprocess.run",
        "asyncio",
        "an environment of its own",
        "a thread without the context",
        "posix_spawn",
        "posix_spawn with its own environment",
        "posix_spawnp",
        "multiprocessing, forked",
        "multiprocessing, spawned",
        "a pool of processes",
    ],
)
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of a fork, from Python 3.12 on
async def test_calls_results_and_tokens_of_a_child_process_are_those_of_its_turn(
    source: str, endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    endpoint.says("", GET_ORDER).says("It comes.")

    turn: TurnRecord = await played(loaded_with(source), Session("s"), "Where is A7?")

    assert (turn.error, story(turn)) == (None, EXPECTED)
    assert [(usage.model, usage.tokens_in, usage.tokens_out, usage.is_least) for usage in turn.usages] == [
        ("small", 11, 5, False)
    ] * len(endpoint.asked)
    assert turn.captures == ("told", "gateway")


@pytest.fixture
def fork_server() -> Iterator[None]:
    """The fork server of multiprocessing ends with the test."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    yield
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("fork_server")
async def test_a_fork_server_of_an_earlier_trial_serves_the_next_one(endpoint: Endpoint, loaded_with: Any) -> None:
    ref, case = AgentRef("a", "some_agent.agent:root_agent"), Case("c", (Turn("Where is A7?"),))
    agent = loaded_with(WORKER.replace("{method}", "forkserver"))
    for _ in range(2):
        endpoint.says("", GET_ORDER).says("It comes.")

    results = [await play_trial(agent, TrialSpec(1, 0, at, case, ref, limits=Limits(60))) for at in range(2)]

    assert [result.error for result in results] == [None, None]
    turns = [result.transcript.turns[0] for result in results]
    assert [story(turn) for turn in turns] == [EXPECTED] * 2
    assert [turn.captures for turn in turns] == [("told", "gateway")] * 2
    assert [len(turn.usages) for turn in turns] == [2, 2]


async def test_the_key_of_the_process_reaches_its_own_address(
    endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    endpoint.says("It comes.")

    await played(loaded_with(OWN_ENVIRONMENT), Session("s"), "hi")

    assert endpoint.headers[0]["authorization"] == "Bearer a-key"


async def test_calls_of_a_process_that_serves_several_turns_belong_to_each_turn(
    endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    endpoint.says("", GET_ORDER).says("It comes.").says("Nothing to do.")
    agent, session = loaded_with(KEPT, SERVER), Session("s")

    turns = [await played(agent, session, "Where is A7?"), await played(agent, session, "Bye.")]

    assert [story(turn) for turn in turns] == [EXPECTED, ["Nothing to do."]]
    assert [len(turn.usages) for turn in turns] == [2, 1]


async def test_calls_of_a_process_that_sessions_share_belong_to_the_one_that_is_played(
    endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    endpoint.says("It comes.").says("Nothing to do.")
    agent = loaded_with(SHARED, SERVER)

    turns = [await played(agent, Session(name), text) for name, text in (("a", "hi"), ("b", "Bye."))]

    assert [(story(turn), len(turn.usages)) for turn in turns] == [(["It comes."], 1), (["Nothing to do."], 1)]


async def test_calls_of_processes_of_two_sessions_at_once_are_not_mixed(
    endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    endpoint.says("It comes.").says("It comes.")
    agent = loaded_with(ASYNC)

    turns = await asyncio.gather(*(played(agent, Session(name), name) for name in ("a", "b")))

    assert [len(turn.usages) for turn in turns] == [1, 1]


async def test_tokens_of_a_stream_to_a_child_process_are_counted_though_it_did_not_ask_for_them(
    endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    endpoint.answers.append(Answer(stream=chunks({"role": "assistant", "content": "It comes."})))

    turn: TurnRecord = await played(loaded_with(RUN, STREAM), Session("s"), "hi")

    assert [(usage.tokens_in, usage.tokens_out, usage.is_least) for usage in turn.usages] == [(11, 5, False)]


async def test_calls_of_a_child_process_are_replayed_from_a_recording(
    endpoint: Endpoint, loaded_with: Any, tmp_path: Path
) -> None:
    endpoint.says("", GET_ORDER).says("It comes.")
    ref = loaded_with(RUN).ref
    case = Case("c", (Turn("Where is A7?", Expected(tool_calls=(ToolCall("get_order", {}),))),))

    results = []
    for mode in ("record", "replay"):
        recording = Recording(mode, str(tmp_path / "recording"))
        spec = TrialSpec(1, 0, 0, case, ref, limits=Limits(60), recording=recording)
        results.append(await play_trial(load_agent(ref), spec))

    assert [(result.error, story(result.transcript.turns[0])) for result in results] == [(None, EXPECTED)] * 2
    assert [usage.is_replayed for usage in results[1].usages] == [True, True]
    assert len(endpoint.asked) == 2


async def test_a_process_that_asks_no_model_gets_its_environment_unchanged_but_for_the_addresses(
    loaded_with: Any, played: Any
) -> None:
    script = "import json, os\nprint(json.dumps(dict(os.environ)), end='')"
    source = RUN.replace("check=True", "check=True, env={'A': '1'}")

    turn: TurnRecord = await played(loaded_with(source, script), Session("s"), "hi")

    names = json.loads(turn.answer).keys() - {"LC_CTYPE", "PWD", "SHLVL", "_"}
    assert {name for name in names if not name.endswith(("_BASE_URL", "_API_BASE"))} == {"A", "no_proxy", "NO_PROXY"}


SEVERAL = """
import multiprocessing

def root_agent(message):
    before = dict(os.environ)
    process = multiprocessing.get_context("spawn").Process(target=print)
    process.start()
    process.join()
    names = {name for name in vars(process) if "evaldesk" in name}
    return str((before == dict(os.environ), names))
"""


LINKED = """
def root_agent(message):
    from multiprocessing import util
    import tempfile
    with tempfile.TemporaryDirectory(prefix="a=b") as folder:
        link, written = os.path.join(folder, "sh"), os.path.join(folder, "written")
        os.symlink("/bin/sh", link)
        script = b'echo "$OPENAI_BASE_URL" > "$1"; echo "$2" >> "$1"'
        arguments = [b"any", b"-c", script, b"0", os.fsencode(written), message.encode()]
        os.waitpid(util.spawnv_passfds(os.fsencode(link), arguments, []), 0)
        with open(written) as file:
            return file.read()
"""


async def test_a_program_whose_path_has_an_equals_sign_is_started(
    endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    turn: TurnRecord = await played(loaded_with(LINKED), Session("s"), "a word")

    address, message = turn.answer.splitlines()
    assert address.startswith("http://127.0.0.1:")
    assert address != endpoint.address
    assert message == "a word"


async def test_the_own_environment_and_the_process_object_stay_as_they_are(
    endpoint: Endpoint, loaded_with: Any, played: Any
) -> None:
    turn: TurnRecord = await played(loaded_with(SEVERAL), Session("s"), "hi")

    assert turn.answer == "(True, set())"

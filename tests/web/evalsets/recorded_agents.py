"""Agents whose sessions are recorded and run: in the shapes of public samples, with scripted models, all of them ours.

A time, a counter, an id, a random number or a day is in their state, in an argument, in an answer or in an artefact.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.agents import adk_source, langgraph_source, openai_agents_source, pydantic_ai_source


@dataclass(frozen=True, slots=True)
class RecordedAgent:
    """An agent: its source, the messages of its session, and the keys of the places that change in a replay.

    `package` has to be installed. One that `varies` calls other tools each time, so that its run may not be green.
    `table` is its table in evaldesk.toml, in place of a folder.
    """

    name: str
    source: str
    messages: tuple[str, ...]
    changing: tuple[str, ...] = ()
    package: str = ""
    varies: bool = False
    table: str = ""


STAMPED = """
import time

def root_agent(message, state):
    state.setdefault("timer_start", time.time())
    state["request_count"] = state.get("request_count", 0) + 1
    return "Hello."
"""
SERVED = """
import itertools

served = itertools.count(1)

def root_agent(message, state):
    state["served"] = next(served)
    return "Ready."
"""
CART = """
import uuid

def root_agent(message, state):
    state.setdefault("cart", {"id": str(uuid.uuid4()), "items": []})
    state["cart"]["items"].append(message)
    return f"{len(state['cart']['items'])} in your cart."
"""
BOOKING = """
import random, time
from evaldesk import Event, ToolCall

def root_agent(message, state):
    reserve = ToolCall("reserve", {"guests": 2, "at": int(time.time())})
    yield Event("tool_call", call=reserve)
    number = f"R-{random.randrange(10_000, 99_999)}"
    yield Event("tool_result", call=reserve, result={"number": number})
    confirm = ToolCall("confirm", {"number": number})
    yield Event("tool_call", call=confirm)
    yield Event("tool_result", call=confirm, result={"ok": True})
    state["reservation"] = number
    yield f"Your table is booked, the number is {number}."
"""
DIARY = """
from datetime import UTC, date, datetime

async def root_agent(message, state):
    state.setdefault("entries", []).append({"at": datetime.now(UTC).isoformat(), "text": message})
    state["today"] = date.today().isoformat()
    return "Noted."
"""
SCORING = """
import random

class Scoring:
    def run(self, message, state):
        state["score"] = random.random()
        state["label"] = "good"
        return "Scored."

scoring = Scoring()

def root_agent(message, state):
    return scoring.run(message, state)
"""
SESSIONS = """
memory = {}

async def root_agent(message, session):
    texts = memory.setdefault(session.id, [])
    texts.append(message)
    return f"{len(texts)} messages so far."
"""
SHARED_CLIENT = """
import asyncio

ready, session_of = asyncio.Event(), {}

async def root_agent(message, session):
    try:
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.sleep(0.05)
        ready.set()
        await waiting
        ready.clear()
    except RuntimeError as error:
        return f"{error}"
    return f"You said {message}"
"""
"""As agents of agno: a client of one event loop for all sessions, and its error is an answer."""
RESERVED = """
import time

def root_agent(message, state):
    state["temp:now"] = time.time()
    state["_adk_recordings"] = {"at": time.time()}
    state["app:motto"] = "Tea first"
    return "Ready."
"""
FICKLE = """
import random
from evaldesk import Event, ToolCall

def root_agent(message, state):
    for name in random.sample(["look", "find", "read", "ask", "count", "search"], 5):
        call = ToolCall(name, {})
        yield Event("tool_call", call=call)
        yield Event("tool_result", call=call, result=1)
    yield "Here."
"""
COMMAND = """
import json, sys, uuid

for line in sys.stdin:
    asked = json.loads(line)
    state = {**asked["session"]["state"], "ticket": f"T-{uuid.uuid4()}"}
    call = {"name": "open_ticket", "args": {"title": asked["message"]}, "id": "c1"}
    for event in (
        {"kind": "tool_call", **call},
        {"kind": "state", "state": state},
        {"kind": "tool_result", **call, "result": state["ticket"]},
        {"kind": "message", "text": "A ticket is open."},
        {"kind": "done"},
    ):
        print(json.dumps(event), flush=True)
"""
ADK_SCRIPT = (
    adk_source.SCRIPT
    + """
import json, random, time, uuid
from datetime import datetime
from google.adk.agents import LoopAgent, ParallelAgent

def scripted(answer, **more):
    return LlmAgent(model=Scripted(answer=answer), **more)
"""
)
PLANTS = (
    ADK_SCRIPT
    + '''
def load_profile(callback_context):
    callback_context.state.setdefault("profile", json.dumps({"id": "7", "name": "Ana"}, indent=2))

def limit_rate(callback_context, llm_request):
    state = callback_context.state
    state["timer_start"] = state.get("timer_start", time.time())
    state["request_count"] = state.get("request_count", 0) + 1

def schedule(day: str, details: str) -> dict:
    """Schedule a planting."""
    return {"status": "success", "appointment_id": str(uuid.uuid4())}

def answer(word, request):
    if isinstance(word, dict):
        return said(f"Booked. Your appointment is {word['appointment_id']}.")
    if word == "Plan a planting":
        return said("", ("schedule", {"day": "2027-03-01", "details": "petunias"}))
    return said("Welcome back, Ana.")

root_agent = scripted(
    answer, name="plants", tools=[schedule], before_agent_callback=load_profile, before_model_callback=limit_rate
)
'''
)
"""As customer-service: a profile and a rate limit in the state, and an appointment with an id."""
TRIPS = (
    ADK_SCRIPT
    + '''
def load_itinerary(callback_context):
    if "_time" not in callback_context.state:
        callback_context.state["_time"] = str(datetime.now())
        callback_context.state["itinerary"] = {"origin": "Lyon", "days": [{"date": "2026-06-01"}]}

def memorize(key: str, value: str, tool_context) -> dict:
    """Memorize a value."""
    tool_context.state[key] = value
    return {"status": f'Stored "{key}"'}

def root(word, request):
    return said("", ("transfer_to_agent", {"agent_name": "in_trip"}))

def in_trip(word, request):
    if isinstance(word, dict) and "Stored" in str(word):
        return said("I will remember that.")
    return said("", ("memorize", {"key": "now", "value": datetime.now().strftime("%Y-%m-%d %H:%M:%S.%f")}))

below = scripted(in_trip, name="in_trip", description="During a trip.", tools=[memorize])
root_agent = scripted(root, name="root_agent", sub_agents=[below], before_agent_callback=load_itinerary)
'''
)
"""As travel-concierge: the time of the start, a transfer, and a time that the model memorizes."""
AUDIT = (
    ADK_SCRIPT
    + """
critic = scripted(lambda word, request: said("The claim is right."), name="critic", output_key="finding")
reviser = scripted(lambda word, request: said("Blueberries are blue."), name="reviser")
root_agent = SequentialAgent(name="auditor", sub_agents=[critic, reviser])
"""
)
"""As llm-auditor: two agents after each other."""
REPORTS = (
    ADK_SCRIPT
    + """
def report(word, request):
    return said(f"Report of {datetime.now().isoformat()}: the market is calm.")

def answer(word, request):
    return said("The report is there.") if isinstance(word, dict) else said("", ("analyst", {"request": word}))

analyst = scripted(report, name="analyst", description="Writes reports.", output_key="market_report")
root_agent = scripted(answer, name="coordinator", tools=[AgentTool(analyst)], output_key="last_answer")
"""
)
"""As financial-advisor: a report with its date under an output key."""
LOGOS = (
    ADK_SCRIPT
    + '''
async def draw_logo(prompt: str, tool_context) -> dict:
    """Draw a logo."""
    name = f"logo_{uuid.uuid4().hex[:8]}.png"
    part = types.Part(inline_data=types.Blob(mime_type="image/png", data=random.randbytes(40)))
    await tool_context.save_artifact(name, part)
    tool_context.state["logo"] = name
    return {"file": name}

def answer(word, request):
    return said("Here is your logo.") if isinstance(word, dict) else said("", ("draw_logo", {"prompt": word}))

root_agent = scripted(answer, name="marketing", tools=[draw_logo])
'''
)
"""As marketing-agency: an artefact with a name of its own."""
RESEARCH = (
    ADK_SCRIPT
    + """
def researcher(name):
    def answer(word, request):
        return said(f"{name}: {random.randrange(1_000, 9_999)} sources")
    return scripted(answer, name=name, output_key=f"{name}_result")

both = ParallelAgent(name="both", sub_agents=[researcher("web"), researcher("papers")])
writer = scripted(lambda word, request: said("A summary of two searches."), name="writer")
root_agent = SequentialAgent(name="research", sub_agents=[both, writer])
"""
)
"""As academic-research: two agents at once, whose results differ each time."""
REFINING = (
    ADK_SCRIPT
    + '''
def end(tool_context) -> dict:
    """End the loop."""
    tool_context.actions.escalate = True
    return {}

def note_round(callback_context):
    callback_context.state["rounds"] = callback_context.state.get("rounds", 0) + 1
    callback_context.state["refined_at"] = time.time()

def answer(word, request):
    if isinstance(word, dict):
        return said("The last draft.")
    is_last = "Round 3" in str(request.config.system_instruction)
    return said("", ("end", {})) if is_last else said("A draft.")

refiner = scripted(
    answer, name="refiner", instruction="Round {rounds}", tools=[end], before_agent_callback=note_round
)
root_agent = LoopAgent(name="refining", sub_agents=[refiner], max_iterations=5)
'''
)
"""As code-reviewer: a loop that ends itself, with a count of its rounds."""
SHOP = (
    ADK_SCRIPT
    + '''
def search(keywords: str, tool_context) -> dict:
    """Search the shop."""
    tool_context.state["page"] = {"session": uuid.uuid4().hex, "title": keywords, "stock": random.randrange(90, 99)}
    return {"found": ["a dress"]}

def buy(item: str, tool_context) -> dict:
    """Buy an item."""
    tool_context.state["user:orders"] = [f"ORD-{random.randrange(10_000, 99_999)}"]
    return {"status": "paid"}

def answer(word, request):
    if isinstance(word, dict):
        return said("Here it is." if "found" in word else "It is yours.")
    return said("", ("search", {"keywords": word}) if "find" in word else ("buy", {"item": "a dress"}))

root_agent = scripted(answer, name="shopping", tools=[search, buy])
'''
)
"""As personalized-shopping: the page of a shop and an order number."""
PAYROLL = (
    ADK_SCRIPT
    + '''
def look_up(symbol: str) -> dict:
    """Look up a token."""
    return {"decimals": 6}

def pay(token_decimals: int, nonce: int, tool_context) -> dict:
    """Pay."""
    tool_context.state["tx"] = {"hash": "0x" + uuid.uuid4().hex + uuid.uuid4().hex, "gas": random.uniform(20.0, 21.0)}
    return {"status": "sent"}

def answer(word, request):
    if isinstance(word, dict):
        return said("All paid." if "status" in word else "Shall I pay 250 USDC?")
    if word == "confirm":
        return said("", ("pay", {"token_decimals": 6, "nonce": random.randrange(1_000_000)}))
    return said("", ("look_up", {"symbol": "USDC"}))

root_agent = scripted(answer, name="payroll", tools=[look_up, pay])
'''
)
"""As crypto-payroll-agent: two turns, a nonce in an argument, and the hash of a transaction."""
TICKETS = (
    ADK_SCRIPT
    + """
from pydantic import BaseModel

class Ticket(BaseModel):
    ticket_id: str
    title: str
    opened: str

def answer(word, request):
    ticket = Ticket(ticket_id=str(uuid.uuid4()), title=word, opened=datetime.now().strftime("%Y-%m-%d %H:%M"))
    return said(ticket.model_dump_json())

root_agent = scripted(answer, name="tickets", output_schema=Ticket, output_key="ticket")
"""
)
"""As samples with a schema: the answer is JSON, with an id and a time to the minute."""
WORKFLOW = """
from google.adk import Event, Workflow
from google.adk.workflow import START

def hello(node_input):
    return Event(message="hello from a workflow")

root_agent = Workflow(name="hello_flow", edges=[(START, hello)])
"""
GRAPH = (
    langgraph_source.SCRIPT
    + '''
import time, uuid

class Order(State, total=False):
    ticket: str
    opened: float

@tool
def open_ticket(title: str, key: str) -> str:
    """Open a ticket."""
    return "opened"

async def agent(state):
    last = state["messages"][-1]
    if last.type == "tool":
        return {"messages": [said("A ticket is open.")], "ticket": f"T-{uuid.uuid4()}", "opened": time.time()}
    return {"messages": [said("", ("open_ticket", {"title": last.content, "key": uuid.uuid4().hex}))]}

def after(state):
    return "tools" if state["messages"][-1].tool_calls else END

graph = StateGraph(Order)
graph.add_node("agent", agent)
graph.add_node("tools", ToolNode([open_ticket]))
graph.add_edge(START, "agent")
graph.add_conditional_edges("agent", after)
graph.add_edge("tools", "agent")
root_agent = graph.compile(name="tickets")
'''
)
FAN_OUT = (
    langgraph_source.SCRIPT
    + """
import operator, time
from langgraph.types import Send

class Work(State, total=False):
    parts: Annotated[list, operator.add]
    seconds: float

def fan(state):
    return [Send("worker", {"item": word}) for word in state["messages"][-1].content.split()[:3]]

async def worker(state):
    return {"parts": [state["item"].upper()]}

def join(state):
    return {"messages": [said(f"{len(state['parts'])} parts")], "seconds": time.perf_counter() % 1}

graph = StateGraph(Work)
for name, node in (("plan", lambda state: {}), ("worker", worker), ("join", join)):
    graph.add_node(name, node)
graph.add_edge(START, "plan")
graph.add_conditional_edges("plan", fan, ["worker"])
graph.add_edge("worker", "join")
graph.add_edge("join", END)
root_agent = graph.compile(name="fan_out")
"""
)
SDK = (
    openai_agents_source.SCRIPT
    + '''
import time, uuid

def answer(word, items):
    return said("Sent.") if isinstance(word, dict) else called("send", {"to": word, "key": uuid.uuid4().hex})

@function_tool
def send(context: RunContextWrapper[dict], to: str, key: str) -> str:
    """Send a letter."""
    context.context["sent_at"] = time.time()
    return "ok"

root_agent = Agent(name="letters", model=Scripted(answer), tools=[send], instructions="Send.")
'''
)
PYDANTIC = (
    pydantic_ai_source.SCRIPT
    + '''
import random, time

def answer(word, messages):
    if isinstance(word, dict):
        return said(f"It is {random.uniform(18, 22):.3f} degrees in Lyon.")
    return called("measure", {"city": "Lyon", "asked_at": time.time()})

root_agent = Agent(scripted(answer), name="weather", instructions="Measure.", deps_type=dict)

@root_agent.tool
def measure(context: RunContext[dict], city: str, asked_at: float) -> float:
    """Measure."""
    context.deps["station"] = "LYS"
    return 20.0
'''
)

ADK, GRAPHS, AGENTS_SDK, PYDANTIC_AI = "google.adk", "langgraph", "agents", "pydantic_ai"
HI, TWICE = ("Hi",), ("Hi", "And again")

RECORDED_AGENTS = (
    RecordedAgent("stamped", STAMPED, TWICE, ("state.timer_start",)),
    RecordedAgent("served", SERVED, HI, ("state.served",)),
    RecordedAgent("cart", CART, TWICE, ("state.cart/id",)),
    RecordedAgent("booking", BOOKING, HI, ("1.1.at", "1.2.number", "state.reservation")),
    RecordedAgent("diary", DIARY, TWICE, ("state.entries/0/at", "state.entries/1/at", "state.today")),
    RecordedAgent("scoring", SCORING, HI, ("state.score",)),
    RecordedAgent("sessions", SESSIONS, TWICE),
    RecordedAgent("shared_client", SHARED_CLIENT, TWICE),
    RecordedAgent("reserved", RESERVED, HI),
    RecordedAgent("fickle", FICKLE, HI, ("1.calls",), varies=True),
    RecordedAgent("command", COMMAND, HI, ("state.ticket",), table='kind = "command"\ncommand = {command}'),
    RecordedAgent("chat_server", "", TWICE, ("1.answer", "2.answer"), table='kind = "http_chat"\nurl = "{url}"'),
    RecordedAgent("plants", PLANTS, ("Hello", "Plan a planting"), ("2.answer", "state.timer_start"), ADK),
    RecordedAgent("trips", TRIPS, HI, ("1.2.value", "state._time", "state.now"), ADK),
    RecordedAgent("audit", AUDIT, HI, (), ADK),
    RecordedAgent("reports", REPORTS, HI, ("state.market_report",), ADK),
    RecordedAgent("logos", LOGOS, HI, ("state.logo",), ADK),
    RecordedAgent("research", RESEARCH, HI, ("state.papers_result", "state.web_result"), ADK),
    RecordedAgent("refining", REFINING, HI, ("state.refined_at",), ADK),
    RecordedAgent("shop", SHOP, ("find a dress", "buy it"), ("state.page/session", "state.user:orders/0"), ADK),
    RecordedAgent("payroll", PAYROLL, ("Pay", "confirm"), ("2.1.nonce", "state.tx/gas", "state.tx/hash"), ADK),
    RecordedAgent("tickets", TICKETS, HI, ("1.answer", "state.ticket/opened", "state.ticket/ticket_id"), ADK),
    RecordedAgent("workflow", WORKFLOW, TWICE, (), ADK),
    RecordedAgent("graph", GRAPH, HI, ("1.1.key", "state.opened", "state.ticket"), GRAPHS),
    RecordedAgent("fan_out", FAN_OUT, ("tea and milk",), ("state.seconds",), GRAPHS),
    RecordedAgent("letters", SDK, HI, ("1.1.key", "state.sent_at"), AGENTS_SDK),
    RecordedAgent("weather", PYDANTIC, HI, ("1.1.asked_at",), PYDANTIC_AI),
)

"""Writes samples of spans for the inbox: a scripted model is asked twice while a real SDK records its calls.

`python bench/sdk_spans.py NAME FOLDER` runs in a venv with the packages of `SDKS`, which need not have Evaldesk. The
samples are read by `tests/desk/inbox/test_spans_of_sdks.py`.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

Around = Callable[[str], AbstractContextManager[Any]]
QUESTIONS = ("Where is order 17?", "Thanks.")
MODEL = "gpt-5-mini"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}},
    },
}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": '{"id": 17}'}}
SHIPPED = {"status": "shipped"}


class Server(BaseHTTPRequestHandler):
    """A model of OpenAI's chat API, and a receiver of OTLP."""

    bodies: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        """Answer a model call, or take spans and records."""
        data = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        if "/chat/completions" in self.path:
            answer = json.dumps(completion(json.loads(data)["messages"][-1])).encode()
        else:
            self.bodies.append((self.path, data))
            answer = b"{}"
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


def completion(last: dict[str, Any]) -> dict[str, Any]:
    """The answer to a last message: a call for an order, then the answers."""
    if last["role"] == "tool":
        message: dict[str, Any] = {"role": "assistant", "content": "It was shipped."}
    elif "order" in str(last["content"]):
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    else:
        message = {"role": "assistant", "content": "You are welcome."}
    reason = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 12, "completion_tokens": 8, "total_tokens": 20}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [choice],
        "usage": usage,
    }


def get_order(id: int) -> dict[str, str]:  # noqa: A002 - the argument of the tool
    """The state of an order."""
    return SHIPPED


def play_openai(client: Any, around: Around, tool: Callable[[int], Any] = get_order) -> None:
    """Ask both questions by a client of OpenAI."""
    messages: list[dict[str, Any]] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        with around(question):
            while True:
                answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
                message = answer.choices[0].message
                calls = [call.model_dump() for call in message.tool_calls or ()]
                messages.append(
                    {"role": "assistant", "content": message.content} | ({"tool_calls": calls} if calls else {})
                )
                if not calls:
                    break
                messages.append({"role": "tool", "tool_call_id": "c1", "content": json.dumps(tool(17))})


def set_provider() -> Any:
    """A provider that sends each span at once."""
    trace, sdk = import_module("opentelemetry.trace"), import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(otlp.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def span_around(attribute: str = "session.id") -> Around:
    """A span of the program around each turn, which names the session."""
    tracer = import_module("opentelemetry.trace").get_tracer("shop")
    attributes = {attribute: "s-1", "user.id": "u"}
    return lambda question: tracer.start_as_current_span("turn", attributes=attributes)


def play_openinference() -> None:
    """The client of OpenAI by OpenInference."""
    provider = set_provider()
    import_module("openinference.instrumentation.openai").OpenAIInstrumentor().instrument(tracer_provider=provider)
    play_openai(import_module("openai").OpenAI(), span_around())


def play_genai() -> None:
    """The client of OpenAI by OpenTelemetry: messages are records of logs, or attributes of the newest conventions."""
    set_provider()
    logs, sdk = import_module("opentelemetry._logs"), import_module("opentelemetry.sdk._logs")
    export = import_module("opentelemetry.sdk._logs.export")
    otlp = import_module("opentelemetry.exporter.otlp.proto.http._log_exporter")
    provider = sdk.LoggerProvider()
    provider.add_log_record_processor(export.SimpleLogRecordProcessor(otlp.OTLPLogExporter()))
    logs.set_logger_provider(provider)
    import_module("opentelemetry.instrumentation.openai_v2").OpenAIInstrumentor().instrument()
    play_openai(import_module("openai").OpenAI(), span_around("gen_ai.conversation.id"))


def play_genai_latest() -> None:
    """The same with the newest conventions."""
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "span_only"
    play_genai()


def play_traceloop() -> None:
    """The client of OpenAI by OpenLLMetry of Traceloop."""
    set_provider()
    import_module("opentelemetry.instrumentation.openai").OpenAIInstrumentor().instrument()
    play_openai(import_module("openai").OpenAI(), span_around())


def play_langfuse() -> None:
    """The client of OpenAI that Langfuse wraps, in observations of an agent and a tool."""
    langfuse = import_module("langfuse")
    client = langfuse.get_client()

    @contextmanager
    def around(question: str) -> Iterator[None]:
        with (
            client.start_as_current_observation(as_type="agent", name="support", input=question) as observation,
            langfuse.propagate_attributes(session_id="s-1", user_id="u", tags=["prod"]),
        ):
            yield
            observation.update(output="done")

    def tool(number: int) -> dict[str, str]:
        given = {"id": number}
        with client.start_as_current_observation(as_type="tool", name="get_order", input=given) as observation:
            observation.update(output=SHIPPED)
            return SHIPPED

    play_openai(import_module("langfuse.openai").OpenAI(), around, tool)
    client.flush()


def play_pydantic_ai() -> None:
    """An agent of Pydantic AI with its own spans."""
    set_provider()
    pydantic_ai = import_module("pydantic_ai")
    pydantic_ai.Agent.instrument_all()
    model = import_module("pydantic_ai.models.openai").OpenAIChatModel(MODEL)
    agent = pydantic_ai.Agent(model, name="support", tools=[get_order])
    history, around = None, span_around()
    for question in QUESTIONS:
        with around(question):
            history = agent.run_sync(question, message_history=history).all_messages()


def play_openai_agents() -> None:
    """An agent of the OpenAI Agents SDK by OpenInference."""
    provider = set_provider()
    module = import_module("openinference.instrumentation.openai_agents")
    module.OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    using_session = import_module("openinference.instrumentation").using_session
    agents = import_module("agents")
    model = agents.OpenAIChatCompletionsModel(MODEL, import_module("openai").AsyncOpenAI())
    agent = agents.Agent(name="support", tools=[agents.function_tool(get_order)], model=model)

    async def play() -> None:
        session = agents.SQLiteSession("s-1")
        for question in QUESTIONS:
            with using_session("s-1"):
                await agents.Runner.run(agent, question, session=session)

    asyncio.run(play())


def play_langgraph() -> None:
    """An agent of LangGraph by OpenInference."""
    provider = set_provider()
    module = import_module("openinference.instrumentation.langchain")
    module.LangChainInstrumentor().instrument(tracer_provider=provider)
    using_session = import_module("openinference.instrumentation").using_session
    tool = import_module("langchain_core.tools").tool(get_order)
    model = import_module("langchain_openai").ChatOpenAI(model=MODEL)
    graph = import_module("langgraph.prebuilt").create_react_agent(model, [tool], name="support")
    messages: list[Any] = []
    for question in QUESTIONS:
        with using_session("s-1"):
            config = {"configurable": {"thread_id": "s-1"}}
            messages = graph.invoke({"messages": [*messages, ("user", question)]}, config=config)["messages"]


SDKS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "genai": (play_genai, ("opentelemetry-instrumentation-openai-v2",)),
    "genai-latest": (play_genai_latest, ("opentelemetry-instrumentation-openai-v2",)),
    "langfuse": (play_langfuse, ("langfuse",)),
    "langgraph": (play_langgraph, ("langgraph", "openinference-instrumentation-langchain")),
    "openai-agents": (play_openai_agents, ("openai-agents", "openinference-instrumentation-openai-agents")),
    "openinference": (play_openinference, ("openinference-instrumentation-openai",)),
    "pydantic-ai": (play_pydantic_ai, ("pydantic-ai-slim",)),
    "traceloop": (play_traceloop, ("opentelemetry-instrumentation-openai",)),
}
"""The SDKs, with the packages whose versions name a sample."""


def main(name: str, folder: Path) -> None:
    """Play an SDK and write its sample."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        os.environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
            "OTEL_RESOURCE_ATTRIBUTES": "service.version=1.4,deployment.environment.name=prod",
            "OTEL_SERVICE_NAME": "shop",
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{url}/v1",
            "LANGFUSE_PUBLIC_KEY": "pk",
            "LANGFUSE_SECRET_KEY": "sk",
            "LANGFUSE_BASE_URL": url,
        }
        play, packages = SDKS[name]
        play()
        server.shutdown()
    versions = "-oi".join(map(version, packages))
    sample = {"sdk": f"{name} {versions}", "requests": [*requests_of(Server.bodies)]}
    text = json.dumps(sample, separators=(",", ":"))
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:80", text)
    (folder / f"{name}-{versions}.json").write_text(text + "\n")


def requests_of(bodies: list[tuple[str, bytes]]) -> Iterator[dict[str, Any]]:
    """The requests of OTLP as JSON."""
    to_dict = import_module("google.protobuf.json_format").MessageToDict
    traces = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2").ExportTraceServiceRequest
    logs = import_module("opentelemetry.proto.collector.logs.v1.logs_service_pb2").ExportLogsServiceRequest
    for path, data in bodies:
        if path.endswith(("/v1/traces", "/v1/logs")):
            kind, name = (logs, "/v1/logs") if path.endswith("/v1/logs") else (traces, "/v1/traces")
            yield {"path": name, "body": with_hex_ids(to_dict(kind.FromString(data)))}


def with_hex_ids(value: Any) -> Any:
    """JSON of OTLP, whose ids are hexadecimal and not in base64."""
    if isinstance(value, list):
        return [with_hex_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {key: base64.b64decode(each).hex() if key in ids else with_hex_ids(each) for key, each in value.items()}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

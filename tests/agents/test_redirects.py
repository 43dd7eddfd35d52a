"""A model endpoint that redirects gets no client to send its key elsewhere; requests of tools are left alone."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint, served
from tests.agents.installed import skip_without

from evaldesk.llm.client import open_litellm
from evaldesk.llm.failures import failure_of
from evaldesk.llm.redirects import refuse_redirects

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),  # Google's own
]

MESSAGES: Any = [{"role": "user", "content": "hi"}]
Ask = Callable[[str], Awaitable[Any]]


@pytest.fixture
def elsewhere() -> Iterator[Endpoint]:
    with served() as endpoint:
        yield endpoint


async def _openai(base: str) -> Any:
    from openai import AsyncOpenAI

    refuse_redirects()
    async with AsyncOpenAI(base_url=base, api_key="k", max_retries=0) as client:
        return await client.chat.completions.create(model="small", messages=MESSAGES)


async def _openai_streamed(base: str) -> Any:
    from openai import AsyncOpenAI

    refuse_redirects()
    async with AsyncOpenAI(base_url=base, api_key="k", max_retries=0) as client:
        return [part async for part in await client.chat.completions.create(model="s", messages=MESSAGES, stream=True)]


async def _openai_that_blocks(base: str) -> Any:
    from openai import OpenAI

    refuse_redirects()
    with OpenAI(base_url=base, api_key="k", max_retries=0) as client:
        return client.chat.completions.create(model="small", messages=MESSAGES)


def _by_litellm(model: str, *, is_streamed: bool) -> Ask:
    async def ask(base: str) -> Any:
        options = {"api_base": base, "api_key": "k", "num_retries": 0, "max_retries": 0, "stream": is_streamed}
        answer = await open_litellm().acompletion(model=model, messages=MESSAGES, **options)
        return [part async for part in answer] if is_streamed else answer

    return ask


async def _litellm_that_blocks(base: str) -> Any:
    return open_litellm().completion(model="anthropic/small", messages=MESSAGES, api_base=base, api_key="k")


def _by_google(*, is_streamed: bool = False, is_httpx: bool = False) -> Ask:
    async def ask(base: str) -> Any:
        from google import genai
        from google.genai import _api_client
        from google.genai.types import HttpOptions

        refuse_redirects()
        library: Any = vars(_api_client)["httpx"]
        arguments = {"transport": library.AsyncHTTPTransport()} if is_httpx else {}  # else it takes aiohttp
        options = HttpOptions(base_url=base, async_client_args=arguments)
        client = genai.Client(api_key="k", http_options=options).aio
        try:
            if not is_streamed:
                return await client.models.generate_content(model="small", contents="hi")
            return [part async for part in await client.models.generate_content_stream(model="small", contents="hi")]
        finally:
            await client.aclose()

    return ask


async def _google_that_blocks(base: str) -> Any:
    from google import genai
    from google.genai.types import HttpOptions

    refuse_redirects()
    with genai.Client(api_key="k", http_options=HttpOptions(base_url=base)) as client:
        return client.models.generate_content(model="small", contents="hi")


ASKING: dict[str, Ask] = {
    "openai": _openai,
    "openai, streamed": _openai_streamed,
    "openai, blocking": _openai_that_blocks,
    "litellm, openai": _by_litellm("openai/small", is_streamed=False),
    "litellm, own client": _by_litellm("anthropic/small", is_streamed=False),
    "litellm, own client, streamed": _by_litellm("anthropic/small", is_streamed=True),
    "litellm, hosted": _by_litellm("hosted_vllm/small", is_streamed=True),
    "litellm, blocking": _litellm_that_blocks,
    "google": _by_google(),
    "google, streamed": _by_google(is_streamed=True),
    "google, httpx": _by_google(is_httpx=True),
    "google, blocking": _google_that_blocks,
}


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("name", ASKING)
async def test_a_redirect_is_not_followed(name: str, status: int, endpoint: Endpoint, elsewhere: Endpoint) -> None:
    if name.startswith("google"):
        skip_without("google.genai")
    for _ in range(3):
        endpoint.fails(status, location=f"{elsewhere.address}/chat/completions")
        elsewhere.says("hello")

    with pytest.raises(Exception) as caught:  # noqa: PT011 - each client has its own
        await ASKING[name](endpoint.address)

    assert elsewhere.headers == []
    failure = failure_of(caught.value, "small")
    assert (failure.kind, failure.is_fatal, failure.is_passing) == ("redirect", True, False)
    assert "keys would be sent there" in failure.sentence


@pytest.mark.parametrize("library", ["httpx", "aiohttp"])
async def test_a_redirect_of_another_page_is_followed(library: str, endpoint: Endpoint, elsewhere: Endpoint) -> None:
    refuse_redirects()
    endpoint.fails(307, location=f"{elsewhere.address}/page")
    elsewhere.gives(b'{"found": true}')

    found = await _fetched(library, endpoint.address)

    assert json.loads(found) == {"found": True}


async def _fetched(library: str, address: str) -> bytes:
    if library == "httpx":
        import httpx

        async with httpx.AsyncClient(follow_redirects=True) as client:
            return (await client.post(address, json={})).content
    import aiohttp

    async with aiohttp.ClientSession() as session, session.post(address, json={}) as response:
        return await response.read()

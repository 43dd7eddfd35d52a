"""Choice of our own client for calls to an OpenAI-compatible endpoint of the user: address, key and model name.

All other calls go through LiteLLM, and these do, too, if LiteLLM has callbacks.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from evaldesk.errors import ModelError
from evaldesk.llm.call import ModelCall
from evaldesk.secrets import provider_of

VLLM = "hosted_vllm"
OPENAI = "openai"
KEY_OF = {VLLM: "HOSTED_VLLM_API_KEY", OPENAI: "OPENAI_API_KEY"}
COMPLETIONS = "/chat/completions"
_OPEN_WEIGHTS = "gpt-oss"
_LISTENERS = ("callbacks", "input_callback", "success_callback", "failure_callback")


@dataclass(frozen=True, slots=True)
class OwnEndpoint:
    """The address of an endpoint, and its name of the model; `key` is empty without one."""

    url: str
    model: str
    key_name: str
    key: str


def own_endpoint(call: ModelCall) -> OwnEndpoint | None:
    """The user's endpoint of `call`; None for a call through LiteLLM. Raises ModelError for a missing key.

    Names with a price in LiteLLM's map (`gpt-4o` behind a gateway) and names of other providers go through LiteLLM.
    """
    provider, name = _parts(call.model)
    base = call.api_base or (os.environ.get("HOSTED_VLLM_API_BASE", "") if provider == VLLM else "")
    if not base or provider not in KEY_OF or has_listeners():
        return None
    is_vllm = call.model.startswith(f"{VLLM}/")
    is_priced = not is_vllm and "/" not in name and provider_of(name) and not name.startswith(_OPEN_WEIGHTS)
    if is_priced or (not is_vllm and _is_openais(base)):
        return None
    key_name = call.api_key_env or KEY_OF[provider]
    key = key_of(call) or os.environ.get(key_name, "")
    return OwnEndpoint(base.rstrip("/").removesuffix(COMPLETIONS) + COMPLETIONS, name, key_name, key)


def key_of(call: ModelCall) -> str | None:
    """The key in the call's variable, else the key from the agent's code; None without either.

    Raises ModelError when the variable is not set.
    """
    if not call.api_key_env:
        key_in_code = call.extra.get("api_key")
        return key_in_code if isinstance(key_in_code, str) and key_in_code else None
    key = os.environ.get(call.api_key_env)
    if not key:
        sentence = f"{call.model}: the environment has no {call.api_key_env}; set it where Evaldesk is started"
        raise ModelError(sentence, kind="authentication", is_fatal=True)
    return key


def _parts(model: str) -> tuple[str, str]:
    """The provider and its name of the model; a name without a provider is treated as a vLLM server."""
    provider, slash, name = model.partition("/")
    if slash and (provider in PROVIDERS or provider in _custom_providers()):
        return provider, name
    return VLLM, model


def _is_openais(base: str) -> bool:
    host = urlsplit(base).hostname or ""
    return host == "openai.com" or host.endswith((".openai.com", ".azure.com"))


def _custom_providers() -> set[str]:
    return {"demo", *(entry["provider"] for entry in getattr(_litellm(), "custom_provider_map", ()))}


def has_listeners() -> bool:
    """Whether the user's code has callbacks of LiteLLM: then LiteLLM makes all calls."""
    return any(getattr(_litellm(), name, None) for name in _LISTENERS)


def _litellm() -> Any:
    """LiteLLM, if it is imported already."""
    return sys.modules.get("litellm")


# Names are copied, because reading them from LiteLLM imports it: decision 017.
_NAMES = """
a2a a2a_agent ai21 ai21_chat aiml aiohttp_openai aleph_alpha amazon_nova anthropic anthropic_text anyscale
apertis assemblyai auto_router aws_polly aws_textract azure azure_ai azure_anthropic azure_speech azure_text
baseten bedrock bedrock_mantle black_forest_labs bytez cerebras charity_engine chatgpt chutes clarifai
cloudflare codestral cognition cohere cohere_chat cometapi compactifai cortecs cursor custom custom_openai
darkbloom dashscope databricks datarobot deepgram deepinfra deepseek docker_model_runner dotprompt edenai
elevenlabs empower fal_ai featherless_ai fireworks_ai friendliai galadriel gdc gemini gigachat github
github_copilot gradient_ai groq helicone heroku hosted_vllm huggingface humanloop hyperbolic inception infinity
jina_ai lambda_ai langflow langfuse langgraph lemonade libertai litellm_agent litellm_proxy llamafile llamagate
lm_studio manus maritalk meta meta_llama milvus minimax mistral modelscope mongodb moonshot morph nadir nano-gpt
nebius neosantara nlp_cloud novita nscale nvidia_nim nvidia_riva oci ollama ollama_chat oobabooga openai
openai_like openrouter ovhcloud palm parasail perplexity petals pg_vector pinstripes poe predibase prism
publicai qwen_ai_platform qwencloud ragflow recraft reducto replicate runwayml s3_vectors sagemaker
sagemaker_chat sagemaker_nova sail sambanova sap scaleway scx-ai snowflake soniox stability strands_decider
synthetic tencent tensormesh text-completion-codestral text-completion-inception text-completion-openai
together_ai topaz transcribe triton typesafe v0 valkey vercel_ai_gateway vertex_ai vertex_ai_beta vllm
volcengine voyage wandb watsonx watsonx_text xai xiaomi_mimo xinference zai
"""

PROVIDERS = frozenset(_NAMES.split())

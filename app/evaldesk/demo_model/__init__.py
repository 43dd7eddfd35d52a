"""Floor 1: the scripted demo model, a stand-in for an LLM that needs no key. It follows rules and only looks clever."""

DEMO_PREFIX = "demo/"
"""The start of the names of its models, as LiteLLM names a provider."""

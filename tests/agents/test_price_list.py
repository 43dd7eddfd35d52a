"""Prices that are read without LiteLLM are LiteLLM's, and where they cannot be it is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

import pytest

from evaldesk.errors import BadNumberError
from evaldesk.llm import needs_litellm, price, price_list
from evaldesk.llm.client import open_litellm
from evaldesk.llm.price_list import MAX_TOKENS_IN, PROVIDERS, listed_cost, listed_prices

COUNTS = ((0, 0, 0), (1, 1, 0), (0, 7, 0), (1234, 56, 0), (1234, 56, 1000), (MAX_TOKENS_IN, 3, 1))
PROGRAM = """
import sys
from evaldesk.llm import price
found = [price(name, 1000, 100) for name in ("gpt-4o", "gemini-2.5-flash", "demo/dice", "our-model")]
print(*found, "litellm" in sys.modules)
"""


def test_every_listed_price_is_that_of_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_list, "_entries", cache(price_list._entries))  # a process asks for few models
    litellm = open_litellm()
    names = [
        form
        for name, entry in litellm.model_cost.items()
        for form in (name, f"{entry.get('litellm_provider')}/{name}")
        if listed_prices(form) is not None
    ]
    counts = [(name, *each) for name in names for each in COUNTS]
    listings = {name: litellm.model_cost.get(name) or litellm.model_cost[name.partition("/")[2]] for name in names}
    costs = [
        sum(
            litellm.cost_per_token(
                model=name,
                prompt_tokens=n,
                completion_tokens=m,
                cache_read_input_tokens=0 if listings[name].get(price_list.CACHED) is None else cached,
            )
        )
        for name, n, m, cached in counts
    ]

    listed = [listed_cost(*each) for each in counts]

    assert listed == pytest.approx(costs, rel=1e-12, abs=0)
    assert {"gpt-4o", "openai/gpt-4o", "gemini/gemini-2.5-flash"} <= {*names}
    assert {name.partition("/")[0] for name in names} >= PROVIDERS
    assert len(names) > 500


@pytest.mark.parametrize(
    "model",
    ["", "nobody/nothing", "gpt-99", "openai/gpt-99", "gemini-2.5-flash", "deepseek/deepseek-chat", "azure/gpt-4o"],
)
def test_other_models_are_left_to_litellm(model: str) -> None:
    assert listed_prices(model) is None


def test_no_unlisted_name_has_a_price_of_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_list, "_entries", cache(price_list._entries))
    litellm = open_litellm()
    parts = {part for name in litellm.model_cost for part in (name, *re.split("[/.:@]", name))}
    made_up = [f"{part}{end}" for part in sorted(parts)[::40] for end in ("", "-x", ".1")]
    names = ["small", "our-model", "Small", "model (1)", "a*", "text-embedding-ours", "azure", "ollama", *made_up]

    unlisted = [name for name in names if price_list.is_unlisted(name)]

    assert {"small", "our-model", "a*"} <= {*unlisted}
    assert len(unlisted) > 20
    for name in unlisted:
        with pytest.raises(Exception, match=r"."):
            litellm.cost_per_token(model=name, prompt_tokens=1000, completion_tokens=100)
    assert not any(map(price_list.is_unlisted, ["", *litellm.model_cost]))


def test_long_inputs_are_left_to_litellm() -> None:
    assert listed_cost("gpt-4o", MAX_TOKENS_IN + 1, 1) is None


@pytest.mark.parametrize(
    ("model", "is_so"),
    [
        ("gpt-4o", False),
        ("gemini-2.5-flash", False),
        ("anthropic/claude-sonnet-4-5", True),
        ("gpt-99", True),
        ("our-model", False),
        ("", True),
    ],
)
def test_a_framework_needs_litellm_for_names_that_only_litellm_may_know(model: str, is_so: bool) -> None:
    assert needs_litellm(model) is is_so


def test_usual_prices_are_known_without_litellm() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()

    assert said == [str(price("gpt-4o", 1000, 100)), str(price("gemini-2.5-flash", 1000, 100)), "0.0", "None", "False"]


def test_an_imported_litellm_gives_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_litellm(), "cost_per_token", lambda **_: (0.25, 0.5))

    assert price("gpt-4o", 2, 2) == 0.75


def test_impossible_counts_are_refused_first() -> None:
    with pytest.raises(BadNumberError):
        price("gpt-4o", -1, 0)

"""Model profiles of `config.toml`: one rule, and an answer with the groups that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.llm_profiles import read_profile

CONFIG = """
[core]
workspace_base = "."

[llm]
model = "openai/base"
temperature = 0.1
api_key = "${BENCH_KEY}"

[llm.eval_gpt4]
model = "openai/gpt-4o"
caching_prompt = true
"""


@pytest.mark.parametrize("name", ["eval_gpt4", "llm.eval_gpt4", "[llm.eval_gpt4]", " [llm.eval_gpt4] "])
def test_a_profile_is_read_by_each_of_its_names_and_inherits(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)

    profile = read_profile(tmp_path / "config.toml", name, {"BENCH_KEY": "k-secret"})

    assert (profile.model, profile.temperature, profile.caching_prompt) == ("openai/gpt-4o", 0.1, True)
    assert profile.api_key
    assert profile.api_key.get_secret_value() == "k-secret"
    assert "k-secret" not in repr(profile)


def test_llm_alone_is_the_base(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)

    assert read_profile(tmp_path / "config.toml", "llm", {"BENCH_KEY": "k"}).model == "openai/base"


@pytest.mark.parametrize(
    ("name", "environment", "said"),
    [
        ("gpt5", {"BENCH_KEY": "k"}, r"no group \[llm.gpt5\].*there are: \[llm\], \[llm.eval_gpt4\]"),
        ("eval_gpt4", {}, "the environment has no BENCH_KEY"),
    ],
)
def test_an_unknown_profile_error_lists_the_groups(
    tmp_path: Path, name: str, environment: dict[str, str], said: str
) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)

    with pytest.raises(UsageError, match=said):
        read_profile(tmp_path / "config.toml", name, environment)

"""The guide to OpenHands' evaluation harness: its configuration, its arguments and its own code, step by step."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.documents.conftest import Snippets
from tests.documents.statements import commands_of
from tests.islands import island_module

GUIDE = "openhands_harness"
CONFIG = "openhands.kit.config"


def test_the_groups_of_the_guides_file_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snippets: Snippets
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("\n".join(snippets(GUIDE)["config"]))

    groups = ("llm", "eval_gpt4_1106_preview_llm", "llm.eval_some_openai_compatible_model_llm")
    found = [island_module(CONFIG).get_llm_config_arg(group) for group in groups]

    assert [config and (config.model, config.base_url, config.temperature) for config in found] == [
        ("claude-3-5-sonnet-20241022", None, found[0] and found[0].temperature),
        ("gpt-4-1106-preview", None, 0.0),
        ("openai/a-model", "https://models.example/v1", 0.0),
    ]
    keys = [config.api_key.get_secret_value() for config in found if config and config.api_key]
    assert keys == ["sk-one", "two", "three"]


def test_the_arguments_of_the_guides_example_are_parsed(document: Callable[[str], str]) -> None:
    general, example = commands_of(document(GUIDE), "poetry")

    args = island_module(CONFIG).get_parser().parse_args(shlex.split(example)[4:])

    assert (args.max_iterations, args.agent_cls, args.llm_config) == (10, "CodeActAgent", "llm")
    assert args.task == "Write a script that lists the files."
    assert [word for word in general.split() if word.startswith("-")] == ["-i", "-t", "-c", "-l"]

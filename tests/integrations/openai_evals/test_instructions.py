"""The instruction of an adopted agent: each row sends to the model what OpenAI Evals sent."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import served
from tests.forked_commands import ForkedCommands
from tests.integrations.openai_evals.test_openai_evals import EVAL, RUN, output, read

from evaldesk.agents.own.instruction import fill_placeholders
from evaldesk.integrations.openai_evals.templates import as_instruction, rendered

ITEM = {"q": "why?", "a_b": "flat", "a": {"b": "deep"}, "l": ["x", {"y": 1}], "json": {"k": "v"}, "brace": "{q}"}
PIECES = [
    *("{{item.q}}", "{{ item.a.b }}", "{{item.a_b}}", "{{ item.l.1 }}", "{{item.json}}", "{{item.brace}}"),
    *("{{ item.gone }}", "{{sample.output_text}}", "{{{item.q}}}", '{"q": "{{item.q}}"}', "{label}", "{label?}"),
    *("{user:name}", "{item_q}", "{}", "{ }", "{{other}}", "{1}", " and ", "\n", "{", "}", "é{{item.q}}ß"),
]


@pytest.mark.parametrize("seed", range(100))
def test_an_instruction_filled_from_the_state_is_the_rendered_template(seed: int) -> None:
    chance = random.Random(seed)
    template = "".join(chance.choice([*PIECES, " . "]) + chance.choice(["", " "]) for _ in range(chance.randint(1, 9)))
    values = {"item": ITEM, "sample": {"output_text": "hi"}}

    instruction, keys = as_instruction(template)
    state: dict[str, Any] = {key: rendered(source, values)[0] for key, source in keys.items()}

    assert fill_placeholders(instruction, state) == rendered(template, values)[0]
    assert all(key.isidentifier() for key in keys)


def test_a_plain_instruction_stays_and_its_cases_have_no_state() -> None:
    imported = read(EVAL, RUN, output(1))

    assert imported.evalset
    assert imported.evalset.cases[0].initial_session is None
    assert as_instruction("One word.") == ("One word.", {})


SAMPLING = {"temperature": 0.25, "top_p": 0.5, "max_completion_tokens": 9, "seed": 7, "tools": None}
PROMPT = "Answer {label} or {}. The customer asked: {{ item.q }}"


def test_a_new_run_sends_the_instruction_and_the_sampling_of_each_row(tmp_path: Path, commands: ForkedCommands) -> None:
    template = [{"role": "developer", "content": PROMPT}, {"role": "user", "content": "Well?"}]
    source = {"type": "completions", "input_messages": {"type": "template", "template": template}}
    run = {**RUN, "data_source": {**source, "sampling_params": SAMPLING}}
    grader = {"type": "string_check", "name": "label", "input": "{{sample.output_text}}", "reference": "yes"}
    own_eval = {**EVAL, "testing_criteria": [{**grader, "operation": "eq"}]}
    (tmp_path / "export").mkdir()
    for number, each in enumerate([own_eval, run, output(1), output(2)]):
        (tmp_path / "export" / f"{number}.json").write_text(json.dumps(each))
    adopting = commands.run("adopt", "openai-evals", "export", "--write", cwd=tmp_path)
    assert adopting.returncode == 0, adopting.stderr

    with served() as endpoint:
        endpoint.says("yes").says("yes")
        words = ("eval", "agents/tickets_v1", "evalsets/tickets_v1.evalset.json", "--concurrency", "1")
        criteria = ("--config-file-path", "evalsets/tickets_v1.criteria.json")
        environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": endpoint.address}
        result = commands.run(*words, *criteria, cwd=tmp_path, environment=environment)

    assert result.returncode == 0, result.stdout + result.stderr
    systems = [each["messages"][0]["content"] for each in endpoint.asked]
    assert systems == [PROMPT.replace("{{ item.q }}", f"question {number}") for number in (1, 2)]
    request = endpoint.asked[0]
    assert (request["temperature"], request["top_p"], request["seed"]) == (0.25, 0.5, 7)
    assert request.get("max_tokens", request.get("max_completion_tokens")) == 9

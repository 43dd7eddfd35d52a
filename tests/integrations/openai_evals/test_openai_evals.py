"""Exports of OpenAI Evals: rows as cases, runs as they were graded, graders named one by one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.agents.installed import skip_without

from evaldesk.agents.loading import load_agent
from evaldesk.cli import cli
from evaldesk.errors import FormatError
from evaldesk.formats import load_evalset
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.integrations.openai_evals.graders import read_graders
from evaldesk.integrations.openai_evals.templates import rendered
from evaldesk.metrics import score_trial
from evaldesk.model import AgentRef, Criterion, Event, Transcript, TurnRecord

SAMPLE = Path(__file__).parents[2] / "formats" / "exchange_samples" / "openai-evals.json"
EVAL = {
    "object": "eval",
    "id": "eval_1",
    "name": "Tickets / v1",
    "testing_criteria": [
        {
            "type": "string_check",
            "name": "label",
            "input": "{{ sample.output_text }}",
            "reference": "{{ item.answer }}",
            "operation": "eq",
        },
        {
            "type": "label_model",
            "name": "tone",
            "model": "gpt-4o",
            "labels": ["polite", "rude"],
            "passing_labels": ["polite"],
            "input": [{"role": "developer", "content": "Is this polite?"}],
        },
        {"type": "python", "name": "length", "source": "def grade(sample, item):\n    return 1.0\n"},
        {"type": "brand_new", "name": "new"},
    ],
}
RUN = {
    "object": "eval.run",
    "id": "run_1",
    "eval_id": "eval_1",
    "name": "mini",
    "model": "gpt-4o-mini",
    "status": "completed",
    "data_source": {
        "type": "completions",
        "source": {"type": "file_id", "id": "f"},
        "input_messages": {
            "type": "template",
            "template": [
                {"role": "system", "content": "One word."},
                {"role": "user", "content": {"type": "input_text", "text": "Q: {{ item.q }}"}},
            ],
        },
    },
}


def output(number: int, status: str = "pass", answer: str = "yes", **more: Any) -> dict[str, Any]:
    return {
        "object": "eval.run.output_item",
        "id": f"out_{number}",
        "run_id": "run_1",
        "eval_id": "eval_1",
        "status": status,
        "datasource_item": {"q": f"question {number}", "answer": "yes"},
        "results": [{"name": "label", "score": float(status == "pass"), "passed": status == "pass"}],
        "sample": {
            "model": "gpt-4o-mini",
            "output": [{"role": "assistant", "content": answer}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 1},
        },
        **more,
    }


def read(*objects: Any) -> Imported:
    return read_file("\n".join(map(json.dumps, objects)).encode(), "export.jsonl", "openai-evals")


def test_rows_are_cases_with_rendered_messages_and_the_reference_of_a_grader() -> None:
    found = read(EVAL, RUN, output(1))

    assert found.evalset
    (case,) = found.evalset.cases
    assert [turn.query for turn in case.turns] == ["Q: question 1"]
    assert case.turns[0].expected.reference == "yes"
    assert case.extra["item"] == {"q": "question 1", "answer": "yes"}
    assert found.evalset.id == "Tickets / v1"


def test_objects_are_read_in_any_order_and_twice_is_once() -> None:
    objects = [EVAL, RUN, *map(output, range(5))]
    expected = read(*objects)
    shuffled = [*objects, *objects[2:4]]
    random.Random(3).shuffle(shuffled)

    found = read(*shuffled)

    assert expected.evalset
    assert found.evalset
    assert {case.turns[0].query for case in found.evalset.cases} == {
        case.turns[0].query for case in expected.evalset.cases
    }
    assert [len(run.results) for run in found.runs] == [5]


@pytest.mark.parametrize("seed", range(20))
def test_the_counts_of_a_run_are_those_of_its_rows(seed: int) -> None:
    chance = random.Random(seed)
    statuses = [chance.choice(["pass", "fail", "error"]) for _ in range(chance.randint(1, 12))]
    counts = {name: statuses.count(name) for name in ("pass", "fail", "error")}
    run = {**RUN, "result_counts": {"total": len(statuses), "passed": counts["pass"], "failed": counts["fail"]}}

    found = read(EVAL, run, *(output(number, status) for number, status in enumerate(statuses)))

    verdicts = [result.verdict for result in found.runs[0].results]
    assert [verdicts.count(name) for name in ("passed", "failed", "errored")] == [*counts.values()]
    assert any("own summary agrees" in words for words in found.understood)


def test_a_summary_that_disagrees_and_rows_that_are_missing_are_named() -> None:
    wrong = {**RUN, "result_counts": {"total": 2, "passed": 2}}
    more = {**RUN, "result_counts": {"total": 14, "passed": 2}}

    assert (
        "The tool's own summary differs from its trials: passed 2 (here 1)."
        in read(EVAL, wrong, output(1), output(2, "fail")).understood
    )
    found = read(EVAL, more, output(1), output(2))
    assert any(words.startswith("mini: 12 rows of 14 are only at OpenAI") for words in found.understood)
    assert found.runs[0].plan.n_planned == 14


@pytest.mark.parametrize("key", ["label-0b1c", "label"], ids=["by id", "by name"])
def test_the_passes_of_each_grader_are_compared_with_those_of_the_run(key: str) -> None:
    graders = [{**EVAL["testing_criteria"][0], "id": "label-0b1c"}]  # type: ignore[dict-item]
    counted = [{"testing_criteria": key, "passed": 2, "failed": 0}]
    run = {**RUN, "per_testing_criteria_results": counted}
    results = [{"name": "label-0b1c", "score": 1.0, "passed": True}], [{"name": "label", "score": 0.0, "passed": False}]

    found = read({**EVAL, "testing_criteria": graders}, run, *(output(n, results=r) for n, r in enumerate(results)))

    assert "The tool's own summary differs from its trials: label passed 2 (here 1)." in found.understood


@pytest.mark.parametrize(
    ("total", "numbers", "absent"),
    [
        (6, (0, 2, 3), ": 1, 4-5"),
        (4, (1, 4), ": 2-3"),
        (5, (4,), ": 0-3"),
        (3, (7,), ""),
        (3, ("a",), ""),
        (3, (None,), ""),
        (3, (True,), ""),
        (90, tuple(range(0, 90, 2)), ": " + ", ".join(map(str, range(1, 41, 2))) + ", …"),
    ],
    ids=["holes", "from 1", "the last alone", "beyond the total", "a text", "no number", "true", "many"],
)
def test_the_ids_of_rows_that_are_only_at_openai_are_named(total: int, numbers: tuple[Any, ...], absent: str) -> None:
    run = {**RUN, "result_counts": {"total": total, "passed": len(numbers)}}

    found = read(EVAL, run, *(output(at, datasource_item_id=number) for at, number in enumerate(numbers)))

    n_absent = total - len(numbers)
    assert f"mini: {n_absent} rows of {total} are only at OpenAI{absent}." in found.understood


def test_an_output_item_without_its_row_is_among_the_ids() -> None:
    run = {**RUN, "result_counts": {"total": 3, "passed": 1}}
    bare = {key: value for key, value in output(1, datasource_item_id=1).items() if key != "datasource_item"}

    found = read(EVAL, run, output(0, datasource_item_id=0), bare)

    assert "mini: 2 rows of 3 are only at OpenAI: 1-2." in found.understood


def test_the_number_of_an_output_item_without_its_row_tells_where_the_numbers_begin() -> None:
    run = {**RUN, "result_counts": {"total": 3, "passed": 2}}
    bare = {key: value for key, value in output(3, datasource_item_id=3).items() if key != "datasource_item"}

    found = read(EVAL, run, *(output(number, datasource_item_id=number) for number in (1, 2)), bare)

    assert "mini: 1 row of 3 is only at OpenAI: 3." in found.understood


def test_adopt_names_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "eval.json").write_text(json.dumps(EVAL))
    (tmp_path / "export" / "items.json").write_text(json.dumps({**output(1), "sample": {}})[:-2] + '"a": 1, "a": 2}}')

    result = CliRunner().invoke(cli, ["adopt", "openai-evals", str(tmp_path / "export"), "--workspace", str(tmp_path)])

    assert result.exit_code != 0
    assert "without 1 file that cannot be read there are no rows" in f"{result.exception}{result.output}"
    assert 'sample.a: the key "a" is there twice in one object' in result.output


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_number_is_unscored_and_the_other_rows_are_read(tmp_path: Path, value: float) -> None:
    name = json.dumps(value)
    results = [{"name": "label", "passed": False, "score": value}]
    item = {**output(1), "results": results}
    item["datasource_item"] = {**item["datasource_item"], "price": value}
    (tmp_path / "export.jsonl").write_text("\n".join(map(json.dumps, (EVAL, RUN, item, output(2)))))

    result = CliRunner().invoke(cli, ["import", str(tmp_path / "export.jsonl"), "--workspace", str(tmp_path)])

    assert result.exit_code == 0, result.output
    first, second = read(EVAL, RUN, item, output(2)).runs[0].results
    score = next(each for each in first.scores if each.metric == "label")
    assert score.value is None
    assert f"The score in the file is {name}, not a number." in score.reason
    assert all(each.value is not None for each in second.scores)


def test_equal_rows_are_trials_of_one_case() -> None:
    same: dict[str, Any] = {"datasource_item": {"q": "one", "answer": "yes"}}

    found = read(EVAL, RUN, output(1, **same), output(2, "fail", **same))

    assert found.evalset
    assert len(found.evalset.cases) == 1
    assert [result.trial_index for result in found.runs[0].results] == [0, 1]


def test_scores_usage_and_errors_are_those_of_the_file() -> None:
    broken = output(2, "error", sample={"output": [], "error": {"code": "server_error", "message": "No answer."}})

    good, bad = read(EVAL, RUN, output(1), broken).runs[0].results

    assert {score.metric: score.value for score in good.scores} == {"openai_evals": 1.0, "label": 1.0}
    assert (good.usages[0].tokens_in, good.usages[0].tokens_out) == (10, 1)
    assert good.transcript.turns[0].answer == "yes"
    assert bad.error
    assert bad.error.message == "No answer."


def test_every_grader_is_named_with_its_support() -> None:
    label, tone, length, new = read_graders(EVAL["testing_criteria"])

    assert (label.is_computed, label.field) == (True, "answer")
    assert [each.is_computed for each in (tone, length, new)] == [False, False, False]
    assert "judge" in tone.words
    assert "a function of yours" in length.words
    assert "a type without a metric here" in new.words


@pytest.mark.parametrize(
    ("text", "result", "missing"),
    [
        ("{{item.a}} {{ item.b.c }} {{ item.l.1 }}", "x 2 z", []),
        ("{{ item.o }}", '{"k": 1}', []),
        ("{{ item.gone }} {{other}}", "{{ item.gone }} {{other}}", ["item.gone"]),
        ("{{ sample.output_text }}", "hi", []),
    ],
)
def test_a_template_is_rendered_and_a_missing_field_stays(text: str, result: str, missing: list[str]) -> None:
    values = {"item": {"a": "x", "b": {"c": 2}, "l": ["y", "z"], "o": {"k": 1}}, "sample": {"output_text": "hi"}}

    assert rendered(text, values) == (result, missing)


def test_a_case_with_a_missing_field_waits_for_a_person() -> None:
    found = read(EVAL, RUN, output(1, datasource_item={"answer": "yes"}))

    assert found.evalset
    assert found.evalset.cases[0].tags == ("needs-review",)
    assert any("no value for the field item.q" in words for words in found.refused)


def test_a_page_that_was_not_fetched_is_named() -> None:
    page = {"object": "list", "data": [output(1), output(2)], "has_more": True, "last_id": "out_2"}

    assert "A page is missing after out_2: has_more is true." in read(EVAL, RUN, page).understood
    assert not any("A page is missing" in words for words in read(EVAL, RUN, page, output(3)).understood)


def test_two_evals_of_one_name_and_rows_without_runs() -> None:
    second = {**EVAL, "id": "eval_2"}
    row = {**output(9), "eval_id": "eval_2", "run_id": "run_2", "id": "out_9"}

    found = read(EVAL, RUN, output(1), second, row)
    rows = read({"item": {"q": "a", "answer": "b"}, "sample": {"input": [{"role": "user", "content": "a?"}]}})

    assert [len(run.results) for run in found.runs] == [1, 1]
    assert rows.evalset
    assert rows.evalset.cases[0].turns[0].query == "a?"
    assert rows.runs == ()


def test_a_file_without_rows_is_refused() -> None:
    with pytest.raises(FormatError, match="no rows, runs or output items; name it together with the other files"):
        read(EVAL)


def test_adopt_imports_each_eval_and_writes_files_that_play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = tmp_path / "export"
    (export / "items").mkdir(parents=True)
    (export / "eval.json").write_text(json.dumps(EVAL))
    (export / "runs.json").write_text(json.dumps({"object": "list", "data": [RUN], "has_more": False}))
    (export / "items" / "items.jsonl").write_text("\n".join(map(json.dumps, [output(1), output(2, "fail")])))
    (export / "other.json").write_text('{"some": "file"}')
    words = ["adopt", "openai-evals", str(export), "--workspace", str(tmp_path)]

    first = CliRunner().invoke(cli, words, catch_exceptions=False)
    second = CliRunner().invoke(cli, [*words, "--write"], catch_exceptions=False)

    assert "imported: 2 cases, runs 1" in first.output
    assert "label (string_check): eq is computed in new runs" in first.output
    assert "written with --write:" in first.output
    assert "not imported" in second.output
    evalset = load_evalset(tmp_path / "evalsets" / "tickets_v1.evalset.json")
    assert [case.turns[0].query for case in evalset.cases] == ["Q: question 1", "Q: question 2"]
    criteria = json.loads((tmp_path / "evalsets" / "tickets_v1.criteria.json").read_text())["criteria"]
    judge = criteria.pop("rubric_score/grade_tone")
    assert judge["rubric"].startswith("Is this polite?\n\nChoose one of the labels")
    assert (judge["threshold"], judge["judge_model"]) == (0.5, "openai/gpt-4o")
    assert criteria == {"tickets_v1_graders:grade_label": 1.0, "tickets_v1_graders:grade_length": 1.0}
    assert "Is this polite?" in (tmp_path / "evalsets" / "tickets_v1.prompts" / "grade_tone.md").read_text()
    monkeypatch.syspath_prepend(tmp_path / "agents")
    answers = [Transcript((TurnRecord("q", (Event("agent_message", text=text),)),)) for text in ("yes", "no")]
    own = [Criterion(name, bar, {"function": name}) for name, bar in criteria.items()]
    scored = [score_trial(answer, evalset.cases[0], own) for answer in answers]
    assert [score.error for scores in scored for score in scores if score.error] == []
    assert [[score.value for score in scores] for scores in scored] == [[1.0, 1.0], [0.0, 1.0]]
    agent = (tmp_path / "agents" / "tickets_v1" / "agent.py").read_text()
    assert "model='openai/gpt-4o-mini'" in agent
    assert "One word." in agent
    loaded = load_agent(AgentRef("tickets", "tickets_v1.agent:root_agent", root=str(tmp_path / "agents")))
    assert loaded.describe().instruction == "One word."
    assert "| new | brand_new |" in (tmp_path / "evalsets" / "tickets_v1.openai-evals.md").read_text()


def test_adopt_refuses_a_folder_without_evals(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["adopt", "openai-evals", str(tmp_path), "--workspace", str(tmp_path)])

    assert result.exit_code != 0
    assert "no objects of OpenAI Evals" in f"{result.exception}{result.output}"


def test_the_sample_is_as_the_types_of_the_openai_package_have_it() -> None:
    skip_without("openai")
    from openai.types import EvalRetrieveResponse
    from openai.types.evals import RunRetrieveResponse
    from openai.types.evals.runs import OutputItemRetrieveResponse

    types: dict[str, Any] = {
        "eval": EvalRetrieveResponse,
        "eval.run": RunRetrieveResponse,
        "eval.run.output_item": OutputItemRetrieveResponse,
    }

    objects = json.loads(SAMPLE.read_text())["data"]
    found = read_file(SAMPLE.read_bytes(), "tickets.json")

    assert all(types[each["object"]].model_validate(each) for each in objects)
    assert [result.verdict for result in found.runs[0].results] == ["passed", "failed", "errored"]
    assert [score.metric for score in found.runs[0].results[0].scores] == ["openai_evals", "label", "words"]
    for number, counts in enumerate(objects[1]["per_testing_criteria_results"], 1):
        scores = [score for result in found.runs[0].results for score in result.scores[number : number + 1]]
        assert [score.reason.startswith("Passed") for score in scores].count(True) == counts["passed"]


def with_parts(*parts: dict[str, Any]) -> dict[str, Any]:
    template = [{"role": "user", "content": [{"type": "input_text", "text": "Look: {{ item.q }}"}, *parts]}]
    source = {**RUN["data_source"], "input_messages": {"type": "template", "template": template}}  # type: ignore[dict-item]
    return {**RUN, "data_source": source}


PIXEL = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("part", "kind", "uri"),
    [
        ({"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}, "image", ""),
        ({"type": "input_image", "image_url": "{{ item.picture }}"}, "image", "https://example.com/a.png"),
        ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}, "audio", ""),
        ({"type": "input_audio", "input_audio": {"data": "{{ item.sound }}", "format": "mp3"}}, "audio", ""),
    ],
    ids=["image", "address in the item", "sound", "sound in the item"],
)
def test_images_and_sounds_of_a_message_go_with_its_turn(part: dict[str, Any], kind: str, uri: str) -> None:
    item = {"q": "what?", "answer": "yes", "picture": "https://example.com/a.png", "sound": "UklGRg=="}

    found = read(EVAL, with_parts(part), output(1, datasource_item=item))

    assert found.evalset
    (turn,) = found.evalset.cases[0].turns
    (medium,) = turn.media
    assert (turn.query, medium.kind, medium.uri, medium.at) == ("Look: what?", kind, uri, len("Look: what?"))
    assert not any("an image, a sound" in sentence for sentence in found.refused)


def test_a_medium_without_its_value_is_named_and_its_case_waits_for_a_review() -> None:
    run = with_parts({"type": "input_image", "image_url": "{{ item.picture }}"})

    found = read(EVAL, run, output(1))

    assert found.evalset
    assert not found.evalset.cases[0].turns[0].media
    assert any("no value for the field item.picture" in sentence for sentence in found.refused)

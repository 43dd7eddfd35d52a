"""`--shard` and `run merge`: one verdict of several machines, equal to that of the whole run."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from random import Random
from re import sub
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk import evaluate
from evaldesk.cli.eval.shard_json import joined_agents
from evaldesk.desk.runs.shard_files import read_shards
from evaldesk.desk.runs.shards import place_of
from evaldesk.engine import GradeSpec, InlineExecutor
from evaldesk.errors import EmptyShardError, UsageError
from evaldesk.model import TrialSpec
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.evalset import QUARANTINE

if TYPE_CHECKING:
    from click.testing import Result
    from tests.cli.conftest import CommandFolder

N_SHARDS = 5
ANSWERS: dict[str, str | None] = {
    "one": "one",
    "two and a half": "two and a third",
    "flat": "no",
    "raise": "raise",
    "none": None,
    **{f"case of {word}": f"case of {word}" for word in ("rain", "snow", "hail", "fog", "sun", "wind", "dew", "frost")},
}
TIMES_AND_IDS = ("run_id", "duration_ms", "active_ms")
GATES = ("--min-pass-rate", "0.6", "--pass-hat", "2=0.5", "--max-error-rate", "0.2", "--max-unscored-rate", "0.2")


def play(place: CommandFolder, name: str, *options: object) -> Result:
    """Play the set in a workspace of its own, as each machine of a build does, to a result file."""
    home = place.folder / name
    home.mkdir()
    (home / "set.evalset.json").write_bytes((place.folder / "set.evalset.json").read_bytes())
    file = place.folder / f"{name}.json"
    return place.eval(home / "set.evalset.json", "--n", 2, "--seed", 7, *options, "-o", file, "--workspace", home)


def read(place: CommandFolder, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((place.folder / f"{name}.json").read_text())
    return value


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    (run,) = result["runs"]
    return {**result, "runs": [{name: value for name, value in run.items() if name not in TIMES_AND_IDS}]}


def refusal(result: Result) -> str:
    """The words of a command that was refused, which exits with 2."""
    assert isinstance(result.exception, UsageError)
    return str(result.exception)


def write_set(place: CommandFolder, answers: dict[str, str | None], left_out: Collection[str] = ()) -> None:
    """The set with cases case_1, case_2, …, of which those with the ids `left_out` are in quarantine."""
    path = place.evalset("set", answers)
    content = json.loads(path.read_text())
    for case in content["eval_cases"]:
        case["tags"] = [QUARANTINE] if case["eval_id"] in left_out else []
    path.write_text(json.dumps(content))


def play_shards(
    place: CommandFolder, *options: object, n: int = N_SHARDS, left_out: Collection[str] = ()
) -> list[Path]:
    """The result files of the shards that have cases."""
    write_set(place, ANSWERS, left_out)
    for number in range(1, n + 1):
        play(place, f"shard{number}", "--shard", f"{number}/{n}", *options)
    return sorted(place.folder.glob("shard*.json"))


@pytest.mark.parametrize("gates", [GATES, (), ("--min-pass-rate", "0.99")], ids=["held", "default", "failed"])
def test_merged_shards_equal_the_whole_run_but_for_times_and_ids(place: CommandFolder, gates: tuple[str, ...]) -> None:
    files = play_shards(place, *gates)
    whole = play(place, "whole", *gates)

    merged = place.run("run", "merge", *reversed(files), "-o", place.folder / "merged.json")

    assert len(files) > 2
    assert merged.exit_code == whole.exit_code
    assert json.dumps(without_times(read(place, "merged"))) == json.dumps(without_times(read(place, "whole")))
    assert list(read(place, "merged")["runs"][0]) == list(read(place, "whole")["runs"][0])


def drawn_gates(chance: Random, baseline: Path) -> list[object]:
    """Some gates with values that some of the cases meet, half of them against a baseline."""
    some: list[tuple[object, ...]] = [
        ("--min-pass-rate", chance.choice((0.3, 0.8, 1))),
        ("--min-case-pass-rate", chance.choice((0, 0.5, 1))),
        ("--pass-at", f"2={chance.choice((0.2, 0.7, 1))}"),
        ("--pass-hat", f"2={chance.choice((0.2, 0.7, 1))}"),
        ("--min-scored", chance.choice((5, 26))),
        ("--max-unscored-rate", chance.choice((0, 0.5))),
        ("--max-error-rate", chance.choice((0, 0.5))),
        ("--max-cost", chance.choice((0.01, 5))),
        ("--undecided", chance.choice(("pass", "fail", "neutral"))),
        ("--pass-threshold", chance.choice((0.5, 1))),
    ]
    gates = [word for each in chance.sample(some, chance.randint(0, 5)) for word in each]
    if chance.random() < 0.6:
        compared: list[tuple[object, ...]] = [
            ("--max-regressions", chance.choice((0, 1, 5))),
            ("--margin", chance.choice((0, 0.1, 0.6))),
            ("--new-cases", chance.choice(("must-pass", "undecided", "inform"))),
            chance.choice(
                (
                    ("--regression-rule", "any"),
                    ("--regression-rule", "likely"),
                    ("--regression-rule", "confirm", "--confirm", "2/3"),
                )
            ),
        ]
        gates += ["--baseline", baseline]
        gates += [word for each in chance.sample(compared, chance.randint(0, 4)) for word in each]
    return gates


def without_times_in(junit: str) -> str:
    return sub(r' (time|timestamp)="[^"]*"', "", junit)


@pytest.mark.parametrize(
    ("seed", "n_left_out"), [*((seed, 0) for seed in range(10)), *((seed, 3) for seed in range(8))]
)
def test_drawn_gates_answer_alike_of_shards_and_of_the_whole_run(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch, seed: int, n_left_out: int
) -> None:
    chance, words = Random(seed), list(ANSWERS)
    ids = [f"case_{number}" for number in range(1, len(words) + 1)]
    left_out_before, left_out = chance.sample(ids, n_left_out), chance.sample(ids, n_left_out)
    of_before = {word: answer for word, answer in ANSWERS.items() if word != "case of dew"} | {"gone": "gone"}
    monkeypatch.setenv("ECHO_WRONG", ",".join(chance.sample(words, 2)))
    monkeypatch.setenv("ECHO_RAISE", ",".join(chance.sample(words, chance.randint(0, 1))))
    write_set(place, of_before, left_out_before)
    play(place, "main")
    monkeypatch.setenv("ECHO_WRONG", ",".join(chance.sample(words, chance.randint(0, 4))))
    gates = drawn_gates(chance, place.folder / "main.json")
    reports = {
        name: ("--junit", place.folder / f"{name}.xml", "--summary", place.folder / f"{name}.md")
        for name in ("whole", "merged")
    }

    files = play_shards(place, *gates, n=3, left_out=left_out)
    whole = play(place, "whole", *gates, *reports["whole"])
    merged = place.run("run", "merge", *reversed(files), "-o", place.folder / "merged.json", *reports["merged"])

    assert merged.exit_code == whole.exit_code, (gates, whole.output, merged.output)
    assert json.dumps(without_times(read(place, "merged"))) == json.dumps(without_times(read(place, "whole")))
    junit = [without_times_in((place.folder / f"{name}.xml").read_text()) for name in ("whole", "merged")]
    assert junit[1] == junit[0]
    assert (place.folder / "merged.md").read_text() == (place.folder / "whole.md").read_text()


def test_a_merge_answers_the_gate_on_regressions(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    place.evalset("set", ANSWERS)
    play(place, "main")
    monkeypatch.setenv("ECHO_WRONG", "case of rain")
    files = play_shards(place, "--baseline", place.folder / "main.json", "--max-regressions", 0)

    merged = place.run("run", "merge", *files, "--junit", place.folder / "all.xml")

    assert merged.exit_code == 1
    assert "--max-regressions: 1 of 11 cases regressed against main.json" in merged.stdout
    assert (place.folder / "all.xml").read_text().count("<failure") == 3  # the case, the gate and the conclusion


def test_shards_against_other_baselines_are_refused(place: CommandFolder) -> None:
    place.evalset("set", ANSWERS)
    play(place, "main")
    files = play_shards(place, "--baseline", place.folder / "main.json")
    shard = json.loads(files[1].read_text())["runs"][0]["shard"]
    changed(files[1], shard={**shard, "baseline": {**shard["baseline"], "cases": shard["baseline"]["cases"][1:]}})

    result = place.run("run", "merge", *files)

    assert "were compared with other baselines" in refusal(result)


def test_a_shard_is_not_refused_for_a_gate_that_all_shards_together_can_hold(place: CommandFolder) -> None:
    files = play_shards(place, "--min-scored", 2 * len(ANSWERS) - 8)

    assert len(files) > 2


def test_a_merged_result_of_another_ending_is_refused(place: CommandFolder) -> None:
    assert "a merged result is JSON" in refusal(place.run("run", "merge", "a.json", "-o", "all.csv"))


def test_a_case_is_in_the_one_shard_of_its_digest(place: CommandFolder) -> None:
    files = play_shards(place)

    places = {
        case["case_id"]: run["shard"]["number"] - 1
        for file in files
        for run in json.loads(file.read_text())["runs"]
        for case in run["cases"]
    }

    assert places == {
        name: int(blake2b(name.encode()).hexdigest(), 16) % N_SHARDS
        for name in (f"case_{number}" for number in range(1, len(ANSWERS) + 1))
    }


def test_the_seed_of_a_trial_depends_on_its_case_and_not_on_its_place_in_a_shard(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: dict[tuple[str, int], set[int | None]] = {}
    submit = InlineExecutor.submit

    async def noting(executor: InlineExecutor, spec: TrialSpec | GradeSpec) -> None:
        assert isinstance(spec, TrialSpec)
        seeds.setdefault((spec.case.id, spec.trial_index), set()).add(spec.seed)
        await submit(executor, spec)

    monkeypatch.setattr(InlineExecutor, "submit", noting)

    play_shards(place)
    of_shards = {key: set(some) for key, some in seeds.items()}
    play(place, "whole")

    assert len(of_shards) == 2 * len(ANSWERS)
    assert seeds == of_shards  # the whole run has no other seed
    assert len(set.union(*seeds.values())) == len(seeds)


def test_a_shard_answers_no_gate(place: CommandFolder) -> None:
    place.evalset("set", {"one": "one"})
    number = place_of("case_1", 2) + 1

    result = play(place, "shard", "--shard", f"{number}/2", "--min-pass-rate", "0.5")

    assert result.exit_code == 3
    assert f"Undecided: shard {number}/2 answers no gate; merge the result files of all 2 with" in result.stdout
    value = read(place, "shard")
    assert (value["outcome"], value["gates"], value["counts"]["n_passed"]) == ("undecided", [], 2)
    assert "answers no gate" in place.run("run", "info", "1", "--workspace", place.folder / "shard").output


def test_an_empty_shard_plays_nothing_and_exits_with_0(place: CommandFolder) -> None:
    place.evalset("set", {"one": "one"})
    number = 2 - place_of("case_1", 2)

    result = play(place, "shard", "--shard", f"{number}/2")

    assert result.exit_code == 0
    assert f"Shard {number}/2 has no case of 1; nothing is played." in result.stdout
    assert not (place.folder / "shard.json").exists()


def test_an_empty_shard_is_not_missed(place: CommandFolder) -> None:
    place.evalset("set", {"one": "one"})
    play(place, "shard", "--shard", f"{place_of('case_1', 2) + 1}/2")

    result = place.run("run", "merge", place.folder / "shard.json")

    assert result.exit_code == 0
    assert "1 shard, 1 case: 2 of 2 passed" in result.stdout


@pytest.mark.parametrize("shard", ["0/5", "6/5", "2.5", "2/", "-1/5", "1/1001", "2/5/6", "two"])
def test_an_impossible_shard_is_refused_in_words(place: CommandFolder, shard: str) -> None:
    result = place.eval(place.evalset("set", ANSWERS), "--shard", shard)

    assert result.exit_code == 2
    assert f"I/N, such as 2/5 for the second of five, with I from 1 to N and N at most 1000, not '{shard}'" in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budget", "20"), "budget"),
        (("--stop-when-decided", "exact", "--min-pass-rate", "0.5"), "stop_when_decided"),
        (
            ("--regression-rule", "confirm", "--baseline", "BASELINE"),
            "confirm with a number of trials that must pass, such as 3/5",
        ),
        (("--vary", "seed=1,2"), "--vary plays several"),
    ],
    ids=["budget", "stop", "confirm", "variants"],
)
def test_an_option_that_needs_all_cases_is_refused(place: CommandFolder, options: tuple[str, ...], words: str) -> None:
    baseline = place.folder / "baseline.json"
    baseline.write_text('{"version": 3, "runs": []}')
    options = tuple(str(baseline) if each == "BASELINE" else each for each in options)

    result = place.eval(place.evalset("set", ANSWERS), "--shard", "1/2", *options)

    assert words in refusal(result)


def changed(file: Path, **values: object) -> None:
    result = json.loads(file.read_text())
    result["runs"][0].update(values)
    file.write_text(json.dumps(result))


def test_a_missing_shard_is_named(place: CommandFolder) -> None:
    first, *others = play_shards(place)
    (run,) = json.loads(first.read_text())["runs"]
    n = run["n_cases"]

    result = place.run("run", "merge", *others)

    assert f"shard {run['shard']['number']}/{N_SHARDS} ({n} case{'s' * (n > 1)}) is missing" in refusal(result)


def test_another_fingerprint_is_refused_by_name(place: CommandFolder) -> None:
    files = play_shards(place)
    options = json.loads(files[1].read_text())["runs"][0]["options"]
    changed(files[1], fingerprint="0123456789ab", options={**options, "temperature": 0.5})

    result = place.run("run", "merge", *files)

    assert f"{files[1]} has fingerprint 0123456789ab" in refusal(result)
    assert "they differ in temperature" in refusal(result)


def test_a_case_in_two_files_is_refused_by_name(place: CommandFolder) -> None:
    files = play_shards(place)

    result = place.run("run", "merge", *files, files[0])

    assert f"is in {files[0]} and in {files[0]}; name each shard once" in refusal(result)


def test_other_gates_are_refused(place: CommandFolder) -> None:
    files = play_shards(place)
    shard = json.loads(files[1].read_text())["runs"][0]["shard"]
    changed(files[1], shard={**shard, "gates": {**shard["gates"], "min_pass_rate": 0.25}})

    result = place.run("run", "merge", *files)

    assert "were played with other gates" in refusal(result)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"runs": [{}]}', '{"runs": [{"shard": {"sizes": "x"}}]}'])
def test_a_file_that_is_no_shard_is_refused_with_the_way_to_write_one(place: CommandFolder, text: str) -> None:
    file = place.folder / "other.json"
    file.write_text(text)

    result = place.run("run", "merge", file)

    assert f"{file}: this is not the result file of a shard; name files that `evaldesk eval --shard" in refusal(result)


def test_an_ordinary_result_is_no_shard(place: CommandFolder) -> None:
    place.evalset("set", ANSWERS)
    play(place, "whole")

    assert "not the result file of a shard" in refusal(place.run("run", "merge", place.folder / "whole.json"))
    assert "shard" not in read(place, "whole")["runs"][0]


def test_an_import_of_a_merged_result_says_what_reads_it(place: CommandFolder) -> None:
    place.run("run", "merge", *play_shards(place, n=2), "-o", "all.json")
    (place.folder / "experiment.json").write_text('{"evaldesk_experiment": 1}')

    merged = place.run("import", "all.json")
    experiment = place.run("import", "experiment.json")

    assert "verdicts and without conversations; read it with evaldesk compare FILE" in str(merged.exception)
    assert "evaldesk experiment import FILE" in str(experiment.exception)


def test_a_shard_of_python_is_undecided_and_an_empty_one_an_error_of_its_own(place: CommandFolder) -> None:
    path = place.evalset("set", {"one": "one"})
    number = place_of("case_1", 2) + 1

    def agent(message: str, state: dict[str, Any]) -> str:
        return message

    result = evaluate(agent, path, criteria={"response_match_score": 0.8}, shard=f"{number}/2")

    assert (result.n_passed, result.conclusion.outcome) == (1, "undecided")
    with pytest.raises(EmptyShardError, match="has no case of 1"):
        evaluate(agent, path, criteria={"response_match_score": 0.8}, shard=f"{3 - number}/2")


def test_agents_of_several_shards_are_added(place: CommandFolder) -> None:
    files = [read_shards([str(file)])[0] for file in play_shards(place, n=1)]
    clerk, cook = AgentTotals("clerk", "", "", 0, 2, 1, 0, 2, 3, 0, 4, 50, 0.5, 0, 9.0), "cook"
    own = [(clerk,), (replace(clerk, n_trials=3, cost=0.25), replace(clerk, name=cook, parent="clerk", depth=1))]
    shards = [replace(files[0], reports=replace(files[0].reports, agents=agents)) for agents in own]

    agents = joined_agents(shards)

    assert [(each.name, each.n_trials, each.cost, each.depth) for each in agents] == [
        ("clerk", 5, 0.75, 0),
        ("cook", 2, 0.5, 1),
    ]


def test_a_comparison_with_a_shard_answers_no_gate(place: CommandFolder) -> None:
    files = play_shards(place)
    play(place, "whole")
    whole = place.folder / "whole.json"

    for names in ((whole, files[0]), (files[0], whole)):
        answer = place.run("compare", *names, "--max-drop", 0.05)
        assert answer.exit_code == 3, answer.output
        assert "undecided" in answer.output
        assert "merge the shards with `evaldesk run merge` first" in answer.output

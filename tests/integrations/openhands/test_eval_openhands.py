"""`evaldesk eval --benchmark`: instances as OpenHands has them, its two files, and going on from what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result

from evaldesk.errors import EvaldeskError, FormatError, UsageError
from evaldesk.formats.files import read_file
from evaldesk.integrations.openhands.command.output import MASK, _kept_rows, masked_profile

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

BENCH = '''
from pathlib import Path

CALLS = Path(__file__).with_name("calls.txt")


def process_instance(instance, metadata, reset_logger=True):
    """Solves what has an even number; `breaks` breaks as long as there is no file `repaired`."""
    with CALLS.open("a") as file:
        file.write(f"{instance.instance_id} {metadata.max_iterations}\\n")
    error = None
    if instance["instance_id"] == "breaks" and not CALLS.with_name("repaired").exists():
        error = "the sandbox is gone"
    return {
        "instance_id": instance.instance_id,
        "test_result": {"success": instance.number % 2 == 0, "answer": instance.number},
        "history": [],
        "metrics": {"accumulated_cost": 0.5},
        "error": error,
    }
'''
CONFIG = """\
[llm]
api_key = "sk-a-secret-of-the-profile"
temperature = 0.0
[llm.eval_gpt]
model = "openai/gpt-4o:beta@1"
"""
IDS = ["even", "odd", "breaks"]


@pytest.fixture
def bench(place: CommandFolder) -> CommandFolder:
    """A place with a benchmark, three instances and a profile of a model."""
    (place.folder / f"bench_{place.agent.name}.py").write_text(BENCH)
    rows = [{"instance_id": name, "question": f"{name}?", "number": n} for n, name in enumerate(IDS)]
    (place.folder / "instances.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place.folder / "config.toml").write_text(CONFIG)
    return place


def _eval(place: CommandFolder, *arguments: object) -> Result:
    named = () if "--benchmark" in arguments else ("--benchmark", f"bench_{place.agent.name}:process_instance")
    options = ("-l", "eval_gpt", "--config-file", "config.toml", "-i", 7, "--eval-num-workers", 1)
    return place.run("eval", *named, "-d", "instances.jsonl", *options, *arguments)


def _folder(place: CommandFolder, root: str = "evaluation/evaluation_outputs/outputs", name: str = "") -> Path:
    return place.folder / root / "instances/CodeActAgent" / (name or "gpt-4o_beta-1_maxiter_7")


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "output.jsonl").read_text().splitlines()]


def _calls(place: CommandFolder) -> list[str]:
    path = place.folder / "calls.txt"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def test_output_and_metadata_are_where_and_what_openhands_writes(bench: CommandFolder) -> None:
    result = _eval(bench)

    assert result.exit_code == 3, result.output + repr(result.exception)
    assert "1 of 2 passed" in result.output
    folder = _folder(bench)
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["agent_class"], metadata["max_iterations"], metadata["dataset"]) == (
        "CodeActAgent",
        7,
        "instances",
    )
    assert metadata["llm_config"]["model"] == "openai/gpt-4o:beta@1"
    rows = _rows(folder)
    assert [row["instance_id"] for row in rows] == IDS
    assert [row["test_result"]["answer"] for row in rows] == [0, 1, 2]
    assert [row["error"] for row in rows] == [None, None, "the sandbox is gone"]
    assert rows[0]["instance"] == {"instance_id": "even", "question": "even?", "number": 0}
    assert rows[0]["instruction"] == "even?"
    assert rows[0]["metadata"]["eval_output_dir"] == str(folder.relative_to(bench.folder))
    assert (bench.folder / "calls.txt").read_text().splitlines()[0] == "even 7"
    assert "sk-a-secret" not in (folder / "output.jsonl").read_text() + (folder / "metadata.json").read_text()


def test_what_is_written_is_read_back_as_a_run(bench: CommandFolder) -> None:
    _eval(bench)

    imported = read_file((_folder(bench) / "output.jsonl").read_bytes(), "output.jsonl")

    assert imported.format == "openhands"
    assert [trial.verdict for trial in imported.runs[0].results] == ["passed", "failed", "errored"]


def test_going_on_runs_errored_rows_again_and_nothing_else(bench: CommandFolder) -> None:
    _eval(bench)
    (bench.folder / "repaired").touch()

    again = _eval(bench)

    assert _calls(bench) == [*IDS, "breaks"]
    assert again.exit_code == 0, again.output
    folder = _folder(bench)
    assert [(row["instance_id"], row["error"]) for row in _rows(folder)] == [(name, None) for name in IDS]
    assert json.loads((folder / "output_errored.jsonl").read_text())["error"] == "the sandbox is gone"
    assert len(json.loads((folder / "metadata.json").read_text())["evaldesk"]["sessions"]) == 2
    said = f"All 3 instances are done already; nothing to do. Output: {folder.relative_to(bench.folder)}/"
    assert said in _eval(bench).output


def test_a_torn_last_line_is_repaired(bench: CommandFolder) -> None:
    _eval(bench, "--eval-ids", "even")
    path = _folder(bench) / "output.jsonl"
    path.write_text(path.read_text() + '{"instance_id": "odd", "test_re')

    _eval(bench, "--eval-ids", "even,odd")

    assert [row["instance_id"] for row in _rows(_folder(bench))] == ["even", "odd"]
    assert _calls(bench) == ["even", "odd"]


def test_a_broken_line_inside_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "output.jsonl"
    path.write_text('{"instance_id": "a"}\n{"instance\n{"instance_id": "b"}\n')

    with pytest.raises(EvaldeskError, match="line 2: no row of an instance"):
        _kept_rows(path)


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--eval-ids", "odd, even"], ["even", "odd"]),
        (["--eval-n-limit", "2"], ["even", "odd"]),  # pandas: sample(2, random_state=42) of three rows
        (["--eval-n-limit", "0"], IDS),
        (["--eval-n-limit", "9"], IDS),
        (["--rows", "0-1"], IDS[:2]),
    ],
)
def test_instances_are_chosen_by_id_or_drawn_as_openhands_draws(
    bench: CommandFolder, options: list[str], ids: list[str]
) -> None:
    _eval(bench, *options)

    assert sorted(_calls(bench)) == sorted(ids)


def test_instances_are_chosen_by_one_option(bench: CommandFolder) -> None:
    done = _eval(bench, "--rows", "0", "--eval-n-limit", "1")

    assert "choose the instances by one of them" in str(done.exception)


def test_the_folder_is_named_by_note_and_root(bench: CommandFolder) -> None:
    _eval(bench, "--eval-note", "v2", "--eval-output-dir", "out", "--eval-ids", "even")

    assert len(_rows(_folder(bench, "out", "gpt-4o_beta-1_maxiter_7_N_v2"))) == 1


def test_a_function_that_is_not_there_leaves_no_output(bench: CommandFolder) -> None:
    result = _eval(bench, "--benchmark", f"bench_{bench.agent.name}:process_instanc")

    assert (result.exit_code, result.stdout) == (3, "")
    assert "did you mean 'process_instance'?" in result.stderr


def test_several_trials_have_a_folder_each(bench: CommandFolder) -> None:
    said = _eval(bench, "--n", 2, "--eval-ids", "even,odd").output

    assert "_maxiter_7-run_1/output.jsonl, and 1 more for the other trials" in said
    for run in (1, 2):
        assert len(_rows(_folder(bench, name=f"gpt-4o_beta-1_maxiter_7-run_{run}"))) == 2


def test_another_key_of_the_result_may_decide(bench: CommandFolder) -> None:
    result = _eval(bench, "--score-key", "answer", "--eval-ids", "even,odd")

    assert "1 of 2 passed" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--benchmark", "a:b"), "--benchmark needs -d"),
        (("--benchmark", "a:b", "-d", "instances.jsonl", "x"), "leave the rest out"),
        (("--benchmark", "a:b", "-d", "nowhere.jsonl"), "is not a file"),
        (("--benchmark", "a:b", "-d", "instances.jsonl", "--eval-ids", "evn"), "did you mean 'even'?"),
        (("--benchmark", "a:b", "-d", "instances.jsonl", "-l", "gpt"), "no group [llm.gpt]"),
        (("--benchmark", "a:b", "-d", "config.toml"), "config.toml:1"),
    ],
)
def test_what_cannot_be_is_refused(bench: CommandFolder, arguments: tuple[str, ...], said: str) -> None:
    result = bench.run("eval", *arguments)

    assert isinstance(result.exception, EvaldeskError), result.output
    assert said in str(result.exception)


SAMPLE = Path(__file__).parents[2] / "formats/exchange_samples/openhands.jsonl"
REPLAY = '''
from pathlib import Path

LINES = Path(__file__).with_name("rows.jsonl").read_text("utf-8").splitlines()


class Row:
    """A row that writes itself, as the EvalOutput of OpenHands does."""

    def __init__(self, line):
        self.line = line

    def model_dump_json(self):
        return self.line


def process_instance(instance, metadata):
    return Row(LINES[instance["place"]])
'''


def test_rows_are_written_to_the_byte_and_imported_as_the_original(bench: CommandFolder) -> None:
    rows = [json.loads(line) for line in SAMPLE.read_bytes().splitlines()]
    rows = [{**row, "instance_id": f"repo-{n}"} for n, row in enumerate(rows)]
    del rows[1]["evaldesk"]
    original = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (bench.folder / f"replay_{bench.agent.name}.py").write_text(REPLAY)
    (bench.folder / "rows.jsonl").write_bytes(original)
    instances = [{"instance_id": row["instance_id"], "question": "?", "place": n} for n, row in enumerate(rows)]
    (bench.folder / "instances.jsonl").write_text("".join(json.dumps(each) + "\n" for each in instances))

    done = _eval(bench, "--benchmark", f"replay_{bench.agent.name}:process_instance", "--score-key", "git_patch")

    written = (_folder(bench) / "output.jsonl").read_bytes()
    assert len(rows) == 3, done.output
    assert written.splitlines() == original.splitlines()
    ours, theirs = (read_file(data, "output.jsonl").runs[0] for data in (written, original))
    assert ours == theirs
    with bench.store() as store:
        (run,) = store.runs.list()
        trials = [store.runs.trial(run.id, place, 0) for place in range(3)]
    assert [trial.transcript.turns[0].tool_calls for trial in trials] == [
        result.transcript.turns[0].tool_calls for result in theirs.results
    ]


DETAILS = """
from pathlib import Path


def process_instance(instance, metadata):
    if not Path(__file__).with_name("repaired").exists():
        raise ConnectionError("the sandbox is gone")
    return {"instance_id": instance.instance_id, "test_result": {"success": True, "details": metadata.details}}
"""


def test_a_retry_has_the_details_of_the_script(bench: CommandFolder) -> None:
    (bench.folder / f"details_{bench.agent.name}.py").write_text(DETAILS)
    given = {
        "details": {"mode": "quick"},
        "eval_output_dir": "outputs",
        "max_iterations": 7,
        "agent_class": "CodeActAgent",
    }
    (bench.folder / "metadata.json").write_text(json.dumps(given))
    _eval(
        bench,
        *("--benchmark", f"details_{bench.agent.name}:process_instance", "--eval-ids", "even"),
        *("--eval-metadata", "metadata.json"),
    )
    (bench.folder / "metadata.json").unlink()
    (bench.folder / "repaired").touch()

    done = bench.run("run", "retry", 1)

    assert done.exit_code == 0, done.output
    with bench.store() as store:
        result = store.runs.trial(1, 0, 0)
    assert result.verdict == "passed"
    reported = [event.result for turn in result.transcript.turns for event in turn.events if event.result]
    assert '"mode": "quick"' in json.dumps(reported)


@pytest.mark.parametrize(
    ("words", "limit", "seconds"),
    [((), "", 86_400.0), (("--timeout", "300"), "", 300.0), ((), "[limits]\ntrial_timeout_s = 60\n", 60.0)],
    ids=["none", "of-the-script", "of-the-workspace"],
)
def test_an_instance_of_a_script_has_the_time_that_openhands_gives_it(
    bench: CommandFolder, words: tuple[str, ...], limit: str, seconds: float
) -> None:
    """`run_evaluation(timeout_seconds=None)` limits nothing; a script runs as `--eval-metadata`."""
    (bench.folder / f"details_{bench.agent.name}.py").write_text(DETAILS)
    (bench.folder / "repaired").touch()
    given = {"eval_output_dir": "outputs", "max_iterations": 7, "agent_class": "CodeActAgent"}
    (bench.folder / "metadata.json").write_text(json.dumps(given))
    (bench.folder / "evaldesk.toml").write_text(limit)

    _eval(
        bench,
        *("--benchmark", f"details_{bench.agent.name}:process_instance", "--eval-ids", "even"),
        *("--eval-metadata", "metadata.json", *words),
    )

    with bench.store() as store:
        assert store.runs.summary(1).config.limits.trial_timeout_s == seconds


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "{"], ids=["deep", "a list", "cut off"])
def test_metadata_that_are_none_are_refused_by_name(bench: CommandFolder, text: str) -> None:
    (bench.folder / "metadata.json").write_text(text)
    (bench.folder / "rows.jsonl").write_text('{"instance_id": "one"}\n')

    done = bench.run("eval", "--benchmark", "x:y", "-d", "rows.jsonl", "--eval-metadata", "metadata.json")

    assert isinstance(done.exception, FormatError | UsageError), done.output
    assert "metadata.json" in str(done.exception)


def test_secrets_of_a_profile_beyond_its_key_are_not_in_the_metadata(tmp_path: Path) -> None:
    profile = tmp_path / "config.toml"
    profile.write_text(
        '[llm.one]\nmodel = "openai/x"\napi_key = "sk-a-secret"\nbase_url = "https://me:pa55w0rd-long@host/v1"\n'
        'aws_session_token = "FwoGZXIvYXdzEBYaDKr9"\naws_region_name = "eu-west-1"\n'
        'custom_tag = "of FwoGZXIvYXdzEBYaDKr9"\n'
    )

    shown = masked_profile(profile, "one")

    assert not [secret for secret in ("sk-a-secret", "pa55w0rd", "FwoGZXIv") if secret in json.dumps(shown)]
    assert (shown["model"], shown["aws_region_name"], shown["api_key"]) == ("openai/x", "eu-west-1", MASK)
    assert masked_profile(_written(tmp_path / "keyless.toml"), "two")["api_key"] is None


def test_secrets_in_tables_of_a_profile_are_not_in_the_metadata(tmp_path: Path) -> None:
    profile = tmp_path / "config.toml"
    profile.write_text(
        '[llm.one]\nmodel = "openai/x"\n[llm.one.extra_headers]\nAuthorization = "Basic QWxhZGRpbjpvcGVu"\n'
        'X-Api-Key = "a-key-in-a-table"\nX-Region = "eu-west-1"\n[llm.one.credentials]\nvalue = "hunter-22x"\n'
        'all = [{ token = "tok-deep-33a" }]\nplace_url = "https://me:pa55w0rd-long@host/v1"\n'
    )

    shown = json.dumps(masked_profile(profile, "one"))

    secrets = ("QWxhZGRpbjpvcGVu", "a-key-in-a-table", "hunter-22x", "tok-deep-33a", "pa55w0rd")
    assert not [secret for secret in secrets if secret in shown]
    assert "eu-west-1" in shown


def _written(path: Path) -> Path:
    path.write_text('[llm.two]\nmodel = "openai/x"\n')
    return path

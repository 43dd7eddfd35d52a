"""An eval function that cannot be called as one is refused at every door, before the first trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.islands import of_tools

import evaldesk
from evaldesk import AgentEvaluator
from evaldesk.cli import _in_words
from evaldesk.errors import EvaldeskError, UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

WRONG = "def wrong(answer):\n    return 1.0\n"
SAID = "Cannot detect eval function mode: first parameter is 'answer'"
CONFIG = {"criteria": {"mine": 0.5}, "custom_metrics": {"mine": {"code_config": {"name": "rewards_wrong.wrong"}}}}


@pytest.fixture
def evalset(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An eval set beside a criteria file that names the function."""
    monkeypatch.chdir(place.folder)
    for folder in (place.folder, place.agent):
        (folder / "rewards_wrong.py").write_text(WRONG)
    path = place.evalset("right", {"one": "one"})
    (path.parent / "test_config.json").write_text(json.dumps(CONFIG))
    return Path(path)


@pytest.mark.parametrize("door", ["file", "criterion", pytest.param("eval-fn", marks=of_tools("osmosis"))])
def test_on_the_command_line(place: CommandFolder, evalset: Path, door: str) -> None:
    (evalset.parent / "elsewhere.json").write_text((evalset.parent / "test_config.json").read_text())
    (evalset.parent / "test_config.json").unlink()  # it would be taken for a criteria file that nobody named
    command: dict[str, tuple[object, ...]] = {
        "file": (place.agent, evalset, "--config-file-path", evalset.parent / "elsewhere.json"),
        "criterion": (place.agent, evalset, "--criterion", "rewards_wrong:wrong=0.5"),
        "eval-fn": ("-m", place.agent, "-d", evalset, "--eval-fn", "rewards_wrong:wrong"),
    }

    result = place.run("eval", *command[door])

    assert isinstance(result.exception, EvaldeskError)
    words, code = _in_words(result.exception)
    assert (SAID in words, code) == (True, 2), words
    assert not place.store().runs.counts_by_status()


def test_in_python(place: CommandFolder, evalset: Path) -> None:
    played: list[Any] = []

    with pytest.raises(UsageError) as refused:
        evaldesk.evaluate(
            str(place.agent), evalset, criteria=evalset.parent / "test_config.json", on_progress=played.append
        )

    assert SAID in str(refused.value)
    assert not played


@pytest.mark.anyio
async def test_in_the_evaluator_of_adk(place: CommandFolder, evalset: Path) -> None:
    with pytest.raises(UsageError) as refused:
        await AgentEvaluator.evaluate(str(place.agent), str(evalset))

    assert SAID in str(refused.value)

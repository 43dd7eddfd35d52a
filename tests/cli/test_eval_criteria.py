"""Which criteria `evaldesk eval` takes: those of the file named, those beside the eval set, and none that is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from evaldesk.errors import FormatError, UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import Place


def _criteria(place: Place) -> dict[str, float | None]:
    with place.store() as store:
        return {each.metric: each.threshold for each in store.runs.list()[0].config.criteria}


def test_the_config_beside_one_eval_set_is_taken(place: Place) -> None:
    path = place.evalset("first", {"one": "one"})
    config = path.parent / "test_config.json"
    config.write_text(
        json.dumps({"criteria": {"response_exact": 0.5}, "user_simulator_config": {"model": "demo/user"}})
    )

    result = place.run("eval", place.agent, path)

    assert f"The criteria are those of {config}." in result.output
    assert _criteria(place) == {"response_exact": 0.5}
    with place.store() as store:
        assert store.runs.list()[0].config.user.model == "demo/user"


def test_the_config_beside_is_not_taken_where_another_is_named_or_several_are_run(place: Place) -> None:
    paths = [place.evalset(name, {"one": "one"}) for name in ("first", "second")]
    (paths[0].parent / "test_config.json").write_text('{"criteria": {"response_exact": 0.5}}')
    named = paths[0].parent / "other.json"
    named.write_text('{"criteria": {"response_contains": 1}}')

    place.run("eval", place.agent, *paths)
    assert set(_criteria(place)) == {"tool_trajectory_avg_score", "response_match_score"}

    place.run("eval", place.agent, paths[0], "--config-file-path", named)
    assert _criteria(place) == {"response_contains": 1.0}


def test_a_wrong_config_is_refused_before_anything_is_played(place: Place) -> None:
    path = place.evalset("first", {"one": "one"})
    config = path.parent / "test_config.json"
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"criteria": {"response_exakt": 1}}, "did you mean 'response_exact'?"),
        ({"criteria": {"response_exact": 7}}, "out of range"),
        ({"criteria": {"nowhere_at_all:f": 1}}, "Cannot import module 'nowhere_at_all'"),
    ]

    for value, said in refusals:
        config.write_text(json.dumps(value))
        result = place.run("eval", place.agent, path)
        assert isinstance(result.exception, FormatError | UsageError), result.output
        assert said in str(result.exception)
    missing = place.run("eval", place.agent, path, "--config-file-path", path.parent / "test_confg.json")
    assert "did you mean" in str(missing.exception)
    with place.store() as store:
        assert store.runs.list() == []


def test_what_adk_would_pass_is_said_where_it_is_not_judged_here(place: Place) -> None:
    path = place.evalset("first", {"one": "one", "two": "other"})
    judged = place.eval(path)
    (place.folder / "test_config.json").unlink()

    result = place.run("eval", place.agent, path)

    assert result.exit_code == 1
    assert "Nothing was scored (2 unscored)" in result.output
    assert "`adk eval` would pass 1 of 2: there, no expected calls means none may be made." in result.output
    assert "adk eval" not in judged.output

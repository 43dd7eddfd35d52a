"""The table of 2 to 20 runs: its address, its cells, its filters, its exports and its named views."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING

import pytest

from evaldesk.model import AgentRef, Case, Criterion, RunConfig, Score, TrialResult, Turn, Usage
from evaldesk.pages.runs.table_query import TableQuery, sort_text
from evaldesk.wire import from_json
from evaldesk.wording.words import short_title

if TYPE_CHECKING:
    from tests.web.runs.conftest import RunPages


@pytest.fixture
def three(pages: RunPages) -> str:
    """Three runs of the same four cases, by their numbers."""
    return ",".join(pages.finish(n="2")[6:] for _ in range(3))


def shown(text: str) -> list[str]:
    """The cases of a table, in their order."""
    return re.findall(r'<tr id="row-\d+"><th scope="row"><a href="[^"]+">([^<]+)</a>', text)


def test_a_table_has_a_group_of_columns_for_each_run(pages: RunPages, three: str) -> None:
    text = pages.get(f"/table?runs={three}").text

    assert re.findall(r'data-group="(.)"', text) == ["A", "B", "C"]
    assert sorted(shown(text)) == ["breaks", "greets", "misses", "open"]
    assert text.count('class="trials"') == 3 * 4
    assert 'title="roll_die missing"' in text


def test_two_to_twenty_ticked_runs_open_in_the_table(pages: RunPages, three: str) -> None:
    ticked = "&".join(f"run={number}" for number in reversed(three.split(",")))

    answer = pages.get(f"/compare?{ticked}")

    assert answer.headers["location"] == f"/table?runs={three.replace(',', '%2C')}"
    assert 'data-select-most="20"' in pages.get("/runs").text


@pytest.mark.parametrize("most", [0, 2_000], ids=["by SQL", "by ids in memory"])
def test_a_search_by_ids_finds_the_same_in_memory_and_by_sql(
    pages: RunPages, three: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.pages.runs.table.MOST_NAMED", most)

    found = {text: sorted(shown(pages.get(f"/table?runs={three}&q={text}").text)) for text in ("EE", "e", "%25", "_")}

    assert found == {"EE": ["greets"], "e": ["breaks", "greets", "misses", "open"], "%25": [], "_": []}


@pytest.mark.parametrize(
    ("address", "status", "leads"),
    [
        ("/table", 303, "/compare"),
        ("/table?runs=1", 303, "/compare?b=1"),
        ("/table?runs=x,y", 303, "/compare"),
        ("/table?runs=1,1", 422, ""),
        ("/table?runs=" + ",".join(map(str, range(1, 22))), 422, ""),
        ("/table?runs=98,99", 404, ""),
        ("/table?runs=1,2&after=bm9uc2Vuc2U", 422, ""),
        ("/table?runs=1,2&sort=nonsense&only=nonsense&columns=nonsense&hide=1,2&density=7", 200, ""),
    ],
)
def test_an_address_that_is_no_table_says_why(pages: RunPages, address: str, status: int, leads: str) -> None:
    for _ in range(2):
        pages.finish(n="1")

    answer = pages.get(address)

    assert (answer.status_code, answer.headers.get("location", "")) == (status, leads)


def test_each_option_that_differs_is_one_warning(pages: RunPages) -> None:
    runs = [pages.finish(n=n)[6:] for n in ("1", "2", "2")]

    text = pages.get(f"/table?runs={','.join(runs)}").text

    (warning,) = re.findall(r"<p>(Trials per case differs[^<]*)</p>", text)
    assert f"(run {runs[0]})" in warning
    assert f"(runs {runs[1]}, {runs[2]})" in warning


def test_a_deleted_run_keeps_its_column_and_says_so(pages: RunPages, three: str) -> None:
    first, *_ = three.split(",")
    pages.post(f"/runs/{first}/deletion")

    text = pages.get(f"/table?runs={three}").text

    assert 'data-group="A" data-gone' in text
    assert f"Run {first} was deleted; its column is empty." in text
    assert text.count('class="trials"') == 2 * 4


@pytest.mark.parametrize(
    ("query", "cases"),
    [
        ("only=failed", {"misses"}),
        ("only=errored", {"breaks"}),
        ("tool=roll_die", set()),
        ("error=agent_raised", {"breaks"}),
        ("divergence=roll_die+missing", {"misses"}),
        ("q=GREE", {"greets"}),
        ("disagree=1", set()),
        ("below=response_match_score", {"misses"}),
        ("kind=7", set()),
        ("tag=nothing", set()),
    ],
)
def test_a_filter_of_the_address_leaves_its_rows(pages: RunPages, three: str, query: str, cases: set[str]) -> None:
    text = pages.get(f"/table?runs={three}&{query}").text

    assert set(shown(text)) == cases
    assert ("No matching cases" in text) == (not cases)


def test_the_address_is_the_view(pages: RunPages, three: str) -> None:
    values = {
        "only": "failed",
        "sort": "-cost@2",
        "columns": "trials,rate",
        "density": "tight",
        "hide": "3",
    }

    query = TableQuery.of("/table", [1, 2, 3], values, names_runs=True)

    assert query.fields() == {"runs": "1,2,3", **values}
    assert sort_text(query.sort) == "-cost@2"
    text = pages.get(query.href()).text
    assert re.findall(r'data-group="(.)"', text) == ["A", "B"]
    assert 'data-density="tight"' in text


def test_htmx_gets_the_table_alone(pages: RunPages, three: str) -> None:
    answer = pages.get(f"/table?runs={three}&only=failed", **{"HX-Request": "true", "HX-Target": "div#table"})

    assert answer.text.strip().startswith('<div id="table"')
    assert shown(answer.text) == ["misses"]


def test_two_runs_have_a_dumbbell_and_all_of_their_comparison(pages: RunPages) -> None:
    a, b = pages.finish()[6:], pages.finish()[6:]

    text = pages.get(f"/table?runs={a},{b}").text

    assert text.count('class="dumbbell"') == 2
    for said in ("No difference in the mean", "No verdict changed.", "Same in both", "side by side", "Swap A and B"):
        assert said in text, said


def test_a_view_is_a_stored_address_of_its_eval_set(pages: RunPages, three: str) -> None:
    table = f"/table?runs={three}"
    text = pages.get(f"{table}&only=failed&sort=cost").text
    evalset = re.search(r'name="evalset" value="([^"]+)"', text)
    stored = re.search(r'name="address" value="([^"]+)"', text)
    assert evalset
    assert stored

    fields = {"evalset": evalset[1], "address": stored[1].replace("&amp;", "&"), "back": table}
    answer = pages.client.post("/views", data=fields | {"name": "my failing refunds"})

    assert (answer.status_code, answer.headers["location"]) == (303, table)
    link = re.search(r'<a href="([^"]+)">my failing refunds</a>', pages.get(table).text)
    assert link
    assert shown(pages.get(link[1].replace("&amp;", "&")).text) == ["misses"]
    assert "my failing refunds" in pages.get(f"/table?runs={three}&sort=id").text
    assert pages.post("/views/1/deletion", back="https://elsewhere/").headers["location"] == "/runs"
    assert ">my failing refunds</a>" not in pages.get(table).text
    assert pages.client.post("/views", data=fields | {"name": " "}).status_code == 422


def test_csv_and_json_have_every_row_that_the_filters_show(pages: RunPages, three: str) -> None:
    first = three.split(",", maxsplit=1)[0]

    lines = list(csv.DictReader(io.StringIO(pages.get(f"/table/csv?runs={three}&sort=id").text)))
    values = json.loads(pages.get(f"/table/json?runs={three}&only=failed").text)

    assert [line["case"] for line in lines] == ["breaks", "greets", "misses", "open"]
    assert lines[1][f"run {first} trials"] == "pp"
    assert [run["run"] for run in values["runs"]] == [int(number) for number in three.split(",")]
    assert [case["case_id"] for case in values["cases"]] == ["misses"]
    assert values["cases"][0]["runs"][0]["passed"] == 0
    assert from_json(pages.get(f"/table/json?runs={three}").text, dict)


def test_the_report_of_a_table_needs_no_desk(pages: RunPages, three: str) -> None:
    answer = pages.get(f"/table/report?runs={three}")

    assert answer.headers["content-disposition"].startswith('attachment; filename="runs_')
    body = re.sub(r"<(style|script)>.*?</\1>", "", answer.text, flags=re.DOTALL)
    assert {*re.findall(r'(?:src|href)="(.)', body)} == {"#"}
    assert body.count('class="trials"') == 0 or 'href="/' not in body
    assert "misses" in body


METRICS = ("response_match_score", "tool_trajectory_avg_score")
N_MEASURED = 7


def measure_of(run: int, case: int, name: str) -> int:
    """A different number for each case, 0 to 6, in an order of its own for each run and each measure."""
    factor = {"response_match_score": 2, "tool_trajectory_avg_score": 3, "cost": 4, "tokens": 5, "time": 6}[name]
    return (case * factor + run) % N_MEASURED


@pytest.fixture
def measured(pages: RunPages) -> list[int]:
    """Three runs of seven cases with two metrics, costs, tokens and times; the last case has no score of a metric."""
    runs = []
    for run in range(3):
        criteria = tuple(Criterion(metric, 0.5) for metric in METRICS)
        config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=5, criteria=criteria)
        run_id = pages.desk.store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(N_MEASURED)])
        pages.desk.store.runs.record(
            [
                TrialResult(
                    run_id,
                    case,
                    at,
                    "finished",
                    "passed" if at < case % 4 else "failed",
                    scores=tuple(
                        Score(metric, measure_of(run, case, metric) / 10, threshold=0.5)
                        for metric in METRICS
                        if case < N_MEASURED - 1
                    ),
                    usages=(
                        Usage(
                            "m", tokens_in=1 + measure_of(run, case, "tokens"), cost=measure_of(run, case, "cost") / 8
                        ),
                    ),
                    duration_ms=1000.0 * (1 + measure_of(run, case, "time")),
                )
                for case in range(N_MEASURED)
                for at in range(5)
            ]
        )
        pages.desk.store.runs.set_status(run_id, "finished")
        runs.append(run_id)
    return runs


CHOICE = re.compile(r'<a href="([^"]+)" role="checkbox" aria-checked="(?:true|false)">([^<]+)</a>')
CASE = re.compile(r'<th scope="row">.{0,300}?>(c\d)</a>', re.DOTALL)
HEAD = re.compile(r'<th scope="col"([^>]*)>(?:<a href="([^"]+)" data-sort>)?([^<]+)')
ALL = ",".join(f"metric.{metric}" for metric in METRICS) + ",trials,rate,cost,time"


@pytest.mark.parametrize("n_runs", [1, 3])
@pytest.mark.parametrize("name", [*METRICS, "cost", "time"])
def test_a_head_sorts_by_its_values_in_both_directions(
    pages: RunPages, measured: list[int], n_runs: int, name: str
) -> None:
    title = short_title(name).lower()
    for run in range(n_runs):
        address = (
            f"/runs/{measured[0]}?" if n_runs == 1 else f"/table?runs={','.join(map(str, measured))}&columns={ALL}"
        )
        values = {f"c{case}": measure_of(run, case, name) for case in range(N_MEASURED)}
        is_metric = name in METRICS
        if is_metric:
            del values[f"c{N_MEASURED - 1}"]
        orders = []
        for _ in range(2):
            heads = [each for each in HEAD.findall(pages.get(address).text) if each[2].strip().lower() == title]
            address = heads[run][1].replace("&amp;", "&")
            text = pages.get(address).text
            (sorted_head,) = (each for each in HEAD.findall(text) if "aria-sort" in each[0])
            direction = re.search(r'aria-sort="(\w+)"', sorted_head[0])
            assert direction
            order = [case for case in CASE.findall(text) if case in values]
            assert order == sorted(values, key=values.__getitem__, reverse=direction[1] == "descending")
            assert sorted_head[2].strip().lower() == title
            orders.append(order)
        assert orders[0] == orders[1][::-1]


def test_a_column_is_chosen_and_left_out_by_itself_and_the_choice_holds(pages: RunPages, measured: list[int]) -> None:
    table = f"/table?runs={','.join(map(str, measured))}"
    choices = choices_of(pages.get(table).text)
    titles = [title for title in choices if title != "Tight rows"]

    assert {"Trials", "Pass rate", "Cost", "Time"} < {*titles}
    for title in titles:
        before, address = column_titles(pages.get(table).text), choices[title]
        after = column_titles(pages.get(address).text)
        back = choices_of(pages.get(address).text)[title]
        assert {*before} ^ {*after} == {title}
        assert column_titles(pages.get(back).text) == before

    tight = choices["Tight rows"] + "&columns=trials,cost&sort=cost"
    text = pages.get(tight).text
    assert 'data-density="tight"' in text
    links = re.findall(r'(?:class="filters"|Sort)(.*?)</ul>', text, re.DOTALL)
    hrefs = [href.replace("&amp;", "&") for part in links for href in re.findall(r'href="(/table[^"]+)"', part)]
    assert len(hrefs) > 8
    for href in hrefs:
        assert "density=tight" in href
        assert "columns=trials%2Ccost" in href
    assert 'name="density" value="tight"' in text
    assert 'name="columns" value="trials,cost"' in text


def column_titles(text: str) -> list[str]:
    """The different heads below those of the runs, in their order."""
    return list(dict.fromkeys(title.strip() for _, _, title in HEAD.findall(text) if title.strip() != "Case"))


def choices_of(text: str) -> dict[str, str]:
    """The addresses that show a column, or leave it out, by its title."""
    return {title: href.replace("&amp;", "&") for href, title in CHOICE.findall(text)}

"""Numbers of runs: the tools for coding agents give those that the pages show, over drawn runs and imported ones."""

from __future__ import annotations

import html
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.files import read_file
from evaldesk.matching.case_version import case_version
from evaldesk.model import AgentRef, Case, Criterion, ErrorRecord, RunConfig, Score, TrialResult, Turn, Usage, Verdict
from evaldesk.model.comparison import Baseline, PlayedCase
from evaldesk.model.conclusion import Gates
from evaldesk.model.evalset import numbered_keys
from evaldesk.pages.door.runs import compare_answer, run_answer, run_items
from evaldesk.pages.door.trials import trial_answer, trial_items

SAMPLES = Path(__file__).parents[2] / "formats" / "exchange_samples"
LETTERS: dict[str, Verdict] = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}
METRICS = (Criterion("tool_trajectory_avg_score", 1.0), Criterion("response_match_score", 0.8))
GATES = (
    Gates(),
    Gates(min_pass_rate=0.5),
    Gates(min_pass_rate=0.9, undecided="neutral"),
    Gates(min_case_pass_rate=0.5),
    Gates(pass_at=((2, 0.6),)),
    Gates(pass_hat=((2, 0.5),)),
    Gates(min_scored=8),
    Gates(max_error_rate=0.2),
    Gates(max_unscored_rate=0.2),
    Gates(max_cost=0.05),
    Gates(max_regressions=0, baseline="before"),
    Gates(max_regressions=1, baseline="before", regression_rule="likely"),
    Gates(margin=0.1, baseline="before"),
)
FILES = sorted(each.name for each in SAMPLES.iterdir())


def drawn_run(pages: Any, seed: int) -> str:
    """Store a finished run of cases, trials, verdicts and scores by chance, with the gate of its turn; gives its id."""
    chance = random.Random(seed)
    n, n_cases = chance.randint(1, 6), chance.randint(1, 12)
    gates = GATES[seed % len(GATES)]
    cases = [Case(f"case {seed} {at}", (Turn(f"question {at}"),)) for at in range(n_cases)]
    keys = numbered_keys(("", case.id, case_version(case)) for case in cases)
    weights = [(6, 3, 1, 1), (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0), (0, 0, 1, 1)][seed % 5]
    strips = ["".join(chance.choices("pfeu", weights, k=n)) for _ in cases]
    config = RunConfig(
        AgentRef("dice", "dice:agent"),
        pages.evalset,
        n=n,
        criteria=METRICS,
        gates=gates,
        errors_are_failures=chance.random() < 0.3,
    )
    earlier_cases = tuple(
        PlayedCase(key, "".join(chance.choices("pf", k=n))) for key, _ in zip(keys, cases, strict=True)
    )
    runs = pages.desk.store.runs
    baseline = Baseline("before", earlier_cases) if gates.baseline else None
    run_id = runs.create(config, cases, baseline=baseline)
    runs.record(
        [
            trial(chance, run_id, case_index, trial_index, letter)
            for case_index, strip in enumerate(strips)
            for trial_index, letter in enumerate(strip)
        ]
    )
    runs.set_status(run_id, "finished")
    return str(run_id)


def trial(chance: random.Random, run_id: int, case_index: int, trial_index: int, letter: str) -> TrialResult:
    scores = tuple(
        Score(each.metric, value, threshold=each.threshold, passed=value >= (each.threshold or 0))
        for each, value in ((each, chance.random()) for each in METRICS)
    )
    is_scored = letter in "pf"
    return TrialResult(
        run_id,
        case_index,
        trial_index,
        "errored" if letter == "e" else "finished",
        LETTERS[letter],
        scores=scores if is_scored else (),
        usages=(
            Usage("m", tokens_in=chance.randrange(9_000), tokens_out=chance.randrange(900), cost=chance.random() / 10),
        ),
        duration_ms=chance.random() * 90_000,
        error=ErrorRecord("crash", f"gave up {chance.randrange(2)}") if letter == "e" else None,
    )


def lines_of(text: str) -> list[str]:
    """The words of a page or of a part of it, a line for each element that begins one."""
    text = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>", " ", text)
    text = re.sub(r"</(?:p|li|h\d|tr|td|th|div|dt|dd|summary)>", "\n", text)
    text = html.unescape(re.sub(r"(?s)<[^>]*>", " ", text)).replace("\xa0", " ")
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def part_of(text: str, mark: str) -> str:
    """The element of a page that begins with `mark`, up to the next section, table or list."""
    assert mark in text, mark
    return re.split(r"</(?:section|table|ul)>", text.partition(mark)[2])[0]


def rows_of(text: str) -> list[list[str]]:
    """The cells of each row of a table."""
    return [
        [" ".join(lines_of(cell)) for cell in re.findall(r"(?s)<t[hd]\b[^>]*>.*?</t[hd]>", row)]
        for row in re.findall(r"(?s)<tr\b.*?</tr>", text)
    ]


def numbers_in(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def check_shown(shown: str, value: float | None, *, percent: bool = False) -> None:
    """Assert that a number of a page is `value` to the digits that it shows, a dash where there is none."""
    if value is None:
        assert shown.startswith("–"), shown
        return
    number = re.search(r"\d[\d,]*(?:\.(\d+))?", shown)
    assert number, (shown, value)
    unit = 10.0 ** -len(number[1] or "")
    assert abs(float(number[0].replace(",", "")) - value * (100 if percent else 1)) <= unit / 2 + 1e-9, (shown, value)


def check_run(pages: Any, name: str) -> dict[str, Any]:
    """Compare the answer of `get_run` with the pages of the run, read as text; gives the answer."""
    data: dict[str, Any] = json.loads(json.dumps(run_answer(pages.desk, name)))["data"]
    results = data["results"]
    page = pages.get(data["page"]).text
    text = " ".join(lines_of(page))
    head = " ".join(lines_of(re.search(r"(?s)<h1>.*?</h1>", page)[0]))  # type: ignore[index]

    if data["outcome"]:
        assert f"{data['outcome'].capitalize()}." in " ".join(lines_of(part_of(page, 'id="conclusion">')))
        assert data["outcome"] in head
    assert data["outcome"] == (results["outcome"] if data["outcome"] else None)
    filters = " ".join(lines_of(part_of(page, 'aria-label="Cases by verdict')))
    shown = {verdict: int(n.replace(",", "")) for n, verdict in re.findall(r"([\d,]+) (\w+)", filters)}
    for verdict in LETTERS.values():
        assert shown[verdict] == results[f"n_{verdict}"] == data["summary"][verdict], (verdict, filters)
    answer = " ".join(lines_of(re.search(r'(?s)<h2 class="sentence" id="answer">.*?</h2>', page)[0]))  # type: ignore[index]
    if results["n_scored"]:
        assert numbers_in(answer)[:2] == [results["n_passed"], results["n_scored"]], answer
        assert data["summary"]["pass_rate"] == results["pass_rate"] == results["n_passed"] / results["n_scored"]
    interval = re.search(r"(?:95 % CI|could be) ([\d.]+)(?: %)?(?:–| to )([\d.]+)", answer)
    if "too few" in answer:
        assert results["n_trials"] < 10
    else:
        assert bool(interval) == (results["interval"] is not None), answer
        for end, value in zip(interval.groups() if interval else (), results["interval"] or (), strict=True):
            check_shown(end, value, percent=True)
    check_gates(page, text, results)
    tokens = [re.search(rf"tokens {way} (?:at least )?([\d,.]+|–)\s?([kM]?)", text) for way in ("in", "out")]
    shown_tokens = [
        float(each[1].replace(",", "").replace("–", "0")) * {"k": 1e3, "M": 1e6}.get(each[2], 1)
        for each in tokens
        if each
    ]
    assert len(shown_tokens) == 2 or not data["summary"]["tokens"]
    assert abs(sum(shown_tokens) - data["summary"]["tokens"]) <= 101
    check_scores(page, results)
    check_curve(page, results)
    check_cases(page, data["worst_cases"])
    check_divergences(pages, data)
    check_line(pages, data)
    return data


def check_gates(page: str, text: str, results: dict[str, Any]) -> None:
    """The gates that the page lists have the answers of the tool, and the sentences of gates that do not hold are read.

    A gate that nobody asked for and that holds is on no page.
    """
    listed = lines_of(part_of(page, '<ul id="gates" class="checks">')) if '<ul id="gates"' in page else []
    for line in listed:
        (gate,) = (each for each in results["gates"] if " ".join(each["sentence"][1:].split()).rstrip(".") in line)
        assert line.split()[0] == ("open" if gate["answer"] not in ("held", "failed") else gate["answer"]), line
    for gate in results["gates"]:
        assert gate["is_held"] or " ".join(gate["sentence"][1:].split()).rstrip(".") in text, gate


def check_scores(page: str, results: dict[str, Any]) -> None:
    rows = (
        {row[0].split()[-1]: row for row in rows_of(part_of(page, "Scores by metric</caption>"))[1:]}
        if ("Scores by metric</caption>" in page)
        else {}
    )
    assert rows.keys() == {each["metric"] for each in results["metrics"]}
    for each in results["metrics"]:
        row = rows[each["metric"]]
        check_shown(row[1], each["mean"])
        assert numbers_in(row[8]) == [each["n"]]
        if each["threshold"] is not None:
            check_shown(row[6], each["threshold"])
            assert numbers_in(row[7])[1] == each["n"]
        for cell, key in ((row[3], "std"), (row[4], "min"), (row[5], "max")):
            check_shown(cell, each[key])


def check_curve(page: str, results: dict[str, Any]) -> None:
    rows = {
        int(row[0]): row
        for caption in re.findall(r"pass@k and pass\^k[^<]*</caption>", page)
        for row in rows_of(part_of(page, caption))[1:]
    }
    # The page leaves out the k that only some cases have so many scored trials for; the tool has `pass_k_notes` there.
    assert {str(k) for k in rows} <= results["pass_at_k"].keys()
    assert rows or not results["n_scored"] or len(results["pass_at_k"]) == 1
    for k, row in rows.items():
        for cell, key in ((row[1], "pass_at_k"), (row[2], "pass_hat_k")):
            check_shown(cell, results[key][str(k)])
            ends = results[f"{key}_interval"][str(k)]
            for shown, end in zip(re.findall(r"[\d.]+", cell)[1:], ends or (), strict=True):
                check_shown(shown, end)


def check_cases(page: str, worst_cases: Sequence[dict[str, Any]]) -> None:
    """The worst cases are the first rows of the table, in its order."""
    rows = [
        rows_of(row)[0] for row in re.findall(r'(?s)<tr id="case-\d+">.*?</tr>', page.partition('id="cases-title"')[2])
    ]
    for row, case in zip(rows, worst_cases, strict=False):
        assert case["case_id"] in row[0], (row, case)
        cell = next((each for each in row[1:] if re.fullmatch(r"[\d,]+ of [\d,]+|–", each)), "")
        n_scored = case["passed"] + case["failed"]
        assert numbers_in(cell) in ([case["passed"], n_scored], [case["passed"], n_scored + case["errored"]], []), row
    assert len(worst_cases) == min(5, len(rows))


def check_divergences(pages: Any, data: dict[str, Any]) -> None:
    page = pages.get(f"{data['page']}/divergences").text
    shown = {
        " ".join(lines_of(words)): int(n.replace(",", ""))
        for n, words in re.findall(r"(?s)<b>([\d,]+)</b> <span>(.*?)</span></a>", page)
    }
    told = {" ".join(each["words"].split()): each["n_trials"] for each in data["divergences"]}
    assert len(shown) >= min(len(told), 1) or not data["results"]["n_failed"]
    for words, n in shown.items():
        if words in told:
            assert told[words] == n
    assert not shown or set(shown) & set(told), (shown, told)


def check_line(pages: Any, data: dict[str, Any]) -> None:
    """The item of `list_runs` and the line of the list of runs."""
    (item,) = (each for each in run_items(pages.desk, limit=200)["items"] if each["id"] == data["id"])
    assert json.loads(json.dumps(item)) == {name: data[name] for name in item}
    page = pages.get("/runs").text
    line = next(each for each in re.findall(r"(?s)<tr\b.*?</tr>", page) if f'"/runs/{data["id"]}"' in each)
    if data["results"]["n_scored"]:
        assert f"{data['results']['n_passed']:,} of {data['results']['n_scored']:,}" in " ".join(lines_of(line))


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_run_has_the_same_numbers_on_its_pages_and_in_the_tools(shared_pages: Any, seed: int) -> None:
    name = drawn_run(shared_pages, seed)

    data = check_run(shared_pages, name)

    gates = {each["name"] for each in data["results"]["gates"]}
    assert gates, data["results"]
    check_trials(shared_pages, data)


def check_trials(pages: Any, data: dict[str, Any]) -> None:
    """The items of `list_trials` are as many as the page counts; one of them is read in whole."""
    items: list[dict[str, Any]] = []
    cursor: int | None = 0
    while cursor is not None:
        part = trial_items(pages.desk, str(data["id"]), cursor=cursor, limit=20)
        items += part["items"]
        cursor = part["next_cursor"]
    verdicts = [each["verdict"] for each in items]
    assert [verdicts.count(each) for each in LETTERS.values()] == [
        data["results"][f"n_{each}"] for each in LETTERS.values()
    ]
    item = items[-1]
    trial = trial_answer(pages.desk, str(data["id"]), item["case_id"], item["trial"])
    assert trial["verdict"] == item["verdict"]
    assert item["verdict"] in " ".join(lines_of(pages.get(trial["page"]).text))


def imported(pages: Any, name: str) -> Iterator[int]:
    """The runs of a sample file of a format; none where it has none, or its tool is not there."""
    path = SAMPLES / name
    try:
        contents = read_file(path.read_bytes(), path.name)
    except FormatError:
        return
    if contents.runs:
        yield from pages.desk.imports.take_in(contents, source=name, name=f"set_of_{FILES.index(name)}").run_ids


@pytest.mark.parametrize("name", FILES)
def test_an_imported_run_has_the_same_numbers_on_its_pages_and_in_the_tools(shared_pages: Any, name: str) -> None:
    for run_id in imported(shared_pages, name):
        check_trials(shared_pages, check_run(shared_pages, str(run_id)))


def test_two_drawn_runs_are_compared_with_the_same_numbers(shared_pages: Any) -> None:
    names = [drawn_run(shared_pages, 15), drawn_run(shared_pages, 15)]

    answer = compare_answer(shared_pages.desk, names)
    text = " ".join(lines_of(shared_pages.get(f"/table?runs={','.join(names)}").text))

    for number, name in enumerate(names):
        counts = run_answer(shared_pages.desk, name)["data"]["results"]
        assert f"{counts['n_passed']:,} of {counts['n_scored']:,}" in text
        assert json.dumps(answer).count(f'"run {name}"') >= 1, (number, answer)

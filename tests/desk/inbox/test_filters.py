"""The one line that finds conversations: each condition, the text that reads back, and what a refusal says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.desk.inbox.filters import MAX_AGO_S, MAX_LENGTH, parse_filter
from evaldesk.errors import UsageError
from evaldesk.model.conversation_filter import (
    COMPARATORS,
    FLAGS,
    NUMBERS,
    STATES,
    TIMES,
    WORDS,
    Condition,
    ConversationFilter,
    FilterTerm,
    FlagCondition,
    NumberCondition,
    TextCondition,
    TimeCondition,
    WordCondition,
)

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

# The lines of reference/inbox.md section 4.
LINES: dict[str, Condition] = {
    "error": FlagCondition("error"),
    "feedback<0": NumberCondition("feedback", "<", 0),
    "tool:refund": WordCondition("tool", "refund"),
    "turns>=5": NumberCondition("turns", ">=", 5),
    "cost>0.1": NumberCondition("cost", ">", 0.1),
    "latency>20s": NumberCondition("latency", ">", 20),
    "tag:prod": WordCondition("tag", "prod"),
    "release:1.4": WordCondition("release", "1.4"),
    'text:"order"': TextCondition("order"),
    "since:7d": TimeCondition("since", 7 * 86400),
    "no-case": FlagCondition("no-case"),
    "latency<=1500ms": NumberCondition("latency", "<=", 1.5),
    "latency!=2m": NumberCondition("latency", "!=", 120),
    "cost=$2": NumberCondition("cost", "=", 2),
    "feedback=-1": NumberCondition("feedback", "=", -1),
    "tokens>20000": NumberCondition("tokens", ">", 20_000),
    "calls<.5": NumberCondition("calls", "<", 0.5),
    "state:dropped": WordCondition("state", "dropped"),
    "source:http://x:1": WordCondition("source", "http://x:1"),
    'tool:"two words"': WordCondition("tool", "two words"),
    r'text:"a \"b\" \\ c"': TextCondition(r'a "b" \ c'),
    "text:order": TextCondition("order"),
    "TURNS>5": NumberCondition("turns", ">", 5),
    "until:2026-11-20": TimeCondition("until", at=datetime(2026, 11, 20, tzinfo=UTC)),
    "since:2026-11-20T10:30+02:00": TimeCondition("since", at=datetime(2026, 11, 20, 8, 30, tzinfo=UTC)),
}


@pytest.mark.parametrize(("line", "condition"), LINES.items(), ids=LINES)
def test_a_condition_alone_negated_and_among_others(line: str, condition: Condition) -> None:
    assert parse_filter(line).terms == (FilterTerm(condition),)
    assert parse_filter(f" not  {line} ").terms == (FilterTerm(condition, is_negated=True),)
    terms = (FilterTerm(FlagCondition("error")), FilterTerm(condition, is_negated=True), FilterTerm(condition))
    assert parse_filter(f"error NOT {line}\t{line}").terms == terms


def test_an_empty_line_asks_nothing() -> None:
    assert parse_filter("") == parse_filter(" \t ") == ConversationFilter()


numbers = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 6) + 0.0)
texts = st.text(min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
conditions = st.one_of(
    st.sampled_from(FLAGS).map(FlagCondition),
    st.builds(NumberCondition, st.sampled_from(NUMBERS), st.sampled_from(COMPARATORS), numbers),
    st.builds(WordCondition, st.sampled_from([name for name in WORDS if name != "state"]), texts),
    st.builds(WordCondition, st.just("state"), st.sampled_from(STATES)),
    st.builds(TextCondition, texts),
    st.builds(TimeCondition, st.sampled_from(TIMES), st.integers(0, MAX_AGO_S)),
    st.builds(
        TimeCondition,
        st.sampled_from(TIMES),
        at=st.datetimes(datetime(1000, 1, 1)).map(lambda at: at.replace(microsecond=0, tzinfo=UTC)),
    ),
)


@given(st.lists(st.builds(FilterTerm, conditions, st.booleans()), max_size=6))
def test_the_text_of_a_filter_reads_back(terms: list[FilterTerm]) -> None:
    conditions = ConversationFilter(tuple(terms))

    assert parse_filter(str(conditions)) == conditions


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("eror", '"eror": did you mean error?'),
        ("turn>5", '"turn>5": did you mean turns>=5?'),
        (
            "refund",
            '"refund" is not a condition; to search the messages write text:"refund". Allowed are error, no-case',
        ),
        ('"my order"', 'to search the messages write text:"my order". Allowed are error, no-case'),
        ("user:7", '"user:7" is not a condition. Allowed are error, no-case, turns'),
        ("turns", "turns needs a comparison, such as turns>=5"),
        ("turns:5", "turns is compared with < <= > >= = !=, such as turns>=5"),
        ("turns>9999999999999999", 'turns>"9999999999999999": the number is too large'),
        ("turns>many", 'turns>"many": turns is a number, such as turns>=5'),
        ("turns>5s", 'turns>"5s": turns is a number, such as turns>=5'),
        ("turns>$5", 'turns>"$5": turns is a number, such as turns>=5'),
        ("turns>", 'turns>"": turns is a number, such as turns>=5'),
        ("cost>nan", 'cost>"nan": cost is a number, such as cost>0.1'),
        ("latency>20", "latency>20 needs a unit: ms, s, m or h, such as latency>20s"),
        ("tool", "tool needs a value, such as tool:refund"),
        ("tool:", "tool: needs a value, such as tool:refund"),
        ('text:""', 'text: needs a value, such as text:"order"'),
        ("tool=refund", "tool takes a colon, such as tool:refund"),
        ("state:old", 'state:"old": a state is new, read, case or dropped'),
        ("error:all", 'error stands alone, without ":all"'),
        ("since:soon", 'since:"soon": a time is so long ago, as since:30m, since:12h, since:7d or since:2w, or a date'),
        ("since:999999999w", 'since:"999999999w": a time is so long ago'),
        ("not", "not needs a condition behind it, such as not tool:search"),
        ("not not error", '"not not": write not once'),
        ('text:"open', 'after "text:" a space or the end is expected'),
        ('tool:"a"b', 'after "tool:"a"" a space or the end is expected'),
        ("x" * (MAX_LENGTH + 1), "the filter has 1,001 characters; at most 1,000 are read"),
        ("error " * 21, "the filter has 21 conditions; at most 20 are read"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_is_allowed(line: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_filter(line)

    assert sentence in str(refusal.value)
    assert refusal.value.field == "filter"


@given(st.text(max_size=60))
def test_any_line_is_read_or_refused(line: str) -> None:
    sentence = ""
    try:
        conditions = parse_filter(line)
        assert parse_filter(str(conditions)) == conditions
    except UsageError as refusal:
        sentence = str(refusal)

    assert sentence.isprintable()


def test_a_time_is_counted_from_now() -> None:
    assert TimeCondition("since", 3600).instant(NOW) == datetime(2026, 11, 30, 11, 0, tzinfo=UTC)
    assert TimeCondition("since", MAX_AGO_S * 10).instant(NOW).year == 1
    assert TimeCondition("since", at=NOW).instant(NOW) == NOW

"""Faults in the texts of cases: twins, contradictions, and answers that stand in the prompt. Pure.

(reference/sets.md 4)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from evaldesk.matching import required_calls
from evaldesk.matching.case_facts import user_texts
from evaldesk.matching.text_similarity import TWINS, alike_lines, similarity, words_of
from evaldesk.model import Case, ToolCall
from evaldesk.model.case_facts import CaseFacts
from evaldesk.model.json_text import json_line
from evaldesk.pages.set_health.finding import Finding

MOST_OF_GROUP = 100
"""Cases of a group of alike ones that are compared with each other."""
MOST_READ = 10_000
"""Cases of all groups that are compared."""
_DIGITS, _LIST_OF_ZEROS = re.compile(r"\d+"), re.compile(r"0(?:, ?0)+")


def text_findings(cases: Sequence[Case], facts: Sequence[CaseFacts]) -> Iterator[Finding]:
    """The findings about the texts of cases; only those with alike `facts` are read."""
    groups, is_whole = alike_lines([each.line for each in facts])
    twins: dict[str, tuple[str, ...]] = {}
    contradictions: dict[str, tuple[str, ...]] = {}
    n_read = 0
    for group in groups:
        n_read += min(len(group), MOST_OF_GROUP)
        is_whole = is_whole and len(group) <= MOST_OF_GROUP and n_read <= MOST_READ
        if n_read > MOST_READ:
            break
        members = [cases[place] for place in group[:MOST_OF_GROUP]]
        for place, case in enumerate(members[1:], 1):
            pairs = [(other, share) for other in members[:place] if (share := likeness(other, case))]
            conflicts = ((other, share, conflict(other, case)) for other, share in pairs)
            other, share, words = next((each for each in conflicts if each[2]), (None, 0.0, ""))
            if other is not None:
                says = f"{case.id} says what {other.id} says ({share:.2f} alike) and expects {words}"
                contradictions[says] = other.id, case.id
            elif pairs:
                twins[f"{pairs[0][0].id} and {case.id}"] = pairs[0][0].id, case.id
    cut_words = "" if is_whole else "so many cases look alike that not all were compared"
    for kind, pair_ids in (("twins", twins), ("contradictions", contradictions)):
        ids = dict.fromkeys(case_id for pair in pair_ids.values() for case_id in pair)
        yield Finding(kind, tuple(pair_ids), tuple(ids), cut_words)


def likeness(case: Case, other: Case) -> float:
    """How alike all words of two users are; 0 below 0.8, and where the conversations differ in turns or files.

    Cases without a word, such as two pictures, are alike only where their messages are equal.
    """
    if len(case.turns) != len(other.turns) or (case.scenario is None) != (other.scenario is None):
        return 0.0
    if [item.digest for item in case.media] != [item.digest for item in other.media]:
        return 0.0
    mine, theirs = " ".join(user_texts(case)), " ".join(user_texts(other))
    if not words_of(mine) or not words_of(theirs):
        return 1.0 if mine.strip() and mine.strip() == theirs.strip() else 0.0
    share = similarity(mine, theirs)
    return share if share >= TWINS else 0.0


def conflict(case: Case, other: Case) -> str:
    """`another depart`: the first thing that two cases with one state expect otherwise; empty where both can be right.

    An expectation of one of them alone is no conflict. Where the words differ in numbers, expected numbers may, too.
    """
    if case.initial_state != other.initial_state:
        return ""
    mine, theirs = user_texts(case), user_texts(other)
    are_numbers_free = _numbers(mine) != _numbers(theirs)
    is_same_text = not are_numbers_free and list(map(words_of, mine)) == list(map(words_of, theirs))

    def differs(one: object, two: object) -> bool:
        lines = json_line(one), json_line(two)
        return lines[0] != lines[1] and not (are_numbers_free and _masked(lines[0]) == _masked(lines[1]))

    for turn, other_turn in zip(case.turns, other.turns, strict=True):
        calls, other_calls = turn.expected.tool_calls, other_turn.expected.tool_calls
        are_asserted = calls is not None and other_calls is not None
        if are_asserted and (words := _call_difference(calls or (), other_calls or (), differs)):
            return words
        references = [each.expected.reference for each in (turn, other_turn)]
        spellings = [words_of(each) for each in references if each is not None]
        if is_same_text and len(spellings) == 2 and spellings[0] != spellings[1]:
            return "another reference"
    required, other_required = required_calls(case), required_calls(other)
    if required is not None and other_required is not None:
        lists = ([[call.name, call.args] for call in each] for each in (required, other_required))
        if differs(*(sorted(each, key=json_line) for each in lists)):
            return "other required actions"
    if case.final_state is not None and other.final_state is not None and differs(case.final_state, other.final_state):
        return "another final state"
    return ""


def _call_difference(
    calls: Sequence[ToolCall], other_calls: Sequence[ToolCall], differs: Callable[[object, object], bool]
) -> str:
    names, other_names = [call.name for call in calls], [call.name for call in other_calls]
    if names != other_names:
        return f"{', '.join(other_names[:3]) or 'no call'}, not {', '.join(names[:3]) or 'none'}"
    for call, other_call in zip(calls, other_calls, strict=True):
        for key in {**call.args, **other_call.args}:
            if differs(call.args.get(key), other_call.args.get(key)):
                return f"another {key}"
    return ""


def _numbers(texts: Sequence[str]) -> list[str]:
    return sorted(_DIGITS.findall(" ".join(texts)))


def _masked(line: str) -> str:
    """The JSON with 0 for each number, and for numbers beside each other."""
    return _LIST_OF_ZEROS.sub("0", _DIGITS.sub("0", line))


def leak_finding(ids: Sequence[str], facts: Sequence[CaseFacts]) -> Finding:
    """The cases whose answer stands in the user's words or in the initial state."""
    leaks = {case_id: f"{case_id}: {each.leak}" for case_id, each in zip(ids, facts, strict=True) if each.leak}
    return Finding("answers_in_prompt", tuple(leaks.values()), tuple(leaks))

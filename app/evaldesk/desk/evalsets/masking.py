"""Secrets in a file that leaves the workspace: masked once more with the variables of today, and listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from evaldesk.errors import VALUE_LIMIT
from evaldesk.formats.files import TEXT_FORMATS, pack, suffix_of, write_file
from evaldesk.model import EvalSet
from evaldesk.secrets import known_values, scrubber_of
from evaldesk.transcripts.recorded import RecordedRun
from evaldesk.wire import from_json, json_scrubber_of, to_json

T = TypeVar("T")

MAX_PLACES = 3
MOST_PLACES = 100
"""Cases of a masked value that are counted beside those that are named."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A file without its secrets; `words` names the masked values and their cases, empty where there are none.

    `ending` is that of the names of such files.
    """

    data: bytes
    words: str = ""
    ending: str = ""


def mask_file(data: bytes, environment: Mapping[str, str], cases: Iterable[tuple[str, object]] = ()) -> Masked:
    """The text file with the secrets of the environment masked; `cases` are the ids and values that it was made of."""
    secret_values = known_values(environment)
    n_masked: Counter[str] = Counter()
    clean = scrubber_of(secret_values, n_masked)(data.decode("utf-8", "surrogateescape"))
    if not n_masked:
        return Masked(data)
    return Masked(clean.encode("utf-8", "surrogateescape"), masked_words(n_masked, places_of(secret_values, cases)))


def masked_file(what: EvalSet | RecordedRun, format_name: str, environment: Mapping[str, str]) -> Masked:
    """An eval set or a run as a file without the secrets of the environment.

    A packed file cannot be searched, so it is made of the text of its rows. Raises FormatError, NotFoundError.
    """
    is_packed = format_name in TEXT_FORMATS
    masked_file = mask_file(write_file(what, TEXT_FORMATS.get(format_name, format_name)), environment, _parts(what))
    data = pack(masked_file.data, format_name) if is_packed else masked_file.data
    return replace(masked_file, data=data, ending=suffix_of(format_name))


def without_secrets(values: Iterable[T], environment: Mapping[str, str], n_masked: Counter[str]) -> Iterator[T]:
    """The values with every text in them masked; `n_masked` counts masked values by the names of the variables."""
    scrub = json_scrubber_of(known_values(environment), n_masked)
    for value in values:
        data = to_json(value)
        clean = scrub(data)
        yield value if clean is data else from_json(clean, type(value))


def _parts(what: EvalSet | RecordedRun) -> Iterator[tuple[str, object]]:
    """The cases by their ids, and the trials by those of their cases."""
    yield from ((case.id, case) for case in what.cases)
    if isinstance(what, RecordedRun):
        yield from ((what.cases[result.case_index].id, result) for result in what.results)


def masked_words(n_masked: Mapping[str, int], places: Mapping[str, list[str]]) -> str:
    """`2 values masked: OPENAI_API_KEY in case a and case b.`"""
    n = sum(n_masked.values())
    each = ", ".join(f"{name}{_where(places.get(name, []))}" for name in sorted(n_masked))
    return f"{n:,} value{'' if n == 1 else 's'} masked: {each}."


def places_of(secret_values: Mapping[str, str], cases: Iterable[tuple[str, object]]) -> dict[str, list[str]]:
    """The ids of the cases whose values hold a secret, by the names of the secrets; the first ones of many."""
    places: dict[str, list[str]] = {}
    for case_id, value in cases:
        n_masked: Counter[str] = Counter()
        json_scrubber_of(secret_values, n_masked)(to_json(value))
        for name in n_masked:
            case_ids = places.setdefault(name, [])
            if len(case_ids) <= MOST_PLACES and case_id not in case_ids[-1:]:
                case_ids.append(case_id)
    return places


def _where(cases: list[str]) -> str:
    if not cases:
        return ""
    case_names = [f"case {case_id[:VALUE_LIMIT]}" for case_id in dict.fromkeys(cases)]
    more = f" and {len(case_names) - MAX_PLACES} more" if len(case_names) > MAX_PLACES else ""
    return f" in {', '.join(case_names[:MAX_PLACES])}{more}"

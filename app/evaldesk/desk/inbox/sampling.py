"""Which conversations are scored, and the strata of a draw: by a hash or a seed, so that anybody can draw again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from evaldesk.desk.inbox.filters import parse_filter
from evaldesk.errors import UsageError
from evaldesk.model.conversation_filter import ConversationFilter

SALT = "inbox"
REST = "rest"
MAX_STRATA, MAX_DRAWN = 20, 10_000
FIELD = "strata"


def sample_position(conversation_id: str, salt: str = SALT) -> float:
    """The place of a conversation among all, 0 to below 1: the first 8 bytes of blake2b of `salt:id`."""
    # Letters that no encoding has come from cut or hostile ids; each has a place all the same.
    data = f"{salt}:{conversation_id}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") / 2**64


def is_sampled(conversation_id: str, rate: float, salt: str = SALT) -> bool:
    """Whether the conversation is in a sample of `rate`, 0 to 1; one of a lower rate is in each of a higher one."""
    return sample_position(conversation_id, salt) < rate


@dataclass(frozen=True, slots=True)
class StratumPlan:
    """A part of the traffic and the number to draw of it; `n` is None for all. Those of earlier strata are not in it.

    `name` is the typed filter, or `rest` for all the others.
    """

    name: str
    filter: ConversationFilter
    n: int | None


@dataclass(frozen=True, slots=True)
class DrawnStratum:
    """A stratum of `size` conversations: `ids` of them were drawn, each of which stands for so many as `weights` tell.

    Shares are weighted by `size`. A conversation stands for the twins of it in the stratum, of which it alone is drawn.
    """

    name: str
    size: int
    ids: tuple[int, ...]
    weights: tuple[int, ...] = ()


def draw_strata(
    plans: Sequence[StratumPlan],
    candidates: Sequence[Sequence[tuple[int, str]]],
    seed: int,
    *,
    is_one_per_twin_group: bool = True,
) -> tuple[DrawnStratum, ...]:
    """Draw conversations of each stratum by chance; the same seed draws the same of the same candidates.

    `candidates` are, for each plan, the conversations that meet its filter: id, and group of twins or an empty text. A
    conversation belongs to the first stratum that has it. Of a group of twins in a stratum one is drawn by chance, and
    stands for all of them there: a group with errors and answers is read once among the errors, once among the rest.
    Raises UsageError where all of a stratum are more than can be drawn.
    """
    strata: list[DrawnStratum] = []
    for plan, rows in zip(plans, own_rows(candidates), strict=True):
        keys = [group if group and is_one_per_twin_group else number for number, group in rows]
        units = [*dict.fromkeys(keys)]
        n = len(units) if plan.n is None else min(plan.n, len(units))
        if n > MAX_DRAWN:
            raise _refusal(f"the stratum {plan.name} has {n:,} conversations; at most {MAX_DRAWN:,} can be drawn")
        chance = Random(f"{seed}:{plan.name}")  # noqa: S311 - a draw, which others can repeat
        members: dict[int | str, list[int]] = {key: [] for key in chance.sample(units, n)}
        for (number, _), key in zip(rows, keys, strict=True):
            if key in members:
                members[key].append(number)
        weights = tuple(map(len, members.values()))
        strata.append(DrawnStratum(plan.name, len(rows), tuple(map(chance.choice, members.values())), weights))
    return tuple(strata)


def own_rows(candidates: Sequence[Sequence[tuple[int, str]]]) -> Iterator[Sequence[tuple[int, str]]]:
    """The conversations of each stratum without those of earlier ones."""
    earlier_ids: set[int] = set()
    for place, rows in enumerate(candidates):
        yield [row for row in rows if row[0] not in earlier_ids] if earlier_ids else rows
        if place < len(candidates) - 1:
            earlier_ids.update(number for number, _ in rows)


def parse_strata(texts: Sequence[str]) -> tuple[StratumPlan, ...]:
    """Strata such as `error:all`, `feedback<0:30` and `rest:100`, in their order. Raises UsageError."""
    if not 1 <= len(texts) <= MAX_STRATA:
        raise _refusal(f"a draw has 1 to {MAX_STRATA} strata, got {len(texts)}")
    strata = tuple(map(_parse_stratum, texts))
    names = [stratum.name for stratum in strata]
    again = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if again is not None:
        raise _refusal(f"the stratum {again} is there twice; one of them would be empty")
    if REST in names[:-1]:
        raise _refusal("rest is all that no other stratum has: write it last")
    return strata


def _parse_stratum(text: str) -> StratumPlan:
    line, colon, number = text.rpartition(":")
    line, number = line.strip(), number.strip()
    if not colon or not line or not (number == "all" or (number.isascii() and number.isdecimal())):
        raise _refusal(
            f"{text[:80]!r}: a stratum is a filter, a colon, and a number or all, such as error:all or rest:100"
        )
    if number != "all" and not 0 < int(number[:9]) <= MAX_DRAWN:
        raise _refusal(f"{text[:80]!r}: 1 to {MAX_DRAWN:,} conversations can be drawn of a stratum, or all")
    n = None if number == "all" else int(number[:9])
    if line == REST:
        return StratumPlan(REST, ConversationFilter(), n)
    conditions = parse_filter(line)
    return StratumPlan(str(conditions), conditions, n)


def _refusal(message: str) -> UsageError:
    return UsageError(message, field=FIELD)

"""The model calls of a trial as they were sent, with their answers, stored apart from the transcript."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evaldesk.model.evalset import JsonValue
from evaldesk.model.transcript import Role

FAILED = "error"
"""The key of the reason that stands in the place of an answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A model call as it was sent, and its answer. Places are indexes of `Prompts.parts`; -1 is none.

    Its messages are the first `n_kept` of the earlier call `base`, and after them those at `messages`. `turn` counts
    from 0; `at_ms` is when the answer was there, from the start of the turn. That of a simulated user comes before it.
    A judge's is of the turn that it looks at, of one after the last for the whole trial; its time is from the start of
    the grading, and it names its `criterion`.
    """

    turn: int
    at_ms: float
    duration_ms: float
    model: str
    tokens_in: int = 0
    tokens_out: int = 0
    base: int = -1
    n_kept: int = 0
    messages: tuple[int, ...] = ()
    tools: int = -1
    settings: int = -1
    answer: int = -1
    role: Role = "agent"
    criterion: str = ""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The calls of a trial, not always in the order of their answers; shared messages are in `parts` once.

    `n_left_out` calls came when there was no room any more.
    """

    parts: tuple[JsonValue, ...] = ()
    calls: tuple[Prompt, ...] = ()
    n_left_out: int = 0

    def after(self, earlier: Prompts | None) -> Prompts:
        """The earlier calls, and these after them."""
        if earlier is None:
            return self
        n_parts, n_calls = len(earlier.parts), len(earlier.calls)
        calls = [
            replace(
                call,
                base=_shift_place(call.base, n_calls),
                messages=tuple(_shift_place(place, n_parts) for place in call.messages),
                tools=_shift_place(call.tools, n_parts),
                settings=_shift_place(call.settings, n_parts),
                answer=_shift_place(call.answer, n_parts),
            )
            for call in self.calls
        ]
        return Prompts((*earlier.parts, *self.parts), (*earlier.calls, *calls), earlier.n_left_out + self.n_left_out)

    def without_judges(self) -> Prompts | None:
        """The calls that are not of judges; None without any. Those of judges stand after them."""
        calls = tuple(call for call in self.calls if call.role != "judge")
        return replace(self, calls=calls) if calls else None

    def of_judges(self, *, is_wanted: bool) -> Prompts:
        """The same with every call as a judge's; without `is_wanted`, as no judge's."""
        calls = (
            replace(call, role="judge" if is_wanted else "agent") if (call.role == "judge") != is_wanted else call
            for call in self.calls
        )
        return replace(self, calls=tuple(calls))

    def part(self, place: int) -> JsonValue:
        """The part at a place; None where there is none."""
        return self.parts[place] if 0 <= place < len(self.parts) else None

    def is_failed(self, at: int) -> bool:
        """Whether the call at the index was not answered."""
        answer = self.part(self.calls[at].answer)
        return isinstance(answer, dict) and answer.keys() == {FAILED}

    def messages(self, at: int) -> tuple[JsonValue, ...]:
        """All messages of the call at the index, in order."""
        places: list[int] = []
        n_wanted: int | None = None
        while 0 <= at < len(self.calls):
            call = self.calls[at]
            n_kept = call.n_kept if 0 <= call.base < at else 0
            own = call.messages if n_wanted is None else call.messages[: max(n_wanted - n_kept, 0)]
            places[:0] = own
            n_wanted = n_kept if n_wanted is None else min(n_wanted, n_kept)
            at = call.base if n_wanted > 0 and call.base < at else -1
        return tuple(self.part(place) for place in places)


def _shift_place(place: int, n: int) -> int:
    return place + n if place >= 0 else place

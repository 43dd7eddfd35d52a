"""An eval case of three turns that fails by its initial state, for the commands of forks."""

from __future__ import annotations

_YES = {"parts": [{"text": "yes"}], "role": "model"}


def _turn(text: str) -> dict[str, object]:
    return {"user_content": {"parts": [{"text": text}], "role": "user"}, "final_response": _YES}


REFUND_CASE = {
    "eval_id": "refund",
    "conversation": [_turn("one"), _turn("two"), _turn("three")],
    "session_input": {"app_name": "agent", "user_id": "u", "state": {"card": "bad"}},
}

"""What the model of a rolling agent does in every framework, in the source that tests write to disk."""

DECIDED = '''
import asyncio

async def decided(word):
    """Raise, wait, the sides of the die to be rolled, or what is said."""
    if word == "break":
        raise ValueError("broken")
    if word == "wait":
        await asyncio.sleep(3600)
    if word.startswith("Roll a d"):
        await asyncio.sleep(0)
        return int(word.removeprefix("Roll a d"))
    return "hello there"
'''


def never_ending(source: str) -> str:
    """The source of a rolling agent whose tool is never finished."""
    head, found, body = source.partition('    """Roll a die."""\n')
    assert found
    before, function, rest = head.rpartition("def roll_die(")
    assert function
    return f"{before}async {function}{rest}{found}    await asyncio.Event().wait()\n{body}"

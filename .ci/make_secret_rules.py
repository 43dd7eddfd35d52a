"""Write `app/evaldesk/secret_rules.json` from the `config/gitleaks.toml` of gitleaks, whose rules are for Go's RE2.

    python .ci/make_secret_rules.py gitleaks.toml v8.30.1

A rule is left out where it has a path, names an identity that is no secret, or judges whole files of code.
See decision 445.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "app" / "evaldesk" / "secret_rules.json"

LEFT_OUT = {
    "curl-auth-header": "a line of a shell",
    "curl-auth-user": "a line of a shell",
    "facebook-access-token": "an identity and a word",
    "flutterwave-public-key": "public",
    "generic-api-key": "any word after `key`; the values of variables are masked by their names",
    "hashicorp-tf-password": "any word after `password`",
    "jwt": "secret_shapes has web tokens",
    "kubernetes-secret-yaml": "a file of code",
    "lob-pub-api-key": "public",
    "mailgun-pub-key": "public",
    "nuget-config-password": "a file of code",
    "pkcs12-file": "a path",
    "private-key": "secret_shapes has private keys",
    "sidekiq-sensitive-url": "secret_shapes has the passwords of URLs",
    "sidekiq-secret": "two short words",
    "sumologic-access-id": "an identity",
}
_ENDS_OF_NAMES = ("-client-id", "-access-id", "-api-id")
_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_NEW_END = r"(?![\w-])"
_BEFORE = r"[\w.-]{0,50}?"
LONGEST = 400


def main(source: Path, version: str) -> None:
    """Write the rules as data for Python's `re` with the flag ASCII."""
    found = tomllib.loads(source.read_text("utf-8"))["rules"]
    rules = []
    for rule in found:
        name = rule["id"]
        if name in LEFT_OUT or name.endswith(_ENDS_OF_NAMES) or "path" in rule:
            continue
        pattern = translated(rule["regex"])
        re.compile(pattern, re.ASCII)
        except_ = [each for entry in rule.get("allowlists", ()) for each in entry.get("regexes", ())]
        rules.append([name, pattern, rule["keywords"], rule.get("entropy", 0), [translated(each) for each in except_]])
    head = {"source": f"https://github.com/gitleaks/gitleaks {version}, config/gitleaks.toml", "license": "MIT"}
    lines = ",\n".join(json.dumps(rule, ensure_ascii=True) for rule in rules)
    TARGET.write_text(f'{json.dumps(head)[:-1]}, "rules": [\n{lines}\n]}}\n', "utf-8")
    print(f"{len(rules)} of {len(found)} rules")  # noqa: T201


def translated(pattern: str) -> str:
    """A pattern of RE2 for Python: flags in the middle, bounds of repeats, and ends that a sentence has as well.

    The words before a name are not needed to find its value. An end is any character that goes on no token: text has
    a comma, a bracket or a tag where code has a quote. Quotes may be escaped, as in JSON inside of JSON.
    """
    pattern = pattern.replace(_BEFORE, "").replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", r"\Z")
    pattern = (
        pattern.replace(rf"{_END[:-1]}|\b)", _END)
        .replace(r"(?:[^\w-]|\Z)", _END)
        .replace(r"(?:[^a-zA-Z0-9+/]|\Z)", _END)
    )
    pattern = pattern.replace(_END, _NEW_END)
    pattern = pattern.replace(r"""[\s'"]{0,3}""", r"""[\s'"\\]{0,8}""").replace(
        r"""[\x60'"\s=]{0,5}""", r"""[\x60'"\s=\\]{0,12}"""
    )
    pattern = re.sub(r"\{(\d+),\}", lambda match: f"{{{match[1]},{int(match[1]) + LONGEST}}}", pattern)
    pattern = pattern.replace(r"|[a-fA-F0-9]{40})\b)", r")\b)")  # any commit, beside the word sourcegraph
    return _one_group(_scoped_flags(pattern))


def _scoped_flags(pattern: str) -> str:
    """Flags in the middle hold to the end of their group."""
    while (at := pattern.find("(?i)", 1)) > 0:
        end = _group_end(pattern, at)
        pattern = f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}"
    return pattern


def _group_end(pattern: str, start: int) -> int:
    depth = 0
    for at, is_class in _places(pattern):
        if at < start or is_class:
            continue
        if pattern[at] == "(":
            depth += 1
        elif pattern[at] == ")":
            depth -= 1
            if depth < 0:
                return at
    return len(pattern)


def _places(pattern: str) -> list[tuple[int, bool]]:
    """The places that are not escaped, and whether each is in a class of characters."""
    found, is_class, at = [], False, 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
            continue
        if pattern[at] == "[" and not is_class:
            is_class = True
            found.append((at, False))
        elif pattern[at] == "]" and is_class and pattern[at - 1] != "[":
            is_class = False
        else:
            found.append((at, is_class))
        at += 1
    return found


def _one_group(pattern: str) -> str:
    """The pattern with groups of secrets only, one of which matches, or none where the whole match is the secret."""
    ends = (_NEW_END, "(?:$|")
    for at in reversed([at for at, is_class in _places(pattern) if not is_class and _is_group(pattern, at)]):
        if not pattern[_group_end(pattern, at + 1) + 1 :].startswith(ends):
            head = re.compile(r"\((?:\?P<\w+>)?").match(pattern, at)
            assert head  # noqa: S101 - it is a group
            pattern = f"{pattern[:at]}(?:{pattern[head.end() :]}"
    return pattern


def _is_group(pattern: str, at: int) -> bool:
    return pattern[at] == "(" and (pattern[at + 1] != "?" or pattern.startswith("(?P<", at))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

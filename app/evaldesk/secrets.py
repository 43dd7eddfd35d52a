"""Secrets: taken out of text before it reaches the database, a log, a page or an export (decision 043).

And the variables that hold the keys of models, of which only the names are told.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from evaldesk.secret_shapes import WORD, bits_of, has_shape, machine_words, mask_shapes

_MIN_LENGTH = 8
_WORD = re.compile(r"[a-z_]{1,15}|[A-Z_]{1,15}|[A-Z][a-z]{1,14}|\d{1,11}")
_PARTS = re.compile(r"[A-Z]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SECRET_PARTS = (
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "ACCESSKEY",
    "PRIVATEKEY",
    "MASTERKEY",
    "SIGNINGKEY",
    "ENCRYPTIONKEY",
    "LICENSEKEY",
    "MNEMONIC",
)
_GLUED = re.compile(
    r"(?:ADMIN|APP|DB|FTP|LDAP|MAIL|MARIADB|MONGO|MSSQL|MYSQL|ORACLE|PG|POSTGRES|REDIS|ROOT|SMTP|SQL|SSH|USER)(?:PW|PWD|PASS)"
)
_SECRET_ADDRESSES = frozenset({"WEBHOOK", "SECRET"})
_SECRET_WORDS = frozenset(
    {
        *(
            "AUTH",
            "AUTHORIZATION",
            "COOKIE",
            "CRED",
            "CREDS",
            "DSN",
            "JWT",
            "KEY",
            "KEYS",
            "PASS",
            "PASSWORT",
            "PAT",
            "PSK",
        ),
        *("PSWD", "PW", "PWD", "SALT", "SAS", "WEBHOOK"),
    }
)
# What stands behind such a name is a place, a size or a label: SSL_KEY_FILE, OAUTH_TOKEN_URL, TOKEN_LIMIT.
_PLAIN_ENDS = frozenset(
    {
        *("ALGORITHM", "BINDINGS", "COLUMN", "COLUMNS", "FIELD", "FIELDS", "FORMAT", "LAYOUT", "MAP", "NAMESPACE"),
        *("POLICY", "PREFIX", "REGION", "SUFFIX", "VERSION"),
        *("COUNT", "DIR", "DIRECTORY", "ENABLED", "ENDPOINT", "ENV", "EXPIRY", "FILE", "FOLDER", "HOME", "HOST", "ID"),
        *("LENGTH", "LIMIT", "LOCATION", "METHOD", "MODE", "NAME", "PARALLELISM", "PATH", "PORT", "PROVIDER", "SIZE"),
        *("SOCK", "SOCKET", "TIMEOUT", "TTL", "TYPE", "URI", "URL", "USER", "USERNAME"),
    }
)
_PLAIN_NAMES = frozenset({"GOOGLE_APPLICATION_CREDENTIALS", "OLDPWD", "PWD"})
# What looks like chance under such a name identifies a thing, and answers may well name it.
_IDENTITIES = (
    *("BRANCH", "BUILD", "COLOR", "COMMIT", "DIGEST", "DISPLAY", "FINGERPRINT", "GUID", "HASH", "HOST", "IMAGE"),
    *("PATH", "PYTHON", "RELEASE", "REVISION", "SHA", "TAG", "UUID", "VERSION"),
)
_RUN = re.compile(r"[A-Za-z0-9]{20,}")
_ONE_TOKEN = re.compile(r"[\w+/=~-]{20,512}")
_MIN_BITS = 3.2
_USERINFO = re.compile(r"://([^\s/:@\"'\\]{0,64}):([^\s/@\"'\\]{3,128})@")
_USER_TOKEN = re.compile(r"://([^\s/:@\"'\\]{8,256})@")
_VARIABLE = re.compile(r"\$\{[A-Za-z_]\w{0,100}\}")
"""The name of a variable in the place of its value, as in `https://oauth2:${GITLAB_TOKEN}@host`."""
_SETTING = re.compile(r"(?i)(?:password|pwd|secret|token|sig|accesskey|accountkey|api_?key)=([^;&\s\"']{8,})")
_LONG_LINE = 20

# What keys of the common providers look like, under what stands in each of them: Google, GitHub, GitLab, Hugging Face,
# Groq, xAI, Slack, AWS, Stripe, npm, PyPI, SendGrid, Databricks, private keys, and whatever stands behind `Bearer`.
_SHAPES = {
    "Bearer": re.compile(r"(?<=Bearer\s)[\w.~+/=-]{8,}", re.A),
    "AIza": re.compile(WORD + r"AIza[\w-]{30,}", re.A),
    **{f"gh{kind}_": re.compile(rf"{WORD}gh{kind}_\w{{30,}}", re.A) for kind in "pousr"},
    "github_pat_": re.compile(WORD + r"github_pat_\w{30,}", re.A),
    "glpat-": re.compile(WORD + r"glpat-[\w-]{20,}", re.A),
    "hf_": re.compile(WORD + r"hf_\w{20,}", re.A),
    "gsk_": re.compile(WORD + r"gsk_\w{20,}", re.A),
    "xai-": re.compile(WORD + r"xai-\w{20,}", re.A),
    **{f"xox{kind}-": re.compile(rf"{WORD}xox{kind}-[\w-]{{10,}}", re.A) for kind in "abprs"},
    "AKIA": re.compile(WORD + r"AKIA[A-Z0-9]{16}\b", re.A),
    "ASIA": re.compile(WORD + r"ASIA[A-Z0-9]{16}\b", re.A),
    **{f"{kind}_live_": re.compile(rf"{WORD}{kind}_live_\w{{16,}}", re.A) for kind in ("sk", "rk", "pk")},
    "whsec_": re.compile(WORD + r"whsec_[\w+/=]{16,}", re.A),
    "npm_": re.compile(WORD + r"npm_\w{30,}", re.A),
    "pypi-A": re.compile(WORD + r"pypi-A[\w-]{30,}", re.A),
    "SG.": re.compile(WORD + r"SG\.[\w-]{16,}\.[\w-]{16,}", re.A),
    "dapi": re.compile(WORD + r"dapi[0-9a-f]{32}\b", re.A),
    "PRIVATE KEY-----": re.compile(r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[\w+/=\s\\]{20,}", re.A),
}

# OpenAI's and Anthropic's, which have a digit, and JSON web tokens, which have three parts. What only begins like one
# is matched as well, or a long text of such beginnings would be read to its end from each of them.
_KEYS = re.compile(WORD + r"[spr]k-[\w-]{20,}", re.A)
_DIGIT = re.compile(r"\d")
_WEB_TOKENS = re.compile(WORD + r"eyJ[\w-]{10,}(\.[\w-]{10,}\.[\w-]{10,})?", re.A)

_RARE = "JzxKSB-_"
"""Characters of the marks that are seldom in JSON: one search for each of them takes a fifth of one for each mark."""


def _searches(marks: Iterable[str]) -> list[re.Pattern[bytes]]:
    """The patterns of the marks, each by its rarest character with its other characters around it."""
    around: dict[str, list[str]] = {}
    for mark in marks:
        place = min(
            (mark.index(each) for each in _RARE if each in mark), key=lambda at: _RARE.index(mark[at]), default=0
        )
        before, after = re.escape(mark[: place + 1]), re.escape(mark[place + 1 :])
        around.setdefault(mark[place], []).append(f"(?<={before}){after}")
    return [re.compile(f"{re.escape(rare)}(?:{'|'.join(each)})".encode()) for rare, each in around.items()]


_MARKS = _searches(mark for mark in _SHAPES if mark != "Bearer")
_WEB_TOKEN_BYTES = re.compile(rb"eyJ[\w-]{10,}(\.[\w-]{10,}\.[\w-]{10,})?")
_LONG_AFTER_K = re.compile(rb'[spr]k-[^\s"\\]{20}')
_USERINFO_BYTES = re.compile(rb"://[^\s/:@\"'\\]{0,64}:[^\s/@\"'\\]{3,128}@")
SHAPE = "a text like a key"
"""The name of a secret that no variable holds."""


def scrub(text: str, environment: Mapping[str, str]) -> str:
    """`text` with the values of secret environment variables, and texts like a provider's key, replaced."""
    return scrubber(environment)(text)


def scrubber(environment: Mapping[str, str]) -> Callable[[str], str]:
    """`scrub` for many texts with one environment; a known value is replaced by its name in brackets."""
    return scrubber_of(known_values(environment))


def scrubber_of(names_by_value: Mapping[str, str], counts: Counter[str] | None = None) -> Callable[[str], str]:
    """As `scrubber`, for values that `known_values` gave; `counts` counts them by the names of their variables."""
    names = {form: name for value, name in names_by_value.items() for form in forms(value)}
    longest_first = sorted(names, key=len, reverse=True)
    values = re.compile("|".join(re.escape(value) for value in longest_first)) if names else None
    counter: Counter[str] = Counter() if counts is None else counts

    def replace_value(match: re.Match[str]) -> str:
        name = names[match[0]]
        counter[name] += 1
        return f"[{name}]@" if match[0].endswith("@") else f"[{name}]"

    def shaped(match: re.Match[str]) -> str:
        counter[SHAPE] += 1
        return "[secret]"

    def of_service(shape: str) -> str:
        counter[f"{SHAPE} ({shape})"] += 1
        return "[secret]"

    def userinfo(match: re.Match[str]) -> str:
        if match[2].startswith("[") or _VARIABLE.fullmatch(match[2]) or not _is_strange(match[2], 6):
            return match[0]
        counter[SHAPE] += 1
        return f"://{match[1]}:[secret]@"

    def scrubbed(text: str) -> str:
        if values:
            text = values.sub(replace_value, text)
        text = _without_common_keys(text, shaped)
        if "://" in text and "@" in text:
            text = _USERINFO.sub(userinfo, text)
        return mask_shapes(text, of_service)

    return scrubbed


def _without_common_keys(text: str, shaped: Callable[[re.Match[str]], str]) -> str:
    if "k-" in text:
        text = _KEYS.sub(lambda match: shaped(match) if _DIGIT.search(match[0]) else match[0], text)
    if "eyJ" in text:
        text = _WEB_TOKENS.sub(lambda match: shaped(match) if match[1] else match[0], text)
    for mark, shape in _SHAPES.items():
        if mark in text:
            text = shape.sub(shaped, text)
    return text


def known_values(environment: Mapping[str, str]) -> dict[str, str]:
    """The secret values of an environment, with the names of their variables."""
    return {value: name for name, text in environment.items() for value in _secrets_in(name, text)}


def mask_values(value: Any, name: str = "", *, scrub: Callable[[str], str] = str, without: str = "") -> Any:
    """A value of JSON without the texts that are secrets by the names that lead to them, such as `[api_key]`.

    `scrub` goes over the other texts; entries with `without` in their name are left out.
    """
    if isinstance(value, Mapping):
        items = {key: item for key, item in value.items() if not (without and without in key.lower())}
        return {key: mask_values(item, f"{name}_{key}", scrub=scrub, without=without) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [mask_values(item, name, scrub=scrub, without=without) for item in value]
    if not isinstance(value, str):
        return value
    name = name.removeprefix("_")
    return scrub(scrubber_of(known_values({name: value}))(value))


@lru_cache(maxsize=4_000)  # asked of every variable for every frame that a worker sends
def _secrets_in(name: str, text: str) -> tuple[str, ...]:
    """The secrets in one variable: its value, lines of it, or the password of a URL or a connection string."""
    if len(text) < 5 or name.upper() in _PLAIN_NAMES:
        return ()
    return tuple(dict.fromkeys(_found_in(name, text)))


def _found_in(name: str, text: str) -> Iterator[str]:
    if (_is_secret(name) and _is_strange(text, _MIN_LENGTH)) or _looks_random(name, text):
        yield text
        lines = text.splitlines() if "\n" in text else ()
        yield from (line.strip() for line in lines if len(line.strip()) >= _LONG_LINE and "-----" not in line)
    for user, password in _USERINFO.findall(text):
        yield f"{user}:{password}@"
        yield from (each for each in (password, unquote(password)) if _is_strange(each, _MIN_LENGTH))
    yield from (user for user in _USER_TOKEN.findall(text) if _RUN.search(user))
    if "=" in text:
        yield from (value for value in _SETTING.findall(text) if _is_strange(value, _MIN_LENGTH))


def _is_secret(name: str) -> bool:
    """Whether the name of a variable says that its value is a secret: a part such as TOKEN, PW or KEY."""
    upper = _CAMEL.sub("_", name).upper()
    parts = _PARTS.findall(upper)
    if not parts:
        return False
    if parts[-1] in _PLAIN_ENDS:
        return parts[-1] in {"URL", "URI"} and not _SECRET_ADDRESSES.isdisjoint(parts[-2:-1])
    if any(_GLUED.fullmatch(part) for part in parts):
        return True
    letters = "".join(parts)
    return any(part in letters for part in _SECRET_PARTS) or any(part in _SECRET_WORDS for part in parts)


def _is_strange(value: str, shortest: int) -> bool:
    """Whether a value would hardly be found in ordinary text: not short, no single word and no small number."""
    return len(value) >= shortest and not _WORD.fullmatch(value)


def _looks_random(name: str, value: str) -> bool:
    """Whether a value under any name has the entropy of a key; ids do not count."""
    upper = name.upper()
    if not _ONE_TOKEN.fullmatch(value) or value.startswith("/") or any(word in upper for word in _IDENTITIES):
        return False
    if upper.rpartition("_")[2] in _PLAIN_ENDS:
        return False
    return any(_is_random(run) for run in _RUN.findall(value))


def _is_random(run: str) -> bool:
    n_digits = sum(map(str.isdigit, run))
    if n_digits < 3 or len(run) - n_digits < 3:
        return False
    return bits_of(run) >= _MIN_BITS


@lru_cache(maxsize=1_000)
def forms(value: str) -> tuple[str, ...]:
    """How a secret may stand in a text: as it is, as JSON, Python, HTML and URLs escape it, in hex and in base64."""
    if value.endswith("@"):  # of a URL
        return (value,)
    raw = value.encode("utf-8", "replace")
    in_json = json.dumps(value)[1:-1]
    escapes = [in_json, json.dumps(value, ensure_ascii=False)[1:-1], in_json.replace("/", "\\/"), repr(value)[1:-1]]
    escapes += [in_json.translate(each) for each in _IN_JSON] + [value.translate(each) for each in _IN_HTML]
    quoted_url, path, plus = quote(value, safe=""), quote(value), quote_plus(value)
    in_url = (
        quoted_url,
        path,
        plus,
        *(_PERCENT.sub(lambda match: match[0].lower(), each) for each in (quoted_url, path, plus)),
    )
    base64_forms = tuple(_in_base64(raw, n_before) for n_before in range(3))
    url_safe = tuple(text.replace("+", "-").replace("/", "_") for text in base64_forms)
    return tuple(dict.fromkeys((value, *escapes, *in_url, raw.hex(), raw.hex().upper(), *base64_forms, *url_safe)))


_PERCENT = re.compile("%[0-9A-F]{2}")
# What writers of JSON (Go, Gson, .NET) and of HTML escape beside what they must.
_IN_JSON = [
    str.maketrans({letter: f"\\u{ord(letter):{case}}" for letter in letters})
    for letters, case in (("<>&", "04x"), ("<>&='", "04x"), ("<>&+'`", "04X"))
]
_IN_HTML = [
    str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | quotes)
    for quotes in (
        *({}, {'"': "&quot;"}, {'"': "&#34;", "'": "&#39;"}),
        *({'"': "&quot;", "'": f"&#{code};"} for code in ("x27", "39", "039")),
    )
]


def _in_base64(raw: bytes, n_before: int) -> str:
    """The base64 characters that depend on `raw` alone, by the number of bytes before it modulo three."""
    text = b64encode(b"\0" * n_before + raw).decode().rstrip("=")
    n_bits = 8 * (n_before + len(raw))
    return text[-(-8 * n_before // 6) : n_bits // 6]


def may_hold_key(data: bytes) -> bool:
    """Whether something in JSON may look like a provider's key; in microseconds, and seldom yes for nothing.

    All marks but `Bearer` and the password of an address stand in or before a long run of letters, so that prose and
    numbers are looked over once.
    """
    words = machine_words(data)
    return (
        b"Bearer" in data
        or (b"://" in data and b"@" in data and bool(_USERINFO_BYTES.search(data)))
        or (
            bool(words)
            and (
                any(mark.search(words) for mark in _MARKS)
                or (b"k-" in words and bool(_LONG_AFTER_K.search(words)))
                or (b"eyJ" in words and any(match[1] for match in _WEB_TOKEN_BYTES.finditer(words)))
                or has_shape(words)
            )
        )
    )


class StreamScrubber:
    """Scrubs a text that comes in pieces: a possible beginning of a secret is held back until more of it comes."""

    def __init__(self, names_by_value: Mapping[str, str]) -> None:
        self._scrub = scrubber_of(names_by_value)
        self._cut = [form for value in names_by_value for form in forms(value) if not _UNCUT.fullmatch(form)]
        self._held = ""

    def feed(self, piece: str) -> str:
        """The text that is safe to be shown after this piece; empty while all of it is held back."""
        text = self._held + piece
        end = self._end(text)
        self._held = text[end:]
        return self._scrub(text[:end])

    def flush(self) -> str:
        """The text that was held back, at the end."""
        text, self._held = self._held, ""
        return self._scrub(text)

    def _end(self, text: str) -> int:
        """Where the text may be cut: before its last word, and before anything longer that it may belong to."""
        if len(text) > MAX_HELD:
            return len(text)
        end = min([len(text), *(len(text) - _overlap(text, form) for form in self._cut)])
        block = text.rfind("-----BEGIN")
        if block >= 0 and "-----END" not in text[block:]:
            end = min(end, block)
        before = -1
        while end != before:
            before, end = end, self._before_whole(text, _word_start(text, end))
        return end

    def _before_whole(self, text: str, end: int) -> int:
        """The place, or the beginning of a secret that would be cut there."""
        places = (text.find(form, max(0, end - len(form) + 1), end + len(form) - 1) for form in self._cut)
        return min([end, *(start for start in places if start >= 0)])


MAX_HELD = 8_192
_UNCUT = re.compile(r"[!-~]+")
_PRINTABLE = "".join(map(chr, range(ord("!"), ord("~") + 1)))


_OPENING = 40
_OPENINGS = ("bearer", "basic", "curl", "-u", "--user", ":", "=", "key", "token", "secret", "password", "pwd", "cookie")
"""What the key behind it is known by."""


def _word_start(text: str, end: int) -> int:
    """The beginning of the word that ends there; a word after `Bearer` or `api_key=` begins with that."""
    end = len(text[:end].rstrip(_PRINTABLE))
    while text[max(0, end - _OPENING) : end].lower().rstrip(" \t\r\n\"'\\").endswith(_OPENINGS):
        end = len(text[:end].rstrip().rstrip(_PRINTABLE))
    return end


def _overlap(text: str, form: str) -> int:
    """The number of characters at the end of `text` that begin `form`."""
    most = min(len(form) - 1, len(text))
    return next((n for n in range(most, 0, -1) if text.endswith(form[:n])), 0)


# The keys of models. A table of our own for the usual providers: LiteLLM knows them all, but takes 1.7 s to import.

KEYS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure": ("AZURE_API_KEY",),
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "xai": ("XAI_API_KEY",),
}
_BARE = {"claude-": "anthropic", "gemini-": "gemini", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
_ELSEWHERE = frozenset({"azure", "bedrock"})  # a role, a file or a token of the machine serves as well
_VERTEX = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


def missing_keys(model: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The missing variables of `model`, alternatives as `A or B`; empty when all are set.

    Empty, too, for a provider that the table does not know, or whose key may be in another place: with the machine, at
    an address of its own, or in LiteLLM's settings, where the user's code put it.
    """
    provider = provider_of(model)
    names = () if provider in _ELSEWHERE or _is_known(provider) else KEYS.get(provider, ())
    if any(environment.get(f"{provider.upper()}_{end}") for end in ("API_BASE", "BASE_URL")):
        return ()
    if provider == "gemini" and any(environment.get(name, "").lower() in {"1", "true"} for name in _VERTEX):
        return ()
    if not names or any(environment.get(name) for name in names):
        return ()
    return (" or ".join(names),)


def set_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables that are set, and of those whose value the user's code gave LiteLLM."""
    client_names = (name for provider, names in KEYS.items() if _is_known(provider) for name in names)
    return tuple(sorted({name for name, value in environment.items() if value} | {*client_names}))


def _is_known(provider: str) -> bool:
    """Whether user code set `litellm.api_key` or `litellm.openai_key`."""
    litellm = sys.modules.get("litellm")
    return any(getattr(litellm, name, None) for name in ("api_key", f"{provider}_key"))


def provider_of(model: str) -> str:
    """`openai` of `openai/gpt-4o`; of a bare name that everybody knows, too; empty where it cannot be told."""
    provider, slash, _ = model.partition("/")
    if slash:
        return provider
    return next((provider for start, provider in _BARE.items() if model.startswith(start)), "")

"""Secrets in text."""

from __future__ import annotations

import base64
import html
import json
import random
from urllib.parse import quote, quote_plus

import markupsafe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.secret_shapes import machine_words
from evaldesk.secrets import _SHAPES, StreamScrubber, known_values, may_hold_key, scrub
from evaldesk.wire import from_json, json_scrubber, to_json

ENVIRONMENT = {
    "OPENAI_API_KEY": "correct-horse-battery",
    "LONGER_API_KEY": "correct-horse-battery-staple",
    "SHOP_TOKEN": "short",
    "DB_PASSWORD": "postgres",
    "ODD_SECRET": 'with "quotes"\n\\ and é',
    "HOME": "/somewhere/else",
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    TEXTS := [
        ("key correct-horse-battery!", "key [OPENAI_API_KEY]!"),
        ("correct-horse-battery-staple", "[LONGER_API_KEY]"),
        ("a short word in /somewhere/else", "a short word in /somewhere/else"),
        ("sk-proj-abcDEF1234567890abcdef", "[secret]"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "[secret]"),
        ("Authorization: Bearer abcdef.123456", "Authorization: Bearer [secret]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[secret]"),
        ("AKIAABCDEFGHIJKLMNOP", "[secret]"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4", "[secret]"),
        ("a risk-averse-and-rather-long-word, task-2", "a risk-averse-and-rather-long-word, task-2"),
        ("sk-looks-like-a-key-but-has-no-digit", "sk-looks-like-a-key-but-has-no-digit"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0 only", "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0 only"),
        ("the postgres database", "the postgres database"),
        ('it is with "quotes"\n\\ and é.', "it is [ODD_SECRET]."),
        ("a line\nsk-proj-abcDEF1234567890abcdef", "a line\n[secret]"),
        ("", ""),
    ],
)
def test_secrets_are_replaced_and_words_are_not(text: str, wanted: str) -> None:
    assert scrub(text, ENVIRONMENT) == wanted


@pytest.mark.parametrize(("text", "wanted"), TEXTS)
def test_secrets_are_replaced_anywhere_in_a_value(text: str, wanted: str) -> None:
    value = {"events": [{"text": text, text: [1, None, 2**70]}]}

    clean = json_scrubber(ENVIRONMENT)(to_json(value))

    assert from_json(clean, object) == {"events": [{"text": wanted, wanted: [1, None, 2**70]}]}


def test_a_value_without_secrets_is_unchanged() -> None:
    data = to_json({"text": "a risk-averse word"})

    assert json_scrubber(ENVIRONMENT)(data) is data


def test_an_empty_environment_has_no_secrets() -> None:
    assert scrub("plain text", {}) == "plain text"


@pytest.mark.parametrize("beginning", ["sk-", "eyJ-", "sk-eyJ-"])
def test_a_long_text_of_beginnings_of_keys_is_read_once(beginning: str) -> None:
    """Read to its end from each of them, it would take minutes."""
    text = beginning * 50_000

    assert scrub(text, ENVIRONMENT) == text


RANDOM = "9f8Kq2LmZx41TbVw7Rjd"
SECRET_VARIABLES = {
    "OPENAI_API_KEY": f"sk-proj-{RANDOM}",
    "ANTHROPIC_API_KEY": RANDOM,
    "AZURE_OPENAI_KEY": RANDOM,
    "STRIPE_SECRET_KEY": RANDOM,
    "DJANGO_SECRET": RANDOM,
    "CLIENT_SECRET_V2": RANDOM,
    "GITHUB_TOKEN": RANDOM,
    "TOKEN_FOR_CI": RANDOM,
    "SLACK_BOT_TOKEN_PROD": RANDOM,
    "DB_PASSWORD": RANDOM,
    "PASSWORD_OF_DB": RANDOM,
    "PGPASSWORD": RANDOM,
    "MYSQL_PWD": RANDOM,
    "SMTP_PASS": RANDOM,
    "SSH_PASSPHRASE": RANDOM,
    "AWS_CREDENTIALS": RANDOM,
    "JIRA_PAT": RANDOM,
    "HTTP_BASIC_AUTH": RANDOM,
    "SESSION_COOKIE": RANDOM,
    "SIGNING_SALT": "saltsaltsalt888",
    "ADMIN_JWT": "header.of.claims",
    "SLACK_WEBHOOK": "https://hooks.slack.com/services/T0/B0/none",
    "SENTRY_DSN": f"https://{RANDOM}@errors.example.com/1",
    "DATABASE_URL": f"postgres://app:{RANDOM}@db:5432/shop",
    "HTTPS_PROXY": f"http://me:{quote(RANDOM + '/+', safe='')}@proxy:3128",
    "REPOSITORY": f"https://{RANDOM}@git.example.com/x.git",
    "STORAGE": f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={RANDOM}/x==;Suffix=core",
    "STRIPE": f"sk_live_{RANDOM}",
    "MY_SETTING": RANDOM,
    "api-key": RANDOM,
    "DB_PW": "Tr0ub4dor&3x",
    "DB_PW_2": "Tr0ub4dor&3x",
    "GCP_CREDS": "user1:opensesame",
    "CREDS_OF_CI": "user1:opensesame",
    "REGISTRY_CRED": "user1:opensesame",
    "STRIPE_KEY_LIVE": "live-4711-opensesame",
    "KEY_FOR_MAPS": "maps-4711-opensesame",
    "OPENAI_KEY1": "first-4711-opensesame",
    "WIFI_PSK": "open sesame 4711",
    "AZURE_SAS": "sv=1&sp=r&se=2030",
    "dbPassword": "open sesame 4711",
    "stripeKeyLive": "live-4711-opensesame",
}
PLAIN_VARIABLES = {
    "PASSWORD": "test",
    "DB_PASSWORD": "postgres",
    "ADMIN_PASSWORD": "changeme",
    "APP_SECRET": "SECRET",
    "PIN_TOKEN": "12345678",
    "MAX_TOKENS": "4096",
    "TOKENIZERS_PARALLELISM": "false",
    "TOKEN_LIMIT": "1234567890123",
    "GOOGLE_APPLICATION_CREDENTIALS": "/srv/me/keys/project-1234.json",
    "SSL_KEY_FILE": "/etc/ssl/private/server.key",
    "OAUTH_TOKEN_URL": "https://login.example.com/oauth2/v2.0/token",
    "SSH_AUTH_SOCK": "/tmp/ssh-XXXXabc123/agent.99",
    "PWD": "/srv/me/evaldesk-1234567890",
    "OLDPWD": "/srv/me/evaldesk-0987654321",
    "HOME": "/srv/me",
    "PATH": "/usr/local/bin:/usr/bin",
    "HOSTNAME": "runner-abc123def456ghi789jkl-project-7",
    "GITHUB_SHA": "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "INVOCATION_ID": "0123456789abcdef0123456789abcdef",
    "PYTHON_SHA256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "LANG": "en_US.UTF-8",
    "BASE_URL": "http://127.0.0.1:8000/v1",
    "KEYBOARD": "pc105-layout-de-nodeadkeys",
    "MONKEY": "a perfectly ordinary animal",
    "PRIMARY_KEY_COLUMN": "customer_id, order_id",
    "REDIS_KEY_PREFIX": "evaldesk:cache:v2",
    "KEY_ALGORITHM": "rsa-sha2-512",
    "PWA_NAME": "a progressive web app",
}


@pytest.mark.parametrize("name", SECRET_VARIABLES)
def test_names_and_forms_of_variables_decide_about_secrets(name: str) -> None:
    environment = {name: SECRET_VARIABLES[name]}

    said = scrub(f"it is {SECRET_VARIABLES[name]}.", environment)

    assert RANDOM not in said
    assert "it is" in said
    assert known_values(environment)


@pytest.mark.parametrize("name", PLAIN_VARIABLES)
def test_other_variables_and_ordinary_words_are_left_alone(name: str) -> None:
    text = f"it is {PLAIN_VARIABLES[name]}, {name.lower()} and a test of postgres."

    assert scrub(text, {name: PLAIN_VARIABLES[name]}) == text


def test_a_short_password_of_a_url_is_masked_in_the_url_only() -> None:
    environment = {"DATABASE_URL": "postgres://app:cat@db/shop"}

    assert scrub("the cat sat on postgres://app:cat@db/shop", environment) == (
        "the cat sat on postgres://[DATABASE_URL]@db/shop"
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("see https://me:hunter22@example.com/x", "see https://me:[secret]@example.com/x"),
        ("git https://oauth2:${GITLAB_TOKEN}@host/r", "git https://oauth2:${GITLAB_TOKEN}@host/r"),
        ("git https://oauth2:${hunter22@host/r", "git https://oauth2:[secret]@host/r"),
        ("see postgres://user:password@localhost/db", "see postgres://user:password@localhost/db"),
        ("see http://127.0.0.1:8000/a@b and c://d:1@e", "see http://127.0.0.1:8000/a@b and c://d:1@e"),
        (f"glpat-{RANDOM}", "[secret]"),
        (f"sk_live_{RANDOM}", "[secret]"),
        ("a hash is e3b0c44298fc1c149afbf4c8996fb92427ae41e4", "a hash is e3b0c44298fc1c149afbf4c8996fb92427ae41e4"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA75Zx\n-----END", "[secret]-----END"),
    ],
)
def test_a_text_like_a_key_is_masked_whatever_the_environment(text: str, wanted: str) -> None:
    assert scrub(text, {}) == wanted


VALUE = 'p+/&"é\n9f8Kq2LmZx'
MARKED = "p+/&\"<'>\\=9f8Kq2LmZx"


@pytest.mark.parametrize(
    "form",
    [
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        quote(VALUE),
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        *(base64.b64encode(b"user:"[:n] + VALUE.encode() + b"!tail").decode() for n in range(4)),
        *(base64.urlsafe_b64encode(b"user:"[:n] + VALUE.encode()).decode() for n in range(4)),
    ],
)
def test_encoded_secrets_are_masked(form: str) -> None:
    text = f"<{form}>"

    said = scrub(text, {"MY_SECRET": VALUE})

    assert "[MY_SECRET]" in said
    assert from_json(json_scrubber({"MY_SECRET": VALUE})(to_json([text])), list) == [said]


@pytest.mark.parametrize(
    "form",
    [
        html.escape(MARKED),
        html.escape(MARKED, quote=False),
        str(markupsafe.escape(MARKED)),
        html.escape(MARKED).replace("&#x27;", "&#039;"),
        repr({"password": MARKED}),
        repr(MARKED.encode()),
        json.dumps(MARKED).replace("/", r"\/"),
        quote(MARKED, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3C", "%3c").replace("%3E", "%3e")
        .replace("%5C", "%5c").replace("%3D", "%3d"),
        json.dumps(MARKED).replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"),
        json.dumps(MARKED).replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
        .replace("=", r"\u003d").replace("'", r"\u0027"),
        json.dumps(MARKED).replace("<", r"\u003C").replace(">", r"\u003E").replace("&", r"\u0026")
        .replace("+", r"\u002B").replace("'", r"\u0027"),
    ],
    ids=["HTML", "XML", "Jinja", "PHP", "Python", "bytes", "JSON of PHP", "a URL in lower case", "Go", "Gson", ".NET"],
)  # fmt: skip
def test_secrets_are_masked_as_pages_and_programs_write_them(form: str) -> None:
    said = scrub(f"<{form}>", {"MY_SECRET": MARKED})

    assert "[MY_SECRET]" in said
    assert "9f8Kq2LmZx" not in said


@pytest.mark.parametrize("value", [VALUE, MARKED], ids=["words", "marks"])
def test_nothing_of_a_secret_is_left_beside_its_mask(value: str) -> None:
    for written in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]):
        assert scrub(f"<{written}>", {"MY_SECRET": value}) == "<[MY_SECRET]>"
    for written in (quote(value, safe=""), quote(value), quote_plus(value), value.encode().hex(), html.escape(value)):
        assert scrub(f"<{written}>", {"MY_SECRET": value}) == "<[MY_SECRET]>"


def test_a_stream_is_cut_before_a_secret_and_nowhere_else_within_spaces() -> None:
    secret = "with some\nwords 12 in it"
    text = f"a b {secret} c d "
    start = text.index(secret)
    for end in range(1, len(text) + 1):
        stream = StreamScrubber({secret: "MY_SECRET"})

        shown = stream.feed(text[:end])

        whole = text[:end].rpartition(" ")[0] + " " if " " in text[:end] else ""
        if start < end < start + len(secret) + 1:
            assert shown == text[:start], end
        else:
            assert shown == scrub(whole, {"MY_SECRET": secret}), end


STREAMED = {"A_KEY": RANDOM, "B_SECRET": "with some\nwords 12 in it", "DATABASE_URL": f"db://me:{RANDOM}/x@host/y"}


@given(
    st.lists(st.sampled_from([*STREAMED.values(), " ", "\n", "word", "é", "Bearer ", f"ghp_{RANDOM * 2}", "some"])),
    st.integers(1, 9),
)
def test_a_secret_is_masked_across_the_pieces_of_a_stream(parts: list[str], size: int) -> None:
    text = "".join(parts)
    stream = StreamScrubber(known_values(STREAMED))

    told = [stream.feed(text[start : start + size]) for start in range(0, len(text), size)]
    said = "".join([*told, stream.flush()])

    assert said == scrub(text, STREAMED)


def test_a_stream_shows_each_word_when_the_next_begins() -> None:
    stream = StreamScrubber(known_values(STREAMED))

    assert [stream.feed(piece) for piece in ("Hel", "lo ", "world", ", 你", "好")] == [
        "",
        "Hello ",
        "",
        "world, 你",
        "好",
    ]
    assert stream.flush() == ""


def test_a_long_stream_without_a_space_is_flushed() -> None:
    stream = StreamScrubber({})

    assert sum(len(stream.feed("x" * 100)) for _ in range(1_000)) > 90_000


def test_random_values_under_plain_names_are_secret_and_words_are_not() -> None:
    chance = random.Random(4)
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    made = ["".join(chance.choices(alphabet, k=32)) for _ in range(200)]

    assert sum(bool(known_values({"SETTING": value})) for value in made) >= 170
    for plain in ("a-long-name-of-some-machine-in-the-cloud-17", "gpt-4o-mini-2024-07-18-turbo-preview", "1" * 40):
        assert not known_values({"SETTING": plain})


HEX, MIXED = "0a1b2c3d" * 4, "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9"
BODIES = {
    "AKIA": "A1B2C3D4E5F6G7H8",
    "ASIA": "A1B2C3D4E5F6G7H8",
    "dapi": HEX,
    "SG.": f"{MIXED}.{MIXED}",
    "Bearer": f" {MIXED}",
    "PRIVATE KEY-----": f"\\n{MIXED}",
}
KEYS = [
    *((("-----BEGIN " if mark.startswith("PRIVATE") else "") + mark + BODIES.get(mark, MIXED)) for mark in _SHAPES),
    *(f"eyJ{MIXED}.{MIXED}.{MIXED}", f"sk-proj-{MIXED}", f"pk-{MIXED}", "https://me:Aw0rd-4-you@host"),
]
AROUND = ["", " ", '"', "\\n", "…", "id", "x" * 80, "words of a sentence ", '"order_id": "', HEX, "1" * 40, "-"]


@given(
    st.lists(st.sampled_from(AROUND), max_size=4), st.sampled_from(KEYS), st.lists(st.sampled_from(AROUND), max_size=4)
)
def test_the_quick_check_matches_every_masked_text(before: list[str], key: str, after: list[str]) -> None:
    text = "".join((*before, key, *after))

    assert may_hold_key(text.encode()) or scrub(text, {}) == text


@pytest.mark.parametrize("key", KEYS)
def test_each_key_is_masked_and_matched_by_the_quick_check(key: str) -> None:
    assert scrub(key, {}) != key
    assert may_hold_key(key.encode())


@pytest.mark.parametrize(
    "text",
    [
        f'{{"order_id": "{HEX}", "uuid": "01234567-89ab-cdef-0123-456789abcdef", "price": 0.{"8" * 17}}}',
        "prose about tokens, keys and a secret_santa of 2026 " * 20,
    ],
    ids=["rows", "prose"],
)
def test_rows_of_ids_and_prose_have_no_machine_words(text: str) -> None:
    assert machine_words(text.encode()) == b""

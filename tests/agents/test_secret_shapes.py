"""Keys of services are masked by their shapes. All are made here, of pieces: none stands in this file."""

from __future__ import annotations

import json
import random
import re
import string
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from re import _constants as kinds  # type: ignore[attr-defined] # samples are made of parsed patterns
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from evaldesk.secret_shapes import RULES_FILE, Shape, bits_of, has_shape, machine_words, mask_shapes, shapes
from evaldesk.secrets import StreamScrubber, known_values, may_hold_key, scrubber_of

CHANCE = random.Random(36)
LOWER, UPPER, DIGITS, HEX = string.ascii_lowercase, string.ascii_uppercase, string.digits, "0123456789abcdef"
MIXED, TOKEN, BASE64 = LOWER + UPPER + DIGITS, LOWER + UPPER + DIGITS + "-_", LOWER + UPPER + DIGITS + "+/"


def made(n: int, letters: str = MIXED) -> str:
    """So many letters by chance, with a digit among them."""
    return "".join(CHANCE.choices(letters, k=n - 1)) + ("7" if "7" in letters else letters[0])


def _uuid() -> str:
    return "-".join(made(n, HEX) for n in (8, 4, 4, 4, 12))


# A text around each key; `{}` is the part that must not be seen afterwards.
SERVICES: dict[str, tuple[str, str]] = {
    "airtable": ("{}", f"pat{made(14)}.{made(64, HEX)}"),
    "alibaba": ("id {}.", "LT" + "AI" + made(20)),
    "anthropic": ("{}", "sk-" + "ant-api03-" + made(93, TOKEN) + "AA"),
    "aws_access_key": ("{}", "AK" + "IA" + made(16, UPPER + "234567")),
    "aws_bedrock": ("{}", "AB" + "SK" + made(120)),
    "aws_secret_key": ("aws_secret_access_key = {}", made(40, BASE64)),
    "aws_secret_key_json": ('{{"aws_secret_access_key": "{}"}}', made(40, BASE64)),
    "aws_session_token": ("AWS_SESSION_TOKEN={}", "IQo" + "J" + made(300, BASE64)),
    "aws_signed_url": ("https://b.s3.amazonaws.com/f?X-Amz-Date=1&X-Amz-Signature={}", made(64, HEX)),
    "azure_ad": ("secret '{}'", made(3) + "8" + "Q~" + made(34)),
    "azure_storage": ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};", made(86, BASE64) + "=="),
    "azure_service_bus": ("Endpoint=sb://a;SharedAccessKey={}", made(43, BASE64) + "="),
    "azure_sas": ("https://a.blob.core.windows.net/c?sv=2024&sp=r&sig={}", made(43) + "%3D"),
    "basic_authorization": ("Authorization: Basic {}", made(28) + "="),
    "cerebras": ("{}", "cs" + "k-" + made(48, LOWER + DIGITS)),
    "clojars": ("{}", "CLOJ" + "ARS_" + made(60, LOWER + DIGITS)),
    "cloudfront": ("https://d1.cloudfront.net/v?Expires=1&Signature={}&Key-Pair-Id=K", made(300) + "__"),
    "databricks": ("{}", "da" + "pi" + made(32, HEX)),
    "dingtalk": ("https://oapi.dingtalk.com/robot/send?access_token={}", made(64, HEX)),
    "digitalocean": ("{}", "dop" + "_v1_" + made(64, HEX)),
    "discord_bot": ("client.run({})", "M" + made(23) + "." + made(6) + "." + made(38)),
    "discord_webhook": ("https://discord.com/api/webhooks/123456789012345678/{}", made(68, TOKEN)),
    "docker": ("{}", "dckr" + "_pat_" + made(27, TOKEN)),
    "doppler": ("{}", "dp" + ".pt." + made(43)),
    "figma": ("{}", "fig" + "d_" + made(40, TOKEN)),
    "firecrawl": ("{}", "f" + "c-" + made(32, HEX)),
    "fireworks": ("{}", "f" + "w_" + made(24)),
    "fly": ("{}", "fo" + "1_" + made(43, TOKEN)),
    "github": ("token {},", "gh" + "p_" + made(36)),
    "github_fine_grained": ("{}", "github" + "_pat_" + made(82)),
    "gitlab": ("{}", "glp" + "at-" + made(20)),
    "gitlab_runner": ("{}", "glr" + "t-" + made(20)),
    "google_api": ("https://maps.googleapis.com/?key={}", "AI" + "za" + made(35)),
    "google_chat_webhook": ("https://chat.googleapis.com/v1/spaces/A/messages?key=a&token={}", made(43, TOKEN)),
    "google_oauth_secret": ("{}", "GOC" + "SPX-" + made(28, TOKEN)),
    "google_oauth_token": ("{}", "ya" + "29." + made(120, TOKEN)),
    "google_signed_url": ("https://storage.googleapis.com/b/f?X-Goog-Signature={}", made(512, HEX)),
    "grafana": ("{}", "gl" + "sa_" + made(32) + "_" + made(8, HEX)),
    "groq": ("{}", "gs" + "k_" + made(52)),
    "heroku": ("HEROKU_API_KEY={}", _uuid()),
    "hugging_face": ("{}", "h" + "f_" + made(34, LOWER + UPPER)),
    "ifttt": ("https://maker.ifttt.com/trigger/ev/with/key/{}", made(43, TOKEN)),
    "jina": ("{}", "ji" + "na_" + made(32, HEX) + made(28)),
    "langsmith": ("{}", "ls" + "v2_pt_" + made(32, HEX) + "_" + made(10, HEX)),
    "linear": ("{}", "lin" + "_api_" + made(40)),
    "mailchimp": ("mailchimp_key: {}", made(32, HEX) + "-us12"),
    "mailgun": ("mailgun_api_key={}", "ke" + "y-" + made(32, HEX)),
    "make_webhook": ("https://hook.eu2.make.com/{}", made(32, LOWER + DIGITS)),
    "neon": ("{}", "na" + "pi_" + made(64, LOWER + DIGITS)),
    "new_relic": ("{}", "NR" + "AK-" + made(27, UPPER + DIGITS)),
    "notion": ("{}", "nt" + "n_" + made(11, DIGITS) + made(35)),
    "notion_old": ("{}", "sec" + "ret_" + made(43)),
    "npm": ("_authToken={}", "np" + "m_" + made(36)),
    "nvidia": ("{}", "nv" + "api-" + made(64, TOKEN)),
    "openai": ("{}", "sk-" + "proj-" + made(74, TOKEN) + "T3Blbk" + "FJ" + made(74, TOKEN)),
    "openrouter": ("{}", "sk-" + "or-v1-" + made(64, HEX)),
    "perplexity": ("{}", "pp" + "lx-" + made(48)),
    "pinecone": ("{}", "pc" + "sk_" + made(50)),
    "postman": ("{}", "PM" + "AK-" + made(24, HEX) + "-" + made(34, HEX)),
    "pulumi": ("{}", "pu" + "l-" + made(40, HEX)),
    "pypi": ("{}", "pypi-" + "AgEIcHlwaS5vcmc" + made(80, TOKEN)),
    "replicate": ("{}", "r" + "8_" + made(37)),
    "rubygems": ("{}", "ruby" + "gems_" + made(48, HEX)),
    "sendgrid": ("{}", "S" + "G." + made(22, TOKEN) + "." + made(43, TOKEN)),
    "sentry_dsn": ("https://{}@o1.ingest.sentry.io/2", made(32, HEX)),
    "shopify": ("{}", "shp" + "at_" + made(32, HEX)),
    "slack_app": ("{}", "xap" + "p-1-A" + made(9, UPPER + DIGITS) + "-" + made(13, DIGITS) + "-" + made(64, HEX)),
    "slack_bot": ("{}", "xox" + "b-" + made(12, DIGITS) + "-" + made(12, DIGITS) + "-" + made(24)),
    "slack_cookie": ("{}", "xox" + "d-" + made(120)),
    "slack_webhook": ("https://hooks.slack.com/services/{}", f"T{made(8, UPPER)}/B{made(8, UPPER)}/{made(24)}"),
    "stripe": ("{}", "sk" + "_live_" + made(24)),
    "stripe_webhook": ("{}", "whs" + "ec_" + made(32)),
    "supabase": ("{}", "sb" + "p_" + made(40, HEX)),
    "tavily": ("{}", "tv" + "ly-dev-" + made(32)),
    "teams_webhook": (
        "curl https://acme.webhook.office.com/webhookb2/{}",
        f"{_uuid()}@{_uuid()}/IncomingWebhook/{made(32, HEX)}/{_uuid()}",
    ),
    "teams_workflow": (
        "https://prod-1.logic.azure.com/workflows/a/triggers/m/paths/invoke?sv=1.0&sig={}",
        made(43, TOKEN),
    ),
    "telegram": ("https://api.telegram.org/bot{}/sendMessage", made(10, DIGITS) + ":A" + "A" + made(33, TOKEN)),
    "telegram_bare": ("token is {}.", made(9, DIGITS) + ":A" + "A" + made(33)),
    "terraform": ("{}", made(14) + ".atlas" + "v1." + made(64)),
    "twilio": ("{}", "S" + "K" + made(32, HEX)),
    "vault": ("{}", "hv" + "s." + made(96)),
    "vercel_blob": ("{}", "vercel" + "_blob_rw_" + made(40)),
    "wecom": ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={}", _uuid()),
    "apify": ("{}", "apify" + "_api_" + made(36)),
    "azure_ai": ("{}", made(52) + "JQQ" + "J99" + made(26)),
    "azure_devops": ("{}", made(76) + "AZ" + "DO" + made(4)),
    "azure_functions": ("https://a.azurewebsites.net/api/f?code={}", made(54, TOKEN) + "=="),
    "bearer": ("authorization: bearer {}", made(40)),
    "basic": ("authorization: basic {}", made(28) + "="),
    "bitbucket": ("{}", "AT" + "BB" + made(32)),
    "buildkite": ("{}", "bk" + "ua_" + made(40, HEX)),
    "circleci": ("{}", "CCI" + "PAT_" + made(22) + "_" + made(40, HEX)),
    "cloudflare": ("{}", "cf" + "ut_" + made(40)),
    "connection": ("Driver=x;Server=y;Uid=a;Pwd={};", made(14)),
    "contentful": ("{}", "CF" + "PAT-" + made(43, TOKEN)),
    "cookie": ("Cookie: session={}", made(40)),
    "set_cookie": ("Set-Cookie: sid={}; HttpOnly", made(40)),
    "curl": ("curl -u admin:{} https://h", made(16)),
    "e2b": ("{}", "e2" + "b_" + made(40, HEX)),
    "elevenlabs": ("{}", "s" + "k_" + made(48, HEX)),
    "feishu": ("https://open.feishu.cn/open-apis/bot/v2/hook/{}", _uuid()),
    "hubspot": ("{}", "pat" + "-na1-" + _uuid()),
    "lark": ("https://open.larksuite.com/open-apis/bot/v2/hook/{}", _uuid()),
    "llamacloud": ("{}", "ll" + "x-" + made(48)),
    "n8n": ("https://n8n.acme.org/webhook/{}", _uuid()),
    "named_assignment": ("MISTRAL_API_KEY={}", made(32)),
    "named_header": ("X-API-KEY: {}", made(40, HEX)),
    "named_json": ('{{"api_key": "{}"}}', made(40)),
    "named_token": ("SNYK_TOKEN={}", _uuid()),
    "netlify": ("{}", "nf" + "p_" + made(40)),
    "posthog": ("{}", "ph" + "x_" + made(43)),
    "posthog_project": ("{}", "ph" + "c_" + made(43)),
    "render": ("{}", "rn" + "d_" + made(32)),
    "resend": ("{}", "r" + "e_" + made(8) + "_" + made(24)),
    "runpod": ("{}", "rp" + "a_" + made(40)),
    "sonar": ("{}", "sq" + "p_" + made(40, HEX)),
    "tailscale": ("{}", "ts" + "key-auth-" + made(17) + "-" + made(32)),
    "telegram_in_url": ("https://api.telegram.org/bot{}/sendMessage", made(10, DIGITS) + "%3AA" + "A" + made(33)),
    "xai": ("{}", "xa" + "i-" + made(80)),
    "alchemy": ("https://eth-mainnet.g.alchemy.com/v2/{}", made(32)),
    "asana": ("{}", "1/1" + made(15, DIGITS) + ":" + made(32, HEX)),
    "braintree": ("{}", "access_token" + "$production$" + made(16, LOWER + DIGITS) + "$" + made(32, HEX)),
    "browserbase": ("{}", "bb" + "_live_" + made(27)),
    "crates": ("{}", "ci" + "o" + made(32)),
    "cursor": ("{}", "ke" + "y_" + made(64, HEX)),
    "deno": ("{}", "dd" + "p_" + made(36)),
    "docker_config": ('{{"auth": "{}"}}', made(40) + "=="),
    "dropbox": ("{}", "s" + "l.u." + made(140, TOKEN)),
    "facebook": ("{}", "EA" + "A" + made(150)),
    "healthchecks": ("https://hc-ping.com/{}", _uuid()),
    "heroku_token": ("{}", "HR" + "KU-" + _uuid()),
    "heroku_variable": ("HEROKU_API_KEY={}", _uuid()),
    "infura": ("https://mainnet.infura.io/v3/{}", made(32, HEX)),
    "key_in_the_middle": ("MY_KEY_PROD={}", made(24)),
    "key_of_an_app": ("DD_APP_KEY={}", made(40, HEX)),
    "key_that_is_a_uuid": ("client = Client(api_key='{}')", _uuid()),
    "lob": ("{}", "li" + "ve_" + made(35, HEX)),
    "mailchimp_alone": ("{}", made(32, HEX) + "-us12"),
    "mailgun_alone": ("{}", "ke" + "y-" + made(32, HEX)),
    "mapbox": ("{}", "sk" + ".eyJ" + made(80) + "." + made(22)),
    "mattermost": ("https://chat.example.com/hooks/{}", made(26, LOWER + DIGITS)),
    "mem0": ("{}", "m" + "0-" + made(40)),
    "modal": ("{}", "a" + "k-" + made(22)),
    "netrc": ("machine example.com login bob password {}", made(14)),
    "notion_token": ("{}", "nt" + "n_" + made(46)),
    "okta": ("SSWS {}", "00" + made(40)),
    "passphrase": ("SMTP_PASS={}", made(16)),
    "password_of_a_call": ("login(user='bob', password='{}')", "Xy7$" + "kLm2Q"),
    "password_of_a_command": ("sshpass -p '{}' ssh", "zK4p" + "!Q9vTx"),
    "password_of_json": ('{{"password": "{}"}}', "S3cr" + "3t!pass"),
    "password_of_yaml": ("password: {}", "Tr0u" + "b4dor*3"),
    "short_pw": ("DB_PW={}", "a8Fk" + "2Lp9Zq"),
    "short_password": ("DB_PASSWORD={}", "hunt" + "er2X!"),
    "short_secret": ("secret = '{}'", "a8F!" + "k2Lp9"),
    "square": ("{}", "sq" + "0csp-" + made(43, TOKEN)),
    "wandb": ("wandb login {}", made(40, HEX)),
    "anyscale": ("{}", "esec" + "ret_" + made(36)),
    "brave": ("{}", "BS" + "A" + made(28, TOKEN)),
    "creds": ("CREDS=bob:{}", "a8Fk" + "2Lp9Z"),
    "creds_json": ('{{"credentials": "svc.reader:{}"}}', "a8Fk" + "2Lp9Z"),
    "daytona": ("{}", "dt" + "n_" + made(64, HEX)),
    "docker_login": ("docker login -u bob -p {} registry.example.com", "a8Fk" + "2Lp9Z!"),
    "google_script": ("https://script.google.com/macros/s/{}/exec", "AKfy" + "cb" + made(50, TOKEN)),
    "home_assistant": ("https://home.example.com/api/webhook/{}", made(40, TOKEN)),
    "humanloop": ("{}", "hl_" + "sk_" + made(48, HEX)),
    "ldap": ("ldapsearch -x -D cn=admin -w {} -b dc=example", "a8Fk" + "2Lp9Z!"),
    "mysql": ("mysql -h db -u root -p{} shop", "a8Fk" + "2Lp9Z"),
    "mysqldump": ("mysqldump -p'{}' shop", "a8Fk" + "2Lp9Z"),
    "openssl": ("openssl enc -pass pass:{} -in a", "a8Fk" + "2Lp9Z"),
    "option_password": ("tool --password {} --verbose", "a8Fk" + "2Lp9Z"),
    "option_token": ("tool --token {}", made(30)),
    "pagerduty": ("https://events.pagerduty.com/integration/{}/enqueue", made(32, HEX)),
    "pipedream": ("https://{}.m.pipedream.net", "eo" + made(13, LOWER + DIGITS)),
    "promptlayer": ("{}", "p" + "l_" + made(32, HEX)),
    "redis": ("redis-cli -h cache -a {} ping", "a8Fk" + "2Lp9Z"),
    "rocket_chat": ("https://chat.example.com/hooks/" + made(17) + "/{}", made(43)),
    "splunk": ("Authorization: Splunk {}", _uuid()),
    "tencent": ("{}", "AK" + "ID" + made(32)),
    "vault_old": ("X-Vault-Token: {}", "s" + "." + made(24)),
    "wandb_new": ("{}", "wandb" + "_v1_" + made(60)),
    "zhipu": ("ZHIPUAI_API_KEY={}", made(32, HEX) + "." + made(16)),
    "zapier": ("https://hooks.zapier.com/hooks/catch/123456/{}", made(7, LOWER + DIGITS)),
}


@pytest.mark.parametrize(("around", "key"), SERVICES.values(), ids=SERVICES)
def test_the_key_of_a_service_is_masked_in_texts_of_every_kind(around: str, key: str) -> None:
    text = around.format(key)
    texts = {
        "alone": text,
        "sentence": f"I found {text}, is it yours?",
        "next line": f"first\n{text}\nlast",
        "JSON in a text": json.dumps({"a": f"see\n{text}"}),
        "tag": f"<p>{text}</p>",
    }

    for place, each in texts.items():
        assert key not in scrubber_of({})(each), place
        assert may_hold_key(json.dumps({"text": each}).encode()), place


def test_there_are_shapes_of_sixty_services() -> None:
    assert len(SERVICES) >= 60


def test_a_mask_names_its_service() -> None:
    found: Counter[str] = Counter()

    scrubber_of({}, found)(SERVICES["discord_webhook"][0].format(SERVICES["discord_webhook"][1]))

    assert found == {"a text like a key (discord-webhook)": 1}


RULES = {shape.name: shape for shape in shapes() if shape.name in RULES_FILE.read_text("utf-8")}


def test_the_rules_of_gitleaks_are_there_with_their_licence() -> None:
    licence = RULES_FILE.with_name("secret_rules.LICENSE.txt").read_text("utf-8")

    assert len(RULES) > 190
    assert "MIT License" in licence
    assert "Zachary Rice" in licence


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_each_rule_matches_its_sample(shape: Shape) -> None:
    for attempt in range(200):
        sample = _sample(parser.parse(shape.pattern, re.ASCII))
        sample = "".join(CHANCE.choice((each, each.upper())) for each in sample) if attempt % 4 == 3 else sample
        mark = next(mark for mark in shape.marks)
        text = f"{sample}" if any(each in sample.lower() for each in shape.marks) else f"{mark} {sample}"
        if _masked(text) and any(True for _ in shape.spans(text)):
            break
    else:
        pytest.fail(f"no sample of {shape.pattern}")

    assert has_shape(machine_words(text.encode()))


def _masked(text: str) -> list[str]:
    """The names of the shapes that are masked in a text."""
    names: list[str] = []

    def replaced(name: str) -> str:
        names.append(name)
        return "[secret]"

    mask_shapes(text, replaced)
    return names


def _sample(parsed: Any) -> str:
    """A text that a parsed pattern matches, but for what it looks ahead and behind."""
    return "".join(_part(kind, value) for kind, value in parsed)


def _part(kind: Any, value: Any) -> str:
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.IN:
        return CHANCE.choice(_letters(value))
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
        least, most, inner = value
        n = least + 10 if most > 100_000 else CHANCE.choice((least, least, min(most, least + 20)))
        return "".join(_sample(inner) for _ in range(n))
    if kind is kinds.SUBPATTERN:
        _, added_flags, _, inner = value
        sample = _sample(inner)
        is_any_case = added_flags & re.IGNORECASE
        return "".join(CHANCE.choice((each, each.upper())) for each in sample) if is_any_case else sample
    if kind is kinds.BRANCH:
        return _sample(CHANCE.choice(value[1]))
    if kind is kinds.ANY:
        return "a"
    if kind is kinds.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    return ""  # AT, ASSERT, ASSERT_NOT


def _letters(options: Any) -> str:
    """The printable letters of a class."""
    if options[0][0] is kinds.NEGATE:
        return "".join(each for each in string.printable if each not in _letters(options[1:]))
    found = ""
    for kind, value in options:
        if kind is kinds.LITERAL:
            found += chr(value)
        elif kind is kinds.RANGE:
            found += "".join(map(chr, range(value[0], value[1] + 1)))
        elif value is kinds.CATEGORY_WORD:
            found += MIXED + "_"
        elif value is kinds.CATEGORY_DIGIT:
            found += DIGITS
        elif value in (kinds.CATEGORY_SPACE, kinds.CATEGORY_NOT_WORD):
            found += " "
    return found


@pytest.mark.long
def test_ten_megabytes_of_ordinary_text_have_at_most_one_false_mask() -> None:
    """The sources of Python: URLs, digests, tables, ids, messages and documentation."""
    found: list[str] = []
    n = 0

    for text in _sources():
        n += len(text)
        found += _masked(text)
        if n > 10_000_000:
            break

    assert n > 10_000_000
    assert len(found) <= 1, found


def _sources() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts:
            yield path.read_text("utf-8", "replace")


@pytest.mark.parametrize(
    "text",
    [
        "call_0f3a9b2c4d5e6f708192a3b4",
        "0af7651916cd43dd8448eb211c80319c",
        "https://github.com/a/b/commit/2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "the id is 123e4567-e89b-12d3-a456-426614174000",
        "task_scheduler_for_asia_pacific_2024 = skip_all_of_the_tests_2",
        "https://example.com/list?page=2&sort=created_at&filter=name_of_the_thing",
        "API_KEY=your-api-key-of-the-project",
        "api_key: <your-token-goes-here-1234>",
        "API_KEY=${MY_OTHER_API_KEY_2026}",
        'api_key = os.environ["OPENAI_API_KEY_2"]',
        "token = next_token_of_the_stream_2(text)",
        "the password: correcthorsebatterystaple",
        "max_tokens=4096, total_token_count: 1234567890123456",
        "token=00000000000000000000000000",
        "page_token=CAUQAA0x9fK3bQ72mZp1",
        "the bearer of_this_certificate_may_enter",
        "curl -u name:password_of_the_account https://h",
        "mysql -u root -p shop_2026 --port=3306",
        "docker login -u bob -p $DOCKER_PASSWORD_2",
        "tool --password password_of_the_account_2 --token $TOKEN2",
        "credentials: see https://example.com:8443/manual2",
        "creds = load:default_credentials_2",
        "def sign(private_key: PKCS7PrivateKeyTypes) -> bytes:",
        '"ClientToken": "a1b2c3d4-5678-90ab-cdef-EXAMPLE11111"',
        "rollouts/2026-11-28T19-35-01_hello_world_gpt-4o-mini-2024-07-18.jsonl",
    ],
)
def test_ids_are_not_masked(text: str) -> None:
    assert scrubber_of({})(text) == text


def test_only_the_ends_of_an_embedded_image_are_scanned() -> None:
    image = "data:image/png;base64," + "iVBORw0KGgo" * 100_000

    assert not has_shape(machine_words(image.encode()))
    assert mask_shapes(image, str) == image


@pytest.mark.parametrize("around", ["{0}/{1}/{0}", "{0}/{1}", "{1}/{0}", "{0}/{0}/{0}/{1}/{0}"])
@pytest.mark.parametrize("service", ["anthropic", "aws_access_key", "google_api", "posthog", "gitlab"])
def test_a_key_inside_of_a_long_run_is_masked(service: str, around: str) -> None:
    key = SERVICES[service][1]
    text = around.format("x4Y" * 1_700, key)

    assert may_hold_key(json.dumps({"text": text}).encode())
    assert key not in scrubber_of({})(text)


@pytest.mark.parametrize("service", SERVICES)
def test_the_quick_check_sees_each_text_that_would_be_masked(service: str) -> None:
    around, key = SERVICES[service]
    for text in (around.format(key), around.format(key).upper(), f"{'word ' * 40}{around.format(key)}", key[:30]):
        for document in (json.dumps({"text": text}), json.dumps({"text": json.dumps({"inner": text})})):
            if scrubber_of({})(text) != text:
                assert may_hold_key(document.encode()), document


@pytest.mark.parametrize(
    "name",
    [
        *("DBPW", "DBPASS", "MYSQLPWD", "MASTERKEY", "SIGNINGKEY", "ENCRYPTIONKEY"),
        *("SLACK_WEBHOOK_URL", "SECRET_URL", "MNEMONIC"),
    ],
)
def test_a_name_in_one_word_tells_of_a_secret(name: str) -> None:
    assert known_values({name: "Tr0ub4dor&3xyz"})


@pytest.mark.parametrize("name", ["MONKEY", "BYPASS", "TOKEN_URL", "HOTKEY", "CALLBACK_URL"])
def test_a_name_that_only_sounds_like_one_tells_of_none(name: str) -> None:
    assert not known_values({name: "Tr0ub4dor&3xyz"})


def test_a_long_name_is_told_from_a_key_in_linear_time() -> None:
    text = f"api_key={'a' * 500}1a {'api_key=' * 100}"

    assert scrubber_of({})(text) == text


@pytest.mark.parametrize("around", ["api_key: {}", "authorization: bearer {}", "curl -u admin:{} https://h"])
def test_a_named_key_in_a_stream_is_masked(around: str) -> None:
    key = made(40)
    stream = StreamScrubber({})

    shown = "".join(stream.feed(f"{piece} ") for piece in around.format(key).split(" ")) + stream.flush()

    assert key not in shown


def test_entropy_is_in_bits_per_character() -> None:
    assert (bits_of(""), bits_of("aaaa"), bits_of("abab"), bits_of("abcd")) == (0, 0, 1, 2)

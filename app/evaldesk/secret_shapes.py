"""The shapes of the keys of services: our own, and the rules of gitleaks as data (decision 445).

A text is first looked over for words that only machines make (runs of letters and digits) and for what must stand in
or near them; a rule is compiled when its mark is met for the first time.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

RULES_FILE = Path(__file__).with_name("secret_rules.json")
WORD = r"(?:\b|(?<=\\[bfnrt]))"
"""An edge of a word: `\\nkey` in JSON is a new line and a key."""
_QUERY = r"(?:[?&;]|\\u0026)"
# Without possessive repeats, which Python 3.10 lacks: what follows a word tells its end.
_WORDS_ONLY = (
    r"^(?:[A-Z]?[a-z]{2,}(?![a-z])|[A-Z]{2,}(?![A-Za-z])|[A-Za-z](?=[_/+=~.-]|$)|\d+[a-z]?(?![A-Za-z0-9])"
    r"|[A-Za-z]{1,2}\d{1,2}(?=[_/+=~.-]|$)|[_/+=~.-])*$"
)
"""A name of code, a placeholder or a number, such as `your-api-key`, `next_token_2` and `4096`."""
_VALUE = r"[\"'\\]{0,8}\s{0,3}[:=]{1,2}>?\s{0,3}[\"'\\]{0,8}([\w+/=~-]{16,512})(?![\w+/=~(.\[{$-])"
"""What stands between the name of a key and its value, and the value; not the call of a function."""


@dataclass(frozen=True, eq=False)
class Shape:
    """A service and its keys: one of the `marks` stands in or near each, in lower case; a group is the key itself."""

    name: str
    pattern: str
    marks: tuple[str, ...]
    min_bits: float = 0.0
    exceptions: tuple[str, ...] = ()
    any_case: bool = False
    """Whether the pattern, of small letters, is for letters of both cases: a text of small ones is looked at."""

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern, in which letters are those of ASCII, and a word may begin behind an escape of JSON."""
        return re.compile(self.pattern.replace(r"\b", WORD), re.ASCII | (re.IGNORECASE if self.any_case else 0))

    @cached_property
    def loose(self) -> re.Pattern[str]:
        """The pattern without its first word boundary, so that its prefix is searched for, ten times as fast."""
        return re.compile(self.pattern.removeprefix(r"\b").replace(r"\b", WORD), re.ASCII)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The places of the keys in a text."""
        for match in self.compiled.finditer(text):
            start, end = match.span(match.lastindex or 0)
            key = text[start:end]
            if bits_of(key) > self.min_bits and not any(re.search(each, key) for each in self.exceptions):
                yield start, end


# What the rules of gitleaks lack: webhooks, signed addresses, keys without the name of their service beside them.
_OWN = (
    Shape("airtable-token", r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}(?!\w)", ("pat",), 3),
    Shape(
        "aws-secret-key", r"(?i)aws_?secret_?(?:access_?)?key[\"'\\\s:=>]{1,14}([a-z0-9/+]{40})(?![\w/+=])", ("aws",), 3
    ),
    Shape("aws-session-token", r"\b(?:FwoG|IQoJ)[A-Za-z0-9/+]{100,1000}={0,2}", ("fwog", "iqoj"), 4),
    Shape(
        "azure-account-key",
        r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{43,86}={1,2})",
        ("accountkey=", "accesskey="),
        3,
    ),
    Shape(
        "authorization-header",
        r"(?i)authorization\W{1,8}(?:basic|bearer|token|bot|apikey|geniekey|ssws|splunk|key|apitoken)\s(?:token=)?([\w+/=~-]{12,2000})",
        ("authorization",),
        2.5,
        (_WORDS_ONLY,),
    ),
    Shape("apify-token", r"\bapify_api_[A-Za-z0-9]{30,50}(?!\w)", ("apify_api_",), 3),
    Shape(
        "azure-function-key",
        r"azurewebsites\.net/[\w/.-]{1,40}\?code=([\w%+/=-]{40,120})",
        ("azurewebsites.net",),
        3,
    ),
    Shape("azure-devops-token", r"\b[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}(?!\w)", ("azdo",), 4),
    Shape("azure-ai-key", r"\b[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,30}(?!\w)", ("jqqj99",), 4),
    Shape(
        "bearer-token", r"\bbearer\s{1,3}([\w.~+/=-]{20,2000})", ("bearer",), 3, (_WORDS_ONLY, r"^\D*$"), any_case=True
    ),
    Shape("bitbucket-password", r"\bATBB[A-Za-z0-9]{28,40}(?!\w)", ("atbb",), 3.5),
    Shape("buildkite-token", r"\bbkua_[0-9a-f]{40}(?!\w)", ("bkua_",), 3),
    Shape("cerebras-key", r"\bcsk-[a-z0-9]{40,64}(?!\w)", ("csk-",), 3),
    Shape("circleci-token", r"\bCCI(?:PAT|PRJ)_[A-Za-z0-9]{20,24}_[0-9a-f]{40}(?!\w)", ("ccipat_", "cciprj_"), 3),
    Shape("cloudflare-token", r"\bcf[ua]t_[A-Za-z0-9]{40,60}(?!\w)", ("cfut_", "cfat_"), 3.5),
    Shape(
        "connection-password",
        rf"(?i){_QUERY}\s?(?:pwd|password)=([^;&\s\"'\\<>{{}}$\[(]{{11,128}})",
        ("pwd=", "password="),
        2.8,
        (_WORDS_ONLY,),
    ),
    Shape("contentful-token", r"\bCFPAT-[\w-]{43}(?![\w-])", ("cfpat-",), 3.5),
    Shape(
        "curl-password",
        r"\bcurl\s[^\n|;]{0,20}?(?:-u|--user)[\s=][\"'\\]{0,2}[^\s:\"'\\]{1,20}:([\w+/=~!.-]{8,128})",
        ("curl",),
        2.5,
        (_WORDS_ONLY,),
        any_case=True,
    ),
    Shape("discord-bot-token", r"\b[MNO][A-Za-z\d_-]{23,27}\.[\w-]{6}\.[\w-]{27,45}(?![\w.-])", (".",), 4.2),
    Shape("discord-webhook", r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{15,20}/([\w-]{60,90})", ("/webhooks/",)),
    Shape("docker-token", r"\bdckr_[op]at_[\w-]{24,64}", ("dckr_",)),
    Shape("e2b-key", r"\be2b_[0-9a-f]{40}(?!\w)", ("e2b_",), 3),
    Shape("elevenlabs-key", r"\bsk_[0-9a-f]{48}(?!\w)", ("sk_",), 3),
    Shape(
        "feishu-webhook",
        r"open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/([\w-]{20,64})",
        ("/open-apis/bot",),
    ),
    Shape("figma-token", r"\bfig[dou]r?_[\w-]{36,64}", ("figd_", "figo_", "figu_", "figor_", "figur_")),
    Shape("firecrawl-key", r"\bfc-[0-9a-f]{32}(?!\w)", ("fc-",), 3),
    Shape("fireworks-key", r"\bfw_[A-Za-z0-9]{22,40}(?!\w)", ("fw_",), 3.5),
    Shape("google-oauth-secret", r"\bGOCSPX-[\w-]{28}", ("gocspx-",)),
    Shape("google-oauth-token", r"\bya29\.[\w-]{30,2000}", ("ya29.",), 3),
    Shape("google-refresh-token", r"(?<![\w/])1//0[\w-]{40,200}", ("1//0",), 3),
    Shape("hubspot-token", r"\bpat-(?:na|eu|ap)\d-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?!\w)", ("pat-",), 3),
    Shape(
        "ifttt-webhook",
        r"maker\.ifttt\.com/trigger/[\w-]{1,100}/(?:json/)?with/key/([\w-]{20,90})",
        ("maker.ifttt.com",),
    ),
    Shape("incoming-webhook", r"hooks\.(?:zapier|airtable|make)\.com/[\w/-]{1,60}/(\w{6,64})(?!\w)", ("hooks.",)),
    Shape("jina-key", r"\bjina_[0-9a-f]{32}[\w-]{20,40}", ("jina_",)),
    Shape("langsmith-key", r"\blsv2_[ps][tk]_[0-9a-f]{32}_[0-9a-f]{10}", ("lsv2_",)),
    Shape("linear-oauth", r"\blin_oauth_[a-f0-9]{40,64}", ("lin_oauth_",)),
    Shape("llamacloud-key", r"\bllx-[A-Za-z0-9]{40,64}(?!\w)", ("llx-",), 3.5),
    Shape("make-webhook", r"hook\.[a-z0-9]{2,6}\.make\.com/([a-z0-9]{32})", (".make.com",)),
    Shape("n8n-webhook", r"/webhook(?:-test)?/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?!\w)", ("/webhook",), 3),
    Shape("neon-key", r"\bnapi_[a-z0-9]{60,70}(?!\w)", ("napi_",)),
    Shape("netlify-token", r"\bnf[pcob]_[A-Za-z0-9]{36,40}(?!\w)", ("nfp_", "nfc_", "nfo_", "nfb_"), 3.5),
    Shape("new-relic-key", r"\bNRAK-[A-Z0-9]{27}(?!\w)", ("nrak-",)),
    Shape("notion-secret", r"\bsecret_[A-Za-z0-9]{43}(?!\w)", ("secret_",), 4),
    Shape("nvidia-key", r"\bnvapi-[\w-]{60,80}", ("nvapi-",)),
    Shape("pinecone-key", r"\bpcsk_\w{40,90}", ("pcsk_",)),
    Shape("posthog-key", r"\bph[xc]_[A-Za-z0-9]{40,48}(?!\w)", ("phx_", "phc_"), 3.5),
    Shape("render-key", r"\brnd_[A-Za-z0-9]{24,40}(?!\w)", ("rnd_",), 3.5),
    Shape("replicate-token", r"\br8_[A-Za-z0-9]{37}(?!\w)", ("r8_",)),
    Shape("resend-key", r"\bre_[A-Za-z0-9]{8}_[A-Za-z0-9]{22,26}(?!\w)", ("re_",), 3.5, (_WORDS_ONLY,)),
    Shape("runpod-key", r"\brpa_[A-Za-z0-9]{36,50}(?!\w)", ("rpa_",), 3.5),
    Shape("sentry-dsn", r"://([0-9a-f]{32})@", ("://",)),
    Shape(
        "signed-address",
        rf"(?i){_QUERY}(?:sig|signature|x-amz-signature|x-goog-signature|x-amz-security-token|x-oss-signature|q-signature|"
        r"hmac|access_token|auth_token|api_?key|token)=([\w%+/~.-]{16,2000})",
        ("sig=", "signature=", "token=", "hmac=", "apikey=", "api_key="),
        3,
    ),
    Shape("slack-token", r"\bxox[cde](?:\.xox[bp])?-[\w%-]{20,500}", ("xoxc", "xoxd", "xoxe"), 3),
    Shape(
        "slack-webhook", r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/([\w/]{30,90})", ("hooks.slack",)
    ),
    Shape(
        "session-cookie",
        r"\bcookie[^\n]{1,24}?(?:sess|sid|auth|token)\w{0,12}=([\w%.+/~-]{20,2000})",
        ("cookie",),
        3,
        (_WORDS_ONLY,),
        any_case=True,
    ),
    Shape("sonar-token", r"\bsq[pua]_[0-9a-f]{40}(?!\w)", ("sqp_", "squ_", "sqa_"), 3),
    Shape("supabase-key", r"\bs(?:bp_[0-9a-f]{40}|b_(?:secret|publishable)_[\w-]{24,50})", ("sbp_", "sb_secret_"), 3),
    Shape("tailscale-key", r"\btskey-[a-z]{3,12}-[A-Za-z0-9]{10,20}-[A-Za-z0-9]{20,40}(?!\w)", ("tskey-",), 3.5),
    Shape("tavily-key", r"\btvly-(?:dev-|prod-)?[A-Za-z0-9]{32}(?!\w)", ("tvly-",)),
    Shape("telegram-bot-token", r"(?<!\d)\d{8,10}(?::|%3[Aa])AA[\w-]{32,34}(?![\w-])", (":aa", "%3aaa"), 3),
    Shape("twilio-key", r"\bSK[0-9a-f]{32}(?!\w)", ("sk",), 3),
    Shape("vercel-blob-token", r"\bvercel_blob_rw_\w{30,64}", ("vercel_blob_",)),
    Shape("voyage-key", r"\bpa-[A-Za-z0-9_-]{43}(?![\w-])", ("pa-",), 4.2),
    Shape("wecom-webhook", r"qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=([0-9a-f-]{36})", ("qyapi.weixin",)),
)
# Keys that gitleaks takes only beside the name of their service, or not at all, and addresses that are secrets.
_OTHER = (
    Shape("alchemy-address", r"alchemy\.com/v2/([\w-]{32})(?![\w-])", ("alchemy.com",), 3.5),
    Shape("asana-token", r"(?<![\d/])[12]/1\d{11,18}(?:/\d{12,19})?:[0-9a-f]{32}(?!\w)", ("1/1", "2/1"), 3),
    Shape("braintree-token", r"access_token\$production\$[a-z0-9]{16}\$[0-9a-f]{32}(?!\w)", ("$production$",), 3),
    Shape("browserbase-key", r"\bbb_live_[\w-]{24,40}", ("bb_live_",), 3),
    Shape("crates-token", r"\bcio[A-Za-z0-9]{32}(?!\w)", ("cio",), 4.2),
    Shape("cursor-key", r"\bkey_[0-9a-f]{64}(?!\w)", ("key_",), 3),
    Shape("deno-token", r"\bdd[pow]_[A-Za-z0-9]{36}(?!\w)", ("ddp_", "ddo_", "ddw_"), 3.5),
    Shape(
        "docker-config",
        r"auth[\"'\\]{1,4}\s?:\s?[\"'\\]{1,4}([\w+/]{16,400}={0,2})[\"'\\]",
        ('auth"', "auth\\", "auth'"),
        3.5,
        (_WORDS_ONLY,),
    ),
    Shape("dropbox-token", r"\bsl\.(?:u\.)?[\w-]{120,2000}", ("sl.",), 4.5),
    Shape("facebook-token", r"\bEAA[A-Za-z0-9]{90,400}(?!\w)", ("eaa",), 4.5),
    Shape("healthchecks-address", r"hc-ping\.com/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", ("hc-ping.com",), 3),
    Shape("heroku-token", r"\bHRKU-[\w-]{36,64}", ("hrku-",), 3),
    Shape("infura-address", r"infura\.io/(?:ws/)?v3/([0-9a-f]{32})(?!\w)", ("infura.io",), 3),
    Shape("lob-key", r"\blive_(?:pub_)?[0-9a-f]{31,35}(?!\w)", ("live_",), 3),
    Shape("mailchimp-key", r"\b[0-9a-f]{32}-us\d{1,2}(?!\w)", ("-us",), 3),
    Shape("mailgun-key", r"\bkey-[0-9a-f]{32}(?!\w)", ("key-",), 3),
    Shape("mapbox-token", r"\bsk\.eyJ[\w-]{20,400}\.[\w-]{20,64}", ("k.eyj",), 3.5),
    Shape("mattermost-webhook", r"/hooks/([a-z0-9]{26})(?!\w)", ("/hooks/",), 3.5),
    Shape("mem0-key", r"\bm0-[A-Za-z0-9]{40}(?!\w)", ("m0-",), 4),
    Shape("modal-token", r"\ba[ks]-[A-Za-z0-9]{22}(?!\w)", ("ak-", "as-"), 3.8, (r"^\D*$",)),
    Shape(
        "netrc-password",
        r"\blogin\s{1,4}[\w@.+-]{1,64}\s{1,4}password\s{1,4}([\w!@#%^&*?+.~$/=-]{8,200})",
        ("login",),
        2.8,
        (_WORDS_ONLY,),
    ),
    Shape("notion-token", r"\bntn_[A-Za-z0-9]{40,50}(?!\w)", ("ntn_",), 4),
    Shape("okta-token", r"\bSSWS\s{1,2}([\w-]{40,44})(?![\w-])", ("ssws",), 3.5),
    Shape("square-token", r"\bsq0(?:csp|atp|idp)-[\w-]{22,50}", ("sq0",), 3.5),
    Shape("wandb-login", r"\bwandb\slogin\s(?:--relogin\s)?([0-9a-f]{40})(?!\w)", ("wandb",), 3),
)
# Keys of the tools around agents, and addresses whose path or host is the secret.
_MORE = (
    Shape("anyscale-key", r"\besecret_[A-Za-z0-9]{24,60}(?!\w)", ("esecret_",), 3.5),
    Shape("brave-key", r"\bBSA[A-Za-z0-9_-]{28}(?![\w-])", ("bsa",), 4),
    Shape("daytona-key", r"\bdtn_[0-9a-f]{64}(?!\w)", ("dtn_",), 3),
    Shape("google-script-address", r"script\.google\.com/macros/s/(AKfycb[\w-]{30,120})", ("akfycb",), 3.5),
    Shape("home-assistant-webhook", r"/api/webhook/([\w-]{20,100})(?![\w-])", ("/api/webhook/",), 3, (_WORDS_ONLY,)),
    Shape("humanloop-key", r"\bhl_sk_[0-9a-f]{40,64}(?!\w)", ("hl_sk_",), 3),
    Shape("pagerduty-address", r"pagerduty\.com/integration/([0-9a-f]{32})(?!\w)", ("pagerduty.com",), 3),
    Shape("pipedream-address", r"\b(e[no][a-z0-9]{10,30})\.m\.pipedream\.net", (".pipedream.net",), 2.5),
    Shape("promptlayer-key", r"\bpl_[0-9a-f]{32}(?!\w)", ("pl_",), 3),
    Shape("rocket-chat-webhook", r"/hooks/[A-Za-z0-9]{17,24}/([A-Za-z0-9]{40,64})(?!\w)", ("/hooks/",), 3.5),
    Shape("tencent-id", r"\bAKID[A-Za-z0-9]{32}(?!\w)", ("akid",), 4),
    Shape(
        "vault-token", r"(?i)vault_?-?token[\"'\\]{0,4}[\s:=]{1,3}[\"'\\]{0,4}(s\.[a-z0-9]{24})(?!\w)", ("vault",), 3.5
    ),
    Shape("wandb-key", r"\bwandb_v1_\w{40,120}", ("wandb_v1_",), 3.5),
    Shape(
        "zhipu-key",
        r"zhipu\w{0,20}[\"'\\\s:=]{1,8}([0-9a-f]{32}\.[a-z0-9]{16})(?![\w.])",
        ("zhipu",),
        4,
        any_case=True,
    ),
)
_SEPARATORS = "=: \"'\\"
_SHORT_SIGNS = r"\w!@#%^&*?+.~$\-"
_OPTIONS = ("--pass", "--secret", "--token", "--api-key", "--access-key")
_SHORT_PASSWORDS = (
    # A digit, a small letter, and a capital or a sign: not a word, a version or a number.
    *(
        Shape(
            "short-password",
            rf"{name}[\"'\\]{{0,4}}\s?[:=]\s?[\"'\\]{{0,4}}([{_SHORT_SIGNS}]{{8,15}})(?![{_SHORT_SIGNS}(\[{{])",
            tuple(name + each for each in _SEPARATORS),
            2.7,
            (_WORDS_ONLY, r"^\D*$", r"^[^a-z]*$", r"^[^A-Z!@#%^&*?]*$", r"^\$|\.\w*\.|^[A-Za-z_]+\.[A-Za-z_]"),
            any_case=True,
        )
        for name in ("password", "passwort", "passwd", "passphrase", "_pass", "_pw", "pwd", "secret")
    ),
    *(
        Shape(
            "command-password",
            rf"{command}[\"'\\]{{0,2}}([\w!@#%^&*?+.~$/=-]{{8,128}})(?![(\[{{])",
            marks,
            2.7,
            (_WORDS_ONLY, r"^\D*$", r"^[^A-Za-z]*$", r"^\$|^\w+\.\w"),
        )
        for command, marks in (
            (r"\bsshpass\s-p\s?", ("sshpass",)),
            (r"\b(?:mysql|mariadb)[a-z-]{0,8}\s[^\n|;]{0,80}?(?<=\s)-p", ("mysql", "mariadb")),
            (r"\bredis-cli\s[^\n|;]{0,60}?(?<=\s)-a\s", ("redis-cli",)),
            (r"\blogin\s[^\n|;]{0,60}?(?<=\s)-p\s", ("login -",)),
            (r"\bldap(?:search|modify|add|delete|whoami)\s[^\n|;]{0,80}?(?<=\s)-w\s", ("ldap",)),
            (r"--(?:password|passwd|passphrase|secret|token|api-key|access-key)\s", _OPTIONS),
            (r"\s-pass(?:in|out)?\spass:", ("pass:",)),
        )
    ),
    Shape(
        "credentials",
        rf"(?:creds?|credentials?|userpass|basic_?auth)[\"'\\]{{0,4}}\s?[:=]\s?[\"'\\]{{0,4}}"
        rf"[\w.@+-]{{1,40}}:([{_SHORT_SIGNS}]{{8,64}})(?![{_SHORT_SIGNS}(\[{{:/])",
        ("cred", "userpass", "basicauth", "basic_auth"),
        2.5,
        (_WORDS_ONLY, r"^\D*$", r"^[^A-Za-z]*$"),
        any_case=True,
    ),
    Shape(
        "named-key",
        r"\b[A-Z][A-Z0-9]{1,20}_KEY_[A-Z0-9_]{1,24}" + _VALUE,
        ("_key_",),
        3.5,
        (_WORDS_ONLY,),
    ),
)
_PARTS_OF_KEYS = ("api", "auth", "secret", "access", "private", "signing", "encryption", "master", "app", "application")
_NAMES_OF_KEYS = {
    "token": "(?<!page.token)(?<!pagetoken)(?<!next.token)(?<!nexttoken)(?<!sync.token)",
    **dict.fromkeys(("secret", "password", "passwd", "pwd", "passphrase", "_pass", "_pw", "_creds"), ""),
}
_TYPE_NAME = r"^[A-Z]{2,8}\d{0,3}(?:[A-Z][a-z]{2,}){2,}$"
"""The annotation of an argument, such as `PKCS7PrivateKeyTypes`."""
_NAMED_KEYS = tuple(
    Shape("named-key", pattern + _VALUE, marks, 3, (_WORDS_ONLY, _TYPE_NAME, "EXAMPLE"), any_case=True)
    for pattern, marks in (
        *((f"{part}[_-]?key", (f"{part}key", f"{part}_key", f"{part}-key")) for part in _PARTS_OF_KEYS),
        *((name + but, tuple(name + each for each in _SEPARATORS)) for name, but in _NAMES_OF_KEYS.items()),
    )
)


@cache
def shapes() -> tuple[Shape, ...]:
    """All shapes: our own, then the rules of gitleaks."""
    rules = json.loads(RULES_FILE.read_text("utf-8"))["rules"]
    file_shapes = (Shape(name, pattern, tuple(marks), bits, tuple(but)) for name, pattern, marks, bits, but in rules)
    return (*_OWN, *_OTHER, *_MORE, *_NAMED_KEYS, *_SHORT_PASSWORDS, *file_shapes)


_RUN, _LONGEST_RUN, _BEFORE, _EDGE = b"a" * 15, 4_096, 64, 256
_TOKENS = bytes(ord("a") if (chr(at).isalnum() and at < 128) or chr(at) in "+/=_-" else ord(" ") for at in range(256))
_MIXED = re.compile(rb"\d|[a-z][A-Z]|[A-Z][a-z]|A[KS]IA[A-Z]")  # a key of AWS in 28 has no digit


def machine_words(data: bytes) -> bytes:
    """The runs of letters and digits that no person types, each with the text before it; empty without any.

    A run of more than 4,096 characters is an image or a digest of something: only its ends are looked at, and what is
    around a character or a beginning that base64 lacks.
    """
    flat = data.translate(_TOKENS)
    places: list[tuple[int, int]] = []
    end = 0
    while (start := flat.find(_RUN, end)) >= 0:
        end = flat.find(b" ", start + len(_RUN))
        end = len(flat) if end < 0 else end
        # Rows of tools have thousands of ids, so this is inline: hexadecimal, as a UUID is, under a name such as
        # `order_id`, where no key is.
        word = data[start:end]
        if not word.strip(_HEX) and (
            word.isdigit() or data[max(0, start - 14) : start].rstrip(b'\\": ').endswith(_ENDS_OF_NAMES)
        ):
            continue
        if end - start > _LONGEST_RUN:
            places += [(max(0, start - _BEFORE), start + _EDGE), *_inner_places(data, start, end)]
            places.append((end - _EDGE, end))
        # Most runs are names of small letters, which one search tells.
        elif _MIXED.search(word):
            begin = max(0, start - _BEFORE)
            if places and begin <= places[-1][1]:
                begin = places.pop()[0]
            places.append((begin, end + 1))
    names = _places_of_names(data)
    return b"\n".join(data[start:end] for start, end in (*places, *names))


_NAMES_OF_SHORT = (b"pass", b"secret", b"pwd")
_COMMANDS = (b"mysql", b"mariadb", b"redis-cli", b" login -", b"ldap")
_NEAR = (b"cred", b".pipedream.net")
"""Other words with a secret near them that may be short."""
_SHORT_WITHIN = 64 * 1024
"""Short values are looked for in the beginning of a text: a search for their names takes 2 ms a megabyte."""


def _places_of_names(data: bytes) -> Iterator[tuple[int, int]]:
    """What stands around the name of a password with a value, which may be short."""
    lower = data[:_SHORT_WITHIN].lower()
    for name in _NAMES_OF_SHORT:
        end = 0
        while (start := lower.find(name, end)) >= 0:
            end = start + len(name)
            if _VALUE_BYTES.match(data, end):
                yield max(0, start - 24), start + 80
    for name in (*_NEAR, *_COMMANDS) if b" -" in lower else _NEAR:
        start = lower.find(name)
        while start >= 0:
            yield max(0, start - 40), start + 200
            start = lower.find(name, start + 200)


_VALUE_BYTES = re.compile(rb"[a-z]{0,8}[\"'\\]{0,4}\s?[:=\s][^\n]{0,12}?\d", re.IGNORECASE)


_INNER = (b"-", b"_", b"AKIA", b"AIza", b"AZDO", b"JQQJ99")
"""What keys have and base64 lacks, but for that of URLs, which has one of the first two in 32 characters."""
_PACKED = 48


def _inner_places(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The places in a long run that may hold a key, one after the other without an overlap; none in packed bytes."""
    if (data.count(b"-", start, end) + data.count(b"_", start, end)) * _PACKED > end - start:
        return
    places = sorted(place for mark in _INNER for place in _places_of(mark, data, start, end))
    first = last = start
    for place in places:
        begin, stop = max(start, place - _EDGE), min(end, place + _EDGE)
        if begin > last:
            yield first, last
            first = begin
        last = stop
    yield first, last


def _places_of(mark: bytes, data: bytes, start: int, end: int) -> Iterator[int]:
    place = data.find(mark, start, end)
    while place >= 0:
        yield place
        place = data.find(mark, place + 1, end)


_ENDS_OF_NAMES = (b"id", b"Id", b"ID", b"hash", b"digest", b"sha256", b"checksum", b"etag")
_HEX = b"0123456789abcdef-"


def has_shape(words: bytes) -> bool:
    """Whether a key of a service stands in the `machine_words` of JSON or a text."""
    return next(_shapes_in(words), None) is not None


def mask_shapes(text: str, replace: Callable[[str], str]) -> str:
    """The text with each key of a service replaced; `replace` gets the name of its shape."""
    for shape in _shapes_in(machine_words(text.encode("utf-8", "replace"))):
        parts, end = [], 0
        for start, stop in shape.spans(text):
            parts += [text[end:start], replace(shape.name)]
            end = stop
        text = "".join((*parts, text[end:])) if parts else text
    return text


def _shapes_in(words: bytes) -> Iterator[Shape]:
    """The shapes with a mark and a match in words of machines."""
    if not words:
        return
    lower, text, lower_text = words.lower(), "", ""
    exact_marks, by_letters, by_mark = _marks()
    letters_of_text = b" ".join(set(_LETTERS.findall(lower)))
    if len(letters_of_text) < _SHORT:
        letters = by_letters.keys() & {letters_of_text[at : at + 3] for at in range(len(letters_of_text))}
    else:
        letters = {each for each in by_letters if each in letters_of_text}
    marks = {mark for mark in exact_marks if mark in lower}
    marks |= {
        mark for each in letters for longest, mark in by_letters[each] if longest in letters_of_text and mark in lower
    }
    for shape in dict.fromkeys(shape for mark in sorted(marks) for shape in by_mark[mark]):
        text = text or words.decode("utf-8", "replace")
        if shape.any_case and not shape.loose.search(lower_text := lower_text or text.lower()):
            continue
        if (shape.any_case or shape.loose.search(text)) and shape.compiled.search(text):
            yield shape


_LETTERS, _SHORT = re.compile(rb"[a-z]{3,}"), 500


@cache
def _marks() -> tuple[list[bytes], dict[bytes, list[tuple[bytes, bytes]]], dict[bytes, list[Shape]]]:
    """The marks without three letters in a row, the others by such letters, and all with their shapes.

    A mark is listed under the first three letters of its longest run of them, with that run.

    The letters are searched for in the different words of a text, which are a tenth of it: to search 300 marks in all
    of it takes six times as long.
    """
    by_mark: dict[bytes, list[Shape]] = {}
    for shape in shapes():
        for mark in shape.marks:
            by_mark.setdefault(mark.encode(), []).append(shape)
    runs = {mark: max(_LETTERS.findall(mark), key=len, default=b"") for mark in by_mark}
    by_letters: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for name, run in runs.items():
        if run:
            by_letters.setdefault(run[:3], []).append((run, name))
    return [name for name, run in runs.items() if not run], by_letters, by_mark


def bits_of(text: str) -> float:
    """Shannon's entropy of the letters of a text, in bits a letter."""
    n = len(text)
    return -sum(count / n * math.log2(count / n) for count in Counter(text).values()) if n else 0.0

"""The one table of run options: every option of a run, a model call, a limit and the simulated user, declared once.

From it come the options of `evaldesk eval` and `run submit`, the form of a run, `evaluate()`, the pytest plugin, "Run
again", the frozen configuration on pages and in JSON, the comparison of two runs and the fingerprint of a run. It needs
only the standard library, so that a help and a start of pytest stay quick. (decision 025)
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict

from evaldesk.errors import NAME_LIMIT, NotFoundError, UsageError

Kind: TypeAlias = Literal[
    "whole", "number", "switch", "choice", "text", "object", "pairs", "passes", "budget", "shares", "shard"
]
Door: TypeAlias = Literal["cli", "form", "pytest", "toml"]
DOORS: tuple[Door, ...] = ("cli", "form", "pytest", "toml")
"""Where an option may be left out, with a reason. `evaluate()`, `[evaldesk]` of a run file and JSON have them all."""

NOT_BROWSER: Final = "an address, a key or a price never comes from a browser; a run again keeps the earlier ones"
NOT_USER_BROWSER: Final = "the simulated user never comes from a browser; a run again keeps that of the earlier run"
NOT_WORKSPACE: Final = "it belongs to one run, not to a workspace"
NOT_FLAG: Final = "it is described in [user] of evaldesk.toml or in user_simulator_config of a criteria file"


class RunOption(NamedTuple):
    """One option. `name` is its name in Python, in the form, in JSON and in `[evaldesk]` of a run file.

    `path` leads to its value in a RunConfig. `title` heads a line of a page, `words` name it in a sentence, `help` is
    the help of its flags. `low` and `high` are the range of a number, both inclusive, or of the length of a text.
    `unset` says what None means. `toml` is its key in `evaldesk.toml`, `run_file` its key in `[evaluation]` of a run
    file of Osmosis, `form` its place in the form of a run. `is_measured`: a run with another value measures something
    else, so the fingerprint of the run changes. `is_always_told`: pages show its default, too. `left_out` says for a
    door that does not have it why.
    """

    name: str
    path: str
    kind: Kind
    title: str
    words: str
    help: str
    default: Any = None
    low: float = 0
    high: float = 0
    unit: str = ""
    choices: tuple[str, ...] = ()
    unset: str = "not set"
    flags: tuple[str, ...] = ()
    metavar: str = ""
    section: str = ""
    form: Literal["", "first", "more"] = ""
    toml: str = ""
    run_file: str = ""
    is_measured: bool = True
    is_always_shown: bool = False
    left_out: Mapping[Door, str] = {}

    def check(self, value: Any, option_name: str = "") -> Any:
        """The value as it is kept. Raises UsageError naming the option, the expected and the found value."""
        item = getattr(value, "item", None)
        if callable(item) and getattr(value, "shape", None) == ():  # a scalar of numpy or torch
            value = item()
        if value is None:
            return None
        result = self._as_kind(value)
        if result is None:
            raise self.refusal(value, option_name)
        return result

    def read(self, text: str, option_name: str = "") -> Any:
        """The value that a person typed; None for nothing typed. Raises UsageError."""
        text = text.strip()
        if not text:
            return None
        value: Any = text
        try:
            if self.kind == "whole":
                value = int(text) if len(text) <= 18 and text.isascii() else None
            elif self.kind == "number":
                value = float(text)
            elif self.kind == "switch":
                value = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
            elif self.kind == "object":
                value = json.loads(text)
            elif self.kind == "pairs":
                value = [(int(k), float(rate)) for k, rate in (each.split("=") for each in text.split(","))]
            elif self.kind == "shares":
                pairs = (each.split("=") for each in text.split(","))
                value = tuple((name.strip(), float(share)) for name, share in pairs)
            elif self.kind == "passes":
                numbers = [int(each) for each in text.split("/")]
                value = numbers[0] if len(numbers) == 1 else tuple(numbers) if numbers[0] else None
        except (ValueError, KeyError, RecursionError):
            value = None
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            if self.kind == "number" and value is not None:  # nan and inf are numbers to a computer only
                raise self.refusal(value, option_name)
            raise UsageError(
                f"{self._subject(option_name)} {self._expected_words}, not {text[:NAME_LIMIT]!r}", field=self.name
            )
        return self.check(value, option_name)

    def refusal(self, value: Any, option_name: str = "") -> UsageError:
        """The error for a value that cannot be."""
        if self.kind == "text" and isinstance(value, str):
            return UsageError(
                f"{option_name or self.words} has {len(value):,} characters; {self.high:,g} fit", field=self.name
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_ranged = is_number and self.kind in ("whole", "number") and (self.kind == "number" or value == value // 1)
        expected_words = self.range_words if is_ranged else self._expected_words
        value_words = f"{value:.10g}" if is_number else f"{value!r:.40}"
        if self.kind == "passes" and isinstance(value, tuple):
            value_words = f"{'/'.join(map(str, value))!r:.40}"
        return UsageError(f"{self._subject(option_name)} {expected_words}, not {value_words}", field=self.name)

    def value_words(self, value: Any) -> str:
        """The value in words: `120 s`, `yes`, or the meaning of None."""
        if value is None:
            return self.unset
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int | float):
            number = f"{value:.10g}"
            return f"${number} {self.unit}" if self.unit.startswith("for ") else f"{number} {self.unit}".strip()
        if self.kind in ("pairs", "shares"):
            return ", ".join(f"{k}={rate:.10g}" for k, rate in value) or self.unset
        if self.kind == "passes":
            return f"{value[0]}/{value[1]}" if value[0] else f"{value[1]}"
        if self.kind == "budget":
            return budget_words(value)
        if isinstance(value, Mapping):
            return json.dumps(value, ensure_ascii=False, sort_keys=True) if value else self.unset
        return str(value) or self.unset

    @property
    def range_words(self) -> str:
        """`1 to 1000`; empty for an option without a range."""
        return f"{self.low:.10g} to {self.high:.10g}" if self.kind in ("whole", "number") else ""

    def _subject(self, option_name: str) -> str:
        return f"{option_name} must be" if option_name else f"{self.words}:"

    @property
    def _expected_words(self) -> str:
        return {
            "whole": "a whole number",
            "number": "a number such as 0.8",
            "switch": "yes or no",
            "choice": f"one of {', '.join(self.choices)}",
            "text": "a text",
            "object": 'an object such as {"top_k": 20}',
            "pairs": "K=R, such as 5=0.9, where each K is at least 1 and named once, and R between 0 and 1",
            "shares": f"shares of calls, such as slow=0.1, together at most 1, of {', '.join(self.choices)}",
            "passes": f"R, such as 5, or M/R, such as 3/5, where M is at least 1 and R from M to {self.high:g}",
            "budget": f"a number of trials such as 200, 1 to {self.high:g}, or US dollars such as 5usd",
            "shard": f"I/N, such as 2/5 for the second of five, with I from 1 to N and N at most {self.high:g}",
        }[self.kind]

    def _as_kind(self, value: Any) -> Any:
        """The value in the type of the option; None for one that cannot be."""
        if self.kind in ("whole", "number"):
            return self._as_number(value)
        if self.kind == "switch":
            return value if isinstance(value, bool) else None
        if self.kind == "object":
            return self._as_object(value)
        if self.kind in ("pairs", "passes"):
            return self._as_numbers(value)
        if self.kind == "shares":
            return self._as_shares(value)
        if self.kind == "budget":
            return self._as_budget(value)
        if self.kind == "shard":
            return self._as_shard(value)
        if not isinstance(value, str) or (self.kind == "choice" and value not in self.choices):
            return None
        return None if self.kind == "text" and self.high and len(value) > self.high else value

    def _as_object(self, value: Any) -> dict[str, Any] | None:
        """The object as JSON has it: not a number is none there."""
        try:
            return dict(json.loads(json.dumps(dict(value), allow_nan=False))) if isinstance(value, Mapping) else None
        except (TypeError, ValueError, RecursionError):
            return None

    def _as_numbers(self, value: Any) -> tuple[Any, ...] | None:
        """Pairs of k and a rate, or one pair of passes, 0 where none are asked for, and trials."""
        pairs = value.items() if isinstance(value, Mapping) else value
        try:
            if self.kind == "passes":
                if isinstance(value, str):
                    numbers = [int(each) for each in value.split("/")]
                    pairs = value = numbers[0] if len(numbers) == 1 else numbers if numbers[0] else None
                n_needed, n = (0, value) if isinstance(value, int) else map(operator.index, pairs)
                return (n_needed, n) if 0 <= n_needed <= n and 1 <= n <= self.high and value is not True else None
            rates = tuple((operator.index(k), float(rate)) for k, rate in pairs)
        except (TypeError, ValueError):
            return None
        is_once = len(dict(rates)) == len(rates)
        return rates if is_once and all(k >= 1 and 0 <= rate <= 1 for k, rate in rates) else None

    def _as_shares(self, value: Any) -> tuple[tuple[str, float], ...] | None:
        """Names with their shares of one whole."""
        pairs = value.items() if isinstance(value, Mapping) else value
        try:
            shares = tuple((name, float(share)) for name, share in pairs)
        except (TypeError, ValueError):
            return None
        is_known = {name for name, _ in shares} <= {*self.choices} and len(dict(shares)) == len(shares)
        is_share = all(share > 0 for _, share in shares) and sum(share for _, share in shares) <= 1 + 1e-9
        return shares if shares and is_known and is_share else None

    def _as_budget(self, value: Any) -> str | None:
        """`200` for trials, `5usd` for dollars."""
        match = _BUDGET.fullmatch(str(value).strip()) if isinstance(value, str | int) else None
        if match is None or isinstance(value, bool):
            return None
        if match["trials"]:
            return str(int(match["trials"])) if 1 <= int(match["trials"]) <= self.high else None
        usd = float(match["usd"])
        return f"{f'{usd:.9f}'.rstrip('0').rstrip('.')}usd" if 0 < usd <= self.high else None

    def _as_shard(self, value: Any) -> str | None:
        """`2/5`: the second of five."""
        match = _SHARD.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            return None
        number, n = int(match["number"]), int(match["n"])
        return f"{number}/{n}" if 1 <= number <= n <= self.high else None

    def _as_number(self, value: Any) -> int | float | None:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            return None
        try:
            number = int(value) if self.kind == "whole" and int(value) == value else float(value)
        except (TypeError, ValueError, OverflowError):
            return None
        if self.kind == "whole" and isinstance(number, float):
            return None
        return number if math.isfinite(number) and self.low <= number <= self.high else None


_BUDGET = re.compile(r"(?P<trials>\d{1,9})|(?P<usd>\d{0,9}\.?\d{1,9}) ?usd", re.ASCII | re.IGNORECASE)
_SHARD = re.compile(r"(?P<number>\d{1,6})/(?P<n>\d{1,6})", re.ASCII)
USD = "usd"


def budget_of(value: str) -> tuple[float, bool]:
    """The amount of a budget, and whether it is in US dollars; it is in trials else."""
    return float(value.removesuffix(USD)), value.endswith(USD)


def budget_words(value: str) -> str:
    """`200 trials`, `$5`."""
    amount, is_money = budget_of(value)
    return f"${amount:,.10g}" if is_money else "1 trial" if amount == 1 else f"{amount:,.0f} trials"


DAY_S = 86_400.0
RUN, MODELS, LIMITS = "How to run", "Models", "Timeouts in seconds"
BY_CHANCE = "by chance"
AGENT_SETS = "left to the agent"
ONE_CASE: Final = "an item is one case, and a budget is spread over many"
ONE_CASE_SHARD: Final = "an item is one case, and pytest has its own ways to choose among them"
ONE_CASE_NAME: Final = "an item is a run of one case, which pytest names and plays again"
NOT_ROWS_FORM: Final = "the form has a tick for each case"
NOT_NAME_FORM: Final = "the page of a run continues it, and plays its errored trials again"
MAX_RUN_NAME = 96
"""Characters of the name of a run."""
OF_NAMED_RUN = ("name", "fresh", "retry_failed")
"""The name of a run, and options about the earlier run of that name."""
OF_ONE_RUN = frozenset({"rows", *OF_NAMED_RUN})
"""Options that choose the cases and the run itself; a run like another one does not have them of that."""
NOT_SHARD_FORM: Final = "a desk is one machine; shards are of several that play one set"
NOT_VERSION_FORM: Final = "a form shows the eval set that it starts a run of; a version is refused where nobody looks"
BOXES_OF_CASES: Final = "the form has a box for each case"
EVEN: Final = "even"
ALLOCATIONS = (EVEN, "uncertain")
AUTO: Final = "auto"
SHARED: Final = "shared"
SHARING = (AUTO, SHARED)
"""The kinds of isolation in which trials begin in players that they share."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
FAULTS = ("rate_limit", "server_error", "timeout", "slow", "truncated", "malformed")
SANDBOX: Final = "sandbox"
ISOLATIONS = (AUTO, SHARED, "process", SANDBOX, "container")
KEEP: Final = "keep"
ADK_POOLED: Final = "adk-pooled"
"""The rules of ADK's `AgentEvaluator`: a case is judged by the means of its metrics over all trials together."""
OWN = "evaldesk"
"""The rules of this tool, as which trials are judged unless another is named."""

_METAVARS: Mapping[Kind, str] = {"whole": "N", "number": "R"}


def option_of(owner: str, name: str, kind: Kind, title: str, **more: Any) -> RunOption:
    """The option `owner.name` of a RunConfig; its flag, metavar and words follow from its name, kind and title."""
    defaults = {
        "path": f"{owner}.{name}" if owner else name,
        "words": title.lower(),
        "flags": (f"--{name.replace('_', '-')}",),
        "metavar": _METAVARS.get(kind, ""),
    }
    return RunOption(name, kind=kind, title=title, **{**defaults, **more})


def _run(name: str, kind: Kind, **more: Any) -> RunOption:
    return option_of("", name, kind, section=RUN, **more)


def _call(name: str, kind: Kind, **more: Any) -> RunOption:
    return option_of("model_options", name, kind, **{"words": name, "unset": AGENT_SETS, **more})


_RUN = (
    _run(
        "n",
        "whole",
        title="Trials per case",
        words="trials of each case",
        help="Trials per case; default 1.",
        default=1,
        low=1,
        high=1000,
        flags=("--n", "-n"),
        form="first",
        run_file="n",
        is_measured=False,
        is_always_shown=True,
        left_out={"toml": NOT_WORKSPACE},
    ),
    _run(
        "budget",
        "budget",
        title="Budget",
        help="Trials of all cases (200) or US dollars (5usd) in place of --n, which is then the fewest of each case.",
        high=1_000_000,
        unset="the same number of trials for each case",
        metavar="BUDGET",
        form="first",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": ONE_CASE},
    ),
    _run(
        "allocate",
        "choice",
        title="Where the budget goes",
        help="To all cases alike (even, default), or more to those whose outcome was less certain in earlier runs "
        "(uncertain).",
        default="even",
        choices=ALLOCATIONS,
        form="first",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": ONE_CASE},
    ),
    _run(
        "concurrency",
        "whole",
        title="Trials at once",
        help="Trials at once; default 4. A slow trial does not delay the others.",
        default=4,
        low=1,
        high=10_000,
        flags=("--concurrency", "--batch-size", "--eval-num-workers"),
        form="first",
        run_file="batch_size",
        is_measured=False,
        is_always_shown=True,
        left_out={"toml": NOT_WORKSPACE},
    ),
    _run(
        "pass_threshold",
        "number",
        title="Case pass threshold",
        words="share of trials that must pass",
        help="Pass rate that a case must reach; default 1. With --eval-fn: least score of a pass.",
        default=1.0,
        high=1,
        form="first",
        is_always_shown=True,
        left_out={"toml": NOT_WORKSPACE, "pytest": "--evaldesk-min-pass-rate is that share there"},
    ),
    _run(
        "errors_are_failures",
        "switch",
        title="Count errors as failures",
        help="Count errored trials as failures.",
        default=False,
        flags=("--count-errors-as-failures",),
        form="first",
        is_always_shown=True,
        left_out={"toml": NOT_WORKSPACE, "pytest": "a case with an errored trial never passes there"},
    ),
    _run(
        "rows",
        "text",
        title="Rows",
        words="rows",
        help="The cases or rows to run, counted from 0, such as 3,7,10-20.",
        high=10_000,
        unset="all cases",
        metavar="3,7,10-20",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": ONE_CASE_SHARD, "form": NOT_ROWS_FORM},
    ),
    _run(
        "name",
        "text",
        title="Name",
        words="the name",
        help="Name of the run. An unfinished run of this name is continued, if its inputs are the same.",
        high=MAX_RUN_NAME,
        unset="its number",
        metavar="NAME",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": ONE_CASE_NAME, "form": NOT_NAME_FORM},
    ),
    _run(
        "fresh",
        "switch",
        title="Fresh",
        words="begin a new run",
        help="Begin a new run, also where one of this name is there.",
        default=False,
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": ONE_CASE_NAME, "form": NOT_NAME_FORM},
    ),
    _run(
        "retry_failed",
        "switch",
        title="Retry failed",
        words="play the errored trials again",
        help="Play the errored trials of the run of this name again.",
        default=False,
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": ONE_CASE_NAME, "form": NOT_NAME_FORM},
    ),
    _run(
        "shard",
        "shard",
        title="Shard",
        help="Play the cases of one of N parts, such as 2/5, on each of N machines; `evaldesk run merge` joins their "
        "result files and answers the gates.",
        high=1_000,
        unset="all cases",
        metavar="I/N",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": ONE_CASE_SHARD, "form": NOT_SHARD_FORM},
    ),
    _run(
        "expect_version",
        "text",
        title="Expected version",
        words="the version of the eval set",
        help="Refuse an eval set of another version than V, as `evaldesk evalset log` shows it; 4 characters or more.",
        low=4,
        high=32,
        unset="any",
        metavar="V",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "form": NOT_VERSION_FORM},
    ),
    _run(
        "only",
        "text",
        title="Only cases with",
        words="the tags of the cases",
        help="Play only the cases with one of these tags, such as tag:smoke or tag:smoke,tag:dates.",
        default="",
        high=1_000,
        unset="all cases",
        metavar="tag:NAME",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "form": BOXES_OF_CASES, "pytest": "tags are marks there: -m smoke"},
    ),
    _run(
        "without",
        "text",
        title="In no gate",
        words="the tags of cases that no gate asks for",
        help="Play the cases with one of these tags in no gate; default tag:quarantine. With none every case counts.",
        default="tag:quarantine",
        high=1_000,
        unset="none",
        metavar="tag:NAME",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "form": "a tick, where the set has cases in quarantine"},
    ),
    _run(
        "strict",
        "switch",
        title="Strict",
        words="leave a trial unscored where its case gives a metric nothing to judge",
        help="A trial is unscored when a metric does not apply to its case.",
        default=False,
        form="more",
        left_out={"toml": NOT_WORKSPACE},
    ),
    _run(
        "compat",
        "choice",
        title="Judged as",
        words="the tool that trials are judged as",
        help="Answer as that tool does: its verdicts, means and exit code; adk-pooled: a case by its means.",
        default=OWN,
        choices=(OWN, "adk", ADK_POOLED, "osmosis", "openhands"),
        form="more",
        left_out={"toml": NOT_WORKSPACE},
    ),
    _run(
        "seed",
        "whole",
        title="Seed",
        help="Seed of the run; default: random.",
        default=0,
        low=-(2**63),
        high=2**63 - 1,
        unset=BY_CHANCE,
        form="more",
        is_measured=False,
        is_always_shown=True,
        left_out={"toml": NOT_WORKSPACE},
    ),
    _run(
        "recording",
        "choice",
        title="Recording",
        path="recording.mode",
        help="Record or replay the answers of models and tools; default: off, or as in evaldesk.toml.",
        default="off",
        choices=("off", "record", "replay", "auto"),
        form="more",
        toml="recording",
    ),
    _run(
        "recording_tools",
        "switch",
        title="Recording of tools",
        path="recording.tools",
        help="Record the answers of tools too; default: yes.",
        default=True,
        flags=("--recording-tools/--no-recording-tools",),
        left_out={
            "toml": "`recording` of evaldesk.toml is the mode alone",
            "form": "an unticked box and a missing one look alike; a run again keeps that of the earlier run",
            "pytest": "a pytest option takes a value, and the mode is enough there",
        },
    ),
    _run(
        "prompts",
        "choice",
        title="Prompts of models",
        help="Keep how models were asked, for the time line of a trial: keep (default), or off.",
        default=KEEP,
        choices=(KEEP, "off"),
        form="more",
        is_measured=False,
        toml="prompts",
    ),
    _run(
        "on",
        "text",
        title="Played on",
        path="executor.name",
        words="the executor",
        help="Play on [executors.NAME] of evaldesk.toml, such as a cluster; default: this machine.",
        default="",
        high=64,
        unset="this machine",
        metavar="NAME",
        form="more",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE},
    ),
    _run(
        "environment",
        "text",
        title="Environment",
        words="the environment",
        help="Play the agent in [environments.NAME] of evaldesk.toml, an interpreter or an image; default: its own.",
        default="",
        high=64,
        unset="the agent's own",
        metavar="NAME",
        form="more",
        is_measured=False,
        left_out={"toml": "`python` and `image` of evaldesk.toml are those of all agents"},
    ),
    _run(
        "isolation",
        "choice",
        title="Isolation",
        help="Trials share players, or each has a process, sandbox or container; auto (default): shared, until the "
        "agent is seen to hold objects of one event loop.",
        default=AUTO,
        choices=ISOLATIONS,
        form="more",
        toml="isolation",
    ),
    _run(
        "memory_mib",
        "whole",
        title="Memory of a trial",
        path="limits.memory_mib",
        words="memory of a trial in MiB",
        help="Most memory of each process of a trial, in MiB; with --isolation process.",
        low=256,
        high=1_048_576,
        unit="MiB",
        unset="not limited",
        flags=("--memory",),
        metavar="MIB",
        form="more",
        toml="limits.memory_mib",
    ),
    _run(
        "processes",
        "whole",
        title="Processes of a trial",
        path="limits.processes",
        help="Most processes that a trial may start and have at once; with --isolation process.",
        high=100_000,
        unset="not limited",
        form="more",
        toml="limits.processes",
    ),
    _run(
        "note",
        "text",
        title="Note",
        words="the note",
        help="Note of the run.",
        default="",
        high=2_000,
        metavar="TEXT",
        form="first",
        is_measured=False,
        left_out={"toml": NOT_WORKSPACE, "pytest": "no run is stored there"},
    ),
)


def _limit(name: str, title: str, **more: Any) -> RunOption:
    return option_of(
        "limits",
        name,
        "number",
        title,
        **{"low": 0.1, "high": DAY_S, "unit": "s", "metavar": "S", "section": LIMITS, "form": "more", **more},
    )


_LIMITS = (
    _limit(
        "timeout_s",
        "Trial timeout",
        path="limits.trial_timeout_s",
        words="limit of a trial in seconds",
        help="One trial; 120.",
        unset="none of its own",
        default=120.0,
        flags=("--timeout",),
        toml="limits.trial_timeout_s",
        form="first",
        is_always_shown=True,
    ),
    _limit(
        "turn_timeout_s",
        "Turn timeout",
        words="limit of a turn in seconds",
        help="One turn.",
        unset="none of its own",
        flags=("--turn-timeout",),
        toml="limits.turn_timeout_s",
    ),
    _limit(
        "tool_timeout_s",
        "Tool timeout",
        words="limit of a tool in seconds",
        help="One tool call.",
        unset="none of its own",
        flags=("--tool-timeout",),
        toml="limits.tool_timeout_s",
    ),
    _limit(
        "judge_timeout_s",
        "Judge timeout",
        words="limit of a judge in seconds",
        help="One judge.",
        unset="none of its own",
        flags=("--judge-timeout",),
        toml="limits.judge_timeout_s",
        run_file="grader_timeout_s",
    ),
)

NOT_VARIED_BY_FORM: Final = "an instruction of one agent of a tree is a variant of an experiment, or an argument"

LIVE_TIMEOUT_S = 300.0
"""Of a live turn, where nothing else is asked for: that of ADK."""

MODEL_CALL = (
    _call(
        "instruction",
        "text",
        title="Instruction",
        words="the instruction",
        help="The instruction of the agent, in place of its own; @FILE is the text of a file.",
        high=200_000,
        metavar="TEXT",
        form="more",
        left_out={"toml": NOT_WORKSPACE},
    ),
    _call(
        "instructions",
        "object",
        title="Instructions of agents",
        help='Instructions of agents of a tree by their names, such as {"planner": "Plan in steps."}.',
        default={},
        unset="their own",
        metavar="JSON",
        left_out={"toml": NOT_WORKSPACE, "form": NOT_VARIED_BY_FORM},
    ),
    _call(
        "base_url",
        "text",
        title="Endpoint",
        help="An OpenAI-compatible endpoint for the agent's model.",
        metavar="URL",
        left_out={"form": NOT_BROWSER},
    ),
    _call(
        "api_key_env",
        "text",
        title="API key variable",
        help="The environment variable with the key of the model.",
        metavar="NAME",
        is_measured=False,
        left_out={"form": NOT_BROWSER},
    ),
    _call(
        "temperature",
        "number",
        title="Temperature",
        help="Sampling temperature of the agent's model.",
        high=100,
        metavar="T",
        form="more",
    ),
    _call(
        "top_p",
        "number",
        title="Top p",
        help="Nucleus sampling of the agent's model.",
        high=1,
        metavar="P",
        form="more",
    ),
    _call(
        "max_tokens",
        "whole",
        title="Max tokens per answer",
        help="Most tokens of an answer of the agent's model.",
        low=1,
        high=10_000_000,
        form="more",
    ),
    _call(
        "reasoning_effort",
        "choice",
        title="Reasoning effort",
        help="How much a reasoning model thinks.",
        choices=EFFORTS,
        metavar="WORD",
        form="more",
    ),
    _call(
        "max_turns",
        "whole",
        title="Max model calls per turn",
        help="Model calls in one turn.",
        low=1,
        high=10_000,
        form="more",
    ),
    _call(
        "n_retries",
        "whole",
        title="Retries of a model call",
        help="Retries of a model call after a temporary failure.",
        high=100,
        flags=("--retries",),
        form="more",
    ),
    _call(
        "rpm",
        "whole",
        title="Requests per minute",
        help="Most requests per minute of each model, over all runs of this user.",
        low=1,
        high=10_000_000,
        unset="no limit",
        form="more",
        is_measured=False,
    ),
    _call(
        "tpm",
        "whole",
        title="Tokens per minute",
        help="Most tokens per minute of each model, over all runs of this user.",
        low=1,
        high=10_000_000_000,
        unset="no limit",
        form="more",
        is_measured=False,
    ),
    _call(
        "live",
        "switch",
        title="Live",
        words="live",
        help="Play an agent of ADK over one live connection for each trial, text in and out.",
        default=False,
        unset="no",
        form="more",
    ),
    _call(
        "live_timeout_s",
        "number",
        title="Live turn timeout",
        help="Seconds in which a live model must complete its turn; 300.",
        low=0.1,
        high=DAY_S,
        unit="s",
        unset="300 s",
        metavar="S",
        form="more",
    ),
    _call(
        "faults",
        "shares",
        title="Injected faults",
        help="Shares of the agent's model calls that fail, such as rate_limit=0.1,slow=0.2; also server_error, "
        "timeout, truncated and malformed.",
        choices=FAULTS,
        unset="none",
        metavar="NAME=SHARE",
        form="more",
        left_out={"toml": NOT_WORKSPACE},
    ),
    _call(
        "extra",
        "object",
        title="Extra body parameters",
        help='Added to the body of each call of the agent\'s model, such as {"top_k": 20}.',
        default={},
        unset="nothing",
        flags=("--model-extra",),
        metavar="JSON",
        left_out={"form": NOT_BROWSER},
    ),
    _call(
        "price_in",
        "number",
        title="Input token price",
        help="US dollars per million input tokens, for a model of unknown price; with --price-out.",
        high=1_000_000,
        unit="for a million",
        unset="as listed",
        metavar="USD",
        left_out={"form": NOT_BROWSER},
    ),
    _call(
        "price_out",
        "number",
        title="Output token price",
        help="US dollars per million output tokens; with --price-in.",
        high=1_000_000,
        unit="for a million",
        unset="as listed",
        metavar="USD",
        left_out={"form": NOT_BROWSER},
    ),
)
"""The options of a model call, by the names of the fields of ModelOptions."""

_MODEL = option_of(
    "",
    "model",
    "text",
    "Model",
    help="The agent's model, by its LiteLLM name; default: its own model.",
    unset="the agent's own",
    metavar="MODEL",
    section=MODELS,
    form="first",
    left_out={"toml": "`models` lists those that may be chosen; the agent names its own"},
)


def _user_name(name: str) -> str:
    """`user_max_turns` are the messages of the user, so its model calls need another name."""
    return "user_max_calls" if name == "max_turns" else f"user_{name}"


def _user(name: str, path: str, kind: Kind, title: str, **more: Any) -> RunOption:
    return option_of("user", name, kind, title, path=path, words=name, toml=path, **more)


_OF_AGENT = frozenset({"faults", "instruction", "instructions", "live", "live_timeout_s"})
"""Options of the agent's model calls that a simulated user has not."""
_NOT_USER_FLAG: Mapping[Door, str] = {"cli": NOT_FLAG, "pytest": NOT_FLAG, "form": NOT_USER_BROWSER}

_USER = (
    _user(
        "user_model",
        "user.model",
        "text",
        "Model of the simulated user",
        help="The model that plays the user of cases with a scenario.",
        default="",
        unset="the default",
        flags=("--user-model",),
        metavar="MODEL",
        section=MODELS,
        left_out={"form": NOT_USER_BROWSER},
    ),
    _user(
        "user_max_turns",
        "user.max_turns",
        "whole",
        "Max messages of the simulated user",
        help="Most messages of the simulated user; default 20.",
        default=20,
        low=1,
        high=1_000_000,
        unset="any number",
        flags=("--user-max-turns",),
        section=MODELS,
        left_out={"form": NOT_USER_BROWSER},
    ),
    _user(
        "user_stop_signal",
        "user.stop_signal",
        "text",
        "Stop signal of the simulated user",
        help="Text of the simulated user that ends a conversation.",
        default="</finished>",
        flags=(),
        left_out=_NOT_USER_FLAG,
    ),
    _user(
        "user_instructions",
        "user.instructions",
        "text",
        "Instructions of the simulated user",
        help="The prompt of the simulated user.",
        default="",
        unset="the default ones",
        flags=(),
        left_out=_NOT_USER_FLAG,
    ),
    *(
        each._replace(
            name=_user_name(each.name),
            path=f"user.options.{each.name}",
            title=f"{each.title}, simulated user",
            words=_user_name(each.name),
            help=f"{each.help} Of the simulated user.",
            unset="left to the model" if each.unset == AGENT_SETS else each.unset,
            flags=(),
            metavar="",
            form="",
            toml=f"user.options.{each.name}",
            left_out=_NOT_USER_FLAG,
        )
        for each in MODEL_CALL
        if each.name not in _OF_AGENT
    ),
)

RUN_OPTIONS: tuple[RunOption, ...] = (
    *_RUN,
    _MODEL,
    *(
        each._replace(section=MODELS, toml="" if "toml" in each.left_out else f"model.{each.name}")
        for each in MODEL_CALL
    ),
    *_USER,
    *_LIMITS,
)
"""Every option, in the order in which help and pages show them."""

BY_NAME: Mapping[str, RunOption] = {option.name: option for option in RUN_OPTIONS}
BY_PATH: Mapping[str, RunOption] = {option.path: option for option in RUN_OPTIONS}

NOT_OPTIONS: Mapping[str, str] = {
    "user.options.faults": "they are injected into the calls of the agent alone",
    "user.options.live": "a simulated user writes its messages",
    "user.options.live_timeout_s": "a simulated user writes its messages",
    "user.is_spoken": "the type of the simulated user in a criteria file, whose cases are not played yet",
    "user.models": "`models` of the settings, which a case may name for its simulated user",
    "user.options.instruction": "the instructions of the simulated user are user_instructions",
    "user.options.instructions": "the instructions of the simulated user are user_instructions",
    "agent": "what is run",
    "agent_version": "read from the agent's files when the run starts",
    "functions_version": "read from the files of the eval functions when the run starts",
    "agent_model": "said by the agent when the run starts",
    "evalset_id": "what is run",
    "evalset_path": "what is run",
    "evalset_version": "read from the file of the eval set when the run starts",
    "set_version": "follows from the cases and the criteria of the eval set when the run starts",
    "criteria": "each metric declares options of its own, in the table METRICS",
    "recording.folder": "the desk knows it: .evaldesk/recordings of the workspace",
    "evaldesk_version": "who ran it",
    "executor.kind": "as [executors.NAME] of evaldesk.toml has it when the run starts",
    "executor.options": "as [executors.NAME] of evaldesk.toml has them when the run starts",
    "source_run_id": "the run whose trials are scored again, said by the verb `rescore`",
    "n_partly_asserted": "follows from the cases and the criteria when the run starts",
    "allocated_from": "the runs that were there when the budget was spread",
    "n_partly_planned": "follows from the cases, the criteria and the budget when the run starts",
    "is_by_set": "follows from the criteria and the eval set when the run starts",
    "is_by_file": "follows from where the criteria were read when the run starts",
    "n_narrowed": "follows from the cases and the criteria when the run starts",
    "left_out": "follow from the tags of the cases when the run starts",
    "left_out_by": "are the persons who set these tags at the desk",
    "fork": "where a fork begins and its edits, said by the verb `fork` and on the page of forks",
    "shard_sizes": "follow from the cases and the shard when the run starts",
    "n_asserted": "follows from the cases and the criteria when the run starts",
    "interpreter.path": "said by the player when the run starts",
    "interpreter.version": "said by the player when the run starts",
    "interpreter.packages": "said by the player when the run starts",
    "interpreter.digest": "said by the player when the run starts",
    "recorded": "the plan of an imported run, as its file tells it",
    "files": "written by the command that began the run",
    "experiment": "the place of the run among the variants of its experiment, set when that begins",
    "command": "the place of the run among those of its command, set when the command begins",
    "shows_case": "follows from the kind of the agent when the run starts",
    "gates": "what the conclusion asks; they change nothing that is measured, and are declared in model/conclusion.py",
}
"""Fields of a frozen configuration that are no options of the table, and why."""


class Asked(TypedDict, total=False):
    """Options of a request, by name; None and missing keys ask for nothing.

    The table decides which options exist; this is its list for a type checker, held to the table by a test.
    """

    n: int | None
    budget: int | str | None
    allocate: str | None
    concurrency: int | None
    pass_threshold: float | None
    errors_are_failures: bool | None
    rows: str | None
    name: str | None
    fresh: bool | None
    retry_failed: bool | None
    shard: str | None
    expect_version: str | None
    only: str | None
    without: str | None
    strict: bool | None
    compat: str | None
    seed: int | None
    recording: str | None
    recording_tools: bool | None
    prompts: str | None
    on: str | None
    environment: str | None
    isolation: str | None
    memory_mib: int | None
    processes: int | None
    note: str | None
    model: str | None
    instruction: str | None
    instructions: Mapping[str, Any] | None
    base_url: str | None
    api_key_env: str | None
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    reasoning_effort: str | None
    max_turns: int | None
    n_retries: int | None
    rpm: int | None
    tpm: int | None
    live: bool | None
    live_timeout_s: float | None
    faults: Mapping[str, float] | Iterable[tuple[str, float]] | None
    extra: Mapping[str, Any] | None
    price_in: float | None
    price_out: float | None
    user_model: str | None
    user_max_turns: int | None
    user_stop_signal: str | None
    user_instructions: str | None
    user_base_url: str | None
    user_api_key_env: str | None
    user_temperature: float | None
    user_top_p: float | None
    user_max_tokens: int | None
    user_reasoning_effort: str | None
    user_max_calls: int | None
    user_n_retries: int | None
    user_rpm: int | None
    user_tpm: int | None
    user_extra: Mapping[str, Any] | None
    user_price_in: float | None
    user_price_out: float | None
    timeout_s: float | None
    turn_timeout_s: float | None
    tool_timeout_s: float | None
    judge_timeout_s: float | None


def has_door(option: RunOption, door: Door) -> bool:
    """Whether the option can be set there."""
    return door not in option.left_out


def offered(door: Door) -> tuple[RunOption, ...]:
    """The options that can be set there."""
    return tuple(option for option in RUN_OPTIONS if has_door(option, door))


def checked_options(requested: Mapping[str, Any]) -> dict[str, Any]:
    """The requested options, each in its type. Raises UsageError for impossible values, TypeError for a name."""
    unknown = [name for name in requested if name not in BY_NAME]
    if unknown:
        raise TypeError(str(NotFoundError.among("run option", unknown[0], BY_NAME)))
    options = {name: BY_NAME[name].check(value) for name, value in requested.items() if value is not None}
    if options.get("retry_failed") and options.get("fresh"):
        raise UsageError("--fresh and --retry-failed: a new run has no errored trial; leave one out", field="fresh")
    if options.get("retry_failed") and not options.get("name"):
        raise UsageError("--retry-failed: name the run as well, by --name", field="name")
    return options


def check_fields(owner: str, value: object, names: Iterable[RunOption]) -> None:
    """Raise UsageError for a field of `value` that is out of its range; `owner` is the path of the value."""
    for option in names:
        name = option.path.removeprefix(f"{owner}.")
        option.check(getattr(value, name), name)

"""ROUGE through rouge-score, with ADK's way of cutting text into words (reference/adk.md 2.1), and its metrics."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

from evaldesk.errors import MetricError
from evaldesk.metrics.metric import Judgement, MetricInfo, has_reference, mean, score_turns
from evaldesk.model import Case, Expected, Score, Transcript, TurnRecord
from evaldesk.process_setup import gc_paused

MAX_CELLS = 4_000_000

_PARTLY = {"nltk", "rouge_score"}

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_CJK = re.compile("[\u4e00-\u9fff\u3040-\u30ff\uac00-\ud7af]")
# Thai, Lao, Myanmar, Khmer: written without spaces; a word here is a letter with its marks.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


@dataclass(frozen=True, slots=True)
class RougeScore:
    """Precision, recall and F-measure with the counts of words they come from."""

    precision: float
    recall: float
    fmeasure: float
    n_expected: int
    n_given: int
    n_shared: int


def preload() -> None:
    """Import the parts of rouge-score, once, for a process in which no other code runs yet.

    rouge-score imports the whole of nltk for its stemmer, and nltk imports scipy: 1.1 CPU seconds and 110 MB instead
    of 0.2 and 35. So nltk's own `__init__` is left out here. (decision 035)
    """
    if _scorer_class.cache_info().currsize:
        return
    if _PARTLY & set(sys.modules):
        _scorer_class()
        return
    with gc_paused():
        try:
            with _nltk_in_parts():
                score_rouge1("warm", "warm")
        except (ImportError, AttributeError):  # another edition of nltk, whose parts need the whole
            score_rouge1("warm", "warm")


@contextmanager
def _nltk_in_parts() -> Iterator[None]:
    """Let modules of nltk be imported without the whole.

    They are forgotten afterwards, so that an agent which imports nltk or rouge-score gets all of it.
    """
    for name in ("nltk", "nltk.stem"):
        spec = find_spec(name)
        module = sys.modules[name] = ModuleType(name)
        module.__spec__, module.__path__ = spec, list(spec.submodule_search_locations or ()) if spec else []
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in _PARTLY]:
            del sys.modules[name]


def rouge1(reference: str, candidate: str) -> float:
    """F-measure of ROUGE-1 after stemming, 0 to 1, as ADK computes it; 0 when either text has no words."""
    return score_rouge1(reference, candidate).fmeasure


def score_rouge1(reference: str, candidate: str) -> RougeScore:
    """ROUGE-1 of `candidate` against `reference`, with the counts behind it."""
    return _score("rouge1", reference, candidate, len(rouge_tokens(reference)), len(rouge_tokens(candidate)))


def score_rouge2(reference: str, candidate: str) -> RougeScore:
    """ROUGE-2: the counts are of pairs of neighbouring words."""
    n_expected, n_given = len(rouge_tokens(reference)), len(rouge_tokens(candidate))
    return _score("rouge2", reference, candidate, max(n_expected - 1, 0), max(n_given - 1, 0))


def score_rouge_l(reference: str, candidate: str) -> RougeScore:
    """ROUGE-L: `n_shared` is the longest run of words that both have in the same order, gaps allowed.

    Raises MetricError for texts so long that rouge-score's table of words by words would fill the memory.
    """
    n_expected, n_given = len(rouge_tokens(reference)), len(rouge_tokens(candidate))
    if n_expected * n_given > MAX_CELLS:
        raise MetricError(
            f"ROUGE-L compares every word with every word, and {n_given:,} words against {n_expected:,} are too many; "
            "use response_match_score or response_rouge_2 for texts of this length"
        )
    return _score("rougeL", reference, candidate, n_expected, n_given)


def _score(measure: str, reference: str, candidate: str, n_expected: int, n_given: int) -> RougeScore:
    score = _scorer(measure).score(reference, candidate)[measure]
    n_shared = round(score.recall * n_expected)
    return RougeScore(score.precision, score.recall, score.fmeasure, n_expected, n_given, n_shared)


@lru_cache(maxsize=4)  # rouge-score asks for the words of both texts, and so do the counts
def rouge_tokens(text: str) -> tuple[str, ...]:
    """The words of `text`: NFKC, lower case, ASCII words stemmed, CJK by character, other scripts by word."""
    stem = _stemmer()
    if text.isascii():
        return tuple(map(stem, _ASCII_WORD.findall(text.lower())))
    spaced = unicodedata.normalize("NFKC", text).lower().translate(_SPACING)
    return tuple([stem(word) if word.isascii() else word for word in spaced.split()])


class _Spacing(dict[int, str]):
    """The replacement of each character with spaces where words end at it; fills on demand."""

    def __missing__(self, code: int) -> str:
        self[code] = spaced = _space(chr(code))
        return spaced


def _space(char: str) -> str:
    if _CJK.match(char):
        return f" {char} "
    is_mark = unicodedata.category(char).startswith("M")
    if _UNSPACED.match(char):
        return char if is_mark else f" {char}"
    return char if is_mark or char.isalnum() else " "


_SPACING = _Spacing()


@cache
def _stemmer() -> Callable[[str], str]:
    """Porter's stem of a word of more than three letters, as rouge-score takes it; remembered word by word."""
    from nltk.stem.porter import PorterStemmer

    stem = PorterStemmer().stem

    @lru_cache(maxsize=65_536)
    def stem_of(word: str) -> str:
        return str(stem(word)) if len(word) > 3 else word

    return stem_of


@cache
def _scorer(measure: str) -> Any:
    return _scorer_class()([measure], tokenizer=_AdkTokenizer())


@cache
def _scorer_class() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer


class _AdkTokenizer:
    def tokenize(self, text: str) -> tuple[str, ...]:
        return rouge_tokens(text)


@dataclass(frozen=True, slots=True)
class _Rouge:
    """Mean F-measure over the turns that have a reference; `sentence` has `shared`, `expected` and `given`."""

    info: ClassVar[MetricInfo]
    unit: ClassVar[str] = "words"
    sentence: ClassVar[str]
    measure: ClassVar[Callable[[str, str], RougeScore]]

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """The F-measure of each turn with a reference, and their mean."""
        return score_turns(self.info.name, transcript, case, has_reference, self._judge)

    def _judge(self, expected: Expected, record: TurnRecord) -> Judgement:
        rouge = type(self).measure(expected.reference or "", record.answer)
        details = {
            "precision": rouge.precision,
            "recall": rouge.recall,
            "n_expected": rouge.n_expected,
            "n_given": rouge.n_given,
            "n_shared": rouge.n_shared,
        }
        return rouge.fmeasure, self._reason(rouge, record.answer), details

    def _reason(self, rouge: RougeScore, answer: str) -> str:
        if not answer.strip():
            return "The agent gave no answer."
        if not rouge.n_expected:
            return f"The reference has no {self.unit} to compare with."
        if not rouge.n_given:
            return f"The answer has no {self.unit} to compare."
        return self.sentence.format(shared=rouge.n_shared, expected=rouge.n_expected, given=rouge.n_given)


class ResponseRouge2(_Rouge):
    """Mean ROUGE-2 F-measure; a text of one word has no pairs and scores 0."""

    info = MetricInfo(
        "response_rouge_2",
        "Response word pairs",
        "Overlap of neighbouring words between answer and reference after stemming (ROUGE-2).",
        needs="reference",
        default_threshold=0.5,
    )
    unit = "pairs of words"
    sentence = "{shared} of {expected} expected pairs of words, {given} given."
    measure = score_rouge2


class ResponseRougeL(_Rouge):
    """Mean ROUGE-L F-measure."""

    info = MetricInfo(
        "response_rouge_l",
        "Response word order",
        "Longest sequence of words shared by answer and reference after stemming (ROUGE-L).",
        needs="reference",
        default_threshold=0.7,
    )
    sentence = "{shared} of {expected} expected words in their order, {given} given."
    measure = score_rouge_l


class ResponseMatchScore(_Rouge):
    """Mean ROUGE-1 F-measure over the turns that have a reference.

    ADK gives a turn without a reference 0; here it is not asserted and left out of the mean. A reference that is the
    empty text scores 0, as in ADK.
    """

    info = MetricInfo(
        "response_match_score",
        "Response match",
        "Overlap of words between answer and reference after stemming (ROUGE-1), as in ADK.",
        needs="reference",
        default_threshold=0.8,
    )
    sentence = "{shared} of {expected} expected words, {shared} of {given} given, after stemming."
    measure = score_rouge1

    def score(self, transcript: Transcript, case: Case) -> list[Score]:
        """ROUGE-1 for each turn with a reference, and their mean; details have that of ADK."""
        *turns, trial_score = _Rouge.score(self, transcript, case)
        values_by_turn = {score.turn: score.value or 0.0 for score in turns}
        values = [values_by_turn.get(index, 0.0) for index in range(len(case.turns))]
        is_whole = len(transcript.turns) >= len(case.turns) > 0
        return [
            *turns,
            replace(trial_score, details={**trial_score.details, "adk_value": mean(values) if is_whole else None}),
        ]

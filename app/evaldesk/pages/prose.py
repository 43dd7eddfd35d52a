"""Messages as Markdown: rendered, sanitised, and bounded in size."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import groupby
from typing import Any

from evaldesk.diff.text_diff import opcodes
from evaldesk.pages.json_tree import Node, Trees

MAX_RENDERED = 20_000
"""A longer text is shown as it stands."""
MAX_ON_PAGE = 100_000
"""So many characters of Markdown are rendered for one page: a parser needs up to 7 µs for each."""
BLOCKS = frozenset({"p", "br", "pre", "blockquote", "hr", "ul", "ol", "li", "div"})
CELLS = frozenset({"table", "thead", "tbody", "tr", "th", "td"})
SCROLLS = {"class": "scroll", "role": "group", "tabindex": "0", "aria-label": "Table"}
DIRECTED = ("ol", "ul", "blockquote", "table")
WORDS = frozenset({"strong", "em", "s", "code", "a"})
SCHEMES = frozenset({"http", "https", "mailto"})
_MARKS = re.compile(r"[*_`#\[\]|~<&\\]|^[ \t]*(?:[-+>]|\d+[.)])\s|^[ \t]*(?:-{3,}|={1,})[ \t]*$", re.MULTILINE)
_WORD_OR_TAG = re.compile(r"<[^<>]*>|\s*(?:&#?\w+;|\w+|[^\w\s<])|\s+")
"""A tag of sanitised HTML, a word with the space before it (a character reference is one), or space."""
_PLAIN = re.compile(r"</?p>|<br>|\n")


@dataclass(frozen=True, slots=True)
class Prose:
    """A text and its sanitised HTML, which is empty where the text stands as it is; `tree` is that of a text of JSON.

    `is_too_long` tells a text that has marks of Markdown but is beyond the limits.
    """

    text: str
    html: str = ""
    is_too_long: bool = False
    tree: Node | None = None

    def __html__(self) -> str:
        return self.html


@dataclass(slots=True)
class Markdown:
    """Renders the texts of one page, in the order of the page, until MAX_ON_PAGE characters are rendered."""

    n_left: int = MAX_ON_PAGE
    trees: Trees = field(default_factory=Trees)

    def prose(self, text: str) -> Prose:
        """`text` as prose."""
        if tree := self.trees.tree(text):
            return Prose(text, tree=tree)
        if len(text) > min(MAX_RENDERED, self.n_left):
            return Prose(text, is_too_long=_has_marks(text[:MAX_RENDERED]))
        if not _has_marks(text):
            return Prose(text)
        self.n_left -= len(text)
        return Prose(text, _rendered(text))

    def difference(self, expected: str, actual: str) -> tuple[Prose, Prose] | None:
        """Two texts as prose with marks at the words that differ; None without Markdown, or where there is no room."""
        if max(len(expected), len(actual)) > MAX_RENDERED or len(expected) + len(actual) > self.n_left:
            return None
        if not (_rendered(expected) or _rendered(actual)):
            return None
        self.n_left -= len(expected) + len(actual)
        expected_html, actual_html = _marked(_html(expected), _html(actual))
        return Prose(expected, expected_html), Prose(actual, actual_html)


def _has_marks(text: str) -> bool:
    return _MARKS.search(text) is not None


def _marked(expected: str, actual: str) -> tuple[str, str]:
    """Sanitised HTML of two texts with `del` and `ins` around the words that differ, inside of single text nodes."""
    old_parts, new_parts = _WORD_OR_TAG.findall(expected), _WORD_OR_TAG.findall(actual)
    old_places = [at for at, part in enumerate(old_parts) if _is_word(part)]
    new_places = [at for at, part in enumerate(new_parts) if _is_word(part)]
    old_words, new_words = [old_parts[at].strip() for at in old_places], [new_parts[at].strip() for at in new_places]
    deletions, insertions = set[int](), set[int]()
    for op, i, i_end, j, j_end in opcodes(old_words, new_words):
        if op != "equal":
            deletions.update(old_places[i:i_end])
            insertions.update(new_places[j:j_end])
    return _with_marks(old_parts, deletions, "del"), _with_marks(new_parts, insertions, "ins")


def _with_marks(parts: Sequence[str], places: Collection[int], tag: str) -> str:
    """The parts joined; a run of marked words is one element, and the space before it stays outside."""
    html: list[str] = []
    for is_marked, run in groupby(enumerate(parts), key=lambda each: each[0] in places):
        text = "".join(part for _, part in run)
        space = text[: len(text) - len(text.lstrip())]
        html.append(f"{space}<{tag}>{text.lstrip()}</{tag}>" if is_marked else text)
    return "".join(html)


def _is_word(part: str) -> bool:
    return not part.startswith("<") and not part.isspace()


@lru_cache(maxsize=1024)
def _rendered(text: str) -> str:
    """Sanitised HTML; empty where it says no more than the text itself."""
    html = _html(text)
    return html if "<" in _PLAIN.sub("", html) else ""


def _html(text: str) -> str:
    import nh3

    html: str = nh3.clean(
        _parser().render(text),
        # Nothing of a hostile text may become another element or attribute: decision 021.
        tags=set(BLOCKS | CELLS | WORDS),
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes=set(SCHEMES),
        url_relative="deny",
        link_rel="noopener noreferrer",
        # A list and a table run in the direction of their first word: their marks and columns do, too.
        set_tag_attribute_values={
            "a": {"target": "_blank"},
            "div": SCROLLS,
            **{tag: {"dir": "auto"} for tag in DIRECTED},
        },
    )
    return html


@cache
def _parser() -> Any:
    """CommonMark with tables and strikethrough. HTML is text, an image is its description, line ends are kept."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.validateLink = _is_link  # type: ignore[method-assign]
    parser.add_render_rule("image", _image)
    parser.add_render_rule("table_open", lambda *_: "<div><table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    for rule in ("heading_open", "heading_close"):
        parser.add_render_rule(rule, _heading)
    return parser


def _is_link(url: str) -> bool:
    """Whether a link may lead to `url`; of any other the text stays as it is written."""
    return url.partition(":")[0].lower() in SCHEMES and ":" in url


def _image(_renderer: object, tokens: Any, index: int, *_: object) -> str:
    """The description of an image; nh3 would drop it with the image. Nothing is ever fetched."""
    from markdown_it.common.utils import escapeHtml

    return f"[image: {escapeHtml(tokens[index].content)}]"


def _heading(_renderer: object, tokens: Any, index: int, *_: object) -> str:
    """A heading of a text is no heading of the page."""
    return "<p><strong>" if tokens[index].type == "heading_open" else "</strong></p>\n"

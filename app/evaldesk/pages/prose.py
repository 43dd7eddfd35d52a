"""Messages as Markdown: rendered, sanitised, and bounded in size."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

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


def _has_marks(text: str) -> bool:
    return _MARKS.search(text) is not None


@lru_cache(maxsize=1024)
def _rendered(text: str) -> str:
    """Sanitised HTML; empty where it says no more than the text itself."""
    import nh3

    html = nh3.clean(
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
    return html if "<" in _PLAIN.sub("", html) else ""


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

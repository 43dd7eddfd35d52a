"""Whatever an agent, a tool or a file says is shown as it stands or as Markdown, and is never part of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.routing import Match

pytestmark = pytest.mark.long

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
PROSE = set(re.findall(r"\w+", "p br strong em s code pre blockquote ul ol li div table thead tbody tr th td hr a"))
ATTRIBUTES = {
    "a": {"href", "rel", "target"},
    "ul": {"dir"},
    "ol": {"dir", "start"},
    "div": {"class", "role", "tabindex", "aria-label"},
}
ADDRESSES = {"href", "src", "action", "formaction", "hx-get", "hx-post", "hx-sse:connect", "xlink:href", "poster"}


class Elements(HTMLParser):
    """The elements of a page, each with its attributes, and its text; `prose` are those of rendered Markdown."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str]]] = []
        self.prose: list[tuple[str, dict[str, str]]] = []
        self._inside: list[str] = []
        self._pieces: list[str] = []
        self.odd: list[str] = []
        self.feed(page)
        self.close()

    def updatepos(self, i: int, j: int) -> int:
        """Count no lines, which nobody asks for."""
        return j

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.odd.append(f"an attribute twice in {tag}: {names}")
        attributes = {name: value or "" for name, value in attrs}
        (self.prose if self._inside else self.found).append((tag, attributes))
        if (self._inside or attributes.get("class") == "prose") and tag not in VOID:
            self._inside.append(tag)
        self._pieces += [f"\x00{value}" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside.pop() != tag:
            self.odd.append(f"an end without its beginning: {tag}")

    def handle_data(self, data: str) -> None:
        self._pieces.append(data)

    def handle_comment(self, data: str) -> None:
        self.odd.append(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        if decl.lower() != "doctype html":
            self.odd.append(f"a declaration: {decl}")

    def unknown_decl(self, data: str) -> None:
        self.odd.append(f"a declaration: {data}")

    def handle_pi(self, data: str) -> None:
        self.odd.append(f"an instruction: {data}")

    @property
    def text(self) -> str:
        """What the page says, the values of its attributes included."""
        return "".join(self._pieces)

    @property
    def shapes(self) -> set[tuple[str, str]]:
        """Every attribute that stands at an element of each kind."""
        return {(tag, name) for tag, attributes in self.found for name in ("", *attributes)}


def faults(elements: Elements, nonce: str) -> Iterator[str]:
    """What may stand on no page, whatever it shows."""
    yield from elements.odd
    yield from faults_of_prose(elements)
    for tag, attributes in elements.found:
        if [name for name in attributes if name.startswith("on") or name in {"style", "srcdoc"}]:
            yield f"a handler or style: {tag} {attributes}"
        if [name for name in attributes if name.startswith("data-hx")]:
            yield f"htmx by another name: {tag} {attributes}"
        steers = [name for name in attributes if name.startswith("hx-") and name != "hx-swap-oob"]
        if steers and attributes.get("hx-nonce") != nonce:
            yield f"htmx without the nonce: {tag} {attributes}"
        if tag == "script" and attributes.get("nonce") != nonce and attributes.get("type") != "application/json":
            yield f"a script without the nonce: {attributes}"
        if tag in {"iframe", "object", "embed", "base", "marquee", "math", "audio", "video"}:
            yield f"a foreign element: {tag} {attributes}"
        for name in ADDRESSES & set(attributes):
            if not re.match(r"(/(?![/\\])|#|\?|$|\d+/cases/)", attributes[name]):
                yield f"an address elsewhere: {tag} {name}={attributes[name]!r}"


def faults_of_prose(elements: Elements) -> Iterator[str]:
    """What rendered Markdown may not be made of."""
    for tag, attributes in elements.prose:
        if tag not in PROSE or set(attributes) - ATTRIBUTES.get(tag, set()):
            yield f"no prose: {tag} {attributes}"
        if tag == "a" and attributes.get("rel") != "noopener noreferrer":
            yield f"a link that may steer this page: {attributes}"
        if tag == "div" and attributes["class"] != "scroll":
            yield f"no frame of a table: {attributes}"
        if attributes.get("dir", "auto") != "auto":
            yield f"a direction of its own: {tag} {attributes}"
        if "href" in attributes and not re.match(r"(https?://|mailto:)", attributes["href"]):
            yield f"an address that is no page: {attributes}"


@pytest.fixture(scope="module")
def hostile(
    build_fort: Callable[..., Any], payloads: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A desk in which every text is hostile."""
    fort = build_fort(tmp_path_factory.mktemp("hostile") / "workspace", payloads)
    with fort.client:
        yield fort


@pytest.fixture(scope="module")
def pages(hostile: Any) -> dict[str, Any]:
    """The answer of every page of it."""
    return {address: hostile.get(address) for address in hostile.pages()}


@pytest.fixture(scope="module")
def elements_of(pages: dict[str, Any]) -> dict[str, Elements]:
    """What every page of it is made of."""
    return {address: Elements(answer.text) for address, answer in pages.items()}


@pytest.fixture(scope="module")
def shapes(build_fort: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """What the pages are made of when nobody says anything out of the way."""
    texts = tuple(f"plain text {number}" for number in range(32))  # so many that whatever is folded is folded
    fort = build_fort(tmp_path_factory.mktemp("plain") / "workspace", texts)
    readers = [address for address in fort.pages() if "?reader=plain" in address]  # all have the same page
    with fort.client:
        asked = [address for address in fort.pages() if address not in readers[1:]]
        return set().union(*(Elements(fort.get(address).text).shapes for address in asked))


def nonce_of(answer: Any) -> str:
    found = re.search(r"'nonce-([\w-]+)'", answer.headers["content-security-policy"])
    assert found
    return found[1]


def test_no_page_of_the_desk_is_left_out(hostile: Any, pages: dict[str, Any]) -> None:
    routes = [route for route in hostile.routes() if "GET" in route.methods and not route.path.endswith("/events")]
    asked = [{"type": "http", "method": "GET", "path": address.partition("?")[0], "headers": []} for address in pages]
    left = [route for route in routes if not any(route.matches(scope)[0] is Match.FULL for scope in asked)]

    answers = {route.path: hostile.client.get(hostile.address(route), follow_redirects=False) for route in left}

    shown = {path: answer for path, answer in answers.items() if "content-disposition" not in answer.headers}
    assert [path for path, answer in shown.items() if answer.status_code == 200 and "<main" in answer.text] == []
    assert {path: answer.status_code for path, answer in answers.items() if answer.status_code >= 400} == {}


def test_hostile_text_adds_no_element_and_no_attribute_to_any_page(
    pages: dict[str, Any], elements_of: dict[str, Elements], shapes: set[tuple[str, str]]
) -> None:
    for address, answer in pages.items():
        assert answer.status_code == 200, (address, answer.text[:300])
        elements = elements_of[address]
        assert elements.shapes - shapes == set(), address
        assert list(faults(elements, nonce_of(answer))) == [], address


def test_hostile_markdown_is_rendered_where_a_conversation_is_shown_and_nowhere_else(
    hostile: Any, elements_of: dict[str, Elements]
) -> None:
    rendered = {address for address, elements in elements_of.items() if elements.prose}

    assert {f"/sessions/{hostile.session}", f"{hostile.conversation}?all=1"} <= rendered
    paths = {address.partition("?")[0] for address in rendered}
    assert {re.sub(r"[^/]*\d[^/]*|[\w-]{20,}", "*", path) for path in paths} <= {
        "/bench",
        "/inbox/*",
        "/inbox/cases",
        "/queues/*",
        "/sessions/*",
        "/runs/*/cases/*/trials/*",
    }


def test_hostile_text_is_shown_to_the_letter(
    hostile: Any, payloads: tuple[str, ...], elements_of: dict[str, Elements], pages: dict[str, Any]
) -> None:
    fort = hostile
    session, trial = f"/sessions/{fort.session}", f"/runs/{fort.run}/cases/0/trials/0"

    for address in (session, trial, f"{fort.conversation}?all=1", f"/evalsets/{fort.evalset}"):
        shown = re.sub(r"\s+", " ", elements_of[address].text)
        wanted = [payload for payload in payloads if len(payload) < 100]
        missing = [each for each in wanted if re.sub(r"\s+", " ", each).strip() not in shown]
        assert missing == [], address
    assert '<table class="diff">' not in pages[fort.conversation].text


def test_parts_of_a_trial_are_harmless(hostile: Any, shapes: set[tuple[str, str]]) -> None:
    for address in hostile.parts():
        answer = hostile.get(address, **{"HX-Request": "true"})
        assert answer.status_code == 200
        elements = Elements(answer.text)
        assert elements.shapes - shapes == set(), address
        assert list(faults(elements, nonce_of(answer))) == [], address


def test_every_case_by_its_own_id_is_harmless(hostile: Any, shapes: set[tuple[str, str]]) -> None:
    fort = hostile

    for key in fort.cases[1:]:
        for address in (f"/evalsets/{fort.evalset}/cases/{key}", f"/evalsets/{fort.evalset}/cases/{key}/json"):
            answer = fort.get(address)
            assert answer.status_code == 200
            elements = Elements(answer.text)
            assert elements.shapes - shapes == set(), address
            assert list(faults(elements, nonce_of(answer))) == [], address


def test_what_was_typed_wrongly_comes_back_as_text(fort: Any, payloads: tuple[str, ...]) -> None:
    agent = fort.desk.agents.list()[0].id

    for text in payloads[::3]:
        for address, fields in (
            ("/sessions", {"agent": agent, "state": text, "title": text}),
            (f"/sessions/{fort.session}/state", {"state": text}),
            (f"/sessions/{fort.session}/title", {"title": f" {text}"}),
            ("/evalsets", {"name": f"-{text}", "description": text}),
            (f"/evalsets/{fort.evalset}/settings", {"name": f"-{text}", "description": text}),
            ("/runs", {"agent": text, "evalset": text, "metric": text, "n": text, "note": text, "model": text}),
            ("/runs/new", {"agent": text, "evalset": text, "metric": text, "n": text, "case": text}),
            (f"/runs/{fort.run}", {"note": text * 3000}),
            (f"/evalsets/{fort.evalset}/cases/new", {"case": text, "turn-0-query": "", "initial": text, "op": text}),
            (f"/evalsets/{fort.evalset}/cases/{fort.cases[0]}/json", {"raw": text}),
            (f"/sessions/{fort.session}/case", {"case": text, "new-set": text, "evalset": text, "final": text}),
        ):
            answer = fort.client.post(address, data=fields)
            assert answer.status_code < 500, (address, text)
            assert "content-security-policy" in answer.headers
            if answer.status_code != 303:
                assert list(faults(Elements(answer.text), nonce_of(answer))) == [], (address, text)
            else:
                assert re.match(r"/[a-z]", answer.headers["location"]), address
                assert answer.headers["location"].isascii()


def test_an_answer_that_streams_is_escaped_and_steers_nothing(hostile: Any, payloads: tuple[str, ...]) -> None:
    fort = hostile
    headers = {"Accept": "text/event-stream", "HX-Request": "true"}

    answer = fort.client.post(f"/sessions/{fort.session}/turns", data={"message": payloads[0]}, headers=headers)

    assert answer.status_code == 200
    assert fort.host.n_turns == 1
    lines = re.split(r"\r\n|\r|\n", answer.text)  # what ends a line of a stream, and nothing else
    assert {line.partition(":")[0] for line in lines} == {"data", "event", ""}
    assert [line for line in lines if line.startswith("event")] == ["event: done"]
    html = "\n".join(line.removeprefix("data: ") for line in lines if line.startswith("data: "))
    elements = Elements(html)
    assert [name for _, attributes in elements.found for name in attributes if name.startswith("on")] == []
    assert {name for _, attributes in elements.found for name in attributes if "hx-" in name} == {"hx-swap-oob"}
    wrappers = [attributes["hx-swap-oob"] for _, attributes in elements.found if "hx-swap-oob" in attributes]
    ours = re.compile(r"(innerHTML|innerMorph|beforeend):#[a-z-]+|delete:#turns > #turn-\d+")
    assert all(ours.fullmatch(wrapper) for wrapper in wrappers)


@pytest.mark.parametrize(
    "address",
    [
        "/nowhere/<script>alert(1)</script>",
        "/runs?q=%22%3E%3Cimg src=x onerror=alert(1)%3E",
        "/runs?agent=%3Cscript%3Ealert(1)%3C/script%3E&evalset=%22 onload=x&status=%3Cb%3E",
        "/evalsets?trashed=%3Cscript%3E",
        "/sessions?deleted=%22%3E%3Cscript%3E",
        "/runs/new?agent=%3Cscript%3E&evalset=%3Cscript%3E&case=%3Cscript%3E&n=%22%3E%3Cb%3E&note=%3C/textarea%3E",
        "/sessions/new?agent=%3Cscript%3Ealert(1)%3C/script%3E",
    ],
)
def test_an_address_is_shown_as_text_too(fort: Any, shapes: set[tuple[str, str]], address: str) -> None:
    answer = fort.get(address)

    if answer.status_code != 303:
        elements = Elements(answer.text)
        assert ("script", "onerror") not in elements.shapes
        assert list(faults(elements, nonce_of(answer))) == []
        assert {tag for tag, _ in elements.shapes} <= {tag for tag, _ in shapes} | {"main", "mark"}

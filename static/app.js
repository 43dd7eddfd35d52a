/* What the server cannot do. No framework, no inline handlers, never markup from text (Trusted Types: htmx only).

   Elements announce themselves; nothing here knows a page:
   data-key="n"          a link or button that the key n follows or presses; of several, the first that is shown
   data-row-key="b"      a link that the key follows while its row is the current one, in place of the data-key of the page
   data-rows             its children (tbody: rows; else children or [data-row] inside) are walked with j and k;
                         the current row is focused and has data-current; Enter opens its first link, x ticks it
   data-broken           tests that did not pass: n and p walk those that are shown, before they lead to another trial;
                         [ and ] walk the hunks of a patch
   data-select           a form or section with tick boxes: [data-select-all] ticks every box in it,
                         [data-select-count] shows how many, [data-select-some] is shown only while there are some;
                         data-select="NAME" keeps the ticks on other pages and searches, [data-select-clear] drops them,
                         [data-select-none] too, [data-select-whole="214"] stands for all that match;
                         a button with data-select-most="2" works up to two, data-select-beyond="2" is shown with more
   .tabs                 links to ids on this page: aria-current follows the address (also of nested targets)
   data-figure="ID"      <script type="application/json">: a Plotly figure. The element with that id shows a drawing
                         until one points at it or presses [data-draw="ID"]: then Plotly is loaded from data-library
                         and draws in its place; strings "var(--token)" become that colour
   <time datetime>       gets the local date and time as its title
   data-theme-switch     a button that goes on from system to light to dark; its span says which it is
   data-text-switch      a button that goes from Markdown to the text as it was written, and back
   data-differences-switch  a button that hides what is as expected ([data-same], and rows that are equal), and shows it again
   data-toast            a note of what was stored: it goes to the corner, where a button dismisses it
   data-says-stored      a form that says this there once the server has taken it; every form that is posted says there
                         that it was not stored, also when the desk does not answer: the page stays as it is then
   data-copies="TEXT"    a button that puts this text on the clipboard; hidden without a script
   data-dirty-guard      a form whose unsaved edits ask before the page is left; its buttons named "op" save nothing
   data-uploads="ID"     a form whose large files are sent with a bar, in the element of that id, whose button ends it
   data-enter            a textarea in which Enter sends its form (Shift+Enter: new line); it grows with its text
   data-attach           the label of a file field: it says what was chosen; a file that is pasted into its form is added
   data-follow           a box that stays scrolled to its end while its content grows, unless one scrolls up
   data-starts           a button that Ctrl or Cmd with Enter presses, also while one types
   data-presses="ID"     a field in which Enter presses the button of that id, and not the first one of its form
   data-without-script   the first button of a form, which Enter presses without a script; with one it sends the form itself
   data-filters="ID"     a field that shows only those labels in the element of that id that have the typed words; Enter
                         ticks the first one, arrows walk them, Esc closes the <details> around it
   data-confirm="TEXT"   a form that asks before it is sent
   data-keep-open        an element with an id: what is unfolded in it stays so when a swap brings it anew
   data-keeps="NAME"     a form: what was typed in it stays when a swap brings a form of that name; in one that the swap
                         leaves in its place with unsaved edits, all of it
   data-when-lost        is shown when a stream breaks off before its event `done`
   data-says, data-state what the tab says of a run, in its title and in the colour of its icon; when a running one ends
                         behind another tab, a notification says it, where it was allowed by [data-notifies]
   data-choice="o"       a radio button that the key o chooses in the current row; data-picks="answer" chooses the first of
                         every row with that data-part in its data-group, or in its data-turn, all of them, or none;
                         data-unpicks takes the last choice back, and Ctrl S presses [data-saves]
   data-stored           a form that htmx sends: keys pressed before its answer wait for it, and are dropped when it was
                         not stored, which the [data-when-not-stored] in it says; the element whose id it names gets the
                         focus after that, so that keys are keys again
   data-marks="ID"       a link to a turn, with the text that a finding of that id marks there: the text is marked in the turn,
                         and a click leads from one mark to the other; data-event is the place of the message or the call
   data-rest             a link that htmx follows when one scrolls to it, for what the page has left out: an address
                         "#turn-2-event-7" in a part that is not there yet asks for the parts of its turn until it is
   data-shows="failure"  a page that is noted in this browser once it was opened: an element with data-seen="failure" is
                         done then; data-hides="first-steps" is the button that hides [data-first-steps] for good
   data-opens="palette"  a link that opens the dialog with that id instead; a button with data-closes closes it
   Ctrl or Cmd with K opens #palette: its field asks the server, and what the page itself can do (its keys and the
   buttons of its head) and the last places of this tab stand before the answer.
   Keys stand down while one types (Escape leaves a field), and with Ctrl, Alt or Meta held. `?` opens the
   popover #keys, `/` focuses the element with data-key="/" or type="search". */
"use strict";

/* A page that is left before it was all there gives up its transition, which is no fault of it. This is the first
   script of a page, and this its first line: a transition may be given up while the others are loaded. */
window.addEventListener("unhandledrejection", (event) => /^Transition was/.test(event.reason?.message) && event.preventDefault());

const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

/* The theme is of this browser, and is set before the page is drawn: this script does not wait for it. */

const THEMES = ["system", "light", "dark"];
const theme = () => (THEMES.includes(kept("theme")) ? kept("theme") : "system");
function wear(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  for (const button of $$("[data-theme-switch]")) {
    button.hidden = false;
    button.querySelector("span").textContent = `Theme: ${name}`;
  }
}
wear(theme());
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-theme-switch]")) return;
  const name = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % THEMES.length];
  keep("theme", name);
  wear(name);
  redraw();
});
function keep(name, value) {
  try {
    localStorage[name] = value;
  } catch {
    /* it holds for this page */
  }
}
function kept(name) {
  try {
    return localStorage[name];
  } catch {
    return undefined; // a browser that keeps nothing
  }
}

/* So are two switches: the text as it was written in place of Markdown, and only what is not as expected. */

const SWITCHES = {
  text: { on: "raw", off: "markdown", mark: "data-raw", buttons: "[data-text-switch]" },
  differences: { on: "only", off: "all", mark: "data-differing", buttons: "[data-differences-switch]" },
};
function turn({ mark, buttons }, isOn) {
  document.documentElement.toggleAttribute(mark, isOn);
  for (const button of $$(buttons)) {
    button.hidden = false;
    button.setAttribute("aria-pressed", String(isOn));
  }
}
const isTurnedOn = ({ mark }) => document.documentElement.hasAttribute(mark);
const turnAsKept = () => Object.entries(SWITCHES).forEach(([name, each]) => turn(each, kept(name) === each.on));
turnAsKept();
document.addEventListener("click", (event) => {
  for (const [name, each] of Object.entries(SWITCHES)) {
    if (!event.target.closest(each.buttons)) continue;
    turn(each, !isTurnedOn(each));
    keep(name, isTurnedOn(each) ? each.on : each.off);
  }
});
document.addEventListener("htmx:after:swap", () => Object.values(SWITCHES).forEach((each) => turn(each, isTurnedOn(each))));
window.addEventListener("storage", (event) => event.key === "theme" && (wear(theme()), redraw()));
window.addEventListener("storage", (event) => event.key in SWITCHES && turnAsKept());

/* The first steps of a newcomer in a workspace: the last one is done when the page of a failure was opened; then they
   are hidden. */

const inWorkspace = (name) => `${name}-${document.documentElement.dataset.workspace}`;

document.addEventListener("DOMContentLoaded", () => {
  for (const page of $$("[data-shows]")) keep(inWorkspace(`seen-${page.dataset.shows}`), "yes");
  for (const step of $$("[data-seen]").filter((each) => kept(inWorkspace(`seen-${each.dataset.seen}`)))) step.dataset.done = "";
  for (const button of $$("[data-hides]")) {
    const box = button.closest(`[data-${button.dataset.hides}]`);
    const isOver = !box.querySelector("li:not([data-done])");
    button.hidden = false;
    box.hidden = isOver || Boolean(kept(inWorkspace(`hides-${button.dataset.hides}`)));
  }
});
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-hides]");
  if (!button) return;
  keep(inWorkspace(`hides-${button.dataset.hides}`), "yes");
  button.closest(`[data-${button.dataset.hides}]`).hidden = true;
});
const isShown = (element) => element.checkVisibility();

document.addEventListener("DOMContentLoaded", () => window.htmx?.config.morphIgnore.push("open", "data-current", "tabindex"));

/* Keys */

const isTyping = (element) =>
  element.isContentEditable || element.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=submit])");

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape" && !event.target.closest("dialog")) event.target.blur(); // keys are keys again
    return;
  }
  if (event.key === "Escape") destination = "";
  if (isWaiting() && isForLater(event.key)) ahead.push(event.key);
  else if (!onKey(event.key, event.target)) return;
  event.preventDefault();
});

/* Keys pressed ahead of an answer. Once a link is followed they are meant for its page: here they would label or
   open another trial than the one that is meant. */

let ahead = [];
let destination = ""; // of the link that was followed
const storing = new Set(); // forms whose answer is awaited
const MS_TO_READ = 1500; // no key leaves the page before a person has seen that something was not stored
let lostAt = -MS_TO_READ;
let isReady = false; // htmx knows the forms of the page: one that is sent before loads a page, and loses the next keys
const isWaiting = () => !isReady || storing.size > 0 || destination !== "";

/* A letter or a digit may be a key; after one, which may lead into a field, anything may be text, and all keep their
   order: an arrow that overtakes the letter before it moves nothing, and the letter after it finds no cell. */
const isForLater = (key) => /^[a-z0-9]$/.test(key) || (ahead.length > 0 && (key.length === 1 || /^(Enter|Escape|Arrow\w+)$/.test(key)));

function playAhead() {
  while (ahead.length && !isWaiting()) {
    const field = document.activeElement;
    const key = ahead.shift();
    if (isTyping(field) && field.setRangeText) typeLate(key, field);
    else if (!onKey(key, field) && key === "Enter" && field.matches("a[href], button, summary")) press(field);
  }
}
function typeLate(key, field) {
  if (key === "Escape") return field.blur();
  if (key === "Enter" && field.matches("[data-presses]")) return document.getElementById(field.dataset.presses).click();
  if (key === "Enter" && !field.matches("textarea")) return field.form?.requestSubmit();
  if (key.startsWith("Arrow")) return;
  field.setRangeText(key === "Enter" ? "\n" : key, field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

function isLeaving(element) {
  if (!element.matches("a[href]:not([download], [target], [data-htmx-powered])")) return false;
  return element.href.split("#")[0] !== location.href.split("#")[0];
}

function refuseSecond(event) {
  if (!storing.has(event.target)) return;
  event.preventDefault(); // a second click would be a second request
  event.stopPropagation(); // htmx would send it after the answer to the first
}
document.addEventListener("submit", refuseSecond, true);
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-stored][data-htmx-powered]")) return;
  storing.add(event.target);
  if (isTyping(document.activeElement)) document.activeElement.blur(); // a key that follows is no text of this form
});
document.addEventListener("htmx:after:request", (event) => {
  const { request, response } = event.detail.ctx;
  // An error page has no place in the form.
  if (storing.has(request.form) && ![200, 409, 422].includes(response.status)) event.preventDefault();
});
document.addEventListener("htmx:finally:request", (event) => {
  const { request, response } = event.detail.ctx;
  if (!storing.delete(request.form)) return;
  if (response?.status !== 200) {
    ahead = [];
    lostAt = performance.now();
  }
  const isAnswered = [200, 409, 422].includes(response?.status);
  $$("[data-when-not-stored]", request.form).forEach((element) => (element.hidden = isAnswered));
  document.getElementById(request.form.dataset.stored)?.focus();
  playAhead();
});

window.addEventListener("pagehide", () => {
  if (destination && ahead.length) sessionStorage.setItem("keys-ahead", JSON.stringify([destination, ahead]));
});
window.addEventListener("pageshow", (event) => event.persisted && (destination = ""));
function takeAhead() {
  isReady = true;
  const [address, keys] = JSON.parse(sessionStorage.getItem("keys-ahead") ?? "[]");
  sessionStorage.removeItem("keys-ahead");
  if (address === location.href) ahead.unshift(...keys);
  playAhead();
}

/* A table of cases by runs is walked cell by cell. */

function onGridKey(key, target) {
  const cell = target.closest?.("[data-grid] tbody :is(td, th)") ?? target.closest?.("[data-grid] tbody tr")?.cells[0] ?? firstCellIn(target);
  if (!cell) return false;
  const move = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[key];
  if (move) return moveInGrid(cell, move);
  const head = cell.closest("table").tHead.rows[cell.closest("table").tHead.rows.length - 1].cells[cell.cellIndex];
  if (key === "<" || key === ">") return sortGrid(head?.querySelector("[data-sort]"), key, cell);
  if (key === "b") return followFrom(document.querySelector(`[data-group="${head?.dataset.of}"] [data-baseline]`), cell);
  return key === "s" && showPair(cell);
}
function firstCellIn(region) {
  return region.matches?.("[data-frozen]") ? region.querySelector("[data-grid] tbody th") : null;
}
function moveInGrid(cell, [right, down]) {
  const rows = [...cell.closest("tbody").rows].filter((row) => row.id !== "more");
  const row = rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(cell.parentElement) + down))];
  const isEntered = cell.contains(document.activeElement);
  const next = isEntered ? row?.cells[Math.max(0, Math.min(row.cells.length - 1, cell.cellIndex + right))] : cell;
  return Boolean(next) && focusCell(next);
}
function focusCell(cell) {
  $$("[data-current]").forEach((row) => delete row.dataset.current);
  cell.parentElement.dataset.current = "";
  const link = cell.querySelector("a[href]");
  if (!link) cell.tabIndex = -1;
  (link ?? cell).focus({ preventScroll: true });
  cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  return true;
}
function followFrom(link, cell) {
  if (!link) return false;
  sessionStorage.setItem("grid-column", String(cell.cellIndex));
  return press(link);
}
function sortGrid(link, key, cell) {
  if (!link) return false;
  const address = new URL(link.href);
  const order = address.searchParams.get("sort").replace(/^-/, "");
  address.searchParams.set("sort", key === "<" ? `-${order}` : order);
  link.href = address.href;
  return followFrom(link, cell);
}
/* The cell beside that of the first run, or beside one that was picked by the same key in the first column. */
function showPair(cell) {
  const trial = (each) => each?.querySelector("a.trials")?.pathname;
  const picked = document.querySelector("[data-picked]") ?? $$("td", cell.parentElement).find((each) => trial(each));
  if (!trial(cell) || !trial(picked)) return false;
  if (picked === cell) {
    cell.toggleAttribute("data-picked");
    return true;
  }
  const numbers = trial(cell).match(/\d+/g).join(".");
  destination = `${location.origin}${trial(picked)}/pair?with=${numbers}`;
  location.assign(destination);
  return true;
}
document.addEventListener("DOMContentLoaded", () => {
  for (const square of $$("[data-numbered] [aria-current]")) {
    const strip = square.parentElement;
    strip.scrollLeft = square.offsetLeft - strip.offsetLeft - strip.clientWidth / 2;
  }
});
document.addEventListener("DOMContentLoaded", () => {
  const column = sessionStorage.getItem("grid-column");
  sessionStorage.removeItem("grid-column");
  const cell = column && document.querySelector("[data-grid] tbody tr")?.cells[Number(column)];
  if (cell) focusCell(cell);
});

// The square of a run opens its trial; the keyboard follows the link to the squares as links.
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-trials]");
  if (!link || !event.detail || event.defaultPrevented) return;
  const { left, width } = link.getBoundingClientRect();
  const runs = link.closest("[data-runs]").dataset.runs.split(" ");
  const at = Math.floor((29.8 * (event.clientX - left)) / width);
  const [caseIndex, trial] = link.dataset.trials.split(" ")[at]?.split(".") ?? [];
  if (!trial) return;
  event.preventDefault();
  const address = `/runs/${runs[at]}/cases/${caseIndex}/trials/${trial}`;
  if (event.ctrlKey || event.metaKey) window.open(address, "_blank", "noopener");
  else location.assign(address);
});

function onKey(key, target) {
  if (onGridKey(key, target)) return true;
  if ((key === "n" || key === "p") && hop("[data-broken]", key === "n" ? 1 : -1)) return true;
  const ofRow = document.querySelector(`[data-current] [data-row-key="${CSS.escape(key)}"]`);
  if (ofRow) return press(ofRow);
  const announced = $$("[data-key]").find((element) => element.dataset.key === key && isShown(element));
  if (announced) return press(announced);
  const choice = document.querySelector(`[data-current] [data-choice="${CSS.escape(key)}"]`);
  if (choice) return press(choice);
  if (key === "[" || key === "]") return hop("[data-op='@'][id]", key === "]" ? 1 : -1);
  if (key === "?") return toggle(document.getElementById("keys"));
  if (key === "/") return press($$("[type=search]").find(isShown));
  if (key === "j" || key === "k") return step(key === "j" ? 1 : -1);
  if ((key === "n" || key === "p") && document.querySelector("[data-difference]")) return step(key === "n" ? 1 : -1);
  if (key === "x") return tick(document.querySelector("[data-current]"));
  if (key === "Enter" && target.matches("[data-current]")) return press(target.querySelector("[data-open], a[href]"));
  return false;
}

/* The list of keys begins with those of this page, each with what it does here. */
document.addEventListener("beforetoggle", (event) => {
  if (event.target.id !== "keys" || event.newState !== "open") return;
  const here = event.target.querySelector("[data-keys-here]");
  const names = new Map();
  for (const element of [...$$("[data-key]"), ...$$("[data-current] [data-choice]")]) {
    const key = element.dataset.key ?? element.dataset.choice;
    const name = nameOf(element.matches("[data-choice]") ? element.closest("label") : (element.labels?.[0] ?? element));
    if (isShown(element) && name && !names.has(key)) names.set(key, name);
  }
  const rows = [...event.target.querySelectorAll("[data-where]")];
  const ofParts = rows.filter((row) => (row.hidden = [...$$(row.dataset.where)].some(isShown))).map(copyOfRow);
  here.hidden = !names.size && !ofParts.length;
  here.querySelector("dl").replaceChildren(...[...names].map(([key, name]) => keyRow(key, name)), ...ofParts);
}, true);

function copyOfRow(row) {
  const copy = row.cloneNode(true);
  copy.hidden = false;
  copy.removeAttribute("data-where");
  return copy;
}
function keyRow(key, name) {
  const [row, term, cap, text] = ["div", "dt", "kbd", "dd"].map((tag) => document.createElement(tag));
  cap.textContent = key;
  text.textContent = name;
  term.append(cap);
  row.append(term, text);
  return row;
}

function press(element) {
  if (!element || element.matches(":disabled, [aria-disabled=true]")) return false;
  if (isLeaving(element)) {
    if (performance.now() - lostAt < MS_TO_READ) return true;
    destination = element.href;
  }
  if (isTyping(element)) element.focus();
  else element.click();
  // A form that a letter opens takes the next letters: else each of them would be a key of the page.
  const opened = element.matches("summary") && element.parentElement.open ? element.parentElement : null;
  (opened?.querySelector("textarea") ?? opened?.querySelector("input:not([type=hidden])"))?.focus();
  return true;
}

/* The lists of turns offer those that came to a long page since it was loaded, too. */
function offerTurns() {
  for (const list of $$("select[data-place], #labels select[name=turn]")) {
    const offered = new Set([...list.options].map((option) => option.value));
    for (const turn of $$("article.turn[id^=turn-]")) {
      const number = Number(turn.id.slice(5));
      if (!offered.has(String(number - 1))) list.add(new Option(`turn ${number}`, String(number - 1)));
    }
  }
}

document.addEventListener("htmx:after:swap", offerTurns);

/* A gap that is filled moves nothing that one reads: neither the place that an address or a key led to, until one moves
   oneself, nor else the first turn in sight. Browsers hold no place at the very top, and none by a gap that goes. */
let led = addressed; // gives the place that an address or a key led to
let held = null; // the gaps before a swap, the turn that stays in sight, and how far down it is
function addressed() {
  return document.querySelector(":target");
}
for (const kind of ["wheel", "touchmove", "keydown", "pointerdown", "mousedown"]) {
  document.addEventListener(kind, () => (led = () => null), { passive: true, capture: true });
}
window.addEventListener("hashchange", () => (led = addressed));
document.addEventListener("click", (event) => event.target.closest("a[href^='#']") && (led = addressed));
/* Once more in the next frames: turns that come into sight are drawn then, and may be larger than they were taken for. */
function showLed(which, nFrames = 3) {
  const place = led === which && which();
  if (!place) return;
  place.scrollIntoView({ block: which === addressed ? "start" : "nearest" });
  if (nFrames) requestAnimationFrame(() => showLed(which, nFrames - 1));
}
document.addEventListener("htmx:before:swap", () => {
  const gaps = $$("[data-gap]");
  if (!gaps.length) return;
  const bars = parseFloat(getComputedStyle(document.documentElement).scrollPaddingBlockStart); // what lies above, in px
  const isInSight = (each) => each.getBoundingClientRect().bottom > bars && each.getBoundingClientRect().top < innerHeight;
  const place = led() ?? $$("[id^=turn-]:is(article, li)").find(isInSight);
  held = place ? { gaps, place, top: place.getBoundingClientRect().top } : null;
});
document.addEventListener("htmx:after:swap", () => {
  if (!held || held.gaps.every((gap) => gap.isConnected)) return;
  const { place, top } = held;
  held = null;
  if (place === led()) return showLed(led);
  const box = place.closest("[data-follow]");
  const scroller = box && box.scrollHeight > box.clientHeight ? box : document.scrollingElement;
  scroller.scrollTop += place.getBoundingClientRect().top - top;
});

/* Text that is marked in a turn is the quote of the next finding. */
document.addEventListener("selectionchange", () => {
  const field = document.querySelector("[data-quote]");
  const marked = getSelection();
  const turn = marked.anchorNode?.parentElement?.closest("article[id^=turn-]");
  const quote = marked.toString().trim().slice(0, 500);
  if (!field || !turn || !quote) return;
  field.value = quote;
  offerTurns();
  document.querySelector("[data-place]").value = String(Number(turn.id.slice(5)) - 1);
  const shown = document.querySelector("[data-quoted]");
  shown.hidden = false;
  shown.querySelector("q").textContent = quote;
});

/* The text of a finding is marked in its turn as well, rendered and raw. One mark leads to the other. */

const NOT_SAID = "header, h2, button, select, .hidden, .address, .verdicts, [data-label=Expected], [data-rest]";
/* The letters and digits of text nodes in one piece, each with its place: rendered and raw text are alike then. */
function lettersOf(nodes) {
  const places = [];
  let letters = "";
  for (const node of nodes) {
    const text = node.data.replace(/\]\([^()\s]*\)/g, (address) => " ".repeat(address.length)); // of a link
    for (const { 0: letter, index } of text.matchAll(/[\p{L}\p{N}]/gu)) {
      letters += letter;
      for (let at = 0; at < letter.length; at += 1) places.push([node, index + at]);
    }
  }
  return [letters, places];
}
function textsIn(root, isWanted) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) if (isWanted(walker.currentNode.parentElement)) nodes.push(walker.currentNode);
  return nodes;
}
function markIn(nodes, quote, link) {
  const wanted = lettersOf([document.createTextNode(quote)])[0];
  const [letters, places] = lettersOf(nodes);
  const start = wanted ? letters.indexOf(wanted) : -1;
  if (start < 0) return false;
  const [[first, from], [last, to]] = [places[start], places[start + wanted.length - 1]];
  const marks = nodes.slice(nodes.indexOf(first), nodes.indexOf(last) + 1).filter((node) => node.data.trim()).map((node) => {
    const range = document.createRange();
    const mark = document.createElement("mark");
    const end = node === last ? to + 1 : node.length;
    range.setStart(node, node === first ? from : 0);
    range.setEnd(node, end);
    range.surroundContents(mark);
    mark.dataset.finding = link.dataset.marks;
    return mark;
  });
  marks[0].tabIndex = 0;
  marks[0].setAttribute("role", "link");
  marks[0].setAttribute("aria-label", `Finding: ${quote}`);
  return true;
}
function markFindings() {
  for (const link of $$("[data-marks]")) {
    const turn = document.querySelector(`article${link.hash}`);
    const event = document.getElementById(`${link.hash.slice(1)}-event-${link.dataset.event}`);
    if (!turn || turn.querySelector(`[data-finding="${link.dataset.marks}"]`)) continue;
    const isAnswer = link.dataset.event !== undefined;
    const isSaid = (element) => !element.closest(isAnswer ? `${NOT_SAID}, blockquote` : NOT_SAID);
    for (const isRaw of [false, true]) {
      const isWanted = (element) => isSaid(element) && Boolean(element.closest(".raw")) === isRaw;
      [event, turn].some((root) => root && markIn(textsIn(root, isWanted), link.textContent, link));
    }
  }
}
document.addEventListener("DOMContentLoaded", markFindings);
document.addEventListener("htmx:after:swap", markFindings);
function unfold(element) {
  for (let box = element.closest("details:not([open])"); box; box = box.parentElement.closest("details:not([open])")) box.open = true;
}
function followMark(link) {
  const mark = link.matches("a") ? $$(`mark[data-finding="${link.dataset.marks}"]`).find(isMarkShown) : document.getElementById(link.dataset.finding)?.querySelector("[data-marks]");
  if (!mark) return false;
  unfold(mark);
  mark.scrollIntoView({ block: "center" });
  mark.focus({ preventScroll: true });
  return true;
}
const isMarkShown = (mark) => mark.tabIndex === 0 && getComputedStyle(mark.closest(".raw, .prose, .json") ?? mark).display !== "none";
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("[data-marks], mark[data-finding]");
  if (link && followMark(link)) event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches?.("mark[data-finding]")) followMark(event.target);
});

/* Choices of a page of changes: many at once, and one step back. */

const chosen = []; // what was chosen before, the last one at the end
document.addEventListener("change", (event) => {
  const input = event.target;
  if (!input.matches?.("[data-choice]")) return;
  const before = choicesBefore.get(input.name);
  hasChosen = true;
  choicesBefore.set(input.name, input);
  if (before && before !== input && !isStepping) chosen.push([before]);
});
const choicesBefore = new Map();
let isStepping = false;
let hasChosen = false; // by a person on this page, and not by a browser that went back to it
document.addEventListener("DOMContentLoaded", () => {
  $$("[data-choice]:checked").forEach((input) => choicesBefore.set(input.name, input));
  $$("[data-picks], [data-unpicks]").forEach((button) => (button.hidden = false));
});
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-picks], [data-unpicks]");
  if (!button) return;
  isStepping = true;
  if (button.matches("[data-unpicks]")) chosen.pop()?.forEach((input) => input.click());
  else pick(button.dataset.picks);
  isStepping = false;
});
function pick(part) {
  const current = document.querySelector("[data-row][data-current]") ?? document.querySelector("[data-row][data-part]");
  const rows = $$("[data-row][data-part]", current.closest("[data-group]"));
  const isMeant = (row) => ["all", "none", row.dataset.part].includes(part) || (part === "call" && row.dataset.part === "calls");
  const meant = part === "turn" ? rows.filter((row) => row.dataset.turn === current.dataset.turn) : rows.filter(isMeant);
  const wanted = meant.map((row) => row.querySelector(part === "none" ? "[data-choice=x]" : "[data-choice]"));
  const changed = wanted.filter((input) => !input.checked);
  if (changed.length) chosen.push(changed.map((input) => choicesBefore.get(input.name)));
  changed.forEach((input) => input.click());
}
document.addEventListener("keydown", (event) => {
  const button = document.querySelector("[data-saves]");
  if (event.key !== "s" || !(event.ctrlKey || event.metaKey) || !button) return;
  event.preventDefault();
  if (!button.disabled) button.click();
  else if (hasChosen && document.querySelector("[data-choice]:checked:not([data-choice=x])")) button.form.requestSubmit(); // its effect comes
});

function toggle(popover) {
  popover?.togglePopover();
  return Boolean(popover);
}

function rowsOf(container) {
  const named = $$("[data-row]", container);
  return named.length ? named : [...container.children];
}

function step(by) {
  const rows = $$("[data-rows]").flatMap(rowsOf).filter(isShown);
  if (!rows.length) return false;
  const at = rows.findIndex((row) => row.matches("[data-current]"));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))];
  $$("[data-current]").forEach((row) => delete row.dataset.current);
  next.dataset.current = "";
  next.tabIndex = -1;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  led = () => (next.isConnected ? next : null);
  return true;
}

/* From the place that the address names among some shown ones to the one after or before it; false where none is. */
function hop(selector, by) {
  const places = $$(selector).filter(isShown);
  const next = places[places.findIndex((place) => place.matches(":target")) + by];
  if (!next) return false;
  location.replace(`#${next.id}`);
  next.tabIndex = -1;
  next.focus({ preventScroll: true });
  return true;
}

/* A list to choose from, that is filtered by typing. */

const choicesOf = (field) => $$("label", document.getElementById(field.dataset.filters)).filter((label) => !label.hidden && !label.querySelector(":disabled"));
document.addEventListener("DOMContentLoaded", () => $$("[data-filters]").forEach((field) => (field.hidden = false)));
function filter(field) {
  const words = field.value.toLowerCase().split(/\s+/);
  const isFound = (label) => words.every((word) => `${label.textContent} ${label.querySelector("input").value}`.toLowerCase().includes(word));
  for (const group of $$(":scope > *", document.getElementById(field.dataset.filters))) {
    const labels = $$("label", group);
    for (const label of labels) label.hidden = !isFound(label);
    group.hidden = labels.length > 0 && labels.every((label) => label.hidden);
  }
}
document.addEventListener("input", (event) => event.target.matches("[data-filters]") && filter(event.target));
document.addEventListener("keydown", (event) => {
  const details = event.target.closest?.("details:has([data-filters])");
  const field = details?.querySelector("[data-filters]");
  if (!field || event.isComposing) return;
  if (event.key === "Escape") {
    details.open = false;
    details.querySelector("summary").focus();
  } else if (event.key === "Enter" && event.target === field) {
    const first = choicesOf(field)[0];
    if (first) field.value = "";
    first?.querySelector("input").click();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const stops = [field, ...choicesOf(field).map((label) => label.querySelector("input"))];
    const at = stops.indexOf(event.target);
    if (at < 0) return;
    stops[Math.max(0, Math.min(stops.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)))].focus();
  } else return;
  event.preventDefault();
});
document.addEventListener("toggle", (event) => {
  if (event.target.open) event.target.querySelector?.(":scope [data-filters]")?.focus();
}, true);
document.addEventListener("htmx:after:swap", () => {
  for (const field of $$("[data-filters]")) {
    field.hidden = false;
    filter(field);
    if (document.activeElement === document.body && field.closest("details[open]")) field.focus();
  }
});

document.addEventListener("keydown", (event) => {
  const button = document.querySelector("[data-starts]");
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !button || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  press(button);
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.ctrlKey || event.metaKey || isComposing(event) || !event.target.matches?.("[data-presses]")) return;
  event.preventDefault();
  document.getElementById(event.target.dataset.presses).click();
});
document.addEventListener("click", (event) => {
  if (!event.target.matches?.("[data-without-script]")) return;
  event.preventDefault();
  event.target.form.requestSubmit();
});

function tick(row) {
  return press(row?.querySelector("input[type=checkbox]"));
}

/* An address of a message or a call may be in a part of the page that has not come yet. */

let sought = ""; // the id of the address, until it is found or a person goes elsewhere
function seek() {
  const place = document.getElementById(sought);
  const rest = restFor(sought);
  if (!place && rest) return rest.click();
  const gap = place ? null : gapOf(sought);
  sought = "";
  if (gap) return location.replace(`${location.pathname}?turn=${gap}${location.hash}`);
  if (!place) return;
  $$(":scope > details", place).forEach((details) => (details.open = true));
  if (location.hash === `#${place.id}`) location.replace(location.hash); // makes it the :target, and goes there
}
/* The link that brings more of the turn in which the element with that id would be. */
function restFor(id) {
  const turn = document.getElementById(/^turn-\d+/.exec(id)?.[0]);
  return turn?.querySelector(`:scope > [data-rest], #${turn.id}-pieces [data-rest]`);
}
/* The number of the turn of that id, where it is one that the page of a long trial left out. */
function gapOf(id) {
  const number = Number(/^turn-(\d+)/.exec(id)?.[1]);
  const isIn = ([first, last]) => first <= number && number <= last;
  return $$("[data-gap]").some((gap) => isIn(gap.dataset.gap.split(" ").map(Number))) ? number : null;
}
function seekAddress() {
  const id = location.hash.slice(1);
  if (!/^turn-\d+-event-\d+$/.test(id) && !gapOf(id)) return;
  sought = id;
  seek();
}
window.addEventListener("load", () => comesBack() || seekAddress()); // htmx knows its links by now
window.addEventListener("hashchange", () => sought || seekAddress());
document.addEventListener("htmx:after:swap", () => (left ? goBack() : sought && seek()));
for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) {
  document.addEventListener(kind, () => ([sought, left] = ["", null]), { passive: true });
}

/* Back leads to the place where one was, also where parts of the page have to come again before it is there. */

let left = null; // that place: how far down, the message, call or turn at the top of the window with its distance, and how
// far down a table is that scrolls by itself
const scrolledTable = () => document.querySelector("[data-frozen]");
const placeKey = () => `place:${location.pathname}${location.search}`;
window.addEventListener("pagehide", () => {
  const top = (element) => element.getBoundingClientRect().top;
  const first = $$("main :is(article, .toolcall, .call)[id]").find((element) => top(element) >= 0 && top(element) < innerHeight);
  try {
    sessionStorage.setItem(placeKey(), JSON.stringify([scrollY, first?.id, first && top(first), scrolledTable()?.scrollTop]));
  } catch {
    /* the browser goes as far down as it can */
  }
});
function comesBack() {
  if (performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return false;
  const [y, id, top, down] = JSON.parse(sessionStorage.getItem(placeKey()) ?? "[]");
  left = y || down ? { y, id, top, down } : null;
  if (!left) return false;
  led = () => null;
  history.scrollRestoration = "manual"; // the browser would go to where the page ended at first
  goBack();
  return true;
}
function goBack() {
  const place = document.getElementById(left.id);
  const by = place ? place.getBoundingClientRect().top - left.top : left.y - scrollY;
  const isThere = (place || !left.id) && scrollY + by + innerHeight <= document.documentElement.scrollHeight;
  const table = left.down && scrolledTable();
  const isInTable = !table || left.down + table.clientHeight <= table.scrollHeight;
  const rest = left.id && isInTable ? restFor(left.id) : document.querySelector("#more [data-htmx-powered]");
  if (!(isThere && isInTable) && rest) return rest.click();
  if (table) table.scrollTop = left.down;
  left = null;
  scrollBy({ top: by, behavior: "instant" });
}

/* Search and go: the focus stays in the field, and the chosen option is said by aria-activedescendant. */

const MAX_PLACES = 5;
const palette = () => document.getElementById("palette");
const options = () => $$("[role=option]", palette());

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
  event.preventDefault();
  if (palette().open) palette().close();
  else openPalette();
});
document.addEventListener("click", (event) => {
  const opener = event.target.closest?.("[data-opens]");
  if (opener && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    openPalette();
  }
  if (event.target.closest?.("[data-closes]") || event.target === palette()) palette().close();
});

function openPalette() {
  const field = palette().querySelector("input");
  field.value = "";
  isFollowing = false;
  document.getElementById("found").replaceChildren();
  palette().showModal();
  offerHere("");
  window.htmx?.trigger(field, "look");
}

/* What can be done on this page, and the places where one was, as options. */
function offerHere(typed) {
  const text = typed.replace(/^>/, "").trim().toLowerCase();
  const fits = (name) => name.toLowerCase().includes(text);
  const found = [...$$("[data-key]"), ...$$(".pagehead .actions .button:not([data-key]), [data-theme-switch]")];
  const acts = found.filter((element) => isShown(element) && !isTyping(element) && !element.matches(":disabled"));
  const named = acts.map((element) => [nameOf(element), element]).filter(([name]) => name && fits(name));
  const places = typed ? [] : recentPlaces().filter(([, address]) => address !== location.pathname + location.search);
  document.getElementById("here").replaceChildren(
    ...groupOf("On this page", named.map(([name, element]) => optionOf(name, element.dataset.key ?? "", () => press(element)))),
    ...groupOf("Where you were", places.map(([name, address]) => optionOf(name, "", null, address))),
  );
  choose(0);
}

function nameOf(element) {
  const copy = element.cloneNode(true);
  $$("kbd, svg", copy).forEach((part) => part.remove());
  $$("small, span", copy).forEach((part) => part.before(" "));
  return (element.getAttribute("aria-label") || copy.textContent).trim().replace(/\s+/g, " ");
}

function groupOf(title, found) {
  if (!found.length) return [];
  const [group, head] = [document.createElement("div"), document.createElement("div")];
  head.id = `here-${title.replaceAll(" ", "-").toLowerCase()}`;
  head.className = "head";
  head.textContent = title;
  group.setAttribute("role", "group");
  group.setAttribute("aria-labelledby", head.id);
  found.forEach((option, index) => (option.id = `${head.id}-${index}`));
  group.append(head, ...found);
  return [group];
}

const acting = new WeakMap();
function optionOf(name, key, act, address) {
  const [option, text, note] = ["a", "span", key ? "kbd" : "small"].map((tag) => document.createElement(tag));
  option.setAttribute("role", "option");
  option.setAttribute("aria-selected", "false");
  option.tabIndex = -1;
  if (address) option.href = address;
  else acting.set(option, act);
  text.textContent = name;
  note.textContent = key;
  option.append(document.createElement("i"), text, note);
  return option;
}

function choose(index) {
  const all = options();
  const field = palette().querySelector("input");
  chosenAt = all.length ? ((index % all.length) + all.length) % all.length : index;
  const chosen = all[chosenAt];
  chosenAddress = chosen?.href;
  all.forEach((option) => option.setAttribute("aria-selected", String(option === chosen)));
  document.getElementById("options").hidden = !all.length;
  field.setAttribute("aria-expanded", String(all.length > 0));
  if (chosen) field.setAttribute("aria-activedescendant", chosen.id);
  else field.removeAttribute("aria-activedescendant");
  chosen?.scrollIntoView({ block: "nearest" });
  const n = all.length ? `${all.filter((option) => !option.matches("[data-all]")).length} found` : "Nothing fits.";
  palette().querySelector("[role=status]").textContent = isAnswered() ? n : "Searching";
}

/* Whether the server has answered the text that stands in the field now. */
const isAnswered = () => palette().querySelector("[data-answers]")?.dataset.answers === palette().querySelector("input").value;
let isFollowing = false; // Enter was pressed before the answer came

/* The option that is chosen, and what it leads to: it stays chosen when an answer comes that offers it, too. */
let [chosenAt, chosenAddress] = [0, ""];

document.addEventListener("input", (event) => {
  if (!event.target.closest?.("#palette")) return;
  document.getElementById("found").replaceChildren();
  isFollowing = false;
  offerHere(event.target.value);
});
document.addEventListener("htmx:after:swap", () => {
  if (!palette()?.open) return;
  const kept = chosenAddress ? options().findIndex((option) => option.href === chosenAddress) : -1;
  choose(kept < 0 ? chosenAt : kept);
  if (isFollowing && isAnswered()) followOption(options()[chosenAt]);
});
document.addEventListener("keydown", (event) => {
  if (!event.target.matches?.("#palette input") || isComposing(event)) return;
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by) choose(chosenAt + by);
  else if (event.key === "Enter" && !isAnswered()) isFollowing = true;
  else if (event.key === "Enter") followOption(options()[chosenAt], event.ctrlKey || event.metaKey);
  else return;
  event.preventDefault();
});
document.addEventListener("click", (event) => {
  const option = event.target.closest?.("#palette [role=option]");
  if (!option || option.href) return;
  followOption(option);
});

function followOption(option, isElsewhere = false) {
  if (!option) return;
  if (option.href && isElsewhere) return void window.open(option.href, "_blank", "noopener");
  palette().close();
  if (option.href) location.assign(option.href);
  else acting.get(option)();
}

/* The last places of this tab: another workspace at the same address has not been here. */
function recentPlaces() {
  try {
    return JSON.parse(sessionStorage.places ?? "[]");
  } catch {
    return [];
  }
}
function rememberPlace() {
  const here = [document.title.replace(/ · Evaldesk$/, ""), location.pathname + location.search];
  try {
    sessionStorage.places = JSON.stringify([here, ...recentPlaces().filter(([, address]) => address !== here[1])].slice(0, MAX_PLACES + 1));
  } catch {
    /* a browser that keeps nothing */
  }
}
document.addEventListener("DOMContentLoaded", rememberPlace);

/* Selection */

const boxesIn = (group) =>
  $$("input[type=checkbox]:not([data-select-all], [data-select-whole], :disabled)", group).filter((box) => box.name);

/* The ticks of a list with a name outlive its pages and searches; those of other pages go along as hidden fields. */
const ticksKey = (group) => `ticks ${location.origin} ${group.dataset.select}`;

function ticksOf(group) {
  try {
    return new Set(JSON.parse(sessionStorage.getItem(ticksKey(group)) ?? "[]"));
  } catch {
    return new Set();
  }
}

function storeTicks(group, ticks) {
  try {
    sessionStorage.setItem(ticksKey(group), JSON.stringify([...ticks]));
  } catch {} /* full, or forbidden: the ticks of this page still count */
}

function takeTicks(group) {
  const ticks = ticksOf(group);
  for (const box of boxesIn(group)) ticks[box.checked ? "add" : "delete"](box.value);
  storeTicks(group, ticks);
}

function recallTicks(group) {
  if (!group.dataset.select) return;
  if ("selectClear" in group.dataset) storeTicks(group, []);
  delete group.dataset.selectClear;
  const ticks = ticksOf(group);
  for (const box of boxesIn(group)) box.checked = ticks.delete(box.value);
  const others = [...ticks].map((value) => Object.assign(document.createElement("input"), { type: "hidden", name: "case", value }));
  $$("[data-select-others]", group).forEach((place) => place.replaceChildren(...others));
}

document.addEventListener("click", (event) => {
  const group = event.target.closest?.("[data-select-none]")?.closest("[data-select]");
  if (!group) return;
  storeTicks(group, []);
  $$("[data-select-whole]", group).forEach((box) => (box.checked = false));
  recallTicks(group);
  count(group);
  $$("[data-select-all]", group)[0]?.focus();
});

document.addEventListener("change", (event) => {
  const group = event.target.closest?.("[data-select]");
  if (!group || event.target.type !== "checkbox") return;
  if (event.target.matches("[data-select-all]")) boxesIn(group).forEach((box) => (box.checked = event.target.checked));
  if (group.dataset.select) takeTicks(group);
  count(group);
});

function count(group) {
  const boxes = boxesIn(group);
  const n = boxes.filter((box) => box.checked).length;
  const whole = $$("[data-select-whole]", group)[0];
  const nChosen = whole?.checked ? Number(whole.dataset.selectWhole) : n + $$("[data-select-others] input", group).length;
  $$("[data-select-all]", group).forEach((box) => {
    box.checked = n > 0 && n === boxes.length;
    box.indeterminate = n > 0 && n < boxes.length;
  });
  $$("[data-select-count]", group).forEach((element) => (element.textContent = nChosen.toLocaleString("en")));
  $$("[data-select-some]", group).forEach((element) => (element.hidden = nChosen === 0));
  $$("[data-select-most]", group).forEach((button) => (button.disabled = n > Number(button.dataset.selectMost)));
  $$("[data-select-beyond]", group).forEach((element) => (element.hidden = n <= Number(element.dataset.selectBeyond)));
}

/* Tabs */

function followAddress() {
  const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (target && !target.matches("details")) unfold(target);
  for (const tabs of $$(".tabs")) {
    const links = $$("a[href^='#']", tabs);
    const panels = links.map((link) => document.getElementById(link.hash.slice(1)));
    if (!links.length) continue;
    let current = target ? panels.findIndex((panel) => panel?.contains(target)) : -1;
    if (current < 0) current = Math.max(0, panels.findIndex((panel) => panel?.matches("[data-default]")));
    links.forEach((link, index) => (index === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  }
}
window.addEventListener("hashchange", followAddress);

/* Notes, forms */

document.addEventListener("click", (event) => event.target.closest?.("[data-dismiss]")?.closest(".note")?.remove());
// The button is about to go: what it leaves is the field beside it.
document.addEventListener("click", (event) => event.target.closest?.("[data-stop]") && $$("[data-enter]").find(isShown)?.focus());

const dirty = new Set();
document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (form?.matches("[data-dirty-guard]")) dirty.add(form);
});
document.addEventListener("reset", (event) => dirty.delete(event.target));
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !sent.has(event.target) && !window.confirm(question)) event.preventDefault();
  else if (event.submitter?.name === "op") dirty.add(event.target);
  else dirty.delete(event.target);
}, true);
window.addEventListener("beforeunload", (event) => {
  if (![...dirty].some((form) => form.isConnected)) return;
  event.preventDefault();
  destination = "";
});

/* Writing a message. Safari ends a composition before the Enter that commits it, whose code is then 229. */

const isComposing = (event) => event.isComposing || event.keyCode === 229;

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || isComposing(event) || !event.target.matches?.("[data-enter]")) return;
  event.preventDefault();
  const form = event.target.form;
  const hasFiles = Boolean(form.querySelector("[data-attach] input")?.files.length);
  if ((event.target.value.trim() || hasFiles) && !form.querySelector("[data-stop]")) form.requestSubmit();
});
document.addEventListener("input", (event) => event.target.matches?.("textarea") && grow(event.target));
document.addEventListener("DOMContentLoaded", () => $$("textarea").forEach(grow));

document.addEventListener("change", (event) => event.target.matches?.("[data-attach] input") && sayFiles(event.target));
document.addEventListener("paste", (event) => {
  const input = event.target.form?.querySelector("[data-attach] input");
  if (!input || !event.clipboardData?.files.length) return;
  event.preventDefault();
  const chosen = new DataTransfer();
  for (const file of [...input.files, ...event.clipboardData.files]) chosen.items.add(file);
  input.files = chosen.files;
  sayFiles(input);
});

function sayFiles(input) {
  const { length } = input.files;
  const name = length === 1 ? input.files[0].name : `${length} files`;
  input.closest("[data-attach]").querySelector("span").textContent = length ? name : "Attach";
}

function grow(area) {
  if (CSS.supports("field-sizing", "content")) return;
  area.style.height = "auto";
  if (area.value) area.style.height = `${area.scrollHeight + 2}px`; // an empty one would take the room of its placeholder
}

/* A message is the server's once the stream of its answer is open; a stream that breaks off says so. What was typed
   behind it meanwhile is the next message. */
const written = new Map(); // what a field held when its form was sent
document.addEventListener("submit", (event) => {
  for (const area of $$("[data-enter]", event.target)) if (!written.has(area)) written.set(area, area.value);
});
document.addEventListener("htmx:finally:request", (event) => $$("[data-enter]", event.target).forEach((area) => written.delete(area)));
document.addEventListener("htmx:sse:after:connection", (event) => {
  $$("[data-enter]", event.target).forEach((area) => {
    const message = written.get(area) ?? "";
    written.delete(area);
    area.value = area.value.startsWith(message) ? area.value.slice(message.length) : "";
    grow(area);
    area.focus();
  });
  $$("[data-attach] input", event.target).forEach((input) => {
    input.value = "";
    sayFiles(input);
  });
});
const done = new WeakSet();
const showLoss = (isLost) => $$("[data-when-lost]").forEach((element) => (element.hidden = !isLost));
document.addEventListener("done", (event) => done.add(event.target));
document.addEventListener("htmx:sse:close", (event) => {
  if (!done.has(event.target)) showLoss(true);
  done.delete(event.target);
});

document.addEventListener("htmx:sse:error", () => showLoss(true)); // it tries again by itself
document.addEventListener("htmx:sse:after:connection", () => showLoss(false));

/* A run in the tab */

const STATES = { running: "#2563eb", passed: "#2f9e63", failed: "#d6333f", errored: "#d97a1a", unscored: "#6b7280", stopped: "#6b7280" };
let stateSaid = "";

function sayInTab() {
  const head = document.querySelector("[data-says]");
  if (!head) return;
  const { says, state } = head.dataset;
  const hasEnded = stateSaid === "running" && state !== "running";
  stateSaid = state;
  document.title = `${says} \u00b7 Evaldesk`;
  const dot = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="${STATES[state]}"/></svg>`;
  if (STATES[state]) document.querySelector("link[rel=icon]").href = `data:image/svg+xml,${encodeURIComponent(dot)}`;
  if (hasEnded && document.hidden && window.Notification?.permission === "granted") new Notification(says);
  const isAsked = window.Notification?.permission !== "default" || Boolean(kept("asked-to-notify"));
  for (const button of $$("[data-notifies]")) if (button.hidden !== isAsked) button.hidden = isAsked; // the observer sees each set
}
document.addEventListener("DOMContentLoaded", () => {
  sayInTab();
  const box = document.getElementById("live");
  if (box) new MutationObserver(sayInTab).observe(box, { childList: true, subtree: true, attributeFilter: ["data-says", "data-state", "hidden"] }); // a morph hides the button again
});
document.addEventListener("click", (event) => {
  if (!event.target.closest?.("[data-notifies]")) return;
  keep("asked-to-notify", "yes");
  Notification.requestPermission().finally(sayInTab);
});

/* Following the end */

function follow(box) {
  const scroller = () => (getComputedStyle(box).overflowY === "visible" ? document.scrollingElement : box);
  const gap = () => scroller().scrollHeight - scroller().scrollTop - scroller().clientHeight;
  const toEnd = () => (scroller().scrollTop = scroller().scrollHeight);
  let isAtEnd = true;
  const look = () => (isAtEnd = gap() < 64);
  box.addEventListener("scroll", look, { passive: true });
  document.addEventListener("scroll", look, { passive: true });
  new MutationObserver(() => isAtEnd && toEnd()).observe(box, { childList: true, subtree: true, characterData: true });
  document.addEventListener("htmx:sse:after:connection", () => (isAtEnd = true));
  if (!location.hash || !document.querySelector(`[data-follow] :target`)) toEnd();
}

/* Charts */

const darkness = window.matchMedia("(prefers-color-scheme: dark)");
const redraw = () => $$("script[data-figure]").forEach((script) => drawn.has(script.dataset.figure) && draw(script));

const drawn = new Set();
function offer(script) {
  const { figure, library } = script.dataset;
  const [place, button] = [document.getElementById(figure), document.querySelector(`[data-draw="${figure}"]`)];
  if (drawn.has(figure)) return draw(script);
  button.hidden = false;
  const ask = () => {
    if (drawn.has(figure)) return;
    drawn.add(figure);
    import(library).then(
      () => draw(document.querySelector(`script[data-figure="${figure}"]`) ?? script),
      () => drawn.delete(figure),
    );
  };
  button.addEventListener("click", ask);
  place.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && ask());
}

function draw(script) {
  const place = document.getElementById(script.dataset.figure);
  if (!place || !window.Plotly) return;
  document.querySelector(`[data-draw="${script.dataset.figure}"]`).hidden = true;
  place.querySelector("svg.chart")?.remove();
  place.dataset.drawn = "";
  const { data, layout = {} } = coloured(JSON.parse(script.textContent));
  const ink = colour("var(--muted)");
  const axis = { gridcolor: colour("var(--line)"), linecolor: colour("var(--line)"), zerolinecolor: colour("var(--line)") };
  for (const name of ["xaxis", "yaxis"]) layout[name] = { ...axis, ...layout[name] };
  const base = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { t: 8, r: 8, b: 40, l: 48 } };
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink, ...layout.font };
  window.Plotly.react(place, data, { ...base, ...layout, font }, { responsive: true, displayModeBar: false });
}

function coloured(value) {
  if (typeof value === "string") return value.startsWith("var(--") ? colour(value) : value;
  if (Array.isArray(value)) return value.map(coloured);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item)]));
  return value;
}

/* Plotly knows no oklch(): one painted pixel says what the colour is on this screen. */
function colour(text) {
  const probe = document.body.appendChild(document.createElement("span"));
  probe.style.color = text;
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.fillStyle = getComputedStyle(probe).color;
  probe.remove();
  canvas.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
  return `rgba(${red}, ${green}, ${blue}, ${alpha / 255})`;
}
darkness.addEventListener("change", redraw);

/* Once at the start, and for whatever htmx brings in */

const begun = new WeakSet();
function begin(root) {
  const fresh = (selector) => $$(selector, root).filter((element) => !begun.has(element) && begun.add(element));
  fresh("time[datetime]").forEach((element) => (element.title = new Date(element.dateTime).toLocaleString()));
  fresh("script[data-figure]").forEach(offer);
  fresh("[data-follow]").forEach(follow);
  fresh("[data-enter]").forEach(grow);
  for (const group of new Set([...$$("[data-select]", root), root.closest?.("[data-select]")].filter(Boolean))) {
    recallTicks(group);
    count(group);
  }
}
/* The run form is answered as it was when it was sent: newer edits stay, and are sent as well. */
let nEdits = 0;
let newerEdits = [];
const edits = new Map(); // of each field the number of its newest edit
document.addEventListener("input", ({ target }) => {
  if (target.form?.id !== "plan" || !target.name) return;
  edits.delete(target); // the newest one comes last
  edits.set(target, ++nEdits);
});
document.addEventListener("htmx:config:request", ({ detail }) => (detail.ctx.nEdits = nEdits));
document.addEventListener("htmx:before:swap", ({ detail: { ctx } }) => {
  const isOfForm = ctx.request.form?.id === "plan";
  newerEdits = isOfForm ? [...edits].filter(([field, n]) => n > ctx.nEdits && field.isConnected).map(([field]) => ({ field, value: field.value, checked: field.checked })) : [];
});
document.addEventListener("htmx:after:swap", () => {
  const fields = newerEdits.splice(0).map(({ field, value, checked }) => {
    const isTicked = ["checkbox", "radio"].includes(field.type);
    const alike = $$(`#plan [name="${CSS.escape(field.name)}"]`).find((each) => !isTicked || each.value === value);
    const now = field.isConnected ? field : alike;
    if (now) Object.assign(now, isTicked ? { checked } : { value });
    return now;
  });
  fields.findLast(Boolean)?.dispatchEvent(new Event("change", { bubbles: true }));
});
/* The size that a person gave a field: htmx would copy it to the field in its place, as a style that the CSP refuses. */
function dropSizes(tasks) {
  for (const { target, swapSpec } of tasks) {
    const place = typeof target === "string" ? document.querySelector(target) : target;
    if (place && /HTML$/.test(swapSpec?.style)) $$("textarea[style]", place).forEach((area) => area.removeAttribute("style"));
  }
}
const unfolded = new Map();
const drafts = new Map(); // what was typed in forms, by their data-keeps
const fieldsOf = (form) => $$("textarea, input:not([type=hidden])", form);
document.addEventListener("htmx:before:swap", (event) => {
  dropSizes(event.detail?.tasks ?? []);
  for (const element of $$("[data-keep-open][id]")) unfolded.set(element.id, $$("details", element).map((item) => item.open));
  for (const form of $$("[data-keeps]")) drafts.set(form.dataset.keeps, fieldsOf(form).map((field) => field.value));
});
document.addEventListener("htmx:after:swap", () => {
  for (const element of $$("[data-keep-open][id]").filter((element) => unfolded.has(element.id))) {
    const states = unfolded.get(element.id);
    $$("details", element).forEach((item, index) => (item.open ||= Boolean(states[index])));
  }
  unfolded.clear();
  for (const form of $$("[data-keeps]")) {
    const fields = fieldsOf(form);
    drafts.get(form.dataset.keeps)?.forEach((text, index) => (dirty.has(form) || !fields[index].value) && (fields[index].value = text));
  }
  drafts.clear();
  begin(document);
});
document.addEventListener("DOMContentLoaded", () => {
  wear(theme());
  turnAsKept();
  $$("[data-dirty-guard]:has([aria-invalid])").forEach((form) => dirty.add(form)); // refused: it is not stored yet
  begin(document);
  followAddress();
  setTimeout(takeAhead); // htmx begins with this event as well, after this script
});

/* Notes of stored and refused forms stand in one place, the corner #toasts (decision 141). */

document.addEventListener("DOMContentLoaded", () => $$("[data-copies]").forEach((button) => (button.hidden = false)));
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copies]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copies);
    toast("Copied.");
  } catch {
    /* a page without TLS has no clipboard, and a person may forbid it */
    toast("Not copied: the browser does not let this page. Select the text in its place.", "failed");
  }
});

const TOASTS = 3;
const TOAST_MS = 8000;
const MAX_FORM = 10 * 2 ** 20; // what the guard lets in
const TOO_LARGE = "Not stored: a form holds at most 10 MiB. What you typed is still here.";
const UNANSWERED = "Not stored: the desk does not answer. What you typed is still here.";
const GONE = "Not stored: what this page shows was deleted. Restore it from the trash in another tab, and repeat this here. What you typed is still here.";
const LOCKED = "Not stored: the desk needs its token again. Open the address that `evaldesk ui` printed in another tab, and repeat this here. What you typed is still here.";
function toast(text, kind = "passed") {
  const [note, icon, box, words] = ["div", "svg", "div", "p"].map((tag) =>
    tag === "svg" ? document.querySelector(".topbar .icon").cloneNode(true) : document.createElement(tag)
  );
  const use = icon.querySelector("use");
  use.setAttribute("href", use.getAttribute("href").replace(/#.*/, `#${kind}`));
  note.className = "note";
  if (kind === "failed") note.dataset.kind = "failed";
  words.textContent = text;
  box.append(words);
  note.append(icon, box);
  showToast(note, kind === "failed");
}
function showToast(note, stays) {
  const corner = document.getElementById("toasts");
  for (const same of $$(".note", corner)) if (same.querySelector("p").textContent === note.querySelector("p").textContent) same.remove();
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button";
  button.dataset.kind = "quiet";
  button.dataset.size = "small";
  button.dataset.dismiss = "";
  button.textContent = "Dismiss";
  note.removeAttribute("role");
  note.append(button);
  corner.append(note);
  while (corner.children.length > TOASTS) corner.firstElementChild.remove();
  liftToasts();
  if (!stays) fadeLater(note);
}
/* A composer grows with its text, and the corner stands above it. */
function liftToasts() {
  const box = document.querySelector(".composer")?.getBoundingClientRect();
  const foot = box && box.bottom >= innerHeight - 1 ? Math.max(0, innerHeight - box.top) : 0;
  document.getElementById("toasts").style.setProperty("--foot", `${foot}px`);
}
document.addEventListener("input", (event) => event.target.closest(".composer") && liftToasts());
function fadeLater(note) {
  setTimeout(() => (note.matches(":hover, :focus-within") ? fadeLater(note) : note.remove()), TOAST_MS);
}
document.addEventListener("DOMContentLoaded", () => {
  const said = $$("[data-toast]");
  for (const note of said) showToast(note, note.matches("form"));
  let posted = null;
  try {
    posted = sessionStorage.getItem("posted");
    sessionStorage.removeItem("posted");
  } catch {
    /* a browser that keeps nothing says less */
  }
  if (posted === null) return;
  if ("refused" in document.documentElement.dataset) toast(REFUSED, "failed");
  else if (posted && !said.length) toast(posted);
});

/* A form is sent once the desk has answered a small request: a page of the browser in its place would lose what was typed. */

const ANSWER_MS = 10_000;
const sent = new Set(); // forms that are sent now; their first event was the question
const REFUSALS = { 401: LOCKED, 404: GONE };
async function refusal() {
  try {
    const { status } = await fetch(location.href, { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
    return REFUSALS[status] ?? "";
  } catch {
    return UNANSWERED;
  }
}
document.addEventListener("submit", (event) => {
  const form = event.target;
  const method = event.submitter?.getAttribute("formmethod") ?? form.method;
  if (event.defaultPrevented || method !== "post" || form.matches("[data-htmx-powered]:not([hx-trigger=change])")) return; // htmx sends the others
  if (sent.delete(form)) {
    form.ariaBusy = "true"; // a second click would be a second request
    setTimeout(() => (form.ariaBusy = null), ANSWER_MS); // the person may have stopped it
    return keepPosted(event.submitter?.dataset.saysStored ?? form.dataset.saysStored ?? "");
  }
  event.preventDefault();
  if (!form.ariaBusy) send(form, event.submitter);
});
window.addEventListener("pageshow", (event) => event.persisted && $$("form[aria-busy]").forEach((form) => (form.ariaBusy = null)));
async function send(form, submitter) {
  form.ariaBusy = "true";
  const refused = await refusal();
  form.ariaBusy = null;
  if (refused) {
    if (form.matches("[data-dirty-guard]")) dirty.add(form);
    return toast(refused, "failed");
  }
  if (form.matches("[data-uploads]") && sizeOf(form) > MIB) return upload(form);
  const isUpload = (submitter?.formEnctype || form.enctype) === "multipart/form-data";
  if (!isUpload && String(new URLSearchParams(new FormData(form))).length > MAX_FORM) {
    if (form.matches("[data-dirty-guard]")) dirty.add(form);
    return toast(TOO_LARGE, "failed");
  }
  sent.add(form);
  form.requestSubmit(submitter?.isConnected ? submitter : undefined);
  sent.delete(form); // a field that is not valid any more stopped it
}
/* The answer to a file is the next page, or this one with what was wrong: then its main part takes the place of ours. */
const MIB = 2 ** 20;
const sizeOf = (form) => $$("input[type=file]", form).flatMap((field) => [...field.files]).reduce((sum, file) => sum + file.size, 0);
function upload(form) {
  const box = document.getElementById(form.dataset.uploads);
  const actions = form.querySelector(".actions");
  const request = new XMLHttpRequest();
  const end = (words) => {
    box.hidden = true;
    actions.hidden = false;
    form.ariaBusy = null;
    if (words) toast(words, "failed");
  };
  request.upload.addEventListener("progress", ({ loaded, total }) => {
    Object.assign(box.querySelector("progress"), { max: total, value: loaded });
    box.querySelector("[role=status]").textContent = loaded < total ? `${Math.floor(loaded / MIB).toLocaleString("en")} of ${Math.ceil(total / MIB).toLocaleString("en")} MiB are uploaded.` : "The file is uploaded. It is looked at now.";
  });
  request.addEventListener("load", () => {
    const main = request.response?.querySelector("main");
    if (request.status === 200 && request.responseURL !== form.action) return location.assign(request.responseURL);
    end(main ? REFUSED : `Not stored: the desk answered ${request.status}.`);
    if (main) document.querySelector("main").replaceWith(document.adoptNode(main));
  });
  request.addEventListener("error", () => end(UNANSWERED));
  request.addEventListener("abort", () => end(""));
  box.querySelector("button").onclick = () => request.abort();
  window.addEventListener("pagehide", () => request.abort());
  request.responseType = "document";
  request.open("POST", form.action);
  form.ariaBusy = "true";
  box.hidden = false;
  actions.hidden = true;
  request.send(new FormData(form));
}
function keepPosted(words) {
  try {
    sessionStorage.setItem("posted", words);
  } catch {
    /* a browser that keeps nothing says less */
  }
}
const REFUSED = "Not stored. The page says why.";
const NOT_LOADED = {
  0: "Not loaded: the desk does not answer.",
  401: "Not loaded: the desk needs its token again. Open the address that `evaldesk ui` printed.",
  404: "Not loaded: it is not there any more. Load the page again.",
};
const isSentTo = (form, address) => new URL(address, location.href).pathname === new URL(form.action, location.href).pathname;
document.addEventListener("htmx:finally:request", (event) => {
  const { request, response, sourceEvent, status } = event.detail.ctx;
  const form = request.form;
  if (request.method?.toUpperCase() !== "POST") {
    const isRefused = response ? response.status >= 400 : status?.startsWith("error") && !request.signal?.aborted;
    const isAsked = ["click", "input", "submit"].includes(sourceEvent?.type); // what asks by itself asks again
    if (isRefused && isAsked) toast(NOT_LOADED[response?.status ?? 0] ?? `Not loaded: the desk answered ${response.status}.`, "failed");
    return;
  }
  const isReplaced = request.signal?.aborted && request.signal.reason !== "timeout"; // by a newer edit, or the next page
  if (!response) return isReplaced ? undefined : toast(UNANSWERED, "failed");
  const words = form && isSentTo(form, request.action) ? form.dataset.saysStored : undefined; // a look ahead stores nothing
  const isSaid = response.status !== 401 && $$("main [role='alert']:not([hidden])").some((each) => each.textContent.trim());
  const refused = isSaid ? REFUSED : REFUSALS[response.status] ?? "Not stored. Load the page again, and look at what it says.";
  if (response.status >= 400 && (words || response.status !== 422)) toast(refused, "failed");
  else if (words && response.status === 200) toast(words);
});

// A report without a desk: a link opens its trial, and the heads of the table of cases sort it.
"use strict";

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const trial = target && target.closest("details");
  if (!trial) return;
  trial.open = true;
  trial.scrollIntoView();
}

function valueOf(cell) {
  const text = cell.dataset.value ?? cell.textContent.trim();
  const number = Number.parseFloat(text.replaceAll(",", ""));
  return Number.isNaN(number) ? text : number;
}

function compared(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1; // what has no number comes last
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    if ("unsorted" in head.dataset) return; // squares have no order
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const isDown = head.getAttribute("aria-sort") === "ascending";
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
      rows.sort(([a], [b]) => (isDown ? -compared(a, b) : compared(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}

addEventListener("hashchange", openTarget);
document.querySelectorAll("table[data-sortable]").forEach(sortable);
openTarget();

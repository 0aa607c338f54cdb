"""How a report looks, on a screen of any width and in print, and the script that sorts its tables."""

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light; --ink: #1a1a1a; --pale: #595959; --line: #b9b9b4; --band: #f3f3f1; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; color: var(--ink); background: #fff;
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.5rem; border-top: 2px solid var(--ink); padding-top: 0.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0.25rem; }
p, li, td, th, pre, h1 { unicode-bidi: isolate; }
p, ul { max-width: 46rem; margin: 0.5rem 0; }
ul { padding-left: 1.25rem; }
a { color: inherit; }
a:focus-visible, button:focus-visible, .scroll:focus-visible { outline: 3px solid var(--ink);
  outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; padding: 0; list-style: none;
  max-width: none; }
.verdict { max-width: none; border: 3px solid var(--ink); padding: 0.6rem 0.8rem; font-size: 1.1rem; }
.verdict strong { font-size: 1.35rem; letter-spacing: 0.03em; }
.pale { color: var(--pale); }
.scroll { overflow-x: auto; margin: 0.75rem 0; }
figure { margin: 0.75rem 0; }
figcaption, caption { color: var(--pale); font-size: 0.9rem; text-align: left; padding: 0.25rem 0; }
figcaption, .facts caption { max-width: 46rem; }
img { display: block; height: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.85rem; line-height: 1.35; }
th, td { padding: 0.2rem 0.6rem 0.2rem 0; text-align: left; vertical-align: top; overflow-wrap: normal; }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; }
tbody th { font-weight: normal; }
tbody tr { border-bottom: 1px solid var(--line); }
tbody tr:nth-child(even) { background: var(--band); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number, .short { white-space: nowrap; }
.sortable tbody th { min-width: 7rem; overflow-wrap: anywhere; }
.facts th { white-space: nowrap; }
.facts td { overflow-wrap: anywhere; }
thead button { font: inherit; font-weight: bold; color: inherit; text-align: inherit; background: none;
  border: 0; padding: 0.2rem 0; min-height: 1.6rem; cursor: pointer; text-decoration: underline dotted; }
[aria-sort="ascending"] button::after { content: " \\25B2"; }
[aria-sort="descending"] button::after { content: " \\25BC"; }
pre { font: 0.8rem/1.45 ui-monospace, monospace; white-space: pre-wrap; background: var(--band);
  border: 1px solid var(--line); padding: 0.75rem; margin: 0.5rem 0; }
code { font-family: ui-monospace, monospace; font-size: 0.9em; }
@media (max-width: 48rem) { figure img { max-width: 60rem; } }
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  @page drawing { size: A4 portrait; }
  figure { page: drawing; }
  body { padding: 0; max-width: none; font-size: 9.5pt; }
  nav { display: none; }
  table { font-size: 7.5pt; }
  .scroll { overflow: visible; }
  thead { display: table-header-group; break-inside: avoid; break-after: avoid; }
  thead button { display: contents; }
  tr, figure, .verdict { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; }
  img { width: auto; max-width: 100%; max-height: 245mm; }
  tbody tr:nth-child(even), pre { background: none; }
}
"""

SCRIPT = """
"use strict";
for (const head of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const value = (row) => row.cells[head.cellIndex].dataset.sort ?? row.cells[head.cellIndex].textContent;
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * (isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    };
    body.append(...[...body.rows].sort((one, other) => compare(value(one), value(other))));
  });
}
"""

"""The style of report pages, for screens of any width, dark mode and print, and the script of their tables."""

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --pale: #595959; --line: #b9b9b4;
  --band: rgb(0 0 0 / 4%); --hover: rgb(0 0 0 / 7%); --shade: rgb(0 0 0 / 30%); --mark: #ffe08a; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #e8e8e6; --pale: #a9adb3; --line: #4a4e54; --band: rgb(255 255 255 / 4%);
    --hover: rgb(255 255 255 / 9%); --shade: rgb(0 0 0 / 80%); --mark: #6b5300; }
  figure img { filter: brightness(0.9); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 0 0 0.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0.25rem; }
main > section, .section { margin: 2rem 0 0; border-top: 2px solid var(--ink); padding-top: 0.5rem; }
.section + .section { margin-top: 0.75rem; }
p, li, td, th, pre, h1, q, bdi { unicode-bidi: isolate; }
p, ul { max-width: 46rem; margin: 0.5rem 0; }
ul { padding-left: 1.25rem; }
a { color: inherit; }
:focus-visible { outline: 3px solid var(--ink); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; padding: 0.5rem 1rem; background: var(--ink); color: var(--paper);
  z-index: 1; }
.skip:focus { left: 0.5rem; top: 0.5rem; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; padding: 0; list-style: none;
  max-width: none; }
nav a { display: inline-block; padding: 0.1rem 0; }
.question { color: var(--pale); }
.answer { max-width: 62rem; font-size: 1.2rem; line-height: 1.4; }
.verdict { max-width: none; border: 3px solid var(--ink); padding: 0.6rem 0.8rem; font-size: 1.1rem; }
.verdict strong { font-size: 1.35rem; letter-spacing: 0.03em; }
.pale { color: var(--pale); }
summary { cursor: pointer; }
summary h2 { display: inline; }
.section > summary { padding: 0.15rem 0; }
.unprinted { display: none; }
.scroll { overflow-x: auto; margin: 0.25rem 0 0.75rem; background-color: var(--paper);
  background-image: linear-gradient(to right, var(--paper) 40%, transparent),
    linear-gradient(to left, var(--paper) 40%, transparent),
    linear-gradient(to right, var(--shade), transparent), linear-gradient(to left, var(--shade), transparent);
  background-position: left, right, left, right; background-repeat: no-repeat;
  background-size: 3rem 100%, 3rem 100%, 1rem 100%, 1rem 100%;
  background-attachment: local, local, scroll, scroll; }
.scroll[data-wide]::before { content: "wider than the screen: scroll \\2192"; position: sticky; left: 0;
  display: block; width: max-content; color: var(--pale); font-size: 0.85rem; }
figure { margin: 0.75rem 0; }
figcaption, caption { color: var(--pale); font-size: 0.9rem; text-align: left; padding: 0.25rem 0; }
figcaption { max-width: 46rem; }
img { display: block; height: auto; max-width: 100%; background: #fff; }
table { border-collapse: collapse; font-size: 0.85rem; line-height: 1.35; }
th, td { padding: 0.2rem 0.6rem 0.2rem 0; text-align: left; vertical-align: top; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom; white-space: normal;
  overflow-wrap: normal; }
tbody th { font-weight: normal; }
tbody tr { border-bottom: 1px solid var(--line); }
tbody tr:nth-child(even) { background: var(--band); }
.n { text-align: right; font-variant-numeric: tabular-nums; }
.long { white-space: normal; min-width: 12rem; }
.facts th, .facts td { white-space: normal; overflow-wrap: anywhere; }
.facts th { min-width: 7rem; }
caption { max-width: min(46rem, 100vw - 2rem); }
thead button { font: inherit; font-weight: bold; color: inherit; text-align: inherit; background: none;
  border: 0; padding: 0.2rem 0; min-height: 1.6rem; cursor: pointer; text-decoration: underline dotted; }
[aria-sort="ascending"] button::after { content: " \\25B2"; }
[aria-sort="descending"] button::after { content: " \\25BC"; }
pre { font: 0.8rem/1.45 ui-monospace, monospace; white-space: pre-wrap; background: var(--band);
  border: 1px solid var(--line); padding: 0.75rem; margin: 0.5rem 0; }
code { font-family: ui-monospace, monospace; font-size: 0.9em; }
.defs { position: absolute; width: 0; height: 0; }
.forest { font-size: 0.9rem; line-height: 1.35; margin: 1rem 0; }
.forest h3 { margin: 0.6rem 0 0; font-size: 0.9rem; }
.row { display: grid; align-items: center; column-gap: 0.75rem; padding: 0 0.35rem; min-height: 1.6rem;
  grid-template-columns: 18em minmax(9em, 1fr) 3.8em 9.6em 4.6em 4em 3.4em 6.5em; }
.row > span { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.row > .label, .row > .says { text-align: left; white-space: normal; }
.row b { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  font-weight: normal; }
.heads { color: var(--pale); align-items: end; }
.forest details { border-top: 1px solid var(--line); }
.forest summary { list-style: none; }
.forest summary::-webkit-details-marker { display: none; }
.forest summary .label::before { content: "\\25B8\\00A0"; color: var(--pale); }
.forest details[open] summary .label::before { content: "\\25BE\\00A0"; }
.forest summary:hover { background: var(--hover); }
.forest .counts { font-weight: bold; }
.plot { display: block; width: 100%; height: 1.6rem; overflow: visible; }
.plot line { stroke: var(--ink); }
.plot .zero { stroke: var(--pale); stroke-width: 1; }
.plot .margin { stroke-width: 1.5; stroke-dasharray: 3 3; }
.plot .thin { stroke-width: 1.2; }
.plot .thick { stroke-width: 4; }
.plot text { font-size: 0.75rem; fill: var(--pale); text-anchor: middle; }
.axis .plot { height: 1.4rem; }
.sides { display: flex; flex-wrap: wrap; justify-content: space-between; column-gap: 1rem;
  color: var(--pale); font-size: 0.8rem; }
.heads .plot { height: 1.1rem; }
use { stroke: var(--ink); stroke-width: 1.3; fill: var(--paper); }
.full { fill: var(--ink); }
.behind { padding: 0.25rem 0.35rem 1rem; }
.behind h4 { margin: 0.5rem 0 0; font-size: 0.9rem; }
.behind ul { max-width: none; padding: 0; margin: 0; list-style: none; }
.behind li { margin: 0.4rem 0; padding-left: 0.75rem; border-left: 3px solid var(--line); }
.behind p { margin: 0; max-width: none; }
.behind .said { display: grid; grid-template-columns: minmax(5rem, 9rem) 1fr; column-gap: 0.75rem; }
.behind q { quotes: none; font-family: ui-monospace, monospace; font-size: 0.8rem; white-space: pre-wrap; }
mark { background: var(--mark); color: inherit; }
@media screen and (max-width: 48rem) {
  figure img { max-width: none; }
  .heads:not(.axis) { display: none; }
  .axis .label { display: none; }
  .axis > div { flex: 0 0 100%; }
  .row { display: flex; flex-wrap: wrap; padding: 0.3rem 0.35rem; }
  .row > .label, .row > .plot { flex: 0 0 100%; }
  .says b { display: none; }
  .row b { position: static; clip-path: none; color: var(--pale); }
  .behind .said { grid-template-columns: 1fr; }
}
@media print {
  @page { size: A4; margin: 12mm; }
  body { padding: 0; max-width: none; font-size: 9.5pt; }
  nav, .skip, .section:not([open]) { display: none; }
  .unprinted { display: block; }
  table { font-size: 7pt; }
  th, td { white-space: normal; padding-right: 0.35rem; }
  .forest { font-size: 8pt; }
  .row { min-height: 0; column-gap: 0.5em;
    grid-template-columns: 13em minmax(10em, 1fr) 3.6em 9em 4em 3.4em 3.4em 6em; }
  .plot { height: 1.25rem; }
  .scroll { overflow: visible; background: none; }
  thead { display: table-header-group; break-inside: avoid; break-after: avoid; }
  thead button { display: contents; }
  tr, figure, .row, .verdict { break-inside: avoid; }
  h2, h3, caption, .heads { break-after: avoid; }
  main > section { margin-top: 1rem; }
  img { width: auto; max-width: 100%; max-height: 225mm; }
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
    const value = (row) => {
      const cell = row.cells[head.cellIndex];
      const text = cell.dataset.sort ?? cell.textContent;
      if (!cell.classList.contains("n")) return text;
      return text.replace("\\u2212", "-").replaceAll(",", "").match(/-?[0-9.]+/)?.[0] ?? "";
    };
    const compare = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * (isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    };
    body.append(...[...body.rows].sort((one, other) => compare(value(one), value(other))));
  });
}
const wide = new ResizeObserver((boxes) => {
  for (const { target: box } of boxes) box.toggleAttribute("data-wide", box.scrollWidth > box.clientWidth);
});
for (const box of document.querySelectorAll(".scroll")) wide.observe(box);
const unfold = () => {
  const part = document.getElementById(location.hash.slice(1));
  if (part?.tagName === "DETAILS") part.open = true;
};
addEventListener("hashchange", unfold);
unfold();
"""

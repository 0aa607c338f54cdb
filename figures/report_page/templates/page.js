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
      return text.replace("\u2212", "-").replaceAll(",", "").match(/-?[0-9.]+/)?.[0] ?? "";
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
const openAll = () => {
  for (const part of document.querySelectorAll(".more")) part.open = true;
};
if (matchMedia("(min-width: 48.01rem)").matches) openAll();
addEventListener("beforeprint", openAll);
const unfold = () => {
  const part = document.getElementById(location.hash.slice(1));
  if (part?.tagName === "DETAILS") part.open = true;
};
addEventListener("hashchange", unfold);
unfold();

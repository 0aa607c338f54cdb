import json
import re
from pathlib import Path

import reports

from figures import report, study


def test_a_browser_shows_the_report_at_desk_and_phone_width_without_a_complaint(quickstart, opened):
    page = quickstart / "report.html"
    for width in (1280, 390):
        opened.open(page, width)
        assert opened.requested() == [page.resolve().as_uri()]
        opened.ask("for (const one of document.querySelectorAll('details')) one.open = true")
        wide, room = opened.ask("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room == width
        assert opened.ask(CROPPED) == []
        images = opened.ask("[...document.images].map(one => [one.naturalWidth, one.width])")
        assert len(images) == 3
        assert all(natural > 300 and shown > 300 for natural, shown in images)
        assert opened.ask(INK) == [True] * 3
        assert opened.ask("document.querySelectorAll('thead th button').length") == opened.ask(
            "document.querySelectorAll('thead th').length"
        )
        assert opened.complaints() == []
    assert opened.ask(SORTED) == sorted_by_hand(quickstart)
    assert opened.complaints() == []


# Texts beyond the screen that are in no box that scrolls, and boxes that scroll without a word about it.
CROPPED = """[
  ...[...document.querySelectorAll("body *")].filter((one) => one.getClientRects().length &&
    one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll, .skip, .plot"))
    .map((one) => one.outerHTML.slice(0, 80)),
  ...[...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth &&
    !getComputedStyle(one, "::before").content.includes("scroll")).map((one) => one.ariaLabel),
]"""
# Whether the drawings are more than white.
INK = """[...document.images].map((image) => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [200, 200];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, 200, 200);
  return new Set(context.getImageData(0, 0, 200, 200).data).size > 10;
})"""
# The column of differences and its state, after each of two clicks on its head; and that of words.
SORTED = """(() => {
  const table = document.querySelector("#table table");
  const click = (name) => {
    const head = [...table.tHead.rows[0].cells].find((one) => one.textContent === name);
    head.querySelector("button").click();
    const column = [...table.tBodies[0].rows].map((row) => row.cells[head.cellIndex].textContent);
    return [head.getAttribute("aria-sort"), column];
  };
  return [click("Δ (pp)"), click("Δ (pp)"), click("against")];
})()"""


def sorted_by_hand(folder: Path) -> list:
    rows = json.loads((folder / "verdict.json").read_bytes())["judged"]["contrasts"]
    values = sorted(float(row["difference"]) for row in rows)
    shown = [f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}") for value in values]
    shown = [re.sub(r"^.0\.0$", "0.0", text) for text in shown]
    names = sorted(row["against"] for row in rows)
    return [["ascending", shown], ["descending", shown[::-1]], ["ascending", names]]


def test_no_script_of_a_title_or_of_a_drawing_runs_in_a_browser(tmp_path, monkeypatch, opened):
    folder = reports.copied(tmp_path / "study")
    reports.rewrite(folder, verdict=lambda content: content["judged"].update(title=reports.HOSTILE))
    drawing = tmp_path / "accuracy.svg"
    bad = '<script>parent.document.title = "owned"</script>'
    drawing.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt">{bad}</svg>')
    monkeypatch.setattr(study, "draw", lambda folder, witness, to: (drawing,))
    page = report.report(folder)
    opened.open(page, 1280)
    assert opened.ask("document.querySelector('h1').textContent") == reports.HOSTILE
    assert opened.ask("document.title") == f"INCONCLUSIVE: {reports.HOSTILE}"
    assert opened.ask("document.scripts.length") == 1
    assert opened.ask("document.images[0].naturalWidth") > 0
    assert opened.complaints() == []
    # Even what somebody writes into the page by hand does not run.
    broken = tmp_path / "broken.html"
    text = page.read_text()
    broken.write_text(text.replace("<main>", "<main><script>document.title='owned'</script>"))
    assert broken.read_text() != text
    opened.open(broken, 1280)
    assert opened.ask("document.title") == f"INCONCLUSIVE: {reports.HOSTILE}"
    assert "Content Security Policy" in " ".join(opened.complaints())

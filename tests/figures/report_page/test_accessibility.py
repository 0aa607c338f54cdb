"""A report for people who do not see it, see it in the dark, on a small screen or on paper."""

from pathlib import Path

import pytest
import reports

from figures import report

AXE = reports.ROOT / ".browser" / "node_modules" / "axe-core" / "axe.min.js"
LOOKS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look[0]} {look[1]}")
def look(request, opened, quickstart):
    width, scheme = request.param
    opened.open(quickstart / "report.html", width)
    opened.prefer(scheme)
    assert opened.ask("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    opened.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    return opened


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core: make browser")
def test_axe_finds_nothing_serious(look):
    look.ask(AXE.read_text("utf-8"))
    found = look.ask("axe.run().then(({ violations }) => violations.map((one) => [one.id, one.impact, "
                     "one.nodes.slice(0, 3).map((node) => node.html)]))")  # fmt: skip
    assert [one for one in found if one[1] in ("serious", "critical")] == []


# Branch, agreement, looks, smallest cache, bytes, most contrasts, most words, gates, thoughts,
# outputs of others.
KINDS = (
    "alpha-chain",
    "agreement-programs",
    "looks-chain-2",
    "lossless-chain",
    "bytes-chain",
    "reasoning-field",
    "crystal-retrieval-3",
    "gates-chain",
    "think-answer",
    "openvino-bytes-2",
)


@pytest.mark.parametrize("study", KINDS)
def test_a_report_of_each_kind_of_study_is_short_on_a_phone_and_axe_finds_nothing(opened, undrawn, tmp_path, study):
    page = report.report(reports.copied(tmp_path / study, study))
    opened.open(page, 390)
    assert opened.ask("document.documentElement.scrollHeight") <= 5000  # as it is opened: folded
    assert opened.ask("[...document.querySelectorAll('details')].every((one) => !one.open)")
    opened.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    assert opened.ask("document.documentElement.scrollWidth") <= 390
    if AXE.exists():
        opened.ask(AXE.read_text("utf-8"))
        found = opened.ask("axe.run().then(({ violations }) => violations.map((one) => [one.id, one.impact]))")
        assert [one for one in found if one[1] in ("serious", "critical")] == []


def test_contrasts_beyond_the_first_are_folded_on_a_phone_alone(opened, quickstart):
    for width, is_open in ((390, False), (1280, True)):
        opened.open(quickstart / "report.html", width)
        assert opened.ask("document.querySelector('.more').open") is is_open
        assert opened.ask("document.querySelector('.more > summary').textContent") == "12 more contrasts"
        assert opened.ask("document.querySelectorAll('.more > details').length") == 12


def test_every_text_stands_out_from_what_is_behind_it(look):
    least, where = look.ask(CONTRAST)
    assert least >= 4.5, where


# The least contrast of a text with its background (WCAG 2), and the text; colours behind it are blended.
CONTRAST = """(() => {
  const parse = (text) => [...text.match(/[0-9.]+/g).map(Number), 1].slice(0, 4);
  const over = (top, under) =>
    top.slice(0, 3).map((one, i) => one * top[3] + under[i] * (1 - top[3])).concat(1);
  const behind = (one) => {
    const own = parse(getComputedStyle(one).backgroundColor);
    return own[3] === 1 || !one.parentElement ? own : over(own, behind(one.parentElement));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((one) => one / 255).map((one) =>
      one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let least = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const one = node.parentElement;
    if (!node.data.trim() || !one.getClientRects().length || one.closest("script")) continue;
    const style = getComputedStyle(one);
    const [ink, paper] = [parse(one.closest("svg") ? style.fill : style.color), behind(one)];
    const [a, b] = [light(over(ink, paper)), light(paper)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) least = [ratio, one.outerHTML.slice(0, 120)];
  }
  return least;
})()"""


def test_a_keyboard_reaches_the_contrasts_at_once_and_opens_one(opened, quickstart):
    opened.open(quickstart / "report.html", 1280)
    opened.press("Tab")
    assert opened.ask("document.activeElement.className") == "skip"
    assert opened.ask("document.activeElement.getBoundingClientRect().left") >= 0
    opened.press("Enter")
    assert opened.ask("location.hash") == "#contrasts"
    opened.press("Tab")
    assert opened.ask("document.activeElement.textContent").startswith("against snapkv")
    assert opened.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.press("Enter")
    assert opened.ask("document.activeElement.parentNode.open")
    shown = opened.ask("document.activeElement.nextSibling.innerText")
    assert "2 gained: crystal was right, where snapkv was wrong" in shown


def test_a_link_opens_the_section_that_it_leads_to(opened, quickstart):
    opened.open(quickstart / "report.html", 1280)
    assert not opened.ask("document.getElementById('provenance').open")
    opened.ask("document.querySelector('nav a[href=\"#provenance\"]').click()")
    assert opened.ask("new Promise((done) => setTimeout(() => done(document.getElementById('provenance').open)))")


def test_a_report_is_printed_on_eight_pages_at_most(opened, quickstart, tmp_path, undrawn):
    opened.open(quickstart / "report.html", 1280)
    assert 1 < opened.printed() <= 8
    large = Path(tmp_path / "large.html")  # as many rows as any shipped study has, without waiting for it
    text = (quickstart / "report.html").read_text("utf-8")
    start, end = text.index("<h3>smollm2"), text.index('<div class="row axis"')
    large.write_text(text[:start] + text[start:end] * 6 + text[end:], "utf-8")
    opened.open(large, 1280)
    assert opened.ask("document.querySelectorAll('.forest details:not(.more)').length") == 96
    assert opened.printed() <= 8

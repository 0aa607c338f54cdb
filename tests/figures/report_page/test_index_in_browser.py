"""The index for people who do not see it, see it in the dark, on a small screen or on paper."""

from pathlib import Path

import pytest
import reports
import test_accessibility as seen
import test_browser as shown

from figures.report_page import report_index


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    page = tmp_path_factory.mktemp("index") / "index.html"
    found, said = report_index.read_entries(reports.SHIPPED), report_index.read_comparisons(reports.SHIPPED)
    page.write_text(report_index.render_index(found, said), "utf-8")
    return page


@pytest.fixture(params=seen.LOOKS, ids=lambda look: f"{look[0]} {look[1]}")
def look(request, opened, index):
    width, scheme = request.param
    opened.open(index, width)
    opened.prefer(scheme)
    assert opened.ask("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    opened.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    return opened


def test_nothing_is_cropped_and_every_text_stands_out(look):
    wide, room = look.ask("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= room
    assert look.ask(shown.CROPPED) == []
    least, where = look.ask(seen.CONTRAST)
    assert least >= 4.5, where
    assert look.complaints() == []


@pytest.mark.skipif(not seen.AXE.exists(), reason="no axe-core: make browser")
def test_axe_finds_nothing_serious_in_the_index(look):
    look.ask(seen.AXE.read_text("utf-8"))
    found = look.ask("axe.run().then(({ violations }) => violations.map((one) => [one.id, one.impact]))")
    assert [one for one in found if one[1] in ("serious", "critical")] == []


def test_a_keyboard_skips_to_the_studies_and_the_index_is_printed_two_studies_a_page(opened, index):
    opened.open(index, 1280)
    opened.press("Tab")
    assert opened.ask("document.activeElement.className") == "skip"
    opened.press("Enter")
    assert opened.ask("location.hash") == "#studies"
    assert opened.printed() <= 1 + opened.ask("document.querySelectorAll('.study').length") / 2

"""The page of a problem: what was recorded, marked by more than colour, and nothing in it runs."""

import base64
import hashlib
import re

import browser
import pytest
import reports
from pages import parsed

from analysis.exploratory.text_difference import Divergence
from figures.report_page.rendering import TEMPLATES
from protocol.instruments.show import problem_page
from protocol.instruments.show.problem_answers import Answer, Piece, ProblemAnswers, RetainedTokens

KEPT = tuple(Piece(f"t{place} ", share) for place, share in enumerate((0, 0.2, 0.5, 0.8, 1)))


def answer(arm, text, **own):
    fields = {
        "arm": arm, "budget": "4", "state": "ok", "reason": "", "text": text, "tokens": 3, "stop": "eos",
        "answer": "7", "grade": "wrong", "why": "not the gold", "score": None, "worth": 0.0, "prompt": "0",
        "prompt_tokens": 5, "slots": 4, "held": (4.0, 5.0, 6.0), "events": ((0, 20, 16),),
    }  # fmt: skip
    return Answer(**(fields | own))


def seen(**own):
    whole = {"grade": "correct", "worth": 1.0, "slots": None, "held": (5.0, 6.0, 7.0), "events": ()}
    kept = RetainedTokens(True, "decoded again with the same result", 1, 2, 3, False, KEPT, 3, "later", "")
    fields = {
        "folder": "registrations/mine", "phase": "confirm", "verdict": "REFUTED", "problem": "p/1",
        "model": "m", "task": "t", "seed": 1, "prompt": "one two", "unbuilt": "", "gold": ("9",),
        "reference": answer("full", "a b c", budget="full", **whole), "full": True,
        "answers": (
            answer("1d", "a b d", parts=Divergence(3, 4), kept=kept),
            answer("other", "a b c", parts=None, grade="no answer", answer=None, unkept="a press"),
            answer("failing", "", state="failed", reason="out of slots", held=(), events=(), worth=None),
        ),
    }  # fmt: skip
    return ProblemAnswers(**(fields | own))


def test_each_lane_is_there_with_its_grade_by_shape_and_word_and_its_first_difference():
    page = problem_page.render_page(seen())
    for text in (
        "\u2717 wrong", "\u2713 correct", "\u2013 no answer", "\u2013 failed", "out of slots",
        '<span class="same">a b </span><mark>d</mark>', '<span class="same">a b </span><mark>c</mark>',
        "Differs from the full cache from word 3 (character 4) on.", "The text is identical to that of the full cache.",
        "Graded worse than the full cache: 2 of 3 lanes; better: 0.", "Right answer: <strong>9</strong>",
        "unknown: a press",
    ):  # fmt: skip
        assert text in page, text


def test_tokens_are_marked_by_how_many_heads_keep_them():
    page = problem_page.render_page(seen())
    for level, text in enumerate(("t0 ", "t1 ", "t2 ", "t3 ", "t4 ")):
        assert f'<span class="k{level}">{text}</span>' in page
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    lines = {re.search(rf"\.k{level} {{[^}}]*(underline [^;]*);", style)[1] for level in (1, 2, 3, 4)}
    assert len(lines) == 4  # none of them by its shade alone
    assert "underline" not in re.search(r"\.k0 {([^}]*)}", style)[1]


def style(name):
    return TEMPLATES.get_template(name).render()


def test_no_colour_of_its_own_takes_the_name_of_one_that_reports_draw_with():
    """As the shade that says that a table goes on; the ground of a page and its words are meant to be."""
    own, every = (re.findall(r"(--[a-z]+):", text) for text in map(style, ("problem.css", "page.css")))
    assert set(own) & set(every) <= {"--paper", "--ink", "--pale", "--line", "--band"}


def test_whatever_a_study_says_is_text_and_the_policy_lets_nothing_else_in():
    bad = "\u202e\x1b[2J" + reports.HOSTILE
    hostile = answer(bad, bad, budget=bad, why=bad, answer=bad, parts=Divergence(1, 0), unkept=bad)
    page = problem_page.render_page(
        seen(problem=bad, folder=bad, prompt=bad, gold=(bad,), verdict=bad, answers=(hostile,),
             remarks=(bad,), others=(bad,), model=bad)
    )  # fmt: skip
    document = parsed(page)
    assert not [each for tag in ("script", "img", "iframe", "object", "link") for each in document.all(tag)]
    assert "\u202e" not in page
    assert "\x1b" not in page
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'" in page


def test_a_problem_that_cannot_be_built_and_a_study_without_a_full_cache_have_their_page():
    page = problem_page.render_page(seen(prompt=None, unbuilt="is encrypted", gold=(), reference=None, full=False))
    assert "not shown: is encrypted" in page
    assert "Right answer" not in page


# Of every marked text and its background, the contrast by WCAG 2.
CONTRASTS = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const part = (value) => value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4;
    const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map(part);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  return [...document.querySelectorAll("main span, main mark, main p, td, th, h1, h2, h3")].map((one) => {
    const below = [];
    for (let at = one; at; at = at.parentElement) below.unshift(getComputedStyle(at).backgroundColor);
    const pair = [light(below), light([...below, getComputedStyle(one).color])].sort((a, b) => a - b);
    return [one.className || one.tagName, (pair[1] + 0.05) / (pair[0] + 0.05)];
  });
})()"""


@pytest.mark.skipif(browser.found() is None, reason="no Chromium: set CHROMIUM, or put one on the path")
def test_it_is_legible_at_desk_and_phone_width_light_and_dark(tmp_path):
    path = problem_page.write_page(tmp_path / "problem.html", seen())
    with browser.opened(tmp_path / "profile") as opened:
        for width in (1280, 390):
            opened.open(path, width)
            for scheme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                opened.call("Emulation.setEmulatedMedia", features=features)
                assert opened.ask("document.documentElement.scrollWidth") <= width
                found = opened.ask(CONTRASTS)
                assert len({name for name, _ in found} & {f"k{level}" for level in range(5)}) == 5
                assert min((value, name) for name, value in found)[0] >= 4.5
            assert opened.complaints() == []
            assert opened.requested() == [path.resolve().as_uri()]

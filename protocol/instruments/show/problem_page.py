"""One problem of a study as an HTML page: every arm's answer next to the full cache's, and the retained
tokens.
"""

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.exploratory import text_difference
from figures.drawing import producer
from figures.report_page.markup import Html, NumberCell, element, paragraphs, table
from figures.report_page.report_style import STYLE
from protocol.formats.escape import escape_control
from protocol.instruments.show import problem_answers
from protocol.instruments.show.problem_answers import LEVELS, Answer, Piece, ProblemAnswers, RetainedTokens

__all__ = ["render_page", "write_page"]

PAGE_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --kept: #2f7fd0; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #e8e8e6; --pale: #a9adb3; --line: #4a4e54; --band: #202327;
    --kept: #3d8fe0; }
}
body { background: var(--paper); }
h3 { font-size: 1.1rem; border-top: 1px solid var(--line); padding-top: 0.75rem; margin-top: 2rem; }
.skip { position: absolute; left: -99rem; background: var(--paper); padding: 0.4rem 0.8rem; }
.skip:focus { left: 0.5rem; top: 0.5rem; }
.text { white-space: pre-wrap; unicode-bidi: isolate; overflow-wrap: anywhere; max-width: none; margin: 0;
  font: 0.85rem/1.7 ui-monospace, monospace; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
.sides > div, .box { border: 1px solid var(--line); padding: 0.5rem 0.75rem; min-width: 0; }
.name { font-size: 0.85rem; color: var(--pale); margin: 0 0 0.25rem; }
.same { color: var(--pale); }
mark { color: var(--ink); background: color-mix(in srgb, #e0a000 35%, var(--paper)); font-weight: bold;
  border-bottom: 3px solid #c07000; }
.grade { font-weight: bold; }
.k0 { color: var(--pale); }
.later { font-style: italic; }
.k1, .k2, .k3, .k4 { text-underline-offset: 0.25em; }
.k1 { background: color-mix(in srgb, var(--kept) 12%, var(--paper)); text-decoration: underline dotted; }
.k2 { background: color-mix(in srgb, var(--kept) 24%, var(--paper)); text-decoration: underline dashed; }
.k3 { background: color-mix(in srgb, var(--kept) 36%, var(--paper)); text-decoration: underline solid 1px; }
.k4 { background: color-mix(in srgb, var(--kept) 48%, var(--paper)); text-decoration: underline solid 3px; }
.legend span { margin-right: 0.75rem; padding: 0 0.25rem; }
svg { display: block; width: 100%; max-width: 30rem; height: auto; margin: 0.5rem 0; }
svg text { fill: var(--pale); font: 11px system-ui, sans-serif; }
.own { fill: none; stroke: var(--ink); stroke-width: 1.5; }
.other { fill: none; stroke: var(--pale); stroke-width: 1.5; stroke-dasharray: 1 3; stroke-linecap: round; }
.budget { stroke: var(--pale); stroke-dasharray: 6 4; }
.axis { stroke: var(--line); }
@media (max-width: 48rem) { .sides { grid-template-columns: 1fr; } }
@media print { .sides, svg { break-inside: avoid; } }
"""
GRADE_MARKS = {"correct": "\u2713", "wrong": "\u2717"}  # symbols of grades; others have a dash
WIDTH, HEIGHT, LEFT_MARGIN, BOTTOM_MARGIN = 480, 150, 34, 20  # of a drawing of slots, in its own units


def write_page(path: Path, problem: ProblemAnswers) -> Path:
    """Write the page atomically."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(render_page(problem), "utf-8", newline="\n")
    os.replace(temporary, path)
    return path


def render_page(problem: ProblemAnswers) -> str:
    """Return a whole document that loads nothing and runs no script."""
    style = STYLE + PAGE_STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"{problem.problem}: {Path(problem.folder).name}"
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta name="generator" content="{html.escape(producer.producer_name())}">'),
        element("title", escape_control(title)),
        Html(f"<style>{style}</style>"),
    ]
    body = element(
        "body",
        element("a", "To the answers", class_="skip", href="#answers"),
        element("header", _render_heading(problem)),
        element("main", *_render_sections(problem)),
    )
    return f"<!DOCTYPE html>\n{element('html', element('head', *head), body, lang='en')}\n"


def _render_heading(problem: ProblemAnswers) -> Html:
    split = "held out" if problem.phase == "confirm" else "a development problem"
    judged = f", judged {problem.verdict}" if problem.verdict else ""
    return _join(
        element("p", escape_control(f"{problem.folder}{judged}"), class_="pale"),
        element("h1", escape_control(f"Problem {problem.problem}, {split}")),
        paragraphs(
            escape_control(
                f"Model {problem.model}, task {problem.task}, seed {problem.seed}. {_format_outcome(problem)}"
            ),
            *map(escape_control, problem.remarks),
        ),
        element("p", escape_control(f"Recorded too: {'; '.join(problem.others)}."), class_="pale")
        if problem.others
        else "",
    )


def _format_outcome(problem: ProblemAnswers) -> str:
    """Return how many lanes are graded differently from the reference."""
    if problem.reference is None or not problem.answers:
        return ""
    lost, gained, total = len(problem.lost()), len(problem.gained()), len(problem.answers)
    lanes = "lane" if total == 1 else "lanes"
    return f"Graded worse than {problem.reference_name}: {lost} of {total} {lanes}; better: {gained}."


def _render_sections(problem: ProblemAnswers) -> list[Html]:
    every = problem.lanes
    longest = max((len(answer.held) for answer in every), default=1)
    highest = max((max(answer.held) for answer in every if answer.held), default=1.0)
    drawn = [_render_lane(answer, number, problem, longest, highest) for number, answer in enumerate(problem.answers)]
    return [
        element("section", element("h2", "The prompt"), *_render_prompt(problem)),
        element("section", element("h2", "The answers", id="answers"), _render_table(problem)),
        *([element("section", *_render_reference(problem.reference, problem))] if problem.reference else []),
        element("section", element("h2", "Lane by lane"), _render_legend(problem), *drawn) if drawn else Html(""),
    ]


def _render_prompt(problem: ProblemAnswers) -> list[Html]:
    tokens = f"{problem.lanes[0].prompt_tokens} tokens" if problem.lanes else ""
    if problem.prompt is None:
        return [paragraphs(escape_control(f"{tokens}, not shown: {problem.unbuilt}"))]
    return [
        element("p", f"{tokens}, built again from the problem's name.", class_="name"),
        element("div", element("p", escape_control(problem.prompt), class_="text"), class_="box"),
        element("p", "Right answer: ", element("strong", escape_control(" or ".join(problem.gold)))),
    ]


def _render_table(problem: ProblemAnswers) -> Html:
    heads = ["lane", "budget", "grade", "answers", "tokens", "slots, mean", "slots, most", "evictions"]
    heads.append(f"parts from {problem.reference_name}")
    rows: list[list[str | NumberCell]] = []
    for number, lane_answer in enumerate(problem.lanes, -1 if problem.reference else 0):
        name = "#reference" if lane_answer is problem.reference else f"#lane-{number}"
        row: list[str | NumberCell] = [
            element("a", escape_control(lane_answer.arm), href=name),
            escape_control(lane_answer.budget),
            _format_grade(lane_answer),
            escape_control(lane_answer.answer or ""),
        ]
        row.append(NumberCell.of_count(lane_answer.tokens))
        if lane_answer.held:
            row += [
                NumberCell(f"{lane_answer.mean_slots:.1f}", lane_answer.mean_slots),
                NumberCell(f"{max(lane_answer.held):.0f}", max(lane_answer.held)),
            ]
        else:
            row += [NumberCell("", None)] * 2
        row += [
            NumberCell.of_count(lane_answer.eviction_count),
            "" if lane_answer is problem.reference else _format_divergence(lane_answer),
        ]
        rows.append(row)
    return table("Slots are per KV head and layer, over all moments of the answer.", heads, rows)


def _format_divergence(answer: Answer) -> str:
    if answer.state != "ok":
        return ""
    return "nowhere" if answer.parts is None else str(answer.parts)


def _format_grade(answer: Answer) -> str:
    """Format a grade as a symbol and a word."""
    word = answer.state if answer.state != "ok" else str(answer.grade)
    return escape_control(f"{GRADE_MARKS.get(word, chr(0x2013))} {word}{f' {answer.score}' if answer.score else ''}")


def _render_reference(answer: Answer, problem: ProblemAnswers) -> Iterable[Html]:
    name = problem.reference_name.removeprefix("the ")
    yield element("h2", escape_control(f"{name[:1].upper()}{name[1:]}"), id="reference")
    yield element("p", _render_ending(answer))
    yield element("div", element("p", escape_control(answer.text), class_="text"), class_="box")


def _render_ending(answer: Answer) -> Html:
    """Render the grade, reason and tokens of a lane."""
    if answer.state != "ok":
        return _join(element("span", _format_grade(answer), class_="grade"), escape_control(f": {answer.reason}"))
    answer_phrase = f", answers {answer.answer}" if answer.answer is not None else ""
    reason = f" ({answer.why})" if answer.why else ""
    cutoff = "" if answer.stop == "eos" else ", cut off at the limit"
    return _join(
        element("span", _format_grade(answer), class_="grade"),
        escape_control(f"{answer_phrase}{reason}; {answer.tokens} tokens{cutoff}."),
    )


def _render_lane(answer: Answer, number: int, problem: ProblemAnswers, longest: int, highest: float) -> Html:
    parts: list[Html] = [
        element("h3", escape_control(f"{answer.arm}, budget {answer.budget}"), id=f"lane-{number}"),
        element("p", _render_ending(answer)),
    ]
    reference = problem.reference
    if answer.state == "ok":
        if reference is None or answer.parts is None:
            if reference is not None:
                parts.append(element("p", escape_control(f"The text is that of {problem.reference_name}.")))
            else:
                parts.append(element("div", element("p", escape_control(answer.text), class_="text"), class_="box"))
        else:
            divergence = answer.parts.character
            sides = (
                _render_side(problem.reference_name, reference.text, divergence),
                _render_side(answer.arm, answer.text, divergence),
            )
            parts.append(
                element("p", escape_control(f"Parts from {problem.reference_name} at {answer.parts}."), class_="name")
            )
            parts.append(element("div", *sides, class_="sides"))
    if answer.held:
        parts.append(_render_drawing(answer, problem, longest, highest))
    if answer.kept is not None:
        parts += _render_retained(answer.kept)
    elif answer.unkept:
        parts.append(element("p", escape_control(f"Which tokens it kept is not told: {answer.unkept}.")))
    return element("article", *parts)


def _render_side(name: str, text: str, divergence: int) -> Html:
    """Render a text: the part shared with the other text is pale, and the first differing word is marked."""
    length = text_difference.marked_length(text, divergence)
    inside = [
        element("span", escape_control(text[:divergence]), class_="same"),
        element("mark", escape_control(text[divergence : divergence + length]) or "(ends)"),
        escape_control(text[divergence + length :]),
    ]
    return element("div", element("p", escape_control(name), class_="name"), element("p", *inside, class_="text"))


def _render_legend(problem: ProblemAnswers) -> Html:
    if not any(answer.kept for answer in problem.answers):
        return Html("")
    spans = (element("span", words, class_=f"k{level}") for level, words in enumerate(LEVELS))
    return element(
        "p",
        "A token by how many of all (layer, KV head) pairs keep its slot: ",
        *spans,
        class_="legend",
    )


def _render_retained(retained: RetainedTokens) -> list[Html]:
    prompt_pieces, answer_pieces = retained.pieces[: retained.prompt], retained.pieces[retained.prompt :]
    message = f"What is kept after {retained.event_text}. It was {retained.said}."
    boxes = [_render_tokens("prompt", prompt_pieces)]
    if answer_pieces or retained.after:
        boxes.append(_render_tokens("answer", answer_pieces, retained.after))
    return [paragraphs(escape_control(message), retained.remark), *boxes]


def _render_tokens(name: str, pieces: Sequence[Piece], later_text: str = "") -> Html:
    """Render tokens by how many heads retain them. later_text: text written after this eviction, which it
    could not evict.
    """
    spans = [
        element("span", escape_control(text), class_=f"k{level}")
        for text, level in problem_answers.merge_levels(pieces)
    ]
    if later_text:
        spans.append(element("span", escape_control(later_text), class_="later"))
    label = f"{name}; what was written after this event is slanted" if later_text else name
    inside = element("p", label, class_="name"), element("p", *spans, class_="text")
    return element("div", *inside, class_="box")


def _render_drawing(answer: Answer, problem: ProblemAnswers, longest: int, highest: float) -> Html:
    """Render the slots over time with those of the reference and the budget; all lanes share the axes."""
    reference = problem.reference
    lines = [_render_line(answer.held, "own", longest, highest)]
    if reference is not None and reference.held:
        lines.insert(0, _render_line(reference.held, "other", longest, highest))
    y = _y_position(float(answer.slots), highest) if answer.slots is not None else None
    budget = "" if y is None else f'<line class="budget" x1="{LEFT_MARGIN}" x2="{WIDTH}" y1="{y}" y2="{y}"/>'
    description = f"Slots of {answer.arm}: {answer.mean_slots:.1f} on average, at most {max(answer.held):.0f}"
    if answer.slots is not None:
        description += f", budget {answer.slots}, {answer.evictions_text}"
    if reference is not None and reference.held:
        description += (
            f"; of {problem.reference_name} (dotted): {reference.mean_slots:.1f}, at most {max(reference.held):.0f}"
        )
    base = HEIGHT - BOTTOM_MARGIN
    return _join(
        Html(
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(escape_control(description))}">'
            f'<line class="axis" x1="{LEFT_MARGIN}" x2="{WIDTH}" y1="{base}" y2="{base}"/>'
            f'<line class="axis" x1="{LEFT_MARGIN}" x2="{LEFT_MARGIN}" y1="0" y2="{base}"/>'
            f'<text x="{LEFT_MARGIN - 4}" y="11" text-anchor="end">{highest:.0f}</text>'
            f'<text x="{LEFT_MARGIN - 4}" y="{base}" text-anchor="end">0</text>'
            f'<text x="{LEFT_MARGIN}" y="{HEIGHT - 5}">end of the prompt</text>'
            f'<text x="{WIDTH}" y="{HEIGHT - 5}" text-anchor="end">{longest - 1} tokens fed</text>'
            f"{budget}{''.join(lines)}</svg>"
        ),
        element("p", escape_control(f"{description}."), class_="name"),
    )


def _render_line(slots_held: Sequence[float], kind: str, longest: int, highest: float) -> str:
    width = (WIDTH - LEFT_MARGIN) / max(1, longest - 1)
    points = " ".join(
        f"{LEFT_MARGIN + step * width:.1f},{_y_position(slots, highest)}" for step, slots in enumerate(slots_held)
    )
    return f'<polyline class="{kind}" points="{points}"/>'


def _y_position(slots: float, highest: float) -> float:
    return round((HEIGHT - BOTTOM_MARGIN) * (1 - slots / highest), 1)


def _join(*parts: str) -> Html:
    """Join texts; text that is not markup is escaped, as within an element."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))

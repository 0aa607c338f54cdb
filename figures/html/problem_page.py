"""One problem of a study as an HTML page: every arm's answer next to the full cache's, and the retained
tokens.
"""

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.explored import one_problem
from analysis.explored.one_problem import LEVELS, Answer, Kept, OneProblem, Piece
from protocol.evidence.bytes.shown import shown
from figures.canvas import producer
from figures.html.markup import Html, Number, element, sentences, table
from figures.html.report_style import STYLE

__all__ = ["page", "write"]

OWN = """
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
MARKS = {"correct": "\u2713", "wrong": "\u2717"}  # symbols of grades; others have a dash
WIDE, HIGH, LEFT, BELOW = 480, 150, 34, 20  # of a drawing of slots, in its own units


def write(path: Path, seen: OneProblem) -> Path:
    """Write the page atomically."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(page(seen), "utf-8", newline="\n")
    os.replace(new, path)
    return path


def page(seen: OneProblem) -> str:
    """Return a whole document that loads nothing and runs no script."""
    style = STYLE + OWN
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    title = f"{seen.problem}: {Path(seen.folder).name}"
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta name="generator" content="{html.escape(producer.name())}">'),
        element("title", shown(title)),
        Html(f"<style>{style}</style>"),
    ]
    body = element(
        "body",
        element("a", "To the answers", class_="skip", href="#answers"),
        element("header", _heading(seen)),
        element("main", *_sections(seen)),
    )
    return f"<!DOCTYPE html>\n{element('html', element('head', *head), body, lang='en')}\n"


def _heading(seen: OneProblem) -> Html:
    split = "held out" if seen.phase == "confirm" else "a development problem"
    judged = f", judged {seen.verdict}" if seen.verdict else ""
    return _all(
        element("p", shown(f"{seen.folder}{judged}"), class_="pale"),
        element("h1", shown(f"Problem {seen.problem}, {split}")),
        sentences(
            shown(f"Model {seen.model}, task {seen.task}, seed {seen.seed}. {_outcome(seen)}"),
            *map(shown, seen.remarks),
        ),
        element("p", shown(f"Recorded too: {'; '.join(seen.others)}."), class_="pale") if seen.others else "",
    )


def _outcome(seen: OneProblem) -> str:
    """Return how many lanes are graded differently from the reference."""
    if seen.reference is None or not seen.answers:
        return ""
    lost, gained, of = len(seen.lost()), len(seen.gained()), len(seen.answers)
    return (
        f"Graded worse than {seen.beside}: {lost} of {of} {'lane' if of == 1 else 'lanes'}; better: {gained}."
    )


def _sections(seen: OneProblem) -> list[Html]:
    every = _every(seen)
    longest = max((len(one.held) for one in every), default=1)
    highest = max((max(one.held) for one in every if one.held), default=1.0)
    drawn = [_lane(one, number, seen, longest, highest) for number, one in enumerate(seen.answers)]
    return [
        element("section", element("h2", "The prompt"), *_prompt(seen)),
        element("section", element("h2", "The answers", id="answers"), _table(seen)),
        *([element("section", *_reference(seen.reference, seen))] if seen.reference else []),
        element("section", element("h2", "Lane by lane"), _legend(seen), *drawn) if drawn else Html(""),
    ]


def _every(seen: OneProblem) -> list[Answer]:
    return [*([] if seen.reference is None else [seen.reference]), *seen.answers]


def _prompt(seen: OneProblem) -> list[Html]:
    tokens = f"{_every(seen)[0].prompt_tokens} tokens" if _every(seen) else ""
    if seen.prompt is None:
        return [sentences(shown(f"{tokens}, not shown: {seen.unbuilt}"))]
    return [
        element("p", f"{tokens}, built again from the problem's name.", class_="name"),
        element("div", element("p", shown(seen.prompt), class_="text"), class_="box"),
        element("p", "Right answer: ", element("strong", shown(" or ".join(seen.gold)))),
    ]


def _table(seen: OneProblem) -> Html:
    heads = ["lane", "budget", "grade", "answers", "tokens", "slots, mean", "slots, most", "evictions"]
    heads.append(f"parts from {seen.beside}")
    rows: list[list[str | Number]] = []
    for number, one in enumerate(_every(seen), -1 if seen.reference else 0):
        name = "#reference" if one is seen.reference else f"#lane-{number}"
        row: list[str | Number] = [
            element("a", shown(one.arm), href=name),
            shown(one.budget),
            _graded(one),
            shown(one.answer or ""),
        ]
        row.append(Number.of(one.tokens))
        if one.held:
            row += [Number(f"{one.mean:.1f}", one.mean), Number(f"{max(one.held):.0f}", max(one.held))]
        else:
            row += [Number("", None)] * 2
        row += [Number.of(one.evicting), "" if one is seen.reference else _parts(one)]
        rows.append(row)
    return table("Slots are per KV head and layer, over all moments of the answer.", heads, rows)


def _parts(one: Answer) -> str:
    if one.state != "ok":
        return ""
    return "nowhere" if one.parts is None else str(one.parts)


def _graded(one: Answer) -> str:
    """Format a grade as a symbol and a word."""
    word = one.state if one.state != "ok" else str(one.grade)
    return shown(f"{MARKS.get(word, chr(0x2013))} {word}{f' {one.score}' if one.score else ''}")


def _reference(one: Answer, seen: OneProblem) -> Iterable[Html]:
    name = seen.beside.removeprefix("the ")
    yield element("h2", shown(f"{name[:1].upper()}{name[1:]}"), id="reference")
    yield element("p", _ended(one))
    yield element("div", element("p", shown(one.text), class_="text"), class_="box")


def _ended(one: Answer) -> Html:
    """Render the grade, reason and tokens of a lane."""
    if one.state != "ok":
        return _all(element("span", _graded(one), class_="grade"), shown(f": {one.reason}"))
    said = f", answers {one.answer}" if one.answer is not None else ""
    why = f" ({one.why})" if one.why else ""
    cut = "" if one.stop == "eos" else ", cut off at the limit"
    return _all(
        element("span", _graded(one), class_="grade"), shown(f"{said}{why}; {one.tokens} tokens{cut}.")
    )


def _lane(one: Answer, number: int, seen: OneProblem, longest: int, highest: float) -> Html:
    parts: list[Html] = [
        element("h3", shown(f"{one.arm}, budget {one.budget}"), id=f"lane-{number}"),
        element("p", _ended(one)),
    ]
    other = seen.reference
    if one.state == "ok":
        if other is None or one.parts is None:
            if other is not None:
                parts.append(element("p", shown(f"The text is that of {seen.beside}.")))
            else:
                parts.append(element("div", element("p", shown(one.text), class_="text"), class_="box"))
        else:
            at = one.parts.character
            sides = (_side(seen.beside, other.text, at), _side(one.arm, one.text, at))
            parts.append(element("p", shown(f"Parts from {seen.beside} at {one.parts}."), class_="name"))
            parts.append(element("div", *sides, class_="sides"))
    if one.held:
        parts.append(_drawing(one, seen, longest, highest))
    if one.kept is not None:
        parts += _kept(one.kept)
    elif one.unkept:
        parts.append(element("p", shown(f"Which tokens it kept is not told: {one.unkept}.")))
    return element("article", *parts)


def _side(name: str, text: str, at: int) -> Html:
    """Render a text: the part shared with the other text is pale, and the first differing word is marked."""
    length = one_problem.marked(text, at)
    inside = [
        element("span", shown(text[:at]), class_="same"),
        element("mark", shown(text[at : at + length]) or "(ends)"),
        shown(text[at + length :]),
    ]
    return element("div", element("p", shown(name), class_="name"), element("p", *inside, class_="text"))


def _legend(seen: OneProblem) -> Html:
    if not any(one.kept for one in seen.answers):
        return Html("")
    spans = (element("span", words, class_=f"k{level}") for level, words in enumerate(LEVELS))
    return element(
        "p",
        "A token by how many of all (layer, KV head) pairs keep its slot: ",
        *spans,
        class_="legend",
    )


def _kept(kept: Kept) -> list[Html]:
    prompt, answer = kept.pieces[: kept.prompt], kept.pieces[kept.prompt :]
    told = f"What is kept after {kept.when}. It was {kept.said}."
    boxes = [_tokens("prompt", prompt)]
    if answer or kept.after:
        boxes.append(_tokens("answer", answer, kept.after))
    return [sentences(shown(told), kept.remark), *boxes]


def _tokens(name: str, pieces: Sequence[Piece], after: str = "") -> Html:
    """Render tokens by how many heads retain them. later_text: text written after this eviction, which it
    could not evict.
    """
    spans = [element("span", shown(text), class_=f"k{level}") for text, level in one_problem.runs(pieces)]
    if after:
        spans.append(element("span", shown(after), class_="later"))
    label = f"{name}; what was written after this event is slanted" if after else name
    inside = element("p", label, class_="name"), element("p", *spans, class_="text")
    return element("div", *inside, class_="box")


def _drawing(one: Answer, seen: OneProblem, longest: int, highest: float) -> Html:
    """Render the slots over time with those of the reference and the budget; all lanes share the axes."""
    other = seen.reference
    lines = [_line(one.held, "own", longest, highest)]
    if other is not None and other.held:
        lines.insert(0, _line(other.held, "other", longest, highest))
    y = _y(float(one.slots), highest) if one.slots is not None else None
    budget = "" if y is None else f'<line class="budget" x1="{LEFT}" x2="{WIDE}" y1="{y}" y2="{y}"/>'
    told = f"Slots of {one.arm}: {one.mean:.1f} on average, at most {max(one.held):.0f}"
    if one.slots is not None:
        told += f", budget {one.slots}, {one.evictions}"
    if other is not None and other.held:
        told += f"; of {seen.beside} (dotted): {other.mean:.1f}, at most {max(other.held):.0f}"
    base = HIGH - BELOW
    return _all(
        Html(
            f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{html.escape(shown(told))}">'
            f'<line class="axis" x1="{LEFT}" x2="{WIDE}" y1="{base}" y2="{base}"/>'
            f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="0" y2="{base}"/>'
            f'<text x="{LEFT - 4}" y="11" text-anchor="end">{highest:.0f}</text>'
            f'<text x="{LEFT - 4}" y="{base}" text-anchor="end">0</text>'
            f'<text x="{LEFT}" y="{HIGH - 5}">end of the prompt</text>'
            f'<text x="{WIDE}" y="{HIGH - 5}" text-anchor="end">{longest - 1} tokens fed</text>'
            f"{budget}{''.join(lines)}</svg>"
        ),
        element("p", shown(f"{told}."), class_="name"),
    )


def _line(held: Sequence[float], kind: str, longest: int, highest: float) -> str:
    width = (WIDE - LEFT) / max(1, longest - 1)
    points = " ".join(f"{LEFT + at * width:.1f},{_y(slots, highest)}" for at, slots in enumerate(held))
    return f'<polyline class="{kind}" points="{points}"/>'


def _y(slots: float, highest: float) -> float:
    return round((HIGH - BELOW) * (1 - slots / highest), 1)


def _all(*parts: str) -> Html:
    """Join texts; text that is not markup is escaped, as within an element."""
    return Html("".join(part if isinstance(part, Html) else html.escape(part) for part in parts))

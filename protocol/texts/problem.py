"""The terminal view of one problem: lines of styled parts, readable without colour.

Words and marks repeat what a style says, since colours are off if NO_COLOR is set or the output is no
terminal, and some readers cannot tell them apart.
"""

import os
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TextIO

from analysis.explored import one_problem
from analysis.explored.one_problem import LEVELS, Answer, Kept, OneProblem
from protocol.evidence.bytes.shown import hush, shown

__all__ = ["Line", "Part", "coloured", "lines", "write"]

WIDTH = 100
INDENT = "    "
BEFORE = 6  # shared words before the point of divergence
ROWS = 3  # of a text among several; a single one is not cut
CURVE = 40  # columns
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
MARKS, PLAIN_MARKS = " ░▒▓█", " .-=#"  # below a token, by how many heads retain it
HERE = "»"  # before the first word that differs
STYLES: Mapping[str, str] = MappingProxyType(
    {
        "strong": "1",
        "pale": "2",
        "mark": "1;7",
        "kept0": "2",
        "kept1": "30;48;5;195",
        "kept2": "30;48;5;153;4",
        "kept3": "97;48;5;31;4",
        "kept4": "1;97;48;5;24;4",
    }
)


class Part(NamedTuple):
    text: str
    style: str = ""


Line = tuple[Part, ...]


def coloured(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal with styles and colours are not disabled (no-color.org)."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def write(told: Iterable[Line], stream: TextIO | None, *, colours: bool) -> None:
    """Print lines. Control characters in the text are escaped; a closed pipe (`| head`) is no error."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        for line in told:
            printed = "".join(_styled(part, colours=colours) for part in line).rstrip(" ")
            stream.write(f"{printed}\n".encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        hush(stream)


def _styled(part: Part, *, colours: bool) -> str:
    text = shown(part.text).replace("\n", "\\n")
    return f"\x1b[{STYLES[part.style]}m{text}\x1b[0m" if colours and part.style and text else text


def lines(seen: OneProblem, *, colours: bool = False, plain: bool = False) -> list[Line]:
    """Return the lines of a problem. colours: shade retained tokens in the text, instead of a row of marks
    below it. plain: use only ASCII for marks and bars.
    """
    whole = len(seen.answers) <= 1
    frame = _frame(seen)
    found = [*_head(seen), *_summary(seen)]
    if seen.reference is not None:
        found += _answered(seen.reference, frame, plain=plain)
        found += _text(seen.reference.text, whole=True)
    for one in seen.answers:
        found += [(), *_answered(one, frame, plain=plain), *_apart(one, seen, whole=whole)]
        found += _kept(one, colours=colours, plain=plain)
    if any(one.kept for one in seen.answers) and not colours:
        found += [(), *_legend(plain=plain)]
    return found


def _all(seen: OneProblem) -> list[Answer]:
    return [*([] if seen.reference is None else [seen.reference]), *seen.answers]


def _head(seen: OneProblem) -> list[Line]:
    where = "held out" if seen.phase == "confirm" else "a development problem"
    judged = f", judged {seen.verdict}" if seen.verdict else ""
    named = f"{seen.folder}{judged}: problem {seen.problem}, {where}"
    found: list[Line] = [
        (Part(named, "strong"),),
        (Part(f"model {seen.model}, task {seen.task}, seed {seen.seed}"),),
    ]
    if seen.others:
        found.append((Part(f"recorded too: {'; '.join(seen.others)}", "pale"),))
    found += [(Part(each),) for remark in seen.remarks for each in textwrap.wrap(remark, WIDTH)]
    found.append((Part("slots are per KV head and layer; curves begin at the end of the prompt", "pale"),))
    tokens = next((one.prompt_tokens for one in _all(seen)), 0)
    found.append(())
    if seen.prompt is None:
        return [*found, *_wrapped(f"prompt, {tokens} tokens, not shown: {seen.unbuilt}")]
    found.append((Part(f"prompt, {tokens} tokens (built again from the problem's name)", "strong"),))
    found += _text(seen.prompt, whole=True)
    return [*found, (Part("right answer: ", "strong"), Part(" or ".join(seen.gold)))]


def _summary(seen: OneProblem) -> list[Line]:
    """Format which arms are graded worse and which better than the reference."""
    if seen.reference is None or not seen.answers:
        return [()]
    lost, gained = seen.lost(), seen.gained()
    alike = len(seen.answers) - len(lost) - len(gained)
    found: list[Line] = [()]
    for words, own in ((f"worse than {seen.beside}", lost), (f"better than {seen.beside}", gained)):
        if own:
            names = ", ".join(_name(one, seen) for one in own)
            found += _wrapped(f"graded {words}, {len(own)} of {len(seen.answers)}: {names}")
    if alike:
        found += _wrapped(f"graded like {seen.beside}: {alike} of {len(seen.answers)}")
    return [*found, ()]


def _name(one: Answer, seen: OneProblem) -> str:
    several = len({each.budget for each in seen.answers}) > 1
    return f"{one.arm} at {one.budget}" if several else one.arm


class Frame(NamedTuple):
    """The common scale of all curves: the most slots and the most steps of any lane."""

    highest: float
    longest: int


def _frame(seen: OneProblem) -> Frame:
    curves = [one.held for one in _all(seen) if one.held] or [(1.0,)]
    return Frame(max(map(max, curves)), max(map(len, curves)))


def _answered(one: Answer, frame: Frame, *, plain: bool) -> list[Line]:
    """Format the outcome of a lane, its tokens and its slots over time."""
    at = "never evicts" if one.slots is None else f"budget {one.budget}"
    if one.slots is not None and one.budget != str(one.slots):
        at += f" ({one.slots} slots)"
    name = f"{one.arm}, {at}: "
    if one.state != "ok":
        return [(Part(name, "strong"), Part(f"{one.state}: {one.reason}"))]
    grade = f"{one.grade} {one.score}" if one.score else str(one.grade)
    said = grade if one.answer is None else f"{grade}, answers {one.answer}"
    why = f" ({one.why})" if one.why else ""
    ended = "" if one.stop == "eos" else ", cut off at the limit"
    slots = (
        f"{_curve(one.held, frame, plain=plain)} {one.mean:.1f} slots on average, at most {max(one.held):.0f}"
    )
    fired = f", {one.evictions}"
    told = [Part(name, "strong"), Part(f"{said}{why}; {one.tokens} tokens{ended}")]
    return [
        *_block(told, "", rows=None),
        (Part(f"{INDENT}{slots}{'' if one.slots is None else fired}"),),
    ]


def _curve(held: Sequence[float], frame: Frame, *, plain: bool) -> str:
    """Draw slots over time from 0 to the maximum of all lanes; a column is the maximum of several steps. A
    lane that ends earlier has fewer columns.
    """
    bars = PLAIN_BARS if plain else BARS
    step = -(-frame.longest // CURVE)
    tops = (max(held[at : at + step]) for at in range(0, len(held), step))
    return "".join(bars[min(len(bars) - 1, int(top / frame.highest * len(bars)))] for top in tops)


def _apart(one: Answer, seen: OneProblem, *, whole: bool) -> list[Line]:
    """Format the texts of the reference and of a lane, from shortly before they diverge."""
    if one.state != "ok":
        return []
    other = seen.reference
    if other is None:
        return _text(one.text, whole=whole)
    if one.parts is None:
        return [(Part(f"{INDENT}the text is that of {seen.beside}"),)]
    at = one.parts.character
    found: list[Line] = [(Part(f"{INDENT}parts from {seen.beside} at {one.parts}:"),)]
    label = max(len(seen.beside), len(one.arm))
    for name, text in ((seen.beside, other.text), (one.arm, one.text)):
        start = _words_before(text, at)
        cut = f"{'... ' if start else ''}{text[start:at]}"
        length = one_problem.marked(text, at)
        parts = [Part(cut, "pale"), Part(f"{HERE}{text[at : at + length] or '(ends)'}", "mark")]
        parts.append(Part(text[at + length :]))
        most = 1 if text is other.text else ROWS  # the full reference text is printed above
        found += _block(parts, f"{INDENT}{name:<{label}}  ", rows=None if whole else most)
    return found


def _words_before(text: str, at: int) -> int:
    """Return where the last CONTEXT_WORDS words before a position begin."""
    start, words = at, 0
    while start and words < BEFORE:
        start -= 1
        words += not text[start].isspace() and (start == 0 or text[start - 1].isspace())
    return start


def _text(text: str, *, whole: bool) -> list[Line]:
    return _block([Part(text)], INDENT, rows=None if whole else ROWS)


def _wrapped(text: str) -> list[Line]:
    return [(Part(each),) for each in textwrap.wrap(text, WIDTH, break_on_hyphens=False)]


def _block(parts: Sequence[Part], margin: str, rows: int | None) -> list[Line]:
    """Wrap text to WIDTH after a margin, printed on the first line and blank below. rows: most lines."""
    filled = _filled(parts, WIDTH - len(margin))
    cut = filled if rows is None else filled[:rows]
    found: list[Line] = []
    for number, line in enumerate(cut):
        found.append((Part(margin if not number else " " * len(margin)), *line))
    if len(cut) < len(filled):
        found[-1] = (*found[-1], Part(" ...", "pale"))
    return found


def _filled(parts: Iterable[Part], width: int) -> list[Line]:
    """Wrap to lines of at most `width` cells, at white space if possible, and at line feeds."""
    found: list[list[tuple[str, str]]] = [[]]
    used = space = 0  # cells of the line, and its last break opportunity
    for text, style in ((char, part.style) for part in parts for char in _visible(part.text)):
        if text == "\n":
            found.append([])
            used = space = 0
            continue
        if used + cells(text) > width:
            line = found[-1]
            at = space or len(line)
            found[-1], rest = line[:at], line[at:]
            found.append(rest)
            used, space = sum(cells(char) for char, _ in rest), 0
        found[-1].append((text, style))
        used += cells(text)
        if text == " ":
            space = len(found[-1])
    return [_joined(line) for line in found]


def _visible(text: str) -> str:
    """Escape text as it will be printed, so that the measured width is right."""
    return shown(text)


def cells(char: str) -> int:
    """Return the number of terminal columns of a character."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _joined(chars: Sequence[tuple[str, str]]) -> Line:
    found: list[Part] = []
    for text, style in chars:
        if found and found[-1].style == style:
            found[-1] = Part(found[-1].text + text, style)
        else:
            found.append(Part(text, style))
    return tuple(found)


def _kept(one: Answer, *, colours: bool, plain: bool) -> list[Line]:
    """Format which tokens a lane retained: shaded, or with a row of marks below each line."""
    if one.kept is None:
        return _wrapped(f"{INDENT}which tokens it kept is not told: {one.unkept}") if one.unkept else []
    kept: Kept = one.kept
    found: list[Line] = [(Part(f"{INDENT}kept after {kept.when}"),)]
    found += [(Part(f"{INDENT}{each}", "pale"),) for each in textwrap.wrap(kept.said, WIDTH - len(INDENT))]
    found += [(Part(f"{INDENT}{kept.remark}"),)] if kept.remark else []
    for name, pieces in (("prompt", kept.pieces[: kept.prompt]), ("answer", kept.pieces[kept.prompt :])):
        if not pieces:
            continue
        parts = [Part(text, f"kept{level}") for text, level in one_problem.runs(pieces)]
        rows = _block(parts, f"{INDENT}{name}  ", rows=None)
        found += rows if colours else [each for row in rows for each in (row, *_marks(row, plain=plain))]
    found += _written_later(kept)
    return found


def _marks(row: Line, *, plain: bool) -> list[Line]:
    """Return the row of marks below a line, which show how much of each token is retained, if any is."""
    marks, told = PLAIN_MARKS if plain else MARKS, ""
    for part in row:
        level = int(part.style.removeprefix("kept")) if part.style else 0
        told += "".join(marks[level] * cells(char) for char in part.text)
    return [(Part(told),)] if told.strip() else []


def _written_later(kept: Kept) -> list[Line]:
    if not kept.after.strip():
        return []
    return _block([Part(kept.after, "pale")], f"{INDENT}after   ", rows=2)


def _legend(*, plain: bool) -> list[Line]:
    marks = PLAIN_MARKS if plain else MARKS
    told = ", ".join(f"{mark!r} {words}" for mark, words in zip(marks, LEVELS, strict=True))
    return _wrapped(f"marks below a token: how many of all layers x KV heads keep it: {told}")

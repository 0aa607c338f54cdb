"""The terminal view of one problem: lines of styled parts, readable without colour.

Words and marks repeat what a style says, since colours are off if NO_COLOR is set or the output is no
terminal, and some readers cannot tell them apart.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TextIO

from analysis.exploratory import text_difference
from protocol.formats.escape import escape_control, give_up
from protocol.formats.terminal import line_width, wrap_text
from protocol.instruments.show import problem_answers
from protocol.instruments.show.problem_answers import LEVELS, Answer, ProblemAnswers, RetainedTokens

WIDTH = 100  # most columns of a text that is read
INDENT = "    "
CONTEXT_WORDS = 6  # shared words before the point of divergence
MOST_ROWS = 3  # of a text among several; a single one is not cut
CURVE_WIDTH = 40  # columns
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
MARKS, PLAIN_MARKS = " ░▒▓█", " .-=#"  # below a token, by how many heads retain it
DIVERGENCE_MARK = "»"  # before the first word that differs
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


def _page_width() -> int:
    return min(WIDTH, line_width())


def write_lines(lines: Iterable[Line], stream: TextIO | None, *, colours: bool) -> None:
    """Print lines. Control characters in the text are escaped; a closed pipe (`| head`) is no error."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        for line in lines:
            printed = "".join(_apply_style(part, colours=colours) for part in line).rstrip(" ")
            stream.write(f"{printed}\n".encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        give_up(stream, error)


def _apply_style(part: Part, *, colours: bool) -> str:
    text = escape_control(part.text).replace("\n", "\\n")
    return f"\x1b[{STYLES[part.style]}m{text}\x1b[0m" if colours and part.style and text else text


def format_problem(view: ProblemAnswers, *, colours: bool = False, plain: bool = False) -> list[Line]:
    """Return the lines of a problem. colours: shade retained tokens in the text, instead of a row of marks
    below it. plain: use only ASCII for marks and bars.
    """
    is_unabridged = len(view.answers) <= 1
    frame = _measure_frame(view)
    lines = [*_format_head(view), *_format_summary(view)]
    if view.reference is not None:
        lines += _format_answer(view.reference, frame, plain=plain)
        lines += _format_text(view.reference.text, is_unabridged=True)
    for answer in view.answers:
        lines += [
            (),
            *_format_answer(answer, frame, plain=plain),
            *_format_divergence(answer, view, is_unabridged=is_unabridged),
        ]
        lines += _format_retained(answer, colours=colours, plain=plain)
    if any(answer.kept for answer in view.answers) and not colours:
        lines += [(), *_format_legend(plain=plain)]
    return lines


def _format_head(view: ProblemAnswers) -> list[Line]:
    where = "held out" if view.phase == "confirm" else "a development problem"
    judged = f", judged {view.verdict}" if view.verdict else ""
    title = f"{view.folder}{judged}: problem {view.problem}, {where}"
    lines: list[Line] = [(Part(title, "strong"),), (Part(f"model {view.model}, task {view.task}, seed {view.seed}"),)]
    if view.others:
        lines.append((Part(f"recorded too: {'; '.join(view.others)}", "pale"),))
    lines += [(Part(row),) for remark in view.remarks for row in wrap_text(remark, _page_width())]
    lines.append((Part("slots are per KV head and layer; curves begin at the end of the prompt", "pale"),))
    tokens = next((answer.prompt_tokens for answer in view.lanes), 0)
    lines.append(())
    if view.prompt is None:
        return [*lines, *_wrap(f"prompt, {tokens} tokens, not shown: {view.unbuilt}")]
    lines.append((Part(f"prompt, {tokens} tokens (rebuilt from the problem's name)", "strong"),))
    lines += _format_text(view.prompt, is_unabridged=True)
    return [*lines, (Part("right answer: ", "strong"), Part(" or ".join(view.gold)))]


def _format_summary(view: ProblemAnswers) -> list[Line]:
    """Format which arms are graded worse and which better than the reference."""
    if view.reference is None or not view.answers:
        return [()]
    lost, gained = view.lost(), view.gained()
    alike = len(view.answers) - len(lost) - len(gained)
    lines: list[Line] = [()]
    for comparison, answers in (
        (f"worse than {view.reference_name}", lost),
        (f"better than {view.reference_name}", gained),
    ):
        if answers:
            names = ", ".join(_arm_label(answer, view) for answer in answers)
            lines += _wrap(f"graded {comparison}, {len(answers)} of {len(view.answers)}: {names}")
    if alike:
        lines += _wrap(f"graded like {view.reference_name}: {alike} of {len(view.answers)}")
    return [*lines, ()]


def _arm_label(answer: Answer, view: ProblemAnswers) -> str:
    has_several = len({other.budget for other in view.answers}) > 1
    return f"{answer.arm} at {answer.budget}" if has_several else answer.arm


class Frame(NamedTuple):
    """The common scale of all curves: the most slots and the most steps of any lane."""

    highest: float
    longest: int


def _measure_frame(view: ProblemAnswers) -> Frame:
    curves = [answer.held for answer in view.lanes if answer.held] or [(1.0,)]
    return Frame(max(map(max, curves)), max(map(len, curves)))


def _format_answer(answer: Answer, frame: Frame, *, plain: bool) -> list[Line]:
    """Format the outcome of a lane, its tokens and its slots over time."""
    budget = "never evicts" if answer.slots is None else f"budget {answer.budget}"
    if answer.slots is not None and answer.budget != str(answer.slots):
        budget += f" ({answer.slots} slots)"
    name = f"{answer.arm}, {budget}: "
    if answer.state != "ok":
        return [(Part(name, "strong"), Part(f"{answer.state}: {answer.reason}"))]
    grade = f"{answer.grade} {answer.score}" if answer.score else str(answer.grade)
    outcome = grade if answer.answer is None else f"{grade}, answers {answer.answer}"
    why = f" ({answer.why})" if answer.why else ""
    ended = "" if answer.stop == "eos" else ", cut off at the limit"
    curve = _format_curve(answer.held, frame, plain=plain)
    slots = f"{curve} {answer.mean_slots:.1f} slots on average, at most {max(answer.held):.0f}"
    evictions = f", {answer.evictions_text}"
    parts = [Part(name, "strong"), Part(f"{outcome}{why}; {answer.tokens} tokens{ended}")]
    return [
        *_format_block(parts, "", rows=None),
        (Part(f"{INDENT}{slots}{'' if answer.slots is None else evictions}"),),
    ]


def _format_curve(slots: Sequence[float], frame: Frame, *, plain: bool) -> str:
    """Draw slots over time from 0 to the maximum of all lanes; a column is the maximum of several steps. A
    lane that ends earlier has fewer columns.
    """
    bars = PLAIN_BARS if plain else BARS
    step = -(-frame.longest // CURVE_WIDTH)
    tops = (max(slots[at : at + step]) for at in range(0, len(slots), step))
    return "".join(bars[min(len(bars) - 1, int(top / frame.highest * len(bars)))] for top in tops)


def _format_divergence(answer: Answer, view: ProblemAnswers, *, is_unabridged: bool) -> list[Line]:
    """Format the texts of the reference and of a lane, from shortly before they diverge."""
    if answer.state != "ok":
        return []
    other = view.reference
    if other is None:
        return _format_text(answer.text, is_unabridged=is_unabridged)
    if answer.parts is None:
        return [(Part(f"{INDENT}the same text as {view.reference_name}"),)]
    at = answer.parts.character
    lines: list[Line] = [(Part(f"{INDENT}first differs from {view.reference_name} at {answer.parts}:"),)]
    label = max(len(view.reference_name), len(answer.arm))
    for name, text in ((view.reference_name, other.text), (answer.arm, answer.text)):
        start = _context_start(text, at)
        cut = f"{'... ' if start else ''}{text[start:at]}"
        length = text_difference.marked_length(text, at)
        parts = [Part(cut, "pale"), Part(f"{DIVERGENCE_MARK}{text[at : at + length] or '(ends)'}", "mark")]
        parts.append(Part(text[at + length :]))
        most = 1 if text is other.text else MOST_ROWS  # the full reference text is printed above
        lines += _format_block(parts, f"{INDENT}{name:<{label}}  ", rows=None if is_unabridged else most)
    return lines


def _context_start(text: str, at: int) -> int:
    """Return where the last CONTEXT_WORDS words before a position begin."""
    start, count = at, 0
    while start and count < CONTEXT_WORDS:
        start -= 1
        count += not text[start].isspace() and (start == 0 or text[start - 1].isspace())
    return start


def _format_text(text: str, *, is_unabridged: bool) -> list[Line]:
    return _format_block([Part(text)], INDENT, rows=None if is_unabridged else MOST_ROWS)


def _wrap(text: str) -> list[Line]:
    return [(Part(row),) for row in wrap_text(text, _page_width())]


def _format_block(parts: Sequence[Part], margin: str, rows: int | None) -> list[Line]:
    """Wrap text to WIDTH after a margin, printed on the first line and blank below. rows: most lines."""
    filled = _fill(parts, _page_width() - len(margin))
    cut = filled if rows is None else filled[:rows]
    lines: list[Line] = []
    for number, line in enumerate(cut):
        lines.append((Part(margin if not number else " " * len(margin)), *line))
    if len(cut) < len(filled):
        lines[-1] = (*lines[-1], Part(" ...", "pale"))
    return lines


def _fill(parts: Iterable[Part], width: int) -> list[Line]:
    """Wrap to lines of at most `width` cells, at white space if possible, and at line feeds."""
    lines: list[list[tuple[str, str]]] = [[]]
    used = space = 0  # cells of the line, and its last break opportunity
    for text, style in ((char, part.style) for part in parts for char in escape_control(part.text)):
        if text == "\n":
            lines.append([])
            used = space = 0
            continue
        if used + cell_width(text) > width:
            line = lines[-1]
            at = space or len(line)
            lines[-1], rest = line[:at], line[at:]
            lines.append(rest)
            used, space = sum(cell_width(char) for char, _ in rest), 0
        lines[-1].append((text, style))
        used += cell_width(text)
        if text == " ":
            space = len(lines[-1])
    return [_join_styles(line) for line in lines]


def cell_width(char: str) -> int:
    """Return the number of terminal columns of a character."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _join_styles(chars: Sequence[tuple[str, str]]) -> Line:
    parts: list[Part] = []
    for text, style in chars:
        if parts and parts[-1].style == style:
            parts[-1] = Part(parts[-1].text + text, style)
        else:
            parts.append(Part(text, style))
    return tuple(parts)


def _format_retained(answer: Answer, *, colours: bool, plain: bool) -> list[Line]:
    """Format which tokens a lane retained: shaded, or with a row of marks below each line."""
    if answer.kept is None:
        return _wrap(f"{INDENT}not known which tokens it kept: {answer.unkept}") if answer.unkept else []
    retained: RetainedTokens = answer.kept
    lines: list[Line] = [(Part(f"{INDENT}kept after {retained.event_text}"),)]
    lines += [(Part(f"{INDENT}{line}", "pale"),) for line in wrap_text(retained.said, _page_width() - len(INDENT))]
    lines += [(Part(f"{INDENT}{retained.remark}"),)] if retained.remark else []
    for name, pieces in (
        ("prompt", retained.pieces[: retained.prompt]),
        ("answer", retained.pieces[retained.prompt :]),
    ):
        if not pieces:
            continue
        parts = [Part(text, f"kept{level}") for text, level in problem_answers.merge_levels(pieces)]
        rows = _format_block(parts, f"{INDENT}{name}  ", rows=None)
        lines += rows if colours else [line for row in rows for line in (row, *_format_marks(row, plain=plain))]
    lines += _format_later_text(retained)
    return lines


def _format_marks(row: Line, *, plain: bool) -> list[Line]:
    """Return the row of marks below a line, which show how much of each token is retained, if any is."""
    marks, marking = PLAIN_MARKS if plain else MARKS, ""
    for part in row:
        level = int(part.style.removeprefix("kept")) if part.style else 0
        marking += "".join(marks[level] * cell_width(char) for char in part.text)
    return [(Part(marking),)] if marking.strip() else []


def _format_later_text(retained: RetainedTokens) -> list[Line]:
    if not retained.after.strip():
        return []
    return _format_block([Part(retained.after, "pale")], f"{INDENT}after   ", rows=2)


def _format_legend(*, plain: bool) -> list[Line]:
    marks = PLAIN_MARKS if plain else MARKS
    labels = ", ".join(f"{mark!r} {label}" for mark, label in zip(marks, LEVELS, strict=True))
    return _wrap(f"marks below a token: how many of all layers x KV heads keep it: {labels}")

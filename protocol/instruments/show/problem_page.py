"""One problem of a study as an HTML page: every arm's answer next to the full cache's, and the retained
tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from analysis.exploratory import text_difference
from figures.report_page.rendering import NO_NUMBER, Cell, NumberCell, render, table, write_atomically
from protocol.formats.escape import escape_control
from protocol.instruments.show import problem_answers
from protocol.instruments.show.problem_answers import LEVELS, Answer, ProblemAnswers

GRADE_MARKS = {"correct": "\u2713", "wrong": "\u2717"}  # symbols of grades; others have a dash
WIDTH, HEIGHT, LEFT_MARGIN, BOTTOM_MARGIN = 480, 150, 34, 20  # of a drawing of slots, in its own units


def write_page(path: Path, problem: ProblemAnswers) -> Path:
    return write_atomically(path, render_page(problem))


def render_page(problem: ProblemAnswers) -> str:
    """Return a whole document that loads nothing and runs no script."""
    every = problem.lanes
    name = problem.reference_name.removeprefix("the ")
    return render(
        "problem.html",
        problem=problem,
        title=f"{problem.problem}: {Path(problem.folder).name}",
        outcome=_format_outcome(problem),
        prompt_tokens=f"{every[0].prompt_tokens} tokens" if every else "",
        answers_table=_answers_table(problem),
        reference_heading=f"{name[:1].upper()}{name[1:]}",
        has_retained=any(answer.kept for answer in problem.answers),
        levels=LEVELS,
        lanes=[(answer, _divergence(answer, problem), _slots_drawing(answer, problem)) for answer in problem.answers],
        grade=_format_grade,
        ending_text=_format_ending,
        merge_levels=problem_answers.merge_levels,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT_MARGIN,
        base=HEIGHT - BOTTOM_MARGIN,
    )


def _format_outcome(problem: ProblemAnswers) -> str:
    """Return how many lanes are graded differently from the reference."""
    if problem.reference is None or not problem.answers:
        return ""
    lost, gained, total = len(problem.lost()), len(problem.gained()), len(problem.answers)
    lanes = "lane" if total == 1 else "lanes"
    return f"Graded worse than {problem.reference_name}: {lost} of {total} {lanes}; better: {gained}."


def _answers_table(problem: ProblemAnswers) -> Markup:
    heads = ["lane", "budget", "grade", "answers", "tokens", "slots, mean", "slots, most", "evictions"]
    heads.append(f"parts from {problem.reference_name}")
    rows: list[list[Cell]] = []
    for number, lane_answer in enumerate(problem.lanes, -1 if problem.reference else 0):
        name = "#reference" if lane_answer is problem.reference else f"#lane-{number}"
        row: list[Cell] = [
            Markup('<a href="{}">{}</a>').format(name, escape_control(lane_answer.arm)),
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
            row += [NO_NUMBER] * 2
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


def _format_ending(answer: Answer) -> str:
    """Return what follows the grade of a lane: its reason, its answer and its tokens."""
    if answer.state != "ok":
        return f": {answer.reason}"
    answer_phrase = f", answers {answer.answer}" if answer.answer is not None else ""
    reason = f" ({answer.why})" if answer.why else ""
    cutoff = "" if answer.stop == "eos" else ", cut off at the limit"
    return f"{answer_phrase}{reason}; {answer.tokens} tokens{cutoff}."


def _divergence(answer: Answer, problem: ProblemAnswers) -> list[dict[str, str]] | None:
    """Return the texts of the reference and of a lane, cut where they part; None if they do not."""
    if answer.state != "ok" or problem.reference is None or answer.parts is None:
        return None
    return [_cut_text(text, answer.parts.character) for text in (problem.reference.text, answer.text)]


def _cut_text(text: str, divergence: int) -> dict[str, str]:
    """Return the part shared with the other text, the first differing word, and the rest."""
    end = divergence + text_difference.marked_length(text, divergence)
    return {"same": text[:divergence], "word": text[divergence:end], "rest": text[end:]}


def _slots_drawing(answer: Answer, problem: ProblemAnswers) -> dict[str, Any] | None:
    """Return the slots over time with those of the reference and the budget; all lanes share the axes."""
    if not answer.held:
        return None
    every, reference = problem.lanes, problem.reference
    longest = max(len(each.held) for each in every)
    highest = max(max(each.held) for each in every if each.held)
    lines = [("own", _line_points(answer.held, longest, highest))]
    description = f"Slots of {answer.arm}: {answer.mean_slots:.1f} on average, at most {max(answer.held):.0f}"
    if answer.slots is not None:
        description += f", budget {answer.slots}, {answer.evictions_text}"
    if reference is not None and reference.held:
        lines.insert(0, ("other", _line_points(reference.held, longest, highest)))
        description += (
            f"; of {problem.reference_name} (dotted): {reference.mean_slots:.1f}, at most {max(reference.held):.0f}"
        )
    return {
        "description": description,
        "highest": f"{highest:.0f}",
        "steps": longest - 1,
        "budget": None if answer.slots is None else _y_position(float(answer.slots), highest),
        "lines": lines,
    }


def _line_points(slots_held: Sequence[float], longest: int, highest: float) -> str:
    width = (WIDTH - LEFT_MARGIN) / max(1, longest - 1)
    return " ".join(
        f"{LEFT_MARGIN + step * width:.1f},{_y_position(slots, highest)}" for step, slots in enumerate(slots_held)
    )


def _y_position(slots: float, highest: float) -> float:
    return round((HEIGHT - BOTTOM_MARGIN) * (1 - slots / highest), 1)

"""Straight-line programs: execute one line by line, look up facts by hops, or write one as Python.

A program assigns every variable once, so that the tokens which its answer needs are known exactly from the flow of
its data (`Worked.needed`): of a line that the answer depends on, its text in the prompt until it is executed, and
then its value, which a trace states once ("so ko 7") until its last use. Comments in the prompt and remarks in the
trace are needed by nobody.
"""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from protocol.tasks.chain import draw_below, shuffled

__all__ = ["NAMES", "REMARKS", "Worked", "call", "executed", "looked_up", "words", "written"]

NAMES = tuple(consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeio")
ARGUMENTS = ("a", "b")
MOST_LINES = 24
LABELS = tuple(f"l{number}" for number in range(1, MOST_LINES + 1))
COMMENT_WORDS = (
    "the old list was kept in its box while rain fell over our town and nobody asked why they left early"
    " after lunch some boats came home late with fish salt rope or sand but few people saw them go"
)
COMMENTS = tuple(COMMENT_WORDS.split())
# After a result of this digit; every trace states them, and no answer needs them.
REMARKS = {
    0: "that makes zero , a round number , so nothing carries over here .",
    2: "this step was easy and there is no need to look back now .",
    4: "wait , let me think again : yes , that looks right to me .",
    7: "hm , seven again ; one more step and then we will see .",
    9: "almost ten , so it must wrap around soon , as it should .",
}
RECENT = 4  # lines back that half of all operands come from


class Line(NamedTuple):
    """name = left operator right; right is a variable or a digit. A constant has no left and no operator."""

    name: str
    left: str
    operator: str
    right: str

    def text(self) -> str:
        return f"{self.name} = {self.expression()}"

    def expression(self) -> str:
        return f"{self.left} {self.operator} {self.right}" if self.operator else self.right

    def operands(self) -> tuple[str, ...]:
        return tuple(text for text in (self.left, self.right) if text and not text.isdigit())


class Worked(NamedTuple):
    """A problem and its solution. Positions count the words of `prompt()` and then of `trace`."""

    context: str
    question: str
    trace: str
    """What a model that makes no mistake writes, its answer included."""
    answer: str
    needed: dict[int, int]
    """By position of a word that the answer depends on: the position at which it is read for the last time."""

    def prompt(self) -> str:
        return f"{self.context}\n{self.question}"


def evaluate(operator: str, left: int, right: int) -> int:
    """Return the result modulo 10."""
    return {"+": left + right, "-": left - right, "*": left * right}[operator] % 10


def draw_program(count: int, names: Sequence[str], given: Sequence[str], source: random.Random) -> list[Line]:
    """Draw `count` lines over the values `given`; the first one is a constant if there are none.

    Every operator permutes the digits in each variable, so that a wrong operand gives a wrong result.
    """
    known, lines = list(given), list[Line]()
    for name in names[:count]:
        kind = source.random()
        if not known or (kind < 0.12 and not given):
            line = Line(name, "", "", str(draw_below(10, source)))
        elif kind < 0.3 or len(known) < 2:
            left = draw_operand(known, source)
            line = (
                Line(name, left, "*", "379"[draw_below(3, source)])
                if source.random() < 0.4
                else Line(name, left, "+-"[draw_below(2, source)], str(1 + draw_below(9, source)))
            )
        else:
            left = right = draw_operand(known, source)
            while right == left:
                right = draw_operand(known, source)
            line = Line(name, left, "+-"[draw_below(2, source)], right)
        lines.append(line)
        known.append(name)
    return lines


def draw_operand(known: Sequence[str], source: random.Random) -> str:
    """Half of all operands are recent, the others from anywhere before: values are used again over long gaps."""
    reach = min(len(known), RECENT) if source.random() < 0.5 else len(known)
    return known[len(known) - 1 - draw_below(reach, source)]


def run(lines: Sequence[Line], values: dict[str, int]) -> dict[str, int]:
    """Return the values of all variables modulo 10; values: those that are given."""
    values = dict(values)
    for line in lines:
        right = int(line.right) if line.right.isdigit() else values[line.right]
        values[line.name] = evaluate(line.operator, values[line.left], right) if line.operator else right
    return values


def find_live(lines: Sequence[Line], asked: str) -> set[str]:
    """Return the variables that the value of `asked` depends on, itself included."""
    live = {asked}
    for line in reversed(lines):
        if line.name in live:
            live.update(line.operands())
    return live


def draw_comment(source: random.Random) -> str:
    count = 4 + draw_below(5, source)
    return f"# {' '.join(COMMENTS[draw_below(len(COMMENTS), source)] for _ in range(count))} ;"


def executed(count: int, comments: int, source: random.Random) -> Worked:
    """A program of `count` lines among comments; its trace executes each line, remarks included."""
    lines = draw_program(count, shuffled(NAMES, source), (), source)
    values = run(lines, {})
    sizes = {line.name: len(find_live(lines, line.name)) for line in lines}
    # A variable that depends on few lines would ask for little: half of a random program is dead.
    deep = [name for name, size in sizes.items() if 2 * size > max(sizes.values())]
    asked = deep[draw_below(len(deep), source)]
    live = find_live(lines, asked)
    sentences, starts, size = list[str](), dict[str, int](), 0
    before = [draw_below(count, source) for _ in range(comments)]
    for index, (label, line) in enumerate(zip(LABELS, lines, strict=False)):
        sentences += [draw_comment(source) for _ in range(before.count(index))]
        starts[line.name] = sum(len(sentence.split()) for sentence in sentences)
        sentences.append(f"{label} {line.text()} ;")
    size = sum(len(sentence.split()) for sentence in sentences) + 4
    needed, value_at, trace = dict[int, int](), dict[str, int](), list[str]()
    for label, line in zip(LABELS, lines, strict=False):
        written_out = f"{label} {line.text()} .".split()
        trace += written_out
        if line.name in live:
            start = starts[line.name]
            needed |= dict.fromkeys(range(start, start + len(written_out)), size + len(trace) - 1)
        if line.operator:
            left = values[line.left]
            right = line.right if line.right.isdigit() else str(values[line.right])
            trace += f"{left} {line.operator} {right} = {values[line.name]} .".split()
            if line.name in live:
                for operand in line.operands():
                    at = value_at[operand]
                    # The left operand stands six words before the end of the line, the right one four.
                    read = size + len(trace) - (6 if operand == line.left else 4)
                    needed |= dict.fromkeys((at, at + 1), read)
        trace += f"so {line.name} {values[line.name]} .".split()
        value_at[line.name] = size + len(trace) - 3
        trace += REMARKS.get(values[line.name], "").split()
    answer = str(values[asked])
    trace += f"</think> {asked} \\boxed{{{answer}}}".split()
    at = value_at[asked]
    needed |= {size - 2: size + len(trace) - 2} | dict.fromkeys((at, at + 1), size + len(trace) - 1)
    context = "\n".join(sentences)
    return Worked(context, f"value of {asked} ?", " ".join(trace), answer, dict(sorted(needed.items())))


def looked_up(hops: int, facts: int, comments: int, source: random.Random) -> Worked:
    """`facts` chains of `hops` among comments: one hop is a needle, two are a two-hop question."""
    names = shuffled(NAMES, source)
    chains = [names[index * hops : (index + 1) * hops] for index in range(facts)]
    digits = [str(draw_below(10, source)) for _ in chains]
    sentences = list[tuple[str, bool]]()
    for index, (chain, digit) in enumerate(zip(chains, digits, strict=True)):
        sentences += [(f"{name} follows {other} ;", index == 0) for name, other in pairwise(chain)]
        sentences.append((f"{chain[-1]} holds {digit} ;", index == 0))
    sentences += [(draw_comment(source), False) for _ in range(comments)]
    sentences = shuffled(sentences, source)
    asked, size, starts = chains[0][0], 0, dict[str, int]()
    for sentence, is_needed in sentences:
        if is_needed:
            starts[sentence.split()[0]] = size
        size += len(sentence.split())
    asked_at, size = size + 2, size + 5
    steps = [f"{name} follows {other} ." for name, other in pairwise(chains[0])]
    steps.append(f"{chains[0][-1]} holds {digits[0]} .")
    # Of a sentence all but its end is read, by the word of the trace that states what it says.
    needed = {asked_at: size + 4 * len(steps) + 1}
    for index, name in enumerate(chains[0]):
        needed |= dict.fromkeys(range(starts[name], starts[name] + 3), size + 4 * index + 2)
    trace = " ".join([*steps, f"</think> {asked} \\boxed{{{digits[0]}}}"])
    context = "\n".join(sentence for sentence, _ in sentences)
    return Worked(context, f"what does {asked} hold ?", trace, digits[0], dict(sorted(needed.items())))


def written(count: int, comments: int, source: random.Random) -> Worked:
    """A program of two arguments whose lines are shuffled; its trace orders them, its answer is Python."""
    lines = draw_program(count, shuffled(NAMES, source), ARGUMENTS, source)
    sentences = [f"{label} {line.text()} ;" for label, line in zip(LABELS, lines, strict=False)]
    sentences += [draw_comment(source) for _ in range(comments)]
    last = lines[-1].name
    context, question = "\n".join(shuffled(sentences, source)), f"write f ( a , b ) for {last} ?"
    body = "".join(f"{line.text()} ; " for line in lines)
    code = f"def f ( a , b ) : {body}return {last} % 10"
    ordered = " ".join(f"{label} {line.text()} ." for label, line in zip(LABELS, lines, strict=False))
    return Worked(context, question, f"{ordered} </think> {code}", code, {})


def call(code: str, first: int, second: int) -> int:
    """Return what the function of `written` gives, without running it."""
    *body, last = code.partition(" : ")[2].split(" ; ")
    lines = list[Line]()
    for name, _, left, *rest in map(str.split, body):
        lines.append(Line(name, left, *rest) if rest else Line(name, "", "", left))
    return run(lines, dict(zip(ARGUMENTS, (first, second), strict=True)))[last.split()[1]]


def words() -> tuple[str, ...]:
    """Return every word of the three forms, in an order that does not change."""
    plain = "value of ? what does hold follows holds write f ( a , b ) for def : return % 10 # ; . = + - * so </think>"
    drawn = [*LABELS, *NAMES, *map(str, range(10)), *(f"\\boxed{{{digit}}}" for digit in range(10))]
    remarks = [word for remark in REMARKS.values() for word in remark.split()]
    return tuple(dict.fromkeys([*plain.split(), *drawn, *COMMENTS, *remarks]))

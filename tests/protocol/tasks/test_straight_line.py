"""Straight-line programs: an interpreter of our own reads the printed program and agrees with trace and answer."""

import operator
import re

import pytest
from looped import looped

from protocol.formats.refusals import BadInput
from protocol.grading.program import ProgramGrader
from protocol.tasks.programs import Programs
from protocol.tasks.straight_line import NAMES, REMARKS, call, words

DOES = {"+": operator.add, "-": operator.sub, "*": operator.mul}
EXECUTED = Programs("executed", (3, 10, 18), 12, 4, chance="0.14")
WRITTEN = Programs("written", (2, 8), 12, 4, chance="0")
FACTS = Programs("looked-up", (1, 2, 3), 12, 4, chance="0.1")


def every(task):
    return [task.worked(problem) for problem in (*task.ids(), *task.calibration_ids())]


def interpret(context):
    """The values of all variables, and by name the number of the line and the names that it reads."""
    values, reads = {}, {}
    for line in context.split("\n"):
        if line.startswith("#"):
            continue
        label, name, text = re.fullmatch(r"l(\d+) (\w+) = (.+) ;", line).groups()
        left, *rest = [int(word) if word.isdigit() else values.get(word, word) for word in text.split()]
        values[name] = DOES[rest[0]](left, rest[1]) % 10 if rest else left
        reads[name] = (int(label), [word for word in text.split() if word in NAMES])
    return values, reads


@looped("worked", every(EXECUTED), ids=lambda worked: worked.question)
def test_an_interpreter_agrees_with_the_trace_and_the_answer(worked):
    values, reads = interpret(worked.context)
    said = re.findall(r"so (\w+) (\d) \.", worked.trace)
    assert [(name, str(value)) for name, value in values.items()] == said
    assert [number for number, _ in reads.values()] == list(range(1, len(values) + 1))
    asked = worked.question.split()[2]
    assert worked.trace.endswith(f"</think> {asked} \\boxed{{{values[asked]}}}")
    assert worked.answer == str(values[asked])
    for left, sign, right, result in re.findall(r"(\d) ([-+*]) (\d) = (\d) \.", worked.trace):
        assert DOES[sign](int(left), int(right)) % 10 == int(result)


@looped("worked", every(EXECUTED), ids=lambda worked: worked.question)
def test_needed_words_are_those_that_the_flow_of_data_reads(worked):
    """By a walk from the answer back: the lines that it depends on, and where each of their values is read last."""
    values, reads = interpret(worked.context)
    text = f"{worked.prompt()} {worked.trace}".split()
    prompt = len(worked.prompt().split())
    asked, live, queue = worked.question.split()[2], set(), [worked.question.split()[2]]
    while queue:
        name = queue.pop()
        if name not in live:
            live.add(name)
            queue += reads[name][1]
    stated = {text[at + 1]: at + 1 for at in range(prompt, len(text)) if text[at] == "so" and text[at + 1] in values}
    begins = {text[at]: at for at in range(prompt) if re.fullmatch(r"l\d+", text[at])}
    expected = {}
    for name in live:
        number, _ = reads[name]
        executed = text.index(f"l{number}", prompt)
        stop = text.index(".", executed)
        for at in range(stop - executed + 1):
            expected[begins[f"l{number}"] + at] = stop
        last_reads = [
            text.index(".", text.index(f"l{reads[other][0]}", prompt)) + (1 if operands[0] == name else 3)
            for other, (_, operands) in reads.items()
            if other in live and name in operands
        ]
        if name == asked:
            last_reads.append(len(text) - 1)
        expected |= dict.fromkeys((stated[name], stated[name] + 1), max(last_reads))
    expected[prompt - 2] = len(text) - 2
    assert worked.needed == expected
    assert all(at < read for at, read in worked.needed.items())


@looped("worked", every(FACTS), ids=lambda worked: worked.question)
def test_hops_through_the_facts_lead_to_the_answer(worked):
    follows = dict(re.findall(r"(\w+) follows (\w+) ;", worked.context))
    holds = dict(re.findall(r"(\w+) holds (\d) ;", worked.context))
    name, steps = worked.question.split()[2], []
    while name in follows:
        steps.append(f"{name} follows {follows[name]} .")
        name = follows[name]
    steps.append(f"{name} holds {holds[name]} .")
    asked = worked.question.split()[2]
    assert worked.trace == " ".join([*steps, f"</think> {asked} \\boxed{{{holds[name]}}}"])
    text = f"{worked.prompt()} {worked.trace}".split()
    sentences = {
        " ".join(text[at : at + 3]) for at in worked.needed if " ".join(text[at + 1 : at + 2]) in ("follows", "holds")
    }
    assert sentences == {step.removesuffix(" .") for step in steps}
    assert len(worked.needed) == 3 * len(steps) + 1


@looped("worked", every(WRITTEN), ids=lambda worked: worked.question)
def test_the_function_that_is_to_be_written_is_the_shuffled_program(worked):
    lines = sorted(line for line in worked.context.split("\n") if line[0] == "l")
    code = worked.trace.partition("</think> ")[2]
    assert code == worked.answer
    scope = {}
    exec(code, scope)  # of our own generator, in a test
    for first, second in ((0, 0), (3, 7), (9, 2)):
        values = {"a": first, "b": second}
        for line in sorted(lines, key=lambda line: int(line.split()[0][1:])):
            _, name, _, left, *rest = line.removesuffix(" ;").split()
            left, *rest = [int(word) if word.isdigit() else values.get(word, word) for word in (left, *rest)]
            values[name] = DOES[rest[0]](left, rest[1]) if rest else left
        expected = values[worked.question.split()[-2]] % 10
        assert scope["f"](first, second) == call(code, first, second) == expected


def test_a_written_function_is_graded_by_its_hidden_tests():
    problem = WRITTEN.build("written/08/000", len)
    code = WRITTEN.worked("written/08/000").answer
    with ProgramGrader() as grader:
        assert grader.find_fault(problem.gold) == ""
        assert grader.grade(problem.gold, f"l1 . </think> {code}").status == "correct"
        assert grader.grade(problem.gold, f"</think> {code.replace('% 10', '% 11')}").status == "wrong"
    assert code not in problem.context + problem.question


def test_wrong_operands_give_wrong_results_and_half_of_a_trace_is_needed_by_nobody():
    needed = [len(worked.needed) / len(f"{worked.prompt()} {worked.trace}".split()) for worked in every(EXECUTED)[12:]]
    assert 0.05 < sum(needed) / len(needed) < 0.25
    assert all(len(remark.split()) > 8 for remark in REMARKS.values())


def test_every_word_is_in_the_vocabulary_and_no_calibration_problem_is_one_of_the_task():
    known = set(words())
    for task in (EXECUTED, WRITTEN, FACTS):
        assert all(set(f"{worked.prompt()} {worked.trace}".split()) <= known for worked in every(task))
        prompts = [worked.prompt() for worked in every(task)]
        assert len(set(prompts)) == len(prompts)


def test_a_problem_keeps_its_meaning_and_another_seed_gives_another():
    assert EXECUTED.build("executed/10/000", len).gold == EXECUTED.worked("executed/10/000").answer
    assert EXECUTED.redrawn(1).recipe() != EXECUTED.recipe()
    assert EXECUTED.redrawn(1).worked("executed/10/000") != EXECUTED.worked("executed/10/000")
    with pytest.raises(BadInput, match=r"executed/11/000.*is not in this task"):
        EXECUTED.build("executed/11/000", len)

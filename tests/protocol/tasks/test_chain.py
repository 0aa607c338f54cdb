"""Chain arithmetic: the answer follows from the printed definitions, read by a plain walk of our own."""

import re

import pytest
from looped import looped

from protocol.formats.refusals import BadInput
from protocol.tasks.chain import MOST_DISTRACTORS, OPERATORS, VARIABLES, Chain, apply

TASK = Chain(levels=(6, 9, 24), repetitions=12, calibration=10)
EVERY = [TASK.puzzle(problem) for problem in (*TASK.ids(), *TASK.calibration_ids())]


def walked(puzzle):
    """Every step (from, to, operator, value, result) that the two tables lead to, and where it ends."""
    leads, operators = (line.split() for line in puzzle.definitions.split("\n"))
    follows = {a: b.removeprefix(">") for a, b in zip(leads[::2], leads[1::2], strict=True)}
    does = {a.removeprefix("@"): o for a, o in zip(operators[::2], operators[1::2], strict=True)}
    asked, first, start = re.fullmatch(r"find (\w+) \? starting >(\w+) = (\d) ;", puzzle.question).groups()
    steps, at, value = [], first, int(start)
    while at in follows:
        operator = does[at]
        number = int(operator[1:])
        result = (value + number) % 10 if operator[0] == "+" else (value * number) % 10
        steps.append((at, follows[at], operator, value, result))
        at, value = follows[at], result
    assert at == asked
    return steps, value, follows


@looped("puzzle", EVERY)
def test_a_walk_through_the_tables_gives_every_written_step_and_the_answer(puzzle):
    steps, value, _ = walked(puzzle)
    *lines, last = puzzle.solution.split("\n")
    assert lines == [
        f"from {a} >{b} using @{a} {operator} gives {before} {operator} = {after} ;"
        for a, b, operator, before, after in steps
    ]
    assert last == f"from {steps[-1][1]} ? \\boxed{{{value}}}"
    assert puzzle.answer == str(value)


def test_a_level_is_the_number_of_steps_and_distractors_lead_elsewhere():
    for problem in TASK.ids():
        puzzle = TASK.puzzle(problem)
        steps, _, follows = walked(puzzle)
        assert len(steps) == int(problem.split("/")[1])
        assert TASK.fewest <= len(follows) - len(steps) <= TASK.most
        on_the_way = {name for a, b, *_ in steps for name in (a, b)}
        others = set(follows) - {a for a, *_ in steps}
        assert not on_the_way & (others | {follows[name] for name in others})


def test_no_calibration_problem_is_a_problem_of_the_task():
    whole = Chain(levels=TASK.levels, repetitions=50, calibration=200)
    task, more = ([whole.puzzle(problem)[:2] for problem in ids] for ids in (whole.ids(), whole.calibration_ids()))
    assert len(set(task)) == len(task) == 150
    assert not set(task) & set(more)
    assert not set(whole.ids()) & set(whole.calibration_ids())


def test_every_operator_permutes_the_digits():
    for operator in OPERATORS:
        assert sorted(apply(value, operator) for value in range(10)) == list(range(10))


def test_the_longest_puzzle_has_variables_enough():
    assert 24 + MOST_DISTRACTORS + 1 < len(VARIABLES) == len(set(VARIABLES))
    assert Chain((24,), 30, 0, fewest=MOST_DISTRACTORS, most=MOST_DISTRACTORS).source()


def test_a_problem_keeps_its_meaning():
    made = TASK.build("chain/06/000", len)
    assert (made.id, made.gold, made.prefix) == ("chain/06/000", TASK.puzzle("chain/06/000").answer, "")
    assert Chain((6,), 1, 0).source() != Chain((6,), 1, 0, seed=43).source()


def test_another_tasks_problem_is_refused():
    with pytest.raises(BadInput, match=r"chain/07/000.*is not in this task"):
        TASK.build("chain/07/000", len)

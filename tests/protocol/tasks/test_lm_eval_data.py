"""What a task of lm-eval says of its data without lm-eval: ids, levels, clusters, digests, refusals."""

import json
import os
from pathlib import Path

import pytest

from protocol import harness
from protocol.formats.refusals import BadInput
from protocol.harness import Prompt
from protocol.tasks.lm_eval_task import MAX_BYTES, LmEvalTask, keeps_question, split_question
from protocol.tasks.middle_cut import MaxLength
from protocol.tasks.ruler import REPETITIONS, Ruler


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(number, **other):
    return {"_id": f"q{number}", "input": "Who?", "context": f"Text {number}.", "answers": ["A"]} | other


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.jsonl"


def test_rows_are_known_by_their_own_ids(path):
    task = LmEvalTask("mine", "longbench_qasper", written(path, row(1), row(2)))
    assert task.ids() == ("longbench_qasper/q1", "longbench_qasper/q2")
    assert json.loads(task.gold("longbench_qasper/q2")) == row(2)
    assert task.grader == "lm_eval:longbench_qasper"


@pytest.mark.parametrize("other", [{"_id": "q1"}, {"_id": "a b"}, {"_id": ""}])
def test_rows_without_ids_of_their_own_are_known_by_their_lines(path, other):
    task = LmEvalTask("mine", "longbench_qasper", written(path, row(1), row(2, **other)))
    assert task.ids() == ("longbench_qasper/0000", "longbench_qasper/0001")


def test_a_published_id_is_the_problem_in_any_file_and_a_line_in_its_own(path, tmp_path):
    def recipes(*rows):
        files = (written(path, *rows), written(tmp_path / "other.jsonl", *rows, row(9)))
        return {LmEvalTask("mine", "longbench_qasper", file).recipe() for file in files}

    assert len(recipes(row(1))) == 1
    assert len(recipes(row(1, _id=""), row(2, _id=""))) == 2


def test_questions_about_one_text_are_a_cluster(path):
    task = LmEvalTask("m", "longbench_qasper", written(path, row(1), row(2), row(3, context="Text 1.", input="Why?")))
    first, second, third = task.clusters().values()
    assert first == third != second
    assert LmEvalTask("m", "longbench_qasper", written(path, row(1), row(2))).clusters() == {}
    some = written(path, row(1), row(2, context="Text 1.", input="Why?"), row(3, context=""))
    third = LmEvalTask("m", "mine", some).clusters()
    assert list(third.values()) == [first, first, "mine/q3"]  # a text of its own, or nobody knows
    assert LmEvalTask("m", "gsm8k_cot", written(path, {"question": "1"}, {"question": "2"})).clusters() == {}


def test_levels_are_the_lengths_of_longbench_e(path):
    rows = [row(number, length=length) for number, length in enumerate((0, 3999, 4000, 7999, 8000))]
    task = LmEvalTask("m", "longbench_qasper", written(path, *rows))
    assert list(task.levels().values()) == ["0-4k", "0-4k", "4-8k", "4-8k", "8k+"]
    assert LmEvalTask("m", "longbench_qasper", written(path, row(1, length=1), row(2, length=None))).levels() == {}


def test_what_a_problem_is_made_of_moves_the_source(path):
    sources = {LmEvalTask("m", "longbench_qasper", written(path, row(1))).source()}
    sources.add(LmEvalTask("m", "longbench_qasper", path, MaxLength(words=100)).source())
    sources.add(LmEvalTask("m", "longbench_hotpotqa", path).source())
    sources.add(LmEvalTask("m", "longbench_qasper", written(path, row(2))).source())
    assert len(sources) == 4


@pytest.mark.parametrize(
    ("line", "says"),
    [("{", "is not JSON"), ("[1]", "is not a JSON object"), ("", "is not JSON"), ('{"a": NaN}', "NaN is not JSON")],
)
def test_a_line_that_is_no_row_is_refused_by_its_number(path, line, says):
    path.write_text(f"{json.dumps(row(1))}\n{line}\n")
    with pytest.raises(BadInput, match=f"data.jsonl: line 2: .*{says}"):
        LmEvalTask("m", "longbench_qasper", path).ids()


TEXTS = r"line 1: answers: is not a list of texts"
UNREAD = {  # of rows that lm-eval asks and scores all the same
    "answers": ([row(1, answers="Paris")], TEXTS),  # "P" would be right
    "none": ([row(1, answers=[])], TEXTS),
    "numbers": ([row(1, answers=[5])], TEXTS),
    "unasked": ([{"context": "a", "answers": ["A"]}], "line 1: input: is not text"),
    "empty": ([row(1, context="")], "line 1: context: is empty"),
    "lacking": ([row(1), {**row(2), "length": 5}], "line 2: length: line 1 does not have it; give every row"),
    "fewer": ([row(1, length=5), row(2)], "line 2: length: missing, although line 1 has it"),
    "subset": ([row(1, dataset="hotpotqa")], "line 1: dataset: 'hotpotqa', but longbench_qasper consists of"),
    "twice": ([row(1), row(2), row(3, context="Text 1.")], "line 3: asks the same as line 1"),
}


@pytest.mark.parametrize("fault", UNREAD)
def test_rows_that_would_be_scored_otherwise_than_they_mean_are_refused(path, fault):
    rows, says = UNREAD[fault]
    with pytest.raises(BadInput, match=f"data.jsonl: {says}"):
        LmEvalTask("m", "longbench_qasper", written(path, *rows)).ids()


def test_classes_are_asked_for_where_the_score_reads_them(path):
    classes = written(path, row(1, all_classes=["A", "B"], dataset="trec_e"))
    assert LmEvalTask("m", "longbench_trec", classes).ids()
    with pytest.raises(BadInput, match="line 1: all_classes: is not a list"):
        LmEvalTask("m", "longbench_trec", written(path, row(1, all_classes=None))).ids()


def test_a_field_that_stands_twice_and_half_a_character_are_refused(path):
    for line in ('{"a": 1, "a": 2}', r'{"a": "\ud800"}'):
        path.write_text(f"{line}\n")
        with pytest.raises(BadInput, match="line 1: is not JSON"):
            LmEvalTask("m", "mine", path).ids()


WHOLE = "Read.\nA long text.\nWho is it? Answer:"
LOST = [  # what is left, the row, whether its question is
    ("Read.\nA text.\nWho is it? Answer:", {"context": "A long text.", "input": "Who is it?"}, True),
    ("Read.\nA is it? Answer:", {"context": "A long text.", "input": "Who is it?"}, False),
    ("Read.\nA Answer:", {"context": "A long text."}, False),  # an instruction is asked too
    ("Read.\nA text.\nWho is it? Answer:", {"input": "A long text.", "question": "Who is it?"}, True),
    ("Read.\nA is it? Answer:", {"input": "A long text.", "question": "Who is it?"}, False),
    ("Read. Answer:", {"question": "Who is it?"}, False),
]


@pytest.mark.parametrize(("text", "row", "kept"), LOST)
def test_a_cut_that_reaches_the_question_is_told(text, row, kept):
    assert keeps_question(text, WHOLE, row) is kept


def test_a_question_is_never_cut_away(path, monkeypatch):
    class Harness:
        def prompt(self, task, row):
            return Prompt(f"Read.\n{row['context']}\n{row['input']}\nAnswer:", "")

    monkeypatch.setattr(harness, "shared_harness", Harness)
    data = written(path, row(1, context="A text of some ten words, which nobody has to read."))
    fits = LmEvalTask("m", "longbench_qasper", data, MaxLength(words=8)).build("longbench_qasper/q1", len)
    assert fits.question == "Who?\nAnswer:"
    with pytest.raises(BadInput, match="longest: would cut off the question of problem 'longbench_qasper/q1'"):
        LmEvalTask("m", "longbench_qasper", data, MaxLength(words=3)).build("longbench_qasper/q1", len)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda path: None, "no such file; put it there"),
        (os.mkfifo, "is not a plain file"),  # which nobody would fill
        (lambda path: path.symlink_to(__file__), "is not a plain file"),
        (Path.mkdir, "is not a plain file"),
        (lambda path: (path.touch(), os.truncate(path, MAX_BYTES + 1)), f"has more than {MAX_BYTES} bytes"),
    ],
)
def test_data_that_are_no_plain_file_are_refused(made, says, path):
    made(path)
    with pytest.raises(BadInput, match=rf"data\.jsonl: {says}"):
        LmEvalTask("m", "longbench_qasper", path).ids()


def test_a_row_asks_the_same_under_every_id(path, tmp_path):
    one = LmEvalTask("m", "longbench_qasper", written(path, row(1), row(2)))
    two = LmEvalTask("n", "longbench_qasper", written(tmp_path / "b.jsonl", row(1, _id="another")))
    assert one.content_digest("longbench_qasper/q1") == two.content_digest("longbench_qasper/another")
    assert one.content_digest("longbench_qasper/q1") != one.content_digest("longbench_qasper/q2")
    other = written(
        tmp_path / "c.jsonl", row(1, _id="", answers=["B"], length=7, added=1), row(2, _id="", length=7, added=1)
    )
    three = LmEvalTask("o", "longbench_qasper_e", other)
    assert one.content_digest("longbench_qasper/q1") == three.content_digest("longbench_qasper_e/0000")
    four = LmEvalTask("o", "x", written(tmp_path / "d.jsonl", {"id": "1", "a": "b"}, {"id": "2", "a": "c"}))
    assert len(set(map(four.content_digest, four.ids()))) == 2


PROMPTS = [  # whole, context, what is before the question, the question
    ("Read.\n\nText\n\n Answer: Who?", "Text", "Read.\n\nText\n", " Answer: Who?"),
    ("Read.\nText\nWho?", "Text", "Read.\nText", "Who?"),
    ("Read.\nText Who?", "Text", "Read.\nText Who?", ""),  # goes on in the same line
    ("Text, and Text\nWho?", "Text", "Text, and Text\nWho?", ""),  # which of the two?
    ("Text\nText\nWho?", "Text", "Text\nText\nWho?", ""),
    ("Read.\nText\n", "Text", "Read.\nText\n", ""),
    ("Who?", "", "Who?", ""),
]


@pytest.mark.parametrize(("whole", "context", "before", "question"), PROMPTS)
def test_the_question_is_what_follows_the_context_from_the_next_line(whole, context, before, question):
    assert split_question(whole, whole, context) == (before, question)
    assert not question or f"{before}\n{question}" == whole


def test_a_question_that_the_cut_reached_is_none():
    assert split_question("Read ... Who?", "Read.\nText\nAnd who is it? Who?", "Text") == ("Read ... Who?", "")
    assert split_question("Read ...t\nWho?", "Read.\nText\nWho?", "Text") == ("Read ...t", "Who?")


def test_rulers_ids_say_task_length_and_index():
    task = Ruler("r", "ruler_vt", (2048, 4096))
    assert task.ids()[:2] == ("ruler_vt/2048/000", "ruler_vt/2048/001")
    assert len(task.ids()) == len(set(task.ids())) == 2 * REPETITIONS
    assert set(task.levels().values()) == {"2048", "4096"}
    assert task.recipe() != task.redrawn(7).recipe()
    assert task.source() != Ruler("r", "ruler_vt", (2048,)).source()
    with pytest.raises(BadInput, match="is not in this task"):
        task.build("ruler_vt/1024/000", len)

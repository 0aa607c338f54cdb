"""Problems of one's own in a file: what is read, what is refused by line and field, what a line makes."""

import json

import pytest
import studies
from json_schema import fits
from studies import words

from protocol import grading, tasks
from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.tasks import __main__ as command
from protocol.tasks import file_rows, held_out_guard
from protocol.tasks.file_task import FileTask
from protocol.tasks.middle_cut import MaxLength
from splits import CONFIRM, assign_bucket

GOOD = {"id": "fox/1", "context": "A fox ate 3 hens.", "question": "How many hens?", "answer": "3"}
OTHER = {"id": "fox/2", "context": "A fox ate 4 hens.", "question": "How many hens?", "answer": "4"}


def line(**changed):
    row = {**GOOD, **changed}
    return json.dumps({name: value for name, value in row.items() if value is not None}).encode()


BROKEN = {
    "a byte order mark": (b"\xef\xbb\xbf" + line(), "line 1: begins with a byte order mark"),
    "not UTF-8": (line() + b"\n\xff{}", "line 2: not UTF-8 at byte 1; save the file as UTF-8"),
    "CR LF": (line() + b"\r\n", "line 1: ends in CR LF; save the file with LF line endings"),
    "an empty line": (line() + b"\n\n" + json.dumps(OTHER).encode(), "line 2: is empty; delete it"),
    "an empty file": (b"", "line 1: is empty"),
    "no JSON": (b'{"id": "a",}', "line 1: not JSON: "),
    "a list": (b"[1, 2]", "line 1: is [1, 2]; write an object with id, context"),
    "NaN": (b'{"id": NaN}', "line 1: NaN is not JSON; write one JSON object on each line"),
    "an endless number": (b'{"id": ' + b"1" * 5000 + b"}", "line 1: has a number with too many digits"),
    "deep nesting": (b"[" * 200_000, "line 1: nested too deeply"),
    "a key twice": (b'{"id": "a", "id": "b"}', "line 1: id: occurs twice; keep one of them"),
    "an unknown field": (line(anwser="3"), "line 1: unknown field 'anwser'; did you mean 'answer'?"),
    "no id": (line(id=None), "line 1: id: missing; every problem must have one"),
    "a number as id": (line(id=7), "line 1: id: write text, not 7; put the text in quotes"),
    "an empty id": (line(id=""), "line 1: id: '' is empty or has white space around it"),
    "an id with a space before it": (line(id=" a"), "line 1: id: ' a' is empty or has white space"),
    "an id that is not NFC": (line(id="e\u0301"), "line 1: id: is not in Unicode normal form NFC; normalise it"),
    "an id with a tab": (line(id="a\tb"), "line 1: id: contains the invisible character U+0009 at position 2"),
    "an id with a drawing": (
        line(id="a\ufe0f"),
        "line 1: id: contains the character U+FE0F, which can make two names look alike",
    ),
    "a cluster with a hard space": (
        line(cluster="a\u00a0b"),
        "line 1: cluster: contains the character U+00A0, which can make two names look alike; delete it",
    ),
    "a long id": (line(id="a" * 201), "line 1: id: has 201 characters, over the limit of 200; shorten it"),
    "an id twice": (line() + b"\n" + line(context="B"), "line 2: id: 'fox/1' is also the id of line 1"),
    "a problem twice": (line() + b"\n" + line(id="b"), "line 2: context: asks the same as line 1; leave one"),
    "a problem in other lines": (
        line() + b"\n" + line(id="b", context="A fox\nate 3\u00a0hens. How many", question="hens?"),
        "line 2: context: asks the same as line 1; leave one",
    ),
    "a problem all in its context": (
        line() + b"\n" + line(id="b", context="A fox ate 3 hens. How many hens?", question=None),
        "line 2: context: asks the same as line 1; leave one",
    ),
    "a problem in another spelling": (
        line(context="Caf\u00e9") + b"\n" + line(id="b", context="Caf\u200de\u0301\ufe0f"),
        "line 2: context: asks the same as line 1; leave one",
    ),
    "no context": (line(context=None), "line 1: context: missing"),
    "an empty context": (line(context=""), "line 1: context: is empty; if there is no passage"),
    "a context with white space": (line(context="A \n"), "line 1: context: has white space around it"),
    "a hidden sign": (
        line(context="A\u200bB"),
        "line 1: context: contains the invisible character U+200B at position 2",
    ),
    "half of a pair": (line(question="\ud800?"), "line 1: contains half a surrogate pair"),
    "a filler": (line(question="a\u3164b"), "line 1: question: contains the invisible character U+3164 at position 2"),
    "no answer": (line(answer=None), "line 1: answer: missing; write it, or write answers"),
    "two fields of answers": (line(answers=["3"]), "line 1: answer: cannot be combined with answers; leave one"),
    "an empty answer": (line(answer=""), "line 1: answer: is empty"),
    "a number as answer": (line(answer=3), "line 1: answer: write text, not 3; put the text in quotes"),
    "a truth as answer": (line(answer=True), "line 1: answer: write text, not True"),
    "answers that are no list": (line(answer=None, answers="3"), "line 1: answers: write a list of texts"),
    "no answers": (line(answer=None, answers=[]), "line 1: answers: write a list of texts, not []"),
    "one of the answers is none": (line(answer=None, answers=["3", None]), "answers[1]: write text, not None"),
    "an answer twice": (line(answer=None, answers=["3", "3"]), "line 1: answers[1]: '3' occurs twice"),
    "an answer that is not NFC": (line(answer="e\u0301"), "line 1: answer: is not in Unicode normal form NFC"),
    "a level that is no text": (line(level=3), "line 1: level: write text, not 3"),
    "an empty cluster": (line(cluster=""), "line 1: cluster: '' is empty"),
    "a cluster on some lines": (
        line(cluster="a") + b"\n" + json.dumps(OTHER).encode(),
        "line 2: cluster: missing, although line 1 has one; give one to all lines or to none",
    ),
    "a prefix that is no text": (line(prefix=["x"]), "line 1: prefix: write text, not ['x']"),
}


@pytest.fixture
def written(tmp_path):
    def write(data, name="mine.jsonl"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused_by_line_and_field(what, written):
    data, says = BROKEN[what]
    path = written(data)
    with pytest.raises(BadInput) as refusal:
        file_rows.load_rows(path, file_rows.read_problem)
    assert str(refusal.value).startswith(f"{path}: line ")
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < len(str(path)) + 200


def test_a_line_that_is_too_long_is_refused(written, monkeypatch):
    monkeypatch.setattr(file_rows, "MAX_LINE_BYTES", 100)
    with pytest.raises(BadInput, match=r"line 1: has \d+ bytes, over the limit of 100; shorten its context"):
        file_rows.load_rows(written(line(context="A" * 100)), file_rows.read_problem)


def test_what_is_no_plain_file_is_refused(written, tmp_path):
    (tmp_path / "link.jsonl").symlink_to(written(line()))
    (tmp_path / "folder.jsonl").mkdir()
    for name, says in (("link", "is not a plain file"), ("folder", "is not a plain"), ("none", "no such file")):
        with pytest.raises(BadInput, match=rf"{name}\.jsonl: {says}"):
            file_rows.load_rows(tmp_path / f"{name}.jsonl", file_rows.read_problem)


def test_what_is_written_is_what_is_read(written):
    """Persian joins letters with a sign that prints nothing; a line feed at the end may be missing."""
    rows = [
        {**GOOD, "level": "easy", "cluster": "hens", "prefix": "<think>\n"},
        {"id": "b", "context": "A\tB\nن\u200cن", "answers": ["x", "y"], "level": "hard", "cluster": "c"},
    ]
    data = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    for ending in (b"", b"\n"):
        found = file_rows.load_rows(written(data + ending), file_rows.read_problem)
        assert found["fox/1"] == ("fox/1", *list(GOOD.values())[1:], "easy", "hens", "<think>\n")
        assert found["b"] == ("b", rows[1]["context"], "", ("x", "y"), "hard", "c", "")
        assert list(found) == ["fox/1", "b"]


def test_a_file_that_changes_is_read_again(written):
    path = written(line())
    assert list(file_rows.load_rows(path, file_rows.read_problem)) == ["fox/1"]
    assert list(file_rows.load_rows(written(line(id="another")), file_rows.read_problem)) == ["another"]


# ---------------------------------------------------------------- check


def test_check_says_every_wrong_line_up_to_twenty(written, capsys):
    lines = [line(id=f"p/{number}", context=f"Fox {number}") for number in range(5)]
    lines += [line(id=f"q/{number}", context=f"Fox {number}!", answer=number) for number in range(25)]
    path = written(b"\n".join(lines))
    assert command.main(["check", str(path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[:20] == [
        f"{path}: line {number}: answer: write text, not {number - 6}; put the text in quotes"
        for number in range(6, 26)
    ]
    assert said[20:] == [f"{path}: 25 lines are wrong: those above and 5 more"]
    with pytest.raises(BadInput, match=rf"line 6: .* \(24 more: kv-prereg tasks check {path}\)"):
        file_rows.load_rows(path, file_rows.read_problem)


def test_check_says_what_is_wrong_with_many_lines_once(written, capsys):
    rows = [line(id=f"p/{number}", context=f"Fox {number} ") for number in range(60)]
    path = written(b"\n".join([line(), *rows]))
    assert command.main(["check", str(path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [one.removeprefix(f"{path}: ") for one in said] == [
        "lines 2, 3, 4 and 57 more: context: has white space around it, which a chat template may drop; remove it",
        "60 lines are wrong",
    ]


def test_check_says_how_the_problems_are_split(written, capsys):
    ids = [f"p/{number}" for number in range(12)]
    rows = [line(id=item, context=f"Fox {item}", cluster=f"c{place // 2}") for place, item in enumerate(ids)]
    path = written(b"\n".join(rows))
    assert command.main(["check", str(path), "--grader", "exact"]) == 0
    held = [item for item in ids if assign_bucket(item) in CONFIRM]
    dev, confirm = ({place // 2 for place, item in enumerate(ids) if (item in held) == side} for side in (0, 1))
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: {12 - len(held)} dev, {len(held)} confirm",
        f"clusters: {len(dev)} dev, {len(confirm)} confirm, {len(dev & confirm)} in both",
    ]


@pytest.mark.parametrize(
    ("grader", "golds", "warned"),
    [
        ("exact", ["Al", "Also Lima", "Quito"], [1]),
        ("contains", ["Al", "Also Lima", "Quito"], []),
        ("contains", ["Lima", "Also Lima", "lima!"], [1, 3]),
        ("equals", ["Lima", "Also Lima", "lima!"], [1, 3]),
        ("equals", ["Lima", "Lima", "Quito"], []),
        ("contains", ["Who", "The Who", "No", "Lima", "All of us"], [1, 3, 5]),
        ("contains", ["3", "-3", "3,000", "3:45", "Paul", "Jean-Paul"], []),
        ("f1", ["Lima", "Also Lima", "Quito"], []),
    ],
)
def test_check_warns_of_answers_that_the_grader_cannot_tell_apart(written, capsys, grader, golds, warned):
    path = written(b"\n".join(line(id=f"p/{i}", context=f"Fox {i}", answer=gold) for i, gold in enumerate(golds)))
    assert command.main(["check", str(path), "--grader", grader]) == 0
    warnings = [text for text in capsys.readouterr().out.splitlines() if text.startswith("warning: ")]
    named = [int(text.split(": line ")[1].split(":")[0]) for text in warnings if ": line " in text]
    assert (named, len(warnings)) == (warned, len(warned) + bool(warned))


@pytest.mark.parametrize(
    ("grader", "good", "bad"),
    [
        ("exact", "3", None),
        ("equals", "Lima", "..."),
        ("contains", "Lima", "..."),
        ("boxed", r"\frac{1}{2}", r"\frac{1}{2"),
        ("choice", "B", None),
        ("f1", "the red fox", "the"),
        ("rouge", "the red fox", "..."),
        ("code", "return x", None),
    ],
)
def test_an_answer_is_held_to_its_own_grader(grader, good, bad, written, capsys):
    path = written(line() + b"\n" + line(id="b", context="B", answer=None, answers=["4", good]))
    assert command.main(["check", str(path), "--grader", grader]) == 0
    FileTask("mine", path, grader).refuse_wrong_golds()
    if bad is None:  # any answer is one
        return
    path = written(line() + b"\n" + line(id="b", context="B", answer=None, answers=["4", bad]))
    assert command.main(["check", str(path), "--grader", grader]) == 2
    says = f"line 2: answers[1]: is not graded as right by its own grader, {grader}; write one that it can compare"
    assert says in capsys.readouterr().err
    with pytest.raises(BadInput) as refusal:
        FileTask("mine", path, grader).refuse_wrong_golds()
    assert says in str(refusal.value)
    assert ascii(bad) not in str(refusal.value)


# ---------------------------------------------------------------- what is built


def test_a_problem_is_its_line_and_the_instruction_comes_last(written):
    path = written(
        line(level="easy", prefix="It ate") + b"\n" + line(id="b", context="Say 3.", question=None, level="hard")
    )
    task = FileTask("mine", path, "exact", "Answer with one number.")
    asked = "How many hens?\nAnswer with one number."
    assert task.build("fox/1", words) == ("fox/1", GOOD["context"], asked, "It ate", "3", "easy")
    assert task.build("b", words)[:3] == ("b", "Say 3.\nAnswer with one number.", "")
    assert FileTask("mine", path, "exact").build("fox/1", words).question == "How many hens?"
    assert (task.gold("b"), task.levels(), task.clusters()) == ("3", {"fox/1": "easy", "b": "hard"}, {})
    assert task.redrawn(5) is task
    with pytest.raises(BadInput, match="problem 'c': is not in this task"):
        task.build("c", words)


def test_a_context_that_is_too_long_is_cut_in_its_middle_and_the_question_is_not(written):
    path = written(line(context="one two three four five six", question="one two three four five six?"))
    task = FileTask("mine", path, "exact", "Answer.", MaxLength(words=4))
    assert task.build("fox/1", words)[1:3] == ("one two five six", "one two three four five six?\nAnswer.")


def test_what_is_asked_does_not_depend_on_names_and_answers(written):
    one = FileTask("mine", written(line(), "a.jsonl"), "exact")
    two = FileTask("other", written(line(id="b", answer=None, answers=["3", "three"], level="x"), "b.jsonl"), "f1")
    three = FileTask("third", written(line(question="How many foxes?"), "c.jsonl"), "exact")
    assert one.content_digest("fox/1") == two.content_digest("b") != three.content_digest("fox/1")
    assert one.source() != two.source()
    assert one.source() != FileTask("mine", one.path, "exact", "Answer.").source()


def test_a_held_out_line_is_built_through_the_door_alone(written):
    ids = [f"p/{number}" for number in range(10)]
    task = FileTask("mine", written(b"\n".join(line(id=item, context=f"Fox {item}") for item in ids)), "exact")
    for item in ids:
        if assign_bucket(item) in CONFIRM:
            with pytest.raises(BadInput, match=f"problem '{item}' of mine: is held out; only confirm"):
                held_out_guard.build(task, "mine", item, words)
        else:
            assert held_out_guard.build(task, "mine", item, words) == task.build(item, words)


# ---------------------------------------------------------------- in a protocol

NEEDLE = 'name = "needle-256"\n'
TEXT = studies.PROTOCOL.format(model="/nowhere")


def protocol(task):
    text = TEXT.replace(NEEDLE, f"{task}\n", 1)
    assert text != TEXT or task == NEEDLE
    return toml_reader.parse_unchecked(text.encode(), "protocol.toml")


@pytest.mark.parametrize(
    ("task", "content"),
    [
        (NEEDLE + "dev = 4\nconfirm = 5", {"name": "needle-256", "dev": 4, "confirm": 5}),
        ('file = "a.jsonl"\ngrader = "f1"', {"name": "a", "file": "a.jsonl", "grader": "f1"}),
        (
            'name = "b"\nfile = "a.jsonl"\ngrader = "f1"\ninstruction = "Go."\nlongest = { tokens = 9 }',
            {"name": "b", "file": "a.jsonl", "grader": "f1", "instruction": "Go.", "longest": {"tokens": 9}},
        ),
        ('lm_eval = "x"\ndata = "b.jsonl"', {"name": "x", "lm_eval": "x", "data": "b.jsonl"}),
        ('lm_eval = "x"\nlengths = [64, 128]', {"name": "x", "lm_eval": "x", "lengths": [64, 128]}),
    ],
)
def test_a_task_is_locked_as_it_was_written_and_has_a_name(task, content):
    assert protocol(task).content()["tasks"][0] == {"query": "inside", "max_new_tokens": 24, **content}


def test_the_schema_takes_what_is_read_and_refuses_what_is_not():
    whole = json.loads((studies.ROOT / "docs" / "protocol.schema.json").read_text())
    table = whole["properties"]["tasks"]["items"]
    asked = {"query": "inside", "max_new_tokens": 24}
    for good in (
        {"name": "needle-256", "dev": 3},
        {"name": "of-an-entry-point"},
        {"file": "a.jsonl", "grader": "f1", "longest": {"words": 9}},
        {"lm_eval": "x", "data": "a.jsonl"},
        {"lm_eval": "x", "lengths": [3]},
    ):
        assert fits(table, {**asked, **good}, whole), good
    for bad in (
        {},
        {"name": "needle-256", "grader": "f1"},
        {"name": "needle-256", "longest": {"words": 9}},
        {"file": "a.jsonl"},
        {"file": "a.json", "grader": "f1"},
        {"file": "a.jsonl", "grader": "f1", "lm_eval": "x"},
        {"file": "a.jsonl", "grader": "f1", "longest": {"words": 9, "tokens": 9}},
        {"lm_eval": "x"},
        {"lm_eval": "x", "data": "a.jsonl", "lengths": [3]},
    ):
        assert not fits(table, {**asked, **bad}, whole), bad


def test_every_grader_that_the_page_names_is_there():
    assert {"exact", "boxed", "math", "choice", "f1", "rouge", "code"} <= {*grading.grader_names()}
    assert "mine" not in tasks.names()

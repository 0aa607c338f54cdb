"""Problems that somebody published: read from a data file that cannot be another one."""

import hashlib
import json
from dataclasses import replace
from http.client import BadStatusLine, IncompleteRead

import pytest

import splits
from protocol import tasks
from protocol.formats import files
from protocol.formats.refusals import BadInput, Drifted
from protocol.tasks import __main__, dataset
from protocol.tasks.dataset import INSTRUCTION, Dataset

PUBLISHED = [name for name in tasks.names() if isinstance(tasks.get(name), Dataset)]

# Two problems of ours in the form in which AIME 2024 is published, and what is made of them.
ROWS = [
    {"id": 60, "problem": " Add 2 and 3. ", "answer": "005", "solution": "held back"},
    {"id": 61, "problem": "Find $x$\u2028if $x = \\frac{84}{2}$.", "answer": "042", "year": 2024.5},
]
MADE = (
    b'{"answer":"005","level":"","problem":" Add 2 and 3. ","unique_id":"aime24/60"}\n'
    b'{"answer":"042","level":"","problem":"Find $x$\xe2\x80\xa8if $x = \\\\frac{84}{2}$.",'
    b'"unique_id":"aime24/61"}\n'
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def published(tmp_path):
    path = tmp_path / "published.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def tiny(home):
    return replace(tasks.get("aime24"), sha256=hashlib.sha256(MADE).hexdigest())


def test_data_lies_beside_the_fetched_models(home, monkeypatch):
    assert dataset.data_folder() == files.cache_home() / "data" == home / "data"
    monkeypatch.delenv("KV_PREREG_HOME")
    assert dataset.data_folder() == files.cache_home() / "data"


def test_the_data_file_keeps_problem_answer_and_id_and_nothing_else(tiny, published, home):
    assert tiny.fetch(published) == home / "data" / "aime24.jsonl"
    assert (home / "data" / "aime24.jsonl").read_bytes() == MADE
    assert tiny.digest() == hashlib.sha256(MADE).hexdigest()


def test_the_problem_is_one_message_that_asks_for_a_boxed_answer(tiny, published):
    tiny.fetch(published)
    problem = tiny.build("aime24/60", len)
    assert problem.context == (
        "Add 2 and 3.\n\nPlease reason step by step, and put your final answer within \\boxed{}."
    )
    assert (problem.question, problem.prefix, problem.gold) == ("", "<think>\n", "005")
    assert tiny.build("aime24/61", len).context == ROWS[1]["problem"] + INSTRUCTION


def test_an_id_of_another_task_is_refused(tiny, published):
    tiny.fetch(published)
    for other in ("aime24/6", "60", "needle/768/0/000", ""):
        with pytest.raises(BadInput, match="is not in this task"):
            tiny.build(other, len)


def test_other_problems_than_the_pinned_ones_are_refused_and_nothing_is_written(tiny, published, home):
    published.write_text(published.read_text().replace("84", "86"))
    with pytest.raises(Drifted, match=r"not the pinned .*; use the published file"):
        tiny.fetch(published)
    assert not (home / "data").exists()


def test_a_data_file_that_was_altered_is_refused_wherever_it_is_read(tiny, published, home):
    tiny.fetch(published)
    (home / "data" / "aime24.jsonl").write_bytes(MADE.replace(b"042", b"043"))
    for read in (tiny.digest, tiny.fetch, lambda: tiny.build("aime24/60", len)):
        with pytest.raises(Drifted, match="remove it and fetch it again"):
            read()


def test_without_its_data_a_task_says_how_to_get_it(tiny):
    with pytest.raises(BadInput, match=r"run: kv-prereg tasks fetch aime24"):
        tiny.build("aime24/60", len)
    with pytest.raises(BadInput, match="only as Parquet; convert it to JSON lines"):
        tiny.fetch()


def test_what_is_there_is_verified_and_not_fetched_again(tiny, published, monkeypatch):
    tiny.fetch(published)
    monkeypatch.setattr(dataset, "download", lambda url: pytest.fail("reached for the network"))
    assert replace(tiny, url="https://nowhere.invalid/x").fetch().is_file()


def test_a_download_is_checked_as_a_file_is(tiny, published, monkeypatch):
    at_a_url = replace(tiny, url="https://nowhere.invalid/x")
    monkeypatch.setattr(dataset, "download", lambda url: b'{"id": 1}\n')
    with pytest.raises(BadInput, match=r"line 1: differs from the published problems"):
        at_a_url.fetch()
    monkeypatch.setattr(dataset, "download", lambda url: published.read_bytes())
    assert at_a_url.fetch().read_bytes() == MADE


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("no route"), "could not be read: no route"),
        (IncompleteRead(b"half"), "could not be read: IncompleteRead"),
        (BadStatusLine("HTTP/9"), "could not be read: HTTP/9"),
    ],
)
def test_a_hub_that_does_not_answer_in_full_is_a_refusal(tiny, monkeypatch, error, line):
    def unreachable(url):
        raise error

    monkeypatch.setattr(dataset, "download", unreachable)
    with pytest.raises(BadInput, match=line):
        replace(tiny, url="https://nowhere.invalid/x").fetch()


@pytest.mark.parametrize("line", ["[]", "3", "{", '{"id": 60}', '{"id": 60, "problem": "p", "answer": 5.5}'])
def test_a_line_that_is_no_problem_is_refused_by_its_number(tiny, tmp_path, line):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(ROWS[0]) + "\n" + line + "\n")
    with pytest.raises(BadInput, match="line 2: differs from the published problems"):
        tiny.fetch(bad)


def test_each_published_form_is_read_by_its_own_rules():
    answer = "She has 9 * 200 = $<<9*200=1800>>1,800 left.\n#### 1,800"
    assert dataset.gsm8k(7, {"question": "How much?", "answer": answer}) == {
        "answer": "1800",
        "level": "",
        "problem": "How much?",
        "unique_id": "gsm8k/test/0007",
    }
    row = {"problem": "p", "answer": "a", "level": 3, "unique_id": "test/algebra/1.json", "solution": "s"}
    kept = {"problem": "p", "answer": "a", "level": "3", "unique_id": "test/algebra/1.json"}
    assert dataset.math500(0, row) == kept


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_manifest_lists_the_ids_and_the_source_of_the_task(name):
    frozen, task = splits.load(name), tasks.get(name)
    assert (frozen.ids, frozen.source, task.name) == (task.ids(), task.source(), name)
    assert task.grader == "math"


def test_the_published_tasks_have_the_sizes_they_are_known_by():
    sizes = {name: (len(splits.load(name).dev), len(splits.load(name).confirm)) for name in PUBLISHED}
    assert sizes == {"math500": (201, 299), "aime24": (14, 16), "gsm8k": (531, 788)}
    assert splits.load("gsm8k").ids == tuple(f"gsm8k/test/{number:04d}" for number in range(1319))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_data_here_has_every_listed_problem_in_order(name):
    path = dataset.data_folder() / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no data at {path}; kv-prereg tasks fetch {name}")
    lines = path.read_bytes().splitlines()
    assert tuple(json.loads(line)["unique_id"] for line in lines) == splits.load(name).ids
    both = {task: tasks.get(task) for task in (name, "needle-256")}
    assert tasks.data_digests(both) == {name: tasks.get(name).sha256}


def test_the_command_fetches_from_a_file_and_refuses_what_is_generated(tiny, published, monkeypatch, capsys):
    monkeypatch.setattr(tasks.registry, "TASKS", {"aime24": tiny, "needle-256": tasks.get("needle-256")})
    assert __main__.main(["fetch", "aime24", "--from", str(published)]) == 0
    assert __main__.main(["fetch", "needle-256"]) == 2
    assert "is generated; there is nothing to fetch" in capsys.readouterr().err
    published.write_text("{}\n")
    (dataset.data_folder() / "aime24.jsonl").write_bytes(b"")
    assert __main__.main(["fetch", "aime24", "--from", str(published)]) == 3

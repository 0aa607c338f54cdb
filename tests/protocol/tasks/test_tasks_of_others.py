"""Tasks that another distribution adds by an entry point, whose code has to stand in the lock."""

import hashlib
import re
import sys

import pytest
import studies

import splits
from protocol import tasks
from protocol.formats.refusals import BadInput
from protocol.lock import installed_files
from protocol.plan import toml_reader
from protocol.preflight import task_splits, written_study
from protocol.workspace import imports

CODE = """
from protocol.tasks.problem import Problem

class Squares:
    grader = "exact"

    def ids(self):
        return tuple(f"squares/{number}" for number in range(20))

    def build(self, problem_id, count):
        return Problem(problem_id, f"Square {problem_id[8:]}.", "What is it?", "It is", self.gold(problem_id))

    def gold(self, problem_id):
        return str(int(problem_id[8:]) ** 2)

    def redrawn(self, seed):
        return self

    def recipe(self):
        return "1" * 64

    def source(self):
        return "2" * 64

    def levels(self):
        return {item: "easy" for item in self.ids()}

squares = Squares()
odd = 3
"""


@pytest.fixture
def others(tmp_path, monkeypatch):
    """Installs a distribution with these entry points; with its files listed or, as an editable one, not."""

    def install(points, listed=True):
        path = tmp_path / "site"
        info = path / "elsewhere-1.0.dist-info"
        info.mkdir(parents=True)
        (path / "kv_elsewhere.py").write_text(CODE)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)
        digest = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
        (info / "RECORD").write_text(f"kv_elsewhere.py,{digest},0\n" if listed else "")
        monkeypatch.syspath_prepend(str(path))
        installed_files.site_folders.cache_clear()
        return path

    yield install
    sys.modules.pop("kv_elsewhere", None)
    installed_files.site_folders.cache_clear()


def test_a_task_of_another_distribution_is_named_split_and_built(others):
    others("[kv_prereg.tasks]\nsquares = kv_elsewhere:squares\n")
    assert tasks.names() == (*tasks.TASKS, "squares")
    found = task_splits.read_split("squares", tasks.get("squares"))
    ids = [f"squares/{number}" for number in range(20)]
    md5 = {item: int(hashlib.md5(item.encode()).hexdigest(), 16) % 5 for item in ids}
    assert found["dev"] == [item for item in ids if md5[item] in (0, 1)]
    assert found["confirm"] == [item for item in ids if md5[item] > 1]
    assert (found["source"], found["levels"]) == ("2" * 64, dict.fromkeys(ids, "easy"))
    assert tasks.build("squares", found["dev"][0], len).gold == str(int(found["dev"][0][8:]) ** 2)
    with pytest.raises(BadInput, match="is held out"):
        tasks.build("squares", found["confirm"][0], len)
    with pytest.raises(tasks.UnknownTask, match="did you mean 'squares'"):
        tasks.get("squares-2")


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (
            "chain = kv_elsewhere:squares",
            "entry point chain of kv_prereg.tasks: this name is already in use; rename the task in",
        ),
        ("odd = kv_elsewhere:odd", "entry point odd of kv_prereg.tasks must be a task, but has no grader"),
        ("none = kv_elsewhere:nothing", "entry point none of kv_prereg.tasks cannot be loaded"),
        ("gone = kv_nowhere:squares", "entry point gone of kv_prereg.tasks cannot be loaded"),
    ],
)
def test_what_is_no_task_is_refused_by_its_entry_point(points, says, others):
    others(f"[kv_prereg.tasks]\n{points}\n")
    with pytest.raises(BadInput, match=re.escape(says)):
        tasks.get(points.partition(" ")[0])


def test_ids_that_make_no_split_are_refused(others, monkeypatch):
    others("[kv_prereg.tasks]\nsquares = kv_elsewhere:squares\n")
    task = tasks.get("squares")
    monkeypatch.setattr(type(task), "ids", lambda self: ("a", "a"))
    with pytest.raises(BadInput, match="tasks: squares: squares: id 'a' occurs twice"):
        task_splits.read_split("squares", task)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"squares/1": 3}, "levels() returned 'squares/1' and 3; return a mapping from the task's ids to texts"),
        ({"squares/1": ""}, "levels() returned 'squares/1' and ''"),
        ({"cubes/1": "easy"}, "levels() returned 'cubes/1' and 'easy'"),
        (["easy"], "levels() returned a list; return a mapping from ids to texts"),
    ],
)
def test_what_a_task_says_of_its_problems_is_text_by_their_ids(said, says, others, monkeypatch):
    others("[kv_prereg.tasks]\nsquares = kv_elsewhere:squares\n")
    task = tasks.get("squares")
    monkeypatch.setattr(type(task), "levels", lambda self: said)
    with pytest.raises(BadInput, match=re.escape(says)):
        task_splits.read_split("squares", task)


def test_code_that_is_installed_is_taken(others):
    others("[kv_prereg.tasks]\nsquares = kv_elsewhere:squares\n")
    imports.refuse_elsewhere("kv_prereg.tasks", ["squares"])


def test_code_of_an_editable_install_is_refused_where_a_protocol_names_it(others):
    path = others(
        "[kv_prereg.tasks]\nsquares = kv_elsewhere:squares\n"
        "[kv_prereg.graders]\nclose = kv_elsewhere:squares\n"
        "[kv_prereg.policies]\nnewest = kv_elsewhere:squares\n",
        listed=False,
    )
    text = studies.PROTOCOL.format(model="/nowhere")
    task = 'name = "association-256"\n'
    for old, new, says in (
        (task, 'name = "squares"\n', "entry point squares of kv_prereg.tasks"),
        (task, 'file = "a.jsonl"\ngrader = "close"\n', "entry point close of kv_prereg.graders"),
        ('policy = "crystal-token-level"', 'policy = "newest"', "entry point newest of kv_prereg.policies"),
    ):
        assert old in text
        design = toml_reader.parse_unchecked(text.replace(old, new).encode(), "protocol.toml")
        says = f"{says}: is in {path}/kv_elsewhere.py, which no lock covers; unset PYTHONPATH, and install"
        with pytest.raises(BadInput, match=says):
            written_study.refuse_unlocked_plugins(design)
    written_study.refuse_unlocked_plugins(toml_reader.parse_unchecked(text.encode(), "protocol.toml"))


def test_a_task_says_what_it_is_asked_and_no_more():
    """`levels` of `chain` are a setting, and no facts of problems: old locks have none."""
    assert "levels" not in task_splits.read_split("chain", tasks.get("chain"))
    assert set(task_splits.read_split("needle-256", tasks.get("needle-256"))) == {
        "manifest",
        "dev",
        "confirm",
        "population",
    }
    assert splits.load("needle-256").digest == task_splits.read_split("needle-256", tasks.get("needle-256"))["manifest"]

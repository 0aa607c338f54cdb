"""What the problems of a task are a sample of: topics of their own, or a few that all of them share."""

import hashlib
import re
from itertools import combinations
from types import SimpleNamespace

import pytest
import studies
from looped import looped
from studies import words

import splits
from protocol import tasks
from protocol.formats.refusals import BadInput
from protocol.preflight import task_splits
from protocol.recompute import verify_lock
from protocol.tasks import held_out_guard, registry
from protocol.tasks.topic_retrieval import TopicRetrieval
from protocol.tasks.topic_texts import GENERAL, MENTIONS, TEMPLATES, TOPICS
from protocol.workspace.planned_study import read_protocol

OF_TOPICS = [name for name, task in tasks.TASKS.items() if isinstance(task, TopicRetrieval)]
RETRIEVAL = [name for name in tasks.TASKS if name.startswith(("needle", "association"))]


def topic_of(problem_id: str) -> str:
    return problem_id.split("/")[-1]


def test_no_topic_is_for_development_in_one_task_and_held_out_in_another_or_the_same():
    """By the MD5 of the topic, counted here anew."""
    developed, held_out = set(), set()
    for name in OF_TOPICS:
        split = splits.load(name)
        developed |= {topic_of(problem) for problem in split.dev}
        held_out |= {topic_of(problem) for problem in split.confirm}
    assert not developed & held_out
    by_hash = {topic for topic in developed | held_out if int(hashlib.md5(topic.encode()).hexdigest(), 16) % 5 > 1}
    assert held_out == by_hash
    assert len(developed | held_out) == 384


def test_old_retrieval_tasks_share_their_topics_between_the_splits():
    """Why they have successors."""
    for name in set(RETRIEVAL) - set(OF_TOPICS):
        topics, split = registry.topics(tasks.get(name)), splits.load(name)
        dev, confirm = ({topics[problem] for problem in part} for part in (split.dev, split.confirm))
        assert dev & confirm
        assert len(dev | confirm) <= 5


@looped("name", OF_TOPICS)
def test_every_problem_has_a_topic_of_its_own_and_200_are_held_out(name):
    topics = [topic_of(problem) for problem in tasks.get(name).ids()]
    assert len(set(topics)) == len(topics) >= 60
    assert len(splits.load(name).confirm) >= 200


def test_there_are_20_templates_and_no_text_names_the_topic_of_another_problem():
    assert len(TEMPLATES) == len(set(TEMPLATES)) >= 20
    assert len({topic.split()[1] for topic in TOPICS}) == len(TOPICS)
    for fact in TEMPLATES:
        assert fact.stem.count("{topic}") == fact.question.count("{topic}") == 1
        assert fact.question.endswith("?")
    assert all(mention.count("{topic}") == 1 for mention in MENTIONS)
    names = {word for topic in TOPICS for word in topic.split()[1:]}
    for text in (*GENERAL, *MENTIONS, *(part for fact in TEMPLATES for part in fact)):
        assert not names & set(re.findall(r"\w+", text.replace("{topic}", "")))
        assert not re.search(r"\d", text)


@pytest.mark.parametrize("name", ["needle-topics-256", "association-topics-256", "association-topics-moved-448"])
def test_a_problem_states_its_fact_once_asks_for_it_and_mentions_its_topic_as_often_as_its_density(name):
    task = tasks.get(name)
    stems = set()
    for item in task.ids()[::9]:
        problem = task.build(item, words)
        topic = "the " + " ".join(topic_of(item).split("-"))
        assert re.findall(r"\d+", problem.context) == [problem.gold] == [task.gold(item)]
        assert problem.context.count(f"{problem.prefix} {problem.gold}") == 1
        assert topic in problem.question.lower()
        assert topic in problem.prefix.lower()
        mentions = problem.context.lower().count(topic) - 1
        general = sum(problem.context.count(sentence) for sentence in GENERAL)
        assert (mentions, general) == {"high": (4, 0), "low": (0, 2)}.get(item.split("/")[2], (0, 0))
        stems.add(problem.prefix.lower().replace(topic, ""))
    assert len(stems) >= 15


@pytest.mark.parametrize("name", ["needle-topics-256", "association-topics-256", "association-topics-moved-448"])
def test_lengths_depths_and_densities_are_alike_often_among_the_held_out(name):
    settings = [tuple(item.split("/")[1:-1]) for item in splits.load(name).confirm]
    counts = [settings.count(each) for each in set(settings)]
    assert len(counts) in (2, 5, 10)
    assert min(counts) > 0.5 * max(counts)


def test_a_late_draw_changes_facts_and_values_and_keeps_topics():
    task = tasks.get("needle-topics-256")
    other = task.redrawn(7)
    assert other.ids() == task.ids()
    pairs = [(task.build(item, words), other.build(item, words)) for item in task.ids()[:40]]
    assert all(first.gold != second.gold for first, second in pairs)
    assert sum(first.prefix != second.prefix for first, second in pairs) > 30
    assert task.recipe() != other.recipe()


def test_the_guard_holds_out_by_topic():
    task = tasks.get("needle-topics-256")
    split = splits.load("needle-topics-256")
    held_out_guard.build(task, "needle-topics-256", split.dev[0], words)
    for problem in split.confirm:
        with pytest.raises(BadInput, match="is held out"):
            held_out_guard.build(task, "needle-topics-256", problem, words)


def test_a_manifest_with_a_topic_moved_to_the_other_split_is_refused():
    content = splits.manifest.build_content("t", ["a/x", "b/x", "c"], "0" * 64, {"a/x": "x", "b/x": "x"})
    assert [entry[1:] for entry in content["ids"][:2]] == [content["ids"][0][1:]] * 2
    assert len(content["ids"][2]) == 2
    for first, second in combinations(range(5), 2):
        bucket = content["ids"][0][1]
        if bucket == first:
            moved = {**content, "ids": [["a/x", second, "x"], *content["ids"][1:]]}
            with pytest.raises(splits.SplitError, match="altered"):
                splits.parse_manifest("t", splits.manifest.canonical.encode(moved) + b"\n", "t.json")


@looped("name", sorted(tasks.TASKS))
def test_every_built_in_task_says_what_its_problems_are_a_sample_of(name):
    item = task_splits.read_split(name, tasks.get(name))
    assert item["population"]
    assert not item["population"].startswith("these")


@looped("name", sorted(set(RETRIEVAL) - set(OF_TOPICS)))
def test_200_problems_about_a_few_topics_are_refused_and_the_task_with_topics_is_named(name):
    task = tasks.get(name)
    full = task_splits.read_split(name, task)
    if len(full["confirm"]) < 200:
        task_splits.refuse_few_topics({name: full}, {name: task})
        return
    with pytest.raises(
        BadInput, match=rf"tasks\.{name}: its 200 held-out problems are about only [345] topics"
    ) as refusal:
        task_splits.refuse_few_topics({name: {**full, "confirm": full["confirm"][:200]}}, {name: task})
    family = name.rpartition("-moved")[0] or name.partition("-")[0]
    assert f"write {family}-topics-" in str(refusal.value)
    task_splits.refuse_few_topics({name: {**full, "confirm": full["confirm"][:199]}}, {name: task})


def test_three_topics_do_not_register_as_200_independent_problems(tiny_model, tmp_path):
    folder = studies.write(
        tmp_path / "study",
        tiny_model,
        studies.ONE_TASK | {'name = "needle-256"': 'name = "association-768-large"\nconfirm = 200\ndev = 3'},
    )
    done = studies.ran(2, "register", folder)
    assert "its 200 held-out problems are about only 3 topics" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 or done.stderr.strip().splitlines()[-1].startswith("BadInput")
    assert not (folder / "lock.json").exists()


@looped(
    ("name", "levels"),
    [
        ("needle-topics-4k-32k", {"4096", "8192", "16384", "32640"}),
        ("association-topics-4k-16k", {"4096", "8192", "16384"}),
        ("association-topics-moved-4k-16k", {"0", "0.25", "0.5", "0.75", "1"}),
        ("needle-topics-768", {"0", "0.25", "0.5", "0.75", "1"}),
        ("association-topics-768", set()),
    ],
)
def test_levels_are_the_lengths_of_needles_and_the_depths_of_moved_facts(name, levels):
    found = tasks.get(name).levels()
    assert set(found.values()) == levels
    assert all(level in problem.split("/")[1:-1] for problem, level in found.items())


def test_an_audit_refuses_a_new_lock_of_200_problems_about_three_topics(tiny_model, tmp_path):
    """However it was written; locks of the studies that ship are read as they are."""
    folder = studies.write(tmp_path / "study", tiny_model)
    _, design = read_protocol(folder)
    promises = {arm.name: {"fires": "never" if arm.name == "full" else "prefill"} for arm in design.arms}
    item = task_splits.read_split("association-1024", tasks.get("association-1024"))

    def faults(problems: int) -> list[str]:
        content = {
            "items": {"association-1024": {**item, "confirm": item["confirm"][:problems]}},
            "protocol": {"sha256": "0" * 64},
        }
        study = SimpleNamespace(lock=SimpleNamespace(content=content, digest="1" * 64), parent=None)
        return list(verify_lock._refused(study, design, promises, False))

    assert faults(199) == []
    (fault,) = faults(200)
    assert "its 200 held-out problems are about only 3 topics" in fault

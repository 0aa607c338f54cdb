"""What every generated retrieval problem must be, whichever task it comes from. Tokens are words here."""

import functools
import hashlib
import json
import re
from collections import Counter

import pytest
from looped import looped
from studies import words

import splits
from protocol import tasks
from protocol.formats.refusals import BadInput
from protocol.tasks import association, filler, needle, prompt_length, prompting, recital
from protocol.tasks.task_union import TaskUnion

EVERY = [name for name in tasks.names() if tasks.get(name).grader == "exact"]
RETRIEVAL = [name for name in EVERY if not name.startswith("recital") and "topics" not in name]  # or test_topics.py
FACTS = {fact.stem: fact for fact in (*needle.TEMPLATES, *(topic.fact for topic in association.TOPICS))}


@functools.cache
def problems(name: str) -> list[tasks.Problem]:
    task = tasks.get(name)
    count = (4 if "topics" in name else 12) if is_long(name) else 60  # long ones take their time
    return [task.build(item, words) for item in task.ids()[:: 1 + len(task.ids()) // count]]


def is_long(name: str) -> bool:
    return isinstance(tasks.get(name), TaskUnion) or name.endswith("k")


SHORT = [pytest.param(name, marks=[pytest.mark.soak] if is_long(name) else []) for name in EVERY]


def stated(problem: tasks.Problem) -> str:
    return f"{problem.prefix} {problem.gold}{FACTS[problem.prefix].ending}"


def setting(problem: tasks.Problem) -> str:
    return problem.id.split("/")[2]


@looped("name", EVERY)
def test_the_manifest_lists_the_ids_and_the_source_of_the_task(name):
    frozen, task = splits.load(name), tasks.get(name)
    assert frozen.ids == task.ids()
    assert frozen.source == task.source()


@looped("name", EVERY)
def test_both_splits_hold_every_depth_and_density(name):
    frozen = splits.load(name)
    everything = {item.split("/")[2] for item in frozen.ids}
    assert {item.split("/")[2] for item in frozen.dev} == everything
    assert {item.split("/")[2] for item in frozen.confirm} == everything


def test_large_tasks_hold_at_least_205_problems_back_and_share_none_with_the_small():
    for name in ("needle-768", "association-768"):
        small, large = splits.load(name), splits.load(f"{name}-large")
        assert len(large.confirm) >= 205
        assert not set(small.ids) & set(large.ids)


@looped("name", RETRIEVAL)
def test_the_fact_stands_in_the_context_once_and_its_value_nowhere_else(name):
    for problem in problems(name):
        assert problem.context.count(stated(problem)) == 1
        numbers = re.findall(r"\d+", problem.context.replace("in Lab 7.", ""))
        assert numbers == [problem.gold]
        assert 1000 <= int(problem.gold) <= 9999
        assert problem.question == FACTS[problem.prefix].question
        assert problem.gold not in problem.question


@looped("name", [name for name in RETRIEVAL if name.startswith("needle")])
def test_a_needle_stands_at_its_depth(name):
    for problem in problems(name):
        before, after = (words(part) for part in problem.context.split(stated(problem)))
        # The depth counts sentences; of 14 or so, one is about 0.07 of the text, and they differ in length.
        assert before / (before + after) == pytest.approx(float(setting(problem)), abs=0.1)
        if setting(problem) in ("0", "1"):
            assert min(before, after) == 0


@looped("name", [name for name in RETRIEVAL if name.startswith("association")])
def test_an_association_holds_the_mentions_of_its_density_and_opens_with_its_fact_unless_it_is_moved(name):
    pools = {topic.fact.stem: {"high": topic.high, "low": topic.low} for topic in association.TOPICS}
    sizes = {"high": 4, "low": 2}
    for problem in problems(name):
        before, after = problem.context.split(stated(problem))
        if name.startswith("association-moved"):
            rest = words(before) - words(association.FRAMING)
            assert before.startswith(association.FRAMING)
            # As a needle: the depth counts sentences of filler; mentions are spaced evenly among them.
            assert rest / (rest + words(after)) == pytest.approx(float(problem.id.split("/")[3]), abs=0.1)
        else:
            assert before == f"{association.FRAMING} "
        for density, mentions in pools[problem.prefix].items():
            assert len(mentions) == sizes[density]
            there = [problem.context.count(mention) for mention in mentions]
            assert there == [density == setting(problem)] * len(mentions)


def test_a_recital_is_a_passage_and_then_a_register_one_of_whose_numbers_is_asked_for():
    drawn = set()
    for problem in problems("recital-448"):
        passage, register = problem.context.split(f"\n\n{recital.HEADING}\n")
        assert not re.search(r"\d", passage)
        lines = [re.fullmatch(r"The (\w+) has the number (\d{4})\.", line) for line in register.splitlines()]
        objects, numbers = zip(*(line.groups() for line in lines), strict=True)
        assert len(lines) == int(setting(problem)) == len(set(objects)) == len(set(numbers)) == 10
        assert set(objects) <= set(recital.OBJECTS)
        drawn.add(numbers.index(problem.gold))
        assert problem.prefix == f"{recital.HEADING}\n"
    assert drawn == set(range(10))


def test_many_lines_have_a_number_each():
    task = recital.Recital(2048, lines=33, repetitions=3)
    for item in task.ids():
        numbers = re.findall(r"\d{4}", task.build(item, words).context)
        assert len(numbers) == len(set(numbers)) == 33


@looped(
    "name",
    [
        *("needle-1024", "association-1024", "needle-1536", "association-1280", "recital-448"),
        *("needle-4k-32k", "association-4k-16k", "association-moved-1024", "association-moved-4k-16k"),
        *("association-moved-448-640", "chain-16", "chain-7", "chain-7-large", "chain-8-16", "chain-12-16"),
    ],
)
def test_tasks_of_large_studies_hold_at_least_200_problems_back(name):
    assert len(splits.load(name).confirm) >= 200


def test_the_long_tasks_have_the_lengths_and_depths_of_the_paper_alike_often():
    """CrystalCache, section 4.2; its 32,768 tokens less 128, so that the answer fits in 32,768 positions."""
    for name, lengths, settings in (
        ("needle-4k-32k", (4096, 8192, 16384, 32640), ("0", "0.25", "0.5", "0.75", "1")),
        ("association-4k-16k", (4096, 8192, 16384), ("high", "low")),
    ):
        found = Counter(tuple(item.split("/")[1:3]) for item in tasks.get(name).ids())
        assert found.keys() == {(str(length), each) for length in lengths for each in settings}
        assert len(set(found.values())) == 1


@pytest.mark.parametrize("name", ["association-moved-1024", "association-moved-4k-16k", "association-moved-448-640"])
def test_a_moved_fact_stands_at_every_depth_of_a_needle_alike_often(name):
    task = tasks.get(name)
    found = Counter(tuple(item.split("/")[1:4]) for item in task.ids())
    assert len(set(found.values())) == 1
    assert {depth for *_, depth in found} == {"0", "0.25", "0.5", "0.75", "1"}
    levels = task.levels()
    assert set(levels) == set(task.ids())
    assert all(level == item.split("/")[3] for item, level in levels.items())
    confirmed = Counter(levels[item] for item in splits.load(name).confirm)
    assert min(confirmed.values()) >= 30


def test_an_association_whose_fact_is_moved_to_the_beginning_is_an_association():
    """By words: as the task that it is moved from, if values and orders were drawn alike."""
    moved = association.MovedAssociation(768, repetitions=1)
    item = moved.ids()[0]
    assert item == "association-moved/768/high/0/000"
    problem = moved.build(item, words)
    still = association.Association.build(ByThatName(768, repetitions=1), item, words)
    assert problem == still


class ByThatName(association.Association):
    def ids(self):
        return ("association-moved/768/high/0/000",)


def test_the_lengths_of_a_task_of_several_are_its_levels_and_a_single_length_is_none():
    levels = tasks.get("needle-4k-32k").levels()
    assert set(levels.values()) == {"4096", "8192", "16384", "32640"}
    assert all(level == item.split("/")[1] for item, level in levels.items())
    assert set(tasks.get("association-4k-16k").levels().values()) == {"4096", "8192", "16384"}
    assert not hasattr(tasks.get("needle-1024"), "levels")


def test_a_task_of_several_has_the_problems_of_its_parts_and_refuses_what_is_none():
    parts = (needle.Needle(256, repetitions=2), needle.Needle(300, repetitions=3))
    whole = TaskUnion(parts)
    assert whole.ids() == (*parts[0].ids(), *parts[1].ids())
    item = parts[1].ids()[4]
    assert whole.build(item, words) == parts[1].build(item, words)
    assert whole.gold(item) == parts[1].gold(item)
    assert whole.redrawn(7).build(item, words) == parts[1].redrawn(7).build(item, words)
    assert whole.recipe() == parts[0].recipe()
    for other in (parts[0], needle.Needle(300, repetitions=2, seed=7)):
        with pytest.raises(ValueError, match="must share a recipe and no id"):
            TaskUnion((parts[0], other))


def test_mentions_are_spaced_evenly_among_the_filler():
    task = tasks.get("association-768")
    for item in task.ids():
        problem = task.build(item, words)
        topic = next(topic for topic in association.TOPICS if topic.fact.stem == problem.prefix)
        pool = {"high": topic.high, "low": topic.low}[setting(problem)]
        rest = problem.context.split(stated(problem))[1].strip()
        gaps = [words(part) for part in re.split("|".join(map(re.escape, pool)), rest)]
        assert len(gaps) == len(pool) + 1
        assert max(gaps) - min(gaps) <= 20  # two sentences of the paragraph


@looped("name", EVERY)
def test_a_prompt_comes_close_to_its_length_and_never_above(name):
    for problem in problems(name):
        length = int(problem.id.split("/")[1])
        whole = sum(words(part) for part in (problem.context, problem.question, problem.prefix)) + 48
        longest = max(words(sentence) for sentence in (*filler.TOWN, *filler.ORGANISATION))
        assert length - longest < whole <= length


@looped("name", SHORT)
def test_a_rendered_prompt_comes_close_to_its_length_and_never_above(name, smollm_tokenizer):
    task = tasks.get(name)
    for item in task.ids()[:: len(task.ids()) // (1 if "topics" in name else 2 if is_long(name) else 6)]:
        problem = task.build(item, lambda text: len(smollm_tokenizer(text)["input_ids"]))
        context, _ = prompting.render(problem, smollm_tokenizer, "inside")
        length = int(item.split("/")[1])
        assert length - 48 < len(context) <= length


def test_a_problem_depends_on_its_id_alone_and_not_on_what_was_built_before():
    small, large = tasks.get("needle-768"), tasks.get("needle-768-large")
    item = small.ids()[3]
    first = small.build(item, words)
    large.build(large.ids()[0], words)
    assert small.build(item, words) == first
    assert len({small.build(other, words).context for other in small.ids()}) == len(small.ids())


def test_every_template_topic_and_a_wide_range_of_values_are_drawn():
    needles, associations = problems("needle-768-large"), problems("association-768-large")
    assert {problem.prefix for problem in needles} == {fact.stem for fact in needle.TEMPLATES}
    assert {problem.prefix for problem in associations} == {topic.fact.stem for topic in association.TOPICS}
    assert {problem.gold[0] for problem in needles} == set("123456789")


def test_filler_has_no_digits_and_no_word_that_a_question_is_about():
    asked = {"code", "number", "aurora", "archive", "locker", "combination", "station", "sailboat", "magic"}
    asked |= {"agent", "nightingale", "extraction", "formula", "temperature", "secret", "access", "registration"}
    for sentence in (*filler.TOWN, *filler.ORGANISATION):
        assert not re.search(r"\d", sentence)
        assert not asked & set(re.findall(r"[a-z]+", sentence.lower()))


# The SHA-256 of all problems of a task, as words. Registered names keep their meaning: never change these.
MEANING = {
    "needle-256": "754464f91d12f2e71ec5d3820cb050e44496b0f8b6d588f73c5c3163fc29045a",
    "association-256": "093edacc1f81bb658bc61e8add6fb1b74495941819decacf989ada9cd814d039",
    "needle-768": "e362d3d047bff5975774eeebd663db63432eed08ca39888060f5ffd0eb07c938",
    "association-768": "f121c9668560d5be60ec774a1a736f42c0c002c9004b86ddde5a286a1b31e8a3",
    "needle-768-large": "056a2c96acf5664555e1e0c71b9ff0c4c561bbf055d5167f26845f6957692865",
    "association-768-large": "fbc78e3537409913035c543babfff21c8f285e51b655e83ecc0d2eeee461303a",
    "needle-1024": "2df837a029505873399dbff34ca00127ccd9367b1be26e2082b66ffbb24a81b2",
    "association-1024": "1ef856a1dd7cb729630f490d46bfb1d5779cbdcb8cd76ea2389e2d5ab077fa60",
    "needle-1536": "694b828c13bacb3161213fbe56103f3b17403b386b3120ab43e5e829cf716d29",
    "association-1280": "8055562a1b98ba90019fb0e810db45702be000492305ba8747f2112ad1c6b60b",
    "recital-448": "748102f4619b5d0721d5faa06ddeb3f3496564e5db8731ce2a5eaf6a4259213b",
    "association-moved-1024": "2d8e3c72e6ec795e6f0f0f09074a643e71567ab4c0f7ea2a35c09660ea7137ae",
    # Of every seventeenth problem: of 32 thousand tokens each takes its time.
    "association-moved-448-640": "b529978b5e781687781d5f1e8dfaa0bcaf35652f9d47e095716872a8275b6051",
    "needle-4k-32k": "7d62fa0a7d8c475921fc05cf2121e9f36d353c582c665e344a56135ab75ef6ad",
    "association-4k-16k": "77eb54d015d4f56901ddc3d524cdc5a75363958087a9160463a7ea4e9d9606cd",
    "association-moved-4k-16k": "592d8727565c6d70f8c4cee19a5afec051bd312969ea52538bcf8a5e48a615c3",
    "needle-topics-256": "68d259c5759b9b458e7c82fe8a753a528476a4b3d4929fbbc1eb16ddc0d705c0",
    "needle-topics-448": "194a0800b6711e286c12c6de2f9de1e6371ca246a0b17bf9469ec1747d2d0e8f",
    "needle-topics-768": "dcff2547579a1448ba5920224fc111b8a1835b0f1b635e4502e152a369a63b3f",
    "needle-topics-1024": "fcc28097b8dad99499a6cafebe2174b7ae678d24b85414461fe0bf3385b44930",
    "association-topics-256": "c104c1158c4b7b57b49d80d318419c7932ed703f3018a1673cd1153829aa6719",
    "association-topics-448": "0b15c93d5ea8c8e5866d9d49c4e71d9f0935a40f68c46bf3b86991a65e57aa56",
    "association-topics-768": "b3afec85ce901b6772f22ea59682775d67e8b9bc2828d4a319275a40e31e5184",
    "association-topics-1024": "1e747d80da0bc52724e2bfcb91eeff8e4cd2cadb0ac470a449db1c37f4920730",
    "needle-topics-4k-32k": "0bba6853c00217f84ef18d903b4c3b659745bcdff03c35e4f983db8550c7f839",
    "association-topics-4k-16k": "a99140b5123af4ec05aff2893e08f9a3d34630ee8d5cda1de57e9fe056ae92a3",
    "association-topics-moved-448": "27dca0a4121ead01efc0581a55471d5d746d250154c7a2886e7346ff04435a5f",
    "association-topics-moved-4k-16k": "865e40fc786d399c0818fa77854dcc9ea28c0c144e9305835616385721b9e43a",
}


@pytest.mark.parametrize("name", SHORT)
def test_a_frozen_task_never_changes_its_problems(name):
    task = tasks.get(name)
    step = (61 if "topics" in name else 17) if is_long(name) else 1
    built = [list(task.build(item, words)[:5]) for item in task.ids()[::step]]
    assert hashlib.sha256(json.dumps(built).encode()).hexdigest() == MEANING[name]


def test_an_unknown_task_is_answered_with_the_nearest_name():
    with pytest.raises(tasks.UnknownTask, match=r"'neddle-768': unknown; did you mean 'needle-768'"):
        tasks.get("neddle-768")


@looped("item", ["needle/768/0.25/900", "needle/256/0/007", "association/768/high/000", ""])
def test_an_id_of_another_task_is_refused(item):
    with pytest.raises(BadInput, match="is not in this task"):
        tasks.get("needle-768").build(item, words)


def test_a_length_too_short_for_the_bare_problem_is_refused():
    with pytest.raises(BadInput, match="without filler, more than its length of 256"):
        tasks.get("association-256").build("association/256/high/000", len)


def test_the_largest_filler_that_fits_is_found_in_few_counts():
    """The first sentences are a little shorter than the others: each guess from them is too far, by less each time."""
    texts = ["a " * 14] * 8 + [*["b " * 15] * 19, "c " * 14] * 200

    def make(n):
        return tasks.Problem("p", " ".join(texts[:n]), "", "", "x")

    for length in (48, 160, 5_000, 32_640):
        expected, size = 0, prompt_length.TEMPLATE_TOKENS
        while (size := size + words(texts[expected])) <= length:
            expected += 1
        counts = []
        found = prompt_length.fill_to_length(
            make, length, lambda text, counts=counts: counts.append(text) or words(text)
        )
        assert found == make(expected)
        assert len(counts) <= 3 * 30  # context, question and prefix of each trial

"""Each relation is broken by a rewrite of an honest study, and named; no honest study breaks one."""

import copy
import itertools
import random
from collections import Counter
from pathlib import Path

import pytest
import simulated_records
from looped import looped
from record_rewrites import BREAKS, HEADS, an_event_leaves, an_event_while_it_answers, marked, summed
from simulated_records import DIGEST

from protocol.evidence import records
from protocol.evidence.audit import consistency
from protocol.evidence.invariants import invariant
from protocol.evidence.invariants.planned_lanes import derive_plan
from protocol.evidence.invariants.registry import INVARIANTS, UNCHECKED_FIELDS
from protocol.evidence.invariants.vocabulary import Vocabulary, parse_tokenizer
from protocol.evidence.shard_writer import ShardWriter
from protocol.formats import canonical, record_fields


class Made:
    """A study of `simulated_records`, to be rewritten: digests are mended when it is asked what is broken."""

    def __init__(self, content, phase="confirm", **settings):
        self.content, self.phase, self.words = content, phase, {}
        self.lines, self.sides = simulated_records.run(content, phase, **settings)
        self.names = [canonical.digest(side) for side in self.sides]

    def broken(self, place: Path) -> set[str]:
        with ShardWriter(place) as shard:
            names = {old: shard.keep_trajectories(side) for old, side in zip(self.names, self.sides, strict=True)}
        for line in self.lines:
            body, costs = line["body"], line["costs"]
            if cited := body["trajectory"]:
                name, _, at = cited.partition("#")
                body["trajectory"] = records.make_citation(names[name], int(at))
            assert record_fields.find_fault(body, costs) is None, "the schema alone would stop this"
        plan = derive_plan(self.content, DIGEST, self.phase, vocabularies=self.words)
        found = consistency.find_violations(plan, [self.lines], place, {})
        assert all(len(one.message) <= invariant.MAX_CHARACTERS and str(one).isprintable() for one in found)
        return {one.invariant.name for one in found}

    def lane(self, arm="full", budget="full", test=lambda body: True, at=0):
        """The body of a lane that ended well."""
        wanted = (
            line["body"]
            for line in self.lines
            if line["body"]["state"] == "ok"
            and (line["body"]["cell"]["arm"], line["body"]["cell"]["budget"]) == (arm, budget)
            and test(line["body"])
        )
        return next(itertools.islice(wanted, at, None))

    def costs(self, body):
        return next(line["costs"] for line in self.lines if line["body"] is body)

    def trajectory(self, body):
        """Its own copy of what a lane cites, at the end of the side file; nobody else cites it."""
        name, _, at = body["trajectory"].partition("#")
        side = self.sides[self.names.index(name)]
        side.append(copy.deepcopy(side[int(at)]))
        body["trajectory"] = records.make_citation(name, len(side) - 1)
        return side[-1]


@pytest.fixture(scope="module")
def studies_made():
    return {
        "inside": Made(simulated_records.lock(longest=17), seed=2),
        "outside": Made(simulated_records.lock(outside=True), seed=2),
        "failing": Made(simulated_records.lock(), seed=2, fails=0.2),
        "measured": Made(simulated_records.lock(budgets=("6", "0.4 of full")), "probe", seed=2),
        "thinking": Made(simulated_records.lock(thinking=True), seed=2, fewest=12),
        "agreeing": Made(simulated_records.lock(agreement=True), seed=2),
        "many": Made(simulated_records.lock(problems=40, together=10, budgets=("6",)), seed=1, fewest=1),
    }


@pytest.fixture
def made(studies_made):
    return copy.deepcopy(studies_made["inside"])


@looped("phase", ["confirm", "probe"])
@looped("number", range(12))
def test_an_honest_study_breaks_no_relation(tmp_path, number, phase):
    """Batches of all sizes, both cadences, questions inside and outside, exclusions and failures."""
    draw = random.Random(number)
    content = simulated_records.lock(
        interval=draw.choice([None, 1, 3, 4, 7]),
        slack=draw.random() < 0.5,
        first_event=draw.choice([0, 1, 3]),
        together=draw.choice([1, 2, 3]),
        places=draw.choice([1, 3, 5, 100]),
        outside=number % 2 == 1,
        longest=draw.choice([None, 12]),
        thinking=number % 3 == 2,
        whenever=number % 4 > 1,
    )
    made = Made(content, phase, seed=number, fails=draw.choice([0, 0.1]))
    made.words = {simulated_records.MODEL: Vocabulary(True, 8, frozenset({"</think>"}))}
    assert made.broken(tmp_path) == set()


@looped("phase", ["confirm", "probe"])
@looped("outside", [True, False])
@looped("asked", [{"b": "Say"}, {"a": "Say"}, {"a": "Say", "b": "Tell it"}])
def test_an_honest_study_whose_arms_ask_something_breaks_no_relation(tmp_path, asked, outside, phase):
    content = simulated_records.lock(asked=asked, outside=outside, places=3, together=2, interval=3)
    made = Made(content, phase, seed=5)
    assert len({line["body"]["prompt"] for line in made.lines}) == 5 * len({"", *asked.values()})
    assert made.broken(tmp_path) == set()


@looped("count", [1000, 17, 43])
@looped("outside", [True, False])
def test_an_honest_study_of_agreement_breaks_no_relation(tmp_path, outside, count):
    """Also one that was interrupted; the same records have too much where no outcome is locked."""
    content = simulated_records.lock(agreement=True, outside=outside, thinking=outside, longest=17)
    made = Made(content, seed=5)
    del made.lines[count:]
    assert made.broken(tmp_path / "of agreement") == set()
    del made.content["protocol"]["content"]["outcome"]
    assert made.broken(tmp_path / "of none") >= {"divergence"}


def test_lanes_that_are_asked_something_else_than_the_lock_says_are_named(tmp_path):
    """Whether the lock says too little, too much, or of another arm."""
    honest = Made(simulated_records.lock(asked={"b": "Say"}, places=3), seed=5)
    for asked in ({}, {"a": "Say"}, {"a": "Say", "b": "Say"}, {"b": "Say", "full": "Say"}):
        made = copy.deepcopy(honest)
        made.content["asked"] = asked
        assert "one prompt" in made.broken(tmp_path / str(len(str(asked))))
    made = copy.deepcopy(honest)
    plain = {body["problem"]: body["prompt"] for line in made.lines if (body := line["body"])["cell"]["arm"] == "a"}
    for line in made.lines:  # all prompts of a problem are one, and the lock says that an arm asks more
        line["body"]["prompt"] = plain[line["body"]["problem"]]
    assert "one prompt" in made.broken(tmp_path / "one")


@looped("whenever", [True, False])
@looped("slack", [True, False])
@looped("outside", [True, False])
def test_an_honest_study_of_lanes_that_think_and_answer_breaks_no_relation(tmp_path, slack, outside, whenever):
    content = simulated_records.lock(
        thinking=True, outside=outside, slack=slack, interval=3, first_event=2, whenever=whenever
    )
    made = Made(content, seed=7)
    made.words = {simulated_records.MODEL: Vocabulary(True, 8, frozenset({"</think>"}))}
    lanes = [line["body"] for line in made.lines]
    grown = [body for body in lanes if body["thought"] and body["cell"]["arm"] == "a"]
    assert len({body["thought"] for body in grown}) > 5
    assert any(len(body["cache"]["events"]) > 2 for body in grown)
    assert made.broken(tmp_path) == set()


@pytest.mark.parametrize("count", [0, 1, 7, 30, 63])
def test_an_unfinished_study_breaks_no_relation(tmp_path, made, count):
    del made.lines[count:]
    assert made.broken(tmp_path) == set()


@pytest.mark.parametrize(("change", "named"), BREAKS, ids=[f"{at}-{named[0]}" for at, (_, named) in enumerate(BREAKS)])
def test_a_rewrite_is_named_by_the_relation_that_it_breaks(tmp_path, studies_made, made, change, named):
    made.others = studies_made
    change(made)
    assert made.broken(tmp_path) == set(named)


def windowed(made, size):
    """As of a model with three sliding layers beside two of full attention; windows of `size` bytes."""
    made.content["layers"] = {simulated_records.MODEL: {"evictable": 2, "sliding": 3, "window": 20}}
    for side in made.sides:
        for own in side:
            own["allocated"] = [each + size for each in own["allocated"]]
    for cache in (line["body"]["cache"] for line in made.lines if line["body"]["state"] == "ok"):
        cache.update({name: cache[name] + size for name in ("mean_bytes", "peak_bytes")}, window_bytes=size)
    return made


@pytest.mark.parametrize("has_windows", [False, True])
def test_a_question_of_fewer_than_no_tokens_is_named_however_many_they_are(tmp_path, studies_made, has_windows):
    whole = copy.deepcopy(studies_made["outside"])
    if has_windows:
        windowed(whole, 3 * 2 * 20 * simulated_records.SLOT)
    for arm, budget in (("full", "full"), ("a", "6")):
        for fewer in range(1, 60):
            made = copy.deepcopy(whole)
            body = made.lane(arm, budget, lambda body: body["tokens"] > 2)
            trajectory = made.trajectory(body)
            trajectory["held"][0] += fewer * HEADS
            summed(body, trajectory)
            assert "one question" in made.broken(tmp_path / f"{arm}{fewer}")


def test_windows_are_as_large_as_the_lock_says_and_no_part_of_a_budget(tmp_path, made):
    """Two KV heads, 20 slots each in three layers; one slot less in each, and the windows of no lane told."""
    whole = 3 * 2 * 20 * simulated_records.SLOT
    honest, fewer, untold = (copy.deepcopy(made) for _ in range(3))
    assert windowed(honest, whole).broken(tmp_path / "honest") == set()
    assert windowed(fewer, whole - 6 * simulated_records.SLOT).broken(tmp_path / "fewer") == {"windows"}
    untold.content["layers"] = honest.content["layers"]
    assert untold.broken(tmp_path / "untold") == {"windows"}


def test_every_relation_is_broken_by_some_rewrite():
    assert {named[0] for _, named in BREAKS} == {relation.name for relation in INVARIANTS}


def test_every_name_is_given_once_and_every_scope_is_one_that_is_checked():
    assert max(Counter(relation.name for relation in INVARIANTS).values()) == 1
    assert {relation.scope for relation in INVARIANTS} == {"record", "trajectory", "problem", "batch", "study"}


def fields_of(table, above=""):
    """The paths of all fields, those of a table inside a table in its place."""
    for name, field in table.fields.items():
        kind = getattr(field.kind, "kind", field.kind)
        if hasattr(kind, "fields"):
            yield from fields_of(kind, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def test_every_field_is_bound_by_a_relation_or_free_for_a_reason():
    fields = {
        *fields_of(record_fields.BODY),
        *fields_of(record_fields.COSTS, "costs."),
        *fields_of(record_fields.TRAJECTORY, "trajectory."),
    }
    bound = {field for relation in INVARIANTS for field in relation.fields}
    assert bound | UNCHECKED_FIELDS.keys() == fields


def test_events_by_another_interval_than_the_locked_one_are_named(tmp_path, made):
    for arm in ("a", "b"):
        made.content["promises"][arm] = made.content["promises"][arm] | {"interval": 5}
    assert "cadence" in made.broken(tmp_path)


@pytest.mark.parametrize(("bounds", "less"), [(True, False), (False, True)])
def test_a_routing_that_bounds_may_leave_less_than_its_grant_and_none_more(tmp_path, made, bounds, less):
    made.content["promises"]["a"] |= {"leaves_exactly": not bounds, "may_leave_less": bounds}
    assert made.broken(tmp_path) == set()
    other = copy.deepcopy(made)
    an_event_leaves(made, -1)
    assert ("left" in made.broken(tmp_path)) == less
    an_event_leaves(other, 1)
    assert "left" in other.broken(tmp_path)


def test_a_press_may_leave_more_or_less_than_its_budget_and_no_more_than_there_was(tmp_path, made):
    made.content["promises"]["a"] |= {"leaves_at_most": False, "leaves_exactly": False, "is_press": True}
    for more in (-1, 1):
        other = copy.deepcopy(made)
        an_event_leaves(other, more)
        assert "left" not in other.broken(tmp_path)
    an_event_leaves(made, 1000)
    assert "left" in made.broken(tmp_path)


def test_an_event_after_the_mark_is_named_whatever_the_cadence(tmp_path, studies_made):
    """Of an arm whose cadence the lock does not tell in full, this much is known."""
    made = copy.deepcopy(studies_made["thinking"])
    made.others = studies_made
    made.content["promises"]["a"] |= {"fires": "own", "grants_budget": False}
    honest = copy.deepcopy(made)
    assert honest.broken(tmp_path / "honest") == set()
    an_event_while_it_answers(made, made.lane("a", "6", marked))
    assert made.broken(tmp_path / "cut") == {"cadence", "room", "side file"}


def test_lanes_of_the_full_cache_relabelled_as_evicting_ones_are_named(tmp_path, made):
    full = {(body["problem"], body["cell"]["seed"]): body for body in bodies(made, "full")}
    for body in bodies(made, "b"):
        whole = full[body["problem"], body["cell"]["seed"]]
        body |= {name: value for name, value in whole.items() if name not in ("cell", "slots", "batch")}
    assert {"growth", "clocks", "side file"} <= made.broken(tmp_path)


def test_budgets_swapped_within_an_arm_are_named(tmp_path, made):
    for one, other in zip(bodies(made, "a", "6"), bodies(made, "a", "0.5"), strict=True):
        one["cell"], other["cell"] = other["cell"], one["cell"]
    assert {"budget", "order"} <= made.broken(tmp_path)


def test_records_of_a_model_that_did_not_run_at_all_are_compared_all_the_same(tmp_path):
    made = Made(simulated_records.lock(longest=7))
    assert {line["body"]["state"] for line in made.lines} == {"excluded"}
    assert made.broken(tmp_path) == set()
    made.lines[0]["body"]["slots"] = 3
    assert made.broken(tmp_path) == {"budget"}


def bodies(made, arm, budget=None):
    found = (line["body"] for line in made.lines)
    return [
        body
        for body in found
        if body["cell"]["arm"] == arm and budget in (None, body["cell"]["budget"]) and body["state"] == "ok"
    ]


@looped(
    ("tokenizer", "words"),
    [
        ({"model": {"type": "WordLevel", "vocab": {"ab": 0, "abc": 1}}, "decoder": None}, Vocabulary(True, 3)),
        ({"model": {"type": "WordLevel", "vocab": {"ab": 0, "a bc": 1}}, "decoder": None}, Vocabulary(False, 4)),
        ({"model": {"type": "WordLevel", "vocab": {"ab": 0}}, "decoder": {"type": "Fuse"}}, Vocabulary(False, 2)),
        ({"model": {"type": "BPE", "vocab": {"ab": 0}}, "added_tokens": [{"content": "<end>"}]}, Vocabulary(False, 5)),
        ({"model": {"type": "Unigram", "vocab": [["ab", 0], ["abcd", -1]]}}, Vocabulary(False, 4)),
    ],
)
def test_what_a_tokenizer_says_of_texts(tokenizer, words):
    assert parse_tokenizer(tokenizer) == words

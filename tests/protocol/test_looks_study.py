"""A study with looks through the commands of the project: blocks, ledger, kills, and what an audit says of both."""

import json
import shutil
from dataclasses import replace
from unittest import mock

import pytest
import studies

from analysis.judgement.judged_folder import judge
from analysis.judgement.looks import advise
from protocol import confirm
from protocol.evidence import claim, looks
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.evidence.registration import Registration
from protocol.formats.looks import number_problems
from protocol.formats.refusals import BadInput, Tampered

pytestmark = pytest.mark.usefixtures("same_environment")

FIELDS = 'missing = "inconclusive"\nlooks = [4, 8, 12]\nspending = "pocock"'
CHANGES = {**studies.ONE_TASK, 'missing = "inconclusive"': FIELDS, "threads = 1": "threads = 1\nproblems_per_batch = 3"}


@pytest.fixture(scope="module")
def registered(tiny_model, tmp_path_factory):
    folder = studies.write(tmp_path_factory.mktemp("registrations") / "study", tiny_model, CHANGES)
    done = studies.ran(0, "register", folder)
    assert "looks: a contrast decides at 4 problems z " in done.stdout
    assert "looks: of 12 problems a study takes on average" in done.stdout
    return folder


def events(folder):
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [(line["event"], line["body"].get("word")) for line in lines]


def copy(registered, tmp_path):
    return shutil.copytree(registered, tmp_path / "registrations" / "study")


@pytest.fixture(scope="module")
def finished(registered, tmp_path_factory):
    folder = copy(registered, tmp_path_factory.mktemp("finished"))
    ask, is_asked = confirm._ask_judge, False

    def ask_once(folder):
        """The first look is judged in a process of its own, the second one here, which is faster."""
        nonlocal is_asked
        if is_asked:
            return advise(judge(folder))
        is_asked = True
        return ask(folder)

    with mock.patch.object(confirm, "_ask_judge", ask_once):
        done = studies.here("confirm", folder)
    assert done.returncode == 11, done.stderr
    assert "looks: ended at look 3 of 3, with 12 of 12 problems per task" in done.stdout
    return folder


def test_blocks_are_opened_one_by_one_and_the_judge_is_asked_between(finished):
    assert events(finished) == [
        ("register", None),
        ("claim", None),
        ("attempt", None),
        ("held-out", None),
        ("look", "go on"),
        ("held-out", None),
        ("look", "go on"),
        ("held-out", None),
        ("seal", None),
        ("verdict", None),
    ]
    study = Registration(finished)
    numbers = number_problems(study.lock.content, "needle-256")
    order = [numbers[record["body"]["problem"]] for record in study.confirm_records]
    assert order == sorted(order)
    assert [order.count(number) for number in (1, 2, 3)] == [16, 16, 16]


def test_an_audit_follows_the_looks(finished):
    studies.ran(0, "audit", finished)
    looks.check(Registration(finished))


@pytest.mark.parametrize("moment", ["before the judge", "after the judge"])
def test_killed_between_look_and_block_it_goes_on_alike(registered, finished, tmp_path, moment):
    folder = copy(registered, tmp_path)
    entered = looks.enter

    def killed(*arguments):
        if moment == "after the judge":
            entered(*arguments)
        raise KeyboardInterrupt

    with mock.patch.object(confirm, "_ask_judge", return_value="go on"), mock.patch.object(looks, "enter", killed):
        assert studies.here("confirm", folder).returncode == 130
    with mock.patch.object(confirm, "_ask_judge", return_value="go on"):
        assert studies.here("confirm", folder).returncode == 11
    sealed = [json.loads((path / "seal.json").read_text())["outcome"] for path in (folder, finished)]
    assert sealed[0] == sealed[1]
    assert studies.here("audit", folder).returncode == 0


def test_stopping_where_the_rule_does_not_is_deviated(registered, tmp_path):
    folder = copy(registered, tmp_path)
    with mock.patch.object(confirm, "_ask_judge", return_value="stop"):
        done = studies.here("confirm", folder)
    assert "it ended after look 1, although the rule did not decide there" in " ".join(done.stdout.split())
    content = json.loads((folder / "verdict.json").read_text())["judged"]
    assert content["verdict"] == "DEVIATED"
    assert json.loads((folder / "seal.json").read_text())["expected"] == 16
    assert done.returncode == 12


def test_problems_of_a_later_look_are_not_opened(registered, tmp_path):
    folder = copy(registered, tmp_path)
    study = Registration(folder)
    with claim.exclusive_run(study):
        claim.take(study)
    guard, numbers = HeldOutGuard(study.lock, folder), number_problems(study.lock.content, "needle-256")
    first = guard.ids("needle-256", "confirm")
    assert sorted(first) == sorted(problem for problem, number in numbers.items() if number == 1)
    later = next(problem for problem, number in numbers.items() if number == 2)
    with pytest.raises(BadInput, match="belongs to a look that has not been reached"):
        guard.admit("needle-256", later)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 1, "problems": 6}, "look 1 at 6 problems is not the look that is registered"),
        ({"number": 2, "problems": 8}, "look 2 at 8 problems is not the look that is registered"),
        ({"outcome": "0" * 64}, "look 1 saw records other than"),
        ({"word": "stop"}, "look 2 was made after a look that said stop"),
    ],
)
def test_a_look_that_was_not_registered_is_told(finished, change, message):
    study = Registration(finished)
    entries = [*study.entries]
    place = next(index for index, entry in enumerate(entries) if entry.event == "look")
    entries[place] = replace(entries[place], body=entries[place].body | change)
    vars(study)["entries"] = entries
    with pytest.raises(Tampered, match=message):
        looks.check(study)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"looks = [4, 8, 12]": "looks = [8, 4, 12]"}, "decision.looks: [8, 4, 12]: write them in increasing order"),
        ({"looks = [4, 8, 12]": "looks = [4, 8, 11]"}, "decision.looks: ends with 11 problems, but needle-256 has 12"),
        (
            {"seeds = [0]": "seeds = [0, 1]", "temperature = 0": "temperature = 0.5"},
            "needle-256 has several seeds, for",
        ),
        ({'\nspending = "pocock"': ""}, "decision.spending: missing"),
        ({"looks = [4, 8, 12]\n": ""}, "decision.spending: has a meaning only with looks; add looks, or leave it out"),
        ({'method = "sign-flip"': 'method = "max-t"'}, "decision.looks: max-t has not been tested with looks"),
        (
            {'method = "sign-flip"\ndraws = 10000\nseed = 7': 'method = "betting"'},
            "decision.spending: the p of betting",
        ),
        ({"[gate]": "[exclude]\nprompt_tokens_above = 4000\n[gate]"}, "decision.looks: excluded problems would change"),
        (
            {
                'rule = "superior"': 'rule = "equivalent"\nmargin = 0.01',
                "at_least = 1\n": "",
                'method = "sign-flip"': 'method = "t"',
            },
            "decision.looks: equivalent has not been tested with looks; write superior or non_inferior",
        ),
    ],
)
def test_what_was_not_tried_with_looks_is_refused_by_name(tiny_model, tmp_path, changes, message):
    folder = studies.write(tmp_path / "registrations" / "study", tiny_model, CHANGES)
    text = (folder / "protocol.toml").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "protocol.toml").write_text(text)
    studies.refused(2, message, "register", folder)
    assert [path.name for path in folder.iterdir()] == ["protocol.toml"]

"""The answers behind a contrast are those that its row counts."""

import json

import pytest
import reports
import studies

from figures.report_page import discordant_answers, judged_study


def correct(folder):
    """By lane, from the lines themselves: whether the answer is right, and the record."""
    found = {}
    for line in studies.shard_text(folder).splitlines():
        body = json.loads(line)["body"]
        cell = body["cell"]
        key = (cell["model"], cell["task"], cell["budget"], cell["arm"], cell["seed"], body["problem"])
        found[key] = body["grade"] == "correct", body
    return found


@pytest.fixture(scope="module", params=["quickstart", "retrieval"])
def files(request):
    """One with a comparator that evicts, and one of several contrasts."""
    folder = reports.SHIPPED / request.param
    return judged_study.read_judged_study(folder), correct(folder)


def test_gains_and_losses_are_those_of_a_plain_loop_over_the_records_and_as_many_as_the_row_says(files):
    read, lanes = files
    for row in read.judged["contrasts"]:
        expected = []
        budgets = {key[2] for key in lanes if key[3] == row["against"]}
        other = row["budget"] if row["budget"] in budgets else "full"
        for model, task, budget, arm, seed, problem in sorted(lanes, key=lambda key: (key[5], key[4])):
            if (model, task, budget, arm) != (row["model"], row["task"], row["budget"], row["subject"]):
                continue
            one, own = lanes[model, task, budget, arm, seed, problem]
            two, against = lanes[model, task, other, row["against"], seed, problem]
            if one != two:
                right = own if one else against
                expected.append(
                    (problem, "gain" if one else "loss", seed, own["text"], against["text"], right["answer"])
                )
        found = discordant_answers.find_discordant(read, row)
        assert sorted((*each[:5], each.gold) for each in found) == sorted(expected)
        kinds = [each.kind for each in found]
        assert (kinds.count("gain"), kinds.count("loss")) == (row["gains"], row["losses"])


def test_the_place_of_the_first_difference_is_in_both_texts(files):
    read, _ = files
    found = [each for row in read.judged["contrasts"] for each in discordant_answers.find_discordant(read, row)]
    assert found
    for each in found:
        assert each.subject[: each.common_prefix] == each.comparator[: each.common_prefix]
        assert each.subject[each.common_prefix :] != each.comparator[each.common_prefix :]


def test_at_most_so_many_of_each_kind_are_given_the_first_ones(files):
    read, _ = files
    row = max(read.judged["contrasts"], key=lambda row: min(row["gains"], row["losses"]))
    every = discordant_answers.find_discordant(read, row)
    few = discordant_answers.find_discordant(read, row, limit=1)
    assert few == [
        next(each for each in every if each.kind == kind) for kind in dict.fromkeys(each.kind for each in every)
    ]

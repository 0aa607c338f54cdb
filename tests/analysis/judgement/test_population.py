"""What a verdict says that its problems are a sample of."""

import pytest
import study

from analysis.judge import judge
from analysis.judgement.population import describe_population


def lock(table, item):
    problems = {"confirm": ["a", "b", "c"], "dev": ["d"]}
    return {"protocol": {"content": {"tasks": [{"name": "mine", **table}]}}, "items": {"mine": problems | item}}


@pytest.mark.parametrize(
    ("table", "item", "said"),
    [
        ({}, {}, "these 3 problems of mine"),
        ({}, {"population": "drawn afresh"}, "mine: 3 problems, drawn afresh"),
        ({"population": "court decisions of 2024"}, {}, "mine: 3 problems, court decisions of 2024"),
        ({}, {"clusters": {"a": "x", "b": "x"}}, "these 3 problems in 2 clusters of mine"),
        (
            {"population": "decisions"},
            {"clusters": {"a": "x", "b": "x", "c": "x", "d": "y"}},
            "mine: 3 problems in 1 clusters, decisions",
        ),
    ],
)
def test_a_population_is_the_authors_the_tasks_or_these_problems(table, item, said):
    assert describe_population(lock(table, item)) == said


def test_the_judgement_of_a_new_study_names_the_population_of_its_lock(tmp_path):
    content = study.content()
    ids = [f"p{index:03d}" for index in range(12)]
    items = {"needle": {"dev": ["d"], "confirm": ids, "population": "about 5 facts, and about no others"}}
    folder = study.write(tmp_path / "new", content, 12, lambda lane: {}, judging=2, items=items)
    assert judge(folder)["population"] == "needle: 12 problems, about 5 facts, and about no others"

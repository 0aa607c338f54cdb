"""What a verdict says that its problems are a sample of."""

import pytest
import study

from analysis.judge import judge
from analysis.judgement import judgement, study_files
from analysis.judgement.population import describe_population, describe_sample
from figures.table import verdict_table


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


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([(200,), (200,)], "n = 200 problems"),
        ([(200,), (180,)], "n ≥ 180 problems"),
        ([(200, 14)], "n = 200 problems in 14 clusters"),
        ([(200, 14, 12)], "n = 200 problems in 14 clusters (effective number 12)"),
        ([(150,), (900, 40)], "n ≥ 900 problems in 40 clusters"),  # 40 units are fewer than 150
    ],
)
def test_the_size_of_a_sample_names_its_units_and_is_that_of_the_fewest(sizes, said):
    rows = [dict(zip(("n", "clusters", "effective_clusters"), size, strict=False)) for size in sizes]
    assert describe_sample(rows) == said


def test_the_first_line_of_a_table_names_the_units(tmp_path):
    clusters = {f"p{number:03d}": str(number % 10) for number in range(200)}
    content = study.content(method="t")
    folder = study.write(tmp_path / "small", content, 200, lambda lane: {}, judging=3, chance={"needle": "0"})
    document = study_files.read_study(folder)
    items = {name: item | {"clusters": clusters} for name, item in document.lock["items"].items()}
    judged = judgement.judge_study(document._replace(lock=document.lock | {"items": items}))
    printed = " ".join(verdict_table(judged).split())
    assert "for tiny alone, no gate n = 200 problems in 10 clusters UNANCHORED" in printed

"""Ranks of the arms of a study, where the answers of each arm are stated by hand."""

import study

from analysis.exploratory.arm_ranks import rank_study
from analysis.judgement.study_files import read_study
from analysis.stats.rank_intervals import RankInterval
from figures.report_page.rendering import render

EVEN_OR_ODD = {"crystal": (0, 1), "snapkv": (0,), "h2o": (1,)}  # which problems each arm solves


def solve(lane):
    return {"grade": "correct"} if int(lane[5][1:]) % 2 in EVEN_OR_ODD.get(lane[3], (0, 1)) else {}


def ranked(folder, record=solve, content=None, **lock):
    return rank_study(read_study(study.write(folder, content or study.content(), 40, record, **lock)))


def test_an_arm_ahead_of_all_is_first_and_equal_arms_share_the_other_places(tmp_path):
    (cell,) = ranked(tmp_path / "s")
    assert cell[:4] == ("tiny", "needle", "0.5", 40)
    assert dict(cell.arms) == {"crystal": RankInterval(1, 1, 1)} | dict.fromkeys(
        ("snapkv", "h2o"), RankInterval(0.5, 2, 3)
    )
    assert cell.arms[0][0] == "crystal"
    assert cell.tied_for_best == ["crystal"]


def test_problems_that_an_arm_lacks_rank_no_arm(tmp_path):
    def lose_ten(lane):
        return None if lane[3] == "h2o" and int(lane[5][1:]) < 10 else solve(lane)

    (cell,) = ranked(tmp_path / "s", lose_ten)
    assert cell.n == 30
    assert dict(cell.arms)["crystal"].mean == 1


def test_clusters_are_resampled_whole(tmp_path):
    """Forty problems that are two clusters show no order: both signs of a difference are as likely as the other."""
    ids = [f"p{number:03d}" for number in range(40)]
    items = {"needle": {"dev": ["d"], "confirm": ids, "clusters": {one: str(int(one[1:]) // 20) for one in ids}}}
    (cell,) = ranked(tmp_path / "s", items=items)
    assert {(rank.first, rank.last) for _, rank in cell.arms} == {(1, 3)}


def test_neighbours_of_a_budget_are_no_ranking(tmp_path):
    """The subject does not run there, so that whoever is first there need not be ahead of it."""
    content = study.content(against=["snapkv", "h2o", "knorm"]) | {"neighbours": ["0.6"]}
    content["arms"] |= {"knorm": {"policy": "knorm"}}
    assert [cell.budget for cell in ranked(tmp_path / "s", content=content)] == ["0.5"]


def test_two_arms_are_no_ranking(tmp_path):
    content = study.content(against=["snapkv"])
    del content["arms"]["h2o"]
    assert ranked(tmp_path / "s", content=content) == []


def test_a_page_draws_each_interval_and_names_who_may_be_best(tmp_path):
    page = render("ranks.html", cells=ranked(tmp_path / "s"), level="95 %")
    assert "1 of 3 may be the best: crystal." in page
    assert 'aria-label="2 to 3 of 3"' in page
    assert 'd="M21 6H35"' in page  # from the middle of the second place of 14 units to that of the third

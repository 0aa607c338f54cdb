"""A policy that is not of this project is said to be so in the first lines of a verdict, with its digest."""

import pytest
import study

from analysis.judge import judge
from analysis.judgement.own_policies import describe_own_policies
from analysis.rules import verdict_line

DIGEST = "ab12" * 16
ENVIRONMENT = {"distributions": {"my-policy": {"version": "1", "files": DIGEST}}}


def judged(tmp_path, policy, judging=3):
    content = study.content(method="restricted-likelihood", memory="slots")
    content["decision"] = {name: value for name, value in content["decision"].items() if name not in ("draws", "seed")}
    for arm in content["arms"].values():
        arm["policy"] = "snapkv" if "policy" in arm and arm["policy"] != "full" else arm.get("policy")
    content["arms"]["crystal"] = {"policy": policy}
    lock = {"judging": judging, "opened": [], "parent": None, "amends": None, "environment": ENVIRONMENT}
    lock["policies"] = {"crystal": {"distribution": "my-policy"}} if policy == "small-vectors" else {}
    return judge(study.write(tmp_path / "study", content, 200, lambda lane: {}, **lock))


def test_the_first_lines_name_the_policy_its_distribution_and_its_digest(tmp_path):
    judgement = judged(tmp_path, "small-vectors")
    assert "OWN POLICY" in verdict_line.format_line(judgement)
    (reason,) = (line for line in verdict_line.list_remarks(judgement) if line.startswith("OWN POLICY"))
    assert f"crystal ran small-vectors of my-policy 1 (sha256 {DIGEST[:12]})" in reason
    assert not any("this project's implementations" in line for line in judgement["does_not_prove"])


def test_a_study_of_this_projects_policies_says_nothing_of_the_kind(tmp_path):
    judgement = judged(tmp_path, "snapkv")
    assert "OWN POLICY" not in verdict_line.format_line(judgement)
    assert any("these are this project's implementations" in line for line in judgement["does_not_prove"])


@pytest.mark.parametrize("judging", [1, 2])
def test_studies_that_ship_keep_their_words(tmp_path, judging):
    assert "OWN POLICY" not in verdict_line.format_line(judged(tmp_path, "small-vectors", judging))


def test_an_edited_lock_that_names_no_distribution_hides_nothing():
    """Whoever takes the field out of the lock still has an arm of a name that is not in the catalogue."""
    lock = {"judging": 3, "protocol": {"content": {"arms": {"mine": {"policy": "small-vectors"}}}}}
    assert "a distribution that the lock does not list" in describe_own_policies(lock)

"""The controls among the registered studies: a planted effect that is found, and a planted null that is not."""

import json
import lzma
from collections import defaultdict

import pytest
from studies import ROOT

from analysis.rules import verdict_line


def read_judged(name):
    return json.loads((ROOT / "registrations" / name / "verdict.json").read_text())["judged"]


def count_right(name):
    """{(model, budget): {arm: {problem: right}}}, by a plain loop over the lines of the records."""
    right = defaultdict(lambda: defaultdict(dict))
    packed = (ROOT / "registrations" / name / "records/shard-0.jsonl.xz").read_bytes()
    for line in lzma.decompress(packed).splitlines():
        record = json.loads(line)["body"]
        cell = record["cell"]
        right[cell["model"], cell["budget"]][cell["arm"]][record["problem"]] = record["grade"] == "correct"
    return right


@pytest.mark.parametrize(("subject", "comparator"), [("1d-per-head", "1d"), ("random", "random-twin")])
def test_a_planted_effect_is_confirmed_and_a_planted_null_is_not(subject, comparator):
    name = "control-effect" if comparator == "1d" else "control-null"
    judged = read_judged(name)
    is_effect = name == "control-effect"
    assert verdict_line.verdict_word(judged).startswith("CONFIRMED") == is_effect
    assert not is_effect or verdict_line.verdict_word(judged) == "CONFIRMED (UNWITNESSED)"
    right = count_right(name)
    for contrast in judged["contrasts"]:
        arms = right[contrast["model"], contrast["budget"]]
        ours, theirs = arms[subject], arms[comparator]
        assert len(ours) == 216
        assert ours.keys() == theirs.keys()
        gained = sum(ours[problem] - theirs[problem] for problem in ours)
        assert float(contrast["difference"]) == pytest.approx(gained / 216, abs=1e-6)
        assert contrast["better"] == is_effect
        assert not contrast["worse"]
        assert sum(theirs.values()) > 0.15 * 216  # a guess is right in one of ten
        differing = sum(ours[problem] != theirs[problem] for problem in ours)
        assert differing > 0.2 * 216  # an effect, or its absence, on answers that do differ

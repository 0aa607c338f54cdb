"""Files that lm-eval 0.4.13 and inspect_ai 0.3.285 wrote themselves: tests/peers/made_here.py made them."""

import json
from pathlib import Path

import pytest
import study

from analysis.compare.__main__ import main
from analysis.judgement.judged_folder import judge

MADE = Path(__file__).parent / "made"
SAME = ["difference", "low", "high", "low_simultaneous", "high_simultaneous", "p", "p_holm"]


def compared(capsys, *arguments: object) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def by_the_study(folder: Path, method: str, own: list[bool], other: list[bool]) -> list[list[str]]:
    """What the study's own analysis says of lanes with these grades."""
    scores = {"crystal": own, "snapkv": other, "h2o": other, "full": own}

    def record(lane: study.Lane) -> dict[str, str]:
        return {"grade": "correct" if scores[lane[3]][int(lane[5][1:])] else "wrong"}

    content = study.content(method=method, against=["snapkv"])
    rows = judge(study.write(folder, content | {"seeds": [0]}, len(own), record))["contrasts"]
    return [[row[name] for name in SAME] for row in rows]


def of_lm_eval(arm: str, kept: str) -> list[bool]:
    lines = (MADE / arm / "samples_chain_dev.jsonl").read_text().splitlines()
    return [line["exact_match"] == 1 for line in map(json.loads, lines) if line["filter"] == kept]


@pytest.mark.parametrize("method", ["auto", "sign-flip"])
@pytest.mark.parametrize("kept", ["strict", "flexible"])
def test_samples_of_lm_eval_have_the_intervals_of_a_study(tmp_path, capsys, kept, method):
    own, other = of_lm_eval("full", kept), of_lm_eval("snapkv", kept)
    assert (len(own), own != other) == (20, True)
    options = ["--filter", kept, "--method", method, "--seed", 7]
    found = compared(capsys, MADE / "full", MADE / "snapkv", *options)
    rows = [[row[name] for name in SAME] for row in found["contrasts"]]
    assert rows == by_the_study(tmp_path / "study", method, own, other)


def test_logs_of_inspect_ai_have_the_intervals_of_a_study(tmp_path, capsys):
    own, other = (
        [sample["scores"]["pattern"]["value"] == "C" for sample in json.loads(path.read_text())["samples"]]
        for path in (MADE / "long.json", MADE / "short.json")
    )
    assert (sum(own), sum(other)) == (11, 4)  # as `inspect` says: accuracy .55 and .2
    found = compared(capsys, MADE / "long.json", MADE / "short.json", "--method", "auto")
    rows = [[row[name] for name in SAME] for row in found["contrasts"]]
    assert rows == by_the_study(tmp_path / "study", "auto", own, other)
    assert found["contrasts"][0]["task"] == "chain_dev"
    assert not any("paired by id alone" in one for one in found["said"])


def test_an_eval_file_is_read_or_refused_with_the_way_out(capsys):
    """It is packed with zstd, which Python reads from 3.14 on, and before that with another package."""
    status = main([str(MADE / "long.json"), str(MADE / "short.eval"), "--json"])
    out, err = capsys.readouterr()
    if status == 0:
        assert json.loads(out)["contrasts"] == compared(capsys, MADE / "long.json", MADE / "short.json")["contrasts"]
    else:
        assert "is compressed with zstd; pip install '.[compare]', or" in err


def test_two_harnesses_are_not_taken_for_the_same_questions(capsys):
    """Their ids differ, and neither knows the other's questions."""
    assert main([str(MADE / "full"), str(MADE / "long.json"), "--filter", "strict", "--metric", "exact_match"]) == 2
    assert "metric: 'exact_match' does not exist; choose one of pattern" in capsys.readouterr().err

"""What kv-prereg policies says of a policy that a registration measured, and of one that none did."""

import tomllib

import pytest

import policies
from policies import agreements
from policies.__main__ import main
from policies.contract import UnknownPolicy

MEASURED = """
[[agreement]]
study = "made-up"
model = "tiny"
task = "chain"
reading = "dropped"
budget = "32"
arm = "mine"
policy = "h2o"
changed = "policy h2o, scoring.window = 8"
traces = 34
kept = "0.474"
auc = "0.839"
accuracy = "0.471"
low = "0.817"
high = "0.861"
"""


def test_a_measured_policy_says_where_and_how_much_and_no_other_does(tmp_path, monkeypatch, capsys):
    file = tmp_path / "agreements.toml"
    file.write_text(MEASURED)
    monkeypatch.setattr(agreements, "FILE", file)
    assert main(["h2o"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "made-up (policy h2o, scoring.window = 8), tiny, chain, dropped, budget 32: keeps 0.474 of the "
        "needed tokens, AUC 0.839 [0.817, 0.861]; 0.471 of 34 answers correct"
    ) in said
    assert "one eviction" in said
    assert main(["snapkv"]) == 0
    assert "Agreement" not in capsys.readouterr().out


def test_without_the_file_or_a_row_nothing_is_said(tmp_path):
    assert agreements.format_agreement("h2o", tmp_path / "none.toml") == []
    (tmp_path / "empty.toml").write_text("# nothing\n")
    assert agreements.format_agreement("h2o", tmp_path / "empty.toml") == []


def test_what_lies_here_can_be_read():
    tomllib.loads(agreements.FILE.read_text("utf-8"))


def test_the_oracle_is_no_policy_and_its_name_says_why():
    with pytest.raises(UnknownPolicy, match="which no policy can know"):
        policies.get("oracle-occlusion")
    assert "oracle-occlusion" not in policies.names()

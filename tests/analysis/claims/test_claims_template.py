"""The template of a file of claims runs as it stands, and its page shows what it prints."""

import re

import pytest
from studies import ROOT

from analysis.claims.__main__ import main

PAGE = (ROOT / "docs" / "claims.md").read_text()


def test_the_template_runs_and_reports_its_impossible_cell(tmp_path, capsys):
    path = tmp_path / "paper.toml"
    assert main(["--template", str(path)]) == 0
    assert main([str(path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    # By hand: 63.2 % of 200 is 126.4; 126 and 127 round to 63.0 and 63.5; of 400 answers, 253 round to 63.2 or 63.3.
    assert "3 of 4 values are possible means. Cannot come from 200 problems with 1 answer each: 63.2" in printed
    assert printed.endswith("arithmetic follows: 1; inference undecidable: 1; none not printed: 1")
    (example,) = re.findall(r"prints this \(in part\):\n```\n(.*?)```", PAGE, re.DOTALL)
    for part in example.replace(" ... ", "\n").split("\n"):
        assert " ".join(part.split()) in printed


def test_a_template_replaces_no_file(tmp_path, capsys):
    path = tmp_path / "paper.toml"
    path.write_text("mine")
    assert main(["--template", str(path)]) == 2
    assert path.read_text() == "mine"
    assert re.fullmatch(rf"FileExistsError: {re.escape(str(path))}: .*\n", capsys.readouterr().err)


@pytest.mark.parametrize("typed", [[], ["a.toml", "--template", "b.toml"]])
def test_files_or_a_template_are_asked_for(typed, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(typed)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1

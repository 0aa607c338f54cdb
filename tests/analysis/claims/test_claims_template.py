"""The template of a file of claims runs as it stands, and its page shows what it prints."""

import re

import pytest
from studies import ROOT

from analysis.claims.__main__ import TEMPLATE, main

PAGE = (ROOT / "docs" / "claims.md").read_text()


def test_the_template_runs_and_reports_its_impossible_cell(tmp_path, capsys):
    path = tmp_path / "paper.toml"
    assert main(["--template", str(path)]) == 0
    assert main([str(path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    # By hand: 63.2 % of 200 is 126.4; 126 and 127 round to 63.0 and 63.5; of 400 answers, 253 round to 63.2 or 63.3.
    assert "3 of 4 values are possible means. These cannot come from 200 problems with 1 answer each: 63.2" in printed
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


NOTATION = "; correct the form; python -m pydoc analysis.claims.expression lists what a form may contain"


@pytest.mark.parametrize(
    ("this", "other", "says"),
    [
        ("n = 200", "n = -1", 'table[0].n: -1; write a positive integer or "unknown"'),
        ('"74.5"', "74.5", 'table[0].values.ours|task A: 74.5; write the digits as printed, in quotes: "0.750"'),
        ('"74.5"', '"174.5"', "table[0].values.ours|task A: '174.5' is not a percent; check the unit"),
        ('"percent"', '"points"', "table[0].unit: 'points'; answers are printed as share or percent"),
        ('id = "3"', 'id = "2"', "claim.id: '2' occurs twice; give each entry its own id"),
        (
            "unprinted('memory')",
            "open('memory')",
            f"claim 3: holds: 'open' is not a function, a list or a form of this file{NOTATION}",
        ),
        ("A') == 3.5", "Z') == 3.5", f"claim 1: holds: table 'Table 1' has no cell 'theirs|task Z'{NOTATION}"),
        ("== 3.5", "== 9**9**9", f"claim 1: holds: '9**9**9' is not allowed in this notation{NOTATION}"),
        ("< 0.05", "< {}", f"claim 2: carried: '{{}}' is not allowed in this notation{NOTATION}"),
        (
            "unprinted('memory')",
            "v('Table 2', 'x') == 1",
            f"claim 3: holds: \"v('Table 2', 'x') == 1\": the file has no table 'Table 2'{NOTATION}",
        ),
    ],
)
def test_a_mistake_is_one_line_with_file_place_and_fix(tmp_path, capsys, this, other, says):
    text, path = TEMPLATE.read_text(), tmp_path / "paper.toml"
    assert this in text
    path.write_text(text.replace(this, other))
    assert main([str(path)]) == 2
    assert capsys.readouterr() == ("", f"ClaimError: {path}: {says}\n")

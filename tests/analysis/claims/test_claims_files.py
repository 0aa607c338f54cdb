"""Files of published claims: what is refused, the verdicts of the shipped ones, and the document of them."""

import json
import tomllib
from pathlib import Path

import pytest

from analysis.claims.__main__ import main
from analysis.claims.markdown import document
from analysis.claims.reading import ClaimError, read
from analysis.claims.verdicts import findings, table_findings

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "analysis" / "published").glob("*.toml"))
DOCUMENT = ROOT / "docs" / "published_claims.md"

GOOD = """format = 1
[source]
key = "p"
title = "T"
authors = "A"
link = "unknown"
[[table]]
id = "1"
title = "means"
of = "answers"
unit = "share"
n = 30
draws = 1
[table.values]
a = "0.700"
b = {value = "0.500", n = 20}
[[claim]]
id = "C1"
where = "Table 1"
sentence = "a is above b"
holds = "v('1', 'a') > v('1', 'b')"
"""


@pytest.fixture(scope="module")
def papers():
    return [read(path) for path in FILES]


@pytest.fixture(scope="module")
def verdicts(papers):
    return {
        found.claim.id: (found.consistent, found.supported) for paper in papers for found in findings(paper)
    }


def write(tmp_path, text):
    path = tmp_path / "claims.toml"
    path.write_text(text)
    return path


def test_a_good_file_is_read(tmp_path):
    paper = read(write(tmp_path, GOOD))
    assert paper.tables["1"].n == {"a": 30, "b": 20}
    assert paper.cell("1", "a").answers == (21, 30)
    assert paper.cell("1", "b").answers == (10, 20)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("n = 30\n", "", "table[0].n: is missing"),
        ("n = 30", "n = 0", "table[0].n: 0"),
        ("n = 30", "n = true", "table[0].n: True"),
        ("n = 30", 'n = "about 30"', "table[0].n"),
        ("draws = 1\n", "", "table[0].draws: is missing"),
        ("format = 1", "format = 2", "format: 2"),
        ("format = 1\n", "", "format: is missing"),
        ('of = "answers"', 'of = "accuracy"', "table[0].of: 'accuracy' is unknown"),
        ('of = "answers"', 'of = "measures"', "have none; remove it"),
        ('unit = "share"', 'unit = "points"', "table[0].unit"),
        ('a = "0.700"', "a = 0.7", "table[0].values.a"),
        ('a = "0.700"', "a = nan", "table[0].values.a"),
        ('a = "0.700"', 'a = "nan"', "table[0].values.a: 'nan'"),
        ('a = "0.700"', 'a = "70.0"', "check the unit"),
        ('a = "0.700"', 'a = "-0.7"', "check the unit"),
        ('a = "0.700"', 'a = "0.700"\na = "0.800"', "is no TOML"),
        ('a = "0.700"\nb = {value = "0.500", n = 20}\n', "", "has no cell"),
        ("n = 20}", "n = 20, m = 1}", "table[0].values.b.m: unknown key"),
        (", n = 20}", "}", "table[0].values.b.n: is missing"),
        ('title = "means"', 'title = ""', "table[0].title"),
        ('title = "means"', 'titel = "means"', "table[0].titel: unknown key"),
        ('holds = "', 'hold = "', "claim[0].hold: unknown key"),
        ('where = "Table 1"\n', "", "claim[0].where: is missing"),
        (
            "[[claim]]",
            '[[claim]]\ncarried = "1 < 2"\ncannot = "no"',
            "claim[0].cannot: stands beside carried",
        ),
        ('link = "unknown"', 'link = "unknown"\nyear = 2026', "source.year: unknown key"),
        ('link = "unknown"', 'link = "unknown"\n[names]\nx = 3', "names.x: 3"),
    ],
)
def test_a_bad_file_is_refused_with_its_key_and_the_fix(tmp_path, old, new, says):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ClaimError) as refused:
        read(path)
    assert str(refused.value).startswith(str(path))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("block", ["[[table]]", "[[claim]]"])
def test_an_id_that_stands_twice_is_refused(tmp_path, block):
    start = GOOD.index(block)
    end = GOOD.index("[[claim]]") if block == "[[table]]" else len(GOOD)
    with pytest.raises(ClaimError, match="stands twice"):
        read(write(tmp_path, GOOD + GOOD[start:end]))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ClaimError, match="cannot be read"):
        read(tmp_path / "none.toml")


def audited(tmp_path, **changes):
    text = GOOD
    for old, new in changes.values():
        text = text.replace(old, new)
    paper = read(write(tmp_path, text))
    return findings(paper)[0], table_findings(paper)[0]


def test_a_claim_about_the_table_is_supported_by_the_table(tmp_path):
    found, table = audited(tmp_path)
    assert (found.consistent, found.supported) == ("consistent", "supported")
    assert table.impossible == ()


def test_a_claim_that_fails_is_inconsistent_and_not_supported(tmp_path):
    found, _ = audited(tmp_path, claim=("> v('1', 'b')", "< v('1', 'b')"))
    assert (found.consistent, found.supported) == ("inconsistent", "not supported")


def test_a_claim_that_needs_what_is_not_printed_is_left_open(tmp_path):
    found, _ = audited(tmp_path, claim=("v('1', 'a') > v('1', 'b')", "unprinted('it')"))
    assert (found.consistent, found.supported) == ("not printed", "undecidable")


def test_a_stated_reason_leaves_a_consistent_claim_open(tmp_path):
    found, _ = audited(tmp_path, claim=("holds = ", 'cannot = "no spread"\nholds = '))
    assert (found.consistent, found.supported, found.because) == ("consistent", "undecidable", "no spread")


def test_a_lead_within_chance_is_not_supported(tmp_path):
    # 21 against 20 of 30: one discordant problem has p = 1, more have no less.
    found, _ = audited(
        tmp_path,
        cell=('b = {value = "0.500", n = 20}', 'b = "0.667"'),
        claim=("holds = ", "carried = \"paired(v('1', 'a'), v('1', 'b')) <= 0.05\"\nholds = "),
    )
    assert (found.consistent, found.supported) == ("consistent", "not supported")


def test_an_impossible_mean_is_named_with_the_draws_that_would_allow_it(tmp_path):
    # 0.717 of 30 is 21.5; of 60 it is 43.02, 43/60 = 0.7167.
    _, table = audited(tmp_path, cell=('a = "0.700"', 'a = "0.717"'))
    assert table.impossible == ("a",)
    assert "Cannot come from 30 problems with 1 answer each: 0.717 (a);" in table.because
    assert "possible with 2 draws a problem" in table.because


def test_unknown_draws_are_answered_by_those_that_fit(tmp_path):
    changes = {"draws": ("draws = 1", 'draws = "unknown"'), "cell": ('a = "0.700"', 'a = "0.717"')}
    _, table = audited(tmp_path, **changes)
    assert table.impossible == ()
    assert "possible with 2, 4, 6" in table.because


def test_four_papers_are_shipped():
    assert [path.stem for path in FILES] == ["crystal_kv", "crystalcache", "epikv", "minimal_intervention"]


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        # The paper's branch rule on its own numbers.
        ("M007", ("consistent", "supported")),
        # +1.0 and -1.9 are no means of 164 and 196 paired differences.
        ("M018", ("inconsistent", "not supported")),
        # 0.184 / 0.417 = 44 %, printed as 77 %.
        ("C051", ("inconsistent", "not supported")),
        # 60 samples: leads of 1 to 5 answers among the 12.
        ("C001", ("consistent", "not supported")),
        # 20 against 10 of 60.
        ("C003", ("consistent", "undecidable")),
        # 20 against 5 of 60: at most p = 0.004.
        ("C004", ("consistent", "supported")),
        # RaaS has 1238.7 s against 763 s.
        ("E016", ("inconsistent", "not supported")),
        # 72 against 71 of 100.
        ("E001", ("consistent", "not supported")),
        # 56.90 / 41.99 = 1.36, said to be at most 1.24.
        ("K012", ("inconsistent", "not supported")),
        ("K010", ("consistent", "undecidable")),
    ],
)
def test_known_outcomes_of_the_shipped_files(verdicts, claim, verdict):
    assert verdicts[claim] == verdict


def test_the_two_impossible_differences_need_a_baseline_over_other_problems():
    # Both follow, rounded to one decimal, when the baseline keeps all 201 problems.
    assert round(100 * (27 / 164 - 31 / 201), 1) == 1.0
    assert round(100 * (11 / 196 - 15 / 201), 1) == -1.9
    means = [21 / 200 - 16 / 201, 27 / 164 - 31 / 201, 11 / 196 - 15 / 201, 0]
    assert round(100 * sum(means) / 4, 2) == 0.43


def test_every_id_is_its_own(papers):
    ids = [claim.id for paper in papers for claim in paper.claims]
    assert len(ids) == len(set(ids))


def test_the_document_is_the_one_that_the_files_give(papers):
    assert document(papers) == DOCUMENT.read_text(encoding="utf-8")


def test_every_table_and_every_sentence_is_in_the_document():
    rows = DOCUMENT.read_text(encoding="utf-8").splitlines()
    for path in FILES:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        for table in content["table"]:
            assert any(row.startswith(f"| {table['id']} | {table['title']} |") for row in rows)
        for claim in content["claim"]:
            cells = f"| {claim['id']} | {claim['where']} | {claim['sentence']} |".replace("|rho|", r"\|rho\|")
            assert any(row.startswith(cells) for row in rows)


def test_the_command_prints_a_table_and_json(tmp_path, capsys):
    path = write(tmp_path, GOOD)
    assert main([str(path)]) == 0
    assert "C1     consistent    supported      a is above b" in capsys.readouterr().out
    assert main([str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["papers"][0]["claims"][0]["supported"] == "supported"
    assert printed["papers"][0]["tables"][0]["impossible"] == []


def test_the_command_writes_the_document(tmp_path, capsys):
    path = write(tmp_path, GOOD)
    assert main([str(path), "--markdown", str(tmp_path / "out.md")]) == 0
    assert "| C1 | Table 1 | a is above b |" in (tmp_path / "out.md").read_text()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("old", "new"), [("format = 1", "format = 9"), ("v('1', 'a') >", "v('1', 'z') >")])
def test_the_command_refuses_in_one_line_and_writes_nothing(tmp_path, capsys, old, new):
    path = write(tmp_path, GOOD.replace(old, new))
    assert main([str(path), "--markdown", str(tmp_path / "out.md")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ClaimError: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out.md").exists()


def test_the_help_is_the_docstring(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert (
        "Exit status: 0 the audit ran, whatever it found; 2 a file cannot be read." in capsys.readouterr().out
    )

"""Files of published claims: what is refused, and the verdicts of the shipped ones."""

import json
import re
from pathlib import Path

import pytest
from looped import looped

from analysis.claims.__main__ import main
from analysis.claims.functions import INFERENTIAL
from analysis.claims.paper_file import ClaimError, read_paper
from analysis.claims.verdicts import UNCHECKED, VERDICTS, judge_claims, judge_tables

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "analysis" / "published").glob("*.toml"))

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
    return [read_paper(path) for path in FILES]


@pytest.fixture(scope="module")
def audits(papers):
    return [(paper, judge_claims(paper)) for paper in papers]


@pytest.fixture(scope="module")
def verdicts(audits):
    return {found.claim.id: (found.level, found.verdict) for _, each in audits for found in each}


def write(tmp_path, text):
    path = tmp_path / "claims.toml"
    path.write_text(text)
    return path


def test_a_good_file_is_read(tmp_path):
    paper = read_paper(write(tmp_path, GOOD))
    assert paper.tables["1"].n == {"a": 30, "b": 20}
    assert paper.cell("1", "a").answers == (21, 30)
    assert paper.cell("1", "b").answers == (10, 20)


@looped(
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
        ('of = "answers"', 'of = "measures"', "a table of measures does not have this key; remove it"),
        ('unit = "share"', 'unit = "points"', "table[0].unit"),
        ('a = "0.700"', "a = 0.7", "table[0].values.a"),
        ('a = "0.700"', "a = nan", "table[0].values.a"),
        ('a = "0.700"', 'a = "nan"', "table[0].values.a: 'nan'"),
        ('a = "0.700"', 'a = "70.0"', "check the unit"),
        ('a = "0.700"', 'a = "-0.7"', "check the unit"),
        ('a = "0.700"', 'a = "0.700"\na = "0.800"', "invalid TOML"),
        ('a = "0.700"\nb = {value = "0.500", n = 20}\n', "", "is empty; transcribe at least one cell"),
        ("n = 20}", "n = 20, m = 1}", "table[0].values.b.m: unknown key"),
        ("[[table]]", "[table]", "table: write [[table]], with two brackets, not a table"),
        ("[source]", "[[source]]", "source: write one table, [source], not a list"),
        ("format = 1", 'format = "1"', "format: write a whole number, not '1'"),
        ('where = "Table 1"', 'wher = "Table 1"', "claim[0].wher: unknown key; did you mean 'where'?"),
        (", n = 20}", "}", "table[0].values.b.n: is missing"),
        ('title = "means"', 'title = ""', "table[0].title"),
        ('title = "means"', 'titel = "means"', "table[0].titel: unknown key"),
        ('holds = "', 'hold = "', "claim[0].hold: unknown key"),
        ('where = "Table 1"\n', "", "claim[0].where: is missing"),
        (
            "[[claim]]",
            '[[claim]]\ncarried = "1 < 2"\ncannot = "no"',
            "claim[0].cannot: a claim may not have both this and carried",
        ),
        ('link = "unknown"', 'link = "unknown"\nyear = 2026', "source.year: unknown key"),
        ('link = "unknown"', 'link = "unknown"\n[names]\nx = 3', "names.x: 3"),
        ("[[claim]]", '[[equation]]\nid = "e"\nwhere = "1"\nprinted = "e"\n[[claim]]', "equation[0].form: is missing"),
        (
            "[[claim]]",
            '[[equation]]\nid = "e"\nwhere = "1"\nprinted = "e"\nform = "1"\nlevel = "x"\n[[claim]]',
            "equation[0].level: unknown key",
        ),
        ("[[claim]]", '[[claim]]\nlevel = "inference"', "claim[0].level: unknown key"),
    ],
)
def test_a_bad_file_is_refused_with_its_key_and_the_fix(tmp_path, old, new, says):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ClaimError) as refused:
        read_paper(path)
    assert str(refused.value).startswith(str(path))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("block", ["[[table]]", "[[claim]]"])
def test_an_id_that_stands_twice_is_refused(tmp_path, block):
    start = GOOD.index(block)
    end = GOOD.index("[[claim]]") if block == "[[table]]" else len(GOOD)
    with pytest.raises(ClaimError, match="occurs twice"):
        read_paper(write(tmp_path, GOOD + GOOD[start:end]))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ClaimError, match="no such file"):
        read_paper(tmp_path / "none.toml")


def audited(tmp_path, **changes):
    text = GOOD
    for old, new in changes.values():
        text = text.replace(old, new)
    paper = read_paper(write(tmp_path, text))
    return judge_claims(paper)[0], judge_tables(paper)[0]


def judged(tmp_path, **changes):
    found, _ = audited(tmp_path, **changes)
    return found.level, found.verdict


def test_an_order_in_the_table_follows_by_arithmetic_and_is_not_called_supported(tmp_path):
    found, table = audited(tmp_path)
    assert (found.level, found.verdict) == ("arithmetic", "follows")
    assert table.impossible == ()


def test_a_claim_that_fails_does_not_follow(tmp_path):
    assert judged(tmp_path, claim=("> v('1', 'b')", "< v('1', 'b')")) == ("arithmetic", "does not follow")


@pytest.mark.parametrize(("said", "verdict"), [("0.700", "alike"), ("0.701", "differs")])
def test_a_number_of_the_sentence_is_compared_with_its_copy(tmp_path, said, verdict):
    assert judged(tmp_path, claim=("> v('1', 'b')", f"== {said}")) == ("transcribed", verdict)


def test_a_claim_that_needs_what_is_not_printed_is_left_open(tmp_path):
    claim = ("v('1', 'a') > v('1', 'b')", "v('1', 'a') > v('1', 'b') and unprinted('it')")
    assert judged(tmp_path, claim=claim) == ("none", "not printed")


def test_a_stated_reason_leaves_a_consistent_claim_open(tmp_path):
    found, _ = audited(tmp_path, claim=("holds = ", 'cannot = "no spread"\nholds = '))
    assert (found.level, found.verdict, found.because) == ("none", "no test", "no spread")


def test_a_stated_reason_excuses_no_contradiction(tmp_path):
    changes = {"claim": ("holds = ", 'cannot = "no spread"\nholds = '), "sign": ("> v(", "< v(")}
    assert judged(tmp_path, **changes) == ("arithmetic", "does not follow")


@pytest.mark.parametrize(
    "form", ["2 > 1", "4 * 5 * 3 == 60", "v('1', 'a') > v('1', 'b') and 1 + 1 == 2", "len(['x']) == 1"]
)
def test_a_check_of_literals_is_refused(tmp_path, form):
    with pytest.raises(ClaimError, match="claim C1: holds compares no printed number"):
        audited(tmp_path, claim=("v('1', 'a') > v('1', 'b')", form))


@pytest.mark.parametrize("form", ["v('1', 'a') > 0.5", "passing('holm', [0.001]) == 1", "1 < 2"])
def test_nothing_is_carried_without_a_test_of_printed_numbers(tmp_path, form):
    with pytest.raises(ClaimError, match="claim C1: carried uses no test or interval"):
        audited(tmp_path, claim=("holds = ", f'carried = "{form}"\nholds = '))


def test_a_lead_within_chance_is_not_supported(tmp_path):
    # 21 against 20 of 30: one discordant problem has p = 1, more have no less.
    found, _ = audited(
        tmp_path,
        cell=('b = {value = "0.500", n = 20}', 'b = "0.667"'),
        claim=("holds = ", "carried = \"paired(v('1', 'a'), v('1', 'b')) <= 0.05\"\nholds = "),
    )
    assert (found.level, found.verdict) == ("inference", "not supported")


def test_an_impossible_mean_is_named_with_the_draws_that_would_allow_it(tmp_path):
    # 0.717 of 30 is 21.5; of 60 it is 43.02, 43/60 = 0.7167.
    _, table = audited(tmp_path, cell=('a = "0.700"', 'a = "0.717"'))
    assert table.impossible == ("a",)
    assert "These cannot come from 30 problems with 1 answer each: 0.717 (a);" in table.because
    assert "possible with 2 draws per problem" in table.because


def test_unknown_draws_are_answered_by_those_that_fit(tmp_path):
    changes = {"draws": ("draws = 1", 'draws = "unknown"'), "cell": ('a = "0.700"', 'a = "0.717"')}
    _, table = audited(tmp_path, **changes)
    assert table.impossible == ()
    assert "possible with 2, 4, 6" in table.because


def test_four_papers_and_a_blog_post_are_shipped():
    assert [path.stem for path in FILES] == [
        "crystal_kv",
        "crystalcache",
        "crystalcache_blog",
        "epikv",
        "minimal_intervention",
    ]


@looped(
    ("claim", "verdict"),
    [
        # The paper's branch rule on its own numbers.
        ("M007", ("arithmetic", "follows")),
        # +1.0 and -1.9 are no means of 164 and 196 paired differences.
        ("M018", ("arithmetic", "does not follow")),
        # Two of four printed p pass at 0.05 / 4.
        ("M009", ("inference", "supported")),
        # Without Llama b=64 the means are +1.00 at 0.5 and +1.17 at 1.5.
        ("M045", ("arithmetic", "does not follow")),
        # 0.184 / 0.417 = 44 %, printed as 77 %.
        ("C051", ("arithmetic", "does not follow")),
        # 60 samples: leads of 1 to 5 answers among the 12.
        ("C001", ("inference", "not supported")),
        # 20 against 10 of 60.
        ("C003", ("inference", "undecidable")),
        # 20 against 5 of 60: at most p = 0.004.
        ("C004", ("inference", "supported")),
        # 45 against 26 of 60 among ten comparisons: 10 x 2 / 2^19 to 10 x 0.0094.
        ("C006", ("inference", "undecidable")),
        # 0.600, 0.600 in both tables.
        ("C153", ("transcribed", "alike")),
        # 2 x 32 x 8 x 128 x 2 bytes are 128 KiB a token.
        ("C155", ("arithmetic", "follows")),
        # (26.05 - 17.35) GiB over 28,672 tokens are 326 kB a token.
        ("C157", ("arithmetic", "does not follow")),
        # RaaS has 1238.7 s against 763 s.
        ("E016", ("arithmetic", "does not follow")),
        # 72 against 71 of 100.
        ("E001", ("inference", "not supported")),
        # 56.90 / 41.99 = 1.36, said to be at most 1.24.
        ("K012", ("arithmetic", "does not follow")),
        ("K010", ("none", "no test")),
        ("K024", ("none", "not printed")),
        # 0.7^4 / 0.3 = 0.80.
        ("K025", ("arithmetic", "does not follow")),
        # 214 and 16 steps.
        ("B001", ("arithmetic", "does not follow")),
        ("B002", ("arithmetic", "does not follow")),
        # Steepness 2.0 and 5.0.
        ("B013", ("transcribed", "differs")),
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


def called(paper, form):
    """Every function that a form reaches, through the names of its file."""
    names, left = set(), [form]
    while left:
        for word in set(re.findall(r"[A-Za-z_]\w*", left.pop())) - names:
            names.add(word)
            if isinstance(paper.names.get(word), str):
                left.append(paper.names[word])
    return names


def test_the_levels_are_exclusive_and_inference_uses_a_test(audits):
    words = {level.name.lower(): set(each.values()) for level, each in VERDICTS.items()}
    words["none"] = set(UNCHECKED)
    assert sum(map(len, words.values())) == len(set.union(*words.values()))
    for paper, each in audits:
        for found in each:
            assert found.verdict in words[found.level], found.claim.id
            tests = INFERENTIAL & called(paper, found.claim.holds + " " + found.claim.carried)
            if found.level == "inference":
                assert tests, found.claim.id
            if not found.claim.carried and not tests:
                assert found.level != "inference", found.claim.id


def test_every_equation_is_used(papers):
    for paper in papers:
        used = set.union(*(called(paper, f"{claim.holds} {claim.carried}") for claim in paper.claims))
        for equation in paper.equations:
            assert equation.id in used


def test_every_id_is_its_own(papers):
    ids = [claim.id for paper in papers for claim in paper.claims]
    assert len(ids) == len(set(ids))


def test_the_command_prints_a_table_and_json(tmp_path, capsys):
    path = write(tmp_path, GOOD)
    assert main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "C1     arithmetic   follows          a is above b" in out
    assert out.endswith("arithmetic follows: 1\n")
    assert main([str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    claim = printed["papers"][0]["claims"][0]
    assert (claim["level"], claim["verdict"]) == ("arithmetic", "follows")
    assert printed["papers"][0]["tables"][0]["impossible"] == []


def test_a_claim_about_a_number_that_no_count_gives_is_reported_and_the_others_are_judged(tmp_path, capsys):
    """17 of 50 is 0.340 and 18 of 50 is 0.360: nothing gives 0.345."""
    text = GOOD.replace('a = "0.700"', 'a = "0.345"').replace("v('1', 'a') >", "paired(v('1', 'a'), v('1', 'b')) <")
    assert text.count("0.345") == text.count("paired") == 1
    assert main([str(write(tmp_path, text)), "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)["papers"][0]
    assert (judged["claims"][0]["level"], judged["claims"][0]["verdict"]) == ("none", "no test")
    assert judged["claims"][0]["numbers"].startswith("no count of ")
    assert "gives 0.345 (a)" in judged["claims"][0]["numbers"]
    assert judged["tables"][0]["impossible"] == ["a"]


@pytest.mark.parametrize(("old", "new"), [("format = 1", "format = 9"), ("v('1', 'a') >", "v('1', 'z') >")])
def test_the_command_refuses_in_one_line(tmp_path, capsys, old, new):
    path = write(tmp_path, GOOD.replace(old, new))
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ClaimError: ")
    assert error.count("\n") == 1


def test_the_help_is_the_docstring(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    assert "Exit status: 0 the audit ran, whatever its result; 2 a file cannot be read." in capsys.readouterr().out

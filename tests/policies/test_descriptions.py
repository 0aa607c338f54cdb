"""`kv-prereg policies`, and the one line that each policy has there."""

import contextlib
import io
import re
import runpy
import sys

import pytest
from looped import looped
from studies import ROOT

import policies
from policies import __main__ as command
from policies.descriptions import FAMILIES
from policies.settings import setting_paths
from policies.structure import structure
from protocol.formats.policy_facts import read_policy_facts

DESCRIPTIONS = read_policy_facts()


def run(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = command.main([*arguments])
        except SystemExit as stopped:
            status = int(stopped.code or 0)
    return status, out.getvalue(), err.getvalue()


def test_every_policy_of_the_catalogue_is_described():
    assert set(policies.names()) <= DESCRIPTIONS.keys()


def test_nothing_is_described_twice():
    texts = [path.read_text() for path in (ROOT / "policies").rglob("*.py")]
    assert sum(text.count("PolicyFacts(") for text in texts) == len(DESCRIPTIONS)


@looped("name", DESCRIPTIONS)
def test_a_description_is_one_short_line_with_a_source(name):
    family, line, source, *_ = DESCRIPTIONS[name]
    assert family in FAMILIES
    assert 0 < len(line) <= 90
    assert source
    assert line.isprintable()
    assert source.isprintable()
    assert re.search(r"arXiv:\d{4}\.\d{5}$|^ours$|^Po-Ting Lin, CrystalCache", source)


def test_two_papers_whose_policies_have_nearly_one_name_are_told_apart():
    assert "not Crystal-KV" in DESCRIPTIONS["crystal"].line
    for name in ("crystal-kv", "crystal-kv-lite"):
        assert "not CrystalCache" in DESCRIPTIONS[name].line
    assert "Lag-KV" in DESCRIPTIONS["lagkv-causal"].line


@looped("name", [name for name, one in DESCRIPTIONS.items() if one.line.startswith("as ")])
def test_what_a_policy_is_said_to_be_like_is_one_too(name):
    parent = DESCRIPTIONS[name].line.split()[1].strip(",")
    assert parent in DESCRIPTIONS


def test_all_are_listed_once_by_family():
    status, out, err = run()
    assert (status, err) == (0, "")
    listed = re.findall(r"^  (\S+)", out, re.MULTILINE)
    assert sorted(listed) == sorted(policies.names())
    heads = re.findall(r"^([\w-]+): ", out, re.MULTILINE)
    assert heads == [family for family in FAMILIES if family in heads]
    assert max(map(len, out.splitlines())) <= 125


@looped(
    ("name", "says"),
    [
        ("full", "needs nothing; never evicts; protects nothing"),
        ("streaming", "needs nothing; evicts while decoding; protects slots"),
        ("snapkv", "arXiv:2404.14469; needs attention; evicts while decoding; protects slots"),
        ("tova", "needs attention; evicts while decoding; protects nothing"),
        ("scissorhands", "needs attention; no eviction steps while decoding; protects slots"),
        ("knorm", "needs keys and values; evicts while decoding; protects nothing"),
        ("crystal", "needs attention, keys and values; evicts while decoding; protects slots"),
        ("variant_b", "needs keys and values, calibrated statistics (text, traces); evicts while decoding"),
        ("h2o", "protects slots"),
        ("raas", "protects slots"),
    ],
)
def test_what_a_policy_needs_is_asked_of_it(name, says):
    _, out, _ = run()
    (told,) = re.findall(rf"^  {re.escape(name)} (.*(?:\n   .*)*)", out, re.MULTILINE)
    assert says in " ".join(told.split())


def test_a_family_is_listed_alone():
    status, out, _ = run("--family", "stored")
    assert status == 0
    stored = ["knorm", "keydiff", "lagkv", "keydiff-blocks", "lagkv-blocks"]
    assert re.findall(r"^  (\S+)", out, re.MULTILINE) == stored


@looped("name", policies.names())
def test_one_policy_is_told_with_every_setting_by_its_path(name):
    status, out, _ = run(name)
    assert status == 0
    policy = policies.get(name)
    for path, text in structure(policy).items():
        assert re.search(rf"^    {re.escape(path)} +{re.escape(text)}$", out, re.MULTILINE), path
    assert all(path in structure(policy) for path in setting_paths(policy))
    assert DESCRIPTIONS[name].line in out


@looped(
    ("name", "opens"),
    [
        ("snapkv", "    Keep the last `window` slots and, of the others, those with the largest pooled"),
        ("1d", "    Keep the highest scores of `QueryStatistics`, one set for all layers and heads"),
        ("crystal-blog", "    The variant of the author's blog post: chunks of 128"),
        ("crystal-still", "    Description of crystal, from which it starts:"),
        ("1d_div-1.5", "    Description of triattention, from which it starts:"),
        ("chunkkv-20", "    Description of chunkkv, from which it starts:"),
    ],
)
def test_one_policy_is_told_in_the_words_of_its_factory(name, opens):
    assert f"\n\n{opens}" in run(name)[1]


@looped(
    ("arguments", "said"),
    [
        (("sanpkv",), "UnknownPolicy: no policy named 'sanpkv'; did you mean 'snapkv'?\n"),
        (("--family", "epi"), "UnknownPolicy: no family named 'epi'; did you mean 'epikv'?\n"),
        (("--family", "zzz"), "UnknownPolicy: no family named 'zzz'; write one of controls, positions,"),
        (("snapkv", "--family", "epikv"), "name a policy or a family, not both"),
        (("--force",), "kv-prereg policies: unknown option"),
        (("a\x1b[31m",), r"no policy named 'a\x1b[31m'; kv-prereg policies lists all"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(arguments, said):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "\x1b" not in err


def test_help_says_what_it_does():
    status, out, _ = run("--help")
    assert status == 0
    assert "Exit status: 0 listed; 2 the policy or family does not exist." in out
    assert "kv-prereg policies snapkv" in out


def test_policies_of_other_distributions_are_listed_and_not_described(tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text("import policies\nnewest = policies.get('streaming')\n")
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    points = ("newest = elsewhere:newest", "odd\x1b[2K = elsewhere:newest", "broken = nowhere:it")
    (info / "entry_points.txt").write_text("\n".join(["[kv_prereg.policies]", *points]))
    monkeypatch.syspath_prepend(str(tmp_path))
    status, out, _ = run()
    assert status == 0
    _, _, others = out.partition("\npolicies of other distributions, which are not described here:\n")
    assert "  newest\n" in others
    assert "needs nothing; evicts while decoding; protects slots" in others
    assert "  odd\\u001b[2K\n" in others
    said = " ".join(others.split())
    assert (
        "cannot be loaded (ModuleNotFoundError: No module named 'nowhere'); repair or uninstall its distribution"
        in said
    )
    assert "from another distribution, which is not described here" in run("newest")[1]
    assert "not described here" not in run("--family", "stored")[1]
    sys.modules.pop("elsewhere", None)


def test_it_is_run_by_its_name(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["policies", "--family", "controls"])
    monkeypatch.delitem(sys.modules, "policies.__main__")
    with pytest.raises(SystemExit) as done:
        runpy.run_module("policies", run_name="__main__", alter_sys=True)
    assert done.value.code == 0
    assert capsys.readouterr().out.startswith("controls: ")

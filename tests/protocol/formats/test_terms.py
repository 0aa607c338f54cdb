"""Every word that a command prints for a state, a verdict or a column is explained, once and in one place."""

import contextlib
import importlib
import io
import re
from typing import get_args

import pytest
import studies
from looped import looped

from analysis.rules import verdict_line
from figures import table
from figures.drawing import page
from figures.report_page import glossary
from protocol import command, status
from protocol.evidence.audit import study_status
from protocol.formats import terms
from protocol.formats.findings import Finding
from protocol.formats.terms import GROUPS, TERMS

# How a table abbreviates, by the term that explains it.
COLUMNS = {
    "against": "comparator",
    "arms": "arm",
    "slots": "slot",
    "charge": "charged",
    "failed": "failed lane",
    "better": "better, worse",
    "worse": "better, worse",
    "unmatched": "matched",
}
PLAIN = {"model", "task", "tokens", ""}  # said in everybody's words
JUDGED = sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/verdict.json"))


def test_a_term_is_explained_once_in_sentences():
    assert len(TERMS) == sum(map(len, GROUPS.values()))
    for term, meaning in TERMS.items():
        assert meaning == " ".join(meaning.split()), term
        assert meaning.endswith("."), term
        assert meaning[0].isupper() or meaning.startswith(("confirm", "max_new_tokens")), term


def test_every_state_of_a_study_is_explained():
    states = {*get_args(study_status.State)} - {"locking"} | {"locking was interrupted", "unfinished"}
    assert states <= {*TERMS}
    assert states <= {*status.TERMS}


def test_every_status_of_an_audit_is_explained():
    assert {*get_args(Finding.__annotations__["status"])} <= {*TERMS}


def test_every_verdict_is_explained_alike_in_a_report():
    assert {*command.EXIT_STATUS} == {*glossary.VERDICTS}
    assert all(glossary.VERDICTS[word] == TERMS[word] for word in command.EXIT_STATUS)


def test_every_column_of_a_table_is_explained():
    columns = {*table.CONTRAST_HEADINGS, *table.ARM_HEADINGS, "charge", "arms", "better", "worse", "unmatched"} - PLAIN
    assert {COLUMNS.get(name, name) for name in columns} <= {*TERMS}


@looped("folder", JUDGED, ids=lambda folder: folder.name)
def test_a_capital_word_of_a_verdict_is_explained(folder):
    capital = {*re.findall(r"\b[A-Z]{6,}\b", table.verdict_table(page.read_judged(folder)))}
    assert capital
    assert capital <= {word for term in TERMS for word in term.split()}


@looped("name", ["protocol.status", "protocol.audit", "protocol.register", "figures.table"])
def test_the_help_of_a_command_explains_its_terms(name):
    module, out = importlib.import_module(name), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        module.main(["--help"])
    told = " ".join(out.getvalue().split())
    assert "words:" in told
    explained = module.EXPLAINED_TERMS if name == "figures.table" else module.TERMS
    assert explained
    assert all(f"{word} {TERMS[word]}" in told for word in explained)


def test_words_stand_in_columns_that_fit():
    lines = terms.format_terms("slot", "simultaneous interval", "charged").splitlines()
    assert lines[0] == "words:"
    assert lines[1].startswith("  slot                   One stored pair")
    assert max(map(len, lines)) <= terms.WIDTH + 2
    with pytest.raises(KeyError):
        terms.format_terms("a word that nobody explains")


# What readers who came new to the project could not parse, and what is said instead.
REPLACED = {
    "was to be significantly": "it was required that crystal is significantly better; observed: ",
    "made-up stud": "simulated studies",
    "is no TOML": "invalid TOML",
    "but for what is not here": "not checkable here: ",
    "4 of 5 ": "80 % power per contrast",
    "Arrowhead: it goes on": "the interval continues beyond the axis",
}


@looped("words", REPLACED)
def test_words_that_newcomers_could_not_read_stand_in_no_code_that_prints(words):
    packages = ("protocol", "analysis", "figures", "policies", "kv_prereg")
    paths = [path for package in packages for path in (studies.ROOT / package).rglob("*.py")]
    assert len(paths) > 500
    assert [path.name for path in paths if words in " ".join(path.read_text("utf-8").split())] == []


def test_a_small_study_is_said_to_decide_nothing():
    assert verdict_line.SCREENED in TERMS
    assert "200" in TERMS[verdict_line.SCREENED]

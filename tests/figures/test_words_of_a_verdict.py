"""What stands where a verdict stands: a screening decides nothing, one model is one, gates may fail."""

import judgements
import pytest

from figures.drawing import formatting, page
from figures.report_page import report_index, report_sections, report_tables
from figures.table import verdict_table
from protocol import command, status
from protocol.formats.vocabulary import VERDICT_WORDS

SCREENED = {"verdict": "SCREENED", "rule_says": "CONFIRMED"}
PASSED = {"arm": "full", "passed": True, "places": []}
PLACE = {"model": "tiny", "task": "needle-512", "lanes": 287, "accuracy": "0.000000", "needed": "0.500000"}
PLACE |= {"cut": "1.000000", "at_most": "0.100000", "no_answer": "1.000000", "passed": False}
PLACE |= {"why": ["the full cache answers 0 of 287 (gate: 0.50)"]}
FAILED = {"arm": "full", "passed": False, "places": [PLACE]}


def printed(**changes) -> dict[str, str]:
    """The places where a verdict is printed as one line."""
    judged = judgements.judgement(**changes)
    return {
        "confirm and figures.table": verdict_table(judged).splitlines()[0],
        "drawings": page.study_status(judged),
        "forest plot": formatting.outcome_text(judged),
        "report": report_sections.render_verdict_line(judged),
        "index": formatting.verdict_text(judged),
        "status": status.format_verdict(judged),
    }


def test_a_screening_says_everywhere_that_it_decides_nothing():
    for place, line in printed(**SCREENED, gate=PASSED).items():
        assert "SCREENED" in line, place
        assert "(the rule says CONFIRMED; n = 96 decides nothing)" in line, place


def test_a_verdict_on_one_model_says_everywhere_for_which():
    for word in ("CONFIRMED", "REFUTED", "INCONCLUSIVE"):
        for place, line in printed(verdict=word, gate=PASSED).items():
            assert "for tiny alone" in line, place
    two = judgements.sixteen()
    assert "alone" not in formatting.outcome_text(two)
    assert "alone" not in status.format_verdict(two)


def test_a_failed_gate_is_named_wherever_the_word_stands():
    for place, line in printed(gate=FAILED).items():
        assert "INCONCLUSIVE for tiny alone, uninformative" in line.replace("</strong>", ""), place
    table = " ".join(verdict_table(judgements.judgement(gate=FAILED)).split())
    assert "uninformative: the full cache answers 0 of 287 (gate: 0.50)" in table


def test_a_study_without_a_gate_says_so_and_one_of_before_there_were_gates_in_its_table():
    for place, line in printed(gate=None).items():
        assert "no gate" in line, place
    assert "no gate: nothing shows" in " ".join(verdict_table(judgements.judgement()).split())
    assert "no gate" not in formatting.outcome_text(judgements.judgement())


def test_an_old_verdict_keeps_its_word_below_two_hundred_problems():
    for place, line in printed(verdict="CONFIRMED").items():
        assert "CONFIRMED" in line, place
        assert "SCREENED" not in line, place


def test_the_table_of_the_gate_has_what_was_needed_and_what_was_reached():
    found = report_tables.gate_table(FAILED | {"places": [PLACE | {"published": "0.503000", "margin": "0.030000"}]})
    for cell in ("0.0", "50.0", "100.0", "10.0", "50.3 ± 3.0", "no"):
        assert f">{cell}<" in found, cell


@pytest.mark.parametrize("word", VERDICT_WORDS)
def test_every_word_has_an_exit_status_and_is_counted_by_the_index(word):
    assert command.EXIT_STATUS[word] == {"CONFIRMED": 0, "REFUTED": 10, "DEVIATED": 12}.get(word, 11)
    assert word in status.count_states([])


def test_the_index_counts_those_confirmed_for_one_model_alone():
    entries = [
        report_index.Entry(name, "judged", "", verdict=word, is_single_model=alone)
        for name, word, alone in (("a", "CONFIRMED", True), ("b", "CONFIRMED", False), ("c", "SCREENED", True))
    ]
    text = report_index.render_index(entries)
    assert "3 registered, 3 judged: 2 CONFIRMED (1 for one model alone)" in text
    assert ", 1 SCREENED" in text


def test_a_qualifier_stands_beside_the_verdict_everywhere_and_its_reason_follows():
    reused = {"word": "RE-USED", "text": "all problems were opened by study-1"}
    changes = {"verdict": "CONFIRMED", "gate": PASSED, "population": "these 3 topics", "qualifiers": [reused]}
    for place, line in printed(**changes).items():
        assert "CONFIRMED [RE-USED] for tiny alone" in line.replace("</strong>", ""), place
    head = verdict_table(judgements.judgement(**changes)).splitlines()[1:3]
    assert head == ["population: these 3 topics", "RE-USED: all problems were opened by study-1"]
    report = report_sections.render_verdict_line(judgements.judgement(**changes))
    assert "<p>population: these 3 topics</p>\n<p>RE-USED: all problems were opened by study-1</p>" in report
    assert "SCREENED" in verdict_table(judgements.judgement(**SCREENED, qualifiers=[reused])).splitlines()[0]


def test_a_judgement_without_qualifiers_is_printed_as_before_they_existed():
    line = report_sections.render_verdict_line(judgements.judgement(verdict="CONFIRMED", gate=PASSED))
    assert "<strong>CONFIRMED</strong> for tiny alone" in line
    assert line.endswith("</p>")
    assert line.count("</p>") == 1

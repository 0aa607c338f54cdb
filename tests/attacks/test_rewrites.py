"""An author writes a finished study anew: every digest, chain and count fits, and the meaning is another.

Each such rewrite is named by an item of the audit. Those that nothing in a folder can tell are listed with
what can.
"""

import json
import re

import pytest
import rewrites_downgraded
import rewrites_of_documents
import rewrites_of_folders
import rewrites_of_locks
import rewrites_of_protocols
import rewrites_of_records
import rewrites_of_witnesses
import rewrites_refused
import rewriting
import studies
import undetectable_rewrites
from rewrite_cases import Case, cases
from sampled import sampled

from protocol import audit
from protocol.audit import AuditOptions
from protocol.evidence.registration import Registration
from protocol.formats.findings import Finding
from protocol.messages import audit_page as texts

pytestmark = pytest.mark.usefixtures("installed_once")
TOLD = ("failed", "cannot tell", "unfinished")
THREATS = studies.ROOT / "docs" / "threat-model.md"
REWRITES = cases(
    rewrites_of_locks,
    rewrites_of_protocols,
    rewrites_of_records,
    rewrites_of_documents,
    rewrites_of_folders,
    rewrites_of_witnesses,
    rewrites_refused,
    rewrites_downgraded,
)
UNDETECTABLE = cases(undetectable_rewrites)


@pytest.fixture
def opened(request, confirmed, swept):
    def open_one(case: Case):
        return rewriting.read_study({"plain": confirmed, "sweep": swept}[case.study])

    return open_one


@pytest.fixture
def rewritten(opened, tmp_path):
    """The folder that the author of a case leaves."""

    def edit(case: Case, place: str = "."):
        rewrite = opened(case)
        case.edit(rewrite)
        return rewriting.write_study(rewrite, tmp_path / place / "study")

    return edit


def audited(folder, asked=None):
    """The findings by item, in a process that has read nothing of it before."""
    return {
        finding.item: finding for finding in audit.audit(Registration(folder), (), asked or AuditOptions()).findings
    }


@pytest.mark.parametrize("study", ["plain", "sweep"])
def test_a_rewrite_that_edits_nothing_is_the_same_folder(study, confirmed, swept, tmp_path):
    folder = {"plain": confirmed, "sweep": swept}[study]
    before = studies.snapshot(folder)
    after = studies.snapshot(rewriting.write_study(rewriting.read_study(folder), tmp_path / "study"))
    assert {name: before[name] for name in after} == after
    beside = {name for name in before.keys() - after.keys() if not name.startswith("figures/")}
    assert beside == {".gitattributes", "report.html"}
    assert {one.status for one in audited(tmp_path / "study").values()} <= {"held", "not run", "cannot tell"}


@pytest.mark.parametrize("case", sampled(REWRITES, of=8), ids=lambda case: f"{case.of}-{case.name}")
def test_a_rewrite_is_named(case, rewritten):
    found = audited(rewritten(case))
    told = {item: one for item, one in found.items() if one.status == case.status}
    assert [
        item for item, one in told.items() if re.fullmatch(case.item, item) and re.search(case.words, one.detail)
    ], {item: one for item, one in found.items() if one.status in ("failed", "cannot tell")}


@pytest.mark.parametrize(
    "case",
    [
        rewrites_downgraded.a_later_release_graded_the_answers,
        rewrites_downgraded.another_library_computed_a_p_below_the_level,
        rewrites_downgraded.the_policy_of_an_arm_is_one_that_nobody_has,
    ],
    ids=lambda case: case.name,
)
def test_while_something_cannot_be_told_no_verdict_is_printed(case, rewritten):
    """Neither the author's word nor the auditor's own, which would rest on what could not be checked."""
    folder = rewritten(case)
    words = re.compile("CONFIRMED|REFUTED|INCONCLUSIVE|SCREENED")
    for options in ([], ["--details"], ["--json"]):
        done = studies.ran(7, "audit", folder, *options)
        if case.item != "judgement":  # which is told with both words
            assert not words.search(done.stdout)
        elif options != ["--json"]:
            assert not words.search(done.stdout.splitlines()[-1])
    assert json.loads(done.stdout)["verdict"] is None
    assert not words.search(studies.ran(7, "audit_changed", folder / "lock.json").stdout)


def test_every_class_of_attack_on_a_folder_has_a_rewrite_and_there_are_many():
    """A7 is no rewrite, A8 an option (below), A12 in test_edited_parents.py."""
    assert {case.of for case in REWRITES} == {f"A{number}" for number in (1, 2, 3, 4, 5, 6, 9, 10, 11, 13)}
    assert len(REWRITES) == len({case.name for case in REWRITES}) >= 60


def test_a_lock_that_nobody_signed_fails_where_a_signature_is_asked_for(opened, tmp_path):
    """A8: the author took the signature out, and everything cites the unsigned lock."""
    signers = tmp_path / "signers"
    signers.write_text("somebody@example.org ssh-ed25519 AAAA\n")
    folder = rewriting.write_study(opened(REWRITES[0]), tmp_path / "study")
    assert audited(folder)["signature"].status == "not run"
    assert audited(folder, AuditOptions(signers=signers))["signature"].status == "failed"


def test_what_a_hostile_judge_would_do_was_not_done_and_no_escape_is_sent(rewritten, tmp_path):
    """A3, A5: the author's code is not run, and what he wrote is shown and not sent."""
    judge, clears = (
        next(case for case in REWRITES if case.name == name)
        for name in ("the_locked_judge_writes_and_prints", "a_problem_clears_the_screen_of_whoever_reads_it")
    )
    for case in (judge, clears):
        folder = rewritten(case, case.of)
        before = studies.snapshot(tmp_path)
        for options in ([], ["--details"], ["--json"]):
            done = studies.here("audit", folder, *options)
            assert "\x1b" not in done.stdout + done.stderr
            assert "everything held; CONFIRMED, ANCHORED" not in done.stdout.splitlines()
            assert done.returncode in (3, 7)
        assert studies.snapshot(tmp_path) == before


@pytest.mark.parametrize("case", sampled(UNDETECTABLE, of=4), ids=lambda case: f"{case.of}-{case.name}")
def test_what_no_folder_can_show_passes_an_audit(case, rewritten):
    found = audited(rewritten(case))
    outside = {"commit", "history"}  # which a folder outside a repository lacks
    assert {item: one for item, one in found.items() if one.status in TOLD and item not in outside} == {}


def test_the_page_on_threats_names_what_no_folder_can_show():
    assert [case.name for case in UNDETECTABLE if case.words not in THREATS.read_text()] == []


@pytest.mark.parametrize("name", ["bad_problems_were_too_long", "the_prompts_were_longer"])
def test_a_replay_of_one_lane_tells_prompts_that_are_not_those_of_the_problems(name, rewritten):
    case = next(case for case in UNDETECTABLE if case.name == name)
    found = audited(rewritten(case), AuditOptions(replay=1, nonce="cd" * 16))
    assert found["replay"].status == "failed"
    assert re.search("prompt_tokens: recorded", found["replay"].detail)


def test_excluded_problems_are_counted_and_said_to_be_unproven(rewritten):
    case = undetectable_rewrites.bad_problems_were_too_long
    folder = rewritten(case)
    rewrite = rewriting.read_study(folder)
    problems = len({lane.problem for lane in rewrite.confirmed})
    found = audited(folder)
    assert found["grid"].detail.endswith(f"one record each; 8 of {problems} problems are excluded")
    said = f"That the 8 excluded problems (of {problems}) were too long: --replay checks each of them."
    for replayed in (False, True):
        found["replay"] = Finding("replay", "held" if replayed else "not run", "")
        unproven = texts.list_unproven(Registration(folder), found.values(), anchored=True)
        assert (said in unproven) is not replayed

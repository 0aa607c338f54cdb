"""An author who has the tools rewrites what happened, so that every file fits every other. Then only somebody
or something outside the folder can tell.
"""

import shutil
import subprocess

import studies
from attacking import Repository, assert_audit_names, findings, repository, rewrite_ledger

from protocol.evidence import ledger


def test_the_clock_is_turned_back_a_year(study):
    """Times in a ledger prove nothing: it holds with any of them, and nothing is anchored by them."""
    lines = [(entry.event, entry.body) for entry in ledger.read(study)]
    rewrite_ledger(study, lambda _: None)
    assert [(entry.event, entry.body) for entry in ledger.read(study)] == lines
    done = studies.here("audit", study, "--require-anchor")
    assert done.returncode != 0
    assert "UNANCHORED" in done.stdout


def test_commit_dates_are_moved(history, tmp_path):
    """The verdict is committed with a date before that of the lock: ancestry counts, dates do not."""
    root = tmp_path / "repository"
    shutil.copytree(history["register"], root)
    inside = Repository(root)
    inside.git(
        "commit",
        "--amend",
        "--quiet",
        "--no-edit",
        "--date",
        "2030-01-01T00:00:00Z",
        GIT_COMMITTER_DATE="2030-01-01T00:00:00Z",
    )
    shutil.copytree(history["confirm"] / "registrations", root / "registrations", dirs_exist_ok=True)
    inside.commit("confirmed", date="2001-01-01T00:00:00Z")
    study = root / "registrations" / "study"
    assert findings(study)["history"]["status"] == "held"
    assert "2001" not in findings(study)["history"]["detail"]


def test_bad_lines_are_taken_out_of_the_ledger_and_all_is_committed_again(study):
    """A probe disappears: the chain is mended, claim, seal and verdict would have to be, too."""

    def forget(lines):
        del lines[1]

    rewrite_ledger(study, forget)
    repository(study).commit("tidied")
    assert_audit_names(study, "history", "ledger.jsonl")


def test_a_shallow_clone_hides_the_history(study, tmp_path):
    """What a clone does not have it cannot tell: that is said, and is no forgery."""
    clone = tmp_path / "clone"
    source = f"file://{repository(study).root}"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", source, str(clone)], check=True)
    studies.ran(0, "audit", clone / "registrations" / "study")
    told = findings(clone / "registrations" / "study")["history"]
    assert told["status"] == "cannot tell"
    assert "shallow" in told["detail"]


def test_the_folder_is_taken_out_of_its_repository(study, tmp_path):
    alone = shutil.copytree(study, tmp_path / "alone" / "study")
    told = findings(alone)
    assert (told["history"]["status"], told["commit"]["status"]) == ("cannot tell", "cannot tell")
    assert studies.here("audit", alone).returncode == 0


def test_everything_is_made_anew_in_a_new_repository(history, tmp_path):
    """The limit: nothing in the folder shows it, so the verdict line keeps saying UNANCHORED, and who
    asks for a witness is told that there is none.
    """
    root = tmp_path / "anew"
    shutil.copytree(history["confirm"] / "registrations", root / "registrations")
    inside = Repository(root)
    inside.git("init", "--quiet", "--initial-branch=main")
    inside.commit("the only commit that there ever was")
    study = root / "registrations" / "study"
    assert "UNANCHORED" in studies.ran(0, "audit", study).stdout
    asked = studies.ran(5, "audit", study, "--require-anchor")
    assert "anchor" in asked.stdout + asked.stderr

"""Commands that repeat a verdict without an audit print none that the records do not say, and no line of its own."""

import hashlib
import json
import shutil

import pytest
import rewriting
import studies
from attacking import rewrite

from analysis.judgement import recorded_judgement, shipped_verdicts
from analysis.judgement.untrusted_files import RecordError
from figures import report, table

HELD = "everything held; CONFIRMED, ANCHORED"
EDITS = {
    "word": {"rule_says": "CONFIRMED"},
    "title": {"title": "A study of an 8B model"},
    "title with a line": {"title": f"A study\n{HELD}"},
    "limits": {"does_not_prove": ["Reviewed by a committee."]},
    "label": {"label": "confirmatory-grade"},
    "number": "p",
}


@pytest.fixture(params=EDITS)
def edited(request, confirmed, tmp_path):
    """A study whose verdict says something else; the ledger cites it."""
    rewritten = rewriting.read_study(confirmed)
    rewritten.keeps_judgement = True

    def edit(verdict: dict) -> None:
        change = EDITS[request.param]
        verdict["judged"].update(change) if isinstance(change, dict) else verdict["judged"]["contrasts"][0].update(
            p="0.0"
        )

    rewritten.later["verdict"] = edit
    return rewriting.write_study(rewritten, tmp_path / "registrations" / "study")


def test_no_command_prints_a_verdict_that_the_records_do_not_support(edited, capsys):
    for name in ("in-toto", "predicate", "croissant"):
        assert "8B" not in studies.ran(3, "export", edited, "--format", name).stdout
    for main in (table.main, report.main):
        assert main([str(edited)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "does not follow from its records" in said.err or "contains a text with a line break" in said.err
    assert not (edited / "report.html").exists()
    problem = studies.content(edited / "lock.json")["items"]["needle-256"]["confirm"][0]
    done = studies.here("show", edited, "--problem", problem)
    assert (done.returncode, done.stdout) == (3, ""), done.stdout + done.stderr
    done = studies.ran(3, "status", edited)
    assert "INVALID" in done.stdout
    assert done.stdout.split()[1] == "INVALID:"
    assert report.main([str(edited.parent)]) == 0
    page = (edited.parent / "index.html").read_text()
    assert "INVALID" in page
    assert "8B" not in page.replace("does not follow from its records", "").split("INVALID")[0]


def test_an_honest_verdict_is_printed_and_shipped_ones_are_known(confirmed, capsys):
    recorded_judgement.refuse_unsupported(confirmed)
    shipped = [path.read_bytes() for path in sorted((studies.ROOT / "registrations").glob("*/verdict.json"))]
    assert {hashlib.sha256(data).hexdigest() for data in shipped} >= shipped_verdicts.SHIPPED_VERDICTS
    assert table.main([str(confirmed)]) == 0
    assert "SCREENED" in capsys.readouterr().out


def test_a_shipped_verdict_with_another_word_is_not_a_shipped_one(tmp_path):
    folder = shutil.copytree(studies.ROOT / "registrations" / "quickstart", tmp_path / "quickstart")
    recorded_judgement.refuse_unsupported(folder)
    rewrite(folder / "verdict.json", lambda content: content["judged"].update(verdict="CONFIRMED"))
    with pytest.raises(RecordError, match="does not follow from its records"):
        recorded_judgement.refuse_unsupported(folder)


@pytest.mark.parametrize("name", [f"study\n{HELD}", f"study\u2028{HELD}", f"study\r{HELD}", f"study\x85{HELD}"])
def test_a_folder_whose_name_has_a_line_is_refused_by_name(confirmed, tmp_path, name, monkeypatch):
    folder = shutil.copytree(confirmed, tmp_path / "registrations" / name)
    for command in ("audit", "status"):
        with pytest.raises(SystemExit):
            studies.here(command, folder)
    for command, argument in (("status", folder.parent), ("audit_changed", folder / "lock.json")):
        done = studies.ran(2, command, argument)
        assert "has a line break in its name; rename the folder" in done.stderr
        assert HELD not in (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("field", ["title", "question"])
def test_a_title_with_a_line_is_not_registered(tmp_path, tiny_model, field):
    text = (
        "A study for the test suite" if field == "title" else "Does crystal beat random on a model that knows nothing?"
    )
    folder = studies.write(tmp_path / "registrations" / "study", tiny_model, {f'"{text}"': f'"A study\\n{HELD}"'})
    assert f"{field}: contains a line break; write it in one line" in studies.ran(2, "register", folder).stderr


def test_a_title_begins_no_tag_in_an_export(confirmed, tmp_path):
    rewritten = rewriting.read_study(confirmed)
    title = "Less <script>alert(1)</script> and p < 0.05"
    rewritten.content["title"] = title
    folder = rewriting.write_study(rewritten, tmp_path / "registrations" / "study")
    for name in ("osf", "aspredicted"):
        done = studies.here("export", folder, "--format", name, "--json")
        text = json.loads(done.stdout)["text"]
        assert "&lt;script>" in text
        assert "p < 0.05" in text
        assert "<script" not in text

import pytest
import reports

from figures import report


def unjudged(folder):
    (folder / "verdict.json").unlink()


def unclaimed(folder):
    (folder / "claim.json").unlink()


def another_lock(folder):
    (folder / "lock.json").write_text((folder / "lock.json").read_text().replace("needle", "noodle"))


def another_seal(folder):
    (folder / "seal.json").write_text((folder / "seal.json").read_text().replace('"ok":', '"nok":'))


def torn_ledger(folder):
    (folder / "ledger.jsonl").write_text('{"event":\n')


def no_ledger(folder):
    (folder / "ledger.jsonl").unlink()


def unknown_word(folder):
    reports.rewrite(folder, verdict=lambda content: content["judged"].update(verdict="PROVEN"))


def no_contrast(folder):
    reports.rewrite(folder, verdict=lambda content: content["judged"].update(contrasts=[]))


def unknown_method(folder):
    reports.rewrite(folder, verdict=lambda content: content["judged"].update(method="<b>"))


def a_number_for_a_title(folder):
    reports.rewrite(folder, verdict=lambda content: content["judged"].update(title=7))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (unjudged, "run: kv-prereg confirm"),
        (unclaimed, "claim.json: is missing"),
        (another_lock, "registration: is not the lock of these lanes"),
        (another_seal, "seal: cites a different seal.json"),
        (torn_ledger, "is not a ledger; run: kv-prereg audit"),
        (no_ledger, "ledger.jsonl: is missing"),
        (unknown_word, "'PROVEN' is not a verdict of any rule"),
        (unknown_method, "not have the documented format"),
        (no_contrast, "not have the documented format"),
        (a_number_for_a_title, "not have the documented format"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_one_line_and_nothing_is_written(tmp_path, capsys, damage, says):
    folder = reports.copied(tmp_path / "study")
    damage(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert report.main([str(folder)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

import json
from pathlib import Path

import reports
from pages import parsed, table

from figures import report
from figures.html import report_index


def test_a_folder_without_registrations_has_no_index(tmp_path, capsys):
    assert report.main([str(tmp_path)]) == 2
    assert "holds no registration" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def small(folder: Path, documents: dict, *events: dict) -> Path:
    """A registration with these documents, enough for the index."""
    folder.mkdir(parents=True)
    lock = {"protocol": {"content": {"title": f"About {folder.name}"}}}
    for name, content in {"lock": lock, **documents}.items():
        (folder / f"{name}.json").write_text(json.dumps(content) + "\n")
    lines = [{"event": "register", "body": {}}, *events]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def judged(word: str) -> dict:
    return {"claim": {}, "seal": {}, "verdict": {"judged": {"verdict": word, "label": "screening-grade"}}}


def test_the_index_counts_what_was_registered_and_what_was_confirmed(tmp_path, capsys):
    home = tmp_path / "registrations"
    (small(home / "a b#1", judged("CONFIRMED")) / "report.html").write_text("")
    (home / "a b#1" / "anchors").mkdir()
    (home / "a b#1" / "anchors" / "lock.ots").write_text("")
    small(home / "b", judged("REFUTED"))
    small(home / "c", {}, {"event": "withdraw", "body": {"reason": reports.HOSTILE}})
    small(home / "d", {"claim": {}})
    small(home / "e", {}, {"event": "amended", "body": {"lock": "ab", "reason": "too few"}})
    (small(home / "f", {}) / "lock.json").write_text('{"a":1.5}\n')
    (home / "g").mkdir()
    (home / "g" / "protocol.toml").write_text(f"title = '''{reports.HOSTILE.replace(chr(39), '')}'''\n")
    (home / "notes").mkdir()
    assert report.main([str(home)]) == 0
    assert capsys.readouterr().out == f"{home / 'index.html'}\n"
    page = parsed((home / "index.html").read_text())
    assert page.all("strong")[0].text == "6 registered, 1 confirmed"
    assert (len(page.all("script")), len(page.all("img"))) == (1, 0)
    rows = table(page, "All registrations")
    assert [row["registration"] for row in rows] == ["a b#1", "b", "c", "d", "e", "f", "g"]
    assert [row["state"] for row in rows] == [
        *("judged", "judged", "withdrawn", "claimed", "amended", "INVALID", "written")
    ]
    assert [row["verdict"] for row in rows] == ["CONFIRMED", "REFUTED", *[""] * 5]
    assert [row["ended because"] for row in rows[2:5]] == [reports.HOSTILE, "", "too few"]
    assert [row["proofs kept"] for row in rows] == ["1", *"0" * 6]
    assert rows[6]["title"] == reports.HOSTILE.replace("'", "")
    assert [one.attributes["href"] for one in page.all("a")] == ["a%20b%231/report.html"]


def test_the_index_over_the_shipped_registrations_has_a_line_for_each_protocol():
    entries = report_index.entries(reports.SHIPPED)
    assert [one.name for one in entries] == sorted(
        path.parent.name for path in reports.SHIPPED.glob("*/protocol.toml")
    )
    assert {one.name for one in entries if one.state == "judged"} == {path.name for path in reports.JUDGED}
    page = parsed(report_index.html(entries))
    locked = len(list(reports.SHIPPED.glob("*/lock.json")))
    assert page.all("strong")[0].text == f"{locked} registered, 0 confirmed"


def test_the_index_says_how_many_held_out_problems_were_no_longer_fresh_and_by_whom(tmp_path):
    content = {"title": "x", "arms": {"a": {"policy": "chunkkv"}, "b": {"policy": "h2o"}}}
    items = {"chain": {"confirm": ["p0", "p1", "p2"]}}
    earlier = {"name": "first", "lock": "0" * 64, "problems": {"chain": ["p0", "p2"]}}
    unread = {"name": "second", "lock": None, "problems": {}}
    for name, opened in (("a", [earlier, unread]), ("b", []), ("c", None)):
        own = {} if opened is None else {"opened": opened}
        lock = {"protocol": {"content": content}, "items": items, **own}
        small(tmp_path / name, {"lock": lock})
    page = parsed(report_index.html(report_index.entries(tmp_path)))
    assert [row["opened before"] for row in table(page, "All registrations")] == [
        "2 of 3 of chain, by first; second could not be read",
        "none",
        "not asked",
    ]


def test_the_index_says_which_policies_are_not_those_that_another_paper_calls_so():
    page = parsed(report_index.html(report_index.entries(reports.SHIPPED)))
    said = [one.text for one in page.all("p")]
    for name, section in (("ChunkKV", "Eq. 6"), ("PyramidKV", "4.3"), ("Scissorhands", "2.2")):
        (line,) = [text for text in said if text.startswith(f"CrystalCache's {name}")]
        assert section in line
        assert line.endswith(": crystal-retrieval.")


def test_the_index_says_what_became_of_every_gate(tmp_path):
    for name in ("alpha-chain", "lrfu-grid"):
        reports.copied(tmp_path / name, name)
    hostile = small(tmp_path / "other", {"verdict": {"judged": {}}})
    (hostile / "ledger.jsonl").write_text("\n")
    page = parsed(report_index.html(report_index.entries(tmp_path), report_index.compared(tmp_path)))
    gates = {row["gate"]: row for row in table(page, "Gates")}
    assert (gates["1d_div"]["here"], gates["1d_div"]["the paper says"]) == ("undecided", "Survived: n/a")
    assert {row["here"] for name, row in gates.items() if name != "1d_div"} == {"not tested"}
    standing = {row["family"]: row["here"] for row in table(page, "Families of intervention")}
    assert standing == dict.fromkeys(standing, "not tested") | {"scoring": "open"}
    rows = table(page, "Registered verdicts, in order of time")
    assert [(row["policy"], row["cells"], row["better"], row["worse"]) for row in rows] == [
        ("1d", "4", "0", "0"),
        ("1d_div", "4", "0", "0"),
    ]
    assert {row["the study's verdict"] for row in rows} == {"INCONCLUSIVE (branch C, symmetric C)"}
    assert "Not in these tables, since they cannot be read: other." in [one.text for one in page.all("p")]


def test_an_index_without_a_contrast_has_no_table_of_gates(tmp_path):
    reports.copied(tmp_path / "lrfu-grid", "lrfu-grid")
    said = report_index.compared(tmp_path)
    page = parsed(report_index.html(report_index.entries(tmp_path), said))
    assert [one.text for one in page.all("caption")] == ["All registrations"]


def test_what_a_protocol_says_becomes_no_markup_in_the_table_of_gates(tmp_path):
    folder = reports.copied(tmp_path / "alpha-chain", "alpha-chain")
    reports.rename(folder, {"chain-llama": reports.HOSTILE.replace('"', "'")})
    page = parsed(report_index.html(report_index.entries(tmp_path), report_index.compared(tmp_path)))
    assert (len(page.all("script")), len(page.all("img"))) == (1, 0)
    (row, _) = table(page, "Registered verdicts, in order of time")
    assert reports.HOSTILE.replace('"', "'") in row["models"]

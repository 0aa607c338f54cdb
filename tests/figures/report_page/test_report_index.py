import json
import re
from pathlib import Path

import pytest
import reports
from pages import Element, parsed, table

from figures import report
from figures.drawing import formatting
from figures.report_page import index_cards, report_index
from figures.report_page.answer import format_answer
from figures.report_page.index_cards import ContrastMark
from figures.report_page.report_index import Entry


def test_a_folder_without_registrations_has_no_index(tmp_path, capsys):
    assert report.main([str(tmp_path)]) == 2
    assert "contains no registration" in capsys.readouterr().err
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
    assert page.all("strong")[0].text == (
        "6 registered, 2 judged: 1 CONFIRMED, 1 REFUTED, 0 INCONCLUSIVE; "
        "1 claimed, unfinished; 1 amended; 1 withdrawn; 1 INVALID"
    )
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
    (card,) = [one for one in page.all("article") if one.all("a")]
    assert card.all("a")[0].attributes["href"] == "a%20b%231/report.html"
    assert [one.attributes["href"] for one in rows_of(page).all("a")] == ["a%20b%231/report.html"]


def rows_of(page: Element) -> Element:
    return next(one for one in page.all("table") if one.text.startswith("All registrations"))


def shapes(badge: Element) -> tuple[str, ...]:
    return tuple(one.attributes["d"] for one in badge.all("path"))


def badges(page: Element) -> dict[str, tuple[str, ...]]:
    """The shape of each word."""
    return {one.text: shapes(one) for one in page.all("span") if one.attributes.get("class") == "badge"}


def test_a_verdict_is_told_by_a_word_and_by_a_shape_that_no_other_has():
    words = ["CONFIRMED", "REFUTED", "INCONCLUSIVE", "SCREENED", "DEVIATED"]
    ended = ["withdrawn", "amended", "INVALID"]
    waiting = {"locked": "not run", "claimed": "unfinished", "sealed": "unfinished", "written": "not registered"}
    found = [Entry(word, "judged", "", verdict=word, verdict_text=word) for word in words]
    found += [Entry(state, state, "") for state in (*ended, *waiting)]
    shown = badges(parsed(report_index.render_index(found)))
    assert set(shown) == {*words, *ended, *waiting.values()}
    assert len({shown[word] for word in [*words, *ended, "not run"]}) == 9
    assert all(shown.values())


def test_judged_studies_stand_first_and_the_latest_before_the_others(tmp_path):
    for name, time, documents in (
        ("a", "2026-11-03T00:00:00Z", judged("REFUTED")),
        ("b", "2026-11-05T00:00:00Z", judged("REFUTED")),
        ("c", "2026-11-04T00:00:00Z", judged("CONFIRMED")),
        ("d", "2026-11-06T00:00:00Z", {"claim": {}}),
    ):
        small(tmp_path / name, documents, {"event": "verdict", "body": {}, "time": time})
    page = parsed(report_index.render_index(report_index.read_entries(tmp_path)))
    assert [one.all("h3")[0].text[0] for one in page.all("article")] == ["b", "c", "a", "d"]


def test_each_judged_study_shows_its_answer_and_its_contrasts():
    found = {entry.name: entry for entry in report_index.read_entries(reports.SHIPPED)}
    page = parsed(report_index.render_index(list(found.values())))
    cards = {one.all("h3")[0].text.partition(":")[0]: one for one in page.all("article")}
    for folder in reports.JUDGED:
        content = json.loads((folder / "verdict.json").read_bytes())["judged"]
        lock = json.loads((folder / "lock.json").read_bytes())["protocol"]["content"]
        card, rows = cards[folder.name], content["contrasts"]
        witnessed = content | {"witness": formatting.WITNESS}
        assert format_answer(witnessed, lock["decision"]) in [one.text for one in card.all("p")]
        signs = [
            (float(one["difference"]) > 0) - (float(one["difference"]) < 0)
            for one in rows
            if (one["better"] or one["worse"]) and one["matched"]
        ]
        won, lost = signs.count(1), signs.count(-1)
        drawing = card.all("svg")[1]
        told = f"{len(rows)} contrasts estimated: {won} better, {lost} worse, {len(rows) - won - lost} neither"
        assert drawing.attributes["aria-label"] == told
        pale = sum("opacity" in one.attributes for one in drawing.all("path"))
        assert (len(drawing.all("path")), pale) == (1 + 2 * len(rows), 2 * (len(rows) - won - lost))


def test_a_small_drawing_has_every_interval_where_it_was_judged():
    shown = [ContrastMark(-10.0, 0.0, 10.0, counts=False), ContrastMark(10.0, 20.0, 30.0, counts=True)]
    zero, *lines = re.findall(r' d="(.*?)"', index_cards.render_thumbnail(shown))
    # from -10 to 30, with 3 in 100 of it on both sides: 42.4 pp on 192 units
    unit = 192 / 42.4
    assert [float(x) for x in re.findall(r"M([0-9.]+)", zero)] == pytest.approx([11.2 * unit], abs=0.06)
    ends = [[float(x) for x in re.findall(r"[MH]([0-9.]+)", line)] for line in lines]
    expected = [[1.2, 21.2], [11.2], [21.2, 41.2], [31.2]]
    for drawn, at in zip(ends, expected, strict=True):
        assert drawn == pytest.approx([one * unit for one in at], abs=0.06)
    assert index_cards.render_thumbnail([]) == ""
    whole = index_cards.render_thumbnail([ContrastMark(-15.2, 40.0, 100.0, counts=True)])
    assert "1 contrast estimated: 1 better, 0 worse, 0 neither; \N{MINUS SIGN}15 to +100 pp" in whole


def test_the_index_over_the_shipped_registrations_has_a_line_for_each_protocol():
    entries = report_index.read_entries(reports.SHIPPED)
    assert [entry.name for entry in entries] == sorted(
        path.parent.name for path in reports.SHIPPED.glob("*/protocol.toml")
    )
    assert {entry.name for entry in entries if entry.state == "judged"} == {path.name for path in reports.JUDGED}
    page = parsed(report_index.render_index(entries))
    locked = len(list(reports.SHIPPED.glob("*/lock.json")))
    words = [json.loads((path / "verdict.json").read_bytes())["judged"]["verdict"] for path in reports.JUDGED]
    counted = (
        ("CONFIRMED", "CONFIRMED (1 for one model alone, 5 UNWITNESSED)"),
        ("REFUTED", "REFUTED"),
        ("INCONCLUSIVE", "INCONCLUSIVE"),
    )
    told = ", ".join(f"{words.count(word)} {text}" for word, text in counted)
    assert page.all("strong")[0].text.startswith(f"{locked} registered, {len(words)} judged: {told}")


def test_the_index_says_how_many_held_out_problems_were_no_longer_fresh_and_by_whom(tmp_path):
    content = {"title": "x", "arms": {"a": {"policy": "chunkkv"}, "b": {"policy": "h2o"}}}
    items = {"chain": {"confirm": ["p0", "p1", "p2"]}}
    earlier = {"name": "first", "lock": "0" * 64, "problems": {"chain": ["p0", "p2"]}}
    unread = {"name": "second", "lock": None, "problems": {}}
    for name, opened in (("a", [earlier, unread]), ("b", []), ("c", None)):
        own = {} if opened is None else {"opened": opened}
        lock = {"protocol": {"content": content}, "items": items, **own}
        small(tmp_path / name, {"lock": lock})
    page = parsed(report_index.render_index(report_index.read_entries(tmp_path)))
    assert [row["opened before"] for row in table(page, "All registrations")] == [
        "2 of 3 of chain, by first; the problems of second could not be read",
        "none",
        "not recorded",
    ]


def test_the_index_says_which_policies_are_not_those_that_another_paper_calls_so():
    page = parsed(report_index.render_index(report_index.read_entries(reports.SHIPPED)))
    said = [one.text for one in page.all("p")]
    twice = "crystal-retrieval, crystal-retrieval-3"
    for name, section, studies in (
        ("ChunkKV", "Eq. 6", f"crystal-regime, {twice}"),
        ("PyramidKV", "4.3", twice),
        ("Scissorhands", "2.2", "crystal-retrieval"),
    ):
        (line,) = [text for text in said if text.startswith(f"CrystalCache's {name}")]
        assert section in line
        assert line.endswith(f": {studies}.")


def test_the_index_says_what_became_of_every_gate(tmp_path):
    for name in ("alpha-chain", "lrfu-grid"):
        reports.copied(tmp_path / name, name)
    hostile = small(tmp_path / "other", {"verdict": {"judged": {}}})
    (hostile / "ledger.jsonl").write_text("\n")
    page = parsed(
        report_index.render_index(report_index.read_entries(tmp_path), report_index.read_comparisons(tmp_path))
    )
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
    assert "Left out of these tables, because they cannot be read: other." in [one.text for one in page.all("p")]


def test_an_index_without_a_contrast_has_no_table_of_gates(tmp_path):
    reports.copied(tmp_path / "lrfu-grid", "lrfu-grid")
    said = report_index.read_comparisons(tmp_path)
    page = parsed(report_index.render_index(report_index.read_entries(tmp_path), said))
    assert [one.text for one in page.all("caption")] == ["All registrations"]


def test_what_a_protocol_says_becomes_no_markup_in_the_table_of_gates(tmp_path):
    folder = reports.copied(tmp_path / "alpha-chain", "alpha-chain")
    reports.rename(folder, {"chain-llama": reports.HOSTILE.replace('"', "'")})
    page = parsed(
        report_index.render_index(report_index.read_entries(tmp_path), report_index.read_comparisons(tmp_path))
    )
    assert (len(page.all("script")), len(page.all("img"))) == (1, 0)
    (row, _) = table(page, "Registered verdicts, in order of time")
    assert reports.HOSTILE.replace('"', "'") in row["models"]

import hashlib
import json
import re
from collections import Counter
from urllib.parse import unquote

import pytest
import reports
from pages import Element, parsed, table
from reports import HOSTILE
from sampled import shipped

from figures import report, study
from figures.drawing import producer


@pytest.fixture(scope="module")
def page(quickstart) -> Element:
    return parsed((quickstart / "report.html").read_text())


def test_a_report_says_verdict_grade_and_that_it_is_unanchored_in_one_line(page):
    (line,) = [one.text for one in page.all("p") if one.attributes.get("class") == "verdict"]
    assert line == "INCONCLUSIVE for smollm2-135m alone · n < 200 · UNANCHORED"
    assert "UNANCHORED: no proof by an outside witness was verified" in page.text


FOREST = ("forest",)  # the page has rows of its own for it


def test_every_drawing_of_the_study_is_in_the_report_with_words_for_who_does_not_see_it(quickstart, page):
    drawn = sorted((quickstart / "figures").glob("*.svg"))
    assert [path.stem for path in drawn] == ["accuracy", "budget_curve", *FOREST, "needle"]
    addresses = [one.attributes["src"] for one in page.all("img")]
    held = [unquote(one.removeprefix("data:image/svg+xml,")) for one in addresses]
    # The forest has rows of its own; every other drawing has its colours, lines and letters.
    others = [path.read_text() for path in drawn if path.stem not in FOREST]
    assert sorted(map(parts, held)) == sorted(map(parts, others))
    assert len(page.all("details")) > 16
    for figure in page.all("figure"):
        (image,) = figure.all("img")
        assert len(image.attributes["alt"]) > 40
        assert figure.all("figcaption")[0].text
    assert len(page.all("figure")) == len(drawn) - len(FOREST)


def parts(svg: str) -> list[tuple[str, int]]:
    """How often a drawing has each element and each colour."""
    return sorted(Counter(re.findall(r"<(?:path|use|g|text)\b|#[0-9a-f]{6}\b", svg)).items())


def test_answer_verdict_contrasts_and_curve_come_first_and_all_else_is_folded(page):
    (header,), (main,) = page.all("header"), page.all("main")
    assert [one.text for one in main.all("h2")[:3]] == [
        "The registered contrasts",
        "Accuracy against measured memory",
        "How it was tested, and what it proves",
    ]
    assert header.all("p")[2].text.startswith(
        "Not shown: it was required that crystal is significantly better in at least 9"
    )
    assert [one.attributes.get("class") for one in header.all("p")] == [*("pale", "question", "answer", "verdict")]
    folds = [one for one in page.all("details") if one.attributes.get("class") == "section"]
    assert [one.attributes["id"] for one in folds] == [
        *("table", "cells", "sensitivity", "deviations", "provenance", "protocol")
    ]
    assert all("open" not in one.attributes for one in folds)
    first = page.all("a")[0]
    assert first.attributes == {"class": "skip", "href": "#contrasts"}


def test_a_page_that_would_grow_too_large_leaves_drawings_out_and_names_them(quickstart, tmp_path, monkeypatch):
    found = {path.stem: path for path in (quickstart / "figures").glob("*.svg")}
    monkeypatch.setattr(study, "draw", lambda folder, witness, to: tuple(found.values()))
    whole = (quickstart / "report.html").stat().st_size
    monkeypatch.setattr(report, "MAX_BYTES", whole - 20_000)
    text = report.report(quickstart, to=tmp_path).read_text()
    assert len(text.encode()) <= whole - 20_000
    page = parsed(text)
    (left,) = [one.text for one in page.all("p") if one.text.startswith("Left out of this page")]
    named = re.findall(r"figures/(\w+)\.svg", left)
    assert named
    assert len(page.all("img")) + len(named) == len(found) - len(FOREST)


def test_a_report_needs_nothing_but_itself(quickstart, page):
    addresses = [
        value
        for tag in ("img", "a", "link", "script", "iframe")
        for one in page.all(tag)
        for name, value in one.attributes.items()
        if name in ("src", "href")
    ]
    assert all(re.match(r"data:image/svg\+xml,|#", one) for one in addresses)
    assert all(one.attributes["href"].startswith("#") for one in page.all("use"))
    assert (len(page.all("script")), len(page.all("style"))) == (1, 1)
    style = page.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = [one.attributes["content"] for one in page.all("meta") if "http-equiv" in one.attributes]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    assert (quickstart / "report.html").stat().st_size <= 1_000_000


def test_the_links_lead_to_sections_and_no_two_elements_have_one_name(page):
    def names(one: Element) -> list[str]:
        own = [one.attributes["id"]] if "id" in one.attributes else []
        return own + [name for part in one.inside for name in names(part)]

    found = names(page)
    assert len(set(found)) == len(found)
    (main,) = page.all("main")
    sections = [one.attributes["id"] for one in main.inside if "id" in one.attributes]
    assert [one.attributes["href"] for one in page.all("nav")[0].all("a")] == [f"#{name}" for name in sections]


def test_every_table_has_a_caption_and_every_head_a_scope_and_every_box_a_keyboard_reaches(page):
    boxes = [one for one in page.all("div") if one.attributes.get("class") == "scroll"]
    assert all(one.attributes["tabindex"] == "0" and one.attributes["aria-label"] for one in boxes)
    assert sum(len(box.all("table")) for box in boxes) == len(page.all("table")) >= 6
    for one in page.all("table"):
        assert one.all("caption")[0].text
        assert all(head.attributes["scope"] in ("col", "row") for head in one.all("th"))


def test_the_contrasts_are_the_judged_ones(quickstart, page):
    judged = json.loads((quickstart / "verdict.json").read_bytes())["judged"]
    rows = table(page, "Registered contrasts: 16")
    for row, one in zip(rows, judged["contrasts"], strict=True):
        for name in ("model", "task", "budget", "subject", "against"):
            assert row[name] == one[name]
        for head, name in (("problems", "n"), ("gains", "gains"), ("losses", "losses")):
            assert row[head] == str(one[name])
        shown = float(row["Δ (pp)"].replace("\N{MINUS SIGN}", "-"))
        assert shown == pytest.approx(100 * float(one["difference"]), abs=0.051)
        said = {(True, False): "better", (False, True): "worse", (False, False): "neither"}
        assert one["matched"]
        assert row["says"] == said[one["better"], one["worse"]]
    for row, one in zip(table(page, "Other methods"), judged["contrasts"], strict=True):
        for head, name in (("p, t", "p_t"), ("p, sign-flip", "p_sign_flip"), ("p, Holm", "p_holm")):
            assert float(row[head].removeprefix("<")) == pytest.approx(float(one[name]), abs=0.0001)


def test_the_provenance_is_that_of_the_files(quickstart, page):
    (facts,) = [one for one in page.all("table") if one.attributes["class"] == "facts"]
    said = {row.inside[0].text: row.inside[1].text for row in facts.all("tr")}
    for name in ("lock", "claim", "seal"):
        assert said[f"SHA-256 of {name}.json"] == reports.digest(quickstart, name)
    ledger = (quickstart / "ledger.jsonl").read_text().splitlines()
    assert said["Ledger"] == f"{len(ledger)} lines, head {json.loads(ledger[-1])['sha256']}"
    assert said["Outcome"] == json.loads((quickstart / "seal.json").read_bytes())["outcome"]
    assert (quickstart / "protocol.toml").read_text() in [one.text for one in page.all("pre")]


def test_the_repeated_arm_of_a_probe_is_compared_grade_by_grade(quickstart, page):
    grades = {}
    for line in (quickstart / "probe" / "shard-0.jsonl").read_text().splitlines():
        body = json.loads(line)["body"]
        grades[tuple(body["cell"].values()), body["problem"]] = body["grade"]
    again = [(cell, problem) for cell, problem in grades if "snapkv (again)" in cell]
    differ = 0
    for cell, problem in again:
        first = tuple("snapkv" if part == "snapkv (again)" else part for part in cell)
        differ += grades[first, problem] != grades[cell, problem]
    assert f"{differ} of {len(again)} pairs of grades differ" in page.text
    assert len(again) == 72


def test_a_grade_that_changes_in_the_repeated_arm_is_counted(tmp_path, undrawn):
    folder = reports.copied(tmp_path / "study")
    shard = folder / "probe" / "shard-0.jsonl"
    lines = shard.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"arm":"snapkv (again)"' in line)
    record = json.loads(lines[place])
    record["body"]["grade"] = "error"
    lines[place] = json.dumps(record)
    shard.write_text("\n".join(lines) + "\n")
    before = re.search(r"(\d+) of 72 pairs", reports.written(reports.copied(tmp_path / "as shipped")).text)
    after = re.search(r"(\d+) of 72 pairs", reports.written(folder).text)
    assert int(after[1]) == int(before[1]) + 1


def test_what_became_of_every_lane_is_counted_from_the_records(tmp_path, undrawn):
    folder = reports.copied(tmp_path / "study")
    shard = folder / "records" / "shard-0.jsonl"
    first, second, *rest = shard.read_text().splitlines()
    record = json.loads(first)
    record["body"] |= {"state": "failed", "reason": "cuda", "grade": None, "cache": None, "stop": None}
    shard.write_text("\n".join([json.dumps(record), *rest]) + "\n")
    bodies = [record["body"], *(json.loads(line)["body"] for line in rest)]
    rows = table(reports.written(folder), "Outcome of every registered lane, in 1 attempt")
    ok = Counter(
        tuple(body["cell"][name] for name in ("model", "task", "budget", "arm"))
        for body in bodies
        if body["state"] == "ok"
    )
    gone = json.loads(second)["body"]["cell"]
    for row in rows:
        key = row["model"], row["task"], row["budget"], row["arm"]
        assert row["ok"] == str(ok[key])
        assert row["failed"] == str(int(key == tuple(record["body"]["cell"][name] for name in PLACE)))
        assert row["not run"] == str(int(key == tuple(gone[name] for name in PLACE)))
        assert int(row["registered"]) == sum(int(row[name]) for name in ("ok", "failed", "not run"))


PLACE = ("model", "task", "budget", "arm")


def test_a_lane_that_failed_and_counts_as_wrong_is_shown_without_a_text(tmp_path, undrawn):
    folder = reports.copied(tmp_path / "study")
    shard = folder / "records" / "shard-0.jsonl"
    records = [json.loads(line) for line in shard.read_text().splitlines()]
    needle = [one["body"] for one in records if one["body"]["cell"]["task"] == "needle-768"]
    right = {
        arm: {one["problem"]: one for one in needle if one["cell"] | {"arm": arm, "budget": "0.3"} == one["cell"]}
        for arm in ("crystal", "snapkv")
    }
    both = [name for name in right["crystal"] if all(lanes[name]["grade"] == "correct" for lanes in right.values())]
    gone = dict.fromkeys(("text", "tokens", "answer", "grade", "cache", "stop", "trajectory"))
    right["crystal"][both[0]].update(state="failed", reason="out of memory", **gone)
    shard.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in records))

    def wrong(lock):
        lock["protocol"]["content"]["decision"]["missing"] = "wrong"

    reports.rewrite(folder, lock=wrong)
    first = reports.written(folder).all("details")[0]
    (lost,) = [one for one in first.all("li") if one.all("bdi")[0].text == both[0]]
    assert lost.all("q")[0].text == "(ends)"


def test_attempts_that_were_aborted_are_reported_and_so_is_every_line_of_the_ledger(tmp_path, undrawn):
    folder = reports.copied(tmp_path / "study")
    path = folder / "ledger.jsonl"
    lines = path.read_text().splitlines()
    lines.insert(4, lines[3].replace('"number":1,"records":0', '"number":2,"records":99'))
    path.write_text("\n".join(lines) + "\n")
    page = reports.written(folder)
    assert "Attempts to confirm: 2, of which 1 aborted" in page.text
    rows = table(page, "The ledger")
    assert [row["event"] for row in rows] == [json.loads(line)["event"] for line in lines]
    assert rows[4]["what"] == "number 2; records 99"


def test_an_amendment_and_its_deviation_exclusions_and_missing_lanes_are_reported(tmp_path, undrawn):
    folder = reports.copied(tmp_path / "study")

    def amended(lock):
        lock["amends"] = {
            "name": "older",
            "lock": "ab" * 32,
            "reason": "the first one was wrong",
            "diff": [{"path": "protocol/seeds/0", "was": 1, "is": 2}, {"path": "protocol/x", "is": "new"}],
            "seen": {"claim": True, "records": 12},
            "after_claim": True,
        }
        lock["git"] = {"commit": "cd" * 20, "differs": ["policies/late.py"]}

    def deviated(verdict):
        cell = {"model": "m", "task": "t", "budget": "0.3", "arm": "a", "seed": 1, "ended": "failed"}
        verdict["judged"] |= {
            "verdict": "DEVIATED",
            "rule_says": "CONFIRMED",
            "excluded": [{"model": "m", "task": "t", "problems": 3, "of": 23}],
        }
        verdict["judged"]["missing"] |= {"lanes": 4, "cells": [cell | {"lanes": 4}]}

    reports.rewrite(folder, lock=amended, verdict=deviated)
    page = reports.written(folder)
    assert "amends older" in page.text
    assert "after a claim on held-out problems" in page.text
    assert "the first one was wrong" in page.text
    assert "The rule alone says CONFIRMED." in page.text
    assert "differ in the named commit: policies/late.py" in page.text
    rows = table(page, "What the amendment changed")
    assert [(row["was"], row["is"]) for row in rows] == [("1", "2"), ("absent", "new")]
    assert table(page, "Problems excluded")[0]["excluded"] == "3"
    assert table(page, "Lanes without a grade")[0]["lanes"] == "4"


def test_text_from_files_never_becomes_markup(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "draw", lambda folder, witness, to: ())
    folder = reports.copied(tmp_path / "study")
    plain = parsed(report.report(folder).read_text())
    toml = f"# {HOSTILE}\n"
    for path in [folder / name for name in ("lock.json", "verdict.json", "records/shard-0.jsonl")]:
        path.write_text(path.read_text().replace('"snapkv"', json.dumps(HOSTILE)))
    (folder / "protocol.toml").write_text(toml)

    def lock(content):
        content["protocol"]["sha256"] = hashlib.sha256(toml.encode()).hexdigest()
        content["protocol"]["content"]["question"] = HOSTILE
        content["checks"] |= {HOSTILE: HOSTILE}
        content["git"] = {"commit": HOSTILE, "differs": [HOSTILE]}

    def verdict(content):
        content["judged"] |= {"title": HOSTILE, "label": HOSTILE, "proves": [HOSTILE], "name": HOSTILE}

    reports.rewrite(folder, lock=lock, verdict=verdict)
    ledger = folder / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"needle-768"', json.dumps(HOSTILE)))
    page = parsed(report.report(folder, witness=HOSTILE).read_text())
    tags = [[len(one.all(tag)) for tag in ("script", "img", "b", "style", "svg")] for one in (plain, page)]
    assert tags == [[1, 0, 6 * 16, 1, 16 + 3 + 1 + 5 * 4]] * 2  # rows, axis, symbols, icon, ranks
    texts = [one.text for tag in ("title", "h1", "li", "td", "pre") for one in page.all(tag)]
    assert texts.count(HOSTILE) > 5
    assert any(toml in text for text in texts)


def test_a_drawing_that_holds_a_script_is_an_image_and_no_part_of_the_page(tmp_path, monkeypatch):
    folder = reports.copied(tmp_path / "study")
    evil = tmp_path / "accuracy.svg"
    evil.write_text(f'<svg width="1pt" height="1pt">\n{HOSTILE}</svg>')
    monkeypatch.setattr(study, "draw", lambda folder, witness, to: (evil,))
    page = reports.written(folder)
    assert (len(page.all("script")), len(page.all("img"))) == (1, 1)
    assert HOSTILE in unquote(page.all("img")[0].attributes["src"])


def test_a_witness_that_was_verified_stands_in_the_verdict_line(tmp_path, undrawn):
    page = reports.written(reports.copied(tmp_path / "study"), witness="ANCHORED (lock by ots block 900000)")
    (line,) = [one.text for one in page.all("p") if one.attributes.get("class") == "verdict"]
    assert line.endswith("n < 200 · ANCHORED (lock by ots block 900000)")
    assert "no proof by an outside witness was verified" not in page.text
    assert "The proofs that the verdict line names were verified" in page.text


def test_a_protocol_that_was_edited_since_is_not_shown_as_the_locked_one(tmp_path, undrawn):
    folder = reports.copied(tmp_path / "study")
    with (folder / "protocol.toml").open("a") as file:
        file.write("# edited\n")
    page = reports.written(folder)
    assert "The folder does not contain protocol.toml as it was locked" in page.text
    assert "# edited" not in page.text


@pytest.mark.parametrize("folder", shipped(reports.JUDGED))
def test_every_shipped_study_has_its_report(tmp_path, undrawn, folder):
    text = report.report(reports.copied(tmp_path / folder.name, folder.name)).read_text()
    assert len(text.encode()) <= 1_000_000
    page = parsed(text)
    verdict = (folder / "verdict.json").read_bytes()
    assert json.loads(verdict)["judged"]["verdict"] == page.all("strong")[0].text
    assert {hashlib.sha256(verdict).hexdigest(), reports.digest(folder, "lock")} <= {one.text for one in page.all("td")}


def test_a_page_says_what_made_it_and_is_the_same_before_and_after_it_was_anchored(tmp_path, undrawn):
    folder = reports.copied(tmp_path / "study")
    before = report.report(folder).read_bytes()
    (made,) = [one for one in parsed(before.decode()).all("meta") if one.attributes.get("name") == "generator"]
    assert made.attributes["content"] == producer.producer_name()
    (folder / "anchors").mkdir()
    (folder / "anchors" / "lock.ots").write_bytes(b"")
    assert report.report(folder).read_bytes() == before

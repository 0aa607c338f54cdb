import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import browser
import pytest
from pages import Element, parsed, table

from figures import report, study

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "registrations"
REPORTED = sorted(path.parent for path in SHIPPED.glob("*/verdict.json"))
HOSTILE = """<script>alert("1")</script>'><img src=x onerror='alert(2)'>&lt;"""


def copied(target: Path, source: str = "quickstart") -> Path:
    shutil.copytree(SHIPPED / source, target, ignore=shutil.ignore_patterns("*.html", "figures", "*.zip"))
    return target


def rewrite(folder: Path, **changes) -> None:
    """Change documents by functions named after them, and let everything cite the new ones."""
    for name in ("lock", "claim", "seal", "verdict"):
        path = folder / f"{name}.json"
        content = json.loads(path.read_bytes())
        changes.get(name, lambda content: None)(content)
        for cited in ("lock", "claim", "seal"):
            if cited in content and cited != name:
                content[cited] = digest(folder, cited)
        path.write_text(json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n")
    for shard in folder.glob("*/shard-0.jsonl"):
        old = re.compile(r'"registration":"[0-9a-f]{64}"')
        shard.write_text(old.sub(f'"registration":"{digest(folder, "lock")}"', shard.read_text()))


def digest(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / f"{name}.json").read_bytes().removesuffix(b"\n")).hexdigest()


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory) -> Path:
    folder = copied(tmp_path_factory.mktemp("reports") / "quickstart")
    assert report.report(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def page(quickstart) -> Element:
    return parsed((quickstart / "report.html").read_text())


@pytest.fixture
def undrawn(monkeypatch):
    """Drawings take their time, and many tests are about words."""
    monkeypatch.setattr(study, "draw", lambda folder, witness: ())


def told(folder: Path, **how) -> Element:
    return parsed(report.report(folder, **how).read_text())


def test_a_report_says_verdict_grade_and_that_it_is_unanchored_in_one_line(page):
    (line,) = [one.text for one in page.all("p") if one.attributes.get("class") == "verdict"]
    assert line == "INCONCLUSIVE · n < 200 · UNANCHORED"
    assert "UNANCHORED: this page was made without verifying a proof" in page.text


def test_every_drawing_of_the_study_is_in_the_report_with_words_for_who_does_not_see_it(quickstart, page):
    drawn = sorted((quickstart / "figures").glob("*.svg"))
    assert [path.stem for path in drawn] == ["accuracy", "forest", "needle"]
    addresses = [one.attributes["src"] for one in page.all("img")]
    held = [unquote(one.removeprefix("data:image/svg+xml,")) for one in addresses]
    assert sorted(held) == sorted(" ".join(path.read_text().split()) for path in drawn)
    for figure in page.all("figure"):
        (image,) = figure.all("img")
        assert len(image.attributes["alt"]) > 40
        assert figure.all("figcaption")[0].text
    assert len(page.all("figure")) == 3


def test_a_report_needs_nothing_but_itself(quickstart, page):
    addresses = [
        value
        for tag in ("img", "a", "link", "script", "iframe")
        for one in page.all(tag)
        for name, value in one.attributes.items()
        if name in ("src", "href")
    ]
    assert all(re.match(r"data:image/svg\+xml,|#", one) for one in addresses)
    assert (len(page.all("script")), len(page.all("style"))) == (1, 1)
    style = page.all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = [one.attributes["content"] for one in page.all("meta") if "http-equiv" in one.attributes]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    assert (quickstart / "report.html").stat().st_size < 1_500_000


def test_the_links_lead_to_sections_and_no_two_elements_have_one_name(page):
    def names(one: Element) -> list[str]:
        own = [one.attributes["id"]] if "id" in one.attributes else []
        return own + [name for part in one.inside for name in names(part)]

    found = names(page)
    assert len(set(found)) == len(found)
    assert [one.attributes["href"] for one in page.all("nav")[0].all("a")] == [f"#{name}" for name in found]


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
        assert said[f"SHA-256 of {name}.json"] == digest(quickstart, name)
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
    folder = copied(tmp_path / "study")
    shard = folder / "probe" / "shard-0.jsonl"
    lines = shard.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"arm":"snapkv (again)"' in line)
    record = json.loads(lines[place])
    record["body"]["grade"] = "error"
    lines[place] = json.dumps(record)
    shard.write_text("\n".join(lines) + "\n")
    before = re.search(r"(\d+) of 72 pairs", told(copied(tmp_path / "as shipped")).text)
    after = re.search(r"(\d+) of 72 pairs", told(folder).text)
    assert int(after[1]) == int(before[1]) + 1


def test_a_clean_process_writes_the_same_bytes(quickstart, tmp_path):
    there = copied(tmp_path / quickstart.parent.name / "quickstart")
    command = [sys.executable, "-m", "figures.report", str(there)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"{there / 'report.html'}\n"), done.stderr
    assert (there / "report.html").read_bytes() == (quickstart / "report.html").read_bytes()


def test_what_became_of_every_lane_is_counted_from_the_records(tmp_path, undrawn):
    folder = copied(tmp_path / "study")
    shard = folder / "records" / "shard-0.jsonl"
    first, second, *rest = shard.read_text().splitlines()
    record = json.loads(first)
    record["body"] |= {"state": "failed", "reason": "cuda", "grade": None, "cache": None, "stop": None}
    shard.write_text("\n".join([json.dumps(record), *rest]) + "\n")
    bodies = [record["body"], *(json.loads(line)["body"] for line in rest)]
    rows = table(told(folder), "What became of every registered lane, in 1 attempt")
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


def test_attempts_that_were_aborted_are_reported_and_so_is_every_line_of_the_ledger(tmp_path, undrawn):
    folder = copied(tmp_path / "study")
    path = folder / "ledger.jsonl"
    lines = path.read_text().splitlines()
    lines.insert(4, lines[3].replace('"number":1,"records":0', '"number":2,"records":99'))
    path.write_text("\n".join(lines) + "\n")
    page = told(folder)
    assert "Attempts to confirm: 2, of which 1 aborted" in page.text
    rows = table(page, "The ledger")
    assert [row["event"] for row in rows] == [json.loads(line)["event"] for line in lines]
    assert rows[4]["what"] == "number 2; records 99"


def test_an_amendment_and_its_deviation_exclusions_and_missing_lanes_are_reported(tmp_path, undrawn):
    folder = copied(tmp_path / "study")

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

    rewrite(folder, lock=amended, verdict=deviated)
    page = told(folder)
    assert "amends older" in page.text
    assert "after a claim on held-out problems" in page.text
    assert "the first one was wrong" in page.text
    assert "The rule alone says CONFIRMED." in page.text
    assert "holds otherwise: policies/late.py" in page.text
    rows = table(page, "What the amendment changed")
    assert [(row["was"], row["is"]) for row in rows] == [("1", "2"), ("absent", "new")]
    assert table(page, "Problems excluded")[0]["excluded"] == "3"
    assert table(page, "Lanes without a grade")[0]["lanes"] == "4"


def test_text_from_files_never_becomes_markup(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "draw", lambda folder, witness: ())
    folder = copied(tmp_path / "study")
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
        content["judged"] |= {
            "title": HOSTILE,
            "label": HOSTILE,
            "proves": [HOSTILE],
            "name": HOSTILE,
            "method": HOSTILE,
        }

    rewrite(folder, lock=lock, verdict=verdict)
    ledger = folder / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"needle-768"', json.dumps(HOSTILE)))
    (folder / "anchors").mkdir()
    (folder / "anchors" / "lock.<b>").write_text("")
    page = parsed(report.report(folder, witness=HOSTILE).read_text())
    tags = [[len(one.all(tag)) for tag in ("script", "img", "b", "style")] for one in (plain, page)]
    assert tags == [[1, 0, 0, 1]] * 2
    texts = [one.text for tag in ("title", "h1", "li", "td", "pre") for one in page.all(tag)]
    assert texts.count(HOSTILE) > 5
    assert any(toml in text for text in texts)
    assert "lock.<b>" in page.text


def test_a_drawing_that_holds_a_script_is_an_image_and_no_part_of_the_page(tmp_path, monkeypatch):
    folder = copied(tmp_path / "study")
    evil = tmp_path / "forest.svg"
    evil.write_text(f'<svg width="1pt" height="1pt">\n{HOSTILE}</svg>')
    monkeypatch.setattr(study, "draw", lambda folder, witness: (evil,))
    page = told(folder)
    assert (len(page.all("script")), len(page.all("img"))) == (1, 1)
    assert HOSTILE in unquote(page.all("img")[0].attributes["src"])


def test_a_witness_that_was_verified_stands_in_the_verdict_line(tmp_path, undrawn):
    page = told(copied(tmp_path / "study"), witness="ANCHORED (lock by ots block 900000)")
    (line,) = [one.text for one in page.all("p") if one.attributes.get("class") == "verdict"]
    assert line.endswith("n < 200 · ANCHORED (lock by ots block 900000)")
    assert "without verifying a proof" not in page.text
    assert "The proofs that the verdict line names were verified" in page.text


def test_a_protocol_that_was_edited_since_is_not_shown_as_the_locked_one(tmp_path, undrawn):
    folder = copied(tmp_path / "study")
    with (folder / "protocol.toml").open("a") as file:
        file.write("# edited\n")
    page = told(folder)
    assert "protocol.toml is not here as it was locked" in page.text
    assert "# edited" not in page.text


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
    rewrite(folder, verdict=lambda content: content["judged"].update(verdict="PROVEN"))


def no_contrast(folder):
    rewrite(folder, verdict=lambda content: content["judged"].update(contrasts=[]))


def a_number_for_a_title(folder):
    rewrite(folder, verdict=lambda content: content["judged"].update(title=7))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (unjudged, "run: python -m protocol.confirm"),
        (unclaimed, "claim.json: missing"),
        (another_lock, "is not this lock"),
        (another_seal, "seal: cites another seal.json"),
        (torn_ledger, "is no ledger"),
        (no_ledger, "ledger.jsonl: missing"),
        (unknown_word, "no rule says 'PROVEN'"),
        (no_contrast, "not of the documented format"),
        (a_number_for_a_title, "not of the documented format"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_one_line_and_nothing_is_written(
    tmp_path, capsys, damage, says
):
    folder = copied(tmp_path / "study")
    damage(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert report.main([str(folder)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


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
    small(home / "c", {}, {"event": "withdraw", "body": {"reason": HOSTILE}})
    small(home / "d", {"claim": {}})
    small(home / "e", {}, {"event": "amended", "body": {"lock": "ab", "reason": "too few"}})
    (small(home / "f", {}) / "lock.json").write_text('{"a":1.5}\n')
    (home / "g").mkdir()
    (home / "g" / "protocol.toml").write_text(f"title = '''{HOSTILE.replace(chr(39), '')}'''\n")
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
    assert [row["ended because"] for row in rows[2:5]] == [HOSTILE, "", "too few"]
    assert [row["proofs kept"] for row in rows] == ["1", *"0" * 6]
    assert rows[6]["title"] == HOSTILE.replace("'", "")
    assert [one.attributes["href"] for one in page.all("a")] == ["a%20b%231/report.html"]


def test_the_index_over_the_shipped_registrations_has_a_line_for_each_protocol():
    entries = report.report_index.entries(SHIPPED)
    assert [one.name for one in entries] == sorted(
        path.parent.name for path in SHIPPED.glob("*/protocol.toml")
    )
    assert {one.name for one in entries if one.state == "judged"} == {path.name for path in REPORTED}
    page = parsed(report.report_index.html(entries))
    assert page.all("strong")[0].text == "6 registered, 0 confirmed"


@pytest.mark.parametrize("folder", REPORTED, ids=lambda path: path.name)
def test_every_shipped_study_has_its_report(tmp_path, undrawn, folder):
    text = report.report(copied(tmp_path / folder.name, folder.name)).read_text()
    assert len(text.encode()) < 1_500_000
    page = parsed(text)
    verdict = (folder / "verdict.json").read_bytes()
    assert json.loads(verdict)["judged"]["verdict"] == page.all("strong")[0].text
    assert {hashlib.sha256(verdict).hexdigest(), digest(folder, "lock")} <= {
        one.text for one in page.all("td")
    }


@pytest.mark.skipif(browser.found() is None, reason="no Chromium: set CHROMIUM, or put one on the path")
def test_a_browser_shows_the_report_at_desk_and_phone_width_without_a_complaint(quickstart, tmp_path):
    page = quickstart / "report.html"
    with browser.opened(tmp_path / "profile") as opened:
        for width in (1280, 390):
            opened.open(page, width)
            assert opened.complaints() == []
            assert opened.requested() == [page.resolve().as_uri()]
            wide, room = opened.ask("[document.documentElement.scrollWidth, innerWidth]")
            assert wide <= room == width
            images = opened.ask("[...document.images].map(one => [one.naturalWidth, one.width])")
            assert len(images) == 3
            assert all(natural > 300 and shown > 300 for natural, shown in images)
            assert opened.ask(INK) == [True] * 3
            assert opened.ask("document.querySelectorAll('thead th button').length") == opened.ask(
                "document.querySelectorAll('thead th').length"
            )
        assert opened.ask(SORTED) == sorted_by_hand(quickstart)
        assert opened.complaints() == []


# Whether the drawings are more than white.
INK = """[...document.images].map((image) => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [200, 200];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, 200, 200);
  return new Set(context.getImageData(0, 0, 200, 200).data).size > 10;
})"""
# The column of differences and its state, after each of two clicks on its head; and that of words.
SORTED = """(() => {
  const table = document.querySelector("#contrasts").parentNode.querySelector("table");
  const click = (name) => {
    const head = [...table.tHead.rows[0].cells].find((one) => one.textContent === name);
    head.querySelector("button").click();
    const column = [...table.tBodies[0].rows].map((row) => row.cells[head.cellIndex].textContent);
    return [head.getAttribute("aria-sort"), column];
  };
  return [click("Δ (pp)"), click("Δ (pp)"), click("against")];
})()"""


def sorted_by_hand(folder: Path) -> list:
    rows = json.loads((folder / "verdict.json").read_bytes())["judged"]["contrasts"]
    values = sorted(float(one["difference"]) for one in rows)
    shown = [f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}") for value in values]
    shown = [re.sub(r"^.0\.0$", "0.0", text) for text in shown]
    names = sorted(one["against"] for one in rows)
    return [["ascending", shown], ["descending", shown[::-1]], ["ascending", names]]


@pytest.mark.skipif(browser.found() is None, reason="no Chromium: set CHROMIUM, or put one on the path")
def test_no_script_of_a_title_or_of_a_drawing_runs_in_a_browser(tmp_path, monkeypatch):
    folder = copied(tmp_path / "study")
    rewrite(folder, verdict=lambda content: content["judged"].update(title=HOSTILE))
    drawing = tmp_path / "forest.svg"
    bad = '<script>parent.document.title = "owned"</script>'
    drawing.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt">{bad}</svg>')
    monkeypatch.setattr(study, "draw", lambda folder, witness: (drawing,))
    page = report.report(folder)
    with browser.opened(tmp_path / "profile") as opened:
        opened.open(page, 1280)
        assert opened.ask("document.querySelector('h1').textContent") == HOSTILE
        assert opened.ask("document.title") == f"INCONCLUSIVE: {HOSTILE}"
        assert opened.ask("document.scripts.length") == 1
        assert opened.ask("document.images[0].naturalWidth") > 0
        assert opened.complaints() == []
        # Even what somebody writes into the page by hand does not run.
        broken = tmp_path / "broken.html"
        text = page.read_text()
        broken.write_text(text.replace("<main>", "<main><script>document.title='owned'</script>"))
        assert broken.read_text() != text
        opened.open(broken, 1280)
        assert opened.ask("document.title") == f"INCONCLUSIVE: {HOSTILE}"
        assert "Content Security Policy" in " ".join(opened.complaints())

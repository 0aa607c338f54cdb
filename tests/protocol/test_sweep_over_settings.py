"""A sweep over two settings of one policy, end to end: probed, drawn, chosen from, told and audited."""

import shutil

import pytest
import studies

from figures import settings_map

pytestmark = pytest.mark.soak
GRID = '\n[sweep.grid.near]\n"protect.recent" = [16, 32]\n"scoring.window" = [8, 16]'
STUDY = studies.SWEEP | {
    'crystal = { policy = "crystal-token-level" }': 'near = { policy = "snapkv" }',
    'random = { policy = "random" }\n': "",
    'missing = "inconclusive"': studies.SWEEP['missing = "inconclusive"'].replace('"h2o", "random"', '"near"') + GRID,
}
MADE = [f"near+recent-{recent}+window-{window}" for recent in (16, 32) for window in (8, 16)]


@pytest.fixture(scope="module")
def confirmed(tiny_model, tmp_path_factory):
    place = tmp_path_factory.mktemp("grid") / "registrations" / "study"
    folder = studies.write(place, tiny_model, STUDY)
    for name, passed in (("register", {0}), ("probe", {0}), ("confirm", {10, 11})):
        done = studies.here(name, folder, drawn=name == "confirm")
        assert done.returncode in passed, done.stderr
    return folder


def test_the_candidates_are_probed_and_the_winner_is_told_with_its_settings(confirmed):
    lock, chosen = (studies.content(confirmed / name) for name in ("lock.json", "selection.json"))
    assert lock["protocol"]["content"]["sweep"]["candidates"] == MADE
    assert {arm: held["protect.recent"] for arm, held in lock["policies"].items() if arm in MADE} == dict(
        zip(MADE, ("16", "16", "32", "32"), strict=True)
    )
    winner = chosen["selected"]["winner"]
    assert winner in MADE
    assert chosen["selected"]["policy"] == "snapkv"
    recent, window = (int(part.rpartition("-")[2]) for part in winner.split("+")[1:])
    assert chosen["selected"]["set"] == {"protect.recent": recent, "scoring.window": window}
    said = f"chosen is {winner} (policy snapkv, protect.recent = {recent}, scoring.window = {window})"
    assert said in " ".join((confirmed / "report.html").read_text().split())
    assert studies.content(confirmed / "claim.json")["selection"]


def test_the_audit_derives_the_grid_again_and_holds(confirmed):
    studies.ran(0, "audit", confirmed)


def test_the_grid_is_drawn_from_the_probe(confirmed, tmp_path):
    probed = shutil.copytree(confirmed, tmp_path / "study", ignore=shutil.ignore_patterns("verdict.json"))
    settings_map.draw(probed)
    drawn = (probed / "figures" / "settings_map.svg").read_text()
    for value in ("protect.recent", "scoring.window", "development problems, no verdict"):
        assert value in drawn
    cells = [f"needle-256/0.8/{recent}/{window}" for recent in (16, 32) for window in (8, 16)]
    assert all(drawn.count(cell) == 1 for cell in cells)

"""Whichever byte of a study's folder is flipped, its file is known for what it is: evidence, of which some
item then fails or cannot be told; derived, which drawing again shows; or unknown, which the audit names.
"""

import random
import shutil

import pytest
import studies

from protocol.evidence.audit import auditor, inventory
from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell, Finding
from protocol.formats.refusals import Tampered
from protocol.lock import git_attributes
from protocol.recompute import verify_drawings

FLIPS = 20  # a test
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 50))]
UNKNOWN = ("notes.txt", ".hidden", "figures/mine.svg", "older/verdict.json")


@pytest.fixture(scope="session")
def whole(confirmed, tmp_path_factory):
    """One finished study for all flips, each undone, with files that are none of ours; outside git, which
    would find all of them. With it what is drawn again, once.
    """
    folder = shutil.copytree(confirmed, tmp_path_factory.mktemp("flips") / "study")
    for name in UNKNOWN:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"CONFIRMED\n" * 20)
    again = tmp_path_factory.mktemp("again")
    return folder, again, verify_drawings._draw(folder, again)


@pytest.fixture
def folder(whole, monkeypatch):
    original, again, name = whole

    def copied(_, to):
        shutil.copytree(again, to, dirs_exist_ok=True)
        return name

    monkeypatch.setattr(verify_drawings, "_draw", copied)
    return original


def drawn(folder, draw):
    """A file: one in two by its bytes, the others all alike, so that small ones are met too."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = [path.stat().st_size for path in paths]
    return draw.choices(paths, sizes if draw.random() < 0.5 else None)[0]


def named(folder, kind, path):
    """Whether what an audit says of a file of this kind shows that it is not what it was."""
    study = Registration(folder)
    if kind == "unknown" or path == git_attributes.NAME:  # edited, it is none of ours
        return path in inventory.check(study)
    if kind == "derived":
        try:
            return f"only the bytes differ: {path}" in verify_drawings.check(study)
        except (CannotTell, Tampered) as finding:  # it cannot tell where the name of the producer is damaged
            return f"{path}: differs from what" in str(finding)
    return [one for one in auditor.audit(study) if told(one)]


def told(one: Finding) -> bool:
    inside = one.item not in ("commit", "history", "anchors")  # what is no part of this folder
    return one.status == "failed" or (one.status == "cannot tell" and inside)


def test_nothing_is_said_of_the_honest_folder(folder):
    kinds = inventory.classify(Registration(folder))
    unknown = {path for path, kind in kinds.items() if kind == "unknown"}
    assert unknown == {"notes.txt", ".hidden", "figures/mine.svg", "older/"}
    assert "the same bytes" in verify_drawings.check(Registration(folder))
    assert not [one for one in auditor.audit(Registration(folder)) if told(one)]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_single_byte_is_flipped(folder, seed):
    draw = random.Random(seed)
    kinds = inventory.classify(Registration(folder))
    for _ in range(FLIPS):
        path = drawn(folder, draw)
        name = path.relative_to(folder).as_posix()
        listed = f"{name.partition('/')[0]}/" if name.startswith("older/") else name
        with studies.flipped(path, draw) as place:
            assert named(folder, kinds[listed], listed), f"{name}: byte {place} was flipped unnoticed"

"""The registrations that this repository ships: their evidence holds, whatever became of the code since."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import studies

import policies
from protocol.evidence.audit import auditing
from protocol.evidence.lock import bundle
from protocol.evidence.run.registration import Registration
from protocol.plan import reading

SHIPPED = sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/verdict.json"))
PROTOCOLS = sorted((studies.ROOT / "registrations").glob("*/protocol.toml"))
EVIDENCE = (
    "protocol.toml",
    "lock.json",
    "sources.zip",
    "ledger.jsonl",
    "claim.json",
    "seal.json",
    "verdict.json",
)

AUDITED = (
    studies.BLOCK_TORCH
    + """
from functools import partial
from protocol import audit
from protocol.evidence.audit import auditing
from protocol.evidence.bytes import canonical
from protocol.evidence.run.registration import Registration

def as_written(tree, folder):
    return canonical.dumps(Registration(folder).verdict.content["judged"])

if sys.argv[2] == "as written":
    auditing.audit = partial(auditing.audit, rederive=as_written)
sys.exit(audit.main([sys.argv[1]]))
"""
)
LONG = ("crystal-retrieval",)  # judging by the code of its lock takes the better part of a minute
JUDGED = [
    *(pytest.param(folder, "as written", id=folder.name) for folder in SHIPPED if folder.name in LONG),
    *(
        pytest.param(
            folder,
            "by the locked code",
            id=f"{folder.name}, judged",
            marks=[pytest.mark.soak] if folder.name in LONG else [],
        )
        for folder in SHIPPED
    ),
]


def test_the_studies_of_the_readme_are_shipped_with_their_verdicts():
    assert {path.name for path in SHIPPED} >= {
        "quickstart",
        "retrieval",
        "crystal-ablations",
        "crystal-retrieval",
        "crystal-long",
    }


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A source tree with later work in it."""
    tree = studies.copy_tree(tmp_path_factory.mktemp("changed"))
    for file in ("analysis/rules/superior.py", "policies/h2o.py", "protocol/running/runner.py"):
        with (tree / file).open("a") as source:
            source.write("\n# later work\n")
    return tree


@pytest.mark.parametrize(("folder", "judged"), JUDGED)
def test_the_evidence_holds_without_torch_and_after_the_code_changed(folder, judged, changed):
    """Of the longest study the judgement is taken as it is written; `make soak` derives it again."""
    command = [sys.executable, "-c", AUDITED, str(folder), judged]
    done = subprocess.run(command, cwd=changed, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PROTOCOLS, ids=lambda path: path.parent.name)
def test_a_protocol_is_read_whether_it_was_locked_or_waits_for_a_machine(path):
    protocol = reading.parse(path.read_bytes(), str(path))
    assert {arm.policy for arm in protocol.arms} <= set(policies.names())


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory) -> Path:
    return shutil.copytree(
        studies.ROOT / "registrations" / "quickstart", tmp_path_factory.mktemp("copy") / "quickstart"
    )


def files(folder: Path) -> list[Path]:
    return [folder / name for name in EVIDENCE] + [
        path for path in (folder / "records").rglob("*") if path.is_file()
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_byte_is_found(quickstart, seed, monkeypatch):
    monkeypatch.setattr(bundle, "extract", lambda *_: None)
    draw = random.Random(seed)
    path = draw.choice(files(quickstart)[: len(EVIDENCE)] * 3 + files(quickstart)[len(EVIDENCE) :])
    with studies.flipped(path, draw) as place:
        # Without deriving the verdict again, which the digests make unnecessary here and which takes seconds.
        findings = auditing.audit(Registration(quickstart), rederive=lambda tree, folder: b"")
    failed = {one.item for one in findings if one.status == "failed"} - {"judgement"}
    assert failed, f"{path.name}: byte {place} was flipped unnoticed"


def test_an_untouched_copy_holds(quickstart):
    inside = {
        one.status for one in auditing.audit(Registration(quickstart)) if one.item not in auditing.OUTSIDE
    }
    assert inside <= {"held", "not run"}

"""The registrations that this repository ships: their evidence holds, whatever became of the code since."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import studies

import policies
from protocol.evidence.audit import auditor
from protocol.evidence.audit.items import EXTERNAL_ITEMS
from protocol.evidence.registration import Registration
from protocol.plan import toml_reader

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

AUDITED = studies.BLOCK_TORCH + "from protocol import audit; sys.exit(audit.main([sys.argv[1]]))"


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
    for file in ("analysis/rules/superior.py", "policies/h2o.py", "protocol/run/runner.py"):
        with (tree / file).open("a") as source:
            source.write("\n# later work\n")
    return tree


DEAR = {  # 200,000 registered draws for each of 48 contrasts; 54,704 records; four that others resemble
    "crystal-retrieval": pytest.mark.soak,
    "reasoning-field": pytest.mark.soak,
    "gates-chain": pytest.mark.soak,
    "crystal-retrieval-2": pytest.mark.soak,
    "lossless-chain": pytest.mark.soak,
    "crystal-ablations": pytest.mark.soak,
    "crystal-long": pytest.mark.soak,
    "retrieval": pytest.mark.soak,
}


@pytest.mark.parametrize(
    "folder", [pytest.param(path, marks=DEAR.get(path.name, ()), id=path.name) for path in SHIPPED]
)
def test_the_evidence_holds_without_torch_and_after_the_code_changed(folder, changed):
    command = [sys.executable, "-c", AUDITED, str(folder)]
    done = subprocess.run(command, cwd=changed, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PROTOCOLS, ids=lambda path: path.parent.name)
def test_a_protocol_is_read_whether_it_was_locked_or_waits_for_a_machine(path):
    protocol = toml_reader.parse(path.read_bytes(), str(path))
    assert {arm.policy for arm in protocol.arms} <= set(policies.names())


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory) -> Path:
    return shutil.copytree(
        studies.ROOT / "registrations" / "quickstart", tmp_path_factory.mktemp("copy") / "quickstart"
    )


def files(folder: Path) -> list[Path]:
    return [folder / name for name in EVIDENCE] + [path for path in (folder / "records").rglob("*") if path.is_file()]


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, 40))])
def test_a_changed_byte_is_found(quickstart, seed):
    draw = random.Random(seed)
    path = draw.choice(files(quickstart)[: len(EVIDENCE)] * 3 + files(quickstart)[len(EVIDENCE) :])
    with studies.flipped(path, draw) as place:
        findings = auditor.audit(Registration(quickstart))
    failed = {finding.item for finding in findings if finding.status == "failed"}
    assert failed, f"{path.name}: byte {place} was flipped unnoticed"


def test_an_untouched_copy_holds(quickstart):
    inside = {one.status for one in auditor.audit(Registration(quickstart)) if one.item not in EXTERNAL_ITEMS}
    assert inside <= {"held", "not run"}

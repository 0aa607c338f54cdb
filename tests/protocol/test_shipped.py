"""The registrations that this repository ships: their evidence holds, whatever became of the code since."""

import subprocess
import sys

import pytest
import studies
from looped import looped

import policies
from protocol.plan import toml_reader

SHIPPED = sorted(path.parent for path in (studies.ROOT / "registrations").glob("*/verdict.json"))
PROTOCOLS = sorted((studies.ROOT / "registrations").glob("*/protocol.toml"))

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


# test_golden_audits.py audits all of them, with torch and today's code.
@pytest.mark.parametrize(
    "name",
    ["quickstart", *(pytest.param(name, marks=pytest.mark.soak) for name in ("control-effect", "crystal-retrieval-3"))],
)
def test_the_evidence_holds_without_torch_and_after_the_code_changed(name, changed):
    command = [sys.executable, "-c", AUDITED, str(studies.ROOT / "registrations" / name)]
    done = subprocess.run(command, cwd=changed, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@looped("path", PROTOCOLS, ids=lambda path: path.parent.name)
def test_a_protocol_is_read_whether_it_was_locked_or_waits_for_a_machine(path):
    protocol = toml_reader.parse(path.read_bytes(), str(path))
    assert {arm.policy for arm in protocol.arms if protocol.decodes} <= set(policies.names())

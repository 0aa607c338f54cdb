"""What needs no model is refused without importing torch, which takes seconds."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import studies

from protocol.lock import bundle

# As Python says that something is not installed, so that commands answer in one line.
WITHOUT_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""
CODE = """
import contextlib, importlib, io, json
from protocol.formats import progress_display
progress_display.SHOWN_AFTER = float("inf")  # on a slow machine some refusals are preceded by a line of progress
said = {}
for told, (name, *arguments) in json.loads(sys.argv[1]).items():
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            status = importlib.import_module(f"protocol.{name}").main(arguments)
        except SystemExit as stopped:
            status = stopped.code
        except ImportError as blocked:
            status = str(blocked)
    said[told] = [status, err.getvalue()]
print(json.dumps(said))
"""
STATUS = {
    "status, of a judged study": 0,
    "audit --help": 0,
    "register, locked already": 4,
    "register, unknown field": 2,
    "register, unknown task": 2,
    # The registry of policies is asked, whose values need torch: that it is not here is said in one line.
    "register, unknown policy": 2,
    "register, unknown model": 2,
    "probe, not locked": 2,
    "probe, judged": 4,
    "confirm, not locked": 2,
    "confirm, judged": 4,
    "replicate, no verdict": 2,
    "rehearse, unknown field": 2,
    "calibrate, unknown task": 2,
    "amend, not beside": 2,
    "withdraw, judged": 4,
    "export, no verdict": 2,
}


LATER = ("claim.json", "seal.json", "verdict.json", "records", "probe", "figures", "anchors", "*.html")
BROKEN = {  # of a written protocol: what is not as it should be
    "field": ("draws = ", "draw = "),
    "task": ('name = "needle-768"', 'name = "neddle-768"'),
    "policy": ('policy = "random"', 'policy = "rendom"'),
    "model": ('models = ["', 'models = ["no-such-'),
}


def studied(place: Path) -> dict[str, list[str]]:
    """The commands, by what they are told, on copies of a shipped study, cut back to what they refuse."""
    shipped = studies.ROOT / "registrations" / "quickstart"
    judged = shutil.copytree(shipped, place / "registrations" / "judged")
    shutil.copyfile(shipped.parent / bundle.SHARED, judged.parent / bundle.SHARED)
    locked = shutil.copytree(judged, judged.with_name("locked"), ignore=shutil.ignore_patterns(*LATER))
    ledger = (judged / "ledger.jsonl").read_bytes()
    (locked / "ledger.jsonl").write_bytes(ledger[: ledger.index(b"\n") + 1])
    text = (judged / "protocol.toml").read_text()
    broken = {name: judged.with_name(name) for name in BROKEN}
    for name, (right, wrong) in BROKEN.items():
        assert right in text, right
        broken[name].mkdir()
        (broken[name] / "protocol.toml").write_text(text.replace(right, wrong, 1))
    written = broken["model"]
    reason = ["--reason", "a typing error"]
    return {
        "status, of a judged study": ["status", str(judged)],
        "audit --help": ["audit", "--help"],
        "register, locked already": ["register", str(locked)],
        **{f"register, unknown {name}": ["register", str(path)] for name, path in broken.items()},
        "probe, not locked": ["probe", str(written)],
        "probe, judged": ["probe", str(judged)],
        "confirm, not locked": ["confirm", str(written)],
        "confirm, judged": ["confirm", str(judged)],
        "replicate, no verdict": ["replicate", str(locked)],
        "rehearse, unknown field": ["rehearse", str(broken["field"])],
        "calibrate, unknown task": ["calibrate", "chain-llama", "text", "--task", "chains"],
        "amend, not beside": ["amend", str(locked), str(place / "elsewhere"), *reason],
        "withdraw, judged": ["withdraw", str(judged), *reason],
        "export, no verdict": ["export", str(locked), "--format", "in-toto"],
    }


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Exit status and standard error of each command, one after the other in a process without torch."""
    commands = json.dumps(studied(tmp_path_factory.mktemp("studies")))
    child = [sys.executable, "-c", WITHOUT_TORCH + CODE, commands]
    done = subprocess.run(child, cwd=studies.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_needs_no_model_is_refused_without_torch(said):
    assert {told: status for told, (status, _) in said.items()} == STATUS


def test_each_refusal_is_one_line(said):
    assert {told for told, (status, err) in said.items() if status in (2, 4) and err.count("\n") != 1} == set()


def test_what_checks_a_claim_and_deals_out_jobs_loads_no_statistics_and_no_decoder():
    code = (
        "import sys; from protocol.preflight import sweep_selection, verify_before_claim;"
        "from protocol.run import progress; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=studies.ROOT, capture_output=True, text=True, check=True)
    assert {"scipy", "pandas", "protocol.run.executors.local"}.isdisjoint(done.stdout.split())

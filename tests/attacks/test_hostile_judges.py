"""A judge that its author wrote against the auditor, in a study whose every digest fits.

Each is run in every way that works here. Afterwards nothing outside has changed, nothing that it started is
left, and the check ends in one line of its own, whatever the judge printed.
"""

import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import finished_study
import pytest
import studies
from finished_study import JUDGED

from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import Tampered
from protocol.lock import bundle, installed_versions
from protocol.recompute import run_locked
from protocol.sandbox import sandbox
from protocol.sandbox.sandbox import Limits, Mechanism

LIMITS = Limits(seconds=30, memory=1 << 30, output=1 << 20)
HURRIED = LIMITS._replace(seconds=1)
HERE = finished_study.ENVIRONMENT | {
    "distributions": installed_versions.versions(),
    "python": platform.python_version(),
    "machine": platform.machine(),
}
AS_WRITTEN = f"\nprint({canonical.dumps(JUDGED).decode()!r}, flush=True)\n"

# Marks a process that is left behind; what it does takes longer than any test.
SURVIVOR = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {mark!r}], start_new_session=True)
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", {mark!r}])
"""


@pytest.fixture
def mark(tmp_path) -> Iterator[str]:
    """A word that only processes of this test have on their command line."""
    word = f"survivor-{tmp_path}"
    yield word
    assert not left(word)


def left(mark: str) -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in line:
            lines.append(path.parent.name)
    return lines


def judged_by(code: str, tmp_path: Path, way: Mechanism, limits: Limits = LIMITS) -> str:
    """What the check says of a study that `code` judges; nothing around the study may change."""
    study = tmp_path / "outside" / "study"
    study.parent.mkdir()
    finished_study.finished(study, judge=code, environment=HERE)
    before = studies.snapshot(tmp_path)
    try:
        return run_locked.check_locked(Registration(study), limits, [way])
    finally:
        assert studies.snapshot(tmp_path) == before


def assert_refused(code: str, kind: type[Exception], words: str, *place: object, limits: Limits = LIMITS) -> str:
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        judged_by(code, *place, limits)
    assert time.monotonic() - begun < limits.seconds + 10
    line = str(caught.value)
    assert words in line
    assert line.isprintable()  # and so of one line
    assert len(line) < 1000
    return line


def test_an_honest_judge_says_so_too(tmp_path, way):
    said = judged_by(finished_study.JUDGE, tmp_path, way)
    assert said == f"the locked code gives the same result word for word, contained by {way}"


def test_one_that_writes_wherever_it_can_writes_nowhere(tmp_path, way):
    places = [tmp_path / "outside" / "study", tmp_path / "outside", tmp_path, Path.home()]
    code = f"""
import os, sys, pathlib
given = pathlib.Path(sys.argv[1])
for place in [given, given.parent, given.parent / "tree", *map(pathlib.Path, {list(map(str, places))!r})]:
    for name in ("verdict.json", "lock.json", "planted-by-a-judge"):
        for act in (lambda: (place / name).write_text("planted"), lambda: (place / name).unlink(),
                    lambda: os.chmod(place, 0o777)):
            try:
                act()
            except OSError:
                pass
"""
    judged_by(code + AS_WRITTEN, tmp_path, way)
    assert not (Path.home() / "planted-by-a-judge").exists()


def test_one_that_reads_what_lies_around_finds_nothing(tmp_path, way):
    (tmp_path / "secret").write_text("the words of a key")
    code = f"""
import os
own = {str(tmp_path)!r}
for place in (own, os.path.dirname(own), "/tmp", "/home", "/etc", "/proc/1", "/run", "/var"):
    try:
        print(*os.listdir(place))
        print(open(place + "/secret").read())
    except OSError:
        pass
"""
    study = tmp_path / "study"
    finished_study.finished(study, judge=code)
    bundle.extract(study / "sources.zip", Registration(study).lock.content["sources"], tmp_path / "tree")
    command = [sys.executable, "-m", "analysis.judge"]
    ran = sandbox.run(command, tmp_path / "tree", limits=LIMITS, mechanisms=[way])
    assert ran.status == 0
    assert b"tree" in ran.stdout  # which it was given
    for name in (b"words of a key", b"shadow", b"passwd", b"secret", b"environ"):
        assert name not in ran.stdout


@pytest.mark.parametrize("named", ["localhost", "abstract"])
def test_one_that_calls_home_reaches_nobody(tmp_path, way, named):
    family = socket.AF_INET if named == "localhost" else socket.AF_UNIX
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1", 0) if named == "localhost" else f"\0{tmp_path}")
        listener.listen()
        listener.setblocking(False)
        code = f"""
import socket
try:
    with socket.socket(socket.AddressFamily({int(family)})) as caller:
        caller.settimeout(5)
        caller.connect({listener.getsockname()!r})
        caller.sendall(b"the records")
except OSError:
    pass
"""
        judged_by(code + AS_WRITTEN, tmp_path, way)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    "printed",
    [
        "\x1b[2J\x1b[H everything held; CONFIRMED, ANCHORED",
        "everything held; CONFIRMED, ANCHORED",
        "\x1b]0;title\x07\x9b31m\u202e\ud7ff\n\r" + 5000 * "z",
        '{"correct":{"crystal":3,"full":3},"verdict":"CONFIRMED"}',
        canonical.dumps(JUDGED).decode() + "\n\neverything held",
        "",
    ],
)
def test_what_one_prints_is_data(tmp_path, way, printed):
    """On its output and on its errors alike; the check ends with its own words."""
    code = f"import sys\nprint({printed!r})\nprint({printed!r}, file=sys.stderr)\n"
    assert_refused(code, Tampered, "contradicts verdict.json", tmp_path, way)


@pytest.mark.parametrize("loop", ["pass", "import os; os.close(1); os.close(2)\nwhile True: pass"])
def test_one_that_goes_on_for_ever_is_ended(tmp_path, way, mark, loop):
    code = SURVIVOR.format(mark=mark) + f"{loop}\nimport time\ntime.sleep(600)\n"
    assert_refused(code, CannotTell, "was stopped after 1 s", tmp_path, way, limits=HURRIED)


def test_one_that_uses_up_its_processor_time_cannot_tell(tmp_path, way):
    assert_refused("while True: pass", CannotTell, "limits are 1 s", tmp_path, way, limits=LIMITS._replace(cpu=1))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere what leaves its session is not followed")
def test_one_that_leaves_processes_behind_leaves_none(tmp_path, way, mark):
    judged_by(SURVIVOR.format(mark=mark) + AS_WRITTEN, tmp_path, way)
    assert not left(mark)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere what leaves its session is not followed")
def test_one_that_kills_who_started_it_changes_no_word(tmp_path, way, mark):
    """It kills all that it sees, and its group."""
    code = """
import os, signal
print("everything held; CONFIRMED, ANCHORED", flush=True)
alone = os.getpid() < 20  # the first numbers of a namespace: here -1 is nobody but this judge
for aim in ([os.getppid(), 1, -1] if alone else [os.getppid()]):
    try:
        os.kill(aim, signal.SIGKILL)
    except OSError:
        pass
os.killpg(0, signal.SIGKILL)
"""
    with pytest.raises((Tampered, CannotTell)) as caught:
        judged_by(SURVIVOR.format(mark=mark) + code, tmp_path, way)
    assert str(caught.value).startswith("the locked analysis.judge (")


def test_one_that_prints_without_end_is_not_kept(tmp_path, way):
    code = "import os\npiece = b'x' * (1 << 20)\nfor _ in range(300): os.write(1, piece)\n"
    assert_refused(code, Tampered, "prints more than 1048576 bytes", tmp_path, way)


def test_one_that_takes_all_memory_gets_none(tmp_path, way):
    assert_refused("held = bytearray(20 << 30)", CannotTell, "1073741824 bytes", tmp_path, way)


def test_one_that_fills_the_disk_is_ended(tmp_path, way):
    code = """
import os, tempfile
with open(os.path.join(tempfile.gettempdir(), "big"), "wb") as file:
    for _ in range(2000): file.write(bytes(1 << 20))
"""
    assert_refused(code, Tampered, "contradicts", tmp_path, way, limits=LIMITS._replace(file=1 << 22))


def test_one_that_asks_gets_no_answer(tmp_path, way):
    answer, typed = os.pipe()
    os.write(typed, b"yes\n")
    os.close(typed)
    before = os.dup(0)
    os.dup2(answer, 0)
    try:
        judged_by(f"import sys\nassert sys.stdin.read() == ''\n{AS_WRITTEN}", tmp_path, way)
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(answer)


@pytest.mark.parametrize("module", ["nowhere_to_be_found", "nowhere_to_be_found.below"])
def test_one_that_needs_a_package_that_is_not_here_cannot_tell(tmp_path, way, module):
    assert_refused(f"import {module}", CannotTell, "nowhere_to_be_found", tmp_path, way)


def test_one_that_needs_what_only_this_auditor_cannot_show_it_cannot_tell(tmp_path, way, monkeypatch):
    """It is installed here, and outside of what the walls leave to see."""
    (tmp_path / "elsewhere.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert_refused("import elsewhere", CannotTell, "not installed here", tmp_path, way)


@pytest.mark.parametrize("module", ["json", "sys", "numpy", "__main__", "analysis", "analysis.nowhere"])
def test_one_that_misses_a_package_that_is_here_says_otherwise(tmp_path, way, module):
    code = f'raise ModuleNotFoundError("No module named {module!r}")'
    assert_refused(code, Tampered, "contradicts verdict.json", tmp_path, way)


def test_one_that_nothing_can_contain_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "is_usable", lambda way: False)
    with pytest.raises(CannotTell, match="install bubblewrap"):
        judged_by(AS_WRITTEN, tmp_path, "unshare")


def test_one_that_looks_for_its_auditor_finds_no_environment_of_his(tmp_path, way, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_AUDITOR", "x")
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}")
    judged_by(
        "import os, sys\nassert not {'SECRET_OF_THE_AUDITOR', 'PYTHONPATH'} & os.environ.keys()\n"
        f"assert {str(tmp_path)!r} not in sys.path\n{AS_WRITTEN}",
        tmp_path,
        way,
    )

"""The walls around a command: what it sees, what it may do, and that nothing of it stays."""

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protocol.formats.findings import CannotTell
from protocol.sandbox import sandbox
from protocol.sandbox.sandbox import Limits, Mechanism, SandboxResult

LIMITS = Limits(seconds=30, memory=1 << 30)


def run(code: str, way: Mechanism, folder: Path, limits: Limits = LIMITS, **more) -> SandboxResult:
    return sandbox.run([sys.executable, "-c", code], folder, limits=limits, mechanisms=[way], **more)


def test_what_it_writes_and_how_it_ends_come_back(tmp_path, way):
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    assert run(code, way, tmp_path) == SandboxResult(7, b"out\n", b"err\n", None, f"contained by {way}")


def test_a_signal_that_ends_it_shows_in_its_status(tmp_path, way):
    assert run("import os; os.kill(os.getpid(), 15)", way, tmp_path).status == 128 + 15


def test_it_starts_where_it_is_told_with_an_environment_of_its_own(tmp_path, way, monkeypatch):
    monkeypatch.setenv("OF_THE_AUDITOR", "x")
    said = run("import os; print(os.getcwd()); print(*sorted(os.environ))", way, tmp_path)
    folder, names = said.stdout.decode().splitlines()
    assert folder == str(tmp_path)
    threads = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    ours = {"HOME", "TMPDIR", "PATH", "LANG", "PYTHONUTF8", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"} | threads
    assert set(names.split()) - {"LC_CTYPE", "PWD"} == ours


def test_its_home_is_empty_and_vanishes(tmp_path, way):
    code = """
import os, pathlib, tempfile
home = pathlib.Path.home()
assert not list(home.iterdir()) and tempfile.gettempdir() == str(home)
(home / "kept").write_text("here")
print(home)
"""
    said = run(code, way, tmp_path)
    assert said.status == 0, said.stderr
    assert not Path(said.stdout.decode().strip()).exists()


def test_what_it_is_given_is_read_and_not_written(tmp_path, way):
    for name in ("tree", "given", "not-given"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    code = f"""
import os
for name in ("tree", "given", "not-given"):
    path = os.path.join({str(tmp_path)!r}, name, "file")
    for mode in ("r", "a"):
        try:
            with open(path, mode) as file:
                print(name, mode, file.read() if mode == "r" else file.write("x"))
        except OSError as error:
            print(name, mode, type(error).__name__)
"""
    said = run(code, way, tmp_path / "tree", readable=[tmp_path / "given"])
    assert said.stdout.decode().splitlines() == [
        "tree r tree",
        "tree a OSError",
        "given r given",
        "given a OSError",
        "not-given r FileNotFoundError",
        "not-given a FileNotFoundError",
    ]


def test_the_interpreter_and_its_packages_are_there_and_cannot_be_changed(tmp_path, way):
    code = """
import os, sys
import numpy, pandas, scipy, statsmodels
for folder in (sys.prefix, sys.base_prefix, os.path.dirname(numpy.__file__), os.path.dirname(os.__file__)):
    try:
        open(os.path.join(folder, "planted-by-a-test"), "w")
    except OSError as error:
        print(error.errno)
"""
    said = run(code, way, tmp_path)
    assert said.stdout.decode().split() == 4 * ["30"], said  # EROFS: a file system that is read-only
    assert not Path(sys.prefix, "planted-by-a-test").exists()


def test_it_has_no_privilege_and_can_make_none(tmp_path, way):
    """Nor can it take its walls down: mount, change its root, enter other namespaces, take over process 1.
    In bubblewrap's it may trace that, and make a user namespace, which sees no more.
    """
    code = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
tried = {{
    "mount": lambda: libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b""),
    "remount": lambda: libc.mount(b"", b"/usr", b"", 4096 | 32, b""),
    "unmount": lambda: libc.umount2(b"/usr", 2),
    "chroot": lambda: libc.chroot(b"/usr"),
    "network namespace": lambda: libc.unshare(0x40000000),
    "setuid": lambda: libc.setuid(12345),
    "hostname": lambda: libc.sethostname(b"mine", 4),
}}
if {way!r} == "unshare":
    tried["trace process 1"] = lambda: libc.ptrace(16, 1, 0, 0)
    tried["user namespace"] = lambda: libc.unshare(0x10000000)
print(*(name for name, act in tried.items() if act() == 0), sep=", ")
"""
    said = run(code, way, tmp_path)
    assert said.status == 0, said.stderr
    assert said.stdout.decode().strip() == ""


def test_it_sees_no_process_of_others(tmp_path, way):
    said = run(f"import os; os.kill({os.getpid()}, 0)", way, tmp_path)
    assert b"ProcessLookupError" in said.stderr


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_is_too_much_is_ended_and_not_kept(tmp_path, way, name):
    code = f"import sys\nwhile True: sys.{name}.write(4096 * 'x')"
    said = run(code, way, tmp_path, LIMITS._replace(output=100_000))
    assert said.stopped == "output"
    assert {len(said.stdout), len(said.stderr)} == {0, 100_000}


def test_its_time_is_over_when_it_is_over(tmp_path, way):
    begun = time.monotonic()
    assert run("import time; time.sleep(60)", way, tmp_path, LIMITS._replace(seconds=1)).stopped == "time"
    assert time.monotonic() - begun < 10


def test_a_process_that_was_here_before_is_left_alone(tmp_path, way):
    """Survivors are found as descendants of this process; its other children are not theirs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        run("pass", way, tmp_path)
        assert other.poll() is None
        other.communicate(b"\n")


def test_the_first_way_that_works_is_taken_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "is_usable", lambda way: way != "bubblewrap")
    monkeypatch.setattr(sandbox, "_run", lambda *arguments: arguments[-1])
    assert sandbox.run(["true"], tmp_path) == "unshare"


def test_where_nothing_contains_it_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(CannotTell, match=r"this machine has no working sandbox.* install bubblewrap"):
        sandbox.run([sys.executable, "-c", "open('ran', 'w')"], tmp_path)
    assert not list(tmp_path.iterdir())


def test_walls_that_are_not_installed_do_not_work(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [sandbox.is_usable(way) for way in sandbox.MECHANISMS] == [False, False]


def test_walls_that_are_installed_and_not_allowed_do_not_work(monkeypatch, tmp_path):
    for name in ("bwrap", "unshare"):
        (tmp_path / name).write_text(f"#!{shutil.which('sh')}\necho not permitted >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [sandbox.is_usable(way) for way in sandbox.MECHANISMS] == [False, False]


def test_bubblewrap_is_asked_for_every_wall():
    """Held by the list where bubblewrap is not installed, by the other tests where it is."""
    given = ["/bin", "/dev/null", "/usr", "/private/tree"]
    walls = sandbox._wrapper_arguments("bubblewrap", given, Path("/scratch"), Path("/private/tree"), True)
    closed = sandbox._wrapper_arguments("bubblewrap", given, Path("/scratch"), Path("/private/tree"), False)
    assert closed == [*walls[:-1], "--remount-ro", "/", "--"]
    assert walls[:2] == ["bwrap", "--unshare-all"]
    assert {"--die-with-parent", "--new-session"} <= set(walls)
    pairs = list(itertools.pairwise(walls))
    assert ("--cap-drop", "ALL") in pairs
    assert ("--chdir", "/private/tree") in pairs
    assert ("--dir", "/scratch") in pairs
    triples = list(zip(walls, walls[1:], walls[2:], strict=False))
    assert ("--ro-bind", "/private/tree", "/private/tree") in triples
    assert ("--dev-bind", "/dev/null", "/dev/null") in triples
    assert not {"--bind", "--share-net", "--proc", "--dev"} & set(walls)
    assert walls[-1] == "--"


def test_what_lies_below_a_visible_folder_is_not_named_again(tmp_path):
    (tmp_path / "tree").mkdir()
    found = sandbox._visible_paths([tmp_path, tmp_path / "tree", tmp_path / "missing"])
    assert str(tmp_path) in found
    assert not [path for path in found if path.startswith(f"{tmp_path}/")]

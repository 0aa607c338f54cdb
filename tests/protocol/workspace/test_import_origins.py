"""Python imports from nowhere that no closure covers: not by PYTHONPATH, not by an editable install."""

import importlib.machinery
import os
import site
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest
import studies

from protocol.lock import installed_files
from protocol.workspace import imports, locked_tree

SPY = "import os, sys\nopen(os.environ.get('SPY', {here!r}), 'a').write(sys.argv[0] + '\\n')\n"


def named(name: str, origin: str) -> dict[str, ModuleType]:
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=origin)
    return {name: module}


def test_the_library_the_packages_and_the_tree_are_covered_and_nothing_else(tmp_path):
    library = sysconfig.get_path("stdlib")
    covered = [library, f"{library}/lib-dynload", *site.getsitepackages(), str(imports.ROOT)]
    assert [*imports.uncovered_entries(covered)] == []
    below = [str(imports.ROOT / "tests"), str(tmp_path)]
    assert [*imports.uncovered_entries([*covered, *below])] == below
    assert [*imports.uncovered_entries([str(tmp_path / "nowhere"), "__editable__.some.finder.__path_hook__"])] == []


def test_the_folder_in_which_a_command_is_typed_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [*imports.uncovered_entries(["", str(tmp_path)])] == []


def test_a_folder_that_only_looks_like_an_installation_is_not_covered(tmp_path, monkeypatch):
    """The closure reads what a RECORD lists, and strays beside that."""
    (tmp_path / "evil-1.0.dist-info").mkdir()
    (tmp_path / "evil-1.0.dist-info" / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    installed_files.site_folders.cache_clear()
    try:
        assert str(tmp_path) in imports.uncovered_entries(sys.path)
    finally:
        installed_files.site_folders.cache_clear()


def test_what_was_imported_from_elsewhere_is_found_however_python_came_there(tmp_path):
    library = Path(sysconfig.get_path("stdlib"))
    inside = [library / "json" / "__init__.py", Path(np_folder()), imports.ROOT / "policies" / "full.py"]
    assert [
        *imports.uncovered_modules(dict(pair for path in inside for pair in named(path.name, str(path)).items()))
    ] == []
    outside = [tmp_path / "sitecustomize.py", library / "site-packages" / "x" / "other.py", Path("/lib/x.so")]
    found = imports.uncovered_modules(dict(pair for path in outside for pair in named(path.name, str(path)).items()))
    assert [*found] == [str(path) for path in outside]


def np_folder() -> str:
    import numpy

    return numpy.__file__


def test_an_editable_install_of_another_project_is_found_and_our_own_is_not(tmp_path, monkeypatch):
    module = ModuleType("finder_of_an_editable_install")
    ours = {name: f"/anywhere/{name}" for name in ("protocol", "kv_prereg")}
    module.MAPPING = ours | {"kvtricks": str(tmp_path / "kvtricks")}
    monkeypatch.setitem(sys.modules, module.__name__, module)
    finder = type("Finder", (), {"__module__": module.__name__})
    assert [*imports.uncovered_mappings([finder])] == [str(tmp_path / "kvtricks")]


def test_a_sitecustomize_of_pythonpath_is_refused_and_does_not_run_in_the_locked_tree(
    registered, tmp_path, monkeypatch
):
    """It would run in every Python that is started with its folder. The command names the folder and stops;
    the environment of the locked tree has none of it, nor of what else has Python run or load something.
    """
    evil, spy = tmp_path / "evil", tmp_path / "spy"
    evil.mkdir()
    for name in ("sitecustomize.py", "usercustomize.py", "startup.py"):
        (evil / name).write_text(SPY.format(here=str(spy)))
    harm = {"PYTHONPATH": str(evil), "PYTHONSTARTUP": str(evil / "startup.py"), "PYTHONINSPECT": "1"}
    command = [sys.executable, "-m", "protocol.confirm", str(registered)]
    with studies.unchanged(registered):
        done = subprocess.run(
            command, cwd=studies.ROOT, env=studies.plain() | {"PYTHONPATH": str(evil)}, capture_output=True, text=True
        )
        assert done.returncode == 2
        assert f"BadInput: sys.path: Python imports from {evil}" in done.stderr
        assert "unset PYTHONPATH" in done.stderr
        assert spy.exists()  # in the process that was refused
    spy.unlink()
    passed = locked_tree.select_environment(studies.plain() | harm | {"SPY": str(spy)})
    assert passed.keys().isdisjoint([*harm, "SPY", "LD_PRELOAD", "PYTHONHOME"])
    shown = "import sys; print('sitecustomize' in sys.modules, any('evil' in each for each in sys.path))"
    done = subprocess.run([sys.executable, "-P", "-c", shown], env=passed, capture_output=True, text=True)
    assert done.stdout == "False False\n", done.stderr
    assert not spy.exists()


@pytest.mark.parametrize("name", ["PATH", "HOME", "LC_ALL", "OMP_NUM_THREADS", "KV_PREREG_HOME", "https_proxy"])
def test_what_a_run_needs_is_passed_on(name):
    assert locked_tree.select_environment({name: "x", "PYTHONHOME": os.devnull}) == {name: "x"}


def test_a_link_in_a_covered_folder_is_covered_since_its_bytes_are_read_through_it(tmp_path, monkeypatch):
    """As Debian has it: sitecustomize.py of the library is a link to /etc."""
    library, elsewhere = tmp_path / "lib", tmp_path / "etc"
    library.mkdir()
    elsewhere.mkdir()
    (elsewhere / "sitecustomize.py").touch()
    (library / "sitecustomize.py").symlink_to(elsewhere / "sitecustomize.py")
    monkeypatch.setattr(imports, "_library_folders", lambda: {str(library)})
    assert [*imports.uncovered_modules(named("sitecustomize", str(library / "sitecustomize.py")))] == []
    assert [*imports.uncovered_modules(named("sitecustomize", str(elsewhere / "sitecustomize.py")))] != []


def test_registering_refuses_what_confirming_would_refuse(tmp_path, tiny_model):
    """Otherwise something could be locked that nobody can confirm."""
    study = studies.write(tmp_path / "registrations" / "study", tiny_model)
    (tmp_path / "elsewhere").mkdir()
    paths = os.pathsep.join([str(studies.ROOT), str(tmp_path / "elsewhere")])
    done = subprocess.run(
        [sys.executable, "-m", "protocol.register", str(study)],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=studies.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert f"Python imports from {tmp_path / 'elsewhere'}, which no lock covers" in done.stderr
    assert studies.snapshot(study).keys() == {"protocol.toml"}

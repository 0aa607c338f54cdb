"""What every attack starts from: a study that was registered, probed and confirmed honestly, in a git
repository with a commit after each of these steps.
"""

import shutil
from pathlib import Path

import pytest
import studies
from attacking import Repository


@pytest.fixture(scope="session")
def history(registered, probed, confirmed, tmp_path_factory) -> dict[str, Path]:
    """The repository as it stood when the study was registered, probed and finished."""
    root = tmp_path_factory.mktemp("honest") / "repository"
    root.mkdir()
    repository = Repository(root)
    repository.git("init", "--quiet", "--initial-branch=main")
    stages = {}
    for act, folder in {"register": registered, "probe": probed, "confirm": confirmed}.items():
        shutil.copytree(folder, root / "registrations" / "study", dirs_exist_ok=True)
        repository.commit(act)
        stages[act] = shutil.copytree(root, root.parent / act)
    return stages


@pytest.fixture
def study(history, tmp_path) -> Path:
    """The finished study, in a repository of its own."""
    return shutil.copytree(history["confirm"], tmp_path / "repository") / "registrations" / "study"


@pytest.fixture
def unconfirmed(history, tmp_path) -> Path:
    """The same study before it was confirmed: locked and probed."""
    return shutil.copytree(history["probe"], tmp_path / "repository") / "registrations" / "study"


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> Path:
    """A copy of the source tree, byte for byte what was locked."""
    return studies.copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def edited(sources):
    """Edit a file of `sources` for one test: edited(name, change), change: bytes -> bytes."""
    undo: list[tuple[Path, bytes]] = []

    def edit(name: str, change) -> None:
        path = sources / name
        undo.append((path, path.read_bytes()))
        path.write_bytes(change(path.read_bytes()))

    yield edit
    for path, data in reversed(undo):
        path.write_bytes(data)

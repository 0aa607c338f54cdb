"""What every attack starts from: a study that was registered, probed and confirmed honestly, in a git
repository with a commit after each of these steps.
"""

import shutil
from pathlib import Path

import pytest
import studies
from attacking import Repository

from protocol.lock import installed_versions


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
def installed_once(monkeypatch):
    """What is installed stays as it is, and takes as long to read as all the rest of an audit."""
    monkeypatch.setattr(installed_versions, "versions", studies.installed)


@pytest.fixture
def study(history, tmp_path) -> Path:
    """The finished study, in a repository of its own."""
    return shutil.copytree(history["confirm"], tmp_path / "repository") / "registrations" / "study"


@pytest.fixture
def unconfirmed(history, tmp_path) -> Path:
    """The same study before it was confirmed: locked and probed."""
    return shutil.copytree(history["probe"], tmp_path / "repository") / "registrations" / "study"

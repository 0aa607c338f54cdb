"""The shipped studies audit as they were recorded to: exit status, verdict and the status of every item."""

import json

import golden_audits
import pytest

RECORDED = json.loads(golden_audits.GOLDEN.read_text())
FOLDERS = golden_audits.locked_folders()


def test_every_locked_folder_is_recorded():
    assert [folder.name for folder in FOLDERS] == sorted(RECORDED)


@pytest.mark.parametrize(
    "folder",
    [pytest.param(path, marks=() if path.name == "quickstart" else pytest.mark.soak, id=path.name) for path in FOLDERS],
)
def test_a_shipped_study_audits_as_before(folder):
    assert golden_audits.audit(folder) == RECORDED[folder.name]

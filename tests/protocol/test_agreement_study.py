"""A study whose outcome is agreement with the full cache, from its registration to its audit."""

import json

import pytest
import studies

pytestmark = pytest.mark.usefixtures("same_environment")

AGREEMENT = {
    **studies.ONE_TASK,
    "[generation]": '[outcome]\nkind = "agreement"\n[generation]',
    "threads = 1": 'threads = 1\nkernel = "native"\ninterval = 8\nproblems_per_batch = 2',
    'method = "sign-flip"\ndraws = 10000\nseed = 7': 'method = "betting"',
}


def test_a_study_of_agreement_is_registered_confirmed_and_audited(tmp_path, wide_model):
    folder = studies.write(tmp_path / "registrations" / "agreement", wide_model, AGREEMENT)
    done = studies.here("register", folder)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    confirmed = studies.here("confirm", folder)
    print(confirmed.stdout[-3000:])
    assert confirmed.returncode in (10, 11, 12), confirmed.stderr
    bodies = [json.loads(line)["body"] for line in studies.shard_text(folder).splitlines()]
    for body in bodies[:8]:
        print(body)
    audited = studies.here("audit", folder)
    print(audited.stdout)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert 0

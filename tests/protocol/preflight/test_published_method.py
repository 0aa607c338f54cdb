"""At registering, a published method may err, in writing; the sound method beside it may not."""

import pytest
import studies

from analysis.simulation.error_estimate import TypeOneError
from analysis.simulation.null_settings import SYMMETRIC, Setting
from protocol.formats.refusals import BadInput
from protocol.preflight import rule_checks
from protocol.workspace.planned_study import read_protocol

ONE_CONTRAST = studies.ONE_TASK | {'against = ["random", "streaming"]': 'against = ["random"]'}
ITEMS = {"needle-256": {"dev": [], "confirm": [f"p{number}" for number in range(220)]}}


def check(folder, method, errs, monkeypatch):
    """The checks of a small design whose methods err as told: by how many times their level."""
    written = ONE_CONTRAST | {'method = "sign-flip"': f'method = "{method}"'}
    design = read_protocol(studies.write(folder / method, "tiny", written))[1]

    def error(protocol, name, problems, level, rng):
        ratio = errs[name]
        return TypeOneError(ratio * level, ratio, ratio, ratio, 0, Setting(SYMMETRIC, 0.17))

    monkeypatch.setattr(rule_checks, "_estimate_type_one", error)
    return rule_checks.check_rule(design, ITEMS)


def test_an_error_of_the_published_method_is_written_and_one_of_the_sound_method_is_refused(tmp_path, monkeypatch):
    errs = {"as-published": 5.36, "bootstrap": 5.36, "restricted-likelihood": 0.89}
    found = check(tmp_path, "as-published", errs, monkeypatch)
    assert found["problems"]["220"]["type_one_over_nominal"] == "5.360"
    with pytest.raises(BadInput, match=r"bootstrap at 220 problems .* use restricted-likelihood"):
        check(tmp_path, "bootstrap", errs, monkeypatch)
    errs = dict.fromkeys(("as-published", *rule_checks.ALTERNATIVES), 5.0)
    with pytest.raises(BadInput, match="restricted-likelihood at 220 problems"):
        check(tmp_path, "as-published", errs, monkeypatch)

"""What counts as memory is registered, and no tolerance lets in more than the charge was tried for."""

from pathlib import Path

import pytest
import studies

from analysis.judgement.contrasts import MEMORY
from protocol.formats.refusals import BadInput
from protocol.plan import checks, toml_reader
from protocol.plan.decision import DECISION
from protocol.register import register

TEXT = studies.PROTOCOL.format(model="x")
HERE = Path("registrations/x/protocol.toml")


def parse(text: str):
    return toml_reader.parse(text.encode(), "p.toml")


@pytest.mark.parametrize("kind", ["slots", "bytes", "total"])
def test_what_counts_is_locked_as_it_was_written(kind):
    design = parse(TEXT.replace('memory = "slots"', f'memory = "{kind}"'))
    assert design.content()["decision"]["memory"] == kind
    checks.require_memory(design, HERE)


def test_every_kind_that_may_be_registered_is_judged():
    assert tuple(DECISION.fields["memory"].kind.options) == tuple(MEMORY)


@pytest.mark.parametrize("tolerance", ["0.5", "0.03", "0.0201"])
def test_a_tolerance_above_two_percent_is_refused(tolerance):
    design = parse(TEXT.replace("cache_tolerance = 0.02", f"cache_tolerance = {tolerance}"))
    with pytest.raises(BadInput, match=rf"decision.cache_tolerance: {tolerance} is above 0.02"):
        checks.require_memory(design, HERE)


@pytest.mark.parametrize("tolerance", ["0.02", "0.005", "0"])
def test_a_tighter_one_is_not(tolerance):
    checks.require_memory(parse(TEXT.replace("tolerance = 0.02", f"tolerance = {tolerance}")), HERE)


def test_a_protocol_that_does_not_say_what_counts_is_read_and_not_registered():
    design = parse(TEXT.replace('memory = "slots"\n', ""))
    assert "memory" not in design.content()["decision"]
    with pytest.raises(BadInput, match=r'decision.memory: missing; write .* "slots", "bytes" or "total"'):
        checks.require_memory(design, HERE)


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        ({'memory = "slots"\n': ""}, "decision.memory: missing"),
        ({"cache_tolerance = 0.02": "cache_tolerance = 0.5"}, "decision.cache_tolerance: 0.5 is above 0.02"),
    ],
)
def test_registering_refuses_both_and_writes_nothing(tmp_path, replace, said):
    folder = studies.write(tmp_path / "registrations" / "mine", tmp_path / "model", replace)
    with pytest.raises(BadInput, match=said):
        register(folder, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["protocol.toml"]

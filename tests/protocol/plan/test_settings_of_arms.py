"""Arms with settings: what may be written, what is locked of it, and what is refused in one line."""

import json
from decimal import Decimal

import pytest
from json_schema import fits
from studies import PROTOCOL, ROOT

from analysis.judgement import arm_text
from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.workspace.planned_study import PlannedStudy

PLAIN = PROTOCOL.format(model="/nowhere")
STREAMING = 'streaming = { policy = "streaming" }'


def written(arm: str, generation: str = "") -> bytes:
    """The protocol with another arm of this name, and more in [generation]."""
    text = PLAIN.replace(STREAMING, f"streaming = {{ {arm} }}")
    return text.replace("threads = 1", f"threads = 1\n{generation}").encode()


def test_settings_are_locked_as_they_were_written():
    design = toml_reader.parse(written('policy = "1d_div", set = { "selection.weight" = 0.750 }'), "p")
    assert design.arm("streaming").set == {"selection.weight": Decimal("0.750")}
    assert design.content()["arms"]["streaming"] == {"policy": "1d_div", "set": {"selection.weight": "0.750"}}
    assert design.policy("streaming").selection.weight == 0.75


def test_whole_numbers_text_flags_and_lists_are_locked_as_they_are():
    settings = '"scoring.offsets" = [1, 4], "scoring.statistics" = "traces", "cadence.slack" = true'
    design = toml_reader.parse(written(f'policy = "1d", set = {{ {settings} }}'), "p")
    assert design.content()["arms"]["streaming"]["set"] == {
        "scoring.offsets": [1, 4],
        "scoring.statistics": "traces",
        "cadence.slack": True,
    }
    assert design.policy("streaming").scoring.offsets == (1, 4)
    assert arm_text.describe_arm(design.content()["arms"]["streaming"]) == (
        "policy 1d, scoring.offsets = [1, 4], scoring.statistics = traces, cadence.slack = true"
    )


def test_an_arm_without_settings_is_locked_and_told_as_before():
    content = toml_reader.parse(PLAIN.encode(), "p").content()["arms"]["streaming"]
    assert content == {"policy": "streaming"}
    assert arm_text.describe_arm(content) == "policy streaming"


def test_what_is_probed_again_and_what_a_sweep_confirms_have_the_settings():
    design = toml_reader.parse(written('policy = "snapkv", set = { "scoring.window" = 8 }'), "p")
    again = design.probe_design()
    assert again.arm("random (again)").set is None
    swapped = toml_reader.parse(
        written('policy = "snapkv", set = { "scoring.window" = 8 }').replace(
            b'against = ["random", "streaming"]', b'against = ["streaming", "random"]'
        ),
        "p",
    )
    assert swapped.probe_design().arm("streaming (again)").set == {"scoring.window": 8}


def test_an_interval_of_its_own_stays_where_another_is_registered():
    arm = 'policy = "snapkv", set = { "cadence.interval" = 4 }'
    design = toml_reader.parse(written(arm, "interval = 8"), "p")
    assert design.policy("streaming").cadence.interval == 4
    assert design.policy("random").cadence.interval == 8


def test_what_is_protected_beside_a_pinned_prompt_may_be_set():
    arm = 'policy = "snapkv", set = { "protect.recent" = 4 }'
    design = toml_reader.parse(written(arm, 'prompt = "pinned"'), "p")
    assert design.policy("streaming").protect.inner.recent == 4


def test_an_interval_of_its_own_is_not_exact_because_that_of_the_others_is():
    setting, generation = '"cadence.interval" = 4', 'interval = 8\ncadence = "exact"'
    with pytest.raises(BadInput, match=r'set\.cadence\.interval: generation\.cadence .* set "cadence.slack" too'):
        toml_reader.parse(written(f'policy = "snapkv", set = {{ {setting} }}', generation), "p")
    own = written(f'policy = "snapkv", set = {{ {setting}, "cadence.slack" = false }}', generation)
    assert not toml_reader.parse(own, "p").policy("streaming").cadence.slack


def test_statistics_that_nobody_can_measure_are_refused_by_their_name(tmp_path):
    arm = 'policy = "1d", set = { "scoring.statistics" = "texts" }'
    design = toml_reader.parse(written(arm), "p")
    with pytest.raises(BadInput, match="'streaming' needs Statistics that were calibrated as 'texts', which kv-p"):
        PlannedStudy(design, tmp_path).statistics_files("path:/nowhere")


@pytest.mark.parametrize(
    ("value", "fit"),
    [
        ({"scoring.window": 8}, True),
        ({"a": 0.5, "b": "text", "c": True, "d": [1, "a", False]}, True),
        ({}, False),
        ({"a": {"b": 1}}, False),
        ({"a": [[1]]}, False),
        ({"a": None}, False),
        (8, False),
    ],
)
def test_the_schema_takes_what_is_read(value, fit):
    whole = json.loads((ROOT / "docs" / "protocol.schema.json").read_text())
    own = whole["properties"]["arms"]["additionalProperties"]["properties"]["set"]
    assert fits(own, value, whole) == fit

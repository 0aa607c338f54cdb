"""Arms with settings: what may be written, what is locked of it, and what is refused in one line."""

from decimal import Decimal

import pytest
from json_schema import fits
from studies import PROTOCOL

from analysis.judgement import arm_text
from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader
from protocol.plan.design import DESIGN
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


AT = "arms.streaming.set"
REFUSED = [
    ('policy = "snapkv", set = { "scoring.windw" = 8 }', f"{AT}.scoring.windw: no setting of the policy; did you"),
    (
        'policy = "snapkv", set = { "scoring.window" = "8" }',
        f"{AT}.scoring.window: write a whole number, not the text '8'",
    ),
    ('policy = "snapkv", set = { "scoring.window" = 8.5 }', f"{AT}.scoring.window: write a whole number, not 8.5"),
    ('policy = "snapkv", set = { "scoring.window" = 0 }', f"{AT}.scoring.window: window must be 1 or more"),
    ('policy = "snapkv", set = { scoring.window = 8 }', f'{AT}.scoring: write the whole path in quotes, "scoring.w'),
    (
        'policy = "crystal", set = { scoring.breath.hops = 8 }',
        f'{AT}.scoring: write the whole path in quotes, "scoring.breath.hops" = ...',
    ),
    ('policy = "snapkv", set = {}', f"{AT}: sets nothing; leave it out"),
    ('policy = "snapkv", set = { "" = 8 }', f"{AT}: has a path without a name; write one that"),
    ('policy = "snapkv", set = { "scoring\\nwindow" = 8 }', f"{AT}: has a path with a line end, 'scoring\\nwi"),
    ('policy = "snapkv", set = 8', f"{AT}: write a table of settings by their paths"),
    ('policy = "snapkv", set = { "scoring.window" = nan }', f"{AT}.scoring.window: write a number (up to 2^53-1)"),
    ('policy = "snapkv", set = { "scoring.window" = 1e400 }', f"{AT}.scoring.window: write a number"),
    ('policy = "1d_div", set = { "selection.weight" = 1e-400 }', f"{AT}.selection.weight: write a number"),
    ('policy = "snapkv", set = { "scoring.window" = 9007199254740992 }', f"{AT}.scoring.window: write a number"),
    ('policy = "snapkv", set = { "scoring.window" = 2026-11-22 }', f"{AT}.scoring.window: write a number"),
    ('policy = "1d", set = { "scoring.offsets" = [[1]] }', f"{AT}.scoring.offsets: write a number"),
    ('policy = "1d", set = { "scoring.offsets" = [1, inf] }', f"{AT}.scoring.offsets[1]: write a number"),
    ('policy = "1d", set = { "scoring.statistics" = "TODO" }', f"{AT}.scoring.statistics: placeholder left unfil"),
    ('policy = "snapkv", set = { "a\\u200bb" = 8 }', f"{AT}: has U+200B, which cannot be seen"),
    ('policy = "1d_div", set = { "selection.weight" = 0.10000000000000000001 }', "has more digits than a float"),
    ('policy = "snapvk", set = { "scoring.window" = 8 }', "arms.streaming.policy: unknown policy 'snapvk'; did"),
    ('policy = "snapkv", sets = { "scoring.window" = 8 }', "arms.streaming.sets: unknown field 'sets'; did you mean"),
    ('policy = "snapkv", set = { "cadence.at_prefill" = false }', "decision.against: unknown evicting arm 'stre"),
]


@pytest.mark.parametrize(("arm", "said"), REFUSED)
def test_what_cannot_be_set_is_refused_with_the_arm_and_the_path(arm, said):
    with pytest.raises(BadInput) as refusal:
        toml_reader.parse(written(arm), "protocol.toml")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("setting", "generation"),
    [
        ('"cadence.slack" = false', "interval = 8"),
        ('"protect.sinks" = 2', "interval = 8\npreserve = { prompt = true, recent = 16 }"),
    ],
)
def test_what_every_arm_is_given_cannot_be_set_for_nothing(setting, generation):
    with pytest.raises(BadInput, match=r"generation\] gives every arm another; leave one of both out"):
        toml_reader.parse(written(f'policy = "snapkv", set = {{ {setting} }}', generation), "p")


def test_an_interval_of_its_own_is_not_exact_because_that_of_the_others_is():
    setting, generation = '"cadence.interval" = 4', 'interval = 8\ncadence = "exact"'
    with pytest.raises(BadInput, match=r'set\.cadence\.interval: generation\.cadence .* set "cadence.slack" too'):
        toml_reader.parse(written(f'policy = "snapkv", set = {{ {setting} }}', generation), "p")
    own = written(f'policy = "snapkv", set = {{ {setting}, "cadence.slack" = false }}', generation)
    assert not toml_reader.parse(own, "p").policy("streaming").cadence.slack


def test_statistics_that_nobody_can_measure_are_refused_by_their_name(tmp_path):
    arm = 'policy = "1d", set = { "scoring.statistics" = "texts" }'
    design = toml_reader.parse(written(arm), "p")
    with pytest.raises(BadInput, match="'streaming' reads Statistics that were calibrated as 'texts', which noth"):
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
    whole = DESIGN.schema()
    own = whole["properties"]["arms"]["additionalProperties"]["properties"]["set"]
    assert fits(own, value, whole) == fit

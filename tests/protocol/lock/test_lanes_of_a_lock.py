"""How many lanes decode at once stands in a lock where numbers depend on it, and in no other."""

import pytest
import studies

from protocol.lock import lock
from protocol.plan import toml_reader
from protocol.preflight.derive import derive_lock


@pytest.mark.parametrize(
    ("name", "chosen", "lanes"),
    [
        ("control-effect", {}, {}),
        ("control-effect", None, {"chain-llama": 126, "chain-qwen2": 126}),  # as this one was locked
        ("bytes-chain", {}, {"programs-llama": 220, "programs-qwen3": 220}),
    ],
)
def test_lanes_are_locked_where_numbers_depend_on_the_batch(name, chosen, lanes):
    folder = studies.ROOT / "registrations" / name
    design = toml_reader.parse((folder / "protocol.toml").read_bytes(), name)
    locked = lock.read(folder).content
    batch = locked["batch"] if chosen is None else {"lanes": chosen}
    derived = derive_lock(design, locked["promises"], {**locked, "batch": batch})
    assert derived["batch"] == {"lanes": lanes, "first_event": 1}


def test_what_make_confirm_runs_needs_no_compiler():
    (command,) = (line for line in (studies.ROOT / "Makefile").read_text().splitlines() if "protocol.replicate" in line)
    folder = studies.ROOT / command.split()[3]
    design = toml_reader.parse((folder / "protocol.toml").read_bytes(), folder.name)
    assert folder.name == "alpha-chain"
    assert design.generation.kernel in (None, "eager")

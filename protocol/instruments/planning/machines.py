"""Machines as data: peaks from data sheets, and assumptions about the share of them that is reached."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from protocol.formats.refusals import BadInput
from protocol.formats.suggestions import suggest
from protocol.instruments.planning.roofline import Rates

DATA = Path(__file__).with_name("machines.toml")
COUNTED_NAME = re.compile(r"\s*(?:([0-9]{1,6})\s*[xX\N{MULTIPLICATION SIGN}*]\s*)?(\S.*?)\s*")
FIELDS = {"memory", "bandwidth", "flops", "accelerator"}
MOST = 4096  # devices
ASSUMED = (
    "the shares of the peak rates that are reached, the host's seconds, and the time of loading are assumed: see "
    "docs/machines.md"
)
EXAMPLES = {
    "memory": "memory = 80e9, bytes of one device",
    "bandwidth": "bandwidth = 2e12, bytes a second of one device",
    "flops": "flops = { bfloat16 = 312e12 }, FLOP a second of one device, float32 or bfloat16",
}


class Machine(NamedTuple):
    """A machine. devices: how many work at once. memory, bandwidth: bytes and bytes/s of one device. flops:
    FLOP/s of one, by dtype. accelerator: whether the host works in parallel.
    """

    name: str
    devices: int
    memory: float
    bandwidth: float
    flops: Mapping[str, float]
    accelerator: bool


@cache
def load_constants() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def _parse_count(text: str) -> tuple[int, str]:
    """Parse "8xA100-80G" into (number of devices, name). Raises BadInput."""
    match = COUNTED_NAME.fullmatch(text)
    if match is None:
        raise BadInput(f"--on {text!r}: write a machine, such as 8xA100-80G, or a file")
    count = 1 if match[1] is None else int(match[1])
    if not 1 <= count <= MOST:
        raise BadInput(f"--on {text}: {count} devices; write 1 to {MOST}")
    return count, match[2]


def find_machine(text: str) -> Machine:
    """Return the machine for NAME, FILE or COUNTxNAME; a file has constants. Raises BadInput."""
    count, name = _parse_count(text)
    if Path(name).suffix.lower() in (".toml", ".json"):
        return _build_machine(Path(name).stem, count, _read_constants(Path(name)), f"--on {name}")
    machines = load_constants()["machines"]
    folded = {_normalize_name(candidate): candidate for candidate in machines}
    if (right := folded.get(_normalize_name(name))) is None:
        sizes = [candidate for key, candidate in folded.items() if key.startswith(_normalize_name(name))]
        meant = f"did you mean {' or '.join(sizes)}?" if sizes else suggest(name, [*machines])
        raise BadInput(
            f"--on {text}: unknown machine {name!r}; {meant} docs/machines.md shows how to describe a machine in a file"
        )
    return _build_machine(right, count, machines[right], right)


def _normalize_name(name: str) -> str:
    """Normalize spelling: A100_80GB becomes a10080g, like A100-80G, and RTX4090 becomes 4090."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    plain = re.sub(r"^(nvidia)?(geforce)?(rtx)?", "", plain)
    return re.sub(r"(?<=\d)gb$", "g", re.sub(r"(sxm\d?|pcie)", "", plain))


def _read_constants(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError:
        raise BadInput(f"--on {path}: no such file; docs/machines.md shows one") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--on {path}: cannot be read: {' '.join(str(error).split())}") from None


def _build_machine(name: str, count: int, table: Any, at: str) -> Machine:
    if not isinstance(table, dict):
        raise BadInput(f"{at}: write a table with memory, bandwidth and flops")
    if strange := sorted(table.keys() - FIELDS):
        raise BadInput(f"{at}: {strange[0]}: unknown; {suggest(strange[0], sorted(FIELDS))}")
    if missing := [field for field in EXAMPLES if field not in table]:
        raise BadInput(f"{at}: {missing[0]}: missing; write {EXAMPLES[missing[0]]}")
    flops = table["flops"]
    if not isinstance(flops, dict) or not flops or flops.keys() - {"float32", "bfloat16"}:
        raise BadInput(f"{at}: flops: write {EXAMPLES['flops']}")
    accelerator = table.get("accelerator", True)
    if not isinstance(accelerator, bool):
        raise BadInput(f"{at}: accelerator: write true or false")
    return Machine(
        name,
        count,
        _check_positive(table["memory"], f"{at}: memory"),
        _check_positive(table["bandwidth"], f"{at}: bandwidth"),
        {dtype: _check_positive(value, f"{at}: flops.{dtype}") for dtype, value in flops.items()},
        accelerator,
    )


def _check_positive(value: Any, at: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value <= 0:
        raise BadInput(f"{at}: write a number above 0, not {value!r}")
    return float(value)


def machine_rates(machine: Machine, dtype: str) -> tuple[Rates, Rates, Rates]:
    """Return pessimistic, expected and optimistic rates. Raises BadInput without a peak for this dtype."""
    if dtype not in machine.flops:
        raise BadInput(f"--on {machine.name}: flops: has no rate for {dtype}, which is registered; add it")
    assumed = load_constants()["assumed"]
    host = {name: seconds for name, seconds in assumed["host"].items() if name != "factor"}

    def side(index: int) -> Rates:
        factor = assumed["host"]["factor"][index]
        return Rates(
            flops=machine.flops[dtype] * assumed["share"]["flops"][index],
            bandwidth=machine.bandwidth * assumed["share"]["bandwidth"][index],
            load=assumed["load"]["bytes"][index],
            is_asynchronous=machine.accelerator,
            **{name: factor * seconds for name, seconds in host.items()},
        )

    return side(0), side(1), side(2)

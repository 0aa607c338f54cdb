"""Machines as data: peaks from data sheets, and assumptions about the share of them that is reached."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence.refusals import BadInput, hint
from protocol.planning.arithmetic import Arm, Host, Rates

__all__ = ["HERE", "SIDES", "Machine", "machine", "named", "rates"]

HERE = "here"
DATA = Path(__file__).with_name("machines.toml")
SIDES = ("pessimistic", "expected", "optimistic")
COUNTED = re.compile(r"\s*(?:([0-9]{1,6})\s*[xX\N{MULTIPLICATION SIGN}*]\s*)?(\S.*?)\s*")
FIELDS = {"memory", "bandwidth", "flops", "accelerator", "share", "host", "load"}
MOST = 4096  # devices


class Machine(NamedTuple):
    """A machine. devices: how many work at once. memory, bandwidth: bytes and bytes/s of one device. flops:
    FLOP/s of one, by dtype. accelerator: whether the host works in parallel. share, host, load: as in
    machines.toml, pessimistic first. overrides: which of these the user has set.
    """

    name: str
    devices: int
    memory: float
    bandwidth: float
    flops: Mapping[str, float]
    accelerator: bool
    share: Mapping[str, tuple[float, ...]]
    host: Mapping[str, Any]
    load: tuple[float, ...]
    own: tuple[str, ...] = ()


@cache
def known() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def named(text: str) -> tuple[int, str]:
    """Parse "8xA100-80G" into (number of devices, name). Raises BadInput."""
    found = COUNTED.fullmatch(text)
    if found is None:
        raise BadInput(f"--on {text!r}: write a machine, such as 8xA100-80G, {HERE}, or a file")
    count = 1 if found[1] is None else int(found[1])
    if not 1 <= count <= MOST:
        raise BadInput(f"--on {text}: {count} devices; write 1 to {MOST}")
    return count, found[2]


def machine(text: str) -> Machine:
    """Return the machine for NAME, FILE or COUNTxNAME; a file has constants. Raises BadInput."""
    count, name = named(text)
    if Path(name).suffix.lower() in (".toml", ".json"):
        return _made(Path(name).stem, count, _read(Path(name)), f"--on {name}", ())
    machines = known()["machines"]
    folded = {_folded(each): each for each in machines}
    if (right := folded.get(_folded(name))) is None:
        sizes = [each for key, each in folded.items() if key.startswith(_folded(name))]
        meant = f"did you mean {' or '.join(sizes)}?" if sizes else hint(name, [*machines, HERE])
        raise BadInput(
            f"--on {text}: unknown machine {name!r}; {meant} A file of constants: docs/planning.md"
        )
    return _made(right, count, machines[right], right, ())


def _folded(name: str) -> str:
    """Normalize spelling: A100_80GB becomes a10080g, like A100-80G, and RTX4090 becomes 4090."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    plain = re.sub(r"^(nvidia)?(geforce)?(rtx)?", "", plain)
    return re.sub(r"(?<=\d)gb$", "g", re.sub(r"(sxm\d?|pcie)", "", plain))


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError:
        raise BadInput(f"--on {path}: no such file; docs/planning.md shows one") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"--on {path}: not read: {' '.join(str(error).split())}") from None


def _made(name: str, count: int, table: Any, at: str, own: tuple[str, ...]) -> Machine:
    assumed = known()["assumed"]
    if not isinstance(table, dict):
        raise BadInput(f"{at}: write a table with memory, bandwidth and flops")
    if strange := sorted(table.keys() - FIELDS):
        raise BadInput(f"{at}: {strange[0]}: unknown; {hint(strange[0], sorted(FIELDS))}")
    if missing := [field for field in ("memory", "bandwidth", "flops") if field not in table]:
        raise BadInput(f"{at}: {missing[0]}: missing; write {_unit(missing[0])}")
    flops = table["flops"]
    if not isinstance(flops, dict) or not flops or flops.keys() - {"float32", "bfloat16"}:
        raise BadInput(f"{at}: flops: write {_unit('flops')}")
    accelerator = table.get("accelerator", True)
    if not isinstance(accelerator, bool):
        raise BadInput(f"{at}: accelerator: write true or false")
    parts = {
        part: dict(assumed[part]) | _part(table.get(part, {}), assumed[part], f"{at}: {part}")
        for part in ("share", "host", "load")
    }
    return Machine(
        name,
        count,
        _positive(table["memory"], f"{at}: memory"),
        _positive(table["bandwidth"], f"{at}: bandwidth"),
        {dtype: _positive(value, f"{at}: flops.{dtype}") for dtype, value in flops.items()},
        accelerator,
        parts["share"],
        parts["host"],
        tuple(parts["load"]["bytes"]),
        tuple(f"{part}.{key}" for part in parts for key in table.get(part, {})),
    )


def _part(given: Any, assumed: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return constants that replace assumed ones of the same form; one number is used for all three sides."""
    if not isinstance(given, dict):
        raise BadInput(f"{at}: write a table of constants")
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in assumed:
            raise BadInput(f"{at}.{key}: unknown; {hint(key, sorted(assumed))}")
        form = assumed[key]
        values = value if isinstance(value, list) else [value] * (len(form) if isinstance(form, list) else 1)
        numbers = [_positive(each, f"{at}.{key}", zero=True) for each in values]
        if len(numbers) != (len(form) if isinstance(form, list) else 1):
            raise BadInput(f"{at}.{key}: write {len(form) if isinstance(form, list) else 1} numbers")
        if not at.endswith("host") and (min(numbers) <= 0 or numbers != sorted(numbers)):
            raise BadInput(f"{at}.{key}: write numbers above 0, the pessimistic one first")
        found[key] = numbers if isinstance(form, list) else numbers[0]
    return found


def _positive(value: Any, at: str, *, zero: bool = False) -> float:
    fine = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if not fine or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise BadInput(f"{at}: write a number above 0, not {value!r}")
    return float(value)


def _unit(field: str) -> str:
    return {
        "memory": "memory = 80e9, bytes of one device",
        "bandwidth": "bandwidth = 2e12, bytes a second of one device",
        "flops": "flops = { bfloat16 = 312e12 }, FLOP a second of one device, float32 or bfloat16",
    }[field]


def rates(made: Machine, dtype: str) -> tuple[Rates, Rates, Rates]:
    """Return pessimistic, expected and optimistic rates. Raises BadInput without a peak for this dtype."""
    if dtype not in made.flops:
        raise BadInput(f"--on {made.name}: flops: has none for {dtype}, which is registered; add it")
    peak, bandwidth = made.flops[dtype], made.bandwidth

    def side(place: int) -> Rates:
        share = {name: values[place] for name, values in made.share.items()}
        factor, host = made.host["factor"][place], made.host

        def pair(name: str) -> tuple[float, float]:
            own, each = host[name]
            return factor * own, factor * each

        return Rates(
            linear=peak * share["linear"],
            attention=peak * share["attention"],
            watched=bandwidth * share["watched"] / 4,
            rows=peak * share["linear"],
            weights=bandwidth * share["weights"],
            cache=bandwidth * share["cache"],
            load=made.load[place],
            beside=made.accelerator,
            host=Host(
                factor * host["forward"],
                factor * host["layer"],
                factor * host["pool"],
                pair("lane"),
                pair("join"),
                factor * host["logit"],
                factor * host["noise"],
                Arm(pair("first"), pair("step"), pair("event")),
            ),
        )

    return side(0), side(1), side(2)

"""A grid of settings: a sweep expands one arm into candidates, one for each combination of values."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from protocol.evidence.bytes.fields import Fault
from protocol.evidence.refusals import unknown
from protocol.plan.design import Arm, Design
from protocol.plan.kinds import NAME, setting_text

__all__ = ["expanded", "written_at"]

MOST = 500  # candidates of one grid; all are probed, and the best of too many is best by luck


def expanded(design: Design) -> Design:
    """Return the protocol in which each arm with a grid is replaced by the arms of that grid, also among the
    candidates; the rightmost setting of a grid changes fastest. Without a grid, the protocol is unchanged.

    The result has ordinary arms, so lock, records and selection know nothing of grids. Raises Fault.
    """
    sweep = design.sweep
    if sweep is None or sweep.grid is None:
        return design
    by_name = {arm.name: arm for arm in design.arms}
    for name in sweep.grid:
        if name not in by_name:
            raise Fault.of(f"sweep.grid.{name}: {unknown('arm', name, list(by_name))}")
        if name not in sweep.candidates:
            raise Fault.of(f"sweep.grid.{name}: is no candidate; add it to sweep.candidates")
    made = {name: _made(by_name[name], over) for name, over in sweep.grid.items()}
    arms = tuple(one for arm in design.arms for one in made.get(arm.name, [arm]))
    names = [arm.name for arm in arms]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Fault.of(
            f"arms.{twice[0]}: is the name of a candidate that sweep.grid makes; rename the arm, or take the "
            "value out of the grid"
        )
    candidates = [[arm.name for arm in made[name]] if name in made else [name] for name in sweep.candidates]
    chained = tuple(itertools.chain.from_iterable(candidates))
    return replace(design, arms=arms, sweep=replace(sweep, candidates=chained))


def written_at(design: Design, arm: str, path: str) -> str:
    """Return where the protocol sets `path` of an arm: in the arm itself, or in the grid that made it."""
    grid = design.sweep.grid if design.sweep is not None else None
    for base, over in (grid or {}).items():
        if arm in _names(base, over):
            return f"sweep.grid.{base}.{path}" if path in over else f"arms.{base}.set.{path}"
    return f"arms.{arm}.set.{path}"


def _made(arm: Arm, over: Mapping[str, Sequence[Any]]) -> list[Arm]:
    """Return a copy of the arm for each combination of the values."""
    own = arm.set or {}
    if both := sorted({*own} & {*over}):
        raise Fault.of(f"sweep.grid.{arm.name}.{both[0]}: arms.{arm.name} sets it too; leave one of both out")
    if (count := math.prod(map(len, over.values()))) > MOST:
        raise Fault.of(f"sweep.grid.{arm.name}: makes {count} candidates; name values for at most {MOST}")
    names, values = _names(arm.name, over), itertools.product(*over.values())
    return [
        arm._replace(name=name, set={**own, **dict(zip(over, each, strict=True))})
        for name, each in zip(names, values, strict=True)
    ]


def _names(base: str, over: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return names such as crystal+max_trunk-16+steepness-2: each setting by the last part of its path, or by
    the full path if two paths of the grid share it. Raises Fault for a value that no arm name can contain.
    """
    ends = [path.rpartition(".")[2] for path in over]
    short = {path: end if ends.count(end) == 1 else path for path, end in zip(over, ends, strict=True)}
    each = []
    for path, values in over.items():
        texts = [setting_text(value) for value in values]
        for text in texts:
            if not NAME.fullmatch(f"a{text}"):
                raise Fault.of(
                    f"sweep.grid.{base}.{path}: {text!r} cannot stand in the name of an arm (ASCII letters, "
                    "digits and . _ + -); give it to an arm of its own"
                )
        each.append([f"+{short[path]}-{text}" for text in texts])
    return [base + "".join(parts) for parts in itertools.product(*each)]

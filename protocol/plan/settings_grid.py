"""A grid of settings: a sweep expands one arm into candidates, one for each combination of values."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from protocol.formats.fields import Fault
from protocol.formats.suggestions import unknown_message
from protocol.plan.design import Arm, Design
from protocol.plan.field_kinds import NAME, format_setting

MOST = 500  # candidates of one grid; all are probed, and the best of too many is best by luck


def expand_grids(design: Design) -> Design:
    """Return the protocol in which each arm with a grid is replaced by the arms of that grid, also among the
    candidates; the rightmost setting of a grid changes fastest.

    The result has ordinary arms, so lock, records and selection know nothing of grids. Raises Fault.
    """
    sweep = design.sweep
    assert sweep is not None
    assert sweep.grid is not None
    by_name = {arm.name: arm for arm in design.arms}
    for name in sweep.grid:
        if name not in by_name:
            raise Fault(f"sweep.grid.{name}: {unknown_message('arm', name, list(by_name))}")
        if name not in sweep.candidates:
            raise Fault(f"sweep.grid.{name}: is not a candidate; add it to sweep.candidates")
    arms_by_base = {name: _expand_arm(by_name[name], over) for name, over in sweep.grid.items()}
    arms = tuple(candidate for arm in design.arms for candidate in arms_by_base.get(arm.name, [arm]))
    names = [arm.name for arm in arms]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Fault(
            f"arms.{twice[0]}: is the name of a candidate that sweep.grid creates; rename the arm, or remove "
            "the value from the grid"
        )
    candidates = [
        [arm.name for arm in arms_by_base[name]] if name in arms_by_base else [name] for name in sweep.candidates
    ]
    chained = tuple(itertools.chain.from_iterable(candidates))
    return replace(design, arms=arms, sweep=replace(sweep, candidates=chained))


def setting_location(design: Design, arm: str, path: str) -> str:
    """Return where the protocol sets `path` of an arm: in the arm itself, or in the grid that made it."""
    grid = design.sweep.grid if design.sweep is not None else None
    for base, over in (grid or {}).items():
        if arm in _candidate_names(base, over):
            return f"sweep.grid.{base}.{path}" if path in over else f"arms.{base}.set.{path}"
    return f"arms.{arm}.set.{path}"


def _expand_arm(arm: Arm, over: Mapping[str, Sequence[Any]]) -> list[Arm]:
    """Return a copy of the arm for each combination of the values."""
    settings = arm.set or {}
    if repeated := sorted({*settings} & {*over}):
        raise Fault(f"sweep.grid.{arm.name}.{repeated[0]}: arms.{arm.name} sets it too; leave one of them out")
    if (count := math.prod(map(len, over.values()))) > MOST:
        raise Fault(f"sweep.grid.{arm.name}: creates {count} candidates; name values for at most {MOST}")
    names, values = _candidate_names(arm.name, over), itertools.product(*over.values())
    return [
        replace(arm, name=name, set={**settings, **dict(zip(over, combination, strict=True))})
        for name, combination in zip(names, values, strict=True)
    ]


def _candidate_names(base: str, over: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return names such as crystal+max_trunk-16+steepness-2: each setting by the last part of its path, or by
    the full path if two paths of the grid share it. Raises Fault for a value that no arm name can contain.
    """
    ends = [path.rpartition(".")[2] for path in over]
    short = {path: end if ends.count(end) == 1 else path for path, end in zip(over, ends, strict=True)}
    suffixes = []
    for path, values in over.items():
        texts = [format_setting(value) for value in values]
        for text in texts:
            if not NAME.fullmatch(f"a{text}"):
                raise Fault(
                    f"sweep.grid.{base}.{path}: {text!r} cannot be part of an arm's name (ASCII letters, "
                    "digits and . _ + -); define a separate arm with this value"
                )
        suffixes.append([f"+{short[path]}-{text}" for text in texts])
    return [base + "".join(parts) for parts in itertools.product(*suffixes)]

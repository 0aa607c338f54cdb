"""What the settings of a policy promise of its eviction steps, from the settings alone: needs no torch.

A policy declares its promises in its code (`policies.policy.Promises`). A lock has both the settings and the promises,
and the evidence is held to the promises: an audit without torch compares them by the declarations of the parts, which
are listed here by class. A part of another distribution is not listed; what it promises cannot be told here.
"""

from collections.abc import Mapping
from typing import Any

PARTS = ("scoring", "selection", "routing", "cadence", "state", "decoding", "protect")
PLAIN_CADENCE = "policies.cadence.Cadence()"
SCHEDULES = {PLAIN_CADENCE: "", "policies.blockwise.Blockwise()": "", "policies.epicache.Episodic()": ""} | {
    "policies.cadence.Schedule()": "own",
    "policies.thinkv.Whenever()": "every",
}
"""Cadences, each with its word for steps that fire by a rule of its own; no word for the rule of the plain one."""
VARYING_BUDGETS = ("policies.cadence.Schedule()", "policies.epicache.Episodic()")
SPARING = ("policies.crystal.dissolution.BranchDissolution()", "policies.crystal.tiers.TieredDissolution()")
EXCEEDING = "policies.crystal.dissolution.ExceedingDissolution()"
SELECTIONS = (
    *(f"policies.selection.{name}()" for name in ("Chunks", "Diverse", "TopK")),
    *(f"policies.signatures.Diverse{name}()" for name in ("ByHead", "ByLayer", "Each", "Scheduled")),
    *("policies.thinkv.WithinSegments()", *SPARING, EXCEEDING),
)
BOUNDING = (
    *("policies.crystal_kv.Utilised()", "policies.thinkv.SegmentsPerHead()", "policies.thinkv.SegmentsShared()"),
)
ROUTINGS = (
    *(f"policies.routing.{name}()" for name in ("Adaptive", "PerHead", "PerLayer", "Pyramid", "Shared")),
    *("policies.defensivekv.AcrossLayers()", "policies.static_route.StaticRoute()", *BOUNDING),
)
AS_COMPUTED = "policies.state.Verbatim()"
QUANTISED = "policies.quantised.states.Quantised()"
KIVI = "policies.quantised.states.Kivi()"
QUEST = "policies.quest.Quest()"
STATES = (
    AS_COMPUTED,
    QUANTISED,
    KIVI,
    QUEST,
    "policies.subspace.Subspace()",
    *(f"policies.syn_mem.{name}()" for name in ("BoundedSpans", "DynamicHybrid", "PromptSpans", "StaticHybrid")),
)
OF_PRESS = "protocol.presses.pressed.AsThePress()"
"""Each part of an arm that is a press of kvpress, but its cadence and what it asks."""


def derive_promises(settings: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the promises of a policy with these settings, by path as in a lock; None where a part that decides
    about them is of a class that is not listed. Raises KeyError or ValueError for settings that lack such a part.
    """
    selection, routing, cadence, state = (settings[part] for part in ("selection", "routing", "cadence", "state"))
    is_press = selection == OF_PRESS
    known = (*SELECTIONS, OF_PRESS), (*ROUTINGS, OF_PRESS), SCHEDULES, (*STATES, OF_PRESS)
    if any(part not in listed for part, listed in zip((selection, routing, cadence, state), known, strict=True)):
        return None
    fires, interval = "prefill", None
    if settings["cadence.at_prefill"] == "False":
        fires = "never"
    elif settings["cadence.interval"] != "None":
        interval = int(settings["cadence.interval"])
        fires = SCHEDULES[cadence] or ("slack" if settings["cadence.slack"] == "True" else "interval")
    exceeds, bounds = selection == EXCEEDING, routing in BOUNDING
    is_sparing = selection in (*SPARING, EXCEEDING) and int(settings["selection.min_keep"]) > 1
    return {
        "fires": fires,
        "interval": interval,
        "grants_budget": cadence not in VARYING_BUDGETS,
        "leaves_at_most": not (exceeds or is_press),
        "leaves_exactly": not (exceeds or bounds or is_sparing or is_press),
        "may_leave_less": bounds,
        "parked_caches": int(settings["cadence.episodes"]) - 1 if "cadence.episodes" in settings else 0,
        "stores_as_computed": state in (AS_COMPUTED, QUEST, OF_PRESS),
        "is_press": is_press,
    }


def state_settings(name: str) -> dict[str, str]:
    """Return the settings, by path, of the state that an arm sets by this name."""
    if name == "verbatim":
        return {"state": AS_COMPUTED}
    if name.startswith("kivi-"):
        return {"state": KIVI, "state.bits": name.removeprefix("kivi-"), "state.recent": "32"}
    if name == "quest":
        return {"state": QUEST, "state.tokens": "256", "state.page": "16", "state.dense_layers": "2"}
    return {"state": QUANTISED, "state.keys": name, "state.values": name}

"""CrystalCache at decode time (section 3.8) as plain loops over numbers and dicts, equation by equation.

Shares nothing with the package. A state is a dict:
  trunks   list of {"slots", "D", "M"}; slots are counted among those that are held
  W        {(a, b): weight} of linked trunks a < b
  worth    M_i of every slot
  seen     tokens seen
  active   numbers of the trunks that the last breath found active
What the paper leaves open is decided as documented: tokens fed since the last event are chunks of their own
in S1, S2 and S3 build trunks of them as in a prompt, and Eq. 27 gives a new trunk its D among all of today.
"""

import math

import crystal_by_hand as paper

DEFAULTS = {
    "chunk": 1024,
    "intra_k": 8,
    "intra_threshold": 0.3,
    "cross_k": 4,
    "cross_threshold": 0.02,
    "merge_threshold": 0.3,
    "max_trunk": 32,
    "lowest": 0.1,
    "highest": 20.0,
    "edge_threshold": 0.05,
    "steepness": 5.0,
    "alpha": 1.0,
    "min_keep": 3,
    "rate": 0.05,
    "scale": 2.0,
    "active": 0.3,
    "resonance": 0.15,
    "hops": 2,
    "hop_decay": 0.5,
    "min_pulse": 0.01,
    "hebbian": 0.05,
    "edge_decay": 0.99,
    "renewal": 0.0,
}
"""Table 14 and section 3.8; renewal is of the blog."""


def admitted(state, ids, ends, attention, s):
    """The state with the last tokens as trunks at its end: S1-S4 on them.

    attention[head][row][slot]: one row for each token that is not in the state.
    """
    origin = len(state["worth"])
    new = ids[len(ids) - len(attention[0]) :]
    salient = paper.salience(attention, s["chunk"], s["lowest"], s["highest"], origin)
    found = paper.edges(
        attention, s["chunk"], s["intra_k"], s["intra_threshold"], s["cross_k"], s["cross_threshold"], origin
    )
    groups = paper.trunks(new, ends, found, s["merge_threshold"], s["max_trunk"], origin)
    worth = state["worth"] + paper.impact(salient, ids, s["lowest"], s["highest"])
    means = paper.trunk_impact(worth, groups)
    everything = [trunk["slots"] for trunk in state["trunks"]] + groups
    linked = state["W"] | paper.weights(everything, found, s["edge_threshold"])
    today = paper.crystallization(linked, len(everything), s["steepness"])
    fresh = [{"slots": group, "D": today[len(state["trunks"]) + k], "M": means[k]} for k, group in enumerate(groups)]
    return {
        "trunks": [dict(trunk) for trunk in state["trunks"]] + fresh,
        "W": linked,
        "worth": worth,
        "seen": len(ids),
        "active": [],
    }


def prefilled(ids, ends, attention, s):
    """S1-S4 of a prompt."""
    nothing = {"trunks": [], "W": {}, "worth": [], "seen": 0, "active": []}
    return admitted(nothing, ids, ends, attention, s)


def breathed(state, ids, ends, attention, inverse_norms, s):
    """The state after the decay of every step since the last event, the new tokens, and (a) to (c)."""
    aged = {**state, "trunks": [dict(trunk) for trunk in state["trunks"]]}
    for _ in range(len(ids) - state["seen"]):
        decay(aged["trunks"], s)
    full = admitted(aged, ids, ends, attention, s)
    chosen = active(full["trunks"], inverse_norms, s)
    for g in chosen:
        full["trunks"][g]["D"] += s["renewal"] * (1 - full["trunks"][g]["D"])
    for g in chosen:
        resonate(full["trunks"], full["W"], g, s)
    return {**full, "W": associated(full["W"], len(full["trunks"]), chosen, s), "active": chosen}


def decay(trunks, s):
    """Eq. 36, one step."""
    for trunk in trunks:
        rho = s["rate"] * math.exp(-trunk["D"] * trunk["M"] / s["scale"])
        trunk["D"] = max(0, trunk["D"] - rho * trunk["D"] * 1)


def active(trunks, inverse_norms, s):
    """(a)."""
    top = max(inverse_norms)
    eta = [value / top for value in inverse_norms]
    return [
        g
        for g, trunk in enumerate(trunks)
        if sum(eta[i] > s["active"] for i in trunk["slots"]) > len(trunk["slots"]) / 2
    ]


def weight(linked, a, b):
    return linked.get((min(a, b), max(a, b)), 0.0)


def pulses(linked, count, source, s):
    """Eq. 37: {trunk: pulse}, breadth first; each is reached once, by the strongest of its shortest ways."""
    reached, front = {source: 1.0}, {source: 1.0}
    for _ in range(s["hops"]):
        following = {}
        for g, pulse in front.items():
            for other in range(count):
                arriving = pulse * weight(linked, g, other) * s["hop_decay"]
                if other not in reached and arriving >= s["min_pulse"]:
                    following[other] = max(arriving, following.get(other, 0.0))
        reached |= following
        front = following
    del reached[source]
    return reached


def resonate(trunks, linked, source, s):
    """Eq. 38."""
    for other, pulse in pulses(linked, len(trunks), source, s).items():
        d = trunks[other]["D"]
        trunks[other]["D"] = min(1, d + s["resonance"] * pulse * (1 - d))


def associated(linked, count, chosen, s):
    """Eq. 39-40 and the pruning."""
    result = {}
    for a in range(count):
        for b in range(a + 1, count):
            w = weight(linked, a, b)
            both = a in chosen and b in chosen
            w = min(1, w + s["hebbian"]) if both else s["edge_decay"] * w
            if w >= s["edge_threshold"] and w > 0:
                result[a, b] = w
    return result


def evicted(state, sinks, recent, budget, s):
    """S5 and S6: the kept slots, and the state of what is left, Eq. 34."""
    trunks = state["trunks"]
    groups = [trunk["slots"] for trunk in trunks]
    whole = paper.protected(groups, len(state["worth"]), sinks, recent)
    means, d = ([trunk[key] for trunk in trunks] for key in ("M", "D"))
    score = paper.scores(d, means, whole, s["alpha"])
    kept, _ = paper.dissolve(groups, score, whole, state["worth"], budget, s["min_keep"])
    return kept, left(state, kept)


def left(state, kept):
    """What is left of a state of which only these slots stay; a trunk without slots is forgotten."""
    place = {slot: k for k, slot in enumerate(kept)}
    trunks, number = [], {}
    for g, trunk in enumerate(state["trunks"]):
        slots = [place[slot] for slot in trunk["slots"] if slot in place]
        if slots:
            number[g] = len(trunks)
            share = len(slots) / len(trunk["slots"])
            trunks.append({"slots": slots, "D": share * trunk["D"], "M": trunk["M"]})
    return {
        "trunks": trunks,
        "W": {(number[a], number[b]): w for (a, b), w in state["W"].items() if a in number and b in number},
        "worth": [state["worth"][slot] for slot in kept],
        "seen": state["seen"],
        "active": state["active"],
    }

"""Two dozen lanes that have nothing in common."""

from tiny_networks import Adaptive, Offsets, Restless, all_kept, drawn, lane, noted

from policies import Cadence, PerHead, Policy, Protect, get
from policies.crystal.policy import CrystalConfig, crystal
from policies.h2o import h2o
from policies.snapkv import snapkv
from policies.streaming import streaming
from policies.uniform import random
from protocol.engine import Lane


def two_dozen_lanes() -> tuple[Lane, ...]:
    """Uniform and ragged, with and without events while decoding, for contexts of 30 tokens and more."""
    slack, exact, always = Cadence(interval=4), Cadence(interval=3, slack=False), Cadence(interval=1)
    window, small = snapkv(window=4, kernel=3), CrystalConfig(chunk=16, max_trunk=4, sinks=1, recent=2)
    return (
        lane(all_kept()),
        lane(all_kept(), seed=1),
        lane(get("full"), seed=2),
        lane(drawn(1), 6),
        lane(drawn(1), 16, seed=1),
        lane(drawn(2, Offsets()), 10),
        lane(drawn(2, Adaptive()), 10, seed=1),
        lane(drawn(3, Adaptive()), 17),
        lane(streaming(sinks=2), 6),
        lane(random(sinks=1, recent=4), 12, seed=1),
        lane(h2o(), 12),
        lane(h2o(), 20, seed=1),
        lane(window, 12),
        lane(crystal(small), 14),
        lane(noted(Restless()), 9),
        lane(drawn(4, cadence=slack), 8),
        lane(drawn(4, Adaptive(), exact), 11, seed=2),
        lane(drawn(5, Offsets(), slack), 10),
        lane(get("h2o", cadence=slack), 12),
        lane(get("h2o", routing=Adaptive(), protect=Protect(1, 1), cadence=always), 9, seed=1),
        lane(Policy(window.scoring, routing=PerHead(), cadence=exact, protect=Protect(1, 4)), 10),
        lane(noted(Restless(), Adaptive(), slack), 9),
        lane(noted(Restless(), PerHead(), always), 13, seed=1),
        lane(get("streaming", cadence=exact), 8, seed=2),
    )

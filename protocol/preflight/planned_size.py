"""What a study is tested on at its planned size, the differences that it can detect there, and tabulated errors.

An audit computes these again; it loads no simulated study, as `rule_checks` does.
"""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from analysis.simulation import error_table
from analysis.simulation.error_estimate import TypeOneError
from analysis.stats import power
from analysis.stats.methods import MIN_CLUSTERS, draws_and_seed, resampling_problems
from protocol.formats.refusals import BadInput
from protocol.plan.design import Design

DISCORDANCES = (0.2, 0.6)  # shares of problems on which the arms differ, for which power is printed


class Units(NamedTuple):
    """What the contrasts of a task are tested on. effective: problems, or clusters as `effective_clusters` counts
    them. cluster_sizes: of a task with clusters of more than one problem; else empty.
    """

    effective: int
    cluster_sizes: tuple[int, ...]
    has_scores: bool

    @property
    def counts_answers(self) -> bool:
        """Whether answers are right or wrong and problems independent."""
        return not self.cluster_sizes and not self.has_scores

    def describe(self, seeds: int) -> str:
        name = f"{len(self.cluster_sizes)} clusters" if self.cluster_sizes else f"{self.effective} problems"
        kind = f"{seeds} seed{'s'[: seeds > 1]}"
        return f"{name} with scores" if self.has_scores else f"{name} and {kind}"


def describe_units(item: Mapping[str, Any], has_scores: bool) -> Units:
    """Return the units of a task. Clusters of one problem each are problems."""
    clusters = item.get("clusters") or {}
    sizes = sorted(Counter(clusters.get(problem, problem) for problem in item["confirm"]).values())
    return Units(len(resampling_problems(item)), tuple(sizes) if max(sizes, default=1) > 1 else (), has_scores)


def refuse_few_clusters(items: Mapping[str, Any]) -> None:
    """Raise BadInput for so few or so uneven clusters that no method's interval holds its level."""
    for name, item in items.items():
        if "clusters" in item and (effective_clusters := len(resampling_problems(item))) < MIN_CLUSTERS:
            raise BadInput(
                f"tasks.{name}: cluster: the held-out problems have an effective number of "
                f"{effective_clusters} clusters, and with fewer than {MIN_CLUSTERS} no interval is valid; "
                "name smaller or more even clusters, or more of them"
            )


def detectable_effects(protocol: Design, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences that can be detected, as `check_rule` has them, in seconds; refuses too few clusters."""
    refuse_few_clusters(items)
    tests = len(protocol.contrast_models())
    corrected, decision = float(protocol.decision.alpha) / tests, protocol.content()["decision"]
    return {
        "tests": tests,
        "corrected_alpha": f"{corrected:.6f}",
        "problems": {
            str(size): {
                "minimal_detectable_effect": {
                    f"{discordance:.1f}": _minimal_effect(
                        protocol.decision.method, size, corrected, discordance, *draws_and_seed(decision)
                    )
                    for discordance in DISCORDANCES
                }
            }
            for size in _sizes(items)
        },
    }


def _sizes(items: Mapping[str, Any]) -> list[int]:
    return sorted({len(resampling_problems(item)) for item in items.values()})


def look_up_type_one(protocol: Design, method: str, problems: int, corrected: float) -> TypeOneError | None:
    """Return the type-I error from the table alone; None if the table lacks it, as it does all margins."""
    has_margin = margin_and_level(protocol)[0] > 0
    return None if has_margin else error_table.look_up(method, problems, len(protocol.seeds), corrected)


def margin_and_level(protocol: Design) -> tuple[float, float]:
    """Return the registered margin, 0 without one, and the level at which a rule confirms within it."""
    decision = protocol.content()["decision"]
    return float(decision.get("margin") or 0), float(decision["alpha"]) / (1 + len(decision.get("others", ())))


@lru_cache(maxsize=256)  # an audit asks again what registering asked
def _minimal_effect(method: str, problems: int, corrected: float, discordance: float, draws: int, seed: int) -> str:
    """Return the smallest difference found with 80 % power when this share of the problems is discordant."""
    rng = np.random.default_rng([seed, problems])
    effect = power.minimal_detectable_effect(
        problems, corrected, method=method, discordance=discordance, draws=draws, rng=rng
    )
    return "none" if effect is None else f"{effect:.3f}"

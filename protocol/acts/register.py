"""Freeze a protocol: check everything that can be checked beforehand, then write the lock, once.

Nothing is written before every check has passed. Held-out problems are not opened: ids come from the frozen
manifests, prompt lengths from the development split. Of held-out mathematical problems the answers alone are
read, to verify against themselves, unless they are encrypted; the lock's `checks.golds` says so.
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import transformers

import splits
from analysis.rules import RULES
from analysis.stats import power
from analysis.stats.methods import METHODS, draws
from analysis.trial import error_rates, self_test, simulated_studies
from policies import Policy
from policies.structure import structure
from protocol import engine, grading, tasks
from protocol.evidence.lock import bundle, closure, lock, signing
from protocol.evidence.lock.lock import Lock
from protocol.evidence.outside import history
from protocol.evidence.refusals import BadInput, Drifted
from protocol.evidence.run import ledger
from protocol.locked.study import ROOT, calibrated, environment, measured, read_protocol, weights
from protocol.models import calibration, load
from protocol.models import sources as catalogue
from protocol.plan import grid
from protocol.plan.design import Design, Task
from protocol.tasks import door, prompting

__all__ = ["checked", "register"]

DISCORDANCES = (0.2, 0.6)  # shares of problems on which the arms differ, for which power is printed
TYPE_ONE_LIMIT = 1.2  # times the nominal level; above it a method is refused

# Tokens of (context, query) of every development problem, by model and task.
Lengths: TypeAlias = dict[tuple[str, Task], list[tuple[int, int]]]


def register(
    folder: Path,
    home: Path,
    *,
    parent: dict[str, str] | None = None,
    amends: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    key: Path | None = None,
) -> Lock:
    """Lock the protocol in `folder`. Raises BadInput, Drifted or AlreadyClaimed; then nothing was written.

    parent: the study that this one replicates; amends: the lock that this one amends, as
    `evidence.amendment` describes it; key: a private key of ssh, to sign the lock with.
    A locking that a crash cut off before its line in the ledger is completed.
    """
    if (folder / lock.NAME).exists() and not (folder / ledger.NAME).exists():
        return _completed(folder, key)
    lock.refuse_second(folder)
    data, protocol = read_protocol(folder)
    surroundings = environment(protocol)
    frozen_weights = weights(protocol, home)
    _refuse_other_weights(protocol, frozen_weights, home)
    items, lengths, checks = checked(protocol, home)
    golds = _golds(items)
    sources, rule = closure.sources(ROOT), RULES[protocol.decision.rule].source
    content = {
        "kind": "kv-prereg lock",
        "version": 1,
        "name": folder.resolve().name,
        "parent": parent,
        "amends": None,
        "ledger": ledger.at([]),
        "git": history.committed(ROOT, sources),
        "signer": signing.public(key) if key else None,
        "protocol": {"sha256": closure.digest_of(data), "content": protocol.content()},
        "grid": [list(cell) for cell in grid.cells(protocol)],
        "policies": {arm.name: structure(protocol.policy(arm.name)) for arm in protocol.arms},
        "items": items,
        "batch": {"lanes": {model: _lanes(protocol, model, lengths, home) for model in protocol.models}},
        "sources": sources,
        "data": tasks.data(items),
        "weights": frozen_weights,
        "environment": surroundings,
        "rule": {"name": protocol.decision.rule, "source": rule, "sha256": sources[rule]},
        "checks": checks | golds,
    }
    if amends is not None:
        content["amends"] = amends(content)
    content["bundle"] = bundle.write(folder, ROOT, sources)
    lock.write(folder, content)
    return _completed(folder, key)


def _completed(folder: Path, key: Path | None) -> Lock:
    """The lock as written, with its signature and its line in the ledger."""
    held = lock.read(folder)
    if key is not None and not (folder / signing.NAME).exists():
        signing.sign(folder, key)
    elif key is None and held.content.get("signer") and not (folder / signing.NAME).exists():
        raise BadInput(f"{folder}: was locked to be signed and is not; register again with --sign KEY")
    ledger.append(folder, "register", {"lock": held.digest})
    return held


class Checked(NamedTuple):
    items: dict[str, Any]  # by task
    lengths: Lengths
    checks: dict[str, Any]  # what the rule can see


def checked(protocol: Design, home: Path) -> Checked:
    """What a lock with these models would hold; raises as `register` does, but writes nothing, hashes nothing
    and reads no gold.
    """
    items = {task.name: _items(task.name) for task in protocol.tasks}
    _refuse_calibrated(protocol, items, home)
    lengths = _lengths(protocol, items, home)
    _refuse_long_prompts(lengths, home)
    _refuse_small_budgets(protocol, lengths)
    return Checked(items, lengths, _checks(protocol, items))


def _refuse_other_weights(protocol: Design, frozen: dict[str, dict[str, str]], home: Path) -> None:
    """Statistics that an arm needs and that were measured on another model, or on other weights of it."""
    for model in protocol.models:
        for name in calibrated(protocol):
            path = calibration.statistics_paths(model, home)[name]
            if calibration.about(path).get("weights") != calibration.digest(frozen[model]):
                raise BadInput(
                    f"{path}: was measured on other weights than those of {model}; move it away and run: "
                    f"python -m protocol.calibrate {model} {name} --task <task>"
                )


def _refuse_calibrated(protocol: Design, items: dict[str, Any], home: Path) -> None:
    """Held-out problems that needed statistics were measured on, by id; confirming compares the prompts."""
    for model in protocol.models:
        for path in measured(model, home, calibrated(protocol)).values():
            used = calibration.problems(path).keys()
            for task, item in items.items():
                if shared := sorted(used & set(item["confirm"])):
                    raise BadInput(
                        f"{path}: was measured on held-out problems of {task} ({len(shared)}, the first is "
                        f"{shared[0]}); move it away and calibrate {model} on other problems"
                    )


def _items(name: str) -> dict[str, Any]:
    """The frozen split of a task, refused when the task no longer generates what the manifest lists."""
    try:
        manifest, task = splits.load(name), tasks.get(name)
    except splits.SplitError as altered:
        raise Drifted(f"tasks: {name}: {altered}") from altered
    if tuple(manifest.ids) != tuple(task.ids()) or manifest.source != task.source():
        raise Drifted(f"tasks: {name}: is not the task that splits/{name}.json was made from; restore both")
    for split in ("dev", "confirm"):
        if not getattr(manifest, split):
            raise BadInput(f"tasks: {name}: its {split} split is empty; choose a larger task")
    return {"manifest": manifest.digest, "dev": list(manifest.dev), "confirm": list(manifest.confirm)}


def _lengths(protocol: Design, items: dict[str, Any], home: Path) -> Lengths:
    found: Lengths = {}
    for source in protocol.models:
        tokenizer = load.tokenizer(source, home)
        count = prompting.counter(tokenizer)
        for task in protocol.tasks:
            built = (tasks.build(task.name, item, count) for item in items[task.name]["dev"])
            rendered = (prompting.render(problem, tokenizer, task.query) for problem in built)
            sizes = [(len(context), len(query)) for context, query in rendered]
            found[source, task] = [size for size in sizes if protocol.excludes(size[0]) is None]
            if not found[source, task]:
                raise BadInput(
                    f"exclude: leaves no development problem of {task.name}; raise prompt_tokens_above"
                )
    return found


def _golds(items: dict[str, Any]) -> dict[str, Any]:
    """What the lock says of mathematical golds, nothing without any: every one verifies against itself.

    A gold that its grader does not recognise would make every model wrong. Nothing else is done with those of
    held-out problems: they are no model's output, and the message does not show them. Encrypted ones are not
    read; the lock then counts none.
    """
    found = {}
    for name in (name for name in items if tasks.get(name).grader == "math"):
        read = {
            "dev": items[name]["dev"],
            "confirm": [] if door.is_encrypted(name) else items[name]["confirm"],
        }
        with grading.MathVerify() as grader:
            for item in (*read["dev"], *read["confirm"]):
                gold = tasks.gold(name, item)
                alone = grader.grade(gold, rf"\boxed{{{gold}}}").status == "correct"
                if not alone or grader.compare(gold, gold) != "same":
                    raise BadInput(
                        f"tasks: {name}: the gold answer of {item} does not verify against itself; "
                        f"leave the task out or correct its data"
                    )
        found[name] = {"purpose": "gold self-check", **{split: len(ids) for split, ids in read.items()}}
    return {"golds": found} if found else {}


def _refuse_long_prompts(lengths: Lengths, home: Path) -> None:
    """Positions beyond those that a model was trained for make it fail silently."""
    for (model, task), each in lengths.items():
        config = transformers.AutoConfig.from_pretrained(catalogue.locate(model, home))
        if (longest := max(map(sum, each))) + task.max_new_tokens > config.max_position_embeddings:
            raise BadInput(
                f"tasks: {task.name}: a prompt of {longest} tokens and {task.max_new_tokens} new ones exceed "
                f"the {config.max_position_embeddings} positions of {model}; shorten it, or set [exclude] "
                "prompt_tokens_above"
            )


def _refuse_small_budgets(protocol: Design, lengths: Lengths) -> None:
    """A budget below the set that a policy protects is refused by name, on the shortest and the longest
    development prompt: a share is smallest on the one, a pinned prompt largest on the other. Of a budget that
    changes from round to round, the smallest counts.
    """
    policy_of = {arm.name: protocol.policy(arm.name) for arm in protocol.arms}
    evicting = {arm: policy for arm, policy in policy_of.items() if policy.evicts}
    for (_, task), each in lengths.items():
        contexts = [context for context, _ in each]
        ends = sorted({min(contexts), max(contexts)})
        for tokens, (arm, policy), budget in itertools.product(ends, evicting.items(), protocol.budgets):
            slots = policy.cadence.least(budget.of(tokens))
            if slots < (protected := _protected(policy, tokens, slots)):
                raise BadInput(
                    f"budgets: {budget} gives {slots} slots for {task.name} ({tokens} tokens), "
                    f"fewer than the {protected} that arm {arm!r} protects; raise the budget"
                )


def _protected(policy: Policy, tokens: int, slots: int) -> int:
    """The most slots that a policy protects after a prompt of `tokens`: at its end or, with events while
    decoding, in a cache that has outgrown its budget.
    """
    filled = torch.ones(max(tokens, slots) + 1, dtype=torch.bool)
    held = [policy.protect.slots(filled[:tokens], slots, decoding=False)]
    if policy.cadence.interval is not None:
        prompt = torch.arange(len(filled)) < tokens
        held.append(policy.protect.slots(filled, slots, decoding=True, prompt=prompt))
    return max(int(protected.sum()) for protected in held)


def _lanes(protocol: Design, model: str, lengths: Lengths, home: Path) -> int:
    """Lanes that decode at once: as registered, or as many as half of the memory free now holds.

    Every lane is taken to keep the longest development prompt whole.
    """
    generation = protocol.generation
    if generation.lanes_per_batch is not None:
        return generation.lanes_per_batch
    slots = max(
        context + query + task.max_new_tokens
        for task in protocol.tasks
        for context, query in lengths[model, task]
    )
    config = transformers.AutoConfig.from_pretrained(catalogue.locate(model, home))
    dtype = load.DTYPES[generation.dtype]
    lanes = len(grid.cells(protocol)) * (generation.problems_per_batch or 1)
    concurrent = engine.max_concurrent_lanes(config, dtype, torch.device(generation.device), slots, lanes)
    return max(1, concurrent // (generation.workers or 1))


def _checks(protocol: Design, items: dict[str, Any]) -> dict[str, Any]:
    """What the rule can see at the planned size; refuses a method whose type-I error is too high there."""
    decision = protocol.decision
    models = protocol.family()
    corrected = float(decision.alpha) / len(models)
    sizes = sorted({len(item["confirm"]) for item in items.values()})
    found = {str(size): _check_size(protocol, size, corrected) for size in sizes}
    plan = simulated_studies.Plan(protocol.content(), [list(cell) for cell in grid.cells(protocol)], items)
    try:
        rule = self_test.tried(plan)
    except self_test.Vacuous as vacuous:
        raise BadInput(f"decision.rule: {vacuous}") from None
    _, seed = draws(plan.content["decision"])
    errors = error_rates.errors(plan, np.random.default_rng([seed, len(models)]))
    return {
        "tests": len(models),
        "corrected_alpha": f"{corrected:.6f}",
        "problems": found,
        "rule": rule,
        "decision_errors": error_rates.printed(errors),
    }


def _check_size(protocol: Design, problems: int, corrected: float) -> dict[str, Any]:
    """Type-I error and minimal detectable effect of the registered method at one task's size."""
    decision, seeds = protocol.decision, len(protocol.seeds)
    times, seed = draws(protocol.content()["decision"])
    # max-t draws for the whole family at once.
    drawn = float(decision.alpha) if METHODS[decision.method].family else corrected
    if not power.draws_enough(decision.method, times, drawn, problems):
        raise BadInput(
            f"decision.draws: {times} draws leave too few in a tail at the level "
            f"{drawn:.5f}; register at least {power.draws_needed(drawn)}"
        )
    rng = np.random.default_rng([seed, problems])
    error = power.type_one(decision.method, problems, seeds, corrected, rng, times)
    if error.exceeds(TYPE_ONE_LIMIT):
        raise BadInput(
            f"decision.method: {decision.method} at {problems} problems and level {corrected:.5f} has "
            f"{error.ratio:.3f} x the nominal type-I error, by simulation {error.ratio_low:.3f} to "
            f"{error.ratio_high:.3f} (95 %); even the lower end is above the limit of {TYPE_ONE_LIMIT}; "
            "use sign-flip or t"
        )
    return {
        "type_one_over_nominal": f"{error.ratio:.3f}",
        "minimal_detectable_effect": {
            f"{discordance:.1f}": _smallest(protocol, problems, corrected, discordance)
            for discordance in DISCORDANCES
        },
    }


def _smallest(protocol: Design, problems: int, corrected: float, discordance: float) -> str:
    """The smallest difference found with 80 % power when this share of the problems is discordant."""
    decision = protocol.decision
    times, seed = draws(protocol.content()["decision"])
    effect = power.minimal_detectable_effect(
        problems,
        corrected,
        method=decision.method,
        discordance=discordance,
        draws=times,
        rng=np.random.default_rng([seed, problems]),
    )
    return "none" if effect is None else f"{effect:.3f}"

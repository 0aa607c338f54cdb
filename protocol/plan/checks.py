"""Checks of a whole design: repeated names, undefined names, an impossible rule."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

from analysis.rules import RULES
from analysis.rules.full_cache_gate import gate_requirement
from analysis.rules.rule import lead_share
from analysis.stats.methods import ANYTIME_METHOD, LOOK_METHODS, SPENDING
from protocol import tasks
from protocol.formats.fields import Fault
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.refusals import BadInput
from protocol.formats.registry import load_attribute
from protocol.formats.suggestions import suggest, unknown_message
from protocol.formats.vocabulary import FULL, LATE_CITED, READS
from protocol.plan.decision import Decision
from protocol.plan.design import Design
from protocol.plan.gate import GateException
from protocol.plan.task import task_chance

SAVED = Decimal("0.01")  # the smallest share of the full cache that a lossless subject must save
LOOK_RULES = ("superior", "non_inferior")
SMALLEST_BLOCK = 0.05  # of all problems, that a look adds
TOLERANCE = Decimal("0.02")  # for new registrations; older ones may have up to 0.5
Evicts: TypeAlias = Callable[[str], bool]  # whether the named arm is none of the full cache


def check(design: Design, before_policies: Callable[[Design], object] = lambda design: None) -> None:
    """Raise Fault for the first error. Builds the policies, which needs torch and takes seconds: `before_policies` is
    called before, with a design whose fields and names are in order.
    """
    for fault in itertools.chain(_fields(design) if design.decodes else (), _repeated(design)):
        raise Fault(fault)
    before_policies(design)
    named: Iterator[str] = iter(())
    if design.decodes:
        from protocol.plan import policy_checks

        named = policy_checks.faults(design)
    for fault in itertools.chain(named, faults(design, lambda arm: not design.is_full(arm))):
        raise Fault(fault)


def faults(design: Design, evicts: Evicts) -> Iterator[str]:
    """Yield every fault that does not depend on settings of policies; needs no torch."""
    yield from design.own_faults()
    if design.decodes:
        yield from _fields(design)
    yield from _repeated(design)
    for wrong in (_sweep, _arms, _neighbours, _cite, _claims, _gate, _reads):
        yield from wrong(design, evicts)
    for instrument in INSTRUMENTS:
        if (table := design.instruments.get(instrument.name)) is not None:
            yield from load_attribute(instrument.faults)(table, design, _evicting_arms(design, evicts))
    if design.outcome is not None:
        yield from load_attribute("protocol.plan.outcome_faults:list_faults")(design, evicts)
    yield from _rule(design)
    yield from _looks(design)


def require_gate(design: Design, path: Path) -> None:
    """Raise BadInput for a protocol without a gate, which shows that the full cache can do the task."""
    if design.gate is None and design.decodes:
        raise BadInput(
            f"{path}: gate: missing; add the table [gate] with accuracy and truncated, which the full cache "
            "must satisfy before a rule may decide"
        )


def require_floor(design: Design, path: Path) -> None:
    """Raise BadInput for a task whose chance is not stated, a gate that a guess passes, and a margin that is large
    beside what the gate is above a guess: see `analysis.judgement.floor`.
    """
    for number, task in enumerate(design.tasks):
        builtin, chance = tasks.builtin_chance(task.name), task_chance(task)
        if chance is None:
            raise BadInput(
                f"{path}: tasks[{number}].chance: missing; write the share of answers of {task.name} that "
                "guessing without the context gets right: 0 for free text, 0.25 for one of four choices"
            )
        if builtin is not None and chance < Decimal(builtin):
            raise BadInput(
                f"{path}: tasks[{number}].chance: {chance} is below {builtin}, the share that guessing gets "
                f"right on {task.name}; write at least this share, or leave chance out"
            )
        for model in design.models if design.gate is not None else ():
            _refuse_low_gate(design, path, model, task.name, Fraction(chance))


def _refuse_low_gate(design: Design, path: Path, model: str, task: str, chance: Fraction) -> None:
    """Raise BadInput if a guess passes the gate of a model and task, or if a margin is too large beside it."""
    content = design.content()
    places = [(exception.model, exception.task) for exception in design.gate.places] if design.gate else []
    field = f"gate.places[{places.index((model, task))}]" if (model, task) in places else "gate.accuracy"
    low = gate_requirement(content["gate"], model, task).low
    if low <= chance:
        raise BadInput(
            f"{path}: {field}: {float(low):g} is not above {float(chance):g}, the share that guessing gets "
            f"right on {task}, so a model that cannot do the task would pass; write more"
        )
    if design.outcome is not None:  # its margin is of agreement, and bounded by itself
        return
    margin = Fraction(content["decision"].get("margin", 0))
    most = lead_share(content["decision"]) * (low - chance)
    if margin and margin >= most:
        raise BadInput(
            f"{path}: decision.margin: {float(margin):g} is not smaller than {float(most):.3g}, which is "
            f"{float(lead_share(content['decision'])):.2g} of the distance from guessing to the gate of "
            f"{task} ({float(low):g} - {float(chance):g}), so a large loss of accuracy would count as no "
            f"loss; write less, or raise {field}"
        )


def require_memory(design: Design, path: Path) -> None:
    """Raise BadInput for a protocol that does not say what counts as memory, or whose tolerance is larger
    than the charge for excess memory was tested for (benchmarks/memory_charge.py).
    """
    decision = design.decision
    if not design.decodes:
        return
    if decision.memory is None:
        raise BadInput(
            f'{path}: decision.memory: missing; write the memory that must be equal in both arms: "slots", '
            '"bytes", "total" or "reads"'
        )
    if decision.cache_tolerance > TOLERANCE:
        raise BadInput(
            f"{path}: decision.cache_tolerance: {decision.cache_tolerance} is above {TOLERANCE}; the effect "
            f"of a larger difference has not been tested, so write {TOLERANCE} or less"
        )


def _fields(design: Design) -> Iterator[str]:
    generation, sweep = design.generation, design.sweep
    if generation.cadence is not None and generation.interval is None:
        yield "generation.cadence: needs an interval; add generation.interval, or leave both out"
    if generation.top_p is not None and generation.temperature == 0:
        yield "generation.top_p: needs sampling, that is a temperature above 0; leave top_p out"
    if generation.attention == "varlen" and (generation.device, generation.dtype) != ("cuda", "bfloat16"):
        yield 'generation.attention: "varlen" needs device = "cuda" and dtype = "bfloat16"; leave it out'
    if generation.kernel == "native" and (generation.device, generation.dtype) != ("cpu", "float32"):
        yield 'generation.kernel: "native" needs device = "cpu" and dtype = "float32"; write "eager", or leave it out'
    if generation.preserve is not None and generation.prompt is not None:
        yield "generation.preserve: also decides whether the prompt is protected; leave generation.prompt out"
    if sweep is not None and len(sweep.candidates) < 2:
        yield "sweep.candidates: name at least two; a single one needs no sweep"


def _repeated(design: Design) -> Iterator[str]:
    decision, sweep = design.decision, design.sweep
    named: dict[str, Sequence[object]] = {
        "models": design.models,
        "seeds": design.seeds,
        "budgets": [str(budget) for budget in design.budgets],
        "neighbours": [str(budget) for budget in (design.all_budgets if design.neighbours else ())],
        "tasks": [task.name for task in design.tasks],
        "decision.against": decision.against,
        "decision.beside": decision.beside or (),
        **{f"decision.{name}": arms for name, arms in _names_in_rule_fields(decision, "arms").items()},
        "sweep.candidates": sweep.candidates if sweep else (),
        "sweep.seeds": sweep.seeds if sweep else (),
        "gate.places": [f"{exception.model}, {exception.task}" for exception in design.gate.places]
        if design.gate
        else (),
    }
    for field, values in named.items():
        for twice in sorted({str(value) for value in values if values.count(value) > 1}):
            yield f"{field}: {twice} occurs twice; name each once"


def _sweep(design: Design, evicts: Evicts) -> Iterator[str]:
    sweep, subject = design.sweep, design.decision.subject
    if sweep is None:
        return
    if sweep.name in [arm.name for arm in design.arms]:
        yield f"sweep.name: {sweep.name!r} is the name of an arm; give the winner another name"
    if subject != sweep.name:
        yield f"decision.subject: is {subject!r}; a sweep confirms its winner, {sweep.name!r}"
    yield from _undefined("sweep.candidates", sweep.candidates, _evicting_arms(design, evicts), design, evicts)
    yield from _undefined("sweep.baseline", [sweep.baseline], _evicting_arms(design, evicts), design, evicts)
    if sweep.baseline in sweep.candidates:
        yield f"sweep.baseline: {sweep.baseline} is a candidate; name another arm"


def _arms(design: Design, evicts: Evicts) -> Iterator[str]:
    decision, further_arms = design.decision, design.decision.beside or ()
    rule, others = RULES[decision.rule], _names_in_rule_fields(decision, "arms")
    for field, names in {"subject": [decision.subject], "beside": further_arms, **others}.items():
        yield from _undefined(f"decision.{field}", names, _confirmed_arms(design, evicts), design, evicts)
    if rule.full == "refused" or FULL not in decision.against:
        yield from _undefined("decision.against", decision.against, _confirmed_arms(design, evicts), design, evicts)
    yield from _full_cache_rule(design, evicts)
    for field, names in others.items():
        for twice in sorted({decision.subject, *decision.against} & set(names)):
            yield f"decision.{field}: {twice} is compared already; name other arms"
    if decision.subject in decision.against:
        yield f"decision.against: {decision.subject} is the subject; compare it with others"
    if compared := {decision.subject, *decision.against, *itertools.chain(*others.values())} & set(further_arms):
        yield f"decision.beside: {min(compared)} is in the family already; name arms that are not in it"


def _cite(design: Design, evicts: Evicts) -> Iterator[str]:
    """Yield faults of cited arms: those that confirm runs, but never all of them."""
    draws_cited = design.randomness is not None and design.randomness.source == LATE_CITED
    if not design.cite:
        if draws_cited:
            yield 'randomness.source: no study is cited; cite one in [cite], or write "local"'
        return
    candidates = design.sweep.candidates if design.sweep else ()
    citable = [arm.name for arm in design.arms if arm.name not in candidates]
    yield from (f"cite.{name}: " + unknown_message("arm", name, citable) for name in design.cite if name not in citable)
    if not design.sweep and not {*citable} - design.cite.keys():
        yield (
            "cite: leaves no arm to decode; remove an arm from [cite], or compare existing records with: "
            "kv-prereg compare"
        )
    if design.randomness is not None and not draws_cited:
        yield f'cite: [randomness] draws problems that no other study has run; write source = "{LATE_CITED}"'


def _neighbours(design: Design, evicts: Evicts) -> Iterator[str]:
    if design.neighbours and not set(design.decision.against) & set(_evicting_arms(design, evicts)):
        yield "neighbours: no arm in decision.against evicts, so none would run at these budgets; leave it out"


def _claims(design: Design, evicts: Evicts) -> Iterator[str]:
    """Yield faults of claims. An arm that never evicts may be the parent of a claim, but not its arm."""
    confirmed, full_arms = _confirmed_arms(design, evicts), _full_arms(design, evicts)
    for claim in design.claims:
        parent = claim.parent or design.decision.subject
        yield from _undefined(f"claims.{claim.name}.arm", [claim.arm], confirmed, design, evicts)
        if parent not in (compared := [*confirmed, *full_arms]):
            yield f"claims.{claim.name}.parent: " + unknown_message("arm", parent, compared)
        if claim.arm == parent:
            yield f"claims.{claim.name}.arm: {parent} is the arm itself; name another arm"
        if parent in full_arms and design.decision.cache_tolerance < SAVED:
            yield (
                f"decision.cache_tolerance: claims.{claim.name} would compare the full cache with an arm that "
                f"holds {100 * (1 - design.decision.cache_tolerance):.2f} % of it; write {SAVED} or more"
            )


def _gate(design: Design, evicts: Evicts) -> Iterator[str]:
    if (gate := design.gate) is None:
        return
    full_arms = _full_arms(design, evicts)
    if not full_arms:
        yield 'arms: has no full cache, which the gate needs; add full = { policy = "full" }'
    if len(full_arms) > 1:
        yield (
            f"arms: {' and '.join(full_arms)} never evict, but the gate needs exactly one full cache; keep only "
            "one of them"
        )
    tasks = [task.name for task in design.tasks]
    for number, exception in enumerate(gate.places):
        at = f"gate.places[{number}]"
        if exception.model not in design.models:
            yield f"{at}.model: " + unknown_message("model", exception.model, design.models)
        if exception.task not in tasks:
            yield f"{at}.task: " + unknown_message("task", exception.task, tasks)
        if (exception.published is None) != (exception.margin is None):
            present, absent = ("margin", "published") if exception.published is None else ("published", "margin")
            yield f"{at}.{absent}: missing, although {present} is given; write both or neither"
        if exception == GateException(exception.model, exception.task):
            yield f"{at}: changes nothing; give accuracy, truncated, or published and margin"
        needed = gate.accuracy if exception.accuracy is None else exception.accuracy
        if exception.published is not None and exception.published + (exception.margin or 0) < needed:
            yield (
                f"{at}.published: {exception.published} within {exception.margin} is always below the gate's "
                f"{needed}; lower the accuracy of this exception"
            )


def _reads(design: Design, evicts: Evicts) -> Iterator[str]:
    """Yield faults of comparisons of equal reads: against the full cache, memory is what an arm saves."""
    decision = design.decision
    if decision.memory != READS:
        return
    if FULL in decision.against:
        yield (
            f'decision.memory: "{READS}" compares arms that read equally many slots, but the full cache reads '
            'all; write "slots", "bytes" or "total", or name other arms in decision.against'
        )
    for claim in design.claims:
        if (claim.parent or decision.subject) in _full_arms(design, evicts):
            yield (
                f'claims.{claim.name}.parent: the full cache reads all slots; with memory = "{READS}" name another arm'
            )
    if design.cite:
        yield (
            f'cite: cited records may not have the slots that new tokens read; with memory = "{READS}" leave [cite] out'
        )


def _rule(design: Design) -> Iterator[str]:
    decision = design.decision
    rule = RULES[decision.rule]
    if refusal := rule.refusal(design.content()["decision"], len(design.contrast_models())):
        yield f"decision.{refusal.field}: {refusal.message}"
    roles = _names_in_rule_fields(decision, "model")
    for name, models in roles.items():
        yield from (
            f"decision.{name}: " + unknown_message("model", model, design.models)
            for model in models
            if model not in design.models
        )
    named = [*itertools.chain(*roles.values())]
    for model in design.models if named else ():
        if model not in named:
            yield f"models: {model} is neither {' nor '.join(roles)} of {decision.rule}; leave the model out"
    if rule.has_ordered_budgets and len(design.budgets) < 2:
        yield f"budgets: {decision.rule} tests budgets from the largest down; give two or more"
    if rule.has_ordered_budgets and len({budget.kind for budget in design.budgets}) > 1:
        yield (
            f"budgets: {decision.rule} sorts them by size, so all must be of one kind; give only shares, only "
            'whole slots, only shares of the full cache, only bytes, or only "bytes of" slots'
        )


def _looks(design: Design) -> Iterator[str]:
    """Yield faults of looks: what no simulation has tried with them is refused."""
    decision, looks = design.decision, design.decision.looks
    if looks is None:
        if decision.spending is not None:
            yield "decision.spending: has a meaning only with looks; add looks, or leave it out"
        return
    if any(later - earlier < SMALLEST_BLOCK * looks[-1] for earlier, later in itertools.pairwise((0, *looks))):
        yield (
            f"decision.looks: {list(looks)}: write them in increasing order, each larger than the one before "
            f"by at least {SMALLEST_BLOCK:.0%} of the last number"
        )
    if decision.rule not in LOOK_RULES:
        yield (
            f"decision.looks: {decision.rule} has not been tested with looks; write {' or '.join(LOOK_RULES)}, or "
            "no looks"
        )
    if decision.method not in LOOK_METHODS:
        yield f"decision.looks: {decision.method} has not been tested with looks; write {' or '.join(LOOK_METHODS)}"
    elif (decision.method == ANYTIME_METHOD) != (decision.spending is None):
        yield (
            f"decision.spending: the p of {decision.method} is valid at every look; leave it out"
            if decision.spending
            else f'decision.spending: missing; write "{SPENDING[0]}" or "{SPENDING[1]}"'
        )
    if design.exclude is not None:
        yield "decision.looks: excluded problems would change how many each look sees; leave exclude or looks out"
    if not design.decodes:
        yield "decision.looks: another harness runs all problems at once; leave looks out"


def _full_cache_rule(design: Design, evicts: Evicts) -> Iterator[str]:
    """Yield faults of a rule about the full cache, which must then be the only comparator."""
    decision, rule = design.decision, RULES[design.decision.rule]
    if rule.full == "asked" and list(decision.against) != [FULL]:
        yield f'decision.against: {decision.rule} compares with the full cache; write against = ["{FULL}"]'
    if rule.full == "refused" or FULL not in decision.against:
        return
    if decision.cache_tolerance < SAVED:
        yield (
            f"decision.cache_tolerance: a subject that holds {100 * (1 - decision.cache_tolerance):.2f} % of "
            f"the full cache could be called lossless; write {SAVED} or more"
        )
    full_arms = _full_arms(design, evicts)
    if FULL not in full_arms:
        yield f'decision.against: {FULL} is not an arm that never evicts; add {FULL} = {{ policy = "full" }}'


def _names_in_rule_fields(decision: Decision, kind: str) -> dict[str, list[str]]:
    """Return the names in the fields of this kind that only this rule has."""
    values = {
        field.name: decision.rule_settings.get(field.name)
        for field in RULES[decision.rule].fields
        if field.kind == kind
    }
    return {
        name: [names] if isinstance(names, str) else list(names) for name, names in values.items() if names is not None
    }


def _evicting_arms(design: Design, evicts: Evicts) -> list[str]:
    return [arm.name for arm in design.arms if evicts(arm.name)]


def _full_arms(design: Design, evicts: Evicts) -> list[str]:
    return [arm.name for arm in design.arms if not evicts(arm.name)]


def _confirmed_arms(design: Design, evicts: Evicts) -> list[str]:
    """Return the evicting arms that confirm runs: with a sweep its winner instead of the candidates."""
    sweep, evicting = design.sweep, _evicting_arms(design, evicts)
    if sweep is None:
        return evicting
    return [*(name for name in evicting if name not in sweep.candidates), sweep.name]


def _undefined(
    field: str, names: Iterable[str], defined: Sequence[str], design: Design, evicts: Evicts
) -> Iterator[str]:
    """Yield a fault for each name that is no evicting arm, or none that confirm runs."""
    for name in names:
        if name in defined:
            continue
        if name in _full_arms(design, evicts):
            yield f"{field}: {name} never evicts; {suggest(name, defined)}"
        elif name in _evicting_arms(design, evicts):
            yield f"{field}: {name} is a candidate, and confirm runs only the winner; {suggest(name, defined)}"
        else:
            yield f"{field}: {unknown_message('evicting arm', name, defined)}"

"""Checks of the policies of a design: they are built, which needs torch."""

from collections.abc import Iterator

import policies
from analysis.rules import RULES
from policies.contract import UnitSelection
from policies.structure import structure
from protocol.formats.fields import Fault
from protocol.formats.vocabulary import FULL
from protocol.plan.design import Arm, Design
from protocol.plan.policy_name import POLICY
from protocol.plan.settings_grid import setting_location
from protocol.presses import supported_presses


def faults(design: Design) -> Iterator[str]:
    """Yield every fault of arms, and of settings that all of them get."""
    for wrong in (_policies, _names, _sought, _extra_prompts, _intervals):
        yield from wrong(design)


def _policies(design: Design) -> Iterator[str]:
    for arm in design.arms:
        if (arm.policy is None) == (arm.press is None):
            message = (
                "missing; name one of" if arm.policy is None else "cannot be combined with press; leave out one of"
            )
            yield f'arms.{arm.name}.policy: {message} policy = "..." and press = "kvpress:..."'
            continue
        if arm.press is not None:
            yield from _press(design, arm)
            continue
        try:
            POLICY.read(arm.policy, f"arms.{arm.name}.policy")
            policies.get(str(arm.policy))
        except Fault as fault:
            yield fault.author_message
            continue
        except ValueError as refusal:  # from an entry point
            yield f"arms.{arm.name}.policy: {refusal}"
            continue
        yield from _settings(design, arm)


def _press(design: Design, arm: Arm) -> Iterator[str]:
    """Yield what a press refuses, and settings of [generation] for all arms that a press cannot follow."""
    generation, at = design.generation, f"arms.{arm.name}"
    registered = {"interval": generation.interval, "prompt": generation.prompt, "preserve": generation.preserve}
    for name, value in registered.items():
        if value is not None:
            yield (
                f"generation.{name}: applies to every arm, but arm {arm.name!r} is a press, which evicts once, "
                f"after the prompt, by its own rule; remove {name} or the arm"
            )
    if (sweep := design.sweep) is not None and arm.name in (*sweep.candidates, sweep.baseline):
        field = "baseline" if arm.name == sweep.baseline else "candidates"
        yield f"sweep.{field}: {arm.name} is a press, but a sweep chooses among policies; leave it out"
    try:
        supported_presses.refuse_unrunnable(str(arm.press).removeprefix(supported_presses.PREFIX))
    except ValueError as refusal:
        yield f"{at}.press: {refusal}"
        return
    try:
        design.policy(arm.name)
    except ValueError as refusal:
        is_setting = any(str(refusal).startswith(path) for path in arm.set or ())
        yield f"{at}.{'set.' if is_setting else 'press: '}{refusal}"


def _settings(design: Design, arm: Arm) -> Iterator[str]:
    """Yield settings that the policy refuses, and settings without effect."""
    if arm.set is None:
        return
    try:
        arm_settings = structure(policies.get(str(arm.policy), arm.set))
    except ValueError as refusal:
        path, colon, reason = str(refusal).partition(": ")
        yield f"{setting_location(design, arm.name, path)}{colon}{reason}"
        return
    run_settings = structure(design.policy(arm.name))
    for path in arm.set:
        pinned = path.replace("protect.", "protect.inner.", 1)
        if arm_settings[path] not in (run_settings.get(path), run_settings.get(pinned)):
            at = setting_location(design, arm.name, path)
            yield f"{at}: [generation] sets a different value for every arm; leave one of them out"
    slack = run_settings["cadence"] == "policies.cadence.Cadence()" and run_settings["cadence.slack"] == "True"
    if slack and "cadence.interval" in arm.set and design.generation.cadence == "exact":
        yield (
            f"{setting_location(design, arm.name, 'cadence.interval')}: generation.cadence has no effect on "
            'arms that set their own interval, and this one has slack; set "cadence.slack" too'
        )


def _names(design: Design) -> Iterator[str]:
    """Yield an arm that has the full cache's name, never evicts, and is no full cache all the same."""
    for arm in design.arms:
        if arm.name == FULL and arm.press is None and not design.is_full(FULL) and not design.policy(FULL).evicts:
            yield (
                f"arms.{FULL}: changes how slots are stored or read, but this name is reserved for the full "
                "cache; give the arm another name"
            )


def _sought(design: Design) -> Iterator[str]:
    """Yield an arm that never evicts and whose smallest budget is sought: it holds the same at all of them."""
    decision = design.decision
    if not RULES[decision.rule].has_ordered_budgets:
        return
    sought = (decision.subject, *(decision.rule_settings.get("others") or ()))
    for arm in (arm for arm in design.arms if arm.name in sought and arm.press is None):
        if not design.policy(arm.name).evicts and not design.is_full(arm.name):
            yield (
                f"arms.{arm.name}: never evicts and holds the same memory at every budget, but "
                f'{decision.rule} seeks the smallest budget; write rule = "non_inferior" and one budget'
            )


def _extra_prompts(design: Design) -> Iterator[str]:
    """Yield faults of extra prompts, and of lines of the answer that policies pin."""
    for arm in design.arms:
        policy, at = design.policy(arm.name), f"arms.{arm.name}.policy"
        if not policy.evicts and policy.decoding.extra_prompt:
            yield (
                f"{at}: has an extra prompt but never evicts; the full cache is the reference of all arms, so "
                "leave out its extra prompt"
            )
        if policy.decoding.mark in policy.marks and policy.cadence.interval is None:
            yield f"{at}: pins lines of the answer, but no event fires during the answer; set generation.interval"
        if policy.marks and isinstance(policy.selection, UnitSelection) and not policy.exceeds:
            yield f"{at}: keeps whole units, but lines may exceed any budget; leave out the lines or the arm"
    asking = [arm.name for arm in design.arms if design.extra_prompt(arm.name)]
    if asking and design.outcome is not None:
        yield (
            f"outcome: arm {asking[0]!r} has a prompt other than the full cache's, so it cannot be fed the full "
            "cache's text; leave it out"
        )
    if asking and design.exclude is not None:
        yield (
            f"exclude: excludes problems by the length of the prompt, but arm {asking[0]!r} has a different "
            "prompt; leave out exclude or the extra prompt"
        )


def _intervals(design: Design) -> Iterator[str]:
    by_arm = {arm.name: design.policy(arm.name) for arm in design.arms}
    evicting = {name: policy for name, policy in by_arm.items() if policy.evicts}
    decoding = [name for name, policy in evicting.items() if policy.cadence.interval is not None]
    if design.generation.first_event is not None and not decoding:
        yield "generation.first_event: no arm has events while decoding; give an interval or leave it out"
    if design.generation.think_only and not decoding:
        yield "generation.think_only: no arm has events while decoding; give an interval or leave it out"
    if (preserve := design.generation.preserve) and preserve.lines is not None and not decoding:
        yield "generation.preserve.lines: no arm has events while decoding; give an interval or leave it out"
    for name, policy in evicting.items():
        if policy.cadence.interval is not None and policy.prefill_only_signals:
            yield (
                f"generation.interval: {type(policy.prefill_only_signals[0]).__name__}, which arm "
                f"{name!r} needs, cannot be measured while decoding; leave the interval or the arm out"
            )
        if policy.cadence.in_blocks and policy.prefill_only_signals:
            yield (
                f"arms.{name}.policy: {type(policy.prefill_only_signals[0]).__name__}, which it needs, cannot "
                "be measured block by block; choose a policy without blocks"
            )

"""The one confirmatory run of a lock: claim, open the held-out ids, run every cell, check again, seal.

It cannot compute an effect; `protocol.acts.judge` judges after the seal is written.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from protocol.acts import preflight, select
from protocol.evidence import claim, late_randomness, ledger, seal
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.formats import progress_display
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.models import calibration, load
from protocol.preflight import verify_before_claim
from protocol.run import progress, runner
from protocol.run.executors import preflight as executors
from protocol.run.executors.settings import LOCAL, Settings
from protocol.run.runner import Progress, RunUpdate
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.tasks.problem import Problem
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study, refuse_drift

__all__ = ["confirm"]


def confirm(
    study: Study,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
    identity: Path | None = None,
    settings: Settings = LOCAL,
) -> str:
    """Run or continue, then seal; return the sealed outcome digest. A sealed study is not run again.

    value, block: where the late value comes from, if one is registered; see `late_randomness.drawn`.
    identity: a file with the private key of held-out problems that are encrypted. settings: where it runs,
    which changes no outcome.

    Raises as `preflight.check_confirm` and `verify_before_claim.refuse_edited_lock`, Drifted when today's
    bytes differ from the lock (before, half-way or after the run: then nothing is sealed), BadInput when a
    model has seen a held-out prompt before, AlreadyClaimed when it is sealed.
    """
    preflight.check_confirm(study.registration, value, block, identity)
    executors.refuse_unavailable(settings, study.protocol.generation.device)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        verify_before_claim.refuse_edited_lock(study)
    with claim.exclusive_run(study.registration):
        # Files that were read before the claim was locked may have changed.
        study = replace(study, registration=study.registration.reopen())
        planned = study.planned._replace(protocol=select.confirmed_design(study))
        attempt = claim.take(study.registration, value, block)
        held_out = HeldOutGuard(study.lock, study.folder, identity)
        problems = {}
        for name, task in planned.tasks.items():
            purpose = "confirm, decrypted" if held_out_guard.is_encrypted(task) else "confirm"
            problems[name] = held_out.ids(name, purpose)
        with phase("building the held-out problems"):
            opened = _build_held_out(planned, held_out, problems)
            _refuse_exposed(study, planned, opened)
        cells = study.cells()
        lanes = runner.count_lanes(cells, problems)
        if message := progress.format_continuation(ledger.last_attempt_records(study.folder, "attempt"), lanes):
            progress_display.note(message)
        with phase(progress.format_start(settings.count(planned.protocol.generation.workers))) as update:
            report = progress.make_reporter(
                sum(map(len, problems.values())) * len(planned.protocol.models),
                lanes,
                lambda progress_at: update(progress_display.Progress(*progress_at)),
            )
            runner.run_phase(
                study,
                planned.protocol,
                cells,
                problems,
                phase="confirm",
                attempt=attempt,
                report=_check_drift_halfway(study, report),
                held_out_problems=opened,
                settings=settings,
            )
        with phase("hashing again before the seal"):
            refuse_drift(study, with_weights=True)
        with phase("sealing"):
            return seal.write(study.registration)


def _check_drift_halfway(study: Study, report: Callable[[RunUpdate], None]) -> Callable[[RunUpdate], None]:
    """Return `report` with a refusal of drift (weights left out) once half of the lanes are recorded."""
    is_checked = False

    def report_and_check(event: RunUpdate) -> None:
        nonlocal is_checked
        report(event)
        if isinstance(event, Progress) and not is_checked and 2 * event.lanes >= event.all_lanes:
            is_checked = True
            with phase("hashing sources and packages half-way"):
                refuse_drift(study, with_weights=False)

    return report_and_check


def _build_held_out(
    planned: PlannedStudy, held_out: HeldOutGuard, problems: Mapping[str, Sequence[str]]
) -> HeldOutProblems:
    """Build every held-out problem for every model, this once: they are compared here, and then run."""
    built: dict[tuple[str, str, str], Problem] = {}
    tasks_by_name = planned.tasks
    for model in planned.protocol.models:
        count_tokens = prompting.counter(load.tokenizer(model, planned.home))
        for task, ids in problems.items():
            task_object = tasks_by_name[task]
            built |= {
                (model, task, problem): held_out_guard.build(task_object, task, problem, count_tokens, held_out)
                for problem in ids
            }
    return HeldOutProblems(held_out, held_out.key(), built)


def _refuse_exposed(study: Study, planned: PlannedStudy, opened: HeldOutProblems) -> None:
    """Raise BadInput for a held-out problem with a prompt that its model was probed with, or that statistics
    of its model were measured on: by the prompt's digest, whatever its id.
    """
    probed: dict[str, dict[str, str]] = defaultdict(dict)  # problems, by model and digest of the prompt
    for record in study.registration.probe_records:
        body = record["body"]
        probed[body["cell"]["model"]][body["prompt"]] = body["problem"]
    query_placement = {task.name: task.query for task in planned.protocol.tasks}
    extra_prompts = dict.fromkeys(planned.protocol.extra_prompt(arm.name) for arm in planned.protocol.arms)
    for model in planned.protocol.models:
        calibration_prompts = frozenset[str]().union(
            *map(calibration.prompt_digests, planned.statistics_files(model).values())
        )
        if not calibration_prompts and not probed[model]:
            continue
        tokenizer = load.tokenizer(model, planned.home)
        problems = {
            (task, problem_id): problem_text
            for (model_name, task, problem_id), problem_text in opened.problems.items()
            if model_name == model
        }
        for (task, problem), problem_text in problems.items():
            if prompting.digest(*prompting.render(problem_text, tokenizer, "inside")) in calibration_prompts:
                raise BadInput(
                    f"problem {problem!r}: statistics of {model} were measured on its prompt; "
                    "calibrate on other problems and register anew"
                )
            for extra_prompt in extra_prompts:
                prompt_digest = prompting.digest(
                    *prompting.render(problem_text, tokenizer, query_placement[task], extra_prompt)
                )
                if prompt_digest in probed[model]:
                    raise BadInput(
                        f"problem {problem!r}: {model} was probed with its prompt, as "
                        f"{probed[model][prompt_digest]!r}; register anew on other problems"
                    )

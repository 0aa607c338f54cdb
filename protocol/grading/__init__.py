"""Grading: from generated text to a grade with its reason.

grader = grading.get_grader("math")     # made once, used for every text
grade = grading.best_grade(grader.grade, problem.gold, text)

May import: protocol.formats, protocol.harness; math_verify, sympy.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from protocol.formats.plugins import PluginGroup
from protocol.formats.refusals import BadInput, unknown_message
from protocol.grading import boxed, choice, code, corrected_scores, exact, f1, rouge, spelling
from protocol.grading.grade import Gold, Grade, Grader, best_grade, grade_safely, make_score
from protocol.grading.mathverify import MathVerify
from protocol.grading.official import OfficialScorer
from protocol.grading.plugin_grader import PluginGrader
from protocol.harness import PREFIX

__all__ = [
    "GRADERS",
    "LIBRARIES",
    "PLUGINS",
    "SECOND",
    "Gold",
    "Grade",
    "Grader",
    "MathVerify",
    "best_grade",
    "get_grader",
    "gives_scores",
    "grade_safely",
    "grader_names",
    "make_score",
    "second_grader",
]

LIBRARIES = ("math-verify", "sympy", "latex2sympy2-extended", "antlr4-python3-runtime")  # that graders use

GRADERS: Mapping[str, Callable[[], Grader]] = MappingProxyType(
    {
        "exact": lambda: exact,
        "boxed": lambda: boxed,
        "math": MathVerify,
        "choice": lambda: choice,
        "f1": lambda: f1,
        "rouge": lambda: rouge,
        "code": lambda: code,
    }
)
PLUGINS = PluginGroup("kv_prereg.graders", "grader", frozenset(GRADERS), BadInput)
# The second grader, whose grade is recorded next to that of the grader.
SECOND: Mapping[str, Grader] = MappingProxyType({"math": spelling})
ALWAYS_ONE_OR_ZERO = ("exact", "boxed", "math", "choice")


def get_grader(name: str) -> Grader:
    """Return the grader of this name: a built-in one, an entry point of `kv_prereg.graders`, or "lm_eval:"
    and a task, which is the official scorer of the installed lm-eval.

    Raises BadInput for an unknown name, and if a dependency is not installed.
    """
    if name.startswith(PREFIX):
        return OfficialScorer(name.removeprefix(PREFIX))
    if name in GRADERS:
        return GRADERS[name]()
    if name not in PLUGINS.points():
        raise BadInput(unknown_message("grader", name, [*grader_names(), f"{PREFIX}<task>"]))
    plugin = PLUGINS.load(name, build=lambda factory: factory())
    if not callable(getattr(plugin, "grade", None)):
        raise BadInput(f"grader {name!r}: is no grader; let its entry point return one with grade()")
    return PluginGrader(plugin)


def second_grader(name: str) -> Grader | None:
    """Return the second grader, whose grade is recorded next to that of `name`; it decides nothing."""
    return corrected_scores.get_scorer(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else SECOND.get(name)


def gives_scores(name: str) -> bool:
    """Whether a grade of this grader may be a score between 0 and 1; for an entry point see
    `PluginGrader.scores`. Raises as `get_grader` does for an entry point.
    """
    if name in GRADERS or name.startswith(PREFIX):
        return name not in ALWAYS_ONE_OR_ZERO
    return bool(getattr(get_grader(name), "scores", True))


def grader_names() -> tuple[str, ...]:
    """Return the built-in names, then those of entry points, sorted; without the official scorers of lm-eval."""
    return (*GRADERS, *sorted(PLUGINS.points()))

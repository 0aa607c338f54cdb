"""Grading: from generated text to a grade with its reason.

grader = grading.get_grader("math")     # made once, used for every text
grade = grading.best_grade(grader.grade, problem.gold, text)

May import: protocol.formats, protocol.harness, protocol.sandbox; math_verify, sympy.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from protocol.formats.plugins import PluginGroup
from protocol.formats.refusals import BadInput
from protocol.formats.registry import Registry, load_attribute, loader
from protocol.formats.suggestions import unknown_message
from protocol.formats.vocabulary import OFFICIAL
from protocol.grading.grade import Gold, Grade, Grader, best_grade, grade_agreement, grade_safely, make_score

__all__ = [
    "GRADERS",
    "LIBRARIES",
    "PLUGINS",
    "SECOND",
    "Gold",
    "Grade",
    "Grader",
    "best_grade",
    "get_grader",
    "gives_scores",
    "grade_agreement",
    "grade_safely",
    "grader_names",
    "make_score",
    "second_grader",
]

LIBRARIES = ("math-verify", "sympy", "latex2sympy2-extended", "antlr4-python3-runtime")  # that graders use

GRADERS: Mapping[str, Callable[[], Grader]] = MappingProxyType(
    {
        "exact": loader("protocol.grading.exact:"),
        "equals": loader("protocol.grading.equals:"),
        "contains": loader("protocol.grading.contains:"),
        "boxed": loader("protocol.grading.boxed:"),
        "math": lambda: load_attribute("protocol.grading.mathverify:MathVerify")(),
        "choice": loader("protocol.grading.choice:"),
        "f1": loader("protocol.grading.f1:"),
        "rouge": loader("protocol.grading.rouge:"),
        "code": loader("protocol.grading.code:"),
        "program": lambda: load_attribute("protocol.grading.program:ProgramGrader")(),
    }
)
PLUGINS = PluginGroup("kv_prereg.graders", "grader", frozenset(GRADERS), BadInput)
# The second grader, whose grade is recorded next to that of the grader.
SECOND = Registry[Grader]({"math": loader("protocol.grading.spelling:")})
ALWAYS_ONE_OR_ZERO = ("exact", "equals", "contains", "boxed", "math", "choice", "program")


def get_grader(name: str) -> Grader:
    """Return the grader of this name: a built-in one, an entry point of `kv_prereg.graders`, or "lm_eval:"
    and a task, which is the official scorer of the installed lm-eval.

    Raises BadInput for an unknown name, and if a dependency is not installed.
    """
    if name.startswith(OFFICIAL):
        scorer: Grader = load_attribute("protocol.grading.official:OfficialScorer")(name.removeprefix(OFFICIAL))
        return scorer
    if name in GRADERS:
        return GRADERS[name]()
    if name not in PLUGINS.points():
        raise BadInput(unknown_message("grader", name, [*grader_names(), f"{OFFICIAL}<task>"]))
    plugin = PLUGINS.load(name, build=lambda factory: factory())
    if not callable(getattr(plugin, "grade", None)):
        raise BadInput(f"grader {name!r}: is not a grader; its entry point must return an object with a method grade()")
    checked_plugin: Grader = load_attribute("protocol.grading.plugin_grader:PluginGrader")(plugin)
    return checked_plugin


def second_grader(name: str) -> Grader | None:
    """Return the second grader, whose grade is recorded next to that of `name`; it decides nothing."""
    if not name.startswith(OFFICIAL):
        return SECOND.get(name)
    corrected: Grader | None = load_attribute("protocol.grading.corrected_scores:get_scorer")(
        name.removeprefix(OFFICIAL)
    )
    return corrected


def gives_scores(name: str) -> bool:
    """Whether a grade of this grader may be a score between 0 and 1; for an entry point see
    `PluginGrader.scores`. Raises as `get_grader` does for an entry point.
    """
    if name in GRADERS or name.startswith(OFFICIAL):
        return name not in ALWAYS_ONE_OR_ZERO
    return bool(getattr(get_grader(name), "scores", True))


def grader_names() -> tuple[str, ...]:
    """Return the built-in names, then those of entry points, sorted; without the official scorers of lm-eval."""
    return (*GRADERS, *sorted(PLUGINS.points()))

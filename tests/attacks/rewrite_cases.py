"""A rewrite of a study by its author, and the item of the audit that names it."""

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

from rewriting import Rewrite

__all__ = ["Case", "cases", "named"]


class Case(NamedTuple):
    name: str
    of: str  # the class of attack, A1 to A13
    belief: str  # what a reader would take for true
    item: str  # of the audit, which names it; for what no audit can tell, what can
    words: str  # that it is named with
    edit: Callable[[Rewrite], None]
    study: str = "plain"  # or "sweep"
    status: str = "failed"


def named(of: str, item: str, words: str, **how: str) -> Callable[[Callable[[Rewrite], None]], Case]:
    """Makes the case of the function that edits: its name and what its docstring says a reader believes."""

    def case(edit: Callable[[Rewrite], None]) -> Case:
        return Case(edit.__name__, of, (edit.__doc__ or "").strip(), item, words, edit, **how)

    return case


def cases(*modules: ModuleType) -> list[Case]:
    return [one for module in modules for one in vars(module).values() if isinstance(one, Case)]

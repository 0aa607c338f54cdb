"""Many small cases of a test in one item: an item costs pytest and its workers 3 ms of a processor."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

PARAM = type(pytest.param())


def looped(names: str | Sequence[str], cases: Iterable[Any], ids: Any = repr) -> Any:
    """As `pytest.mark.parametrize`, for cases that share all fixtures but `tmp_path` and `monkeypatch`. Every case
    runs, and one that fails is named below its error. Cases that are marked as soak are an item of their own.

    ids: what names a value, or the name of each case.
    """
    names = names.split(", ") if isinstance(names, str) else list(names)
    parts: dict[str, list[tuple[str, dict[str, Any]]]] = {"suite": [], "soak": []}
    labels = itertools.repeat(None) if callable(ids) else ids
    for case, label in zip(cases, labels, strict=False):
        if not isinstance(case, PARAM):
            case = pytest.param(*(case if len(names) > 1 else (case,)))
        assert {mark.name for mark in case.marks} <= {"soak"}, case.marks
        label = case.id or label or ", ".join(str(ids(value))[:200] for value in case.values)
        parts["soak" if case.marks else "suite"].append((label, dict(zip(names, case.values, strict=True))))
    items = [
        pytest.param(part, id=name, marks=[pytest.mark.soak] if name == "soak" else [])
        for name, part in parts.items()
        if part
    ]
    argument = f"cases_of_{names[0]}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def loop(**arguments: Any) -> None:
            __tracebackhide__ = True
            part, failures = arguments.pop(argument), []
            for number, (label, values) in enumerate(part):
                try:
                    with pytest.MonkeyPatch.context() as patch:
                        if "tmp_path" in arguments:
                            values["tmp_path"] = arguments["tmp_path"] / str(number)
                            values["tmp_path"].mkdir()
                        if "monkeypatch" in arguments:
                            values["monkeypatch"] = patch
                        test(**arguments | values)
                except (Exception, pytest.fail.Exception) as failure:
                    failure.add_note(f"case: {label}")
                    failures.append(failure)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(part)} cases", failures)

        taken = [argument, *(name for name in inspect.signature(test).parameters if name not in names)]
        loop.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in taken]
        )
        return pytest.mark.parametrize(argument, items)(loop)

    return decorate

"""The import rule: the docstring of each room ends with what it may import, and that is what it imports."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from studies import BLOCK_TORCH

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "policies", "splits", "analysis", "figures", "kv_prereg", "benchmarks")
LEAF = "protocol.formats"  # the ground of every package: standard library only
RULE = re.compile(r"May import: (.+)\.$")
PARTS = {
    # A method in several files: its folder is part of the room of all methods.
    "policies.crystal": "policies",
    "policies.quantised": "policies",
}

COMMANDS = {
    f"protocol.{path.stem}" for path in (ROOT / "protocol").glob("*.py") if path.stem not in {"__init__", "__main__"}
} | {"protocol.tasks.__main__", "protocol.models.__main__"}
# What the declaration of an experiment may know of analysis: no numbers are computed there.
DECLARED = {"analysis.rules", "analysis.stats.methods"}
WITHOUT_TORCH = [
    "protocol.anchor",
    "protocol.confirm",
    "protocol.recompute.study_files",
    "protocol.recompute.verify_lock",
    "protocol.recompute.replay",
    "protocol.amend",
    "protocol.calibrate",
    "protocol.workspace.drift",
    "protocol.workspace.run_inputs",
    "protocol.workspace.study",
    "protocol.probe",
    "protocol.register",
    "protocol.rehearse",
    "protocol.replicate",
    "protocol.audit",
    "protocol.export",
    "protocol.regrade",
    "protocol.show",
    "protocol.status",
    "protocol.withdraw",
    "protocol.witnesses",
    "analysis.ablations",
    "analysis.claims",
    "analysis.compare",
    "analysis.diagnostics",
    "analysis.judge",
    "analysis.stats.power",
    "analysis.selection",
    "figures.forest",
    "figures.pool",
    "protocol.instruments.show.problem_page",
    "figures.study",
    "figures.table",
    "splits",
]


def modules(root: Path) -> dict[str, Path]:
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }


Walk = Callable[[ast.AST], Iterator[ast.AST]]
COMPUTED = "what a computed name says"
# kv-prereg runs a command by its name in MENU, and registries load what a path in them names.
STARTERS = {(f"protocol.{name}", COMPUTED) for name in ("__main__", "completion", "formats.registry")}
LOADED_PATH = re.compile(r"(\w+(?:\.\w+)+):\w*")  # "module:attribute"
# They name what stands above them, and load none of it by themselves.
REGISTRIES = {"protocol.formats.instruments", "protocol.formats.runners"}
LOADERS = {"import_module", "__import__", "resolve_name", "run_module", "run_path"}


def outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs as soon as a module is imported."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield from outside_functions(child)


def imports(path: Path, name: str, known: Mapping[str, Path], walk: Walk = ast.walk) -> set[str]:
    """Every module that `path` imports anywhere in it; `from a import b` is a.b where that is a module.

    So is what it loads by a name in a string, or by a path "module:attribute", and a module that it reaches as an
    attribute of another.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found, bound, loaders = set(), {}, set(LOADERS)
    nodes = list(walk(ast.parse(path.read_text())))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.add(alias.name)
                bound[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                full = f"{source}.{alias.name}"
                found.add(full if full in known else source)
                bound[alias.asname or alias.name] = full
                if alias.name in LOADERS:
                    loaders.add(alias.asname or alias.name)
    for node in nodes:
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in loaders:
            found.add(loaded(node))
        elif isinstance(node, ast.Constant) and name not in REGISTRIES:
            if (path_match := LOADED_PATH.fullmatch(str(node.value))) and path_match[1] in known:
                found.add(path_match[1])
        elif isinstance(node, ast.Attribute) and (chain := dotted(node)):
            root, _, rest = chain.partition(".")
            if root in bound and (full := f"{bound[root]}.{rest}") in known:
                found.add(full)
    return found - {name}


def dotted(node: ast.expr) -> str:
    """a.b.c, where the node is that and nothing else."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute() if inner := dotted(node.value):
            return f"{inner}.{node.attr}"
    return ""


def loaded(call: ast.Call) -> str:
    """The module that a call loads by its name; of a name in pieces, its package."""
    match call.args[:1]:
        case [ast.Constant(str(name))]:
            return name
        case [ast.JoinedStr([ast.Constant(str(head)), *_])] if "." in head:
            return head.partition(".")[0]
    return COMPUTED


def graph(root: Path) -> dict[str, set[str]]:
    return own_graph() if root == ROOT else read_graph(root)


def read_graph(root: Path) -> dict[str, set[str]]:
    known = modules(root)
    return {name: imports(path, name, known) for name, path in known.items()}


@cache
def own_graph() -> dict[str, set[str]]:
    return read_graph(ROOT)


def room(name: str, known: Mapping[str, Path]) -> str:
    folder = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
    return PARTS.get(name) or PARTS.get(folder, folder)


def rules(root: Path) -> dict[str, set[str]]:
    """What each room may import, beside itself, the ground and the standard library, as its docstring ends."""
    found = {}
    for name, path in modules(root).items():
        if path.name == "__init__.py":
            doc = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
            stated = RULE.search(doc)
            assert stated, f"{path}: its docstring does not end with what it may import"
            found[name] = set(re.findall(r"[\w.]+", stated[1])) - {"nothing"}
    return found


def within(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def violations(root: Path) -> list[str]:
    """One line for each import that a docstring does not allow, in the tree below `root`."""
    known, stated, found = modules(root), rules(root), []
    for name, imported in graph(root).items():
        own = room(name, known)
        for module in sorted(imported):
            mine = module in known and room(module, known) == own
            ground = module.partition(".")[0] in sys.stdlib_module_names or within(module, LEAF)
            if not (
                mine or ground or (name, module) in STARTERS or any(within(module, place) for place in stated[own])
            ):
                found.append(f"{name} imports {module}")
            if module in COMMANDS and name not in COMMANDS and not within(name, "benchmarks"):
                found.append(f"{name} imports the command {module}")
    return found


def circles(arrows: Mapping[str, set[str]]) -> list[str]:
    """Each module or room that can be reached from itself."""

    def reached(start: str) -> Iterator[str]:
        seen, waiting = set(), [*arrows[start]]
        while waiting:
            if (one := waiting.pop()) in arrows and one not in seen:
                seen.add(one)
                waiting += arrows[one]
                yield one

    return sorted(name for name in arrows if name in reached(name))


def rooms(root: Path) -> dict[str, set[str]]:
    known = modules(root)
    arrows: dict[str, set[str]] = {room(name, known): set() for name in known}
    for name, imported in graph(root).items():
        own = room(name, known)
        arrows[own] |= {room(one, known) for one in imported if one in known} - {own}
    return arrows


def test_every_room_imports_what_its_docstring_says():
    assert violations(ROOT) == []


def test_no_file_and_no_room_imports_in_a_circle():
    assert circles(graph(ROOT)) == []
    assert circles(rooms(ROOT)) == []


def test_the_ground_knows_nothing_of_the_rest():
    """What the docstrings may not be edited into: who may never see whom."""
    for name, stated in rules(ROOT).items():
        ours = {module for module in stated if module.partition(".")[0] in PACKAGES and not within(module, LEAF)}
        tops = {module.partition(".")[0] for module in ours}
        match name.partition(".")[0]:
            case "splits" | "policies" | "analysis" as package:
                assert tops <= {package}, name
            case "figures":
                assert tops <= {"figures", "analysis"}, name
        if name == LEAF:
            assert not stated
        if within(name, "protocol.lock"):
            assert not ours, name
        if within(name, "protocol.evidence"):
            assert all(within(module, "protocol.evidence") or module == "protocol.lock" for module in ours), name
        if name == "protocol.plan":
            assert {module for module in ours if within(module, "analysis")} == DECLARED, name
        if any(within(name, place) for place in ("protocol.workspace", "protocol.run", "protocol.engine")):
            assert not tops & {"analysis", "figures"}, name


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Rooms with the rules of today, empty but for these files."""
    for name, path in modules(ROOT).items():
        if path.name == "__init__.py" or name in COMMANDS:
            place = root / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            doc = ast.get_docstring(ast.parse(path.read_text())) or ""
            place.write_text(f'"""{doc}"""\n')
    for name, text in files.items():
        with (root / name).open("a") as file:
            file.write(text + "\n")
    return root


FORBIDDEN = [
    ("policies/bad.py", "import protocol.engine"),
    ("analysis/stats/bad.py", "from protocol.evidence import records"),
    ("analysis/stats/bad.py", "from analysis import judgement"),
    ("analysis/stats/bad.py", "import torch"),
    ("splits/bad.py", "import numpy"),
    ("figures/bad.py", "import policies"),
    ("protocol/formats/bad.py", "import splits"),
    ("protocol/formats/bad.py", "from protocol.evidence import ledger"),
    ("protocol/lock/bad.py", "from protocol.evidence import ledger"),
    ("protocol/evidence/bad.py", "from protocol.plan import design"),
    ("protocol/evidence/bad.py", "def late():\n    import requests"),
    ("protocol/engine/bad.py", "from analysis.stats import bootstrap"),
    ("protocol/tasks/bad.py", "from .. import run"),
    ("protocol/run/bad.py", "import analysis.judge"),
    ("protocol/helper.py", "from protocol import confirm"),
    ("protocol/formats/bad.py", 'import importlib\nx = importlib.import_module("protocol.engine")'),
    ("policies/bad.py", 'from importlib import import_module as load\nx = load("protocol.engine")'),
    ("policies/bad.py", 'x = __import__("protocol.engine")'),
    ("policies/bad.py", 'x = loader("protocol.engine:decode")'),
    ("policies/bad.py", 'import pkgutil\nx = pkgutil.resolve_name("protocol.engine")'),
    ("protocol/evidence/bad.py", "import protocol.formats.files\nx = protocol.engine.decode"),
    ("protocol/preflight/bad.py", "import protocol.tasks.__main__"),
]


def test_the_rule_notices_a_forbidden_import(tmp_path):
    """Each in the same tree, which allows all that it holds without it."""
    assert violations(tree(tmp_path, {})) == []
    for file, line in FORBIDDEN:
        (tmp_path / file).write_text(line)
        assert len(violations(tmp_path)) == 1, (file, line)
        (tmp_path / file).unlink()


def test_circles_are_noticed(tmp_path):
    made = tree(
        tmp_path,
        {
            "policies/one.py": "from policies import other",
            "policies/other.py": "def late():\n    from policies import one",
            "analysis/stats/one.py": "from analysis.judgement import other",
            "analysis/judgement/other.py": "import analysis.stats.far",
            "analysis/stats/far.py": "",
        },
    )
    assert circles(graph(made)) == ["policies.one", "policies.other"]
    assert circles(rooms(made)) == ["analysis.judgement", "analysis.stats"]


def test_a_room_without_a_rule_is_noticed(tmp_path):
    tree(tmp_path, {})
    (tmp_path / "protocol/preflight/__init__.py").write_text('"""What is checked before."""\n')
    with pytest.raises(AssertionError, match="does not end with what it may import"):
        violations(tmp_path)


IMPORT = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"


def imported(*names: str, first: str = "", last: str = "") -> subprocess.CompletedProcess:
    """A new process in which `first` runs, then these modules are imported, then `last` runs."""
    code = "\n".join([first, IMPORT, last])
    return subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT, capture_output=True, text=True)


def test_what_an_auditor_needs_imports_without_torch():
    done = imported(*WITHOUT_TORCH, first=BLOCK_TORCH)
    assert done.returncode == 0, done.stderr


def test_the_ground_loads_nothing_else_of_the_project():
    leaf = sorted(name for name in modules(ROOT) if within(name, LEAF))
    loaded = f"print(*(name for name in sys.modules if name.partition('.')[0] in {PACKAGES}))"
    done = imported(*leaf, last=loaded)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["protocol", *leaf]


def test_the_block_bites():
    done = imported("protocol.engine", first=BLOCK_TORCH)
    assert done.returncode != 0
    assert "is blocked" in done.stderr


RUNNING = ("protocol.run.runner", "protocol.run.executors.process_pool")


def loads_effects(modules: Iterable[str]) -> list[str]:
    """What computes an effect or draws one: what an experiment is names rules and methods, and nothing else."""
    light = {*DECLARED, "analysis.stats.comparison"}
    found = {name for name in modules if name.partition(".")[0] in ("analysis", "figures")} - {
        "analysis",
        "analysis.stats",
    }
    return sorted(name for name in found if not any(within(name, place) for place in light))


def test_what_runs_cells_imports_no_statistics_and_no_figures():
    known, waiting, reached = modules(ROOT), [*RUNNING], set()
    while waiting:
        name = waiting.pop()
        if name in known and name not in reached:
            reached.add(name)
            waiting += [*imports(known[name], name, known, outside_functions), name.rpartition(".")[0]]
    assert "protocol.engine.decode" in reached
    assert loads_effects(reached) == []


@pytest.mark.soak
def test_what_runs_cells_loads_no_statistics_and_no_figures():
    done = imported(*RUNNING, last="print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert loads_effects(done.stdout.split()) == []


def test_rules_and_methods_are_declared_without_loading_any_library():
    loaded = "print({'numpy', 'scipy', 'pandas', 'statsmodels', 'torch'} & sys.modules.keys())"
    done = imported("analysis.rules", "analysis.stats.methods", last=loaded)
    assert done.stdout.strip() == "set()", done.stderr

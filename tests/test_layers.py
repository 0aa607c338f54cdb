"""The import rule of ARCHITECTURE.md: who may import whom, and which commands need no torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from studies import BLOCK_TORCH

ROOT = Path(__file__).resolve().parent.parent
OURS = {"protocol", "policies", "splits", "analysis", "figures"}

# package -> what of ours it may import (itself always)
ALLOWED = {
    "splits": set(),
    "policies": set(),
    "analysis": set(),
    "figures": {"analysis"},
    "protocol.evidence": set(),
    "protocol.engine": {"policies", "splits", "protocol.evidence", "protocol.models"},
    "protocol.tasks": {"policies", "splits", "protocol.evidence"},
    "protocol.models": {"policies", "splits", "protocol.evidence"},
    "protocol.grading": {"policies", "splits", "protocol.evidence"},
    "protocol.witnesses": {"protocol.evidence"},
}
THIRD_PARTY = {  # beyond the standard library
    "splits": set(),
    "protocol.evidence": set(),
    "protocol.witnesses": {"opentimestamps", "bitcoin"},
    "policies": {"torch"},
    "analysis": {"numpy", "pandas", "scipy", "statsmodels"},
    "figures": {"numpy", "matplotlib"},
}
COMMANDS = {
    "register",
    "calibrate",
    "probe",
    "rehearse",
    "confirm",
    "regrade",
    "replicate",
    "status",
    "audit",
    "amend",
    "withdraw",
    "anchor",
    "export",
}
WITHOUT_TORCH = [
    "protocol.anchor",
    "protocol.confirm",
    "protocol.drift",
    "protocol.audit",
    "protocol.export",
    "protocol.regrade",
    "protocol.status",
    "protocol.withdraw",
    "protocol.witnesses",
    "analysis.ablations",
    "analysis.claims",
    "analysis.diagnostics",
    "analysis.judge",
    "analysis.power",
    "analysis.selection",
    "figures.forest",
    "figures.study",
    "figures.table",
    "splits",
]


def modules(root: Path, package: str) -> dict[str, Path]:
    folder = root.joinpath(*package.split("."))
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(folder.rglob("*.py"))
    }


def imports(root: Path, name: str, path: Path) -> set[str]:
    """Every module that `path` imports anywhere in it, relative imports resolved, `from a import b` as
    a and a.b.
    """
    found = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                full = f"{source}.{alias.name}"
                inner = root.joinpath(*full.split("."))
                found.add(full if inner.is_dir() or inner.with_suffix(".py").is_file() else source)
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def violations(root: Path) -> list[str]:
    """One line for each import that the rule forbids, in the tree below `root`."""
    found = []
    for package, allowed in ALLOWED.items():
        for name, path in modules(root, package).items():
            for module in imports(root, name, path):
                top = module.partition(".")[0]
                if top in OURS:
                    if not any(within(module, target) for target in {package, *allowed}):
                        found.append(f"{name} imports {module}")
                elif package in THIRD_PARTY and top not in sys.stdlib_module_names | THIRD_PARTY[package]:
                    found.append(f"{name} imports {module}")
    everything = {name: path for package in OURS for name, path in modules(root, package).items()}
    for name, path in everything.items():
        for module in imports(root, name, path):
            if module in {f"protocol.{command}" for command in COMMANDS}:
                found.append(f"{name} imports the command {module}")
            if name == "protocol.runner" and module.partition(".")[0] in {"analysis", "figures"}:
                found.append(f"{name} imports {module}")
    return found


def test_every_import_points_down():
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("policies/bad.py", "import protocol.engine"),
        ("analysis/bad.py", "from protocol.evidence import records"),
        ("analysis/bad.py", "import torch"),
        ("splits/bad.py", "import numpy"),
        ("figures/bad.py", "import policies"),
        ("protocol/evidence/bad.py", "import splits"),
        ("protocol/evidence/bad.py", "def late():\n    import requests"),
        ("protocol/engine/bad.py", "from analysis import bootstrap"),
        ("protocol/tasks/bad.py", "from .. import runner"),
        ("protocol/runner.py", "import analysis.judge"),
        ("protocol/helper.py", "from protocol import confirm"),
    ],
)
def test_the_rule_notices_a_forbidden_import(tmp_path, file, line):
    for name in (
        "protocol/confirm.py",
        "protocol/runner.py",
        "protocol/engine/__init__.py",
        "analysis/bootstrap.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line + "\n")
    assert len(violations(tmp_path)) == 1


BLOCKED = BLOCK_TORCH + "import importlib; importlib.import_module(sys.argv[1])"


def run_blocked(module: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", BLOCKED, module], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_what_an_auditor_needs_imports_without_torch(module):
    done = run_blocked(module)
    assert done.returncode == 0, done.stderr


def test_the_block_bites():
    done = run_blocked("protocol.engine")
    assert done.returncode != 0
    assert "is blocked" in done.stderr


def test_the_runner_loads_neither_analysis_nor_figures():
    loaded = "{m.partition('.')[0] for m in sys.modules} & {'analysis', 'figures'}"
    code = f"import sys, protocol.runner; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

"""Every page: lines that fit, links and paths that lead somewhere, commands that exist."""

import re

from looped import looped
from markdown_pages import GENERATED, blocks, name, pages
from studies import ROOT

from protocol.command.menu import MENU

MOST = 120
# Tables whose cells are sentences, or results as they were printed. Prose there fits like everywhere.
WIDE_TABLES = {
    "benchmarks/RESULTS.md",
    "docs/comparison.md",
    "docs/decisions/68-false-verdicts.md",
    "docs/decisions/74-newcomers.md",
    "docs/findings.md",
    "docs/gates.md",
    "docs/protocol.md",
    "docs/records.md",
    "docs/systems.md",
    "protocol/embedded/chain-llama/README.md",
    "protocol/embedded/chain-qwen2/README.md",
    "protocol/embedded/programs-llama/README.md",
    "protocol/embedded/programs-qwen3/README.md",
}
AS_PRINTED = {"docs/machines.md"}  # in fences, what a command prints
ROOMS = ("protocol", "policies", "splits", "analysis", "figures", "benchmarks", "tests", "docs", "registrations")
YOURS = re.compile(
    r"mine|brain|yours|<|\*|sums|sizes|halves|small_values|everywhere|lengths"
)  # what a reader is to make

each_page = looped("page", pages(), ids=name)


@each_page
def test_lines_fit(page):
    printed = blocks(page).splitlines() if name(page) in AS_PRINTED else []
    wide = [
        (number, len(line))
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > MOST and not (name(page) in WIDE_TABLES and line.startswith("|")) and line not in printed
    ]
    assert not wide


@each_page
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    inside = {target.partition("#")[0] for target in targets if "://" not in target} - {""}
    assert {
        target for target in inside if not ((there := page.parent / target).exists() or there.resolve() in GENERATED)
    } == set()


@each_page
def test_paths_that_are_named_exist(page):
    quoted = re.findall(r"`([\w./-]+)`", page.read_text())
    named = {path for path in quoted if path.partition("/")[0] in ROOMS and "/" in path}
    assert {
        path for path in named if not YOURS.search(path) and not ((ROOT / path).exists() or ROOT / path in GENERATED)
    } == set()


@each_page
def test_modules_that_are_run_exist(page):
    run = set(re.findall(r"python -m ([\w.]+)", page.read_text()))
    ours = {module.rstrip(".") for module in run if module.partition(".")[0] in ROOMS}
    places = {module: ROOT.joinpath(*module.split(".")) for module in ours if not YOURS.search(module)}
    missing = {
        module
        for module, place in places.items()
        if not (place.with_suffix(".py").exists() or (place / "__main__.py").exists())
    }
    assert missing == set()


@each_page
def test_commands_that_are_typed_exist(page):
    code = [*re.findall(r"`(kv-prereg\b[^`]*)`", page.read_text()), *blocks(page).splitlines()]
    typed = {name for line in code for name in re.findall(r"(?:^|[ /&|])kv-prereg +([a-z][a-z-]*)(?= |$)", line)}
    assert {name for name in typed if not YOURS.search(name)} <= {*MENU, "help"}


def test_the_pages_that_may_be_wide_are_there_and_are_wide():
    for path in WIDE_TABLES:
        assert max(map(len, (ROOT / path).read_text().splitlines())) > MOST, path

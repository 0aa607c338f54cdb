"""The site of `make docs`: every page has a place, and a link leads where it led in the repository."""

import importlib.util
import posixpath
import re

import pytest
import yaml
from markdown_pages import GENERATED, name, pages
from studies import ROOT

SPEC = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
assert SPEC is not None
assert SPEC.loader is not None
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)

# What mkdocs adds to YAML: a value from the environment, here the default that stands last.
READER = type("Reader", (yaml.SafeLoader,), {})
READER.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])
SETTINGS = yaml.load((ROOT / "mkdocs.yml").read_text(), READER)
REPOSITORY = "https://example.org/kv-prereg"


def places(part) -> list[str]:
    """Every page of the navigation."""
    if isinstance(part, str):
        return [part]
    inner = part.values() if isinstance(part, dict) else part
    return [place for each in inner for place in places(each)]


NAV = places(SETTINGS["nav"])


def test_every_page_has_one_place():
    inside = {path.relative_to(ROOT / "docs").as_posix() for path in {*(ROOT / "docs").glob("*.md"), *GENERATED}}
    expected = inside | set(hooks.ELSEWHERE.values()) | {"decisions/README.md"}
    assert sorted(NAV) == sorted(expected)


def test_what_lies_elsewhere_exists():
    for source in hooks.ELSEWHERE:
        assert hooks.text(source).startswith("#"), source


def test_nothing_is_fetched_and_a_dead_link_fails():
    assert SETTINGS["strict"] is True
    (build,) = re.findall(r"mkdocs build(.*?)(?:#|$)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert build.strip() == ""  # with --quiet the warnings are not counted, and none fails
    assert set(SETTINGS["validation"].values()) == {"warn"}
    assert SETTINGS["theme"]["font"] is False
    assert "://" not in str(SETTINGS["theme"]) + str(SETTINGS["plugins"]) + str(SETTINGS["extra_css"])


@pytest.mark.parametrize(
    ("source", "place", "written", "linked"),
    [
        ("README.md", "index.md", "[a](docs/engine.md#b)", "[a](engine.md#b)"),
        ("docs/engine.md", "engine.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/decisions/README.md", "decisions/README.md", "[a](../engine.md)", "[a](../engine.md)"),
        ("docs/decisions/README.md", "decisions/README.md", "[a](../../benchmarks/RESULTS.md)", "[a](../results.md)"),
        ("README.md", "index.md", "[a](Makefile)", f"[a]({REPOSITORY}/blob/HEAD/Makefile)"),
        ("README.md", "index.md", "[a](https://x.y/docs/z.md)", "[a](https://x.y/docs/z.md)"),
        ("README.md", "index.md", "[a](#limits)", "[a](#limits)"),
        ("README.md", "index.md", "`[a](Makefile)`", "`[a](Makefile)`"),
        ("README.md", "index.md", "```\n[a](Makefile)\n```", "```\n[a](Makefile)\n```"),
        ("README.md", "index.md", "[a](docs/gone.md)", "[a](docs/gone.md)"),
        ("docs/findings.md", "findings.md", "![a](../docs/figures/show.png)", "![a](figures/show.png)"),
        (
            "README.md",
            "index.md",
            "![a](registrations/alpha-chain/figures/forest.png)",
            "![a](registrations/alpha-chain/figures/forest.png)",
        ),
    ],
)
def test_a_link_is_written_for_its_place(source, place, written, linked):
    assert hooks.linked(written, source, place, REPOSITORY) == linked


def test_without_an_address_of_the_repository_a_link_into_it_is_words():
    assert hooks.linked("see [the rules](Makefile).", "README.md", "index.md", "") == "see the rules."


def test_every_link_of_every_page_leads_to_a_page_a_picture_or_out():
    known = set(NAV) | {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*")}
    elsewhere = set(hooks.ELSEWHERE)
    for page in pages():
        source = name(page)
        if not (source in elsewhere or source.startswith("docs/")):
            continue
        place = hooks.ELSEWHERE.get(source, source.removeprefix("docs/"))
        read = page.read_text()
        shown = known | set(hooks.pictures(source, read))
        for target in re.findall(r"\]\(([^)\s#]+)", hooks.linked(hooks.CODE.sub("", read), source, place, "")):
            if "://" not in target:
                assert posixpath.normpath(posixpath.join(posixpath.dirname(place), target)) in shown, source

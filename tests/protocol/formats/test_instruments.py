"""The registry of instruments: the core names none, and a further one is one folder and one entry."""

import json
import re
import shutil
import subprocess
import sys

from studies import ROOT

from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.registry import load_attribute

PACKAGES = ("protocol", "policies", "splits", "analysis", "figures")
REGISTRY = "protocol/formats/instruments.py"
# The digests of shipped studies, whose names may contain that of an instrument.
VERSION_1 = "protocol/lock/version_1.py"
FOLDER = {
    "__init__.py": '''"""A third instrument: the weather outside.

May import: protocol.formats.
"""
''',
    "weather.py": '''"""Everything that the weather adds to the core."""

from protocol.formats.fields import Field, Integer, Table, declaration, declare, table_of


@declaration(kw_only=True)
class Weather:
    """The table [weather]."""

    readings: int = declare(Integer(1, 9), "How often the thermometer is read.", 3)


TABLE = table_of(Weather)
EVENTS = {"weather": Field(Table({}), "It was read."), "weathered": Field(Table({}), "It was read to the end.")}


def faults(weather, design, evicting):
    if weather.readings == 9:
        yield "weather.readings: 9 is too often"


def check(study, is_claimed, has_ended):
    lines = (study.folder / "weather" / "readings.txt").read_text().splitlines()
    return f"{len(lines)} of {study.protocol['weather']['readings']} readings"


def section(folder):
    from markupsafe import Markup

    return Markup("<p>It rained.</p>") if (folder / "weather").exists() else None
''',
}
ENTRY = """    Instrument(
        name="weather",
        end_event="weathered",
        table="protocol.instruments.weather.weather:TABLE",
        description="The weather outside.",
        if_absent="nobody looks",
        faults="protocol.instruments.weather.weather:faults",
        events="protocol.instruments.weather.weather:EVENTS",
        files={"": r"readings\\.txt"},
        check="protocol.instruments.weather.weather:check",
        verb="read",
        activity="the thermometer is read",
        advice="or look out of the window",
        commands={"weather": Command("protocol.weather", "the weather outside")},
        section="protocol.instruments.weather.weather:section",
        section_title="The weather while it ran",
        section_link="Weather",
    ),
"""
# In the copied tree: what the core makes of the third instrument, for a shipped study that registers it.
SCRIPT = """
import json, sys, tomllib
from decimal import Decimal
from pathlib import Path

import reports

from figures import report
from protocol.command.menu import MENU
from protocol.evidence import ledger
from protocol.evidence.audit import auditor, inventory
from protocol.evidence.registration import Registration
from protocol.lock import version_1
from protocol.plan import checks
from protocol.plan.design import DESIGN

folder = reports.copied(Path(sys.argv[1]))
text = (folder / "protocol.toml").read_text() + "\\n[weather]\\nreadings = 3\\n"
design = DESIGN.read(tomllib.loads(text, parse_float=Decimal), "")
excessive = DESIGN.read(tomllib.loads(text.replace("readings = 3", "readings = 9"), parse_float=Decimal), "")
reports.rewrite(folder, lock=lambda lock: lock["protocol"]["content"].update(weather=design.content()["weather"]))
version_1.PROTOCOLS = {reports.digest(folder, "lock"): ""}  # as if it shipped
(folder / "weather").mkdir()
(folder / "weather" / "readings.txt").write_text("11\\n12\\n")
study = Registration(folder)
findings = {finding.item: (finding.status, finding.detail) for finding in auditor.audit(study)}
report.study.draw = lambda folder, witness, to: ()  # drawings take their time
page = report.report(folder).read_text()
print(json.dumps({
    "readings": design.instruments["weather"].readings,
    "content": design.content()["weather"],
    "kind": inventory.classify(study)["weather/readings.txt"],
    "events": sorted({"weather", "weathered"} & ledger.EVENTS.keys()),
    "finding": findings["weather"],
    "lock": findings["lock"][0],
    "order": list(findings),
    "faults": [fault for fault in checks.faults(excessive, lambda arm: arm != "full") if "weather" in fault],
    "menu": MENU["weather"].summary,
    "section": [text in page for text in ("<p>It rained.</p>", "The weather while it ran", 'href="#weather"')],
}))
"""


def test_the_core_names_no_instrument():
    """An instrument is a word of the registry, of its folder and of its command file."""
    names = [instrument.name for instrument in INSTRUMENTS]
    own_files = {REGISTRY, VERSION_1, *(f"protocol/{name}.py" for name in names)}
    mention = re.compile(rf"""["'\[]({"|".join(names)})["'\]]|instruments\.({"|".join(names)})\b|\banatomy\b""")
    files = (path for package in ("protocol", "analysis", "figures") for path in (ROOT / package).rglob("*.py"))
    core = [path for path in files if "instruments" not in path.parts]
    assert len(core) > 300
    found = {
        path.relative_to(ROOT).as_posix()
        for path in core
        if path.relative_to(ROOT).as_posix() not in own_files and mention.search(path.read_text())
    }
    assert found == set()


def test_every_path_of_the_registry_leads_somewhere():
    """Those that load no torch; the commands are modules that kv-prereg runs."""
    for instrument in INSTRUMENTS:
        for path in (value for value in instrument if isinstance(value, str) and re.fullmatch(r"[\w.]+:\w+", value)):
            if ".run." not in path:
                assert load_attribute(path) is not None
        assert instrument.name in instrument.commands
        assert tuple(load_attribute(instrument.events)) == instrument.event_names


def test_a_third_instrument_is_one_folder_and_one_entry(tmp_path):
    tree = tmp_path / "tree"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("*.safetensors"))
    (tree / "protocol/instruments/weather").mkdir()
    for name, text in FOLDER.items():
        (tree / "protocol/instruments/weather" / name).write_text(text)
    registry = (tree / REGISTRY).read_text()
    begin = "INSTRUMENTS: tuple[Instrument, ...] = (\n"
    assert begin in registry
    (tree / REGISTRY).write_text(registry.replace(begin, begin + ENTRY))
    helpers = [str(ROOT / name) for name in ("tests", "tests/figures")]
    setup = f"import sys; sys.path[1:1] = {helpers}\n"
    arguments = [sys.executable, "-c", setup + SCRIPT, tmp_path / "study"]
    done = subprocess.run(arguments, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["readings"] == 3
    assert result["content"] == {"readings": 3}
    assert result["kind"] == "evidence"
    assert result["events"] == ["weather", "weathered"]
    assert result["finding"] == ["held", "2 of 3 readings"]
    assert result["faults"] == ["weather.readings: 9 is too often"]
    assert result["menu"] == "the weather outside"
    assert result["section"] == [True, True, True]
    assert result["order"].index("probe") < result["order"].index("weather") < result["order"].index("claim")

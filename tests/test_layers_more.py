"""Imports that the import rule does not notice."""

import pytest
import test_layers


@pytest.mark.parametrize(
    ("file", "line"),
    [
        (
            "protocol/evidence/bytes/bad.py",
            'import importlib\nx = importlib.import_module("protocol.engine")',
        ),
        ("policies/bad.py", 'from importlib import import_module as load\nx = load("protocol.engine")'),
        ("policies/bad.py", 'x = __import__("protocol.engine")'),
        ("policies/bad.py", 'import pkgutil\nx = pkgutil.resolve_name("protocol.engine")'),
        ("protocol/evidence/run/bad.py", "import protocol.evidence.bytes.files\nx = protocol.engine.run"),
        ("protocol/acts/bad.py", "import protocol.tasks.__main__"),
    ],
)
def test_the_rule_notices_what_is_not_written_as_an_import(tmp_path, file, line):
    assert len(test_layers.violations(test_layers.tree(tmp_path, {file: line}))) == 1

"""protocol.toml, read strictly: every field is required unless its declaration says what holds without it.

Unknown keys, unknown names, numbers outside their range and text that is not NFC are refused with the
field's path and the fix.
"""

import codecs
import tomllib
from decimal import Decimal

from protocol.evidence.bytes.fields import Fault
from protocol.evidence.refusals import BadInput
from protocol.plan import checks, settings_grid
from protocol.plan.design import DESIGN, Design
from protocol.plan.where import elsewhere, line, no_toml

__all__ = ["parse", "read"]


def parse(data: bytes, where: str) -> Design:
    """The protocol in `data`. Raises BadInput, one line that names the field and the fix."""
    design = read(data, where)
    try:
        checks.check(design)
    except Fault as fault:
        raise _refused(data.decode("utf-8"), where, fault.written) from None
    return design


def read(data: bytes, where: str) -> Design:
    """The same without what only a whole design can show, for which policies and torch are loaded: what an
    audit asks of a protocol that was registered.
    """
    if data.startswith(codecs.BOM_UTF8):
        raise BadInput(f"{where}: begins with a byte order mark; save the file as UTF-8 without one")
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8 at byte {error.start}; save the file as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{where}: {no_toml(text, error)}") from error
    except RecursionError:
        raise BadInput(f"{where}: nested too deeply for a protocol; write plain lists and tables") from None
    except (ValueError, ArithmeticError):  # thousands of digits, or an exponent of as many
        raise BadInput(f"{where}: has a number that nobody can mean; write one of a few digits") from None
    try:
        design: Design = settings_grid.expanded(DESIGN.read(document, ""))
    except Fault as fault:
        said = elsewhere(fault, document, DESIGN) or fault.written
        raise _refused(text, where, said) from None
    return design


def _refused(text: str, where: str, said: str) -> BadInput:
    """With the line of the file, where that can be told."""
    try:
        number = line(text, said)
    except RecursionError:  # of a document that was just not too deep to be read
        number = None
    return BadInput(f"{where}: {said}" + ("" if number is None else f" (line {number})"))

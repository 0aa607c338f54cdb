"""A strict reader of protocol.toml: fields are required unless their declaration has a default.

Unknown keys, unknown names, numbers out of range and text that is not NFC are refused with the path of the
field and the fix.
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
    """Return the protocol in `data`. Raises BadInput, one line with the field and the fix."""
    design = read(data, where)
    try:
        checks.check(design)
    except Fault as fault:
        raise _refused(data.decode("utf-8"), where, fault.written) from None
    return design


def read(data: bytes, where: str) -> Design:
    """Parse without the checks of the whole design, which need policies and torch. An audit uses this for a
    registered protocol.
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
    except (ValueError, ArithmeticError):  # thousands of digits, also in an exponent
        raise BadInput(f"{where}: has a number that nobody can mean; write one of a few digits") from None
    try:
        design: Design = settings_grid.expanded(DESIGN.read(document, ""))
    except Fault as fault:
        said = elsewhere(fault, document, DESIGN) or fault.written
        raise _refused(text, where, said) from None
    return design


def _refused(text: str, where: str, said: str) -> BadInput:
    """Return a BadInput with the line of the file if it is known."""
    try:
        number = line(text, said)
    except RecursionError:  # the document is barely shallow enough to be parsed
        number = None
    return BadInput(f"{where}: {said}" + ("" if number is None else f" (line {number})"))

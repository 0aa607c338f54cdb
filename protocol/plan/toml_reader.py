"""A strict reader of protocol.toml: fields are required unless their declaration has a default.

Unknown keys, unknown names, numbers out of range and text that is not NFC are refused with the path of the
field and the fix.
"""

import codecs
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

from protocol.formats.fields import Fault
from protocol.formats.refusals import BadInput
from protocol.formats.runners import find_design_table
from protocol.plan import checks
from protocol.plan.design import DESIGN, Design


def parse(data: bytes, source: str, before_policies: Callable[[Design], object] = lambda design: None) -> Design:
    """Return the protocol in `data`. Raises BadInput, one line with the field and the fix. before_policies: refuses
    what takes no policy to see, before torch is loaded.
    """
    design = parse_unchecked(data, source)
    try:
        checks.check(design, before_policies)
    except Fault as fault:
        raise _refusal(data.decode("utf-8"), source, fault.author_message) from None
    return design


def parse_unchecked(data: bytes, source: str) -> Design:
    """Parse without the checks of the whole design, which need policies and torch: for an audit."""
    if data.startswith(codecs.BOM_UTF8):
        raise BadInput(f"{source}: begins with a byte order mark; save the file as UTF-8 without one")
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text, parse_float=Decimal)
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: not UTF-8 at byte {error.start}; save the file as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        from protocol.plan.toml_locations import explain_syntax_error  # here and below: only a fault needs it

        raise BadInput(f"{source}: {explain_syntax_error(text, error)}") from error
    except RecursionError:
        raise BadInput(f"{source}: nested too deeply for a protocol; write plain lists and tables") from None
    except (ValueError, ArithmeticError):  # thousands of digits, also in an exponent
        raise BadInput(f"{source}: has a number with too many digits; write a shorter one") from None
    table = find_design_table(document, DESIGN)
    try:
        design: Design = table.read(document, "")
        if design.sweep is not None and design.sweep.grid is not None:
            from protocol.plan.settings_grid import expand_grids

            design = expand_grids(design)
    except Fault as fault:
        from protocol.plan.toml_locations import suggest_table

        message = suggest_table(fault, document, table) or fault.author_message
        raise _refusal(text, source, message) from None
    return design


@contextmanager
def locate_refusals(path: Path) -> Iterator[None]:
    """Add the file and the line to a BadInput about a field of the protocol at `path`, once it was parsed."""
    try:
        yield
    except BadInput as refusal:
        name = re.match(r"\w+(?=[\[.:])", str(refusal))
        if name is None or name[0] not in DESIGN.all_fields:
            raise
        raise _refusal(path.read_text("utf-8"), str(path), str(refusal)) from None


def _refusal(text: str, source: str, message: str) -> BadInput:
    """Return a BadInput with the line of the file if it is known."""
    from protocol.plan.toml_locations import find_line

    try:
        number = find_line(text, message)
    except RecursionError:  # the document is barely shallow enough to be parsed
        number = None
    return BadInput(f"{source}: {message}" + ("" if number is None else f" (line {number})"))

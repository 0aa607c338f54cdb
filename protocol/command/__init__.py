"""What all commands share: options, one-line refusals and exit statuses.

May import: protocol.formats, protocol.evidence, protocol.witnesses.
"""

from protocol.command.options import Options as Options
from protocol.command.options import Trust as Trust
from protocol.command.options import add_folder as add_folder
from protocol.command.options import add_identity as add_identity
from protocol.command.options import add_trust as add_trust
from protocol.command.options import make_parser as make_parser
from protocol.command.options import make_witnesses as make_witnesses
from protocol.command.options import read_folder as read_folder
from protocol.command.options import trusted_witnesses as trusted_witnesses
from protocol.command.reporting import EXIT_STATUS as EXIT_STATUS
from protocol.command.reporting import execute as execute
from protocol.command.reporting import print_notice as print_notice
from protocol.command.reporting import print_result as print_result
from protocol.command.reporting import run as run

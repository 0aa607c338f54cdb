"""Studies whose outputs another harness makes: registered here, run anywhere, read once and judged by the same rules.

design reads their protocol, derive makes their lock, released draws and names the held-out problems, output_files
reads what the harness wrote, lanes makes records of it, confirm goes from the claim to the seal, verify is the audit.

May import: analysis.compare, protocol.evidence, protocol.formats, protocol.lock, protocol.plan, protocol.preflight,
protocol.tasks, protocol.workspace; numpy.
"""

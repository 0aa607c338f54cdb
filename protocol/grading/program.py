"""Programs, graded by hidden tests: run in sandboxes, without network and files, and never in this process.

Tests and program are in two sandboxes: the program's process is sent the arguments of a call and sends back its value,
as plain data, and the tests compare elsewhere. So nothing that a program does can say that it is right
(docs/decisions/64-programs.md).
"""

import json
import re
import socket
import sys
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from protocol.formats.findings import CannotTell
from protocol.formats.refusals import BadInput
from protocol.grading.answer_text import excerpt, skip_thought, strip_special_tokens
from protocol.grading.grade import Grade
from protocol.grading.program_tests import ProgramTests
from protocol.sandbox import sandbox
from protocol.sandbox.program_server import READY, STOP

SERVER = Path(__file__).resolve().parents[1] / "sandbox" / "program_server.py"
# -S: the standard library alone, so that what is installed beside it changes no grade.
COMMAND = (sys.executable, "-s", "-S", "-P", "-B", str(SERVER))
SERVER_LIMITS = sandbox.Limits(seconds=7 * 86400, cpu=86400)
START_SECONDS = 60.0
MAX_CHARACTERS = 50_000  # of a program
MAX_OUTPUT = 1 << 20  # bytes that a script may print
CPU_SHARE = 0.9  # of its processor time, with which a killed program is taken to have run out of it
UNIT = "    "  # of indentation, where a prompt has none
INDENTED = re.compile(r"([ \t]+)\S")
FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[ \t][^\n]*$", re.MULTILINE)
FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)


class ProgramLimits(NamedTuple):
    """Limits of a program, for all tests of its functions or for one input of a script.

    cpu: seconds of processor time. wall: seconds on the clock, for a program that waits. memory: bytes.
    """

    cpu: int = 3
    wall: int = 30
    memory: int = 1 << 30


PROGRAM_LIMITS = ProgramLimits()


class ProgramGrader:
    """A grader with two sandboxes, started when first needed; close it, or use it in a `with` block.

    Raises BadInput where no sandbox works.
    """

    def __init__(self, limits: ProgramLimits = PROGRAM_LIMITS):
        try:
            self._mechanism = sandbox.find_mechanism()
        except CannotTell as reason:
            raise BadInput(f"grader program: needs a sandbox for programs, but {reason}") from None
        self._limits = limits
        self._servers: list[socket.socket] = []
        self._sandboxes = ExitStack()
        weakref.finalize(self, self._sandboxes.close)

    def __enter__(self) -> "ProgramGrader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sandboxes; the next program starts others."""
        self._sandboxes.close()
        self._servers = []

    def grade(self, gold: str, text: str) -> Grade:
        """Correct if and only if the program passes every test. "timeout" at a limit of time, "no answer" for a text
        without code, "error" if the tests cannot be run; whatever else a program does is wrong.
        """
        tests = ProgramTests.from_gold(gold)
        code, is_open = extract_code(text, tests.names)
        if not code.strip():
            return Grade("no answer", None, "there is no code")
        if len(code) > MAX_CHARACTERS:
            return Grade("wrong", excerpt(code), f"the code has more than {MAX_CHARACTERS} characters")
        status, reason = self.run(complete_program(code, tests), tests, is_open=is_open)
        return Grade(status, excerpt(code), reason)

    def find_fault(self, gold: str) -> str:
        """Return why no answer can be graded with these tests; "" if they accept their own solution, where there is
        one, and refuse a program that does nothing.
        """
        tests = ProgramTests.from_gold(gold)
        if tests.solution:
            status, reason = self.run(complete_program(tests.solution, tests), tests)
            if status != "correct":
                return f"its own solution is not right: {reason}"
        nothing = "".join(f"def {name}(*a, **k): pass\n" for name in tests.names)
        status, reason = self.run(nothing, tests)
        if status == "error":
            return reason
        return "a program that does nothing is right" if status == "correct" else ""

    def run(self, program: str, tests: ProgramTests, *, is_open: bool = False) -> tuple[Any, str]:
        """Return the status of a grade, and why it is not correct. A program that ends its sandbox runs once more in
        another. is_open: leave out the last lines that keep the program from being Python.
        """
        task = {"program": program, "is_open": is_open}
        for _ in range(2):
            try:
                return self._run_script(task, tests) if tests.inputs else self._run_functions(task, tests)
            except (OSError, ValueError):  # the server is gone or silent
                self.close()
        return "wrong", "the program ends its sandbox"

    def _run_functions(self, program: Mapping[str, Any], tests: ProgramTests) -> tuple[str, str]:
        programs, examiners = self._open_servers()
        limits = self._limits_of(tests)
        patient = limits._replace(cpu=limits.cpu + 10, wall=limits.wall + 10)
        with ExitStack() as sockets:
            ours, result, link, far_link = (sockets.enter_context(end) for _ in range(2) for end in socket.socketpair())
            _request(programs, "program", limits, [link])
            _request(examiners, "tests", patient, [far_link, result])
            for end in (result, link, far_link):
                end.close()
            fields = ("setup", "tests", "names")
            task = {**program, **{name: getattr(tests, name) for name in fields}}
            ours.settimeout(limits.wall + 20)
            with suppress(BrokenPipeError, ConnectionResetError):
                ours.sendall(json.dumps(task).encode() + b"\n")
            line = b"".join(iter(lambda: ours.recv(1 << 16), b""))
        ended = [_stop(server) for server in (programs, examiners)]
        if not line:
            if _ran_out(ended[1], patient):
                return "timeout", f"what the tests do with its values {_time_reason(patient)}"
            return "wrong", "the tests end on what the program gives"
        outcome = json.loads(line)
        if outcome["outcome"] == "ended" and _ran_out(ended[0], limits):
            return "timeout", f"the program {_time_reason(limits)}"
        return {"passed": "correct", "error": "error"}.get(outcome["outcome"], "wrong"), outcome["reason"]

    def _run_script(self, program: Mapping[str, Any], tests: ProgramTests) -> tuple[str, str]:
        limits = self._limits_of(tests)
        for number, (given, expected) in enumerate(tests.inputs, start=1):
            programs, _ = self._open_servers()
            where = f"input {number} of {len(tests.inputs)}"
            ours, theirs = socket.socketpair()
            with ours:
                with theirs:
                    _request(programs, "script", limits, [theirs])
                ours.settimeout(limits.wall + 20)
                with suppress(BrokenPipeError, ConnectionResetError):
                    ours.sendall(json.dumps({**program, "input": given}).encode() + b"\n")
                output = bytearray()
                while len(output) <= MAX_OUTPUT and (part := ours.recv(1 << 16)):
                    output += part
            end = _stop(programs)
            if len(output) > MAX_OUTPUT:
                return "wrong", f"{where}: prints more than {MAX_OUTPUT} bytes"
            if _ran_out(end, limits):
                return "timeout", f"{where}: {_time_reason(limits)}"
            if end["status"]:
                return "wrong", f"{where}: ends with status {end['status']}"
            if output.decode(errors="replace").split() != expected.split():
                return "wrong", f"{where}: prints another output"
        return "correct", ""

    def _limits_of(self, tests: ProgramTests) -> ProgramLimits:
        return self._limits._replace(cpu=max(self._limits.cpu, tests.cpu))

    def _open_servers(self) -> list[socket.socket]:
        """Return the servers of programs and of tests, started if they are not there."""
        while len(self._servers) < 2:
            server = self._sandboxes.enter_context(
                sandbox.open_server(COMMAND, Path(sys.prefix), self._mechanism, readable=[SERVER], limits=SERVER_LIMITS)
            )
            server.settimeout(START_SECONDS)
            if server.recv(len(READY)) != READY:
                raise BadInput("grader program: its sandbox cannot limit programs here; use Linux with seccomp")
            self._servers.append(server)
        return self._servers


class Code(NamedTuple):
    """The code of an answer. is_open: no fence says where it ends, so that prose or half a line may follow it."""

    text: str
    is_open: bool


def extract_code(text: str, names: tuple[str, ...]) -> Code:
    """Return the code of an answer, with its indentation: after the thought the last fenced block that defines one of
    `names`, of none the last text before a fence that does, of none the last block, and everything without a fence.
    """
    parts = split_fences(strip_special_tokens(skip_thought(text)).replace("\r\n", "\n"))
    parts = [flush if defines(flush := dedent(part), names) else part for part in parts]
    blocks, prose = [*range(1, len(parts), 2)], [*range(0, len(parts), 2)]
    candidates = [*reversed(blocks), *reversed(prose)]
    index = next((index for index in candidates if defines(parts[index], names)), candidates[0])
    return Code(parts[index].strip("\n"), index in prose or index == len(parts) - 1)


def split_fences(text: str) -> list[str]:
    """Return the parts between fences. A block ends at a fence of its own sign, at most three columns further in than
    the one that began it, as Markdown has it: one in a docstring ends none.
    """
    parts, start, opening = list[str](), 0, ""
    for match in FENCE.finditer(text):
        fence = match[0].expandtabs(4)
        mark = fence.lstrip()
        if opening and (mark[0] != opening.lstrip()[0] or _indent(fence) > _indent(opening) + 3):
            continue
        parts.append(text[start : match.start()])
        start, opening = match.end(), "" if opening else fence
    return [*parts, text[start:]]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def defines(code: str, names: tuple[str, ...]) -> bool:
    """Whether code defines one of the names, or a class Solution, without indentation."""
    alternatives = "|".join(map(re.escape, names))
    return bool(names) and bool(
        re.search(
            rf"^(?:(?:async\s+)?def\s+(?:{alternatives})\b|(?:{alternatives})\s*=|class\s+(?:Solution|{alternatives})\b)",
            code,
            re.MULTILINE,
        )
    )


def complete_program(code: str, tests: ProgramTests) -> str:
    """Return what runs: code that defines the function, after the prompt; or the prompt with the code as the body of
    its function, up to the first line without indentation, or all of it where its first statement has none.
    """
    if not tests.prompt:
        return code
    if defines(code, tests.names):
        first = "".join(f"{line}\n" for line in FUTURE.findall(code))  # Python wants them before all else
        return f"{first}{tests.prompt}{' pass' * tests.prompt.endswith(':')}\n\n{FUTURE.sub('', code)}"
    lines = code.strip("\n").split("\n")
    indentation = _body_indentation(tests.prompt)
    if not lines[0][:1].isspace():
        second = next((line for line in lines[1:] if line.strip()), "")
        # A block of the first line is one level further in than that line.
        deepest = len(indentation.expandtabs(4))
        is_block = lines[0].rstrip().endswith((":", "(", "[", "{")) and _indent(second.expandtabs(4)) <= deepest
        if second[:1].isspace() and not is_block:  # the first line alone has lost its indentation
            lines[0] = ("\t" if second[0] == "\t" else indentation) + lines[0]
        else:
            lines = [f"{indentation}{line}" for line in lines]
    if lines[0][0] == "\t" != indentation[0]:
        lines = [re.sub(r"^\t+", lambda tabs: indentation * len(tabs[0]), line) for line in lines]
    end = next((number for number, line in enumerate(lines) if line.strip() and not line[0].isspace()), len(lines))
    return "\n".join([tests.prompt, *lines[:end], ""])


def _body_indentation(prompt: str) -> str:
    """Return the least indentation after the last line without one; UNIT if there is none."""
    indentations = list[str]()
    for line in reversed(prompt.split("\n")):
        if line.strip() and not line[0].isspace():
            break
        indentations += [found[1]] if (found := INDENTED.match(line)) else []
    return min(indentations, key=lambda indentation: len(indentation.expandtabs(4)), default=UNIT)


def _request(server: socket.socket, role: str, limits: ProgramLimits, sockets: list[socket.socket]) -> None:
    message = json.dumps({"role": role, **limits._asdict()}).encode()
    server.settimeout(limits.wall + 20)
    socket.send_fds(server, [message], [end.fileno() for end in sockets])


def _stop(server: socket.socket) -> dict[str, Any]:
    """End what a server runs, if it still does, and return how it ended."""
    server.send(STOP)
    reply: dict[str, Any] = json.loads(server.recv(1 << 12))
    return reply


def _ran_out(end: dict[str, Any], limits: ProgramLimits) -> bool:
    """Whether a limit of time ended a process."""
    return bool(end["is_late"]) or (end["status"] < 0 and end["cpu"] >= CPU_SHARE * limits.cpu)


def _time_reason(limits: ProgramLimits) -> str:
    """Return one reason for both limits of time, since it depends on the machine which of them is met first."""
    return f"takes more than {limits.cpu} s of processor time, or {limits.wall} s in total"

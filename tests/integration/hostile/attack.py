# SPDX-License-Identifier: Apache-2.0
"""What the cases have in common: their registry, a client without manners, what is expected of the
daemon, and children that can be stopped and killed.

A case runs in a process of its own, as an ordinary user unless it says otherwise. It raises Broken
if the daemon did not do what hugepool.proto says, and counts what it did.
"""

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
# pylint: disable=wrong-import-position
from hugepool_wire import (T, Disconnected, Stream, code_name, encode, parse, pb,  # noqa: E402
                           type_name, unpack_ranges)

CASES = []  # in order of registration

ATTACKER_UID = 71000  # and the hundred behind it
PATIENCE_SECONDS = 20  # for what the daemon has to do sooner or later


class Broken(Exception):
    """The daemon did what it must not, or did not do what it must."""


def case(name, as_root=False, seconds=60, peak_megabytes=16):
    """Registers a case. peak_megabytes: by how much the daemon may grow meanwhile."""
    def register(function):
        CASES.append({"name": name, "run": function, "as_root": as_root, "seconds": seconds,
                      "peak_megabytes": peak_megabytes, "text": " ".join(function.__doc__.split())})
        return function
    return register


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def until(condition, what, seconds=PATIENCE_SECONDS):
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise Broken(f"after {seconds} s: {what}")
        time.sleep(0.005)
    return result


# Every request of the data socket with a payload that makes sense.
REQUESTS = {
    T.HELLO: pb.Hello(protocol=1, name=b"attack"),
    T.GOODBYE: pb.Empty(),
    T.RESUME: pb.Resume(token=b"0123456789abcdef", ranges=[1, 2], last=True),
    T.ALLOC: pb.Alloc(zone=b"small", pages=1, count=2, zero=True, align_pages=2),
    T.FREE: pb.Ranges(ranges=[0, 1, 8, 1]),
    T.FREE_PART: pb.FreePart(range=[0, 3], offset=1, pages=1),
    T.RELEASE_BLOCK: pb.Blocks(zone=1, blocks=[1, 1 << 40 | 1]),
    T.CANCEL: pb.Cancel(request_tag=1),
    T.SHARE: pb.Share(range=[0, 1], name=b"share", uids=[0, 1], read_only=True),
    T.ATTACH: pb.Attach(name=b"share", read_only=True),
    T.DETACH: pb.Ranges(ranges=[0, 1]),
    T.ACK: pb.Ranges(ranges=[0, 1]),
    T.STATS: pb.Empty(),
    T.LIST: pb.List(what=pb.LIST_WHAT_BLOCKS, zone=1, cursor=1),
}
ADMIN_REQUESTS = (T.CHECK, T.FLUSH)


class Session(Stream):
    """A connection that sends whatever it is told to. Descriptors that come are closed."""

    def __init__(self, path, hello=True, name=b"attack"):
        super().__init__(path, timeout=PATIENCE_SECONDS)
        self.tag = 0
        self.welcome = None
        if hello:
            reply = self.request(T.HELLO, pb.Hello(protocol=1, name=name))
            if reply.type != T.WELCOME:
                raise Broken(f"HELLO was answered by {describe(reply)}")
            self.welcome = parse(reply)

    def next_tag(self):
        self.tag = self.tag % 65535 + 1
        return self.tag

    def reply(self, tag=None):
        """The next frame that is a reply, with this tag if one is given."""
        while True:
            try:
                frame = self.receive()
            except socket.timeout as error:
                raise Broken(f"no reply within {PATIENCE_SECONDS} s") from error
            if frame.type == T.BLOCKS:
                for _ in parse(frame).blocks:
                    os.close(self.take_descriptor())
            elif frame.tag == 0 and frame.type in (T.BLOCK_RETIRED, T.PRESSURE):
                pass
            elif tag is not None and frame.tag != tag:
                raise Broken(f"{describe(frame)} with tag {frame.tag}, not {tag}")
            else:
                return frame

    def request(self, type_, payload=b""):
        """One request, exactly one reply."""
        tag = self.next_tag()
        self.send(encode(type_, tag, payload))
        return self.reply(tag)

    def must(self, type_, payload, reply_type):
        reply = self.request(type_, payload)
        if reply.type != reply_type:
            raise Broken(f"{type_name(type_)} was answered by {describe(reply)}, "
                         f"not {type_name(reply_type)}: {payload}")
        return parse(reply)

    def refused(self, type_, payload, *codes):
        """The request must be refused, by one of these codes if there are any."""
        error = self.must(type_, payload, T.ERROR)
        if codes and error.code not in codes:
            raise Broken(f"{type_name(type_)} was refused by {describe(error)}, not "
                         f"{' or '.join(map(code_name, codes))}: {payload}")
        return error

    def alloc(self, **fields):
        return unpack_ranges(self.must(T.ALLOC, pb.Alloc(**fields), T.GRANT).ranges)

    def works(self):
        self.must(T.STATS, pb.Empty(), T.STATS_REPLY)

    def ended(self, seconds=PATIENCE_SECONDS):
        """The daemon must end this session. What it said before is thrown away."""
        self.socket.settimeout(seconds)
        try:
            while self.fill():
                self.buffer.clear()
        except socket.timeout as error:
            raise Broken(f"the session is still there after {seconds} s") from error

    def is_ended(self):
        """The end of the stream can be read now."""
        while self.has_arrived(0):
            if not self.fill():
                return True
        return False

    def flood(self, data, seconds):
        """Sends until all of it is gone or nothing moves for a while. Returns how much went."""
        self.socket.setblocking(False)
        sent, end = 0, time.monotonic() + seconds
        view = memoryview(data)
        try:
            while sent < len(data) and time.monotonic() < end:
                if not select.select([], [self.socket], [], 0.1)[1]:
                    break
                try:
                    sent += self.socket.send(view[sent:sent + 65536])
                except BlockingIOError:
                    continue
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Disconnected(str(error)) from error
        finally:
            self.socket.settimeout(PATIENCE_SECONDS)
        return sent


def describe(thing):
    """A frame or an error in words."""
    if isinstance(thing, pb.Error):
        return f"{code_name(thing.code)} ({thing.message.decode(errors='replace')})"
    if thing.type == T.ERROR:
        return describe(parse(thing))
    return type_name(thing.type)


class Attack:
    """What a case is given."""

    def __init__(self, daemon, geometry, random, scale):
        self.path, self.admin, self.pid = daemon.socket, daemon.admin, daemon.pid
        self.geometry, self.random, self.scale = geometry, random, scale
        self.counts = Counter()
        self.children = []
        self.sessions = []

    def count(self, what, n=1):
        self.counts[what] += n

    def scaled(self, n):
        return max(1, int(n * self.scale))

    def session(self, **keys):
        session = Session(self.path, **keys)
        self.sessions.append(session)
        return session

    def drop(self, session):
        self.sessions.remove(session)
        session.close()

    def child(self, function, uid=None):
        """function(say) in a process of its own, as another user if the case runs as root.
        say(bytes) is for listen() of the child that is returned."""
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                os.close(reader)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                if uid is not None:
                    become(uid)
                function(lambda text: os.write(writer, text))
                status = 0
            except BaseException:
                os.write(writer, b"!" + traceback.format_exc().encode())
            finally:
                os._exit(status)
        os.close(writer)
        child = Child(pid, reader)
        self.children.append(child)
        return child

    def clean_up(self):
        for child in self.children:
            child.kill()
        for session in self.sessions:
            session.close()


class Child:
    def __init__(self, pid, reader):
        self.pid, self.reader, self.status = pid, reader, None

    def listen(self, seconds=PATIENCE_SECONDS):
        """What it said; empty if it ended."""
        if not select.select([self.reader], [], [], seconds)[0]:
            raise Broken(f"a child said nothing for {seconds} s")
        text = os.read(self.reader, 65536)
        if text.startswith(b"!"):
            raise Broken("in a child: " + text.decode())
        return text

    def signal(self, number):
        if self.status is None:
            os.kill(self.pid, number)

    def wait(self):
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self.reader)
        return self.status

    def kill(self):
        self.signal(signal.SIGKILL)
        return self.wait()


def run_in_process(description, attack, seconds, watch):
    """Runs a case in a child; watch() is called now and then. Returns (counts, error or None)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reader)
            os.setpgid(0, 0)
            if not description["as_root"]:
                become(ATTACKER_UID)
            error = ""
            try:
                description["run"](attack)
            except Broken as broken:
                where = traceback.extract_tb(broken.__traceback__)[1]
                error = f"{os.path.basename(where.filename)}:{where.lineno}: {broken}"
            except BaseException:
                error = traceback.format_exc()
            attack.clean_up()
            report = json.dumps((attack.counts, error)).encode()
            while report:
                report = report[os.write(writer, report):]
        finally:
            os._exit(0)
    os.close(writer)
    report, end = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if select.select([reader], [], [], 0.05)[0]:
                piece = os.read(reader, 65536)
                if not piece:
                    break
                report += piece
            watch()
        else:
            return {}, f"not done after {seconds} s"
    finally:
        os.close(reader)
        try:  # it and the children it may have left
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if not report:
        return {}, "the case's process died"
    counts, error = json.loads(report)
    return counts, error or None

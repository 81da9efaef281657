# SPDX-License-Identifier: Apache-2.0
"""Clients that connect, and then do not do what one expects of them."""

import array
import os
import resource
import select
import signal
import socket
import time

from attack import ATTACKER_UID, Broken, Session, case, describe, until
from hugepool_wire import C, T, Disconnected, Stream, encode, parse, pb

HELLO_SECONDS = 10  # HP_HELLO_TIMEOUT_MS
SESSIONS_OF_A_TENANT = 1024  # HP_SESSIONS_PER_TENANT_MAX, the default of `sessions`


def raise_descriptor_limit(n):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < n:
        raise RuntimeError(f"{n} descriptors are needed, {hard} allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@case("silent", as_root=True, peak_megabytes=64)
def silent(attack):
    """Two tenants open 2,000 connections and say nothing, or half a HELLO: all end in time."""
    raise_descriptor_limit(4096)
    half = encode(T.HELLO, 1, pb.Hello(protocol=1))[:5]

    def crowd(say):
        sessions = []
        for i in range(1000):
            sessions.append(Session(attack.path, hello=False))
            if i % 2:
                sessions[-1].send(half)
        say(b"connected")
        end = time.monotonic() + HELLO_SECONDS + 10
        while sessions and time.monotonic() < end:
            for session in [s for s in sessions if s.is_ended()]:
                session.close()
                sessions.remove(session)
            if sessions:
                sessions[0].has_arrived(0.1)
        if sessions:
            raise Broken(f"{len(sessions)} of 1000 are still there")
        say(b"ended")

    start = time.monotonic()
    crowds = [attack.child(crowd, ATTACKER_UID + i) for i in range(2)]
    for child in crowds:
        child.listen()
        attack.count("connections", 1000)
    # One who says it is served meanwhile.
    attack.session().works()
    for child in crowds:
        if child.listen(HELLO_SECONDS + 20) != b"ended":
            raise Broken("a crowd ended early")
    seconds = time.monotonic() - start
    attack.count("seconds", round(seconds))
    if seconds < HELLO_SECONDS - 1:
        raise Broken(f"they were ended after {seconds:.1f} s already")


@case("too-many-sessions", peak_megabytes=64)
def too_many_sessions(attack):
    """Past its number of sessions a tenant is told so, at once; below it, it is served again."""
    raise_descriptor_limit(4096)
    sessions = [attack.session() for _ in range(SESSIONS_OF_A_TENANT)]
    attack.count("served", len(sessions))
    for _ in range(attack.scaled(100)):
        with Stream(attack.path) as stream:
            try:
                frame = stream.receive()
                error = parse(frame)
                if frame.tag or (frame.type, error.code, error.limit) != (
                        T.ERROR, C.TOO_MANY, SESSIONS_OF_A_TENANT):
                    raise Broken(f"one too many: {describe(frame)}, limit {error.limit}")
                stream.receive()
                raise Broken("it goes on after CODE_TOO_MANY")
            except Disconnected:
                attack.count("turned away")
    for session in sessions[:10]:
        session.must(T.GOODBYE, pb.Empty(), T.DONE)
        session.ended()
        attack.drop(session)

    def served_again():
        try:
            attack.session().works()
            return True
        except (Broken, Disconnected):
            return False
    until(served_again, "no session is to be had though ten have ended")


@case("connect-and-go")
def connect_and_go(attack):
    """Thousands of connections that are closed at once, before, within and after HELLO."""
    hello = encode(T.HELLO, 1, pb.Hello(protocol=1))
    alloc = encode(T.ALLOC, 2, pb.Alloc(pages=1))
    for i in range(attack.scaled(3000)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.connect(attack.path)
            try:
                one.send((b"", hello[:9], hello, hello + alloc)[i % 4])
            except (BrokenPipeError, ConnectionResetError):
                attack.count("turned away")  # too many at one time
        attack.count("connections")


@case("connect-and-kill", as_root=True)
def connect_and_kill(attack):
    """Clients killed at a random moment, connected, asking, holding: all they held comes back."""
    def child(say):
        session = Session(attack.path)
        say(b"connected")
        while True:
            grant = session.must(T.ALLOC, pb.Alloc(zone=b"small", pages=1, count=2), T.GRANT)
            session.must(T.FREE, pb.Ranges(ranges=grant.ranges[:2]), T.DONE)
            session.must(T.FREE, pb.Ranges(ranges=grant.ranges[2:]), T.DONE)

    for i in range(attack.scaled(60)):
        one = attack.child(child, ATTACKER_UID + i % 3)
        if i % 3:
            one.listen()
        time.sleep(attack.random.random() * 0.004)
        one.kill()
        attack.count("killed")


@case("kill-with-unread-grants", as_root=True)
def kill_unread(attack):
    """Killed with grants and their descriptors in the socket: all of it comes back."""
    def child(say):
        session = Session(attack.path)
        for tag in range(1, 9):
            session.send(encode(T.ALLOC, tag, pb.Alloc(zone=b"small", pages=8, exclusive=True)))
        say(b"sent")
        signal.pause()

    for i in range(attack.scaled(30)):
        one = attack.child(child, ATTACKER_UID + i % 3)
        one.listen()
        one.kill()
        attack.count("killed")


def pipe_ends(n):
    """n descriptors of the writing end of a pipe, and its reading end."""
    reader, writer = os.pipe()
    writers = [writer] + [os.dup(writer) for _ in range(n - 1)]
    return reader, writers


def send_with(session, data, descriptors, more=()):
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    return session.socket.sendmsg([data], [rights, *more])


@case("descriptors-sent")
def descriptors_sent(attack):
    """Descriptors sent to the daemon are gone at once, with what they came."""
    credentials = (socket.SOL_SOCKET, socket.SCM_CREDENTIALS,
                   array.array("i", [os.getpid(), os.getuid(), os.getgid()]))
    stats = encode(T.STATS, 9)
    for i in range(attack.scaled(120)):
        session = attack.session()
        n = (1, 2, 100, 253)[i % 4]
        reader, writers = pipe_ends(n)
        send_with(session, stats, writers, [credentials] if i % 3 == 0 else [])
        for writer in writers:
            os.close(writer)
        attack.count("descriptors", n)
        if (reply := session.reply(9)).type != T.STATS_REPLY:
            raise Broken(f"a request with {n} descriptors: {describe(reply)}")
        os.set_blocking(reader, False)

        def gone():
            try:
                return os.read(reader, 1) == b""
            except BlockingIOError:
                return False
        until(gone, f"the daemon holds one of {n} descriptors that were sent to it")
        os.close(reader)
        attack.drop(session)
    # With every byte of a request one, and never the rest of it.
    session = attack.session()
    reader, writers = pipe_ends(1)
    for byte in stats[:-1]:
        send_with(session, bytes([byte]), writers)
        attack.count("descriptors")
    send_with(session, stats[-1:], writers, [credentials])
    session.reply(9)
    # Of the daemon's own making: a block's descriptor sent back, and a socket of the daemon's.
    session.send(encode(T.ALLOC, 10, pb.Alloc(pages=1)))
    while not session.descriptors:
        session.fill()
    send_with(session, stats, [session.descriptors[0], session.fileno()])
    attack.count("descriptors", 2)
    session.reply(10)
    session.reply(9)


@case("never-reads", peak_megabytes=24)
def never_reads(attack):
    """Thousands of requests, no reply read: reading stops, memory is bounded, all come later."""
    frames = b"".join(encode(T.LIST if i % 2 else T.STATS, i % 65535 + 1,
                             pb.List(what=pb.LIST_WHAT_BLOCKS) if i % 2 else pb.Empty())
                      for i in range(attack.scaled(20000)))
    sizes = (10, 8)
    sessions = [attack.session() for _ in range(16)]
    sent = [session.flood(frames, 2) for session in sessions]
    attack.count("sessions", len(sessions))
    if max(sent) == len(frames):
        raise Broken("the daemon takes requests though nobody reads its replies")
    for i, (session, n) in enumerate(zip(sessions, sent)):
        pairs, rest = divmod(n, sum(sizes) + 2)
        whole = 2 * pairs + (rest >= 8)
        attack.count("requests", whole)
        if i % 2:
            attack.drop(session)
            attack.count("closed unread")
            continue
        for tag in range(1, whole + 1):
            session.reply(tag)
            attack.count("read late")


@case("slow-readers", peak_megabytes=24)
def slow_readers(attack):
    """Readers of a few bytes at a time get every byte, in order, and hold nobody up."""
    sessions = [attack.session() for _ in range(8)]
    n = 40
    for session in sessions:
        session.send(b"".join(encode(T.LIST, tag, pb.List(what=pb.LIST_WHAT_BLOCKS))
                              for tag in range(1, n + 1)))
    done = {session: 0 for session in sessions}
    other = attack.session()
    while any(count < n for count in done.values()):
        for session in sessions:
            if done[session] == n:
                continue
            session.fill(97)
            attack.count("receives")
            while done[session] < n and len(session.buffer) >= 8 and (
                    len(session.buffer) >= 8 + int.from_bytes(session.buffer[:4], "little")):
                done[session] += 1
                if (reply := session.reply(done[session])).type != T.LIST_REPLY:
                    raise Broken(f"a slow reader got {describe(reply)}")
                attack.count("replies")
        other.works()


@case("stopped", as_root=True, peak_megabytes=24)
def stopped(attack):
    """Clients stopped while a descriptor is on its way to them cost nobody anything."""
    def child(say):
        session = Session(attack.path)
        for tag in range(1, 5):
            session.send(encode(T.ALLOC, tag, pb.Alloc(zone=b"small", pages=8)))
        session.send(encode(T.STATS, 5) * 200)
        say(b"sent")
        os.kill(os.getpid(), signal.SIGSTOP)
        granted = sum(session.reply(tag).type == T.GRANT for tag in range(1, 5))
        for _ in range(200):
            session.reply(5)
        say(b"granted %d" % granted)
        session.must(T.GOODBYE, pb.Empty(), T.DONE)

    children = [attack.child(child, ATTACKER_UID + i % 4) for i in range(attack.scaled(24))]
    for one in children:
        one.listen()
        attack.count("stopped")
    other = attack.session()
    for _ in range(100):
        other.works()
    granted = 0
    for i, one in enumerate(children):
        if i % 2:
            one.kill()
            attack.count("killed")
        else:
            # It may not have stopped yet: then one signal is not enough.
            def goes_on():
                one.signal(signal.SIGCONT)
                return select.select([one.reader], [], [], 0.02)[0]
            until(goes_on, "a stopped client does not get its replies")
            granted += int(one.listen().split()[1])
            one.wait()
            attack.count("went on")
    if not granted:
        raise Broken("no stopped client was granted anything")
    attack.count("granted", granted)


@case("descriptor-hoarders", as_root=True, peak_megabytes=24)
def hoarders(attack):
    """Descriptors that are never received are held back: few are under way, and others go on."""
    def child(say):
        sessions = [Session(attack.path) for _ in range(40)]
        for session in sessions:
            for tag in range(1, 9):
                session.send(encode(T.ALLOC, tag, pb.Alloc(zone=b"small", pages=1, exclusive=True)))
        say(b"sent")
        signal.pause()

    children = [attack.child(child, ATTACKER_UID + i) for i in range(3)]
    for one in children:
        one.listen()
        attack.count("sessions", 40)
    reader = attack.session()
    for _ in range(20):
        reader.works()
    for one in children:
        one.kill()


@case("a-child-keeps-the-socket", as_root=True)
def orphans(attack):
    """The process that connected is gone, its child has the socket: the session goes on."""
    def child(say):
        session = Session(attack.path)
        grant = session.must(T.ALLOC, pb.Alloc(pages=1), T.GRANT)
        if os.fork():
            os._exit(0)  # the child, too, has `say`
        until(lambda: os.getppid() != parent, "the parent is there")
        for _ in range(20):
            session.works()
        session.must(T.FREE, grant, T.DONE)
        say(b"served")

    parent = None

    def with_parent(say):
        nonlocal parent
        parent = os.getpid()
        child(say)

    for i in range(attack.scaled(20)):
        one = attack.child(with_parent, ATTACKER_UID + i % 3)
        if one.listen() != b"served":
            raise Broken("the child was not served")
        one.wait()
        attack.count("orphans")

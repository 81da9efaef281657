# SPDX-License-Identifier: Apache-2.0
"""Streams and frames that are not as one would send them, and messages that are none."""

from attack import REQUESTS, Broken, case, describe, until
from hugepool_wire import C, HEADER, PAYLOAD_MAX, T, encode, parse, pb, type_name

# By what a payload that does not make sense may be refused, if it is refused.
SENSELESS = (C.MALFORMED, C.INVALID, C.TOO_MANY, C.NO_ZONE, C.NO_MEMORY, C.OVER_LIMIT,
             C.OUT_OF_RANGE, C.NOT_LEASED, C.WRONG_HOLDER, C.WRONG_LENGTH, C.STALE, C.BUSY,
             C.NOT_SUPPORTED, C.NO_SHARE, C.HELLO_REQUIRED, C.PERMISSION, C.CANCELLED,
             C.TIMED_OUT, C.NO_SESSION)


def survives(attack, session, type_, payload):
    """One request, one reply of the right kind, and the session goes on. Returns the session."""
    reply = session.request(type_, payload)
    attack.count("requests")
    if reply.type == T.ERROR:
        error = parse(reply)
        attack.count(pb.Code.Name(error.code).removeprefix("CODE_").lower())
        if error.code not in SENSELESS or not error.message:
            raise Broken(f"{type_name(type_)} with {bytes(payload).hex()}: {describe(error)}")
    else:
        attack.count("granted")
        if type_ == T.GOODBYE:
            session.ended()
            attack.drop(session)
            return attack.session()
    return session


@case("byte-by-byte")
def byte_by_byte(attack):
    """Every byte in a send of its own, and frames cut at every place, are what they are in one."""
    session = attack.session(hello=False)

    def dribble(type_, payload, reply_type):
        tag = session.next_tag()
        for byte in encode(type_, tag, payload):
            session.send(bytes([byte]))
            attack.count("sends")
        reply = session.reply(tag)
        if reply.type != reply_type:
            raise Broken(f"{type_name(type_)} was answered by {describe(reply)}")
        return parse(reply)

    dribble(T.HELLO, pb.Hello(protocol=1), T.WELCOME)
    for _ in range(attack.scaled(30)):
        grant = dribble(T.ALLOC, pb.Alloc(pages=1, count=3), T.GRANT)
        dribble(T.FREE, grant, T.DONE)
        dribble(T.STATS, pb.Empty(), T.STATS_REPLY)
    requests = encode(T.ALLOC, 1, pb.Alloc(pages=1)) + encode(T.STATS, 2) + encode(200, 3)
    for cut in range(1, len(requests)):
        session.send(requests[:cut])
        session.send(requests[cut:])
        grant, stats, error = (session.reply(tag) for tag in (1, 2, 3))
        if (grant.type, stats.type, error.type) != (T.GRANT, T.STATS_REPLY, T.ERROR):
            raise Broken(f"cut at {cut}: {describe(grant)}, {describe(stats)}, {describe(error)}")
        session.must(T.FREE, parse(grant), T.DONE)
        attack.count("cuts")


@case("half-a-frame")
def half_a_frame(attack):
    """A beginning, then silence: nobody waits with it, and the rest may come later."""
    whole = encode(T.ALLOC, 7, pb.Alloc(zone=b"small", pages=1))
    waiting = []
    for i in range(attack.scaled(200)):
        session = attack.session()
        cut = i % (len(whole) - 1) + 1
        session.send(whole[:cut])
        waiting.append((session, cut))
    attack.count("waiting", len(waiting))
    other = attack.session()
    for _ in range(50):
        other.works()
    for i, (session, cut) in enumerate(waiting):
        if session.is_ended():
            raise Broken(f"the session with {cut} bytes of {len(whole)} was ended")
        if i % 2:
            attack.drop(session)
            attack.count("dropped")
        else:
            session.send(whole[cut:])
            if (reply := session.reply(7)).type != T.GRANT:
                raise Broken(f"after the rest of the frame: {describe(reply)}")
            attack.count("completed")
            session.must(T.GOODBYE, pb.Empty(), T.DONE)


@case("broken-framing")
def broken_framing(attack):
    """Lengths above the limit and flags end the session, before HELLO and after it."""
    lengths = [PAYLOAD_MAX + 1, 1 << 14, 1 << 24, 1 << 31, (1 << 32) - 1]
    bad = [encode(T.STATS, 1, length=length) for length in lengths]
    bad += [encode(T.STATS, 1, flags=flags) for flags in (*range(1, 256, 2), 2, 4, 8, 16, 32, 128)]
    bad += [encode(type_, 1, length=PAYLOAD_MAX + 1) for type_ in range(0, 256, 16)]
    for hello in (True, False):
        for header in bad:
            session = attack.session(hello=hello)
            session.send(header)
            session.ended()
            attack.drop(session)
            attack.count("ended")
    # What came before it is handled all the same.
    session = attack.session()
    session.send(encode(T.STATS, 3) + bad[0])
    if (reply := session.reply(3)).type != T.STATS_REPLY:
        raise Broken(f"the request before a broken frame: {describe(reply)}")
    session.ended()


@case("largest-frame")
def largest_frame(attack):
    """The longest payload that is allowed is read to its end, for every type."""
    session = attack.session()
    for type_ in range(256):
        if type_ == T.GOODBYE:
            continue
        reply = session.request(type_, bytes(PAYLOAD_MAX))
        if reply.type != T.ERROR:
            raise Broken(f"{type_name(type_)} of zeros: {describe(reply)}")
        attack.count("frames")
    session.works()


@case("unknown-types")
def unknown_types(attack):
    """Types that are no request here are refused with their tag, and nothing else happens."""
    session = attack.session()
    for type_ in range(256):
        if type_ in REQUESTS:
            continue
        for payload in (b"", b"\xff" * 9, bytes(100)):
            session.refused(type_, payload, C.UNKNOWN_TYPE)
            attack.count("refused")
    session.works()


@case("hello")
def hello(attack):
    """Nothing comes before HELLO, HELLO comes once, and its figures are checked."""
    session = attack.session(hello=False)
    for type_, payload in REQUESTS.items():
        if type_ != T.HELLO:
            session.refused(type_, payload, C.HELLO_REQUIRED, C.NOT_SUPPORTED)
            attack.count("too early")
    for protocol in (0, 2, (1 << 32) - 1):
        error = session.refused(T.HELLO, pb.Hello(protocol=protocol), C.VERSION)
        if error.limit != 1:
            raise Broken(f"CODE_VERSION names {error.limit}")
        attack.count("versions")
    for n in (65, 1000, 8000):
        session.refused(T.HELLO, pb.Hello(protocol=1, name=b"x" * n), C.INVALID, C.TOO_MANY)
        attack.count("long names")
    session.must(T.HELLO, pb.Hello(protocol=1, name=b'\0\n"\xff\x1b[2J' * 8), T.WELCOME)
    for _ in range(10):
        session.refused(T.HELLO, pb.Hello(protocol=1), C.HELLO_REQUIRED)
        attack.count("again")
    session.works()


@case("random-payloads")
def random_payloads(attack):
    """Random bytes as the payload of each request: one reply each, and the session goes on."""
    session = attack.session()
    for type_ in REQUESTS:
        for _ in range(attack.scaled(60)):
            n = attack.random.choice((0, 1, 2, 3, 8, 20, 100, PAYLOAD_MAX))
            session = survives(attack, session, type_, attack.random.randbytes(n))


@case("damaged-payloads")
def damaged_payloads(attack):
    """Payloads that make sense, cut at every byte, and with every byte changed."""
    session = attack.session()
    for type_, message in REQUESTS.items():
        payload = message.SerializeToString()
        for cut in range(len(payload)):
            session = survives(attack, session, type_, payload[:cut])
        for at in range(len(payload)):
            for change in (0x01, 0x80, 0xff):
                wrong = bytearray(payload)
                wrong[at] ^= change
                session = survives(attack, session, type_, wrong)


def varint(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def repeated(piece):
    return piece * (PAYLOAD_MAX // len(piece))


def field(number, wire_type, body=b""):
    return varint(number << 3 | wire_type) + body


def expensive_payloads():
    """Payloads that cost a parser much more than their length, or lead it astray."""
    yield "unknown varints", repeated(field(1000, 0, b"\0"))
    yield "unknown empty submessages", repeated(field(15, 2, b"\0"))
    yield "known fields as empty submessages", repeated(field(1, 2, b"\0"))
    yield "one-byte names", repeated(field(1, 2, b"\x01x"))
    yield "numbers one by one", repeated(field(4, 0, b"\x01"))
    yield "numbers packed", field(4, 2, varint(PAYLOAD_MAX - 4) + b"\x01" * (PAYLOAD_MAX - 4))
    words = PAYLOAD_MAX // 8 - 1
    yield "words packed", field(1, 2, varint(8 * words) + b"\x01" * 8 * words)
    yield "words one by one", repeated(field(1, 1, bytes(8)))
    yield "words packed in pieces", repeated(field(1, 2, b"\x08" + bytes(8)))
    yield "open groups", repeated(field(9, 3))
    yield "closed groups", repeated(field(9, 4))
    yield "nested lengths", b"".join(field(3, 2, varint(n)) for n in range(2700, 0, -1))
    yield "a length beyond the end", field(1, 2, varint(1 << 31)) + bytes(50)
    yield "a length of 2^64 - 1", field(1, 2, varint((1 << 64) - 1)) + bytes(50)
    yield "varints without end", b"\x80" * PAYLOAD_MAX
    yield "a tag of field 0", repeated(b"\0\0")
    yield "the largest field number", repeated(field((1 << 29) - 1, 0, b"\0"))
    yield "wire type 7", repeated(b"\x0f")
    yield "every field many times", repeated(b"".join(field(n, 0, b"\x01") for n in range(1, 16)))


@case("expensive-payloads", peak_megabytes=8)
def expensive_payloads_case(attack):
    """Full frames of unknown fields, empty submessages, open groups and the like cost no memory."""
    session = attack.session()
    for _, payload in expensive_payloads():
        payload = payload[:PAYLOAD_MAX]
        for type_ in REQUESTS:
            for _ in range(attack.scaled(3)):
                session = survives(attack, session, type_, payload)
        attack.count("kinds")
    # Together: what is unread in the daemon is bounded, too.
    frame = encode(T.ALLOC, 1, repeated(field(15, 2, b"\0")))
    for _ in range(8):
        crowd = attack.session()
        sent = crowd.flood(frame * 64, 1)
        for _ in range(sent // len(frame)):
            crowd.reply(1)
            attack.count("at once")


@case("empty-and-tiny")
def empty_and_tiny(attack):
    """Thousands of frames of eight bytes in one send, of all types that need no payload."""
    session = attack.session()
    for _ in range(attack.scaled(20)):
        n = 500
        session.send(b"".join(encode((T.STATS, T.ALLOC, T.FREE, 250)[i % 4], i + 1)
                              for i in range(n)))
        replies = {session.reply().tag for _ in range(n)}
        if replies != set(range(1, n + 1)):
            raise Broken(f"{n} requests, {len(replies)} different tags in the replies")
        attack.count("frames", n)


@case("half-closed")
def half_closed(attack):
    """A client that stops sending has what it asked for before; one that stops reading is ended."""
    for _ in range(attack.scaled(30)):
        session = attack.session()
        session.send(encode(T.STATS, 1) + encode(T.ALLOC, 2, pb.Alloc(pages=1)))
        session.socket.shutdown(1)
        session.reply(1)
        session.reply(2)
        session.ended()
        attack.drop(session)
        attack.count("stopped sending")
    for _ in range(attack.scaled(30)):
        session = attack.session()
        session.socket.shutdown(0)
        try:
            session.send(encode(T.STATS, 1) * 50)
        except Exception:  # gone already
            attack.count("gone at once")
        attack.count("stopped reading")
        attack.drop(session)
    for _ in range(attack.scaled(30)):
        session = attack.session()
        session.send(encode(T.LIST, 1, pb.List(what=pb.LIST_WHAT_BLOCKS)) * 20)
        attack.drop(session)
        attack.count("closed unread")


@case("no-lease-is-left-by-broken-sessions")
def broken_with_leases(attack):
    """A session that breaks its framing keeps its leases while its process lives, and no longer."""
    def child(say):
        for _ in range(5):
            session = attack.session()
            session.alloc(pages=1, count=2)
            session.send(HEADER.pack(0, T.STATS, 1, 1))
            session.ended()
        say(b"ended")

    watcher = attack.session()
    children = [attack.child(child) for _ in range(4)]
    for one in children:
        one.listen()
        one.wait()
        attack.count("sessions", 5)

    def leased():
        rows = parse(watcher.request(T.LIST, pb.List(what=pb.LIST_WHAT_LEASES))).leases
        return len(rows)
    until(lambda: leased() == 0, "leases of ended processes are left")

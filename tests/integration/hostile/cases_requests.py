# SPDX-License-Identifier: Apache-2.0
"""Requests that are well formed and ask for what must not be had."""

import mmap
import os
import signal
from collections import Counter

from attack import (ADMIN_REQUESTS, ATTACKER_UID, REQUESTS, Broken, Session, case, describe)
from hugepool_wire import (C, T, Stream, Words, encode, pack_block, pack_ranges, parse, pb,
                           unpack_block, unpack_ranges)

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
MEANINGLESS = (C.MALFORMED, C.INVALID)
NOT_THERE = (C.OUT_OF_RANGE, C.NOT_LEASED, C.WRONG_HOLDER, C.WRONG_LENGTH, C.STALE)
NO_ROOM = (C.NO_MEMORY, C.OVER_LIMIT)


def free_all(session, ranges):
    for i in range(0, len(ranges), 256):
        session.must(T.FREE, pb.Ranges(ranges=pack_ranges(ranges[i:i + 256])), T.DONE)


def refused_all(attack, session, frames):
    """Sends many requests, (type, payload); each must be refused by one of NOT_THERE."""
    for i in range(0, len(frames), 500):
        part = frames[i:i + 500]
        session.send(b"".join(encode(type_, tag, payload)
                              for tag, (type_, payload) in enumerate(part, 1)))
        for tag, (type_, payload) in enumerate(part, 1):
            reply = session.reply(tag)
            if reply.type != T.ERROR or parse(reply).code not in NOT_THERE:
                raise Broken(f"{payload} was answered by {describe(reply)}")
            attack.count(pb.Code.Name(parse(reply).code).removeprefix("CODE_").lower())


@case("guessed-ranges")
def guessed_ranges(attack):
    """Each page of each zone, in lengths and generations as good clients have, and random words."""
    session = attack.session()
    zones = list(session.welcome.zones)
    frames = []
    for zone in zones:
        for page in range(zone.pages + 3):
            for pages in (1, 2):
                for generation in (1, 2, 3):
                    words = Words(zone.id, page, pages, generation, 0)
                    frames.append((T.FREE, pb.Ranges(ranges=words.pack())))
            frames.append((T.FREE_PART, pb.FreePart(range=Words(zone.id, page, 2, 1, 0).pack(),
                                                    offset=1, pages=1)))
    for zone in range(256):
        for page in (0, 1, U32, U32 - 1, 1 << 31):
            for pages in (1, (1 << 20) - 1):
                for generation in (0, 1, (1 << 24) - 1):
                    if zone < len(zones) and page < zones[zone].pages:
                        continue
                    words = Words(zone, page, pages, generation, attack.random.getrandbits(1))
                    frames.append((T.FREE, pb.Ranges(ranges=words.pack())))
    for _ in range(attack.scaled(3000)):
        words = Words(attack.random.choice((0, 1, 2, 255)), attack.random.getrandbits(10),
                      attack.random.randint(1, 1 << attack.random.randint(0, 19)),
                      attack.random.getrandbits(attack.random.randint(1, 24)), 0)
        frames.append((T.FREE, pb.Ranges(ranges=words.pack())))
    refused_all(attack, session, frames)
    if not sum(attack.counts[name] for name in ("wrong_holder", "wrong_length", "stale")):
        raise Broken("not one guess met a lease of a good client")


@case("wrong-in-one-way")
def wrong_in_one_way(attack):
    """Own leases with another length, generation, zone or beginning; of a batch none is freed."""
    session = attack.session()
    ranges = session.alloc(zone=b"small", pages=2, count=10)
    good = ranges[7]
    for code, wrong in (
            (C.WRONG_LENGTH, good._replace(pages=1)), (C.WRONG_LENGTH, good._replace(pages=3)),
            (C.STALE, good._replace(generation=good.generation - 1 & 0xffffff)),
            (C.STALE, good._replace(generation=good.generation + 1 & 0xffffff)),
            (C.NOT_LEASED, good._replace(page=good.page + 1, pages=1)),
            (C.OUT_OF_RANGE, good._replace(zone=255)), (C.OUT_OF_RANGE, good._replace(page=U32)),
            (C.OUT_OF_RANGE, good._replace(page=1 << 31))):
        for at in (0, 3, 10):
            batch = ranges[:7] + ranges[8:]
            batch.insert(at, wrong) if at < len(batch) else batch.append(wrong)
            error = session.refused(T.FREE, pb.Ranges(ranges=pack_ranges(batch)), code)
            if error.index != batch.index(wrong):
                raise Broken(f"index {error.index}, not {batch.index(wrong)}")
            attack.count("batches")
        for offset, pages in ((0, 1), (0, 2)):
            session.refused(T.FREE_PART, pb.FreePart(range=wrong.pack(), offset=offset,
                                                     pages=pages), code, C.INVALID)
            attack.count("parts")
    elsewhere = good._replace(zone=1)
    session.refused(T.FREE, pb.Ranges(ranges=elsewhere.pack()), *NOT_THERE)
    # Twice in one request: the second is wrong, and the first is not freed.
    for batch in ([good, good], ranges + [ranges[0]], [good] * 256):
        error = session.refused(T.FREE, pb.Ranges(ranges=pack_ranges(batch)), C.NOT_LEASED,
                                C.INVALID)
        if error.index != (len(ranges) if len(batch) == 11 else 1):
            raise Broken(f"the same range twice: index {error.index}")
        attack.count("twice in one")
    other = attack.session()
    other.refused(T.FREE, pb.Ranges(ranges=good.pack()), C.WRONG_HOLDER)
    free_all(session, ranges)
    for one in ranges:
        session.refused(T.FREE, pb.Ranges(ranges=one.pack()), C.NOT_LEASED, C.STALE)
        attack.count("freed before")
    # The same place, leased anew: the old words are of an earlier lease.
    again = session.alloc(zone=b"small", pages=2, count=10)
    for new in again:
        for old in ranges:
            if old.page == new.page:
                session.refused(T.FREE, pb.Ranges(ranges=old.pack()), C.STALE)
                attack.count("stale")
    free_all(session, again)


@case("counts")
def counts(attack):
    """No ranges, half a range, 257 of them, and counts that no integer holds."""
    session = attack.session()
    one, = session.alloc(zone=b"small", pages=1, count=0)
    for count in (257, 1000, 1 << 16, 1 << 31, U32):
        for pages in (1, 1 << 19, (1 << 20) - 1):
            error = session.refused(T.ALLOC, pb.Alloc(pages=pages, count=count), C.TOO_MANY)
            if error.limit != 256:
                raise Broken(f"the limit of ranges is said to be {error.limit}")
            attack.count("too many")
    for n in (0, 1, 3, 511):
        session.refused(T.FREE, pb.Ranges(ranges=(one.pack() * 256)[:n]), C.MALFORMED)
        session.refused(T.FREE_PART, pb.FreePart(range=(one.pack() * 256)[:n], pages=1),
                        C.MALFORMED)
        attack.count("half")
    for n in (257, 500):
        session.refused(T.FREE, pb.Ranges(ranges=one.pack() * n), C.TOO_MANY)
        attack.count("too many")
    session.refused(T.FREE_PART, pb.FreePart(range=one.pack() * 2, pages=1), C.MALFORMED)
    free_all(session, [one])
    for pages in (1, 2, 256):
        many = session.request(T.ALLOC, pb.Alloc(zone=b"small", pages=pages, count=256))
        if many.type == T.GRANT:
            free_all(session, unpack_ranges(parse(many).ranges))
        elif parse(many).code not in NO_ROOM:
            raise Broken(f"256 ranges of {pages}: {describe(many)}")
        attack.count("256 at once")


@case("meaningless-bits")
def meaningless_bits(attack):
    """Each bit that has to be 0 is refused when it is 1; the one that is ignored is ignored."""
    session = attack.session()
    for bit in range(40, 64):
        one, = session.alloc(pages=1)
        a, b = one.pack()
        session.refused(T.FREE, pb.Ranges(ranges=[a | 1 << bit, b]), *MEANINGLESS)
        session.refused(T.FREE_PART, pb.FreePart(range=[a | 1 << bit, b], pages=1), *MEANINGLESS)
        if bit >= 45:
            session.refused(T.FREE, pb.Ranges(ranges=[a, b | 1 << bit]), *MEANINGLESS)
        session.refused(T.FREE, pb.Ranges(ranges=[a, b & ~0xfffff]), *MEANINGLESS, C.WRONG_LENGTH)
        session.must(T.FREE, pb.Ranges(ranges=[a, b ^ 1 << 44]), T.DONE)
        attack.count("bits")


@case("numbers-at-their-ends")
def numbers(attack):
    """Pages, alignments, sizes, names, offsets and cursors around every limit there is."""
    session = attack.session()

    def alloc(codes, **fields):
        session.refused(T.ALLOC, pb.Alloc(**fields), *codes)
        attack.count("refused")

    for pages in (0, 1 << 20, 1 << 31, U32):
        alloc((C.INVALID,), pages=pages)
        alloc((C.INVALID,), pages=pages, count=256)
    for pages in ((1 << 20) - 1, 1 << 19, 1 << 12):
        for count in (1, 2, 255, 256):
            alloc(NO_ROOM, pages=pages, count=count)
    for align in (3, 5, 6, 7, (1 << 31) - 1, U32):
        alloc((C.INVALID,), pages=1, align_pages=align)
    for align in (1 << k for k in range(12, 32)):
        reply = session.request(T.ALLOC, pb.Alloc(pages=1, align_pages=align))
        if reply.type == T.GRANT:
            words = unpack_ranges(parse(reply).ranges)
            if words[0].page % align:
                raise Broken(f"page {words[0].page} is not aligned to {align}")
            free_all(session, words)
        elif parse(reply).code not in (*NO_ROOM, C.INVALID):
            raise Broken(f"aligned to {align}: {describe(reply)}")
        attack.count("alignments")
    for size in (1, 4095, 4097, 1 << 62, U64):
        alloc((C.NO_ZONE,), pages=1, page_size=size)
        alloc((C.NO_ZONE,), pages=1, page_size=size, zone=b"small")
    for name in (b"none", b"smal", b"small\0", b"smalls", b"\xff" * 64, b"x" * 65, b"s" * 8000,
                 b"%s%n%s", b"../small"):
        alloc((C.NO_ZONE, C.INVALID, C.MALFORMED), pages=1, zone=name)
    for field, value in (("node_policy", 1), ("node_policy", 99), ("nodes", [0]),
                         ("nodes", [U32] * 1500), ("deadline_ms", U32),
                         ("deadline_ms", 86400001), ("priority", 256), ("priority", U32)):
        alloc((C.NOT_SUPPORTED, C.INVALID), pages=1, **{field: value})

    for pages in range(1, 5):
        one, = session.alloc(zone=b"small", pages=pages)
        for offset, part in ((0, 0), (0, pages + 1), (pages, 1), (pages - 1, 2), (U32, 1), (U32, 2),
                             (1, U32), (U32, U32), (1 << 31, 1 << 31), (0, 1 << 20), (pages, 0)):
            session.refused(T.FREE_PART, pb.FreePart(range=one.pack(), offset=offset, pages=part),
                            C.INVALID, *NOT_THERE)
            attack.count("parts")
        free_all(session, [one])

    for what in (*range(0, 9), 99, (1 << 31) - 1, -1):
        for zone in (0, 1, 2, 31, 32, 255, 256, 1 << 31, U32):
            for cursor in (0, 1, 63, 64, 1 << 10, 1 << 31, 1 << 32, 1 << 63, U64):
                reply = session.request(T.LIST, pb.List(what=what, zone=zone, cursor=cursor))
                if reply.type == T.ERROR and parse(reply).code not in (
                        C.INVALID, C.NO_ZONE, C.OUT_OF_RANGE):
                    raise Broken(f"list {what} of {zone} from {cursor}: {describe(reply)}")
                attack.count("lists")
    session.works()


def first_block(session, words):
    """Index and generation of the block of a range, from LIST."""
    zone = next(z for z in session.welcome.zones if z.id == words.zone)
    index = words.page * zone.page_size // zone.block_size
    blocks = parse(session.request(T.LIST, pb.List(what=pb.LIST_WHAT_BLOCKS, zone=zone.id,
                                                   cursor=index))).blocks
    return next((b.index, b.generation) for b in blocks if b.index == index)


@case("release-block")
def release_block(attack):
    """Blocks with leases, unknown ones, others' ones and those of other lives are not let go of."""
    session = attack.session()
    zone = session.welcome.zones[0]

    def release(*blocks, zone_id=0):
        return T.RELEASE_BLOCK, pb.Blocks(zone=zone_id, blocks=[pack_block(*b) for b in blocks])

    one, = session.alloc(zone=b"small", pages=1)
    index, generation = first_block(session, one)
    session.refused(*release((index, generation)), C.BUSY)
    session.refused(*release((index, generation), (index, generation)), C.BUSY)
    for wrong in (0, generation + 1, (1 << 40) - 1):
        session.refused(*release((index, wrong)), C.STALE, C.BUSY)
        attack.count("generations")
    for beyond in (zone.blocks, 1 << 10, (1 << 24) - 1):
        session.refused(*release((beyond, 1)), C.OUT_OF_RANGE)
        attack.count("beyond")
    for zone_id in (2, 31, 32, 255, 256, 1 << 31, U32):
        session.refused(*release((index, generation), zone_id=zone_id), C.OUT_OF_RANGE, C.NO_ZONE)
        attack.count("zones")
    for other in range(zone.blocks):
        if other != index:
            for wrong in (1, 2, 3):
                session.refused(*release((other, wrong)), C.STALE, C.BUSY)
                attack.count("others")
    # All of it or nothing: the good one in front of a bad one is still known, as the next grant
    # there shows by coming without a descriptor.
    free_all(session, [one])
    session.refused(*release((index, generation), (zone.blocks, 1)), C.OUT_OF_RANGE)
    for n in (254, 1000):
        session.refused(*release(*[(index, generation + 1)] * n), C.TOO_MANY, C.STALE, C.MALFORMED)
        attack.count("many")
    session.must(*release((index, generation)), T.DONE)
    session.refused(*release((index, generation)), C.STALE, C.BUSY)
    attack.count("released")
    session.works()


@case("release-and-alloc")
def release_and_alloc(attack):
    """RELEASE_BLOCK against ALLOC, in both orders: a grant never lacks its descriptor."""
    session = attack.session()
    known = {}  # index: generation

    def take(frame):
        for word in parse(frame).blocks:
            index, generation = unpack_block(word)
            known[index] = generation
            os.close(session.take_descriptor())
            attack.count("descriptors")

    def reply(tag):
        while (frame := session.receive()).tag != tag:
            if frame.type == T.BLOCKS:
                take(frame)
        return frame

    zone = session.welcome.zones[0]
    pages_of_block = zone.block_size // zone.page_size
    alloc = encode(T.ALLOC, 1, pb.Alloc(zone=b"small", pages=1))
    held = []
    for _ in range(attack.scaled(300)):
        blocks = [pack_block(i, g) for i, g in known.items()]
        release = encode(T.RELEASE_BLOCK, 2, pb.Blocks(zone=0, blocks=blocks))
        first = attack.random.random() < 0.5
        if first:  # known is what it was when the daemon read it
            session.send(release + alloc)
            if reply(2).type == T.DONE:
                known.clear()
                attack.count("released first")
            grant = reply(1)
        else:
            session.send(alloc + release)
            grant = reply(1)
            released = reply(2).type == T.DONE
            if released and grant.type == T.GRANT:
                named = {unpack_block(block)[0] for block in blocks}
                if unpack_ranges(parse(grant).ranges)[0].page // pages_of_block in named:
                    raise Broken("a block was let go of in which pages had just been granted")
                for index in named:
                    known.pop(index)
            attack.count("released behind" if released else "refused behind")
        if grant.type == T.GRANT:
            words, = unpack_ranges(parse(grant).ranges)
            if words.page // pages_of_block not in known:
                raise Broken(f"a grant in block {words.page // pages_of_block} without descriptor")
            held.append(words)
        while held and (attack.random.random() < 0.6 or len(held) > 20):
            session.send(encode(T.FREE, 3, pb.Ranges(ranges=held.pop().pack())))
            if (frame := reply(3)).type != T.DONE:
                raise Broken(f"FREE: {describe(frame)}")


@case("admin-on-the-data-socket", as_root=True)
def admin_on_data(attack):
    """Nobody is admin on the data socket, not even root; and only root reaches the other one."""
    session = attack.session()  # of uid 0
    for type_ in ADMIN_REQUESTS:
        session.refused(type_, pb.Empty(), C.UNKNOWN_TYPE)
        attack.count("refused to root")

    def child(say):
        user = Session(attack.path)
        for type_ in ADMIN_REQUESTS:
            user.refused(type_, pb.Empty(), C.UNKNOWN_TYPE)
        try:
            Stream(attack.admin)
        except PermissionError:
            say(b"no admission")
    one = attack.child(child, ATTACKER_UID)
    if one.listen() != b"no admission":
        raise Broken("a user connected to the admin socket")
    one.wait()
    admin = Session(attack.admin)
    for type_, payload in REQUESTS.items():
        if type_ not in (T.HELLO, T.GOODBYE, T.STATS, T.LIST):
            admin.refused(type_, payload, C.UNKNOWN_TYPE)
            attack.count("refused to admin")
    admin.works()
    admin.close()


@case("spying", as_root=True)
def spying(attack):
    """Names and processes of other tenants, and their leases, are not shown on the data socket."""
    def child(say):
        session = Session(attack.path)
        session.alloc(zone=b"small", pages=1)
        mine = session.welcome.session
        for what in range(1, 8):
            cursor = 0
            while True:
                part = parse(session.request(T.LIST, pb.List(what=what, cursor=cursor)))
                for row in part.sessions:
                    if row.uid != ATTACKER_UID:
                        raise Broken(f"session of another tenant: {row}")
                for row in part.leases:
                    if row.session != mine:
                        raise Broken(f"lease of another tenant: {row}")
                for row in part.tenants:
                    if row.uid != ATTACKER_UID and row.name:
                        raise Broken(f"name of another tenant: {row}")
                cursor = part.next
                if not cursor:
                    break
        say(b"done")
    one = attack.child(child, ATTACKER_UID)
    one.listen()
    one.wait()
    attack.count("lists", 7)


@case("hogs", as_root=True)
def hogs(attack):
    """Tenants that take all they can get: refused at their limit, by figures that are true."""
    def child(say):
        session = Session(attack.path)
        limit = session.welcome.zones[0].limit_blocks
        ranges = []
        while True:
            reply = session.request(T.ALLOC, pb.Alloc(zone=b"small", pages=1, count=5))
            if reply.type == T.ERROR:
                break
            ranges += unpack_ranges(parse(reply).ranges)
        error = parse(reply)
        pages = session.welcome.zones[0].block_size // session.welcome.zones[0].page_size
        if error.code not in NO_ROOM or len(ranges) > limit * pages:
            raise Broken(f"{len(ranges)} pages granted, limit {limit} blocks: {describe(error)}")
        if (error.asked_pages, error.limit_pages, error.zone) != (5, limit * pages, b"small"):
            raise Broken(f"figures: {error}")
        if len(set(r.page for r in ranges)) != len(ranges):
            raise Broken("a page was granted twice")
        for n in range(error.leasable_pages):  # what it says can be had can be had
            ranges += session.alloc(zone=b"small", pages=1)
        session.refused(T.ALLOC, pb.Alloc(zone=b"small", pages=1), *NO_ROOM)
        say(b"%d" % len(ranges))
        os.read(hold, 1)

    hold, release = os.pipe()
    children = []
    for i in range(6):  # one after the other: what is said to be leasable stays so
        children.append(attack.child(child, ATTACKER_UID + i))
        attack.count("tenants")
        attack.count("pages", int(children[-1].listen()))
    for one in children:
        one.kill()
    os.close(release)
    os.close(hold)


@case("waiting-in-crowds", as_root=True)
def waiting(attack):
    """Sessions full of requests that wait, cancelled, left to their deadlines, or killed."""
    def child(say):
        hog = Session(attack.path)
        zone = hog.welcome.zones[0]
        for _ in range(zone.limit_blocks * zone.block_size // zone.page_size):
            if hog.request(T.ALLOC, pb.Alloc(zone=b"small", pages=1)).type != T.GRANT:
                break
        crowd = [Session(attack.path) for _ in range(10)]
        for session in crowd:
            session.send(b"".join(encode(T.ALLOC, tag, pb.Alloc(
                zone=b"small", pages=1 + tag % 3, deadline_ms=tag % 2 and 86400000 or 100,
                priority=tag % 256)) for tag in range(1, 101)))
            late = Counter()
            for tag in range(2, 101, 2):
                session.send(encode(T.CANCEL, 1000 + tag, pb.Cancel(request_tag=tag)))
            for _ in range(36 + 50 + 32):  # too many; the CANCELs; what they or time took back
                reply = session.reply()
                late[parse(reply).code if reply.type == T.ERROR else -reply.type] += 1
            if late[C.TOO_MANY] != 36:
                raise Broken(f"of 100 requests 64 may wait: {late}")
        say(b"640")
        if attack.random.random() < 0.5:
            hog.must(T.GOODBYE, pb.Empty(), T.DONE)  # the crowd is granted something
        else:
            signal.pause()

    for i in range(attack.scaled(6)):
        one = attack.child(child, ATTACKER_UID + i % 3)
        attack.count("waits", int(one.listen()))
        if i % 2:
            one.kill()
        else:
            one.signal(signal.SIGTERM)
            one.wait()
        attack.count("crowds")


@case("vandals", as_root=True)
def vandals(attack):
    """Holders who cut, grow and punch the files of their blocks harm nobody else."""
    def child(say):
        session = Session(attack.path)
        zone = session.welcome.zones[0]
        done = 0
        for tag in range(1, 4):
            session.send(encode(T.ALLOC, tag, pb.Alloc(zone=b"small", pages=2, exclusive=True)))
            while (frame := session.receive()).tag != tag:
                if frame.type != T.BLOCKS:
                    continue
                descriptor = session.take_descriptor()
                memory = mmap.mmap(descriptor, zone.block_size)
                memory[:4] = b"mine"
                for crime in (lambda: os.ftruncate(descriptor, 0),
                              lambda: os.ftruncate(descriptor, 64 * zone.block_size),
                              lambda: os.posix_fallocate(descriptor, 0, 2 * zone.block_size),
                              lambda: os.ftruncate(descriptor, zone.page_size),
                              lambda: os.fchmod(descriptor, 0o777),
                              lambda: os.posix_fallocate(descriptor, 0, zone.block_size)):
                    try:
                        crime()
                        done += 1
                    except OSError:
                        pass
                memory.close()
                os.close(descriptor)
            if frame.type == T.GRANT and tag % 2:
                session.must(T.FREE, parse(frame), T.DONE)
        say(b"%d" % done)
        if attack.random.random() < 0.5:
            session.must(T.GOODBYE, pb.Empty(), T.DONE)

    for i in range(attack.scaled(12)):
        one = attack.child(child, ATTACKER_UID + i % 4)
        attack.count("crimes", int(one.listen()))
        one.wait()
        attack.count("vandals")

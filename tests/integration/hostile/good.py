# SPDX-License-Identifier: Apache-2.0
"""The good clients: tenants with a guarantee, who take, mark, verify and give back all the while.

Whatever goes wrong for one of them ends it with a message. They also time each ALLOC and FREE.
"""

import array
import mmap
import os
import random
import select
import struct
import time
import traceback
from collections import Counter

from attack import become
from hugepool_client import Client, DaemonError
from hugepool_wire import pb

GOOD_UID = 70000
GUARANTEE_BLOCKS = 4
HELD_MAX = 8  # ranges of at most two pages, in 32 pages: never out of room
PACE_SECONDS = 0.004  # between two steps, so that an attack has the processors
SAMPLES = 1 << 17
MARK = struct.Struct("<IIQ")  # tenant, page of the zone, number


class Good:
    """One good client, seen from the suite."""

    def __init__(self, number, path):
        self.number, self.uid = number, GOOD_UID + number
        self.shared = mmap.mmap(-1, 8 + 4 * SAMPLES)  # count, microseconds ...
        self.stop_reader, self.stop_writer = os.pipe()
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                become(self.uid)
                Worker(self, path).run()
                status = 0
            except BaseException:
                os.write(writer, traceback.format_exc().encode())
            finally:
                os._exit(status)
        os.close(writer)

    def count(self):
        return struct.unpack_from("<Q", self.shared)[0]

    def latencies(self, since, until):
        """Microseconds of the operations with these numbers."""
        since = max(since, until - SAMPLES)
        values = array.array("f")
        values.frombytes(self.shared[8:8 + 4 * SAMPLES])
        return [values[i % SAMPLES] for i in range(since, until)]

    def complaint(self):
        """Why it ended, or None while it goes on."""
        if not select.select([self.reader], [], [], 0)[0]:
            return None
        return f"good client {self.number} ended: {os.read(self.reader, 65536).decode()}"

    def stop(self, seconds):
        """It verifies and frees everything and says goodbye. None, or what went wrong."""
        os.write(self.stop_writer, b".")  # closing it would not do: later clients inherited it
        if not select.select([self.reader], [], [], seconds)[0]:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
            return f"good client {self.number} does not stop"
        text = os.read(self.reader, 65536).decode()
        _, status = os.waitpid(self.pid, 0)
        return f"good client {self.number}: {text}" if status else None


class Worker:
    """One good client, from inside."""

    def __init__(self, good, path):
        self.good, self.path = good, path
        self.random = random.Random(good.number)
        self.client = self.page = None
        self.held = []  # (range, number)
        self.marks = 0
        self.operations = 0

    def connect(self):
        return Client(self.path, b"good")

    def run(self):
        self.client = self.connect()
        self.page = self.client.zones[0].page_size
        while not select.select([self.good.stop_reader], [], [], PACE_SECONDS)[0]:
            self.step()
        while self.held:
            self.give_back(len(self.held))
        self.client.goodbye()

    def timed(self, call, *arguments, **keys):
        start = time.perf_counter()
        result = call(*arguments, **keys)
        struct.pack_into("<f", self.good.shared, 8 + 4 * (self.operations % SAMPLES),
                         1e6 * (time.perf_counter() - start))
        self.operations += 1
        struct.pack_into("<Q", self.good.shared, 0, self.operations)
        return result

    def take_range(self, **fields):
        """A refusal has to tell where the blocks are."""
        try:
            return self.timed(self.client.alloc, **fields)
        except DaemonError as error:
            blocks = Counter()
            for block in self.client.list(pb.LIST_WHAT_BLOCKS).blocks:
                blocks[block.owner, pb.BlockState.Name(block.state), block.free_pages] += 1
            raise RuntimeError(
                f"{error}\nheld: {[held.words for held, _ in self.held]}\nretired, unanswered: "
                f"{self.client.retired}\nblocks by owner, state, free pages: {dict(blocks)}\n"
                f"zone: {self.client.list(pb.LIST_WHAT_ZONES).zones[0]}") from error

    def step(self):
        choice = self.random.random()
        if choice < 0.5 and len(self.held) < HELD_MAX:
            self.take()
        elif choice < 0.9 and self.held:
            self.give_back(self.random.randint(1, min(3, len(self.held))))
        elif choice < 0.95 and self.held:
            self.verify(*self.random.choice(self.held))
        elif choice < 0.96:
            old, self.client, self.held = self.client, self.connect(), []
            old.goodbye()  # never without a session: then nobody takes back what is idle
        else:
            self.client.stats()

    def take(self):
        for held in self.take_range(zone=b"small", pages=self.random.randint(1, 2),
                                    zero=self.random.random() < 0.5):
            if held.words.zeroed and not held.is_zero():
                raise RuntimeError(f"{held.words} is said to be zeroed and is not")
            for at in self.places(held):
                tenant, _, _ = MARK.unpack(held.read(at, MARK.size))
                if tenant not in (0, self.good.uid):
                    raise RuntimeError(f"{held.words}: data of tenant {tenant} at {at}")
            self.marks += 1
            self.mark(held, self.marks)
            self.held.append((held, self.marks))

    def places(self, held):
        """Where marks are in a range: beginning, somewhere, and end of each page."""
        for page in range(held.words.pages):
            for at in (0, self.page // 2 - 8, self.page - MARK.size):
                yield page * self.page + at

    def mark(self, held, number):
        for at in self.places(held):
            held.write(at, MARK.pack(self.good.uid, held.words.page + at // self.page, number))

    def verify(self, held, number):
        for at in self.places(held):
            found = MARK.unpack(held.read(at, MARK.size))
            if found != (self.good.uid, held.words.page + at // self.page, number):
                raise RuntimeError(f"{held.words}: {found} at {at}, mark {number} is gone")

    def give_back(self, n):
        self.random.shuffle(self.held)
        going, self.held = self.held[:n], self.held[n:]
        for held, number in going:
            self.verify(held, number)
        first, number = going[0]
        if first.words.pages == 2 and self.random.random() < 0.3:
            rest, = self.timed(self.client.free_part, first, 1, 1)
            self.verify(rest, number)
            going[0] = rest, number
        self.timed(self.client.free, [held for held, _ in going],
                   keep_blocks=self.random.random() < 0.5)

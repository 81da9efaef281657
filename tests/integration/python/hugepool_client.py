# SPDX-License-Identifier: Apache-2.0
"""A small client of hugepoold, written from hugepool.proto and docs/protocol.md alone.

One session, one request at a time. Each block is mapped as a whole when its descriptor arrives, and
is let go of when nothing is held in it any more.
"""

import mmap
import os

from hugepool_wire import (DESCRIPTORS_MAX, Stream, T, code_name, encode, pack_block, pack_ranges,
                           parse, pb, type_name, unpack_block, unpack_ranges)

ZEROS = bytes(2 << 20)


class DaemonError(Exception):
    """An ERROR reply; .error is the message with its figures."""

    def __init__(self, error):
        super().__init__(f"{code_name(error.code)}: {error.message.decode()}")
        self.error = error
        self.code = error.code


class Block:
    def __init__(self, generation, descriptor, size):
        self.generation = generation
        self.held_pages = 0
        try:
            self.memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED)
        finally:
            os.close(descriptor)

    def close(self):
        self.memory.close()


class Range:
    """A granted range. Its memory is that of one block after the other."""

    def __init__(self, client, words):
        self.client, self.words = client, words
        self.zone = client.zones[words.zone]
        self.bytes = words.pages * self.zone.page_size

    def blocks(self):
        """(key of the block, offset in it, bytes) for each piece of the range, in order."""
        block_size = self.zone.block_size
        position = self.words.page * self.zone.page_size
        end = position + self.bytes
        while position < end:
            offset = position % block_size
            n = min(end - position, block_size - offset)
            yield (self.zone.id, position // block_size), offset, n
            position += n

    def _pieces(self, offset, size):
        if offset + size > self.bytes:
            raise IndexError(f"{offset} + {size} is beyond the range of {self.bytes} bytes")
        for key, start, n in self.blocks():
            skip = min(offset, n)
            offset -= skip
            n = min(n - skip, size)
            if n:
                yield self.client.blocks[key].memory, start + skip, n
                size -= n

    def read(self, offset=0, size=None):
        size = self.bytes - offset if size is None else size
        return b"".join(memory[at:at + n] for memory, at, n in self._pieces(offset, size))

    def write(self, offset, data):
        done = 0
        for memory, at, n in self._pieces(offset, len(data)):
            memory[at:at + n] = data[done:done + n]
            done += n

    def is_zero(self):
        return all(self.read(at, min(len(ZEROS), self.bytes - at)) ==
                   ZEROS[:min(len(ZEROS), self.bytes - at)]
                   for at in range(0, self.bytes, len(ZEROS)))


class Client:
    def __init__(self, path, name=b"python", timeout=20):
        self.stream = Stream(path, timeout)
        self.tag = 0
        self.blocks = {}  # (zone, index): Block
        self.retired = set()  # (key, generation) of blocks that the daemon wants back
        self.received_descriptors = 0
        try:
            self.welcome = self.call(T.HELLO, pb.Hello(protocol=1, name=name))
        except BaseException:
            self.close()
            raise
        self.zones = {zone.id: zone for zone in self.welcome.zones}

    # --- requests and replies ---------------------------------------------------------------------

    def send(self, type_, message):
        self.tag = self.tag % 65535 + 1
        self.stream.send(encode(type_, self.tag, message))
        return self.tag

    def wait(self, tag):
        """The reply to a request. What the daemon says unasked before it is taken care of."""
        while True:
            frame = self.stream.receive()
            if frame.tag == 0:
                self._unasked(frame)
                continue
            if frame.tag != tag:
                raise RuntimeError(f"{type_name(frame.type)} with tag {frame.tag}, not {tag}")
            if frame.type == T.ERROR:
                raise DaemonError(parse(frame))
            return parse(frame)

    def _unasked(self, frame):
        if frame.type == T.BLOCKS:
            self._map(parse(frame))
        elif frame.type == T.BLOCK_RETIRED:
            message = parse(frame)
            for word in message.blocks:
                index, generation = unpack_block(word)
                self.retired.add(((message.zone, index), generation))

    def call(self, type_, message):
        return self.wait(self.send(type_, message))

    def _map(self, message):
        for word in message.blocks:
            index, generation = unpack_block(word)
            key = message.zone, index
            if key in self.blocks:  # an earlier life, in which nothing is held
                self.blocks.pop(key).close()
            self.blocks[key] = Block(generation, self.stream.take_descriptor(),
                                     self.zones[message.zone].block_size)
            self.received_descriptors += 1

    # --- ranges -----------------------------------------------------------------------------------

    def _hold(self, words):
        held = Range(self, words)
        for key, _, n in held.blocks():
            self.blocks[key].held_pages += n // held.zone.page_size
        return held

    def _drop(self, ranges):
        for dropped in ranges:
            for key, _, n in dropped.blocks():
                self.blocks[key].held_pages -= n // dropped.zone.page_size

    def alloc(self, **fields):
        grant = self.call(T.ALLOC, pb.Alloc(**fields))
        return [self._hold(words) for words in unpack_ranges(grant.ranges)]

    def free(self, ranges, keep_blocks=False):
        self.call(T.FREE, pb.Ranges(ranges=pack_ranges(r.words for r in ranges)))
        self._drop(ranges)
        self.release_blocks(retired_only=keep_blocks)

    def free_part(self, whole, offset_pages, pages):
        """What is left: none, one or two ranges, which take the place of the whole one."""
        rest = self.call(T.FREE_PART, pb.FreePart(range=whole.words.pack(), offset=offset_pages,
                                                  pages=pages))
        kept = [self._hold(words) for words in unpack_ranges(rest.ranges)]
        self._drop([whole])
        return kept

    def release_blocks(self, retired_only=False):
        """Lets go of blocks in which nothing is held: of all, or of those the daemon wants back."""
        for zone in self.zones:
            keys = [key for key, block in self.blocks.items()
                    if key[0] == zone and not block.held_pages
                    and (not retired_only or (key, block.generation) in self.retired)]
            for i in range(0, len(keys), DESCRIPTORS_MAX):
                words = []
                for key in keys[i:i + DESCRIPTORS_MAX]:
                    block = self.blocks.pop(key)
                    block.close()
                    words.append(pack_block(key[1], block.generation))
                self.call(T.RELEASE_BLOCK, pb.Blocks(zone=zone, blocks=words))
        self.retired.clear()

    def dispatch(self, timeout):
        """Waits for one frame that the daemon sends unasked; True if one came."""
        if not self.stream.buffer and not self.stream.has_arrived(timeout):
            return False
        self._unasked(self.stream.receive())
        self.release_blocks(retired_only=True)
        return True

    # --- looking ----------------------------------------------------------------------------------

    def stats(self):
        return self.call(T.STATS, pb.Empty())

    def list(self, what, zone=0):
        """Every piece of a list, merged."""
        whole, cursor = pb.ListReply(), 0
        while True:
            part = self.call(T.LIST, pb.List(what=what, zone=zone, cursor=cursor))
            cursor = part.next
            whole.MergeFrom(part)
            if not cursor:
                return whole

    def check(self):
        return self.call(T.CHECK, pb.Empty())

    # --- the end ----------------------------------------------------------------------------------

    def goodbye(self):
        """Everything held is freed. Said once; later it does nothing."""
        if self.stream.fileno() >= 0:
            self.call(T.GOODBYE, pb.Empty())
            self.close()

    def close(self):
        """Without a word: the daemon keeps what is held for as long as this process lives."""
        self.stream.close()
        while self.blocks:
            self.blocks.popitem()[1].close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

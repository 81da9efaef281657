# SPDX-License-Identifier: Apache-2.0
"""What docs/protocol.md says about bytes: frames, words, and descriptors beside a stream.

The messages come from hugepool.proto itself: protoc makes them each time, so that nothing here can
be older than the protocol. There is no policy in this file; hugepool_client.py has that.
"""

import array
import importlib.util
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections import namedtuple

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))


def _messages():
    with tempfile.TemporaryDirectory(prefix="hugepool-proto-") as directory:
        subprocess.run(["protoc", f"--python_out={directory}", f"-I{ROOT}/proto", "hugepool.proto"],
                       check=True)
        sys.path.insert(0, directory)
        sys.dont_write_bytecode = True
        try:
            return importlib.import_module("hugepool_pb2")
        finally:
            sys.path.remove(directory)


def missing():
    """Why the messages cannot be made here, or None."""
    if not shutil.which("protoc"):
        return "no protoc (package protobuf-compiler)"
    if not importlib.util.find_spec("google.protobuf"):
        return "no google.protobuf (package python3-protobuf)"
    return None


if missing():
    print("skipped:", missing())
    sys.exit(77)
pb = _messages()

# --- frames ---------------------------------------------------------------------------------------

HEADER = struct.Struct("<IBBH")
PAYLOAD_MAX = 8192
DESCRIPTORS_MAX = 253  # of one message: the kernel's limit

Frame = namedtuple("Frame", "type flags tag payload")

# MessageType without its prefix: T.HELLO
T = type("T", (), {name.removeprefix("MESSAGE_TYPE_"): number
                   for name, number in pb.MessageType.items()})
C = type("C", (), {name.removeprefix("CODE_"): number for name, number in pb.Code.items()})

PAYLOADS = {
    T.ERROR: pb.Error, T.DONE: pb.Empty, T.WELCOME: pb.Welcome, T.GRANT: pb.Ranges,
    T.STATS_REPLY: pb.StatsReply, T.LIST_REPLY: pb.ListReply, T.CHECK_REPLY: pb.CheckReply,
    T.RESUMED: pb.Ranges, T.BLOCKS: pb.Blocks, T.BLOCK_RETIRED: pb.Blocks,
    T.REVOKED: pb.Revoked, T.PRESSURE: pb.Pressure,
}


def type_name(number):
    try:
        return pb.MessageType.Name(number).removeprefix("MESSAGE_TYPE_")
    except ValueError:
        return f"type {number}"


def code_name(number):
    try:
        return pb.Code.Name(number).removeprefix("CODE_")
    except ValueError:
        return f"code {number}"


def encode(type_, tag, payload=b"", flags=0, length=None):
    """A frame. payload: bytes or a message. flags and length are there to be wrong."""
    if not isinstance(payload, (bytes, bytearray)):
        payload = payload.SerializeToString()
    return HEADER.pack(len(payload) if length is None else length, type_, flags, tag) + payload


def decode(buffer):
    """The first frame of a bytearray, which is taken out of it; None if it is not all there."""
    if len(buffer) < HEADER.size:
        return None
    length, type_, flags, tag = HEADER.unpack_from(buffer)
    if len(buffer) < HEADER.size + length:
        return None
    frame = Frame(type_, flags, tag, bytes(buffer[HEADER.size:HEADER.size + length]))
    del buffer[:HEADER.size + length]
    return frame


def parse(frame):
    message = PAYLOADS[frame.type]()
    message.ParseFromString(frame.payload)
    return message


# --- words ----------------------------------------------------------------------------------------

class Words(namedtuple("Words", "zone page pages generation zeroed")):
    """A range as the wire has it."""

    def pack(self):
        return [self.zone << 32 | self.page,
                self.zeroed << 44 | self.generation << 20 | self.pages]

    @classmethod
    def unpack(cls, words):
        a, b = words
        if a >> 40 or b >> 45:
            raise ValueError(f"bits are set that have no meaning: {a:#x} {b:#x}")
        return cls(a >> 32, a & 0xffffffff, b & 0xfffff, b >> 20 & 0xffffff, b >> 44 & 1)


def pack_ranges(ranges):
    return [word for words in ranges for word in words.pack()]


def unpack_ranges(words):
    if len(words) % 2:
        raise ValueError("half a range")
    return [Words.unpack(words[i:i + 2]) for i in range(0, len(words), 2)]


def pack_block(index, generation):
    return index << 40 | generation


def unpack_block(word):
    return word >> 40, word & (1 << 40) - 1


# --- a stream with descriptors --------------------------------------------------------------------

class Disconnected(Exception):
    """The daemon ended the session."""


class Stream:
    """A connection: frames and descriptors in, bytes out."""

    def __init__(self, path, timeout=20):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.buffer = bytearray()
        self.descriptors = []  # in order of arrival, not taken yet
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(path)
        except BaseException:
            self.socket.close()
            raise

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Disconnected(str(error)) from error

    def fill(self, size=65536):
        """One receive. False at the end of the stream."""
        room = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
        try:
            data, control, flags, _ = self.socket.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            return False
        for level, kind, body in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(body[:len(body) - len(body) % fds.itemsize])
                self.descriptors.extend(fds)
        if flags & socket.MSG_CTRUNC:
            raise RuntimeError("descriptors were lost: no room in the descriptor table")
        self.buffer += data
        return bool(data)

    def has_arrived(self, timeout):
        """Something can be received, be it the end of the stream."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(1000 * timeout))

    def receive(self):
        """The next frame."""
        while (frame := decode(self.buffer)) is None:
            if not self.fill():
                raise Disconnected(f"the stream ended, {len(self.buffer)} bytes of a frame left")
        return frame

    def take_descriptor(self):
        return self.descriptors.pop(0)

    def fileno(self):
        return self.socket.fileno()

    def close(self):
        self.socket.close()
        while self.descriptors:
            os.close(self.take_descriptor())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

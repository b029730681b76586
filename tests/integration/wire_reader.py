"""A reader of the library's ring, written from docs/wire.md and independent of wire/reader.c.

Announce it (announcement()), attach or start a target with it, then accept(), poll(), leave()."""

import fcntl
import mmap
import os
import socket
import struct
import tempfile
import time

MAGIC = 0x3145524957504C43
VERSION = 8
HEADER_BYTES = 4096
RECORDS = {2: "image", 3: "method", 4: "body", 5: "thread", 6: "sample", 7: "mark"}
MANAGED, NATIVE, SPECIAL, UNKNOWN = 1, 2, 3, 4
OVERLOADED, DYNAMIC, STUB, NAME_CUT, ASYNC, ITERATOR = (1 << bit for bit in range(6))


class Method:
    def __init__(self, image, token, flags, texts):
        self.image, self.token, self.flags = image, token, flags
        self.type, self.name, self.type_args, self.method_args, self.signature = texts

    def __repr__(self):
        return f"{self.type}.{self.name}({self.signature})"


def split_args(text):
    """The top-level items of "A,B`1[C,D]"."""
    items, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            items.append(text[start:i])
            start = i + 1
    return items + [text[start:]] if text else []


class WireReader:
    def __init__(self, test, ring_bytes=1 << 22):
        self.directory = tempfile.mkdtemp(prefix="clp-wire-")
        self.path = os.path.join(self.directory, "s")
        self.ring_bytes = ring_bytes
        self.tail = 0
        self.images, self.methods, self.bodies, self.threads = {}, {}, {}, {}
        self.samples, self.marks = [], set()
        self.library_nonce, self.reader_nonce = os.urandom(16), os.urandom(16)
        self.link = self.memory = None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(1)
        test.addCleanup(self.close)

    def announcement(self, magic=MAGIC, version=VERSION):
        return struct.pack("<QII16s16s104s", magic, version, 0, self.library_nonce,
                           self.reader_nonce, self.path.encode())

    def accept(self, interval_ns=10_000_000, seconds=20):
        self.listener.settimeout(seconds)
        self.link = self.listener.accept()[0]
        self.link.settimeout(seconds)
        hello = self.link.recv(4096)
        if hello[24:40] != self.library_nonce:
            raise RuntimeError("the library did not prove itself")
        self.runtime = struct.unpack_from("<HHH", hello, 40)
        fd = os.memfd_create("clrpulse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        size = HEADER_BYTES + self.ring_bytes
        os.ftruncate(fd, size)
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS,
                    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.memory = mmap.mmap(fd, size)
        self.memory[8:16] = struct.pack("<II", VERSION, self.ring_bytes)
        self.memory[0:8] = struct.pack("<Q", MAGIC)
        settings = struct.pack("<IIQ48s", 1 << 1, 0, interval_ns, b"")
        welcome = struct.pack("<IHH16s", 88, 2, 0, self.reader_nonce) + settings
        socket.send_fds(self.link, [welcome], [fd])
        os.close(fd)

    def poll(self):
        head = struct.unpack_from("<Q", self.memory, 64)[0]
        while self.tail < head:
            at = HEADER_BYTES + self.tail % self.ring_bytes
            size, kind, count = struct.unpack_from("<IHH", self.memory, at)
            if kind in RECORDS:
                getattr(self, "_" + RECORDS[kind])(self.memory[at:at + size], count)
            self.tail += size
        self.memory[128:136] = struct.pack("<Q", self.tail)

    def poll_for(self, seconds, enough=lambda: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not enough():
            time.sleep(0.02)
            self.poll()

    def leave(self, detach=False):
        self.link.send(struct.pack("<IHH", 8, 5, 1 if detach else 0))

    def close(self):
        for thing in (self.link, self.listener, self.memory):
            if thing:
                thing.close()
        if os.path.exists(self.path):
            os.unlink(self.path)
            os.rmdir(self.directory)

    def _image(self, record, _):
        number, kind, id_len = struct.unpack_from("<IHH", record, 8)
        path_len = struct.unpack_from("<H", record, 48)[0]
        texts = record[56:]
        self.images[number] = (kind, texts[:id_len], texts[id_len:id_len + path_len].decode())

    def _method(self, record, _):
        number, image, token, flags, *lengths = struct.unpack_from("<IIIH5H", record, 8)
        texts, at = [], 32
        for length in lengths:
            texts.append(record[at:at + length].decode())
            at += length
        self.methods[number] = Method(image, token, flags, texts)

    def _body(self, record, _):
        number, method, start, length, flags = struct.unpack_from("<IIQII", record, 8)
        self.bodies[number] = (method, start, length, flags)

    def _thread(self, record, _):
        number, tid, kind, length = struct.unpack_from("<IiIH", record, 8)
        self.threads[number] = (tid, kind, record[24:24 + length].decode())

    def _sample(self, record, count):
        value, thread, flags = struct.unpack_from("<qxxxxxxxxIxxH", record, 16)
        frames = struct.unpack_from(f"<{count}Q", record, 40)
        self.samples.append((value, thread, flags, frames))

    def _mark(self, record, _):
        self.marks.add(struct.unpack_from("<Q", record, 8)[0])

    def stack(self, sample):
        """Methods of a sample, leaf first; None for frames of another kind."""
        return [self.methods[self.bodies[f >> 32 & 0x0FFFFFFF][0]] if f >> 60 == MANAGED else None
                for f in sample[3]]

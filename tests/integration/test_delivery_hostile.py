#!/usr/bin/env python3
"""Delivery to servers that mean harm, or know no better: replies that never end, that lie, that lead elsewhere."""

import gzip
import socket
import threading
import zlib

from delivery import SANITIZED, Case, main

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Reads whole requests; what it answers is the path's affair: bytes, or a function of the connection."""

    def __init__(self, test, replies):
        self.replies, self.requests = replies, {path: [] for path in replies}
        self.connections, self.ended = [], threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        test.addCleanup(self.close)
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.ended.set()
        self.listener.close()
        for connection in self.connections:
            connection.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    if not (piece := connection.recv(65536)):
                        return
                    data += piece
                head, _, data = data.partition(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                while len(data) < length:
                    data += connection.recv(65536)
                data = data[length:]
                path = head.split()[1].decode()
                self.requests[path].append(head)
                reply = self.replies[path]
                if callable(reply):
                    reply(self, connection)
                else:
                    connection.sendall(reply)
        except OSError:
            pass
        finally:
            connection.close()

    def flood(self, connection, first, rest):
        """Up to 256 MiB, or until the other side has had enough."""
        connection.sendall(first)
        piece = rest * (65536 // len(rest) + 1)
        for _ in range((256 << 20) // len(piece)):
            connection.sendall(piece)

    def drip(self, connection, text):
        while not self.ended.wait(0.05):
            connection.sendall(text)


def bomb():
    """16 MiB in some kilobytes."""
    return gzip.compress(bytes(16 << 20))


def chunked(data):
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


def reset(_, connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


class TestHostile(Case):
    def run_table(self, rows):
        """(name, reply, outcome, words of the log): `sent`, `retried` or `refused`. All at once, each an intake of
        its own; one more is well and must not notice."""
        rows = sorted(rows, key=lambda row: row[2])  # who is tried again is waited for, and the others are not
        replies = {f"/{i}": reply for i, (_, reply, *_) in enumerate(rows)}
        server = Server(self, {**replies, "/well": OK})
        for at in range(0, len(rows), 7):
            part = list(enumerate(rows))[at:at + 7]
            upload = ["http", f"url=http://127.0.0.1:{server.port}/well"]
            for i, _ in part:
                upload += ["+", "http", f"url=http://u:pw@127.0.0.1:{server.port}/{i}", "timeout_ms=1500"]
            stats, log = self.deliver(*upload, count=2, wait_s=3, env={"CLP_DELIVER_RETRY_MS": "100,60000"})
            self.spool += "-next"
            self.assertEqual((stats[0]["sent"], stats[0]["retried"]), (2, 0), log)
            for (i, (name, _, outcome, words)), told in zip(part, stats[1:]):
                with self.subTest(name):
                    where = f"127.0.0.1:{server.port}/{i}"
                    mine = [line for line in log.splitlines() if f"{where} " in line or f"{where}:" in line]
                    got = {"sent": told["sent"] == 2 and told["retried"] == 0,
                           "retried": told["sent"] == 0 and told["retried"] > 0 and told["backlog"] == 2,
                           "refused": told["refused"] == 2}
                    self.assertEqual([key for key in got if got[key]], [outcome], f"{told} {mine}")
                    self.assertTrue(any(words in line for line in mine) if words else True, mine or log)
                    if outcome != "retried":
                        self.assertEqual(len(server.requests[f"/{i}"]), 14 if outcome == "sent" else 2)
            self.assertNotIn("\033", log)
            if not SANITIZED:
                self.assertLess(stats[0]["rss_kib"], 64 * 1024, "no reply is kept")
        return server

    def test_replies_without_end(self):
        head = b"HTTP/1.1 200 OK\r\n"
        self.run_table([
            ("a byte now and then", lambda s, c: s.drip(c, b"H"), "retried", ""),
            ("a head that drips", lambda s, c: s.drip(c, b"HTTP/1.1 200 OK\r\nA: b\r\n"), "sent", ""),
            ("headers without end", lambda s, c: s.flood(c, head, b"A: b\r\n"), "sent", ""),
            ("a line without end", lambda s, c: s.flood(c, head + b"A: ", b"b"), "sent", ""),
            ("no status line", lambda s, c: s.flood(c, b"HTTP", b"P"), "retried", ""),
            ("100 without end", lambda s, c: s.flood(c, b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "retried",
             "its answer's head has no end"),
            ("103 with hints", lambda s, c: s.flood(c, b"", b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n"), "retried",
             "its answer's head has no end"),
            ("body without end", lambda s, c: s.flood(c, head + b"Content-Length: 99999999999\r\n\r\n", b"b"), "sent",
             ""),
            ("chunks without end", lambda s, c: s.flood(
                c, head + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n"), "sent", ""),
            ("trailers without end", lambda s, c: s.flood(
                c, head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"), "sent", ""),
            ("503 without end", lambda s, c: s.flood(c, b"HTTP/1.1 503 No\r\n\r\n", b"no "), "retried", "answered 503"),
        ])

    def test_replies_that_lie(self):
        head, body = b"HTTP/1.1 200 OK\r\n", zlib.compress(bytes(1 << 20))
        self.run_table([
            ("gzip bomb", head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(bomb()), bomb()),
             "sent", ""),
            ("gzip bomb on its way", head + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked(bomb()), "sent", ""),
            ("a hundred encodings", head + b"Transfer-Encoding: " + b"gzip, " * 100 + b"chunked\r\n\r\n" +
             chunked(body), "sent", ""),
            ("100, then the answer", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, "sent", ""),
            ("switching protocols", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
             "retried", ""),
            ("HTTP/0.9", lambda s, c: (c.sendall(b"thank you\n"), c.close()), "retried", ""),
            ("HTTP/2 frames", lambda s, c: (c.sendall(b"\0\0\0\4\0\0\0\0\0"), c.close()), "retried", ""),
            ("too many bytes", head + b"Content-Length: 2\r\n\r\nok and more of it", "sent", ""),
            ("a length below zero", head + b"Content-Length: -5\r\n\r\n", "sent", ""),
            ("a length beyond measure", lambda s, c: (
                c.sendall(head + b"Content-Length: 9" + b"9" * 40 + b"\r\n\r\n"), c.close()), "sent", ""),
            ("status 000", b"HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n", "retried", ""),
            ("status 999", b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", "refused", "answered 999"),
            ("bytes for the terminal", b"HTTP/1.1 403 No\r\nContent-Length: 12\r\n\r\n\033[31m\xff\xfe\r\n\0no",
             "refused", "[31m"),
            ("hangs up", lambda s, c: c.close(), "retried", "cannot send"),
            ("resets", reset, "retried", "cannot send"),
        ])

    def test_ways_elsewhere(self):
        """Nobody is followed anywhere, and nobody else is told who we are."""
        other = Server(self, {"/": OK})
        there = b"http://127.0.0.1:%d/" % other.port
        moved = b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n"
        want = b"HTTP/1.1 401 Who\r\nWWW-Authenticate: %s\r\nContent-Length: 0\r\n\r\n"
        server = self.run_table([
            *((f"{status} to {place.decode()}", moved % (status, place), "refused", "use the final URL")
              for status, place in ((301, there), (302, b"file:///etc/passwd"), (303, there), (307, there),
                                    (308, b"//127.0.0.1:%d/" % other.port), (300, b"unix:///tmp/x"))),
            *((f"wants {way.decode()}", want % way, "refused", "check the user") for way in (
                b"NTLM", b"Negotiate", b'Digest realm="x", nonce="y"')),
            ("another place to use", b"HTTP/1.1 200 OK\r\nAlt-Svc: h2=\"127.0.0.1:%d\"\r\nSet-Cookie: a=b\r\n"
             b"Refresh: 0; url=%s\r\nContent-Length: 0\r\n\r\n" % (other.port, there), "sent", ""),
        ])
        self.assertEqual(other.connections, [])
        for heads in server.requests.values():
            for head in heads:
                self.assertNotIn(b"\r\ncookie:", head.lower())
                self.assertNotIn(b"ntlm", head.lower())

    def test_an_answer_too_many(self):
        """What comes after an answer is not the answer to the next request; a connection that the other side ends
        after each answer costs no try."""
        server = Server(self, {"/more": OK + b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
                               "/ends": lambda s, c: (c.sendall(OK), c.close())})
        url = f"url=http://127.0.0.1:{server.port}"
        stats, log = self.deliver("http", f"{url}/more", "+", "http", f"{url}/ends", count=10)
        self.assertEqual([(s["sent"], s["retried"]) for s in stats], [(10, 0), (10, 0)], log)
        self.assertEqual({path: len(heads) for path, heads in server.requests.items()}, {"/more": 70, "/ends": 70})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The side of a phone in ADB's protocol, over TCP, for the real client: a small adbd whose shell is
that of this machine, as its user.

    adbd.py FOLDER [--key FILE] [--address ADDRESS]    prints the port on which it listens

FOLDER is its /data/local/tmp. Of adbd's services it has the one that is needed, `shell,v2,raw:LINE`.
Without the client's public key it lets nobody in, as a phone on whose display nobody has allowed it.
"""

import argparse
import base64
import os
import queue
import socket
import struct
import subprocess
import threading

HEADER = struct.Struct("<4s5I")  # command, two arguments, bytes that follow, their sum, ~command
VERSION = 0x01000001  # the first without checksums
MAX_BYTES = 1 << 20  # per message
BANNER = b"device::ro.product.name=none;ro.product.model=none;ro.product.device=none;" \
         b"features=shell_v2"
AUTH_TOKEN, AUTH_SIGNATURE = 1, 2
SHA1_OF = bytes.fromhex("3021300906052b0e03021a05000414")  # comes before a digest that is signed
PACKET = struct.Struct("<BI")  # of the shell's protocol: kind, bytes that follow
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)
SERVICE = "shell,v2,"


class Key:
    """An RSA key as in adbkey.pub: after two words the modulus, then as much again, the exponent."""

    def __init__(self, file):
        with open(file, encoding="ascii") as text:
            structure = base64.b64decode(text.read().split()[0])
        self.size = 4 * int.from_bytes(structure[:4], "little")
        self.modulus = int.from_bytes(structure[8:8 + self.size], "little")
        self.exponent = int.from_bytes(structure[-4:], "little")

    def signed(self, digest, signature):
        end = b"\0" + SHA1_OF + digest
        block = b"\0\1" + b"\xff" * (self.size - 2 - len(end)) + end
        return pow(int.from_bytes(signature, "big"), self.exponent,
                   self.modulus) == int.from_bytes(block, "big")


class Shell:
    """A line of shell, and its stream to the client, which has the numbers `ours` and `theirs`.
    What is written there is answered by OKAY before more is."""

    def __init__(self, connection, ours, theirs, line):
        self.send = lambda command, data=b"": connection.send(command, ours, theirs, data)
        self.max_bytes = connection.max_bytes
        self.written = queue.SimpleQueue()  # by the client; None: it is gone
        self.gone = False
        self.may_send = threading.Semaphore()
        self.sending = threading.Lock()
        # One socket for both, as adbd has.
        self.pipe, theirs_of_pipe = socket.socketpair()
        with theirs_of_pipe:
            self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                ["/bin/sh", "-c", line], cwd="/", stdin=theirs_of_pipe, stdout=theirs_of_pipe,
                stderr=subprocess.PIPE)
        self.send(b"OKAY")
        threading.Thread(target=self.take, daemon=True).start()
        threading.Thread(target=self.run, daemon=True).start()

    def close(self):
        """The client has closed the stream or has gone."""
        self.gone = True
        self.may_send.release()
        self.written.put(None)
        try:
            self.pipe.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the line has ended

    def take(self):
        """Gives the line what the client writes."""
        packets = b""
        while (data := self.written.get()) is not None:
            packets += data
            while len(packets) >= PACKET.size:
                kind, length = PACKET.unpack_from(packets)
                if len(packets) < PACKET.size + length:
                    break
                payload = packets[PACKET.size:PACKET.size + length]
                packets = packets[PACKET.size + length:]
                try:
                    if kind == STDIN:
                        self.pipe.sendall(payload)
                    elif kind == CLOSE_STDIN:
                        self.pipe.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # it reads no more
            self.send(b"OKAY")

    def run(self):
        """Sends the client what the line writes, then its exit code."""
        errors = threading.Thread(target=self.tell_all, args=(STDERR, self.process.stderr.read1))
        errors.start()
        self.tell_all(STDOUT, self.receive)
        errors.join()
        code = self.process.wait()
        self.tell(EXIT, bytes([code if code >= 0 else 128 - code]))
        self.send(b"CLSE")
        self.process.stderr.close()

    def receive(self, size):
        """What the line writes; nothing at its end, nor where it ended before it read all of its
        input, which a socket reports as an error."""
        try:
            return self.pipe.recv(size)
        except ConnectionResetError:
            return b""

    def tell_all(self, kind, read):
        while data := read(self.max_bytes - PACKET.size):
            self.tell(kind, data)

    def tell(self, kind, data):
        with self.sending:
            self.may_send.acquire()  # pylint: disable=consider-using-with
            if self.gone:
                self.may_send.release()
            else:
                self.send(b"WRTE", PACKET.pack(kind, len(data)) + data)


class Connection:
    """A client. Each side numbers its streams."""

    def __init__(self, client, folder, key):
        self.client = client
        self.folder = folder
        self.key = key
        self.token = os.urandom(20)
        self.is_let_in = False
        self.max_bytes = 0
        self.sending = threading.Lock()
        self.shells = {}

    def send(self, command, first, second, payload=b""):
        message = HEADER.pack(command, first, second, len(payload), 0,
                              ~int.from_bytes(command, "little") & 0xffffffff) + payload
        try:
            with self.sending:
                self.client.sendall(message)
        except OSError:
            pass  # it is gone, which serve() sees too

    def receive(self, size):
        received = b""
        while len(received) < size:
            piece = self.client.recv(size - len(received))
            if not piece:
                raise EOFError
            received += piece
        return received

    def serve(self):
        try:
            while True:
                command, first, second, size, _, _ = HEADER.unpack(self.receive(HEADER.size))
                self.answer(command, first, second, self.receive(size))
        except (EOFError, OSError):
            for shell in self.shells.values():
                shell.close()

    def answer(self, command, first, second, payload):
        if command == b"CNXN":
            self.max_bytes = min(second, MAX_BYTES)
            self.send(b"AUTH", AUTH_TOKEN, 0, self.token)
        elif command == b"AUTH" and first == AUTH_SIGNATURE:
            self.is_let_in = self.key is not None and self.key.signed(self.token, payload)
            if self.is_let_in:
                self.send(b"CNXN", VERSION, self.max_bytes, BANNER)
            else:
                self.send(b"AUTH", AUTH_TOKEN, 0, self.token)
        elif command == b"OPEN" and self.is_let_in:
            service, _, line = payload.rstrip(b"\0").decode().partition(":")
            if service.startswith(SERVICE) and service.endswith("raw"):
                ours = len(self.shells) + 1
                self.shells[ours] = Shell(self, ours, first,
                                          line.replace("/data/local/tmp", self.folder))
            else:
                self.send(b"CLSE", 0, first)
        elif shell := self.shells.get(second):
            if command == b"WRTE":
                shell.written.put(payload)
            elif command == b"OKAY":
                shell.may_send.release()
            elif command == b"CLSE":
                shell.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what /data/local/tmp stands for")
    parser.add_argument("--key", type=Key, help="the client's, as in ~/.android/adbkey.pub")
    parser.add_argument("--address", default="127.0.0.1", help="of this machine (default %(default)s)")
    arguments = parser.parse_args()
    family = socket.AF_INET6 if ":" in arguments.address else socket.AF_INET
    with socket.create_server((arguments.address, 0), family=family) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection = Connection(server.accept()[0], arguments.folder, arguments.key)
            threading.Thread(target=connection.serve, daemon=True).start()


if __name__ == "__main__":
    main()

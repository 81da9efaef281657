# SPDX-License-Identifier: Apache-2.0
"""A hugepoold of one's own: configured, started, waited for, looked at, stopped."""

import os
import signal
import socket
import subprocess
import tempfile
import time

from hugepool_client import Client
from hugepool_wire import Disconnected

START_SECONDS = 60
STOP_SECONDS = 30


class DaemonFailed(Exception):
    pass


def wait_for(condition, seconds, what):
    """Until condition() is true. Never for a time."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds} s: {what}")
        time.sleep(0.01)
    return result


def sections(named):
    """[("zone small", {"size": "1G"}), ...] as the text of a configuration."""
    return "\n".join(f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
                     for name, keys in named)


class Daemon:
    """with Daemon(program, sections) as daemon: ..."""

    def __init__(self, program, configuration, **keys):
        self.directory = tempfile.TemporaryDirectory(prefix="hugepool-test-")
        where = self.directory.name
        os.chmod(where, 0o755)
        self.socket, self.admin = f"{where}/hugepool.sock", f"{where}/admin.sock"
        self.log, self.configuration = f"{where}/log", f"{where}/hugepool.conf"
        self.program, self.process = program, None
        settings = {"socket": self.socket, "socket-mode": "0666", "admin-socket": self.admin,
                    "setup-socket": f"{where}/setup.sock", "namespace": f"{where}/ns", **keys}
        with open(self.configuration, "w", encoding="utf-8") as file:
            file.write(sections([("daemon", settings), *configuration]))

    # --- life -------------------------------------------------------------------------------------

    def __enter__(self):
        environment = dict(os.environ)
        # Freed memory that a sanitizer holds back would look like the daemon's own.
        environment["ASAN_OPTIONS"] = (environment.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
                                       ":allocator_release_to_os_interval_ms=100")
        try:
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(
                    [self.program, "--config", self.configuration], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, env=environment)
            wait_for(self._ready, START_SECONDS, "the daemon is not ready")
        except BaseException:
            self._kill()
            print(self.read_log())
            self.directory.cleanup()
            raise
        return self

    def _ready(self):
        if self.process.poll() is not None:
            raise DaemonFailed(f"the daemon ended with {self.process.returncode}")
        try:
            client = Client(self.admin)
        except (FileNotFoundError, ConnectionRefusedError, Disconnected, socket.timeout):
            return False
        try:
            return client.stats().ready
        finally:
            client.close()

    def _kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """As an operator would. Its exit status has to be 0: sanitizers speak through it, too."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            raise DaemonFailed(f"not gone {STOP_SECONDS} s after SIGTERM") from None
        if status:
            raise DaemonFailed(f"the daemon ended with {status}")
        left = [path for path in (self.socket, self.admin) if os.path.exists(path)]
        if left:
            raise DaemonFailed(f"the daemon left {left} behind")

    def __exit__(self, kind, *_):
        try:
            self.stop()
        except BaseException:
            kind = kind or DaemonFailed
            raise
        finally:
            if kind:
                print("--- log of the daemon, its end ---")
                print(self.read_log()[-8000:])
            self.directory.cleanup()

    # --- looks ------------------------------------------------------------------------------------

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def status_kilobytes(self, key):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(key + ":"):
                    return int(line.split()[1])
        raise DaemonFailed(f"no {key} in its status")

    def is_sanitized(self):
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as file:
            text = file.read()
        return "libasan" in text or "libtsan" in text

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

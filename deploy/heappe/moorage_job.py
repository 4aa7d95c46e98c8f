"""Program of a HEAppE job: starts the engine, relays requests to it, and exits when it is no longer
used.

It needs Python 3.6 or newer on the compute node and nothing else. In the job's directory it reads
``launch.json`` (or the argument: the same as base64url of zlib), and appends lines of JSON to the
progress file: where it listens, that it got SIGTERM, and the exit code. The key for its port is
created here and read from that file, so neither the job's parameters nor the scheduler ever contain
it.

HEAppE answers 200 whatever the engine answers. The relay therefore carries the status and the
headers in the body: ``MG1 {"status": ..., "headers": [...]}``, then the pieces of the body, each
after a line with its length in hexadecimal digits, then a line with 0. A body without that line was
cut off.
"""

import base64
import binascii
import ctypes
import http.client
import http.server
import json
import os
import secrets
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
import zlib

# Loaded here because a thread may hold the loader's lock when the program is forked.
LIBC = ctypes.CDLL(None)
TOKEN = "@MOORAGE_PORT@"
MAGIC = "MG1 "
RELAY = "/moorage/relay"
HEALTH = "/moorage/health"
# Headers that belong to one connection or hop, not to the message.
HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "proxy-connection",
}
OWN = HOP | {"host", "content-length", "accept-encoding"}
CLAIM = "moorage-job-"
WATCH_S = 5.0
MISSED = 2
MAX_BODY = 64 * 1024 * 1024


class Job:
    """``launch``: argv, env, files, serves, heartbeat_s, grace_s."""

    def __init__(self, launch, progress):
        self.launch = launch
        self.progress = progress
        self.directory = os.getcwd()
        self.key = secrets.token_hex(24)
        self.port = free_port() if launch.get("serves") else 0
        self.asked_at = time.monotonic()
        self.program = None
        self.is_ending = False
        self.is_superseded = False

    def write(self, **values):
        if self.is_superseded:
            return  # the later job writes
        if is_deleted(self.directory):
            return  # nobody reads it
        with open(self.progress, "a") as file:
            file.write(json.dumps(values) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def start(self):
        port = str(self.port)
        argv = [word.replace(TOKEN, port) for word in self.launch["argv"]]
        env = dict(os.environ)
        env.update(
            {name: value.replace(TOKEN, port) for name, value in self.launch.get("env", {}).items()}
        )

        for path, text, mode in self.launch.get("files", []):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
                file.write(text)

        # A separate process group, so that its children end with it. Both outputs go to one stream,
        # in order.
        self.program = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - one system call, no lock
        )

    def signal(self, number):
        try:
            os.killpg(self.program.pid, number)
        except (ProcessLookupError, PermissionError, AttributeError):
            pass

    def end(self, why, grace_s):
        """Ask the program to exit, and kill it after the grace period."""
        self.is_ending = True
        print("moorage:", why, file=sys.stderr, flush=True)
        self.signal(signal.SIGTERM)
        timer = threading.Timer(grace_s, self.signal, (signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def watch_directory(self, claims):
        """Watch the directory until a later job runs there or it has been deleted. Its agent has
        then given up this job, which the site considers ended."""
        missed = 0
        while missed < MISSED and not claims.is_superseded():
            time.sleep(WATCH_S)
            missed = missed + 1 if is_deleted(self.directory) else 0

        why = "the directory of the job was deleted"
        if missed < MISSED:
            self.is_superseded = True
            why = "a later job runs in this directory"

        self.end(why, self.launch.get("grace_s", 10))

    def on_term(self, number, frame):
        self.end("the job was ended", self.launch.get("grace_s", 10))
        self.write(terminated=True)

    def watch_heartbeat(self):
        limit = self.launch.get("heartbeat_s", 0)
        while limit > 0:
            time.sleep(min(5.0, limit / 4.0))
            if time.monotonic() - self.asked_at > limit:
                why = f"no request for {limit:g} s"
                self.write(ended=why)
                self.end(why, self.launch.get("grace_s", 10))
                return


class Claims:
    """Numbers of the jobs that have run in this directory; each is an empty file.

    A site that repeats a submission has two jobs in one directory. HEAppE knows only the later one,
    so that one runs the program, unless the program has already ended.
    """

    def __init__(self):
        name = os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID") or ""
        digits = name.split(".")[0]
        self.own = int(digits) if digits.isdigit() else 0
        if self.own:
            open(f"{CLAIM}{self.own}", "a").close()

    def others(self):
        if not self.own:
            return []
        found = [name[len(CLAIM) :] for name in os.listdir(".") if name.startswith(CLAIM)]
        return [int(number) for number in found if number.isdigit() and int(number) != self.own]

    def is_superseded(self):
        try:
            return any(number > self.own for number in self.others())
        except OSError:
            return False  # the file system is away

    def take_over(self, progress):
        """The exit code of an earlier job that ran to its end; else None, and what it wrote is
        gone."""
        if not self.others() or not os.path.exists(progress):
            return None

        with open(progress) as file:
            for line in file:
                try:
                    told = json.loads(line)
                except ValueError:
                    continue

                if "exit" in told:
                    return told["exit"]

        os.truncate(progress, 0)
        return None


class Relay(http.server.BaseHTTPRequestHandler):
    """``job`` is set on the class before it serves."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    job = None

    def log_message(self, *args):
        pass

    def do_GET(self):
        if self.path != HEALTH:
            return self.answer(404, b"moorage: no such page\n")
        # The client has no key, so the answer only shows that this is a relay.
        return self.answer(200, json.dumps({"moorage": 1}).encode())

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if self.path != RELAY or length > MAX_BODY:
            return self.answer(404, b"moorage: no such page\n")

        head, _, body = self.rfile.read(length).partition(b"\n")
        try:
            request = json.loads(head[len(MAGIC) :].decode())
            allowed = secrets.compare_digest(str(request["key"]).encode(), self.job.key.encode())
        except (ValueError, KeyError, TypeError):
            return self.answer(400, b"moorage: malformed request\n")

        if not allowed:
            return self.answer(403, b"moorage: wrong key\n")

        if request.get("end"):
            # The site considers this job ended and no longer cancels it. The answer is sent first,
            # because this process ends with the program.
            self.answer(200, b"{}")
            self.job.write(terminated=True)
            return self.job.end("it was asked to end", self.job.launch.get("grace_s", 10))

        self.job.asked_at = time.monotonic()
        return self.relay(request, body)

    def relay(self, request, body):
        engine = http.client.HTTPConnection("127.0.0.1", self.job.port, timeout=None)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        try:
            try:
                engine.connect()
                engine.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                headers = {n: v for n, v in request.get("headers", []) if n.lower() not in OWN}
                engine.request(request["method"], request["path"], body or None, headers)
                watcher = Hangup(self.connection, engine.sock)
                with watcher:
                    self.pass_on(engine.getresponse())
            except (OSError, http.client.HTTPException) as error:
                # Status 0 means that the engine did not answer, or not completely.
                self.send(
                    MAGIC.encode()
                    + json.dumps({"status": 0, "error": repr(error)}).encode()
                    + b"\n"
                )

            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the client has gone
        finally:
            engine.close()

    def pass_on(self, response):
        headers = [[n.lower(), v] for n, v in response.getheaders() if n.lower() not in OWN]
        head = {"status": response.status, "headers": headers}
        self.send(MAGIC.encode() + json.dumps(head).encode() + b"\n")

        while True:
            piece = response.read1(65536)
            if not piece:
                break

            self.job.asked_at = time.monotonic()
            self.send(b"%x\n%s" % (len(piece), piece))

        if response.length:
            raise http.client.IncompleteRead(b"", response.length)

        self.send(b"0\n")

    def send(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if status != 200 else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Hangup:
    """Cancels the request at the engine when the client hangs up before the answer is complete."""

    def __init__(self, client, engine):
        self.client = client
        self.engine = engine
        self.done = False

    def __enter__(self):
        thread = threading.Thread(target=self.watch, daemon=True)
        thread.start()

    def __exit__(self, *exc):
        self.done = True

    def watch(self):
        while not self.done:
            try:
                readable, _, _ = select.select([self.client], [], [], 0.25)
                if self.done or (readable and not self.client.recv(1, socket.MSG_PEEK)):
                    break
                if readable:
                    time.sleep(0.25)  # the next request of the same connection waits
            except (OSError, ValueError):
                break

        if not self.done:
            try:
                self.engine.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256


def is_deleted(directory):
    """Whether the directory was deleted; false while its file system is away."""
    try:
        os.stat(directory)
    except FileNotFoundError:
        return True
    except OSError:
        pass
    return False


def end_with_parent():
    """Linux kills the program when this one is killed, whatever the scheduler does about its
    children."""
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def read_launch(arguments):
    """Read from ``launch.json`` in the job's directory, otherwise from the arguments, which are one
    blob in pieces."""
    if os.path.exists("launch.json"):
        with open("launch.json") as file:
            return json.load(file)

    blob = "".join(arguments)
    try:
        return json.loads(
            zlib.decompress(base64.urlsafe_b64decode(blob + "=" * (-len(blob) % 4))).decode()
        )
    except (ValueError, binascii.Error, zlib.error) as error:
        sys.exit(f"moorage: neither launch.json nor a valid argument: {error}")


def main(arguments):
    """``arguments``: the progress file, then the blob."""
    claims = Claims()
    if claims.is_superseded():
        print("moorage: a later job runs in this directory", file=sys.stderr)
        return 0

    code = claims.take_over(arguments[0])
    if code is not None:
        print("moorage: an earlier job has run in this directory", file=sys.stderr)
        return exit_status(code)

    job = Job(read_launch(arguments[1:]), arguments[0])
    signal.signal(signal.SIGTERM, job.on_term)
    try:
        job.start()
    except OSError as error:
        print("moorage: cannot start the program:", error, flush=True)
        job.write(exit=127 if isinstance(error, FileNotFoundError) else 126)
        return 127

    threading.Thread(target=job.watch_directory, args=(claims,), daemon=True).start()
    if job.is_ending:  # the signal came before there was a program
        job.signal(signal.SIGTERM)

    if job.port:
        Relay.job = job
        server = Server(("", 0), Relay)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=job.watch_heartbeat, daemon=True).start()
        job.write(moorage=1, port=server.server_address[1], host=socket.gethostname(), key=job.key)
    else:
        job.write(moorage=1)

    code = job.program.wait()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the program has ended by itself
    job.signal(signal.SIGKILL)  # its leftover processes
    job.write(exit=code)

    return exit_status(code)


def exit_status(code):
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A server with a health address and nothing else, which misbehaves as a test wants. Standard library only."""

import argparse
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--ready-file", type=Path, help="healthy once this file exists")
parser.add_argument("--refuse", type=int, default=0, help="this many health checks are answered with 503")
parser.add_argument("--exit", type=int, help="end with this code instead of serving")
parser.add_argument("--once", type=Path, help="end with code 7 if this file exists, else make it")
parser.add_argument("--children", action="store_true", help="two children that hold the port; one ignores TERM")
options = parser.parse_args()

print("loading the model", flush=True)
if options.exit is not None:
    print("the model cannot be loaded", file=sys.stderr)
    sys.exit(options.exit)
if options.once:
    if options.once.exists():
        sys.exit(7)
    options.once.touch()

children: list[subprocess.Popen] = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path != "/health" or self.is_healthy() else 503)
        self.end_headers()
        self.wfile.write(json.dumps([child.pid for child in children]).encode())

    def is_healthy(self) -> bool:
        options.refuse -= 1
        return options.refuse < 0 and (options.ready_file is None or options.ready_file.exists())


with ThreadingHTTPServer(("127.0.0.1", options.port), Handler) as server:
    if options.children:
        for script in ("echo; exec sleep 600", "trap '' TERM; echo; exec sleep 600"):
            child = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, pass_fds=[server.fileno()])
            child.stdout.readline()
            children.append(child)
    server.serve_forever()

#!/usr/bin/env python3
"""Stands in for the command `vllm`: answers as its server does, and crashes on demand.

    fake_vllm.py serve MODEL --host H --port P [anything]

FAKE_VLLM_BROKEN makes it end before it listens. A prompt of "crash" ends the process, "half" in mid-answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

METRICS = """# HELP vllm:spec_decode_num_drafts_total Drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 5.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.1"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
"""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # whose chunks tell an end from a break

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(b"")
        elif self.path == "/metrics":
            self.answer(METRICS.encode(), "text/plain")
        elif self.path == "/v1/models":
            self.answer(json.dumps({"object": "list", "data": [{"id": sys.argv[2], "argv": sys.argv[1:]}]}).encode())
        else:
            self.answer(b'{"error":{"message":"no such path"}}', status=404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = asked["prompt"]
        if prompt == "crash":
            os._exit(3)
        if asked.get("stream"):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for word in prompt.split():
                self.chunk({"choices": [{"index": 0, "text": word}]})
                if word == "half":
                    os._exit(4)
                if word == "slow":
                    time.sleep(1)
            self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        self.answer(json.dumps({"choices": [{"index": 0, "text": prompt.upper()}], "pid": os.getpid()}).encode())

    def chunk(self, said: dict) -> None:
        event = b"data: " + json.dumps(said).encode() + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()

    def answer(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


if __name__ == "__main__":
    if os.environ.get("FAKE_VLLM_BROKEN"):
        sys.exit("unrecognized arguments: --nonsense")
    words = sys.argv
    place = words[words.index("--host") + 1], int(words[words.index("--port") + 1])
    ThreadingHTTPServer(place, Handler).serve_forever()

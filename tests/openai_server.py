"""An OpenAI-compatible server over the standard library, faithful or wrong on purpose; run as a process.

    python openai_server.py MODEL [--fault late-rejection|zero-logprobs|stop-missed|no-logprobs]

It prints its port and serves until its standard input is closed. Completions only; it drafts with a perturbed copy of
the target, so that about half of the guesses are rejected.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import outpace
from outpace.api import Model
from outpace.audit.broken import CorrectsOneRowLate
from outpace.audit.perturbed import Perturbed

FAULTS = ("late-rejection", "zero-logprobs", "stop-missed", "no-logprobs")


class Served:
    """The model, one request at a time, and the fault."""

    def __init__(self, path: str, fault: str | None) -> None:
        loaded = outpace.load(path, threads=1, context=256)
        self.model = Model(loaded.target, loaded.text, Perturbed(loaded.target, 2.0))
        self.fault = fault
        self.lock = threading.Lock()

    def complete(self, asked: dict) -> dict:
        if self.fault == "no-logprobs" and "logprobs" in asked:
            raise ValueError("logprobs are not supported")
        stop = asked.get("stop") or []
        with self.lock:
            request = self.model.stream(
                asked["prompt"],
                raw=True,
                max_tokens=asked.get("max_tokens", 16),
                temperature=asked.get("temperature", 1.0),
                seed=asked.get("seed"),
                logprobs=asked.get("logprobs"),
                stop=[] if self.fault == "stop-missed" else stop,
                drafter="model",
                draft_length=3,
                rule="rejection",
            )
            if self.fault == "late-rejection":
                request.round.rule = CorrectsOneRowLate()
            pieces = [piece for chunk in request for piece in chunk.pieces]
            return self.record(request.result(), pieces)

    def record(self, result, pieces) -> dict:
        count = len(result.tokens)
        choice = {"index": 0, "text": result.text, "finish_reason": result.finish, "logprobs": None}
        if result.logprobs is not None:
            values = [0.0 if self.fault == "zero-logprobs" else one.logprob for one in result.logprobs]
            choice["logprobs"] = {
                "tokens": [self.model.text.decode([one.token]) for one in result.logprobs],
                "token_logprobs": values,
                "top_logprobs": [
                    {self.model.text.decode([token]): value for token, value in one.top} for one in result.logprobs
                ],
            }
        usage = {
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": count,
            "total_tokens": result.prompt_tokens + count,
        }
        return {"object": "text_completion", "choices": [choice], "usage": usage, "pieces": pieces}


class Handler(BaseHTTPRequestHandler):
    served: Served

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "tested", "object": "model"}]})
        else:
            self.answer(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            self.answer(404, {"error": {"message": "no such path"}})
            return
        try:
            record = self.served.complete(asked)
        except ValueError as error:
            self.answer(400, {"error": {"message": str(error)}})
            return
        pieces = record.pop("pieces")
        if asked.get("stream"):
            self.pour(pieces, record["choices"][0]["finish_reason"])
        else:
            self.answer(200, record)

    def answer(self, status: int, record: dict) -> None:
        body = json.dumps(record).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def pour(self, pieces: list[str], finish: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for place, piece in enumerate(pieces):
            last = finish if place + 1 == len(pieces) else None
            choice = {"index": 0, "text": piece, "finish_reason": last}
            self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *arguments: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--fault", choices=FAULTS)
    options = parser.parse_args()
    Handler.served = Served(options.model, options.fault)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    main()

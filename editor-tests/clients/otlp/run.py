"""A collector for telemetry: python run.py path/to/adjutant

The collector oteltap receives the telemetry of a turn of the offline model, and refuses anything that it cannot decode.
It forwards the bodies unchanged: they are decoded with the types of the package opentelemetry-proto, to check that they
have no unknown fields.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from oteltap import OtelTapHttpProtobufReceiver, OtelTapHttpProtobufReceiverSettings

BINARY = str(Path(sys.argv[1]).resolve())
TYPES = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
}
SPANS = {"invoke_agent", "step", "chat", "execute_tool"}
METRICS = {"gen_ai.client.operation.duration", "gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"}
# The maximum time for a message to come out of the collector, in seconds.
LIMIT = 30
# The bodies that the collector has forwarded, decoded.
received = []
results = []


class Collector(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request, response = TYPES[self.path]
        received.append((self.headers["content-type"], request.FromString(body)))
        answer = response().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def check(name, is_true, details=""):
    results.append(is_true)
    print(f"{'ok  ' if is_true else 'FAIL'} {name}" + ("" if is_true else f": {details}"))


def unknown(message):
    """Returns the number of fields that the types do not know, in a message and all below it."""
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            below = [value] if isinstance(value, type(message)) or hasattr(value, "ListFields") else value
            count += sum(unknown(one) for one in below if hasattr(one, "ListFields"))
    return count


def turn(place, address):
    home, project = place / "home", place / "project"
    (home / ".config/adjutant").mkdir(parents=True)
    project.mkdir()
    (project / "note.txt").write_text("Buy milk.\n")
    settings = {"telemetry": {"enabled": True, "endpoint": address}}
    (home / ".config/adjutant/adjutant.json").write_text(json.dumps(settings))
    environment = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TMPDIR": str(place),
        "ADJUTANT_LOCAL_SERVERS": "none",
        "ADJUTANT_DISABLE_MODELS_FETCH": "1",
    }
    return subprocess.run(
        [BINARY, "run", "-q", "Read note.txt."],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def take(stream, into, wanted):
    """Collects messages until all wanted names are among them. The span of a turn is the last of its spans."""
    missing = set(wanted)
    async for message in stream:
        into.append(message)
        missing.discard(message.name.split(" ")[0])
        if not missing:
            return


async def receive(behind):
    """Runs a turn whose telemetry goes to oteltap; returns its result, the spans and the metrics."""
    port = free_port()
    settings = OtelTapHttpProtobufReceiverSettings(
        http_port=port,
        reemit_traces_to_url=f"{behind}/v1/traces",
        reemit_metrics_to_url=f"{behind}/v1/metrics",
    )
    spans, metrics = [], []
    async with OtelTapHttpProtobufReceiver(settings) as receiver:
        taken = asyncio.gather(
            take(receiver.stream_traces(), spans, SPANS),
            take(receiver.stream_metrics(), metrics, METRICS),
        )
        with tempfile.TemporaryDirectory() as place:
            done = await asyncio.to_thread(turn, Path(place), f"http://127.0.0.1:{port}")
        try:
            await asyncio.wait_for(taken, LIMIT)
        except asyncio.TimeoutError:
            # The checks name the missing ones.
            pass
    return done, spans, metrics


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done, spans, metrics = asyncio.run(receive(f"http://127.0.0.1:{server.server_port}"))
    check("the turn ends", done.returncode in (0, 3), done.stderr)
    kinds = {kind for kind, _ in received}
    check("bodies are protocol buffers", kinds == {"application/x-protobuf"}, kinds)
    lost = sum(unknown(message) for _, message in received)
    check("no field is unknown", lost == 0, lost)
    types = {type(message) for _, message in received}
    check("traces and metrics are passed on", types == {request for request, _ in TYPES.values()}, types)
    names = sorted(span.name.split(" ")[0] for span in spans)
    check("there are a turn, steps, requests and a call", SPANS <= set(names), names)
    check("they are one trace", len({span.trace_id for span in spans}) == 1, names)
    ids = {span.span_id for span in spans}
    parents = [span for span in spans if span.parent_span_id not in ids]
    check("only the turn has no parent", [span.name.split(" ")[0] for span in parents] == ["invoke_agent"], parents)
    lengths = {(len(span.trace_id), len(span.span_id)) for span in spans}
    check("ids have their lengths", lengths == {(16, 8)}, lengths)
    check("metrics have the names of the conventions", METRICS <= {metric.name for metric in metrics}, metrics)
    failed = results.count(False)
    print(f"{results.count(True)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""A collector with OpenTelemetry's own types: python run.py path/to/adjutant

Receives what a turn of the offline model sends, decodes it with the types of the package
opentelemetry-proto, and checks that nothing in it is unknown to them.
"""

import json
import os
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

BINARY = str(Path(sys.argv[1]).resolve())
TYPES = {
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
}
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


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        done = turn(Path(place), f"http://127.0.0.1:{server.server_port}")
    check("the turn ends", done.returncode in (0, 3), done.stderr)
    kinds = {kind for kind, _ in received}
    check("bodies are protocol buffers", kinds == {"application/x-protobuf"}, kinds)
    lost = sum(unknown(message) for _, message in received)
    check("no field is unknown", lost == 0, lost)
    spans = [
        span
        for _, message in received
        if isinstance(message, ExportTraceServiceRequest)
        for group in message.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    names = sorted(span.name.split(" ")[0] for span in spans)
    check("there are a turn, steps, requests and a call", {"invoke_agent", "step", "chat", "execute_tool"} <= set(names), names)
    check("they are one trace", len({span.trace_id for span in spans}) == 1, names)
    ids = {span.span_id for span in spans}
    parents = [span for span in spans if span.parent_span_id not in ids]
    check("only the turn has no parent", [span.name.split(" ")[0] for span in parents] == ["invoke_agent"], parents)
    lengths = {(len(span.trace_id), len(span.span_id)) for span in spans}
    check("ids have their lengths", lengths == {(16, 8)}, lengths)
    metrics = {
        metric.name
        for _, message in received
        if isinstance(message, ExportMetricsServiceRequest)
        for group in message.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
    }
    wanted = {"gen_ai.client.operation.duration", "gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"}
    check("metrics have the names of the conventions", wanted <= metrics, metrics)
    failed = results.count(False)
    print(f"{results.count(True)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a request's head asks for: route, refusal, trace id, priority, deadline (pure).

`Routes.plan` judges everything that the head alone tells, so that a request can be refused before
its body is read. Equal heads are one object (server/http1.py), so plans are remembered by head.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from server.auth import is_allowed_origin, is_known, presented_key
from server.errors import ClientError
from server.http1_head import Head
from server.messages import HIGH, LOW

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
# Path segments → methods; HEAD wherever GET, OPTIONS everywhere.
ROUTES = {
    ("infer",): ("POST", "OPTIONS"),
    ("healthz",): ("GET", "HEAD", "OPTIONS"),
    ("readyz",): ("GET", "HEAD", "OPTIONS"),
    ("info",): ("GET", "HEAD", "OPTIONS"),
    ("metrics",): ("GET", "HEAD", "OPTIONS"),
}
OPEN_WITHOUT_KEY = ("healthz", "readyz", "metrics")
# Paths of later parts: 404 like any other, but counted by name.
NAMED = {("",): "/", ("openapi.json",): "/openapi.json"}
JSON, TEXT, RECORDS, FILE = "json", "text", "records", "file"
CONTENT_TYPES = {
    b"": JSON, b"application/json": JSON, b"application/x-www-form-urlencoded": JSON,
    b"text/plain": TEXT, b"application/x-firebrick-records": RECORDS,
    b"application/x-firebrick-file": FILE,
}
KNOWN_PLANS = 1 << 10
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
# Eighteen digits of milliseconds are more than any process lives.
_DEADLINE = re.compile(rb"0*([1-9][0-9]{0,17})")
_UTF8 = re.compile(rb"\s*charset\s*=\s*\"?(?:utf-?8|us-ascii)\"?\s*", re.IGNORECASE)


@dataclass(eq=False, slots=True)
class Plan:
    """What to do with a request. `action` is infer, healthz, readyz, info, metrics, options or
    refuse; `trace_id` is empty where a fresh one is needed; `fields` are header lines for the
    answer; `deadline_s` counts from the moment the request was read."""

    route: str
    action: str
    refusal: ClientError | None = None
    trace_id: str = ""
    fields: bytes = b""
    kind: str = JSON
    wants_json: bool = True
    priority: int = LOW
    deadline_s: float | None = None


class Routes:
    """The routes of one server: its API keys (none: open) and the origins it lets in."""

    def __init__(self, keys: Sequence[bytes], allowed_origins: Sequence[str],
                 has_records: bool) -> None:
        self._keys = keys
        self._allowed_origins = allowed_origins
        self._has_records = has_records
        self._known: dict[Head, Plan] = {}

    def plan(self, head: Head) -> Plan:
        """The plan of a head; the same one for the same head."""
        plan = self._known.get(head)
        if plan is None:
            plan = self._make(head)
            if len(self._known) >= KNOWN_PLANS:
                self._known.clear()
            self._known[head] = plan
        return plan

    def _make(self, head: Head) -> Plan:
        methods = ROUTES.get(head.segments)
        route = "/" + head.segments[0] if methods else NAMED.get(head.segments, "other")
        plan = Plan(route, head.segments[0] if methods else "refuse", trace_id=_trace_id(head))
        try:
            self._judge(head, methods, plan)
            if plan.action == "infer":
                self._read_infer_fields(head, plan)
        except ClientError as refusal:
            plan.action, plan.refusal = "refuse", refusal.with_traceback(None)
        return plan

    def _judge(self, head: Head, methods: tuple[str, ...] | None, plan: Plan) -> None:
        """Raises the ClientError of a request that no route takes."""
        fields = head.fields
        if head.method not in METHODS:
            raise ClientError(501, "not_implemented", f"method {head.method[:40]} is not known "
                              f"here; use one of {', '.join(METHODS)}")
        self._check_origin(head, plan)
        if not head.segments and head.method == "OPTIONS":
            methods = METHODS
        if methods is None:
            raise ClientError(404, "not_found", "there is nothing at this path; classify with "
                              "POST /infer, see also /healthz, /readyz, /info and /metrics")
        allow = ", ".join(methods)
        if head.method not in methods:
            raise ClientError(405, "method_not_allowed", f"this path takes {allow}",
                              {"Allow": allow})
        if head.expect == "unknown":
            raise ClientError(417, "expectation_failed",
                              "of expectations this server knows 100-continue alone")
        if head.method == "OPTIONS":
            plan.action = "options"
            plan.fields += b"Allow: %b\r\n" % allow.encode()
            if b"access-control-request-method" in fields and plan.fields[:7] == b"Access-":
                plan.fields += b"Access-Control-Allow-Methods: %b\r\n" \
                    b"Access-Control-Allow-Headers: Content-Type, Authorization, X-API-Key, " \
                    b"X-Priority, X-Deadline-ms, X-Request-ID, traceparent\r\n" % allow.encode()
            return
        if self._keys and head.segments[0] not in OPEN_WITHOUT_KEY and not is_known(
                self._keys, presented_key(fields.get(b"authorization"), fields.get(b"x-api-key"))):
            raise ClientError(401, "unauthorized", "send a valid key as Authorization: Bearer KEY "
                              "or X-API-Key", {"WWW-Authenticate": "Bearer"})

    def _check_origin(self, head: Head, plan: Plan) -> None:
        origin = head.fields.get(b"origin")
        if origin is None:
            return
        text = origin.decode("latin-1")
        if not is_allowed_origin(text, head.host, self._allowed_origins):
            raise ClientError(403, "forbidden_origin", "pages of this origin may not send "
                              "requests here; start the server with --allow-origin to let them")
        plan.fields = b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n" % origin

    def _read_infer_fields(self, head: Head, plan: Plan) -> None:
        fields = head.fields
        if head.content_length is None and not head.chunked:
            raise ClientError(411, "length_required", "send the text with Content-Length or "
                              "chunked", close=True)
        if b"content-encoding" in fields and fields[b"content-encoding"].lower() != b"identity":
            raise ClientError(415, "unsupported_media_type", "compressed bodies are not read "
                              "here; send it without Content-Encoding")
        plan.kind = self._read_content_type(fields.get(b"content-type", b""))
        plan.wants_json = plan.kind in (JSON, TEXT) or (
            plan.kind == RECORDS and b"application/json" in fields.get(b"accept", b"").lower())
        priority = fields.get(b"x-priority", b"low").lower()
        if priority not in (b"high", b"low"):
            raise ClientError(400, "invalid_field", "X-Priority must be high or low")
        plan.priority = HIGH if priority == b"high" else LOW
        deadline = fields.get(b"x-deadline-ms")
        if deadline is not None:
            matched = _DEADLINE.fullmatch(deadline)
            if not matched:
                raise ClientError(400, "invalid_field",
                                  "X-Deadline-ms must be a positive integer of milliseconds")
            plan.deadline_s = int(matched.group(1)) / 1000

    def _read_content_type(self, value: bytes) -> str:
        name, *parameters = value.split(b";")
        kind = CONTENT_TYPES.get(name.strip().lower())
        if kind is None or (kind == FILE and not self._has_records):
            raise ClientError(415, "unsupported_media_type", "send application/json, text/plain "
                              "or application/x-firebrick-records" + (
                                  " (this server was started without --records)" if kind else ""))
        for parameter in parameters:
            if parameter.strip().lower().startswith(b"charset") and not _UTF8.fullmatch(parameter):
                raise ClientError(415, "unsupported_media_type", "send the text as UTF-8")
        return kind


def _trace_id(head: Head) -> str:
    """The trace-id of a valid traceparent (W3C Trace Context 3.2.2), else X-Request-ID, else ""."""
    traceparent = head.fields.get(b"traceparent")
    if traceparent is not None:
        matched = _TRACEPARENT.fullmatch(traceparent)
        if matched and matched.group(1) != b"ff" and matched.group(2).strip(b"0") \
                and matched.group(3).strip(b"0") \
                and not (matched.group(1) == b"00" and matched.group(4)):
            return matched.group(2).decode()
    request_id = head.fields.get(b"x-request-id")
    if request_id is not None and _REQUEST_ID.fullmatch(request_id):
        return request_id.decode()
    return ""

"""What heads ask for: routes, methods, keys, origins, trace ids, content types, deadlines."""

import pytest

from server.http1 import Parser
from server.messages import HIGH, LOW
from server.routes import FILE, JSON, KNOWN_PLANS, RECORDS, TEXT, Routes

KEY = b"0123456789"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def head_of(method=b"POST", target=b"/infer", *fields, length=True):
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: 127.0.0.1:8000", *fields]
    if method == b"POST" and length:
        lines.append(b"Content-Length: 5")
    parser = Parser(100)
    parser.feed(b"\r\n".join(lines) + b"\r\n\r\n")
    return parser.next_event()


def plan_of(*arguments, keys=(), origins=(), has_records=True, **options):
    return Routes(keys, origins, has_records).plan(head_of(*arguments, **options))


def refusal_of(*arguments, **options):
    refusal = plan_of(*arguments, **options).refusal
    return (refusal.status, refusal.code) if refusal else None


@pytest.mark.parametrize("method,target,route,action,refusal", [
    (b"POST", b"/infer", "/infer", "infer", None),
    (b"POST", b"/infer?x=/healthz", "/infer", "infer", None),
    (b"GET", b"/healthz", "/healthz", "healthz", None),
    (b"HEAD", b"/readyz", "/readyz", "readyz", None),
    (b"GET", b"/in%66o", "/info", "info", None),
    (b"OPTIONS", b"/metrics", "/metrics", "options", None),
    (b"OPTIONS", b"*", "other", "options", None),
    (b"GET", b"/infer", "/infer", "refuse", (405, "method_not_allowed")),
    (b"POST", b"/healthz", "/healthz", "refuse", (405, "method_not_allowed")),
    (b"GET", b"/infer/", "other", "refuse", (404, "not_found")),
    (b"GET", b"/a%2Fb", "other", "refuse", (404, "not_found")),
    (b"GET", b"//healthz", "other", "refuse", (404, "not_found")),
    (b"GET", b"/", "/", "refuse", (404, "not_found")),
    (b"GET", b"/openapi.json", "/openapi.json", "refuse", (404, "not_found")),
    (b"TRACE", b"/infer", "/infer", "refuse", (501, "not_implemented")),
    (b"CONNECT", b"h:1", "other", "refuse", (501, "not_implemented")),
    (b"GET", b"/Healthz", "other", "refuse", (404, "not_found")),
])
def test_routes_method_and_path_give_route_and_refusal(method, target, route, action, refusal):
    plan = plan_of(method, target)
    assert (plan.route, plan.action) == (route, action)
    assert (plan.refusal and (plan.refusal.status, plan.refusal.code)) == refusal


def test_routes_405_and_options_say_what_is_allowed():
    assert plan_of(b"GET", b"/infer").refusal.headers["Allow"] == "POST, OPTIONS"
    assert plan_of(b"OPTIONS", b"/info").fields == b"Allow: GET, HEAD, OPTIONS\r\n"


@pytest.mark.parametrize("fields,is_let_in", [
    ((), False), ((b"Authorization: Bearer " + KEY,), True),
    ((b"authorization: bearer " + KEY,), True),
    ((b"X-API-Key: " + KEY,), True), ((b"X-API-Key: other",), False), ((b"X-API-Key:",), False),
    ((b"Authorization: Basic " + KEY,), False), ((b"Authorization: Bearer",), False),
    ((b"Authorization: Bearer " + KEY + b"1",), False),
    ((b"X-API-Key: " + KEY, b"X-API-Key: " + KEY), False),
], ids=str)
def test_routes_keys_are_required_where_there_are_some(fields, is_let_in):
    for method, target in ((b"POST", b"/infer"), (b"GET", b"/info")):
        refusal = plan_of(method, target, *fields, keys=(b"first", KEY)).refusal
        assert (refusal is None) == is_let_in
        assert is_let_in or (refusal.status, refusal.code, refusal.headers) == (
            401, "unauthorized", {"WWW-Authenticate": "Bearer"})
    for target in (b"/healthz", b"/readyz", b"/metrics"):
        assert refusal_of(b"GET", target, *fields, keys=(KEY,)) is None


@pytest.mark.parametrize("origin,refusal", [
    (b"http://127.0.0.1:8000", None), (b"HTTPS://127.0.0.1:8000", None), (b"http://127.0.0.1", 403),
    (b"http://evil.example", 403), (b"null", 403), (b"http://good.example", None),
    (b"http://127.0.0.1:8000, http://127.0.0.1:8000", 403),
], ids=lambda value: value.decode() if isinstance(value, bytes) else str(value))
def test_routes_foreign_origin_is_refused_everywhere(origin, refusal):
    for method, target in ((b"POST", b"/infer"), (b"GET", b"/healthz"), (b"OPTIONS", b"/infer")):
        plan = plan_of(method, target, b"Origin: " + origin, origins=("http://good.example",))
        assert (plan.refusal and plan.refusal.status) == refusal
        if not refusal:
            assert plan.fields.startswith(b"Access-Control-Allow-Origin: " + origin + b"\r\n")


def test_routes_preflight_of_an_allowed_origin_is_told_methods_and_headers():
    fields = plan_of(b"OPTIONS", b"/infer", b"Origin: http://good.example",
                     b"Access-Control-Request-Method: POST", origins=("http://good.example",),
                     keys=(KEY,)).fields
    assert b"Access-Control-Allow-Methods: POST, OPTIONS\r\n" in fields
    assert b"Access-Control-Allow-Headers: Content-Type, Authorization" in fields


@pytest.mark.parametrize("fields,trace_id", [
    ((), ""),
    ((f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01".encode(),), TRACE),
    ((f"traceparent: 01-{TRACE}-00f067aa0ba902b7-01-more".encode(),), TRACE),
    ((f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01-more".encode(),), ""),
    ((f"traceparent: ff-{TRACE}-00f067aa0ba902b7-01".encode(),), ""),
    ((f"traceparent: 00-{TRACE.upper()}-00f067aa0ba902b7-01".encode(),), ""),
    ((f"traceparent: 00-{'0' * 32}-00f067aa0ba902b7-01".encode(),), ""),
    ((f"traceparent: 00-{TRACE}-{'0' * 16}-01".encode(),), ""),
    ((b"X-Request-ID: r-1", f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01".encode()), TRACE),
    ((b"X-Request-ID: r-1", b"traceparent: nonsense"), "r-1"),
    ((b"X-Request-ID: " + b"r" * 128,), "r" * 128), ((b"X-Request-ID: " + b"r" * 129,), ""),
    ((b"X-Request-ID: a b",), ""), ((b"X-Request-ID: caf\xc3\xa9",), ""),
], ids=lambda value: None)
def test_routes_trace_id_is_the_valid_one_of_the_request(fields, trace_id):
    assert plan_of(b"POST", b"/infer", *fields).trace_id == trace_id
    assert plan_of(b"GET", b"/nothing", *fields).trace_id == trace_id


@pytest.mark.parametrize("value,kind", [
    (b"application/json", JSON), (b"Application/JSON; charset=UTF-8", JSON),
    (b"application/json;charset=\"utf-8\"", JSON), (b"application/x-www-form-urlencoded", JSON),
    (b"text/plain", TEXT), (b"text/plain; charset=us-ascii; format=flowed", TEXT),
    (b"application/x-firebrick-records", RECORDS), (b"application/x-firebrick-file", FILE),
    (b"text/plain; charset=latin-1", None), (b"text/html", None), (b"multipart/form-data", None),
    (b"application/json, text/plain", None),
], ids=str)
def test_routes_content_type_gives_the_kind_or_415(value, kind):
    plan = plan_of(b"POST", b"/infer", b"Content-Type: " + value)
    assert (plan.kind == kind) if kind else plan.refusal.status == 415
    assert plan_of(b"POST", b"/infer").kind == JSON


def test_routes_file_needs_the_folder():
    field = b"Content-Type: application/x-firebrick-file"
    assert refusal_of(b"POST", b"/infer", field, has_records=False)[0] == 415


def test_routes_records_are_answered_as_json_on_demand():
    records = b"Content-Type: application/x-firebrick-records"
    assert not plan_of(b"POST", b"/infer", records).wants_json
    assert not plan_of(b"POST", b"/infer", records, b"Accept: */*").wants_json
    assert plan_of(b"POST", b"/infer", records, b"Accept: text/html, Application/json").wants_json


@pytest.mark.parametrize("fields,expected", [
    ((b"X-Priority: high",), (HIGH, None)), ((b"X-Priority: LOW",), (LOW, None)), ((), (LOW, None)),
    ((b"X-Deadline-ms: 250",), (LOW, 0.25)), ((b"X-Deadline-ms: 007",), (LOW, 0.007)),
    ((b"X-Priority: urgent",), 400), ((b"X-Priority:",), 400), ((b"X-Priority: high, low",), 400),
    ((b"X-Deadline-ms: 0",), 400), ((b"X-Deadline-ms: -1",), 400), ((b"X-Deadline-ms: 1.5",), 400),
    ((b"X-Deadline-ms: \xc2\xb2",), 400), ((b"X-Deadline-ms:",), 400),
    ((b"X-Deadline-ms: 1" + b"0" * 30,), 400), ((b"Content-Encoding: gzip",), 415),
    ((b"Content-Encoding: identity",), (LOW, None)), ((b"Expect: 100-continue",), (LOW, None)),
    ((b"Expect: tea",), 417),
], ids=str)
def test_routes_infer_fields_are_read_or_refused(fields, expected):
    plan = plan_of(b"POST", b"/infer", *fields)
    if isinstance(expected, tuple):
        assert plan.refusal is None and (plan.priority, plan.deadline_s) == expected
    else:
        assert plan.refusal.status == expected and plan.action == "refuse"


def test_routes_post_without_length_is_411_and_closes():
    plan = plan_of(b"POST", b"/infer", length=False)
    assert plan.refusal.status == 411 and plan.refusal.close
    assert refusal_of(b"POST", b"/infer", b"Transfer-Encoding: chunked", length=False) is None


def test_routes_plans_are_remembered_by_head_and_bounded():
    routes = Routes((), (), False)
    head = head_of()
    assert routes.plan(head) is routes.plan(head)
    for _ in range(KNOWN_PLANS + 5):
        routes.plan(head_of())
    assert len(routes._known) <= KNOWN_PLANS

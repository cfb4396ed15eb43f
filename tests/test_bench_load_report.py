"""bench/load_report.py counts outcomes into figures, and says when the client was the limit."""

import json
import re

import pytest

from bench.load_report import Outcome, Run, as_json, as_prometheus, as_table, client_limits, summary


def run_of(outcomes: list[Outcome], **facts: object) -> Run:
    return Run(outcomes, **{"rps": 10.0, "duration_s": 10.0, "cpu_share": 0.1, **facts})


GOOD = [Outcome(0.0, 0.0, (i + 1) / 1000, 200, high=i % 4 == 0,
                bucket="16" if i < 50 else "128", server_ms=0.5) for i in range(100)]
REFUSED = Outcome(3.0, 3.0, 3.0001, 429)
LOST = Outcome(4.0, float("nan"), 9.0, 0, fault="ECONNREFUSED")
RETRIED = Outcome(5.0, 5.0, 7.0, 200, refused=1)


def test_load_report_latency_counts_from_the_plan_and_only_of_2xx():
    facts = summary(run_of([*GOOD, REFUSED, LOST]))
    whole = facts["latency_ms"]["all"]
    assert (whole["count"], whole["p50"], whole["p99"], whole["p100"]) == (100, 50, 99, 100)
    assert facts["latency_ms_by_bucket"]["16"]["p100"] == 50
    assert list(facts["latency_ms_by_bucket"]) == ["16", "128"]
    assert facts["latency_ms_by_priority"]["high"]["count"] == 25
    assert facts["server_ms"]["p99"] == 0.5


def test_load_report_every_outcome_is_counted_once():
    facts = summary(run_of([*GOOD, REFUSED, LOST, RETRIED]))
    assert facts["planned"] == 103
    assert facts["statuses"] == {"200": 101, "429": 1}
    assert facts["faults"] == {"ECONNREFUSED": 1}
    assert (facts["refusals_obeyed"], facts["retried"], facts["retried_ok"]) == (1, 1, 1)


def test_load_report_goodput_leaves_out_what_missed_its_deadline():
    facts = summary(run_of([*GOOD, REFUSED], deadline_ms=30))
    assert facts["in_time"] == 30
    assert facts["goodput_rps"] == 3


def test_load_report_goodput_counts_the_time_that_a_queue_took_afterwards():
    assert summary(run_of(GOOD, took_s=20.0))["goodput_rps"] == 5


@pytest.mark.parametrize("outcomes, facts, words", [
    (GOOD, {"cpu_share": 0.95}, "95% of a core"),
    (GOOD, {"starved": 3, "connections": 8}, "3 requests waited .* above 8"),
    ([*GOOD, *[Outcome(1.0, 1.02, 1.03, 200)] * 5], {}, "5 of 105 requests were sent more"),
])
def test_load_report_client_that_was_the_limit_is_said_in_the_table(outcomes, facts, words):
    assert re.search("the client was the limit: .*" + words, as_table(run_of(outcomes, **facts)))


def test_load_report_client_that_kept_up_is_not_blamed():
    assert client_limits(run_of(GOOD)) == []
    assert "limit" not in as_table(run_of(GOOD))


def test_load_report_json_is_one_line_without_nan():
    text = as_json(run_of([REFUSED, LOST]))
    assert text.count("\n") == 1
    assert json.loads(text, parse_constant=pytest.fail)["statuses"] == {"429": 1}


def test_load_report_prometheus_has_a_type_before_each_name_and_no_sample_twice():
    lines = as_prometheus(run_of([*GOOD, REFUSED, LOST, RETRIED])).splitlines()
    typed, seen = set(), set()
    for line in lines:
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        else:
            found = re.fullmatch(r'(\w+)(\{\w+="[^"]+"(,\w+="[^"]+")*\})? [-+.e\d]+', line)
            assert found and found.group(1) in typed
            seen.add(line.rsplit(" ", 1)[0])
    assert len(seen) == sum(not line.startswith("#") for line in lines)
    assert 'firebrick_load_latency_seconds{bucket="16",percentile="100"} 0.05' in lines


def test_load_report_run_without_requests_renders():
    for render in (as_json, as_table, as_prometheus):
        assert render(run_of([]))

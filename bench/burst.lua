-- Classify real texts in bursts: all connections at full speed, then silence, all at once again:
--   wrk -t2 -c256 -d10s -s bench/burst.lua http://127.0.0.1:8000 -- [FILE] [BURST_MS] [EVERY_MS]
-- FILE holds texts as for post.lua; a burst lasts 200 ms and begins every 1000 ms unless told
-- otherwise, and begins for all threads together. What is under way at its end is still answered.
-- Printed at the end: what post.lua prints; a pause is no part of any latency.

package.path = debug.getinfo(1, "S").source:match("^@(.*/)") .. "?.lua;" .. package.path
local ffi = require("ffi")
local texts = require("wrk_texts")
local answers = require("wrk_answers")

ffi.cdef("typedef struct { long s, ns; } load_time; int clock_gettime(int, load_time *);")
local MONOTONIC = 1

local requests = {}
local now = ffi.new("load_time")
local burst_ms, every_ms = 200, 1000

setup = answers.setup
response = answers.count_by_bucket

function init(args)
  burst_ms, every_ms = tonumber(args[2]) or burst_ms, tonumber(args[3]) or every_ms
  requests = texts.requests(args[1])
  math.randomseed(7919 * number)
end

-- Milliseconds that a connection waits before its next request.
function delay()
  ffi.C.clock_gettime(MONOTONIC, now)
  local into = (tonumber(now.s) * 1000 + tonumber(now.ns) / 1e6) % every_ms
  return into < burst_ms and 0 or math.ceil(every_ms - into)
end

function request()
  return requests[math.random(#requests)]
end

function done(summary, latency)
  answers.report(summary, latency, "X-Bucket")
end

-- Classify real texts, one a request:
--   wrk -t2 -c32 -d10s -s bench/post.lua http://127.0.0.1:8000 -- [FILE]
-- FILE holds one text a line, the last of its tab-separated columns; without it
-- data/sms-spam/eval.tsv is used. Texts are drawn at random with a seed of their own a thread.
-- Printed at the end: percentiles of the whole round trip (wrk) and of the server's own
-- X-Latency-ms, the latter also by X-Bucket, and how often each status other than 2xx was answered.

package.path = debug.getinfo(1, "S").source:match("^@(.*/)") .. "?.lua;" .. package.path
local texts = require("wrk_texts")
local answers = require("wrk_answers")

local requests = {}

setup = answers.setup
response = answers.count_by_bucket

function init(args)
  requests = texts.requests(args[1])
  math.randomseed(7919 * number)
end

function request()
  return requests[math.random(#requests)]
end

function done(summary, latency)
  answers.report(summary, latency, "X-Bucket")
end

-- As post.lua, but wrk looks at nothing of an answer but its status:
--   wrk -t2 -c32 -d10s -s bench/rate.lua http://127.0.0.1:8000 -- [FILE]
-- It shares its cores with the server, and a third of its time went into fields of answers.
-- Printed at the end: percentiles of the whole round trip, and how many answers were 400 or above.

package.path = debug.getinfo(1, "S").source:match("^@(.*/)") .. "?.lua;" .. package.path
local texts = require("wrk_texts")
local answers = require("wrk_answers")

local requests = {}

setup = answers.setup

function init(args)
  requests = texts.requests(args[1])
  math.randomseed(7919 * number)
end

function request()
  return requests[math.random(#requests)]
end

function done(summary, latency)
  answers.report_trips(summary, latency)
  local bad = summary.errors.status
  answers.report_end(summary, summary.requests, bad == 0 and " 0" or " 400 or above: " .. bad)
end

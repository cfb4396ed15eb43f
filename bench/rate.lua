-- As post.lua, but wrk looks at nothing of an answer but its status:
--   wrk -t2 -c32 -d10s -s bench/rate.lua http://127.0.0.1:8000 -- [FILE]
-- It shares its cores with the server, and a third of its time went into fields of answers.
-- Printed at the end: percentiles of the whole round trip, and how many answers were 400 or above.

dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "post.lua")
local answers = require("wrk_answers")

response = nil

function done(summary, latency)
  answers.report_trips(summary, latency)
  local bad = summary.errors.status
  answers.report_end(summary, summary.requests, bad == 0 and " 0" or " 400 or above: " .. bad)
end

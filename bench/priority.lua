-- Classify real texts, 15 % of them with X-Priority: high:
--   wrk -t2 -c32 -d10s -s bench/priority.lua http://127.0.0.1:8000 -- [FILE]
-- FILE holds texts as for post.lua. Printed at the end: what post.lua prints, with X-Latency-ms by
-- priority in place of the bucket. An answer tells its priority by X-Trace-Id, which repeats the
-- X-Request-ID that was sent.

package.path = debug.getinfo(1, "S").source:match("^@(.*/)") .. "?.lua;" .. package.path
local texts = require("wrk_texts")
local answers = require("wrk_answers")

local HIGH_SHARE = 0.15

local requests = { high = {}, low = {} }

setup = answers.setup

function init(args)
  for _, text in ipairs(texts.read(args[1])) do
    for priority, made in pairs(requests) do
      local headers = { ["X-Priority"] = priority, ["X-Request-ID"] = priority }
      table.insert(made, texts.post(texts.json_body(text), "application/json", headers))
    end
  end
  math.randomseed(7919 * number)
end

function request()
  local made = math.random() < HIGH_SHARE and requests.high or requests.low
  return made[math.random(#made)]
end

function response(status, headers)
  answers.count(status, headers, headers["X-Trace-Id"])
end

function done(summary, latency)
  answers.report(summary, latency, "priority")
end

-- Classify texts of mixed lengths, 82 % to 128 tokens, 15 % to 512 and 3 % longer:
--   wrk -t2 -c32 -d10s -s bench/profile.lua http://127.0.0.1:8000 -- [FILE]
-- FILE holds texts as for post.lua; the long ones are joined of several. Bytes stand for tokens,
-- some three to four in English, with the bounds kept clear of where tokenisers differ.
-- Printed at the end: what post.lua prints; see there how lengths fell by X-Bucket.

package.path = debug.getinfo(1, "S").source:match("^@(.*/)") .. "?.lua;" .. package.path
local texts = require("wrk_texts")
local answers = require("wrk_answers")

-- Of a thread's requests so many have from `least` to `most` bytes.
local BANDS = {
  { count = 820, least = 1, most = 320 },
  { count = 75, least = 640, most = 960 },
  { count = 75, least = 1100, most = 1500 },
  { count = 30, least = 2600, most = 5200 },
}

local requests = {}

setup = answers.setup
response = answers.count_by_bucket

function init(args)
  math.randomseed(7919 * number)
  local found = texts.read(args[1])
  for _, band in ipairs(BANDS) do
    for _ = 1, band.count do
      local text = texts.draw(found, band.least, band.most)
      table.insert(requests, texts.post(texts.json_body(text), "application/json"))
    end
  end
end

function request()
  return requests[math.random(#requests)]
end

function done(summary, latency)
  answers.report(summary, latency, "X-Bucket")
end

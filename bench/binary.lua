-- Classify real texts as binary records, so many a request:
--   wrk -t2 -c32 -d10s -s bench/binary.lua http://127.0.0.1:8000 -- [FILE] [RECORDS]
-- FILE holds texts as for post.lua; RECORDS is 1 unless told otherwise.
-- Printed at the end: what post.lua prints, and of the records in all answers how many there were
-- and how many have a status other than 0.

package.path = debug.getinfo(1, "S").source:match("^@(.*/)") .. "?.lua;" .. package.path
local texts = require("wrk_texts")
local answers = require("wrk_answers")

local POOL = 500 -- requests a thread
local KIND = "application/x-firebrick-records"
local ANSWER_BYTES = 16 -- u64 user_id, f32 score, u16 label, u16 status

local requests = {}
record_count = 0
failed_count = 0

setup = answers.setup

function init(args)
  math.randomseed(7919 * number)
  local found, size = texts.read(args[1]), tonumber(args[2]) or 1
  for _ = 1, POOL do
    local records = {}
    for place = 1, size do
      records[place] = texts.record(found[math.random(#found)], place)
    end
    table.insert(requests, texts.post(table.concat(records), KIND))
  end
end

function request()
  return requests[math.random(#requests)]
end

function response(status, headers, body)
  answers.count_by_bucket(status, headers)
  if status == 200 then
    record_count = record_count + #body / ANSWER_BYTES
    for last = ANSWER_BYTES, #body, ANSWER_BYTES do
      if body:byte(last - 1) + body:byte(last) > 0 then
        failed_count = failed_count + 1
      end
    end
  end
end

function done(summary, latency)
  answers.report(summary, latency, "X-Bucket")
  print(string.format("records/s %.1f, %d with a status other than 0",
    answers.total("record_count") / (summary.duration / 1e6), answers.total("failed_count")))
end

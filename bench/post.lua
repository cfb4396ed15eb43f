-- Classify real texts, one a request:
--   wrk -t2 -c32 -d10s -s bench/post.lua http://127.0.0.1:8000 -- [FILE]
-- FILE holds one text a line, the last of its tab-separated columns; without it
-- data/sms-spam/eval.tsv is used. Texts are drawn at random with a seed of their own a thread.
-- Printed at the end: percentiles of the whole round trip (wrk) and of the server's own
-- X-Latency-ms, and how often each status other than 2xx was answered.

local DEFAULT_FILE = "data/sms-spam/eval.tsv"
local ROUTE = "/infer"
local STEP = math.log(1.01) -- X-Latency-ms is counted in classes that are 1 % wide
local PERCENTS = { 50, 75, 90, 99, 99.9 }

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\" }
local threads = {}
local requests = {}

local function json_string(text)
  return '"' .. text:gsub('[%z\1-\31"\\\127]', function(char)
    return ESCAPES[char] or string.format("\\u%04x", char:byte())
  end) .. '"'
end

local function stop(why)
  io.stderr:write("post.lua: ", why, "\n")
  os.exit(2)
end

function setup(thread)
  thread:set("number", #threads + 1)
  table.insert(threads, thread)
end

-- These globals are read by done() through thread:get; each thread has its own.
latency_counts = {}
status_counts = {}
answers = 0

function init(args)
  local name = args[1] or DEFAULT_FILE
  local file, why = io.open(name, "rb")
  if not file then
    stop(why .. "; name a file of texts after --")
  end
  local path = wrk.path == "/" and ROUTE or wrk.path
  local headers = { ["Content-Type"] = "application/json" }
  for name, value in pairs(wrk.headers) do
    headers[name] = value
  end
  for line in file:lines() do
    local text = line:gsub("\r$", ""):match("([^\t]*)$")
    if text ~= "" then
      local body = '{"text": ' .. json_string(text) .. "}"
      table.insert(requests, wrk.format("POST", path, headers, body))
    end
  end
  file:close()
  if #requests == 0 then
    stop("no texts in " .. name)
  end
  math.randomseed(7919 * number)
end

function request()
  return requests[math.random(#requests)]
end

function response(status, headers)
  answers = answers + 1
  if status < 200 or status > 299 then
    local key = tostring(status)
    status_counts[key] = (status_counts[key] or 0) + 1
  end
  local latency_ms = tonumber(headers["X-Latency-ms"])
  if latency_ms then
    local class = math.floor(math.log(math.max(latency_ms, 0.001)) / STEP)
    latency_counts[class] = (latency_counts[class] or 0) + 1
  end
end

local function merge(field)
  local merged = {}
  for _, thread in ipairs(threads) do
    for key, count in pairs(thread:get(field)) do
      merged[key] = (merged[key] or 0) + count
    end
  end
  return merged
end

local function sorted_keys(counts)
  local keys = {}
  for key in pairs(counts) do
    table.insert(keys, key)
  end
  table.sort(keys)
  return keys
end

local function class_percentile(counts, keys, total, percent)
  local seen = 0
  for _, class in ipairs(keys) do
    seen = seen + counts[class]
    if seen >= total * percent / 100 then
      return math.exp((class + 0.5) * STEP)
    end
  end
  return 0
end

function done(summary, latency)
  local counts = merge("latency_counts")
  local keys, total = sorted_keys(counts), 0
  for _, count in pairs(counts) do
    total = total + count
  end
  local heads, trips, own = "", "", ""
  for _, percent in ipairs(PERCENTS) do
    heads = heads .. string.format("%10s", "p" .. percent)
    trips = trips .. string.format("%10.3f", latency:percentile(percent) / 1000)
    own = own .. string.format("%10.3f", class_percentile(counts, keys, total, percent))
  end
  print(string.format("requests/s %.1f", summary.requests / (summary.duration / 1e6)))
  print("ms           " .. heads)
  print("round trip   " .. trips)
  if total > 0 then
    print("X-Latency-ms " .. own)
  else
    print("X-Latency-ms  on no response")
  end
  local statuses, answered = merge("status_counts"), 0
  for _, thread in ipairs(threads) do
    answered = answered + thread:get("answers")
  end
  local others = ""
  for _, status in ipairs(sorted_keys(statuses)) do
    others = others .. string.format(" %s: %d", status, statuses[status])
  end
  print(string.format("%d responses, other than 2xx:%s", answered, others == "" and " 0" or others))
  local errors = summary.errors
  print(string.format("socket errors: connect %d, read %d, write %d, timeout %d",
    errors.connect, errors.read, errors.write, errors.timeout))
end

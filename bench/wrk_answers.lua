-- For the wrk scripts beside it: counts the answers by group and status, and prints the report.

local answers = {}

local STEP = math.log(1.01) -- X-Latency-ms is counted in classes that are 1 % wide
local PERCENTS = { 50, 75, 90, 99, 99.9 }

local threads = {}

-- wrk calls this for each thread; `number` becomes that thread's own global.
function answers.setup(thread)
  thread:set("number", #threads + 1)
  table.insert(threads, thread)
end

-- Globals, because done() can only read those of another thread, through thread:get, which copies
-- flat tables only: latencies are counted by "class group".
latency_counts = {}
status_counts = {}
answer_count = 0

-- Counts one answer; `group` is what its latency is listed under besides the whole.
function answers.count(status, headers, group)
  answer_count = answer_count + 1
  if status < 200 or status > 299 then
    local key = tostring(status)
    status_counts[key] = (status_counts[key] or 0) + 1
  end
  local latency_ms = tonumber(headers["X-Latency-ms"])
  if latency_ms then
    local class = math.floor(math.log(math.max(latency_ms, 0.001)) / STEP)
    local key = class .. " " .. (group or "")
    latency_counts[key] = (latency_counts[key] or 0) + 1
  end
end

-- Counts one answer under its length bucket; what was refused has none.
function answers.count_by_bucket(status, headers)
  answers.count(status, headers, headers["X-Bucket"])
end

-- The sum of a number that every thread counts in a global.
function answers.total(field)
  local total = 0
  for _, thread in ipairs(threads) do
    total = total + thread:get(field)
  end
  return total
end

local function add(into, key, count)
  into[key] = (into[key] or 0) + count
end

local function sorted_keys(counts)
  local keys = {}
  for key in pairs(counts) do
    table.insert(keys, key)
  end
  table.sort(keys, function(one, other)
    return (tonumber(one) or 0) < (tonumber(other) or 0)
      or tonumber(one) == tonumber(other) and tostring(one) < tostring(other)
  end)
  return keys
end

local function sum(counts)
  local total = 0
  for _, count in pairs(counts) do
    total = total + count
  end
  return total
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

local function percentiles_line(counts)
  local keys, total, line = sorted_keys(counts), sum(counts), ""
  for _, percent in ipairs(PERCENTS) do
    line = line .. string.format("%10.3f", class_percentile(counts, keys, total, percent))
  end
  return line
end

-- Prints the rate and percentiles of the round trip.
function answers.report_trips(summary, latency)
  local heads, trips = "", ""
  for _, percent in ipairs(PERCENTS) do
    heads = heads .. string.format("%10s", "p" .. percent)
    trips = trips .. string.format("%10.3f", latency:percentile(percent) / 1000)
  end
  print(string.format("requests/s %.1f", summary.requests / (summary.duration / 1e6)))
  print("ms           " .. heads)
  print("round trip   " .. trips)
end

-- Prints how many answers came, those other than 2xx as `others` says, and wrk's own errors.
function answers.report_end(summary, count, others)
  print(string.format("%d responses, other than 2xx:%s", count, others))
  local errors = summary.errors
  print(string.format("socket errors: connect %d, read %d, write %d, timeout %d",
    errors.connect, errors.read, errors.write, errors.timeout))
end

-- Prints percentiles of the round trip and of X-Latency-ms, the latter also by group under
-- `title`, every status other than 2xx, and wrk's own errors.
function answers.report(summary, latency, title)
  local whole, groups, statuses = {}, {}, {}
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("status_counts")) do
      add(statuses, status, count)
    end
    for key, count in pairs(thread:get("latency_counts")) do
      local class, group = key:match("^(%S+) (.*)$")
      groups[group] = groups[group] or {}
      add(groups[group], tonumber(class), count)
      add(whole, tonumber(class), count)
    end
  end
  answers.report_trips(summary, latency)
  print("X-Latency-ms " .. (next(whole) and percentiles_line(whole) or " on no response"))
  for _, group in ipairs(sorted_keys(groups)) do
    if group ~= "" then
      print(string.format("%s %-4s%s  of %d", title, group, percentiles_line(groups[group]),
        sum(groups[group])))
    end
  end
  local others = ""
  for _, status in ipairs(sorted_keys(statuses)) do
    others = others .. string.format(" %s: %d", status, statuses[status])
  end
  answers.report_end(summary, answers.total("answer_count"), others == "" and " 0" or others)
end

return answers

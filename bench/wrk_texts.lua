-- For the wrk scripts beside it: real texts, and whole requests made of them.

local texts = {}

local DEFAULT_FILE = "data/sms-spam/eval.tsv"
local ROUTE = "/infer"
local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\" }

-- Ends wrk with one sentence on stderr.
function texts.stop(why)
  io.stderr:write(why, "\n")
  os.exit(2)
end

-- Reads one text a line, the last of its tab-separated columns; empty ones are left out.
function texts.read(name)
  name = name or DEFAULT_FILE
  local file, why = io.open(name, "rb")
  if not file then
    texts.stop(why .. "; name a file of texts after --")
  end
  local found = {}
  for line in file:lines() do
    local text = line:gsub("\r$", ""):match("([^\t]*)$")
    if text ~= "" then
      table.insert(found, text)
    end
  end
  file:close()
  if #found == 0 then
    texts.stop("no texts in " .. name)
  end
  return found
end

-- One text of at least `least` and at most `most` bytes, drawn from `found` and, where one is too
-- short, joined of several with blanks between.
function texts.draw(found, least, most)
  while true do
    local parts, size = {}, 0
    while size < least do
      local text = found[math.random(#found)]
      table.insert(parts, text)
      size = size + #text + (#parts > 1 and 1 or 0)
    end
    if size <= most then
      return table.concat(parts, " ")
    end
  end
end

function texts.json_body(text)
  return '{"text": "' .. text:gsub('[%z\1-\31"\\\127]', function(char)
    return ESCAPES[char] or string.format("\\u%04x", char:byte())
  end) .. '"}'
end

local function little_endian(value, bytes)
  local digits = {}
  for place = 1, bytes do
    digits[place] = string.char(value % 256)
    value = math.floor(value / 256)
  end
  return table.concat(digits)
end

-- One record of application/x-firebrick-records.
function texts.record(text, user_id)
  return little_endian(#text, 4) .. text .. little_endian(user_id, 8)
end

-- A whole request; wrk's own -H headers and the URL's path, where it has one, are kept.
function texts.post(body, kind, more)
  local headers = { ["Content-Type"] = kind }
  for _, group in ipairs({ more or {}, wrk.headers }) do
    for name, value in pairs(group) do
      headers[name] = value
    end
  end
  return wrk.format("POST", wrk.path == "/" and ROUTE or wrk.path, headers, body)
end

-- Whole requests, one for each text of a file.
function texts.requests(name)
  local requests = {}
  for _, text in ipairs(texts.read(name)) do
    table.insert(requests, texts.post(texts.json_body(text), "application/json"))
  end
  return requests
end

return texts

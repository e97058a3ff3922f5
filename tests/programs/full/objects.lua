-- Tables and strings: built, changed, dropped, looked up in another order. For LuaJIT, which makes code as it goes. Argument: scale.
local scale = tonumber(arg[1] or "1")
local count = 200000 * scale
local points = {}
for i = 1, count do points[i] = {n = i, name = "point-" .. (i * 7919 % count), more = {i, i * 2, "text-" .. i}} end
local sum = 0
for i = 1, count do sum = sum + points[i].more[2] end
print(string.format("%.0f", sum))
local index, names = {}, 0
for i = 1, count do
  local name = points[i].name
  if not index[name] then index[name] = {}; names = names + 1 end
  table.insert(index[name], i)
end
print(names)
for i = 1, count, 3 do points[i] = nil end
collectgarbage()
for i = 1, count, 3 do points[i] = {n = i + 1, name = "again-" .. i, more = {i, i, ""}} end
local x, total = 12345, 0
for _ = 1, 300000 do
  x = (x * 1103515 + 12345) % 2147483648
  local point = points[x % count + 1]
  total = total + #point.name + point.more[2]
end
print(string.format("%.0f", total))
local sorted = {}
for name in pairs(index) do sorted[#sorted + 1] = name end
table.sort(sorted)
local hash = 0
for _, name in ipairs(sorted) do
  for i = 1, #name do hash = (hash * 31 + name:byte(i)) % 1000000007 end
end
print(hash)
local pieces = {}
for i = 1, count do pieces[i] = string.format("%d:%s", i, points[i].name) end
local text = table.concat(pieces, ",")
print(#text, (select(2, text:gsub("again", "more"))))

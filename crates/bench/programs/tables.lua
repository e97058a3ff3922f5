-- Tables of LuaJIT: made, walked, looked up in another order, changed. With one argument, how many.
local n = tonumber(arg[1])
local records, index, sum = {}, {}, 0
for i = 1, n do
    records[i] = { i, "record " .. i, weight = i * 7 % 1000 }
end
for i = 1, n do
    sum = sum + records[i].weight + #records[i][2]
end
for i = 1, n do
    index["key " .. (i * 7919 % n)] = records[i]
end
for i = 1, n, 3 do
    local record = index["key " .. i]
    if record then
        sum = sum + record[1]
        record.weight = record.weight + 1
    end
end
for i = n, 1, -1 do
    sum = sum + records[i].weight
end
print(n, sum)

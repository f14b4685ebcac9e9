-- inspect: Says of a Group's items whether they are what the store wrote; of a halted Group too.
-- keys: the partition's @meta
-- args: replid group item ...
-- bound: 256 items
-- flags: no-writes
-- refusals: STORE_CHANGED GROUP_NOT_FOUND
-- events: none
--
-- The reply: envelope, a word an item: sound, damaged or gone.
T.calls.inspect = function(keys, a)
  local S, refused, G = T.at_group(keys, a)
  if refused then return refused end
  local words = {}
  for i = 3, math.min(#a, 258) do
    local it = T.inspected(S, G, a[i])
    words[#words + 1] = it and 'sound' or G.bad and 'damaged' or 'gone'
  end
  return { T.envelope(S), table.concat(words, ' ') }
end

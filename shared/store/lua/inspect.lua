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
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  T.load(S, { a[2] })
  local G, words = S.groups[a[2]], {}
  if not G then return T.refuse('GROUP_NOT_FOUND', 'group=' .. a[2]) end
  for i = 3, math.min(#a, 258) do
    G.bad = nil
    local it = T.item(S, G, a[i])
    words[#words + 1] = it and 'sound' or G.bad and 'damaged' or 'gone'
  end
  return { T.envelope(S), table.concat(words, ' ') }
end

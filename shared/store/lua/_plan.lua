-- New WorkItems as a call brings them.

-- Arguments of one item: item capability width urgency impact deadline start_by_s not_before retry digest after inputs contract.
T.ITEM_FIELDS = 13

-- Plans the item whose arguments begin at `i`, and offers it where it waits for nothing.
function T.add_item(S, G, a, i)
  local it = T.new_item(G, a[i])
  T.put(it, 'cap', a[i + 1])
  T.put(it, 'st', 'open')
  if a[i + 2] ~= '1' then T.put(it, 'w', a[i + 2]) end
  if a[i + 3] ~= 'normal' then T.put(it, 'urg', a[i + 3]) end
  if a[i + 4] ~= '0' then T.put(it, 'imp', a[i + 4]) end
  if a[i + 6] ~= '60' then T.put(it, 'sb', a[i + 6]) end
  T.put_body(S, G, it, 'in', a[i + 11])
  if a[i + 12] ~= '' then T.put(it, 'ct', a[i + 12]) end
  T.emit(S, G, 'work.authorized', it.id, G.actor, { a[i + 1], a[i + 2], '0' })
  G.ids[#G.ids + 1] = it.id
  G.count.total = G.count.total + 1
  G.count.live = G.count.live + 1
  T.offer(S, G, it, 'created')
end

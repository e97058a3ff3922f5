# Objects, strings and hashes of Ruby: made, grouped, sorted, changed. With one argument, how many.
Item = Struct.new(:number, :name, :parts)
count = ARGV.fetch(0).to_i
items = (1..count).map { |i| Item.new(i, "item #{i * 2_654_435_761 % 4_294_967_296}", [i, i * 7 % 1001]) }
groups = items.group_by { |item| item.number * 31 % 1009 }
sum = groups.sum { |key, group| key * group.sum { |item| item.parts[1] } }
ordered = items.sort_by(&:name)
ordered.each_with_index { |item, i| item.parts << i if i % 4 == 0 }
names = ordered.to_h { |item| [item.name, item] }
sum += (1..count).step(3).sum { |i| names.fetch("item #{i * 2_654_435_761 % 4_294_967_296}").parts.size }
puts "#{count} #{sum}"

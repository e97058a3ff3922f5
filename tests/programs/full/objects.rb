# Hashes, arrays and strings: built, changed, dropped, looked up in another order, and compacted. Prints sums. Argument: scale.
require 'digest'
scale = ARGV[0].to_i
Point = Struct.new(:n, :name, :more)
count = 150_000 * scale
points = {}
count.times { |i| points[i] = Point.new(i, "point-#{i * 7919 % count}", [i, i * 2, "text-#{i}"]) }
puts points.each_value.sum { |p| p.more[1] }
index = Hash.new { |h, k| h[k] = [] }
points.each { |i, p| index[p.name] << i }
puts index.size
(0...count).step(3) { |i| points.delete(i) }
GC.start
GC.compact
(0...count).step(3) { |i| points[i] = Point.new(i + 1, "again-#{i}", [i]) }
x = 12_345
total = 0
200_000.times do
  x = (x * 1_103_515_245 + 12_345) % (1 << 31)
  total += points[x % count].name.size + points[x % count].n
end
puts total
digest = Digest::SHA256.new
(0...count).each { |i| digest << points[i].to_a.inspect }
puts digest.hexdigest
puts Digest::SHA256.hexdigest(index.keys.sort.join(','))
threads = 3.times.map { |t| Thread.new { (0...100_000).map { |i| "#{t}-#{i}".hash & 1; "#{t}-#{i}" }.sort.last } }
puts threads.map(&:value)
child = fork { exit!(points[count / 2].name.size) }
puts Process.wait2(child)[1].exitstatus
puts Marshal.load(Marshal.dump(points.first(20_000))).size

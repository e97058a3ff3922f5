% GNU Octave: matrices, sorting, strings, cells and structures. Argument: scale.
scale = str2double(argv(){1});
rand("twister", 7);
n = 900 * scale;
a = rand(n * 4, n);
printf("%.6f\n", sum(sort(a(:))(1:1000:end)));
b = a' * a;
printf("%.4f %.4f\n", trace(b), norm(b \ ones(n, 1)));
c = cell(1, 40000 * scale);
for i = 1:numel(c) c{i} = sprintf("name %d", mod(i * 7919, 100003)); end
[u, ~, j] = unique(c);
printf("%d %d %s\n", numel(u), sum(j), u{end});
s = struct("k", num2cell(1:20000 * scale));
printf("%d\n", sum([s.k]));
d = cumsum(single(a), 2);
printf("%.1f\n", double(sum(d(:, end))));

# clang++ compiles and links a program of many templates. Argument: scale.
set -e
{
    echo '#include <map>'; echo '#include <string>'; echo '#include <vector>'; echo '#include <algorithm>'; echo '#include <cstdio>'; echo '#include <regex>'
    awk -v n=$((60 * $1)) 'BEGIN { for (i = 0; i < n; i++) printf "template<int N> struct S%d { std::map<int, std::vector<std::string>> m; int f(int x) { m[x + N].push_back(std::to_string(x)); return (int)m.size() + (N ? S%d<(N > 0 ? N - 1 : 0)>().f(x) : 0); } };\n", i, i; print "int main() { int sum = 0;"; for (i = 0; i < n; i++) printf "sum += S%d<6>().f(%d);\n", i, i; print "std::printf(\"%d\\n\", sum); }" }'
} > templates.cpp
clang++ -O1 -g0 -o templates templates.cpp
./templates

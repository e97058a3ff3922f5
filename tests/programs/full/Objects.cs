// C# under Mono: objects, dictionaries, threads that allocate. Argument: scale.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;
class Objects {
    class Node { public int Key; public string Name; public Node Next; }
    static long Work(int part, int n) {
        var table = new Dictionary<string, Node>();
        Node last = null;
        for (int i = 0; i < n; i++) {
            int key = (int)((long)i * 7919 % 1000003) + part;
            last = new Node { Key = key, Name = "name " + key, Next = i % 100 == 0 ? null : last };
            table[last.Name] = last;
        }
        return table.Values.OrderBy(x => x.Name, StringComparer.Ordinal).Aggregate(0L, (sum, x) => (sum * 31 + x.Key + (x.Next?.Key ?? 0)) % 1000000007);
    }
    static void Main(string[] args) {
        int n = 250000 * int.Parse(args[0]);
        var sums = Enumerable.Range(0, 4).AsParallel().AsOrdered().Select(part => Work(part, n)).ToArray();
        Console.WriteLine(string.Join(" ", sums));
    }
}

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Objects that live long, garbage among them, and arrays; in several threads. Prints sums. Argument: scale. */
public class Objects {
    record Item(int id, String name, long[] values) {}

    static long work(int part, int count) {
        Map<String, Item> map = new HashMap<>();
        List<Item> list = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            long[] values = new long[16 + i % 16];
            for (int j = 0; j < values.length; j++) values[j] = (long) i * j + part;
            Item item = new Item(i, "item-" + part + "-" + i, values);
            map.put(item.name(), item);
            if (i % 3 == 0) list.add(item);
        }
        long sum = 0;
        int x = part + 1;
        for (int i = 0; i < 300_000; i++) {
            x = x * 1103515245 + 12345;
            Item item = map.get("item-" + part + "-" + Math.floorMod(x, count));
            sum += item.values()[i % 16] + item.name().length();
        }
        for (int i = 0; i < count; i += 2) map.remove("item-" + part + "-" + i);
        TreeMap<String, Integer> sorted = new TreeMap<>();
        for (Item item : map.values()) sorted.put(item.name(), item.id());
        for (Item item : list) sum = sum * 31 + item.values()[7] + item.id();
        for (Map.Entry<String, Integer> e : sorted.entrySet()) sum = sum * 31 + e.getKey().hashCode() + e.getValue();
        return sum;
    }

    public static void main(String[] args) throws Exception {
        int scale = Integer.parseInt(args[0]);
        long[] sums = new long[2];
        Thread[] threads = new Thread[sums.length];
        for (int t = 0; t < threads.length; t++) {
            int part = t;
            threads[t] = new Thread(() -> sums[part] = work(part, 120_000 * scale));
            threads[t].start();
        }
        for (Thread t : threads) t.join();
        for (long sum : sums) System.out.println(sum);
        try {
            long[][] tooMuch = new long[1 << 20][];
            for (int i = 0; i < tooMuch.length; i++) tooMuch[i] = new long[1 << 20];
            System.out.println("unlimited");
        } catch (OutOfMemoryError e) {
            System.out.println("heap is full");
        }
        String nothing = args.length > 5 ? "" : null;
        try {
            System.out.println(nothing.length());
        } catch (NullPointerException e) {
            // HotSpot finds this by a fault at a small address.
            System.out.println("null found");
        }
    }
}

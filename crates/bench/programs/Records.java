import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Records in lists and maps that live long, with garbage among them. Prints sums. Argument: count. */
public class Records {
    static final class Entry {
        final String name;
        final int[] values;
        long total;

        Entry(int n) {
            name = "record " + n + " of section " + n % 127;
            values = new int[24];
            for (int i = 0; i < values.length; i++) values[i] = n + i;
        }
    }

    static int state = 521288629;

    static int below(int bound) {
        state ^= state << 13;
        state ^= state >>> 17;
        state ^= state << 5;
        return Integer.remainderUnsigned(state, bound);
    }

    public static void main(String[] args) {
        int count = Integer.parseInt(args[0]);
        List<Entry> entries = new ArrayList<>();
        Map<String, Entry> byName = new HashMap<>();
        for (int n = 0; n < count; n++) {
            Entry entry = new Entry(n);
            entries.add(entry);
            byName.put(entry.name, entry);
        }
        // Nine of ten look-ups fall on the newest tenth of the records; each leaves garbage.
        for (int i = 0; i < 6 * count; i++) {
            int n = below(10) > 0 ? count - 1 - below(count / 10) : below(count);
            Entry entry = byName.get(new String(entries.get(n).name));
            entry.total += entry.values[i % 24];
            entry.values[(i + 5) % 24] ^= i;
        }
        for (int n = 0; n < count; n += 4) {
            byName.remove(entries.get(n).name);
            Entry entry = new Entry(count + n);
            entries.set(n, entry);
            byName.put(entry.name, entry);
        }
        entries.sort((a, b) -> a.name.compareTo(b.name));
        long check = 0;
        for (Entry entry : entries) check = check * 31 + entry.name.hashCode() + entry.total + entry.values[7];
        System.out.println(byName.size() + " " + entries.get(0).name + " " + check);
    }
}

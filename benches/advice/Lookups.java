import java.util.HashMap;

/** Random look-ups in a HashMap of strings: java Lookups.java ENTRIES LOOKUPS. */
public class Lookups {
    private static int seed = 0x92d68ca2;

    private static int random(int below) {
        seed ^= seed << 13;
        seed ^= seed >>> 17;
        seed ^= seed << 5;
        return Integer.remainderUnsigned(seed, below);
    }

    public static void main(String[] words) throws Exception {
        int entries = Integer.parseInt(words[0]);
        int lookups = Integer.parseInt(words[1]);
        HashMap<Integer, String> table = new HashMap<>();
        for (int i = 0; i < entries; i++) table.put(i * 7, "name " + i);
        System.out.println("ready");
        System.out.flush();
        System.in.read();
        long start = System.nanoTime();
        long sum = 0;
        for (int i = 0; i < lookups; i++) sum += table.get(random(entries) * 7).length();
        long taken = System.nanoTime() - start;
        System.out.printf("%.2f ns per operation, sum %d%n", (double) taken / lookups, sum);
    }
}

import java.util.ArrayList;
import java.util.List;

/** Fills the Java heap, prints "ready" and waits. */
public class Fill {
    public static void main(String[] arguments) throws Exception {
        List<long[]> kept = new ArrayList<>();
        for (int at = 0; at < 1_500_000; at++) {
            kept.add(new long[10]);
        }
        System.out.println("ready");
        System.out.flush();
        Thread.sleep(600_000);
        System.out.println(kept.size());
    }
}

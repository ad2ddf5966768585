// Files in a thread pool, a garbage collection, a null pointer (a handled SIGSEGV), a child.
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

public class Work {
    static int writeAndRead(int number) throws Exception {
        Path path = Paths.get("f" + number);
        Files.write(path, ("" + number).getBytes());
        return Integer.parseInt(new String(Files.readAllBytes(path)));
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<Integer>> results = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            final int number = i;
            results.add(pool.submit(() -> writeAndRead(number)));
        }
        int sum = 0;
        for (Future<Integer> result : results) sum += result.get();
        pool.shutdown();
        System.gc();
        try {
            int[] nothing = null;
            System.out.println(nothing[0]);
        } catch (NullPointerException expected) {
            System.out.println("null");
        }
        Process child = new ProcessBuilder("echo", "child").start();
        String said = new String(child.getInputStream().readAllBytes()).trim();
        System.out.println(sum + " " + said + " " + child.waitFor());
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Loads filters, checks and times matching: DRIVER FOLDER BUDGET_S LOAD_S FILTERS. Prints a line of JSON. */
abstract class Driver<E> {
    static final ObjectMapper JSON = new ObjectMapper();
    /** Budgets that go into warming up: Java compiles what it has seen often. */
    static final int WARM_UP = 4;

    abstract void add(int id, JsonNode filter) throws Exception;

    /** What is done once, before the clock starts. */
    abstract E read(String line) throws Exception;

    /** Ids of the filters that match; an id may come twice. */
    abstract Iterable<Integer> match(E event) throws Exception;

    void ready() throws Exception {}

    /** Runs, and ends whatever threads a library has left. */
    void run(String[] given) throws Exception {
        measure(given);
        System.out.flush();
        System.exit(0);
    }

    private void measure(String[] given) throws Exception {
        Path folder = Path.of(given[0]);
        double budget = Double.parseDouble(given[1]), limit = Double.parseDouble(given[2]);
        List<JsonNode> filters = new ArrayList<>();
        for (String line : Files.readAllLines(folder.resolve("filters"))) filters.add(JSON.readTree(line));
        List<E> events = new ArrayList<>();
        for (String line : Files.readAllLines(folder.resolve("events"))) events.add(read(line));

        long start = System.nanoTime();
        int loaded = 0;
        for (JsonNode filter : filters) {
            add(filter.get(0).asInt(), filter.get(1));
            if ((++loaded & 255) == 0 && seconds(start) > limit) {
                System.out.printf("{\"stopped\": \"loading was stopped after %.0f s, at %,d filters\"}%n", limit, loaded);
                return;
            }
        }
        ready();
        double load = seconds(start);

        int n = Math.min(5, events.size());
        double taken = pass(events, n);
        // Warm up, and find out how many events fit.
        for (long warm = System.nanoTime(); seconds(warm) < WARM_UP * budget; ) {
            taken = pass(events, n);
            if (taken < budget / 8) n = Math.min(events.size(), n * 4);
        }
        int rounds = (int) Math.max(1, Math.min(9, budget / taken));
        double[] passes = new double[rounds];
        for (int round = 0; round < rounds; round++) passes[round] = pass(events, n);
        Arrays.sort(passes);

        double all = taken / n * events.size();
        int checked = all < 10 ? events.size() : n;
        long[] tally = new long[Integer.parseInt(given[3])];
        for (int e = 0; e < checked; e++) {
            java.util.HashSet<Integer> once = new java.util.HashSet<>();
            for (int id : match(events.get(e))) if (once.add(id)) tally[id]++;
        }
        Files.writeString(folder.resolve("tally"), Arrays.toString(tally));
        System.out.printf(java.util.Locale.ROOT, "{\"load_s\": %.4f, \"us_per_event\": %.4f, \"events\": %d, \"checked\": %d}%n",
            load, passes[rounds / 2] / n * 1e6, n, checked);
    }

    private long found;

    private double pass(List<E> events, int n) throws Exception {
        long start = System.nanoTime();
        for (int e = 0; e < n; e++) for (int id : match(events.get(e))) found += id;
        return seconds(start);
    }

    static double seconds(long start) {
        return (System.nanoTime() - start) / 1e9;
    }
}

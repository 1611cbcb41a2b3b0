import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import software.amazon.event.ruler.GenericMachine;

/** event-ruler: a machine of all rules, events as JSON strings. */
class RulerDriver extends Driver<String> {
    private final GenericMachine<Integer> machine = new GenericMachine<>();

    void add(int id, JsonNode rule) throws Exception {
        machine.addRule(id, rule.toString());
    }

    String read(String line) {
        return line;
    }

    List<Integer> match(String event) throws Exception {
        return machine.rulesForJSONEvent(event);
    }

    public static void main(String[] given) throws Exception {
        new RulerDriver().run(given);
    }
}

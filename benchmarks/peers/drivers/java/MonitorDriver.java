import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.core.WhitespaceAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.DoublePoint;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StringField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.Term;
import org.apache.lucene.monitor.Monitor;
import org.apache.lucene.monitor.MonitorConfiguration;
import org.apache.lucene.monitor.MonitorQuery;
import org.apache.lucene.monitor.Presearcher;
import org.apache.lucene.monitor.QueryMatch;
import org.apache.lucene.monitor.RegexpQueryHandler;
import org.apache.lucene.monitor.TermFilteredPresearcher;
import org.apache.lucene.monitor.TermWeightor;
import org.apache.lucene.search.BooleanClause.Occur;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.PrefixQuery;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.RegexpQuery;
import org.apache.lucene.search.MatchAllDocsQuery;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.search.WildcardQuery;

/** Lucene Monitor: the library behind percolators. */
class MonitorDriver extends Driver<JsonNode> {
    private static final int BATCH = 5_000;
    private final Monitor monitor;
    private final List<MonitorQuery> waiting = new ArrayList<>();

    MonitorDriver() throws Exception {
        Presearcher presearcher = new TermFilteredPresearcher(
            TermWeightor.DEFAULT, List.of(new RegexpQueryHandler()), java.util.Set.of());
        monitor = new Monitor(new WhitespaceAnalyzer(), presearcher, new MonitorConfiguration());
    }

    void add(int id, JsonNode filter) throws Exception {
        waiting.add(new MonitorQuery(Integer.toString(id), query(filter)));
        if (waiting.size() == BATCH) ready();
    }

    void ready() throws Exception {
        monitor.register(waiting);
        waiting.clear();
    }

    JsonNode read(String line) throws Exception {
        return JSON.readTree(line);
    }

    List<Integer> match(JsonNode event) throws Exception {
        Document document = new Document();
        for (JsonNode field : event) {
            String name = field.get(1).asText();
            switch (field.get(0).asText()) {
                case "k" -> document.add(new StringField(name, field.get(2).asText(), Field.Store.NO));
                case "w" -> document.add(new TextField(name, field.get(2).asText(), Field.Store.NO));
                default -> document.add(new DoublePoint("n_" + name, field.get(2).asDouble()));
            }
        }
        List<Integer> ids = new ArrayList<>();
        for (QueryMatch match : monitor.match(document, QueryMatch.SIMPLE_MATCHER).getMatches()) {
            ids.add(Integer.parseInt(match.getQueryId()));
        }
        return ids;
    }

    private static Query query(JsonNode node) {
        String kind = node.fieldNames().next();
        JsonNode given = node.get(kind);
        switch (kind) {
            case "or": return combined(given, Occur.SHOULD);
            case "and": return combined(given, Occur.MUST);
            case "term": return new TermQuery(term(given));
            case "prefix": return new PrefixQuery(term(given));
            case "regexp": return new RegexpQuery(term(given));
            case "wildcard": return new WildcardQuery(term(given));
            default: return DoublePoint.newRangeQuery("n_" + given.get(0).asText(), given.get(1).asDouble(), given.get(2).asDouble());
        }
    }

    private static Term term(JsonNode given) {
        return new Term(given.get(0).asText(), given.get(1).asText());
    }

    private static Query combined(JsonNode parts, Occur occur) {
        if (parts.size() == 1 && !parts.get(0).has("not")) return query(parts.get(0));
        BooleanQuery.Builder all = new BooleanQuery.Builder();
        boolean negativeOnly = true;
        for (JsonNode part : parts) {
            boolean negated = part.has("not");
            all.add(query(negated ? part.get("not") : part), negated ? Occur.MUST_NOT : occur);
            negativeOnly &= negated;
        }
        if (negativeOnly) all.add(new MatchAllDocsQuery(), Occur.MUST);
        return all.build();
    }

    public static void main(String[] given) throws Exception {
        new MonitorDriver().run(given);
    }
}

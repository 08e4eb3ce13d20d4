import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Kafka's own authorizer. Lines of words between tabs; names in brackets, so that none is empty.
 *
 *   begin SUPER_USERS ALLOW_EVERYONE      a new authorizer without ACLs
 *   acl TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 *   one PRINCIPAL HOST OPERATION TYPE NAME     prints whether it is allowed
 *   any PRINCIPAL HOST OPERATION TYPE          prints whether it is allowed for some name
 *   count TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION    prints how many ACLs the filter matches; "null" for null
 */
public class Authorize {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 9; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static String text(String word) {
        return word.equals("null") ? null : word.substring(1, word.length() - 1);
    }

    static byte number(String word) {
        return Byte.parseByte(word);
    }

    static Context context(String[] words) throws Exception {
        return new Context(SecurityUtils.parseKafkaPrincipal(text(words[1])), InetAddress.getByName(text(words[2])));
    }

    static StandardAuthorizer begin(String[] words) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        Map<String, Object> configs = new HashMap<>();
        configs.put("node.id", "1");
        configs.put("super.users", text(words[1]));
        configs.put("allow.everyone.if.no.acl.found", words[2]);
        authorizer.configure(configs);
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
        return authorizer;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        StringBuilder results = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "begin" -> authorizer = begin(words);
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(number(words[1])), text(words[2]), PatternType.fromCode(number(words[3])),
                    text(words[4]), text(words[5]), AclOperation.fromCode(number(words[6])),
                    AclPermissionType.fromCode(number(words[7]))));
                case "one" -> {
                    ResourcePattern resource = new ResourcePattern(
                        ResourceType.fromCode(number(words[4])), text(words[5]), PatternType.LITERAL);
                    Action action = new Action(AclOperation.fromCode(number(words[3])), resource, 1, true, true);
                    results.append(authorizer.authorize(context(words), List.of(action)).get(0) == AuthorizationResult.ALLOWED);
                    results.append('\n');
                }
                case "any" -> {
                    AuthorizationResult result = authorizer.authorizeByResourceType(
                        context(words), AclOperation.fromCode(number(words[3])), ResourceType.fromCode(number(words[4])));
                    results.append(result == AuthorizationResult.ALLOWED).append('\n');
                }
                default -> {
                    int count = 0;
                    AclBindingFilter filter = new AclBindingFilter(
                        new ResourcePatternFilter(ResourceType.fromCode(number(words[1])), text(words[2]),
                            PatternType.fromCode(number(words[3]))),
                        new AccessControlEntryFilter(text(words[4]), text(words[5]),
                            AclOperation.fromCode(number(words[6])), AclPermissionType.fromCode(number(words[7]))));
                    for (Object ignored : authorizer.acls(filter)) {
                        count++;
                    }
                    results.append(count).append('\n');
                }
            }
        }
        System.out.print(results);
    }
}

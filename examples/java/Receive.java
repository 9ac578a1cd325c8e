// Receives events with only the JDK (17 or newer): `PORT=9005 java Receive.java`.

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.regex.Pattern;
import java.util.zip.GZIPInputStream;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Receive {
    static final int BODY_BYTES_MAX = 8 << 20;
    static final long TOLERANCE_S = 300;
    static final int SEEN_MAX = 100_000;
    // Use a JSON library in your program; the JDK has none.
    static final Pattern ID = Pattern.compile("\"id\":\"([^\"]*)\"");
    static final byte[] SECRET =
            Base64.getDecoder().decode(System.getenv("HIFI_SIGNING_SECRET").substring("whsec_".length()));
    // In your program, use a database table instead, in the transaction that processes the event.
    static final Set<String> SEEN =
            Collections.newSetFromMap(
                    new LinkedHashMap<>() {
                        @Override
                        protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
                            return size() > SEEN_MAX;
                        }
                    });

    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "9005"));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/hifi", exchange -> answer(exchange, receive(exchange)));
        server.start();
    }

    static int receive(HttpExchange exchange) throws IOException {
        // The signature covers the decompressed body.
        boolean isPacked = "gzip".equals(exchange.getRequestHeaders().getFirst("content-encoding"));
        InputStream raw = exchange.getRequestBody();
        byte[] body = (isPacked ? new GZIPInputStream(raw) : raw).readNBytes(BODY_BYTES_MAX + 1);
        if (body.length > BODY_BYTES_MAX) return 413;
        if (!isSigned(exchange, body)) return 401;
        var ids = ID.matcher(new String(body, StandardCharsets.UTF_8));
        synchronized (SEEN) {
            // Process an event here; answer 200 only once you have stored it safely.
            while (ids.find()) if (SEEN.add(ids.group(1))) System.out.println(ids.group(1));
        }
        return 200;
    }

    static boolean isSigned(HttpExchange exchange, byte[] body) {
        try {
            var headers = exchange.getRequestHeaders();
            String id = headers.getFirst("webhook-id");
            String time = headers.getFirst("webhook-timestamp");
            String given = headers.getFirst("webhook-signature");
            if (id == null || time == null || given == null) return false;
            long age = System.currentTimeMillis() / 1000 - Long.parseLong(time);
            if (Math.abs(age) > TOLERANCE_S) return false;
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(SECRET, "HmacSHA256"));
            mac.update((id + "." + time + ".").getBytes(StandardCharsets.UTF_8));
            byte[] ours = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes();
            // There are two signatures during a rotation of secrets.
            for (String one : given.split(" ")) {
                if (MessageDigest.isEqual(ours, one.getBytes())) return true;
            }
            return false;
        } catch (GeneralSecurityException | NumberFormatException error) {
            return false;
        }
    }

    static void answer(HttpExchange exchange, int status) throws IOException {
        exchange.sendResponseHeaders(status, -1);
        exchange.close();
    }
}
